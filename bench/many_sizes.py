#!/usr/bin/env python3
"""A worker's private memory while it is sent sizes that it has never seen: the number that must not grow.

Three small models, made here: convolutions over images of any height and width, an LSTM over texts of any length, and products of rows whose number
only the run knows. `switchyard serve` on one of
them at a time; every request has another size, in random order. The private memory of the server's child
processes is read after --first sizes and after --sizes.

usage: many_sizes.py BUILD [--sizes 5000] [--first 500] [--output FILE]
Writes BUILD/bench/many_sizes.json: {"rows": [{"what", "value", "op", "bar", "n", "baseline"}]}; value: private bytes at the end over those after
the first sizes.
"""
import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tests", "peers"))
BAR = 1.05
STEP = 256  # sizes between two lines of progress


def weights(rng, name, *shape):
    return numpy_helper.from_array((0.1 * rng.standard_normal(shape)).astype(np.float32), name)


def make_images(rng):
    """Eight convolutions, every second with a residual."""
    nodes, constants, x, channels = [], [], "x", 3
    for i in range(8):
        constants += [weights(rng, f"w{i}", 32, channels, 3, 3), weights(rng, f"b{i}", 32)]
        nodes.append(helper.make_node("Conv", [x, f"w{i}", f"b{i}"], [f"c{i}"], pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"]))
        if i % 2 == 0:
            x = f"r{i}"
        else:
            nodes.append(helper.make_node("Add", [f"r{i}", x], [f"a{i}"]))
            x = f"a{i}"
        channels = 32
    nodes.append(helper.make_node("GlobalAveragePool", [x], ["y"]))
    return helper.make_graph(nodes, "images", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, "height", "width"])],
                             [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 32, 1, 1])], constants)


def make_texts(rng):
    """Embedding, LSTM, a product, mean over the text."""
    constants = [weights(rng, "table", 1000, 32), weights(rng, "w", 1, 256, 32), weights(rng, "r", 1, 256, 64),
                 weights(rng, "dense", 64, 64), numpy_helper.from_array(np.array([1], np.int64), "one")]
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]), helper.make_node("Gather", ["table", "t"], ["e"]),
             helper.make_node("LSTM", ["e", "w", "r"], ["s"], hidden_size=64), helper.make_node("Squeeze", ["s", "one"], ["q"]),
             helper.make_node("MatMul", ["q", "dense"], ["m"]), helper.make_node("Tanh", ["m"], ["h"]),
             helper.make_node("ReduceMean", ["h"], ["y"], axes=[0], keepdims=0)]
    return helper.make_graph(nodes, "texts", [helper.make_tensor_value_info("x", TensorProto.INT64, ["N", "length"])],
                             [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 64])], constants)


def make_chosen(rng):
    """Rows that the run chooses (those that do not begin with 0), through two products with biases and activations and a residual."""
    constants = [weights(rng, "w0", 32, 64), weights(rng, "b0", 64), weights(rng, "w1", 64, 32), weights(rng, "b1", 32),
                 numpy_helper.from_array(np.array(0, np.int64), "zero"), numpy_helper.from_array(np.array([-1], np.int64), "line")]
    nodes = [helper.make_node("Gather", ["x", "zero"], ["column"], axis=1), helper.make_node("NonZero", ["column"], ["at"]),
             helper.make_node("Reshape", ["at", "line"], ["which"]), helper.make_node("Gather", ["x", "which"], ["rows"]),
             helper.make_node("MatMul", ["rows", "w0"], ["m0"]), helper.make_node("Add", ["m0", "b0"], ["a0"]),
             helper.make_node("Relu", ["a0"], ["r0"]), helper.make_node("MatMul", ["r0", "w1"], ["m1"]),
             helper.make_node("Add", ["m1", "b1"], ["a1"]), helper.make_node("Add", ["a1", "rows"], ["s"]),
             helper.make_node("ReduceMean", ["s"], ["y"], axes=[0], keepdims=0)]
    return helper.make_graph(nodes, "chosen", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6000, 32])],
                             [helper.make_tensor_value_info("y", TensorProto.FLOAT, [32])], constants)


def image_feeds(rng, n):
    side = int(np.ceil(np.sqrt(n)))
    for k in rng.permutation(side * side)[:n]:
        yield {"x": rng.standard_normal((1, 3, 16 + k // side, 16 + k % side)).astype(np.float32)}


def text_feeds(rng, n):
    for k in rng.permutation(n):
        yield {"x": rng.integers(0, 1000, (1, k + 1)).astype(np.int64)}


def chosen_feeds(rng, n):
    for k in rng.permutation(n):
        x = np.ones((6000, 32), np.float32)
        x[k + 1:, 0] = 0
        yield {"x": x}


def children_of(pid):
    found = [int(c) for path in glob.glob(f"/proc/{pid}/task/*/children") for c in open(path).read().split()]
    return found + [g for c in found for g in children_of(c)]


def private_bytes(pid):
    total = 0
    for line in open(f"/proc/{pid}/smaps_rollup"):
        if line.startswith("Private_"):
            total += 1024 * int(line.split()[1])
    return total


def measure(build, graph, feeds, sizes, first):
    """Private bytes of the worker that runs the model (it has the most), after `first` and after all sizes."""
    from engine_vs_onnxruntime import start_server

    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(f"{folder}/models/m/1")
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        onnx.save(model, f"{folder}/models/m/1/model.onnx")
        server, client = start_server(build, f"{folder}/models", folder)
        try:
            seen = {}
            for i, feed in enumerate(feeds, 1):
                client.infer("m", feed)
                if i == first or i == sizes:
                    seen[i] = {pid: private_bytes(pid) for pid in children_of(server.pid)}
                if i % STEP == 0:
                    most = max(private_bytes(pid) for pid in children_of(server.pid))
                    print(f"    {i:5} sizes: {most / 1e6:.1f} MB", flush=True)
            worker = max(seen[sizes], key=seen[sizes].get)
            return seen[first][worker], seen[sizes][worker]
        finally:
            server.terminate()
            server.wait(60)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--sizes", type=int, default=5000)
    parser.add_argument("--first", type=int, default=500)
    parser.add_argument("--only", choices=["images", "texts", "chosen"])
    parser.add_argument("--output")
    a = parser.parse_args()
    rows = []
    seed = int(os.environ.get("SY_SEED", "1"))
    print(f"SY_SEED={seed}")
    for name, make, make_feeds in (("images", make_images, image_feeds), ("texts", make_texts, text_feeds),
                                   ("chosen", make_chosen, chosen_feeds)):
        if a.only not in (None, name):
            continue
        rng = np.random.default_rng(seed)
        before, after = measure(a.build, make(rng), make_feeds(rng, a.sizes), a.sizes, a.first)
        print(f"  {name}: {before / 1e6:.1f} MB after {a.first} sizes, {after / 1e6:.1f} MB after {a.sizes}", flush=True)
        rows.append({"what": f"private memory of a worker, {name} of sizes never seen, after {a.sizes} over after {a.first}",
                     "value": after / before, "op": "<=", "bar": BAR, "n": a.sizes, "baseline": before})
    output = a.output or f"{a.build}/bench/many_sizes.json"
    with open(output, "w") as f:
        json.dump({"rows": rows}, f, indent=1)
    sys.exit(any(row["value"] > row["bar"] for row in rows))


if __name__ == "__main__":
    main()
