#!/usr/bin/env python3
"""Training steps of Switchyard beside PyTorch's: the same networks, weights, batches, optimizer and cores, in turns.

    train.py TRAIN_STEPS MODELS OUT.json [--only NAME]... [--precision f32|bf16] [--part time|loss] [--rounds 5] [--steps 4] [--loss-steps 100] [--threads N]

OUT.json: a list of {model, precision, batch, ours_ms, pytorch_ms, loss_batch, loss_rel_diff, pytorch_loss_rel_diff}. A round is some steps of ours, then
as many of PyTorch's; ms is the least of the rounds' medians. The loss is that of step --loss-steps, of batches of loss_batch; the last is the difference
of PyTorch's own in one thread, the part that is rounding, where there is something to explain. The last row has the same job with 200 pauses and without:
{model: "preempted_200", ratio, equal_bits}. With --only, --precision or --part, what was not measured stays in OUT.json as it is.
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

NOTEWORTHY = 1e-4  # PyTorch's own loss is measured again, in one thread, where ours differs by more
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
    def __init__(self, net, module, inputs, labels, batch, is_bf16):
        self.net, self.is_bf16, self.at, self.batch = module.train(), is_bf16, 0, batch
        self.inputs, self.labels = [torch.from_numpy(x) for x in inputs], torch.from_numpy(labels)
        if self.inputs[0].dim() == 4:
            self.net = self.net.to(memory_format=torch.channels_last)
            self.inputs[0] = self.inputs[0].contiguous(memory_format=torch.channels_last)
        options = {("lr" if key == "learning_rate" else key): value for key, value in net.optimizer.items() if key != "kind"}
        if net.optimizer["kind"] == "adamw":
            self.optimizer = torch.optim.AdamW(self.net.parameters(), fused=True, **options)
        else:
            self.optimizer = torch.optim.SGD(self.net.parameters(), **options)

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

class Row:
    """What a row needs, in a folder of its own."""

    def __init__(self, options, folder, name, precision, batch, n_batches):
        self.options, self.net, self.precision, self.batch = options, NETS[name], precision, batch
        self.path = pathlib.Path(options.models) / self.net.model / "1" / "model.onnx"
        self.data = make_data(folder, self.net, n_batches, batch)
        self.job = write_job(folder, self.path, self.net, self.net.optimizer, batch, precision=precision)

    def ours(self):
        return Ours(self.options, self.job)

    def pytorch(self):
        module = load(self.net.make(), weights_of(self.path))
        return PyTorch(self.net, module, *self.data, self.batch, self.precision == "bf16")


def bench_time(options, name, precision):
    with tempfile.TemporaryDirectory() as folder:
        row = Row(options, pathlib.Path(folder), name, precision, NETS[name].batch, 4)
        sides, least = (row.ours(), row.pytorch()), [float("inf")] * 2
        for i in range(options.rounds):
            results = [side.run(options.steps)[0] for side in sides]
            if i > 0:  # the first warms up
                least = [min(m, statistics.median(times)) for m, times in zip(least, results)]
            print(f"\r\033[K{name} {precision}: round {i + 1} of {options.rounds}, ms a step ours {least[0]:.2f}, PyTorch "
                  f"{least[1]:.2f}, ratio {least[0] / least[1] if i else float('nan'):.3f}", end="", flush=True)
        sides[0].close()
    print()
    return {"ours_ms": least[0], "pytorch_ms": least[1]}


def bench_loss(options, name, precision):
    """Each side by itself, one after the other: nothing here is timed."""
    batch, n = NETS[name].loss_batch, options.loss_steps
    with tempfile.TemporaryDirectory() as folder:
        row = Row(options, pathlib.Path(folder), name, precision, batch, n)
        ours = row.ours()
        loss = ours.run(n)[1][-1]
        ours.close()
        steps = row.pytorch().run(n)[1]
        difference, own = abs(loss - steps[-1]) / abs(steps[-1]), None
        print(f"{name} {precision}: PyTorch's loss {steps[0]:.5f}, after {n} steps of {batch}: {steps[-1]:.5f}; ours differs by {difference:.2g}",
              end="", flush=True)
        if difference > NOTEWORTHY:
            torch.set_num_threads(1)
            own = abs(row.pytorch().run(n)[1][-1] - steps[-1]) / abs(steps[-1])
            torch.set_num_threads(options.threads)
            print(f", PyTorch's in one thread by {own:.2g}", end="")
    print(flush=True)
    return {"loss_batch": batch, "loss_rel_diff": difference, "pytorch_loss_rel_diff": own}


def bench(options, name, precision):
    row = {"model": name, "precision": precision, "batch": NETS[name].batch}
    if options.part != "loss":
        row |= bench_time(options, name, precision)
    if options.part != "time":
        row |= bench_loss(options, name, precision)
    return row


def bench_preempted(options, n=300, pauses=200, parts=25):
    """Two processes take turns, so that the machine's moods strike both: a ratio for each pair of turns. Pauses are left out of the time."""
    net = NETS["cnn"]
    path = pathlib.Path(options.models) / net.model / "1" / "model.onnx"
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        make_data(folder, net, 4)
        job = write_job(folder, path, net, net.optimizer)
        sides, orders = [Ours(options, job), Ours(options, job)], (f"run {n // parts - 1}", f"preempt {n // parts} {pauses // parts}")
        ratios, times = [], [[], []]
        for part in range(parts):
            turn = {}
            for i in ((0, 1), (1, 0))[part % 2]:
                if i == 0:  # "preempt" leaves out its first step, which is slow after the other's turn
                    sides[i].order("run 1")
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


def merge(old, new):
    """What was measured now, in its row or in one of its own."""
    rows = {(row["model"], row["precision"]): row for row in old}
    for row in new:
        rows.setdefault((row["model"], row["precision"]), {}).update(row)
    return list(rows.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train_steps")
    parser.add_argument("models")
    parser.add_argument("out")
    parser.add_argument("--only", action="append", choices=[*NETS, "preempted"])
    parser.add_argument("--precision", choices=["f32", "bf16"])
    parser.add_argument("--part", choices=["time", "loss"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--loss-steps", type=int, default=100)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"PyTorch {torch.__version__}, {options.threads} threads on cores {sorted(os.sched_getaffinity(0))}", flush=True)
    rows = [bench(options, name, precision) for name, net in NETS.items() for precision in net.precisions
            if (name in options.only if options.only else name not in SMALL) and options.precision in (None, precision)]
    if "preempted" in options.only if options.only else not options.part:
        rows.append(bench_preempted(options))
    for row in rows:
        row["pytorch"] = torch.__version__
    out = pathlib.Path(options.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    if (options.only or options.part or options.precision) and out.exists():
        rows = merge(json.loads(out.read_text()), rows)
    out.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"written: {out}")


main()
