"""ResNet-50, batch 8, eight requests at a time: beside the engine alone, and beside ONNX Runtime behind FastAPI. In turns, on the same threads."""
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time

import messages
from served import Missing, Served, ask, make_packages, median, must, run_json, without_errors

BATCH, CONCURRENCY, SIDE = 8, 8, 224
HERE = os.path.dirname(os.path.abspath(__file__))


def threads():
    return len(os.sched_getaffinity(0))


def images():
    dice = random.Random(2)
    block = b"".join((0x3f800000 | dice.getrandbits(23)).to_bytes(4, "little") for _ in range(3 * SIDE * SIDE))
    return block * BATCH


def resnet(options):
    package = make_packages(options, "resnet50")["resnet50"]
    return Served(options, "--package", package, "--warm-batches", f"1,{BATCH}", "--threads", threads())


def write(path, data):
    with open(path, "wb") as out:
        out.write(data)
    return path


def describe(server):
    """The names of the model's only input and output."""
    told = json.loads(must(*ask(server.connect(), "GET", "/v2/models/resnet50")[:2], "metadata"))
    return told["inputs"][0]["name"], told["outputs"][0]["name"]


def load(bench, port, request, seconds):
    """Images a second."""
    words = [f"{bench.options.build}/bench/http_load", "127.0.0.1", port, "--connections", CONCURRENCY, "--warm-up", 2 if bench.options.quick else 3, "--seconds", seconds,
             "--request", request]
    return without_errors(run_json(*words))["rps"] * BATCH


def request_file(server):
    body, headers = messages.binary_body(describe(server)[0], "FP32", [BATCH, 3, SIDE, SIDE], images())
    must(*ask(server.connect(), "POST", messages.infer_path("resnet50"), body, headers)[:2], "infer")
    return write(f"{server.folder.name}/request", messages.http_request(messages.infer_path("resnet50"), body, headers))


def engine_images(options):
    """Back-to-back runs of the engine in a process of its own: images a second."""
    words = [f"{options.build}/bench/ready", f"--models={options.build}/bench/models", "--model=resnet50", f"--batch={BATCH}", f"--threads={threads()}",
             "--benchmark_filter=overhead", "--benchmark_format=json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        raise Missing(f"bench/ready: {done.stderr[-300:]}")
    run = json.loads(done.stdout)["benchmarks"][0]
    return BATCH / (run["real_time"] / 1e3)


def beside_engine(bench):
    rounds, seconds, served, engine = (1, 8, [], []) if bench.options.quick else (5, 10, [], [])
    with resnet(bench.options) as server:
        request = request_file(server)
        for _ in range(rounds):
            served.append(load(bench, server.need("http"), request, seconds))
            engine.append(engine_images(bench.options))
    ratios = [ours / alone for ours, alone in zip(served, engine)]
    return {"resnet50_engine": bench.result(median(ratios), len(ratios), f"the engine alone: {median(engine):.1f} images/s; served {median(served):.1f}", all=ratios)}


# ---- FastAPI ----

def make_venv(options):
    """build/venv-serve, made once for each list of versions."""
    folder, wanted = f"{options.build}/venv-serve", f"{HERE}/requirements.txt"
    python, mark = f"{folder}/bin/python", f"{folder}/made"
    if os.path.exists(mark) and os.path.getmtime(mark) >= os.path.getmtime(wanted):
        return python
    print("  making build/venv-serve", file=sys.stderr, flush=True)
    if not os.path.exists(python):
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    done = subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", wanted], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Missing(f"ONNX Runtime and FastAPI cannot be installed: {done.stderr[-300:]}")
    with open(mark, "w", encoding="ascii"):
        return python


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def fastapi(options, model):
    """A server of one model behind FastAPI; gives its port and its process, stopped with SIGSTOP while others are measured."""
    python, port = make_venv(options), free_port()
    environment = {**os.environ, "MODEL": model, "THREADS": str(threads())}
    process = subprocess.Popen([python, "-m", "uvicorn", "--app-dir", HERE, "fastapi_server:app", "--host", "127.0.0.1", "--port", str(port), "--log-level", "warning",
                                "--no-access-log"], env=environment)
    try:
        await_port(process, port)
        yield port, process
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait(60)


def await_port(process, port):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise Missing("FastAPI's server does not come up")


def beside_fastapi(bench):
    rounds, seconds, ours, theirs = (1, 8, [], []) if bench.options.quick else (5, 10, [], [])
    with resnet(bench.options) as server:
        request, model = request_file(server), f"{bench.options.build}/bench/models/resnet50/1/model.onnx"
        with fastapi(bench.options, model) as (port, process):
            raw = write(f"{server.folder.name}/raw", messages.http_request("/infer", images(), {"Content-Type": "application/octet-stream"}))
            for _ in range(rounds):
                process.send_signal(signal.SIGSTOP)  # its threads spin for a while after a run
                ours.append(load(bench, server.need("http"), request, seconds))
                process.send_signal(signal.SIGCONT)
                theirs.append(load(bench, port, raw, seconds))
    ratios = [mine / other for mine, other in zip(ours, theirs)]
    return {"resnet50_fastapi": bench.result(median(ratios), len(ratios), f"ONNX Runtime behind FastAPI, raw bytes in and out: {median(theirs):.1f} images/s; "
                                                                          f"ours {median(ours):.1f}", all=ratios)}
