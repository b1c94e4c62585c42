#!/usr/bin/env python3
"""An opportunistic script whose memory a guaranteed job needs: its blocks go to a file and come back with the same bits, while threads of it change them all the time and a
model answers; workers are killed while it is out; it is canceled while it is out; a folder that is gone, and a thread that cannot be stopped, leave it where it was. The
script is a C++ program with the hook's spilling and without PyTorch.

    SY_BINARY=build/switchyard spill_check.py
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from checks import wait_for

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BINARY = os.environ.get("SY_BINARY", "build/switchyard")
sys.path.insert(0, os.path.join(ROOT, "runtime/python"))
ROUNDS = 40


class Server:
    def __init__(self, folder):
        self.folder, self.socket, self.script = folder, f"{folder}/s", f"{folder}/script"
        subprocess.run(["g++", "-O2", "-std=c++20", "-pthread", "-I", f"{ROOT}/workers/torch", f"{ROOT}/tests/peers/torch_scripts/spill_script.cc", "-o", self.script], check=True)
        subprocess.run([os.path.join(os.path.dirname(BINARY), "make-models"), "--out", f"{folder}/models", "identity"], check=True, stdout=subprocess.DEVNULL)
        with open(f"{folder}/log", "ab") as log:
            self.process = subprocess.Popen([BINARY, "serve", "--models", f"{folder}/models", "--socket", self.socket, "--pool-bytes", "64M", "--workers", "4", "--http", "off",
                                             "--grpc", "off", "--metrics", "off"], stdout=log, stderr=log)
        wait_for(lambda: os.path.exists(self.socket), "the server")

    def call(self, *words):
        return subprocess.run([BINARY, words[0], "--socket", f"unix:{self.socket}", *words[1:]], capture_output=True, text=True, timeout=120, check=False)

    def status(self):
        return json.loads(self.call("status", "--json").stdout)

    def job(self, name):
        return next((j for j in self.status()["jobs"] if j["name"] == name), {"state": "none", "step": 0})

    def run(self, name, *program, options=()):
        return subprocess.Popen([BINARY, "run", "--socket", f"unix:{self.socket}", "--name", name, *options, "--", *program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def opportunistic(self, name, *words, rounds=ROUNDS, folder=None):
        return self.run(name, self.script, str(rounds), *words,
                        options=("--class", "opportunistic", "--memory", "36M", "--kill-after", "5", "--spill-to", folder or self.folder))

    def guaranteed(self, name, seconds):
        return self.run(name, "sleep", str(seconds), options=("--memory", "40M"))

    def infer(self):
        done = self.call("infer", "identity", "--random")
        assert done.returncode == 0, done.stderr


def process_of(server, name):
    """The script's own, by its command line: one runs at a time."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if file.read().split(b"\0")[0] == server.script.encode():
                    return int(pid)
        except OSError:
            pass
    raise AssertionError(f"no process of {name}")


def resident(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return int(re.search(r"RssAnon:\s*(\d+) kB", file.read())[1]) << 10


def finish(run, code=0):
    out, err = run.communicate(timeout=120)
    assert run.returncode == code, (run.returncode, out, err)
    return out, err


def hash_of(out):
    return re.search("hash ([0-9a-f]{48})", out)[1]


def send_out(server, name, seconds):
    """Starts a guaranteed job, for which it has to go; returns that one's run. It is out, or on its way."""
    wait_for(lambda: server.job(name)["step"] > 2, "its steps")
    other = server.guaranteed(name + "_other", seconds)
    wait_for(lambda: server.job(name)["state"] == "spilled", "the spill")
    return other


def check_same_bits(server, alone):
    run = server.opportunistic("spilled")
    wait_for(lambda: server.job("spilled")["step"] > 2, "its steps")
    wait_for(lambda: resident(process_of(server, "spilled")) > 24 << 20, "its memory")
    other = send_out(server, "spilled", 1)
    wait_for(lambda: resident(process_of(server, "spilled")) < 8 << 20, "its memory to be given back")
    server.infer()
    finish(other)
    out, _ = finish(run)
    assert hash_of(out) == alone
    counters = server.status()["counters"]
    assert counters["spills"] >= 1 and counters["spilled_bytes"] >= 2 * (24 << 20), counters


def check_killed_workers(server, alone, name, once_out):
    run, n = server.opportunistic(name), server.status()["counters"]["spills"]
    other = send_out(server, name, 1)
    if once_out:
        wait_for(lambda: server.status()["counters"]["spills"] > n, "the spill's end")
    status = server.status()
    job = next(j["job"] for j in status["jobs"] if j["name"] == name)
    for worker in status["workers"]:
        if worker["job"] == job:
            os.kill(worker["pid"], signal.SIGKILL)
    finish(other)
    out, _ = finish(run)
    assert hash_of(out) == alone


def check_cancel(server):
    run = server.opportunistic("canceled", rounds=100000)
    other = send_out(server, "canceled", 1)
    assert server.call("train", "--stop", str(server.job("canceled")["job"])).returncode == 0
    _, err = finish(run, 128 + signal.SIGTERM)
    assert "was canceled" in err, err
    finish(other)


def check_churn(server):
    """Threads that are made meanwhile, and what an earlier spill left, let none run while the tensors are out."""
    program = f"{server.folder}/churn"
    subprocess.run(["g++", "-O1", "-std=c++20", "-pthread", "-I", f"{ROOT}/workers/torch", f"{ROOT}/tests/peers/torch_scripts/spill_churn.cc", "-o", program], check=True)
    done = subprocess.run([program, server.folder, "50"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done


def check_stays(server, alone, name, *words, folder=None, why):
    """It cannot go, keeps its memory, and the other waits for its end. folder: one that goes away meanwhile."""
    run = server.opportunistic(name, *words, folder=folder)
    wait_for(lambda: server.job(name)["step"] > 2, "its steps")
    if folder:
        os.rmdir(folder)
    other = server.guaranteed(name + "_other", 0)
    out, _ = finish(run)
    assert hash_of(out) == alone
    finish(other)
    with open(f"{server.folder}/log", encoding="utf-8") as log:
        assert re.search(f"event=not_spilled .*name={name} .*{why}", log.read()), why


def main():
    folder = tempfile.mkdtemp(prefix="spills")
    server = Server(folder)
    try:
        out, _ = finish(server.run("alone", server.script, str(ROUNDS), options=("--memory", "36M")))
        alone = hash_of(out)
        check_same_bits(server, alone)
        print("[       OK ] same_bits")
        check_killed_workers(server, alone, "hit_out", True)
        check_killed_workers(server, alone, "hit_on_its_way", False)
        print("[       OK ] killed_workers")
        check_churn(server)
        print("[       OK ] churn")
        check_cancel(server)
        print("[       OK ] cancel")
        check_stays(server, alone, "deaf", "deaf", why="blocks the signal")
        print("[       OK ] deaf")
        gone = f"{folder}/gone"
        os.mkdir(gone)
        check_stays(server, alone, "gone", folder=gone, why="No such file")
        print("[       OK ] gone")
        run = server.opportunistic("no_folder", folder=f"{folder}/none")
        _, err = finish(run, 1)
        assert "--spill-to" in err and "/none" in err, err
        print("[       OK ] folder")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
    except BaseException:
        server.process.kill()
        with open(f"{folder}/log", encoding="utf-8", errors="replace") as log:
            print(log.read()[-5000:])
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("spill_check: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
