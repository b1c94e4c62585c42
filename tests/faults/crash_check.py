#!/usr/bin/env python3
"""Crash consistency: records what a server writes durably (job state, snapshots), and starts one from what each crash could have left: every prefix of
the log, with the last write torn, with what was not yet synced lost. Each start must get ready, and a job that was acknowledged must end with the
weights of one that was left alone."""
import os
import random
import shutil
import signal
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
VENV = os.path.join(ROOT, "build/venv/bin/python")
if os.path.exists(VENV) and os.path.abspath(sys.executable) != VENV and "SY_IN_VENV" not in os.environ:
    os.execve(VENV, [VENV, *sys.argv], dict(os.environ, SY_IN_VENV="1"))
sys.path.insert(0, os.path.join(ROOT, "tests/torture"))
import torture_jobs as jobs  # noqa: E402
import torture_server as server_of  # noqa: E402

BUILD = os.path.dirname(os.environ.get("SY_BINARY", os.path.join(ROOT, "build/switchyard")))
SERVE = ["--workers", 2, "--pool-bytes", "64M"]
KIND = "schedule"


class Files:
    """What lies on the disk after some operations: names are durable at once or not until their folder is synced, bytes not until their file is."""

    def __init__(self):
        self.data, self.synced = {}, {}

    def apply(self, op, path, offset, data):
        if op == "create":
            self.data[path], self.synced[path] = b"", b""
        elif op == "write":
            old = self.data.get(path, b"").ljust(offset, b"\0")
            self.data[path] = old[:offset] + data + old[offset + len(data):]
        elif op == "fsync":
            if path in self.data:
                self.synced[path] = self.data[path]
        elif op == "rename":
            source, to = path.split(">")
            if source in self.data:
                self.data[to], self.synced[to] = self.data.pop(source), self.synced.pop(source)
        elif op == "unlink":
            self.data.pop(path, None)
            self.synced.pop(path, None)

    def lay(self, folder, root, only_synced):
        for path, data in (self.synced if only_synced else self.data).items():
            at = folder + path[len(root):]
            os.makedirs(os.path.dirname(at), exist_ok=True)
            with open(at, "wb") as file:
                file.write(data)


def read_log(path):
    with open(path, "rb") as file:
        log = file.read()
    out, at = [], 0
    while at < len(log):
        end = log.index(b"\n", at)
        op, name, offset, n = log[at:end].decode().split(" ")
        at, data = end + 1, b""
        if op == "write":
            data, at = log[end + 1:end + 1 + int(n)], end + 1 + int(n)
        out.append((op, name, int(offset), data))
    return out


def run_job(folder, environment):
    """The job alone, to its end; returns its weights."""
    server = server_of.Server(BUILD, folder, [*SERVE, "--state", f"{folder}/disk/state"], environment)
    os.makedirs(f"{folder}/disk/snapshots")
    assert server.start(), server.words()[-2000:]
    with server.client() as client:
        number = client.jobs.submit(jobs.job_of(KIND, "crash", MODELS, f"{folder}/disk/snapshots"))
        client.jobs.wait(number, timeout=120, every=0.05)
    assert server.end() == 0
    return jobs.weights(f"{folder}/disk/snapshots", "crash")


def start_from(folder, expected):
    """None: as it must be; else what is wrong."""
    snapshots = f"{folder}/disk/snapshots"
    os.makedirs(snapshots, exist_ok=True)
    os.makedirs(f"{folder}/disk/state", exist_ok=True)
    server = server_of.Server(BUILD, folder, [*SERVE, "--state", f"{folder}/disk/state"])
    try:
        if not server.start(60):
            return f"does not start: {server.words()[-400:]}"
        with server.client() as client:
            rows = [row for row in client.jobs.list() if row["name"] == "crash"]
            if rows:
                row = client.jobs.wait(rows[0]["job"], timeout=120, every=0.02)
                if row["state"] != "ended" or jobs.weights(snapshots, "crash") != expected:
                    return f"job ends as {row['state']} with other weights"
        return None
    except Exception as error:  # noqa: BLE001: whatever it is, that start failed
        return repr(error)
    finally:
        server.end(signal.SIGKILL)


def crashes(log, root, most, dice):
    """(name, Files, only what was synced) of crashes: between any two operations, within a write, and with unsynced bytes lost."""
    all_ = []
    for n in range(len(log) + 1):
        all_ += [(n, "prefix", 1.0, False), (n, "unsynced lost", 1.0, True)]
        if n < len(log) and log[n][0] == "write":
            all_.append((n, "torn write", dice.random(), False))
    dice.shuffle(all_)
    for n, kind, part, only_synced in sorted(all_[:most]):
        files = Files()
        for entry in log[:n]:
            files.apply(*entry)
        if kind == "torn write":
            op, path, offset, data = log[n]
            files.apply(op, path, offset, data[:int(part * len(data))])
        yield f"after operation {n} of {len(log)}, {kind}", files, only_synced


def main():
    global MODELS
    most, seed = int(os.environ.get("SY_CRASHES", "24")), int(os.environ.get("SY_SEED", time.time_ns() % (1 << 31)))
    MODELS, folder = jobs.make_job_models(BUILD), tempfile.mkdtemp(prefix="switchyard-crash-")
    bad = tried = 0
    print(f"seed {seed}: SY_SEED={seed} draws the same crashes; SY_CRASHES=N for more than {most}")
    try:
        os.makedirs(f"{folder}/disk")
        expected = run_job(folder, {"LD_PRELOAD": os.path.abspath(f"{BUILD}/tests/libfaults.so"), "SY_FAULTS_LOG": f"{folder}/log-of-writes", "SY_FAULTS_UNDER": f"{folder}/disk"})
        log = read_log(f"{folder}/log-of-writes")
        assert {"create", "write", "fsync", "rename"} <= {entry[0] for entry in log}, "the log of writes lacks what makes files durable"
        for name, files, only_synced in crashes(log, folder, most, random.Random(seed)):
            shutil.rmtree(f"{folder}/disk")
            files.lay(f"{folder}/disk", f"{folder}/disk", only_synced)
            tried += 1
            why = start_from(folder, expected)
            if why:
                bad += 1
                print(f"{name}: {why}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{tried} crashes of {len(log)} operations, {bad} not survived")
    print("[  FAILED  ] crash_consistency" if bad else "[       OK ] crash_consistency")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
