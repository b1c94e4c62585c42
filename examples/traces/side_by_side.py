#!/usr/bin/env python3
"""Replays a trace at a server on this machine, simulates the same trace for this machine, and prints both side by side.

    python3 examples/traces/side_by_side.py --models build/models [--device host] [--requests TRACE.csv] [--rounds 3]

The simulator gets each model's bytes from its package, and what requests to it alone take as the server says it here and now, all of them:
each computation takes one of these by chance, so that what varies makes others wait as it does at the server. They are measured
right before and after each replay, since a busy machine is another machine. What client and socket add to single requests is measured
too and added to the simulated latencies. Without --requests a trace is made: Poisson at --load of what the
device can do.
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
        self.process = subprocess.Popen([binary, "serve", "--models", models, "--device", device, "--pool-bytes", pool, "--socket",
                                         f"{folder}/socket"], stdout=subprocess.PIPE, stderr=open(log, "w"), text=True)
        while "ready" not in (line := self.process.stdout.readline()):
            if not line:
                raise SystemExit(open(log).read())

    def names(self):
        models = json.loads(run(self.binary, "status", "--json", "--socket", self.address))["models"]
        return [model["name"] for model in models]

    def alone(self, name, repeat, folder):
        """Milliseconds that the server says single requests take, one after the other, and what one that comes after a pause takes more
        at the client than the median of these: the socket, the client, waking up."""
        text = run(self.binary, "infer", name, "--repeat", repeat + 2, "--socket", self.address)
        served = [float(x) for x in re.findall(r"client, ([\d.]+) ms at the server", text)[2:]]
        middle = statistics.median(served)
        gap = max(3 * middle, 20) / 1e3
        with open(f"{folder}/alone.csv", "w", encoding="ascii") as out:
            out.write("time_s,model\n" + "".join(f"{i * gap:.6f},{name}\n" for i in range(repeat)))
        run(self.binary, "replay", f"{folder}/alone.csv", "--server", self.address, "--answers", f"{folder}/alone_out.csv")
        return served, statistics.median(latencies(f"{folder}/alone_out.csv")) - middle

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


def latencies(path):
    with open(path, encoding="ascii") as lines:
        return sorted(float(row["latency_ms"]) for row in csv.DictReader(lines) if row["outcome"] == "done")


def quantile(values, q):
    return values[min(int(q * len(values)), len(values) - 1)]


def profile(server, names, repeat, folder):
    return {name: server.alone(name, repeat, folder) for name in names}


def simulate(options, folder, trace, profiles):
    """Each computation takes one of the times that were seen before and after; to each latency the client's part is added."""
    planned, answers = f"{folder}/models.csv", f"{folder}/simulated.csv"
    with open(planned, "w", encoding="ascii") as out:
        out.write("model,mb,compute_ms,groups,samples_ms\n")
        for name in profiles[0]:
            served = sum((profile[name][0] for profile in profiles), [])[:64]
            out.write(f"{name},{options.sizes[name] / 1e6:.3f},{statistics.median(served):.4f},16,{' '.join(f'{x:.4f}' for x in served)}\n")
    run(options.binary, "simulate", "--requests", trace, "--models", planned, "--like-this-machine", options.device, "--pool",
        options.pool, "--answers", answers)
    with open(answers, encoding="ascii") as lines:
        return sorted(float(row["latency_ms"]) + statistics.mean(profile[row["model"]][1] for profile in profiles)
                      for row in csv.DictReader(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="build/switchyard")
    parser.add_argument("--models", default="build/models")
    parser.add_argument("--device", default="host")
    parser.add_argument("--pool", default="4G")
    parser.add_argument("--requests")
    parser.add_argument("--load", type=float, default=0.5)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = Server(options.binary, folder, options.models, options.device, options.pool)
        try:
            names = server.names()
            options.sizes = {name: os.path.getsize(f"{options.models}/{name}/1/model.sypkg") for name in names}
            before = profile(server, names, options.repeat, folder)
            trace = options.requests or f"{folder}/trace.csv"
            if not options.requests:
                make_trace(trace, {name: statistics.mean(served) for name, (served, _) in before.items()}, options.load, options.seconds)
            ratios = {0.5: [], 0.99: []}
            for _ in range(options.rounds):
                answers = f"{folder}/measured.csv"
                run(options.binary, "replay", trace, "--server", server.address, "--answers", answers)
                after = profile(server, names, options.repeat, folder)
                measured, simulated = latencies(answers), simulate(options, folder, trace, [before, after])
                for q, list_ in ratios.items():
                    a, b = quantile(simulated, q), quantile(measured, q)
                    list_.append(a / b)
                    print(f"p{100 * q:.0f}: simulated {a:.3f} ms, measured {b:.3f} ms, {len(measured)} requests, ratio {a / b:.3f}", flush=True)
                before = after
            for q, list_ in ratios.items():
                print(f"p{100 * q:.0f}: median ratio simulated to measured {statistics.median(list_):.3f}")
        finally:
            server.stop()


if __name__ == "__main__":
    main()
