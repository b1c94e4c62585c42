#!/usr/bin/env python3
"""A server of another machine: latency over TCP and TLS beside the Unix socket, large transfers beside iperf3 over loopback and over links of 1 and 10 Gbit/s (a network
namespace behind tc), directly and through `switchyard attach`; how soon a killed client's connection is gone. One machine; rows in build/bench/remote.json.

    remote.py BUILD [--rounds 2000] [--link 1 10]"""
import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "runtime/python")]
import paths  # noqa: E402
import switchyard  # noqa: E402
from kept_rows import cpu_name  # noqa: E402

TOKEN = "b" * 40
MIB = 1 << 20
LARGE = 64 * MIB
SLEEPER = """
import sys, time, switchyard
client = switchyard.Client(sys.argv[1], token=sys.argv[2])
client.ping()
print("there", flush=True)
time.sleep(600)
"""


def run_openssl(folder):
    cert, key = os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", cert, "-subj",
                    "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "2"], check=True, stderr=subprocess.DEVNULL)
    return cert, key


class Server:
    def __init__(self, binary, folder, name, path, *arguments):
        self.socket, log = os.path.join(folder, name), os.path.join(folder, name + ".log")
        with open(log, "w", encoding="utf-8") as out:
            self.process = subprocess.Popen([*path.inside, binary, "serve", "--models", os.path.join(folder, "models"), "--socket", self.socket, "--tcp", path.host + ":0", "--http", "off",
                                             "--grpc", "off", "--metrics", "off", "--workers", "2", "--threads", "1", "--pool-bytes", "256Mi", "--slab-bytes", "512Mi",
                                             *arguments], stdout=subprocess.PIPE, stderr=out, text=True, env=dict(os.environ, SY_LOG="info"))
        while self.process.stdout.readline().strip() != "ready":
            assert self.process.poll() is None
        with open(log, encoding="utf-8") as text:
            self.port = int(re.search(r"what=tcp port=(\d+)", text.read()).group(1))
        self.address = f"tcp:{'localhost' if path.host == '127.0.0.1' else path.host}:{self.port}"

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def latencies(clients, rounds):
    """Milliseconds of a small request over each, by turns: {name: sorted}."""
    x, found = np.zeros((1, 16), np.float32), {name: [] for name in clients}
    for i in range(rounds + 100):
        for name, client in clients.items():
            begun = time.perf_counter()
            client.infer("mlp", {"input": x})
            if i >= 100:
                found[name].append((time.perf_counter() - begun) * 1e3)
    return {name: sorted(times) for name, times in found.items()}


def large(client, rounds):
    """10^9 bytes a second, both ways of a request that answers what it was sent, without the time from its arrival to its end at the server, which computes then. Sorted."""
    x = np.random.default_rng(1).standard_normal((LARGE // 16, 4), np.float32)
    rates = []
    for _ in range(rounds):
        begun = time.perf_counter()
        answer = client.infer("identity", {"input": x})
        rates.append(2 * LARGE / (time.perf_counter() - begun - answer.timing.total_ns / 1e9) / 1e9)
        assert np.array_equal(answer["output"], x)
    return sorted(rates)


class Attach:
    """`switchyard attach` to a server, and a client of its local socket."""

    def __init__(self, binary, folder, server, token_file):
        self.process = subprocess.Popen([binary, "attach", "--server", server.address, "--socket", os.path.join(folder, "attached"), "--token-file", token_file],
                                        stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline().startswith("ready")
        self.client = switchyard.Client(os.path.join(folder, "attached"))

    def stop(self):
        self.client.close()
        self.process.terminate()
        self.process.wait(30)


def transfers(binary, folder, path, tokens, rounds):
    """Rows: directly, and attached, over this path."""
    server = Server(binary, folder, "far", path, "--token-file", os.path.join(folder, "tokens"))
    attach = Attach(binary, folder, server, tokens)
    direct = switchyard.Client(server.address, token=TOKEN)
    before = paths.iperf3(path)
    found = {"tcp": large(direct, rounds), "tcp through attach": large(attach.client, rounds)}
    there, back = (max(pair) for pair in zip(before, paths.iperf3(path)))
    baseline = 2 / (1 / there + 1 / back)  # as many bytes each way, one after the other
    direct.close()
    attach.stop()
    server.stop()
    return [row(f"64 MiB there and back over {name} / iperf3's rate, {path.name}", rates[-1] / baseline, ">=", 0.95, rounds,
                f"iperf3 {there:.2f} GB/s there, {back:.2f} back; {name} best {rates[-1]:.2f}, median {at(rates, 0.5):.2f} GB/s")
            for name, rates in found.items()]


def link_rows(binary, folder, tokens, rounds, rates):
    rows = []
    for gbit in rates:
        try:
            path = paths.Link(gbit)
        except OSError as error:
            print(f"no link of {gbit} Gbit/s here: {error}")
            continue
        try:
            rows += transfers(binary, folder, path, tokens, rounds)
        finally:
            path.close()
    return rows


def established(port):
    rows = subprocess.run(["ss", "-Htn", "state", "established", "sport", "=", f":{port}"], capture_output=True, text=True, check=True).stdout
    return len(rows.splitlines())


def deaths(server, n):
    """Milliseconds from SIGKILL to a connection less at the server."""
    times, before = [], established(server.port)
    for _ in range(n):
        with subprocess.Popen([sys.executable, "-c", SLEEPER, server.address, TOKEN], stdout=subprocess.PIPE, text=True,
                              env=dict(os.environ, PYTHONPATH=os.path.join(ROOT, "runtime/python"))) as client:
            assert client.stdout.readline() == "there\n"
            begun = time.perf_counter()
            client.kill()
            while established(server.port) > before:
                assert time.perf_counter() < begun + 30
            times.append((time.perf_counter() - begun) * 1e3)
    return sorted(times)


def at(times, part):
    return times[min(len(times) - 1, int(len(times) * part))]


def row(what, value, op, bar, n, baseline):
    return {"what": what, "value": round(value, 4), "op": op, "bar": bar, "n": n, "baseline": baseline}


def measure(build, folder, rounds, links):
    binary = os.path.join(build, "switchyard")
    subprocess.run([os.path.join(build, "make-models"), "--out", os.path.join(folder, "models"), "identity", "mlp"], check=True, stdout=subprocess.DEVNULL)
    cert, key = run_openssl(folder)
    tokens = os.path.join(folder, "tokens")
    with open(tokens, "w", encoding="utf-8") as out:
        os.fchmod(out.fileno(), 0o600)
        out.write(f"bench {TOKEN} infer\n")
    secret = os.path.join(folder, "secret")
    with open(secret, "w", encoding="utf-8") as out:
        out.write(TOKEN)
    loopback = paths.Loopback()
    plain = Server(binary, folder, "plain", loopback, "--token-file", tokens)
    secure = Server(binary, folder, "secure", loopback, "--token-file", tokens, "--tls-cert", cert, "--tls-key", key)
    clients = {"unix": switchyard.Client(plain.socket), "tcp": switchyard.Client(plain.address, token=TOKEN),
               "tls": switchyard.Client(secure.address, token=TOKEN, tls_ca=cert)}
    times = latencies(clients, rounds)
    half = {name: at(list_, 0.5) for name, list_ in times.items()}
    tail = {name: at(list_, 0.99) for name, list_ in times.items()}
    tls, openssl = large(clients["tls"], 8), paths.alone(LARGE, 8, cert, key)
    tcp, memory = large(clients["tcp"], 8), paths.alone(LARGE, 8)
    died = deaths(plain, 20)
    for client in clients.values():
        client.close()
    plain.stop()
    secure.stop()
    rows = [row(f"latency of a small request over {name} less over the Unix socket, p50, ms", half[name] - half["unix"], "<=", 0.1, rounds,
                f"Unix socket p50 {half['unix']:.3f}, p99 {tail['unix']:.3f} ms; {name} p99 {tail[name]:.3f}") for name in ("tcp", "tls")]
    rows += transfers(binary, folder, loopback, secret, 8)
    rows.append(row("64 MiB there and back over tcp / a bare connection that moves it from memory to memory, loopback", tcp[-1] / memory, ">=", 0.95, 8,
                    f"bare {memory:.2f} GB/s, tcp best {tcp[-1]:.2f}, median {at(tcp, 0.5):.2f} GB/s"))
    rows.append(row("64 MiB there and back over tls / OpenSSL alone (two processes, one connection), loopback", tls[-1] / openssl, ">=", 0.95, 8,
                    f"OpenSSL {openssl:.2f} GB/s, tls best {tls[-1]:.2f}, median {at(tls, 0.5):.2f} GB/s"))
    rows += link_rows(binary, folder, secret, 5, links)
    rows.append(row("a killed client's connection is gone at the server, p99, ms", at(died, 0.99), "<=", 1000, len(died), f"p50 {at(died, 0.5):.1f} ms"))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--link", type=float, nargs="*", default=[1, 10], help="Gbit/s of the links that are measured; needs the right to make network namespaces")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(os.path.abspath(arguments.build), folder, arguments.rounds, arguments.link)
    os.makedirs(os.path.join(arguments.build, "bench"), exist_ok=True)
    with open(os.path.join(arguments.build, "bench/remote.json"), "w", encoding="utf-8") as out:
        json.dump({"cores": os.cpu_count(), "cpu": cpu_name(), "rows": rows}, out, indent=2)
    for one in rows:
        kept = one["value"] <= one["bar"] if one["op"] == "<=" else one["value"] >= one["bar"]
        print(f"{'ok  ' if kept else 'MISS'} {one['what']}: {one['value']} ({one['op']} {one['bar']}); {one['baseline']}")


if __name__ == "__main__":
    main()
