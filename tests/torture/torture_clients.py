"""Clients of every interface, each a thread that asks, compares bits, and asks again; and the tally of what became of all requests."""
import http.client
import itertools
import json
import mmap
import os
import random
import re
import threading
import time

import numpy as np

from torture_server import switchyard

ASK_SECONDS = 60  # a request that is not answered for so long is lost


class Tally:
    """What became of every request, and when. Thread safe."""

    def __init__(self):
        self.lock = threading.Lock()
        self.ok, self.wrong, self.lost, self.refused, self.cut = {}, [], [], {}, 0
        self.seconds = {}       # interface → latencies
        self.answered_at = []   # times of answers
        self.reruns = []        # (when answered) of requests that a worker's death interrupted
        self.down = []          # [from, to or None] while no runtime is up: the harness itself killed it
        self.load = []          # (time, answers so far), for the picture

    def goes_down(self):
        with self.lock:
            self.down.append([time.monotonic(), None])

    def comes_up(self):
        with self.lock:
            self.down[-1][1] = time.monotonic()

    def was_down(self, begun):
        """Whether the runtime was taken away by the harness at some moment since `begun`."""
        with self.lock:
            return any(until is None or until >= begun for _, until in self.down)

    def mix(self, interface, question, why):
        """The answer was another request's, whatever bits it has."""
        with self.lock:
            self.wrong.append(f"{interface} {question.model}: {why}")

    def answer(self, interface, question, begun, right, attempts=1):
        now = time.monotonic()
        with self.lock:
            if not right:
                self.wrong.append(f"{interface} {question.model}")
                return
            self.ok[interface] = self.ok.get(interface, 0) + 1
            self.seconds.setdefault(interface, []).append(now - begun)
            self.answered_at.append(now)
            if attempts > 1:
                self.reruns.append(now)

    def refuse(self, interface, begun, words):
        """A runtime that the harness ends says so until it is gone: such a request is cut, not refused."""
        if ("draining" in words or "no worker is left" in words) and self.was_down(begun):
            with self.lock:
                self.cut += 1
            return
        words = re.sub(r"\d+(\.\d+)?", "N", words)
        with self.lock:
            key = f"{interface}: {words[:160]}"
            self.refused[key] = self.refused.get(key, 0) + 1

    def lose(self, interface, question, begun, why):
        if self.was_down(begun):
            with self.lock:
                self.cut += 1
            return
        with self.lock:
            self.lost.append(f"{interface} {question.model}: {why}")

    @property
    def n_ok(self):
        return sum(self.ok.values())


class Refused(Exception):
    """The server has answered, in words, that it will not."""


class OtherAnswer(Exception):
    """The answer is not that of the request before it: it echoes another id, or none."""


COUNT = itertools.count(1)


def new_id():
    """Of a request: no other has it, of no client of this run."""
    return f"{os.getpid()}-{next(COUNT)}"


def check_id(sent, echoed):
    if echoed != sent:
        raise OtherAnswer(f"request {sent} was answered with id {echoed!r}")


# ---- one class an interface: ask(question) → (outputs: name → bytes, attempts) ----

class Native:
    name = "native"

    def __init__(self, server):
        self.client = server.client(ASK_SECONDS)

    def ask(self, question):
        result = self.client.infer(question.model, question.inputs)
        return {name: result[name].tobytes() for name in result}, result.timing.attempts

    def close(self):
        self.client.close()


class NativeShared(Native):
    """Inputs and outputs in memory that client and server share."""
    name = "shared memory"

    def ask(self, question):
        inputs, outputs = {}, {}
        for name, array in question.inputs.items():
            inputs[name] = self.client.empty(array.shape, array.dtype)
            inputs[name][...] = array
        for name, data in question.answers.items():
            outputs[name] = self.client.empty(question.shapes[name], np.float32)
            outputs[name][...] = np.float32(np.nan)
        result = self.client.infer(question.model, inputs, outputs=outputs)
        return {name: outputs[name].tobytes() for name in result}, result.timing.attempts


DATATYPES = {"float32": "FP32", "int64": "INT64"}


class Http:
    """Binary tensors of the Open Inference Protocol."""
    name = "http"

    def __init__(self, server):
        self.wire = http.client.HTTPConnection("127.0.0.1", server.http, timeout=ASK_SECONDS)

    def inputs(self, question):
        tail, rows = b"", []
        for name, array in question.inputs.items():
            data = array.tobytes()
            rows.append({"name": name, "shape": list(array.shape), "datatype": DATATYPES[str(array.dtype)], "parameters": {"binary_data_size": len(data)}})
            tail += data
        return rows, tail, [{"name": name, "parameters": {"binary_data": True}} for name in question.answers]

    def ask(self, question):
        rows, tail, wanted = self.inputs(question)
        answer, rest = self.infer(question, {"inputs": rows, "outputs": wanted}, tail)
        outputs = {}
        for row in answer["outputs"]:
            size = row["parameters"].get("binary_data_size")
            if size is None:
                continue
            outputs[row["name"]], rest = rest[:size], rest[size:]
        return outputs, 1

    def infer(self, question, request, tail):
        """TO6. The answer's JSON, and what is behind it."""
        request["id"] = new_id()
        head = json.dumps(request).encode()
        answer, rest = self.post(f"/v2/models/{question.model}/infer", head + tail, len(head) if tail else 0)
        check_id(request["id"], answer.get("id"))
        return answer, rest

    def post(self, path, body, head_bytes):
        self.wire.request("POST", path, body, {"Inference-Header-Content-Length": str(head_bytes)} if head_bytes else {})
        answer = self.wire.getresponse()
        data = answer.read()
        if answer.status != 200:
            raise Refused(f"{answer.status} {data[:150].decode(errors='replace')}")
        cut = int(answer.getheader("Inference-Header-Content-Length") or len(data))
        return json.loads(data[:cut]) if cut else {}, data[cut:]

    def close(self):
        self.wire.close()


class HttpShared(Http):
    """System shared memory, as Triton's clients register it. A runtime that starts anew knows no region: it is registered again."""
    name = "system shared memory"
    ROOM = 4 << 20
    count = 0

    def __init__(self, server):
        super().__init__(server)
        HttpShared.count += 1
        self.key = f"sy-torture-{os.getpid()}-{HttpShared.count}"
        self.fd = os.open(f"/dev/shm/{self.key}", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.ftruncate(self.fd, self.ROOM)
        self.memory = mmap.mmap(self.fd, self.ROOM)
        try:
            self.post(f"/v2/systemsharedmemory/region/{self.key}/register", json.dumps({"key": "/" + self.key, "offset": 0, "byte_size": self.ROOM}).encode(), 0)
        except (OSError, Refused, http.client.HTTPException):
            self.close()
            raise

    def ask(self, question):
        at, rows, places = 0, [], {}
        for name, array in question.inputs.items():
            self.memory[at:at + array.nbytes] = array.tobytes()
            rows.append({"name": name, "shape": list(array.shape), "datatype": DATATYPES[str(array.dtype)], "parameters": {
                "shared_memory_region": self.key, "shared_memory_offset": at, "shared_memory_byte_size": array.nbytes}})
            at += -(-array.nbytes // 64) * 64
        wanted = []
        for name, data in question.answers.items():
            self.memory[at:at + len(data)] = b"\xff" * len(data)
            places[name] = (at, len(data))
            wanted.append({"name": name, "parameters": {"shared_memory_region": self.key, "shared_memory_offset": at, "shared_memory_byte_size": len(data)}})
            at += -(-len(data) // 64) * 64
        self.infer(question, {"inputs": rows, "outputs": wanted}, b"")
        return {name: self.memory[start:start + size] for name, (start, size) in places.items()}, 1

    def close(self):
        if self.fd >= 0:
            super().close()
            self.unregister()
            self.memory.close()
            os.close(self.fd)
            os.unlink(f"/dev/shm/{self.key}")
            self.fd = -1


    def unregister(self):
        """Over a connection of its own: the other may have broken."""
        self.wire = http.client.HTTPConnection("127.0.0.1", self.wire.port, timeout=10)
        try:
            self.post(f"/v2/systemsharedmemory/region/{self.key}/unregister", b"", 0)
        except (OSError, Refused, http.client.HTTPException):
            pass  # the runtime is gone, and with it the region
        self.wire.close()


class Grpc:
    name = "grpc"

    def __init__(self, server):
        import tritonclient.grpc as triton
        self.triton = triton
        self.client = triton.InferenceServerClient(f"127.0.0.1:{server.grpc}")

    def ask(self, question):
        inputs = []
        for name, array in question.inputs.items():
            inputs.append(self.triton.InferInput(name, list(array.shape), DATATYPES[str(array.dtype)]))
            inputs[-1].set_data_from_numpy(array)
        try:
            number = new_id()
            result = self.client.infer(question.model, inputs, request_id=number, client_timeout=ASK_SECONDS)
            check_id(number, result.get_response().id)  # TO6
        except self.triton.InferenceServerException as error:
            if str(error.status()) in ("StatusCode.UNAVAILABLE", "StatusCode.CANCELLED") and "worker" not in str(error.message()):
                raise ConnectionError(f"{error.status()} {error.message()}") from error
            raise Refused(f"{error.status()} {error.message()}") from error
        return {name: result.as_numpy(name).tobytes() for name in question.answers}, 1

    def close(self):
        self.client.close()


INTERFACES = [Native, NativeShared, Http, HttpShared, Grpc]


class Asker:
    """A thread that asks over one interface until it is stopped. Connections that the server closed are made again."""

    def __init__(self, kind, server, questions, tally, seed, pause=0.0):
        self.kind, self.server, self.questions, self.tally = kind, server, questions, tally
        self.dice, self.pause, self.wire = random.Random(seed), pause, None
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.stopping.is_set():
            question, begun = self.dice.choice(self.questions), time.monotonic()
            try:
                if self.wire is None:
                    self.wire = self.kind(self.server)
                outputs, attempts = self.wire.ask(question)
                self.tally.answer(self.kind.name, question, begun, question.is_right(outputs), attempts)
            except (switchyard.ConnectionLost, OSError, http.client.HTTPException) as why:
                self.drop()
                if not self.stopping.is_set():
                    self.tally.lose(self.kind.name, question, begun, repr(why))
                    time.sleep(0.02)
            except OtherAnswer as why:
                self.drop()
                self.tally.mix(self.kind.name, question, why)
            except switchyard.NoAnswer as why:
                self.drop()
                self.tally.lose(self.kind.name, question, begun, repr(why))
            except (Refused, switchyard.SwitchyardError) as why:
                self.tally.refuse(self.kind.name, begun, str(why))
                if self.tally.was_down(begun) or "region" in str(why):
                    self.drop()
                time.sleep(0.02)
            if self.pause:
                time.sleep(self.pause)
        self.drop()

    def drop(self):
        if self.wire:
            try:
                self.wire.close()
            except (OSError, switchyard.SwitchyardError):
                pass
        self.wire = None

    def stop(self):
        self.stopping.set()

    def join(self):
        self.thread.join(ASK_SECONDS + 10)
        return not self.thread.is_alive()
