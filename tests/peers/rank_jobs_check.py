#!/usr/bin/env python3
"""`switchyard train JOB.json` of two ranks at a server: requests beside it (their bits, and the job's), pause, resume, cancel, deaths of a rank, of a worker and of the command,
ranks at two servers, refusals. Run by `make test`; prints a line a test."""
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

from checks import run_tests, wait_for

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VENV = os.path.join(ROOT, "build/venv/bin/python")  # numpy, for the Python client
if os.path.exists(VENV) and os.path.realpath(sys.prefix) != os.path.realpath(os.path.join(ROOT, "build/venv")):
    os.execv(VENV, [VENV, *sys.argv])
BINARY = os.path.abspath(os.environ.get("SY_BINARY", os.path.join(ROOT, "build/switchyard")))
LIMIT_S = 60


class Server:
    def __init__(self, folder, name):
        self.socket = f"unix:{folder}/{name}"
        with open(f"{folder}/{name}.log", "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([BINARY, "serve", "--socket", self.socket, "--models", folder + "/models", "--http", "127.0.0.1:0", "--grpc", "off", "--metrics", "off",
                                             "--pool-bytes", "512Mi", "--slab-bytes", "64Mi", "--workers", "2"], stdout=subprocess.PIPE, stderr=log, text=True)
        while self.process.stdout.readline().strip() != "ready":
            assert self.process.poll() is None
        with open(f"{folder}/{name}.log", encoding="utf-8") as log:
            self.url = next(f"http://127.0.0.1:{line.split('port=')[1].split()[0]}" for line in log if "what=http " in line)

    def run(self, *words, code=0):
        done = subprocess.run([BINARY, words[0], "--socket", self.socket, *words[1:]], capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def status(self):
        return json.loads(self.run("status", "--json"))

    def last_job(self):
        return max(self.status()["jobs"], key=lambda job: job["job"], default={"job": 0, "step": 0, "state": "none"})

    def wait_step(self, step, after=0):
        return wait_for(lambda: (job := self.last_job())["job"] > after and job["step"] >= step and job, f"step {step}: {self.last_job()}")

    def infer(self, body):
        request = urllib.request.Request(self.url + "/v2/models/mnist_cnn/infer", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            return json.load(answer)["outputs"][0]["data"]

    def stop(self):
        self.process.terminate()
        assert self.process.wait(LIMIT_S) == 0


class World:
    def __init__(self, folder):
        self.folder, self.snapshots, self.path = folder, folder + "/snapshots", folder + "/job.json"
        subprocess.run([os.path.join(os.path.dirname(BINARY), "make-models"), "--out", folder + "/models", "mnist_cnn"], check=True, stdout=subprocess.DEVNULL)
        self.server = Server(folder, "one")
        draw = random.Random(5)
        self.bodies = [json.dumps({"inputs": [{"name": self.input()["name"], "datatype": "FP32", "shape": [1, 1, 28, 28], "data": [draw.random() for _ in range(784)]}]}).encode()
                       for _ in range(4)]

    def input(self):
        with urllib.request.urlopen(self.server.url + "/v2/models/mnist_cnn", timeout=LIMIT_S) as answer:
            return json.load(answer)["inputs"][0]

    def job(self, steps, **more):
        shutil.rmtree(self.snapshots, ignore_errors=True)
        with open(self.path, "w", encoding="utf-8") as out:
            json.dump({"name": "ranks", "model": self.folder + "/models/mnist_cnn/1/model.onnx", "loss": "softmax_cross_entropy",
                       "optimizer": {"kind": "sgd", "learning_rate": 0.02, "momentum": 0.9}, "data": {"kind": "synthetic", "samples": 512}, "batch": 32, "ranks": 2,
                       "max_steps": steps, "epochs": 1000000, "seed": 3, "snapshot": {"folder": self.snapshots, "every_steps": 8}, **more}, out)

    def start(self, *more):
        before = self.server.last_job()["job"]
        process = subprocess.Popen([BINARY, "train", self.path, "--socket", self.server.socket, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        process.before = before
        return process

    def last(self):
        names = [n for n in os.listdir(self.snapshots) if n.endswith(".safetensors")] if os.path.isdir(self.snapshots) else []
        return max((int(n.split("-")[1].split(".")[0]) for n in names), default=0)

    def weights(self):
        """The bytes of the last snapshot's tensors."""
        with open(f"{self.snapshots}/ranks-{self.last()}.safetensors", "rb") as file:
            data = file.read()
        return data[8 + int.from_bytes(data[:8], "little"):]


def ranks_below(pid):
    """Process ids of the ranks that `switchyard train` started, which is `switchyard run` by now."""
    listed = subprocess.run(["ps", "-e", "-o", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout.splitlines()[1:]
    rows = [(int(line.split()[0]), int(line.split()[1]), line) for line in listed]
    below = {pid}
    for _ in range(5):
        below |= {child for child, parent, _ in rows if parent in below}
    return [child for child, _, line in rows if child in below and "--mpi" in line and "mpirun" not in line]


def end(process, code=0):
    out, error = process.communicate(timeout=LIMIT_S)
    assert process.returncode == code, (process.returncode, out[-300:], error[-600:])
    return error


def is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as text:
            return text.read().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def requests_beside(w):
    w.job(24)
    alone = [w.server.infer(body) for body in w.bodies]
    subprocess.run([BINARY, "train", w.path, "--local", "--ranks", "2"], check=True, capture_output=True, timeout=LIMIT_S)
    undisturbed = w.weights()
    w.job(24)
    before = w.server.status()["counters"]["preemptions"]
    process = w.start()
    w.server.wait_step(1, process.before)
    n = 0
    while process.poll() is None:
        assert w.server.infer(w.bodies[n % 4]) == alone[n % 4], n
        n += 1
        time.sleep(0.02)
    end(process)
    preempted = w.server.status()["counters"]["preemptions"] - before
    assert n >= 6 and preempted >= 3, (n, preempted)
    assert w.last() == 24 and w.weights() == undisturbed, "requests changed the job's bits"
    job = w.server.last_job()
    assert job["state"] == "ended" and job["step"] == 24 and job["persistent_bytes"] > 1 << 20, job


def pause_resume_cancel(w):
    w.job(1000000)
    process = w.start()
    job = str(w.server.wait_step(3, process.before)["job"])
    w.server.run("jobs", "pause", job)
    wait_for(lambda: w.server.last_job()["state"] == "suspended", "the pause")
    time.sleep(0.1)
    step = w.server.last_job()["step"]
    ranks = ranks_below(process.pid)
    assert len(ranks) == 2, ranks
    used = [cpu_of(pid) for pid in ranks]
    time.sleep(0.5)
    assert w.server.last_job()["step"] == step
    assert all(cpu_of(pid) - before <= 0.1 for pid, before in zip(ranks, used)), "a paused rank computes"
    w.server.run("jobs", "resume", job)
    w.server.wait_step(step + 3, process.before)
    w.server.run("jobs", "cancel", job)
    assert "was canceled" in end(process)
    assert w.last() >= step + 3 and all(is_gone(pid) for pid in ranks), "a canceled job writes its last snapshot, and leaves no rank"
    assert w.server.last_job()["state"] == "ended"


def cpu_of(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as text:
        words = text.read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def a_killed_rank_costs_a_rank(w):
    w.job(24)
    process = w.start()
    wait_for(lambda: w.last() >= 8, "a snapshot")
    os.kill(ranks_below(process.pid)[1], signal.SIGKILL)
    for n in range(20):  # a rank that died while it was counted as computing holds no request up for good
        w.server.infer(w.bodies[n % 4])
    error = end(process)
    assert "goes on from its last snapshot with 1 rank" in error and "event=resumed" in error, error
    assert w.last() == 24 and w.server.last_job()["state"] == "ended"


def a_killed_worker_costs_nothing(w):
    w.job(24)
    process = w.start()
    w.server.wait_step(5, process.before)
    os.kill(next(row["pid"] for row in w.server.status()["workers"] if row["job"] == w.server.last_job()["job"]), signal.SIGKILL)
    error = end(process)
    assert "resumed" not in error and w.last() == 24, error
    assert w.server.last_job()["state"] == "ended", w.server.last_job()


def a_killed_command_leaves_nothing(w):
    w.job(1000000)
    process = w.start()
    w.server.wait_step(2, process.before)
    ranks = ranks_below(process.pid)
    process.kill()
    process.communicate()
    wait_for(lambda: all(is_gone(pid) for pid in ranks), "the ranks' end")
    wait_for(lambda: w.server.last_job()["state"] == "failed", "the job's end")


def a_rank_at_each_of_two_servers(w):
    w.job(1000000)
    other = Server(w.folder, "two")
    rank = ["-n", "1"], ["--no-hooks", "--", BINARY, "train", w.path, "--local", "--mpi"]
    words = [[*rank[0], BINARY, "run", "--socket", s.socket, "--name", "rank", *rank[1]] for s in (w.server, other)]
    before = w.server.last_job()["job"]
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    process = subprocess.Popen(["mpirun", *root, "--bind-to", "none", *words[0], ":", *words[1]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        job = str(w.server.wait_step(2, before)["job"])
        other.wait_step(2)
        w.server.run("jobs", "pause", job)  # this rank stands still: the other waits for it
        wait_for(lambda: w.server.last_job()["state"] == "suspended", "the pause")
        time.sleep(0.2)
        step = other.last_job()["step"]
        time.sleep(0.5)
        assert other.last_job()["step"] == step and other.last_job()["state"] in ("training", "waiting", "paused"), other.last_job()
        assert len(other.infer(w.bodies[0])) == 10  # which gives way meanwhile
        w.server.run("jobs", "resume", job)
        other.wait_step(step + 2)
        other.run("jobs", "cancel", "1")  # one ends: all do, after the same step
        end(process)
        assert w.last() >= step + 2
    finally:
        process.kill()
        other.stop()


def refusals(w):
    w.job(3, batch=31)
    assert "cannot be cut for 2 ranks" in w.server.run("train", w.path, code=1)
    w.job(3, model="/nowhere/model.onnx")
    assert "/nowhere" in w.server.run("train", w.path, code=1)
    w.job(3, slice="a")
    assert "'slice'" in w.server.run("train", w.path, code=1)
    w.job(3, ranks=65)
    assert "'ranks'" in w.server.run("train", w.path, code=1)
    w.job(3)
    assert "--plot" in w.server.run("train", w.path, "--plot", w.folder + "/x.svg", code=2)
    none = {**os.environ, "SWITCHYARD_SCRIPT_PAGE": "/nowhere/page"}
    done = subprocess.run([BINARY, "train", w.path, "--local"], capture_output=True, text=True, timeout=LIMIT_S, check=False, env=none)
    assert done.returncode == 1 and "/nowhere/page" in done.stderr, done
    with open(w.path, encoding="utf-8") as text:
        job = json.load(text)
    sys.path.insert(0, os.path.join(ROOT, "runtime/python"))
    import switchyard  # noqa: PLC0415: only here
    with switchyard.Client(w.server.socket) as client:
        try:
            client.jobs.submit(job)
            raise AssertionError("a server took a job of two ranks without its processes")
        except switchyard.SwitchyardError as error:
            assert "switchyard train" in str(error), error


def main():
    folder = tempfile.mkdtemp(prefix="rank_jobs_")
    if not os.path.exists(os.path.join(os.path.dirname(BINARY), "libswitchyard-mpi.so")):
        print("[  SKIPPED ] ranks at servers: this build has no MPI (libopenmpi-dev)")
        return 0
    world = World(folder)
    try:
        failed = run_tests((requests_beside, pause_resume_cancel, a_killed_rank_costs_a_rank, a_killed_worker_costs_nothing, a_killed_command_leaves_nothing,
                     a_rank_at_each_of_two_servers, refusals), world)
    finally:
        world.server.stop()
        shutil.rmtree(folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
