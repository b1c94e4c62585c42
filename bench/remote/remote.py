#!/usr/bin/env python3
"""A server of another machine, over loopback: latency over TCP and TLS beside the Unix socket, large transfers beside iperf3, how soon a killed client's connection is
gone. Interleaved, one machine; rows in build/bench/remote.json.

    remote.py BUILD [--rounds 2000]"""
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
sys.path.insert(0, os.path.join(ROOT, "runtime/python"))
import switchyard  # noqa: E402

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
    def __init__(self, binary, folder, name, *arguments):
        self.socket, log = os.path.join(folder, name), os.path.join(folder, name + ".log")
        with open(log, "w", encoding="utf-8") as out:
            self.process = subprocess.Popen([binary, "serve", "--models", os.path.join(folder, "models"), "--socket", self.socket, "--tcp", "127.0.0.1:0", "--http", "off",
                                             "--grpc", "off", "--metrics", "off", "--workers", "2", "--threads", "1", "--pool-bytes", "256Mi", "--slab-bytes", "512Mi",
                                             *arguments], stdout=subprocess.PIPE, stderr=out, text=True, env=dict(os.environ, SY_LOG="info"))
        while self.process.stdout.readline().strip() != "ready":
            assert self.process.poll() is None
        with open(log, encoding="utf-8") as text:
            self.port = int(re.search(r"what=tcp port=(\d+)", text.read()).group(1))
        self.address = f"tcp:localhost:{self.port}"

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
    """10^9 bytes a second, both ways of a request that answers what it was sent; the best of the rounds, as iperf3's is a sum without pauses."""
    x = np.random.default_rng(1).standard_normal((LARGE // 16, 4), np.float32)
    rates = []
    for _ in range(rounds):
        begun = time.perf_counter()
        answer = client.infer("identity", {"input": x})["output"]
        rates.append(2 * LARGE / (time.perf_counter() - begun) / 1e9)
        assert answer.tobytes() == x.tobytes()
    return sorted(rates)


def iperf3():
    with subprocess.Popen(["iperf3", "-s", "-1", "-p", "15201", "-B", "127.0.0.1"], stdout=subprocess.DEVNULL) as server:
        time.sleep(0.5)
        said = subprocess.run(["iperf3", "-c", "127.0.0.1", "-p", "15201", "-n", "4G", "-J"], capture_output=True, text=True, check=True).stdout
        server.wait(30)
    return json.loads(said)["end"]["sum_received"]["bits_per_second"] / 8e9


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


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as text:
        return next((line.split(":", 1)[1].strip() for line in text if line.startswith("model name")), "an unknown CPU")


def at(times, part):
    return times[min(len(times) - 1, int(len(times) * part))]


def row(what, value, op, bar, n, baseline):
    return {"what": what, "value": round(value, 4), "op": op, "bar": bar, "n": n, "baseline": baseline}


def measure(build, folder, rounds):
    binary = os.path.join(build, "switchyard")
    subprocess.run([os.path.join(build, "make-models"), "--out", os.path.join(folder, "models"), "identity", "mlp"], check=True, stdout=subprocess.DEVNULL)
    cert, key = run_openssl(folder)
    tokens = os.path.join(folder, "tokens")
    with open(tokens, "w", encoding="utf-8") as out:
        os.fchmod(out.fileno(), 0o600)
        out.write(f"bench {TOKEN} infer\n")
    plain = Server(binary, folder, "plain", "--token-file", tokens)
    secure = Server(binary, folder, "secure", "--token-file", tokens, "--tls-cert", cert, "--tls-key", key)
    clients = {"unix": switchyard.Client(plain.socket), "tcp": switchyard.Client(plain.address, token=TOKEN),
               "tls": switchyard.Client(secure.address, token=TOKEN, tls_ca=cert)}
    times = latencies(clients, rounds)
    half = {name: at(list_, 0.5) for name, list_ in times.items()}
    tail = {name: at(list_, 0.99) for name, list_ in times.items()}
    iperf = [iperf3()]
    rates = {name: large(clients[name], 5) for name in ("tcp", "tls")}
    iperf.append(iperf3())
    died = deaths(plain, 20)
    for client in clients.values():
        client.close()
    plain.stop()
    secure.stop()
    rows = [row(f"latency of a small request over {name} less over the Unix socket, p50, ms", half[name] - half["unix"], "<=", 0.1, rounds,
                f"Unix socket p50 {half['unix']:.3f}, p99 {tail['unix']:.3f} ms; {name} p99 {tail[name]:.3f}") for name in ("tcp", "tls")]
    rows += [row(f"64 MiB there and back over {name} / iperf3's rate, loopback", max(rates[name]) / max(iperf), ">=", 0.95, 5,
                 f"iperf3 {max(iperf):.2f} GB/s, {name} best {max(rates[name]):.2f}, median {at(rates[name], 0.5):.2f} GB/s") for name in ("tcp", "tls")]
    rows.append(row("a killed client's connection is gone at the server, p99, ms", at(died, 0.99), "<=", 1000, len(died), f"p50 {at(died, 0.5):.1f} ms"))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=2000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(os.path.abspath(arguments.build), folder, arguments.rounds)
    os.makedirs(os.path.join(arguments.build, "bench"), exist_ok=True)
    with open(os.path.join(arguments.build, "bench/remote.json"), "w", encoding="utf-8") as out:
        json.dump({"cores": os.cpu_count(), "cpu": cpu_name(), "rows": rows}, out, indent=2)
    for one in rows:
        kept = one["value"] <= one["bar"] if one["op"] == "<=" else one["value"] >= one["bar"]
        print(f"{'ok  ' if kept else 'MISS'} {one['what']}: {one['value']} ({one['op']} {one['bar']}); {one['baseline']}")


if __name__ == "__main__":
    main()
