#!/usr/bin/env python3
"""`switchyard fetch` against registries that behave and that do not: ranges, resume after a kill, connections that break, content that changes, wrong hashes, secrets in URLs. Run by
`make test`; prints a line a test."""
import gzip
import hashlib
import http.server
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

from checks import run_tests

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BINARY = os.path.join(ROOT, os.environ.get("SY_BINARY", "build/switchyard"))
DATA = random.Random(1).randbytes(3 << 20)
OTHER = random.Random(2).randbytes(2 << 20)


class QuietServer(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        """A client that was killed is part of the test."""


class Registry(http.server.BaseHTTPRequestHandler):
    """What it does is set by the test: content, etag, break_after (bytes of an answer), ranges, if_range, status, slow, coding, on_break (called after it)."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        s = self.server
        s.seen.append((self.path, self.headers.get("Range"), self.headers.get("If-Range")))
        s.codings.append(self.headers.get("Accept-Encoding"))
        if s.status:
            self.send_response(s.status)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        start, has_range = 0, s.ranges and self.headers.get("Range") and (not s.if_range or self.headers.get("If-Range") == s.etag)
        if has_range:
            start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
        if has_range and start >= len(s.content):
            self.send_response(416)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = s.content[start:]
        self.send_response(206 if has_range else 200)
        if s.etag:
            self.send_header("ETag", s.etag)
        if s.coding:
            self.send_header("Content-Encoding", s.coding)
        if has_range:
            self.send_header("Content-Range", f"bytes {start}-{len(s.content) - 1}/{len(s.content)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        for at in range(0, len(body), 65536):
            if s.break_after is not None and at >= s.break_after:
                self.close_connection = True
                s.on_break(s)
                return
            try:
                self.wfile.write(body[at:at + 65536])
            except OSError:
                return
            time.sleep(s.slow)

    def log_message(self, *args):
        pass


class Case:
    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="fetch_check_")
        self.server = QuietServer(("127.0.0.1", 0), Registry)
        self.server.__dict__.update(content=DATA, etag='"one"', break_after=None, ranges=True, if_range=True, status=0, slow=0, seen=[], coding=None, codings=[],
                                    on_break=lambda s: None)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.file = self.folder + "/model.sypkg"
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        shutil.rmtree(self.folder)

    def command(self, *more, path="/models/model.sypkg"):
        return [BINARY, "fetch", f"http://127.0.0.1:{self.server.server_port}{path}", "-o", self.file, *more]

    def fetch(self, *more, **how):
        return subprocess.run(self.command(*more, **how), capture_output=True, text=True, timeout=120, check=False)

    def assert_there(self, content=DATA):
        assert open(self.file, "rb").read() == content, "other bytes than the registry has"
        assert os.listdir(self.folder) == ["model.sypkg"], os.listdir(self.folder)


def a_file_comes_whole():
    with Case() as c:
        done = c.fetch("--sha256", hashlib.sha256(DATA).hexdigest().upper())
        assert done.returncode == 0, done.stderr
        assert hashlib.sha256(DATA).hexdigest() in done.stdout
        c.assert_there()


def broken_connections_go_on_where_they_stood():
    with Case() as c:
        c.server.break_after = 1 << 20
        done = c.fetch()
        assert done.returncode == 0, done.stderr
        c.assert_there()
        starts = [int(r.removeprefix("bytes=").rstrip("-")) if r else 0 for _, r, _ in c.server.seen]
        assert starts == sorted(set(starts)) and len(starts) >= 3, starts  # each further than the last


def a_killed_fetch_is_resumed():
    with Case() as c:
        c.server.slow = 0.02
        process = subprocess.Popen(c.command(), stdout=subprocess.DEVNULL)
        while not os.path.exists(c.file + ".part") or os.path.getsize(c.file + ".part") < 200000:
            time.sleep(0.01)
        process.kill()
        process.wait()
        assert not os.path.exists(c.file)
        c.server.slow = 0
        done = c.fetch("--sha256", hashlib.sha256(DATA).hexdigest())
        assert done.returncode == 0 and "of them were there" in done.stdout, done.stdout + done.stderr
        c.assert_there()


def changed_content_is_read_from_the_start(if_range=True):
    with Case() as c:
        c.server.if_range = if_range
        c.server.break_after = 1 << 20
        c.server.slow, first = 0.02, c.command()
        process = subprocess.Popen(first, stdout=subprocess.DEVNULL)
        while not os.path.exists(c.file + ".part") or os.path.getsize(c.file + ".part") < 65536:
            time.sleep(0.002)
        process.kill()
        process.wait()
        c.server.content, c.server.etag, c.server.break_after = OTHER, '"two"', None
        c.server.slow = 0
        assert c.fetch().returncode == 0
        c.assert_there(OTHER)


def changed_content_of_a_registry_that_ignores_if_range():
    changed_content_is_read_from_the_start(if_range=False)


def bytes_of_changed_content_are_progress():
    def change(s):
        s.content, s.etag, s.break_after = OTHER, '"two"', 256 << 10

    for had, if_range in ((40 << 16, True), (40 << 16, False), (1 << 20, False)):  # 200; 416, for the other one is shorter; 206 with another ETag
        with Case() as c:
            c.server.break_after, c.server.if_range, c.server.on_break = had, if_range, change
            done = c.fetch("--tries", "2")
            assert done.returncode == 0, (had, if_range, done.stderr)
            c.assert_there(OTHER)


def content_that_always_changes_is_given_up():
    def change(s):
        s.etag = f'"{len(s.seen)}"'

    with Case() as c:
        c.server.break_after, c.server.on_break = 128 << 10, change
        assert c.fetch("--tries", "2").returncode == 1
        assert len(c.server.seen) == 1 + 5 + 2, c.server.seen


def a_registry_without_ranges_is_read_again():
    with Case() as c:
        c.server.ranges = False
        c.server.break_after = 1 << 20
        threading.Timer(1.0, lambda: c.server.__dict__.update(break_after=None)).start()
        done = c.fetch("--tries", "50")
        assert done.returncode == 0, done.stderr
        c.assert_there()


def a_wrong_hash_leaves_nothing():
    with Case() as c:
        done = c.fetch("--sha256", "0" * 64)
        assert done.returncode == 1 and "its SHA-256 is" in done.stderr, done.stderr
        assert os.listdir(c.folder) == []


def refusals_are_final_and_name_no_secret():
    with Case() as c:
        for status, tries in ((404, 1), (403, 1), (503, 2), (204, 1), (302, 1)):  # the last two: no content, a redirect to nowhere
            c.server.status, c.server.seen[:] = status, []
            done = c.fetch("--tries", "2", path="/a/model.sypkg?X-Amz-Signature=SECRET")
            assert done.returncode == 1 and str(status) in done.stderr and "SECRET" not in done.stderr + done.stdout, done.stderr
            assert len(c.server.seen) == tries, (status, c.server.seen)
            assert "SECRET" in c.server.seen[0][0] and not os.path.exists(c.file)


def coded_bytes_need_their_hash():
    with Case() as c:
        c.server.coding, c.server.content = "gzip", gzip.compress(DATA[:100000])
        done = c.fetch()
        assert done.returncode == 1 and "Content-Encoding: gzip" in done.stderr and os.listdir(c.folder) == [], done.stderr
        assert c.server.codings == ["identity"], c.server.codings
        assert c.fetch("--sha256", hashlib.sha256(c.server.content).hexdigest()).returncode == 0
        c.assert_there(c.server.content)


def limits_hold():
    with Case() as c:
        done = c.fetch("--max-bytes", "1M")
        assert done.returncode == 1 and "more than 1000000 bytes" in done.stderr, done.stderr
        for wrong in (["fetch"], ["fetch", "file:///etc/passwd"], ["fetch", "ftp://a/b"], ["fetch", "http://a/", ], ["fetch", "http://a/b", "--sha256", "12"],
                      ["fetch", "http://a/b", "c"], ["fetch", "http://a/b", "--stall", "0"]):
            done = subprocess.run([BINARY] + wrong, capture_output=True, text=True, timeout=60, cwd=c.folder, check=False)
            assert done.returncode in (1, 2) and done.stderr.count("\n") == 1, (wrong, done.stderr)
        assert not [n for n in os.listdir(c.folder) if not n.startswith("model.sypkg")]


def main():
    failed = run_tests((a_file_comes_whole, broken_connections_go_on_where_they_stood, a_killed_fetch_is_resumed, changed_content_is_read_from_the_start,
                 changed_content_of_a_registry_that_ignores_if_range, bytes_of_changed_content_are_progress, content_that_always_changes_is_given_up,
                 a_registry_without_ranges_is_read_again, a_wrong_hash_leaves_nothing, coded_bytes_need_their_hash, refusals_are_final_and_name_no_secret, limits_hold))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
