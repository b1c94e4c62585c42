#!/usr/bin/env python3
"""Stock gRPC clients (tritonclient, grpcio's health and reflection) against `switchyard serve`: each call, and what clients do wrong.

Prints a line a test, as the C tests do. SY_BINARY: the program; its folder also has make-models."""
import concurrent.futures
import json
import os
import queue
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VENV = os.path.join(ROOT, "build/venv/bin/python")
if os.path.exists(VENV) and os.path.realpath(sys.prefix) != os.path.realpath(os.path.join(ROOT, "build/venv")):
    os.execv(VENV, [VENV] + sys.argv)

import grpc  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import tritonclient.grpc as triton  # noqa: E402
from google.protobuf.descriptor_pool import DescriptorPool  # noqa: E402
from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: E402
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase  # noqa: E402
from tritonclient.grpc import service_pb2, service_pb2_grpc  # noqa: E402
from tritonclient.utils import InferenceServerException, shared_memory as shm  # noqa: E402
from check_server import BINARY, LIMIT_S, CheckServer  # noqa: E402

MESSAGE_BYTES = 128 << 20
WIDE = 1 << 16  # numbers in a row of the model "wide"
CHANNEL = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


class Skip(Exception):
    pass


class Server(CheckServer):
    def __init__(self, folder, *args):
        super().__init__(folder, "--models", os.path.join(folder, "models"), "--http", "off", "--grpc", "127.0.0.1:0",
                         "--grpc-message-bytes", str(MESSAGE_BYTES), *args)
        self.grpc = self.address("grpc")
        self.port = int(self.grpc.split(":")[1])

    def client(self):
        return triton.InferenceServerClient(self.grpc)

    def channel(self):
        return grpc.insecure_channel(self.grpc, options=CHANNEL + [("grpc.use_local_subchannel_pool", 1)])

    def stub(self, channel):
        return service_pb2_grpc.GRPCInferenceServiceStub(channel)


def refused(code, call, *args, **kwargs):
    """The error's text; it must have this code."""
    try:
        call(*args, **kwargs)
    except InferenceServerException as error:
        assert error.status() == "StatusCode." + code, (error.status(), error.message())
        return error.message()
    except grpc.RpcError as error:
        assert error.code().name == code, (error.code(), error.details())
        return error.details()
    raise AssertionError("not refused: " + code)


def numbers(rows, columns=4, seed=1):
    return np.random.default_rng(seed).standard_normal((rows, columns), dtype=np.float32)


def tensor(x, name="input"):
    given = triton.InferInput(name, list(x.shape), "FP32")
    given.set_data_from_numpy(x)
    return given


def raw_request(x, model="identity", **fields):
    request = service_pb2.ModelInferRequest(model_name=model, **fields)
    request.inputs.add(name="input", datatype="FP32", shape=list(x.shape))
    return request


# ---- calls about models and the server ------------------------------------------------------------------------


def test_server(server):
    client = server.client()
    assert client.is_server_live() and client.is_server_ready()
    got = client.get_server_metadata()
    assert got.name == "switchyard" and got.version and "classification" in got.extensions


def test_models(server):
    client = server.client()
    assert client.is_model_ready("mlp") and client.is_model_ready("mlp", "1")
    assert not client.is_model_ready("mlp", "2") and not client.is_model_ready("nobody")
    got = client.get_model_metadata("mlp")
    assert got.name == "mlp" and list(got.versions) == ["1"]
    assert [(i.name, i.datatype, list(i.shape)) for i in got.inputs] == [("input", "FP32", [-1, 16])]
    assert [(o.name, o.datatype, list(o.shape)) for o in got.outputs] == [("output", "FP32", [-1, 4])]
    config = client.get_model_config("mlp").config
    assert config.name == "mlp" and config.input[0].name == "input" and config.output[0].name == "output"
    assert config.input[0].data_type == 11  # TYPE_FP32
    names = {m.name: m for m in client.get_model_repository_index().models}
    assert names["mlp"].state == "READY" and names["mlp"].version == "1"
    assert "nobody" in refused("NOT_FOUND", client.get_model_metadata, "nobody")
    refused("NOT_FOUND", client.get_model_config, "nobody")
    refused("INVALID_ARGUMENT", client.get_model_metadata, "mlp", "one")


def test_statistics(server):
    client = server.client()
    before = client.get_inference_statistics("tiny_cnn").model_stats[0]
    x = numbers(3, 3 * 16 * 16).reshape(3, 3, 16, 16)
    client.infer("tiny_cnn", [tensor(x)])
    after = client.get_inference_statistics("tiny_cnn", "1").model_stats[0]
    assert after.name == "tiny_cnn" and after.version == "1" and after.last_inference > 0
    assert after.inference_count == before.inference_count + 3 and after.execution_count == before.execution_count + 1
    assert after.inference_stats.success.count == before.inference_stats.success.count + 1
    assert after.inference_stats.compute_infer.ns > 0
    assert sum(one.batch_size * one.compute_infer.count for one in after.batch_stats) == after.inference_count, after
    assert len(client.get_inference_statistics().model_stats) >= 3
    refused("NOT_FOUND", client.get_inference_statistics, "nobody")


def test_load_and_unload(server):
    client = server.client()
    text = refused("UNIMPLEMENTED", client.load_model, "mlp", config="{}", files={"file:1/model.onnx": b"x"})
    assert "file:1/model.onnx" in text
    refused("NOT_FOUND", client.unload_model, "nobody")
    refused("NOT_FOUND", client.load_model, "nobody")
    client.unload_model("mlp")
    assert not client.is_model_ready("mlp")
    client.load_model("mlp", config='{"parameters": {"class": {"string_value": "3"}}}')
    assert client.is_model_ready("mlp")
    refused("INVALID_ARGUMENT", client.load_model, "mlp", config="{")
    client.load_model("mlp")
    assert client.infer("mlp", [tensor(numbers(2, 16))]).as_numpy("output").shape == (2, 4)


def test_loaded_by_its_first_request(server):
    """Messages wait for the model: small ones, large ones that come meanwhile, compressed ones, those of a stream in their order."""
    client = server.client()
    for rows, options in ((1, {}), (40, {}), (40, {"compression_algorithm": "gzip"})):
        client.unload_model("wide")
        assert not client.is_model_ready("wide")
        x = numbers(rows, WIDE)
        assert np.array_equal(client.infer("wide", [tensor(x)], **options).as_numpy("output"), x), rows
    client.unload_model("wide")
    stream = Stream(server)
    for i in range(6):
        stream.send("wide" if i % 2 == 0 else "identity", numbers(i + 1, WIDE if i % 2 == 0 else 4), request_id=str(i))
    for i in range(6):
        result, error = stream.next()
        assert error is None and result.get_response().id == str(i), error
    stream.client.stop_stream()


def test_index_says_why(server):
    index = {m.name: m for m in server.client().get_model_repository_index().models}
    assert index["broken"].state == "UNAVAILABLE" and index["broken"].reason
    x = tensor(numbers(1))
    with_reason = refused_somehow(server.client().infer, "broken", [x])
    assert with_reason


def refused_somehow(call, *args):
    try:
        call(*args)
    except InferenceServerException as error:
        return error.message()
    raise AssertionError("not refused")


def test_settings(server):
    client = server.client()
    log = client.get_log_settings().settings
    assert log["log_error"].bool_param and log["log_verbose_level"].uint32_param == 0
    log = client.update_log_settings({"log_verbose_level": 1}).settings
    assert log["log_verbose_level"].uint32_param == 1
    client.update_log_settings({"log_verbose_level": 0})
    assert "log_file" in refused("UNIMPLEMENTED", client.update_log_settings, {"log_file": "/tmp/x"})
    trace = client.update_trace_settings(settings={"trace_rate": "7"}).settings
    assert list(trace["trace_rate"].value) == ["7"]
    trace = client.update_trace_settings(settings={"trace_rate": None}).settings
    assert list(trace["trace_rate"].value) == ["1000"]
    assert "trace_count" in client.get_trace_settings("mlp").settings
    refused("NOT_FOUND", client.get_trace_settings, "nobody")


# ---- inference ---------------------------------------------------------------------------------------------------


def test_infer(server):
    client = server.client()
    for rows in (1, 3, 100, 0):
        x = numbers(rows)
        result = client.infer("identity", [tensor(x)], request_id="r%d" % rows)
        assert np.array_equal(result.as_numpy("output"), x), rows
        response = result.get_response()
        assert response.id == "r%d" % rows and response.model_name == "identity" and response.model_version == "1"
    asked = triton.InferRequestedOutput("output")
    assert client.infer("identity", [tensor(numbers(2))], outputs=[asked]).as_numpy("output").shape == (2, 4)


def test_large_tensors(server):
    """From the socket to the slab as they come, and more than the flow control's windows both ways."""
    client = server.client()
    for rows in (1, 15, 256, 257):
        x = numbers(rows, WIDE)
        assert np.array_equal(client.infer("wide", [tensor(x)]).as_numpy("output"), x), rows


def test_contents(server):
    with server.channel() as channel:
        stub = server.stub(channel)
        for rows, columns in ((1, 4), (7, 4), (9, WIDE)):
            x = numbers(rows, columns)
            request = raw_request(x, "identity" if columns == 4 else "wide")
            request.inputs[0].contents.fp32_contents.extend(x.ravel().tolist())
            response = stub.ModelInfer(request)
            assert response.raw_output_contents[0] == x.tobytes()
        request = raw_request(numbers(2))
        request.inputs[0].contents.fp32_contents.extend([1.0] * 7)
        assert "7" in refused("INVALID_ARGUMENT", stub.ModelInfer, request)
        request.inputs[0].contents.fp32_contents.extend([1.0] * 2)
        refused("INVALID_ARGUMENT", stub.ModelInfer, request)
        request = raw_request(numbers(2))
        request.inputs[0].contents.int_contents.extend([1] * 8)
        assert "another type" in refused("INVALID_ARGUMENT", stub.ModelInfer, request)
        request.raw_input_contents.append(bytes(32))
        refused("INVALID_ARGUMENT", stub.ModelInfer, request)


def test_parameters(server):
    client = server.client()
    x = tensor(numbers(1))
    for options in ({"priority": 1}, {"priority": 11}, {"timeout": 60000000}, {"parameters": {"tenant": "t", "other": 1.5}},
                    {"headers": {"switchyard-tenant": "t2"}}):
        assert client.infer("identity", [x], **options).as_numpy("output").shape == (1, 4), options
    assert np.array_equal(client.infer("identity", [x], sequence_id=5).as_numpy("output"), client.infer("identity", [x]).as_numpy("output"))  # no state
    assert "tenant" in refused("INVALID_ARGUMENT", client.infer, "identity", [x], parameters={"tenant": "t" * 100})
    refused("INVALID_ARGUMENT", client.infer, "identity", [x], headers={"switchyard-tenant": "t" * 100})


def test_classification(server):
    x = numbers(3, 16)
    best = triton.InferRequestedOutput("output", class_count=2)
    client = server.client()
    scores = client.infer("mlp", [tensor(x)]).as_numpy("output")
    got = client.infer("mlp", [tensor(x)], outputs=[best]).as_numpy("output")
    assert got.shape == (3, 2)
    for row in range(3):
        order = np.argsort(-scores[row], kind="stable")[:2]
        assert [int(text.decode().split(":")[1]) for text in got[row]] == list(order)


def test_wrong_requests(server):
    client = server.client()
    x = numbers(2)
    assert "nobody" in refused("NOT_FOUND", client.infer, "nobody", [tensor(x)])
    refused("NOT_FOUND", client.infer, "n" * 500, [tensor(x)])
    refused("INVALID_ARGUMENT", client.infer, "identity", [tensor(x)], model_version="x")
    refused("NOT_FOUND", client.infer, "identity", [tensor(x)], model_version="9")
    assert "none" in refused("INVALID_ARGUMENT", client.infer, "identity", [tensor(x, "none")])
    assert "missing" in refused("INVALID_ARGUMENT", client.infer, "identity", [])
    assert "twice" in refused("INVALID_ARGUMENT", client.infer, "identity", [tensor(x), tensor(x)])
    refused("INVALID_ARGUMENT", client.infer, "identity", [tensor(numbers(2, 5))])
    refused("INVALID_ARGUMENT", client.infer, "identity", [tensor(x)], outputs=[triton.InferRequestedOutput("none")])
    strings = triton.InferInput("input", [1, 4], "BYTES")
    strings.set_data_from_numpy(np.array([[b"a", b"b", b"c", b"d"]], dtype=object))
    assert "BYTES" in refused("INVALID_ARGUMENT", client.infer, "identity", [strings])
    with server.channel() as channel:
        stub = server.stub(channel)
        request = raw_request(x)
        for contents, words in (([], "input"), ([bytes(31)], "31"), ([bytes(32), bytes(32)], "more entries"), ([bytes(200000)], "200000")):
            del request.raw_input_contents[:]
            request.raw_input_contents.extend(contents)
            assert words in refused("INVALID_ARGUMENT", stub.ModelInfer, request), words
        large = raw_request(numbers(40000))
        large.raw_input_contents.extend([bytes(320000), bytes(320000)])
        assert "320000" in refused("INVALID_ARGUMENT", stub.ModelInfer, large)
        refused("RESOURCE_EXHAUSTED", stub.ModelInfer, raw_request(x, raw_input_contents=[bytes(MESSAGE_BYTES + 1)]))
        unknown = channel.unary_unary("/inference.GRPCInferenceService/Nothing", bytes, bytes)
        refused("UNIMPLEMENTED", unknown, b"")
        garbage = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer", bytes, bytes)
        rng = random.Random(5)
        for n in list(range(40)) + [1000, 70000]:
            refused("INVALID_ARGUMENT", garbage, b"\x0f" + rng.randbytes(n))
    assert np.array_equal(client.infer("identity", [tensor(x)]).as_numpy("output"), x)


def test_compression(server):
    client = server.client()
    for algorithm in ("gzip", "deflate"):
        for x in (numbers(1, WIDE), numbers(10, WIDE), np.zeros((200, WIDE), np.float32)):
            result = client.infer("wide", [tensor(x)], compression_algorithm=algorithm)
            assert np.array_equal(result.as_numpy("output"), x)
        assert np.array_equal(client.infer("identity", [tensor(numbers(1))], compression_algorithm=algorithm).as_numpy("output"), numbers(1))
        assert client.infer("mlp", [tensor(numbers(2, 16))], compression_algorithm=algorithm).as_numpy("output").shape == (2, 4)


def test_compression_bomb(server):
    with server.channel() as channel:
        stub = server.stub(channel)
        request = raw_request(numbers(1), raw_input_contents=[bytes(MESSAGE_BYTES)])
        text = refused("RESOURCE_EXHAUSTED", stub.ModelInfer, request, compression=grpc.Compression.Gzip)
        assert str(MESSAGE_BYTES) in text


def test_many_at_once(server):
    client = server.client()
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        def one(i):
            x = numbers(1 + i % 5, seed=i)
            return np.array_equal(client.infer("identity", [tensor(x)], request_id=str(i)).as_numpy("output"), x)
        assert all(pool.map(one, range(1000)))


def test_async(server):
    client = server.client()
    answers = queue.Queue()
    inputs = [numbers(2, seed=i) for i in range(64)]
    for i, x in enumerate(inputs):
        client.async_infer("identity", [tensor(x)], lambda result, error, i=i: answers.put((i, result, error)))
    for _ in inputs:
        i, result, error = answers.get(timeout=LIMIT_S)
        assert error is None and np.array_equal(result.as_numpy("output"), inputs[i])


# ---- streams ----------------------------------------------------------------------------------------------------------


class Stream:
    def __init__(self, server, **options):
        self.client = server.client()
        self.answers = queue.Queue()
        self.client.start_stream(lambda result, error: self.answers.put((result, error)), **options)

    def send(self, model, x, **options):
        self.client.async_stream_infer(model, [tensor(x)], **options)

    def next(self):
        return self.answers.get(timeout=LIMIT_S)


def test_stream(server):
    """Answers in the order of the requests, whatever each takes; a request that fails has its place among them."""
    stream = Stream(server)
    sent = [numbers(i % 3 + 1, (4, WIDE)[i % 7 == 0], seed=i) for i in range(200)]
    for i, x in enumerate(sent):
        stream.send("nobody" if i % 50 == 9 else "wide" if i % 7 == 0 else "identity", x, request_id=str(i))
    for i, x in enumerate(sent):
        result, error = stream.next()
        if i % 50 == 9:
            assert "nobody" in error.message()
        else:
            assert result.get_response().id == str(i) and np.array_equal(result.as_numpy("output"), x), i
    stream.client.stop_stream()
    assert stream.answers.empty()


def test_stream_options(server):
    for algorithm in ("gzip", "deflate"):
        stream = Stream(server, compression_algorithm=algorithm)
        x = np.ones((5, WIDE), np.float32)
        stream.send("wide", x)
        stream.send("wide", x[:3], enable_empty_final_response=True)
        assert np.array_equal(stream.next()[0].as_numpy("output"), x)
        result, _ = stream.next()
        assert result.get_response().parameters["triton_final_response"].bool_param
        stream.client.stop_stream()
    stream = Stream(server, headers={"triton_grpc_error": "true"})
    stream.send("nobody", numbers(1))
    _, error = stream.next()
    assert error.status() == "StatusCode.NOT_FOUND", error


def test_stream_error_has_its_id(server):
    with server.channel() as channel:
        answers = list(server.stub(channel).ModelStreamInfer(iter([raw_request(numbers(1), "nobody", id="seven")])))
        assert len(answers) == 1 and "nobody" in answers[0].error_message and answers[0].infer_response.id == "seven"
        assert list(server.stub(channel).ModelStreamInfer(iter([]))) == []


# ---- shared memory ------------------------------------------------------------------------------------------------------


def test_shared_memory(server):
    client = server.client()
    name = "/sy_grpc_%d" % os.getpid()
    x = numbers(64)
    region = shm.create_shared_memory_region("both", name, 8192)
    try:
        try:
            client.register_system_shared_memory("both", name, 8192)
        except InferenceServerException as error:
            if error.status() == "StatusCode.UNIMPLEMENTED":
                raise Skip(error.message()) from None
            raise
        assert client.get_system_shared_memory_status().regions["both"].byte_size == 8192
        refused("INVALID_ARGUMENT", client.register_system_shared_memory, "both", name, 8192)
        for offset in (0, 12):  # where workers read it, and where it is copied
            shm.set_shared_memory_region(region, [x], offset=offset)
            given = triton.InferInput("input", [64, 4], "FP32")
            given.set_shared_memory("both", 1024, offset)
            asked = triton.InferRequestedOutput("output")
            asked.set_shared_memory("both", 1024, 4096 + offset)
            result = client.infer("identity", [given], outputs=[asked])
            output = result.get_output("output")
            assert output.parameters["shared_memory_region"].string_param == "both"
            assert np.array_equal(shm.get_contents_as_numpy(region, np.float32, [64, 4], offset=4096 + offset), x)
        given.set_shared_memory("both", 1000, 0)
        assert "1024" in refused("INVALID_ARGUMENT", client.infer, "identity", [given])
        given.set_shared_memory("none", 1024, 0)
        assert "none" in refused("INVALID_ARGUMENT", client.infer, "identity", [given])
        client.unregister_system_shared_memory("both")
        assert not client.get_system_shared_memory_status().regions
    finally:
        shm.destroy_shared_memory_region(region)


def test_cuda_shared_memory(server):
    client = server.client()
    assert not client.get_cuda_shared_memory_status().regions
    assert "memory" in refused("UNIMPLEMENTED", client.register_cuda_shared_memory, "r", b"aGFuZGxl", 0, 64)
    client.unregister_cuda_shared_memory()


# ---- health and reflection -----------------------------------------------------------------------------------------------


def test_health(server):
    with server.channel() as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "inference.GRPCInferenceService"):
            assert health.Check(health_pb2.HealthCheckRequest(service=service)).status == health_pb2.HealthCheckResponse.SERVING
        refused("NOT_FOUND", health.Check, health_pb2.HealthCheckRequest(service="none"))
        watch = health.Watch(health_pb2.HealthCheckRequest())
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        watch.cancel()
        unknown = health.Watch(health_pb2.HealthCheckRequest(service="none"))
        assert next(unknown).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        unknown.cancel()


def test_reflection(server):
    with server.channel() as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert set(database.get_services()) == {"inference.GRPCInferenceService", "grpc.health.v1.Health",
                                                "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"}
        pool = DescriptorPool(database)
        service = pool.FindServiceByName("inference.GRPCInferenceService")
        assert {method.name for method in service.methods} == {
            method.name for method in service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods}
        for ours, theirs in ((pool.FindFileByName("grpc_service.proto"), service_pb2.DESCRIPTOR),
                             (pool.FindFileByName("model_config.proto"), triton.model_config_pb2.DESCRIPTOR)):
            for name, message in theirs.message_types_by_name.items():
                same_message(ours.message_types_by_name[name], message)
        assert pool.FindMessageTypeByName("inference.ModelInferRequest.InferInputTensor").name == "InferInputTensor"
        assert database.FindFileContainingSymbol("grpc.health.v1.Health.Watch").package == "grpc.health.v1"
        try:
            database.FindFileByName("none.proto")
            raise AssertionError("found")
        except KeyError:
            pass


def same_message(ours, theirs):
    """Fields have the names, numbers and types of the public specification."""
    def facts(message):
        return {(f.name, f.number, f.type, f.is_repeated, f.message_type.full_name if f.message_type else "",
                 f.containing_oneof.name if f.containing_oneof else "") for f in message.fields}
    assert facts(ours) == facts(theirs), ours.full_name
    for nested, other in zip(ours.nested_types, theirs.nested_types):
        same_message(nested, other)


# ---- clients that go, do not read, or speak nonsense ----------------------------------------------------------------------


def slow(rows):
    return numbers(rows, 3 * 16 * 16).reshape(rows, 3, 16, 16)


def test_deadline(server):
    with server.channel() as channel:
        request = raw_request(slow(4000), "tiny_cnn", raw_input_contents=[bytes(4000 * 3072)])
        refused("DEADLINE_EXCEEDED", server.stub(channel).ModelInfer, request, timeout=0.05)
    client = server.client()
    text = refused("DEADLINE_EXCEEDED", client.infer, "tiny_cnn", [tensor(slow(1000))], timeout=1)
    assert text
    works(server)


def test_cancel(server):
    with server.channel() as channel:
        stub = server.stub(channel)
        request = raw_request(slow(4000), "tiny_cnn", raw_input_contents=[bytes(4000 * 3072)])
        calls = [stub.ModelInfer.future(request) for _ in range(2)]
        time.sleep(0.2)
        for call in calls:
            call.cancel()
        stream = stub.ModelStreamInfer(iter([request]))
        time.sleep(0.1)
        stream.cancel()
    works(server)
    settles(server)


def works(server):
    x = numbers(5)
    assert np.array_equal(server.client().infer("identity", [tensor(x)]).as_numpy("output"), x)


def slab_bytes(server):
    status = subprocess.run([BINARY, "status", "--socket", os.path.join(os.path.dirname(server.log_path), "socket"), "--json"],
                            capture_output=True, text=True, check=True).stdout
    return json.loads(status)["slab"]["used_bytes"]


def settles(server):
    """Nothing of the requests of clients that are gone is left in the slab."""
    end = time.monotonic() + LIMIT_S
    while slab_bytes(server) > 0:
        assert time.monotonic() < end, slab_bytes(server)
        time.sleep(0.1)


CHILD = """
import sys, time
sys.argv = ["", sys.argv[1]]
import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc
channel = grpc.insecure_channel(sys.argv[1], options=[("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)])
stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
request = service_pb2.ModelInferRequest(model_name="wide", raw_input_contents=[bytes(16 << 20)])
request.inputs.add(name="input", datatype="FP32", shape=[64, 1 << 16])
def requests():
    while True:
        yield request
calls = [stub.ModelInfer.future(request) for _ in range(4)]
stream = stub.ModelStreamInfer(requests())
print("sent", flush=True)
time.sleep(600)
"""


def test_clients_that_vanish(server):
    """Killed while they send and while answers wait that they do not read."""
    children = [subprocess.Popen([sys.executable, "-c", CHILD, server.grpc], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for child in children:
        child.stdout.readline()
    time.sleep(0.5)
    for child in children:
        child.kill()
        child.wait()
    works(server)
    settles(server)


def test_client_that_does_not_read(server):
    """It holds up itself alone."""
    child = subprocess.Popen([sys.executable, "-c", CHILD, server.grpc], stdout=subprocess.PIPE, text=True)
    child.stdout.readline()
    time.sleep(0.3)
    child.send_signal(signal.SIGSTOP)
    try:
        for _ in range(20):
            works(server)
    finally:
        child.kill()
        child.wait()
    settles(server)


def frame(kind, flags, stream, body=b""):
    return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body


def talk(server, data, wait_s=0.2):
    """What comes back until the server closes, or for so long."""
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        got = b""
        try:
            s.sendall(data)
            s.settimeout(wait_s)
            while True:
                more = s.recv(65536)
                if not more:
                    return got, True
                got += more
        except socket.timeout:
            return got, False
        except OSError:
            return got, True


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0)


def test_garbage(server):
    for data in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01" + bytes(500), bytes(1000)):
        _, closed = talk(server, data, 5)
        assert closed, data[:10]
    rng = random.Random(11)
    for i in range(60):
        data = bytearray(PREFACE)
        for _ in range(rng.randrange(1, 20)):
            body = rng.randbytes(rng.randrange(0, 64))
            data += frame(rng.randrange(0, 11), rng.randrange(0, 256), rng.choice((0, 1, 3, 5, 1 << 30)), body)
        if i % 3 == 0:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        talk(server, bytes(data), 0.01)
    works(server)


def test_ping_flood(server):
    _, closed = talk(server, PREFACE + frame(6, 0, 0, bytes(8)) * 20000, 10)
    assert closed
    works(server)


def test_slow_preface(server):
    """Connections that say nothing cost a place each, and not for ever; the others work."""
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(50)]
    works(server)
    for s in idle:
        s.close()


def test_drain(server):
    """SIGTERM: watchers are told, what runs ends, the server exits with 0."""
    with server.channel() as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        x = slow(2000)
        future = server.stub(channel).ModelInfer.future(raw_request(x, "tiny_cnn", raw_input_contents=[x.tobytes()]))
        told = queue.Queue()
        threading.Thread(target=lambda: told.put(next(watch).status), daemon=True).start()
        time.sleep(0.5)
        server.process.send_signal(signal.SIGTERM)
        assert told.get(timeout=LIMIT_S) == health_pb2.HealthCheckResponse.NOT_SERVING
        assert len(future.result(LIMIT_S).raw_output_contents[0]) == 2000 * 40
    assert server.process.wait(LIMIT_S) == 0


def make_wide(path):
    """Rows of 256 KiB that come back as they are."""
    value = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", WIDE]) for name in ("input", "output")]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["input"], ["output"])], "wide", value[:1], value[1:])
    os.makedirs(os.path.dirname(path))
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)


def run(folder):
    make_wide(os.path.join(folder, "models/wide/1/model.onnx"))
    os.makedirs(os.path.join(folder, "models/broken/1"))
    with open(os.path.join(folder, "models/broken/1/model.onnx"), "w") as file:
        file.write("no model")
    subprocess.run([os.path.join(os.path.dirname(BINARY), "make-models"), "--out", os.path.join(folder, "models"), "identity", "mlp",
                    "tiny_cnn"], check=True, stdout=subprocess.DEVNULL)
    only = sys.argv[1:]
    tests = [(name, test) for name, test in globals().items() if name.startswith("test_") and (not only or name in only)]
    server = Server(folder)
    failed = 0
    for name, test in tests:
        try:
            test(server)
            print("[       OK ] " + name, flush=True)
        except Skip as why:
            print("skip: %s" % why)
            print("[  SKIPPED ] " + name, flush=True)
        except Exception:  # noqa: BLE001: each failure is shown, and the next test runs
            import traceback
            traceback.print_exc()
            print("[  FAILED  ] " + name, flush=True)
            failed += 1
            if server.process.poll() is not None:
                print(server.log()[-4000:])
                server = Server(folder)
    if server.process.poll() is None and server.stop() != 0:
        print("[  FAILED  ] exit")
        failed += 1
    return failed


if __name__ == "__main__":
    where = tempfile.mkdtemp(prefix="sy-grpc-")
    try:
        sys.exit(1 if run(where) else 0)
    finally:
        shutil.rmtree(where, ignore_errors=True)
