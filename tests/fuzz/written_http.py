"""Requests for fuzz_http, to its models `m` (x FP32 [N, 2], k UINT8 [3]) and `o` (x alone). The first byte holds the target's flags."""
import gzip
import json
import zlib

PIECES, GOES, REFUSES, THREAD, LATE = 3, 8, 16, 32, 64
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: h\r\n\r\n"
X = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
K = {"name": "k", "datatype": "UINT8", "shape": [3], "data": [1, 2, 3]}


def post(body, headers="", path="/v2/models/m/infer", length=None):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    length = len(raw) if length is None else length
    return f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n{headers}\r\n".encode() + raw


def chunked(body, headers=""):
    return f"POST /v2/models/m/infer HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n{headers}\r\n{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n"


def http():
    both = {"inputs": [X, K]}
    plain = json.dumps(both).encode()
    for flags in (0, PIECES, LATE, THREAD, GOES, REFUSES):
        yield bytes([flags]) + post(b"12345678" * 3, "Inference-Header-Content-Length: 0\r\n", "/v2/models/o/infer") + LIVE
        yield bytes([flags]) + post(b"1234567", "Inference-Header-Content-Length: 0\r\n", "/v2/models/o/infer") + LIVE
        yield bytes([flags]) + post(both) * 5 + LIVE
        yield bytes([flags]) + post(gzip.compress(plain, mtime=0), "Content-Encoding: gzip\r\nAccept-Encoding: gzip\r\n") + LIVE
        yield bytes([flags]) + post(zlib.compress(plain) + b"behind", "Content-Encoding: deflate\r\n") + LIVE
        yield bytes([flags]) + chunked(gzip.compress(plain, mtime=0) + b"behind", "Content-Encoding: gzip\r\n") + LIVE
        yield bytes([flags]) + chunked(plain) + LIVE
        # Long: text that a thread reads, and bytes that go to where the tensor lies.
        many = {"name": "x", "datatype": "FP32", "shape": [4000, 2], "data": [1.5] * 8000}
        yield bytes([flags]) + post({"inputs": [many, K]}) + LIVE
        yield bytes([flags]) + post({"inputs": [many, K], "outputs": [{"name": "y", "parameters": {"binary_data": True}}]}, "Accept-Encoding: gzip\r\n") + LIVE
        yield bytes([flags]) + post({"ready": True, "a": "0" * 50000}, path="/v2/repository/index") + LIVE
        yield bytes([flags]) + post(b"[" + b"1," * 25000, path="/v2/repository/index") + LIVE
        head = json.dumps({"inputs": [dict(X, shape=[6000, 2], data=None, parameters={"binary_data_size": 48000}), K]}).replace('"data": null, ', "").encode()
        yield bytes([flags]) + post(head + b"\0" * 48000, f"Inference-Header-Content-Length: {len(head)}\r\n") + LIVE
        yield bytes([flags]) + post(head + b"\0" * 40000, f"Inference-Header-Content-Length: {len(head)}\r\n") + LIVE
        yield bytes([flags]) + post(head + b"\0" * 40000, f"Inference-Header-Content-Length: {len(head)}\r\n", length=len(head) + 48000)
        yield bytes([flags]) + post(plain[:20], length=len(plain))
        yield bytes([flags]) + b"GET /v2 HTTP/1.1\r\nHost: h\r\nX"
        yield bytes([flags]) + LIVE
        yield bytes([flags]) + post(b"", length=2 << 20) + chunked(b"1" * 60000) + LIVE
    for wrong in (dict(X, shape=[1, -2]), dict(X, shape=[1, 2.5]), dict(X, data=7), dict(X, data=None), dict(X, datatype="BYTES"), dict(X, parameters={"binary_data_size": -1}),
                  dict(X, parameters={"binary_data_size": "a"}), dict(X, parameters={"shared_memory_region": "r"})):
        yield bytes([0]) + post({"inputs": [wrong, K]}) + LIVE
    for more in ({"parameters": {"binary_data_output": 7}}, {"outputs": [{"name": "y", "parameters": {"binary_data": 7}}]}, {"outputs": [{"name": "none"}]}, {"parameters": {"timeout": -1}},
                 {"outputs": [{"name": "y", "parameters": {"classification": 1, "shared_memory_region": "r", "shared_memory_byte_size": 8}}]}):
        yield bytes([0]) + post(dict(both, **more)) + LIVE
    yield bytes([0]) + post(both, path="/v2/models/" + "n" * 300 + "/infer") + b"POST /v2/models/m/infer HTTP/1.1\r\nHost: h\r\n\r\n" + LIVE
    # Much from little; more than there may be; a body whose length nobody says; header lines without end.
    for size in (900_000, 3_000_000):
        bomb = gzip.compress(b" " * size + plain, mtime=0)
        for flags in (0, PIECES, GOES):
            yield bytes([flags]) + post(bomb, "Content-Encoding: gzip\r\n") + LIVE
            yield bytes([flags]) + chunked(bomb, "Content-Encoding: gzip\r\n") + LIVE
            yield bytes([flags]) + post(gzip.compress(b"\0" * size, mtime=0), "Content-Encoding: gzip\r\nInference-Header-Content-Length: 0\r\n", "/v2/models/o/infer") + LIVE
    yield bytes([0]) + chunked(b"12345678", "Inference-Header-Content-Length: 0\r\n").replace(b"/m/", b"/o/") + LIVE
    yield bytes([0]) + b"POST /v2/models/o/infer HTTP/1.1\r\nHost: h\r\nInference-Header-Content-Length: 0\r\n\r\n" + LIVE
    yield bytes([0]) + b"GET /v2 HTTP/1.1\r\nHost: h\r\nX: " + b"a" * 40000 + b"\r\n\r\n" + LIVE
    yield bytes([0]) + b"GET /v2 HTTP/1.1\r\nHost: h\r\n" + b"".join(b"X%d: a\r\n" % i for i in range(120)) + b"\r\n" + LIVE
    for more in ({"outputs": 7}, {"parameters": {"tenant": 7}}, {"parameters": {"priority": -1}}, {"parameters": {"timeout": "x"}}):
        yield bytes([0]) + post(dict(both, **more), "Tenant: t\r\n") + LIVE
    yield bytes([0]) + post({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "parameters": {"shared_memory_region": "r"}}, K]}) + LIVE
    yield bytes([0]) + post({"inputs": [dict(X, data="text"), K]}) + post({"inputs": [dict(X, shape=["a"]), K]}) + LIVE
