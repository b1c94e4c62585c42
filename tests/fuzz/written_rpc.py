"""Calls for fuzz_rpc, to its model `m`: x FP32 [N, L], k UINT8 [3], y FP32 [2 N, 2]. The first byte holds the target's flags."""
from msgpack_bytes import pack

PIECES, GOES, AT_ONCE, REFUSES, TWO, REMOTE = 3, 8, 16, 32, 64, 128


def call(method, *params):
    return pack([0, 5, method, list(params)])


X = {"name": "x", "dtype": "FP32", "shape": [1, 2], "data": b"01234567"}
K = {"name": "k", "dtype": "UINT8", "shape": [3], "data": b"abc"}
REGION = call("region_create", {"bytes": 4096})


def infer(x=X, k=K, **more):
    return call("infer", dict({"model": "m", "inputs": [x, k]}, **more))


def placed(tensor, offset, bytes_, region=1):
    return dict({key: v for key, v in tensor.items() if key != "data"}, region=region, offset=offset, bytes=bytes_)


def rpc():
    y = {"name": "y"}
    for more in ({"deadline_ms": 5}, {"deadline_ms": 2.5}, {"deadline_ms": -1}, {"deadline_ms": "a"}, {"deadline_ms": 1e300}, {"class": 0}, {"class": 3}, {"class": -1}, {"class": 99},
                 {"report": True}, {"report": 1}, {"tenant": "t"}, {"tenant": 7}, {"version": 1}, {"version": -1}, {"outputs": [y]}, {"outputs": 7}, {"outputs": [{"name": "none"}]}):
        yield bytes([0]) + infer(**more)
    for x in (dict(X, shape=[1] * 9), dict(X, shape="a"), dict(X, data="text"), dict(X, data=b"1"), dict(X, dtype="BYTES"), dict(X, shape=[1, 2**40]), {"name": "x"}, 7):
        yield bytes([0]) + infer(x)
    for x, more in ((placed(X, 0, 8), {}), (placed(X, 1, 8), {}), (placed(X, 4096, 8), {}), (placed(X, 0, 2**40), {}), (placed(X, 0, 8, 7), {}), (placed(X, -1, 8), {}),
                    (dict(placed(X, 0, 8), data=b"01234567"), {}), (placed(X, 0, 4), {}),
                    (placed(X, 0, 8), {"outputs": [placed(y, 0, 16)]}), (placed(X, 0, 8), {"outputs": [placed(y, 64, 16), placed(y, 128, 16)]}),
                    (placed(X, 0, 8), {"outputs": [placed(y, 64, 1)]})):
        yield bytes([0]) + REGION + infer(x, **more) + call("region_drop", {"region": 1})
    yield bytes([REMOTE]) + REGION + infer()
    for flags in (0, PIECES, AT_ONCE | REFUSES, REFUSES, GOES, TWO | GOES, REMOTE):
        yield bytes([flags]) + infer() * 6 + pack([2, "ping", []])
    # A long tensor goes to the slab as it comes; two inputs of one; one that is not taken.
    long = dict(X, shape=[1, 9000], data=b"\0" * 36000)
    for flags in (0, PIECES, GOES, REMOTE, TWO):
        yield bytes([flags]) + infer(long) + infer()
    yield bytes([0]) + infer(long)[:20000]
    # A tensor of more than 256 KiB goes to the slab as it comes: announced, and the client is gone before its end; said to be of two inputs; of none.
    begun = pack([0, 5, "infer", [{"model": "m"}]])[:-1]
    announced = infer(dict(X, shape=[1, 1 << 17], data=b""))
    cut = announced.index(b"\xc6\0\0\0\0")
    for flags in (0, GOES, PIECES):
        yield bytes([flags]) + announced[:cut] + b"\xc6\0\x08\0\0" + b"1" * 50000
    yield bytes([0]) + begun + b"\xc1"
    yield bytes([0]) + pack([0, 5, "ping", []]) + b"\xd4\x01"
    for method, *params in (("model_wait", {"model": "loading"}), ("model_wait", {"model": "m"}), ("cancel", {"id": 5}), ("session_open", {"model": "m"}), ("job_priority", {"job": 1, "priority": 2}),
                            ("models", {"wait": True}), ("status", {"wait_ms": 1}), ("set", {"a": 1}), ("policy", {"policy": "fifo"}), ("tenant", {"name": "t"})):
        yield bytes([0]) + call(method, *params) + infer()
