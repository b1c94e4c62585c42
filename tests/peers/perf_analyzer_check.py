#!/usr/bin/env python3
"""Triton's perf_analyzer against a real server: both protocols, one to 64 requests at once, system shared memory, streams, texts, metrics.

Prints a line a test, as the C tests do. SY_BINARY: the program; ANALYZER: perf_analyzer; LD_LIBRARY_PATH: where its libraries are."""
import os
import re
import subprocess
import sys
import tempfile

import datatypes_check as base  # also moves into build/venv
from onnx import TensorProto as T
from onnx import helper as h

ANALYZER = os.environ["ANALYZER"]
# A window is 400 requests, and any three of them are stable enough: this is no measurement.
BRIEF = ["--measurement-mode", "count_windows", "--measurement-request-count", "400", "--max-trials", "3", "--stability-percentage", "100000"]


def models(folder):
    base.write_model(folder, "double", [h.make_node("Add", ["x", "x"], ["y"])], [("x", T.FLOAT, ["n", 16])], [("y", T.FLOAT, ["n", 16])])
    base.write_model(folder, "texts", [h.make_node("StringConcat", ["t", "t"], ["y"])], [("t", T.STRING, ["n", 3])], [("y", T.STRING, ["n", 3])], opset=20)
    base.write_model(folder, "open", [h.make_node("Mul", ["a", "a"], ["b"])], [("a", T.INT32, ["n", "width"])], [("b", T.INT32, ["n", "width"])])


def analyze(address, protocol, model, *more):
    """Requests a second by concurrency, or by rate."""
    words = [ANALYZER, "-m", model, "-i", protocol, "-u", address, *BRIEF, *more]
    said = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    rates = re.findall(r"(?:Concurrency|Request Rate): ([\d.]+), throughput: ([\d.]+) infer/sec", said.stdout)
    assert said.returncode == 0 and rates and all(float(rate) > 0 for _, rate in rates), f"{' '.join(words)}\n{said.stdout[-1500:]}{said.stderr[-1500:]}"
    return {float(at): float(rate) for at, rate in rates}


def both(server):
    return (("http", server.http), ("grpc", server.grpc))


def test_concurrency(server):
    for protocol, address in both(server):
        assert list(analyze(address, protocol, "double", "--concurrency-range", "1:64:21")) == [1, 22, 43, 64]


def test_shared_memory(server):
    for protocol, address in both(server):
        analyze(address, protocol, "double", "--shared-memory", "system", "--concurrency-range", "1:16:15", "-b", "4")


def test_streams(server):
    analyze(server.grpc, "grpc", "double", "--streaming", "--async", "--concurrency-range", "8")


def test_texts_and_open_sizes(server):
    for protocol, address in both(server):
        analyze(address, protocol, "texts", "--concurrency-range", "4", "--string-length", "40")
        analyze(address, protocol, "open", "--concurrency-range", "4", "--shape", "a:33", "-b", "2")


def test_rates(server):
    for protocol, address in both(server):
        assert list(analyze(address, protocol, "double", "--request-rate-range", "300:300")) == [300]


def main():
    with tempfile.TemporaryDirectory() as folder:
        models(folder)
        server = base.Server(folder)
        failed = base.run_on(server, globals())
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
