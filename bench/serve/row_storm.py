"""Load, infer and unload of 20 models at once by 32 clients: every answer is right or a refusal in words, none is lost, and memory does not grow.

A model multiplies by a matrix of its own, so that an answer tells which model, and which of its weights, it came from.
"""
import collections
import http.client
import json
import os
import random
import sys
import threading
import time

import messages
import small_onnx
from served import Served, memory_bytes

MODELS, CLIENTS, WIDTH = 20, 32, 256
REFUSED = (400, 404, 409, 503)  # in words: not loaded now, no room now
FIRST_S = 60


class Client(threading.Thread):
    """Asks, loads and unloads by chance until `end`; counts what came of it."""

    def __init__(self, port, seed, end):
        super().__init__(daemon=True)
        self.port, self.dice, self.end = port, random.Random(seed), end
        self.counts, self.examples = collections.Counter(), {}

    def note(self, kind, example=""):
        self.counts[kind] += 1
        self.examples.setdefault(kind, str(example)[:300])

    def run(self):
        connection = None
        while time.monotonic() < self.end:
            connection = connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
            try:
                self.act(connection)
            except (OSError, http.client.HTTPException) as why:
                self.note("lost", repr(why))
                connection.close()
                connection = None

    def act(self, connection):
        model, chance = self.dice.randrange(MODELS), self.dice.random()
        if chance < 0.9:
            return self.infer(connection, model)
        what = "load" if chance < 0.95 else "unload"
        status, body = self.send(connection, f"/v2/repository/models/m{model}/{what}", b"{}")
        return self.note(what if status == 200 else "refused" if status in REFUSED else "lost", body)

    def send(self, connection, path, body):
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()

    def infer(self, connection, model):
        x = float(self.dice.randrange(1, 1000))
        status, body = self.send(connection, messages.infer_path(f"m{model}"), messages.json_body("x", "FP32", [1, WIDTH], [x] * WIDTH))
        if status != 200:
            return self.note("refused" if status in REFUSED and b'"error"' in body else "lost", f"{status}: {body[:200]!r}")
        right = json.loads(body)["outputs"][0]["data"] == [x * (model + 1)] * WIDTH
        return self.note("right" if right else "wrong", body)


def make_models(folder):
    for i in range(MODELS):
        os.makedirs(f"{folder}/m{i}/1")
        with open(f"{folder}/m{i}/1/model.onnx", "wb") as out:
            out.write(small_onnx.scale(f"m{i}", WIDTH, i + 1))


def watch(server, begun, end):
    """[(seconds, bytes of runtime and workers)] as it goes."""
    seen = []
    while time.monotonic() < end:
        time.sleep(2)
        seen.append((time.monotonic() - begun, sum(memory_bytes(pid) for pid in server.pids())))
        print(f"\r  storm: {seen[-1][0]:4.0f} s, {seen[-1][1] / 1e6:.1f} MB ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return seen


def growth(seen, first_s):
    """(bytes more at the end than after the first minute, bytes then): means of a tenth of the samples each, for single ones jump."""
    later = [size for at, size in seen if at >= first_s] or [size for _, size in seen]
    n = max(len(later) // 10, 1)
    first = sum(later[:n]) / n
    return sum(later[-n:]) / n - first, first


def storm(bench):
    seconds, first_s = (30, 10) if bench.options.quick else (bench.options.storm_seconds, FIRST_S)
    with bench.folder() as folder:
        make_models(folder)
        with Served(bench.options, "--models", folder, "--model-control", "explicit", "--pool-bytes", "256M") as server:
            port, begun = server.need("http"), time.monotonic()
            clients = [Client(port, i + 1, begun + seconds) for i in range(CLIENTS)]
            for client in clients:
                client.start()
            seen = watch(server, begun, begun + seconds)
            for client in clients:
                client.join(60)
    counts, examples = collections.Counter(), {}
    for client in clients:
        counts += client.counts
        examples.update(client.examples)
        counts["lost"] += client.is_alive()  # a request without any end
    return results(bench, counts, examples, seen, first_s, seconds)


def results(bench, counts, examples, seen, first_s, seconds):
    told = ", ".join(f"{counts[kind]} {kind}" for kind in ("right", "refused", "load", "unload"))
    more, base = growth(seen, first_s)
    n, asked = sum(counts.values()), counts["right"] > 0
    why = None if asked else f"no request was answered rightly: {examples}"
    return {
        "storm_wrong": bench.result(counts["wrong"] if asked else None, n, f"{told} in {seconds} s", why=why, example=examples.get("wrong")),
        "storm_lost": bench.result(counts["lost"] if asked else None, n, told, why=why, example=examples.get("lost"), refusal=examples.get("refused")),
        "storm_memory": bench.result(more / 1e6 if asked else None, len(seen), f"after {first_s} s: {base / 1e6:.1f} MB, runtime and workers", why=why),
    }
