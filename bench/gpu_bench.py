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
HERE = os.path.dirname(os.path.abspath(__file__))


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
        subprocess.run([self.make_models, "--out", self.models] + MODELS + ["mnist_cnn", "resnet50"], check=True,
                       stdout=subprocess.DEVNULL)
        for model in MODELS:
            say("importing " + model)
            subprocess.run([self.program, "import", os.path.join(self.models, model, "1/model.onnx"), "--name", model,
                            "--device", self.device], check=True, stdout=subprocess.DEVNULL)

    def swaps(self, batch):
        """{(model, mode): counters}"""
        out = os.path.join(self.folder, "swap-%d.json" % batch)
        subprocess.run([self.swap, "--device=" + self.device, "--models=" + self.models, "--batch=%d" % batch,
                        "--iterations=%d" % self.iterations,
                        "--job-model=" + os.path.join(self.models, "mnist_cnn/1/model.onnx"), "--benchmark_out=" + out,
                        "--benchmark_out_format=json"], check=False, stdout=sys.stderr)
        with open(out) as file:
            rows = json.load(file)["benchmarks"]
        return {tuple(r["name"].split("/")[1:3]): r for r in rows}

    def training_ms(self, model, batch):
        """Of a step, from the steps made in half a minute."""
        job = {"name": model, "model": os.path.join(self.models, model, "1/model.onnx"),
               "loss": "softmax_cross_entropy", "optimizer": {"kind": "sgd", "learning_rate": 0.001, "momentum": 0.9},
               "data": {"kind": "synthetic", "samples": 256}, "batch": batch, "epochs": 1000000, "seed": 1,
               "snapshot": {"folder": os.path.join(self.folder, "snapshots"), "every_steps": 1000000000}}
        path, address = os.path.join(self.folder, "job.json"), "unix:" + os.path.join(self.folder, "sock")
        with open(path, "w") as file:
            json.dump(job, file)
        server = subprocess.Popen([self.program, "serve", "--device", self.device, "--socket", address[5:]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for _ in range(120):
                if os.path.exists(address[5:]) or server.poll() is not None:
                    break
                time.sleep(0.5)
            got = subprocess.run([self.program, "train", path, "--socket", address], capture_output=True, text=True)
            if got.returncode != 0:
                return None, (got.stderr or got.stdout).strip()
            seen = [self.step_of(address) for _ in self.waits((30, 30))]
            (t0, s0), (t1, s1) = seen
            return ((t1 - t0) * 1e3 / (s1 - s0), "") if s1 > s0 else (None, "no step in half a minute")
        finally:
            server.kill()
            server.wait()

    @staticmethod
    def waits(seconds):
        for s in seconds:
            time.sleep(s)
            yield s

    def step_of(self, address):
        status = json.loads(output_of([self.program, "status", "--json", "--socket", address]) or "{}")
        jobs = status.get("jobs") or [{}]
        return time.monotonic(), jobs[0].get("step", 0)


def compare(device, folder):
    out = os.path.join(folder, "torch.json")
    # PyTorch finds its own CUDA libraries, not those that were carried along.
    own = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    got = subprocess.run([sys.executable, os.path.join(HERE, "gpu_compare.py"), device, out], stdout=sys.stderr, env=own)
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
        step_ms, why = bench.training_ms("resnet50", 32)
        torch = compare(args.device, folder) if args.compare == "yes" else None
        rows = [row for batch in swaps for row in swap_rows(swaps[batch], torch, batch)]
        rows.append(("training step ResNet-50, batch 32 / PyTorch eager", 1.0,
                     ratio(step_ms, torch_ms(torch, "train_step", "resnet50", 32))))
        gpu, driver = (output_of(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]).splitlines()
                       or ["unknown, unknown"])[0].rsplit(",", 1)
        result = {"device": gpu.strip(), "driver": driver.strip(), "date": datetime.date.today().isoformat(),
                  "commit": output_of([bench.program, "version"]), "link": link,
                  "rows": [{"what": what, "bar": abs(bar), "at_least": bar < 0, "measured": got} for what, bar, got in rows],
                  "training": {"resnet50_ms": step_ms, "why_not": why},
                  "swaps": {str(batch): [dict(r, model=m, mode=mode) for (m, mode), r in s.items()] for batch, s in swaps.items()},
                  "torch": torch,
                  "not_measured": ["training step of BERT-base: the CUDA trainer refuses its operators by name",
                                   "training under 50 % inference load", "8-billion-parameter set of weights"]}
        os.makedirs(args.out, exist_ok=True)
        path = os.path.join(args.out, "%s-%s.json" % (re.sub(r"[^A-Za-z0-9]+", "-", gpu.strip()), result["date"]))
        with open(path, "w") as file:
            json.dump(result, file, indent=1)
        print("| what | bar | measured |\n|---|---|---|")
        for what, bar, got in rows:
            met = got is not None and (got >= -bar if bar < 0 else got <= bar)
            shown = "not measured" if got is None else "%.3f" % got if met else "**%.3f**" % got
            print("| %s | %s %s | %s |" % (what, "at least" if bar < 0 else "at most", abs(bar), shown))
        print("\n" + path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
