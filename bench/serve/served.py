"""A server of this build for a bench: its ports, its memory, requests to it over HTTP."""
import http.client
import json
import os
import re
import select
import subprocess
import tempfile
import time

import small_onnx

READY_SECONDS = 120


class Missing(Exception):
    """What a row needs is not there: the row is a miss, with this reason."""


class Served:
    """`switchyard serve`, all its processes on `cores` (a list; None: any); `with` stops it. .http, .grpc: ports, None where it does not listen."""

    def __init__(self, options, *arguments, cores=None):
        self.folder = tempfile.TemporaryDirectory(prefix="switchyard-serve-")
        self.socket, self.log = f"{self.folder.name}/socket", f"{self.folder.name}/log"
        pin = ["taskset", "-c", ",".join(map(str, cores))] if cores else []
        ports = [word for name in ("http", "grpc") for word in (f"--{name}", "127.0.0.1:0")]
        with open(self.log, "w", encoding="utf-8") as out:
            self.process = subprocess.Popen([*pin, f"{options.build}/switchyard", "serve", *ports, "--metrics", "off", "--socket", self.socket,
                                             *map(str, arguments)], stdout=subprocess.PIPE, stderr=out)
        try:
            self.await_ready()
        except Missing:
            self.end()
            raise
        self.http, self.grpc = self.port("http"), self.port("grpc")

    def said(self):
        with open(self.log, encoding="utf-8", errors="replace") as text:
            return text.read()

    def await_ready(self):
        deadline, said = time.monotonic() + READY_SECONDS, b""
        while b"ready\n" not in said:
            left = max(0, deadline - time.monotonic())
            readable = select.select([self.process.stdout], [], [], left)[0]
            more = os.read(self.process.stdout.fileno(), 4096) if readable else b""
            if not more:
                raise Missing(f"the server is not ready: {self.said()[-600:]}")
            said += more

    def port(self, protocol):
        found = re.search(rf"event=listening \w+={protocol} port=(\d+)", self.said())
        return int(found.group(1)) if found else None

    def need(self, protocol):
        """The port, or a miss."""
        port = getattr(self, protocol)
        if port is None:
            raise Missing(f"the server does not speak {protocol}")
        return port

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.folder.cleanup()

    def pids(self):
        """The runtime's, then its workers'."""
        children = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True, check=False).stdout.split()
        return [self.process.pid, *map(int, children)]

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.need("http"), timeout=60)


def ask(connection, method, path, body=None, headers=None):
    """(status, body, headers) of one request."""
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    return answer.status, answer.read(), answer.headers


def must(status, body, what):
    if status != 200:
        raise Missing(f"{what}: status {status}: {body[:200].decode(errors='replace')}")
    return body


def memory_bytes(pid):
    """What a process alone holds: anonymous memory. Pool and slab are shared memory, taken once."""
    with open(f"/proc/{pid}/status", encoding="ascii") as text:
        found = re.search(r"RssAnon:\s*(\d+) kB", text.read())
    return int(found.group(1)) * 1024


def make_packages(options, *names):
    """{name: package}, imported once for this machine and build."""
    folder = f"{options.build}/bench/models"
    subprocess.run([f"{options.build}/make-models", "--out", folder, *names], check=True, stdout=subprocess.DEVNULL)
    for name in names:
        subprocess.run([f"{options.build}/switchyard", "import", f"{folder}/{name}/1/model.onnx", "--name", name, "--update"], check=True,
                       stdout=subprocess.DEVNULL)
    return {name: f"{folder}/{name}/1/model.sypkg" for name in names}


def make_identity(options, width):
    """The package of a model that gives back rows of `width` float32."""
    name = f"identity_{width}"
    folder = f"{options.build}/bench/models/{name}/1"
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/model.onnx", "wb") as out:
        out.write(small_onnx.identity(name, width))
    subprocess.run([f"{options.build}/switchyard", "import", f"{folder}/model.onnx", "--name", name], check=True, stdout=subprocess.DEVNULL)
    return name, f"{folder}/model.sypkg"


def run_json(*words, cores=None, timeout=600):
    """The last line of what a program prints, as JSON."""
    pin = ["taskset", "-c", ",".join(map(str, cores))] if cores else []
    done = subprocess.run([*pin, *map(str, words)], capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode != 0:
        raise Missing(f"{os.path.basename(str(words[0]))}: exit status {done.returncode}: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def without_errors(result):
    if result["errors"]:
        raise Missing(f"{result['errors']} of {result['n']} answers are wrong: {result['error']}")
    return result


def median(values):
    values = sorted(values)
    return values[len(values) // 2]
