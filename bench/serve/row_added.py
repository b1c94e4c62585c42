"""What protocols add to a model's own time: a tensor of a megabyte in and out over HTTP, binary and in shared memory, and 100 MB over the native protocol.

The model's own time is what the server counts of the same requests, from when one is started to when its outputs are there. Of HTTP both are means of a
second, the median of several is the result.
"""
import contextlib
import json
import os
import random

import messages
from served import Missing, Served, ask, make_identity, median, must, run_json, without_errors

WIDTH = 250000  # float32: 1 MB a row
ROUNDS = 9


def tensor(size):
    """Numbers from 1 to 2."""
    dice = random.Random(1)
    block = b"".join((0x3f800000 | dice.getrandbits(23)).to_bytes(4, "little") for _ in range(1024))
    return (block * (size // len(block) + 1))[:size]


def own_ms(connection, model):
    """(requests, milliseconds) so far, as the server counts them."""
    told = json.loads(must(*ask(connection, "GET", f"/v2/models/{model}/stats")[:2], "statistics"))["model_stats"][0]["inference_stats"]
    return told["success"]["count"], sum(told[part]["ns"] for part in ("compute_input", "compute_infer", "compute_output")) / 1e6


def expected_body(server, model, request, headers, data):
    """The whole answer, which is the same each time; it ends with the tensor that was sent."""
    _, body, _ = got = ask(server.connect(), "POST", messages.infer_path(model), request, headers)
    must(got[0], body, "infer")
    if body[-len(data):] != data:
        raise Missing("the answer does not end with the tensor that was sent")
    return body


@contextlib.contextmanager
def region(server, name, data):
    """Shared memory with the tensor at its start and room for the output behind it, known to the server; gives its path."""
    path, connection = f"/dev/shm/{name}", server.connect()
    with open(path, "wb") as out:
        out.write(data + bytes(len(data)))
    try:
        body = json.dumps({"key": f"/{name}", "offset": 0, "byte_size": 2 * len(data)})
        must(*ask(connection, "POST", f"/v2/systemsharedmemory/region/{name}/register", body)[:2], "register")
        yield path
        ask(connection, "POST", f"/v2/systemsharedmemory/region/{name}/unregister", "{}")
    finally:
        os.unlink(path)


def one_round(bench, server, connection, model, request, expect):
    """(all, the model's own) milliseconds a request, of one connection, one request after the other."""
    words = [f"{bench.options.build}/bench/http_load", "127.0.0.1", server.need("http"), "--connections", 1, "--warm-up", 0, "--seconds", 1,
             "--request", request, *(["--expect", expect] if expect else [])]
    before = own_ms(connection, model)
    took = without_errors(run_json(*words))["mean_us"] / 1e3
    after = own_ms(connection, model)
    return took, (after[1] - before[1]) / (after[0] - before[0])


def added(bench, server, model, request, expect=None):
    connection = server.connect()
    one_round(bench, server, connection, model, request, expect)  # warms up
    rounds = [one_round(bench, server, connection, model, request, expect) for _ in range(2 if bench.options.quick else ROUNDS)]
    more, own = [took - alone for took, alone in rounds], [alone for _, alone in rounds]
    return bench.result(median(more), len(more), f"the model alone: {median(own):.3f} ms", all=more)


def write(folder, name, data):
    with open(f"{folder}/{name}", "wb") as out:
        out.write(data)
    return out.name


@contextlib.contextmanager
def served(options):
    """The server, the model's name, a megabyte to send."""
    model, package = make_identity(options, WIDTH)
    with Served(options, "--package", package, "--pool-bytes", "256M") as server:
        yield server, model, tensor(WIDTH * 4)


def http_binary(bench):
    with served(bench.options) as (server, model, data):
        body, headers = messages.binary_body("input", "FP32", [1, WIDTH], data)
        expect = write(server.folder.name, "expect", expected_body(server, model, body, headers, data))
        request = write(server.folder.name, "request", messages.http_request(messages.infer_path(model), body, headers))
        return {"http_1mb": added(bench, server, model, request, expect)}


def http_shared(bench):
    with served(bench.options) as (server, model, data), region(server, f"switchyard-{os.getpid()}", data) as path:
        body = messages.shared_body("input", "FP32", [1, WIDTH], "output", os.path.basename(path), len(data))
        must(*ask(server.connect(), "POST", messages.infer_path(model), body)[:2], "infer in shared memory")
        with open(path, "rb") as both:
            if both.read()[len(data):] != data:
                raise Missing("the output in shared memory is not the input")
        request = write(server.folder.name, "request", messages.http_request(messages.infer_path(model), body))
        return {"http_1mb_shared": added(bench, server, model, request)}


def native_shared(bench):
    """bench/serve/native_shared.c: it times both, in turns with requests whose tensors are sent."""
    program = f"{bench.options.build}/bench/native_shared"
    if not os.path.exists(program):
        raise Missing("bench/native_shared is not built")
    model, package = make_identity(bench.options, 100 * WIDTH)
    with Served(bench.options, "--package", package, "--pool-bytes", "1G", "--slab-bytes", "1G") as server:
        found = run_json(program, server.socket, model, 20 if bench.options.quick else 100)
    beside = (f"the model alone: {found['own_ms']:.2f} ms; sent through the socket it adds {found['sent_added_ms']:.1f} ms; "
              f"a bare echo over a Unix socket takes {found['echo_ms']:.3f} ms")
    return {"native_100mb": bench.result(found["added_ms"], found["n"], beside, bytes=found["bytes"])}
