#!/usr/bin/env python3
"""Each allocation fails in turn: of a request over each interface, of a model that is loaded, a job that starts, a worker that prepares new sizes, an import.
The answer is right, or an error in words; nobody crashes; the next answer is right; no slot of the slab is lost. SY_ALLOCATIONS=N: at most so many of each operation. SY_ONLY=serve:load: that
operation alone; a crash leaves its core in the working directory where the limit allows one."""
import http.client
import json
import mmap
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
VENV = os.path.join(ROOT, "build/venv/bin/python")
if os.path.exists(VENV) and os.path.abspath(sys.executable) != VENV and "SY_IN_VENV" not in os.environ:
    os.execve(VENV, [VENV, *sys.argv], dict(os.environ, SY_IN_VENV="1"))
sys.path.insert(0, os.path.join(ROOT, "tests/torture"))
import numpy as np  # noqa: E402
import torture_clients as clients  # noqa: E402
import torture_jobs as jobs  # noqa: E402
import torture_server as server_of  # noqa: E402
from torture_server import switchyard  # noqa: E402

BUILD = os.path.dirname(os.environ.get("SY_BINARY", os.path.join(ROOT, "build/switchyard")))
MOST = int(os.environ.get("SY_ALLOCATIONS", "12"))
ONLY = os.environ.get("SY_ONLY", "")
NEVER = 1 << 60


class Armed:
    """The page that faults_memory.c looks at."""

    def __init__(self, path):
        self.path = path
        with open(path, "wb") as file:
            file.write(bytes(4096))
        self.file = open(path, "r+b")
        self.page = mmap.mmap(self.file.fileno(), 4096)

    def set(self, left):
        self.page[:16] = struct.pack("<qq", left, 0)

    def disarm(self):
        """How many allocations were counted, and whether one failed."""
        left, n = struct.unpack("<qq", self.page[:16])
        self.set(0)
        return n, left == 0 and n > 0


class Bench:
    def __init__(self, folder, process):
        self.folder, self.process, self.armed = folder, process, Armed(f"{folder}/armed-{process}")
        self.models = f"{folder}/models"
        self.server = server_of.Server(BUILD, folder, ["--models", self.models, "--workers", 3, "--pool-bytes", "64M", "--slab-bytes", "8M", "--model-control", "explicit", "--load-model", "*"],
                                       {"LD_PRELOAD": os.path.abspath(f"{BUILD}/tests/libfaults.so"), "SY_FAULTS_IN": process, "SY_FAULTS_ARM": self.armed.path})
        assert self.server.start(), self.server.words()[-2000:]
        self.questions = server_of.ask_idle(self.server, 1, 1)
        http.client.HTTPConnection("127.0.0.1", self.server.http).request("POST", "/v2/repository/models/mnist_cnn/unload", "{}")
        self.question = next(q for q in self.questions if q.model == "mlp")
        with self.server.client() as client:
            self.slab = client.status()["slab"]["used_bytes"]
        self.count, self.n_words, self.n_right, self.n_closed, self.bad, self.sizes = 0, 0, 0, 0, [], 1

    # ---- operations: None if the answer is right; raises what a client hears else ----

    def native(self):
        self.by(clients.Native)

    def http(self):
        self.by(clients.Http)

    def grpc(self):
        self.by(clients.Grpc)

    def by(self, kind):
        client = kind(self.server)
        try:
            outputs, _ = client.ask(self.question)
            assert self.question.is_right(outputs), "a wrong answer"
        finally:
            client.close()

    def load(self):
        wire = http.client.HTTPConnection("127.0.0.1", self.server.http, timeout=60)
        for what in ("load", "unload"):
            wire.request("POST", f"/v2/repository/models/mnist_cnn/{what}", "{}")
            answer = wire.getresponse()
            words = answer.read().decode(errors="replace")
            if answer.status != 200:
                raise clients.Refused(f"{answer.status} {words}")
        wire.close()

    def job(self):
        self.count += 1
        name = f"job{self.count}"
        with self.server.client() as client:
            spec = {**jobs.job_of("schedule", name, JOB_MODELS, f"{self.folder}/snapshots"), "max_steps": 2}
            row = client.jobs.wait(client.jobs.submit(spec), timeout=60, every=0.02)
            if row["state"] != "ended":
                raise clients.Refused(row.get("error") or row.get("why") or json.dumps(row))

    def prepare(self):
        """A batch size that no worker has seen."""
        self.sizes += 1
        one = self.question.inputs
        with self.server.client() as client:
            result = client.infer("mlp", {name: np.concatenate([array[:1]] * self.sizes) for name, array in one.items()})
            for name, data in self.question.answers.items():
                row = np.frombuffer(data, np.float32).reshape(self.question.shapes[name])[:1]
                assert np.allclose(result[name], np.concatenate([row] * self.sizes), rtol=1e-4, atol=1e-5), "a wrong answer"

    # ---- the enumeration ----

    def once(self, operation, left):
        """(allocations, whether one failed); notes what is wrong."""
        pid = self.server.pid
        self.armed.set(left)
        try:
            operation()
            self.n_right += left != NEVER
        except AssertionError as error:
            self.bad.append(f"{operation.__name__}, allocation {left}: {error}")
        except clients.Refused as error:
            self.note_words(operation, left, str(error))
        except switchyard.SwitchyardError as error:
            self.note_words(operation, left, str(error))
        except ValueError as error:  # no JSON, a size that does not fit
            self.bad.append(f"{operation.__name__}, allocation {left}: an answer that cannot be read: {error!r}")
        except (OSError, http.client.HTTPException) as error:
            self.n_closed += 1
            if isinstance(error, TimeoutError):
                self.bad.append(f"{operation.__name__}, allocation {left}: no answer within its time")
        n, failed = self.armed.disarm()
        if self.server.process.poll() is not None:
            raise SystemExit(f"{operation.__name__}, allocation {left} of {self.process}: the server ({pid}) ended with {self.server.process.returncode}\n{self.server.words()[-3000:]}")
        return n, failed

    def note_words(self, operation, left, words):
        self.n_words += 1
        if left == NEVER or len(words) < 5:
            self.bad.append(f"{operation.__name__}, allocation {left}: {words!r}")

    def all_right(self, operation, left):
        """The next requests are answered, with the slab as before."""
        for attempt in range(200):
            try:
                self.by(clients.Native)
                self.by(clients.Http)
                with self.server.client() as client:
                    status = client.status()
                if status["slab"]["used_bytes"] <= self.slab and not any(row["state"] in ("running", "loaded") for row in status["workers"]):
                    return
            except (OSError, clients.Refused, switchyard.SwitchyardError, http.client.HTTPException) as error:
                status = {"error": repr(error)}
            time.sleep(0.05)
        self.bad.append(f"{operation.__name__}, allocation {left}: afterwards {json.dumps(status.get('slab') or status)[:300]}; before {self.slab}")

    def fail_each(self, operation):
        self.once(operation, NEVER)
        n, _ = self.once(operation, NEVER)
        step = max(1, -(-n // MOST))
        tried = 0
        for left in range(1 + (SEED % step), n + 1, step):
            tried += self.once(operation, left)[1]
            self.all_right(operation, left)
        print(f"  {self.process}: {operation.__name__}: {n} allocations, {tried} failed in turn", flush=True)


def fail_import(folder):
    """The import's process: a package that verifies, or words and no package."""
    armed, bad, tried = Armed(f"{folder}/armed-import"), [], 0
    onnx = f"{folder}/models/tiny_cnn/1/model.onnx"
    environment = {**os.environ, "LD_PRELOAD": os.path.abspath(f"{BUILD}/tests/libfaults.so"), "SY_FAULTS_ARM": armed.path, "SY_FAULTS_IN": "import"}

    def once(left):
        armed.set(left)
        done = subprocess.run([f"{BUILD}/switchyard", "import", onnx, "--output", f"{folder}/out.sypkg", "--no-profile"], env=environment, capture_output=True, text=True, timeout=120, check=False)
        n, failed = armed.disarm()
        there = os.path.exists(f"{folder}/out.sypkg")
        if there:
            os.unlink(f"{folder}/out.sypkg")
        if done.returncode < 0 or (done.returncode == 0) != there or (done.returncode and len(done.stderr.strip()) < 5) or "AddressSanitizer" in done.stderr:
            bad.append(f"import, allocation {left}: exit code {done.returncode}, package {there}: {done.stderr[-300:]}")
        return n, failed
    n = once(NEVER)[0]
    step = max(1, -(-n // MOST))
    for left in range(1 + SEED % step, n + 1, step):
        tried += once(left)[1]
    print(f"  import: {n} allocations, {tried} failed in turn", flush=True)
    return bad


def main():
    global JOB_MODELS, SEED
    SEED = int(os.environ.get("SY_SEED", "1"))
    print(f"seed {SEED}: SY_SEED={SEED} fails the same allocations; SY_ALLOCATIONS=N for more than {MOST} of each operation", flush=True)
    JOB_MODELS, bad = jobs.make_job_models(BUILD), []
    for process in ("serve", "worker"):
        folder = tempfile.mkdtemp(prefix="switchyard-alloc-")
        os.makedirs(f"{folder}/snapshots")
        subprocess.run([f"{BUILD}/make-models", "--out", f"{folder}/models", "mlp", "tiny_cnn", "mnist_cnn"], check=True, stdout=subprocess.DEVNULL)
        bench = None
        try:
            bench = Bench(folder, process)
            for operation in (bench.native, bench.http, bench.grpc, bench.load, bench.job) if process == "serve" else (bench.native, bench.prepare, bench.load, bench.job):
                if ONLY in f"{process}:{operation.__name__}":
                    bench.fail_each(operation)
            if bench.server.end() != 0:
                bench.bad.append("SIGTERM at the end: no exit code 0")
            bad += [f"{process}: {words}" for words in bench.bad]
            print(f"  {process}: {bench.n_right} answered, {bench.n_words} refused in words, {bench.n_closed} connections closed", flush=True)
            if process == "serve" and ONLY in "import":
                bad += fail_import(folder)
        finally:
            if bench:
                bench.server.end(signal.SIGKILL)
                shutil.copy(bench.server.log, f"{BUILD}/alloc-{process}.log")
            shutil.rmtree(folder, ignore_errors=True)
    for words in bad:
        print(words)
    print("[  FAILED  ] allocations" if bad else "[       OK ] allocations")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
