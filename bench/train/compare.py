#!/usr/bin/env python3
"""Training against PyTorch: every gradient of the first step, and the loss after 100 steps, from the same weights and data, float32.

    compare.py SWITCHYARD MODELS [NAME...] [--steps 100] [--tolerance 1e-3]

A gradient is read from the momentum that plain SGD has after one step. It may differ by the tolerance, relative to its norm, or to a thousandth of
all gradients' norm where it is smaller (some are zero but for rounding: the bias of attention's keys). Exit status 1 if anything differs more.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F

from networks import NETS, load, make_data, weights_of, write_job

DEFAULT = ("mlp", "cnn", "bilstm", "transformer", "bert_tiny")
LEARNING_RATE, MOMENTUM = 0.002, 0.9


def read_snapshot(path):
    """(tensors, metadata) of a safetensors file."""
    data = path.read_bytes()
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    metadata = header.pop("__metadata__")
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = np.frombuffer(data[8 + n + begin:8 + n + end], np.float32).reshape(entry["shape"])
    return tensors, metadata


def train_ours(options, folder, path, net, steps):
    """The state after so many steps, and the loss of the last one."""
    snapshots = folder / f"snapshots-{steps}"
    job = write_job(folder, path, net, LEARNING_RATE, MOMENTUM, max_steps=steps, snapshot={"folder": str(snapshots)})
    result = subprocess.run([options.switchyard, "train", job, "--local"], capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"compare: {result.stdout}{result.stderr}")
    tensors, metadata = read_snapshot(snapshots / f"job-{steps}.safetensors")
    return tensors, float(metadata["loss"])


def train_theirs(module, net, inputs, labels, steps):
    """The gradients of the first step, and the loss of the last one."""
    optimizer = torch.optim.SGD(module.parameters(), LEARNING_RATE, MOMENTUM)
    inputs, labels, gradients = [torch.from_numpy(x) for x in inputs], torch.from_numpy(labels), None
    for step in range(steps):
        begin = step * net.batch % len(labels)
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(module(*[x[begin:begin + net.batch] for x in inputs]), labels[begin:begin + net.batch])
        loss.backward()
        if gradients is None:
            gradients = {name: p.grad.clone() for name, p in module.named_parameters()}
        optimizer.step()
    return gradients, loss.item()


def worst_gradient(ours, theirs):
    """(relative difference, name) of the parameter that differs most."""
    floor = 1e-3 * float(torch.sqrt(sum((g ** 2).sum() for g in theirs.values())))
    return max((float((ours[name].detach() - g).norm()) / max(float(g.norm()), floor), name) for name, g in theirs.items())


def compare(options, name):
    net = NETS[name]
    path = pathlib.Path(options.models) / net.model / "1" / "model.onnx"
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        inputs, labels = make_data(folder, net)
        weights = weights_of(path)
        gradients, loss = train_theirs(load(net.make(), weights).train(), net, inputs, labels, options.steps)
        first, _ = train_ours(options, folder, path, net, 1)
        _, our_loss = train_ours(options, folder, path, net, options.steps)
    momenta = {key.removesuffix(".momentum"): value for key, value in first.items() if key.endswith(".momentum")}
    ours = dict(load(net.make(), momenta).named_parameters())
    difference, where = worst_gradient(ours, gradients)
    of_loss = abs(our_loss - loss) / abs(loss)
    is_good = difference <= options.tolerance and of_loss <= options.tolerance
    print(f"{'ok  ' if is_good else 'FAIL'} {name}: {len(gradients)} gradients within {difference:.2g} ({where}); loss after "
          f"{options.steps} steps {our_loss:.6f}, PyTorch's {loss:.6f}, relative difference {of_loss:.2g}", flush=True)
    return is_good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("switchyard")
    parser.add_argument("models")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NETS)}; without one: {', '.join(DEFAULT)}")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--tolerance", type=float, default=1e-3)
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in NETS]
    if unknown:
        parser.error(f"no network {unknown[0]}; known: {', '.join(NETS)}")
    print(f"PyTorch {torch.__version__}", flush=True)
    results = [compare(options, name) for name in options.names or DEFAULT]
    print(f"test-train: {sum(results)} of {len(results)} networks agree with PyTorch")
    sys.exit(not all(results))


main()
