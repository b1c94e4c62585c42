"""Conversations for fuzz_grpc, as the records that it turns into frames; the first byte holds the target's flags. And JSON for fuzz_grpc_message, of each kind of
field, fitting and not; there the first byte says of which message.
"""
import gzip
import itertools
import json
import struct

import wire

PIECES, GOES, REFUSES, THREAD, LATE, RAW = 3, 8, 16, 32, 64, 128
DATA, HEADERS, PRIORITY, RESET, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
CALL, MESSAGE, INFER, FILLER = range(32, 36)
END_STREAM, END_HEADERS, PADDED, WITH_PRIORITY = 1, 4, 8, 32
MODEL_INFER, STREAM_INFER, LIVE, READY, METADATA, LOAD, CHECK, WATCH, REFLECTION, NONE = range(10)
IN_GZIP, TAKES_GZIP, TIMEOUT, TENANT, ERRORS, TRACE, TRACE_STATE, TOKEN = (1 << i for i in range(8))
CANCEL = struct.pack(">I", 8)


def record(kind, flags, stream, content=b""):
    return bytes([kind, flags, stream]) + struct.pack("<H", len(content)) + content


def call(stream, path, extras=0, headers=b"", flags=END_HEADERS):
    return record(CALL, flags, stream, bytes([path, extras]) + headers)


def message(stream, content, flags=END_STREAM, compressed=False):
    return record(MESSAGE, flags, stream, bytes([compressed]) + content)


def infer(stream, rows=1, missing=0, flags=END_STREAM):
    return record(INFER, flags, stream, struct.pack("<HB", rows, missing))


def filler(stream, n, flags=0):
    return bytes([FILLER, flags, stream]) + struct.pack("<H", n)


K = wire.field(5, wire.field(1, "k") + wire.field(2, "UINT8") + wire.field(3, 3))


def literal(name, value):
    return bytes([0x10, len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def tensor(name, rows, datatype="FP32", contents=b"", more=b""):
    return wire.field(5, wire.field(1, name) + wire.field(2, datatype) + wire.field(3, rows) + wire.field(3, 2) + contents + more)


def parameter(field, key, value):
    kind = {bool: 1, int: 2, str: 3}[type(value)]
    return wire.field(field, wire.field(1, key) + wire.field(2, wire.field(kind, int(value) if kind < 3 else value)))


def request(model="o", inputs=None, raw=b"\0" * 8, more=b""):
    inputs = tensor("x", 1) if inputs is None else inputs
    return wire.field(1, model) + wire.field(3, "id") + inputs + more + (wire.field(7, raw) if raw is not None else b"")


def wrong_requests():
    region = parameter(4, "shared_memory_region", "r") + parameter(4, "shared_memory_byte_size", 8)
    floats = wire.field(5, wire.field(6, struct.pack("<2f", 1, 2)))
    yield request("none")
    yield request("n" * 300)
    yield request(more=wire.field(2, "x"))
    yield request(more=wire.field(2, "9"))
    yield request(inputs=b"", raw=None)
    yield request(inputs=tensor("x", 1) * 2)
    yield request(inputs=tensor("none", 1))
    yield request(inputs=tensor("n" * 600, 1))
    yield request(inputs=tensor("x", 1, "d" * 40))
    yield request(inputs=tensor("x", 1, "INT32"))
    yield request(inputs=tensor("x", 0))
    yield request(inputs=tensor("x", -1))
    yield request(inputs=tensor("x", 1 << 40))
    yield request(inputs=tensor("x", 1, more=wire.field(3, 7)))
    yield request(inputs=tensor("x", 1, contents=floats))
    yield request(inputs=tensor("x", 1, more=region))
    yield request(inputs=tensor("x", 1, contents=floats, more=region), raw=None)
    yield request(raw=None)
    yield request(raw=b"\0" * 7)
    yield request(more=wire.field(7, b"\0" * 8))
    yield request("m")
    for output in (wire.field(1, "none"), wire.field(1, "y") + parameter(2, "classification", 0), wire.field(1, "y") + region.replace(b"\x22", b"\x12", 1), wire.field(1, "n" * 600),
                   wire.field(1, "y") + parameter(2, "shared_memory_region", "r") + parameter(2, "shared_memory_byte_size", 8)):
        yield request(more=wire.field(6, output))
    yield request(more=wire.field(6, wire.field(1, "y")) * 2)
    for key, value in (("priority", "x"), ("timeout", "x"), ("timeout", 1), ("tenant", "t"), ("tenant", "u"), ("none", True), ("triton_enable_empty_final_response", 7)):
        yield request(more=parameter(4, key, value))
    yield b"\xff" * 20


def right_requests():
    floats = wire.field(5, wire.field(6, struct.pack("<2f", 1, 2)))
    yield request()
    yield request(inputs=tensor("x", 1, contents=floats), raw=None)
    yield request("m", inputs=tensor("x", 1) + K, more=wire.field(7, b"\0" * 8), raw=b"\0" * 3)
    yield request(more=wire.field(6, wire.field(1, "y") + parameter(2, "classification", 1)))
    yield request(more=parameter(4, "triton_enable_empty_final_response", True))
    yield request(inputs=tensor("x", 4000), raw=b"\0" * 32000)


def calls():
    """Each of one stream, or a few."""
    for path in range(10):
        yield call(1, path) + message(1, wire.field(1, "m"))
        yield call(1, path, flags=END_HEADERS | END_STREAM)
        yield call(1, path, TRACE | TRACE_STATE | TOKEN | TENANT) + message(1, b"") + call(3, path) + message(3, b"\xff")
    for content in itertools.chain(wrong_requests(), right_requests()):
        yield call(1, MODEL_INFER, TENANT) + message(1, content)
        yield call(1, STREAM_INFER) + message(1, content, 0) + infer(1)
    # To where the tensor lies: whole, short of some bytes, refused, with a second tensor, cut off.
    yield call(1, MODEL_INFER) + infer(1, 20000) + call(3, STREAM_INFER) + infer(3, 9000, flags=0) + infer(3, 9000)
    yield call(1, MODEL_INFER) + infer(1, 20000, 8) + call(3, STREAM_INFER) + infer(3, 20000, 1, 0) + infer(3)
    for content in wrong_requests():
        begun = content + wire.varint(7 << 3 | 2) + wire.varint(80000)
        yield call(1, MODEL_INFER) + record(DATA, 0, 1, b"\0" + struct.pack(">I", len(begun) + 80000) + begun) + filler(1, 1250, END_STREAM)
        yield call(1, STREAM_INFER) + record(DATA, 0, 1, b"\0" + struct.pack(">I", len(begun) + 80000) + begun) + filler(1, 1250) + infer(1)
    # It ends within the tensor; before a second one.
    yield call(1, MODEL_INFER) + record(DATA, 0, 1, b"\0" + struct.pack(">I", 80000) + wire.field(1, "o") + tensor("x", 20000) + wire.varint(7 << 3 | 2) + wire.varint(160000)) + filler(1, 1250, END_STREAM)
    two = wire.field(1, "m") + tensor("x", 10000) + K + wire.varint(7 << 3 | 2) + wire.varint(80000)
    yield call(1, MODEL_INFER) + record(DATA, 0, 1, b"\0" + struct.pack(">I", len(two) + 80000) + two) + filler(1, 1250, END_STREAM)
    head = wire.field(1, "o") + tensor("x", 20000) + wire.varint(7 << 3 | 2) + wire.varint(160000)
    for behind in (b"", wire.field(7, b"\0" * 8), wire.field(1, "m"), b"\xff", wire.field(99, "x")):
        yield call(1, MODEL_INFER) + record(DATA, 0, 1, b"\0" + struct.pack(">I", len(head) + 160000 + len(behind)) + head) + filler(1, 2500) + record(DATA, END_STREAM, 1, behind)
    for end in (record(RESET, 0, 1, CANCEL), record(DATA, END_STREAM, 1), record(GOAWAY, 0, 0, b"\0" * 8), record(HEADERS, END_STREAM | END_HEADERS, 1, literal("a", "b"))):
        yield call(1, MODEL_INFER) + record(DATA, 0, 1, b"\0" + struct.pack(">I", len(head) + 160000) + head) + filler(1, 500) + end
        yield call(1, MODEL_INFER) + record(DATA, 0, 1, b"\0\0\0\1") + end
        yield call(1, STREAM_INFER) + infer(1, flags=0) * 6 + end
    yield call(1, MODEL_INFER) + infer(1, flags=0) + infer(1)
    yield call(1, MODEL_INFER) + record(DATA, END_STREAM, 1, b"\2\0\0\0\0")
    yield call(1, MODEL_INFER) + record(DATA, END_STREAM, 1, b"\0\xff\xff\xff\xff")
    yield call(1, LIVE) + record(DATA, 0, 1, b"\0" + struct.pack(">I", 70000)) + filler(1, 1100, END_STREAM)
    yield call(1, MODEL_INFER) + infer(1, 65000, flags=0) + call(3, MODEL_INFER) + record(DATA, 0, 3, b"\0" + struct.pack(">I", 900000)) + filler(3, 10000) + call(5, LIVE) + \
        record(DATA, 0, 5, b"\0" + struct.pack(">I", 60000)) + filler(5, 900)
    for extras in (TIMEOUT, ERRORS, ERRORS | TENANT):
        yield call(1, STREAM_INFER, extras) + message(1, request("none"), 0) + infer(1)
        yield call(1, MODEL_INFER, extras)
    for more in (literal("grpc-timeout", "99999999H"), literal("grpc-timeout", "5M"), literal("grpc-timeout", "x"), literal("grpc-encoding", "br"), literal(":method", "GET"), literal("x" * 60, "y" * 60) * 20,
                 literal("content-type", "text/html"), literal("content-type", "application/grpc"), literal("switchyard-tenant", "t" * 80), literal("te", "x"), b"\x82", b"\xff\xff\xff\xff\xff", literal("traceparent", "x") * 2):
        yield call(1, MODEL_INFER, headers=more) + infer(1)
    yield record(HEADERS, END_STREAM | END_HEADERS, 1, b"\x82\x84\x86\x01\x01h")
    yield record(HEADERS, END_HEADERS, 1, b"\x83\x84\x86\x01\x01h" + literal("content-type", "text/html")) + record(DATA, END_STREAM, 1, b"x")


def long_ones():
    """What takes so long that it goes to a thread: inflating, contents that are no raw bytes, classes, an answer that is compressed."""
    floats = wire.field(5, wire.field(6, b"\0" * 160000))
    classes = wire.field(6, wire.field(1, "y") + parameter(2, "classification", 1))
    packed = gzip.compress(request(), mtime=0)
    yield call(1, MODEL_INFER, IN_GZIP | TAKES_GZIP) + message(1, packed, compressed=True)
    yield call(1, MODEL_INFER, IN_GZIP) + message(1, packed[:-9], compressed=True)
    yield call(1, MODEL_INFER) + message(1, packed, compressed=True)
    for content in (request(inputs=tensor("x", 60000), raw=b"\0" * 480000), request(inputs=tensor("x", 20000, contents=floats), raw=None), request("none", inputs=tensor("x", 20000, contents=floats), raw=None),
                    request(inputs=tensor("x", 60000), raw=b"\0" * 480000, more=classes), request(inputs=tensor("x", 20000, contents=floats[:-8]), raw=None), b"\0" * 2000000):
        long = message(1, gzip.compress(content, mtime=0), compressed=True)
        yield call(1, MODEL_INFER, IN_GZIP | TAKES_GZIP) + long
        yield call(1, STREAM_INFER, IN_GZIP) + message(1, gzip.compress(content, mtime=0), 0, compressed=True) + message(1, packed, 0, compressed=True) + long
        yield call(1, MODEL_INFER, IN_GZIP) + long + record(RESET, 0, 1, CANCEL)


def frames():
    """What a connection says beside its calls."""
    yield record(PING, 0, 0, b"12345678") * 60
    yield record(SETTINGS, 0, 0) * 60
    yield (call(1, STREAM_INFER) + record(RESET, 0, 1, CANCEL)) * 2
    yield b"".join(call(s, MODEL_INFER) + record(RESET, 0, s, CANCEL) for s in range(1, 200, 2))
    yield b"".join(call(s, STREAM_INFER) + infer(s, flags=0) for s in range(1, 60, 2))
    yield record(SETTINGS, 0, 0, struct.pack(">HI", 4, 0)) + call(1, MODEL_INFER) + infer(1, 1000) + record(WINDOW, 0, 1, struct.pack(">I", 9000)) + record(WINDOW, 0, 1, b"\x7f\xff\xff\xff")
    yield record(SETTINGS, 0, 0, struct.pack(">HI", 4, 0)) + b"".join(call(s, STREAM_INFER) + infer(s, 40000, flags=0) * 4 for s in (1, 3, 5)) + record(WINDOW, 0, 3, struct.pack(">I", 900000))
    yield record(SETTINGS, 0, 0, struct.pack(">HIHIHI", 3, 0, 5, 16777215, 1, 0)) + call(1, LIVE) + message(1, b"")
    yield record(WINDOW, 0, 0, b"\0\0\0\0") + call(1, LIVE)
    yield record(PRIORITY, 0, 1, b"\0\0\0\0\1") + call(1, LIVE) + message(1, b"") + record(PRIORITY, 0, 1, b"\0\0\0\1\1")
    yield record(GOAWAY, 0, 0, b"\0" * 8) + call(1, LIVE) + message(1, b"")
    yield record(PUSH, END_HEADERS, 1, b"\0\0\0\2") + record(99, 0, 0, b"x")
    yield call(1, LIVE, flags=0) + record(CONTINUATION, END_HEADERS, 1, literal("a", "b")) + message(1, b"")
    yield call(1, LIVE, flags=0) + call(3, LIVE)
    yield call(1, LIVE) + call(1, LIVE) + message(2, b"") + message(99, b"")
    yield call(2, LIVE)
    yield call(5, LIVE) + call(3, LIVE)
    yield call(1, WATCH) + message(1, b"", 0) + call(3, REFLECTION) + message(3, wire.field(7, "*"), 0) + message(3, wire.field(4, "grpc.health.v1.Health"))
    yield call(1, STREAM_INFER) + record(DATA, PADDED, 1, b"\xff") + record(DATA, PADDED | END_STREAM, 1, b"\2a\0\0")


def grpc():
    for k, talk in enumerate(itertools.chain(frames(), long_ones(), calls())):
        for flags, each in ((0, 1), (LATE, 3), (THREAD, 4), (GOES, 6), (REFUSES, 6), (PIECES, 7), (GOES | LATE, 8)):
            if k % each == 0:
                yield bytes([flags]) + talk
    for talk in long_ones():
        for flags in (THREAD, THREAD | GOES, THREAD | REFUSES):
            yield bytes([flags]) + talk
    for talk in frames():
        yield bytes([LATE]) + talk
        yield bytes([GOES | LATE]) + talk
    yield bytes([RAW]) + b"GET / HTTP/1.1\r\n\r\n"
    yield bytes([RAW]) + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0" + b"\xff" * 9
    yield bytes([RAW | LATE]) + b"PRI"


# ---- fuzz_grpc_message ----

PARAMETER, CONFIG, REGION, SETTINGS = 208, 200, 205, 202


def grpc_message():
    for value in ({"double_param": 1.5}, {"double_param": "a"}, {"double_param": 7}, {"bool_param": 1}, {"int64_param": "x"}, {"int64_param": "-5"}, {"uint64_param": "99999999999999999999"},
                  {"string_param": 5}, {"int64_param": ""}, {"none": 1}, [], 7):
        yield bytes([PARAMETER]) + json.dumps(value).encode()
    for value in ({"input": 7}, {"input": [7]}, {"input": [{"dims": [1, "2", 2.5]}]}, {"input": [{"data_type": "TYPE_NONE"}]}, {"input": [{"data_type": 3, "dims": ["-1"]}]}, {"parameters": []},
                  {"parameters": {"a": 7}}, {"version_policy": {"specific": {"versions": [1, 2]}}}, {"dynamic_batching": {"priority_queue_policy": {"1": {}, "x": {}}}},
                  {"max_batch_size": True}, {"name": None}):
        yield bytes([CONFIG]) + json.dumps(value).encode()
    yield bytes([REGION]) + json.dumps({"name": "r", "byte_size": "18446744073709551615", "offset": -1}).encode()
    yield bytes([SETTINGS]) + json.dumps({"settings": {"a": {"value": ["1", 2]}}}).encode()
    # As bytes: numbers cut short, and a double of an attribute that has one.
    yield bytes([4]) + b"\x21\0\0"
