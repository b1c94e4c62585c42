"""Small models in the forms that exporters write: what a step and a request cost decides their time.

usage: tiny_models.py DIR      writes DIR/NAME/1/model.onnx of each
"""
import os
import sys

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

FLOAT = TensorProto.FLOAT


class Net:
    """Nodes in order; each call returns the name of its result."""

    def __init__(self, seed=1, prefix=""):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.constants, self.n, self.prefix = [], [], 0, prefix

    def name(self):
        self.n += 1
        return f"{self.prefix}t{self.n}"

    def constant(self, array):
        name = f"{self.prefix}c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(array, order="C"), name))
        return name

    def weights(self, *shape):
        scale = 1 / np.sqrt(np.prod(shape[1:]) if len(shape) > 1 else 1)
        return self.constant((scale * self.rng.standard_normal(shape)).astype(np.float32))

    def add(self, op, *inputs, outputs=1, **attributes):
        names = [self.name() for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def ints(self, *values):
        return self.constant(np.array(values, np.int64))

    def save(self, path, inputs, outputs):
        describe = [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs]
        results = [helper.make_tensor_value_info(n, FLOAT, s) for n, s in outputs]
        for (want, _), have in zip(outputs, self.results):
            self.nodes.append(helper.make_node("Identity", [have], [want]))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        graph = helper.make_graph(self.nodes, "tiny", describe, results, self.constants)
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8), path)


def voice_branch(prefix, samples, filters):
    """One sample rate's network: spectrum by convolution, four convolutions, one step of an LSTM."""
    net = Net(prefix=prefix)
    bins = filters // 2 + 1
    x = net.add("Slice", "input", net.ints(0), net.ints(samples), net.ints(1))
    x = net.add("Pad", x, net.ints(0, 0, 0, filters // 4), mode="reflect")
    x = net.add("Unsqueeze", x, net.ints(1))
    x = net.add("Conv", x, net.weights(2 * bins, 1, filters), strides=[filters // 2])
    parts = [net.add("Slice", x, net.ints(a), net.ints(b), net.ints(1)) for a, b in ((0, bins), (bins, 2**62))]
    squares = [net.add("Pow", p, net.constant(np.float32(2))) for p in parts]
    x = net.add("Sqrt", net.add("Add", *squares))
    for width, inner, stride in ((128, bins, 1), (64, 128, 2), (64, 64, 2), (128, 64, 1)):
        x = net.add("Relu", net.add("Conv", x, net.weights(width, inner, 3), net.weights(width), pads=[1, 1], strides=[stride]))
    x = net.add("Squeeze", x, net.ints(2))
    h = net.add("Gather", "state", net.constant(np.int64(0)), axis=0)
    c = net.add("Gather", "state", net.constant(np.int64(1)), axis=0)
    x, h, c = (net.add("Unsqueeze", v, net.ints(0)) for v in (x, h, c))
    weights = net.weights(1, 512, 128), net.weights(1, 512, 128), net.weights(1, 1024)
    _, h, c = net.add("LSTM", x, *weights, "", h, c, hidden_size=128, outputs=3)
    x = net.add("Relu", net.add("Unsqueeze", net.add("Squeeze", h, net.ints(0)), net.ints(2)))
    x = net.add("Sigmoid", net.add("Conv", x, net.weights(1, 128, 1), net.weights(1)))
    net.results = [net.add("ReduceMean", x, axes=[2], keepdims=0), net.add("Concat", h, c, axis=0)]
    return net


def voice(path):
    """A voice-activity model as scripted PyTorch exports one: the sample rate chooses the network, the states go in and out."""
    branches = []
    for prefix, samples, filters in (("a", 576, 256), ("b", 288, 128)):
        net = voice_branch(prefix, samples, filters)
        results = [helper.make_tensor_value_info(n, FLOAT, None) for n in net.results]
        graph = helper.make_graph(net.nodes, prefix, [], results, net.constants)
        branches.append(graph)
    net = Net()
    rate = net.add("Equal", "sr", net.constant(np.int64(16000)))
    net.results = net.add("If", rate, then_branch=branches[0], else_branch=branches[1], outputs=2)
    net.save(path, [("input", FLOAT, [1, 576]), ("state", FLOAT, [2, 1, 128]), ("sr", TensorProto.INT64, [])],
             [("output", [1, 1]), ("stateN", [2, 1, 128])])


def mlp(path, width=64):
    net = Net()
    x = "input"
    for _ in range(3):
        x = net.add("Relu", net.add("Gemm", x, net.weights(width, width), net.weights(width), transB=1))
    net.results = [net.add("Gemm", x, net.weights(10, width), net.weights(10), transB=1)]
    net.save(path, [("input", FLOAT, ["N", width])], [("output", ["N", 10])])


def keywords(path):
    """A depthwise-separable CNN over 49 frames of 10 coefficients (DS-CNN-S)."""
    net = Net()

    def block(x, weights, channels, **attributes):
        x = net.add("Conv", x, weights, **attributes)
        norm = [net.constant(np.abs(net.rng.standard_normal(channels)).astype(np.float32)) for _ in range(4)]
        return net.add("Relu", net.add("BatchNormalization", x, *norm))

    x = block("input", net.weights(64, 1, 10, 4), 64, strides=[2, 2], pads=[4, 1, 5, 1])
    for _ in range(4):
        x = block(x, net.weights(64, 1, 3, 3), 64, group=64, pads=[1, 1, 1, 1])
        x = block(x, net.weights(64, 64, 1, 1), 64)
    x = net.add("Flatten", net.add("GlobalAveragePool", x))
    net.results = [net.add("Softmax", net.add("Gemm", x, net.weights(12, 64), net.weights(12), transB=1))]
    net.save(path, [("input", FLOAT, ["N", 1, 49, 10])], [("output", ["N", 12])])


def tabular(path, columns=24):
    """Scaled columns, three gated layers with a residual sum and layer norm written out."""
    net = Net()
    x = net.add("Div", net.add("Sub", "input", net.weights(columns)), net.constant(np.full(columns, 1.5, np.float32)))
    x = net.add("MatMul", x, net.weights(columns, 32))
    for _ in range(3):
        mean = net.add("ReduceMean", x, axes=[-1])
        d = net.add("Sub", x, mean)
        v = net.add("ReduceMean", net.add("Mul", d, d), axes=[-1])
        y = net.add("Div", d, net.add("Sqrt", net.add("Add", v, net.constant(np.float32(1e-5)))))
        a = net.add("Add", net.add("MatMul", y, net.weights(32, 32)), net.weights(32))
        g = net.add("Sigmoid", net.add("MatMul", y, net.weights(32, 32)))
        x = net.add("Add", x, net.add("Mul", net.add("Tanh", a), g))
    net.results = [net.add("Sigmoid", net.add("MatMul", x, net.weights(32, 1)))]
    net.save(path, [("input", FLOAT, ["N", columns])], [("output", ["N", 1])])


def recurrent_cell(path, hidden=64):
    """One step of a two-layer GRU with its states outside, as streaming models are exported."""
    net = Net()
    x, states = net.add("Unsqueeze", "input", net.ints(0)), []
    for layer in range(2):
        h = net.add("Slice", "state", net.ints(layer), net.ints(layer + 1), net.ints(0))
        weights = net.weights(1, 3 * hidden, hidden), net.weights(1, 3 * hidden, hidden), net.weights(1, 6 * hidden)
        _, h = net.add("GRU", x, *weights, "", h, hidden_size=hidden, linear_before_reset=1, outputs=2)
        states.append(h)
        x = h
    out = net.add("Gemm", net.add("Squeeze", x, net.ints(0)), net.weights(8, hidden), net.weights(8), transB=1)
    net.results = [out, net.add("Concat", *states, axis=0)]
    net.save(path, [("input", FLOAT, [1, hidden]), ("state", FLOAT, [2, 1, hidden])], [("output", [1, 8]), ("stateN", [2, 1, hidden])])


def steps(path, op, count=200):
    """`count` steps of one kind on next to no data: what a step costs."""
    net = Net()
    x = "input"
    for i in range(count):
        if op == "add":
            x = net.add("Tanh" if i % 2 else "Add", *([x] if i % 2 else [x, net.weights(8)]))
        elif op == "move":
            x = net.add("Transpose", x, perm=[0, 2, 1]) if i % 2 else net.add("Reshape", x, net.ints(1, 2, 4))
        elif op == "gemm":
            x = net.add("Gemm", x, net.weights(8, 8), net.weights(8), transB=1)
    net.results = [x]
    net.save(path, [("input", FLOAT, [1, 8])], [("output", [1, 2, 4] if op == "move" and count % 2 else [1, 4, 2] if op == "move" else [1, 8])])


def main(folder):
    for make in (voice, mlp, keywords, tabular, recurrent_cell):
        make(os.path.join(folder, make.__name__, "1", "model.onnx"))
    for op in ("add", "move", "gemm"):
        steps(os.path.join(folder, f"steps_{op}", "1", "model.onnx"), op)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "build/bench/tiny")
