#!/usr/bin/env python3
"""SIGTERM while answers are on their way: a client that reads late gets all of its answer, one that never reads keeps nobody waiting for long.

    SY_BINARY=build/switchyard drain_check.py
"""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

BINARY = os.environ.get("SY_BINARY", "build/switchyard")
ROWS = 250000  # an answer of 9 MB: more than sockets hold


def start(folder):
    process = subprocess.Popen([BINARY, "serve", "--models", f"{folder}/models", "--socket", f"{folder}/s", "--http", "127.0.0.1:0", "--grpc", "off", "--metrics", "off",
                                "--device", "host", "--pool-bytes", "64M", "--workers", "2"], stdout=subprocess.PIPE, stderr=open(f"{folder}/log", "wb"))
    assert process.stdout.readline() == b"ready\n", open(f"{folder}/log", encoding="utf-8").read()
    with open(f"{folder}/log", encoding="utf-8") as log:
        return process, int(re.search(r"what=http port=(\d+)", log.read()).group(1))


def ask(port):
    """A connection whose answer has begun, and what was read of it."""
    body = json.dumps({"inputs": [{"name": "input", "shape": [ROWS, 4], "datatype": "FP32", "data": [0.123456] * (4 * ROWS)}]}).encode()
    wire = socket.socket()
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    wire.connect(("127.0.0.1", port))
    wire.settimeout(60)
    wire.sendall(b"POST /v2/models/identity/infer HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    return wire, wire.recv(2048)


def read_rest(wire, read):
    while True:
        part = wire.recv(65536)
        if not part:
            return read
        read += part


def check_late_reader(folder):
    process, port = start(folder)
    wire, read = ask(port)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    head, _, body = read_rest(wire, read).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    length = int(re.search(rb"content-length: (\d+)", head, re.I).group(1))
    assert len(body) == length, f"{len(body)} bytes of an answer of {length}"
    assert len(json.loads(body)["outputs"][0]["data"]) == 4 * ROWS
    assert process.wait(60) == 0


def check_no_reader(folder):
    process, port = start(folder)
    wires = [ask(port)[0] for _ in range(2)]
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    with open(f"{folder}/log", encoding="utf-8") as log:
        assert "event=answers_cut" in log.read()
    for wire in wires:
        wire.close()


def main():
    folder = tempfile.mkdtemp(prefix="drain")
    try:
        subprocess.run([os.path.join(os.path.dirname(BINARY), "make-models"), "--out", f"{folder}/models", "identity"], check=True, stdout=subprocess.DEVNULL)
        check_late_reader(folder)
        check_no_reader(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("[       OK ] drain_check")
    return 0


if __name__ == "__main__":
    sys.exit(main())
