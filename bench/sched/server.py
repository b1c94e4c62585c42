"""A server of its own for a bench, its models and jobs, and how rows are printed."""
import json
import os
import select
import subprocess
import tempfile
import time

from rpc import Client

READY_SECONDS = 120  # for a server to start, its device opened and its pool pinned


class Server:
    """`switchyard serve` with these arguments; `with` stops it. .client is a connection to it."""

    def __init__(self, options, *arguments):
        self.folder = tempfile.TemporaryDirectory(prefix="switchyard-bench-")
        self.socket, log = f"{self.folder.name}/socket", f"{self.folder.name}/log"
        self.options, self.jobs = options, {}
        with open(log, "w", encoding="utf-8") as out:
            self.process = subprocess.Popen([f"{options.build}/switchyard", "serve", "--http", "off", "--grpc", "off", "--metrics", "off", "--socket", self.socket, *map(str, arguments)],
                                            stdout=subprocess.PIPE, stderr=out)
        why = self.not_ready()
        if why:
            self.end()
            with open(log, encoding="utf-8") as text:
                said = text.read()[-2000:]
            self.folder.cleanup()
            raise SystemExit(f"the server {why}: {said}")
        self.client = Client(self.socket)

    def not_ready(self):
        """Waits until it says that it is ready. If it does not: why."""
        deadline, said = time.monotonic() + READY_SECONDS, b""
        while b"ready\n" not in said:
            left = max(0, deadline - time.monotonic())
            if not select.select([self.process.stdout], [], [], left)[0]:
                return f"did not say that it is ready within {READY_SECONDS} s"
            more = os.read(self.process.stdout.fileno(), 4096)
            if not more:
                return "did not start"
            said += more
        return None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close()
        self.end()
        self.folder.cleanup()

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def status(self):
        return self.client.call("status")

    def load(self, packages):
        """{name: package}: each under its name, so that one package is as many models as there are names."""
        for name, package in packages.items():
            self.client.call("model_load", path=os.path.abspath(package), name=name)
        self.client.learn()

    def train(self, name, model, batch, **keys):
        """A job on made-up data that does not end by itself."""
        job = {"name": name, "model": os.path.abspath(model), "optimizer": {"kind": "sgd", "learning_rate": 0.001},
               "data": {"kind": "synthetic", "samples": 4 * batch}, "batch": batch, "epochs": 1000000000, **keys}
        self.jobs[name] = self.client.call("train", text=json.dumps(job))["job"]
        return self.jobs[name]

    def suspend(self, name, suspended=True):
        self.client.call("job_pause" if suspended else "job_resume", job=self.jobs[name])

    def seen(self):
        """{name: job} as status has it, and the account."""
        status = self.status()
        return {job["name"]: job for job in status["jobs"]}, status["account"]

    def wait_steps(self, steps, timeout=120):
        """Until each job has made so many steps since now."""
        begun, first = time.monotonic(), None
        while time.monotonic() < begun + timeout:
            jobs, _ = self.seen()
            for job in jobs.values():
                if job["state"] in ("failed", "ended"):
                    raise SystemExit(f"job {job['name']} has {job['state']}: {job['error']}")
            first = first or {name: job["step"] for name, job in jobs.items()}
            if all(jobs[name]["step"] >= first[name] + steps for name in first):
                return
            time.sleep(0.05)
        raise SystemExit(f"the jobs did not make {steps} steps within {timeout} s")


def make_models(options, names):
    """{name: folder} of ONNX files, made once."""
    folder = f"{options.build}/bench/models"
    subprocess.run([f"{options.build}/make-models", "--out", folder, *names], check=True, stdout=subprocess.DEVNULL)
    return {name: f"{folder}/{name}/1" for name in names}


def make_packages(options, names):
    """{name: package}, imported once for this machine and build."""
    packages = {}
    for name, folder in make_models(options, names).items():
        subprocess.run([f"{options.build}/switchyard", "import", f"{folder}/model.onnx", "--name", name, "--update"], check=True,
                       stdout=subprocess.DEVNULL)
        packages[name] = f"{folder}/model.sypkg"
    return packages


# ---- numbers ----

def quantile(values, q):
    values = sorted(values)
    return values[min(int(q * len(values)), len(values) - 1)] if values else float("nan")


def mean(values):
    return sum(values) / len(values) if values else float("nan")


def jain(values):
    return sum(values) ** 2 / (len(values) * sum(x * x for x in values)) if any(values) else float("nan")


def spread(values):
    """What is printed of many times."""
    return {"n": len(values), "p50": quantile(values, 0.5), "p99": quantile(values, 0.99), "min": min(values, default=float("nan")),
            "mean": mean(values)}


class Rows:
    """Rows of one bench: printed as they come, and written as JSON at the end."""

    def __init__(self, options, name):
        self.options, self.name, self.rows = options, name, []
        self.notes = {"bench": name, "commit": run_text("git", "rev-parse", "--short=12", "HEAD"), "date": time.strftime("%Y-%m-%d %H:%M:%S"),
                      "cores": os.cpu_count(), "load_before": os.getloadavg()[0]}

    def add(self, what, value, bar, good, **more):
        """`good`: whether the bar was met; None: there is no bar."""
        self.rows.append({"what": what, "value": value, "bar": bar, "good": good, **more})
        verdict = "" if good is None else "met" if good else "MISSED"
        detail = ", ".join(f"{key} {show(item)}" for key, item in more.items())
        print(f"| {what} | {bar} | {show(value)} | {verdict} | {detail} |", flush=True)

    def write(self):
        path = f"{self.options.build}/bench/sched-{self.name}.json"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as out:
            json.dump({**self.notes, "load_after": os.getloadavg()[0], "options": vars(self.options), "rows": self.rows}, out, indent=1,
                      default=str)
        print(f"  {path}", flush=True)


def show(value):
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return "(" + ", ".join(f"{key} {show(item)}" for key, item in value.items()) + ")"
    if isinstance(value, list):
        return "[" + ", ".join(map(show, value)) + "]"
    return str(value)


def run_text(*words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
