#!/usr/bin/env python3
"""The Python package against a real server: installed from its wheel, typed, its README's examples, arrays in shared memory beside the same
request over TCP. Run by `make test` with the packages of build/venv; prints a line a test, as the other tests do."""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VENV = os.path.join(ROOT, "build/venv/bin/python")
if os.path.exists(VENV) and os.path.abspath(sys.executable) != VENV and "SY_IN_VENV" not in os.environ:
    os.execve(VENV, [VENV, *sys.argv], dict(os.environ, SY_IN_VENV="1"))

import gc  # noqa: E402
import json  # noqa: E402
import re  # noqa: E402
import shutil  # noqa: E402
import signal  # noqa: E402
import struct  # noqa: E402
import subprocess  # noqa: E402
import tempfile  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402
import traceback  # noqa: E402
import zipfile  # noqa: E402
from checks import run_tests  # noqa: E402

try:
    import hatchling  # noqa: F401
    import numpy as np
    from onnx import TensorProto as T
    from onnx import helper
except ImportError as error:
    print(f"skipped: {error}; make venv installs it")
    sys.exit(77)

BINARY = os.path.abspath(os.environ.get("SY_BINARY", os.path.join(ROOT, "build/switchyard")))
PACKAGE = os.path.join(ROOT, "runtime/python")
MODELS = os.path.join(os.path.dirname(BINARY), "python-models")  # imported once
FOLDER = tempfile.mkdtemp(prefix="switchyard-python-")
ROW = 1 << 16  # numbers of one row of "double": 256 KiB


def pip(*arguments):
    subprocess.run([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments], check=True)


def install():
    """The wheel's path, and the folder that it is installed into."""
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", FOLDER, PACKAGE)
    wheel = next(os.path.join(FOLDER, name) for name in os.listdir(FOLDER) if name.endswith(".whl"))
    target = os.path.join(FOLDER, "site")
    pip("install", "--no-deps", "--target", target, wheel)
    return wheel, target


WHEEL, SITE = install()
sys.path.insert(0, SITE)
import switchyard  # noqa: E402

# ---- models and server ----

KINDS = {"f32": (T.FLOAT, np.float32), "f16": (T.FLOAT16, np.float16), "i64": (T.INT64, np.int64), "i32": (T.INT32, np.int32),
         "i8": (T.INT8, np.int8), "u8": (T.UINT8, np.uint8), "bool": (T.BOOL, np.bool_)}


def save(name, nodes, inputs, outputs):
    graph = helper.make_graph(nodes, name, [helper.make_tensor_value_info(*i) for i in inputs],
                              [helper.make_tensor_value_info(*o) for o in outputs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = os.path.join(MODELS, name, "1", "model.onnx")
    if os.path.exists(path):
        with open(path, "rb") as file:
            if file.read() == model.SerializeToString():
                return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(f"{path}.{os.getpid()}", "wb") as file:
        file.write(model.SerializeToString())
    os.rename(file.name, path)


def make_models():
    save("double", [helper.make_node("Add", ["x", "x"], ["y"])], [("x", T.FLOAT, ["N", ROW])], [("y", T.FLOAT, ["N", ROW])])
    save("kinds", [helper.make_node("Identity", ["in_" + k], ["out_" + k]) for k in KINDS],
         [("in_" + k, kind, ["N", 20000]) for k, (kind, _) in KINDS.items()],
         [("out_" + k, kind, ["N", 20000]) for k, (kind, _) in KINDS.items()])
    save("twice", [helper.make_node("Concat", ["x", "x"], ["y"], axis=1)], [("x", T.FLOAT, ["N", "seq"])], [("y", T.FLOAT, ["N", "two"])])
    save("found", [helper.make_node("NonZero", ["x"], ["y"])], [("x", T.FLOAT, [30000])], [("y", T.INT64, [1, "n"])])
    subprocess.run([os.path.join(os.path.dirname(BINARY), "make-models"), "--out", MODELS, "tiny_cnn", "mnist_cnn"],
                   check=True, stdout=subprocess.DEVNULL)


class Server:
    def __init__(self, *arguments, waits=True):
        self.socket = os.path.join(FOLDER, f"socket-{len(os.listdir(FOLDER))}")
        self.log = self.socket + ".log"
        with open(self.log, "w") as log:
            self.start(log, arguments)
        if waits:
            self.wait()

    def start(self, log, arguments):
        self.process = subprocess.Popen([BINARY, "serve", "--models", MODELS, "--pool-bytes", "256M",
                                         "--socket", self.socket, "--hang-timeout", "60", "--http", "off", "--grpc", "off", "--metrics",
                                         "off", *arguments], stdout=subprocess.PIPE,
                                        stderr=log, text=True)

    def wait(self):
        while True:
            line = self.process.stdout.readline()
            if line == "ready\n":
                break
            assert line, self.words()

    def words(self):
        with open(self.log) as log:
            return log.read()

    def port(self):
        return int(re.search(r"rpc +event=listening what=tcp port=(\d+)", self.words()).group(1))

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(number)
        code = self.process.wait(timeout=60)
        self.process.stdout.close()
        return code


def random(rows, seed=0):
    return np.random.default_rng(seed).standard_normal((rows, ROW), dtype=np.float32)


def raises(kind, words, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except kind as error:
        assert words in str(error), f"'{words}' is not in '{error}'"
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


# ---- the package ----


def test_wheel(_):
    with open(os.path.join(ROOT, "runtime/client/switchyard.h")) as header:
        version = re.search(r'SWITCHYARD_VERSION\s+"(.*)"', header.read()).group(1)
    assert os.path.basename(WHEEL) == f"switchyard-{version}-py3-none-any.whl"
    assert switchyard.__version__ == version and switchyard.__file__.startswith(SITE) and "Session" in dir(switchyard)  # which is imported later
    assert "switchyard/py.typed" in zipfile.ZipFile(WHEEL).namelist()


def test_types(_):
    ran = subprocess.run([sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", "--cache-dir",
                          os.path.join(ROOT, "build/mypy"), "switchyard"], cwd=PACKAGE, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_readme(server):
    with open(os.path.join(PACKAGE, "README.md")) as file:
        blocks = re.findall(r"```python\n(.*?)```", file.read(), re.S)
    assert len(blocks) >= 5
    program = "\n".join(blocks).replace("switchyard.Client()", f"switchyard.Client({server.socket!r})")
    ran = subprocess.run([sys.executable, "-c", program], env=dict(os.environ, PYTHONPATH=SITE), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "ENOTFOUND" in ran.stdout and "tiny_cnn 1 [('input', 'FP32'" in ran.stdout, ran.stdout


def test_command(server):
    ran = subprocess.run([sys.executable, "-m", "switchyard", "models", "--address", server.socket], capture_output=True, text=True,
                         env=dict(os.environ, PYTHONPATH=SITE))
    assert {"double", "tiny_cnn"} <= {model["name"] for model in json.loads(ran.stdout)}
    ran = subprocess.run([sys.executable, "-m", "switchyard", "status", "--address", server.socket + "x"], capture_output=True, text=True,
                         env=dict(os.environ, PYTHONPATH=SITE))
    assert ran.returncode == 1 and "no server answers" in ran.stderr


# ---- inference ----


def test_same_as_over_tcp(server):
    """Of an array of its own, one in shared memory, a part of one, one that is not contiguous: the same bits."""
    with switchyard.Client(server.socket) as local, switchyard.Client(server.tcp) as remote:
        for rows in (1, 3):
            x = random(rows)
            shared = local.empty((rows + 1, ROW))
            shared[1:] = x
            columns = np.asfortranarray(x)
            expected = remote.infer("double", {"x": x})["y"]
            assert np.array_equal(expected, x + x)
            for given in (x, shared[1:], columns, x.astype(">f4")):
                y = local.infer("double", {"x": given})["y"]
                assert y.dtype == np.float32 and y.tobytes() == expected.tobytes() and local.is_shared(y)
            assert local.is_shared(shared[1:]) and not local.is_shared(shared[:, :5]) and not local.is_shared(x)
        assert local.shared_bytes > 0 and remote.shared_bytes == 0
        assert np.array_equal(remote.infer("double", {"x": remote.empty((1, ROW))})["y"].shape, (1, ROW))


def test_dtypes(server):
    generator = np.random.default_rng(1)
    inputs = {"in_" + k: generator.integers(0, 2 if k == "bool" else 100, (2, 20000)).astype(kind) for k, (_, kind) in KINDS.items()}
    with switchyard.Client(server.socket) as client:
        result = client.infer("kinds", inputs)
        for k, (_, kind) in KINDS.items():
            assert result["out_" + k].dtype == kind and np.array_equal(result["out_" + k], inputs["in_" + k]), k
        raises(switchyard.InvalidArgument, "FP64", client.infer, "kinds", dict(inputs, in_f32=inputs["in_f32"].astype(np.float64)))
        raises(switchyard.InvalidArgument, "BYTES", client.infer, "kinds", dict(inputs, in_f32=np.array(["a", "b"])))


def test_bf16():
    import importlib
    tensors = importlib.import_module("switchyard._tensors")
    bits = np.array([0x3F80, 0x4000], np.uint16)
    assert tensors.wire_dtype("x", bits.dtype, "BF16") == "BF16" and tensors.wire_dtype("x", bits.dtype, None) == "UINT16"
    try:
        import ml_dtypes
    except ImportError:
        assert tensors.numpy_dtype("BF16") == np.uint16
        return
    wide = bits.view(ml_dtypes.bfloat16)
    assert tensors.wire_dtype("x", wide.dtype, None) == "BF16" and tensors.numpy_dtype("BF16") == wide.dtype
    assert bytes(tensors.as_bytes(wide)) == bits.tobytes() and list(wide.astype(np.float32)) == [1, 2]


def test_empty_batches(server):
    with switchyard.Client(server.socket) as client:
        for x in (np.empty((0, ROW), np.float32), client.empty((0, ROW))):
            y = client.infer("double", {"x": x})["y"]
            assert y.shape == (0, ROW) and y.dtype == np.float32


def test_sizes_that_requests_choose(server):
    """The first answer of new shapes comes in the message, later ones in shared memory; what only a run sizes always in the message."""
    with switchyard.Client(server.socket) as client:
        for size, is_new in ((20000, True), (30000, True), (20000, False), (30000, False)):
            x = np.arange(size, dtype=np.float32).reshape(1, size)
            y = client.infer("twice", {"x": x})["y"]
            assert client.is_shared(y) != is_new
            assert np.array_equal(y, np.concatenate([x, x], 1))
        for step in (2, 3, 2):
            x = np.zeros(30000, np.float32)
            x[::step] = 1
            assert np.array_equal(client.infer("found", {"x": x})["y"][0], np.flatnonzero(x))


def test_chosen_outputs(server):
    with switchyard.Client(server.socket) as client:
        x = random(2)
        shared, own, column = client.empty((2, ROW)), np.empty((2, ROW), np.float32), np.empty((ROW, 2), np.float32).T
        for array in (shared, own, column):
            result = client.infer("double", {"x": x}, outputs={"y": array})
            assert result["y"] is array and np.array_equal(array, x + x)
        assert list(client.infer("double", {"x": x}, outputs=["y"])) == ["y"]
        raises(switchyard.NotFound, 'no output "z"; it has y', client.infer, "double", {"x": x}, outputs=["z"])
        raises(switchyard.InvalidArgument, "the array for it is", client.infer, "double", {"x": x}, outputs={"y": np.empty(3, np.float32)})
        raises(switchyard.InvalidArgument, "overlaps", client.infer, "double", {"x": shared}, outputs={"y": shared})


def test_errors(server):
    with switchyard.Client(server.socket) as client:
        x = random(1)
        error = raises(switchyard.InvalidArgument, 'no input "z"', client.infer, "double", {"z": x})
        assert error.status == "EARG" and isinstance(error, ValueError)
        raises(switchyard.InvalidArgument, "missing", client.infer, "double", {})
        raises(switchyard.NotFound, "nobody", client.infer, "nobody", {"x": x})
        raises(switchyard.NotFound, "", client.infer, "double", {"x": x}, version=7)
        raises(switchyard.Deadline, "", client.infer, "double", {"x": x}, deadline=1e-9)
        raises(switchyard.InvalidArgument, "class", client.infer, "double", {"x": x}, class_=-1)
        raises(switchyard.TooLarge, "shared memory", client.empty, 1 << 34, np.uint8)
        assert client.infer("double", {"x": x}, version=1, class_=0, deadline=60, tenant="them").timing.attempts == 1
    raises(switchyard.ConnectionLost, "closed", client.ping)


# ---- lifetime ----


def test_results_keep_their_memory(server):
    with switchyard.Client(server.socket) as client:
        kept = [client.infer("double", {"x": random(1, seed)})["y"] for seed in range(20)]
        parts = [array[0, 1000:2000] for array in kept]
        for seed in range(0, 20, 2):
            kept[seed] = None
        for seed in range(20, 40):
            client.infer("double", {"x": random(1, seed)})
        for seed in range(20):
            expected = random(1, seed) * 2
            assert np.array_equal(parts[seed], expected[0, 1000:2000])
            if kept[seed] is not None:
                assert np.array_equal(kept[seed], expected)


def test_memory_is_used_again(server):
    with switchyard.Client(server.socket) as client:
        for seed in range(3):
            client.infer("double", {"x": random(2, seed)})
        size = client.shared_bytes
        assert 0 < size <= 64 << 20
        for seed in range(40):
            client.infer("double", {"x": random(2, seed)})
        assert client.shared_bytes == size
        array = client.empty((4, ROW))
        del [client.empty(8 << 20, np.uint8)][0]
        assert client.trim() >= 8 << 20 and client.shared_bytes >= array.nbytes
        array[...] = 1
        del array
        gc.collect()
        client.trim()
        assert client.shared_bytes == 0
        assert np.array_equal(client.infer("double", {"x": random(1)})["y"], random(1) * 2)


def test_random_lifetimes(server):
    """Arrays made, dropped and used in random order never share a byte."""
    generator = np.random.default_rng(int(os.environ.get("SY_SEED", "5")))
    with switchyard.Client(server.socket) as client:
        alive = []
        for step in range(600):
            if alive and generator.random() < 0.5:
                array, value = alive.pop(generator.integers(len(alive)))
                assert (array == value).all()
                del array
            else:
                array = client.empty(int(generator.integers(0, 1 << 16)), np.uint16)
                array[...] = step
                alive.append((array, step))
        assert all((array == value).all() for array, value in alive)


def test_many_threads(server):
    failed = []

    def work(client, seed):
        try:
            for i in range(6):
                x = random(1, seed * 100 + i)
                if i % 2:
                    shared = client.empty(x.shape)
                    shared[...] = x
                    x = shared
                assert np.array_equal(client.infer("double", {"x": x})["y"], x + x)
                client.ping()
        except BaseException:
            failed.append(traceback.format_exc())

    with switchyard.Client(server.socket) as client:
        threads = [threading.Thread(target=work, args=(client, seed)) for seed in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed, failed[0]


def test_fork(server):
    with switchyard.Client(server.socket) as client:
        client.ping()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                client.ping()
            except switchyard.ConnectionLost as error:
                code = 0 if "another process" in str(error) else 2
            os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        client.ping()


def test_a_connection_leaves_nothing(server):
    with switchyard.Client(server.socket) as client:
        before = client.status()["slab"]["used_bytes"]
        for _ in range(5):
            other = switchyard.Client(server.socket)
            kept = other.infer("double", {"x": random(1)})["y"]
            other.close()
            assert np.array_equal(kept, random(1) * 2)
        assert client.status()["slab"]["used_bytes"] == before


# ---- clients and workers that die ----


def mapped(pid):
    """How many regions of clients a process has mapped."""
    with open(f"/proc/{pid}/maps") as maps:
        return len({line.split()[4] for line in maps if "memfd:switchyard-region" in line})


def opened(pid):
    count = 0
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            count += "memfd:switchyard-region" in os.readlink(f"/proc/{pid}/fd/{number}")
        except FileNotFoundError:
            pass
    return count


def wait_until(holds, seconds=60):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def workers(client):
    return [worker["pid"] for worker in client.status()["workers"] if worker["pid"] > 0]


DYING = """import sys, threading, numpy as np, switchyard
client = switchyard.Client(sys.argv[1])
x = client.empty((8, %d))
x[...] = 1
def work():
    while True:
        client.infer("double", {"x": x})
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
client.infer("double", {"x": x})
print("runs", flush=True)
""" % ROW


def test_a_killed_client_leaves_nothing(server):
    """With requests at the server and in workers: its memory is gone everywhere, and others are served."""
    with switchyard.Client(server.socket) as client:
        for _ in range(3):
            child = subprocess.Popen([sys.executable, "-c", DYING, server.socket], env=dict(os.environ, PYTHONPATH=SITE),
                                     stdout=subprocess.PIPE, text=True)
            assert child.stdout.readline() == "runs\n"
            assert opened(server.process.pid) > 0 and any(mapped(pid) for pid in workers(client))
            child.kill()
            child.wait()
            child.stdout.close()
            assert client.infer("double", {"x": np.ones((1, ROW), np.float32)})["y"][0, 0] == 2
            client.trim()
            wait_until(lambda: opened(server.process.pid) == 0)
            wait_until(lambda: not any(mapped(pid) for pid in workers(client)))
        wait_until(lambda: client.status()["slab"]["used_bytes"] == 0)


def test_killed_workers(server):
    """The ones that come instead map what they need; each request runs again once, or ends in words."""
    failed, done, stop = [], [], threading.Event()

    def work(client, seed):
        x = client.empty((2, ROW))
        x[...] = seed
        while not stop.is_set():
            try:
                assert (client.infer("double", {"x": x})["y"] == 2 * seed).all()
                done.append(seed)
            except switchyard.PeerGone as error:  # three workers died under it
                assert not isinstance(error, switchyard.ConnectionLost)
            except BaseException:
                failed.append(traceback.format_exc())
                return

    with switchyard.Client(server.socket) as client:
        threads = [threading.Thread(target=work, args=(client, seed)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            n = len(done)
            wait_until(lambda: len(done) > n + 10 or failed)
            os.kill(workers(client)[0], signal.SIGKILL)
        stop.set()
        for thread in threads:
            thread.join()
        assert not failed, failed[0]
        assert (client.infer("double", {"x": client.empty((1, ROW))})["y"].shape) == (1, ROW)


# ---- models, jobs, rules ----


def test_models(server):
    package = os.path.join(MODELS, "double/1/model.sypkg")
    with switchyard.Client(server.socket) as client:
        double = {model.name: model for model in client.models()}["double"]
        assert double.inputs[0].dims == ("N", ROW) and double.outputs[0].dtype == "FP32" and double.version == 1
        client.load(package, name="other", tenant="them")
        x = random(1)
        assert np.array_equal(client.infer("other", {"x": x})["y"], x + x)
        client.evict("other")
        client.unload("other")
        raises(switchyard.NotFound, "other", client.infer, "other", {"x": x})
        raises(switchyard.SwitchyardError, "nowhere", client.load, "/nowhere.sypkg")
        client.tenant("them", weight=2)
        client.policy("fair", max_wait=1, train_share=0.1)
        assert client.status()["rules"]["train_share"] == 0.1
        raises(switchyard.InvalidArgument, "", client.policy, "best")
        client.trace(True)
        client.infer("double", {"x": x})
        assert client.trace()["traceEvents"]


def make_job():
    images = np.random.default_rng(2).integers(0, 255, (64, 28, 28), np.uint8)
    labels = np.arange(64, dtype=np.uint8) % 10
    with open(os.path.join(FOLDER, "images"), "wb") as file:
        file.write(struct.pack(">IIII", 0x803, 64, 28, 28) + images.tobytes())
    with open(os.path.join(FOLDER, "labels"), "wb") as file:
        file.write(struct.pack(">II", 0x801, 64) + labels.tobytes())
    return {"name": "job", "model": os.path.join(MODELS, "mnist_cnn/1/model.onnx"), "loss": "softmax_cross_entropy",
            "optimizer": {"kind": "sgd", "learning_rate": 0.01}, "batch": 16, "epochs": 100000, "max_steps": 30, "seed": 5,
            "data": {"kind": "idx", "images": os.path.join(FOLDER, "images"), "labels": os.path.join(FOLDER, "labels")}}


def test_jobs(server):
    with switchyard.Client(server.socket) as client:
        jobs, rows = client.jobs, []
        job = jobs.submit(make_job())
        last = jobs.wait(job, rows.append, every=0.05, timeout=300)
        assert last["state"] == "ended" and last["step"] == 30 and rows[-1] == last
        job = jobs.submit(json.dumps(dict(make_job(), name="endless", max_steps=10**9)))
        jobs.pause(job)
        jobs.priority(job, -5)
        assert jobs.get(job)["priority"] == -5
        raises(switchyard.NoAnswer, "after 0.2 s", jobs.wait, job, timeout=0.2, every=0.1)
        jobs.resume(job)
        jobs.stop(job)
        assert jobs.get(job)["state"] == "ended"
        raises(switchyard.InvalidArgument, "", jobs.submit, {"name": "bad"})
        raises(switchyard.NotFound, "999", jobs.get, 999)
        raises(switchyard.NotFound, "", jobs.stop, 999)


# ---- servers that do not answer ----


def test_stopped_server(server):
    """A call that waited in vain leaves the client as it was; its memory is not used again before its answer."""
    with switchyard.Client(server.socket) as client:
        x = random(1)
        client.infer("double", {"x": x})
        server.process.send_signal(signal.SIGSTOP)
        try:
            raises(switchyard.NoAnswer, "did not answer within 0.3 s", client.infer, "double", {"x": x}, timeout=0.3)
        finally:
            server.process.send_signal(signal.SIGCONT)
        for seed in range(5):
            assert np.array_equal(client.infer("double", {"x": random(1, seed)})["y"], random(1, seed) * 2)


def test_killed_server():
    server = Server()
    client, failed = switchyard.Client(server.socket), []
    kept = client.infer("double", {"x": random(1)})["y"]

    def work():
        try:
            while True:
                client.infer("double", {"x": random(4)})
        except switchyard.ConnectionLost as error:
            failed.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    server.stop(signal.SIGKILL)
    for thread in threads:
        thread.join()
    assert len(failed) == 4 and all("make a new Client" in words or "Make a new Client" in words for words in failed), failed
    raises(switchyard.ConnectionLost, "new Client", client.ping)
    raises(switchyard.ConnectionLost, "no server answers", switchyard.Client, server.socket)
    assert np.array_equal(kept, random(1) * 2)
    client.close()


def test_drained_server():
    """All who drain are answered, also while another waits, and afterwards; then a signal still ends the server."""
    server = Server()

    def drain():
        with switchyard.Client(server.socket) as client:
            done.append(client.drain())

    done, threads = [], [threading.Thread(target=drain) for _ in range(3)]
    for act in (threading.Thread.start, threading.Thread.join):
        for thread in threads:
            act(thread)
    drain()
    assert len(done) == 4
    assert server.stop() == 0, server.words()[-3000:]


def test_ended_while_it_starts():
    """A server that is told to end before its models are there has not failed."""
    server, end = Server("--strict", waits=False), time.monotonic() + 60
    while True:
        try:
            with switchyard.Client(server.socket) as client:
                client.ping()
            break
        except switchyard.ConnectionLost:
            assert time.monotonic() < end, server.words()
    assert server.stop() == 0, server.words()


def main():
    make_models()
    server = Server("--tcp", "127.0.0.1:0")
    try:
        server.tcp = f"tcp:127.0.0.1:{server.port()}"
        on_server = [test_wheel, test_types, test_readme, test_command, test_same_as_over_tcp, test_dtypes, test_empty_batches,
                     test_sizes_that_requests_choose, test_chosen_outputs, test_errors, test_results_keep_their_memory,
                     test_memory_is_used_again, test_random_lifetimes, test_many_threads, test_fork, test_a_connection_leaves_nothing, test_a_killed_client_leaves_nothing, test_killed_workers,
                     test_models, test_jobs, test_stopped_server]
        failed = run_tests(on_server, server) + run_tests([test_bf16, test_killed_server, test_drained_server, test_ended_while_it_starts])
        if failed:
            print(server.words()[-3000:])
        return 1 if server.stop() != 0 or failed else 0
    finally:
        server.stop(signal.SIGKILL)


if __name__ == "__main__":
    try:
        code = main()
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
    sys.exit(code)
