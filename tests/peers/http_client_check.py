#!/usr/bin/env python3
"""Triton's stock HTTP client against `switchyard serve`: each of its calls, and what its users get wrong.

Prints a line a test, as the C tests do. SY_BINARY: the program; its folder also has make-models."""
import asyncio
import concurrent.futures
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VENV = os.path.join(ROOT, "build/venv/bin/python")
if os.path.exists(VENV) and os.path.realpath(sys.prefix) != os.path.realpath(os.path.join(ROOT, "build/venv")):
    os.execv(VENV, [VENV] + sys.argv)

import numpy as np  # noqa: E402
import tritonclient.http as triton  # noqa: E402
import tritonclient.http.aio as triton_aio  # noqa: E402
from tritonclient.utils import InferenceServerException, shared_memory as shm  # noqa: E402
from checks import run_tests, tests_of  # noqa: E402
from check_server import BINARY, LIMIT_S, CheckServer  # noqa: E402


class Server(CheckServer):
    def __init__(self, folder, *args):
        super().__init__(folder, "--models", os.path.join(folder, "models"), "--http", "127.0.0.1:0", "--grpc", "off", *args)
        self.http = self.address("http")

    def client(self, **options):
        return triton.InferenceServerClient(self.http, network_timeout=LIMIT_S, connection_timeout=LIMIT_S, **options)


def refused(status, call, *args, **kwargs):
    """The error's text; it must have this HTTP code."""
    try:
        call(*args, **kwargs)
    except InferenceServerException as error:
        assert error.status() == str(status), (error.status(), error.message())
        return error.message()
    raise AssertionError("not refused: %d" % status)


def numbers(rows, columns=4, seed=1):
    return np.random.default_rng(seed).standard_normal((rows, columns), dtype=np.float32)


def tensor(x, name="input", binary=True):
    given = triton.InferInput(name, list(x.shape), "FP32")
    given.set_data_from_numpy(x, binary_data=binary)
    return given


# ---- calls about models and the server ------------------------------------------------------------------------


def test_server(server):
    client = server.client()
    assert client.is_server_live() and client.is_server_ready()
    got = client.get_server_metadata()
    assert got["name"] == "switchyard" and got["version"] and "binary_tensor_data" in got["extensions"]


def test_models(server):
    client = server.client()
    assert client.is_model_ready("mlp") and client.is_model_ready("mlp", "1")
    assert not client.is_model_ready("mlp", "2") and not client.is_model_ready("nobody")
    got = client.get_model_metadata("mlp")
    assert got["name"] == "mlp" and got["versions"] == ["1"]
    assert got["inputs"] == [{"name": "input", "datatype": "FP32", "shape": [-1, 16]}], got
    assert got["outputs"] == [{"name": "output", "datatype": "FP32", "shape": [-1, 4]}], got
    config = client.get_model_config("mlp", "1")
    assert config["name"] == "mlp" and config["input"][0]["data_type"] == "TYPE_FP32", config
    names = {m["name"]: m for m in client.get_model_repository_index()}
    assert names["mlp"]["state"] == "READY" and names["mlp"]["version"] == "1"
    assert "nobody" in refused(404, client.get_model_metadata, "nobody")
    refused(404, client.get_model_config, "nobody")
    refused(400, client.get_model_metadata, "mlp", "one")


def test_statistics(server):
    client = server.client()
    before = client.get_inference_statistics("tiny_cnn")["model_stats"][0]
    x = numbers(3, 3 * 16 * 16).reshape(3, 3, 16, 16)
    client.infer("tiny_cnn", [tensor(x)])
    after = client.get_inference_statistics("tiny_cnn", "1")["model_stats"][0]
    assert after["inference_count"] == before["inference_count"] + 3 and after["execution_count"] == before["execution_count"] + 1
    for part in ("success", "queue", "compute_input", "compute_infer", "compute_output"):
        assert after["inference_stats"][part]["count"] == before["inference_stats"][part]["count"] + 1, part
    assert after["last_inference"] > 1e12
    runs = [{one["batch_size"]: one for one in stats["batch_stats"]} for stats in (before, after)]
    for part in ("compute_input", "compute_infer", "compute_output"):
        assert runs[1][3][part]["count"] == (runs[0][3][part]["count"] if 3 in runs[0] else 0) + 1, runs
    assert list(runs[1]) == sorted(runs[1]) and sum(rows * one["compute_infer"]["count"] for rows, one in runs[1].items()) == after["inference_count"], after
    assert len(client.get_inference_statistics()["model_stats"]) >= 3
    refused(404, client.get_inference_statistics, "nobody")


def test_settings(server):
    client = server.client()
    was = client.get_trace_settings()
    assert "trace_rate" in was
    assert client.update_trace_settings(settings={"trace_rate": "7"})["trace_rate"] == "7"
    assert client.update_trace_settings("mlp", {"trace_rate": "3"})["trace_rate"] == "3"
    assert client.get_trace_settings("mlp")["trace_rate"] == "3" and client.get_trace_settings()["trace_rate"] == "7"
    client.update_trace_settings("mlp", {"trace_rate": None})
    assert client.get_trace_settings("mlp")["trace_rate"] == "7"
    client.update_trace_settings(settings={"trace_rate": None})
    refused(400, client.update_trace_settings, settings={"trace_rate": "often"})
    log = client.get_log_settings()
    assert client.update_log_settings({"log_verbose_level": 1})["log_verbose_level"] == 1
    client.update_log_settings({"log_verbose_level": log["log_verbose_level"]})
    refused(400, client.update_log_settings, {"log_colour": True})


# ---- inference --------------------------------------------------------------------------------------------------


def test_infer(server):
    client = server.client()
    for rows in (1, 2, 7, 300, 4000):
        for given in (True, False):
            for wanted in (True, False):
                x = numbers(rows, seed=rows)
                outputs = [triton.InferRequestedOutput("output", binary_data=wanted)]
                got = client.infer("identity", [tensor(x, binary=given)], outputs=outputs, request_id="r%d" % rows)
                assert np.array_equal(got.as_numpy("output"), x), (rows, given, wanted)
                assert got.get_response()["id"] == "r%d" % rows and got.get_response()["model_version"] == "1"
    assert np.array_equal(client.infer("identity", [tensor(x)]).as_numpy("output"), x)
    empty = client.infer("identity", [tensor(numbers(0))]).as_numpy("output")
    assert empty.shape == (0, 4) and empty.dtype == np.float32


def test_options(server):
    client = server.client(verbose=False)
    x = numbers(2)
    got = client.infer("identity", [tensor(x)], model_version="1", priority=1, timeout=60 * 10**6, headers={"Switchyard-Tenant": "someone"},
                       query_params={"a": "b c"}, parameters={"mine": "yes", "tenant": "someone"})
    assert np.array_equal(got.as_numpy("output"), x)
    assert "other" in refused(400, client.infer, "identity", [tensor(x)], headers={"Switchyard-Tenant": "someone"}, parameters={"tenant": "other"})
    refused(404, client.infer, "identity", [tensor(x)], model_version="2")
    refused(404, client.infer, "nobody", [tensor(x)])
    # A model without state takes a sequence's requests one by one.
    for sequence in ({"sequence_id": 5, "sequence_start": True}, {"sequence_id": 5}, {"sequence_id": "five", "sequence_end": True}):
        assert np.array_equal(client.infer("identity", [tensor(x)], **sequence).as_numpy("output"), x)
    refused(504, client.infer, "tiny_cnn", [tensor(numbers(64, 768).reshape(64, 3, 16, 16))], timeout=1)


def test_wrong_requests(server):
    client = server.client()
    x = numbers(2)
    assert "FP64" in refused(400, client.infer, "identity", [wrong_type(x)])
    assert "\"other\"" in refused(400, client.infer, "identity", [tensor(x, "other")])
    assert "\"input\"" in refused(400, client.infer, "identity", [tensor(x), tensor(x)])
    refused(400, client.infer, "identity", [tensor(numbers(2, 5))])
    refused(400, client.infer, "identity", [tensor(x)], outputs=[triton.InferRequestedOutput("nothing")])
    text = triton.InferInput("input", [1, 4], "BYTES")
    text.set_data_from_numpy(np.array([[b"a", b"b", b"c", b"d"]], dtype=object))
    assert "BYTES" in refused(400, client.infer, "identity", [text])
    assert np.array_equal(client.infer("identity", [tensor(x)]).as_numpy("output"), x)  # on the same connection


def wrong_type(x):
    given = triton.InferInput("input", list(x.shape), "FP64")
    given.set_data_from_numpy(x.astype(np.float64))
    return given


def test_async(server):
    client = server.client(concurrency=8)
    inputs = [numbers(1 + i % 5, seed=i) for i in range(200)]
    pending = [client.async_infer("identity", [tensor(x, binary=i % 2 == 0)]) for i, x in enumerate(inputs)]
    for x, request in zip(inputs, pending):
        assert np.array_equal(request.get_result(timeout=LIMIT_S).as_numpy("output"), x)
    refused(404, client.async_infer("nobody", [tensor(inputs[0])]).get_result)


def test_asyncio(server):
    async def run():
        async with triton_aio.InferenceServerClient(server.http) as client:
            assert await client.is_server_ready()
            inputs = [numbers(1 + i % 5, seed=i) for i in range(100)]
            results = await asyncio.gather(*[client.infer("identity", [tensor(x)]) for x in inputs])
            assert all(np.array_equal(got.as_numpy("output"), x) for got, x in zip(results, inputs))

    asyncio.run(run())


def test_compression(server):
    client = server.client()
    for rows in (1, 300, 4000):
        x = np.round(numbers(rows, seed=rows), 1)
        for request in (None, "gzip", "deflate"):
            for response in (None, "gzip", "deflate"):
                for binary in (True, False):
                    got = client.infer("identity", [tensor(x, binary=binary)], request_compression_algorithm=request,
                                       response_compression_algorithm=response,
                                       outputs=[triton.InferRequestedOutput("output", binary_data=binary)])
                    assert np.array_equal(got.as_numpy("output"), x), (rows, request, response, binary)


def test_bodies(server):
    """generate_request_body and parse_response_body, through another HTTP client."""
    x = numbers(3)
    body, json_bytes = triton.InferenceServerClient.generate_request_body([tensor(x)])
    request = urllib.request.Request("http://%s/v2/models/identity/infer" % server.http, body,
                                     {"Inference-Header-Content-Length": str(json_bytes)})
    with urllib.request.urlopen(request, timeout=LIMIT_S) as response:
        got = triton.InferenceServerClient.parse_response_body(response.read(), header_length=int(response.headers["Inference-Header-Content-Length"] or 0) or None)
    assert np.array_equal(got.as_numpy("output"), x)


def test_classification(server):
    client = server.client()
    x = numbers(3, 16)
    plain = client.infer("mlp", [tensor(x)]).as_numpy("output")
    for binary in (True, False):
        got = client.infer("mlp", [tensor(x)], outputs=[triton.InferRequestedOutput("output", binary_data=binary, class_count=2)])
        classes = got.as_numpy("output")
        assert classes.shape == (3, 2), classes
        for row, best in zip(plain, classes):
            order = np.argsort(-row)[:2]
            texts = [t.decode() if isinstance(t, bytes) else t for t in best]
            assert [int(t.split(":")[1]) for t in texts] == list(order), (row, texts)


def test_shared_memory(server):
    client = server.client()
    key = "/http_check_%d" % os.getpid()
    x = numbers(1000)
    region = shm.create_shared_memory_region("tensors", key, 2 * x.nbytes + 4096)
    try:
        client.register_system_shared_memory("tensors", key, 2 * x.nbytes + 4096)
        assert client.get_system_shared_memory_status("tensors")[0]["byte_size"] == 2 * x.nbytes + 4096
        refused(400, client.register_system_shared_memory, "tensors", key, 100)
        refused(404, client.register_system_shared_memory, "other", key + "none", 100)
        for begin, end in ((0, x.nbytes), (4, x.nbytes + 100)):  # where it lies, and copied
            shm.set_shared_memory_region(region, [x], offset=begin)
            given = triton.InferInput("input", list(x.shape), "FP32")
            given.set_shared_memory("tensors", x.nbytes, offset=begin)
            wanted = triton.InferRequestedOutput("output")
            wanted.set_shared_memory("tensors", x.nbytes, offset=end)
            got = client.infer("identity", [given], outputs=[wanted]).get_output("output")
            assert got["shape"] == [1000, 4] and "data" not in got
            assert np.array_equal(shm.get_contents_as_numpy(region, np.float32, [1000, 4], offset=end), x)
        client.unregister_system_shared_memory("tensors")
        assert client.get_system_shared_memory_status() == []
        refused(400, client.infer, "identity", [given], outputs=[wanted])
        refused(404, client.get_system_shared_memory_status, "tensors")
    finally:
        shm.destroy_shared_memory_region(region)
    assert client.get_cuda_shared_memory_status() == []
    client.unregister_cuda_shared_memory()
    assert "CUDA" in refused(501, client.register_cuda_shared_memory, "c", b"0" * 64, 0, 100)


# ---- the repository ---------------------------------------------------------------------------------------------


def test_repository(server):
    client = server.client()
    x = numbers(2, 16)
    wanted = client.infer("mlp", [tensor(x)]).as_numpy("output")
    client.unload_model("mlp")
    assert not client.is_model_ready("mlp")
    states = {m["name"]: m["state"] for m in client.get_model_repository_index()}
    assert states["mlp"] != "READY", states
    client.load_model("mlp")
    assert client.is_model_ready("mlp")
    assert np.array_equal(client.infer("mlp", [tensor(x)]).as_numpy("output"), wanted)
    client.load_model("mlp", config='{"max_batch_size": 4}')
    refused(400, client.infer, "mlp", [tensor(numbers(5, 16))])
    client.load_model("mlp")
    assert "file:" in refused(501, client.load_model, "mlp", config="{}", files={"file:1/model.onnx": b"x" * 300000})
    refused(404, client.load_model, "nobody")
    refused(404, client.unload_model, "nobody")


def test_load_storm(server):
    """Requests go on while their model is loaded and unloaded: answered right, or refused as not there."""
    x = numbers(2, 16)
    wanted = server.client().infer("mlp", [tensor(x)]).as_numpy("output")
    end = time.time() + 3
    n = [0, 0]

    def ask(_):
        client = server.client()
        while time.time() < end:
            try:
                assert np.array_equal(client.infer("mlp", [tensor(x)]).as_numpy("output"), wanted)
                n[0] += 1
            except InferenceServerException as error:
                assert error.status() in ("404", "503", "400"), error
                n[1] += 1

    def change():
        client = server.client()
        while time.time() < end:
            client.unload_model("mlp")
            client.load_model("mlp")

    changer = threading.Thread(target=change)
    changer.start()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(8)))
    changer.join()
    assert n[0] > 10, n


# ---- running ------------------------------------------------------------------------------------------------------


def main():
    folder = tempfile.mkdtemp(prefix="http_check_")
    subprocess.run([os.path.join(os.path.dirname(BINARY), "make-models"), "--out", os.path.join(folder, "models"), "identity", "mlp",
                    "tiny_cnn"], check=True, stdout=subprocess.DEVNULL)
    server = Server(folder)
    try:
        failed = run_tests(tests_of(globals()), server)
        status = server.stop()
        if status != 0:
            print("the server ended with %d: %s\n[  FAILED  ] server_ends" % (status, server.log()))
            failed += 1
    finally:
        server.process.kill()
        shutil.rmtree(folder)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
