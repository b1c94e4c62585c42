#!/usr/bin/env python3
"""Runs the zoo (tests/zoo) beside ONNX Runtime and writes build/bench/zoo.json and zoo.svg.

    zoo_bench.py                      # all: an hour and more
    zoo_bench.py --half look          # the half that one may look at while tuning
    zoo_bench.py --only densenet      # a pattern of names; other models keep what was measured of them
    zoo_bench.py --quick              # short rounds: a look whether all works

Each runtime has a phase of its own, on as many threads: ONNX Runtime's threads spin after a run and would disturb the other. What is
compared is the least of three medians; ours is the run without RPC. What was measured of each model is kept in build/bench/zoo-models.json,
for later runs on as many threads of the same CPU.
"""
import argparse
import json
import os
import pickle
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.dirname(HERE), os.path.join(ROOT, "tests", "zoo")]

import zoo_compare  # noqa: E402
import zoo_make  # noqa: E402
import zoo_plot  # noqa: E402
import zoo_rows  # noqa: E402
from kept_rows import cpu_name, kept  # noqa: E402
from zoo_ours import Ours, Refused, last_line, make_package  # noqa: E402
from zoo_reference import least_of_medians  # noqa: E402

REFERENCE_S = 900


def input_names(path):
    import onnx
    graph = onnx.load(path, load_external_data=False).graph
    constants = {c.name for c in graph.initializer}
    return [i.name for i in graph.input if i.name not in constants]


def feeds_of(model, names):
    """Three sets of inputs to compare, then one for each batch that is timed."""
    sizes = [model.size(k) for k in range(3)] + [model.size(0, b) for b in batches_of(model)]
    return [dict(zip(names, zoo_make.arrays_of(model, s, 10 + k))) for k, s in enumerate(sizes)]


def batches_of(model):
    return [1, 8] if model.batched else [1]


def reference(path, feeds, timed, options, work, int8):
    job = {"path": path, "threads": options.threads, "feeds": f"{work}/feeds", "timed": timed, "seconds": options.seconds, "out": f"{work}/reference", "int8": int8}
    with open(job["feeds"], "wb") as out:
        pickle.dump(feeds, out)
    run = subprocess.run([sys.executable, os.path.join(HERE, "zoo_reference.py")], input=json.dumps(job), capture_output=True, text=True, timeout=REFERENCE_S, check=False)
    if run.returncode:
        raise RuntimeError(f"ONNX Runtime: {last_line(run.stderr)}")
    with open(job["out"], "rb") as file:
        return pickle.load(file)


def measure_ours(model, path, feeds, told, options, work):
    """{"ours_ms"} and, if so, {"wrong"}; raises Refused."""
    package = f"{work}/{model.name}.sypkg"
    if not (options.keep and os.path.exists(package)):
        make_package(options.build, path, package, model.name, options.threads)
    found = {}
    with Ours(options.build, package, options.threads) as ours:
        for k in range(3):
            outputs = ours.run(model.name, feeds[k])
            why = zoo_compare.compare(told["names"], outputs, told["outputs"][k], told["exact"][k], model.kind == "int8", model.kind == "detector")
            if why and "wrong" not in found:
                found["wrong"] = f"set {k}: {why}"
        found["ours_ms"] = [least_of_medians(ours.timed(model.name, f), options.seconds) for f in feeds[3:]]
    return found


def measure(model, options):
    """A record of one model, whatever becomes of it."""
    path, work = f"{options.zoo}/models/{model.name}/model.onnx", f"{options.zoo}/work"
    os.makedirs(work, exist_ok=True)
    record = {"half": model.half, "kind": model.kind, "batches": batches_of(model), "measured": time.strftime("%Y-%m-%d %H:%M"), "quick": options.quick,
              "load_before": round(os.getloadavg()[0], 2)}
    feeds = feeds_of(model, input_names(path))
    told = reference(path, feeds, list(range(3, len(feeds))), options, work, model.kind == "int8")
    try:
        found = measure_ours(model, path, feeds, told, options, work)
    except (Refused, OSError) as why:
        return {**record, "refused": str(why)}
    finally:
        if not options.keep:
            for left in (f"{work}/{model.name}.sypkg",):
                os.path.exists(left) and os.remove(left)
    if "wrong" in found:
        return {**record, "wrong": found["wrong"]}
    return {**record, "ort_ms": told["times_ms"], **found}


def show(name, record):
    if "ours_ms" not in record:
        return print(f"{name:34} {'REFUSED ' + record['refused'] if 'refused' in record else 'WRONG ' + record['wrong']}", flush=True)
    for batch, ours, theirs in zip(record["batches"], record["ours_ms"], record["ort_ms"]):
        print(f"{name:34} batch {batch}: {ours:9.3f} {theirs:9.3f} ms {ours / theirs:6.2f}", flush=True)
    return None


def write(path, what):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as out:
        out.write(what if isinstance(what, str) else json.dumps(what, indent=1))
    os.replace(path + ".new", path)


def measure_chosen(options, records, path):
    for model in zoo_make.chosen(options.only, options.half):
        why = zoo_make.make(f"{options.zoo}/models", model, options.limit)
        if why:
            print(f"{model.name:34} not made: {why}", flush=True)
            records.pop(model.name, None)
            continue
        try:
            records[model.name] = measure(model, options)
        except (RuntimeError, subprocess.TimeoutExpired) as failure:
            print(f"{model.name:34} not compared: {failure}", flush=True)
            continue
        show(model.name, records[model.name])
        write(path, {"cores": options.threads, "cpu": cpu_name(), "models": records})


def report(options, records):
    rows = zoo_rows.all_rows(records)
    if not options.only and not options.quick:
        rows.append(zoo_rows.node_row(options.build))
    rows += zoo_rows.rows_beside(options.build)
    write(f"{options.build}/bench/zoo.json", {"cores": options.threads, "cpu": cpu_name(), "rows": rows, "models": records})
    write(f"{options.build}/bench/zoo.svg", zoo_plot.svg(records))
    for row in rows:
        value = "none" if row["value"] is None else f"{row['value']:.3g}"
        print(f"{value:>8} {row['op']} {row['bar']:<5} n = {row['n']:<4} {row['what']}: {row.get('why') or row['baseline']}")


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # servers are stopped on the way out
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--zoo", default="build/zoo", help="folder of the models")
    parser.add_argument("--only", metavar="PATTERN")
    parser.add_argument("--half", choices=("look", "held"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--keep", action="store_true", help="packages stay, and are taken if there")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--limit", type=int, default=300, help="seconds for making one model")
    options = parser.parse_args()
    options.seconds = 0.1 if options.quick else 0.4
    path = f"{options.build}/bench/zoo-models.json"
    records = kept(path, options.threads).get("models", {})
    print(f"{'':34}              ours  ONNX RT      ours / ONNX RT")
    measure_chosen(options, records, path)
    report(options, records)


if __name__ == "__main__":
    main()
