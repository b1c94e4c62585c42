#!/usr/bin/env python3
"""Ray Serve in front of Switchyard nodes: a request for a model goes to a node where the model is resident.

    python switchyard_ray.py NODES.json [--port 8000]     # on a running Ray cluster, or on one of its own

NODES.json: as of examples/fleet/: [{"http": "10.0.0.1:8000", "status": "tcp:10.0.0.1:8100"}, ...].

    HTTP ─> Router (a Serve deployment) ─> the table: which nodes have the model resident, how many requests each has open
                     └── asks each node's status once a second, in a thread ──┘

Switchyard does the multiplexing (swaps, eviction, what stays in memory), Ray decides which node. A request whose node dies is sent to the next one: inference changes nothing there.
Training jobs are placed by free memory: `place_job`.
"""
import argparse
import asyncio
import hashlib
import json
import subprocess
import threading
import time

import aiohttp
from ray import serve
from starlette.requests import Request
from starlette.responses import Response

LOOK_SECONDS = 1.0
MOST_OPEN = 64  # requests at a node at a time; a node that has more is passed over


class Table:
    """Which node a request goes to. Knows nothing of Ray or HTTP."""

    def __init__(self, nodes):
        self.nodes = {node["http"]: node for node in nodes}
        self.resident = {name: {} for name in self.nodes}  # node -> {model: share of its groups that are in the pool}
        self.free_bytes = dict.fromkeys(self.nodes, 0)
        self.alive = set(self.nodes)
        self.open = dict.fromkeys(self.nodes, 0)

    def learn(self, name, status):
        """What a node says of itself; None: it does not answer."""
        if status is None or status["draining"]:
            self.alive.discard(name)
            return
        self.alive.add(name)
        self.free_bytes[name] = status["pool"]["free_bytes"]
        self.resident[name] = {m["name"]: m["resident_groups"] / max(m["groups"], 1) for m in status["models"]
                               if m["state"] == "ready" and m["resident_groups"] > 0 and m["requests"] > 0}

    def order(self, model):
        """All nodes, the best first: with room, alive, most of the model resident, fewest requests; where it is resident nowhere, by rendezvous hash."""
        def key(name):
            place = hashlib.blake2b(f"{model} {name}".encode(), digest_size=8).digest()
            share = self.resident[name].get(model, 0)
            return (name not in self.alive, self.open[name] >= MOST_OPEN, -round(share, 1), self.open[name] if share else 0, place)

        return sorted(self.nodes, key=key)

    def node_for_job(self, bytes_needed):
        """The node with the most free memory that has so much; None: no node has."""
        best = max(self.alive, key=lambda name: self.free_bytes[name], default=None)
        return best if best and self.free_bytes[best] >= bytes_needed else None


def status_of(binary, node):
    try:
        done = subprocess.run([binary, "status", "--json", "--socket", node["status"]], capture_output=True, timeout=10, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None
    except (subprocess.TimeoutExpired, ValueError):
        return None


def place_job(binary, nodes, job_path, bytes_needed):
    """Starts a training job where it has room; returns the node. Its snapshots and its recovery are that node's."""
    table = Table(nodes)
    for name, node in table.nodes.items():
        table.learn(name, status_of(binary, node))
    name = table.node_for_job(bytes_needed)
    if name is None:
        raise RuntimeError(f"no node has {bytes_needed} bytes free: {table.free_bytes}")
    subprocess.run([binary, "train", job_path, "--socket", table.nodes[name]["status"]], check=True, stdout=subprocess.DEVNULL)
    return name


# On the head, where the HTTP proxy is: a worker node of Ray that dies then takes no request with it.
@serve.deployment(ray_actor_options={"num_cpus": 0, "resources": {"node:__internal_head__": 0.001}}, max_ongoing_requests=1024)
class Router:
    def __init__(self, nodes, binary):
        self.table, self.binary, self.session = Table(nodes), binary, None
        self.look()
        threading.Thread(target=self.look_again, daemon=True).start()

    def look(self):
        for name, node in self.table.nodes.items():
            self.table.learn(name, status_of(self.binary, node))

    def look_again(self):
        while True:
            time.sleep(LOOK_SECONDS)
            self.look()

    async def send(self, name, request, body):
        """The node's answer; None: it is gone, drains or is full, and another may answer."""
        headers = {k: v for k, v in request.headers.items() if k.lower() not in ("host", "content-length", "connection", "transfer-encoding")}
        self.table.open[name] += 1
        try:
            async with self.session.request(request.method, f"http://{name}{request.url.path}", data=body, headers=headers) as answer:
                content = await answer.read()
                if answer.status in (502, 503):
                    return None
                kept = {k: v for k, v in answer.headers.items() if k.lower() in ("content-type", "inference-header-content-length")}
                return Response(content, answer.status, kept)
        except (aiohttp.ClientError, asyncio.TimeoutError):
            self.table.alive.discard(name)
            return None
        finally:
            self.table.open[name] -= 1

    async def __call__(self, request: Request):
        self.session = self.session or aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=300), connector=aiohttp.TCPConnector(limit=0))
        body = await request.body()
        parts = request.url.path.split("/")
        for name in self.table.order(parts[3] if len(parts) > 3 else ""):
            answer = await self.send(name, request, body)
            if answer is not None:
                return answer
        return Response('{"error":"no node answers"}', 503, {"content-type": "application/json"})


def run(nodes, binary, port, host="127.0.0.1", replicas=1):
    serve.start(http_options={"host": host, "port": port})
    return serve.run(Router.options(num_replicas=replicas).bind(nodes, binary), route_prefix="/")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nodes")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--binary", default="switchyard")
    parser.add_argument("--replicas", type=int, default=1)
    arguments = parser.parse_args()
    with open(arguments.nodes, encoding="utf-8") as text:
        run(json.load(text), arguments.binary, arguments.port, "0.0.0.0", arguments.replicas)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main()
