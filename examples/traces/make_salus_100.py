#!/usr/bin/env python3
"""Makes salus-100.csv: 100 training jobs drawn from Salus' workload table, for `switchyard simulate --jobs`.

Taken from the paper and its repository: the models, their batch sizes and the peak memory of each (Table of workloads; MB),
one P100 with 16 GB, 100 jobs, and of its Table 1 the makespan under FIFO, 303.4 minutes.

Assumed, since the trace itself was not published:
- Sizes. Persistent: the weights, 4 bytes a parameter (published counts; plain SGD, gradients are ephemeral): tens to hundreds
  of MB, as the paper says. Ephemeral: the peak less that.
- Durations. The workload table's classes of about 1, 5 and 10 minutes do not give Table 1: under SRTF 95 of its 100 jobs are done
  after 217.0 of 306.0 minutes, so the five longest take 18 minutes each. Durations are therefore lognormal, stratified (the
  quantiles at (i + 0.5) / 100, so that chance does not change the mix), their mean from the makespan; the spread is the one
  with which 95 jobs, shortest first, take 217.0 / 306.0 of the time. --classes takes 1, 5 and 10 minutes instead.
- Arrivals. Table 1's queueing under SRTF (28.6 minutes until a job starts, 53.4 until it is done, with 3 minutes of work) says
  that jobs start and are preempted by shorter ones that come later: they do not all come at once. They come evenly within a window.
  Window (up to 90 minutes) and order (10000 seeds) are those with which a device that runs one job at a time comes nearest to two
  of Table 1's figures: FIFO's mean, 170.6 (within 1 %), and SRTF's queueing, 28.6. SRTF's mean, 53.4, is not used, but its queueing
  says much about it. README.md says what orders that were not searched for give.
- Iterations of 0.2 to 1.2 s; utilization 0.6, 0.75 or 0.9 by batch size: PACK's makespan in Table 1 is 5 % below
  FIFO's.
"""
import argparse
import math
import random
from statistics import NormalDist

# model: parameters in millions, {batch: peak MB}
TABLE = {
    "vgg11": (132.9, {25: 3710, 50: None, 100: 9203}),
    "vgg16": (138.4, {25: 4317, 50: None, 100: 10445}),
    "vgg19": (143.7, {25: 4463, 50: None, 100: 12024}),
    "resnet50": (25.6, {25: 2116, 50: 4008, 75: 5915}),
    "resnet101": (44.5, {25: 3238, 50: 6106, 75: 8988}),
    "resnet152": (60.2, {25: 4563, 50: 8637, 75: 12726}),
    "googlenet": (6.6, {25: 756, 50: 1411, 100: 2534}),
    "alexnet": (61.1, {25: 687, 50: 1155, 100: 1397}),
    "overfeat": (145.9, {25: 3255, 50: 3416, 100: 6240}),
    "inception3": (27.2, {25: 2500, 50: 4775, 100: 9379}),
    "inception4": (42.7, {25: 4445, 50: 8541, 75: 12662}),
}
MAKESPAN_MIN, FIFO_MEAN_MIN, SRTF_QUEUE_MIN, LAST_FIVE = 303.4, 170.6, 28.6, 217.0 / 306.0
N = 100


def lognormal(sigma):
    """Minutes of N jobs, shortest first, that sum up to the makespan."""
    normal = NormalDist()
    raw = [math.exp(sigma * normal.inv_cdf((i + 0.5) / N)) for i in range(N)]
    return [MAKESPAN_MIN * x / sum(raw) for x in raw]


def spread():
    low, high = 0.1, 3.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(lognormal(middle)[:95]) / MAKESPAN_MIN > LAST_FIVE else (low, middle)
    return low


def fifo_mean(minutes, submits):
    at = total = 0.0
    for duration, submit in zip(minutes, submits):
        at = max(at, submit) + duration
        total += at - submit
    return total / len(minutes)


def srtf(minutes, submits):
    """Mean completion and mean time until the first start, one job at a time, preempted at once."""
    left, start, done, at, i = {}, {}, {}, 0.0, 0
    while len(done) < len(minutes):
        while i < len(minutes) and submits[i] <= at:
            left[i] = minutes[i]
            i += 1
        if not left:
            at = submits[i]
            continue
        job = min(left, key=lambda j: (left[j], j))
        start.setdefault(job, at)
        until = at + left[job]
        if i < len(minutes) and submits[i] < until:
            left[job] -= submits[i] - at
            at = submits[i]
        else:
            at = done[job] = until
            del left[job]
    n = len(minutes)
    return sum(done[j] - submits[j] for j in done) / n, sum(start[j] - submits[j] for j in start) / n


def draw(durations, seed, window):
    dice = random.Random(seed)
    minutes = durations[:]
    dice.shuffle(minutes)
    submits = sorted(dice.uniform(0, window) for _ in minutes)
    return minutes, [submit - submits[0] for submit in submits]


def distance(durations, seed, window):
    minutes, submits = draw(durations, seed, window)
    off = abs(fifo_mean(minutes, submits) / FIFO_MEAN_MIN - 1)
    return off if off > 0.01 else off + abs(srtf(minutes, submits)[1] / SRTF_QUEUE_MIN - 1) - 1


def peak_of(table, batch):
    if table[batch] is not None:
        return table[batch]
    below, above = min(table), max(table)  # the middle one is not in the reference
    return table[below] + (table[above] - table[below]) * (batch - below) / (above - below)


def rows(minutes, submits, seed):
    dice = random.Random(1000 + seed)
    for duration, submit in zip(minutes, submits):
        model = dice.choice(sorted(TABLE))
        parameters, batches = TABLE[model]
        batch = dice.choice(sorted(batches))
        peak = peak_of(batches, batch)
        persistent = 4 * parameters
        iteration_ms = dice.uniform(200, 1200)
        utilization = {0: 0.6, 1: 0.75, 2: 0.9}[sorted(batches).index(batch)]
        iterations = max(1, round(duration * 60e3 / iteration_ms))
        yield (f"{model}_{batch}", f"{submit * 60:.1f}", iterations, f"{duration * 60e3 / iterations:.3f}",
               f"{min(persistent, peak / 2):.0f}", f"{peak - min(persistent, peak / 2):.0f}", utilization)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="examples/traces/salus-100.csv")
    parser.add_argument("--seed", type=int, help="the order of the jobs, and which model each is")
    parser.add_argument("--window", type=float, default=60, help="minutes in which they come, with --seed")
    parser.add_argument("--classes", action="store_true", help="durations of 1, 5 and 10 minutes")
    arguments = parser.parse_args()
    if arguments.classes:  # as many of each as give the makespan: 70, 17 and 13 sum up to 285
        durations = [1.0] * 68 + [5.0] * 18 + [10.0] * 14
        durations = [d * MAKESPAN_MIN / sum(durations) for d in durations]
    else:
        durations = lognormal(spread())
    seed, window = arguments.seed, arguments.window
    if seed is None:
        seed, window = min(((s, w) for w in (15, 30, 45, 60, 75, 90) for s in range(10000)),
                           key=lambda x: distance(durations, *x))
    minutes, submits = draw(durations, seed, window)
    with open(arguments.out, "w", encoding="ascii") as out:
        out.write(f"# made by make_salus_100.py, seed {seed}, window {window:g} minutes{', classes' if arguments.classes else ''}\n")
        out.write("name,submit_s,iterations,iteration_ms,persistent_mb,ephemeral_mb,utilization\n")
        for row in rows(minutes, submits, seed):
            out.write(",".join(str(field) for field in row) + "\n")
    mean, queue = srtf(minutes, submits)
    print(f"{arguments.out}: seed {seed}, window {window:g} minutes, {sum(minutes):.1f} minutes of work, longest "
          f"{max(minutes):.1f}; one at a time, memory aside: FIFO {fifo_mean(minutes, submits):.1f}, SRTF {mean:.1f} "
          f"(until the start {queue:.1f})")


if __name__ == "__main__":
    main()
