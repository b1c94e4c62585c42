#!/usr/bin/env python3
"""Training steps of Switchyard beside PyTorch's: the same networks, weights, batches, optimizer and cores, in turns.

    train.py TRAIN_STEPS MODELS OUT.json [--only NAME]... [--rounds 5] [--steps 4] [--loss-steps 100] [--threads N]

A round is some steps of ours, then as many of PyTorch's. OUT.json: a list of {model, precision, batch, ours_ms, pytorch_ms, loss_rel_diff},
ms being the least of the rounds' medians; f32 rows compare the loss of step --loss-steps. The last row has the same job with 200 pauses
and without: {model: "preempted_200", ratio, equal_bits}.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import numpy_helper
from torch import nn

LEARNING_RATE, MOMENTUM = 0.002, 0.9


# ---- the networks ---------------------------------------------------------------------------------------------

class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(784, 512), nn.Linear(512, 256), nn.Linear(256, 10)

    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1)
        self.conv3 = nn.Conv2d(32, 64, 3, padding=1)
        self.fc1, self.fc2 = nn.Linear(64 * 49, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        x = F.max_pool2d(F.relu(self.conv3(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class BiLstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(256, 32)
        self.lstm = nn.LSTM(32, 64, bidirectional=True, batch_first=True)
        self.classifier = nn.Linear(128, 8)

    def forward(self, x):
        return self.classifier(self.lstm(self.embedding(x))[0].mean(1))

    def take(self, weights):
        """ONNX has the gates as input, output, forget, cell; PyTorch as input, forget, cell, output."""
        def order(a):
            i, o, f, c = np.split(a, 4)
            return torch.from_numpy(np.concatenate([i, f, c, o]))
        state = self.state_dict()
        for d, suffix in enumerate(("", "_reverse")):
            bias_w, bias_r = np.split(weights["lstm.bias"][d], 2)
            state["lstm.weight_ih_l0" + suffix] = order(weights["lstm.weight_ih"][d])
            state["lstm.weight_hh_l0" + suffix] = order(weights["lstm.weight_hh"][d])
            state["lstm.bias_ih_l0" + suffix], state["lstm.bias_hh_l0" + suffix] = order(bias_w), order(bias_r)
        for name in ("embedding.weight", "classifier.weight", "classifier.bias"):
            state[name] = torch.from_numpy(weights[name].copy())
        self.load_state_dict(state)


class ConvBn(nn.Module):
    def __init__(self, n_in, n_out, kernel, stride):
        super().__init__()
        self.conv = nn.Conv2d(n_in, n_out, kernel, stride, kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(n_out)

    def forward(self, x):
        return self.bn(self.conv(x))


class Bottleneck(nn.Module):
    def __init__(self, n_in, width, stride):
        super().__init__()
        self.c1, self.c2 = ConvBn(n_in, width, 1, 1), ConvBn(width, width, 3, stride)
        self.c3 = ConvBn(width, 4 * width, 1, 1)
        self.downsample = ConvBn(n_in, 4 * width, 1, stride) if n_in != 4 * width or stride != 1 else None

    def forward(self, x):
        y = self.c3(F.relu(self.c2(F.relu(self.c1(x), inplace=True)), inplace=True))
        return F.relu(y + (self.downsample(x) if self.downsample else x), inplace=True)


class ResNet50(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = ConvBn(3, 64, 7, 2)
        n_in, self.blocks = 64, nn.ModuleDict()
        for stage, n in enumerate((3, 4, 6, 3)):
            for i in range(n):
                self.blocks[f"layer{stage + 1}-{i}"] = Bottleneck(n_in, 64 << stage, 2 if stage and not i else 1)
                n_in = 256 << stage
        self.fc = nn.Linear(2048, 1000)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.stem(x)), 3, 2, 1)
        for block in self.blocks.values():
            x = block(x)
        return self.fc(x.mean((2, 3)))

    def take(self, weights):
        def put(module, scope):
            found = {k: torch.from_numpy(v.copy()) for k, v in weights.items() if k.startswith(scope + ".")}
            with torch.no_grad():
                module.conv.weight.copy_(found[f"{scope}.conv.weight"])
                module.bn.weight.copy_(found[f"{scope}.bn.weight"])
                module.bn.bias.copy_(found[f"{scope}.bn.bias"])
        put(self.stem, "stem")
        for name, block in self.blocks.items():
            scope = name.replace("-", ".")
            for i, part in enumerate((block.c1, block.c2, block.c3)):
                put(part, f"{scope}.{i + 1}")
            if block.downsample:
                put(block.downsample, f"{scope}.downsample")
        with torch.no_grad():
            self.fc.weight.copy_(torch.from_numpy(weights["fc.weight"].copy()))
            self.fc.bias.copy_(torch.from_numpy(weights["fc.bias"].copy()))


class EncoderLayer(nn.Module):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inner, self.outer = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        def split(y):
            return y.unflatten(2, (self.heads, -1)).transpose(1, 2)
        y = F.scaled_dot_product_attention(split(self.query(x)), split(self.key(x)), split(self.value(x)))
        x = self.norm1(x + self.output(y.transpose(1, 2).flatten(2)))
        return self.norm2(x + self.outer(F.gelu(self.inner(x))))


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(30522, 768)
        self.position = nn.Parameter(torch.zeros(1, 128, 768))
        self.norm = nn.LayerNorm(768)
        self.layers = nn.ModuleList(EncoderLayer(768, 12, 3072) for _ in range(12))
        self.classifier = nn.Linear(768, 16)

    def forward(self, x):
        x = self.norm(self.embedding(x) + self.position)
        for layer in self.layers:
            x = layer(x)
        return self.classifier(x.mean(1))

    def take(self, weights):
        def put(to, name, transposed=False):
            value = torch.from_numpy(weights[name].copy())
            with torch.no_grad():
                to.copy_(value.T if transposed else value)

        def linear(module, name):
            put(module.weight, name + ".weight", True)
            put(module.bias, name + ".bias")

        def plain(module, name):
            put(module.weight, name + ".weight")
            put(module.bias, name + ".bias")
        put(self.embedding.weight, "embedding.weight")
        put(self.position, "position.weight")
        plain(self.norm, "embedding.norm")
        for i, layer in enumerate(self.layers):
            scope = f"layer.{i}"
            for part in ("query", "key", "value", "output"):
                linear(getattr(layer, part), f"{scope}.attention.{part}")
            linear(layer.inner, scope + ".inner")
            linear(layer.outer, scope + ".outer")
            plain(layer.norm1, scope + ".norm1")
            plain(layer.norm2, scope + ".norm2")
        plain(self.classifier, "classifier")


# name: (our model, PyTorch's, batch, shape of a sample, classes, indices below, precisions)
MODELS = {
    "mlp": ("fashion_mlp", Mlp, 64, (1, 28, 28), 10, 0, ("f32",)),
    "cnn": ("mnist_cnn", Cnn, 64, (1, 28, 28), 10, 0, ("f32",)),
    "bilstm": ("text_bilstm", BiLstm, 64, (96,), 8, 256, ("f32",)),
    "resnet50": ("resnet50", ResNet50, 16, (3, 224, 224), 1000, 0, ("f32", "bf16")),
    "bert_base": ("bert_classifier", Bert, 8, (128,), 16, 30522, ("f32",)),
}


# ---- the two sides --------------------------------------------------------------------------------------------

class Ours:
    def __init__(self, options, job):
        environment = dict(os.environ, OMP_NUM_THREADS=str(options.threads))
        self.process = subprocess.Popen([options.train_steps, job], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env=environment)

    def order(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit("bench-train: train_steps ended; its reason stands above")
        return json.loads(answer)

    def run(self, n):
        answer = self.order(f"run {n}")
        return answer["ms"], answer["loss"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class PyTorch:
    def __init__(self, options, net, inputs, labels, batch, is_bf16):
        self.net, self.is_bf16, self.at, self.batch = net.train(), is_bf16, 0, batch
        self.inputs, self.labels = torch.from_numpy(inputs), torch.from_numpy(labels)
        self.is_image = self.inputs.dim() == 4
        if self.is_image:
            self.net = self.net.to(memory_format=torch.channels_last)
            self.inputs = self.inputs.contiguous(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.net.parameters(), LEARNING_RATE, MOMENTUM)

    def step(self):
        begin = self.at * self.batch % len(self.inputs)
        x, y = self.inputs[begin:begin + self.batch], self.labels[begin:begin + self.batch]
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.is_bf16):
            loss = F.cross_entropy(self.net(x).float(), y)
        loss.backward()
        self.optimizer.step()
        self.at += 1
        return loss.item()

    def run(self, n):
        times, losses = [], []
        for _ in range(n):
            start = time.perf_counter()
            losses.append(self.step())
            times.append((time.perf_counter() - start) * 1e3)
        return times, losses


# ---- a row ----------------------------------------------------------------------------------------------------

def weights_of(path):
    return {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}


def make_data(folder, batch, shape, classes, vocabulary):
    random = np.random.default_rng(7)
    n = batch * 4
    if vocabulary:
        inputs = random.integers(1, vocabulary, (n, *shape), dtype=np.int64)
    else:
        inputs = random.standard_normal((n, *shape)).astype(np.float32)
    labels = random.integers(0, classes, n, dtype=np.int64)
    np.save(folder / "inputs.npy", inputs)
    np.save(folder / "labels.npy", labels)
    return inputs, labels


def write_job(folder, model, batch, precision):
    job = {"name": "bench", "model": str(model.resolve()), "batch": batch, "epochs": 1000000000,
           "optimizer": {"kind": "sgd", "learning_rate": LEARNING_RATE, "momentum": MOMENTUM},
           "data": {"kind": "npy", "inputs": "inputs.npy", "labels": "labels.npy", "shuffle": False}}
    if precision != "f32":
        job["precision"] = precision
    path = folder / f"job-{precision}.json"
    path.write_text(json.dumps(job))
    return str(path)


def load(net, weights):
    if hasattr(net, "take"):
        net.take(weights)
    else:
        net.load_state_dict({k: torch.from_numpy(weights[k].copy()) for k in net.state_dict()})
    return net


def bench(options, name, precision):
    model, make_net, batch, shape, classes, vocabulary, _ = MODELS[name]
    path = pathlib.Path(options.models) / model / "1" / "model.onnx"
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        inputs, labels = make_data(folder, batch, shape, classes, vocabulary)
        theirs = PyTorch(options, load(make_net(), weights_of(path)), inputs, labels, batch, precision == "bf16")
        ours = Ours(options, write_job(folder, path, batch, precision))
        least, difference, done = [float("inf")] * 2, None, 0
        wanted = options.loss_steps if precision == "f32" else 0
        n_rounds = max(options.rounds, -(-wanted // options.steps))
        for i in range(n_rounds):
            results = [side.run(options.steps) for side in (ours, theirs)]
            done += options.steps
            if i > 0:  # the first warms up
                least = [min(m, statistics.median(times)) for m, (times, _) in zip(least, results)]
            if difference is None and wanted and done >= wanted:
                at = options.steps - 1 - (done - wanted)
                a, b = results[0][1][at], results[1][1][at]
                difference = abs(a - b) / abs(b)
            print(f"\r\033[K{name} {precision}: round {i + 1} of {n_rounds}, ms a step ours {least[0]:.2f}, PyTorch "
                  f"{least[1]:.2f}, ratio {least[0] / least[1] if i else float('nan'):.3f}", end="", flush=True)
        ours.close()
    print(f", loss differs by {difference:.2g}" if difference is not None else "")
    return {"model": name, "precision": precision, "batch": batch, "ours_ms": least[0], "pytorch_ms": least[1],
            "loss_rel_diff": difference}


def bench_preempted(options, n=300, pauses=200):
    """Two processes take turns, so that the machine's moods strike both; pauses are left out of the time."""
    model, _, batch, shape, classes, vocabulary, _ = MODELS["cnn"]
    path = pathlib.Path(options.models) / model / "1" / "model.onnx"
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        make_data(folder, batch, shape, classes, vocabulary)
        job = write_job(folder, path, batch, "f32")
        sides = [Ours(options, job), Ours(options, job)]
        parts, times = 10, [[], []]
        for _ in range(parts):
            times[0] += sides[0].order(f"run {n // parts}")["ms"]
            times[1] += sides[1].order(f"preempt {n // parts} {pauses // parts}")["ms"]
        hashes = [side.order("hash")["hash"] for side in sides]
        for side in sides:
            side.close()
    ratio = statistics.mean(times[1]) / statistics.mean(times[0])
    median = statistics.median(times[1]) / statistics.median(times[0])
    print(f"preempted {pauses} times / not: {ratio:.3f} (medians {median:.3f}), bits "
          f"{'equal' if hashes[0] == hashes[1] else 'DIFFER'}")
    return {"model": f"preempted_{pauses}", "precision": "f32", "batch": batch, "ratio": ratio, "median_ratio": median,
            "equal_bits": hashes[0] == hashes[1]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train_steps")
    parser.add_argument("models")
    parser.add_argument("out")
    parser.add_argument("--only", action="append", choices=[*MODELS, "preempted"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--loss-steps", type=int, default=100)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"PyTorch {torch.__version__}, {options.threads} threads on cores {sorted(os.sched_getaffinity(0))}", flush=True)
    rows = [bench(options, name, precision) for name, entry in MODELS.items() for precision in entry[-1]
            if not options.only or name in options.only]
    if not options.only or "preempted" in options.only:
        rows.append(bench_preempted(options))
    for row in rows:
        row["pytorch"] = torch.__version__
    out = pathlib.Path(options.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"written: {out}")


main()
