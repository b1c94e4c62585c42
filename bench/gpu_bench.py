"""All that is measured on a GPU: python3 gpu_bench.py BUILD OUT_FOLDER [--device cuda:0] [--iterations 30] [--part swaps,torch]
[--models resnet152] [--seconds 540] [--work FOLDER]. Runs the swap bench and training jobs of ours, gpu_compare.py for PyTorch's side, and
writes OUT_FOLDER/DEVICE-DATE.json, anew after each piece, and at the end a table. What another run of that day and program has measured stays
in it. A piece that fails or has no time left says why, and the others go on. --work keeps models and packages for the next run. Without a
GPU: one line, exit 1. Needs only Python's own library; PyTorch for the comparison."""
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
ATTENTIONS = ["attention_128", "attention_1024", "attention_causal_1024"]
PARTS = {"swaps": "ready and pipelined in f32", "torch": "PyTorch's side", "narrow": "the same in bf16 and f16",
         "training": "a step of each job", "attention": "attention alone, ours and PyTorch's",
         "load": "training under requests", "large": "8 billion weights",
         "modes": "the paper's other ways to swap, in f32"}
TABLE_MODES = "/(ready|pipelined)/"
OTHER_MODES = "/(prefix|per_layer|whole|sequential|no_pool|one_process|restart|no_pin|no_ipc|managed)/"
OTHER_ITERATIONS = 10
TRAIN_SECONDS, LOAD_SECONDS = 10, 20
LINK_SECONDS = 120  # for bench-link, which opens the GPU: a driver that hangs must not take the whole run
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "sched")]
from server import Server  # noqa: E402


def say(text):
    print("gpu-bench: " + text, file=sys.stderr, flush=True)


def output_of(command):
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


class Late(Exception):
    """There is no time left."""


class Partly(ValueError):
    """Some of the rows could not be measured; .rows are the others."""

    def __init__(self, why, rows):
        super().__init__(why)
        self.rows = rows


class Clock:
    def __init__(self, seconds):
        self.end = time.monotonic() + seconds if seconds else None

    def left(self):
        """Seconds; None: as many as it takes."""
        if self.end is None:
            return None
        if self.end - time.monotonic() < 1:
            raise Late("no time left")
        return self.end - time.monotonic()


class Bench:
    def __init__(self, build, device, iterations, folder, clock):
        self.device, self.iterations, self.folder, self.clock = device, iterations, folder, clock
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
        seconds = min(LINK_SECONDS, self.clock.left() or LINK_SECONDS)
        try:
            got = subprocess.run([self.program, "bench-link", "--device", self.device], capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            sys.exit("gpu-bench: no GPU to measure on: bench-link --device %s did not end within %.0f s" % (self.device, seconds))
        if got.returncode != 0:
            sys.exit("gpu-bench: no GPU to measure on: " + ((got.stderr or got.stdout).strip().splitlines() or ["no reason"])[-1])
        return got.stdout

    def run(self, command, **keys):
        """Said if it fails, with the end of what it wrote."""
        got = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=self.clock.left(), **keys)
        if got.returncode != 0:
            raise OSError("%s: exit %d: %s" % (os.path.basename(command[0]), got.returncode, got.stdout.strip()[-400:]))

    def need_model(self, model):
        if not os.path.exists(os.path.join(self.models, model, "1/model.onnx")):
            self.run([self.make_models, "--out", self.models, model])

    def need_package(self, model, precision):
        self.need_model(model)
        if not os.path.exists(self.package(model, precision)):
            self.import_model(model, precision)

    def packages(self, precision):
        return self.models if precision == "f32" else os.path.join(self.folder, precision)

    def package(self, model, precision):
        return os.path.join(self.packages(precision), model, "1/model.sypkg")

    def import_model(self, model, precision):
        say("importing %s in %s" % (model, precision))
        package = self.package(model, precision)
        os.makedirs(os.path.dirname(package), exist_ok=True)
        self.run([self.program, "import", os.path.join(self.models, model, "1/model.onnx"), "-o", package + ".new", "--name", model,
                  "--precision", precision, "--device", self.device])
        os.rename(package + ".new", package)

    def large(self):
        """Counters of a swap of the large model in bf16."""
        if shutil.disk_usage(self.folder).free < LARGE_DISK:
            raise OSError("less than %.0f GB free for its package under %s" % (LARGE_DISK / 1e9, self.folder))
        try:
            self.need_package(LARGE, "bf16")
            return self.swaps(LARGE, 1, "bf16", "/pipelined/")[0]
        finally:
            for folder in (self.models, self.packages("bf16")):
                shutil.rmtree(os.path.join(folder, LARGE), ignore_errors=True)

    def swaps(self, model, batch, precision="f32", only=TABLE_MODES):
        """Counters of each of the modes, with model, mode, batch, precision. Partly, if the swap bench says of some that they failed, or that
        their outputs were wrong: such rows have no counters."""
        self.need_package(model, precision)
        self.need_model("mnist_cnn")
        out = os.path.join(self.folder, "swap.json")
        if os.path.exists(out):
            os.remove(out)
        subprocess.run([self.swap, "--device=" + self.device, "--models=" + self.packages(precision), "--batch=%d" % batch,
                        "--iterations=%d" % (min(self.iterations, OTHER_ITERATIONS) if only == OTHER_MODES else self.iterations),
                        "--benchmark_filter=swap/%s%s" % (model, only),
                        "--job-model=" + os.path.join(self.models, "mnist_cnn/1/model.onnx"), "--benchmark_out=" + out,
                        "--benchmark_out_format=json"], stdout=sys.stderr, timeout=self.clock.left())
        with open(out) as file:
            rows = json.load(file)["benchmarks"]
        if not rows:
            raise ValueError("the swap bench ran nothing")
        good = [dict(r, model=model, mode=r["name"].split("/")[2], batch=batch, precision=precision) for r in rows
                if not r.get("error_occurred")]
        if len(good) < len(rows):
            raise Partly("; ".join("%s: %s" % (r["name"], r.get("error_message")) for r in rows if r.get("error_occurred")), good)
        return good

    def train(self, server, model, batch, precision="f32"):
        server.train(model, os.path.join(self.models, model, "1/model.onnx"), batch, precision=precision,
                     optimizer={"kind": "sgd", "learning_rate": 0.001, "momentum": 0.9},
                     data=dict({"kind": "synthetic", "samples": 256}, **({"vocabulary": 30522} if "bert" in model else {})),
                     snapshot={"folder": os.path.join(self.folder, "snapshots-" + precision), "every_steps": 1000000000})
        server.wait_steps(10, timeout=min(600, self.clock.left() or 600))

    def server(self):
        return Server(argparse.Namespace(build=os.path.dirname(self.program)), "--device", self.device)

    def training_ms(self, model, batch, precision, seconds=TRAIN_SECONDS):
        """Of a step, from those made in so many seconds: some hundred."""
        self.need_model(model)
        with self.server() as server:
            self.train(server, model, batch, precision)
            steps, elapsed, _ = steps_while(server, lambda: time.sleep(seconds))
        if not steps:
            raise ValueError("no step in %d s" % seconds)
        return elapsed * 1e3 / steps

    def loaded_share(self, job, batch, model, seconds=LOAD_SECONDS):
        """Steps a second while requests take half of the time, over those alone times the share that the requests leave. A request counts
        from when it is sent until its answer is there, its swap included."""
        self.need_model(job)
        self.need_package(model, "f32")

        def load():
            busy, end = 0.0, time.monotonic() + seconds
            while time.monotonic() < end:
                took = server.client.ask(model).seconds
                busy += took
                time.sleep(took)
            return busy
        with self.server() as server:
            server.load({model: self.package(model, "f32")})
            self.train(server, job, batch)
            server.client.ask(model)
            alone, alone_s, _ = steps_while(server, lambda: time.sleep(seconds))
            loaded, loaded_s, busy = steps_while(server, load)
        if not alone or not loaded:
            raise ValueError("%d steps alone, %d under load" % (alone, loaded))
        return (loaded / loaded_s) / (alone / alone_s * (1 - busy / loaded_s))


def steps_while(server, action):
    """Of the one job: how many, in what time, and what the action returns."""
    def look():
        jobs, _ = server.seen()
        return time.monotonic(), next(iter(jobs.values()))["step"]
    t0, s0 = look()
    result = action()
    t1, s1 = look()
    return s1 - s0, t1 - t0, result


def not_measured(path):
    if not os.path.exists(path):
        return ""
    with open(path) as file:
        return "; not measured: " + ", ".join("%(what)s %(model)s %(batch)d" % row for row in json.load(file)["missing"])


def with_earlier(got, earlier):
    """What was measured now, and the rows of earlier runs that were not measured again."""
    new = {(row["what"], row["model"], row["batch"]) for row in got["rows"]}
    got["rows"] += [row for row in (earlier or {}).get("rows", []) if (row["what"], row["model"], row["batch"]) not in new]
    return got


def compare(into, key, device, folder, precision, models, clock, *more):
    """PyTorch's side into `into[key]`, as far as it came: the comparison writes its file after each row. OSError says what ended it."""
    out = os.path.join(folder, "torch-%s.json" % precision)
    # PyTorch finds its own CUDA libraries, not those that were carried along; the driver may be on the machine's path.
    own = dict(os.environ)
    if "SY_OWN_LIBRARY_PATH" in own:
        own["LD_LIBRARY_PATH"] = own.pop("SY_OWN_LIBRARY_PATH")
    if os.path.exists(out):
        os.remove(out)
    why = None
    try:
        got = subprocess.run([sys.executable, os.path.join(HERE, "gpu_compare.py"), device, out, "--precision", precision, "--models",
                              ",".join(models), *more], stdout=sys.stderr, env=own, timeout=clock.left())
        if got.returncode != 0:
            why = "gpu_compare.py ended with %d" % got.returncode + not_measured(out)
    except subprocess.TimeoutExpired:
        why = "no time left"
    if os.path.exists(out):
        with open(out) as file:
            into[key] = with_earlier(json.load(file), into.get(key))
    if why or not os.path.exists(out):
        raise OSError(why or "gpu_compare.py wrote nothing")


def torch_ms(torch, what, model, batch, number="ms"):
    for row in (torch or {}).get("rows", []):
        if (row["what"], row["model"], row["batch"]) == (what, model, batch):
            return row.get(number)
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


def attention_rows(attention):
    """Of what attention_piece keeps. PyTorch's is its fused scaled_dot_product_attention."""
    for precision in PRECISIONS:
        swaps, torch = attention.get(precision, {}).get("swaps", {}), attention.get(precision, {}).get("torch")
        for batch in (8, 1):
            for model in ATTENTIONS:
                ours = swaps.get("%s/%d" % (model, batch), {})
                for way, bar, title in (("eager", 0.9, "eager"), ("graphs", 1.0, "CUDA graphs")):
                    for number, theirs in (("p50_ms", "ms"), ("p99_ms", "p99_ms")):
                        yield ("%s in %s, batch %d: ready / PyTorch %s, %s" % (model, precision, batch, title, number[:3]), bar,
                               ratio(ours.get(number), torch_ms(torch, way, model, batch, theirs)))


def training_rows(trained, torches):
    for model, title, batch in TRAINED:
        for precision in TRAIN_PRECISIONS:
            ours, _ = trained.get((model, precision), (None, ""))
            theirs = torch_ms(torches.get(precision), "train_step", model, batch)
            yield "training step %s in %s, batch %d / PyTorch eager" % (title, precision, batch), 1.0, ratio(ours, theirs)


def all_rows(swaps, narrow, large, trained, share, torches, attention):
    """(what, bar, measured or None); a bar below zero is a least. swaps: by batch; narrow: by precision and batch; trained: by model and
    precision; attention: by precision."""
    rows = [row for batch in swaps for row in swap_rows(swaps[batch], torches.get("f32"), batch)]
    rows += [row for (p, batch), s in narrow.items() for row in narrow_rows(s, torches.get(p), batch, p)]
    rows.append(large_row(large))
    rows += training_rows(trained, torches)
    rows += attention_rows(attention)
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


def by_batch(state, precision):
    found = {}
    for row in state["swaps"].values():
        if row["precision"] == precision:
            found.setdefault(row["batch"], {})[(row["model"], row["mode"])] = row
    return found


def rows_of(state):
    narrow = {(p, batch): rows for p in PRECISIONS[1:] for batch, rows in by_batch(state, p).items()}
    trained = {tuple(name.split("/")): (ms, "") for name, ms in state["training"].items()}
    return all_rows(by_batch(state, "f32") or {8: {}, 1: {}}, narrow, state["large"], trained, state["load"], state["torch"],
                    state["attention"])


def empty_state():
    return {"swaps": {}, "large": {}, "training": {}, "load": None, "torch": {}, "attention": {}}


def keep_swaps(state, rows):
    for row in rows:
        state["swaps"]["%s/%s/%d/%s" % (row["model"], row["mode"], row["batch"], row["precision"])] = row


def swaps_piece(bench, state, *what, **keys):
    """The rows that were measured are kept, also where others failed."""
    try:
        keep_swaps(state, bench.swaps(*what, **keys))
    except Partly as partly:
        keep_swaps(state, partly.rows)
        raise


def attention_piece(bench, state, precision):
    """Ours first; with PyTorch's side, in the same precision, as far as it comes."""
    kept = state["attention"].setdefault(precision, {"swaps": {}, "torch": None})
    for batch in (8, 1):
        for model in ATTENTIONS:
            kept["swaps"]["%s/%d" % (model, batch)] = bench.swaps(model, batch, precision, "/ready/")[0]
    compare(kept, "torch", bench.device, bench.folder, precision, ATTENTIONS, bench.clock, "--runs", "100")


def pieces(bench, state, models):
    """(part, what, function that puts its result into the state), the most telling first."""
    def torch(precision):
        compare(state["torch"], precision, bench.device, bench.folder, precision, models, bench.clock)

    def trained(model, batch, precision):
        state["training"]["%s/%s" % (model, precision)] = bench.training_ms(model, batch, precision)
    for batch in (8, 1):
        for model in models:
            yield "swaps", "%s, batch %d" % (model, batch), lambda m=model, b=batch: swaps_piece(bench, state, m, b)
    yield "torch", "f32", lambda: torch("f32")
    for precision in TRAIN_PRECISIONS:
        for model, _, batch in TRAINED:
            yield "training", "%s in %s" % (model, precision), lambda m=model, b=batch, p=precision: trained(m, b, p)
    yield "load", "resnet50 under requests for resnet152", lambda: state.update(load=bench.loaded_share("resnet50", 32, "resnet152"))
    for precision in PRECISIONS[1:]:
        for batch in (8, 1):
            for model in models:
                yield "narrow", "%s in %s, batch %d" % (model, precision, batch), lambda m=model, b=batch, p=precision: swaps_piece(
                    bench, state, m, b, p)
        yield "torch", precision, lambda p=precision: torch(p)
    for precision in PRECISIONS:
        yield "attention", precision, lambda p=precision: attention_piece(bench, state, p)
    for model in models:
        yield "modes", model, lambda m=model: swaps_piece(bench, state, m, 8, only=OTHER_MODES)
    yield "large", LARGE, lambda: state.update(large=bench.large())


def run_pieces(todo, parts, save):
    """What failed, by part and piece."""
    failed = {}
    for part, what, piece in todo:
        if part not in parts:
            continue
        say("%s: %s" % (part, what))
        begun = time.monotonic()
        try:
            piece()
            say("%s: %s: %.0f s" % (part, what, time.monotonic() - begun))
        except (Exception, SystemExit) as why:  # a piece that fails must not take the others along
            failed["%s: %s" % (part, what)] = "no time left" if isinstance(why, subprocess.TimeoutExpired) else str(why)[:600]
            say("%s: %s: %s" % (part, what, failed["%s: %s" % (part, what)]))
        save(failed)
    return failed


class Result:
    def __init__(self, folder, bench, link):
        gpu, driver = gpu_and_driver()
        self.head = {"device": gpu, "driver": driver, "date": datetime.date.today().isoformat(),
                     "commit": output_of([bench.program, "version"]), "link": link}
        os.makedirs(folder, exist_ok=True)
        self.path = os.path.join(folder, "%s-%s.json" % (re.sub(r"[^A-Za-z0-9]+", "-", gpu), self.head["date"]))
        self.state = empty_state()
        if os.path.exists(self.path):
            with open(self.path) as file:
                before = json.load(file)
            if before.get("commit") == self.head["commit"] and "measured" in before:
                self.state.update(before["measured"])

    def save(self, failed):
        rows = [{"what": what, "bar": abs(bar), "at_least": bar < 0, "measured": got} for what, bar, got in rows_of(self.state)]
        with open(self.path + ".new", "w") as file:
            json.dump(dict(self.head, rows=rows, failed=failed, measured=self.state), file, indent=1)
        os.rename(self.path + ".new", self.path)


def names(text, known, what):
    chosen = text.split(",") if text else list(known)
    for name in chosen:
        if name not in known:
            sys.exit("gpu-bench: no %s %s: there are %s" % (what, name, ", ".join(known)))
    return chosen


def main():
    parser = argparse.ArgumentParser(epilog="Parts: " + "; ".join("%s: %s" % p for p in PARTS.items()))
    parser.add_argument("build")
    parser.add_argument("out")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--part", help="some parts only, with commas between")
    parser.add_argument("--models", help="some of %s" % ", ".join(MODELS))
    parser.add_argument("--seconds", type=float, help="what all may take together")
    parser.add_argument("--work", help="folder for models and packages, which is kept")
    args = parser.parse_args()
    parts, models = names(args.part, PARTS, "part"), names(args.models, MODELS, "model")
    folder = args.work or tempfile.mkdtemp(prefix="switchyard-gpu-bench-")
    os.makedirs(folder, exist_ok=True)
    try:
        bench = Bench(args.build, args.device, args.iterations, folder, Clock(args.seconds))
        result = Result(args.out, bench, bench.check_device())
        failed = run_pieces(pieces(bench, result.state, models), parts, result.save)
        result.save(failed)
        print("\n".join(table(rows_of(result.state))))
        for what, why in failed.items():
            print("\nnot measured: %s: %s" % (what, why))
        print("\n" + result.path)
    finally:
        if not args.work:
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
