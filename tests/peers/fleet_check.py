#!/usr/bin/env python3
"""examples/fleet/ with Debian's nginx before two real nodes: requests go where their model is resident, a node that is killed loses none, a name that nobody has resident is
hashed to one node. Run by `make test`; prints a line a test."""
import concurrent.futures
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from checks import run_tests

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BINARY = os.path.join(ROOT, os.environ.get("SY_BINARY", "build/switchyard"))
EXPORT = os.path.join(ROOT, "examples/fleet/export_routes.py")
BODIES = {"identity": {"inputs": [{"name": "input", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Node:
    def __init__(self, folder, models):
        self.http, self.folder = free_port(), folder
        self.socket = folder + "/socket"
        os.makedirs(folder)
        self.log = open(folder + "/log", "w+")
        self.process = subprocess.Popen([BINARY, "serve", "--models", models, "--socket", self.socket, "--http", f"127.0.0.1:{self.http}", "--grpc", "off",
                                         "--metrics", "off", "--pool-bytes", "64Mi", "--workers", "2"], stdout=self.log, stderr=subprocess.STDOUT)

    def wait_until_ready(self):
        for _ in range(1200):
            if re.search("^ready$", open(self.folder + "/log").read(), re.M):
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise SystemExit("a node is not ready: " + open(self.folder + "/log").read())

    def requests(self, model):
        status = json.loads(subprocess.run([BINARY, "status", "--json", "--socket", self.socket], capture_output=True, check=True).stdout)
        return sum(m["requests"] for m in status["models"] if m["name"] == model)


def ask(port, model):
    body = json.dumps(BODIES[model]).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v2/models/{model}/infer", data=body)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())["outputs"][0]["data"]


class Fleet:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="fleet_check_")
        os.chmod(self.folder, 0o755)
        models = self.folder + "/models"
        subprocess.run([os.path.join(os.path.dirname(BINARY), "make-models"), "--out", models, "identity"], check=True, stdout=subprocess.DEVNULL)
        self.nodes = []
        for i in range(2):  # one after the other: the first imports
            self.nodes.append(Node(f"{self.folder}/node{i}", models))
            self.nodes[-1].wait_until_ready()
        with open(self.folder + "/nodes.json", "w", encoding="utf-8") as out:
            json.dump([{"http": f"127.0.0.1:{n.http}", "status": n.socket} for n in self.nodes], out)
        self.port = free_port()
        with open(self.folder + "/nginx.conf", "w", encoding="utf-8") as out:
            out.write(f"daemon off; worker_processes 1; pid {self.folder}/nginx.pid; error_log {self.folder}/error.log; events {{ worker_connections 1024; }}\n"
                      f"http {{ access_log off; client_body_temp_path {self.folder}/body; proxy_temp_path {self.folder}/proxy; fastcgi_temp_path {self.folder}/f; "
                      f"uwsgi_temp_path {self.folder}/u; scgi_temp_path {self.folder}/s; include {self.folder}/routes.conf; }}\n")
        self.nginx = None

    def export(self):
        subprocess.run([sys.executable, EXPORT, self.folder + "/nodes.json", "--out", self.folder + "/routes.conf", "--binary", BINARY, "--listen",
                        f"127.0.0.1:{self.port}"], check=True)
        if self.nginx:
            subprocess.run(["nginx", "-c", self.folder + "/nginx.conf", "-s", "reload"], check=True, stderr=subprocess.DEVNULL)
            time.sleep(0.5)
            return
        self.nginx = subprocess.Popen(["nginx", "-c", self.folder + "/nginx.conf"], stderr=subprocess.DEVNULL)
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.1)
        raise SystemExit("nginx does not listen: " + open(self.folder + "/error.log").read())

    def close(self):
        for process in [n.process for n in self.nodes] + ([self.nginx] if self.nginx else []):
            if process.poll() is None:
                process.terminate()
                process.wait(60)
        shutil.rmtree(self.folder)


def hashed_to_one(fleet):
    """Resident nowhere yet (nobody asked): all requests for it reach one node."""
    fleet.export()
    for _ in range(20):
        assert ask(fleet.port, "identity") == [1, 2, 3, 4]
    counts = sorted(n.requests("identity") for n in fleet.nodes)
    assert counts == [0, 20], counts


def goes_where_it_is_resident(fleet):
    fleet.export()
    before = [n.requests("identity") for n in fleet.nodes]
    for _ in range(20):
        ask(fleet.port, "identity")
    gained = [n.requests("identity") - b for n, b in zip(fleet.nodes, before)]
    assert gained == [20 if b else 0 for b in before], (before, gained)


def a_killed_node_loses_none(fleet):
    """SIGKILL to the node that has the model while eight clients ask for it."""
    has = max(fleet.nodes, key=lambda n: n.requests("identity"))
    with concurrent.futures.ThreadPoolExecutor(8) as clients:
        answers = [clients.submit(ask, fleet.port, "identity") for _ in range(400)]
        while sum(a.done() for a in answers) < 100:
            time.sleep(0.001)
        has.process.kill()
        lost = [a.exception() for a in answers if a.exception() or a.result() != [1, 2, 3, 4]]
    has.process.wait()
    assert not lost, f"{len(lost)} of 400 lost: {lost[:2]}"
    fleet.export()  # and the table forgets it
    assert str(has.http) not in open(fleet.folder + "/routes.conf").read()


def main():
    if not shutil.which("nginx"):
        print("skipped: nginx is not installed")
        return 77
    fleet = Fleet()
    try:
        failed = run_tests((hashed_to_one, goes_where_it_is_resident, a_killed_node_loses_none), fleet)
    finally:
        fleet.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
