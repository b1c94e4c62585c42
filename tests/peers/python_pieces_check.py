#!/usr/bin/env python3
"""The Python package reads long answers over TCP in few pieces, however they come."""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VENV = os.path.join(ROOT, "build/venv/bin/python")
if os.path.exists(VENV) and os.path.abspath(sys.executable) != VENV and "SY_IN_VENV" not in os.environ:
    os.execve(VENV, [VENV, *sys.argv], dict(os.environ, SY_IN_VENV="1"))

import socket  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402
from checks import run_tests, tests_of  # noqa: E402

try:
    import msgpack
    import numpy as np
except ImportError as error:
    print(f"skipped: {error}; make venv installs it")
    sys.exit(77)

sys.path.insert(0, os.path.join(ROOT, "runtime/python"))
import switchyard  # noqa: E402


def answer_in_pieces(listener, x):
    """A server that answers each call with x: a quarter at once, the rest slowly, in pieces of 4 KiB."""
    peer, _ = listener.accept()
    with peer:
        for _ in range(2):
            call = msgpack.unpackb(peer.recv(4096))
            row = {"name": "y", "dtype": "FP32", "shape": list(x.shape), "data": x.tobytes()}
            answer = msgpack.packb([1, call[1], None, {"outputs": [row]}])
            quick = len(answer) // 4
            peer.sendall(answer[:quick])
            for at in range(quick, len(answer), 4096):
                time.sleep(0.0005)
                peer.sendall(answer[at:at + 4096])


def test_long_answers_are_read_in_few_pieces():
    """Over TCP, of lengths around a multiple of what is waited for; the end of one answer leaves the next call nothing to wait for."""
    for n in (1 << 18, (1 << 18) + 1, 3 << 17):
        x = np.arange(n, dtype=np.float32)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = threading.Thread(target=answer_in_pieces, args=(listener, x))
            server.start()
            with switchyard.Client(f"tcp:127.0.0.1:{listener.getsockname()[1]}") as client:
                fills, fill = [], client._wire._fill
                client._wire._fill = lambda long: fills.append(1) or fill(long)
                for _ in range(2):
                    row = client._call("ping", {})["outputs"][0]
                    assert np.array_equal(row["data"].view(np.float32), x)
                assert 0 < len(fills) < 40, len(fills)  # of 384 pieces and more
            server.join()


if __name__ == "__main__":
    sys.exit(1 if run_tests(tests_of(globals())) else 0)
