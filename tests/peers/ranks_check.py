#!/usr/bin/env python3
"""`switchyard train --local --ranks N`: bits, a killed rank, a stop, resuming, refusals. Run by `make test`; prints a line a test."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VENV = os.path.join(ROOT, "build/venv/bin/python")
if os.path.exists(VENV) and os.path.realpath(sys.prefix) != os.path.realpath(os.path.join(ROOT, "build/venv")):
    os.execv(VENV, [VENV, *sys.argv])

import numpy as np  # noqa: E402
from checks import run_tests  # noqa: E402

BINARY = os.path.abspath(os.environ.get("SY_BINARY", os.path.join(ROOT, "build/switchyard")))
LIMIT_S = 120


def read_snapshot(path):
    with open(path, "rb") as file:
        data = file.read()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length])
    return {name: np.frombuffer(data[8 + length + at["data_offsets"][0]:8 + length + at["data_offsets"][1]], np.float32)
            for name, at in header.items() if name != "__metadata__"}


class Case:
    def __init__(self, folder):
        self.folder = folder
        subprocess.run([os.path.join(os.path.dirname(BINARY), "make-models"), "--out", folder, "mnist_cnn"], check=True, stdout=subprocess.DEVNULL)
        self.snapshots = folder + "/snapshots"
        self.of_two = None  # the state after 3 steps of 2 ranks, once it is known
        self.job(steps=3)

    def job(self, steps, batch=32, staleness=0, **more):
        shutil.rmtree(self.snapshots, ignore_errors=True)
        self.path = self.folder + "/job.json"
        with open(self.path, "w", encoding="utf-8") as out:
            json.dump({"name": "ranks", "model": self.folder + "/mnist_cnn/1/model.onnx", "loss": "softmax_cross_entropy",
                       "optimizer": {"kind": "sgd", "learning_rate": 0.02, "momentum": 0.9}, "data": {"kind": "synthetic", "samples": 512}, "batch": batch,
                       "staleness": staleness, "max_steps": steps, "epochs": 1000000, "seed": 3, "snapshot": {"folder": self.snapshots, **more}}, out)

    def command(self, *more):
        return [BINARY, "train", self.path, "--local", *more]

    def train(self, *more):
        done = subprocess.run(self.command(*more), capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def last(self):
        names = sorted(os.listdir(self.snapshots), key=lambda name: int(name.split("-")[1].split(".")[0]))
        return os.path.join(self.snapshots, names[-1])

    def state_after(self, *more):
        shutil.rmtree(self.snapshots, ignore_errors=True)
        self.train(*more)
        return read_snapshot(self.last())

    def wait_for_snapshot(self):
        deadline = time.monotonic() + LIMIT_S
        while not os.path.isdir(self.snapshots) or not [n for n in os.listdir(self.snapshots) if n.endswith(".safetensors")]:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def ranks_of(process):
    """The processes that mpirun started, below `switchyard train`."""
    listed = subprocess.run(["ps", "-e", "-o", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout.splitlines()[1:]
    rows = [(int(line.split()[0]), int(line.split()[1]), line) for line in listed]
    below, found = {process.pid}, []
    for _ in range(4):
        below |= {pid for pid, parent, _ in rows if parent in below}
    for pid, _, line in rows:
        if pid in below and "--mpi" in line and "mpirun" not in line:
            found.append(pid)
    return found


def equal_bits_from_run_to_run(c):
    c.job(steps=3)
    first, second = c.state_after("--ranks", "2"), c.state_after("--ranks", "2")
    c.of_two = first
    assert first.keys() == second.keys() and len(first) > 4
    for name in first:
        assert np.array_equal(first[name].view(np.uint32), second[name].view(np.uint32)), name


def as_one_rank_with_the_whole_batch(c):
    for more in ({}, {"accumulate": 2}):
        c.job(steps=3)
        with open(c.path, encoding="utf-8") as text:
            job = json.load(text)
        with open(c.path, "w", encoding="utf-8") as out:
            json.dump({**job, **more}, out)
        alone = c.state_after()
        for n in ("2", "4"):
            known = c.of_two if n == "2" and not more else None
            together = known or c.state_after("--ranks", n)
            for name in alone:
                scale = np.abs(alone[name]).max() + 1e-6
                assert np.abs(alone[name] - together[name]).max() <= 1e-3 * scale, (more, n, name, np.abs(alone[name] - together[name]).max() / scale)


def staleness_delays_gradients(c):
    """Of three steps with gradients two late, the last takes the first one's: what one step makes."""
    c.job(steps=3, staleness=2)
    late = c.state_after("--ranks", "2")
    c.job(steps=1)
    first = c.state_after("--ranks", "2")
    for name in first:
        assert np.array_equal(first[name].view(np.uint32), late[name].view(np.uint32)), name
    c.job(steps=12, staleness=2)
    once, again = c.state_after("--ranks", "2"), c.state_after("--ranks", "2")
    for name in once:
        assert np.array_equal(once[name].view(np.uint32), again[name].view(np.uint32)), name
        assert np.isfinite(once[name]).all() and not np.array_equal(once[name], first[name]), name
    c.job(steps=100000, staleness=16)  # stopped before the first gradient of others is there: all stop at the same step
    process = subprocess.Popen(c.command("--ranks", "2"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + LIMIT_S
    while len(ranks_of(process)) < 2:
        assert time.monotonic() < until and process.poll() is None
    process.terminate()
    _, error = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, error
    c.job(steps=2, staleness=2)
    done = subprocess.run(c.command("--ranks", "2"), capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 1 and "staleness of 2 leaves nothing of 2 steps" in done.stderr, done.stderr


def a_killed_rank_costs_a_rank(c):
    c.job(steps=40, every_steps=5)
    process = subprocess.Popen(c.command("--ranks", "2"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    c.wait_for_snapshot()
    ranks = ranks_of(process)
    assert len(ranks) == 2, ranks
    os.kill(ranks[1], signal.SIGKILL)
    out, error = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0 and "goes on from its last snapshot with 1 rank" in error, error
    assert "event=resumed" in error and "40/40" in out, (error[-500:], out[-300:])


def a_stop_is_everybodys(c):
    c.job(steps=100000, every_steps=5)
    process = subprocess.Popen(c.command("--ranks", "2"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    c.wait_for_snapshot()
    assert len(ranks_of(process)) == 2
    process.terminate()
    _, error = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, error
    step = int(c.last().split("-")[-1].split(".")[0])
    assert 0 < step < 100000
    with open(c.path, encoding="utf-8") as text:
        job = json.load(text)
    assert not ranks_of(process) and job["max_steps"] == 100000


def refusals(c):
    c.job(steps=3, batch=31)
    for words, said in ((["--ranks", "2"], "cannot be cut for 2 ranks"), (["--ranks", "0"], "--ranks"), (["--ranks", "x"], "--ranks"), (["--ranks", "2", "--mpi"], "--local")):
        done = subprocess.run(c.command(*words), capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert done.returncode != 0 and said in done.stderr, (words, done.stderr)
    done = subprocess.run([BINARY, "train", c.path, "--mpi"], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 2 and "--local" in done.stderr
    done = subprocess.run([BINARY, "train", c.path, "--device", "host"], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 2 and "a server has its own" in done.stderr, done.stderr
    c.job(steps=3)
    for words in (["--device", "emulated"], ["--ranks", "2", "--device", "host,emulated"]):  # the second rank's is the second of the list
        done = subprocess.run(c.command(*words), capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert done.returncode == 1 and done.stderr.count("on host or cuda:N, not on emulated") == 1, (words, done.stderr)
    c.train("--ranks", "2", "--device", "host")
    c.job(steps=3, batch=31)
    done = subprocess.run(c.command("--ranks", "31"), env={**os.environ, "PATH": "/nonexistent"}, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 1 and "mpirun" in done.stderr, done.stderr
    done = subprocess.run(c.command("--ranks", "31", "--mpi-options", "--quiet " * 70), capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 1 and "too many words" in done.stderr, done.stderr


def main():
    folder = tempfile.mkdtemp(prefix="ranks_check_")
    if not os.path.exists(os.path.join(os.path.dirname(BINARY), "libswitchyard-mpi.so")):
        print("[  SKIPPED ] ranks: this build has no MPI (libopenmpi-dev)")
        return 0
    try:
        case = Case(folder)
        failed = run_tests((equal_bits_from_run_to_run, as_one_rank_with_the_whole_batch, staleness_delays_gradients, a_killed_rank_costs_a_rank, a_stop_is_everybodys, refusals), case)
    finally:
        shutil.rmtree(folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
