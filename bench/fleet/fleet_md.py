#!/usr/bin/env python3
"""Writes bench/fleet.md: what a fleet needs for a trace of a stated shape, by the simulator with the routers it has.

    fleet_md.py BUILD_FOLDER OUT.md [--quick]
"""
import json
import subprocess
import sys

MODELS, RATE = 400, 800
# The shape of public traces, by parameters: few models get most requests (Zipf), the rate swings by day and night, bursts of some seconds.
SHAPE = {"rate": RATE, "zipf": 1, "models": MODELS, "swing": 0.5, "period": 120, "burst": 3, "burst-every": 40, "burst-last": 3}
POOL, BOUND_MS = "8G", 250
ROUTERS = ("random", "hash", "least", "residency")


def simulate(binary, seconds, devices, router, pool=POOL, **changes):
    shape = {**SHAPE, "seconds": seconds, **changes}
    done = subprocess.run([binary, "simulate", "--generate", ",".join(f"{k}={v}" for k, v in shape.items()), "--devices", str(devices), "--router", router,
                           "--pool", pool, "--take-all", "--json"], capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    latency = report["latency_ms"]["0"]
    return {"p50": latency["p50"], "p99": latency["p99"], "busy": report["shares"]["requests"], "swaps": report["swaps"] / max(1, report["requests"]),
            "n": report["requests"]}


def least_devices(binary, seconds, router, fine):
    """The smallest fleet with p99 within the bound, and its numbers: doubling, then halving the step (more devices are never worse by more than chance)."""
    high = 4
    while simulate(binary, seconds, high, router)["p99"] > BOUND_MS:
        high *= 2
        if high > 4096:
            return None, None
    low = high // 2
    while high - low > max(1, high // fine):
        middle = (high + low) // 2
        if simulate(binary, seconds, middle, router)["p99"] > BOUND_MS:
            low = middle
        else:
            high = middle
    return high, simulate(binary, seconds, high, router)


def number(x):
    return f"{x:.0f}" if x >= 100 else f"{x:.1f}" if x >= 1 else f"{x:.2f}"


def needs(binary, seconds, fine):
    lines = ["| router | devices | p50, ms | p99, ms | busy | swaps a request | devices / one a model |", "|---|---|---|---|---|---|---|"]
    found = {}
    for router in ROUTERS:
        n, at = least_devices(binary, seconds, router, fine)
        found[router] = n
        lines.append(f"| {router} | more than 4096 | | | | | |" if n is None else
                     f"| {router} | {n} | {number(at['p50'])} | {number(at['p99'])} | {at['busy']:.0%} | {number(at['swaps'])} | {n / MODELS:.2f} |")
    return lines, found


def knee(binary, seconds, around):
    lines = ["| devices | " + " | ".join(f"{r}: p50, p99" for r in ROUTERS) + " |", "|---|" + "---|" * len(ROUTERS)]
    for n in sorted({max(2, int(around * f)) for f in (0.5, 0.7, 0.85, 1, 1.25, 1.5, 2, 4)}):
        row = [simulate(binary, seconds, n, r) for r in ROUTERS]
        lines.append(f"| {n} | " + " | ".join(f"{number(a['p50'])}, {number(a['p99'])}" for a in row) + " |")
    return lines


def large(binary, seconds):
    """The same load a device at ten thousand: what each router does with it."""
    lines = ["| router | requests | p50, ms | p99, ms | swaps a request |", "|---|---|---|---|---|"]
    for router in ROUTERS:
        at = simulate(binary, seconds, 10000, router, rate=200000, swing=0, burst=1)
        lines.append(f"| {router} | {at['n']} | {number(at['p50'])} | {number(at['p99'])} | {number(at['swaps'])} |")
    return lines


def main(words):
    quick = "--quick" in words
    binary = words[0] + "/switchyard"
    seconds, fine = (30, 8) if quick else (240, 32)
    table, found = needs(binary, seconds, fine)
    best = min(n for n in found.values() if n)
    text = ["# A fleet on paper", "", "Written by `make bench-fleet` (`bench/fleet/fleet_md.py`) from the simulator with the routers it has; virtual time, no measurement of hardware.", "",
            f"Trace: {', '.join(f'{k} {v}' for k, v in SHAPE.items())}; {seconds} s. Models: the simulator's examples, in turn. Device: pool {POOL}, link 12.3 GB/s. "
            "These parameters give the shape that traces of serverless functions and of language services have; they are not such a trace.", "",
            f"## How many devices: p99 within {BOUND_MS} ms", "", f"One model a device, never swapped, takes {MODELS} devices whatever the load is.", ""] + table
    text += ["", f"## Where the knee is: p50 and p99 in ms", ""] + knee(binary, seconds, best)
    text += ["", "## Ten thousand devices, 20 requests a second each", ""] + large(binary, 2 if quick else 5)
    with open(words[1], "w", encoding="utf-8") as out:
        out.write("\n".join(text) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
