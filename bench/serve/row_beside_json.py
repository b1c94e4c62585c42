"""What a body of 100 MB of JSON costs everybody else: small requests at a steady rate on a connection of their own, while one client after the other sends such a body
and reads an answer as long.

The baseline of the same run is the same client beside a server that only counts: the machine has few cores, and sending 100 MB takes part of one.
"""
import multiprocessing
import random
import socket
import threading

import messages
from row_requests import smooth_ms
from served import Served, make_identity, median, must, ask, run_json, without_errors

WIDTH = 10_000_000  # numbers of ten characters: 100 MB of JSON
RATE = 500          # small requests a second
BODIES = 3          # in each round
CONNECTIONS = 64    # one that waits for its answer keeps none of the others back


def large_body():
    dice = random.Random(1)
    block = ",".join(f"{1 + dice.random():.7f}" for _ in range(10_000))
    return f'{{"inputs":[{{"name":"input","datatype":"FP32","shape":[1,{WIDTH}],"data":[{",".join([block] * (WIDTH // 10_000))}]}}]}}'.encode()


def send_bodies(port, request, n, answered):
    """n of them, one after the other on one connection; the length of each answer into the queue."""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as wire:
        for _ in range(n):
            wire.sendall(request)
            answered.put(read_answer(wire))


def read_answer(wire):
    """(status, bytes of the body)."""
    seen = b""
    while b"\r\n\r\n" not in seen:
        more = wire.recv(1 << 20)
        if not more:
            return 0, 0
        seen += more
    head, _, body = seen.partition(b"\r\n\r\n")
    length = int(next(line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")))
    got = len(body)
    while got < length:
        more = wire.recv(1 << 20)
        if not more:
            return 0, got
        got += len(more)
    return int(head.split()[1]), got


class Counter:
    """Takes bodies and answers each with as many bytes: what a server that computes nothing would do."""

    def __init__(self, n_bytes):
        self.n_bytes, self.listener = n_bytes, socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.process = multiprocessing.Process(target=self.run, daemon=True)
        self.process.start()

    def run(self):
        while True:
            wire, _ = self.listener.accept()
            self.answer(wire)
            wire.close()

    def answer(self, wire):
        """Until the client is gone."""
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % self.n_bytes + bytes(self.n_bytes)
        while True:
            left = self.n_bytes
            while left > 0:
                more = wire.recv(1 << 20)
                if not more:
                    return
                left -= len(more)
            wire.sendall(answer)

    def end(self):
        self.process.terminate()
        self.process.join()
        self.listener.close()


def small_while(bench, server, small, port, request, n):
    """What http_load says of the small requests while n bodies go to `port`."""
    answered, found = multiprocessing.Queue(), {}
    sender = multiprocessing.Process(target=send_bodies, args=(port, request, n, answered), daemon=True)
    words = [f"{bench.options.build}/bench/http_load", "127.0.0.1", server.need("http"), "--connections", CONNECTIONS, "--warm-up", 0, "--rate", RATE, "--request", small]

    def load():
        found["told"] = run_json(*words, "--seconds", 2 + 3 * n)
    beside = threading.Thread(target=load)
    beside.start()
    sender.start()
    answers = [answered.get(timeout=120) for _ in range(n)]
    sender.join()
    beside.join()
    for status, _ in answers:
        must(status, b"", "infer with 100 MB of JSON")
    return without_errors(found["told"])


def beside_json(bench):
    large, package = make_identity(bench.options, WIDTH)
    tiny, tiny_package = make_identity(bench.options, 4)
    body = large_body()
    request = messages.http_request(messages.infer_path(large), body, {"Content-Type": "application/json"})
    with Served(bench.options, "--package", package, "--package", tiny_package, "--pool-bytes", "256M", "--slab-bytes", "512M", "--workers", "2") as server:
        small_body = messages.json_body("input", "FP32", [1, 4], [1, 2, 3, 4])
        must(*ask(server.connect(), "POST", messages.infer_path(tiny), small_body)[:2], "infer")
        with open(f"{server.folder.name}/small", "wb") as out:
            out.write(messages.http_request(messages.infer_path(tiny), small_body))
        counter = Counter(len(request))
        try:
            rounds = 1 if bench.options.quick else bench.rounds
            n = 1 if bench.options.quick else BODIES
            beside = [small_while(bench, server, out.name, server.need("http"), request, n) for _ in range(rounds)]
            idle = [small_while(bench, server, out.name, counter.port, request, n) for _ in range(rounds)]
        finally:
            counter.end()
    held, told = [one["max_us"] / 1e3 for one in beside], in_words(beside, idle)
    return {"json_100mb": bench.result(median(held), len(held), told, all=held)}


def in_words(beside, idle):
    """The longest of the requests in whose time the generator had its core stands with their number: the rest waited for the machine, which two processes
    that send 100 MB fill, or for both."""
    def ms(told, key):
        return f"{median([one[key] for one in told]) / 1e3:.2f}"

    def smooth(told):
        return f"{smooth_ms(told, 'smooth_max_us')} (n = {sum(one['smooth_n'] for one in told)} of {sum(one['n'] for one in told)})"
    return (f"longest beside the same bytes to a server that only counts: {ms(idle, 'max_us')} ms; p99 {ms(beside, 'p99_us')} and {ms(idle, 'p99_us')} ms; longest while the "
            f"generator had its core, a lower bound: {smooth(beside)} and {smooth(idle)} ms")
