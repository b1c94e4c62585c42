#!/usr/bin/env python3
"""Packages that are served while they are fetched (`serve --fetch-to`), from registries that behave and that do not: every answer is right or a refusal with a reason, and none waits for
ever. Run by `make test`; prints a line a test."""
import fcntl
import hashlib
import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VENV = os.path.join(ROOT, "build/venv/bin/python")
if os.path.exists(VENV) and os.path.realpath(sys.prefix) != os.path.realpath(os.path.join(ROOT, "build/venv")):
    os.execv(VENV, [VENV, *sys.argv])

import numpy as np  # noqa: E402
import onnx  # noqa: E402
from checks import run_tests  # noqa: E402

BINARY = os.path.abspath(os.environ.get("SY_BINARY", os.path.join(ROOT, "build/switchyard")))
WIDTH, LAYERS = 256, 12
LIMIT_S = 60


def make_model(path, seed):
    """LAYERS products behind each other; what it computes, by numpy."""
    draw = np.random.default_rng(seed)
    weights = [(draw.standard_normal((WIDTH, WIDTH)) / 16).astype(np.float32) for _ in range(LAYERS)]
    nodes = [onnx.helper.make_node("MatMul", [f"t{i}", f"w{i}"], [f"t{i + 1}"]) for i in range(LAYERS)]
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", WIDTH]) for name in ("t0", f"t{LAYERS}")]
    graph = onnx.helper.make_graph(nodes, "chain", ends[:1], ends[1:], [onnx.numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)

    def compute(x):
        for w in weights:
            x = x.astype(np.float64) @ w
        return x
    return compute


class Registry(http.server.BaseHTTPRequestHandler):
    """What it does is set by the test."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        s = self.server
        s.seen.append((self.path, self.headers.get("Range")))
        start, asked = 0, self.headers.get("Range")
        status = s.status or (s.status_next if len(s.seen) > 1 else 0)
        if status:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if asked and s.ranges and self.headers.get("If-Range") in (None, s.etag):
            start = int(asked.removeprefix("bytes=").rstrip("-"))
        if start >= len(s.content) > 0 and start > 0:
            self.send_response(416)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = s.content[start:]
        self.send_response(206 if start else 200)
        if s.etag:
            self.send_header("ETag", s.etag)
        if s.coding:
            self.send_header("Content-Encoding", s.coding)
        if start:
            self.send_header("Content-Range", f"bytes {start + s.range_lie}-{len(s.content) - 1}/{len(s.content)}")
        self.send_header("Content-Length", str(len(body) + s.length_lie))
        self.end_headers()
        self.give(start, body)

    def give(self, start, body):
        s, step = self.server, 16384
        for at in range(0, len(body), step):
            if s.stall_at is not None and start + at >= s.stall_at:
                s.released.wait(LIMIT_S)
                self.close_connection = True
                return
            if s.close_at is not None and at >= s.close_at:
                self.close_connection = True
                return
            try:
                self.wfile.write(body[at:at + step])
            except OSError:
                return
            if s.rate:
                time.sleep(step / s.rate)
        if s.length_lie > 0:
            self.close_connection = True

    def log_message(self, *args):
        pass


class QuietServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """A client that was killed is part of the test."""


class Source:
    def __init__(self, content, **how):
        self.server = QuietServer(("127.0.0.1", 0), Registry)
        self.server.__dict__.update(content=content, etag='"one"', ranges=True, status=0, status_next=0, coding=None, rate=0, stall_at=None, close_at=None, length_lie=0, range_lie=0, seen=[],
                                    released=threading.Event())
        self.server.__dict__.update(how)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/models/chain.sypkg"

    def close(self):
        self.server.released.set()
        self.server.shutdown()
        self.server.server_close()


def until(what, seconds=20):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.01)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Node:
    """A server that fetches."""

    def __init__(self, folder, *more):
        self.folder, self.cache, self.socket = folder, os.path.join(folder, "cache"), os.path.join(folder, "s")
        os.makedirs(self.cache, exist_ok=True)
        self.port = free_port()
        with open(os.path.join(folder, "log"), "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([BINARY, "serve", "--socket", self.socket, "--http", f"127.0.0.1:{self.port}", "--grpc", "off", "--metrics", "off", "--pool-bytes", "64M",
                                             "--slab-bytes", "16M", "--fetch-to", self.cache, "--fetch-stall", "1", *more],
                                            stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout.readline() == "ready\n", self.log()

    def log(self):
        with open(os.path.join(self.folder, "log"), encoding="utf-8") as text:
            return text.read()

    def load(self, *urls, name="chain"):
        more = [word for url in urls[1:] for word in ("--from", url)]
        return subprocess.run([BINARY, "models", "load", urls[0], *more, "--name", name, "--socket", self.socket], capture_output=True, text=True, timeout=LIMIT_S, check=False)

    def unload(self, name="chain"):
        subprocess.run([BINARY, "models", "unload", name, "--socket", self.socket], capture_output=True, text=True, timeout=LIMIT_S, check=False)

    def models(self):
        done = subprocess.run([BINARY, "models", "--socket", self.socket], capture_output=True, text=True, timeout=LIMIT_S, check=True)
        return done.stdout

    def ask(self, x, name="chain", timeout_us=None):
        """(status, tensor or text)"""
        body = {"inputs": [{"name": "t0", "shape": list(x.shape), "datatype": "FP32", "data": x.ravel().tolist()}]}
        if timeout_us:
            body["parameters"] = {"timeout": timeout_us}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v2/models/{name}/infer", json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
                return answer.status, np.array(json.load(answer)["outputs"][0]["data"]).reshape(x.shape)
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.process.stdout.close()
        return self.process.returncode


class Case:
    """The package, a server, and what a test's sources are of."""

    def __init__(self, folder):
        self.folder = folder
        self.compute = make_model(os.path.join(folder, "chain.onnx"), 1)
        self.content = self.package("chain")
        make_model(os.path.join(folder, "other.onnx"), 2)
        self.other = self.package("other")
        self.x = np.random.default_rng(3).standard_normal((1, WIDTH)).astype(np.float32)
        self.node = Node(folder)

    def package(self, name):
        path = os.path.join(self.folder, name + ".sypkg")
        subprocess.run([BINARY, "import", os.path.join(self.folder, name + ".onnx"), "-o", path, "--no-profile"], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        with open(path, "rb") as file:
            return file.read()

    def assert_right(self, answer):
        status, got = answer
        assert status == 200, answer
        want = self.compute(self.x)
        assert np.allclose(got, want, rtol=1e-3, atol=1e-3 * np.abs(want).max()), "a wrong answer"

    def clean(self):
        """The model gone, its fetch ended, the folder empty."""
        self.node.unload()
        deadline = time.monotonic() + 10
        while " fetch " in subprocess.run(["ps", "--ppid", str(self.node.process.pid), "-o", "args"], capture_output=True, text=True, check=False).stdout:
            assert time.monotonic() < deadline, "a fetch outlives its model"
            time.sleep(0.02)
        for name in os.listdir(self.node.cache):
            os.unlink(os.path.join(self.node.cache, name))

    def refused(self, source, *more):
        """Loads from a source that fails later; the request that waits for it, and the next: both refused."""
        loaded = self.node.load(source.url, *more)
        if loaded.returncode != 0:
            return loaded.stderr
        first = self.node.ask(self.x)
        second = self.node.ask(self.x)
        assert first[0] != 200 and second[0] != 200, (first[0], second[0])
        assert "unavailable" in self.node.models(), self.node.models()
        return first[1] + second[1]


def requests_are_answered_once_all_is_there(c):
    source = Source(c.content, rate=len(c.content) / 0.8)
    try:
        begun = time.monotonic()
        loaded = c.node.load(source.url)
        ready = time.monotonic() - begun
        assert loaded.returncode == 0, loaded.stderr
        assert "arrived" in json.dumps(json.loads(subprocess.run([BINARY, "status", "--json", "--socket", c.node.socket], capture_output=True, text=True, check=True).stdout))
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(c.node.ask(c.x))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for answer in answers:
            c.assert_right(answer)
        assert len(answers) == 4 and ready < time.monotonic() - begun
        c.assert_right(c.node.ask(c.x))
        names = os.listdir(c.node.cache)
        assert len(names) == 1 and names[0].endswith(".sypkg"), names
        with open(os.path.join(c.node.cache, names[0]), "rb") as file:
            assert file.read() == c.content
    finally:
        source.close()


def another_model_is_served_meanwhile(c):
    slow, fast = Source(c.content, rate=len(c.content) / 3), Source(c.other, etag='"two"')
    try:
        assert c.node.load(slow.url).returncode == 0
        waiting = []
        thread = threading.Thread(target=lambda: waiting.append(c.node.ask(c.x)))
        thread.start()
        assert c.node.load(fast.url.replace("chain", "other"), name="other").returncode == 0
        for _ in range(5):
            assert c.node.ask(c.x, name="other")[0] == 200
        c.node.unload("other")  # it sends nobody else's requests
        assert c.node.load(fast.url.replace("chain", "other"), name="other").returncode == 0
        assert c.node.ask(c.x, name="other")[0] == 200
        assert not waiting, "the device waited for the network"
        thread.join()
        c.assert_right(waiting[0])
    finally:
        c.node.unload("other")
        slow.close()
        fast.close()


def a_short_package_is_whole_before_it_is_heard_of(c):
    """The server is stopped from its fetch's first request until the file has its name."""
    source = Source(c.content, stall_at=0)
    loaded = []
    thread = threading.Thread(target=lambda: loaded.append(c.node.load(source.url)))
    try:
        thread.start()
        until(lambda: source.server.seen)
        os.kill(c.node.process.pid, signal.SIGSTOP)
        source.server.stall_at = None
        source.server.released.set()
        until(lambda: any(name.endswith(".sypkg") for name in os.listdir(c.node.cache)))
    finally:
        os.kill(c.node.process.pid, signal.SIGCONT)
        thread.join()
        source.close()
    assert loaded[0].returncode == 0, loaded[0].stderr
    c.assert_right(c.node.ask(c.x))


def a_stall_ends_in_words(c):
    source = Source(c.content, stall_at=len(c.content) // 2)
    try:
        begun = time.monotonic()
        said = c.refused(source)
        assert time.monotonic() - begun < 20, "too long"
        assert "nothing came for" in said, said
    finally:
        source.close()


def a_connection_that_ends_early_goes_on(c):
    source = Source(c.content, close_at=len(c.content) // 3, rate=len(c.content) / 0.5)
    try:
        assert c.node.load(source.url).returncode == 0
        c.assert_right(c.node.ask(c.x))
        starts = [int(r.removeprefix("bytes=").rstrip("-")) if r else 0 for _, r in source.server.seen]
        assert len(starts) >= 3 and starts == sorted(set(starts)), starts
    finally:
        source.close()


def a_file_that_is_cut_ends_in_words(c):
    source = Source(c.content[:len(c.content) // 2])
    try:
        said = c.refused(source)
        assert "ends after" in said or "416" in said, said
    finally:
        source.close()


def lengths_that_lie_end_in_words(c):
    for lie in (4096, -4096):
        source = Source(c.content, length_lie=lie)
        try:
            loaded = c.node.load(source.url)
            answer = c.node.ask(c.x) if loaded.returncode == 0 else None
            if lie > 0 and answer and answer[0] == 200:
                c.assert_right(answer)  # all of the package came
            elif answer:
                assert answer[0] != 200 and len(answer[1]) > 20, answer
        finally:
            source.close()
            c.clean()


def wrong_bytes_are_never_computed_with(c):
    broken = bytearray(c.content)
    broken[len(broken) * 2 // 3] ^= 1
    source, good = Source(bytes(broken), rate=len(broken) / 0.5), Source(c.content)
    try:
        said = c.refused(source)
        assert "hash mismatch" in said and "layer" in said, said
        c.clean()
        loaded = c.node.load(source.url, good.url)  # the next source has it right
        assert loaded.returncode == 0, loaded.stderr
        c.assert_right(c.node.ask(c.x))
        assert any(r for _, r in good.server.seen), "it went on where the first one was right"
    finally:
        source.close()
        good.close()


def wrong_heads_are_refused(c):
    for at in (3, 30, 5000):
        broken = bytearray(c.content)
        broken[at] ^= 1
        source = Source(bytes(broken))
        try:
            loaded = c.node.load(source.url)
            assert loaded.returncode == 1 and len(loaded.stderr) > 20, loaded.stderr
            assert c.node.ask(c.x)[0] == 404
            assert os.listdir(c.node.cache) == [], os.listdir(c.node.cache)
        finally:
            source.close()


def answers_without_a_package_leave_nothing(c):
    for how, says in (({"content": b""}, "not a Switchyard package"), ({"status": 302}, "says 302"), ({"status": 204}, "says 204"),
                      ({"coding": "gzip"}, "Content-Encoding: gzip")):
        source = Source(**{"content": c.content, **how})
        try:
            loaded = c.node.load(source.url)
            assert loaded.returncode == 1 and says in loaded.stderr, (how, loaded.stderr)
            assert os.listdir(c.node.cache) == [], (how, os.listdir(c.node.cache))
        finally:
            source.close()


def fetch_of(c):
    """The state of the server's fetch, as ps says; "": none."""
    return subprocess.run(["ps", "--ppid", str(c.node.process.pid), "-o", "stat=,args="], capture_output=True, text=True, check=False).stdout


def a_fetch_that_fails_before_its_head_is_read_says_why(c):
    """The server is stopped from its fetch's first request until that has failed."""
    broken = bytearray(c.content)
    broken[len(broken) * 2 // 3] ^= 1
    source = Source(bytes(broken), stall_at=0)
    said = []
    thread = threading.Thread(target=lambda: said.append(c.refused(source)))
    try:
        thread.start()
        until(lambda: source.server.seen)
        os.kill(c.node.process.pid, signal.SIGSTOP)
        source.server.stall_at = None
        source.server.released.set()
        until(lambda: "Z" in [line.split()[0][0] for line in fetch_of(c).splitlines()])
    finally:
        os.kill(c.node.process.pid, signal.SIGCONT)
        thread.join()
        source.close()
    assert "hash mismatch" in said[0], said


def other_content_under_one_etag_is_read_by_the_next_load(c):
    """Layers of an earlier try that the rest does not fit are in nobody's way for long."""
    source = Source(c.content, close_at=len(c.content) * 5 // 6, rate=len(c.content) / 0.5)
    try:
        source.server.status_next = 503  # from its second request on
        c.refused(source)
        source.server.__dict__.update(content=c.other, status_next=0, close_at=None, rate=0)
        c.node.unload()
        source.server.seen.clear()
        said = c.refused(source)
        assert "hash mismatch" in said, said
        resumed = int(source.server.seen[0][1].removeprefix("bytes=").rstrip("-"))
        assert resumed >= len(c.content) * 5 // 6 - 2 * 4 * WIDTH * WIDTH, resumed  # but for two layers
        c.node.unload()
        loaded = c.node.load(source.url)
        assert loaded.returncode == 0 and c.node.ask(c.x)[0] == 200, loaded.stderr
    finally:
        source.close()


def a_load_waits_for_the_lock_of_a_fetch_that_ends(c):
    source = Source(c.content, stall_at=len(c.content) // 2)
    try:
        assert c.node.load(source.url).returncode == 0
        part = os.path.join(c.node.cache, next(name for name in os.listdir(c.node.cache) if name.endswith(".part")))
        c.node.unload()
        until(lambda: " fetch " not in fetch_of(c))
        source.server.stall_at = None
        source.server.released.set()
        with open(part, "rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            threading.Timer(0.5, lambda: fcntl.flock(held, fcntl.LOCK_UN)).start()
            loaded = c.node.load(source.url)
        assert loaded.returncode == 0, loaded.stderr
        c.assert_right(c.node.ask(c.x))
    finally:
        source.close()


def a_second_load_joins_the_first(c):
    source = Source(c.content, stall_at=0, rate=len(c.content) / 6)
    loads = []
    threads = [threading.Thread(target=lambda: loads.append(c.node.load(source.url))) for _ in range(2)]
    try:
        for thread in threads:
            thread.start()
        until(lambda: source.server.seen)
        source.server.stall_at = None
        source.server.released.set()
        for thread in threads:
            thread.join()
        other = c.node.load(source.url, name="twin")
        loads.append(c.node.load(source.url))  # the model is there, the rest of its package is not
        assert any(name.endswith(".part") for name in os.listdir(c.node.cache)), "it came too soon"
        assert [load.returncode for load in loads] == [0, 0, 0], loads
        assert other.returncode == 1 and "with another name" in other.stderr, other
        source.server.rate = 0
        c.assert_right(c.node.ask(c.x))
    finally:
        source.close()


def another_content_in_the_middle_is_not_mixed_in(c):
    source, other = Source(c.content, stall_at=len(c.content) // 2), Source(c.other, etag='"two"')
    try:
        said = c.refused(source, other.url)
        assert "hash mismatch" in said or "more bytes" in said, said
    finally:
        source.close()
        other.close()


def no_ranges_no_etag(c):
    source = Source(c.content, ranges=False, etag=None, close_at=len(c.content) // 2, rate=len(c.content) / 0.3)
    threading.Timer(1.0, lambda: source.server.__dict__.update(close_at=None)).start()
    try:
        assert c.node.load(source.url).returncode == 0
        c.assert_right(c.node.ask(c.x))
    finally:
        source.close()


def ranges_that_lie_are_refused(c):
    source = Source(c.content, range_lie=4096, close_at=len(c.content) // 2)
    try:
        said = c.refused(source)
        assert "asked for what follows byte" in said, said
    finally:
        source.close()


def the_whole_hash_decides(c):
    source = Source(c.content)
    right = hashlib.sha256(c.content).hexdigest()
    try:
        loaded = c.node.load(source.url + "#sha256=" + "0" * 64)
        deadline = time.monotonic() + 10
        while loaded.returncode == 0 and "unavailable" not in c.node.models():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert c.node.ask(c.x)[0] != 200 and os.listdir(c.node.cache) == []
        c.clean()
        assert c.node.load(source.url + "#sha256=" + right).returncode == 0
        c.assert_right(c.node.ask(c.x))
        deadline = time.monotonic() + 10
        while not any(name.endswith(".sypkg") for name in os.listdir(c.node.cache)):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        c.node.unload()
        source.server.status = 503  # it is in the folder, and known by its hash
        assert c.node.load(source.url + "#sha256=" + right).returncode == 0
        c.assert_right(c.node.ask(c.x))
        assert c.node.load(source.url + "#sha256=12").returncode == 1
    finally:
        source.close()


def deadlines_and_unloading_do_not_wait(c):
    source = Source(c.content, stall_at=len(c.content) // 2)
    try:
        assert c.node.load(source.url).returncode == 0
        begun = time.monotonic()
        status, text = c.node.ask(c.x, timeout_us=300000)
        assert status != 200 and time.monotonic() - begun < 5, (status, text)
    finally:
        source.close()
    c.clean()
    source = Source(c.content, rate=len(c.content) / 8)
    try:
        assert c.node.load(source.url).returncode == 0
        c.clean()  # its fetch ends
    finally:
        source.close()


def urls_need_a_folder(c):
    folder = tempfile.mkdtemp(dir=c.folder)
    process = subprocess.run([BINARY, "serve", "--socket", folder + "/s", "--http", "off", "--grpc", "off", "--metrics", "off", "--package", "http://127.0.0.1:1/a.sypkg?key=SECRET"],
                             capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert process.returncode != 0 and "--fetch-to" in process.stderr and "SECRET" not in process.stderr, process.stderr
    loaded = c.node.load("http://127.0.0.1:1/a.sypkg?key=SECRET")
    assert loaded.returncode == 1 and "SECRET" not in loaded.stderr + c.node.log(), loaded.stderr


TESTS = (requests_are_answered_once_all_is_there, another_model_is_served_meanwhile, a_short_package_is_whole_before_it_is_heard_of, a_stall_ends_in_words,
         a_connection_that_ends_early_goes_on, a_file_that_is_cut_ends_in_words, lengths_that_lie_end_in_words, wrong_bytes_are_never_computed_with, wrong_heads_are_refused, answers_without_a_package_leave_nothing,
         a_fetch_that_fails_before_its_head_is_read_says_why, other_content_under_one_etag_is_read_by_the_next_load, a_load_waits_for_the_lock_of_a_fetch_that_ends,
         a_second_load_joins_the_first, another_content_in_the_middle_is_not_mixed_in, no_ranges_no_etag,
         ranges_that_lie_are_refused, the_whole_hash_decides, deadlines_and_unloading_do_not_wait, urls_need_a_folder)


def main():
    folder, failed = tempfile.mkdtemp(prefix="stream_check_"), 1
    case = Case(folder)
    try:
        failed = run_tests(TESTS, case, after=lambda passed: case.clean())
    finally:
        code = case.node.close()
        failed += code != 0
        if failed:
            print(case.node.log()[-6000:])
        shutil.rmtree(folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
