"""Requests a second of a model that computes nothing; the tail at half the rate that is wanted, and at half the rate measured. The server has core 0, the client core 1."""
import os
import re
import shutil
import struct
import subprocess

import messages
from served import Missing, Served, make_packages, median, must, ask, run_json, without_errors

SERVER, CLIENT, CONNECTIONS = [0], [1], 64
SCRIPT = 'wrk.method = "POST"\nwrk.body = [==[%s]==]\nwrk.headers["Content-Type"] = "application/json"\n'
DATA = [1.0, 2.0, 3.0, 4.0]


def need_cores():
    if not {0, 1} <= os.sched_getaffinity(0):
        raise Missing("needs cores 0 and 1")


def need_tool(name, package):
    if not shutil.which(name):
        raise Missing(f"{name} is not installed (Debian package {package})")


def identity(options, *arguments):
    package = make_packages(options, "identity")["identity"]
    return Served(options, "--package", package, "--pool-bytes", "64M", *arguments, cores=SERVER)


def write(folder, name, data):
    path = f"{folder}/{name}"
    with open(path, "wb") as out:
        out.write(data)
    return path


# ---- HTTP ----

def wrk(port, path, seconds, script=None):
    words = ["taskset", "-c", "1", "wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", *(["-s", script] if script else []), f"http://127.0.0.1:{port}{path}"]
    said = subprocess.run(words, capture_output=True, text=True, timeout=600, check=True).stdout
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)|Socket errors: (.*)", said)
    if bad:
        raise Missing(f"wrk: {bad.group(0)}")
    rate = float(re.search(r"Requests/sec:\s*([\d.]+)", said).group(1))
    if rate == 0:
        raise Missing(f"wrk had no answer: {said}")
    return rate


def check_http(server, body):
    connection = server.connect()
    got = must(*ask(connection, "POST", messages.infer_path("identity"), body)[:2], "infer")
    if b'"data":[1' not in got.replace(b" ", b""):
        raise Missing(f"another answer than was sent: {got[:200]!r}")


def http(bench):
    need_cores()
    need_tool("wrk", "wrk")
    body = messages.json_body("input", "FP32", [1, 4], DATA)
    with identity(bench.options) as server:
        port, folder, path = server.need("http"), server.folder.name, messages.infer_path("identity")
        check_http(server, body)
        script = write(folder, "post.lua", (SCRIPT % body.decode()).encode())
        infer, live = [], []
        for _ in range(bench.rounds):
            infer.append(wrk(port, path, bench.seconds, script))
            live.append(wrk(port, "/v2/health/live", bench.seconds))
        request = write(folder, "request", messages.http_request(path, body))
        alive = write(folder, "live", messages.http_request("/v2/health/live", method="GET"))

        def tail(file, at):
            words = [f"{bench.options.build}/bench/http_load", "127.0.0.1", port, "--connections", CONNECTIONS, "--seconds", bench.seconds]
            return without_errors(run_json(*words, "--rate", at, "--request", file, cores=CLIENT))
        tails = tails_at(bench, "http", infer, lambda rate: (tail(request, rate), tail(alive, rate)))
    return {
        "http_rps": bench.result(median(infer), len(infer), f"GET /v2/health/live: {median(live):.0f}", tool="wrk", all=infer),
        **{name: tail_result(bench, *at, "GET /v2/health/live") for name, at in tails.items()},
    }


def tails_at(bench, protocol, rates, measure):
    """{row: (rate, [(the model's, the floor's)])}: at half the rate that is wanted and at half the rate measured, in turns."""
    at = {f"{protocol}_p99": bench.bar(f"{protocol}_rps") / 2, f"{protocol}_p99_half": median(rates) / 2}
    found = {name: (rate, []) for name, rate in at.items()}
    for _ in range(bench.rounds):
        for rate, tails in found.values():
            tails.append(measure(rate))
    return found


def smooth_ms(tails, key):
    """In words: a bound from below, of the runs that had any request in whose time the generator had its core."""
    values = [told[key] for told in tails if told[key] is not None]
    return f"{median(values) / 1e3:.3f}" if values else "none"


def tail_result(bench, rate, tails, beside):
    def ms(one, key):
        return median([pair[one][key] for pair in tails]) / 1e3
    untouched = median([mine["smooth_n"] / mine["n"] for mine, _ in tails])
    told = (f"at {rate:.0f}/s; p50 {ms(0, 'p50_us'):.3f}, p90 {ms(0, 'p90_us'):.3f}; requests sent late by {ms(0, 'late_p99_us'):.3f} at p99; p99 of the {untouched:.0%} in "
            f"whose time the generator's core was not taken away, a lower bound: {smooth_ms([mine for mine, _ in tails], 'smooth_p99_us')}; {beside}: {ms(1, 'p99_us'):.3f}, of those: "
            f"{smooth_ms([floor for _, floor in tails], 'smooth_p99_us')} ms")
    return bench.result(ms(0, "p99_us"), len(tails), told, rate=rate, reached=median([mine["rps"] for mine, _ in tails]), all=tails)


# ---- gRPC ----

def h2load(port, body, seconds):
    words = ["taskset", "-c", "1", "h2load", "-t1", f"-c{CONNECTIONS}", "-m1", f"-D{seconds}", "--warm-up-time=1", "-d", body, "-H", "content-type: application/grpc",
             "-H", "te: trailers", f"http://127.0.0.1:{port}/inference.GRPCInferenceService/ModelInfer"]
    said = subprocess.run(words, capture_output=True, text=True, timeout=600, check=True).stdout
    counts = re.search(r"(\d+) succeeded, (\d+) failed, (\d+) errored", said)
    rate = re.search(r"finished in [^,]*, ([\d.]+) req/s", said)
    if not rate or not counts or int(counts.group(1)) == 0 or counts.group(2) != "0":
        raise Missing(f"h2load: {said[-300:]}")
    return float(rate.group(1))


def grpc(bench):
    need_cores()
    need_tool("h2load", "nghttp2-client")
    data = struct.pack("<4f", *DATA)
    with identity(bench.options) as server:
        port, folder = server.need("grpc"), server.folder.name
        body = write(folder, "body", messages.grpc_request("identity", "input", "FP32", [1, 4], data))
        # A message without a model, on a method that reads nothing: what the protocol alone costs.
        live = write(folder, "live", b"\0\0\0\0\0")

        def load(file, method, **more):
            words = [f"{bench.options.build}/bench/grpc_load", "127.0.0.1", port, "--connections", CONNECTIONS, "--seconds", bench.seconds, "--body", file,
                     "--path", f"/inference.GRPCInferenceService/{method}"]
            return without_errors(run_json(*words, *(word for key, value in more.items() for word in (f"--{key}", value)), cores=CLIENT))
        load(body, "ModelInfer")  # whose answers are looked at; h2load sees HTTP's status alone
        infer, alive = [], []
        for _ in range(bench.rounds):
            infer.append(h2load(port, body, bench.seconds))
            alive.append(load(live, "ServerLive")["rps"])
        tails = tails_at(bench, "grpc", infer, lambda rate: (load(body, "ModelInfer", rate=rate), load(live, "ServerLive", rate=rate)))
    return {
        "grpc_rps": bench.result(median(infer), len(infer), f"ServerLive: {median(alive):.0f}", tool="h2load", all=infer),
        **{name: tail_result(bench, *at, "ServerLive") for name, at in tails.items()},
    }
