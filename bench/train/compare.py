#!/usr/bin/env python3
"""Training against PyTorch: every gradient of the first step, the last of 100 steps, and the loss there, from the same weights and data, float32.

    compare.py SWITCHYARD MODELS [NAME...] [--steps 100] [--tolerance 1e-3]

A gradient is read from the momentum that plain SGD has after one step, and held against PyTorch's in float64. It may differ by the tolerance,
relative to its norm, or to a thousandth of all gradients' norm where it is smaller (some are zero but for rounding: the bias of attention's keys); or
by twice as much as PyTorch's own in float32 do: deep networks with batch normalisation over few values amplify roundings within one step, where a
ReLU that one side opens and the other does not is a matter of luck.

The last step is made by both sides from the same state, our snapshot of the step before: loss, and what the step adds to the weights.

The loss after so many steps made by each side for itself has all their roundings in it, which some networks amplify: so PyTorch runs again in
one thread, from weights changed by half a unit in the last place, and (images) with channels last. The loss may differ by the tolerance, or by as
much as PyTorch's own runs do.
Exit status 1 if anything differs more.
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
OPTIMIZER = {"kind": "sgd", "learning_rate": 0.002, "momentum": 0.9}


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


def train_ours(options, folder, path, net, steps, name="snapshots"):
    """The state after so many steps, and the loss of the last one. With the same name: goes on from there."""
    snapshots = folder / name
    job = write_job(folder, path, net, OPTIMIZER, max_steps=steps, snapshot={"folder": str(snapshots)})
    result = subprocess.run([options.switchyard, "train", job, "--local"], capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"compare: {result.stdout}{result.stderr}")
    tensors, metadata = read_snapshot(snapshots / f"job-{steps}.safetensors")
    return tensors, float(metadata["loss"])


def momenta_of(state):
    return {key.removesuffix(".momentum"): value for key, value in state.items() if key.endswith(".momentum")}


class Theirs:
    """PyTorch's side, from the given weights and momenta, at step `at`."""

    def __init__(self, net, inputs, labels, weights, momenta=None, at=0, layout=torch.contiguous_format, dtype=torch.float32):
        self.net, self.at = net, at
        self.module = load(net.make(), weights).train().to(dtype, memory_format=layout)
        self.optimizer = torch.optim.SGD(self.module.parameters(), OPTIMIZER["learning_rate"], OPTIMIZER["momentum"])
        self.inputs, self.labels = [torch.from_numpy(x) for x in inputs], torch.from_numpy(labels)
        self.inputs = [x.to(dtype) if x.is_floating_point() else x for x in self.inputs]
        if momenta:
            for p, m in zip(self.module.parameters(), load(net.make(), momenta).parameters()):
                self.optimizer.state[p]["momentum_buffer"] = m.detach().clone()

    def step(self):
        begin = self.at * self.net.batch % len(self.labels)
        end = begin + self.net.batch
        self.optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(self.module(*[x[begin:end] for x in self.inputs]), self.labels[begin:end])
        loss.backward()
        self.optimizer.step()
        self.at += 1
        return loss.item()

    def run(self, steps):
        """The loss of the last one."""
        for _ in range(steps):
            loss = self.step()
        return loss

    def gradients(self):
        return {name: p.grad.clone() for name, p in self.module.named_parameters()}

    def weights(self):
        return {name: p.detach().clone() for name, p in self.module.named_parameters()}


def first_gradients(net, inputs, labels, weights, **how):
    theirs = Theirs(net, inputs, labels, weights, **how)
    theirs.step()
    return theirs.gradients()


def own_gradients(net, inputs, labels, weights, exact):
    """By how much PyTorch's gradients in float32 differ from exact ones."""
    layouts = [torch.contiguous_format] + [torch.channels_last] * (inputs[0].ndim == 4)
    return max(worst_gradient(first_gradients(net, inputs, labels, weights, layout=layout), exact)[0] for layout in layouts)


def own_difference(net, inputs, labels, weights, steps, loss):
    """By how much PyTorch's loss differs from itself."""
    threads, random = torch.get_num_threads(), np.random.default_rng(1)
    torch.set_num_threads(1)
    alone = Theirs(net, inputs, labels, weights).run(steps)
    torch.set_num_threads(threads)
    shaken = {k: v * (1 + 6e-8 * random.standard_normal(v.shape)).astype(v.dtype) if v.dtype == np.float32 else v for k, v in weights.items()}
    others = [alone, Theirs(net, inputs, labels, shaken).run(steps)]
    if inputs[0].ndim == 4:
        others.append(Theirs(net, inputs, labels, weights, layout=torch.channels_last).run(steps))
    return max(abs(other - loss) / abs(loss) for other in others)


def last_step(options, folder, path, net, inputs, labels):
    """(our loss, relative differences of the loss and of what the step adds to the weights) of the last step from our state before it."""
    before, _ = train_ours(options, folder, path, net, options.steps - 1)
    after, our_loss = train_ours(options, folder, path, net, options.steps)
    theirs = Theirs(net, inputs, labels, before, momenta_of(before), options.steps - 1)
    start = theirs.weights()
    loss = theirs.step()
    ours, ends = dict(load(net.make(), after).named_parameters()), theirs.weights()
    wrong = torch.sqrt(sum(((ours[name].detach() - end) ** 2).sum() for name, end in ends.items()))
    moved = torch.sqrt(sum(((end - start[name]) ** 2).sum() for name, end in ends.items()))
    return our_loss, abs(our_loss - loss) / abs(loss), float(wrong / moved)


def worst_gradient(ours, theirs):
    """(relative difference, name) of the parameter that differs most."""
    floor = 1e-3 * float(torch.sqrt(sum((g ** 2).sum() for g in theirs.values())))
    return max((float((ours[name].detach().double() - g).norm()) / max(float(g.norm()), floor), name) for name, g in theirs.items())


def compare(options, name):
    net = NETS[name]
    path = pathlib.Path(options.models) / net.model / "1" / "model.onnx"
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        inputs, labels = make_data(folder, net, options.steps)
        weights = weights_of(path)
        gradients = first_gradients(net, inputs, labels, weights, dtype=torch.float64)
        own_worst = own_gradients(net, inputs, labels, weights, gradients)
        first, _ = train_ours(options, folder, path, net, 1, "first")
        our_loss, step_loss, step_weights = last_step(options, folder, path, net, inputs, labels)
        loss = Theirs(net, inputs, labels, weights).run(options.steps)
        own = own_difference(net, inputs, labels, weights, options.steps, loss)
    ours = dict(load(net.make(), momenta_of(first)).named_parameters())
    difference, where = worst_gradient(ours, gradients)
    of_loss = abs(our_loss - loss) / abs(loss)
    allowed = max(options.tolerance, 2 * own_worst)
    is_good = (max(difference, step_loss, step_weights) <= allowed and
               of_loss <= max(options.tolerance, own))
    print(f"{'ok  ' if is_good else 'FAIL'} {name}: {len(gradients)} gradients within {difference:.2g} ({where}) of float64's, PyTorch's within "
          f"{own_worst:.2g}; step {options.steps} from one state: "
          f"loss {step_loss:.2g}, weights {step_weights:.2g}; loss after {options.steps} steps {our_loss:.6f}, PyTorch's {loss:.6f}, "
          f"relative difference {of_loss:.2g}, PyTorch's to itself {own:.2g}", flush=True)
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
