#!/usr/bin/env python3
"""Measures what serving costs, each row beside its baseline in the same run, and writes build/bench/serve.json.

    python3 bench/serve/serve.py                   # all rows: about 15 minutes, 5 of them the storm
    python3 bench/serve/serve.py --only http       # one measurement; its rows replace those in the file
    python3 bench/serve/serve.py --quick           # a look whether it works: three minutes, numbers that say little

A row whose measurement fails, or needs what is not there, has the value null and a "why": it counts as missed.
"""
import argparse
import contextlib
import json
import math
import os
import queue
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import row_added  # noqa: E402
import row_beside_json  # noqa: E402
import row_idle  # noqa: E402
import row_requests  # noqa: E402
import row_storm  # noqa: E402
import row_throughput  # noqa: E402
from kept_rows import cpu_name, kept  # noqa: E402
from served import Missing  # noqa: E402

# Measurement: what measures it, and its rows: name, words, how the value stands to the bar, bar.
MEASUREMENTS = {
    "http": (row_requests.http, [
        ("http_rps", "HTTP infer of an empty model, one core for the server, 64 connections: requests/s", ">=", 50000),
        ("http_p99", "HTTP, p99 at 25 000 requests/s: ms", "<=", 0.3),
        ("http_p99_half", "HTTP, p99 at half the measured rate: ms", "<=", 0.3)]),
    "grpc": (row_requests.grpc, [
        ("grpc_rps", "gRPC infer of an empty model, one core for the server, 64 connections: requests/s", ">=", 30000),
        ("grpc_p99", "gRPC, p99 at 15 000 requests/s: ms", "<=", 0.3),
        ("grpc_p99_half", "gRPC, p99 at half the measured rate: ms", "<=", 0.3)]),
    "http_binary": (row_added.http_binary, [("http_1mb", "added by HTTP, binary tensors of 1 MB in and out: ms", "<=", 0.5)]),
    "http_shared": (row_added.http_shared, [("http_1mb_shared", "added by HTTP, 1 MB in and out in system shared memory: ms", "<=", 0.1)]),
    "native": (row_added.native_shared, [("native_100mb", "added by the native protocol, 100 MB in and out in shared memory: ms", "<=", 0.1)]),
    "json": (row_beside_json.beside_json, [("json_100mb", "longest of the small requests beside bodies of 100 MB of JSON: ms", "<=", 5)]),
    "engine": (row_throughput.beside_engine, [("resnet50_engine", "ResNet-50, batch 8, concurrency 8: throughput / the engine's own", ">=", 0.97)]),
    "fastapi": (row_throughput.beside_fastapi, [
        ("resnet50_fastapi", "ResNet-50, batch 8, concurrency 8: throughput / ONNX Runtime's behind FastAPI", ">=", 1.3)]),
    "idle": (row_idle.idle, [("idle_1000", "1000 open idle connections: MB of memory", "<=", 10)]),
    "storm": (row_storm.storm, [
        ("storm_wrong", "load/infer/unload storm, 20 models, 32 clients: wrong answers", "==", 0),
        ("storm_lost", "storm: requests lost", "==", 0),
        ("storm_memory", "storm: memory at the end, over that after the first minute: MB", "<=", 2)]),
}
LIMIT_SECONDS = 300  # of one measurement, the storm's own time aside; most take one to two minutes
SLOW_SECONDS = 600   # of those that import ResNet-50 and may install ONNX Runtime
HOLDS = {"<=": lambda value, bar: value <= bar, ">=": lambda value, bar: value >= bar, "==": lambda value, bar: value == bar}


class Bench:
    """What measurements get: options, how long, and how results are written down."""

    def __init__(self, options):
        self.options = options
        self.rounds, self.seconds = (1, 2) if options.quick else (5, 4)

    @staticmethod
    def bar(name):
        return next(bar for _, rows in MEASUREMENTS.values() for row, _, _, bar in rows if row == name)

    @staticmethod
    def result(value, n, baseline, **also):
        return {"value": value, "n": n, "baseline": baseline, **{key: item for key, item in also.items() if item is not None}}

    @staticmethod
    def folder():
        return tempfile.TemporaryDirectory(prefix="switchyard-storm-")


def text_of(*words):
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


@contextlib.contextmanager
def bounded(seconds):
    """A measurement that takes longer is a miss; servers and clients are stopped on the way out."""
    def over(*_):
        raise Missing(f"not over after {seconds:.0f} s")
    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(math.ceil(seconds))
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def measure(bench, name):
    """All rows of one measurement, whatever becomes of it."""
    run, rows = MEASUREMENTS[name]
    begun, load, why, found = time.monotonic(), os.getloadavg()[0], None, {}
    limit = SLOW_SECONDS if name in ("engine", "fastapi") else LIMIT_SECONDS + (bench.options.storm_seconds if name == "storm" else 0)
    print(f"{time.strftime('%H:%M:%S')} {name} ... (at most {limit:.0f} s)", file=sys.stderr, flush=True)
    try:
        with bounded(limit):
            found = run(bench)
    except (Missing, queue.Empty, OSError, ValueError, KeyError, IndexError, subprocess.SubprocessError) as failure:
        why = f"{type(failure).__name__}: {failure}" if not isinstance(failure, Missing) else str(failure)
    nothing = {"value": None, "n": 0, "baseline": None, "why": why or "not measured"}
    about = {"measured": time.strftime("%Y-%m-%d %H:%M"), "commit": text_of("git", "rev-parse", "--short=12", "HEAD"), "load_before": load, "quick": bench.options.quick,
             "seconds": round(time.monotonic() - begun, 1)}
    return [{"name": row, "what": what, "value": None, "op": op, "bar": bar, "n": 0, "baseline": None, **found.get(row, nothing), **about} for row, what, op, bar in rows]


def show(row):
    value = "none" if row["value"] is None else f"{row['value']:.4g}"
    met = row["value"] is not None and HOLDS[row["op"]](row["value"], row["bar"])
    print(f"{'met   ' if met else 'MISSED'}  {value:>9}  {row['op']} {row['bar']:<6}  {row['what']}", flush=True)
    print(f"{'':19}{row.get('why') or 'beside ' + str(row['baseline'])}", flush=True)


def write(path, rows):
    order = [row for _, of in MEASUREMENTS.values() for row, *_ in of]
    missing = {row: {"name": row, "what": what, "value": None, "op": op, "bar": bar, "n": 0, "baseline": None, "why": "not measured yet"}
               for _, of in MEASUREMENTS.values() for row, what, op, bar in of}
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as out:
        json.dump({"cores": os.cpu_count(), "cpu": cpu_name(), "rows": [rows.get(name, missing[name]) for name in order]}, out, indent=1, default=str)
    os.replace(path + ".new", path)


def chosen(words):
    """Measurements by their names or by a row's."""
    names = [name for name, (_, rows) in MEASUREMENTS.items() if not words or name in words or any(row in words for row, *_ in rows)]
    known = set(MEASUREMENTS) | {row for _, rows in MEASUREMENTS.values() for row, *_ in rows}
    if set(words) - known:
        raise SystemExit(f"no row {', '.join(sorted(set(words) - known))}; there are {', '.join(sorted(known))}")
    return names


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # servers are stopped on the way out
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build", help="folder of switchyard, make-models and bench/")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="a measurement or a row; may be given again")
    parser.add_argument("--quick", action="store_true", help="short and coarse; the storm for 30 s")
    parser.add_argument("--storm-seconds", type=float, default=300)
    parser.add_argument("--out", help="default: BUILD/bench/serve.json")
    options = parser.parse_args()
    path, bench = options.out or f"{options.build}/bench/serve.json", Bench(options)
    rows = {row["name"]: row for row in kept(path, os.cpu_count()).get("rows", [])} if options.only else {}
    for name in chosen(options.only):
        for row in measure(bench, name):
            rows[row["name"]] = row
            show(row)
        write(path, rows)
    print(path)


if __name__ == "__main__":
    main()
