#!/usr/bin/env python3
"""ONNX Runtime's side of the zoo's bench, a process of its own: reads a job (JSON) from the standard input, writes outputs and times to a file.

The job: {"path", "threads", "feeds": [PICKLE of {input: array}], "timed": [index of feeds], "seconds", "out": PICKLE}.
Written: {"outputs": [[array] of each feeds], "noise": [[array]]: how far ONNX Runtime with its optimizations is from itself without, as
a model amplifies roundings, "times_ms": [least of three medians]}.
"""
import json
import pickle
import sys
import time

import numpy as np


def session_of(path, threads, optimized=True):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def least_of_medians(run, seconds):
    """Milliseconds of run(), which returns its own seconds: three rounds of `seconds` each, at least 5 runs, at most 300."""
    for _ in range(2):
        once = run()
    n = int(min(max(seconds / max(once, 1e-6), 5), 300))
    return 1e3 * min(float(np.median([run() for _ in range(n)])) for _ in range(3))


def main():
    job = json.load(sys.stdin)
    with open(job["feeds"], "rb") as file:
        feeds = pickle.load(file)
    plain = session_of(job["path"], job["threads"], False)
    exact = [plain.run(None, f) for f in feeds]
    del plain
    session = session_of(job["path"], job["threads"])
    outputs, times = [session.run(None, f) for f in feeds], []

    def run(k):
        start = time.perf_counter()
        session.run(None, feeds[k])
        return time.perf_counter() - start
    for k in job["timed"]:
        times.append(least_of_medians(lambda k=k: run(k), job["seconds"]))
    with open(job["out"], "wb") as file:
        pickle.dump({"names": [o.name for o in session.get_outputs()], "exact": exact, "outputs": outputs, "times_ms": times}, file)


if __name__ == "__main__":
    main()
