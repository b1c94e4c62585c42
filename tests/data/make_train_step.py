#!/usr/bin/env python3
"""Makes tests/data/train_step/: a small convolutional network (ONNX), one batch, and the state after one whole training
step as PyTorch computes it. tests/workers/train/test_train_step.c compares. Needs torch, onnx, numpy:
    python3 tests/data/make_train_step.py
Everything is a flat little-endian file: NAME.f32 (or .i32), row-major."""
import pathlib

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

OUT = pathlib.Path(__file__).parent / "train_step"
BATCH, CLASSES = 8, 4
RATE, MOMENTUM, DECAY, KEEP = 0.1, 0.9, 0.01, 0.9


def weights(rng):
    u = lambda *shape, b: rng.uniform(-b, b, shape).astype(np.float32)
    return {
        "conv1.weight": u(6, 1, 3, 3, b=0.5), "conv1.bias": u(6, b=0.2),
        "bn.scale": 1 + u(6, b=0.3), "bn.shift": u(6, b=0.3),
        "bn.mean": u(6, b=0.3), "bn.variance": 1 + u(6, b=0.3),
        "conv2.weight": u(8, 3, 3, 3, b=0.3),
        "fc.weight": u(CLASSES, 32, b=0.3), "fc.bias": u(CLASSES, b=0.2),
    }


def model(state):
    n = helper.make_node
    nodes = [
        n("Conv", ["input", "conv1.weight", "conv1.bias"], ["c1"], "conv1", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        n("BatchNormalization", ["c1", "bn.scale", "bn.shift", "bn.mean", "bn.variance"], ["b1"], "bn",
          epsilon=1e-5, momentum=KEEP),
        n("Relu", ["b1"], ["r1"], "relu1"),
        n("MaxPool", ["r1"], ["p1"], "pool1", kernel_shape=[2, 2], strides=[2, 2]),
        n("Conv", ["p1", "conv2.weight"], ["c2"], "conv2", kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=2),
        n("Relu", ["c2"], ["r2"], "relu2"),
        n("AveragePool", ["r2"], ["p2"], "pool2", kernel_shape=[2, 2], strides=[2, 2]),
        n("Flatten", ["p2"], ["f"], "flatten"),
        n("Gemm", ["f", "fc.weight", "fc.bias"], ["logits"], "fc", transB=1),
    ]
    graph = helper.make_graph(
        nodes, "train_step", [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["N", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", CLASSES])],
        [numpy_helper.from_array(v, k) for k, v in state.items()])
    out = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    out.ir_version = 8
    onnx.checker.check_model(out)
    return out


def forward(t, x):
    f = torch.nn.functional
    x = f.conv2d(x, t["conv1.weight"], t["conv1.bias"], padding=1)
    mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)  # ONNX keeps the population variance
    x = f.batch_norm(x, None, None, t["bn.scale"], t["bn.shift"], training=True, eps=1e-5)
    x = f.max_pool2d(f.relu(x), 2)
    x = f.avg_pool2d(f.relu(f.conv2d(x, t["conv2.weight"], padding=1, groups=2)), 2)
    return f.linear(x.flatten(1), t["fc.weight"], t["fc.bias"]), mean, variance


def step(state, x, labels):
    """In float64, so that the comparison measures the trainer and not the reference."""
    t = {k: torch.tensor(v, dtype=torch.float64, requires_grad=k not in ("bn.mean", "bn.variance"))
         for k, v in state.items()}
    trained = [k for k in t if t[k].requires_grad]
    optimizer = torch.optim.SGD([t[k] for k in trained], lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)
    logits, mean, variance = forward(t, torch.tensor(x, dtype=torch.float64))
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(labels, dtype=torch.int64))
    loss.backward()
    optimizer.step()
    after = {k: t[k].detach().numpy() for k in t}
    after["bn.mean"] = KEEP * state["bn.mean"] + (1 - KEEP) * mean.detach().numpy()
    after["bn.variance"] = KEEP * state["bn.variance"] + (1 - KEEP) * variance.detach().numpy()
    for k in trained:
        after[k + ".momentum"] = optimizer.state[t[k]]["momentum_buffer"].numpy()
    return after, loss.item()


def main():
    rng = np.random.default_rng(7)
    OUT.mkdir(parents=True, exist_ok=True)
    state = weights(rng)
    x = rng.uniform(-1, 1, (BATCH, 1, 8, 8)).astype(np.float32)
    labels = rng.integers(0, CLASSES, BATCH).astype("<i4")
    onnx.save(model(state), OUT / "model.onnx")
    after, loss = step(state, x, labels)
    x.astype("<f4").tofile(OUT / "input.f32")
    labels.tofile(OUT / "labels.i32")
    np.array([loss], "<f4").tofile(OUT / "loss.f32")
    for k, v in after.items():
        v.astype("<f4").tofile(OUT / f"after.{k}.f32")
    print(f"loss {loss:.9f}, torch {torch.__version__}, {len(after)} tensors")


if __name__ == "__main__":
    main()
