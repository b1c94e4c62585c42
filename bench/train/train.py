#!/usr/bin/env python3
"""Training steps of Switchyard beside PyTorch's: the same networks, weights, batches, optimizer and cores, in turns.

    train.py TRAIN_STEPS MODELS OUT.json [--only NAME]... [--rounds 5] [--steps 4] [--loss-steps 100] [--threads N]

A round is some steps of ours, then as many of PyTorch's. OUT.json: a list of {model, precision, batch, ours_ms, pytorch_ms, loss_rel_diff},
ms being the least of the rounds' medians; f32 rows compare the loss of step --loss-steps, and small networks also have pytorch_loss_rel_diff, that of
PyTorch's own in one thread, the part that is rounding. The last row has the same job with 200 pauses
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

import torch
import torch.nn.functional as F

from networks import NETS, load, make_data, weights_of, write_job

LEARNING_RATE, MOMENTUM = 0.002, 0.9
SMALL = ("transformer", "bert_tiny")  # for compare.py; here only when they are named


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
    def __init__(self, net, inputs, labels, batch, is_bf16):
        self.net, self.is_bf16, self.at, self.batch = net.train(), is_bf16, 0, batch
        self.inputs, self.labels = [torch.from_numpy(x) for x in inputs], torch.from_numpy(labels)
        if self.inputs[0].dim() == 4:
            self.net = self.net.to(memory_format=torch.channels_last)
            self.inputs[0] = self.inputs[0].contiguous(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.net.parameters(), LEARNING_RATE, MOMENTUM)

    def loss_alone(self, n):
        """The loss of step n in one thread."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        loss = self.run(n)[1][-1]
        torch.set_num_threads(threads)
        return loss

    def step(self):
        begin = self.at * self.batch % len(self.labels)
        x, y = [x[begin:begin + self.batch] for x in self.inputs], self.labels[begin:begin + self.batch]
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.is_bf16):
            loss = F.cross_entropy(self.net(*x).float(), y)
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

def bench(options, name, precision):
    net = NETS[name]
    path = pathlib.Path(options.models) / net.model / "1" / "model.onnx"
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        inputs, labels = make_data(folder, net)
        theirs = PyTorch(load(net.make(), weights_of(path)), inputs, labels, net.batch, precision == "bf16")
        ours = Ours(options, write_job(folder, path, net, LEARNING_RATE, MOMENTUM, precision=precision))
        least, difference, own, done = [float("inf")] * 2, None, None, 0
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
                difference, reached = abs(a - b) / abs(b), b
            print(f"\r\033[K{name} {precision}: round {i + 1} of {n_rounds}, ms a step ours {least[0]:.2f}, PyTorch "
                  f"{least[1]:.2f}, ratio {least[0] / least[1] if i else float('nan'):.3f}", end="", flush=True)
        ours.close()
        if difference is not None and least[1] * wanted < 20e3:
            alone = PyTorch(load(net.make(), weights_of(path)), inputs, labels, net.batch, False).loss_alone(wanted)
            own = abs(alone - reached) / abs(reached)
    print(f", loss differs by {difference:.2g}" if difference is not None else "", end="")
    print(f", PyTorch's in one thread by {own:.2g}" if own is not None else "")
    return {"model": name, "precision": precision, "batch": net.batch, "ours_ms": least[0], "pytorch_ms": least[1],
            "loss_rel_diff": difference, "pytorch_loss_rel_diff": own}


def bench_preempted(options, n=300, pauses=200, parts=25):
    """Two processes take turns, so that the machine's moods strike both: a ratio for each pair of turns. Pauses are left out of the time."""
    net = NETS["cnn"]
    path = pathlib.Path(options.models) / net.model / "1" / "model.onnx"
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        make_data(folder, net)
        job = write_job(folder, path, net, LEARNING_RATE, MOMENTUM)
        sides, orders = [Ours(options, job), Ours(options, job)], (f"run {n // parts}", f"preempt {n // parts} {pauses // parts}")
        ratios, times = [], [[], []]
        for part in range(parts):
            turn = {}
            for i in ((0, 1), (1, 0))[part % 2]:
                turn[i] = sides[i].order(orders[i])["ms"]
                times[i] += turn[i]
            ratios.append(statistics.mean(turn[1]) / statistics.mean(turn[0]))
        hashes = [side.order("hash")["hash"] for side in sides]
        for side in sides:
            side.close()
    ratio = statistics.median(ratios)
    means = statistics.mean(times[1]) / statistics.mean(times[0])
    print(f"preempted {pauses} times / not: {ratio:.3f} (median of {parts} pairs of turns; of all steps' means {means:.3f}), bits "
          f"{'equal' if hashes[0] == hashes[1] else 'DIFFER'}")
    return {"model": f"preempted_{pauses}", "precision": "f32", "batch": net.batch, "ratio": ratio, "ratio_of_means": means,
            "equal_bits": hashes[0] == hashes[1]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train_steps")
    parser.add_argument("models")
    parser.add_argument("out")
    parser.add_argument("--only", action="append", choices=[*NETS, "preempted"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--loss-steps", type=int, default=100)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"PyTorch {torch.__version__}, {options.threads} threads on cores {sorted(os.sched_getaffinity(0))}", flush=True)
    rows = [bench(options, name, precision) for name, net in NETS.items() for precision in net.precisions
            if (name in options.only if options.only else name not in SMALL)]
    if not options.only or "preempted" in options.only:
        rows.append(bench_preempted(options))
    for row in rows:
        row["pytorch"] = torch.__version__
    out = pathlib.Path(options.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"written: {out}")


main()
