#!/usr/bin/env python3
"""The parts of the GPU's bench that need no GPU: the rows and the table, from made numbers, and what the command says without a GPU. Run
by `make test`; prints a line a test, as the other tests do."""
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "bench"))
import gpu_bench as bench  # noqa: E402


def torch_rows(precision):
    rows = [{"what": what, "model": model, "batch": batch, "ms": 10.0} for model in bench.MODELS for batch in (1, 8)
            for what in ("eager", "graphs", "model_to", "cpu_offload", "fresh_process")]
    rows += [{"what": "train_step", "model": model, "batch": batch, "ms": 50.0} for model, _, batch in bench.TRAINED]
    return {"precision": precision, "rows": rows}


def made():
    counters = {"p50_ms": 8.0, "over_bound": 1.04, "bytes": 2.4e8, "link_gbps": 31.0, "first_layer_ms": 0.5, "first_layer_p99_ms": 2.5,
                "preempt_wait_p99_ms": 0.9}
    swaps = {batch: {(model, mode): counters for model in bench.MODELS for mode in ("pipelined", "ready")} for batch in (8, 1)}
    narrow = {(p, batch): swaps[batch] for p in bench.PRECISIONS[1:] for batch in (8, 1)}
    trained = {(model, p): (45.0 if p == "f32" else None, "") for model, _, _ in bench.TRAINED for p in bench.TRAIN_PRECISIONS}
    return swaps, narrow, counters, trained, 0.97, {p: torch_rows(p) for p in bench.PRECISIONS}


def test_rows():
    rows = {what: (bar, got) for what, bar, got in bench.all_rows(*made())}
    assert rows["resnet152, batch 8: swap / lower bound"] == (1.05, 1.04)
    assert abs(rows["resnet152, batch 8: link rate in a swap / measured peak"][1] - 240.0 / 8.0 / 31.0) < 1e-9
    assert rows["bert_base, batch 1: ready / PyTorch eager"] == (0.9, 0.8)
    assert rows["inception_v3 in bf16, batch 8: swap / model.to"] == (0.5, 0.8)
    assert rows["training step ResNet-50 in f32, batch 32 / PyTorch eager"] == (1.0, 0.9)
    assert rows["training step BERT-base in bf16, batch 32 / PyTorch eager"] == (1.0, None)
    assert rows["resnet152, batch 8: swap / fresh process"][0] == 0.01
    assert "resnet152, batch 1: swap / fresh process" not in rows


def test_nothing_measured():
    rows = bench.all_rows({8: {}}, {}, {}, {}, None, {p: None for p in bench.PRECISIONS})
    assert rows and all(got is None for _, _, got in rows)
    assert all(line.endswith("not measured |") for line in list(bench.table(rows))[2:])


def test_table():
    lines = list(bench.table([("a", 1.0, 0.5), ("b", 1.0, 1.5), ("c", -0.95, 0.96), ("d", -0.95, 0.9), ("e", 2.0, None)]))
    assert lines[2:] == ["| a | at most 1.0 | 0.500 |", "| b | at most 1.0 | **1.500** |", "| c | at least 0.95 | 0.960 |",
                         "| d | at least 0.95 | **0.900** |", "| e | at most 2.0 | not measured |"]


def test_one_line_without_the_program():
    with tempfile.TemporaryDirectory() as empty:
        got = subprocess.run([sys.executable, os.path.join(ROOT, "bench/gpu_bench.py"), empty, empty], capture_output=True, text=True)
    assert got.returncode == 1 and len(got.stderr.splitlines()) == 1 and "no switchyard in" in got.stderr, got.stderr


failed = 0
for name, test in sorted(globals().copy().items()):
    if name.startswith("test_"):
        try:
            test()
            print("[       OK ] " + name)
        except AssertionError as error:
            failed += 1
            print("[  FAILED  ] %s %r" % (name, error))
sys.exit(failed > 0)
