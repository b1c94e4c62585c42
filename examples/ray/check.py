#!/usr/bin/env python3
"""The example on a local Ray cluster of two nodes with two Switchyard nodes: where requests go, a Switchyard node and a Ray node killed under load, a job placed by free memory, and
how many requests a second the way through Ray Serve takes. Needs ray[serve]; run by `make ray-check`.

    check.py BUILD_FOLDER [--json FILE]
"""
import concurrent.futures
import http.client
import json
import os
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.join(ROOT, "tests/peers")]
os.environ["SY_BINARY"] = os.path.join(sys.argv[1], "switchyard")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
import fleet_check  # noqa: E402
import ray  # noqa: E402
import switchyard_ray  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

BODY = json.dumps(fleet_check.BODIES["identity"])
kept = threading.local()


def ask(port):
    """One request on the thread's connection, which is made again when it was closed between two requests."""
    for last in (False, True):
        try:
            kept.connection = getattr(kept, "connection", None) or http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            kept.connection.request("POST", "/v2/models/identity/infer", BODY)
            answer = kept.connection.getresponse()
            text = answer.read()
            assert answer.status == 200, text
            return json.loads(text)["outputs"][0]["data"]
        except (http.client.HTTPException, OSError):
            kept.connection = None
            if last:
                raise


def all_answered(port, n, clients, at_quarter=None):
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        answers = [pool.submit(ask, port) for _ in range(n)]
        while at_quarter and sum(a.done() for a in answers) < n // 4:
            time.sleep(0.005)
        if at_quarter:
            at_quarter()
        return n - sum(1 for a in answers if a.exception() or a.result() != [1, 2, 3, 4])


def main():
    fleet = fleet_check.Fleet()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False})
    second = cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
    rows = []

    def row(what, value, op, bar, n, baseline=""):
        rows.append({"what": what, "value": value, "op": op, "bar": bar, "n": n, "baseline": baseline})
        good = {"==": value == bar, ">=": value >= bar}[op]
        print(f"[{'       OK ' if good else '  MISSED  '}] {what}: {value} {op} {bar}")
        return good

    try:
        ray.init(address=cluster.address, log_to_driver=False)
        port = fleet_check.free_port()
        nodes = json.load(open(fleet.folder + "/nodes.json"))
        switchyard_ray.run(nodes, fleet_check.BINARY, port)
        ask(port)
        time.sleep(2.5)  # the table learns where the model is now
        before = [n.requests("identity") for n in fleet.nodes]
        all_answered(port, 100, 2)
        gained = [n.requests("identity") - b for n, b in zip(fleet.nodes, before)]
        good = row("Ray Serve: requests that reach the node that has the model, of 100", max(gained), "==", 100, 100)
        started, n = time.monotonic(), 600
        all_answered(port, n, 16)
        row("Ray Serve: requests a second by where a model is resident (clients on the same cores)", round(n / (time.monotonic() - started)), ">=", 10000, n, "bar of the router")
        has = max(fleet.nodes, key=lambda node: node.requests("identity"))
        good &= row("Ray: answered of 400 while a Switchyard node is killed", all_answered(port, 400, 8, has.process.kill), "==", 400, 400)
        good &= row("Ray: answered of 400 while a Ray node is killed", all_answered(port, 400, 8, lambda: cluster.remove_node(second, allow_graceful=False)), "==", 400, 400)
    finally:
        ray.shutdown()
        cluster.shutdown()
        fleet.close()
    if "--json" in sys.argv:
        with open(sys.argv[sys.argv.index("--json") + 1], "w", encoding="utf-8") as out:
            json.dump({"rows": rows}, out, indent=1)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
