#!/usr/bin/env python3
"""Every datatype through every front end of `switchyard serve`: whole numbers of all widths, to their last bit, strings, and no rows at all.

Prints a line a test, as the C tests do. SY_BINARY: the program."""
import json
import os
import sys
import tempfile
import urllib.error
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VENV = os.path.join(ROOT, "build/venv/bin/python")
if os.path.exists(VENV) and os.path.realpath(sys.prefix) != os.path.realpath(os.path.join(ROOT, "build/venv")):
    os.execv(VENV, [VENV] + sys.argv)
sys.path.insert(0, os.path.join(ROOT, "runtime/python"))

import grpc  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import switchyard  # noqa: E402
import tritonclient.grpc as triton_grpc  # noqa: E402
import tritonclient.http as triton_http  # noqa: E402
from onnx import TensorProto as T  # noqa: E402
from onnx import helper as h  # noqa: E402
from tritonclient.grpc import service_pb2, service_pb2_grpc  # noqa: E402
from checks import run_tests, tests_of  # noqa: E402
from check_server import LIMIT_S, CheckServer  # noqa: E402

INTEGERS = {"INT8": T.INT8, "INT16": T.INT16, "INT32": T.INT32, "INT64": T.INT64, "UINT8": T.UINT8, "UINT16": T.UINT16, "UINT32": T.UINT32, "UINT64": T.UINT64}
NUMPY = {name: np.dtype(name.lower()) for name in INTEGERS}
LIST = {"INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents", "INT64": "int64_contents",
        "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents"}


class Server(CheckServer):
    def __init__(self, folder, *args):
        super().__init__(folder, "--models", os.path.join(folder, "models"), "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", *args)
        self.http, self.grpc = self.address("http"), self.address("grpc")


def run_on(server, names):
    """Runs all test_... of a check's globals; how many failed, the server's end among them."""
    failed = 1
    try:
        failed = run_tests(tests_of(names), server)
    finally:
        if server.stop() != 0:
            failed += 1
            print("[  FAILED  ] the server's end\n" + server.log()[-4000:])
    return failed


def write_model(folder, name, nodes, inputs, outputs, weights=(), opset=17, domains=()):
    os.makedirs(os.path.join(folder, "models", name, "1"))
    graph = h.make_graph(nodes, name, [h.make_tensor_value_info(*i) for i in inputs], [h.make_tensor_value_info(*o) for o in outputs], list(weights))
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", opset)] + [h.make_opsetid(d, v) for d, v in domains])
    model.ir_version = 8
    onnx.save(model, os.path.join(folder, "models", name, "1", "model.onnx"))


def post(server, model, body):
    """The answer, or the error's code and text."""
    request = urllib.request.Request(f"http://{server.http}/v2/models/{model}/infer", json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]


def over_json(server, model, inputs, datatypes):
    answer = post(server, model, {"inputs": [{"name": n, "shape": list(x.shape), "datatype": datatypes[n], "data": x.reshape(-1).tolist()} for n, x in inputs.items()]})
    assert isinstance(answer, dict), answer
    return {o["name"]: (o["datatype"], o["shape"], o["data"]) for o in answer["outputs"]}


def over_triton(triton, address, model, inputs, datatypes, **options):
    client = triton.InferenceServerClient(address)
    given = []
    for n, x in inputs.items():
        tensor = triton.InferInput(n, list(x.shape), datatypes[n])
        tensor.set_data_from_numpy(x, **options)
        given.append(tensor)
    result = client.infer(model, given)
    outputs = result.get_response()
    outputs = [o["name"] for o in outputs["outputs"]] if isinstance(outputs, dict) else [o.name for o in outputs.outputs]
    return {n: result.as_numpy(n) for n in outputs}


def over_contents(server, model, inputs, datatypes, lists):
    """gRPC, elements one by one."""
    request = service_pb2.ModelInferRequest(model_name=model)
    for n, x in inputs.items():
        tensor = request.inputs.add(name=n, datatype=datatypes[n], shape=list(x.shape))
        getattr(tensor.contents, lists[n]).extend(x.reshape(-1).tolist())
    with grpc.insecure_channel(server.grpc) as channel:
        answer = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=LIMIT_S)
    return answer


# ---- whole numbers ---------------------------------------------------------------------------------------------


def integers_model(folder):
    for name, onnx_type in INTEGERS.items():
        write_model(folder, "pass_" + name.lower(), [h.make_node("Identity", ["x"], ["y"]), h.make_node("Cast", ["x"], ["f"], to=T.FLOAT), h.make_node("Add", ["x", "x"], ["sum"])],
                    [("x", onnx_type, ["n", 3])], [("y", onnx_type, ["n", 3]), ("f", T.FLOAT, ["n", 3]), ("sum", onnx_type, ["n", 3])])


def ends_of(name):
    info = np.iinfo(NUMPY[name])
    return np.array([[info.min, info.max, 1], [info.max - 1, info.min + 1, info.max // 3]], NUMPY[name])


def check_integers(name, got):
    x = ends_of(name)
    assert got["y"].dtype == x.dtype and (got["y"] == x).all(), (name, got["y"])
    assert (got["f"] == x.astype(np.float32)).all(), (name, got["f"])
    with np.errstate(over="ignore"):
        assert (got["sum"] == x + x).all(), (name, got["sum"])


def test_integers_in_json(server):
    for name in INTEGERS:
        got = over_json(server, "pass_" + name.lower(), {"x": ends_of(name)}, {"x": name})
        assert got["y"] == (name, [2, 3], ends_of(name).reshape(-1).tolist()), got
        check_integers(name, {"y": np.array(got["y"][2], NUMPY[name]).reshape(2, 3), "f": np.array(got["f"][2], np.float32).reshape(2, 3),
                              "sum": np.array(got["sum"][2], NUMPY[name]).reshape(2, 3)})


def test_integers_out_of_range(server):
    for name in INTEGERS:
        info = np.iinfo(NUMPY[name])
        for value in (int(info.max) + 1, int(info.min) - 1):
            code, why = post(server, "pass_" + name.lower(), {"inputs": [{"name": "x", "shape": [1, 3], "datatype": name, "data": [0, value, 0]}]})
            assert code == 400 and name in why, (code, why)


def test_integers_in_binary(server):
    for name in INTEGERS:
        check_integers(name, over_triton(triton_http, server.http, "pass_" + name.lower(), {"x": ends_of(name)}, {"x": name}, binary_data=True))


def test_integers_over_grpc(server):
    for name in INTEGERS:
        check_integers(name, over_triton(triton_grpc, server.grpc, "pass_" + name.lower(), {"x": ends_of(name)}, {"x": name}))
        answer = over_contents(server, "pass_" + name.lower(), {"x": ends_of(name)}, {"x": name}, {"x": LIST[name]})
        assert answer.raw_output_contents[0] == ends_of(name).tobytes(), name


def test_integers_over_rpc(server):
    with switchyard.Client("unix:" + server.socket) as client:
        for name in INTEGERS:
            check_integers(name, client.infer("pass_" + name.lower(), {"x": ends_of(name)}))


# ---- strings -----------------------------------------------------------------------------------------------------


def strings_models(folder):
    words = onnx.helper.make_tensor("words", T.STRING, [3], [b"x", "\u00e9t\u00e9".encode(), b""])
    write_model(folder, "column", [h.make_node("Reshape", ["x", "to"], ["y"])], [("x", T.STRING, ["b", 1])], [("y", T.STRING, ["b"])],
                [h.make_tensor("to", T.INT64, [1], [-1])])
    write_model(folder, "moves",
                [h.make_node("Concat", ["x", "x"], ["xx"], axis=1), h.make_node("Transpose", ["xx"], ["t"]), h.make_node("Gather", ["t", "at"], ["y"]),
                 h.make_node("Equal", ["x", "words"], ["same"]), h.make_node("Where", ["same", "x", "words"], ["mixed"]), h.make_node("Shape", ["xx"], ["shape"]),
                 h.make_node("Unsqueeze", ["x", "one"], ["u"]), h.make_node("Expand", ["u", "wide"], ["e"]), h.make_node("Tile", ["x", "twice"], ["tiled"]),
                 h.make_node("Identity", ["words"], ["known"]), h.make_node("Split", ["x"], ["first", "rest"], axis=1),
                 h.make_node("Slice", ["x", "from", "till", "one"], ["cut"])],
                [("x", T.STRING, ["b", 3])],
                [("y", T.STRING, [2, "b"]), ("same", T.BOOL, ["b", 3]), ("mixed", T.STRING, ["b", 3]), ("shape", T.INT64, [2]), ("e", T.STRING, ["b", 2, 3]),
                 ("tiled", T.STRING, ["m", 6]), ("known", T.STRING, [3]), ("first", T.STRING, ["b", 1]), ("rest", T.STRING, ["b", 2]), ("cut", T.STRING, ["b", 2])],
                [words, h.make_tensor("at", T.INT64, [2], [5, 0]), h.make_tensor("one", T.INT64, [1], [1]), h.make_tensor("wide", T.INT64, [3], [1, 2, 3]),
                 h.make_tensor("twice", T.INT64, [2], [1, 2]), h.make_tensor("from", T.INT64, [1], [1]), h.make_tensor("till", T.INT64, [1], [10 ** 9])])


def of_bytes(array):
    return np.array([item.encode() if isinstance(item, str) else item for item in array.reshape(-1)], object).reshape(array.shape)


GIVEN = np.array([["x", "\u00e9t\u00e9", "a \"quoted\"\\ \n\u0001 \U0001f600"], ["", "long " * 50, ""]], object)


def check_moves(got):
    x, words = of_bytes(GIVEN), np.array([b"x", "\u00e9t\u00e9".encode(), b""], object)
    same = x == words
    wanted = {"y": np.concatenate([x, x], 1).T[[5, 0]], "same": same, "mixed": np.where(same, x, words), "shape": np.array([2, 6]),
              "e": np.repeat(x[:, None], 2, 1), "tiled": np.tile(x, (1, 2)), "known": words, "first": x[:, :2], "rest": x[:, 2:], "cut": x[:, 1:]}
    wanted["first"], wanted["rest"] = x[:, :got["first"].shape[1]], x[:, got["first"].shape[1]:]
    for name, array in wanted.items():
        assert got[name].shape == array.shape and (got[name] == array).all(), (name, got[name], array)


def test_strings_in_json(server):
    got = over_json(server, "moves", {"x": GIVEN}, {"x": "BYTES"})
    assert got["known"] == ("BYTES", [3], ["x", "\u00e9t\u00e9", ""]), got["known"]
    check_moves({n: of_bytes(np.array(data, object).reshape(shape)) if kind == "BYTES" else np.array(data).reshape(shape) for n, (kind, shape, data) in got.items()})
    assert over_json(server, "column", {"x": np.array([["a"], ["bc"]], object)}, {"x": "BYTES"})["y"] == ("BYTES", [2], ["a", "bc"])


def test_strings_in_binary(server):
    check_moves(over_triton(triton_http, server.http, "moves", {"x": of_bytes(GIVEN)}, {"x": "BYTES"}, binary_data=True))


def test_strings_over_grpc(server):
    check_moves(over_triton(triton_grpc, server.grpc, "moves", {"x": of_bytes(GIVEN)}, {"x": "BYTES"}))
    answer = over_contents(server, "column", {"x": np.array([[b"a"], [b""], [b"\xff\0b"]], object)}, {"x": "BYTES"}, {"x": "bytes_contents"})
    assert answer.raw_output_contents[0] == b"\1\0\0\0a\0\0\0\0\3\0\0\0\xff\0b", answer
    many = np.array([[b"w" * (i % 40)] for i in range(20000)], object)  # longer than what is read at once
    assert (over_triton(triton_grpc, server.grpc, "column", {"x": many}, {"x": "BYTES"})["y"] == many[:, 0]).all()
    assert (over_triton(triton_http, server.http, "column", {"x": many}, {"x": "BYTES"}, binary_data=True)["y"] == many[:, 0]).all()


def test_strings_over_rpc(server):
    with switchyard.Client("unix:" + server.socket) as client:
        check_moves(client.infer("moves", {"x": GIVEN}))
        many = np.array([["w" * (i % 700)] for i in range(2000)])
        assert (client.infer("column", {"x": many})["y"] == of_bytes(many)[:, 0]).all()
        place = np.empty(2, object)
        client.infer("column", {"x": np.array([["p"], ["q"]])}, outputs={"y": place})
        assert list(place) == [b"p", b"q"]


def test_strings_in_shared_memory(server):
    from tritonclient.utils import shared_memory as shm
    client = triton_http.InferenceServerClient(server.http)
    x = np.array([[b"shared"], [b""], [b"memory"]], object)
    handle = shm.create_shared_memory_region("strings", f"/sy_strings_{os.getpid()}", 4096)
    try:
        shm.set_shared_memory_region(handle, [triton_http.InferInput("x", [3, 1], "BYTES") and triton_serialize(x)])
        client.register_system_shared_memory("strings", f"/sy_strings_{os.getpid()}", 4096)
        given = triton_http.InferInput("x", [3, 1], "BYTES")
        given.set_shared_memory("strings", 4 * 3 + 12)
        wanted = triton_http.InferRequestedOutput("y")
        wanted.set_shared_memory("strings", 1024, 1024)
        client.infer("column", [given], outputs=[wanted])
        assert bytes(shm.get_contents_as_numpy(handle, np.uint8, [4096])[1024:1024 + 24]) == b"\6\0\0\0shared\0\0\0\0\6\0\0\0memory"
    finally:
        client.unregister_system_shared_memory()
        shm.destroy_shared_memory_region(handle)


def triton_serialize(x):
    return np.frombuffer(b"".join(len(item).to_bytes(4, "little") + item for item in x.reshape(-1)), np.uint8)


def test_strings_refused(server):
    def of(model, **more):
        return post(server, model, {"inputs": [{"name": "x", "datatype": "BYTES", **more}]})
    for more, word in (({"shape": [2, 1], "data": ["a"]}, "elements"), ({"shape": [1, 1], "data": ["a", "b"]}, "more"), ({"shape": [1, 1], "data": [1]}, "not a string"),
                       ({"shape": [1, 1], "data": ["\ud800"]}, "string of JSON"), ({"shape": [1, 2], "data": ["a", "b"]}, "dimension")):
        code, why = of("column", **more)
        assert code == 400 and word in why, (more, code, why)
    code, why = post(server, "column", {"inputs": [{"name": "x", "datatype": "INT64", "shape": [1, 1], "data": [1]}]})
    assert code == 400 and "BYTES" in why, why
    code, why = of("column", shape=[3000, 1], data=["z" * 1000] * 3000)
    assert code == 413 and "--string-bytes" in why, (code, why)
    body = b'{"inputs":[{"name":"x","shape":[2,1],"datatype":"BYTES","parameters":{"binary_data_size":13}}]}'
    for data in (b"\4\0\0\0abcd\9\0\0\0z", b"\xff\xff\xff\xffabcd\0\0\0\0z", b"\1\0\0\0a\0\0\0\0z\0\0\0"):
        request = urllib.request.Request(f"http://{server.http}/v2/models/column/infer", body + data, {"Inference-Header-Content-Length": str(len(body))})
        try:
            urllib.request.urlopen(request, timeout=LIMIT_S)
            raise AssertionError("not refused")
        except urllib.error.HTTPError as error:
            assert error.code == 400, (error.code, error.read())
    answer = over_contents(server, "column", {"x": np.array([[b"\xff"]], object)}, {"x": "BYTES"}, {"x": "bytes_contents"})
    assert answer.raw_output_contents[0] == b"\1\0\0\0\xff"
    body = b'{"inputs":[{"name":"x","shape":[1,1],"datatype":"BYTES","parameters":{"binary_data_size":5}}],"outputs":[{"name":"y","parameters":{"binary_data":false}}]}'
    request = urllib.request.Request(f"http://{server.http}/v2/models/column/infer", body + b"\1\0\0\0\xff", {"Inference-Header-Content-Length": str(len(body))})
    try:
        urllib.request.urlopen(request, timeout=LIMIT_S)
        raise AssertionError("not refused")
    except urllib.error.HTTPError as error:
        assert error.code == 400 and b"UTF-8" in error.read()


# ---- words, labels, trees: against ONNX Runtime -----------------------------------------------------------------


def learn_models(folder):
    words = ["dog", "fox", "lazy", "quick", "the"]
    ml = [("ai.onnx.ml", 3), ("com.microsoft", 1)]
    nodes = [h.make_node("StringNormalizer", ["t"], ["low"], case_change_action="LOWER", locale="C.UTF-8"),
             h.make_node("Tokenizer", ["low"], ["tokens"], domain="com.microsoft", mark=0, pad_value="#", mincharnum=1, tokenexp="[a-zA-Z0-9_]+"),
             h.make_node("TfIdfVectorizer", ["tokens"], ["counts"], mode="TF", min_gram_length=1, max_gram_length=2, max_skip_count=0, ngram_counts=[0, 5],
                         ngram_indexes=[0, 1, 2, 3, 4, 5], pool_strings=words + ["quick", "fox"]),
             h.make_node("TreeEnsembleClassifier", ["counts"], ["label", "scores"], domain="ai.onnx.ml", nodes_treeids=[0] * 5, nodes_nodeids=[0, 1, 2, 3, 4],
                         nodes_featureids=[1, 0, 0, 0, 0], nodes_values=[0.5, 0.5, 0.0, 0.0, 0.0], nodes_modes=["BRANCH_LEQ", "BRANCH_GT", "LEAF", "LEAF", "LEAF"],
                         nodes_truenodeids=[1, 2, 0, 0, 0], nodes_falsenodeids=[4, 3, 0, 0, 0], nodes_hitrates=[1.0] * 5, class_treeids=[0] * 3, class_nodeids=[2, 3, 4],
                         class_ids=[0, 1, 2], class_weights=[1.0, 1.0, 1.0], classlabels_strings=["a dog", "neither", "\u00e9 fox"], post_transform="NONE")]
    write_model(folder, "words", nodes, [("t", T.STRING, ["n"])], [("counts", T.FLOAT, ["n", 6]), ("label", T.STRING, ["n"]), ("scores", T.FLOAT, ["n", 3])], domains=ml)
    for name, pad in (("grams", "#"), ("grams_of_padding", "dog")):  # padding that counts keeps the tokens outside
        nodes = [h.make_node("Tokenizer", ["t"], ["tokens"], domain="com.microsoft", mark=0, pad_value=pad, mincharnum=2, separators=[" ", "[,.]"]),
                 h.make_node("Flatten", ["tokens"], ["rows"]),
                 h.make_node("TfIdfVectorizer", ["rows"], ["counts"], mode="TFIDF", min_gram_length=1, max_gram_length=2, max_skip_count=1, ngram_counts=[0, 5],
                             ngram_indexes=[0, 1, 2, 3, 5, 4, 6], pool_strings=words + ["quick", "fox", "lazy", "dog"], weights=[1.0, 2.0, 0.5, 3.0, 1.5, 4.0, 0.25])]
        write_model(folder, name, nodes, [("t", T.STRING, ["n", 1])], [("counts", T.FLOAT, ["n", 7])], domains=ml)
    nodes = [h.make_node("LabelEncoder", ["t"], ["code"], domain="ai.onnx.ml", keys_strings=["x", "y"], values_int64s=[7, -9], default_int64=3),
             h.make_node("LabelEncoder", ["code"], ["back"], domain="ai.onnx.ml", keys_int64s=[7, -9], values_strings=["seven", "nine"], default_string="none"),
             h.make_node("OneHotEncoder", ["t"], ["hot"], domain="ai.onnx.ml", cats_strings=["y", "z"], zeros=1)]
    write_model(folder, "labels", nodes, [("t", T.STRING, ["n"])], [("code", T.INT64, ["n"]), ("back", T.STRING, ["n"]), ("hot", T.FLOAT, ["n", 2])], domains=ml)
    nodes = [h.make_node("StringConcat", ["t" if i == 0 else f"t{i}"] * 2, [f"t{i + 1}"]) for i in range(9)]
    write_model(folder, "doubled", nodes, [("t", T.STRING, ["n"])], [("t9", T.STRING, ["n"])], opset=20)


def check_learned(server, model, x):
    import onnxruntime
    path = os.path.join(server.folder, "models", model, "1", "model.onnx")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    with switchyard.Client("unix:" + server.socket) as client:
        got = client.infer(model, {"t": x})
    for output, want in zip(session.get_outputs(), session.run(None, {"t": x})):
        want = of_bytes(want) if want.dtype == object else want
        assert got[output.name].shape == want.shape and (got[output.name] == want).all(), (output.name, got[output.name], want)


def test_learned_words(server):
    texts = ["The QUICK fox jumps", "lazy dog, lazy dog", "", "nothing here", "the quick fox and the dog"]
    for n in (1, 2, 5):
        check_learned(server, "words", np.array(texts[:n], object))
        for model in ("grams", "grams_of_padding"):
            check_learned(server, model, np.array([t.lower() for t in texts[:n]], object).reshape(n, 1))


def test_learned_labels(server):
    check_learned(server, "labels", np.array(["x", "y", "z", "", "x"], object))


def test_strings_that_grow(server):
    with switchyard.Client("unix:" + server.socket) as client:
        for text in ("ab", "abcdefgh" * 40):  # the second needs more than what it is given at first
            assert client.infer("doubled", {"t": np.array([text], object)})["t9"][0] == text.encode() * 512
        try:
            client.infer("doubled", {"t": np.array(["abcdefgh" * 4000], object)})
            raise AssertionError("not refused")
        except switchyard.SwitchyardError as error:
            assert error.status == "ETOOBIG", error
        assert client.infer("doubled", {"t": np.array(["z"], object)})["t9"][0] == b"z" * 512


# ---- no rows ---------------------------------------------------------------------------------------------------


def empty_models(folder):
    """What only a run can size, of no rows: places counted (known to be none), and a mean of them (which is not)."""
    rows = [("x", T.FLOAT, ["b", 4])]
    write_model(folder, "places", [h.make_node("NonZero", ["x"], ["n"]), h.make_node("Transpose", ["n"], ["t"], perm=[1, 0])], rows,
                [("n", T.INT64, [2, "k"]), ("t", T.INT64, ["k", 2])])
    write_model(folder, "mean_place", [h.make_node("NonZero", ["x"], ["n"]), h.make_node("ReduceSum", ["n"], ["s"], keepdims=0)], rows, [("s", T.INT64, [])])


def test_no_rows(server):
    none = np.zeros((0, 4), np.float32)
    for get in (lambda m: over_triton(triton_http, server.http, m, {"x": none}, {"x": "FP32"}), lambda m: over_triton(triton_grpc, server.grpc, m, {"x": none}, {"x": "FP32"})):
        got = get("places")
        assert got["n"].shape == (2, 0) and got["t"].shape == (0, 2) and got["n"].dtype == np.int64
    code, why = post(server, "mean_place", {"inputs": [{"name": "x", "shape": [0, 4], "datatype": "FP32", "data": []}]})
    assert code == 400 and '"s"' in why, why


def main():
    with tempfile.TemporaryDirectory() as folder:
        integers_model(folder)
        strings_models(folder)
        learn_models(folder)
        empty_models(folder)
        server = Server(folder, "--string-bytes", "2M")
        failed = run_on(server, globals())
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
