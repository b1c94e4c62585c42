#!/usr/bin/env python3
"""Slices, from outside: training on one core beside inference on the other with the bits of runs alone, a killed worker that is only its own slice's matter, cuts under load,
and what is refused.

    SY_BINARY=build/switchyard slices_check.py
"""
import hashlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

from checks import wait_for

SKIPPED = 77
SANITIZED = "/san-" in os.environ.get("SY_BINARY", "")


class Server:
    def __init__(self, build, folder, port):
        self.build, self.folder, self.port = build, folder, port
        self.socket = os.path.join(folder, "s")
        with open(f"{folder}/log", "ab") as log:
            self.process = subprocess.Popen(
                [f"{build}/switchyard", "serve", "--models", f"{folder}/models", "--socket", self.socket, "--http", f"127.0.0.1:{port}", "--grpc", f"127.0.0.1:{port + 1}",
                 "--metrics", f"127.0.0.1:{port + 2}", "--state", f"{folder}/state", "--hang-timeout", "2"], stdout=log, stderr=log)
        wait_for(lambda: self.get("/v2/models/mnist_cnn/ready") == 200, "the model", 120)

    def get(self, path):
        try:
            link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
            link.request("GET", path)
            return link.getresponse().status
        except OSError:
            return 0

    def text(self, path, port=0):
        link = http.client.HTTPConnection("127.0.0.1", self.port + port, timeout=10)
        link.request("GET", path)
        return link.getresponse().read().decode()

    def call(self, *words, fails=False):
        done = subprocess.run([f"{self.build}/switchyard", words[0], "--socket", f"unix:{self.socket}", *words[1:]], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode != 0) == fails, (words, done.returncode, done.stderr)
        return done.stderr if fails else done.stdout

    def status(self):
        return json.loads(self.call("status", "--json"))

    def job(self, number):
        return next(j for j in self.status()["jobs"] if j["job"] == number)

    def infer(self):
        body = b"".join((i % 97).to_bytes(1, "little") + b"\0\x80\x3f" for i in range(784))
        head = json.dumps({"inputs": [{"name": self.input["name"], "shape": [1, *[int(d) for d in self.input["shape"][1:]]], "datatype": "FP32",
                                       "parameters": {"binary_data_size": len(body)}}], "parameters": {"binary_data_output": True}}).encode()
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        link.request("POST", "/v2/models/mnist_cnn/infer", head + body, {"Inference-Header-Content-Length": str(len(head))})
        answer = link.getresponse()
        said = answer.read()
        assert answer.status == 200, said
        return said[int(answer.headers["Inference-Header-Content-Length"]):]

    @property
    def input(self):
        return json.loads(self.text("/v2/models/mnist_cnn"))["inputs"][0]

    def train(self, name, steps, class_="guaranteed"):
        folder = f"{self.folder}/{name}"
        os.makedirs(folder)
        job = {"name": name, "model": f"{self.folder}/models/mnist_cnn/1/model.onnx", "optimizer": {"kind": "sgd", "learning_rate": 0.01, "momentum": 0.9},
               "data": {"kind": "synthetic", "samples": 512}, "snapshot": {"folder": folder}, "batch": 16, "epochs": 1000, "max_steps": steps, "seed": 3, "slice": "train", "class": class_}
        with open(f"{folder}.json", "w", encoding="utf-8") as text:
            json.dump(job, text)
        return int(self.call("train", f"{folder}.json").split()[1])

    def weights(self, name):
        files = sorted(f for f in os.listdir(f"{self.folder}/{name}") if f.endswith(".safetensors"))
        with open(f"{self.folder}/{name}/{files[-1]}", "rb") as data:
            raw = data.read()
        n = int.from_bytes(raw[:8], "little")
        return hashlib.sha256(raw[8 + n:]).hexdigest()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0


class Load:
    def __init__(self, server):
        self.server, self.answers, self.stopped = server, [], False
        self.thread = threading.Thread(target=self.loop)
        self.thread.start()

    def loop(self):
        while not self.stopped:
            self.answers.append(self.server.infer())

    def end(self):
        self.stopped = True
        self.thread.join()
        return self.answers


def ended(server, number):
    return server.job(number)["state"] in ("ended", "failed")


def check_bits(server):
    """The same job twice, alone and beside requests; the same request alone and beside a job."""
    alone = server.infer()
    first = server.train("alone", 20)
    wait_for(lambda: ended(server, first), "the job alone")
    load = Load(server)
    second = server.train("beside", 20)
    wait_for(lambda: ended(server, second), "the job beside requests")
    answers = load.end()
    assert server.job(first)["step"] == server.job(second)["step"] == 20
    assert server.weights("alone") == server.weights("beside"), "training's bits"
    assert len(answers) > 3 and all(a == alone for a in answers), "inference's bits"
    return len(answers)


def check_kill(server):
    """A worker that trains is killed: requests go on, none fails, and the job goes on, too. Its preemptions: none."""
    before = server.status()["counters"]["preemptions"]
    job = server.train("killed", 100000)
    wait_for(lambda: server.job(job)["step"] > 5, "the job's first steps")
    load = Load(server)
    n = wait_for(lambda: len(load.answers) > 3 and len(load.answers), "requests")
    worker = next(w for w in server.status()["workers"] if w["job"] == job)
    os.kill(worker["pid"], signal.SIGKILL)
    wait_for(lambda: len(load.answers) > n + 5, "requests after the kill")
    wait_for(lambda: server.job(job)["state"] == "training" and server.job(job)["worker"] >= 0, "the job's next worker")
    answers = load.end()
    assert len(set(answers)) == 1
    assert server.status()["counters"]["failed"] == 0
    assert server.status()["counters"]["preemptions"] == before, "slices do not preempt each other"
    return job


def worker_of(server, job):
    """The job's worker; 0: of the request that computes now."""
    return next((w for w in server.status()["workers"] if (w["job"] == job if job else w["request"] > 0)), None)


def check_faults(server, job):
    """A crash and a hang, in each slice: the other one's work does not notice."""
    def training_went_on(pid, step):
        now = server.job(job)
        return now["step"] > step + 5 and worker_of(server, job)["pid"] == pid

    for signal_ in (signal.SIGSEGV, signal.SIGSTOP):
        load = Load(server)
        trainer = worker_of(server, job)["pid"]
        victim = wait_for(lambda: worker_of(server, 0), "a request that computes")["pid"]
        os.kill(victim, signal_)
        wait_for(lambda: all(w["pid"] != victim for w in server.status()["workers"]), f"the end of the worker with signal {signal_}")
        n, step = len(load.answers), server.job(job)["step"]
        wait_for(lambda: len(load.answers) > n + 3 and training_went_on(trainer, step), "both slices' work")
        os.kill(trainer, signal_)
        n = len(load.answers)
        wait_for(lambda: all(w["pid"] != trainer for w in server.status()["workers"]) and len(load.answers) > n + 3, "requests beside a worker that is gone")
        wait_for(lambda: worker_of(server, job) and server.job(job)["step"] > 0 and server.job(job)["state"] == "training", "the job's next worker")
        assert len(set(load.end())) == 1
        assert server.status()["counters"]["failed"] == 0


def check_strangers(server, job):
    """A stranger computes on the model's core: what it takes is told, and is not the neighbour's. The server's own thread stays where it is told."""
    core = next(s["cores"] for s in server.status()["slices"] if s["name"] == "serve")
    server.call("jobs", "pause", str(job))
    for _ in range(10):
        server.infer()
    server.call("jobs", "resume", str(job))
    stranger = subprocess.Popen([sys.executable, "-c", f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"])
    load = Load(server)
    try:
        mine = ("mnist_cnn", server.job(job)["name"])
        wait_for(lambda: any((p["task"], p["beside"]) == mine and p["n"] >= 16 and p["lost_beside"] > 0.01 for p in server.status()["pairs"]), "what the stranger takes")
        said = server.call("slices", "--pairs")
        assert "no core" in said, said
    finally:
        stranger.kill()
        stranger.wait()
        load.end()
    server.call("slices", "--for-runtime", "serve")
    assert os.sched_getaffinity(server.process.pid) == {int(core)}
    assert server.infer()
    server.call("slices", "--for-runtime", "")
    assert len(os.sched_getaffinity(server.process.pid)) == 2
    assert "last-level cache: " in server.call("slices")


def check_lending(server, job):
    """An opportunistic job has the serving slice while nobody asks it for anything, and its owner's requests have it at once."""
    other = server.train("other", 100000, "opportunistic")
    wait_for(lambda: server.job(other)["slice"] == "serve" and server.job(other)["step"] > 3, "the lent slice")
    assert server.job(job)["state"] in ("training", "waiting") and server.job(job)["slice"] == "train"
    before = server.status()["counters"]["preemptions"]
    answers = []

    def was_preempted():
        answers.append(server.infer())  # the lent job may stand still just then
        return server.status()["counters"]["preemptions"] > before
    wait_for(was_preempted, "a request that takes the lent slice")
    assert len(set(answers)) == 1
    step = server.job(other)["step"]
    wait_for(lambda: server.job(other)["step"] > step, "the lent job behind the requests")
    wait_for(lambda: server.job(job)["beside"], "what the guaranteed job keeps")
    server.call("slices", "--keep", "0")
    server.call("jobs", "pause", str(job))
    wait_for(lambda: server.job(other)["slice"] == "train", "the job at home")
    server.call("jobs", "resume", str(job))
    wait_for(lambda: server.job(other)["slice"] == "serve", "the slice, lent again")
    server.call("slices", "--keep", "1", fails=True)
    server.call("slices", "--keep", "0.97")
    server.call("jobs", "cancel", str(other))


def check_live(server, job):
    """Cuts while both compute: no request fails; the job goes on from where it was, with as many threads as its slice has cores."""
    load = Load(server)
    for cut in (["train=@1", "serve=@0"], ["train=1", "serve=1"], ["--none"], ["train=50%", "serve=w1"]):
        step = server.job(job)["step"]
        server.call("slices", *cut)
        want = 2 if cut == ["--none"] else 1
        wait_for(lambda: server.job(job)["threads"] == want and server.job(job)["state"] in ("training", "paused", "waiting") and server.job(job)["step"] > step, f"{cut}")
    server.call("slices", "--model", "mnist_cnn", "--to", "train")
    server.call("slices", "--model", "mnist_cnn", "--to", "serve")
    n = len(load.answers)
    wait_for(lambda: len(load.answers) > n + 3, "requests after the cuts")
    load.end()
    assert server.status()["counters"]["failed"] == 0


def check_no_snapshot(server):
    """A job that cannot write its snapshot loses nothing when its slice is cut anew: it goes on from its memory, with the threads that it had."""
    server.call("slices", "train=1", "serve=1")
    job = server.train("nosnapshot", 100000)
    wait_for(lambda: server.job(job)["step"] > 5, "the job's first steps")
    shutil.rmtree(f"{server.folder}/nosnapshot")
    os.symlink("/proc", f"{server.folder}/nosnapshot")  # a folder in which nobody can write, root neither
    step = server.job(job)["step"]
    server.call("slices", "--none")
    wait_for(lambda: b"left_without_snapshot" in open(f"{server.folder}/log", "rb").read(), "the failed snapshot")
    seen = server.job(job)["step"]
    wait_for(lambda: server.job(job)["state"] == "training" and server.job(job)["step"] > max(seen, step) + 5, "the job behind it")
    assert server.job(job)["threads"] == 1, server.job(job)
    server.call("train", "--stop", str(job), fails=True)  # its last snapshot cannot be written, which it says
    server.call("slices", "train=50%", "serve=w1")


def check_refusals(server):
    for words, why in ((["a=3"], "wants 3 cores, and 2 of 2"), (["a=1", "a=1"], "two slices 'a'"), (["a"], "NAME=SIZE"), (["a=@9"], "core 9"), (["a=0"], "a size is"),
                       (["--model", "none", "--to", "train"], "no model 'none'"), (["--model", "mnist_cnn", "--to", "x"], "no slice 'x'; there are: train, serve"),
                       (["--job", "1"], "go together"), (["--job", "99", "--to", "train"], "no job 99"), (["--bound", "0.5"], "bound"), (["--none", "a=1"], "takes slices back")):
        said = server.call("slices", *words, fails=True)
        assert why in said, (words, said)
    names = [s["name"] for s in server.status()["slices"]]
    assert names == ["train", "serve"], names


def main():
    build = os.path.dirname(os.environ.get("SY_BINARY", "build/switchyard"))
    if len(os.sched_getaffinity(0)) < 2:
        print("slices_check: one core only; two are needed")
        return SKIPPED
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    folder = tempfile.mkdtemp(prefix="slices")
    subprocess.run([f"{build}/make-models", "--out", f"{folder}/models", "mnist_cnn"], check=True, stdout=subprocess.DEVNULL)
    server = Server(build, folder, 18411)
    try:
        server.call("slices", "train=1", "serve=1", "--for-jobs", "train", "--for-models", "serve")
        n = check_bits(server)
        print("[       OK ] bits")
        check_refusals(server)
        print("[       OK ] refusals")
        job = check_kill(server)
        print("[       OK ] kill")
        if SANITIZED:
            print("[  SKIPPED ] faults: a build for sanitizers; the plain build's run has them")
        else:
            check_faults(server, job)
            print("[       OK ] faults")
        check_strangers(server, job)
        print("[       OK ] strangers")
        check_lending(server, job)
        print("[       OK ] lending")
        check_live(server, job)
        print("[       OK ] live")
        check_no_snapshot(server)
        print("[       OK ] no_snapshot")
        assert 'switchyard_slice_cores{slice="train"} 1' in server.text("/metrics", 2)
        server.stop()
        server = Server(build, folder, 18421)
        assert [s["name"] for s in server.status()["slices"]] == ["train", "serve"], "slices after a restart"
        print("[       OK ] restart")
        server.stop()
    except BaseException:
        server.process.kill()
        with open(f"{folder}/log", encoding="utf-8", errors="replace") as log:
            print(log.read()[-4000:])
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"slices_check: ok; {n} requests beside training had the bits of one alone")
    return 0


if __name__ == "__main__":
    sys.exit(main())
