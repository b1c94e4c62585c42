"""How long a server is away: from a worker's death to the answer of the request that it computed, a standby ready; from the runtime's death to right answers of ten models."""
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import torture_report as report
import torture_server as server_of

TEN = ["identity", "mlp", "tiny_cnn", "mnist_cnn", "bert_tiny", "mobilenet_v2", "fashion_mlp", "text_bag", "resnet18", "decoder_tiny"]
SERVE = ["--workers", 4, "--device", "emulated,link-gbps=4", "--pool-bytes", "400M", "--image-bytes", "400M", "--keep-image", 60]


def settled(client, workers):
    """Waits until so many workers wait for work."""
    for _ in range(2000):
        if sum(w["state"] == "idle" for w in client.status()["workers"]) >= workers:
            return
        time.sleep(0.01)
    raise SystemExit("the workers do not come up within 20 s")


def one_death(client, questions):
    """Seconds from the death of the worker that computes to the answer; None: it had answered before."""
    told = {}

    def ask():
        result = client.infer(questions.model, questions.inputs)
        told.update(at=time.monotonic(), attempts=result.timing.attempts, right=questions.is_right({n: result[n].tobytes() for n in result}))
    settled(client, 4)
    thread = threading.Thread(target=ask)
    thread.start()
    killed = None
    while thread.is_alive() and killed is None:
        busy = next((w for w in client.status()["workers"] if w["state"] == "running"), None)
        if busy:
            os.kill(busy["pid"], signal.SIGKILL)
            killed = time.monotonic()
    thread.join()
    assert told["right"], "another answer than before the death"
    return told["at"] - killed if killed and told["attempts"] > 1 else None


def worker_deaths(o, folder, n):
    server = server_of.Server(o.build, folder, ["--models", server_of.make_models(o.build), *SERVE])
    assert server.start(), server.words()[-2000:]
    seconds = []
    try:
        question = next(q for q in server_of.ask_idle(server, o.seed, 1) if q.model == "mobilenet_v2")
        with server.client() as client:
            for _ in range(n * 8):
                took = one_death(client, question)
                seconds += [took] if took is not None else []
                if len(seconds) == n:
                    break
    finally:
        server.end()
    return seconds


def runtime_deaths(o, folder, n):
    """From SIGKILL, with the start by a supervisor that sees it at once, to a right answer of each model."""
    models = os.path.abspath(f"{o.build}/torture/ten-models")
    subprocess.run([f"{o.build}/make-models", "--out", models, *TEN], check=True, stdout=subprocess.DEVNULL)
    server = server_of.Server(o.build, folder, ["--models", models, "--state", f"{folder}/state", *SERVE])
    assert server.start(), server.words()[-2000:]
    seconds, first = [], []
    try:
        questions = server_of.ask_idle(server, o.seed, 1)
        each = [next(q for q in questions if q.model == name) for name in TEN]
        for _ in range(n):
            begun = time.monotonic()
            server.end(signal.SIGKILL)
            assert server.start(), server.words()[-2000:]
            with server.client() as client:
                for k, question in enumerate(each):
                    result = client.infer(question.model, question.inputs)
                    assert question.is_right({name: result[name].tobytes() for name in result}), question.model
                    if k == 0:
                        first.append(time.monotonic() - begun)
            seconds.append(time.monotonic() - begun)
    finally:
        server.end()
    return seconds, first


def measure(o):
    """Beside o.busy processes that compute all the time, of the same priority."""
    busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(o.busy)]
    try:
        return measure_beside(o)
    finally:
        for process in busy:
            process.kill()
            process.wait()


def measure_beside(o):
    folder = tempfile.mkdtemp(prefix="switchyard-recovery-")
    try:
        deaths = worker_deaths(o, folder, 10 if o.short else o.recoveries)
        for name in os.listdir(folder):
            if name != "log":
                shutil.rmtree(f"{folder}/{name}", ignore_errors=True)
        back, first = runtime_deaths(o, folder, 3 if o.short else max(o.recoveries // 5, 3))
    finally:
        shutil.copy(f"{folder}/log", f"{o.out}/log-recovery") if os.path.exists(f"{folder}/log") and os.makedirs(o.out, exist_ok=True) is None else None
        shutil.rmtree(folder, ignore_errors=True)
    rows = [report.row(f"a worker's death to the answer of its request, ms, {name}", 1e3 * report.quantile(deaths, q), "<=", 50, len(deaths)) for name, q in (("p50", 0.5), ("p99", 0.99))]
    rows += [report.row(f"the runtime's death to the first right answer, s, {name}", report.quantile(first, q), "<=", 1, len(first)) for name, q in (("p50", 0.5), ("p99", 0.99))]
    rows += [report.row(f"the runtime's death to right answers of {len(TEN)} models, s, {name}", report.quantile(back, q), "<=", 1, len(back)) for name, q in (("p50", 0.5), ("p99", 0.99))]
    return rows
