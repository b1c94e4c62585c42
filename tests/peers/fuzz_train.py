#!/usr/bin/env python3
"""Random training jobs, here and in PyTorch: small networks of all kinds, losses, optimizers, schedules, from the same weights and data.

A network is made from a seed, written as ONNX, and trained for a few steps by `switchyard train --local`; PyTorch computes the same network by the
operators' definitions, in float64. What the steps added to each parameter may differ by the tolerance, relative to its norm (or to a hundredth of all
parameters' where that is more: some gradients are zero but for rounding); or by as much as ten times what PyTorch's float32 differs by. A job that
differs is cut down, operator by operator, to the smallest network that still does, and left in the folder with its files. What is refused in words is
counted, not a failure.

usage: fuzz_train.py SWITCHYARD [--seed N] [--jobs N] [--seconds T] [--keep FOLDER]
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import torch
from onnx import helper

from fuzz_train_net import Maker

TOLERANCE, FLOOR, OWN = 2e-3, 1e-2, 10.0
OPSET, IR_VERSION = 23, 11
torch.set_num_threads(1)


# ---- the job: loss, optimizer, schedule -------------------------------------------------------------------------

class Job:
    def __init__(self, seed):
        maker = self.maker = Maker(seed)
        self.seed, self.steps, self.accumulate = seed, maker.draw(1, 4), maker.choose([1, 1, 1, 2])
        self.loss = maker.choose(["softmax_cross_entropy", "softmax_cross_entropy", "mse", "bce"])
        self.batch, self.classes = maker.draw(2, 5), maker.draw(2, 5)
        self.rate = maker.choose([0.01, 0.03, 0.1])
        self.clip = maker.choose([0, 0, 0.5])
        self.optimizer, self.schedule = self.draw_optimizer(), self.draw_schedule()
        maker.make(self.classes)
        self.keep = len(maker.ops)
        n = self.batch * self.steps * self.accumulate
        self.inputs = maker.samples(n)
        rng = maker.rng
        self.labels = {"softmax_cross_entropy": lambda: rng.integers(0, self.classes, n),
                       "mse": lambda: rng.standard_normal((n, self.classes)).astype(np.float32),
                       "bce": lambda: rng.integers(0, 2, (n, self.classes)).astype(np.float32)}[self.loss]()

    def draw_optimizer(self):
        draw, choose = self.maker.draw, self.maker.choose
        kind = choose(["sgd", "sgd", "adam", "adamw"])
        o = {"kind": kind, "learning_rate": self.rate, "weight_decay": choose([0, 0, 0.05]), "decay": choose(["all", "weights"])}
        if kind == "sgd":
            o["momentum"] = choose([0, 0.9])
            o["nesterov"] = bool(o["momentum"] and draw(0, 1))
        else:  # an epsilon that is not lost beside a gradient: the sign of rounding is not compared
            o.update(beta1=choose([0.9, 0.5]), beta2=choose([0.999, 0.9]), epsilon=0.01)
        return o

    def draw_schedule(self):
        kind = self.maker.choose(["constant", "constant", "step", "cosine", "linear"])
        s = {"kind": kind, "warmup_steps": self.maker.choose([0, 0, 2])}
        if kind == "step":
            s.update(every_steps=1, factor=0.5)
        if kind in ("cosine", "linear"):
            s.update(steps=s["warmup_steps"] + 5, final_rate=self.rate / 10)
        return s

    def rate_at(self, step):  # from 1
        s, warm = self.schedule, self.schedule["warmup_steps"]
        if step <= warm:
            return self.rate * step / warm
        at = step - 1 - warm
        if s["kind"] == "step":
            return self.rate * s["factor"] ** (at // s["every_steps"])
        if s["kind"] == "cosine":
            return s["final_rate"] + (self.rate - s["final_rate"]) * (1 + np.cos(np.pi * at / 5)) / 2
        if s["kind"] == "linear":
            return self.rate + (s["final_rate"] - self.rate) * at / 5
        return self.rate

    def text(self):
        return f"seed {self.seed}: {' '.join(op for op, _ in self.maker.summary(self.keep))}; {self.loss}, {self.optimizer}, {self.schedule}, " \
               f"{self.steps} steps, batch {self.batch}, accumulate {self.accumulate}, clip {self.clip}"


# ---- both sides -------------------------------------------------------------------------------------------------

def ours(job, switchyard, folder):
    """({name: array} after the steps, None) or (None, what it said)."""
    folder.mkdir(parents=True, exist_ok=True)
    graph = job.maker.graph(job.keep, job.classes)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    onnx.checker.check_model(model)
    onnx.save(model, folder / "model.onnx")
    for name, values in job.inputs.items():
        np.save(folder / f"{name}.npy", values)
    np.save(folder / "labels.npy", job.labels)
    snapshots = folder / "snapshots"
    shutil.rmtree(snapshots, ignore_errors=True)
    (folder / "job.json").write_text(json.dumps({
        "name": "job", "model": "model.onnx", "loss": job.loss, "optimizer": job.optimizer, "schedule": job.schedule, "batch": job.batch,
        "accumulate": job.accumulate, "clip_norm": job.clip, "recompute": bool(job.seed % 3 == 0), "max_steps": job.steps, "epochs": 1000000,
        "snapshot": {"folder": "snapshots"},
        "data": {"kind": "npy", "inputs": {name: f"{name}.npy" for name in job.inputs}, "labels": "labels.npy", "shuffle": False}}, indent=1))
    done = subprocess.run([switchyard, "train", str(folder / "job.json"), "--local"], capture_output=True, text=True, timeout=120)
    if done.returncode:
        return None, (done.stdout + done.stderr).strip()[-600:] if done.returncode == 1 else f"exit status {done.returncode}: {done.stderr[-2000:]}"
    data = (snapshots / f"job-{job.steps}.safetensors").read_bytes()
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__", None)
    return {name: np.frombuffer(data[8 + n + e["data_offsets"][0]:8 + n + e["data_offsets"][1]], np.float32).reshape(e["shape"])
            for name, e in header.items()}, None


def loss_of(job, logits, labels):
    if job.loss == "softmax_cross_entropy":
        return torch.nn.functional.cross_entropy(logits, labels)
    if job.loss == "mse":
        return torch.nn.functional.mse_loss(logits, labels.to(logits.dtype))
    return torch.nn.functional.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))


def optimizer_of(job, parameters):
    o = job.optimizer
    decays = [[p for p in parameters if o["decay"] == "all" or p.dim() > 1], [p for p in parameters if not (o["decay"] == "all" or p.dim() > 1)]]
    groups = [{"params": ps, "weight_decay": o["weight_decay"] if i == 0 else 0.0} for i, ps in enumerate(decays) if ps]
    if o["kind"] == "sgd":
        return torch.optim.SGD(groups, lr=job.rate, momentum=o["momentum"], nesterov=o["nesterov"])
    kind = torch.optim.Adam if o["kind"] == "adam" else torch.optim.AdamW
    return kind(groups, lr=job.rate, betas=(o["beta1"], o["beta2"]), eps=o["epsilon"])


def theirs(job, dtype):
    """{name: array} after the steps: parameters and running statistics."""
    maker = job.maker
    used = maker.used(job.keep)
    parameters = {k: torch.tensor(v, dtype=dtype, requires_grad=True) for k, v in maker.params.items() if k in used}
    stats = {k: torch.tensor(v, dtype=dtype) for k, v in maker.stats.items() if k in used}
    optimizer = optimizer_of(job, list(parameters.values()))
    inputs = {k: torch.tensor(v).to(dtype) if v.dtype == np.float32 else torch.tensor(v) for k, v in job.inputs.items()}
    labels, at = torch.tensor(job.labels), 0
    for step in range(1, job.steps + 1):
        optimizer.zero_grad(set_to_none=True)
        for _ in range(job.accumulate):
            batch = slice(at, at + job.batch)
            logits = maker.forward(job.keep, {k: v[batch] for k, v in inputs.items()}, parameters, stats)
            (loss_of(job, logits, labels[batch]) / job.accumulate).backward()
            at += job.batch
        if job.clip:
            torch.nn.utils.clip_grad_norm_(list(parameters.values()), job.clip)
        for group in optimizer.param_groups:
            group["lr"] = job.rate_at(step)
        optimizer.step()
    return {k: v.detach().double().numpy() for k, v in {**parameters, **stats}.items()}


# ---- comparing --------------------------------------------------------------------------------------------------

def worst(result, exact, start):
    """(relative difference, name) of what changed in the parameter that differs most."""
    moved = {k: exact[k] - start[k] for k in exact}
    floor = FLOOR * np.sqrt(sum((m ** 2).sum() for m in moved.values())) + 1e-6
    differences = [(float(np.linalg.norm(result[k].astype(np.float64) - exact[k]) / max(np.linalg.norm(moved[k]), floor)), k) for k in exact]
    return max(differences, key=lambda d: np.inf if np.isnan(d[0]) else d[0], default=(0.0, ""))


def compare(job, options, folder):
    """None: alike; "refused": in words; else what differs."""
    result, said = ours(job, options.switchyard, folder)
    if result is None:
        return ("refused", said) if not said.startswith("exit status") else ("failed", said)
    exact = theirs(job, torch.float64)
    if not all(np.isfinite(v).all() for v in exact.values()):
        return "skipped", "PyTorch's weights are not finite"
    start = {**job.maker.params, **job.maker.stats}
    missing = [k for k in exact if k not in result or result[k].shape != exact[k].shape]
    if missing:
        return "failed", f"not in the snapshot, or of another shape: {missing}"
    difference, where = worst(result, exact, start)
    own, _ = worst(theirs(job, torch.float32), exact, start)
    if difference <= max(TOLERANCE, OWN * own):
        return None, f"{difference:.1e}"
    return "failed", f"{where} changed otherwise by {difference:.2g} of its norm (PyTorch's float32: {own:.2g})"


def cut_down(job, options, folder):
    """The fewest operators that still differ: an operator less from the end, each time with a new end."""
    found = job.keep
    for keep in range(1, job.keep):
        job.keep = keep
        if job.maker.can_end(keep) and compare(job, options, folder)[0] == "failed":
            found = keep
            break
    job.keep = found
    return compare(job, options, folder)[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("switchyard")
    parser.add_argument("--seed", type=int, default=1, help="of the first job; the next has the next")
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--keep", default="build/fuzz-train", help="folder for jobs that differ")
    options = parser.parse_args()
    counts, operators, end = {"alike": 0, "refused": 0, "skipped": 0, "failed": 0}, set(), time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory() as temporary:
        for seed in range(options.seed, options.seed + options.jobs):
            if time.monotonic() > end:
                break
            job = Job(seed)
            what, said = compare(job, options, pathlib.Path(temporary) / "job")
            counts[what or "alike"] += 1
            if what == "refused":
                print(f"refused: seed {seed}: {said.splitlines()[-1]}", flush=True)
            elif what == "failed":
                kept = pathlib.Path(options.keep) / f"seed-{seed}"
                print(f"FAIL {job.text()}\n  {said}", flush=True)
                said = cut_down(job, options, kept)
                print(f"  the first operators that differ: {job.text()}\n  {said}\n  left in {kept}", flush=True)
            else:
                operators |= {op for op, _ in job.maker.summary(job.keep)}
    print(f"fuzz-train: seeds from {options.seed}: {counts['alike']} jobs with {len(operators)} kinds of operators alike, {counts['refused']} refused, "
          f"{counts['skipped']} not finite, {counts['failed']} differ from PyTorch {torch.__version__}")
    return 1 if counts["failed"] or not counts["alike"] else 0


if __name__ == "__main__":
    sys.exit(main())
