"""All that is measured on a GPU: python3 gpu_bench.py BUILD OUT_FOLDER [--device cuda:0] [--iterations 30] [--compare no]. Runs the swap
bench and a training job of ours, gpu_compare.py for PyTorch's side, and writes OUT_FOLDER/DEVICE-DATE.json and a table. A row
whose number could not be had says why. Without a GPU: one line, exit 1. Needs only Python's own library; PyTorch for the comparison."""
import argparse
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

MODELS = ["resnet152", "inception_v3", "bert_base"]
TRAINED = [("resnet50", "ResNet-50", 32), ("bert_classifier", "BERT-base", 32)]
TRAIN_PRECISIONS = ["f32", "bf16"]
LARGE = "decoder_8b"
LARGE_DISK = 24e9  # the file, and its package in bf16
PRECISIONS = ["f32", "bf16", "f16"]
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "sched")]
from rpc import ServerError  # noqa: E402
from server import Server  # noqa: E402


def say(text):
    print("gpu-bench: " + text, file=sys.stderr, flush=True)


def output_of(command):
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


class Bench:
    def __init__(self, build, device, iterations, folder):
        self.device, self.iterations, self.folder = device, iterations, folder
        self.program = self.find(build, "switchyard")
        self.make_models, self.swap = self.find(build, "make-models"), self.find(build, "bench/swap")
        self.models = os.path.join(folder, "models")

    @staticmethod
    def find(build, name):
        for place in (name, os.path.basename(name), "../" + name):
            path = os.path.join(build, place)
            if os.access(path, os.X_OK):
                return path
        sys.exit("gpu-bench: no %s in %s" % (name, build))

    def check_device(self):
        """The one line that says why there is no GPU is the program's own."""
        got = subprocess.run([self.program, "bench-link", "--device", self.device], capture_output=True, text=True)
        if got.returncode != 0:
            sys.exit("gpu-bench: no GPU to measure on: " + (got.stderr or got.stdout).strip().splitlines()[-1])
        return got.stdout

    def prepare(self):
        subprocess.run([self.make_models, "--out", self.models] + MODELS + ["mnist_cnn"] + [m for m, _, _ in TRAINED], check=True,
                       stdout=subprocess.DEVNULL)
        for model in MODELS:
            for precision in PRECISIONS:
                self.import_model(model, precision)

    def packages(self, precision):
        return self.models if precision == "f32" else os.path.join(self.folder, precision)

    def import_model(self, model, precision):
        say("importing %s in %s" % (model, precision))
        package = os.path.join(self.packages(precision), model, "1/model.sypkg")
        os.makedirs(os.path.dirname(package), exist_ok=True)
        subprocess.run([self.program, "import", os.path.join(self.models, model, "1/model.onnx"), "-o", package, "--name", model,
                        "--precision", precision, "--device", self.device], check=True, stdout=subprocess.DEVNULL)

    def large(self):
        """Counters of a swap of the large model in bf16, and why there are none."""
        if shutil.disk_usage(self.folder).free < LARGE_DISK:
            return {}, "less than %.0f GB free for its package under %s" % (LARGE_DISK / 1e9, self.folder)
        try:
            subprocess.run([self.make_models, "--out", self.models, LARGE], check=True, stdout=subprocess.DEVNULL)
            self.import_model(LARGE, "bf16")
            return self.swaps(1, "bf16", LARGE + "/pipelined").get((LARGE, "pipelined"), {}), ""
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            return {}, str(error)
        finally:
            for folder in (self.models, self.packages("bf16")):
                shutil.rmtree(os.path.join(folder, LARGE), ignore_errors=True)

    def swaps(self, batch, precision="f32", only="."):
        """{(model, mode): counters}"""
        out = os.path.join(self.folder, "swap-%s-%d.json" % (precision, batch))
        subprocess.run([self.swap, "--device=" + self.device, "--models=" + self.packages(precision), "--batch=%d" % batch,
                        "--iterations=%d" % self.iterations, "--benchmark_filter=" + only,
                        "--job-model=" + os.path.join(self.models, "mnist_cnn/1/model.onnx"), "--benchmark_out=" + out,
                        "--benchmark_out_format=json"], check=False, stdout=sys.stderr)
        with open(out) as file:
            rows = json.load(file)["benchmarks"]
        return {tuple(r["name"].split("/")[1:3]): r for r in rows}

    def train(self, server, model, batch, precision="f32"):
        server.train(model, os.path.join(self.models, model, "1/model.onnx"), batch, precision=precision,
                     optimizer={"kind": "sgd", "learning_rate": 0.001, "momentum": 0.9},
                     data=dict({"kind": "synthetic", "samples": 256}, **({"vocabulary": 30522} if "bert" in model else {})),
                     snapshot={"folder": os.path.join(self.folder, "snapshots"), "every_steps": 1000000000})
        server.wait_steps(10, timeout=600)

    def server(self):
        return Server(argparse.Namespace(build=os.path.dirname(self.program)), "--device", self.device)

    def training_ms(self, model, batch, precision, seconds=30):
        """Of a step, from those made in half a minute."""
        say("training %s in %s" % (model, precision))
        try:
            with self.server() as server:
                self.train(server, model, batch, precision)
                steps, elapsed, _ = steps_while(server, lambda: time.sleep(seconds))
                return (elapsed * 1e3 / steps, "") if steps else (None, "no step in %d s" % seconds)
        except (SystemExit, ServerError) as why:
            return None, str(why)

    def loaded_share(self, job, batch, model, seconds=30):
        """Steps a second while requests take half of the time, over those alone times the share that the requests leave. A request counts
        from when it is sent until its answer is there, its swap included."""
        say("training %s under requests for %s" % (job, model))

        def load():
            busy, end = 0.0, time.monotonic() + seconds
            while time.monotonic() < end:
                took = server.client.ask(model).seconds
                busy += took
                time.sleep(took)
            return busy
        try:
            with self.server() as server:
                server.load({model: os.path.join(self.models, model, "1/model.sypkg")})
                self.train(server, job, batch)
                server.client.ask(model)
                alone, alone_s, _ = steps_while(server, lambda: time.sleep(seconds))
                loaded, loaded_s, busy = steps_while(server, load)
            if not alone or not loaded:
                return None, "%d steps alone, %d under load" % (alone, loaded)
            return (loaded / loaded_s) / (alone / alone_s * (1 - busy / loaded_s)), ""
        except (SystemExit, ServerError) as why:
            return None, str(why)


def steps_while(server, action):
    """Of the one job: how many, in what time, and what the action returns."""
    def look():
        jobs, _ = server.seen()
        return time.monotonic(), next(iter(jobs.values()))["step"]
    t0, s0 = look()
    result = action()
    t1, s1 = look()
    return s1 - s0, t1 - t0, result


def compare(device, folder, precision):
    out = os.path.join(folder, "torch-%s.json" % precision)
    # PyTorch finds its own CUDA libraries, not those that were carried along.
    own = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    got = subprocess.run([sys.executable, os.path.join(HERE, "gpu_compare.py"), device, out, "--precision", precision],
                         stdout=sys.stderr, env=own)
    if got.returncode != 0:
        return None
    with open(out) as file:
        return json.load(file)


def torch_ms(torch, what, model, batch):
    for row in (torch or {}).get("rows", []):
        if (row["what"], row["model"], row["batch"]) == (what, model, batch):
            return row["ms"]
    return None


def ratio(a, b):
    return a / b if a and b else None


def swap_rows(swaps, torch, batch):
    for model in MODELS:
        ours, ready = swaps.get((model, "pipelined"), {}), swaps.get((model, "ready"), {})
        swap = ours.get("p50_ms")
        name = "%s, batch %d: " % (model, batch)
        yield name + "swap / lower bound", 1.05, ours.get("over_bound")
        if ours.get("bytes", 0) > 100e6:
            busy = ratio(ours["bytes"] / 1e6, swap)
            yield name + "link rate in a swap / measured peak", -0.95, ratio(busy, ours.get("link_gbps"))
        yield name + "request to first layer, p50 ms", 1.0, ours.get("first_layer_ms")
        yield name + "request to first layer, p99 ms", 2.0, ours.get("first_layer_p99_ms")
        yield name + "preempt wait p99, ms", 1.0, ours.get("preempt_wait_p99_ms")
        yield name + "ready / PyTorch eager", 0.9, ratio(ready.get("p50_ms"), torch_ms(torch, "eager", model, batch))
        yield name + "ready / PyTorch CUDA graphs", 1.0, ratio(ready.get("p50_ms"), torch_ms(torch, "graphs", model, batch))
        yield name + "swap / model.to", 0.5, ratio(swap, torch_ms(torch, "model_to", model, batch))
        if batch == 8:
            yield name + "swap / cpu_offload", 0.3, ratio(swap, torch_ms(torch, "cpu_offload", model, batch))
            yield name + "swap / fresh process", 0.01, ratio(swap, torch_ms(torch, "fresh_process", model, batch))


def narrow_rows(swaps, torch, batch, precision):
    for model in MODELS:
        ours, ready = swaps.get((model, "pipelined"), {}), swaps.get((model, "ready"), {})
        name = "%s in %s, batch %d: " % (model, precision, batch)
        yield name + "swap / lower bound", 1.05, ours.get("over_bound")
        yield name + "ready / PyTorch eager", 0.9, ratio(ready.get("p50_ms"), torch_ms(torch, "eager", model, batch))
        yield name + "ready / PyTorch CUDA graphs", 1.0, ratio(ready.get("p50_ms"), torch_ms(torch, "graphs", model, batch))
        yield name + "swap / model.to", 0.5, ratio(ours.get("p50_ms"), torch_ms(torch, "model_to", model, batch))


def large_row(got):
    """Image to running, beside the bytes at the measured rate."""
    at_rate_ms = ratio(got.get("bytes", 0) / 1e6, got.get("link_gbps"))
    return "%s in bf16, host image to running / (bytes / measured rate)" % LARGE, 1.08, ratio(got.get("p50_ms"), at_rate_ms)


def training_rows(trained, torches):
    for model, title, batch in TRAINED:
        for precision in TRAIN_PRECISIONS:
            ours, _ = trained.get((model, precision), (None, ""))
            theirs = torch_ms(torches.get(precision), "train_step", model, batch)
            yield "training step %s in %s, batch %d / PyTorch eager" % (title, precision, batch), 1.0, ratio(ours, theirs)


def all_rows(swaps, narrow, large, trained, share, torches):
    """(what, bar, measured or None); a bar below zero is a least. swaps: by batch; narrow: by precision and batch; trained: by model and
    precision."""
    rows = [row for batch in swaps for row in swap_rows(swaps[batch], torches.get("f32"), batch)]
    rows += [row for (p, batch), s in narrow.items() for row in narrow_rows(s, torches.get(p), batch, p)]
    rows.append(large_row(large))
    rows += training_rows(trained, torches)
    rows.append(("training ResNet-50 under 50 % inference load (ResNet-152) / (alone x idle share)", -0.95, share))
    return rows


def table(rows):
    yield "| what | bar | measured |"
    yield "|---|---|---|"
    for what, bar, got in rows:
        met = got is not None and (got >= -bar if bar < 0 else got <= bar)
        shown = "not measured" if got is None else "%.3f" % got if met else "**%.3f**" % got
        yield "| %s | %s %s | %s |" % (what, "at least" if bar < 0 else "at most", abs(bar), shown)


def gpu_and_driver():
    lines = output_of(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]).splitlines()
    name, _, driver = (lines[0] if lines else "unknown, unknown").rpartition(",")
    return name.strip(), driver.strip()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("out")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--compare", choices=("yes", "no"), default="yes")
    args = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="switchyard-gpu-bench-")
    try:
        bench = Bench(args.build, args.device, args.iterations, folder)
        link = bench.check_device()
        bench.prepare()
        swaps = {batch: bench.swaps(batch) for batch in (8, 1)}
        narrow = {(p, batch): bench.swaps(batch, p, "/(ready|pipelined)/") for p in PRECISIONS[1:] for batch in (8, 1)}
        large, why_no_large = bench.large()
        trained = {(model, p): bench.training_ms(model, batch, p) for model, _, batch in TRAINED for p in TRAIN_PRECISIONS}
        share, no_share = bench.loaded_share("resnet50", 32, "resnet152")
        torches = {p: compare(args.device, folder, p) if args.compare == "yes" else None for p in PRECISIONS}
        rows = all_rows(swaps, narrow, large, trained, share, torches)
        gpu, driver = gpu_and_driver()
        result = {"device": gpu, "driver": driver, "date": datetime.date.today().isoformat(),
                  "commit": output_of([bench.program, "version"]), "link": link,
                  "rows": [{"what": what, "bar": abs(bar), "at_least": bar < 0, "measured": got} for what, bar, got in rows],
                  "training": [{"model": model, "precision": p, "ms": ms, "why_not": why} for (model, p), (ms, why) in trained.items()],
                  "training_under_load": {"measured": share, "why_not": no_share},
                  "swaps": {str(batch): [dict(r, model=m, mode=mode) for (m, mode), r in s.items()] for batch, s in swaps.items()},
                  "narrow_swaps": [dict(r, model=m, mode=mode, precision=p, batch=batch) for (p, batch), s in narrow.items()
                                   for (m, mode), r in s.items()],
                  "large": dict(large, why_not=why_no_large),
                  "torch": torches}
        os.makedirs(args.out, exist_ok=True)
        path = os.path.join(args.out, "%s-%s.json" % (re.sub(r"[^A-Za-z0-9]+", "-", gpu), result["date"]))
        with open(path, "w") as file:
            json.dump(result, file, indent=1)
        print("\n".join(table(rows)))
        print("\n" + path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
