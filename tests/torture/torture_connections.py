"""Thousands of open connections on loopback: what each costs the server, what those beyond the limit are told, and what another client notices of them."""
import resource
import select
import shutil
import socket
import tempfile
import time

import torture_clients as clients
import torture_report as report
import torture_server as server_of

BEYOND = 200  # connections more than the server takes
ASK = b"GET /v2/health/live HTTP/1.1\r\nHost: here\r\n\r\n"
ONE_IN_BATCH = 250  # a listener's backlog holds so many


def answer_of(wire, seconds=20):
    """The status code; 0: closed without one."""
    wire.settimeout(seconds)
    said = b""
    while b"\r\n" not in said:
        more = wire.recv(4096)
        if not more:
            return 0, said
        said += more
    return int(said.split(b" ", 2)[1]), said


def connect(port, n):
    """So many connections, opened in batches; each has asked once. (sockets that were answered 200, answers of the others)"""
    good, others = [], []
    for begun in range(0, n, ONE_IN_BATCH):
        batch = []
        for _ in range(min(ONE_IN_BATCH, n - begun)):
            wire = socket.create_connection(("127.0.0.1", port), 20)
            batch.append(wire)
            try:
                wire.sendall(ASK)
            except OSError:  # it was refused, and its answer is there all the same
                pass
        for wire in batch:
            try:
                code, said = answer_of(wire)
            except OSError as error:
                code, said = 0, repr(error).encode()
            if code == 200:
                good.append(wire)
            else:
                others.append((code, said))
                wire.close()
    return good, others


def latencies(server, question, n):
    """Milliseconds of so many requests of one client; a wrong or missing answer ends the run."""
    client, times = clients.Http(server), []
    try:
        for _ in range(n):
            begun = time.monotonic()
            outputs, _ = client.ask(question)
            times.append(1e3 * (time.monotonic() - begun))
            assert question.is_right(outputs), "a wrong answer beside many connections"
    finally:
        client.close()
    return times


def dropped(wires):
    """Connections that the server has closed."""
    gone = 0
    poll = select.poll()
    for wire in wires:
        poll.register(wire, select.POLLIN | select.POLLRDHUP)
    for _, what in poll.poll(0):
        gone += bool(what & (select.POLLRDHUP | select.POLLHUP | select.POLLERR))
    return gone


def measure(o):
    n, folder = o.connections, tempfile.mkdtemp(prefix="switchyard-connections-")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < n + BEYOND + 300:
        raise SystemExit(f"--connections {n} needs {n + BEYOND + 300} descriptors, the limit is {hard}: raise it (ulimit -n)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    server = server_of.Server(o.build, folder, ["--models", server_of.make_models(o.build), "--device", "host", "--pool-bytes", "128M", "--http-connections", n + 2, "--http-idle", 600])
    if not server.start():
        raise SystemExit(server.words()[-2000:])
    wires = []
    try:
        question = next(q for q in server_of.ask_idle(server, o.seed, 1) if q.model == "mlp")
        latencies(server, question, 200)
        alone = latencies(server, question, o.asks)
        before = server_of.held_by(server.pid)
        begun = time.monotonic()
        wires, refused = connect(server.http, n)
        seconds = time.monotonic() - begun
        beside = latencies(server, question, o.asks)
        full = server_of.held_by(server.pid)
        more, beyond = connect(server.http, BEYOND)
        lost = dropped(wires)
        wires += more
        for wire in wires:
            wire.close()
        wires = []
        end = time.monotonic() + 20
        while server_of.held_by(server.pid)[1] > before[1] + 8 and time.monotonic() < end:
            time.sleep(0.05)
        after = server_of.held_by(server.pid)
        right = latencies(server, question, 50)
    finally:
        for wire in wires:
            wire.close()
        code = server.end()
        shutil.rmtree(folder, ignore_errors=True)
    in_words = sum(code == 503 and b"connections" in said for code, said in beyond)
    q = report.quantile
    return [report.row(f"of {n} connections, answered", n - len(refused), "==", n, n, seconds=seconds),
            report.row("of these, closed by the server while others came", lost, "==", 0, n),
            report.row("connections beyond the limit refused in words (503), share", in_words / max(len(beyond), 1), "==", 1, len(beyond)),
            report.row("connections beyond the limit that were refused", len(beyond), ">=", BEYOND - 2, BEYOND),
            report.row("memory of the runtime for a connection, bytes", (full[0] - before[0]) / n, "<=", 16384, n),
            report.row("descriptors left when all have closed", after[1] - before[1], "<=", 8, n),
            report.row("another client's p99 beside them, ms", q(beside, 0.99), "<=", 1.5 * q(alone, 0.99), len(beside), baseline=q(alone, 0.99)),
            report.row("its p50, ms", q(beside, 0.5), "<=", 1.5 * q(alone, 0.5), len(beside), baseline=q(alone, 0.5)),
            report.row("right answers afterwards", len(right), "==", 50, 50),
            report.row("exit code", code, "==", 0, 1)]
