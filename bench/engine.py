#!/usr/bin/env python3
"""The host engine against ONNX Runtime and PyTorch: same models, same inputs, same number of threads on the same cores.

Each library and precision is a process of its own, pinned before it starts its threads. All of them take turns, run by run, with a pause
before each run in which the threads of the one before stop spinning: a machine that changes its speed changes it for both precisions. Reported
are medians; for our server its own time from a request's arrival to its outputs. A bf16 line compares with the better of each side's bf16
and f32; ONNX Runtime has no bf16 on CPUs.

usage: engine.py BUILD MODELS [--runs 15] [--pause 0.2] [--batch 1,8] [--precision f32,bf16] [--cores 0,1] [NAME...]
Writes BUILD/bench/engine.json: [{model, batch, precision, ours_ms, onnxruntime_ms, pytorch_ms}].
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tests", "peers"))
NAMES = ["resnet50", "resnet152", "inception_v3", "mobilenet_v2", "bert_base", "lstm_text"]
WARM_UP = 3


def make_feeds(session, batch, seed=1):
    rng = np.random.default_rng(seed)
    feeds = {}
    for i in session.get_inputs():
        shape = [batch] + list(i.shape[1:])
        if "float" in i.type:
            feeds[i.name] = rng.standard_normal(shape).astype(np.float32)
        else:
            high = 1000 if i.name in ("input_ids", "tokens") else 2
            feeds[i.name] = rng.integers(0, high, shape).astype(np.int64)
    return feeds


# ---- the other side: a child that obeys lines of JSON ------------------------------------------------------


def child_session(path, threads):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def child_main(kind, cores):
    os.sched_setaffinity(0, cores)
    if kind == "onnxruntime":
        import onnxruntime as library
    else:
        import torch as library

        library.set_num_threads(len(cores))
    print(json.dumps({"version": library.__version__}), flush=True)
    run = None
    for line in sys.stdin:
        order = json.loads(line)
        if order["do"] == "load":
            run = None
            session = child_session(order["path"], len(cores))
            feeds = make_feeds(session, order["batch"])
            if kind == "onnxruntime":
                run = lambda: session.run(None, feeds)  # noqa: E731
            else:
                import engine_torch

                del session
                run = engine_torch.runner(order["model"], order["precision"], feeds)
            print(json.dumps({"loaded": True}), flush=True)
        else:
            start = time.perf_counter()
            run()
            print(json.dumps({"ms": 1e3 * (time.perf_counter() - start)}), flush=True)


class Child:
    def __init__(self, kind, cores):
        env = dict(os.environ, OMP_NUM_THREADS=str(len(cores)), OMP_PROC_BIND="true", OMP_PLACES=places(cores))
        self.process = subprocess.Popen([sys.executable, __file__, "--child", kind, ",".join(map(str, cores))],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.version = self.answer()["version"]

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit("the process of the other side ended")
        return json.loads(line)

    def order(self, **what):
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def load(self, model, path, batch, precision):
        self.order(do="load", model=model, path=path, batch=batch, precision=precision)

    def run(self):
        return self.order(do="run")["ms"]

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)


def places(cores):
    return ",".join("{%d}" % c for c in cores)


# ---- our side ------------------------------------------------------------------------------------------------


class Server:
    """`switchyard serve` on packages of one precision."""

    def __init__(self, build, models, names, precision, cores, folder):
        from engine_vs_onnxruntime import Client

        self.folder = os.path.join(folder, precision)
        for name in names:
            package = os.path.join(self.folder, name, "1", "model.sypkg")
            os.makedirs(os.path.dirname(package))
            print(f"  importing {name} in {precision}", flush=True)
            subprocess.run([f"{build}/switchyard", "import", f"{models}/{name}/1/model.onnx", "--name", name, "--no-profile",
                            "--output", package] + (["--precision", precision] if precision != "f32" else []),
                           check=True, stdout=subprocess.DEVNULL)
        ready_read, ready_write = os.pipe()
        sock = os.path.join(self.folder, "sock")
        self.log = os.path.join(self.folder, "log")
        self.process = subprocess.Popen([f"{build}/switchyard", "serve", "--http", "off", "--grpc", "off", "--metrics", "off", "--models", self.folder, "--pool-bytes", "2G", "--cores",
                                         ",".join(map(str, cores)), "--socket", sock, "--ready-fd", str(ready_write)],
                                        pass_fds=[ready_write], stdout=subprocess.DEVNULL, stderr=open(self.log, "w"))
        os.close(ready_write)
        if os.read(ready_read, 1) == b"":
            sys.exit("the server did not get ready:\n" + open(self.log).read())
        self.client = Client(sock)

    def run(self, model, feeds):
        return 1e3 * self.client.timed_infer(model, feeds)

    def close(self):
        self.process.terminate()
        self.process.wait(60)


# ---- the measurement -------------------------------------------------------------------------------------------


def measure(sides, runs, pause):
    """{side: median ms}, all interleaved."""
    times = {name: [] for name in sides}
    for n in range(WARM_UP + runs):
        for name, run in sides.items():
            time.sleep(pause)
            ms = run()
            if n >= WARM_UP:
                times[name].append(ms)
    return {name: float(np.median(t)) for name, t in times.items()}


def show(row):
    best = min(row["onnxruntime_ms"], row["pytorch_ms"])
    print("  {model:13} {precision:5} batch {batch}: {ours_ms:8.2f} {onnxruntime_ms:8.2f} {pytorch_ms:8.2f}".format(**row) +
          f"   {row['ours_ms'] / best:5.2f}", flush=True)


def others_of(precisions):
    """The other sides' processes: (column, precision)."""
    return [("onnxruntime_ms", "f32")] + [("pytorch_ms", p) for p in sorted({"f32", *precisions})]


def bench(a, servers, children):
    rows = []
    for name in a.names:
        path = f"{a.models}/{name}/1/model.onnx"
        session = child_session(path, 1)
        for batch in a.batch:
            feeds = make_feeds(session, batch)
            sides = {("ours_ms", p): lambda s=server: s.run(name, feeds) for p, server in servers.items()}
            for (column, precision), child in children.items():
                child.load(name, path, batch, precision)
                sides[column, precision] = child.run
            medians = measure(sides, a.runs, a.pause)
            for precision in a.precision:
                row = {"model": name, "batch": batch, "precision": precision, "ours_ms": medians["ours_ms", precision]}
                for column in ("onnxruntime_ms", "pytorch_ms"):
                    row[column] = min(medians[column, p] for p in {"f32", precision} if (column, p) in medians)
                rows.append(row)
                show(row)
        del session
    return rows


def main():
    if sys.argv[1:2] == ["--child"]:
        return child_main(sys.argv[2], [int(c) for c in sys.argv[3].split(",")])
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("build")
    p.add_argument("models")
    p.add_argument("names", nargs="*", default=NAMES)
    p.add_argument("--runs", type=int, default=15)
    p.add_argument("--pause", type=float, default=0.2)
    p.add_argument("--batch", type=lambda s: [int(x) for x in s.split(",")], default=[1, 8])
    p.add_argument("--precision", type=lambda s: s.split(","), default=["f32", "bf16"])
    p.add_argument("--cores", type=lambda s: [int(x) for x in s.split(",")], default=sorted(os.sched_getaffinity(0)))
    a = p.parse_intermixed_args()
    children = {side: Child(side[0].removesuffix("_ms"), a.cores) for side in others_of(a.precision)}
    versions = ", ".join(f"{column.removesuffix('_ms')} {child.version}" for (column, p), child in children.items() if p == "f32")
    print(f"{versions}, cores {a.cores}, {a.runs} runs each")
    with tempfile.TemporaryDirectory() as folder:
        servers = {}
        try:
            for precision in a.precision:
                servers[precision] = Server(a.build, a.models, a.names, precision, a.cores, folder)
            print("  model         precision        ours  ONNX RT  PyTorch   ours / better", flush=True)
            rows = bench(a, servers, children)
        finally:
            for server in servers.values():
                server.close()
    for child in children.values():
        child.close()
    os.makedirs(f"{a.build}/bench", exist_ok=True)
    with open(f"{a.build}/bench/engine.json", "w") as out:
        json.dump(rows, out, indent=1)
    print(f"written: {a.build}/bench/engine.json")


if __name__ == "__main__":
    main()
