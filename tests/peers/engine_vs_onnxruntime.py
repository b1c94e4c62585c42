#!/usr/bin/env python3
"""Outputs and ready latency of the host engine against ONNX Runtime, on the same model files.

Starts `switchyard serve` on the models, asks it over msgpack-RPC (a client that shares no code with ours), and compares every output:
|x - ref| <= 1e-4 + 1e-3 |ref|, which is a few hundred float32 roundings of values of order 1, as sums of a thousand products
in another order give. Ends with "N passed, N failed, N skipped".

usage: engine_vs_onnxruntime.py BUILD MODELS [--latency] [NAME...]
"""
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

import msgpack
import numpy as np
import onnxruntime

DTYPES = {"FP32": np.float32, "INT64": np.int64}
BATCHES = [1, 3, 8]
PAUSE_S = 0.2


class Client:
    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)
        self.sock.settimeout(120)
        self.unpacker = msgpack.Unpacker(max_buffer_size=1 << 28)
        self.id = 0

    def call(self, method, params):
        self.id += 1
        self.sock.sendall(msgpack.packb([0, self.id, method, [params]]))
        while True:
            for kind, ident, error, result in self.unpacker:
                if error:
                    raise RuntimeError(error)
                return result
            data = self.sock.recv(1 << 20)
            if not data:
                raise RuntimeError("the server closed the connection")
            self.unpacker.feed(data)

    def infer(self, model, feeds):
        inputs = [{"name": n, "dtype": "FP32" if a.dtype == np.float32 else "INT64", "shape": list(a.shape),
                   "data": a.tobytes()} for n, a in feeds.items()]
        result = self.call("infer", {"model": model, "inputs": inputs})
        self.seconds = result["timing"]["total_ns"] / 1e9
        return {o["name"]: np.frombuffer(o["data"], DTYPES[o["dtype"]]).reshape(o["shape"]) for o in result["outputs"]}

    def timed_infer(self, model, feeds):
        self.infer(model, feeds)
        return self.seconds


def make_feeds(session, batch, rng):
    feeds = {}
    for i in session.get_inputs():
        shape = [batch] + list(i.shape[1:])
        if "float" in i.type:
            feeds[i.name] = rng.standard_normal(shape).astype(np.float32)
        else:
            high = 1000 if i.name in ("input_ids", "tokens") else 2
            feeds[i.name] = rng.integers(0, high, shape).astype(np.int64)
    return feeds


def compare(client, name, session, batch, rng):
    feeds = make_feeds(session, batch, rng)
    ours = client.infer(name, feeds)
    worst = 0.0
    for output, ref in zip(session.get_outputs(), session.run(None, feeds)):
        got = ours[output.name]
        if got.shape != ref.shape or not np.all(np.isfinite(got)):
            return False, float("inf")
        worst = max(worst, float(np.max(np.abs(got - ref) / (1e-4 + 1e-3 * np.abs(ref)))))
    return worst <= 1, worst


def median_latency(client, name, session, batch, rng, runs=15):
    """Interleaved; the server's own time from a request's arrival to its outputs against session.run. The pause before each run
    lets the threads of the other side stop spinning: both sides get idle cores."""
    feeds = make_feeds(session, batch, rng)
    times = [[], []]
    for _ in range(runs + 2):
        time.sleep(PAUSE_S)
        times[0].append(client.timed_infer(name, feeds))
        time.sleep(PAUSE_S)
        start = time.perf_counter()
        session.run(None, feeds)
        times[1].append(time.perf_counter() - start)
    ours, theirs = (1e3 * float(np.median(t[2:])) for t in times)
    return {"model": name, "batch": batch, "ours_ms": ours, "onnxruntime_ms": theirs, "ratio": ours / theirs}


def start_server(build, models, folder):
    ready_read, ready_write = os.pipe()
    path = os.path.join(folder, "sock")
    server = subprocess.Popen([os.path.join(build, "switchyard"), "serve", "--http", "off", "--grpc", "off", "--metrics", "off", "--models", models, "--pool-bytes", "2G",
                               "--socket", path, "--ready-fd", str(ready_write)], pass_fds=[ready_write],
                              stdout=subprocess.DEVNULL, stderr=open(os.path.join(folder, "log"), "w"))
    os.close(ready_write)
    if os.read(ready_read, 1) == b"":
        sys.exit("the server did not get ready:\n" + open(os.path.join(folder, "log")).read())
    return server, Client(path)


def main():
    latency = "--latency" in sys.argv
    args = [a for a in sys.argv[1:] if not a.startswith("--")]
    build, models, names = args[0], args[1], args[2:]
    names = names or sorted(n for n in os.listdir(models) if os.path.exists(f"{models}/{n}/1/model.onnx"))
    seed = int(os.environ.get("SY_SEED", "1"))
    rng = np.random.default_rng(seed)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = os.cpu_count()
    passed = failed = 0
    rows = []
    print(f"onnxruntime {onnxruntime.__version__}, SY_SEED={seed}")
    with tempfile.TemporaryDirectory() as folder:
        server, client = start_server(build, models, folder)
        try:
            for name in names:
                session = onnxruntime.InferenceSession(f"{models}/{name}/1/model.onnx", options,
                                                       providers=["CPUExecutionProvider"])
                for batch in BATCHES:
                    good, worst = compare(client, name, session, batch, rng)
                    passed, failed = passed + good, failed + (not good)
                    print(f"  {name:14} batch {batch}: {'ok' if good else 'DIFFERS'}, {worst:.3f} of the tolerance", flush=True)
                for batch in (1, 8) if latency else ():
                    rows.append(median_latency(client, name, session, batch, rng))
                    print("  {model:14} batch {batch}: ours {ours_ms:.1f} ms, ONNX Runtime {onnxruntime_ms:.1f} ms, "
                          "ratio {ratio:.2f}".format(**rows[-1]), flush=True)
        finally:
            server.terminate()
            server.wait(60)
    if latency:
        os.makedirs(f"{build}/bench", exist_ok=True)
        with open(f"{build}/bench/engine_vs_onnxruntime.json", "w") as out:
            json.dump(rows, out, indent=1)
    tally = os.environ.get("SY_TEST_TALLY")
    if tally:
        with open(tally, "a") as out:
            out.write(f"{passed} {failed} 0\n")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    sys.exit(failed > 0 or passed == 0)


if __name__ == "__main__":
    main()
