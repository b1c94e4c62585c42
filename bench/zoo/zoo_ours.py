"""Our side of the zoo's bench: one server for one model, asked over msgpack-RPC; the time is what the server says its run took."""
import os
import socket
import subprocess
import tempfile

import msgpack
import numpy as np

NAMES = {np.dtype(t): n for t, n in ((np.float32, "FP32"), (np.float64, "FP64"), (np.float16, "FP16"), (np.int64, "INT64"), (np.int32, "INT32"), (np.int16, "INT16"),
                                     (np.int8, "INT8"), (np.uint8, "UINT8"), (np.uint16, "UINT16"), (np.uint32, "UINT32"), (np.uint64, "UINT64"), (np.bool_, "BOOL"))}
TYPES = {n: t for t, n in NAMES.items()}
IMPORT_S, ANSWER_S = 400, 60


class Refused(Exception):
    """The model was refused: the words that say why."""


def last_line(text):
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:400] if lines else "no output"


def pack(name, a):
    if a.dtype == object:
        words = [w.encode() for w in a.ravel()]
        return {"name": name, "dtype": "BYTES", "shape": list(a.shape), "data": b"".join(len(w).to_bytes(4, "little") + w for w in words)}
    return {"name": name, "dtype": NAMES[a.dtype], "shape": list(a.shape), "data": np.ascontiguousarray(a).tobytes()}


def unpack(told):
    if told["dtype"] != "BYTES":
        return np.frombuffer(told["data"], TYPES[told["dtype"]]).reshape(told["shape"])
    words, data = [], bytes(told["data"])
    while data:
        n = int.from_bytes(data[:4], "little")
        words.append(data[4:4 + n].decode())
        data = data[4 + n:]
    return np.array(words, object).reshape(told["shape"])


class Ours:
    """A server of one package. `with Ours(...) as ours: outputs = ours.run(model, feeds)`."""

    def __init__(self, build, package, threads):
        self.folder = tempfile.TemporaryDirectory(prefix="switchyard-zoo-")
        self.path, self.log = f"{self.folder.name}/sock", f"{self.folder.name}/log"
        read, write = os.pipe()
        bytes_of = 4 * os.path.getsize(package) + (1 << 30)
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [f"{build}/switchyard", "serve", "--http", "off", "--grpc", "off", "--metrics", "off", "--package", package, "--threads", str(threads), "--workers", "2",
                 "--pool-bytes", str(bytes_of), "--socket", self.path, "--ready-fd", str(write)], pass_fds=[write], stdout=subprocess.DEVNULL, stderr=log)
        os.close(write)
        ready = os.read(read, 1)
        os.close(read)
        if not ready:
            self.close()
            raise Refused(f"serve: {self.why}")
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(ANSWER_S)
        self.socket.connect(self.path)
        self.unpacker, self.id = msgpack.Unpacker(max_buffer_size=1 << 30), 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        with open(self.log, encoding="utf-8", errors="replace") as text:
            self.why = last_line(text.read())
        self.folder.cleanup()

    def call(self, method, params):
        self.id += 1
        return self.answer(method, msgpack.packb([0, self.id, method, [params]]))

    def answer(self, method, message):
        self.socket.sendall(message)
        while True:
            for _, _, error, result in self.unpacker:
                if error:
                    raise Refused(f"{method}: {error}")
                return result
            data = self.socket.recv(1 << 20)
            if not data:
                raise Refused(f"{method}: the server closed the connection")
            self.unpacker.feed(data)

    def run(self, model, feeds):
        """{output: array}."""
        told = self.call("infer", {"model": model, "inputs": [pack(n, a) for n, a in feeds.items()]})
        return {o["name"]: unpack(o) for o in told["outputs"]}

    def timed(self, model, feeds):
        """A function that runs once more and returns the run's seconds without RPC. The message is packed once, and tensors of the answer are not looked
        at: the time in which this client packed words was as long as a worker looks for the next request before it sleeps."""
        message = msgpack.packb([0, 0, "infer", [{"model": model, "inputs": [pack(n, a) for n, a in feeds.items()]}]])
        return lambda: self.answer("infer", message)["timing"]["run_ns"] / 1e9


def make_package(build, source, package, name, threads):
    """Imports, with a profile; what is refused raises Refused."""
    os.makedirs(os.path.dirname(package), exist_ok=True)
    try:
        run = subprocess.run([f"{build}/switchyard", "import", source, "--name", name, "--output", package, "--threads", str(threads)], capture_output=True, text=True,
                             timeout=IMPORT_S, check=False, env=dict(os.environ, SY_LOG="error"))
    except subprocess.TimeoutExpired as late:
        raise Refused(f"import: not done within {IMPORT_S} s") from late
    if run.returncode:
        raise Refused(f"import: {last_line(run.stderr)}")
