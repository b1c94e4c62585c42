#!/usr/bin/env python3
"""Writes the routing table of a fleet of Switchyard nodes as nginx configuration: a request for a model goes where the model is resident.

    export_routes.py NODES.json --out /etc/nginx/conf.d/switchyard.conf [--listen 8000] [--most 64] [--watch 2 --reload "nginx -s reload"]

NODES.json: [{"http": "10.0.0.1:8000", "status": "tcp:10.0.0.1:8100"}, ...]; `status` is an address that `switchyard status --socket` takes.

    model resident somewhere   -> among those nodes, to the one with the fewest requests; the others when all of those are full or gone
    resident nowhere           -> ring hash of its name over all nodes, so that one node takes it in; a node with --most requests open is passed over
                                  (bounded load), and the next on the ring gets it

A node that does not answer `status` is left out. With --watch the file is written again, and nginx told, only when the table has changed.
"""
import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import time

HEAD = """\
# Made by export_routes.py: which node has which model resident. Overwritten when that changes.
map $uri $switchyard_model {{
    default "";
    ~^/v2/models/(?<switchyard_name>[^/]+) $switchyard_name;
}}
map $switchyard_model $switchyard_nodes {{
    default switchyard_all;
{routes}}}
upstream switchyard_all {{
    zone switchyard_all 256k;
    hash $switchyard_model consistent;
{all}    keepalive 256;
}}
{upstreams}server {{
    listen {listen} reuseport;
    client_max_body_size 0;
    location / {{
        proxy_pass http://$switchyard_nodes;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_request_buffering on;
        # Inference changes nothing at the server: a request whose node has gone, or drains, is sent to the next one.
        proxy_next_upstream error timeout http_502 http_503 non_idempotent;
        proxy_next_upstream_tries 4;
        proxy_connect_timeout 1s;
        proxy_read_timeout 300s;
    }}
}}
"""


def status_of(binary, node):
    """The node's models that lie in its pool, at least in part, with the share of their bytes; None: it does not answer."""
    try:
        done = subprocess.run([binary, "status", "--json", "--socket", node["status"]], capture_output=True, timeout=10, check=False)
        status = json.loads(done.stdout) if done.returncode == 0 else None
    except (subprocess.TimeoutExpired, ValueError):
        status = None
    if status is None or status["draining"]:
        return None
    return {model["name"]: model["resident_groups"] / max(model["groups"], 1) for model in status["models"]
            if model["state"] == "ready" and model["resident_groups"] > 0 and model["requests"] > 0}


def table_of(binary, nodes):
    """({model: [http address]}, [addresses that answer]). Only nodes that have at least half as much of it as the best one count as having it."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=min(64, max(1, len(nodes)))) as pool:
        answers = list(pool.map(lambda node: status_of(binary, node), nodes))
    alive = [node["http"] for node, models in zip(nodes, answers) if models is not None]
    shares = {}
    for node, models in zip(nodes, answers):
        for model, share in (models or {}).items():
            shares.setdefault(model, {})[node["http"]] = share
    table = {model: sorted(a for a, share in at.items() if share * 2 >= max(at.values())) for model, at in shares.items()}
    return dict(sorted(table.items())), alive


def check_name(name):
    if not re.fullmatch(r"[A-Za-z0-9._~-]+", name):
        raise SystemExit(f"model {name!r}: nginx would read its name as syntax; rename it")
    return name


def upstream(index, here, alive, most):
    lines = [f"    server {a} max_conns={most} fail_timeout=1s;" for a in here]
    lines += [f"    server {a} max_conns={most} fail_timeout=1s backup;" for a in alive if a not in here]
    return f"upstream switchyard_{index} {{\n    zone switchyard_{index} 256k;\n    least_conn;\n" + "\n".join(lines) + "\n    keepalive 256;\n}\n"


def nginx_of(table, alive, listen, most):
    routes = "".join(f"    {check_name(model)} switchyard_{i};\n" for i, model in enumerate(table))
    upstreams = "".join(upstream(i, here, alive, most) for i, here in enumerate(table.values()))
    everyone = "".join(f"    server {a} max_conns={most} fail_timeout=1s;\n" for a in alive)
    return HEAD.format(routes=routes, upstreams=upstreams, all=everyone, listen=listen)


def write(path, text):
    with open(path + ".new", "w", encoding="utf-8") as out:
        out.write(text)
    os.replace(path + ".new", path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nodes")
    parser.add_argument("--out", required=True)
    parser.add_argument("--binary", default="switchyard")
    parser.add_argument("--listen", default="8000")
    parser.add_argument("--most", type=int, default=64, help="requests open at a node at a time")
    parser.add_argument("--watch", type=float, help="seconds between two looks")
    parser.add_argument("--reload", help="command after a change")
    arguments = parser.parse_args()
    with open(arguments.nodes, encoding="utf-8") as text:
        nodes = json.load(text)
    last = None
    while True:
        table, alive = table_of(arguments.binary, nodes)
        if not alive:
            print("no node answers; the table stays as it is", file=sys.stderr)
        text = nginx_of(table, alive, arguments.listen, arguments.most) if alive else last
        if text != last:
            write(arguments.out, text)
            if arguments.reload and subprocess.run(arguments.reload, shell=True, check=False).returncode != 0:
                print(f"'{arguments.reload}' failed", file=sys.stderr)
        last = text
        if not arguments.watch:
            return 0 if alive else 1
        time.sleep(arguments.watch)


if __name__ == "__main__":
    sys.exit(main())
