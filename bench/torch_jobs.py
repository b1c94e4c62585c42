#!/usr/bin/env python3
"""PyTorch scripts as jobs of a server, beside what people have: the script alone, and script and requests side by side without Switchyard's turns, with `nice`
and with cgroup weights. Writes rows for bench/results_md.py.

    torch_jobs.py --build build --out build/bench/torch.json [--quick] [--part PART ...]

resnet, bert, lstm (together: steps): one process, which opens and closes nothing: blocks of 0.3 s or a step, in turn with the hook's callback on and off (`sy_torch_hook_look`), so that both
        are measured in the same seconds of the same machine.
beside: requests for mobilenet_v2 at a fixed rate, beside nothing and beside the script, in turn.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "runtime/python"))
sys.path.insert(0, os.path.join(ROOT, "tests/peers/torch_scripts"))
import switchyard  # noqa: E402
from kept_rows import cpu_name, kept  # noqa: E402

RATE, MODEL = 4.0, "mobilenet_v2"
BLOCK_S = 0.3
STEPS = {"resnet": "ResNet-18 b32", "bert": "BERT-base b8", "lstm": "LSTM"}


def quantile(values, q):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


# ---- steps ---------------------------------------------------------------------------------------


def turns(blocks):
    """With the look (True) or without: `blocks` blocks of each, or one more. What has a period of two favours neither."""
    return [True, False, False, True] * -(-blocks // 2)


def steps_here(kind, blocks):
    """In a child under `switchyard run`: the ratio of interleaved blocks of steps with the look on and off. Prints JSON."""
    import ctypes

    import torch
    from torch.nn import functional as F

    import train
    from switchyard import _torch_hook

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(1)
    if kind == "resnet":
        model, x, y = train.Resnet(64), torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))
    elif kind == "bert":
        model, x, y = train.Bert(768, 12, 12), torch.randint(0, 1000, (8, 64)), torch.randint(0, 2, (8,))
    else:
        model, x, y = train.Language(256), torch.randint(0, 200, (16, 32)), torch.randint(0, 200, (16, 32))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def step():
        out = model(x)
        F.cross_entropy(out.flatten(0, 1) if kind == "lstm" else out, y.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    hook = _torch_hook.library()
    for _ in range(2):
        step()
    begin = time.perf_counter()
    step()
    steps = max(1, round(BLOCK_S / (time.perf_counter() - begin)))
    times = {True: [], False: []}
    for on in turns(blocks):
        hook.sy_torch_hook_look(ctypes.c_int(on))
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        times[on].append((time.perf_counter() - begin) / steps)
    hook.sy_torch_hook_look(ctypes.c_int(1))
    events = []
    with torch.autograd.profiler.profile() as profile:
        step()
    events = [e for e in profile.function_events if e.name.startswith("aten::") or e.name.startswith("mkldnn")]
    longest = max(e.self_cpu_time_total for e in events) / 1e6
    print(json.dumps({"on": times[True], "off": times[False], "longest_operator_s": longest, "operators": len(events), "steps": steps}))


# ---- the server ----------------------------------------------------------------------------------


class Server:
    def __init__(self, build):
        self.folder = tempfile.mkdtemp(prefix="torch_jobs_")
        self.socket, self.binary = self.folder + "/socket", os.path.join(build, "switchyard")
        subprocess.run([os.path.join(build, "make-models"), "--out", self.folder + "/models", MODEL], check=True, stdout=subprocess.DEVNULL)
        self.log = open(self.folder + "/log", "w")
        self.process = subprocess.Popen([self.binary, "serve", "--models", self.folder + "/models", "--socket", self.socket, "--pool-bytes", "2Gi", "--http", "off",
                                         "--grpc", "off", "--metrics", "off"], stdout=self.log, stderr=subprocess.STDOUT)
        while "ready\n" not in open(self.folder + "/log").read():
            if self.process.poll() is not None:
                raise RuntimeError(open(self.folder + "/log").read())
            time.sleep(0.1)

    def status(self):
        with switchyard.Client(self.socket) as client:
            return client.status()

    def run(self, *program, options=(), **more):
        return subprocess.Popen([self.binary, "run", "--socket", self.socket, *options, "--", *program], text=True, **more)

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


def send(socket, seconds):
    """Requests at the fixed rate; each one's time at the client, in seconds, from when it was due."""
    import numpy as np
    x, times = np.ones((1, 3, 224, 224), np.float32), []
    with switchyard.Client(socket) as client:
        name = [m for m in client.models() if m.name == MODEL][0].inputs[0].name
        begin = time.perf_counter()
        for i in range(int(seconds * RATE)):
            due = begin + i / RATE
            time.sleep(max(0.0, due - time.perf_counter()))
            client.infer(MODEL, {name: x})
            times.append(time.perf_counter() - due)
    return times


class Script:
    """The LSTM's steps, said line by line."""

    def __init__(self, start, kill):
        self.process, self.kill, self.stamps = start(), kill, []
        threading.Thread(target=self.read, daemon=True).start()
        while not self.stamps:
            if self.process.poll() is not None:
                raise RuntimeError("the script ended")
            time.sleep(0.05)

    def read(self):
        for _ in self.process.stdout:
            self.stamps.append(time.perf_counter())

    def rate(self, begin, end):
        return sum(begin <= t < end for t in self.stamps) / (end - begin)

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


LOOP = ("import sys, torch; sys.path.insert(0, %r); import train; from torch.nn import functional as F\n"
        "torch.set_num_threads(%d); m = train.Language(256); o = torch.optim.SGD(m.parameters(), 1e-3)\n"
        "x = torch.randint(0, 200, (16, 32))\n"
        "while True:\n    F.cross_entropy(m(x).flatten(0, 1), x.flatten()).backward(); o.step(); o.zero_grad(); print('s', flush=True)\n")


def beside(server, seconds, rounds):
    """{way: (latencies, steps a second)}; ways in turn, round by round."""
    program = [sys.executable, "-c", LOOP % (os.path.join(ROOT, "tests/peers/torch_scripts"), len(os.sched_getaffinity(0)))]
    pipe = {"stdout": subprocess.PIPE, "text": True}
    ways = {"nothing": None, "run": lambda: server.run(*program, stdout=subprocess.PIPE),
            "side by side": lambda: subprocess.Popen(program, **pipe), "nice 19": lambda: subprocess.Popen(["nice", "-n", "19", *program], **pipe)}
    weights = cgroup()
    if weights:
        ways["cgroup weight 1"] = lambda: subprocess.Popen(["sh", "-c", f"echo $$ > {weights}/cgroup.procs; exec \"$@\"", "sh", *program], **pipe)
    told = {way: ([], [], []) for way in ways}
    for _ in range(rounds):
        for way, start in ways.items():
            script = Script(start, None) if start else None
            if script:  # alone first: what it does when nobody asks
                begin = time.perf_counter()
                time.sleep(seconds / 2)
                told[way][1].append(script.rate(begin, time.perf_counter()))
            begin = time.perf_counter()
            told[way][0].extend(send(server.socket, seconds))
            if script:
                told[way][2].append(script.rate(begin, time.perf_counter()))
                script.stop()
    return told


def cgroup():
    folder = "/sys/fs/cgroup/switchyard-bench"
    try:
        os.makedirs(folder, exist_ok=True)
        with open(folder + "/cpu.weight", "w") as file:
            file.write("1")
        return folder
    except OSError:
        return None


# ---- rows ----------------------------------------------------------------------------------------


def step_rows(server, blocks, kinds):
    """One after the other, each with its part and its longest operator in seconds."""
    for kind, title in [(kind, STEPS[kind]) for kind in kinds]:
        process = server.run(sys.executable, os.path.abspath(__file__), "--steps-here", kind, "--blocks", str(blocks), stdout=subprocess.PIPE)
        out, _ = process.communicate()
        told = json.loads(out.splitlines()[-1])
        on, off = statistics.median(told["on"]), statistics.median(told["off"])
        row = {"what": f"PyTorch step with us / without, {title}", "value": on / off, "op": "<=", "bar": 1.01, "n": len(told["on"]),
               "baseline": f"{off * 1e3:.1f} ms a step without the look, blocks of {told['steps']}, {told['operators']} operators; the fastest blocks: {min(told['on']) / min(told['off']):.4f}"}
        yield kind, told["longest_operator_s"], row


def beside_rows(server, seconds, rounds, longest):
    before = server.status()
    told = beside(server, seconds, rounds)
    after = server.status()
    p99 = {way: quantile(times, 0.99) for way, (times, _, _) in told.items()}
    busy = after["account"]
    alone, shared = statistics.mean(told["run"][1]), statistics.mean(told["run"][2])
    served = statistics.mean(told["nothing"][0]) * RATE
    waits = after["preempt_wait_ns"]
    bar = longest + 1e-3
    others = ", ".join(f"{way} {1e3 * p:.1f}" for way, p in p99.items())
    del before, busy
    return [
        {"what": "preempt wait p99 of a PyTorch job (LSTM), ms", "value": waits["p99"] / 1e6, "op": "<=", "bar": bar * 1e3, "n": waits["n"],
         "baseline": f"longest operator {longest * 1e3:.2f} ms; p50 {waits['p50'] / 1e6:.2f} ms"},
        {"what": "training beside requests / (alone x idle share)", "value": shared / (alone * max(1e-9, 1 - served)), "op": ">=", "bar": 0.97,
         "n": len(told["run"][2]), "baseline": f"alone {alone:.2f} steps/s, beside {RATE:.0f} requests/s {shared:.2f}; requests take {100 * served:.0f} % alone"},
        {"what": "requests' p99 beside a PyTorch job / (1.10 x beside nothing + one operator)", "value": p99["run"] / (1.10 * p99["nothing"] + longest), "op": "<=",
         "bar": 1.0, "n": len(told["run"][0]), "baseline": f"p99 in ms beside: {others}"},
    ]


def memory_row(server, limit=64 << 20):
    text = ("import torch, json\nkept, n = [], 0\nfor size in list(range(1, 200000, 777)) * 40:\n    try: kept.append(torch.empty(size))\n    except RuntimeError: n += 1\n"
            "from switchyard import _torch_hook\nprint(json.dumps([_torch_hook.page().peak_bytes, n]))\n")
    out, _ = server.run(sys.executable, "-c", text, options=("--memory", str(limit)), stdout=subprocess.PIPE).communicate()
    peak, refused = json.loads(out.splitlines()[-1])
    return {"what": "memory limit overshoot, bytes", "value": max(0, peak - limit), "op": "<=", "bar": 0, "n": refused,
            "baseline": f"limit {limit}, most {peak}, {refused} allocations refused"}


class Kept:
    """The rows so far, written with each one: a run that is cut off has lost one row.

    A row takes the place of all that earlier runs left of its part; other parts keep theirs, if this machine measured them.
    """

    def __init__(self, path, quick, goes_on):
        self.path, self.quick, self.new = path, quick, []
        cores = len(os.sched_getaffinity(0))
        self.told = {"rows": [], **(kept(path, cores) if goes_on else {}), "cores": cores, "cpu": cpu_name()}

    def add(self, part, row, longest=None):
        row = dict(row, part=part, quick=self.quick, measured=time.strftime("%Y-%m-%d", time.gmtime()), **({"longest_operator_s": longest} if longest is not None else {}))
        self.new.append(row)
        self.told["rows"] = [r for r in self.told["rows"] if r in self.new or r.get("part", part) != part] + [row]
        os.makedirs(os.path.dirname(os.path.abspath(self.path)), exist_ok=True)
        with open(self.path, "w") as file:
            json.dump(self.told, file, indent=1)
        print(f"{row['what']}: {row['value']:.4g} {row['op']} {row['bar']:.4g}; {row['baseline']}", flush=True)

    def longest_lstm(self):
        """The script's beside requests; 5 ms if that part has not run yet."""
        return next((r["longest_operator_s"] for r in self.told["rows"] if r.get("part") == "lstm"), 0.005)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--out", default="build/bench/torch.json")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--part", action="append", choices=["steps", *STEPS, "memory", "beside", "bits"])
    parser.add_argument("--steps-here")
    parser.add_argument("--blocks", type=int, default=20)
    args = parser.parse_args()
    if args.steps_here:
        return steps_here(args.steps_here, args.blocks)
    parts = args.part or ["steps", "memory", "beside", "bits"]
    rows = Kept(args.out, args.quick, bool(args.part))
    server = Server(os.path.abspath(args.build))
    try:
        for part, longest, row in step_rows(server, 5 if args.quick else args.blocks, [kind for kind in STEPS if kind in parts or "steps" in parts]):
            rows.add(part, row, longest)
        if "memory" in parts:
            rows.add("memory", memory_row(server))
        if "beside" in parts:
            for row in beside_rows(server, 8 if args.quick else 20, 1 if args.quick else 3, rows.longest_lstm()):
                rows.add("beside", row)
    finally:
        server.stop()
    if "bits" in parts:
        done = subprocess.run([sys.executable, os.path.join(ROOT, "tests/peers/torch_check.py"), "bits", "worker_and_run_killed", "checkpoint", "spill"],
                              env=dict(os.environ, SY_BINARY=os.path.join(args.build, "switchyard")), capture_output=True, text=True)
        print(done.stdout)
        rows.add("bits", {"what": "200 preemptions, a worker killed, the script killed and resumed, spilled: checks with equal bits", "value": done.stdout.count("ok   "), "op": "==",
                          "bar": 4, "n": 4, "baseline": "the script alone"})
    return 0


if __name__ == "__main__":
    sys.exit(main())
