"""Clients that misbehave, beside those that do not: garbage, resets, half closes, floods, readers that do not read, regions that are cut short."""
import http.client
import json
import mmap
import os
import random
import socket
import struct
import threading
import time

from torture_clients import DATATYPES, Http, Refused

GET = b"GET /v2/health/live HTTP/1.1\r\nHost: h\r\n\r\n"


class Hostile:
    """A thread that draws one of its tricks after the other. `troubles` says what the server did that it must not."""

    def __init__(self, server, questions, tally, seed):
        self.server, self.questions, self.tally, self.dice = server, questions, tally, random.Random(seed)
        self.by_kind, self.troubles, self.stopping = {}, [], threading.Event()
        self.tricks = [self.garbage, self.pipelined_garbage, self.reset, self.half_close, self.half_close_asking, self.flood, self.no_reader, self.truncated_region, self.no_host,
                       self.native_garbage, self.grpc_garbage, self.gone]
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.stopping.wait(self.dice.uniform(0.02, 0.15)):
            trick = self.dice.choice(self.tricks)
            try:
                trick()
                self.by_kind["client: " + trick.__name__.replace("_", " ")] = self.by_kind.get("client: " + trick.__name__.replace("_", " "), 0) + 1
            except (OSError, Refused, http.client.HTTPException):
                pass  # the runtime is away, or says no
            except Exception as error:  # noqa: BLE001: whatever it is goes to the report
                self.troubles.append(f"{trick.__name__}: {error!r}")

    def stop(self):
        self.stopping.set()
        self.thread.join(60)

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.server.http), timeout=20)

    def expect(self, wire, code, begun):
        first = b""
        while len(first) < 12:
            part = wire.recv(4096)
            if not part:
                break
            first += part
        if not first.startswith(b"HTTP/1.1 " + code) and not self.tally.was_down(begun) and not first.startswith(b"HTTP/1.1 503"):
            self.troubles.append(f"expected {code.decode()}, got {first[:60]!r}")

    @staticmethod
    def now():
        return time.monotonic()

    # ---- tricks ----

    def garbage(self):
        begun = self.now()
        with self.connect() as wire:
            wire.sendall(b"\x16\x03\x01" + self.dice.randbytes(300) + b"\r\n\r\n")
            self.expect(wire, b"400", begun)

    def pipelined_garbage(self):
        begun = self.now()
        with self.connect() as wire:
            wire.sendall(GET * 20 + self.dice.randbytes(200) + b"\r\n\r\n" + GET * 5)
            self.expect(wire, b"200", begun)

    def no_host(self):
        begun = self.now()
        with self.connect() as wire:
            wire.sendall(b"GET /v2/health/live HTTP/1.1\r\n\r\n")
            self.expect(wire, b"400", begun)

    def reset(self):
        """Closes with a reset, in the middle of a body."""
        with self.connect() as wire:
            wire.sendall(b"POST /v2/models/mlp/infer HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n" + b"{" * self.dice.randrange(5000))
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def half_close(self):
        begun = self.now()
        with self.connect() as wire:
            wire.sendall(GET)
            wire.shutdown(socket.SHUT_WR)
            self.expect(wire, b"200", begun)

    def half_close_asking(self):
        """Sends no more behind a request that is computed, and is answered (HT4)."""
        question, begun = self.dice.choice(self.questions), self.now()
        wire = Http(self.server)
        rows, tail, wanted = wire.inputs(question)
        head = json.dumps({"inputs": rows, "outputs": wanted}).encode()
        try:
            wire.wire.request("POST", f"/v2/models/{question.model}/infer", head + tail, {"Inference-Header-Content-Length": str(len(head))})
            wire.wire.sock.shutdown(socket.SHUT_WR)
            code = wire.wire.getresponse().status
            if code not in (200, 503) and not self.tally.was_down(begun):
                self.troubles.append(f"half-closed behind a request: {code}")
        except (OSError, http.client.HTTPException) as lost:
            if not self.tally.was_down(begun):
                self.troubles.append(f"half-closed behind a request: {lost!r}")
        finally:
            wire.close()

    def flood(self):
        """Connections that say nothing; they are gone a moment later."""
        wires = []
        try:
            for _ in range(200):
                wires.append(self.connect())
        finally:
            for wire in wires:
                wire.close()

    def no_reader(self):
        """Asks for much and reads nothing."""
        with self.connect() as wire:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            wire.settimeout(0.3)
            wire.sendall(b"GET /v2/openapi.json HTTP/1.1\r\nHost: h\r\n\r\n" * 50)

    def gone(self):
        """A request whose client does not wait for the answer."""
        question, wire = self.dice.choice(self.questions), Http(self.server)
        rows, tail, wanted = wire.inputs(question)
        head = json.dumps({"inputs": rows, "outputs": wanted}).encode()
        wire.wire.request("POST", f"/v2/models/{question.model}/infer", head + tail, {"Inference-Header-Content-Length": str(len(head))})
        wire.close()

    def native_garbage(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wire:
            wire.settimeout(20)
            wire.connect(self.server.socket)
            wire.sendall(self.dice.choice([b"\xc1", b"\xdd\xff\xff\xff\xff", b"\x94\x00\x01\xa5infer\x91\xc6\xff\xff\xff\xff", self.dice.randbytes(100)]))
            wire.shutdown(socket.SHUT_WR)
            while wire.recv(4096):
                pass

    def grpc_garbage(self):
        with socket.create_connection(("127.0.0.1", self.server.grpc), timeout=20) as wire:
            wire.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + self.dice.randbytes(500))
            wire.shutdown(socket.SHUT_WR)
            while wire.recv(4096):
                pass

    def truncated_region(self):
        """A region's object is cut before or while a request reads it: refused in words, and no worker dies of it."""
        question = next(q for q in self.questions if q.model == "mobilenet_v2")
        begun = self.now()
        key, room = f"sy-torture-cut-{os.getpid()}", 1 << 20
        (name, array), (output, data) = next(iter(question.inputs.items())), next(iter(question.answers.items()))
        fd = os.open(f"/dev/shm/{key}", os.O_RDWR | os.O_CREAT, 0o600)
        wire = Http(self.server)
        try:
            os.ftruncate(fd, room)
            with mmap.mmap(fd, room) as memory:
                memory[:array.nbytes] = array.tobytes()
            wire.post(f"/v2/systemsharedmemory/region/{key}/register", json.dumps({"key": "/" + key, "offset": 0, "byte_size": room}).encode(), 0)
            cut = threading.Timer(self.dice.choice([0, 0.001, 0.005]), os.ftruncate, (fd, 4096))
            cut.start()
            row = {"name": name, "shape": list(array.shape), "datatype": DATATYPES[str(array.dtype)], "parameters": {
                "shared_memory_region": key, "shared_memory_offset": 0, "shared_memory_byte_size": array.nbytes}}
            want = {"name": output, "parameters": {"shared_memory_region": key, "shared_memory_offset": room // 2 + 100000 // 64 * 64, "shared_memory_byte_size": len(data)}}
            try:
                wire.post(f"/v2/models/{question.model}/infer", json.dumps({"inputs": [row], "outputs": [want]}).encode(), 0)
            except Refused as words:
                if "400" not in str(words) and "503" not in str(words):
                    self.troubles.append(f"truncated region: {words}")
            except (OSError, http.client.HTTPException) as lost:
                if not self.tally.was_down(begun):
                    self.troubles.append(f"truncated region: {lost!r}")
            cut.join()
        finally:
            try:
                wire.post(f"/v2/systemsharedmemory/region/{key}/unregister", b"", 0)
            except (OSError, Refused, http.client.HTTPException):
                pass
            wire.close()
            os.close(fd)
            os.unlink(f"/dev/shm/{key}")
