#!/usr/bin/env python3
"""Models whose inputs and outputs are sequences and optionals, through every front end of `switchyard serve`, by their parts (loader/graph/list_ends.h), against
ONNX Runtime.

Prints a line a test, as the C tests do. SY_BINARY: the program."""
import os
import sys
import tempfile

import datatypes_check as base  # also moves into build/venv
import numpy as np
import onnx
import onnxruntime
import switchyard
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from onnx import TensorProto as T
from onnx import helper as h

WIRE = {np.dtype(np.float32): "FP32", np.dtype(np.int64): "INT64", np.dtype(bool): "BOOL", np.dtype(object): "BYTES"}


def sequence(name, shape, dtype=T.FLOAT):
    return h.make_tensor_sequence_value_info(name, dtype, shape)


def optional(name, shape, dtype=T.FLOAT, of_sequence=False):
    held = h.make_tensor_type_proto(dtype, shape)
    return h.make_value_info(name, h.make_optional_type_proto(h.make_sequence_type_proto(held) if of_sequence else held))


def write_model(folder, name, nodes, inputs, outputs, weights=(), opset=18):
    path = os.path.join(folder, "models", name, "1")
    os.makedirs(path)
    model = h.make_model(h.make_graph(nodes, name, inputs, outputs, list(weights)), opset_imports=[h.make_opsetid("", opset)], ir_version=8)
    onnx.save(model, os.path.join(path, "model.onnx"))


def models(folder):
    tensor = h.make_tensor_value_info
    body = h.make_graph([h.make_node("Relu", ["a"], ["r"]), h.make_node("ReduceSum", ["r"], ["s"], keepdims=0), h.make_node("Mul", ["r", "w"], ["m"])], "body",
                        [tensor("a", T.FLOAT, None)], [tensor("s", T.FLOAT, None), tensor("m", T.FLOAT, None)])
    write_model(folder, "mapped", [h.make_node("SequenceMap", ["x"], ["sums", "scaled"], body=body), h.make_node("SequenceLength", ["x"], ["n"])],
                [sequence("x", None), tensor("w", T.FLOAT, [1])], [sequence("sums", None), sequence("scaled", None), tensor("n", T.INT64, [])])
    write_model(folder, "joined", [h.make_node("ConcatFromSequence", ["x"], ["c"], axis=0), h.make_node("MatMul", ["c", "w"], ["y"])], [sequence("x", ["rows", 4])],
                [tensor("y", T.FLOAT, ["all", 2])], [h.make_tensor("w", T.FLOAT, [4, 2], np.arange(8))])
    write_model(folder, "texts", [h.make_node("SequenceAt", ["x", "i"], ["y"]), h.make_node("SequenceErase", ["x", "i"], ["z"])],
                [sequence("x", None, T.STRING), tensor("i", T.INT64, [])], [tensor("y", T.STRING, ["k"]), sequence("z", None, T.STRING)])
    then = h.make_graph([h.make_node("OptionalGetElement", ["o"], ["t"])], "then", [], [tensor("t", T.FLOAT, [3])])
    other = h.make_graph([h.make_node("Constant", [], ["e"], value=h.make_tensor("v", T.FLOAT, [3], [7, 8, 9]))], "else", [], [tensor("e", T.FLOAT, [3])])
    write_model(folder, "maybe", [h.make_node("OptionalHasElement", ["o"], ["c"]), h.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other),
                                  h.make_node("Identity", ["o"], ["p"])], [optional("o", [3])], [tensor("y", T.FLOAT, [3]), optional("p", [3])])
    lengths = [h.make_node("SequenceLength", [x], ["n" + x]) for x in "abcd"]
    write_model(folder, "four", lengths + [h.make_node("Add", ["na", "nb"], ["ab"]), h.make_node("Add", ["nc", "nd"], ["cd"]), h.make_node("Mul", ["ab", "cd"], ["n"])],
                [sequence(x, None) for x in "abcd"], [tensor("n", T.INT64, [])])
    write_model(folder, "maybe_many", [h.make_node("Identity", ["o"], ["p"]), h.make_node("OptionalHasElement", ["o"], ["c"])],
                [optional("o", None, of_sequence=True)], [optional("p", None, of_sequence=True), tensor("c", T.BOOL, [])])


parts_of, list_of = switchyard.parts_of, switchyard.list_of


def over_json(server, model, parts):
    got = base.over_json(server, model, parts, {n: WIRE[x.dtype] for n, x in parts.items()})
    types = {wire: dtype for dtype, wire in WIRE.items()}
    return {n: np.array(data, types[wire]).reshape(shape) for n, (wire, shape, data) in got.items()}


def over_rpc(server, model, parts):
    with switchyard.Client("unix:" + server.socket) as client:
        return client.infer(model, parts)


def ways(server):
    def over(triton, address):
        return lambda model, parts: base.over_triton(triton, address, model, parts, {n: WIRE[x.dtype] for n, x in parts.items()})
    return [lambda model, parts: over_json(server, model, parts), over(triton_http, server.http), over(triton_grpc, server.grpc),
            lambda model, parts: over_rpc(server, model, parts)]


def as_text(x):
    return np.array([t.decode() if isinstance(t, bytes) else t for t in x.reshape(-1)], object).reshape(x.shape) if x.dtype == object else x


def check_list(got, name, want):
    have = list_of(got, name)
    assert len(have) == len(want), (name, len(have), len(want))
    for a, b in zip(have, want):
        a, b = as_text(a), np.asarray(b)
        assert a.shape == b.shape, (name, a.shape, b.shape)
        assert (a == b).all() if b.dtype == object else np.allclose(a, b, 1e-5, 1e-6), (name, a, b)


def run_reference(server, model, inputs):
    session = onnxruntime.InferenceSession(os.path.join(server.folder, "models", model, "1", "model.onnx"), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


# ---- tests ------------------------------------------------------------------------------------------------------


def test_lists_of_any_shapes(server):
    random = np.random.default_rng(5)
    w = np.array([-1.5], np.float32)
    for shapes in ([(2, 3), (4,)], [(1,)], [(3, 1, 2), (), (2,), (0,)], []):
        x = [np.asarray(random.standard_normal(s), np.float32) for s in shapes]
        for infer in ways(server):
            got = infer("mapped", parts_of("x", x) | {"w": w})
            check_list(got, "sums", [np.maximum(a, 0).sum() for a in x])
            check_list(got, "scaled", [np.maximum(a, 0) * w for a in x])
            assert got["n"] == len(x)


def test_lists_that_become_a_tensor(server):
    x = [np.arange(4 * n, dtype=np.float32).reshape(n, 4) for n in (1, 3, 2)]
    want = run_reference(server, "joined", {"x": x})[0]
    for infer in ways(server):
        assert np.allclose(infer("joined", parts_of("x", x))["y"], want)


def test_lists_of_texts(server):
    x = [np.array(["one", ""], object), np.array([["zwei"]], object), np.array(["três", "4", "five"], object)]
    for i in (0, 2):
        for infer in ways(server):
            got = infer("texts", parts_of("x", x, dtype=object) | {"i": np.array(i)})
            assert (as_text(got["y"]) == x[i]).all()
            check_list(got, "z", [t for k, t in enumerate(x) if k != i])


def test_optionals(server):
    x = np.array([1, -2, 3], np.float32)
    for infer in ways(server):
        for held in ([x], []):
            got = infer("maybe", parts_of("o", held, dtype=np.float32, rank=1))
            assert (got["y"] == (x if held else [7, 8, 9])).all()
            check_list(got, "p", held)
        for has, held in ((True, [x, x[:1]]), (True, []), (False, [])):
            got = infer("maybe_many", parts_of("o", held, has_value=has))
            assert got["c"] == has and got["p.has_value"] == has
            check_list(got, "p", held)


def test_any_lists(server):
    """Lists of any lengths, ranks and sizes come back as they went in, many on one connection, so that no run sees what another left."""
    random = np.random.default_rng(int(os.environ.get("SY_SEED", "12")))
    with switchyard.Client("unix:" + server.socket) as client:
        for _ in range(60):
            held = [random.standard_normal(random.integers(0, 4, random.integers(0, 4))).astype(np.float32) for _ in range(random.integers(0, 9))]
            has = bool(held) or bool(random.integers(0, 2))
            parts = parts_of("o", held, has_value=has)
            more = random.integers(0, 3)  # dimensions that no tensor has
            parts["o.shapes"] = np.concatenate([parts["o.shapes"], np.full((len(held), more), -1, np.int64)], 1)
            got = client.infer("maybe_many", parts)
            assert got["c"] == has and got["p.has_value"] == has
            check_list(got, "p", held)


def test_many_lists(server):
    """Twelve sizes that a request chooses."""
    parts = {}
    for name, n in zip("abcd", (2, 0, 3, 1)):
        parts |= parts_of(name, [np.ones((2, 3), np.float32)] * n)
    for infer in ways(server):
        assert infer("four", parts)["n"] == (2 + 0) * (3 + 1)


def test_what_does_not_fit(server):
    def refused(model, parts, text):
        code, why = base.post(server, model, {"inputs": [{"name": n, "shape": list(x.shape), "datatype": WIRE[x.dtype], "data": x.reshape(-1).tolist()} for n, x in parts.items()]})
        assert code == 400 and text in why, (code, why)
    x = np.zeros(6, np.float32)
    w = {"w": np.ones(1, np.float32)}
    refused("mapped", {"x": x, "x.shapes": np.array([[7]])} | w, "7 elements, 6 are left")
    refused("mapped", {"x": x, "x.shapes": np.array([[5]])} | w, "6 elements, its shapes are of 5")
    refused("mapped", {"x": x, "x.shapes": np.array([[-1, 6]])} | w, "dimension of 6")
    refused("mapped", {"x": x, "x.shapes": np.array([[-7]])} | w, "dimension of -7")
    refused("mapped", {"x": x, "x.shapes": np.array([[1 << 40, 1 << 40]])} | w, "too many elements")
    refused("joined", {"x": x, "x.shapes": np.array([[2, 3]])}, "dimension 1 is 3, declared 4")
    refused("maybe", {"o": x, "o.shapes": np.array([[3], [3]])}, "an optional of 2 tensors")
    refused("maybe_many", {"o": x, "o.shapes": np.array([[6]]), "o.has_value": np.array([False])}, "an optional of 1 tensors")
    refused("mapped", {"x": x} | w, "x.shapes")


def test_metadata(server):
    with triton_http.InferenceServerClient(server.http) as client:
        got = client.get_model_metadata("maybe_many")
    assert [(i["name"], i["datatype"], len(i["shape"])) for i in got["inputs"]] == [("o", "FP32", 1), ("o.shapes", "INT64", 2), ("o.has_value", "BOOL", 1)], got
    assert [(i["name"], i["datatype"]) for i in got["outputs"]] == [("p", "FP32"), ("p.shapes", "INT64"), ("p.has_value", "BOOL"), ("c", "BOOL")], got


def main():
    with tempfile.TemporaryDirectory() as folder:
        models(folder)
        server = base.Server(folder)
        failed = base.run_on(server, globals())
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
