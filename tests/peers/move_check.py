#!/usr/bin/env python3
"""Jobs that go on elsewhere: suspended and resumed, as a file, moved between two servers over a Unix socket and over TCP with a token, with the bits of a run that stayed;
a destination that is killed in the middle, that is full, that refuses the token, the paths or the state; a client that is killed; files that were changed. Run by `make test` with
SY_BINARY; prints a line a test, as the other tests do."""
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from checks import run_tests, wait_for

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BINARY = os.path.abspath(os.environ.get("SY_BINARY", os.path.join(ROOT, "build/switchyard")))
LIMIT_S = 120
STEPS = 400
TOKENS = {"ops": ("o" * 40, "admin"), "trainer": ("j" * 40, "jobs"), "reader": ("r" * 40, "infer")}


class Server:
    """Its own folder of models, state and tokens; --threads 1, so that all have the same bits."""

    def __init__(self, world, name, *arguments, state=True, environment=None):
        self.world, self.folder, self.arguments, self.keeps = world, os.path.join(world.folder, name), arguments, state
        self.environment = environment or {}
        self.socket = os.path.join(self.folder, "s")
        if not os.path.exists(self.folder):
            os.makedirs(self.folder)
            shutil.copytree(world.models, f"{self.folder}/models")
        self.start()

    def start(self):
        with open(f"{self.folder}/log", "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [BINARY, "serve", "--models", f"{self.folder}/models", "--socket", self.socket, "--tcp", "127.0.0.1:0", "--http", "off", "--grpc", "off", "--metrics", "off",
                 "--token-file", self.world.tokens, "--workers", "2", "--threads", "1", "--pool-bytes", "256Mi", "--slab-bytes", "64Mi",
                 *(["--state", f"{self.folder}/state"] if self.keeps else []), *self.arguments],
                stdout=subprocess.PIPE, stderr=log, text=True, env=dict(os.environ, SY_LOG="info", **self.environment))
        while (line := self.process.stdout.readline().strip()) != "ready":
            assert line or self.process.poll() is None, self.log()

    def log(self):
        with open(f"{self.folder}/log", encoding="utf-8") as log:
            return log.read()

    @property
    def tcp(self):
        return "tcp:127.0.0.1:" + re.search(r"what=tcp port=(\d+)", self.log()).group(1)

    def run(self, *words, code=0):
        done = subprocess.run([BINARY, words[0], "--socket", f"unix:{self.socket}", *words[1:]], capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert code is None or done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        return done.stdout + done.stderr if code is None else done.stderr if code else done.stdout

    def jobs(self):
        return json.loads(self.run("status", "--json"))["jobs"]

    def job(self, number):
        return next((j for j in self.jobs() if j["job"] == number), None)

    def wait_step(self, number, step):
        return wait_for(lambda: (j := self.job(number)) and (j["step"] >= step or j["state"] in ("ended", "failed")) and j, f"step {step} of job {number}")

    def wait_end(self, number):
        job = wait_for(lambda: (j := self.job(number)) and j["state"] in ("ended", "failed") and j, f"the end of job {number}")
        assert job["state"] == "ended" and job["step"] == STEPS, job
        return job

    def train(self, name, steps=STEPS, **more):
        """The job's number; snapshots lie in the models' folder, so that a token without 'admin' may send it too."""
        job = {"name": name, "model": f"{self.folder}/models/mnist_cnn/1/model.onnx", "optimizer": {"kind": "adam", "learning_rate": 0.001},
               "data": {"kind": "synthetic", "samples": 512}, "snapshot": {"folder": f"{self.folder}/models/{name}"}, "batch": 4, "epochs": 100000, "max_steps": steps,
               "seed": 3, **more}
        with open(f"{self.folder}/{name}.json", "w", encoding="utf-8") as text:
            json.dump({key: value for key, value in job.items() if value is not None}, text)
        return int(self.run("train", f"{self.folder}/{name}.json").split()[1])

    def weights(self, name, step=STEPS):
        """Of the only snapshot of this name and step that the server has: the hash of its tensors."""
        found = [os.path.join(at, file) for at, _, files in os.walk(self.folder) for file in files if file == f"{name}-{step}.safetensors"]
        assert len(found) == 1, (found, name)
        with open(found[0], "rb") as data:
            raw = data.read()
        return hashlib.sha256(raw[8 + int.from_bytes(raw[:8], "little"):]).hexdigest()

    def left(self):
        """What is below the state folder's moved/."""
        return sorted(os.path.join(at, file) for at, _, files in os.walk(f"{self.folder}/state/moved") for file in files)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(LIMIT_S) == 0, self.log()[-2000:]

    def kill(self):
        self.process.kill()
        self.process.wait(LIMIT_S)


class World:
    def __init__(self, folder):
        self.folder, self.models, self.tokens = folder, os.path.join(folder, "models"), os.path.join(folder, "tokens")
        subprocess.run([os.path.join(os.path.dirname(BINARY), "make-models"), "--out", self.models, "mnist_cnn"], check=True, stdout=subprocess.DEVNULL)
        with open(self.tokens, "w", encoding="utf-8") as out:
            os.fchmod(out.fileno(), 0o600)
            out.writelines(f"{name} {secret} {rights}\n" for name, (secret, rights) in TOKENS.items())
        for name, (secret, _) in [*TOKENS.items(), ("wrong", ("w" * 40, ""))]:
            with open(self.token(name), "w", encoding="utf-8") as out:
                out.write(secret + "\n")
        self.a, self.b = Server(self, "a"), Server(self, "b")
        number = self.a.train("alone")
        self.a.wait_end(number)
        self.expected = self.a.weights("alone")

    def token(self, who):
        return os.path.join(self.folder, who + ".token")

    def move(self, source, number, target, who="trainer", code=0, address=None):
        return source.run("jobs", "move", str(number), "--to", address or target.tcp, "--to-token-file", self.token(who), code=code)


class Cut(threading.Thread):
    """Carries one connection to a server, and calls `cut` once so many bytes went there, or before (or after) a call of a method goes there."""

    def __init__(self, address, n_bytes, cut, method=None, after=False):
        super().__init__(daemon=True)
        self.port, self.left, self.cut = int(address.rsplit(":", 1)[1]), n_bytes, cut
        self.method, self.after = method, after
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp:127.0.0.1:{self.listener.getsockname()[1]}"
        self.start()

    def back(self, there, here):
        try:
            while data := there.recv(65536):
                here.sendall(data)
            here.shutdown(socket.SHUT_RDWR)  # the server is gone
        except OSError:
            pass

    def run(self):
        here, _ = self.listener.accept()
        with here, socket.create_connection(("127.0.0.1", self.port)) as there:
            threading.Thread(target=self.back, args=(there, here), daemon=True).start()
            while data := here.recv(16384):
                self.left -= len(data)
                is_now = self.cut and (self.method in data if self.method else self.left <= 0)
                if is_now and not self.after:
                    self.cut()
                try:
                    there.sendall(data)
                except OSError:
                    return
                if is_now and self.after:
                    time.sleep(0.5)
                    self.cut()
                if is_now:
                    self.cut = None
            try:
                there.shutdown(socket.SHUT_RDWR)  # its other direction is being read
            except OSError:
                pass  # the server is gone


# ---- the tests ----------------------------------------------------------------------------------------------------


def test_suspend_and_resume(world):
    """In one server: memory is free while it is suspended, a restart does not go on with it, the bits are the same."""
    a = world.a
    number = a.train("stays")
    a.wait_step(number, 50)
    a.run("jobs", "suspend", str(number))
    a.run("jobs", "suspend", str(number))
    job = a.job(number)
    assert job["state"] == "suspended" and job["parked"] and job["worker"] == -1 and 50 <= job["step"] < STEPS, job
    assert "is suspended" in a.run("jobs", "priority", str(number), "3", code=1)
    assert "jobs resume" in a.run("jobs")
    a.kill()
    a.start()
    again = a.job(number)
    assert again["state"] == "suspended" and again["step"] == job["step"] and again["total_steps"] == STEPS, again
    a.run("jobs", "resume", str(number))
    a.wait_end(number)
    assert a.weights("stays") == world.expected


def test_file(world):
    """Exported, resumed from the file at the other server, where it lies."""
    a, b, file = world.a, world.b, os.path.join(world.folder, "job.state")
    number = a.train("filed")
    a.wait_step(number, 40)
    assert "jobs suspend" in a.run("jobs", "export", str(number), file, code=1) and not os.path.exists(file)
    a.run("jobs", "suspend", str(number))
    assert f"job {number}" in a.run("jobs", "export", str(number), file)
    a.run("jobs", "cancel", str(number))
    assert a.job(number)["state"] == "ended"
    there = int(b.run("jobs", "resume-from", file).split()[1].rstrip(":"))
    b.wait_end(there)
    assert b.weights("filed") == world.expected
    with open(file, "rb") as data:
        whole = data.read()
    n = int.from_bytes(whole[8:16], "little")
    for what, changed in {"cut": whole[:-1], "longer": whole + b"x", "head": whole[:40] + b"X" + whole[41:], "data": whole[:-9] + b"\xff" + whole[-8:], "empty": b"",
                          "other": b"PK" + whole[2:], "huge": whole[:8] + b"\xff" * 8 + whole[16:], "prefix": whole[:20], "no data": whole[:24 + n]}.items():
        if changed == whole:
            continue
        with open(file, "wb") as out:
            out.write(changed)
        before = len(b.jobs())
        assert file in b.run("jobs", "resume-from", file, code=1), what
        assert len(b.jobs()) == before, what
    b.run("jobs", "resume-from", "/dev/zero", code=1)
    b.run("jobs", "resume-from", "/nowhere", code=1)


def test_move(world):
    """Over TCP with a token, back over the Unix socket, with a priority that was set on the way: the bits of the run that stayed."""
    a, b = world.a, world.b
    number = a.train("moves")
    a.wait_step(number, 30)
    a.run("jobs", "priority", str(number), "-7")
    there = int(re.search(r"is job (\d+) at", world.move(a, number, b)).group(1))
    assert a.job(number)["state"] == "ended" and b.job(there)["priority"] == -7
    b.wait_step(there, 150)
    back = int(re.search(r"is job (\d+) at", world.move(b, there, a, address=f"unix:{a.socket}")).group(1))
    assert b.job(there)["state"] == "ended"
    a.wait_end(back)
    assert a.weights("moves") == world.expected


def test_move_of_a_paused_job(world):
    """It is paused where it comes to, and where it was if it was not moved: not suspended, and not running."""
    a, b = world.a, world.b
    number = a.train("paused")
    a.wait_step(number, 30)
    a.run("jobs", "pause", str(number))

    def rests(server, job):
        step = wait_for(lambda: (j := server.job(job)) and j["state"] == "suspended" and j, "its pause")["step"]
        time.sleep(0.5)
        now = server.job(job)
        assert now["state"] == "suspended" and not now["parked"] and now["step"] == step < STEPS, (step, now)

    rests(a, number)
    assert "paused as before" in world.move(a, number, b, who="reader", code=1)
    rests(a, number)
    stood = a.job(number)["step"]
    said = world.move(a, number, b)
    assert "paused as before" in said and a.job(number)["state"] == "ended", said
    there = int(re.search(r"is job (\d+) at", said).group(1))
    rests(b, there)
    assert b.job(there)["step"] == stood, "it took no step"
    b.kill()
    b.start()
    rests(b, there)
    b.run("jobs", "resume", str(there))
    b.run("jobs", "pause", str(there))  # and moved at once, before its worker may have stopped
    said = world.move(b, there, a, address=f"unix:{a.socket}")
    assert "paused as before" in said, said
    back = int(re.search(r"is job (\d+) at", said).group(1))
    rests(a, back)
    a.run("jobs", "resume", str(back))
    a.wait_end(back)
    assert a.weights("paused") == world.expected


def test_move_of_a_job_that_waits(world):
    """It has not begun, and has no snapshot: it begins there."""
    a, b = world.a, world.b
    first = a.train("first", steps=1000000)
    with subprocess.Popen([BINARY, "train", "--socket", f"unix:{a.socket}", "/dev/null"], stderr=subprocess.DEVNULL) as none:
        none.wait(LIMIT_S)
    job = json.load(open(f"{a.folder}/first.json", encoding="utf-8"))
    job.update(name="second", max_steps=STEPS, snapshot={"folder": f"{a.folder}/models/second"})
    with open(f"{a.folder}/second.json", "w", encoding="utf-8") as out:
        json.dump(job, out)
    with subprocess.Popen([BINARY, "train", "--socket", f"unix:{a.socket}", f"{a.folder}/second.json"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as waiting:
        number = wait_for(lambda: next((j["job"] for j in a.jobs() if j["name"] == "second"), None), "the second job")
        there = int(re.search(r"is job (\d+) at", world.move(a, number, b)).group(1))
        waiting.wait(LIMIT_S)
    b.wait_end(there)
    assert b.weights("second") == world.expected
    a.run("jobs", "cancel", str(first))


def moves_not(world, name, move, **train):
    """The move fails, and the job goes on at A, with the same bits."""
    number = world.a.train(name, **train)
    world.a.wait_step(number, 20)
    said = move(number)
    world.a.wait_end(number)
    assert world.a.weights(name) == world.expected
    return said


def test_killed_in_the_middle(world):
    a, b = world.a, world.b
    for n, after in enumerate((1000, 300000, 1200000)):
        before = b.left()
        cut = Cut(b.tcp, after, b.kill)
        said = moves_not(world, f"cut{n}", lambda number, cut=cut: world.move(a, number, b, code=1, address=cut.address))
        assert "goes on where it was" in said, said
        b.start()
        assert not any(j["name"] == f"cut{n}" for j in b.jobs())
        number = a.train(f"after{n}")
        a.wait_step(number, 10)
        there = int(re.search(r"is job (\d+) at", world.move(a, number, b)).group(1))
        b.wait_end(there)
        assert not [file for file in b.left() if ".tmp-" in file] and set(before) <= set(b.left())


def test_killed_client(world):
    """The job is suspended where it was; half a job leaves nothing at the destination."""
    a, b, before = world.a, world.b, world.b.left()
    number = a.train("client")
    a.wait_step(number, 20)
    processes = []
    cut = Cut(b.tcp, 1000000, lambda: processes[0].kill())
    processes.append(subprocess.Popen([BINARY, "jobs", "move", str(number), "--socket", f"unix:{a.socket}", "--to", cut.address, "--to-token-file", world.token("trainer")],
                                      stderr=subprocess.DEVNULL))
    assert processes[0].wait(LIMIT_S) == -signal.SIGKILL
    cut.join(LIMIT_S)
    assert a.job(number)["state"] == "suspended"
    wait_for(lambda: b.left() == before, "half a job to go")
    a.run("jobs", "resume", str(number))
    a.wait_end(number)
    assert a.weights("client") == world.expected


def test_interrupted_client(world):
    a, b, before = world.a, world.b, world.b.left()
    number = a.train("ctrl_c")
    a.wait_step(number, 20)
    processes = []
    cut = Cut(b.tcp, 1000000, lambda: processes[0].send_signal(signal.SIGINT))
    processes.append(subprocess.Popen([BINARY, "jobs", "move", str(number), "--socket", f"unix:{a.socket}", "--to", cut.address, "--to-token-file", world.token("trainer")],
                                      stderr=subprocess.PIPE, text=True))
    assert "goes on where it was" in processes[0].communicate(timeout=LIMIT_S)[1] and processes[0].returncode == 1
    a.wait_end(number)
    assert a.weights("ctrl_c") == world.expected
    wait_for(lambda: b.left() == before, "half a job to go")


def test_killed_at_the_end(world):
    """The destination dies when the job shall go on there: it is in one place at most, and goes on in the one that has it."""
    a, b = world.a, world.b
    for name, after in (("before", False), ("after", True)):
        number = a.train(name, max_steps=4 * STEPS)
        a.wait_step(number, 20)
        cut = Cut(b.tcp, 0, b.kill, b"job_resume", after)
        said = world.move(a, number, b, address=cut.address, code=None)
        assert a.job(number)["state"] == ("ended" if " is job " in said else "suspended"), said
        b.start()
        there = next(j for j in b.jobs() if j["name"] == name)
        assert (there["state"] == "suspended") == (not after), (there, said)
        if after:
            b.wait_step(there["job"], 30)
        else:
            a.run("jobs", "resume", str(number))
            a.wait_step(number, 30)
        for server in (a, b):
            for job in server.jobs():
                if job["name"] == name and (job["kept"] or job["state"] not in ("ended", "failed")):
                    server.run("jobs", "cancel", str(job["job"]))


def test_refused(world):
    a, b = world.a, world.b
    assert "token" in moves_not(world, "wrong", lambda number: world.move(a, number, b, who="wrong", code=1))
    assert "jobs" in moves_not(world, "reader", lambda number: world.move(a, number, b, who="reader", code=1))
    assert "--to" in moves_not(world, "nobody", lambda number: world.move(a, number, b, address="tcp:127.0.0.1:1", code=1))
    os.rename(f"{b.folder}/models/mnist_cnn", f"{b.folder}/mnist_cnn")
    assert "model.onnx" in moves_not(world, "model", lambda number: world.move(a, number, b, code=1))
    os.rename(f"{b.folder}/mnist_cnn", f"{b.folder}/models/mnist_cnn")
    shutil.copytree(f"{a.folder}/models/mnist_cnn", f"{a.folder}/elsewhere")
    away = {"model": f"{a.folder}/elsewhere/1/model.onnx"}
    assert "models' folder" in moves_not(world, "away", lambda number: world.move(a, number, b, code=1), **away)
    number = a.train("admin", **away)
    a.wait_step(number, 20)
    there = int(re.search(r"is job (\d+) at", world.move(a, number, b, who="ops")).group(1))
    b.wait_end(there)
    assert b.weights("admin") == world.expected
    number = a.train("bare", snapshot=None, steps=100000)
    assert "snapshot" in world.move(a, number, b, code=1) and a.job(number)["state"] != "suspended"
    a.run("jobs", "cancel", str(number))
    assert "no job 999" in world.move(a, 999, b, code=1)
    for words in (["move", "1"], ["suspend"], ["export", "1"], ["resume-from"], ["list", "--to", "x"], ["pause", "1", "--to", "x"], ["moves", "1"], ["suspend", "x"]):
        a.run("jobs", *words, code=2)


def test_full_destination(world):
    """Its disk fails, or it keeps nothing: the job goes on at A."""
    a = world.a
    faults = Server(world, "faulty", environment={"SY_FAULT": "file_write:4:EIO"})
    said = moves_not(world, "disk", lambda number: world.move(a, number, faults, code=1))
    assert not faults.jobs() and not faults.left(), said
    faults.stop()
    bare = Server(world, "bare", state=False)
    assert "--state" in moves_not(world, "stateless", lambda number: world.move(a, number, bare, code=1))
    bare.stop()


def test_job_that_cannot_begin_there(world):
    """The destination took it, and its worker refuses the model: it is taken back, and goes on at A."""
    a, b, before = world.a, world.b, world.b.left()
    shutil.copy(f"{a.folder}/models/mnist_cnn/1/model.onnx", f"{a.folder}/models/net.onnx")
    with open(f"{b.folder}/models/net.onnx", "wb") as out:
        out.write(b"no network")
    said = moves_not(world, "begins", lambda number: world.move(a, number, b, code=1), model=f"{a.folder}/models/net.onnx")
    assert "goes on where it was" in said and "net.onnx" in said, said
    assert not [j for j in b.jobs() if j["name"] == "begins" and (j["kept"] or j["state"] not in ("ended", "failed"))]
    assert b.left() == before and not [name for name in os.listdir(f"{b.folder}/state/moved") if name.startswith("begins")], b.left()
    kept = a.train("canceled")
    a.wait_step(kept, 20)
    there = int(re.search(r"is job (\d+) at", world.move(a, kept, b)).group(1))
    b.run("jobs", "cancel", str(there))
    assert any("/canceled-" in file for file in b.left()), "what a user cancels stays, as anywhere"


TESTS = [test_suspend_and_resume, test_file, test_move, test_move_of_a_paused_job, test_move_of_a_job_that_waits, test_killed_in_the_middle, test_killed_client, test_interrupted_client, test_killed_at_the_end, test_refused, test_full_destination,
         test_job_that_cannot_begin_there]


def main():
    with tempfile.TemporaryDirectory() as folder:
        world = World(folder)
        failed = run_tests(TESTS, world)
        for server in (world.a, world.b):
            server.stop()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
