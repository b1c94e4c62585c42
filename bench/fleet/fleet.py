#!/usr/bin/env python3
"""The fleet's rows: build/bench/fleet.json. What each row is: its text. `--quick` for a look.

    fleet.py BUILD_FOLDER [--quick]
"""
import hashlib
import http.server
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/peers"))
BUILD, QUICK = sys.argv[1], "--quick" in sys.argv
os.environ["SY_BINARY"] = os.path.join(BUILD, "switchyard")
import fleet_check  # noqa: E402

rows = []


def row(what, value, op, bar, n, baseline):
    rows.append({"what": what, "value": value, "op": op, "bar": bar, "n": n, "baseline": baseline, "measured": time.strftime("%Y-%m-%d"), "quick": QUICK})
    print(f"  {what}: {value} {op} {bar} (n {n}; {baseline})", flush=True)


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as text:
        return next((line.split(":", 1)[1].strip() for line in text if line.startswith("model name")), "unknown")


# ---- routing by nginx ------------------------------------------------------------------------------

LUA = """wrk.method = "POST"
wrk.body = '%s'
wrk.headers["Content-Type"] = "application/json"
"""


def wrk(port, folder, seconds):
    with open(folder + "/post.lua", "w", encoding="utf-8") as out:
        out.write(LUA % json.dumps(fleet_check.BODIES["identity"]))
    done = subprocess.run(["wrk", "-t1", "-c16", f"-d{seconds}s", "-s", folder + "/post.lua", f"http://127.0.0.1:{port}/v2/models/identity/infer"],
                          capture_output=True, text=True, check=True)
    errors = re.search(r"Non-2xx or 3xx responses: (\d+)", done.stdout)
    return float(re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)[1]), int(errors[1]) if errors else 0


def routing():
    fleet = fleet_check.Fleet()
    try:
        fleet.export()
        fleet_check.ask(fleet.port, "identity")
        fleet.export()  # from here on it is known where the model is
        has = max(fleet.nodes, key=lambda n: n.requests("identity"))
        rounds, seconds = (2, 1) if QUICK else (5, 3)
        through, direct, wrong = [], [], 0
        for _ in range(rounds):
            rate, errors = wrk(fleet.port, fleet.folder, seconds)
            through.append(rate)
            wrong += errors
            direct.append(wrk(has.http, fleet.folder, seconds)[0])
        cores = len(os.sched_getaffinity(0))
        row(f"nginx: requests a second to where the model is resident (wrk, nginx and the node share {cores} cores)", round(statistics.median(through)), ">=", 10000, rounds,
            f"the node without nginx: {statistics.median(direct):.0f}")
        row("nginx: of these, not answered with 200", wrong, "==", 0, rounds, "")
        requests = [n.requests("identity") for n in fleet.nodes]
        row("nginx: part of the requests at the node that has the model", round(max(requests) / sum(requests), 6), ">=", 0.999, sum(requests), "two nodes")
    finally:
        fleet.close()


def killed():
    fleet = fleet_check.Fleet()
    lost = 0
    try:
        fleet.export()
        fleet_check.ask(fleet.port, "identity")
        fleet.export()
        try:
            fleet_check.a_killed_node_loses_none(fleet)
        except AssertionError as error:
            lost = int(re.search(r"(\d+) of 400", str(error))[1])
    finally:
        fleet.close()
    row("nginx: requests lost of 400 while the node that has the model is killed", lost, "==", 0, 400, "")


def ray():
    try:
        with open(os.path.join(BUILD, "bench/fleet-ray.json"), encoding="utf-8") as text:
            told = json.load(text)["rows"]
    except FileNotFoundError:
        print("  no fleet-ray.json: make ray-check makes it")
        return
    rows.extend(told)


# ---- packages from a registry ------------------------------------------------------------------------

class Registry(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        size = os.fstat(self.server.file.fileno()).st_size
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        self.wfile.flush()
        at = 0
        while at < size:
            at += os.sendfile(self.connection.fileno(), self.server.file.fileno(), at, size - at)

    def log_message(self, *args):
        pass


def fetching():
    size = 500_000_000
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        with open(folder + "/package", "wb") as out:
            block = os.urandom(1_000_000)
            for _ in range(size // len(block)):
                out.write(block)
        with open(folder + "/package", "rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
            server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry)
            server.file = content
            threading.Thread(target=server.serve_forever, daemon=True).start()
            url = f"http://127.0.0.1:{server.server_port}/package"
            ours, bare = [], []
            for _ in range(2 if QUICK else 7):
                begun = time.monotonic()
                subprocess.run(["curl", "-s", "-o", folder + "/bare", url], check=True)
                bare.append(time.monotonic() - begun)
                begun = time.monotonic()
                subprocess.run([os.environ["SY_BINARY"], "fetch", url, "-o", folder + "/ours", "--sha256", digest], check=True, stdout=subprocess.DEVNULL)
                ours.append(time.monotonic() - begun)
            server.shutdown()
    ratio = statistics.median(ours) / statistics.median(bare)
    row("500 MB over loopback HTTP, fetched, hashed and durable / curl to a file", round(ratio, 3), "<=", 1.05, len(ours),
        f"curl {statistics.median(bare):.3f} s; medians, in turns; a server starts on it when it is whole, not as it arrives")


# ---- the simulator -------------------------------------------------------------------------------------

def simulator():
    out = os.path.join(BUILD, "bench/fleet-simulator.json")
    subprocess.run([os.path.join(BUILD, "bench/simulator"), f"--benchmark_out={out}", "--benchmark_out_format=json", f"--benchmark_repetitions={1 if QUICK else 3}"],
                   check=True, stdout=subprocess.DEVNULL)
    with open(out, encoding="utf-8") as text:
        told = json.load(text)["benchmarks"]
    rates = {}
    for run in told:
        found = re.match(r"(?:.*[/_])?(random|hash|least|residency)\D*(\d+)", run["name"])
        if found and "events_per_s" in run and run.get("run_type") != "aggregate":
            rates.setdefault(found[1], {}).setdefault(int(found[2]), []).append(run["events_per_s"])
    for router, by_size in sorted(rates.items()):
        least, most = min(by_size), max(by_size)
        few, many = statistics.median(by_size[least]), statistics.median(by_size[most])
        row(f"simulator, {router}: events a second with {most} devices / with {least}", round(many / few, 3), ">=", 0.9, len(by_size[most]), f"{few / 1e6:.1f} M/s with {least}")
    if not rates:
        raise SystemExit(f"bench/simulator names its runs otherwise: {[run['name'] for run in told][:8]}")


def main():
    os.makedirs(os.path.join(BUILD, "bench"), exist_ok=True)
    for part in (routing, killed, ray, fetching, simulator):
        part()
        with open(os.path.join(BUILD, "bench/fleet.json"), "w", encoding="utf-8") as out:
            json.dump({"cores": os.cpu_count(), "cpu": cpu_name(), "rows": rows}, out, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
