#!/usr/bin/env python3
"""What an earlier release has left is served by this one: its package, its remembered job, its snapshot (tests/data/upgrade/VERSION). Run by `make test`; prints a line a test.

    upgrade_check.py --make FOLDER     # what this build leaves, as data for later ones
"""
import glob
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

from check_server import BINARY, CheckServer

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PLACE = "@FOLDER@"  # in files of the state that name folders


class Server(CheckServer):
    def __init__(self, folder):
        super().__init__(folder, "--models", folder + "/models", "--state", folder + "/state", "--http", "127.0.0.1:0", "--grpc", "off", "--pool-bytes", "64Mi", "--workers", "2")
        self.url = "http://" + self.address("http")

    def job(self):
        done = subprocess.run([BINARY, "status", "--json", "--socket", self.socket], capture_output=True, check=True)
        jobs = json.loads(done.stdout)["jobs"]
        return jobs[0] if jobs else None


def make(folder):
    """A server of this build with a model and a job, stopped."""
    os.makedirs(folder)
    work = tempfile.mkdtemp(prefix="upgrade_make_")
    subprocess.run([os.path.join(os.path.dirname(BINARY), "make-models"), "--out", work + "/models", "identity"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([BINARY, "import", work + "/models/identity/1/model.onnx", "-o", work + "/models/identity/1/model.sypkg"], check=True, stdout=subprocess.DEVNULL)
    shutil.copy(os.path.join(ROOT, "tests/data/train_step/model.onnx"), work + "/model.onnx")
    with open(work + "/images", "wb") as out:
        out.write(struct.pack(">4I", 0x803, 64, 8, 8) + bytes(i * 37 % 251 for i in range(64 * 64)))
    with open(work + "/labels", "wb") as out:
        out.write(struct.pack(">2I", 0x801, 64) + bytes(i % 4 for i in range(64)))
    with open(work + "/job.json", "w", encoding="utf-8") as out:
        json.dump({"name": "kept", "model": work + "/model.onnx", "optimizer": {"kind": "sgd", "learning_rate": 0.01},
                   "data": {"kind": "idx", "images": work + "/images", "labels": work + "/labels"}, "batch": 8, "epochs": 100000000, "seed": 1,
                   "snapshot": {"folder": work + "/snapshots", "every_steps": 1000000000}}, out)
    os.makedirs(work + "/state")
    server = Server(work)
    subprocess.run([BINARY, "train", work + "/job.json", "--socket", work + "/socket"], check=True, stdout=subprocess.DEVNULL)
    while server.job()["step"] < 100:
        time.sleep(0.01)
    assert server.stop() == 0
    for name in ("socket.log", "job.json"):
        os.unlink(work + "/" + name)
    for path in glob.glob(work + "/state/**", recursive=True):
        if os.path.isfile(path):
            text = open(path, encoding="utf-8").read().replace(work, PLACE)
            open(path, "w", encoding="utf-8").write(text)
    shutil.copytree(work, folder, dirs_exist_ok=True)
    shutil.rmtree(work)


def restored(version_folder):
    work = tempfile.mkdtemp(prefix="upgrade_check_")
    shutil.copytree(version_folder, work, dirs_exist_ok=True)
    for path in glob.glob(work + "/state/**", recursive=True):
        if os.path.isfile(path):
            text = open(path, encoding="utf-8").read().replace(PLACE, work)
            open(path, "w", encoding="utf-8").write(text)
    os.utime(work + "/models/identity/1/model.sypkg")  # newer than its source, as it was
    return work


def goes_on(version_folder):
    work = restored(version_folder)
    try:
        kept = max(int(re.search(r"-(\d+)\.safetensors$", p)[1]) for p in glob.glob(work + "/snapshots/*.safetensors"))
        assert kept >= 100
        package = open(work + "/models/identity/1/model.sypkg", "rb").read()
        server = Server(work)
        # A package is packed for a CPU: it stays on one of its kind, and is made anew from its source on others.
        is_same = open(work + "/models/identity/1/model.sypkg", "rb").read() == package
        print("  the package " + ("stayed" if is_same else "was made anew"))
        body = json.dumps({"inputs": [{"name": "input", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}).encode()
        with urllib.request.urlopen(server.url + "/v2/models/identity/infer", body, timeout=60) as answer:
            assert json.loads(answer.read())["outputs"][0]["data"] == [1, 2, 3, 4]
        for _ in range(600):
            job = server.job()
            if job and job["step"] > kept:
                break
            time.sleep(0.05)
        assert job and job["step"] > kept, f"the job stands at {job and job['step']}, its snapshot at {kept}: " + server.log()
        text = server.log()
        assert re.search(rf"step={kept}\b", text), "the log does not say that it went on from the snapshot: " + text
        assert server.stop() == 0
    finally:
        shutil.rmtree(work)


def main():
    if sys.argv[1:2] == ["--make"]:
        make(sys.argv[2])
        return 0
    failed = 0
    for folder in sorted(glob.glob(os.path.join(ROOT, "tests/data/upgrade/*/"))):
        name = os.path.basename(os.path.dirname(folder))
        try:
            goes_on(folder)
            print(f"[       OK ] what {name} left goes on")
        except AssertionError as error:
            print(f"[  FAILED  ] what {name} left: {error}")
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
