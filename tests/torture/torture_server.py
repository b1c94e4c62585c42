"""A server under torture: started, killed, stopped, started again; what it holds of memory and descriptors; its models and its idle answers."""
import glob
import os
import re
import select
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "runtime/python"))
import numpy as np  # noqa: E402
import switchyard  # noqa: E402

READY_SECONDS = 300  # models may have to be imported first
DRAIN_SECONDS = 60
# Small ones, of all kinds that requests differ by: types, sizes, several inputs, tensors that go through shared memory.
MODELS = ["identity", "mlp", "tiny_cnn", "mnist_cnn", "bert_tiny", "mobilenet_v2"]


def make_models(build):
    folder = os.path.abspath(f"{build}/torture/models")
    subprocess.run([f"{build}/make-models", "--out", folder, *MODELS], check=True, stdout=subprocess.DEVNULL)
    return folder


class Server:
    """`switchyard serve` with these arguments; its folder keeps socket, log, state and snapshots across starts. Ports are the ones that
    the first start was given, so that clients find it again."""

    def __init__(self, build, folder, arguments, environment=None, prefix=()):
        self.binary, self.folder, self.arguments = os.path.abspath(f"{build}/switchyard"), folder, [str(a) for a in arguments]
        self.environment, self.prefix = environment or {}, list(prefix)
        self.socket, self.log = f"{folder}/socket", f"{folder}/log"
        self.address, self.http, self.grpc, self.process = f"unix:{self.socket}", 0, 0, None
        self.log_at = 0  # where the log of this incarnation begins

    def start(self, seconds=READY_SECONDS):
        """True once it is ready, with the seconds that it took in .took; False: it ended, or was not ready in time."""
        self.log_at = os.path.getsize(self.log) if os.path.exists(self.log) else 0
        begun = time.monotonic()
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, self.binary, "serve", "--socket", self.socket, "--http", f"127.0.0.1:{self.http}", "--grpc", f"127.0.0.1:{self.grpc}",
                 "--metrics", "off", *self.arguments], stdout=subprocess.PIPE, stderr=log, env={**os.environ, **self.environment})
        said = b""
        while b"ready\n" not in said:
            left = begun + seconds - time.monotonic()
            more = os.read(self.process.stdout.fileno(), 4096) if left > 0 and select.select([self.process.stdout], [], [], left)[0] else b""
            if not more:
                return False
            said += more
        self.took = time.monotonic() - begun
        if not self.http:
            words = self.words()
            self.http = int(re.search(r"what=http port=(\d+)", words).group(1))
            self.grpc = int(re.search(r"what=grpc port=(\d+)", words).group(1))
        return True

    def words(self):
        """What this incarnation has logged."""
        with open(self.log, "rb") as log:
            log.seek(self.log_at)
            return log.read().decode(errors="replace")

    @property
    def pid(self):
        return self.process.pid

    def end(self, number=signal.SIGTERM, seconds=DRAIN_SECONDS):
        """Its exit code; None: it did not end in time and was killed."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return None
        finally:
            self.process.stdout.close()

    def client(self, timeout=60.0):
        return switchyard.Client(self.address, timeout)

    def worker_pids(self):
        return [pid for pid in children_of(self.pid) if name_of(pid) != "switchyard-keep"]


def children_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as text:
            return [int(word) for word in text.read().split()]
    except OSError:
        return []


def name_of(pid):
    try:
        with open(f"/proc/{pid}/comm", encoding="ascii") as text:
            return text.read().strip()
    except OSError:
        return ""


def held_by(pid):
    """(bytes that it alone holds, descriptors), of a process; None: it is gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as text:
            words = text.read()
        anonymous = int(re.search(r"RssAnon:\s+(\d+)", words).group(1)) * 1024
        return anonymous, len(os.listdir(f"/proc/{pid}/fd"))
    except (OSError, AttributeError):
        return None


def leftovers(folder):
    """Names in /dev/shm that a server of this folder could have left behind."""
    return [name for name in glob.glob("/dev/shm/switchyard*") if folder in name]


# ---- requests and their idle answers ----

def rows_of(port, batch, dice):
    shape = [batch if dim == "N" else n for dim, n in zip(port.dims, port.usual_shape)]
    if port.dtype == "INT64":
        top = 100 if port.name == "input_ids" else 2  # the smallest vocabulary of these models
        return dice.integers(0, top, shape, dtype=np.int64)
    return dice.random(shape, dtype=np.float32)


class Question:
    """One request whose answer is known: model, inputs (name → array), answers (name → bytes)."""

    def __init__(self, model, inputs, outputs):
        self.model, self.inputs = model, inputs
        self.answers = {name: array.tobytes() for name, array in outputs.items()}
        self.shapes = {name: array.shape for name, array in outputs.items()}

    def is_right(self, outputs):
        return outputs.keys() == self.answers.keys() and all(bytes(outputs[name]) == data for name, data in self.answers.items())


def ask_idle(server, seed, variants=3):
    """Questions of all models and a few batch sizes, answered by a server that does nothing else."""
    dice, questions = np.random.default_rng(seed), []
    with server.client() as client:
        for model in client.models():
            for batch in (1, 2, 3) if model.name != "mobilenet_v2" else (1,):
                for _ in range(variants):
                    inputs = {port.name: rows_of(port, batch, dice) for port in model.inputs}
                    result = client.infer(model.name, inputs)
                    questions.append(Question(model.name, inputs, {name: result[name].copy() for name in result}))
    return questions
