#!/usr/bin/env python3
"""examples/kubernetes/ against Kubernetes' schemas and against the program: probes, ports, commands; what readiness says around SIGTERM, and that a request that runs then is
answered. Run by `make test`; prints a line a test."""
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VENV = os.path.join(ROOT, "build", "venv", "bin", "python")
if os.path.exists(VENV) and os.path.realpath(sys.prefix) != os.path.realpath(os.path.join(ROOT, "build", "venv")):
    os.execv(VENV, [VENV] + sys.argv)
import kubernetes_validate  # noqa: E402
import yaml  # noqa: E402
from checks import run_tests  # noqa: E402

BINARY = os.path.join(ROOT, os.environ.get("SY_BINARY", "build/switchyard"))
FOLDER = os.path.join(ROOT, "examples/kubernetes")
# Kinds of custom resources, whose schemas Kubernetes does not have.
CUSTOM = {"ServingRuntime", "InferenceService", "PodMonitor"}


def documents():
    for name in sorted(os.listdir(FOLDER)):
        if name.endswith(".yaml"):
            with open(os.path.join(FOLDER, name), encoding="utf-8") as text:
                yield from ((name, d) for d in yaml.safe_load_all(text))


def containers():
    for name, document in documents():
        spec = document.get("spec", {})
        yield from ((name, c) for c in spec.get("containers", []) + spec.get("template", {}).get("spec", {}).get("containers", []))


def files_match_the_schemas():
    kinds = set()
    for name, document in documents():
        kinds.add(document["kind"])
        if document["kind"] not in CUSTOM:
            kubernetes_validate.validate(document, "1.30", strict=True)
    assert kinds >= {"Deployment", "Service", "PodDisruptionBudget"} | CUSTOM, kinds


def a_wrong_file_is_refused():
    deployment = next(d for _, d in documents() if d["kind"] == "Deployment")
    deployment["spec"]["replicaz"] = 2
    try:
        kubernetes_validate.validate(deployment, "1.30", strict=True)
    except kubernetes_validate.ValidationError:
        return
    raise AssertionError("a key that does not exist was let through")


def commands_and_settings_are_ones_that_the_program_takes():
    found = list(containers())
    assert len(found) == 2, found
    for name, container in found:
        done = subprocess.run([BINARY] + container["args"] + ["--print-config"], capture_output=True, text=True, check=False)
        if "--config" in container["args"]:
            settings = next(d for _, d in documents() if d["kind"] == "ConfigMap")["data"]["switchyard.conf"]
            with tempfile.NamedTemporaryFile("w", suffix=".conf") as conf:
                conf.write(settings)
                conf.flush()
                done = subprocess.run([BINARY, "serve", "--config", conf.name, "--print-config"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (name, done.stderr)


def selectors_and_ports_fit():
    by_kind = {d["kind"]: d for _, d in documents()}
    labels = by_kind["Deployment"]["spec"]["template"]["metadata"]["labels"]
    ports = {p["name"] for p in by_kind["Deployment"]["spec"]["template"]["spec"]["containers"][0]["ports"]}
    for selector in (by_kind["Service"]["spec"]["selector"], by_kind["PodMonitor"]["spec"]["selector"]["matchLabels"],
                     by_kind["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]):
        assert selector.items() <= labels.items(), selector
    assert {p["targetPort"] for p in by_kind["Service"]["spec"]["ports"]} <= ports
    assert {e["port"] for e in by_kind["PodMonitor"]["spec"]["podMetricsEndpoints"]} <= ports
    assert by_kind["InferenceService"]["metadata"]["annotations"]["storage.kserve.io/readonly"] == "false"  # packages are written beside models


def start(folder):
    subprocess.run([os.path.join(os.path.dirname(BINARY), "make-models"), "--out", folder + "/models", "mobilenet_v2"], check=True, stdout=subprocess.DEVNULL)
    log = open(folder + "/log", "w+")
    server = subprocess.Popen([BINARY, "serve", "--models", folder + "/models", "--socket", folder + "/socket", "--http", "127.0.0.1:0", "--grpc", "off", "--metrics",
                               "off", "--pool-bytes", "1G", "--workers", "2"], stdout=log, stderr=subprocess.STDOUT)
    codes = []
    for _ in range(2400):
        text = open(folder + "/log").read()
        port = re.search(r"what=http port=(\d+)", text)
        if port:
            codes.append(ready(int(port[1])))
            if codes[-1] == 200:
                return server, int(port[1]), codes
        time.sleep(0.05)
    raise SystemExit("never ready: " + open(folder + "/log").read())


def ready(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/v2/health/ready")
    return connection.getresponse().status


def long_request(port, answers):
    batch, size = 64, 64 * 3 * 224 * 224
    head = json.dumps({"inputs": [{"name": "input", "shape": [batch, 3, 224, 224], "datatype": "FP32", "parameters": {"binary_data_size": 4 * size}}]}).encode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("POST", "/v2/models/mobilenet_v2/infer", head + bytes(4 * size), {"Inference-Header-Content-Length": str(len(head))})
    answer = connection.getresponse()
    answers.append((answer.status, answer.read()[:200]))


def readiness_means_it_and_sigterm_drains():
    folder = tempfile.mkdtemp(prefix="kubernetes_check_")
    try:
        server, port, codes = start(folder)
        assert set(codes[:-1]) <= {503, 400}, f"ready said {codes} before there was a model"
        answers = []
        client = threading.Thread(target=long_request, args=(port, answers))
        client.start()
        while '"running"' not in subprocess.run([BINARY, "status", "--json", "--socket", folder + "/socket"], capture_output=True, text=True, check=False).stdout and client.is_alive():
            time.sleep(0.01)
        server.terminate()
        said = []
        while client.is_alive():
            try:
                said.append(ready(port))
            except OSError:
                break
            time.sleep(0.01)
        client.join()
        assert answers and answers[0][0] == 200, f"the request that ran at SIGTERM was answered {answers}"
        assert 200 not in said[1:], f"ready after SIGTERM: {said}"
        assert server.wait(60) == 0
    finally:
        shutil.rmtree(folder)


def main():
    failed = run_tests((files_match_the_schemas, a_wrong_file_is_refused, commands_and_settings_are_ones_that_the_program_takes, selectors_and_ports_fit,
                 readiness_means_it_and_sigterm_drains))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
