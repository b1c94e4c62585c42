#!/usr/bin/env python3
"""Computing at the same time, measured: build/bench/corun.json.

    python3 bench/corun.py BUILD [--seconds S] [--only pairs,replay]

One server on two cores. Beside each other: training in a slice of one core and a model, its client and the runtime's thread in another (--for-runtime). Taking turns: the same two on both cores, training's share one half.
All rates of a row are of one run of this script, alternating. What is simulated says so in its row: sizes beyond two cores were not measured.
"""
import argparse
import csv
import hashlib
import http.client
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from kept_rows import cpu_name, kept

MODELS = ["mnist_cnn", "fashion_mlp", "fashion_resnet18", "mobilenet_v2"]
BYTES = {"FP32": 4, "INT64": 8, "INT32": 4, "BOOL": 1, "UINT8": 1, "INT8": 1}
PARTS = ["pairs", "prediction", "fill", "resize", "replay", "sizes", "fairness"]
CORES = 2
ROUNDS = 5  # what one round says is compared within it; the rows are medians of rounds
CONFIG = 'parameters { key: "class" value { string_value: "0" } }\n'


def wait_for(what, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = what()
        if value:
            return value
        time.sleep(0.02)
    raise SystemExit(f"corun: waited {seconds} s in vain")


class Server:
    def __init__(self, build, folder):
        self.build, self.folder, self.port = build, folder, 18311
        self.socket = os.path.join(folder, "s")
        self.log = open(os.path.join(folder, "log"), "wb")
        self.process = subprocess.Popen(
            [f"{build}/switchyard", "serve", "--models", f"{folder}/models", "--socket", self.socket, "--http", f"127.0.0.1:{self.port}", "--grpc", "127.0.0.1:18312",
             "--metrics", "127.0.0.1:18313", "--workers", "11"], stdout=self.log, stderr=self.log)
        wait_for(lambda: b"\nready" in open(self.log.name, "rb").read() or b"ready\n" in open(self.log.name, "rb").read(), 240)

    def run(self, *words):
        done = subprocess.run([f"{self.build}/switchyard", words[0], "--socket", f"unix:{self.socket}", *words[1:]], capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise SystemExit(f"corun: {' '.join(words)}: {done.stderr}")
        return done.stdout

    def status(self):
        return json.loads(self.run("status", "--json"))

    def job(self, number):
        return next(j for j in self.status()["jobs"] if j["job"] == number)

    def train(self, name, batch, tenant="default", model="mnist_cnn", class_="guaranteed"):
        path = os.path.join(self.folder, f"{name}.json")
        os.makedirs(f"{self.folder}/snapshots-{name}")
        job = {"name": name, "model": f"{self.folder}/models/{model}/1/model.onnx", "optimizer": {"kind": "sgd", "learning_rate": 0.01}, "tenant": tenant, "class": class_,
               "data": {"kind": "synthetic", "samples": 2048}, "snapshot": {"folder": f"{self.folder}/snapshots-{name}"}, "batch": batch, "epochs": 100000}
        with open(path, "w", encoding="utf-8") as text:
            json.dump(job, text)
        number = int(self.run("train", path).split()[1])
        wait_for(lambda: self.job(number)["step"] > 2)
        return number

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


class Client:
    """One request after the other, on a connection of its own."""

    def __init__(self, server, model):
        self.path = f"/v2/models/{model}/infer"
        self.link = http.client.HTTPConnection("127.0.0.1", server.port)
        self.link.request("GET", f"/v2/models/{model}")
        inputs, body = [], b""
        for tensor in json.loads(self.link.getresponse().read())["inputs"]:
            shape = [max(int(d), 1) for d in tensor["shape"]]
            n = BYTES[tensor["datatype"]]
            for d in shape:
                n *= d
            inputs.append({"name": tensor["name"], "shape": shape, "datatype": tensor["datatype"], "parameters": {"binary_data_size": n}})
            body += bytes(n)
        head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
        self.body, self.headers = head + body, {"Inference-Header-Content-Length": str(len(head))}

    def once(self):
        start = time.monotonic()
        self.link.request("POST", self.path, self.body, self.headers)
        answer = self.link.getresponse()
        answer.read()
        if answer.status != 200:
            raise SystemExit(f"corun: {self.path}: {answer.status}")
        return time.monotonic() - start

    def loop(self, seconds, out, core=None):
        if core is not None:
            os.sched_setaffinity(0, {core})  # of this thread
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            out.append(self.once())


def beside(server, job, models, seconds, core=None):
    """Steps a second of the job, and the times of each model's requests, at the same time; clients stay on the core, if one is said."""
    times = {m: [] for m in models}
    clients = [Client(server, m) for m in models]
    for c in clients:
        c.once()
    threads = [threading.Thread(target=c.loop, args=(seconds, times[m], core)) for c, m in zip(clients, models)]
    first, start = server.job(job)["step"] if job else 0, time.monotonic()
    for t in threads:
        t.start()
    if not threads:
        time.sleep(seconds)
    for t in threads:
        t.join()
    steps = server.job(job)["step"] - first if job else 0
    return steps / (time.monotonic() - start), times


def p99(times):
    return sorted(times)[min(len(times) - 1, len(times) * 99 // 100)]


def median(values):
    return sorted(values)[len(values) // 2]


def cut(server, job, *words):
    server.run("slices", *words)
    want = 2 if words[0] == "--none" else 1
    wait_for(lambda: (lambda j: j["threads"] == want and j["state"] in ("training", "paused", "waiting", "suspended"))(server.job(job)))


def pause(server, job):
    """Until it computes no more. No job: nothing."""
    if job:
        server.run("jobs", "pause", str(job))
        wait_for(lambda: server.job(job)["state"] != "training")


def resume(server, job):
    """Until it computes again."""
    if job:
        first = server.job(job)["step"]
        server.run("jobs", "resume", str(job))
        wait_for(lambda: server.job(job)["step"] > first)


def hash_blocks(seconds, core, out):
    """A plain loop of C, without memory traffic, system calls or a lock: times of blocks of some milliseconds, on one core."""
    os.sched_setaffinity(0, {core})  # of this thread
    end, block = time.monotonic() + seconds, bytes(4 << 20)
    while (start := time.monotonic()) < end:
        hashlib.sha256(block).digest()
        out.append(time.monotonic() - start)


def plain_loops(seconds, told):
    """What the machine itself makes of two cores that compute: such a loop alone on core 1, beside another on core 0, and alone again."""
    for way in ("alone", "beside", "alone"):
        cores = {1: told.setdefault(way, []), **({0: []} if way == "beside" else {})}
        threads = [threading.Thread(target=hash_blocks, args=(seconds, core, out)) for core, out in cores.items()]
        for t in threads:
            t.start()
        for t in threads:
            t.join()


def measure_pairs(server, job, seconds):
    """A model's runs beside the job are between two times of runs alone: the machine itself varies within seconds."""
    told = {"apart": {}, "turns": {}, "alone": {}, "again": {}, "whole": {}, "roaming": {}, "loops": {}}
    for _ in range(ROUNDS):
        cut(server, job, "train=@0", "serve=@1", "--for-jobs", "train", "--for-models", "serve", "--for-runtime", "serve", "--bound", "0")
        told["apart"].setdefault(None, []).append(beside(server, job, [], seconds))
        for m in MODELS:
            pause(server, job)
            told["alone"].setdefault(m, []).append(beside(server, None, [m], seconds, 1))
            resume(server, job)
            told["apart"].setdefault(m, []).append(beside(server, job, [m], seconds, 1))
            told["again"].setdefault(None, {}).setdefault(m, []).append(beside(server, job, [], seconds))
            pause(server, job)
            told["again"].setdefault(m, []).append(beside(server, None, [m], seconds, 1))
            resume(server, job)
        server.run("slices", "--for-runtime", "")
        for m in MODELS:
            told["roaming"].setdefault(m, []).append(beside(server, job, [m], seconds))
        cut(server, job, "--none")
        server.run("policy", "--train-share", "0.5")
        told["whole"].setdefault(None, []).append(beside(server, job, [], seconds))
        for m in MODELS:
            told["turns"].setdefault(m, []).append(beside(server, job, [m], seconds))
        server.run("jobs", "pause", str(job))
        plain_loops(seconds / 2, told["loops"])
        for m in MODELS:
            told["whole"].setdefault(m, []).append(beside(server, None, [m], seconds))
        server.run("jobs", "resume", str(job))
        server.run("policy", "--train-share", "0")
    return told


def speeds_beside(told):
    """Of the job beside each model, by its speed without a neighbour right before and after: medians of rounds."""
    alone = list(zip(*([run[0] for run in runs] for runs in (told["apart"][None], *(told["again"][None][m] for m in MODELS)))))
    return [median([2 * run[0] / (alone[k][i] + alone[k][i + 1]) for k, run in enumerate(told["apart"][m])]) for i, m in enumerate(MODELS)]


def tails_beside(told, m):
    """p99 beside the job / alone right before and after, of each round."""
    return [p99(beside_job[1][m]) / p99(before[1][m] + after[1][m]) for beside_job, before, after in zip(*(told[way][m] for way in ("apart", "alone", "again")))]


def rows_of_pairs(told, seconds):
    def steps(way, m):
        return median([run[0] for run in told[way][m]])

    def requests(way, m):
        return median([len(run[1][m]) for run in told[way][m]]) / seconds

    loops = told["loops"]
    confined = [steps("apart", m) for m in [None, *MODELS]]
    unmoved = [steps("apart", None), *(median([run[0] for run in runs]) for runs in told["again"][None].values())]
    roaming = [steps("roaming", m) for m in MODELS] + [steps("apart", None)]
    gains, ratios, detail, same, far, speeds = {}, {}, {}, {}, {}, [1, *speeds_beside(told)]
    for m in MODELS:
        sums = [steps(way, m) / steps("whole", None) + requests(way, m) / requests("whole", m) for way in ("apart", "turns")]
        gains[m] = sums[0] / sums[1]
        all_of = {way: sum((run[1][m] for run in told[way][m]), []) for way in ("apart", "alone", "again", "roaming")}
        alone = p99(all_of["alone"] + all_of["again"])
        ratios[m], far[m] = (median(tails_beside(told, m)), len(all_of["apart"]), alone * 1e3, p99(all_of["apart"]) / alone), p99(all_of["roaming"]) / alone
        same[m] = p99(all_of["again"]) / p99(all_of["alone"])
        detail[m] = {"steps_per_s": {"slices": steps("apart", m), "turns": steps("turns", m)}, "requests_per_s": {"slices": requests("apart", m), "turns": requests("turns", m)}}
    best, worst = max(gains, key=gains.get), min(gains, key=gains.get)
    most = max(ratios, key=lambda m: ratios[m][0])
    rows = [
        {"what": "run time of a confined job, any neighbour: spread", "value": max(speeds) / min(speeds) - 1, "op": "<=", "bar": 0.09, "n": ROUNDS * len(confined),
         "baseline": f"each by the job without a neighbour right before and after; not by that: {max(confined) / min(confined) - 1:.3f}; the job alone in its slice: "
                     f"{steps('apart', None):.1f} steps/s; the same five times without a neighbour: {max(unmoved) / min(unmoved) - 1:.3f}; "
                     f"the runtime's thread and clients on any core: {max(roaming) / min(roaming) - 1:.3f}"},
        {"what": "throughput of the best co-run of (training, small model) / taking turns", "value": gains[best], "op": ">=", "bar": 1.2, "n": ROUNDS, "baseline": f"turns on both cores; {best}"},
        {"what": "throughput of the worst such co-run / taking turns", "value": gains[worst], "op": ">=", "bar": 0.98, "n": ROUNDS, "baseline": f"turns on both cores; {worst}"},
        {"what": f"p99 of an interactive model beside a co-running job / alone on the same slice right before and after, median of {ROUNDS} rounds, worst of four",
         "value": ratios[most][0], "op": "<=", "bar": 1.10, "n": ratios[most][1],
         "baseline": f"{most} alone: {ratios[most][2]:.2f} ms; all rounds together: {max(r[3] for r in ratios.values()):.2f} (worst of four); the machine's part, two plain loops "
                     f"(SHA-256), one on each core: time of a block beside / alone {median(loops['beside']) / median(loops['alone']):.2f} at the median, "
                     f"{p99(loops['beside']) / p99(loops['alone']):.2f} at p99 (n = {len(loops['beside'])}); alone after / "
                     f"alone before, of the four: {min(same.values()):.2f} to {max(same.values()):.2f}; the runtime's thread and clients on any core, not on the model's: {max(far.values()):.2f}"},
    ]
    return rows, {"gains": gains, "p99": ratios, "p99_alone_again": same, "p99_roaming": far, "rates": detail}


ALTERNATIONS = 5


def slowdowns_of(server):
    return {(p["task"], p["beside"]): p["slowdown"] for p in server.status()["pairs"]}


def alternate(server, job, models, seconds, into):
    """Alone, then beside each other, in short blocks: a slow-down is the ratio of neighbours in time, since the machine itself varies by more than that within seconds."""
    for _ in range(ALTERNATIONS):
        pause(server, job)
        for m in models:
            beside(server, None, [m], seconds / 5)
        resume(server, job)
        beside(server, job, models, seconds / 3)
        for pair, slowdown in slowdowns_of(server).items():
            if pair[0] in models and pair[1] in [*models, "job"]:
                into.setdefault(pair, []).append(slowdown)


def measure_slowdowns(server, job, seconds):
    """Models 0 and 1 in the job's slice, 2 and 3 in the other: ten pairs of one beside another, with the slow-downs of each alternation. A pair's first prediction is made of solo profiles and of other pairs."""
    cut(server, job, "train=@0", "serve=@1", "--for-jobs", "train", "--for-models", "serve", "--bound", "100")
    for m in MODELS[:2]:
        server.run("slices", "--model", m, "--to", "train")
    pause(server, job)
    slowdowns = {}
    for a in MODELS[:2]:
        for b in MODELS[2:]:
            alternate(server, None, [a, b], seconds, slowdowns)
    resume(server, job)
    for m in MODELS[2:]:
        alternate(server, job, [m], seconds, slowdowns)
    return slowdowns


def mean_of(values):
    return sum(values) / max(len(values), 1)


def rows_of_prediction(server, job, seconds):
    measured = {pair: values for pair, values in measure_slowdowns(server, job, seconds).items() if len(values) == ALTERNATIONS}
    is_ = {pair: median(values) for pair, values in measured.items()}
    pairs = [{**p, "slowdowns": measured[p["task"], p["beside"]]} for p in server.status()["pairs"] if p["n"] >= 8 and (p["task"], p["beside"]) in is_]
    off = {p["task"] + " beside " + p["beside"]: p["first_predicted"] / is_[p["task"], p["beside"]] - 1 for p in pairs}
    enough, worst = len(pairs) >= 10, max(off, key=lambda name: abs(off[name]), default="")
    first, none = mean_of([abs(o) for o in off.values()]), mean_of([abs(1 / is_[p["task"], p["beside"]] - 1) for p in pairs])
    apart = mean_of([abs(value / is_[pair] - 1) for pair, values in measured.items() for value in values])
    online, none_online, alone = (mean_of([p[key] for p in pairs]) for key in ("error", "none_error", "alone_error"))
    lost = [max((p[key] for p in pairs), default=0) for key in ("lost_alone", "lost_beside")]
    rows = [{"what": f"prediction error over at least 10 pairs: of a pair that was never observed, by solo profiles; slow-downs measured alone and beside in turns, medians of {ALTERNATIONS}",
             "value": first if enough else None, "op": "<=", "bar": 0.05, "n": len(pairs),
             "baseline": f"no slow-down predicted: {100 * none:.1f} %; one turn's slow-down from its pair's median: {100 * apart:.1f} %; predicted - measured: mean "
                         f"{100 * mean_of(list(off.values())):+.1f} %, most {100 * off.get(worst, 0):+.1f} % ({worst}); against a pair's first 8 runs: "
                         f"{100 * mean_of([p['first_error'] for p in pairs]):.1f} %"},
            {"what": "the same, learned online: each median of 8 runs, predicted before", "value": online if enough else None, "op": "<=", "bar": 0.05, "n": len(pairs),
             "baseline": f"no slow-down predicted, of the same runs: {100 * none_online:.1f} %; runs alone, predicted by those before in the same way: {100 * alone:.1f} %; a model's runs "
                         f"stood without a core up to {100 * lost[0]:.0f} % of their time alone, {100 * lost[1]:.0f} % beside"}]
    return rows, pairs


def answers_of(path):
    """(model, latency, time on the device) of each request that was answered, in ms."""
    with open(path, encoding="ascii") as text:
        return [(line["model"], float(line["latency_ms"]), float(line["served_ms"])) for line in csv.DictReader(text) if line["outcome"] == "done"]


def traces_of(alone, seconds, seed):
    """By what a request takes alone, in seconds. Three shapes: requests at random; bursts of six at random; even gaps, the first model much asked for and the second little."""
    rng, shapes = random.Random(seed), {"at random": [], "in bursts of six": [], "in even gaps, uneven load": []}
    for (m, each), load in zip(alone.items(), (0.7, 0.2)):
        for burst, name in ((1, "at random"), (6, "in bursts of six")):
            t = rng.expovariate(0.45 / burst / each)
            while t < 2 * seconds:
                shapes[name] += [(t, m)] * burst
                t += rng.expovariate(0.45 / burst / each)
        shapes["in even gaps, uneven load"] += [(k * each / load, m) for k in range(int(2 * seconds * load / each))]
    return shapes


def means_of_quantiles(values, n):
    """n values of the same mean: a rare long one would weigh too much, or be missed, among n that are picked."""
    values = sorted(values)
    cuts = [len(values) * k // n for k in range(n + 1)]
    return [mean_of(values[a:b]) for a, b in zip(cuts, cuts[1:])]


class Replay:
    """Two models in slices of one core each. Right before each replay of a trace it is measured what a request of each model takes that finds its slice idle: alone, and while the
    other model's requests come as in the trace. A trace is simulated with both. `predicted`: times alone and the slow-downs of pairs that the server has observed until then. `explained`:
    times beside the other's requests, which hold what tasks, the runtime's thread and the clients take of each other's two cores; that is measured, no prediction."""

    def __init__(self, server, seconds):
        self.server, self.folder, self.models = server, server.folder, {MODELS[1]: "train", MODELS[3]: "serve"}
        server.run("slices", "train=@0", "serve=@1", "--for-jobs", "train", "--for-models", "serve", "--bound", "0")
        for m, where in self.models.items():
            server.run("slices", "--model", m, "--to", where)
        self.alone, self.of_shape = {}, {}
        for m in self.models:
            once = median([Client(server, m).once() for _ in range(20)])
            self.alone[m] = mean_of([latency for _, latency, _ in self.replay([(k * 3 * once, m) for k in range(256)])]) / 1e3
        self.replay(traces_of(self.alone, seconds, 0)["at random"])  # what a server learns of its first requests is not a trace's
        for k in range(ROUNDS):
            for name, trace in traces_of(self.alone, seconds, 28 + k).items():
                self.of_shape.setdefault(name, []).append(self.compare(trace, seconds))
        self.rows = [self.row(name, told) for name, told in self.of_shape.items()]

    def replay(self, trace):
        with open(f"{self.folder}/trace.csv", "w", encoding="ascii") as text:
            text.write("time_s,model,class\n" + "".join(f"{t:.6f},{m},1\n" for t, m in sorted(trace)))
        self.server.run("replay", f"{self.folder}/trace.csv", "--answers", f"{self.folder}/trace.out", "--connections", "16")
        return answers_of(f"{self.folder}/trace.out")

    def calibrate(self, trace, seconds, times):
        """Appends (on the device, outside of it), in ms, of each request to times["alone"] and times["beside"]."""
        for m in self.models:
            others = [(t, other) for t, other in trace if other != m and t < seconds]
            idle = [(k * 3 * self.alone[m], m) for k in range(int(seconds / 3 / self.alone[m]))]
            for way, requests in (("alone", idle), ("beside", others + idle)):
                times[way][m] += [(served, latency - served) for model, latency, served in self.replay(requests) if model == m]

    def write_pairs(self):
        with open(f"{self.folder}/pairs.csv", "w", encoding="ascii") as text:
            text.write("task,beside,slowdown\n" + "".join(f"{task},{other},{max(slowdown, 1)}\n" for (task, other), slowdown in slowdowns_of(self.server).items()
                                                         if {task, other} <= set(self.models)))

    def simulate(self, times, *pairs):
        """The trace that was replayed last: latencies in ms."""
        with open(f"{self.folder}/models.csv", "w", encoding="ascii") as text:
            text.write("model,mb,compute_ms,slice,samples_ms,outside_ms\n")
            for m, where in self.models.items():  # of a whole device, of which a slice has half the speed
                served, outside = zip(*times[m])
                samples = means_of_quantiles(served, min(64, len(served)))
                text.write(f"{m},1,{median(served) / 2},{where},{' '.join(f'{ms / 2:.4f}' for ms in samples)},{mean_of(outside):.4f}\n")
        subprocess.run([f"{self.server.build}/switchyard", "simulate", "--unified", "--models", f"{self.folder}/models.csv", "--requests", f"{self.folder}/trace.csv", "--slices",
                        "train=1,serve=1", "--cores", "2", "--bound", "0", *pairs, "--answers", f"{self.folder}/sim.out"], check=True, stdout=subprocess.DEVNULL)
        return [ms for _, ms, _ in answers_of(f"{self.folder}/sim.out")]

    def compare(self, trace, seconds):
        """Calibrated before and between two replays: each mean latency, and what it was made of."""
        runs, times = [], {way: {m: [] for m in self.models} for way in ("alone", "beside")}
        for _ in range(2):
            self.calibrate(trace, seconds, times)
            if not runs:
                self.write_pairs()
            runs.append([ms for _, ms, _ in self.replay(trace)])
        predicted, explained = self.simulate(times["alone"], "--pairs", f"{self.folder}/pairs.csv"), self.simulate(times["beside"])
        real, again = (mean_of(ms) for ms in runs)
        means = {way: {m: [mean_of(part) for part in zip(*values)] for m, values in of.items()} for way, of in times.items()}
        return {"n": len(trace), "real": real, "again": again, "predicted": 2 * mean_of(predicted) / (real + again) - 1, "explained": 2 * mean_of(explained) / (real + again) - 1,
                "p99": {way: p99(ms) / p99(runs[0] + runs[1]) for way, ms in (("predicted", predicted), ("explained", explained))}, "times": means}

    def row(self, name, told):
        def each(key):
            return ", ".join(format(t[key], "+.3f") for t in told)

        def tail(way):
            return f"{median([t['p99'][way] for t in told]):.2f}"

        def parts(m, way):
            return " + ".join(f"{median([t['times'][way][m][k] for t in told]):.2f}" for k in range(2))
        made = [f"{m}: {parts(m, 'alone')} ms on its core and outside alone, {parts(m, 'beside')} beside" for m in self.models]
        return {"what": f"simulated / replayed mean latency of a trace over two slices of one core, requests {name}, predicted by times alone and slow-downs of pairs: distance from 1, "
                        f"median of {ROUNDS} traces", "op": "<=", "bar": 0.10, "value": median([abs(t["predicted"]) for t in told]), "n": 2 * sum(t["n"] for t in told),
                "baseline": f"each trace: {each('predicted')}; explained by times beside the other slice's requests, not predicted: {median([abs(t['explained']) for t in told]):.3f} "
                            f"({each('explained')}); replayed again / replayed: {', '.join(format(t['again'] / t['real'], '.2f') for t in told)}; replayed: "
                            f"{median([t['real'] for t in told]):.2f} ms; p99 simulated / replayed {tail('predicted')}, explained {tail('explained')}; {'; '.join(made)}"}


def row_of_simulated_sizes(server):
    """Simulated only: 16 and 64 cores in 8 slices against the same requests taking turns on all cores, where a model uses a quarter of them well."""
    folder, gains = server.folder, {}
    for cores in (16, 64):
        means = []
        with open(f"{folder}/big.csv", "w", encoding="ascii") as text:
            text.write("model,mb,compute_ms,slice\n" + "".join(f"m{k},1,{1 if cores == 16 else 0.5},s{k}\n" for k in range(8)))
        with open(f"{folder}/profiles.csv", "w", encoding="ascii") as text:  # in an eighth of the cores: half of the speed, for it scaled to a quarter only
            text.write("model,device,compute_ms\n" + "".join(f"m{k},s{k},{2 if cores == 16 else 1}\n" for k in range(8)))
        for how in ([], ["--slices", ",".join(f"s{k}=w1" for k in range(8)), "--cores", str(cores), "--profiles", f"{folder}/profiles.csv"]):
            told = subprocess.run([f"{server.build}/switchyard", "simulate", "--unified", "--models", f"{folder}/big.csv", "--generate",
                                   f"rate={800 if cores == 16 else 1600},seconds=20,zipf=0", "--take-all", "--json", *how], check=True, capture_output=True, text=True)
            means.append(json.loads(told.stdout)["latency_ms"]["0"]["mean"])
        gains[cores] = means[0] / means[1]
    return {"what": "SIMULATED: mean latency taking turns on all cores / in 8 slices, of models that use a quarter of the cores well, the lesser of 16 and 64 cores", "value": min(gains.values()),
            "op": ">=", "bar": 1.2, "n": 2, "baseline": f"turns on all cores; 16 cores {gains[16]:.2f}, 64 cores {gains[64]:.2f}"}


def row_of_fill(server, job, seconds):
    """An opportunistic job of the same kind beside the guaranteed one, in the slice that nobody uses; alternating with the guaranteed one alone."""
    cut(server, job, "train=@0", "serve=@1", "--for-jobs", "train", "--for-models", "serve", "--bound", "0", "--keep", "0.97")
    other = server.train("other", 64, class_="opportunistic")
    wait_for(lambda: server.job(job)["beside"], 60)
    alone, both, filled = [], [], []
    for _ in range(4):
        server.run("jobs", "resume", str(other))
        first = server.job(other)["step"]
        both.append(beside(server, job, [], 2 * seconds)[0])
        filled.append((server.job(other)["step"] - first) / (2 * seconds))
        server.run("jobs", "pause", str(other))
        alone.append(beside(server, job, [], 2 * seconds)[0])
    told = server.job(job)["beside"]
    server.run("jobs", "cancel", str(other))
    return {"what": "production beside opportunistic work in idle slices / alone", "value": sum(both) / sum(alone), "op": ">=", "bar": 0.97, "n": len(both),
            "baseline": f"alone: {sum(alone) / 4:.1f} steps/s; opportunistic work got {sum(filled) / 4:.1f} steps/s in {100 * told['others_part']:.0f} % of the time"}


def jain(values):
    return sum(values) ** 2 / (len(values) * sum(v * v for v in values))


def rows_of_fairness(server, seconds):
    """Tenants of long and of short iterations, by turns, under 'weighted'."""
    rows, numbers = [], []
    server.run("slices", "--none")
    server.run("policy", "weighted")
    for n in (2, 4, 8):
        while len(numbers) < n:
            k = len(numbers)
            numbers.append(server.train(f"t{k}", 512 if k % 2 else 32, f"tenant{k}", "fashion_mlp"))
        used = []
        for _ in range(2):
            used.append({t["tenant"]: t["used_ns"] for t in server.status()["rules"]["tenants"]})
            if len(used) == 1:
                time.sleep(seconds * n)
        had = [used[1][f"tenant{k}"] - used[0][f"tenant{k}"] for k in range(n)]
        if n == 2:
            rows.append({"what": "a tenant of long and one of short operations: distance of each from half of the time", "value": abs(had[0] / sum(had) - 0.5), "op": "<=", "bar": 0.02,
                         "n": 2, "baseline": "batches of 32 and 512"})
        rows.append({"what": f"fairness of {n} tenants by compute time (Jain)", "value": jain(had), "op": ">=", "bar": 0.99, "n": n,
                     "baseline": f"equal shares; least and most {100 * min(had) / sum(had):.1f} and {100 * max(had) / sum(had):.1f} %"})
    return rows


def mask_of(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as text:
        return next(line.split()[1] for line in text if line.startswith("Cpus_allowed_list"))


def row_of_resize(server, job, seconds):
    """The serving slice moves between the two cores while a model computes; until the worker's thread is allowed on the other core only."""
    cut(server, job, "train=@0", "serve=@1", "--for-jobs", "train", "--for-models", "serve", "--bound", "0")
    server.run("jobs", "pause", str(job))
    waits, runs, stop = [], [], []
    client = Client(server, "mobilenet_v2")

    def load():
        while not stop:
            runs.append(client.once())
    thread = threading.Thread(target=load)
    thread.start()
    time.sleep(seconds)
    pids = [w["pid"] for w in server.status()["workers"] if w["job"] == 0]
    here = next((p for p in pids if server.status() and mask_of(p) == "1"), None)
    for k in range(10):
        to = k % 2
        server.run("slices", f"serve=@{to}", f"train=@{1 - to}", "--for-jobs", "train", "--for-models", "serve")
        start = time.monotonic()
        while here and all(mask_of(p) != str(to) for p in pids) and time.monotonic() - start < 5:
            time.sleep(0.0002)
        waits.append(time.monotonic() - start)
        time.sleep(0.3)
    stop.append(True)
    thread.join()
    server.run("jobs", "resume", str(job))
    return {"what": "resize of a slice: until the running model is on its new core / its whole run (a layer is a part of that)", "value": max(waits) / median(runs), "op": "<=", "bar": 1.0,
            "n": len(waits), "baseline": f"a run: {1e3 * median(runs):.2f} ms; waits up to {1e3 * max(waits):.2f} ms, one layer's effect is not told apart from outside"}


def measure(server, parts, seconds):
    job = server.train("job", 64)
    told, detail = {}, {}
    if "pairs" in parts:
        told["pairs"], detail = rows_of_pairs(measure_pairs(server, job, seconds), seconds)
    if "prediction" in parts:
        told["prediction"], detail["pairs"] = rows_of_prediction(server, job, seconds)
    if "fill" in parts:
        told["fill"] = [row_of_fill(server, job, seconds)]
    if "resize" in parts:
        told["resize"] = [row_of_resize(server, job, seconds)]
    server.run("jobs", "cancel", str(job))
    if "replay" in parts:
        replay = Replay(server, seconds)
        told["replay"], detail["replay"] = replay.rows, replay.of_shape
    if "sizes" in parts:
        told["sizes"] = [row_of_simulated_sizes(server)]
    if "fairness" in parts:
        told["fairness"] = rows_of_fairness(server, seconds)
    return [{**row, "part": part} for part, rows in told.items() for row in rows], detail


def write(path, rows, detail):
    """With the rows of parts that this run has not measured, if this CPU did; in the order of the parts."""
    before, cpu, ran = kept(path, CORES), cpu_name(), {row["part"] for row in rows}
    rows = [{**row, "cpu": cpu, "measured": time.strftime("%Y-%m-%d", time.gmtime())} for row in rows]
    rows += [row for row in before.get("rows", []) if row.get("part") in set(PARTS) - ran and row.get("cpu") == cpu]
    rows.sort(key=lambda row: PARTS.index(row["part"]))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as text:
        json.dump({"rows": rows, "cores": CORES, "cpu": cpu, "simulated": "rows that say so", "detail": {**before.get("detail", {}), **detail}}, text, indent=1)


def parts_of(text):
    parts = text.split(",")
    if set(parts) - set(PARTS):
        raise argparse.ArgumentTypeError(f"no part {', '.join(sorted(set(parts) - set(PARTS)))}; there are {', '.join(PARTS)}")
    return parts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--seconds", type=float, default=1.5, help="of each measurement")
    parser.add_argument("--only", type=parts_of, default=PARTS, metavar="PART,PART", help="of " + ",".join(PARTS) + "; rows of other parts stay as they are, if this CPU measured them")
    options = parser.parse_args()
    if len(os.sched_getaffinity(0)) != CORES:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    folder = tempfile.mkdtemp(prefix="corun")
    subprocess.run([f"{options.build}/make-models", "--out", f"{folder}/models", *MODELS], check=True, stdout=subprocess.DEVNULL)
    for m in MODELS:
        with open(f"{folder}/models/{m}/config.pbtxt", "w", encoding="ascii") as text:
            text.write(CONFIG)
    server = Server(options.build, folder)
    try:
        rows, detail = measure(server, options.only, options.seconds)
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    write(f"{options.build}/bench/corun.json", rows, detail)
    for r in rows:
        print(f"{r['what']}: {r['value']} {r['op']} {r['bar']} (n = {r['n']}; {r['baseline']})")


if __name__ == "__main__":
    main()
