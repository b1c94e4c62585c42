"""What a thousand open connections that do nothing take of the runtime's memory."""
import socket
import time

import messages
from served import Missing, Served, make_packages, memory_bytes

N = 1000


def open_one(port, request):
    """A connection that has had one answer."""
    connection = socket.create_connection(("127.0.0.1", port), 10)
    connection.sendall(request)
    if b" 200 " not in connection.recv(4096):
        raise Missing("an idle connection's first request was refused")
    return connection


def idle(bench):
    package = make_packages(bench.options, "identity")["identity"]
    request = messages.http_request("/v2/health/live", method="GET")
    with Served(bench.options, "--package", package, "--pool-bytes", "64M") as server:
        port, pid = server.need("http"), server.process.pid
        for one in [open_one(port, request) for _ in range(8)]:  # what any connection needs once
            one.close()
        time.sleep(1)
        before = memory_bytes(pid)
        connections = [open_one(port, request) for _ in range(N)]
        time.sleep(2)
        after = memory_bytes(pid)
        for one in connections:
            one.close()
    return {"idle_1000": bench.result((after - before) / 1e6, N, f"the runtime without them: {before / 1e6:.1f} MB", bytes_each=(after - before) / N)}
