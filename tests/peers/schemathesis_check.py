#!/usr/bin/env python3
"""Requests made from GET /v2/openapi.json, right and wrong ones, against `switchyard serve`: answers are as described, and none is a 500.

Prints a line a test, as the C tests do. SY_BINARY: the program; its folder also has make-models. SY_SECONDS: of each run; 8 unless said."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BINARY = os.path.abspath(os.environ.get("SY_BINARY", os.path.join(ROOT, "build/switchyard")))
PROGRAM = os.path.join(ROOT, "build/venv/bin/schemathesis")
SECONDS = os.environ.get("SY_SECONDS", "8")
LIMIT_S = 120
# What a right request is the schema cannot say: shapes depend on the model, names on what is there. 501 and 503 are described; what is no described
# 5xx fails status_code_conformance. Methods that HTTP/1.1's parser does not know are a 400 (test_http.c has the 405s).
CHECKS = "status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance,negative_data_rejection"


def schemathesis(address, name, config, *args):
    folder = tempfile.mkdtemp(prefix="schemathesis_")
    try:
        with open(os.path.join(folder, "config.toml"), "w") as file:
            file.write(config)
        run = subprocess.run([PROGRAM, "--config-file", os.path.join(folder, "config.toml"), "run", "http://%s/v2/openapi.json" % address, "--checks",
                              CHECKS, "--phases", "examples,coverage,fuzzing", "--max-time", SECONDS, "--no-shrink", "--continue-on-failure",
                              "--generation-database", "none", "--seed", os.environ.get("SY_SEED", "20261125"), *args],
                             cwd=folder, capture_output=True, text=True, timeout=LIMIT_S)
    finally:
        shutil.rmtree(folder)
    counted = re.search(r"([1-9]\d*) generated", run.stdout)
    good = run.returncode == 0 and counted
    print("%s%s[%s] %s" % ("" if good else run.stdout + run.stderr, counted.group(0) + " requests\n" if counted else "",
                           "       OK " if good else "  FAILED  ", name), flush=True)
    return bool(good)


def all_routes(address):
    """Every route that is described is one: nothing answers 404 or 405 for the path itself."""
    with urllib.request.urlopen("http://%s/v2/openapi.json" % address, timeout=LIMIT_S) as response:
        paths = json.load(response)["paths"]
    missing = []
    for path, methods in paths.items():
        url = "http://%s%s" % (address, re.sub(r"\{version\}", "1", re.sub(r"\{\w+\}", "identity", path)))
        for method in methods:
            try:
                urllib.request.urlopen(urllib.request.Request(url, method=method.upper(), data=b"{}" if method == "post" else None), timeout=LIMIT_S)
            except urllib.error.HTTPError as error:
                if error.code == 405 or (error.code == 404 and b"there is no path" in error.read()):
                    missing.append("%s %s: %d" % (method, path, error.code))
    good = not missing and len(paths) > 25
    print("%s\n[%s] all_routes" % ("; ".join(missing), "       OK " if good else "  FAILED  "), flush=True)
    return good


def main():
    folder = tempfile.mkdtemp(prefix="schema_")
    subprocess.run([os.path.join(os.path.dirname(BINARY), "make-models"), "--out", os.path.join(folder, "models"), "identity", "mlp"], check=True,
                   stdout=subprocess.DEVNULL)
    log_path = os.path.join(folder, "log")
    with open(log_path, "w") as log:
        server = subprocess.Popen([BINARY, "serve", "--models", os.path.join(folder, "models"), "--socket", os.path.join(folder, "socket"), "--grpc",
                                   "off", "--metrics", "off", "--http", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        while (line := server.stdout.readline().strip()) != "ready":
            assert line, open(log_path).read()
        address = "127.0.0.1:" + re.search(r"what=http port=(\d+)", open(log_path).read()).group(1)
        good = all_routes(address)
        good &= schemathesis(address, "any_model", "")
        # Deeper: the model is there, and stays.
        good &= schemathesis(address, "one_model", '[parameters]\n"path.model" = "identity"\n"path.version" = "1"\n', "--include-path-regex", "models/",
                             "--exclude-path-regex", "load$")
        server.send_signal(signal.SIGTERM)
        if server.wait(LIMIT_S) != 0:
            print(open(log_path).read() + "[  FAILED  ] server_ends")
            good = False
    finally:
        server.kill()
        shutil.rmtree(folder)
    return not good


if __name__ == "__main__":
    sys.exit(main())
