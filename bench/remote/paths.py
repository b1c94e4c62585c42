"""Paths to a server: loopback, and a network namespace behind a link of a given rate; and what others move over them: iperf3, and one connection that moves a tensor
from memory to memory, plain or by OpenSSL."""
import json
import os
import socket
import ssl
import subprocess
import sys
import time

RECEIVER = """
import socket, ssl, sys, threading
size, cert, key = int(sys.argv[1]), sys.argv[2], sys.argv[3]
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
peer, _ = listener.accept()
if cert:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    peer = context.wrap_socket(peer, server_side=True)
to = memoryview(bytearray(size))
while True:
    at = 0
    while at < size:
        n = peer.recv_into(to[at:at + (1 << 20)])
        if n == 0:
            sys.exit()
        at += n
    peer.sendall(b"k")
"""


class Loopback:
    name, host, inside = "loopback", "127.0.0.1", []

    def close(self):
        pass


class Link:
    """A network namespace at the other end of a pair of interfaces, each of which sends at `gbit` Gbit/s. OSError: the kernel or the rights for that are not there."""

    host = "10.213.77.2"

    def __init__(self, gbit):
        self.name, self.namespace, self.near, self.far = f"{gbit:g} Gbit/s link", f"sy-bench-{os.getpid()}", f"syn{os.getpid() % 100000}", f"syf{os.getpid() % 100000}"
        self.inside = ["ip", "netns", "exec", self.namespace]
        try:
            self._run("ip", "netns", "add", self.namespace)
            self._run("ip", "link", "add", self.near, "type", "veth", "peer", "name", self.far)
            self._run("ip", "link", "set", self.far, "netns", self.namespace)
            self._run("ip", "addr", "add", "10.213.77.1/24", "dev", self.near)
            self._run("ip", "link", "set", self.near, "up")
            self._run(*self.inside, "ip", "addr", "add", self.host + "/24", "dev", self.far)
            self._run(*self.inside, "ip", "link", "set", self.far, "up")
            self._run(*self.inside, "ip", "link", "set", "lo", "up")
            shape = ["root", "tbf", "rate", f"{gbit:g}gbit", "burst", "1mb", "latency", "20ms"]
            self._run("tc", "qdisc", "add", "dev", self.near, *shape)
            self._run(*self.inside, "tc", "qdisc", "add", "dev", self.far, *shape)
        except OSError:
            self.close()
            raise

    @staticmethod
    def _run(*command):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")

    def close(self):
        for command in (["ip", "link", "del", self.near], ["ip", "netns", "del", self.namespace]):
            subprocess.run(command, capture_output=True)


def iperf3(path):
    """10^9 bytes a second there, and back, each for two seconds."""
    rates = []
    for way in ([], ["-R"]):
        with subprocess.Popen([*path.inside, "iperf3", "-s", "-1", "-p", "15201"], stdout=subprocess.DEVNULL) as server:
            time.sleep(0.5)
            said = subprocess.run(["iperf3", "-c", path.host, "-p", "15201", "-t", "2", "-J", *way], capture_output=True, text=True, check=True).stdout
            server.wait(30)
        rates.append(json.loads(said)["end"]["sum_received"]["bits_per_second"] / 8e9)
    return rates


def alone(size, rounds, cert="", key=""):
    """10^9 bytes a second of one connection between two processes that do nothing else: a tensor from memory to memory. The best of the rounds."""
    data, rates = memoryview(os.urandom(1 << 20) * (size >> 20)), []
    with subprocess.Popen([sys.executable, "-c", RECEIVER, str(size), cert, key], stdout=subprocess.PIPE, text=True) as process:
        with socket.create_connection(("127.0.0.1", int(process.stdout.readline()))) as plain:
            peer = ssl.create_default_context(cafile=cert).wrap_socket(plain, server_hostname="localhost") if cert else plain
            for _ in range(rounds):
                begun = time.perf_counter()
                peer.sendall(data)
                assert peer.recv(1) == b"k"
                rates.append(size / (time.perf_counter() - begun) / 1e9)
            peer.close()
    return max(rates)
