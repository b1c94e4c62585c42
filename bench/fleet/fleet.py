#!/usr/bin/env python3
"""Measures what several servers, or several ranks, do together, and prints a row for each bar: value, bar, n, and what was measured beside it.

The rows go to BUILD/bench/fleet.json, from which bench/results_md.py writes bench/RESULTS.md: those of the parts that ran, and no others.
"""
import argparse
import hashlib
import http.server
import importlib
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
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "tests/peers")]

from kept_rows import cpu_name  # noqa: E402

BUILD, QUICK, fleet_check = "build", False, None  # as main() is told; the check needs to know the program when it is imported
rows = []


def row(what, value, op, bar, n, baseline):
    rows.append({"what": what, "value": value, "op": op, "bar": bar, "n": n, "baseline": baseline, "measured": time.strftime("%Y-%m-%d"), "quick": QUICK})
    print(f"  {what}: {value} {op} {bar} (n {n}; {baseline})", flush=True)


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
    """nginx before two nodes: requests go to where the model is resident, and how many a second. Needs nginx and wrk."""
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
    """Requests that are lost while a node behind nginx is killed. Needs nginx."""
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
    """Ray Serve before nodes: the rows that `make ray-check` left in BUILD/bench/fleet-ray.json; none without them."""
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
    """A file of 500 MB over loopback HTTP, fetched, hashed and made durable, beside curl."""
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
        f"curl {statistics.median(bare):.3f} s; medians, in turns")


class SlowRegistry(http.server.BaseHTTPRequestHandler):
    """At `rate` bytes a second."""

    def do_GET(self):
        s = self.server
        size, at, begun = os.fstat(s.file.fileno()).st_size, 0, time.monotonic()
        self.send_response(200)
        self.send_header("ETag", '"one"')
        self.send_header("Content-Length", str(size))
        self.end_headers()
        self.wfile.flush()
        while at < size:
            at += os.sendfile(self.connection.fileno(), s.file.fileno(), at, min(size - at, 1 << 18) if s.rate else size - at)
            late = begun + at / s.rate - time.monotonic() if s.rate else 0
            if late > 0:
                time.sleep(late)

    def log_message(self, *args):
        pass


def first_answer(url, folder):
    """Seconds from `models load URL` to the first answer, of a server that has nothing."""
    socket_path, cache = folder + "/s", folder + "/cache"
    os.makedirs(cache, exist_ok=True)
    binary = os.environ["SY_BINARY"]
    server = subprocess.Popen([binary, "serve", "--socket", socket_path, "--http", "off", "--grpc", "off", "--metrics", "off", "--fetch-to", cache, "--pool-bytes", "2G"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        server.stdout.readline()
        begun = time.monotonic()
        subprocess.run([binary, "models", "load", url, "--name", "it", "--socket", socket_path], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([binary, "infer", "it", "--socket", socket_path], check=True, stdout=subprocess.DEVNULL)
        return time.monotonic() - begun
    finally:
        server.terminate()
        server.wait(60)
        for name in os.listdir(cache):
            os.unlink(os.path.join(cache, name))


def bert_package():
    package = os.path.join(BUILD, "bench/bert_base.sypkg")
    if not os.path.exists(package):
        model = os.path.join(BUILD, "models/bert_base/1/model.onnx")
        if not os.path.exists(model):
            subprocess.run([os.path.join(BUILD, "make-models"), "--out", os.path.join(BUILD, "models"), "bert_base"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([os.environ["SY_BINARY"], "import", model, "-o", package], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return os.path.abspath(package)


def streaming():
    """BERT-base's package, 437 MB, to the first answer, from a server of 100 MB/s and as fast as loopback goes, beside curl."""
    with tempfile.TemporaryDirectory(dir=BUILD) as folder, open(bert_package(), "rb") as content:
        size = os.fstat(content.fileno()).st_size
        for words, rate, rounds in (("from a server of 100 MB/s", 1e8, 1 if QUICK else 3), ("over loopback HTTP", 0, 2 if QUICK else 5)):
            server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), SlowRegistry)
            server.file, server.rate = content, rate
            threading.Thread(target=server.serve_forever, daemon=True).start()
            url = f"http://127.0.0.1:{server.server_port}/bert_base.sypkg"
            ours, bare = [], []
            for _ in range(rounds):
                begun = time.monotonic()
                subprocess.run(["curl", "-s", "-o", folder + "/bare", url], check=True)
                bare.append(time.monotonic() - begun)
                ours.append(first_answer(url, folder))
            server.shutdown()
            took = statistics.median(bare)
            row(f"package of {size / 1e6:.0f} MB {words}: from its load to the first answer / curl to a file", round(statistics.median(ours) / took, 3), "<=", 1.05, rounds,
                f"curl {took:.2f} s, {size / took / 1e6:.0f} MB/s; fetch, server and registry share {len(os.sched_getaffinity(0))} cores")


class Peer:
    """A server that has the package, and gives it away."""

    def __init__(self, package, folder):
        socket_path = folder + "/peer"
        self.process = subprocess.Popen([os.environ["SY_BINARY"], "serve", "--socket", socket_path, "--http", "127.0.0.1:0", "--grpc", "off", "--metrics", "off", "--pool-bytes", "2G"],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        port = next(line.split("port=")[1].split()[0] for line in self.process.stderr if "what=http " in line)
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        self.process.stdout.readline()
        subprocess.run([os.environ["SY_BINARY"], "models", "load", package, "--name", "it", "--socket", socket_path], check=True, stdout=subprocess.DEVNULL)
        self.url = f"http://127.0.0.1:{port}/v2/models/it/package"

    def close(self):
        self.process.terminate()
        self.process.wait(60)


def peer():
    """BERT-base's package from a server that has the model, to the first answer, beside curl."""
    package = bert_package()
    size, ours, bare = os.path.getsize(package), [], []
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        source = Peer(package, folder)
        try:
            for _ in range(2 if QUICK else 5):
                begun = time.monotonic()
                subprocess.run(["curl", "-s", "-f", "-o", folder + "/bare", source.url], check=True)
                bare.append(time.monotonic() - begun)
                ours.append(first_answer(source.url, folder))
        finally:
            source.close()
    took = statistics.median(bare)
    row(f"package of {size / 1e6:.0f} MB from a server that has the model: from its load to the first answer / curl to a file", round(statistics.median(ours) / took, 3), "<=", 1.05, len(ours),
        f"curl {took:.2f} s, {size / took / 1e6:.0f} MB/s; both servers and the fetch share {len(os.sched_getaffinity(0))} cores")


# ---- training with several ranks -----------------------------------------------------------------------

def steps_told(words):
    """Steps a second that `train` tells, of its second half."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    rates = [float(rate) for rate in re.findall(r"([\d.]+) steps/s", done.stdout)]
    if done.returncode or not rates:
        raise SystemExit(f"{words[-6:]}: {done.stderr[-500:]}")
    return statistics.median(rates[len(rates) // 2:])


def rank_steps(job, ranks):
    """Of a job whose ranks have a core each."""
    return steps_told([os.environ["SY_BINARY"], "train", job, "--local", "--ranks", str(ranks), "--mpi-options", "--map-by slot:PE=1 --bind-to core"])


def write_rank_jobs(folder):
    """By batch: 64 of one rank, 128 of two."""
    subprocess.run([os.path.join(BUILD, "make-models"), "--out", folder, "fashion_vgg"], check=True, stdout=subprocess.DEVNULL)
    jobs = {batch: f"{folder}/job{batch}.json" for batch in (64, 128)}
    for batch, path in jobs.items():
        with open(path, "w", encoding="utf-8") as out:
            json.dump({"name": f"ranks{batch}", "model": folder + "/fashion_vgg/1/model.onnx", "loss": "softmax_cross_entropy", "optimizer": {"kind": "sgd", "learning_rate": 0.01},
                       "data": {"kind": "synthetic", "samples": 8192}, "batch": batch, "epochs": 1000, "max_steps": 20 if QUICK else 40,
                       "snapshot": {"folder": f"{folder}/snapshots{batch}"}}, out)
    return jobs


def lacks_ranks():
    lacks = not os.path.exists(os.path.join(BUILD, "libswitchyard-mpi.so")) or len(os.sched_getaffinity(0)) < 2
    if lacks:
        print("  no MPI in this build, or one core: no ranks")
    return lacks


def snapshot_hash(folder):
    with open(os.path.join(folder, max(os.listdir(folder), key=lambda name: int(name.split("-")[-1].split(".")[0]))), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def training():
    """Two MPI ranks with a core each on this machine, beside one rank with half the batch; equal bits from run to run. Needs MPI and two cores."""
    if lacks_ranks():
        return
    with tempfile.TemporaryDirectory(dir=os.path.abspath(BUILD)) as folder:
        jobs, hashes, alone, together = write_rank_jobs(folder), [], [], []
        for _ in range(2 if QUICK else 5):
            alone.append(rank_steps(jobs[64], 1))
            subprocess.run(["rm", "-rf", folder + "/snapshots64"], check=True)
            together.append(rank_steps(jobs[128], 2))
            hashes.append(snapshot_hash(folder + "/snapshots128"))
            subprocess.run(["rm", "-rf", folder + "/snapshots128"], check=True)
        one, two = statistics.median(alone), statistics.median(together)
        row("VGG on 28 x 28, two ranks of one core over MPI: samples a second / (2 x one rank with half the batch)", round(two / one, 3), ">=", 0.9, len(alone),
            f"one rank {one * 64:.0f} samples/s, batch 64, alone on the machine; in turns")
        row("two ranks: snapshots that differ from the first run's", sum(h != hashes[0] for h in hashes), "==", 0, len(hashes), "")


class Network:
    """Two namespaces with a link of 1 Gbit/s and 1 ms each way between them (slow_link.c), and an agent by which mpirun starts a rank in each, with a core of its own."""

    def __init__(self, folder):
        self.names = [f"sy{os.getpid()}{which}" for which in "ab"]
        self.agent, self.link = folder + "/agent", None
        cores = sorted(os.sched_getaffinity(0))
        with open(self.agent, "w", encoding="utf-8") as out:
            out.write(f"""#!/bin/sh
case $1 in 10.77.0.1) name={self.names[0]} core={cores[0]};; *) name={self.names[1]} core={cores[1]};; esac
shift
exec ip netns exec $name unshare --uts taskset -c $core sh -c "hostname node-$name; $*"
""")
        os.chmod(self.agent, 0o755)

    def open(self):
        """What it lacks here, or nothing."""
        if os.geteuid() != 0:
            return "only root makes network namespaces"
        for name in self.names:
            done = subprocess.run(f"ip netns add {name} && ip netns exec {name} ip link set lo up", shell=True, capture_output=True, text=True, check=False)
            if done.returncode:
                return f"ip netns: {done.stderr.strip()}"
        self.link = subprocess.Popen([os.path.join(BUILD, "bench/slow_link"), *self.names, "1000", "1000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return None if self.link.stdout.readline().strip() == "ready" else self.link.stderr.read().strip()

    def steps(self, job):
        mpirun = (f"mpirun --allow-run-as-root --mca plm_rsh_agent {self.agent} --mca btl tcp,self --mca btl_tcp_if_include slow0 --mca oob_tcp_if_include slow0 "
                  f"--host 10.77.0.1,10.77.0.2 -n 2 --bind-to none {os.path.abspath(os.environ['SY_BINARY'])} train {job} --local --mpi")
        core = sorted(os.sched_getaffinity(0))[0]
        return steps_told(["ip", "netns", "exec", self.names[0], "unshare", "--uts", "taskset", "-c", str(core), "sh", "-c", f"hostname node-{self.names[0]}; exec {mpirun}"])

    def close(self):
        if self.link:
            self.link.kill()
            self.link.wait()
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def network():
    """The same ranks in two network namespaces with 1 ms and 1 Gbit/s between them (slow_link.c), in step and with staleness 1. Needs MPI, two cores and root."""
    if lacks_ranks():
        return
    with tempfile.TemporaryDirectory(dir=os.path.abspath(BUILD)) as folder:
        jobs, alone, together, apart, net = write_rank_jobs(folder), [], [], [], Network(folder)
        jobs["apart"] = f"{folder}/apart.json"
        with open(jobs[128], encoding="utf-8") as text, open(jobs["apart"], "w", encoding="utf-8") as out:
            json.dump({**json.load(text), "staleness": 1}, out)
        lacks = net.open()
        try:
            if lacks:
                print(f"  no ranks over a network: {lacks}")
                return
            for _ in range(2 if QUICK else 5):
                alone.append(rank_steps(jobs[64], 1))
                together.append(net.steps(jobs[128]))
                subprocess.run(["rm", "-rf", folder + "/snapshots128"], check=True)
                apart.append(net.steps(jobs["apart"]))
                subprocess.run(["rm", "-rf", folder + "/snapshots64", folder + "/snapshots128"], check=True)
        finally:
            net.close()
        one, two, late = statistics.median(alone), statistics.median(together), statistics.median(apart)
        row("VGG on 28 x 28, two ranks of one core in two network namespaces, 1 ms and 1 Gbit/s each way: samples a second / (2 x one rank with half the batch)", round(two / one, 3),
            ">=", 0.9, len(alone), f"one rank {one * 64:.0f} samples/s, batch 64; a relay of ours in place of netem, with a card's segmentation offload, on the same {len(os.sched_getaffinity(0))} cores; in turns")
        row("the same, each step with the mean gradient of the iteration before (staleness 1)", round(late / one, 3), ">=", 0.9, len(apart), "as above")


# ---- the simulator -------------------------------------------------------------------------------------

def simulator():
    """bench/simulator's rate with 10 000 devices beside the fewest among which its router chooses: 1 at random, 10 else."""
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
        least, most = min(size for size in by_size if size > 1 or router == "random"), max(by_size)
        few, many = statistics.median(by_size[least]), statistics.median(by_size[most])
        row(f"simulator, {router}: events a second with {most} devices / with {least}", round(many / few, 3), ">=", 0.9, len(by_size[most]), f"{few / 1e6:.1f} M/s with {least}")
    if not rates:
        raise SystemExit(f"bench/simulator names its runs otherwise: {[run['name'] for run in told][:8]}")


PARTS = {part.__name__: part for part in (routing, killed, ray, fetching, streaming, peer, training, network, simulator)}


def parse():
    parts = "\n".join(f"  {name:10} {' '.join(part.__doc__.split())}" for name, part in PARTS.items())
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"""parts, in this order:
{parts}

examples:
  make bench-fleet                                              builds, then all parts, then bench/fleet.md (ten minutes, on a machine that does nothing else)
  make bench-fleet BENCH_FLEET_ARGS="--quick --only=simulator"  one part, for a look
  python3 bench/fleet/fleet.py build --only=training --only=network

Without MPI, two cores or root a part says so and leaves its rows out; without nginx or wrk the run ends there.""")
    parser.add_argument("build", metavar="BUILD", help="the folder that make built: build")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: numbers for a look, marked so in fleet.json")
    parser.add_argument("--only", metavar="PART", action="append", choices=PARTS, help="this part alone; may be said several times")
    return parser.parse_args()


def main():
    global BUILD, QUICK, fleet_check
    told = parse()
    BUILD, QUICK = told.build, told.quick
    os.environ["SY_BINARY"] = os.path.join(BUILD, "switchyard")
    if not os.access(os.environ["SY_BINARY"], os.X_OK):
        print(f"{os.environ['SY_BINARY']} is not there: run make first, and say its folder", file=sys.stderr)
        return 2
    fleet_check = importlib.import_module("fleet_check")
    os.makedirs(os.path.join(BUILD, "bench"), exist_ok=True)
    for name in [name for name in PARTS if not told.only or name in told.only]:
        begun = time.monotonic()
        PARTS[name]()
        print(f"  {name}: {time.monotonic() - begun:.0f} s", flush=True)
        with open(os.path.join(BUILD, "bench/fleet.json"), "w", encoding="utf-8") as out:
            json.dump({"cores": os.cpu_count(), "cpu": cpu_name(), "rows": rows}, out, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
