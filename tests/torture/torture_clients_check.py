#!/usr/bin/env python3
"""The torture's HTTP and gRPC clients catch a server that answers with another request's answer (TO6): its bits are right, its id is not."""
import http.server
import json
import os
import sys
import threading
from concurrent import futures

HERE = os.path.dirname(os.path.abspath(__file__))
VENV = os.path.join(os.path.dirname(os.path.dirname(HERE)), "build/venv/bin/python")
if os.path.exists(VENV) and os.path.abspath(sys.executable) != VENV and "SY_IN_VENV" not in os.environ:
    os.execve(VENV, [VENV, *sys.argv], dict(os.environ, SY_IN_VENV="1"))
sys.path.insert(0, HERE)
try:
    import grpc
    import numpy as np
    import torture_clients as clients
    import torture_server as server_of
    from tritonclient.grpc import service_pb2
except ImportError as missing:
    print(f"skipped: {missing}; make venv installs it")
    sys.exit(77)

INPUT = np.arange(4, dtype=np.float32).reshape(1, 4)
QUESTION = server_of.Question("same", {"x": INPUT}, {"y": INPUT})


class Ids:
    """Of the requests so far; the id to answer with: its own, or that of the one before."""

    def __init__(self):
        self.last, self.swaps = "", False

    def answer(self, sent):
        before, self.last = self.last, sent
        return before if self.swaps else sent


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        request = json.loads(body[:int(self.headers["Inference-Header-Content-Length"])])
        data = INPUT.tobytes()
        head = json.dumps({"id": self.server.ids.answer(request["id"]), "outputs": [{"name": "y", "parameters": {"binary_data_size": len(data)}}]}).encode()
        self.send_response(200)
        self.send_header("Inference-Header-Content-Length", str(len(head)))
        self.send_header("Content-Length", str(len(head) + len(data)))
        self.end_headers()
        self.wfile.write(head + data)

    def log_message(self, *words):
        pass


class Places:
    """Where the clients find the servers."""
    http = grpc = 0


def serve_http(ids, places):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.ids, places.http = ids, server.server_address[1]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.shutdown


def serve_grpc(ids, places):
    def infer(request, _):
        answer = service_pb2.ModelInferResponse(model_name="same", id=ids.answer(request.id), raw_output_contents=[INPUT.tobytes()])
        answer.outputs.add(name="y", datatype="FP32", shape=list(INPUT.shape))
        return answer
    method = grpc.unary_unary_rpc_method_handler(infer, service_pb2.ModelInferRequest.FromString, service_pb2.ModelInferResponse.SerializeToString)
    server = grpc.server(futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("inference.GRPCInferenceService", {"ModelInfer": method})])
    places.grpc = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return lambda: server.stop(None)


def asked(kind, places, n):
    """A tally of what became of n requests or more."""
    tally = clients.Tally()
    asker = clients.Asker(kind, places, [QUESTION], tally, 1)
    for _ in range(2000):
        if tally.n_ok + len(tally.wrong) + len(tally.lost) + sum(tally.refused.values()) >= n:
            break
        asker.stopping.wait(0.01)
    asker.stop()
    assert asker.join()
    assert not tally.lost and not tally.refused, (tally.lost, tally.refused)
    return tally


def check(kind, serve):
    ids, places = Ids(), Places()
    end = serve(ids, places)
    try:
        tally = asked(kind, places, 20)
        assert tally.n_ok >= 20 and not tally.wrong, tally.wrong
        ids.swaps = True
        tally = asked(kind, places, 20)
        assert tally.n_ok == 0 and len(tally.wrong) >= 20 and "was answered with id" in tally.wrong[0], (tally.ok, tally.wrong[:3])
    finally:
        end()


def main():
    check(clients.Http, serve_http)
    check(clients.Grpc, serve_grpc)
    print("[       OK ] torture_clients_check")


if __name__ == "__main__":
    main()
