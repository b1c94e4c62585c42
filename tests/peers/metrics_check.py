#!/usr/bin/env python3
"""/metrics, Triton's settings and traces of a real server, by the tools that people have: promtool, Prometheus' own OpenMetrics parser, a collector. Run by
`make test`; prints a line a test, as the other tests do."""
import concurrent.futures
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

from checks import Skipped, run_tests, tests_of

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VENV = os.path.join(ROOT, "build", "venv", "bin", "python")
if os.path.exists(VENV) and os.path.realpath(sys.prefix) != os.path.realpath(os.path.join(ROOT, "build", "venv")):
    os.execv(VENV, [VENV] + sys.argv)
BINARY = os.path.join(ROOT, os.environ.get("SY_BINARY", "build/switchyard"))
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
OPEN_METRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


class Collector(http.server.BaseHTTPRequestHandler):
    bodies = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        Collector.bodies.append((self.path, self.headers["Content-Type"], json.loads(body)))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *args):
        pass


class Server:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="metrics_check_")
        self.collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
        threading.Thread(target=self.collector.serve_forever, daemon=True).start()
        subprocess.run([os.path.join(os.path.dirname(BINARY), "make-models"), "--out", self.folder + "/models", "identity", "mlp"],
                       check=True, stdout=subprocess.DEVNULL)
        self.log = open(self.folder + "/log", "w+")
        self.process = subprocess.Popen(
            [BINARY, "serve", "--models", self.folder + "/models", "--socket", self.folder + "/socket", "--http", "127.0.0.1:0", "--metrics",
             "127.0.0.1:0", "--pool-bytes", "64Mi", "--workers", "2", "--otlp", "http://127.0.0.1:%d" % self.collector.server_port],
            stdout=self.log, stderr=subprocess.STDOUT)
        self.ports = self.wait_until_ready()

    def wait_until_ready(self):
        for _ in range(1200):
            text = open(self.folder + "/log").read()
            if re.search("^ready$", text, re.M):
                return {name: int(port) for name, port in re.findall(r"event=listening what=(\w+) port=(\d+)", text)}
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError("the server did not get ready:\n" + open(self.folder + "/log").read())

    def get(self, path, port="http", body=None, **headers):
        request = urllib.request.Request("http://127.0.0.1:%d%s" % (self.ports[port], path), data=body,
                                         headers={name.replace("_", "-"): value for name, value in headers.items()})
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.read().decode(), reply.headers

    def refused(self, path, **arguments):
        try:
            self.get(path, **arguments)
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())["error"]
        raise AssertionError(path + " was not refused")

    def infer(self, model="identity", shape=(1, 4), **headers):
        n = shape[0] * shape[1]
        body = json.dumps({"inputs": [{"name": "input", "datatype": "FP32", "shape": shape, "data": list(range(n))}]})
        return self.get("/v2/models/%s/infer" % model, body=body.encode(), **headers)

    def samples(self):
        """{(name, labels): value} of the text format."""
        out = {}
        for line in self.get("/metrics")[0].splitlines():
            if line[:1] not in ("#", ""):
                name, labels, value = re.fullmatch(r"([a-z0-9_]+)(\{.*\})? (\S+)", line).groups()
                out[name, labels or ""] = float(value)
        return out

    def stop(self):
        self.process.terminate()
        rc = self.process.wait(timeout=60)
        self.collector.shutdown()
        if rc != 0:
            raise AssertionError("the server ended with %d:\n%s" % (rc, open(self.folder + "/log").read()))
        shutil.rmtree(self.folder)


server = None


def test_requests_are_counted():
    before = server.samples()
    for _ in range(5):
        server.infer()
    assert server.refused("/v2/models/nobody/infer", body=b'{"inputs":[]}')[0] in (400, 404)
    assert server.refused("/v2/models/identity/infer", body=b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]}')[0] == 400
    after = server.samples()

    def grew(name, labels=""):
        return after[name, labels] - before.get((name, labels), 0)
    identity = '{model="identity",version="1"}'
    assert grew("nv_inference_request_success", identity) == 5
    assert grew("nv_inference_count", identity) == 5
    assert grew("nv_inference_request_duration_us", identity) > 0
    assert grew("switchyard_model_request_seconds_count", identity) == 5
    assert grew("switchyard_model_request_seconds_bucket", '{model="identity",version="1",le="+Inf"}') == 5
    assert grew("switchyard_request_phase_seconds_count", '{phase="compute"}') == 5
    assert grew("switchyard_requests_refused_total", '{reason="not_found"}') == 1
    assert grew("switchyard_requests_refused_total", '{reason="input"}') == 1
    assert grew("switchyard_device_seconds_total", '{used_by="inference"}') > 0
    assert after["nv_inference_request_success", '{model="mlp",version="1"}'] == 0
    assert after["switchyard_memory_bytes", '{memory="pool"}'] == 64 << 20
    assert 0 < after["switchyard_model_resident_bytes", '{model="mlp",version="1"}'] <= 64 << 20
    assert 0 <= after["nv_cpu_utilization", ""] <= 1
    assert after["nv_cpu_memory_used_bytes", ""] < after["nv_cpu_memory_total_bytes", ""]
    assert not any(name.startswith("nv_gpu") for name, _ in after)
    assert server.get("/metrics", port="metrics")[0].startswith("# HELP")


def promtool(*arguments, text=""):
    if not shutil.which("promtool"):
        raise Skipped("no promtool (Debian's package prometheus)")
    run = subprocess.run(["promtool", "check", *arguments], input=text, capture_output=True, text=True)
    return run.returncode, (run.stdout + run.stderr).strip()


def test_promtool_has_nothing_to_say():
    rc, said = promtool("metrics", text=server.get("/metrics?only=switchyard")[0])
    assert (rc, said) == (0, ""), said
    rc, said = promtool("metrics", text=server.get("/metrics")[0])  # Triton's names are what they are
    naming = r'nv_inference_\w+ (counter metrics should have "_total" suffix|metric names should not contain abbreviated units|' \
             r'non-histogram and non-summary metrics should not have "_count" suffix)'
    assert rc == 3 and all(re.fullmatch(naming, line) for line in said.splitlines()), said


def families():
    try:
        from prometheus_client.openmetrics import parser
    except ImportError:
        raise Skipped("no prometheus_client (make venv)")
    text, headers = server.get("/metrics", Accept=OPEN_METRICS)
    assert headers["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert text.endswith("\n# EOF\n")
    return {family.name: family for family in parser.text_string_to_metric_families(text)}


def test_open_metrics():
    found = families()
    assert found["switchyard_link_bytes"].type == "counter" and found["switchyard_link_bytes"].unit == "bytes"
    assert found["nv_inference_count"].type == "unknown"
    assert found["switchyard_model_phase_seconds"].type == "histogram"
    assert {sample.labels["model"] for sample in found["switchyard_model_ready"].samples} == {"identity", "mlp"}
    assert server.get("/metrics")[1]["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"


def names_in(text):
    return set(re.findall(r"\b(?:switchyard|nv|process)_[a-z0-9_]+", text))


def test_names_of_dashboard_and_alerts_exist():
    suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}
    known = {name + suffix for name, family in families().items() for suffix in suffixes.get(family.type, [""])}
    dashboard = json.load(open(os.path.join(ROOT, "examples/grafana/switchyard.json")))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    queries += [variable["definition"] for variable in dashboard["templating"]["list"] if "definition" in variable]
    assert len(queries) > 40
    for query in queries:
        assert names_in(query) and names_in(query) <= known, (query, names_in(query) - known)
    expressions = re.findall(r"expr: (\|(?:\n {10,}.*)+|.*)", open(os.path.join(ROOT, "examples/grafana/alerts.yml")).read())
    assert len(expressions) == 10
    for expression in expressions:
        assert names_in(expression) <= known, names_in(expression) - known
    labels = {label for family in families().values() for sample in family.samples for label in sample.labels}
    labels |= {"instance", "job", "job_id", "job_name", "tenant"}
    for query in queries + expressions:
        for by in re.findall(r"by \(([^)]*)\)", query):
            assert set(re.findall(r"\w+", by)) <= labels, query


def test_dashboard_lies_on_a_grid():
    dashboard = json.load(open(os.path.join(ROOT, "examples/grafana/switchyard.json")))
    taken, ids = set(), set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24 and not cells & taken, panel["title"]
        assert panel["id"] not in ids
        taken |= cells
        ids.add(panel["id"])


def test_alerts_are_rules():
    rc, said = promtool("rules", os.path.join(ROOT, "examples/grafana/alerts.yml"))
    assert rc == 0 and "10 rules found" in said, said


def test_many_scrapers_at_once():
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        texts = list(pool.map(lambda i: server.get("/metrics", port="metrics" if i % 2 else "http")[0], range(48)))
    assert all(text.count("switchyard_build_info{") == 1 for text in texts)
    code, why = server.refused("/metrics?only=me")
    assert code == 400 and "only" in why


def test_settings():
    settings = json.loads(server.get("/v2/trace/setting")[0])
    assert settings["trace_level"] == ["TIMESTAMPS"] and settings["trace_rate"] == "1"
    changed = json.loads(server.get("/v2/models/mlp/trace/setting", body=b'{"trace_rate": "7"}')[0])
    assert changed["trace_rate"] == "7" and changed["trace_count"] == "-1"
    assert json.loads(server.get("/v2/trace/setting")[0])["trace_rate"] == "1"
    assert "rate" in server.refused("/v2/trace/setting", body=b'{"rate": "7"}')[1]
    assert "nobody" in server.refused("/v2/models/nobody/trace/setting")[1]
    before = json.loads(server.get("/v2/logging")[0])
    assert before["log_info"] is True and before["log_verbose_level"] == 0
    assert json.loads(server.get("/v2/logging", body=b'{"log_format": "ISO8601", "log_verbose_level": 1}')[0])["log_verbose_level"] == 1
    server.infer()
    assert json.loads(server.get("/v2/logging", body=b'{"log_format": "default", "log_verbose_level": 0}')[0]) == before
    assert re.search(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z debug", open(server.folder + "/log").read(), re.M)


def collected():
    return [span for _, _, body in Collector.bodies for span in body["resourceSpans"][0]["scopeSpans"][0]["spans"]]


def await_spans(trace):
    for _ in range(400):
        spans = [span for span in collected() if span["traceId"] == trace]
        if spans:
            return spans
        time.sleep(0.05)
    raise AssertionError("no spans of trace " + trace)


def test_traces():
    begun = time.time_ns()
    server.infer(traceparent="00-%s-%s-01" % (TRACE, SPAN), tracestate="vendor=1")
    server.infer(traceparent="00-%s-%s-00" % (TRACE[::-1], SPAN))
    spans = await_spans(TRACE)
    path, kind, body = Collector.bodies[-1]
    assert (path, kind) == ("/v1/traces", "application/json")
    resource = {a["key"]: a["value"]["stringValue"] for a in body["resourceSpans"][0]["resource"]["attributes"]}
    assert resource["service.name"] == "switchyard" and resource["service.version"]
    root = next(span for span in spans if span["kind"] == 2)
    assert root["parentSpanId"] == SPAN and root["name"] == "infer identity" and root["traceState"] == "vendor=1"
    assert begun <= int(root["startTimeUnixNano"]) <= int(root["endTimeUnixNano"]) <= time.time_ns()
    children = {span["name"]: span for span in spans if span is not root}
    assert {"queue", "wait", "compute"} <= set(children)
    for child in children.values():
        assert child["parentSpanId"] == root["spanId"]
        assert int(root["startTimeUnixNano"]) <= int(child["startTimeUnixNano"]) <= int(child["endTimeUnixNano"]) <= int(root["endTimeUnixNano"])
    assert not any(span["traceId"] == TRACE[::-1] for span in collected())
    server.get("/v2/trace/setting", body=b'{"trace_level": ["OFF"]}')
    n = server.samples()["switchyard_traces_exported_total", ""]
    server.infer()
    time.sleep(1.3)
    assert server.samples()["switchyard_traces_exported_total", ""] == n
    server.get("/v2/trace/setting", body=b'{"trace_level": null}')


def test_last_spans_are_sent_when_it_stops():
    server.infer(traceparent="00-%s-%s-01" % (TRACE[:-1] + "7", SPAN))
    server.stop()
    await_spans(TRACE[:-1] + "7")


def main():
    global server
    server = Server()
    failed = run_tests(tests_of(globals()))
    if server.process.poll() is None:
        server.process.kill()
        server.process.wait()
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
