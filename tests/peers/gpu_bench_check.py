#!/usr/bin/env python3
"""The parts of the GPU's bench that need no GPU: the rows and the table, from made numbers, and what the command says without a GPU. Run
by `make test`; prints a line a test, as the other tests do."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
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
    attention = {p: {"swaps": {"%s/%d" % (model, batch): {"p50_ms": 1.8, "p99_ms": 3.3} for model in bench.ATTENTIONS for batch in (1, 8)},
                     "torch": {"rows": [{"what": what, "model": model, "batch": batch, "ms": 2.0, "p99_ms": 3.0}
                                        for model in bench.ATTENTIONS for batch in (1, 8) for what in ("eager", "graphs")]}}
                 for p in ("f32", "bf16")}
    return swaps, narrow, counters, trained, 0.97, {p: torch_rows(p) for p in bench.PRECISIONS}, attention


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
    assert rows["attention_1024 in bf16, batch 8: ready / PyTorch eager, p50"] == (0.9, 0.9)
    bar, got = rows["attention_causal_1024 in f32, batch 1: ready / PyTorch CUDA graphs, p99"]
    assert bar == 1.0 and abs(got - 1.1) < 1e-9
    assert rows["attention_128 in f16, batch 8: ready / PyTorch eager, p99"] == (0.9, None)


def test_nothing_measured():
    rows = bench.all_rows({8: {}}, {}, {}, {}, None, {p: None for p in bench.PRECISIONS}, {})
    assert rows and all(got is None for _, _, got in rows)
    assert all(line.endswith("not measured |") for line in list(bench.table(rows))[2:])


def test_table():
    lines = list(bench.table([("a", 1.0, 0.5), ("b", 1.0, 1.5), ("c", -0.95, 0.96), ("d", -0.95, 0.9), ("e", 2.0, None)]))
    assert lines[2:] == ["| a | at most 1.0 | 0.500 |", "| b | at most 1.0 | **1.500** |", "| c | at least 0.95 | 0.960 |",
                         "| d | at least 0.95 | **0.900** |", "| e | at most 2.0 | not measured |"]


FAKES = ["test_cuda_plugin", "test_device", "test_gpu_device", "test_gpu_slices", "test_gpu_engine", "test_gpu_engine_candidates", "test_gpu_engine_conv",
         "test_gpu_trainer", "test_gpu_train_gradients", "test_gpu_train_gradients_batch", "test_gpu_ranks", "gpu_onnx_suite", "test_gpu_models", "test_end_to_end",
         "test_worker_deaths"]


def gpu_check(scripts, **env):
    """gpu_check.sh on made-up tests: shell scripts by name, `true` where nothing is said."""
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(os.path.join(folder, "onnx_cases", "node"))
        for name in FAKES + ["libswitchyard-cuda.so"]:
            path = os.path.join(folder, name)
            with open(path, "w") as file:
                file.write("#!/bin/sh\n" + scripts.get(name, "echo fine") + "\n")
            os.chmod(path, 0o755)
        own = {k: v for k, v in os.environ.items() if not k.startswith("SY_")}
        got = subprocess.run(["sh", os.path.join(ROOT, "tests/on_gpu/gpu_check.sh"), folder, folder], capture_output=True, text=True,
                             env=dict(own, CUDA_HOME=folder, **env))
    return got.returncode, got.stdout, got.stderr


def test_check_counts():
    rc, out, _ = gpu_check({"test_gpu_engine_conv": "echo wrong; exit 3", "test_gpu_models": "echo no such model; exit 77"},
                           PART="device engine models")
    assert rc == 1 and out.splitlines()[-1] == "9 passed, 1 failed, 1 skipped", out
    assert "FAIL  engine: test_gpu_engine_conv (exit 3)" in out and "\nwrong\n" in out
    assert "skip  models: test_gpu_models: no such model" in out
    rc, out, _ = gpu_check({}, PART="engine train")
    assert rc == 0 and out.splitlines()[-1] == "9 passed, 0 failed, 0 skipped", out


def test_check_end_to_end_is_a_step_each():
    rc, out, _ = gpu_check({"test_end_to_end": 'echo "[       OK ] one"; test "$SY_TEST_FILTER" != "two_hundred*"'}, PART="end-to-end")
    assert rc == 1 and "FAIL  end-to-end: two_hundred* (exit 1)" in out and out.splitlines()[-1] == "9 passed, 1 failed, 0 skipped", out
    rc, out, _ = gpu_check({}, PART="end-to-end")
    assert rc == 1 and "no test ran" in out and out.splitlines()[-1] == "0 passed, 10 failed, 0 skipped", out


def test_check_says_what_is_not_there():
    rc, out, err = gpu_check({"test_cuda_plugin": "echo no driver; exit 1"})
    assert rc == 1 and err.splitlines() == ["gpu-check: no GPU to test on: no driver"], err
    rc, _, err = gpu_check({}, PART="engines")
    assert rc == 2 and "no part engines" in err, err
    rc, out, _ = gpu_check({}, PART="device sanitizer", PATH="/usr/bin:/bin")
    assert "skip  sanitizer: memory and race checkers: " in out, out


def test_check_keeps_its_time():
    rc, out, _ = gpu_check({"test_gpu_engine": "sleep 30"}, PART="engine train", SY_CHECK_SECONDS="1")
    assert rc == 1 and "FAIL  engine: test_gpu_engine (killed after 1 s)" in out, out
    assert "late  train: test_gpu_trainer" in out and out.splitlines()[-1].endswith("8 not run for want of time"), out


SWITCHYARD = """case $1 in
bench-link) echo link ;;
version) echo one ;;
import) [ "$DENY" = "$6" ] && echo "cannot import $6" && exit 1; echo package > "$4" ;;
*) exit 9 ;;
esac"""
MAKE_MODELS = 'mkdir -p "$2/$3/1" && echo model > "$2/$3/1/model.onnx"'
SWAP = """for a; do case $a in --benchmark_out=*) out=${a#*=} ;; --benchmark_filter=*) filter=${a#*=} ;; esac; done
model=$(echo "$filter" | cut -d/ -f2)
[ "$SLOW" = "$model" ] && sleep 30
counters='"p50_ms": 8.0, "over_bound": 1.01, "bytes": 2e8, "link_gbps": 30'
[ "$WRONG" = "$model" ] && counters='"error_occurred": true, "error_message": "outputs differ"'
echo '{"benchmarks": [{"name": "swap/'$model'/ready/batch:1", "p50_ms": 5.0, "p99_ms": 6.0},
 {"name": "swap/'$model'/pipelined/batch:1", '"$counters"'}]}' > "$out\""""


def gpu_bench(folder, *arguments, **env):
    """gpu_bench.py on a made-up program; (exit status, what it printed, the result)."""
    build, out = os.path.join(folder, "build"), os.path.join(folder, "out")
    os.makedirs(os.path.join(build, "bench"), exist_ok=True)
    for name, text in (("switchyard", SWITCHYARD), ("make-models", MAKE_MODELS), ("bench/swap", SWAP)):
        with open(os.path.join(build, name), "w") as file:
            file.write("#!/bin/sh\n" + text + "\n")
        os.chmod(os.path.join(build, name), 0o755)
    got = subprocess.run([sys.executable, os.path.join(ROOT, "bench/gpu_bench.py"), build, out, *arguments], capture_output=True, text=True,
                         env=dict(os.environ, **env))
    results = os.listdir(out) if os.path.isdir(out) else []
    assert len(results) == 1, (got.stdout, got.stderr, results)
    with open(os.path.join(out, results[0])) as file:
        return got.returncode, got.stdout + got.stderr, json.load(file)


def measured(result, what):
    return next(row["measured"] for row in result["rows"] if row["what"] == what)


def test_parts_add_up():
    with tempfile.TemporaryDirectory() as folder:
        rc, _, result = gpu_bench(folder, "--part", "swaps", "--models", "resnet152")
        assert rc == 0 and measured(result, "resnet152, batch 8: swap / lower bound") == 1.01
        assert measured(result, "bert_base, batch 8: swap / lower bound") is None
        rc, text, result = gpu_bench(folder, "--part", "narrow", "--work", os.path.join(folder, "work"))
        assert rc == 0 and measured(result, "resnet152, batch 8: swap / lower bound") == 1.01, text
        assert measured(result, "bert_base in f16, batch 1: swap / lower bound") == 1.01
        assert os.path.exists(os.path.join(folder, "work/bf16/bert_base/1/model.sypkg"))


def test_attention_keeps_ours_without_pytorch():
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "torch.py"), "w") as file:
        file.write("raise ImportError('made up')")
        file.flush()
        rc, text, result = gpu_bench(folder, "--part", "attention", PYTHONPATH=folder)
        kept = result["measured"]["attention"]
        assert rc == 1 and sorted(kept) == sorted(bench.PRECISIONS), text
        assert kept["bf16"]["swaps"]["attention_causal_1024/8"]["p99_ms"] == 6.0 and kept["bf16"]["torch"] is None
        assert "gpu_compare.py ended with 1" in result["failed"]["attention: f16"], result["failed"]
        assert measured(result, "attention_128 in f32, batch 1: ready / PyTorch eager, p50") is None


def test_a_piece_that_fails_is_told():
    with tempfile.TemporaryDirectory() as folder:
        rc, text, result = gpu_bench(folder, "--part", "swaps", DENY="inception_v3")
        assert rc == 1 and "cannot import inception_v3" in result["failed"]["swaps: inception_v3, batch 8"], result["failed"]
        assert measured(result, "bert_base, batch 1: swap / lower bound") == 1.01
        assert "not measured: swaps: inception_v3, batch 1" in text


def test_wrong_outputs_are_no_measurement():
    with tempfile.TemporaryDirectory() as folder:
        gpu_bench(folder, "--part", "swaps", "--models", "resnet152")
        rc, text, result = gpu_bench(folder, "--part", "swaps", "--models", "resnet152,bert_base", WRONG="resnet152")
        assert rc == 1 and sorted(result["failed"]) == ["swaps: resnet152, batch 1", "swaps: resnet152, batch 8"], result["failed"]
        assert result["failed"]["swaps: resnet152, batch 8"] == "swap/resnet152/pipelined/batch:1: outputs differ"
        assert "not measured: swaps: resnet152, batch 8: swap/resnet152/pipelined" in text
        kept = result["measured"]["swaps"]
        assert kept["resnet152/pipelined/8/f32"]["over_bound"] == 1.01  # of the run before
        assert kept["bert_base/pipelined/8/f32"]["over_bound"] == 1.01
        os.remove(os.path.join(folder, "out", os.listdir(os.path.join(folder, "out"))[0]))
        rc, _, result = gpu_bench(folder, "--part", "swaps", "--models", "resnet152", WRONG="resnet152")
        assert rc == 1 and sorted(result["measured"]["swaps"]) == ["resnet152/ready/1/f32", "resnet152/ready/8/f32"]


def test_what_a_lost_gpu_takes_along_is_told():
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "torch.py"), "w") as file:
            file.write("class Any:\n    __getattr__ = lambda self, name: Any()\n    __call__ = lambda self, *_: True\n\n\n"
                       "class Cuda(Any):\n    def empty_cache(self):\n        raise RuntimeError('sticky')\n\n\n"
                       "__version__, backends, cuda, set_grad_enabled = 'made up', Any(), Cuda(), lambda on: None\n")
        out = os.path.join(folder, "out.json")
        got = subprocess.run([sys.executable, os.path.join(ROOT, "bench/gpu_compare.py"), "cuda:0", out, "--models", "resnet152"],
                             capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=folder))
        assert os.path.exists(out), got.stderr
        with open(out) as file:
            missing = json.load(file)["missing"]
    assert got.returncode == 3 and "8 of 8 are not measured: RuntimeError('sticky')" in got.stderr, got.stderr
    assert [(row["what"], row["model"], row["batch"]) for row in missing] == [
        (what, "resnet152", 8) for what in ("eager", "graphs", "model_to", "cpu_offload", "fresh_process")] + [
        (what, "resnet152", 1) for what in ("eager", "graphs", "model_to")], missing
    assert all("sticky" in row["why"] for row in missing[1:]) and "sticky" not in missing[0]["why"]


def test_what_came_before_a_lost_gpu_is_kept():
    code = ("import json, sys\njson.dump({'rows': [{'what': 'eager', 'model': 'resnet152', 'batch': 8, 'ms': 1}], 'missing': [{'what': 'graphs', "
            "'model': 'resnet152', 'batch': 8, 'why': 'sticky'}]}, open(sys.argv[2], 'w'))\nsys.exit(3)\n")
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "gpu_compare.py"), "w") as file:
            file.write(code)
        earlier = {"rows": [{"what": what, "model": "resnet152", "batch": 8, "ms": 2} for what in ("eager", "graphs")]}
        here, bench.HERE, kept = bench.HERE, folder, {"f32": earlier}
        try:
            bench.compare(kept, "f32", "cuda:0", folder, "f32", ["resnet152"], bench.Clock(None))
            said = "nothing"
        except OSError as why:
            said = str(why)
        finally:
            bench.HERE = here
    assert said == "gpu_compare.py ended with 3; not measured: graphs resnet152 8", said
    assert bench.torch_ms(kept["f32"], "eager", "resnet152", 8) == 1
    assert bench.torch_ms(kept["f32"], "graphs", "resnet152", 8) == 2


def test_a_server_that_does_not_start_is_told():
    sys.path.insert(0, os.path.join(ROOT, "bench", "sched"))
    import server
    for script, seconds, why in (("echo loading; exec sleep 30", 2, "did not say that it is ready within 2 s: hung"),
                                 ("exit 1", 60, "did not start: hung")):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "switchyard"), "w") as file:
                file.write("#!/bin/sh\necho hung >&2\n" + script + "\n")
            os.chmod(os.path.join(folder, "switchyard"), 0o755)
            server.READY_SECONDS = seconds
            try:
                server.Server(argparse.Namespace(build=folder))
                said = "it started"
            except SystemExit as error:
                said = str(error)
        assert said.strip() == "the server " + why, said


def test_a_link_that_hangs_is_no_gpu():
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(os.path.join(folder, "bench"))
        for name in ("switchyard", "make-models", "bench/swap"):
            with open(os.path.join(folder, name), "w") as file:
                file.write("#!/bin/sh\nexec sleep 30\n")
            os.chmod(os.path.join(folder, name), 0o755)
        got = subprocess.run([sys.executable, os.path.join(ROOT, "bench/gpu_bench.py"), folder, folder, "--seconds", "2"],
                             capture_output=True, text=True)
    assert got.returncode == 1 and len(got.stderr.splitlines()) == 1, got.stderr
    assert "bench-link --device cuda:0 did not end within 2 s" in got.stderr, got.stderr


def test_time_is_kept():
    with tempfile.TemporaryDirectory() as folder:
        rc, _, result = gpu_bench(folder, "--part", "swaps", "--seconds", "4", SLOW="inception_v3")
        assert rc == 1 and measured(result, "resnet152, batch 8: swap / lower bound") == 1.01
        assert result["failed"]["swaps: inception_v3, batch 8"] == result["failed"]["swaps: bert_base, batch 1"] == "no time left"


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
