#!/usr/bin/env python3
"""Replays a trace at a server on this machine, simulates the same trace for this machine, and prints both side by side.

    python3 examples/traces/side_by_side.py --models build/models [--device host] [--requests TRACE.csv] [--rounds 8]

A machine that others use too is another machine every few seconds, and no profile of a minute ago says how fast it is now. So the trace is
simulated twice:

as served    each request is served as long as it had the server's device in that very replay (served_ms of replay's answers). What is left
             to the simulator is what it is for: who waits for whom, and how long.
as profiled  each computation takes one of the times that single requests took right before and after the replay, by chance. This
             says as much about the machine's speed as about the simulator; how far that changed is printed beside it.

To each simulated latency a client's part is added by chance: what one of the requests that had to wait for nobody took at the client more
than at the device. The last lines compare all rounds' latencies together. Without --requests a trace is made: Poisson at --load of what the device
can do.
"""
import argparse
import csv
import json
import os
import random
import re
import statistics
import subprocess
import tempfile


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, words))}: {done.stderr}")
    return done.stdout


class Server:
    def __init__(self, binary, folder, models, device, pool):
        self.binary, self.address, log = binary, f"unix:{folder}/socket", f"{folder}/log"
        self.process = subprocess.Popen([binary, "serve", "--http", "off", "--grpc", "off", "--metrics", "off", "--models", models, "--device", device, "--pool-bytes", pool, "--socket",
                                         f"{folder}/socket"], stdout=subprocess.PIPE, stderr=open(log, "w"), text=True)
        while "ready" not in (line := self.process.stdout.readline()):
            if not line:
                raise SystemExit(open(log).read())

    def names(self):
        models = json.loads(run(self.binary, "status", "--json", "--socket", self.address))["models"]
        return [model["name"] for model in models]

    def alone(self, name, repeat):
        """Milliseconds that the server says single requests take, one after the other."""
        text = run(self.binary, "infer", name, "--repeat", repeat + 1, "--socket", self.address)
        return [float(x) for x in re.findall(r"client, ([\d.]+) ms at the server", text)[1:]]

    def stop(self):
        self.process.terminate()
        self.process.wait()


def make_trace(path, alone, load, seconds):
    """At most 100 a second: beyond that it is the client that is measured."""
    dice, at, rate = random.Random(1), 0.0, min(load * 1e3 / statistics.mean(alone.values()), 100)
    with open(path, "w", encoding="ascii") as out:
        out.write("time_s,model\n")
        while (at := at + dice.expovariate(rate)) < seconds:
            out.write(f"{at:.6f},{dice.choice(sorted(alone))}\n")


def answers_in(path):
    with open(path, encoding="ascii") as lines:
        return [(float(row["time_s"]) * 1e3, row["model"], float(row["latency_ms"]), float(row["served_ms"]))
                for row in csv.DictReader(lines) if row["outcome"] == "done"]


def quantile(values, q):
    values = sorted(values)
    return values[min(int(q * len(values)), len(values) - 1)]


def profile(server, names, repeat):
    return {name: server.alone(name, repeat) for name in names}


def clients_parts(measured):
    """Of requests that came when all before them had been answered."""
    free, parts = 0.0, []
    for at, _, latency, served in sorted(measured):
        if at >= free:
            parts.append(latency - served)
        free = max(free, at + latency)
    return parts or [0.0]


def simulate(options, folder, requests, profiles, parts):
    planned, answers = f"{folder}/models.csv", f"{folder}/simulated.csv"
    with open(planned, "w", encoding="ascii") as out:
        out.write("model,mb,compute_ms,groups,samples_ms\n")
        for name in profiles[0]:
            single = sum((profile[name] for profile in profiles), [])[:64]
            out.write(f"{name},{options.sizes[name] / 1e6:.3f},{statistics.median(single):.4f},16,{' '.join(f'{x:.4f}' for x in single)}\n")
    run(options.binary, "simulate", "--requests", requests, "--models", planned, "--like-this-machine", options.device, "--pool",
        options.pool, "--answers", answers)
    dice = random.Random(1)
    return [latency + dice.choice(parts) for _, _, latency, _ in answers_in(answers)]


class Ways:
    """Latencies of all rounds, measured and simulated each way."""

    def __init__(self):
        self.measured, self.simulated = [], {"as served": [], "as profiled": []}

    def add(self, number, measured, simulated, more_ms, slower):
        self.measured += measured
        print(f"round {number}: {len(measured)} requests, measured p50 {quantile(measured, 0.5):.2f} p99 {quantile(measured, 0.99):.2f} ms; client "
              f"{more_ms:.2f} ms; the device took {slower:.2f} times what single requests took before and after")
        for way, list_ in simulated.items():
            self.simulated[way] += list_
            print(f"  {way:11}  p50 {quantile(list_, 0.5):.2f} p99 {quantile(list_, 0.99):.2f} ms, simulated / measured "
                  f"{quantile(list_, 0.5) / quantile(measured, 0.5):.3f}, {quantile(list_, 0.99) / quantile(measured, 0.99):.3f}", flush=True)

    def summary(self):
        for way, list_ in self.simulated.items():
            print(f"{way:11}  simulated / measured of {len(self.measured)} requests: " + ", ".join(
                f"p{100 * q:.0f} {quantile(list_, q) / quantile(self.measured, q):.3f}" for q in (0.5, 0.99)))


def one_round(options, server, folder, trace, number, before, ways):
    path = f"{folder}/measured.csv"
    run(options.binary, "replay", trace, "--server", server.address, "--answers", path)
    after, measured = profile(server, before, options.repeat), answers_in(path)
    single = {name: statistics.median(before[name] + after[name]) for name in before}
    parts = clients_parts(measured)
    ways.add(number, [latency for _, _, latency, _ in measured],
             {"as served": simulate(options, folder, path, [before, after], parts),
              "as profiled": simulate(options, folder, trace, [before, after], parts)},
             statistics.median(parts), statistics.median(served / single[name] for _, name, _, served in measured))
    return after


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="build/switchyard")
    parser.add_argument("--models", default="build/models")
    parser.add_argument("--device", default="host")
    parser.add_argument("--pool", default="4G")
    parser.add_argument("--requests", help="a trace of your own")
    parser.add_argument("--load", type=float, default=0.5, help="of the device, of a made trace (%(default)s)")
    parser.add_argument("--seconds", type=float, default=10, help="of a made trace (%(default)s)")
    parser.add_argument("--repeat", type=int, default=6, help="single requests to each model between the rounds (%(default)s)")
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = Server(options.binary, folder, options.models, options.device, options.pool)
        try:
            names, ways = server.names(), Ways()
            options.sizes = {name: os.path.getsize(f"{options.models}/{name}/1/model.sypkg") for name in names}
            profile(server, names, 1)  # the first ones read their models
            single = profile(server, names, options.repeat)
            trace = options.requests or f"{folder}/trace.csv"
            if not options.requests:
                make_trace(trace, {name: statistics.mean(served) for name, served in single.items()}, options.load, options.seconds)
            for number in range(options.rounds):
                single = one_round(options, server, folder, trace, number, single, ways)
            ways.summary()
        finally:
            server.stop()


if __name__ == "__main__":
    main()
