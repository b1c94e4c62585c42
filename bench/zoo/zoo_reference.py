#!/usr/bin/env python3
"""ONNX Runtime's side of the zoo's bench, a process of its own: reads a job (JSON) from the standard input, writes outputs and times to a file.

The job: {"path", "threads", "feeds": [PICKLE of {input: array}], "timed": [index of feeds], "seconds", "int8": whether the model is one of 8 bits,
"out": PICKLE}.
Written: {"outputs": [[array] of each feeds], "exact": [[[array]] of VARIANTS]: the same without its optimizations, and with inputs that differ by
some roundings (a model may amplify them, and a detector may find one more), other roundings in each variant, "times_ms": [least of three medians]}.
One variant does not tell how large the noise is: four of tashkeel_bilstm_int8 are off by 0.43 to 1.11, and of ssdlite320 0 to 4 labels differ.
"""
import json
import pickle
import sys
import time

import numpy as np


VARIANTS = 4


def session_of(path, threads, optimized=True):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def exact_session(path, threads, int8, variant):
    """Without its optimizations. Of 8 bits: with its exact products, and scales that differ by some roundings. By default, on a CPU without VNNI, it
    adds two products of 8 bits in 16, which saturates: 41 pairs in 40 steps of tashkeel_bilstm_int8's first layer, whose states are then off by 0.04."""
    if not int8:
        return session_of(path, threads, False)
    import onnx
    import onnxruntime
    from onnx import numpy_helper
    rng, model, options = np.random.default_rng(2 + variant), onnx.load(path), onnxruntime.SessionOptions()
    for held in model.graph.initializer:
        if held.data_type == onnx.TensorProto.FLOAT:
            held.CopyFrom(numpy_helper.from_array(np.asarray(nudged(numpy_helper.to_array(held), rng), np.float32), held.name))
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def least_of_medians(run, seconds):
    """Milliseconds of run(), which returns its own seconds: three rounds of `seconds` each, at least 5 runs, at most 300."""
    for _ in range(2):
        once = run()
    n = int(min(max(seconds / max(once, 1e-6), 5), 300))
    return 1e3 * min(float(np.median([run() for _ in range(n)])) for _ in range(3))


def nudged(a, rng):
    """Numbers that differ by some roundings of float32."""
    return (a * (1 + 1e-6 * rng.standard_normal(a.shape))).astype(a.dtype) if a.dtype == np.float32 else a


def exact_outputs(job, feeds):
    """[feeds][variant][output]. What is only timed is not compared."""
    found, compared = [[] for _ in feeds], [k for k in range(len(feeds)) if k not in job["timed"]]
    plain = None
    for variant in range(VARIANTS):
        if plain is None or job["int8"]:
            plain = exact_session(job["path"], job["threads"], job["int8"], variant)
        rng = np.random.default_rng(1 + variant)
        for k in compared:
            found[k].append(plain.run(None, {name: nudged(a, rng) for name, a in feeds[k].items()}))
    return found


def main():
    job = json.load(sys.stdin)
    with open(job["feeds"], "rb") as file:
        feeds = pickle.load(file)
    exact = exact_outputs(job, feeds)
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
