#!/usr/bin/env python3
"""A PyTorch script on the GPU as a job of a server: gpu_torch.py BIN [--device cuda:0]. BIN: the folder of `switchyard` and `make-models`. Started by
run.sh gpu-torch in what `make dist` made, or by hand in the tree; needs a Python with PyTorch, and a C++ compiler for the hook. Less than a minute.

  drain    the hook alone, this process as its own worker: a closed gate is only told as drained once the GPU is; how long that takes
  rate     steps a second with the look and without, in turn, in one process
  bits     the weights after training between requests are those of the script alone; how long each request waited
  memory   what is beyond the limit is refused as torch.OutOfMemoryError, and nothing else is harmed

--device cpu does the same on the CPU, smaller (no GPU is needed then). One line a check, and one in front of each part; the last counts. Exit status 1 if one
failed; a number beyond its bar is said, and is no failure. A part that stands still for a minute says where, and fails.
"""
import argparse
import ctypes
import faulthandler
import hashlib
import json
import os
import select
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
for place in (os.path.join(ROOT, "bench"), os.path.join(ROOT, "../bench/sched")):
    sys.path.append(place)
PACKAGE = next((p for p in (os.path.join(ROOT, "share/switchyard/python"), os.path.join(ROOT, "../runtime/python")) if os.path.isdir(p)), "")
LIMIT, MODEL, N_PAUSES = 3 << 30, "resnet18", 200
GATE, BUSY, DRAINED, DEVICE = 64, 128, 276, 272  # in script_page.h
AT_MOST = ("timeout", "--kill-after=5", "120")
STILL_S = 60  # a script that says nothing for so long is stuck


def quantile(values, q):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


# ---- the script: what a user's would be ----------------------------------------------------------


class Trainer:
    """Two networks: long operators, and many short ones."""

    def __init__(self, kind, device):
        import torch
        from torch import nn
        torch.manual_seed(3)
        small = device == "cpu"

        class Mean(nn.Module):  # nn.AdaptiveAvgPool2d is not deterministic
            def forward(self, x):
                return x.mean(2)

        if kind == "convolutions":
            wide, layers, batch = (8, 2, 4) if small else (128, 6, 64)
            parts = [nn.Conv2d(3, wide, 3, padding=1)]
            for _ in range(layers):
                parts += [nn.Conv2d(wide, wide, 3, padding=1, bias=False), nn.BatchNorm2d(wide), nn.ReLU()]
            model = nn.Sequential(*parts, nn.Flatten(2), Mean(), nn.Linear(wide, 10))
            self.x = torch.randn(batch, 3, 32, 32).to(device)
        else:
            wide, layers, batch = (32, 2, 2) if small else (768, 6, 8)
            layer = nn.TransformerEncoderLayer(wide, wide // 64 or 1, 4 * wide, dropout=0.1, batch_first=True)
            model = nn.Sequential(nn.TransformerEncoder(layer, layers, enable_nested_tensor=False), nn.Flatten(), nn.Linear(128 * wide, 10))
            self.x = torch.randn(batch, 128, wide).to(device)
        self.y = torch.randint(0, 10, (batch,)).to(device)
        self.device, self.model = device, model.to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-4, momentum=0.9)

    def step(self):
        from torch.nn import functional as F
        F.cross_entropy(self.model(self.x), self.y).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def wait(self):
        import torch
        if self.device != "cpu":
            torch.cuda.synchronize()

    def timed(self, steps):
        self.wait()
        begin = time.perf_counter()
        for _ in range(steps):
            self.step()
        self.wait()
        return (time.perf_counter() - begin) / steps

    def hash(self):
        digest = hashlib.sha256()
        for value in self.model.state_dict().values():
            digest.update(value.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def longest_operator_ms(self):
        """Each operator by itself, as the autograd threads and this one call them."""
        import torch
        took = []

        class Alone(torch.utils._python_dispatch.TorchDispatchMode):
            def __torch_dispatch__(mode, function, types, args=(), kwargs=None):
                self.wait()
                begin = time.perf_counter()
                result = function(*args, **(kwargs or {}))
                self.wait()
                took.append(time.perf_counter() - begin)
                return result

        for _ in range(2):
            took.clear()
            with Alone():
                self.step()
        return 1e3 * max(took)


def prepare(device):
    import torch
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False
    torch.set_num_threads(2 if device == "cpu" else torch.get_num_threads())


def say(**what):
    print(json.dumps(what), flush=True)


def begin(part):
    """Says what comes now; if it takes too long, where every thread of the script stands, and ends it."""
    print(f"begins: {part}", flush=True)
    faulthandler.dump_traceback_later(STILL_S, exit=True)


def train_for_bits(device, steps):
    """Both networks, one after the other; what they came to."""
    hashes = []
    for kind in ("convolutions", "transformer"):
        trainer = Trainer(kind, device)
        for _ in range(steps):
            trainer.step()
        hashes.append(trainer.hash())
    return hashes


def script_alone(device, steps):
    begin("the script alone")
    prepare(device)
    longest = max(Trainer(kind, device).longest_operator_ms() for kind in ("convolutions", "transformer"))
    say(longest_operator_ms=longest, hashes=train_for_bits(device, steps))


def script_run(device, steps):
    """Under `switchyard run`. Tells how far it is; goes on when it is told to."""
    begin("rate: PyTorch and the hook, which is built once, then steps")
    import torch
    from switchyard import _torch_hook
    prepare(device)
    hook, rates = _torch_hook.library(), {}
    if hook is None:
        raise SystemExit("no hook in C++")
    for kind in ("convolutions", "transformer"):
        trainer = Trainer(kind, device)
        trainer.timed(10)
        times = {0: [], 1: []}
        for on in [1, 0, 0, 1] * 4:  # what has a period of two favours neither
            hook.sy_torch_hook_look(ctypes.c_int(on))
            times[on].append(trainer.timed(10))
        rates[kind] = {"with": quantile(times[1], 0.5), "without": quantile(times[0], 0.5), "least": min(times[1]) / min(times[0])}
        del trainer
    say(rates=rates)
    sys.stdin.readline()
    begin("bits")
    say(hashes=train_for_bits(device, steps))
    sys.stdin.readline()
    begin("memory")
    kept, refused = [], None
    try:
        while len(kept) < 10000:
            kept.append(torch.empty(32 << 20, dtype=torch.uint8, device=device))
    except RuntimeError as error:
        refused = [type(error).__name__, str(error)[:300]]
    most = torch.cuda.max_memory_reserved() if device != "cpu" else _torch_hook.page().peak_bytes
    n = len(kept)
    kept.clear()
    again = float(torch.ones(1 << 20, device=device).sum())
    say(refused=refused, n=n, most=most, again=again)


# ---- drain: the hook by itself -------------------------------------------------------------------


class OwnWorker:
    """A page's other side, as a worker has it; in a process of its own, so that Python's lock is not in what it measures."""

    def __init__(self, path):
        import mmap
        with open(path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), os.path.getsize(path))
        self.words, self.libc = memoryview(self.map).cast("I"), ctypes.CDLL(None)
        self.gate = ctypes.c_uint32.from_buffer(self.map, GATE)

    def move(self):
        self.gate.value += 1
        self.libc.syscall({"x86_64": 202, "aarch64": 98}[os.uname().machine], ctypes.byref(self.gate), 1, 1 << 30, None, None, 0)

    def is_quiet(self):
        return not self.words[BUSY // 4] and (not self.words[DEVICE // 4] or self.words[DRAINED // 4] == self.gate.value)

    def pause(self):
        """Seconds until it stood still."""
        begin = time.perf_counter()
        self.move()
        while not self.is_quiet():
            if time.perf_counter() - begin > 30:
                raise SystemExit(f"it does not come to stand: busy {self.words[BUSY // 4]}, drained {self.words[DRAINED // 4]}, gate {self.gate.value}")
        return time.perf_counter() - begin

    def serve(self, asked, answers):
        """Whatever goes wrong, the gate is open at the end: the script would sleep at it for ever."""
        try:
            self.answer(asked, answers)
        finally:
            if self.gate.value & 1:
                self.move()

    def answer(self, asked, answers):
        """A line with how often to pause: for each pause a line, and goes on once that was answered; then one with what they took, in ms, and which were
        answered in time. None is where the script stands with Python's lock."""
        for line in asked:
            took, seen = [], []
            for i in range(int(line)):
                time.sleep(0.002 + 0.0003 * (i % 7))
                took.append(1e3 * self.pause())
                answers.write("still\n")
                answers.flush()
                seen.append(bool(select.select([asked], [], [], 0.1)[0]))
                if seen[-1]:
                    asked.readline()
                self.move()
                if not seen[-1]:
                    asked.readline()
            answers.write(json.dumps([took, seen]) + "\n")
            answers.flush()


def fork_worker():
    """The page's path, and a file each to and from a process that is its worker."""
    import struct
    import tempfile
    from switchyard import _torch_hook
    with tempfile.NamedTemporaryFile(prefix="switchyard-page-", delete=False) as file:
        file.write(struct.pack("<Q", _torch_hook._MAGIC).ljust(_torch_hook._PAGE_BYTES, b"\0"))
    (to_read, to_write), (from_read, from_write) = os.pipe(), os.pipe()
    if os.fork() == 0:
        os.close(to_write)
        os.close(from_read)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # whoever reads the script's output sees when the script has ended
        try:
            OwnWorker(file.name).serve(os.fdopen(to_read), os.fdopen(from_write, "w"))
        except BaseException as error:
            print(f"drain: its worker: {error!r}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    os.close(to_read)
    os.close(from_write)
    return file.name, os.fdopen(to_write, "w", buffering=1), os.fdopen(from_read)


def script_drain(device):
    """The GPU must stand still at the end of each pause."""
    path, ask, answers = fork_worker()
    begin("drain: PyTorch and the hook, which is built once")
    import torch
    from switchyard import _torch_hook
    prepare(device)
    page, told = _torch_hook.start(path), {}
    os.unlink(path)
    torch.zeros(1, device=device)
    if device != "cpu" and not page._words[DEVICE // 4]:  # nobody would wait for the GPU: there is nothing to measure
        return say(uses_device=False, told={})
    for kind in ("convolutions", "transformer"):
        begin(f"drain: {kind}")
        trainer, over, waits, works = Trainer(kind, device), threading.Event(), [], []
        trainer.timed(10)
        longest = trainer.longest_operator_ms()
        trainer.timed(10)

        def pauses():
            try:
                ask.write(f"{N_PAUSES}\n")
                while (line := answers.readline()) == "still\n":
                    works.append(device != "cpu" and not torch.cuda.current_stream().query())
                    ask.write("seen\n")
                waits.extend(json.loads(line or "[]"))
            finally:
                over.set()

        thread = threading.Thread(target=pauses)
        thread.start()
        while not over.is_set():
            trainer.step()
        thread.join()
        if not waits:
            raise SystemExit(f"drain: {kind}: its worker ended after {len(works)} pauses")
        told[kind] = {"longest_ms": longest, "p50": quantile(waits[0], 0.5), "p99": quantile(waits[0], 0.99), "n": sum(waits[1]),
                      "worked_on": sum(work and seen for work, seen in zip(works, waits[1]))}
        del trainer
    say(uses_device=bool(page._words[DEVICE // 4]), told=told)


# ---- the check -----------------------------------------------------------------------------------


class Ended(Exception):
    """The script has ended before it told what it was to tell."""


class Check:
    def __init__(self):
        self.passed = self.failed = 0
        self.begin = time.monotonic()

    def that(self, is_so, text):
        self.passed, self.failed = self.passed + bool(is_so), self.failed + (not is_so)
        print(f"{'ok  ' if is_so else 'FAIL'} {time.monotonic() - self.begin:5.1f} s  {text}", flush=True)

    def part(self, name):
        print(f"---- {time.monotonic() - self.begin:5.1f} s  {name}", flush=True)

    def number(self, text, value, bar):
        print(f"     {time.monotonic() - self.begin:5.1f} s  {text}: {value:.4g}, bar {bar:.4g}{'' if value <= bar else ': MISSED'}", flush=True)


def own_environment():
    """PyTorch finds its own CUDA libraries, not those that were carried along."""
    own = dict(os.environ, PYTHONPATH=PACKAGE, CUBLAS_WORKSPACE_CONFIG=":4096:8")
    if "SY_OWN_LIBRARY_PATH" in own:
        own["LD_LIBRARY_PATH"] = own.pop("SY_OWN_LIBRARY_PATH")
    return own


def start(args, what, under=()):
    """The script, by itself or under `switchyard run`, whose own libraries are those that were carried along."""
    own = own_environment()
    setting = [f"{key}={own.get(key, '')}" for key in ("LD_LIBRARY_PATH", "CUBLAS_WORKSPACE_CONFIG")]
    program = [sys.executable, os.path.abspath(__file__), args.bin, "--device", args.device, "--as", what, "--steps", str(args.steps)]
    return subprocess.Popen([*AT_MOST, *under, "env", *setting, *program] if under else [*AT_MOST, *program], env=os.environ if under else own, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)


def next_line(process, wanted):
    for line in process.stdout:
        if line.startswith("{"):
            told = json.loads(line)
            if wanted in told:
                return told
        print("     " + line.rstrip(), flush=True)
    raise Ended(f"the script ended with {process.wait()} before it told its {wanted} (124: it took longer than {AT_MOST[-1]} s)")


def told_by(args, what, wanted):
    process = start(args, what)
    told = next_line(process, wanted)
    process.communicate()
    return told


class Requests:
    def __init__(self, client):
        self.client, self.over, self.took = client, False, []
        self.thread, self.why = threading.Thread(target=self.ask, daemon=True), None

    def ask(self):
        try:
            while not self.over:
                self.took.append(self.client.ask(MODEL).seconds)
                time.sleep(0.006)
        except Exception as error:
            self.why = repr(error)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over = True
        self.thread.join(STILL_S)
        if self.thread.is_alive():
            self.why = f"the server did not answer within {STILL_S} s"


def check_drain(args, check):
    check.part("drain")
    told = told_by(args, "drain", "told")
    check.that(told["uses_device"] == (args.device != "cpu"), f"drain: the hook {'counts the GPU' if told['uses_device'] else 'sees no GPU'}")
    for kind, one in told["told"].items():
        check.that(one["worked_on"] == 0, f"drain: {kind}: the GPU stood still at the end of each of {one['n']} pauses ({one['worked_on']} not)")
        check.number(f"drain: {kind}: pause p99, ms (p50 {one['p50']:.3f}, longest operator {one['longest_ms']:.3f})", one["p99"], one["longest_ms"] + 1)


def check_job(args, check, server, alone):
    check.part("rate")
    memory = ["--device-memory" if args.device != "cpu" else "--memory", str(LIMIT)]
    process = start(args, "run", [os.path.join(args.bin, "switchyard"), "run", "--socket", server.socket, "--name", "gpu_torch", *memory, "--"])
    for kind, rate in next_line(process, "rates")["rates"].items():
        check.number(f"rate: {kind}: a step with the look / without ({1e3 * rate['without']:.3f} ms, {1 / rate['with']:.1f} steps/s with; the fastest: "
                     f"{rate['least']:.4f})", rate["with"] / rate["without"], 1.01)
    check.part("bits")
    before = server.status()["counters"]["preemptions"]
    process.stdin.write("\n")
    process.stdin.flush()
    with Requests(server.client) as requests:
        hashes = next_line(process, "hashes")["hashes"]
    check.that(requests.took and not requests.why, f"bits: {len(requests.took)} requests were answered{f', then {requests.why}' if requests.why else ''}")
    status = server.status()
    n, waits = status["counters"]["preemptions"] - before, status["preempt_wait_ns"]
    check.that(hashes == alone["hashes"] and n > 0, f"bits: the weights after {n} preemptions are those of the script alone")
    check.number(f"bits: preempt wait p99, ms (p50 {waits['p50'] / 1e6:.3f}, n {waits['n']}, longest operator {alone['longest_operator_ms']:.3f}; {len(requests.took)} "
                 f"requests, p50 {1e3 * quantile(requests.took or [0], 0.5):.2f} p99 {1e3 * quantile(requests.took or [0], 0.99):.2f})", waits["p99"] / 1e6,
                 alone["longest_operator_ms"] + 1)
    check.part("memory")
    process.stdin.write("\n")
    process.stdin.flush()
    told = next_line(process, "refused")
    check.that(told["refused"] and told["refused"][0] == "OutOfMemoryError", f"memory: refused with {told['refused']}")
    check.that(0 < told["most"] <= LIMIT, f"memory: {told['n']} blocks of 32 MiB; the most was {told['most']} of {LIMIT} bytes, {max(0, told['most'] - LIMIT)} beyond")
    check.that(told["again"] == 1 << 20, "memory: once they are freed, the script goes on")
    process.communicate()
    check.that(process.returncode == 0, f"memory: the script ended with {process.returncode}")
    check.that(server.client.ask(MODEL).answer, "memory: the server answers as before")
    check.that([job["state"] for job in server.status()["jobs"]] == ["ended"], "the job has ended")


def check_all(args, check, Server):
    models = os.path.join(args.bin, "bench-models")
    subprocess.run([os.path.join(args.bin, "make-models"), "--out", models, MODEL], check=True, stdout=subprocess.DEVNULL)
    check_drain(args, check)
    check.part("alone")
    alone = told_by(args, "alone", "hashes")
    serve = ["--device", "host" if args.device == "cpu" else args.device, "--pool-bytes", "5Gi", "--models", models]
    check.part("server")
    with Server(argparse.Namespace(build=args.bin), *serve) as server:
        server.client.learn()
        server.client.ask(MODEL)
        check_job(args, check, server, alone)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("--device", default=os.environ.get("SY_TEST_DEVICE", "cuda:0"))
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--as", dest="what")
    args = parser.parse_args()
    if args.device != "cpu":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    args.steps = args.steps or (15 if args.device == "cpu" else 250)
    if args.what == "drain":
        return script_drain(args.device)
    if args.what:
        return (script_alone if args.what == "alone" else script_run)(args.device, args.steps)
    from server import Server
    check = Check()
    try:
        check_all(args, check, Server)
    except Ended as why:
        check.that(False, f"{why}: the checks after this one were not made")
    print(f"{check.passed} passed, {check.failed} failed, 0 skipped in {time.monotonic() - check.begin:.0f} s", flush=True)
    return check.failed != 0


if __name__ == "__main__":
    sys.exit(main())
