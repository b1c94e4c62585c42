#!/usr/bin/env python3
"""A package from a node that has it: GET /v2/models/NAME/package. Ranges, HEAD, ETag; a second server serves from the first, bit for bit, and goes on at another peer when one is
killed; slow clients are bounded, a client that goes lets the model go; a token decides. Run by `make test`; prints a line a test."""
import http.client
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from checks import run_tests

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BINARY = os.path.abspath(os.environ.get("SY_BINARY", os.path.join(ROOT, "build/switchyard")))
LIMIT_S = 60
PATH = "/v2/models/resnet18/package"


class Server:
    def __init__(self, folder, name, *more, models=True):
        self.folder, self.socket = folder, f"unix:{folder}/{name}"
        with open(f"{folder}/{name}.log", "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([BINARY, "serve", "--socket", self.socket, *(["--models", folder + "/models"] if models else []), "--http", "127.0.0.1:0", "--grpc", "off",
                                             "--metrics", "off", "--pool-bytes", "512Mi", "--slab-bytes", "64Mi", "--workers", "2", *more], stdout=subprocess.PIPE, stderr=log, text=True)
        while self.process.stdout.readline().strip() != "ready":
            assert self.process.poll() is None
        with open(f"{folder}/{name}.log", encoding="utf-8") as log:
            self.port = int(next(line.split("port=")[1].split()[0] for line in log if "what=http " in line))
        self.url = f"http://127.0.0.1:{self.port}{PATH}"

    def run(self, *words, code=0):
        done = subprocess.run([BINARY, words[0], "--socket", self.socket, *words[1:]], capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def ask(self, method="GET", path=PATH, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, dict(answer.getheaders()), body

    def infer(self, name):
        values = [((i * 37) % 101) / 101 for i in range(3 * 224 * 224)]
        inputs = json.loads(self.ask(path=f"/v2/models/{name}")[2])["inputs"]
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        connection.request("POST", f"/v2/models/{name}/infer", json.dumps({"inputs": [{"name": inputs[0]["name"], "datatype": "FP32", "shape": [1, 3, 224, 224], "data": values}]}))
        return json.loads(connection.getresponse().read())["outputs"][0]["data"]

    def slow_client(self):
        """Asks, and reads nothing: 47 MB are more than sockets hold."""
        client = socket.socket()
        client.settimeout(LIMIT_S)
        client.connect(("127.0.0.1", self.port))
        client.sendall(f"GET {PATH} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        return client

    def stop(self):
        self.process.terminate()
        assert self.process.wait(LIMIT_S) == 0


class World:
    def __init__(self, folder):
        self.folder = folder
        subprocess.run([os.path.join(os.path.dirname(BINARY), "make-models"), "--out", folder + "/models", "resnet18"], check=True, stdout=subprocess.DEVNULL)
        self.one = Server(folder, "one")
        with open(folder + "/models/resnet18/1/model.sypkg", "rb") as file:
            self.content = file.read()


def ranges_and_tags(w):
    status, headers, body = w.one.ask()
    assert (status, body == w.content) == (200, True) and headers["Accept-Ranges"] == "bytes"
    etag, size = headers["ETag"], len(w.content)
    status, headers, body = w.one.ask("HEAD")
    assert (status, body, headers["Content-Length"], headers["ETag"]) == (200, b"", str(size), etag)
    draw = random.Random(7)
    for _ in range(30):
        first, last = sorted(draw.randrange(size) for _ in range(2))
        last = min(last, first + draw.choice((0, 5000, 3 << 20)))
        status, headers, body = w.one.ask(Range=f"bytes={first}-{last}", If_Range=etag)
        assert status == 206 and body == w.content[first:last + 1] and headers["Content-Range"] == f"bytes {first}-{last}/{size}"
    assert w.one.ask(Range="bytes=-7")[2] == w.content[-7:]
    status, headers, _ = w.one.ask(Range=f"bytes={size}-")
    assert status == 416 and headers["Content-Range"] == f"bytes */{size}"
    assert w.one.ask(Range="bytes=1-2", If_Range='"other"')[0] == 200
    assert w.one.ask(If_None_Match=etag)[0] == 304
    assert w.one.ask(path="/v2/models/nobody/package")[0] == 404
    assert w.one.ask(path="/v2/models/resnet18/versions/9/package")[0] == 404
    assert w.one.ask(path="/v2/models/resnet18/versions/1/package", Range="bytes=0-9")[2] == w.content[:10]
    assert w.one.ask("POST")[0] == 405


def a_connection_goes_on(w):
    connection = http.client.HTTPConnection("127.0.0.1", w.one.port, timeout=LIMIT_S)
    for first in (0, 1 << 20, 5):
        connection.request("GET", PATH, headers={"Range": f"bytes={first}-{first + (2 << 20)}"})
        assert connection.getresponse().read() == w.content[first:first + (2 << 20) + 1]
    connection.request("GET", "/v2/health/live")
    assert connection.getresponse().status == 200


def another_server_serves_from_it(w):
    os.makedirs(w.folder + "/cache")
    two = Server(w.folder, "two", "--fetch-to", w.folder + "/cache", models=False)
    try:
        two.run("models", "load", w.one.url, "--name", "resnet18")
        assert two.infer("resnet18") == w.one.infer("resnet18")
        assert two.ask()[2] == w.content  # which is a peer itself then
    finally:
        two.stop()


def a_killed_peer_makes_way(w):
    """The first peer is killed while its client waits: the fetch goes on at the second."""
    first = Server(w.folder, "first")
    held = first.slow_client()
    fetch = subprocess.Popen([BINARY, "fetch", first.url, w.one.url, "-o", w.folder + "/out", "--tries", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while fetch.poll() is None and not (os.path.exists(w.folder + "/out.part") and os.path.getsize(w.folder + "/out.part")):
        time.sleep(0.001)
    first.process.kill()
    first.process.wait()
    held.close()
    assert fetch.wait(LIMIT_S) == 0, fetch.stderr.read()
    with open(w.folder + "/out", "rb") as file:
        assert file.read() == w.content


def slow_clients_are_bounded(w):
    clients = [w.one.slow_client() for _ in range(16)]
    time.sleep(0.3)
    status, _, body = w.one.ask()
    assert status == 503 and b"at most 16" in body, (status, body[:200])
    begun = time.monotonic()
    assert len(w.one.infer("resnet18")) == 1000 and time.monotonic() - begun < 20  # nobody else waits for them
    for client in clients:
        client.close()
    deadline = time.monotonic() + LIMIT_S
    while w.one.ask("HEAD")[0] != 200:
        assert time.monotonic() < deadline, "a client that is gone keeps its place"
        time.sleep(0.05)


def an_unloaded_model_is_sent_to_its_end(w):
    three = Server(w.folder, "three", "--model-control", "explicit", "--load-model", "resnet18")
    try:
        client = three.slow_client()
        time.sleep(0.2)
        assert three.ask("POST", "/v2/repository/models/resnet18/unload")[0] == 200
        assert three.ask()[0] == 404
        answer = http.client.HTTPResponse(client)
        answer.begin()
        assert answer.read() == w.content
        client.close()
    finally:
        three.stop()


def a_token_decides(w):
    with open(w.folder + "/tokens", "w", encoding="utf-8") as out:
        out.write(f"reader {'r' * 40} infer\nloader {'l' * 40} models\n")
    os.chmod(w.folder + "/tokens", 0o600)
    four = Server(w.folder, "four", "--token-file", w.folder + "/tokens")
    try:
        assert four.ask()[0] == 401
        assert four.ask(Authorization="Bearer " + "r" * 40)[0] == 403
        assert four.ask(Authorization="Bearer " + "l" * 40, Range="bytes=0-9")[2] == w.content[:10]
    finally:
        four.stop()


def main():
    folder = tempfile.mkdtemp(prefix="peer_")
    world = World(folder)
    try:
        failed = run_tests((ranges_and_tags, a_connection_goes_on, another_server_serves_from_it, a_killed_peer_makes_way, slow_clients_are_bounded, an_unloaded_model_is_sent_to_its_end,
                     a_token_decides), world)
    finally:
        world.one.stop()
        shutil.rmtree(folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
