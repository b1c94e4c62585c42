#!/usr/bin/env python3
"""Strings through a real server, where they are many or long, where patterns take long, in bodies, and where they become numbers.

Prints a line a test, as the C tests do. SY_BINARY: the program."""
import os
import struct
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

TYPES = {"UINT8": T.UINT8, "INT8": T.INT8, "UINT16": T.UINT16, "INT16": T.INT16, "INT32": T.INT32, "UINT32": T.UINT32, "INT64": T.INT64, "UINT64": T.UINT64, "BOOL": T.BOOL,
         "FP32": T.FLOAT, "FP64": T.DOUBLE}
TEXTS = ["300", "-1", "70000", "3000000000", "12x", "1.5", " 7", "+5", "0x10", "0", "2"]


def models(folder):
    texts = [("t", T.STRING, ["n"])]
    nodes = [h.make_node("StringConcat", ["t" if i == 0 else f"t{i}"] * 2, [f"t{i + 1}"]) for i in range(3)]
    base.write_model(folder, "eightfold", nodes, texts, [("t3", T.STRING, ["n"])], opset=20)
    base.write_model(folder, "matches", [h.make_node("RegexFullMatch", ["t"], ["y"], pattern="(a|aa)*[bc]")], texts, [("y", T.BOOL, ["n"])], opset=20)
    for name, dtype in TYPES.items():
        base.write_model(folder, "to_" + name.lower(), [h.make_node("Cast", ["t"], ["y"], to=dtype)], texts, [("y", dtype, ["n"])])
    base.write_model(folder, "configured", [h.make_node("StringConcat", ["t", "t"], ["y"])], [("t", T.STRING, ["n", 2])], [("y", T.STRING, ["n", 2])], opset=20)
    write_configuration(os.path.join(folder, "models", "configured"))
    for name, last in (("turns", "count"), ("turns_of_data", "some")):
        loop_model(folder, name, last)


def write_configuration(path):
    """As Triton's users write it, with a warm-up on a row of strings."""
    os.mkdir(os.path.join(path, "warmup"))
    with open(os.path.join(path, "warmup", "row"), "wb") as file:
        for text in (b"one", b""):
            file.write(struct.pack("<I", len(text)) + text)
    with open(os.path.join(path, "config.pbtxt"), "w") as file:
        file.write("""max_batch_size: 8
            input { name: "t" data_type: TYPE_STRING dims: [ 2 ] }
            output { name: "y" data_type: TYPE_STRING dims: [ 2 ] }
            model_warmup { name: "w" batch_size: 3 inputs { key: "t" value { data_type: TYPE_STRING dims: [ 2 ] input_data_file: "row" } } }""")


def loop_model(folder, name, last):
    """A Loop whose body has a long constant; `some`: it also counts what only the run can size."""
    tensor = h.make_tensor_value_info
    body = [h.make_node("Constant", [], ["words"], value=h.make_tensor("w", T.STRING, [2], [b"x" * 900, b"y"])),
            h.make_node("Equal", ["text", "words"], ["is"]), h.make_node("Cast", ["is"], ["as_int"], to=T.INT64), h.make_node("ReduceSum", ["as_int"], ["hits"], keepdims=0),
            h.make_node("Add", ["sum", "hits"], ["sum_out"]), h.make_node("Identity", ["go"], ["go_out"])]
    graph = h.make_graph(body, "body", [tensor("i", T.INT64, []), tensor("go", T.BOOL, []), tensor("sum", T.INT64, [])], [tensor("go_out", T.BOOL, []), tensor("sum_out", T.INT64, [])])
    nodes = [h.make_node("Loop", ["n", "", "zero"], ["count"], body=graph)]
    if last == "some":
        nodes = [h.make_node("NonZero", ["n"], ["places"]), h.make_node("ReduceSum", ["places"], ["none"], keepdims=0)] + nodes
        nodes.append(h.make_node("Add", ["count", "none"], ["some"]))
        nodes[2].input[2] = "none"
    zero = [h.make_tensor("zero", T.INT64, [], [0])] if last == "count" else []
    base.write_model(folder, name, nodes, [("n", T.INT64, []), ("text", T.STRING, [1])], [(last, T.INT64, [])], zero, opset=19)


def over_rpc(server, model, inputs):
    with switchyard.Client("unix:" + server.socket) as client:
        return client.infer(model, inputs)


def refused(server, model, inputs):
    try:
        over_rpc(server, model, inputs)
    except switchyard.SwitchyardError as error:
        return error
    raise AssertionError("not refused")


def test_inputs_that_move(server):
    """The run needs more for its strings than it is given at first, so its inputs, of some MB, go to larger memory."""
    x = np.array(["ab" * 400000, "", "z" * 700000], object)
    want = [t.encode() * 8 for t in x]
    assert list(over_rpc(server, "eightfold", {"t": x})["t3"]) == want
    for triton, address in ((triton_http, server.http), (triton_grpc, server.grpc)):
        assert list(base.over_triton(triton, address, "eightfold", {"t": x}, {"t": "BYTES"})["t3"]) == want
    many = np.array([str(i) for i in range(300000)], object)
    assert list(over_rpc(server, "eightfold", {"t": many})["t3"]) == [t.encode() * 8 for t in many]
    got = base.over_json(server, "eightfold", {"t": many[:50000]}, {"t": "BYTES"})["t3"]
    assert got[2] == [t * 8 for t in many[:50000]]


def test_configuration(server):
    x = np.array([["a", "bc"]] * 3, object)
    for triton, address in ((triton_http, server.http), (triton_grpc, server.grpc)):
        client = triton.InferenceServerClient(address)
        config = client.get_model_config("configured", **({} if triton is triton_http else {"as_json": True}))
        config = config.get("config", config)
        assert [one["data_type"] for one in config["input"] + config["output"]] == ["TYPE_STRING"] * 2, config
        assert config["model_warmup"][0]["inputs"]["t"]["input_data_file"] == "row", config
        assert base.over_triton(triton, address, "configured", {"t": x}, {"t": "BYTES"})["y"].tolist() == [[b"aa", b"bcbc"]] * 3


def test_patterns_that_take_long(server):
    cost = "a" * 26  # some millions of steps each
    assert list(over_rpc(server, "matches", {"t": np.array([cost, "aab", "ac", ""], object)})["y"]) == [False, True, True, False]
    error = refused(server, "matches", {"t": np.array([cost] * 200, object)})
    assert error.status == "EARG" and "steps" in str(error), error
    error = refused(server, "matches", {"t": np.array(["a" * 60], object)})
    assert error.status == "EARG", error
    assert over_rpc(server, "matches", {"t": np.array(["aaac"], object)})["y"][0]


def test_constants_of_bodies(server):
    """They are in the strings of a run once, not once a turn: 80000 turns of 1 KB would not fit."""
    for model, output in (("turns", "count"), ("turns_of_data", "some")):
        got = over_rpc(server, model, {"n": np.array(80000), "text": np.array(["y"], object)})
        assert got[output] == 80000, got


def test_texts_as_numbers(server):
    for name in TYPES:
        session = onnxruntime.InferenceSession(os.path.join(server.folder, "models", "to_" + name.lower(), "1", "model.onnx"), providers=["CPUExecutionProvider"])
        for text in TEXTS:
            want = session.run(None, {"t": np.array([text], object)})[0]
            got = over_rpc(server, "to_" + name.lower(), {"t": np.array([text], object)})["y"]
            assert got.dtype == want.dtype and (got == want).all(), (name, text, got, want)
        for text in ("", "x", "99999999999999999999" if name not in ("FP32", "FP64") else "."):
            assert refused(server, "to_" + name.lower(), {"t": np.array([text], object)}).status == "EARG", (name, text)


def main():
    with tempfile.TemporaryDirectory() as folder:
        models(folder)
        # a pattern ends by its steps, not by the clock: under a sanitizer on a busy machine the steps that it may make take longer than a worker may stand
        server = base.Server(folder, "--string-bytes", "32M", "--hang-timeout", "120")
        failed = base.run_on(server, globals())
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
