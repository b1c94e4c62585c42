"""A client of a running server: as much of msgpack-RPC as the benches need, many requests under way on one connection.

Tensors are packed once for each model, so that what Python costs between two requests is some ten microseconds.
"""
import queue
import random
import socket
import struct
import threading
import time


class ServerError(Exception):
    """What the server answered instead: .status is its name (EDEADLINE ...)."""

    def __init__(self, status, message):
        super().__init__(f"{status}: {message}")
        self.status, self.message = status, message


# ---- msgpack ----

def pack(value):
    if value is None:
        return b"\xc0"
    if value is True or value is False:
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return struct.pack(">BQ", 0xcf, value) if value >= 0 else struct.pack(">Bq", 0xd3, value)
    if isinstance(value, float):
        return struct.pack(">Bd", 0xcb, value)
    if isinstance(value, str):
        data = value.encode()
        return struct.pack(">BI", 0xdb, len(data)) + data
    if isinstance(value, bytes):
        return struct.pack(">BI", 0xc6, len(value)) + value
    if isinstance(value, list):
        return struct.pack(">BI", 0xdd, len(value)) + b"".join(map(pack, value))
    return struct.pack(">BI", 0xdf, len(value)) + b"".join(pack(k) + pack(v) for k, v in value.items())


SIZED = {0xc4: ("bin", 1), 0xc5: ("bin", 2), 0xc6: ("bin", 4), 0xd9: ("str", 1), 0xda: ("str", 2), 0xdb: ("str", 4), 0xdc: ("array", 2),
         0xdd: ("array", 4), 0xde: ("map", 2), 0xdf: ("map", 4)}
NUMBERS = {0xca: ">f", 0xcb: ">d", 0xcc: ">B", 0xcd: ">H", 0xce: ">I", 0xcf: ">Q", 0xd0: ">b", 0xd1: ">h", 0xd2: ">i", 0xd3: ">q"}
FIXED = {0xc0: None, 0xc2: False, 0xc3: True}


class Reader:
    """Takes values off a socket."""

    def __init__(self, connection):
        self.file = connection.makefile("rb", buffering=1 << 16)

    def take(self, n):
        data = self.file.read(n)
        if len(data) != n:
            raise ConnectionError("the server has closed the connection")
        return data

    def header(self, byte):
        if byte in SIZED:
            kind, n = SIZED[byte]
            return kind, int.from_bytes(self.take(n), "big")
        if 0x80 <= byte <= 0x8f:
            return "map", byte & 15
        if 0x90 <= byte <= 0x9f:
            return "array", byte & 15
        return "str", byte & 31

    def value(self):
        byte = self.take(1)[0]
        if byte <= 0x7f:
            return byte
        if byte >= 0xe0:
            return byte - 256
        if byte in FIXED:
            return FIXED[byte]
        if byte in NUMBERS:
            return struct.unpack(NUMBERS[byte], self.take(struct.calcsize(NUMBERS[byte])))[0]
        kind, n = self.header(byte)
        if kind == "array":
            return [self.value() for _ in range(n)]
        if kind == "map":
            return {self.value(): self.value() for _ in range(n)}
        data = self.take(n)
        return data.decode() if kind == "str" else data


# ---- requests ----

BYTES = {"FP32": 4, "FP64": 8, "FP16": 2, "INT64": 8, "INT32": 4, "INT8": 1, "UINT8": 1, "BOOL": 1}


def make_inputs(described, batch, seed):
    """The packed value of "inputs" for a model as the method `models` describes it: small whole numbers, or numbers from 0 to 1."""
    dice, inputs = random.Random(seed), []
    for entry in described:
        shape = [batch if n < 0 else n for n in entry["shape"]]
        count = 1
        for n in shape:
            count *= n
        if entry["dtype"] == "FP32":
            data = struct.pack(f"<{count}f", *(dice.random() for _ in range(count)))
        else:
            size = BYTES[entry["dtype"]]
            data = b"".join(dice.getrandbits(1).to_bytes(size, "little") for _ in range(count))
        inputs.append({"name": entry["name"], "dtype": entry["dtype"], "shape": shape, "data": data})
    return pack(inputs)


class Call:
    """One request under way. sent, ended: time.monotonic(); one of answer and error is set at the end."""

    def __init__(self, model, note):
        self.model, self.note, self.sent, self.ended, self.answer, self.error = model, note, 0.0, 0.0, None, None
        self.done = threading.Event()

    @property
    def seconds(self):
        return self.ended - self.sent

    @property
    def timing(self):
        return self.answer["timing"]


class Client:
    """One connection. `ended`: called in the reader's thread with each call that has ended, if given."""

    def __init__(self, path, ended=None):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(path)
        self.calls, self.last, self.ended, self.inputs = {}, 0, ended, {}
        self.lock, self.sending = threading.Lock(), threading.Lock()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        reader = Reader(self.socket)
        try:
            while True:
                _, number, error, answer = reader.value()
                with self.lock:
                    call = self.calls.pop(number)
                call.ended = time.monotonic()
                call.answer, call.error = answer, error and ServerError(error["status"], error["message"])
                self.end(call)
        except (OSError, ConnectionError, ValueError) as why:
            with self.lock:
                left, self.calls = list(self.calls.values()), {}
            for call in left:
                call.error = ServerError("EPEER", str(why))
                self.end(call)

    def end(self, call):
        call.done.set()
        if self.ended:
            self.ended(call)

    def send(self, method, packed, model=None, note=None):
        call = Call(model, note)
        with self.sending:
            self.last += 1
            with self.lock:
                self.calls[self.last] = call
            call.sent = time.monotonic()
            self.socket.sendall(b"\x94\x00" + pack(self.last) + pack(method) + b"\x91" + packed)
        return call

    def call(self, method, timeout=300, **params):
        call = self.send(method, pack(params))
        if not call.done.wait(timeout):
            raise ServerError("EDEADLINE", f"{method}: no answer within {timeout} s")
        if call.error:
            raise call.error
        return call.answer

    def learn(self, batch=1, seed=1):
        """Makes inputs for all models there are."""
        for model in self.call("models"):
            self.inputs[model["name"]] = make_inputs(model["inputs"], batch, seed)

    def infer(self, model, class_=1, deadline_ms=None, note=None):
        fields = [pack("model") + pack(model), pack("inputs") + self.inputs[model], pack("class") + pack(class_)]
        if deadline_ms is not None:
            fields.append(pack("deadline_ms") + pack(float(deadline_ms)))
        return self.send("infer", struct.pack(">BI", 0xdf, len(fields)) + b"".join(fields), model, note)

    def ask(self, model, **options):
        """One request, waited for."""
        call = self.infer(model, **options)
        if not call.done.wait(300):
            raise ServerError("EDEADLINE", f"{model}: no answer within 300 s")
        if call.error:
            raise call.error
        return call

    def close(self):
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.socket.close()


def ask_many(client, plan, at_most=256, look=None):
    """Sends each (seconds from now, model, options) at its time, whether or not others were answered; the calls, once all have ended.
    `client` may be a list, by class: a server reads no more from a connection that has 64 requests under way, so that patient ones
    would hold up urgent ones behind them.
    At most `at_most` under way: one that comes later is sent late, and its time counts from when it was due.
    `look` is shown each call that has ended, in the reader's thread."""
    ended, calls, under_way = queue.SimpleQueue(), [], 0

    def end(call):
        ended.put(call)
        if look:
            look(call)
    clients, begun = client if isinstance(client, list) else [client], time.monotonic()
    for one in clients:
        one.ended = end
    for at, model, options in plan:
        while (left := begun + at - time.monotonic()) > 0:
            time.sleep(left)
        while under_way >= at_most or not ended.empty():
            ended.get(timeout=300)
            under_way -= 1
        call = clients[options.get("class_", 0) % len(clients)].infer(model, **options)
        call.sent = begun + at
        under_way += 1
        calls.append(call)
    for call in calls:
        if not call.done.wait(300):
            raise ServerError("EDEADLINE", "a request was not answered within 300 s")
    for one in clients:
        one.ended = None
    return calls
