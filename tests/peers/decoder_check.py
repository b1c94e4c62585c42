#!/usr/bin/env python3
"""Sessions: decoders run token by token, their keys and values kept at the server, against ONNX Runtime step by step.

Prints a line a test, as the C tests do. SY_BINARY: the program."""
import json
import os
import re
import signal
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
sys.path[:0] = [os.path.join(ROOT, "tests/peers"), os.path.join(ROOT, "runtime/python")]

import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
import tritonclient.grpc as triton_grpc  # noqa: E402
import tritonclient.http as triton  # noqa: E402
from tritonclient.utils import InferenceServerException  # noqa: E402

import decoder_models  # noqa: E402
import switchyard  # noqa: E402
from checks import run_tests  # noqa: E402
from check_server import BINARY, LIMIT_S, CheckServer  # noqa: E402

LAYERS, GROUPS, WIDTH = 2, {"gpt2": 4, "llama": 2, "genai": 2, "attention": 2}, 16
NEAR = 2e-5  # sums of 128 products in another order, values near 1: some 100 float32 roundings


class Server(CheckServer):
    def __init__(self, folder, *args, packages=tuple(GROUPS)):
        packages = [word for name in packages for word in ("--package", os.path.join(folder, name + ".sypkg"))]
        super().__init__(folder, *packages, "--threads", "1", "--workers", "3", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--slab-bytes", "64Mi", *args)
        self.client = switchyard.Client("unix:" + self.socket)

    def stop(self):
        self.client.close()
        code = super().stop()
        assert code == 0, (code, self.log())


class Reference:
    """The model at ONNX Runtime, its keys and values fed back by hand."""

    def __init__(self, folder, kind, rows=1):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.model = onnxruntime.InferenceSession(os.path.join(folder, kind + ".onnx"), options)
        self.inputs = {port.name for port in self.model.get_inputs()}
        self.past = {f"past_key_values.{i}.{part}": np.zeros((rows, GROUPS[kind], 0, WIDTH), np.float32)
                     for i in range(LAYERS) for part in ("key", "value")}

    def step(self, inputs):
        names = [port.name for port in self.model.get_outputs()]
        found = dict(zip(names, self.model.run(None, {**inputs, **self.past})))
        self.past = {name.replace("present", "past_key_values"): value for name, value in found.items() if name != "logits"}
        return found["logits"]


def step(tokens, past):
    """Inputs of one request: tokens [rows, n] behind `past` positions."""
    tokens = np.asarray(tokens, np.int64)
    rows, n = tokens.shape
    return {"input_ids": tokens, "attention_mask": np.ones((rows, past + n), np.int64),
            "position_ids": np.broadcast_to(np.arange(past, past + n), (rows, n)).copy()}


def near(found, wanted):
    assert found.shape == wanted.shape, (found.shape, wanted.shape)
    worst = np.abs(found - wanted).max()
    assert worst <= NEAR, worst


def refused(kind, text, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except kind as error:
        assert text in str(error), error
        return
    raise AssertionError("not refused: " + text)


def prompt(seed, rows=1, n=5):
    return np.random.default_rng(seed).integers(0, 101, (rows, n))


def decode(session, reference, tokens, n, past=0):
    """A prompt and n tokens, each the likeliest; every answer against the reference."""
    for _ in range(n + 1):
        inputs = {name: value for name, value in step(tokens, past).items() if name in reference.inputs}
        result = session.infer(inputs)
        assert list(result) == ["logits"], list(result)
        near(result["logits"], reference.step(inputs))
        past += tokens.shape[1]
        tokens = result["logits"][:, -1:].argmax(-1)
    return tokens, past


# ---- tests ----


def test_tokens(server):
    for kind in GROUPS:
        for rows in (1, 3):
            with server.client.session(kind) as session:
                decode(session, Reference(server.folder, kind, rows), prompt(1, rows), 12)
    assert server.client.sessions() == []


def test_same_as_whole(server):
    """Token by token, or the whole sequence at once."""
    tokens = prompt(2, 1, 20)
    with server.client.session("llama") as session:
        parts = [session.infer(step(tokens[:, i:i + 1], i))["logits"] for i in range(20)]
    with server.client.session("llama") as session:
        whole = session.infer(step(tokens, 0), end=True)["logits"]
    near(np.concatenate(parts, 1), whole)


def test_same_bits(server):
    """A session is what a client that sends the keys and values itself gets."""
    tokens, past = prompt(3), {name: np.zeros(shape, np.float32) for name, shape in
                               {f"past_key_values.{i}.{part}": (1, 4, 0, WIDTH) for i in range(LAYERS) for part in ("key", "value")}.items()}
    with server.client.session("gpt2") as session:
        at = 0
        for _ in range(5):
            kept = session.infer(step(tokens, at))["logits"]
            sent = server.client.infer("gpt2", {**step(tokens, at), **past})
            assert np.array_equal(kept, sent["logits"])
            past = {name.replace("present", "past_key_values"): np.array(sent[name]) for name in sent if name != "logits"}
            at += tokens.shape[1]
            tokens = kept[:, -1:].argmax(-1)


def test_interleaved(server):
    kinds = ["gpt2", "llama", "gpt2"]
    sessions = [server.client.session(kind) for kind in kinds]
    references = [Reference(server.folder, kind) for kind in kinds]
    states = [(prompt(10 + i), 0) for i in range(3)]
    for _ in range(4):
        states = [decode(*pair, state[0], 0, state[1]) for pair, state in zip(zip(sessions, references), states)]
    rows = {row["id"]: row for row in server.client.sessions()}
    assert [rows[session.id]["runs"] for session in sessions] == [4, 4, 4]
    assert rows[sessions[0].id]["bytes"] == 2 * LAYERS * 4 * 8 * WIDTH * 4  # 5 + 3 positions
    for session in sessions:
        session.close()


def test_side_by_side(server):
    """Threads, each its session, over one connection."""
    errors = []

    def run(seed):
        try:
            with server.client.session("gpt2") as session:
                decode(session, Reference(server.folder, "gpt2"), prompt(seed), 8)
        except Exception as error:  # noqa: BLE001 - reported by the main thread
            errors.append(error)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(20, 26)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert not errors, errors


def test_wrong_requests(server):
    client, one = server.client, step(prompt(4), 0)
    session = client.session("gpt2")
    infer = client.infer
    refused(switchyard.NotFound, "was not started", infer, "gpt2", one, session="none")
    refused(switchyard.InvalidArgument, "without a sequence_id", infer, "gpt2", one, session_start=True)
    refused(switchyard.InvalidArgument, "127 bytes", infer, "gpt2", one, session="x" * 200, session_start=True)
    session.infer(one)
    past = {"past_key_values.0.key": np.zeros((1, 4, 5, WIDTH), np.float32)}
    refused(switchyard.InvalidArgument, "leave it out", session.infer, {**step([[1]], 5), **past})
    refused(switchyard.InvalidArgument, "", session.infer, step([[1]], 4))  # a mask that is too short
    refused(switchyard.InvalidArgument, "", session.infer, step([[1], [2]], 5))  # rows
    near(session.infer(step([[1]], 5))["logits"], whole(server, np.append(prompt(4), [[1]], 1))[:, -1:])  # as it was before
    refused(switchyard.NotFound, "no session", client.end_session, "gpt2", "none")
    session.close()
    refused(switchyard.NotFound, "was not started", infer, "gpt2", step([[1]], 6), session=session.id)


def whole(server, tokens):
    return Reference(server.folder, "gpt2").step(step(tokens, 0))


def test_tenants(server):
    """The same id of two tenants is two sessions."""
    for tenant, seed in (("a", 5), ("b", 6)):
        server.client.infer("gpt2", step(prompt(seed), 0), session="7", session_start=True, tenant=tenant)
    for tenant, seed in (("a", 5), ("b", 6)):
        found = server.client.infer("gpt2", step([[9]], 5), session="7", session_end=True, tenant=tenant)["logits"]
        near(found, whole(server, np.append(prompt(seed), [[9]], 1))[:, -1:])


def test_restart(server):
    for seed in (7, 8):
        server.client.infer("gpt2", step(prompt(seed), 0), session="again", session_start=True)
    found = server.client.infer("gpt2", step([[9]], 5), session="again", session_end=True)["logits"]
    near(found, whole(server, np.append(prompt(8), [[9]], 1))[:, -1:])


def test_worker_dies(server):
    """What a session has is in no worker: each of them may die."""
    pids = {row["pid"] for row in server.client.status()["workers"] if row["pid"]}
    with server.client.session("gpt2") as session:
        reference = Reference(server.folder, "gpt2")
        state = decode(session, reference, prompt(9), 2)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + LIMIT_S
        while True:
            try:
                state = decode(session, reference, *(state[0], 3), state[1])
                break
            except switchyard.PeerGone:  # three workers died with the request: it may be sent again
                assert time.monotonic() < end


def test_evicted_model(server):
    """The model leaves the pool between two tokens; the session stays."""
    with server.client.session("gpt2") as session:
        reference = Reference(server.folder, "gpt2")
        state = decode(session, reference, prompt(11), 2)
        server.client.evict("gpt2")
        decode(session, reference, *(state[0], 2), state[1])


def training_job(folder):
    """mnist_cnn on 64 random images, without an end."""
    subprocess.run([os.path.join(os.path.dirname(BINARY), "make-models"), "--out", folder, "mnist_cnn"], check=True,
                   stdout=subprocess.DEVNULL)
    images, labels = (os.path.join(folder, name) for name in ("images", "labels"))
    with open(images, "wb") as file:
        file.write(struct.pack(">IIII", 0x803, 64, 28, 28) + np.random.default_rng(2).integers(0, 255, (64, 28, 28), np.uint8).tobytes())
    with open(labels, "wb") as file:
        file.write(struct.pack(">II", 0x801, 64) + (np.arange(64, dtype=np.uint8) % 10).tobytes())
    return {"name": "endless", "model": os.path.join(folder, "mnist_cnn/1/model.onnx"), "loss": "softmax_cross_entropy",
            "optimizer": {"kind": "sgd", "learning_rate": 0.01}, "batch": 16, "epochs": 10**6, "max_steps": 10**9, "seed": 5,
            "data": {"kind": "idx", "images": images, "labels": labels}}


def test_beside_training(server):
    """Training goes on between tokens and gives way to each; both go on right."""
    jobs = server.client.jobs
    job = jobs.submit(training_job(server.folder))
    with server.client.session("gpt2") as session:
        reference, state = Reference(server.folder, "gpt2"), (prompt(16), 0)
        before = server.client.status()["counters"]["preemptions"]
        for _ in range(4):
            state = decode(session, reference, state[0], 0, state[1])
            done = jobs.get(job)["step"]
            wait(lambda: jobs.get(job)["step"] > done)
        assert server.client.status()["counters"]["preemptions"] >= before + 4
    jobs.stop(job)


def triton_step(module, tokens, past):
    given = []
    for name, value in step(tokens, past).items():
        given.append(module.InferInput(name, list(value.shape), "INT64"))
        given[-1].set_data_from_numpy(value)
    return given


def test_triton(server):
    """Triton's sequence parameters, over HTTP and gRPC, ids as numbers and as texts."""
    for module, what in ((triton, "http"), (triton_grpc, "grpc")):
        client = module.InferenceServerClient(server.address(what))
        for key in (17, "seventeen"):
            reference, tokens, past = Reference(server.folder, "llama"), prompt(12), 0
            for i in range(4):
                result = client.infer("llama", triton_step(module, tokens, past), sequence_id=key, sequence_start=i == 0,
                                      sequence_end=i == 3)
                near(result.as_numpy("logits"), reference.step(step(tokens, past)))
                assert result.as_numpy("present.0.key") is None
                past += tokens.shape[1]
                tokens = result.as_numpy("logits")[:, -1:].argmax(-1)
        wanted = [module.InferRequestedOutput("present.0.key")]
        refused(InferenceServerException, "stays in session", client.infer, "llama", triton_step(module, prompt(1), 0), outputs=wanted,
                sequence_id=5, sequence_start=True)
        client.close()
    assert server.client.sessions() == []


def test_unload(server):
    session = server.client.session("llama")
    session.infer(step(prompt(13), 0))
    server.client.unload("llama")
    refused(switchyard.NotFound, "llama", session.infer, step([[1]], 5))
    wait(lambda: server.client.sessions() == [])


def generate(server, *words):
    return subprocess.run([BINARY, "generate", "--socket", "unix:" + os.path.join(server.folder, "socket"), *words], capture_output=True,
                          text=True, timeout=LIMIT_S)


def test_generate(server):
    """The likeliest tokens are ONNX Runtime's; drawn ones go with the seed; text by a vocabulary."""
    tokens, past, wanted, reference = prompt(15), 0, [], Reference(server.folder, "gpt2")
    for _ in range(10):
        scores = reference.step(step(tokens, past))
        past += tokens.shape[1]
        tokens = scores[:, -1:].argmax(-1)
        wanted.append(int(tokens[0, 0]))
    words = ["gpt2", "--tokens", ",".join(map(str, prompt(15)[0])), "--max-tokens", "10"]
    done = generate(server, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout == " ".join(map(str, wanted)) + "\n", done.stdout
    assert re.search(r"10 tokens; the first after [0-9.]+ s, then [0-9.]+ tokens/s", done.stderr), done.stderr
    drawn = [generate(server, *words, "--temperature", "2", "--top-k", "50", "--seed", seed).stdout for seed in ("1", "1", "2")]
    assert drawn[0] == drawn[1] != drawn[2]
    path = os.path.join(server.folder, "tokenizer.json")
    with open(path, "w") as file:
        json.dump({"model": {"vocab": {("\u0120" if i else "") + f"w{i}": i for i in range(101)} | {"\u0120": 101}}}, file)
    assert generate(server, *words, "--vocab", path).stdout == "".join(f" w{i}" if i else "w0" for i in wanted) + "\n"
    done = generate(server, *words, "--stop", str(wanted[4]))
    assert done.stdout.split() == [str(token) for token in wanted[:wanted.index(wanted[4])]]
    done = generate(server, "genai", "--tokens", "5 6 7", "--max-tokens", "3")
    assert done.returncode == 0 and len(done.stdout.split()) == 3, done.stderr
    assert generate(server, "gpt2").returncode == 2 and generate(server, "none", "--tokens", "1").returncode == 1
    assert server.client.sessions() == []


def wait(condition):
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_limits(server):
    """Two sessions, half a second, 64 KiB of one tenant."""
    client, one = server.client, step(prompt(14), 0)
    for name in ("a", "b"):
        client.infer("gpt2", one, session=name, session_start=True)
    refused(switchyard.Busy, "as many as there may be", client.infer, "gpt2", one, session="c", session_start=True)
    wait(lambda: client.sessions() == [])
    refused(switchyard.NotFound, "idle for", client.infer, "gpt2", step([[1]], 5), session="a")
    big = step(np.zeros((1, 200), np.int64), 0)
    refused(switchyard.Busy, "wants 204800 bytes", client.infer, "gpt2", big, session="a", session_start=True)
    assert client.sessions() == []


def sums(path):
    """after = before + x, in a repository whose configuration says so; a second one whose configuration is wrong."""
    port = decoder_models.port
    nodes = [onnx.helper.make_node("Add", ["before", "x"], ["after"]), onnx.helper.make_node("Mul", ["after", "two"], ["y"])]
    float32 = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(nodes, "sums", [port(name, float32, "N", 3) for name in ("x", "before")],
                                   [port(name, float32, "N", 3) for name in ("after", "y")],
                                   [onnx.numpy_helper.from_array(np.array(2, np.float32), "two")])
    for name, state in (("sums", "after"), ("wrong", "none")):
        os.makedirs(os.path.join(path, name, "1"))
        onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9),
                  os.path.join(path, name, "1", "model.onnx"))
        with open(os.path.join(path, name, "config.pbtxt"), "w") as file:
            file.write('sequence_batching { max_sequence_idle_microseconds: 500000 state { input_name: "before" output_name: "%s" '
                       'data_type: TYPE_FP32 dims: [ 3 ] } }' % state)


def test_configured(server):
    """States that the configuration names begin with zeros, and end after the time that it says."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    with server.client.session("sums") as session:
        for i in range(1, 4):
            result = session.infer({"x": x})
            assert list(result) == ["y"] and np.array_equal(result["y"], 2 * i * x), result
        wait(lambda: server.client.sessions() == [])
        refused(switchyard.NotFound, "idle for 0.5 s", session.infer, {"x": x})
    rows = {row.name: row for row in server.client.models()}
    assert rows["sums"].kept == {"after"}
    assert 'has no output "none"' in rows["wrong"].error, rows["wrong"].error


def run_on(server, tests):
    failed = run_tests(tests, server)
    if failed:
        print(server.log()[-2000:])
    server.stop()
    return failed


def main():
    with tempfile.TemporaryDirectory() as folder:
        for kind, groups in GROUPS.items():
            path = os.path.join(folder, kind)
            onnx.save(decoder_models.decoder(kind, layers=LAYERS, hidden=4 * WIDTH, heads=4, groups=groups), path + ".onnx")
            subprocess.run([BINARY, "import", path + ".onnx", "--no-profile", "-o", path + ".sypkg"], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        failed = run_on(Server(folder), [
            test_tokens, test_same_as_whole, test_same_bits, test_interleaved, test_side_by_side, test_wrong_requests, test_tenants,
            test_restart, test_worker_dies, test_evicted_model, test_beside_training, test_triton, test_generate, test_unload])
        failed += run_on(Server(folder, "--sessions", "2", "--session-idle", "0.5", "--session-tenant-bytes", "64Ki"), [test_limits])
        sums(os.path.join(folder, "models"))
        failed += run_on(Server(folder, "--models", os.path.join(folder, "models"), packages=()), [test_configured])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
