#!/usr/bin/env python3
"""A server for other machines: tokens and rights over each interface, TLS with right and wrong certificates, plain text to a TLS port and back, half-open handshakes,
`switchyard attach`, paths of clients, clients that die. Run by `make test` with SY_BINARY; prints a line a test, as the other tests do."""
import http.client
import json
import os
import queue
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VENV = os.path.join(ROOT, "build/venv/bin/python")
if os.path.exists(VENV) and os.path.realpath(sys.prefix) != os.path.realpath(os.path.join(ROOT, "build/venv")):
    os.execv(VENV, [VENV, *sys.argv])
sys.path.insert(0, os.path.join(ROOT, "runtime/python"))

import msgpack  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import switchyard  # noqa: E402
from checks import run_tests, wait_for  # noqa: E402
from check_server import BINARY, LIMIT_S, CheckServer  # noqa: E402

BUILD = os.path.dirname(BINARY)
TOKENS = {"ops": ("o" * 40, "admin"), "team": ("t" * 40, "infer tenant=blue"), "loader": ("l" * 40, "models"), "trainer": ("j" * 40, "jobs"),
          "blue": ("b" * 40, "admin tenant=blue"), "red": ("r" * 40, "infer,jobs tenant=red")}


def certificate(folder, name, subject="localhost"):
    """(certificate, key): self-signed, for localhost and 127.0.0.1 if it is for localhost."""
    cert, key = os.path.join(folder, name + ".pem"), os.path.join(folder, name + ".key")
    names = f"DNS:{subject}" + (",IP:127.0.0.1" if subject == "localhost" else "")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", cert,
               "-subj", f"/CN={subject}", "-addext", f"subjectAltName={names}", "-days", "30"]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return cert, key


def expired_certificate(folder):
    key, config = os.path.join(folder, "expired.key"), os.path.join(folder, "ca.conf")
    with open(config, "w", encoding="utf-8") as out:
        out.write(f"[ca]\ndefault_ca=d\n[d]\ndatabase={folder}/index\nnew_certs_dir={folder}\nrand_serial=yes\ndefault_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n")
    with open(os.path.join(folder, "index"), "w", encoding="utf-8"):
        pass
    cert, request = os.path.join(folder, "expired.pem"), os.path.join(folder, "expired.csr")
    for command in (["req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", request, "-subj", "/CN=localhost"],
                    ["ca", "-batch", "-notext", "-config", config, "-selfsign", "-keyfile", key, "-in", request, "-out", cert, "-startdate", "20200101000000Z",
                     "-enddate", "20200201000000Z"]):
        subprocess.run(["openssl", *command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return cert, key


def write_keeper(folder):
    """A model that a session keeps something of: all rows that it was given."""
    rows = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", size, 4])
            for name, size in (("row", 1), ("past_key_values.0.key", "past"), ("present.0.key", "all"))]
    node = onnx.helper.make_node("Concat", ["past_key_values.0.key", "row"], ["present.0.key"], axis=1)
    os.makedirs(folder)
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([node], "keeper", rows[:2], rows[2:]), opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8),
              os.path.join(folder, "model.onnx"))


class Server(CheckServer):
    def __init__(self, folder, name, *arguments, models=True):
        super().__init__(folder, *(["--models", os.path.join(folder, "models")] if models else []), "--tcp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0",
                         "--workers", "2", "--threads", "1", "--pool-bytes", "64Mi", "--slab-bytes", "64Mi", *arguments, name=name)

    def port(self, what):
        return int(self.address(what).split(":")[1])

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(LIMIT_S) == 0, self.log()[-2000:]


class World:
    """One folder, its certificates, a server with TLS and tokens, and one that is plain with tokens."""

    def __init__(self, folder):
        self.folder = folder
        subprocess.run([os.path.join(BUILD, "make-models"), "--out", os.path.join(folder, "models"), "identity", "mlp", "mnist_cnn"], check=True,
                       stdout=subprocess.DEVNULL)
        write_keeper(os.path.join(folder, "models", "keeper", "1"))
        os.symlink("/etc/passwd", os.path.join(folder, "models", "link"))
        self.cert, self.key = certificate(folder, "good")
        self.foreign, _ = certificate(folder, "foreign")
        self.tokens = os.path.join(folder, "tokens")
        self.write_tokens(TOKENS)
        for name, (secret, _) in TOKENS.items():
            with open(os.path.join(folder, name + ".token"), "w", encoding="utf-8") as out:
                out.write(secret + "\n")
        self.secure = Server(folder, "secure", "--token-file", self.tokens, "--tls-cert", self.cert, "--tls-key", self.key)
        self.plain = Server(folder, "plain", "--token-file", self.tokens)
        self.free = Server(folder, "free")

    def write_tokens(self, tokens):
        with open(self.tokens + ".new", "w", encoding="utf-8") as out:
            os.fchmod(out.fileno(), 0o600)
            for name, (secret, rights) in tokens.items():
                out.write(f"{name} {secret} {rights}\n")
        os.rename(self.tokens + ".new", self.tokens)

    def client(self, who="ops", server=None, **options):
        server = server or self.secure
        if server is self.secure:
            options.setdefault("tls_ca", self.cert)
        return switchyard.Client(f"tcp:localhost:{server.port('tcp')}", LIMIT_S, token=TOKENS[who][0] if who else None, **options)

    def command(self, *words, who="ops", server=None, tls=True):
        server = server or self.secure
        options = ["--server", f"tcp:localhost:{server.port('tcp')}"] + (["--tls-ca", self.cert] if tls else [])
        options += ["--token-file", os.path.join(self.folder, who + ".token")] if who else []
        return subprocess.run([BINARY, *words, *options], capture_output=True, text=True, timeout=LIMIT_S, check=False)


def raises(kind, call, words=""):
    try:
        call()
    except kind as error:
        assert words in str(error), f"{words!r} is not in {error!s}"
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


# ---- the tests ----------------------------------------------------------------------------------------------------


def test_same_bits(world):
    x = np.random.default_rng(5).standard_normal((3, 16), np.float32)
    with switchyard.Client(world.secure.socket) as local:
        expected = local.infer("mlp", {"input": x})["output"].tobytes()
    for server in (world.secure, world.plain):
        with world.client("team", server) as client:
            assert client.infer("mlp", {"input": x})["output"].tobytes() == expected
    large = np.random.default_rng(6).standard_normal((300000, 4), np.float32)  # many records of TLS, both ways
    with world.client("team") as client:
        assert client.infer("identity", {"input": large})["output"].tobytes() == large.tobytes()


def test_commands(world):
    assert world.command("infer", "mlp", who="team").returncode == 0
    assert world.command("status", who="loader").returncode == 0
    assert world.command("status", who=None).returncode == 1
    assert "admin" in world.command("policy", "fifo", who="team").stderr
    assert "--tls-ca" in world.command("status", tls=False).stderr


def test_rights(world):
    x = np.zeros((1, 16), np.float32)
    with world.client("team") as team, world.client("loader") as loader, world.client("trainer") as trainer:
        team.infer("mlp", {"input": x})
        for client in (loader, trainer):
            raises(switchyard.Denied, lambda c=client: c.infer("mlp", {"input": x}), '"infer"')
        raises(switchyard.Denied, lambda: team.unload("mlp"), '"models"')
        raises(switchyard.Denied, lambda: team.policy("fifo"), '"admin"')
        raises(switchyard.Denied, lambda: loader.jobs.pause(1), '"jobs"')
        raises(switchyard.Denied, lambda: team.infer("mlp", {"input": x}, tenant="red"), "blue")
        assert "blue" in json.dumps(team.status())
    raises(switchyard.Denied, lambda: switchyard.Client(f"tcp:localhost:{world.plain.port('tcp')}", token="x" * 40), "does not know the token")
    with switchyard.Client(f"tcp:localhost:{world.plain.port('tcp')}") as nobody:
        nobody.ping()
        raises(switchyard.Denied, nobody.status, "token")


def test_tenants(world):
    """A token of a tenant acts on what is that tenant's, over each interface; models and settings are nobody's alone."""
    job = {"name": "red-job", "model": "mnist_cnn/1/model.onnx", "optimizer": {"kind": "adam", "learning_rate": 0.001}, "data": {"kind": "synthetic", "samples": 64}, "batch": 4, "epochs": 100000}
    row = {"row": np.ones((1, 1, 4), np.float32)}
    with world.client("red") as red, world.client("blue") as blue, world.client("ops") as ops:
        number = red.jobs.submit(job)
        for call in (blue.jobs.pause, blue.jobs.resume, blue.jobs.stop, lambda j: blue.jobs.priority(j, 3), lambda j: blue._call("job_suspend", {"job": j}),
                     lambda j: blue._call("job_state", {"job": j})):
            raises(switchyard.Denied, lambda c=call: c(number), f"job {number} is not")
        for action in ("pause", "resume", "priority"):
            assert call_http(world, f"/api/jobs/{number}/{action}", "POST", **bearer("blue"), **JSON)[0] == 403
        before = ops.jobs.get(number)["step"]
        wait_for(lambda: ops.jobs.get(number)["step"] > before + 3, "steps: it still trains")
        assert call_http(world, f"/api/jobs/{number}/pause", "POST", **bearer("red"), **JSON)[0] == 200
        red.jobs.resume(number)
        raises(switchyard.Denied, lambda: red.jobs.submit(dict(job, tenant="blue")), "red")
        for call in (lambda: blue.unload("mlp"), lambda: blue.evict("mlp"), lambda: blue.load(world.folder + "/models/mlp/1/model.sypkg", name="other"),
                     lambda: blue.policy("fair"), lambda: blue.tenant("red", weight=0.1), lambda: blue.trace(True), blue.drain):
            raises(switchyard.Denied, call, "shared by all tenants")
        for path in ("/v2/repository/models/mlp/unload", "/v2/repository/models/mlp/load", "/api/models/mlp/evict", "/api/policy", "/v2/logging"):
            assert call_http(world, path, "POST", **bearer("blue"), **JSON)[0] == 403
        mine, theirs = red.session("keeper"), ops.session("keeper", tenant="blue")
        mine.infer(row), theirs.infer(row)
        assert [s["tenant"] for s in red.sessions()] == ["red"] and [s["tenant"] for s in blue.sessions()] == ["blue"] and len(ops.sessions()) == 2
        raises(switchyard.NotFound, lambda: blue.end_session("keeper", mine.id))
        raises(switchyard.Denied, lambda: blue.end_session("keeper", mine.id, tenant="red"), "red")
        mine.close(), theirs.close()
        red.jobs.stop(number)


def test_certificates(world):
    raises(switchyard.ConnectionLost, lambda: world.client(tls_ca=world.foreign), "TLS")
    raises(switchyard.ConnectionLost, lambda: world.client(tls_name="elsewhere.example"), "TLS")
    run = subprocess.run([BINARY, "status", "--server", f"tcp:localhost:{world.secure.port('tcp')}", "--tls-ca", world.foreign], capture_output=True, text=True,
                         timeout=LIMIT_S, check=False)
    assert run.returncode == 1 and "certificate is refused" in run.stderr, run.stderr
    expired, key = expired_certificate(world.folder)
    server = Server(world.folder, "old", "--tls-cert", expired, "--tls-key", key, models=False)
    try:
        run = subprocess.run([BINARY, "status", "--server", f"tcp:localhost:{server.port('tcp')}", "--tls-ca", expired], capture_output=True, text=True,
                             timeout=LIMIT_S, check=False)
        assert run.returncode == 1 and "expired" in run.stderr, run.stderr
        assert f'path="{expired}" why="it has expired' in server.log() and "event=certificate" not in world.secure.log(), server.log()
    finally:
        server.stop()


def handshake(world, least, most):
    context = ssl.create_default_context(cafile=world.cert)
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.minimum_version, context.maximum_version = least, most
    with socket.create_connection(("localhost", world.secure.port("tcp")), LIMIT_S) as plain, context.wrap_socket(plain, server_hostname="localhost") as tls:
        tls.sendall(msgpack.packb([0, 0, "ping", []]))
        return tls.version(), msgpack.unpackb(tls.recv(1000))


def test_versions(world):
    assert handshake(world, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2) == ("TLSv1.2", [1, 0, None, "pong"])
    assert handshake(world, ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3) == ("TLSv1.3", [1, 0, None, "pong"])
    raises(OSError, lambda: handshake(world, ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1))


def test_wrong_protocol(world):
    raises(switchyard.SwitchyardError, lambda: switchyard.Client(f"tcp:localhost:{world.secure.port('tcp')}", token="o" * 40))
    raises(switchyard.ConnectionLost, lambda: world.client(server=world.plain, tls_ca=world.cert), "TLS")
    for what in ("tcp", "http", "grpc"):
        for junk in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"\x01" * 3000, os.urandom(70000), b"\x16\x03\x01\x00\x05\x01\xff\xff\xff\xff"):
            with socket.create_connection(("localhost", world.secure.port(what)), LIMIT_S) as sock:
                sock.settimeout(LIMIT_S)
                try:
                    sock.sendall(junk)
                    sock.shutdown(socket.SHUT_WR)
                    while sock.recv(1000):
                        pass
                except OSError:
                    pass
    with world.client() as client:
        client.ping()


def test_half_open_handshakes(world):
    """Each is closed after its ten seconds; others are served meanwhile."""
    socks = [socket.create_connection(("localhost", world.secure.port(what)), LIMIT_S) for what in ("tcp", "http", "grpc") for _ in range(20)]
    begun = time.monotonic()
    for i, sock in enumerate(socks):
        sock.settimeout(40)
        sock.sendall(b"\x16\x03\x01\x02\x00\x01"[: i % 7])
    with world.client() as client:
        client.ping()
    for sock in socks:
        try:
            assert sock.recv(100) == b""
        except ConnectionResetError:
            pass
        sock.close()
    assert time.monotonic() - begun < 40


def test_strangers_send_little(world):
    with socket.create_connection(("localhost", world.plain.port("tcp")), LIMIT_S) as sock:
        sock.settimeout(LIMIT_S)
        try:
            sock.sendall(msgpack.packb([0, 0, "auth", [{"token": "x" * 100000}]]))
            answer = sock.recv(10000)
        except OSError:
            answer = b""
        assert not answer or msgpack.unpackb(answer)[2]["status"] in ("ETOOBIG", "EPROTO"), answer


def call_http(world, path, method="GET", server=None, **headers):
    server = server or world.secure
    if server is world.secure:
        connection = http.client.HTTPSConnection("localhost", server.port("http"), timeout=LIMIT_S, context=ssl.create_default_context(cafile=world.cert))
    else:
        connection = http.client.HTTPConnection("localhost", server.port("http"), timeout=LIMIT_S)
    body = json.dumps({"inputs": [{"name": "input", "shape": [1, 16], "datatype": "FP32", "data": [0] * 16}]}) if path.endswith("infer") else None
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    answer.read()
    return answer.status, answer.headers


JSON = {"Content-Type": "application/json"}


def bearer(name):
    return {"Authorization": "Bearer " + TOKENS[name][0]}


def test_http(world):
    for server in (world.secure, world.plain):
        assert call_http(world, "/v2/health/live", server=server)[0] == 200
        assert call_http(world, "/", server=server)[0] == 200
        status, headers = call_http(world, "/v2/models/mlp", server=server)
        assert status == 401 and headers["WWW-Authenticate"] == "Bearer"
        assert "Basic" in call_http(world, "/events", server=server)[1]["WWW-Authenticate"]
        assert call_http(world, "/v2/models/mlp", server=server, Authorization="Bearer " + "x" * 40)[0] == 401
        assert call_http(world, "/v2/models/mlp", server=server, Authorization="Digest x")[0] == 401
        for name in TOKENS:
            assert call_http(world, "/v2/models/mlp", server=server, **bearer(name))[0] == 200
        assert call_http(world, "/v2/models/mlp/infer", "POST", server, **bearer("team"))[0] == 200
        assert call_http(world, "/v2/models/mlp/infer", "POST", server, **bearer("team"), **{"switchyard-tenant": "red"})[0] == 403
        assert call_http(world, "/v2/models/mlp/infer", "POST", server, **bearer("loader"))[0] == 403
        assert call_http(world, "/v2/repository/models/mlp/load", "POST", server, **bearer("team"))[0] == 403
        assert call_http(world, "/v2/logging", "POST", server, **bearer("loader"))[0] == 403
    assert call_http(world, "/v2/models/mlp/infer", "POST", world.free)[0] == 200


def test_ends_of_tls(world):
    """The server's end is an end of TLS, so that a client can tell it from a cut."""
    context = ssl.create_default_context(cafile=world.cert)
    for request in (b"GET /v2/health/live HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", b"GET /v2/health/live HTTP/1.0\r\n\r\n", b"nonsense\r\n\r\n"):
        with socket.create_connection(("localhost", world.secure.port("http")), LIMIT_S) as plain, \
                context.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False) as tls:
            tls.sendall(request)
            got = b""
            while piece := tls.recv(1000):  # SSLEOFError for an end without close_notify
                got += piece
            assert got.startswith(b"HTTP/1.1 "), got


def test_grpc(world):
    import tritonclient.grpc as triton
    channel = triton.InferenceServerClient(f"localhost:{world.secure.port('grpc')}", ssl=True, root_certificates=world.cert)
    assert channel.is_server_live()
    for headers, code in (({}, "UNAUTHENTICATED"), ({"authorization": "Bearer " + TOKENS["loader"][0]}, "PERMISSION_DENIED"),
                          ({"authorization": "Bearer " + TOKENS["team"][0]}, None)):
        given = triton.InferInput("input", [1, 16], "FP32")
        given.set_data_from_numpy(np.zeros((1, 16), np.float32))
        try:
            channel.infer("mlp", [given], headers=headers)
            assert code is None
        except triton.InferenceServerException as error:
            assert code and code in str(error.status()), error
    channel.close()


def test_paths(world):
    """What lies elsewhere is refused in the same words, there or not."""
    inside = os.path.join(world.folder, "models/mlp/1/model.sypkg")
    with switchyard.Client(f"tcp:localhost:{world.free.port('tcp')}") as client:
        client.load(inside, name="again")
        said = set()
        for path in ("/etc/passwd", "/etc/no-such-file", "/dev/zero", os.path.join(world.folder, "tokens"), os.path.join(world.folder, "models/link"),
                     os.path.join(world.folder, "models/../tokens"), "/proc/self/environ", os.path.join(world.folder, "models") + "x/y"):
            for call in (lambda p: client._call("model_load", {"path": p}),
                         lambda p: client._call("train", {"text": json.dumps({"name": "a", "model": p, "data": {"kind": "npy"}})})):
                text = raises(switchyard.Denied, lambda p=path, c=call: c(p), "not below")
                said.add(text.replace(path, "PATH"))
        assert len(said) == 1, said
        raises(switchyard.Denied, lambda: client._call("train", {"text": json.dumps(
            {"name": "a", "model": "mlp/1/model.onnx", "data": {"kind": "npy"}, "snapshot": {"folder": "/tmp/elsewhere"}})}), "not below")
        raises(switchyard.NotFound, lambda: client._call("model_load", {"path": "mlp/no-such"}))
    with switchyard.Client(world.free.socket) as local:  # the same user
        raises(switchyard.SwitchyardError, lambda: local.load("/etc/passwd"), "passwd")


def test_scripts_stay_here(world):
    """A job that is a script names a socket that the server connects to: over TCP nobody may, over the Unix socket it runs."""
    job = json.dumps({"name": "hook", "script": {"socket": os.path.join(world.folder, "none"), "memory_bytes": 0, "total_steps": 0, "grace_ms": 100}})
    for client in (world.client("ops"), world.client("trainer"), world.client("ops", world.plain), switchyard.Client(f"tcp:localhost:{world.free.port('tcp')}")):
        with client:
            raises(switchyard.Denied, lambda c=client: c._call("train", {"text": job}), "job 'hook' is a script")
    with switchyard.Client(world.free.socket) as local:
        raises(switchyard.NotFound, lambda: local._call("train", {"text": job}), "not there")
    script = ["--no-hooks", "--", "sh", "-c", "echo computed; exit 7"]
    here = subprocess.run([BINARY, "run", "--socket", world.free.socket, *script], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert here.returncode == 7 and here.stdout == "computed\n", here.stderr


def test_reload(world):
    with world.client("team") as client:
        client.status()
        try:
            world.write_tokens({name: row for name, row in TOKENS.items() if name != "team"})
            time.sleep(1.1)
            raises(switchyard.Denied, client.status)
            raises(switchyard.Denied, lambda: world.client("team"))
            with open(world.tokens, "a", encoding="utf-8") as out:
                out.write("broken line\n")
            time.sleep(1.1)
            with world.client("ops") as ops:  # what was there stays
                ops.status()
        finally:
            world.write_tokens(TOKENS)
        time.sleep(1.1)
        with world.client("team") as again:
            again.status()


def test_reload_ends_streams(world):
    """A token that is gone ends what it had begun: a gRPC stream on which nothing moves, one that never sent a message, and the page's events."""
    import tritonclient.grpc as triton
    answers, of_empty = queue.Queue(), queue.Queue()
    given = triton.InferInput("input", [1, 16], "FP32")
    given.set_data_from_numpy(np.zeros((1, 16), np.float32))
    channel, empty = (triton.InferenceServerClient(f"localhost:{world.secure.port('grpc')}", ssl=True, root_certificates=world.cert) for _ in range(2))
    events = http.client.HTTPSConnection("localhost", world.secure.port("http"), timeout=LIMIT_S, context=ssl.create_default_context(cafile=world.cert))
    staying = http.client.HTTPSConnection("localhost", world.secure.port("http"), timeout=LIMIT_S, context=ssl.create_default_context(cafile=world.cert))
    try:
        for stream, errors in ((empty, of_empty), (channel, answers)):
            stream.start_stream(lambda result, error, errors=errors: errors.put(error), headers={"authorization": bearer("team")["Authorization"]})
        for _ in range(2):
            channel.async_stream_infer("mlp", [given])
            assert answers.get(timeout=LIMIT_S) is None
        events.request("GET", "/events", headers=bearer("team"))
        staying.request("GET", "/events", headers=bearer("ops"))
        ends, stays = events.getresponse(), staying.getresponse()
        assert ends.status == stays.status == 200 and b"hello" in ends.readline()
        world.write_tokens({name: row for name, row in TOKENS.items() if name != "team"})
        while ends.readline():  # to its end
            pass
        for _ in range(100):
            assert stays.readline()
        for errors in (answers, of_empty):  # nothing is sent on them meanwhile
            error = errors.get(timeout=LIMIT_S)
            assert error and "UNAUTHENTICATED" in str(error.status()), error
    finally:
        world.write_tokens(TOKENS)
        for stream in (channel, empty):
            stream.stop_stream(cancel_requests=True)
            stream.close()
        events.close()
        staying.close()
        time.sleep(1.1)


def test_reload_answers_what_was_asked(world):
    """The next message of a stream whose token is gone ends it, behind the answers of what was in flight."""
    import tritonclient.grpc as triton
    answers = queue.Queue()
    given = triton.InferInput("input", [1, 16], "FP32")
    given.set_data_from_numpy(np.zeros((1, 16), np.float32))
    channel = triton.InferenceServerClient(f"localhost:{world.secure.port('grpc')}", ssl=True, root_certificates=world.cert)
    with world.client("ops", world.secure) as ops:
        wait_for(lambda: all(row["state"] == "idle" for row in ops.status()["workers"]), "all workers, which start one after the other")
        workers = [row["pid"] for row in ops.status()["workers"]]
    try:
        channel.start_stream(lambda result, error: answers.put(error), headers={"authorization": bearer("team")["Authorization"]})
        channel.async_stream_infer("mlp", [given])
        assert answers.get(timeout=LIMIT_S) is None
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        for _ in range(3):
            channel.async_stream_infer("mlp", [given])
        time.sleep(0.3)
        world.write_tokens({name: row for name, row in TOKENS.items() if name != "team"})
        time.sleep(1.1)
        channel.async_stream_infer("mlp", [given])
        time.sleep(0.3)
        assert answers.empty()
        for pid in workers:
            os.kill(pid, signal.SIGCONT)
        for _ in range(3):
            assert answers.get(timeout=LIMIT_S) is None
        error = answers.get(timeout=LIMIT_S)
        assert error and "UNAUTHENTICATED" in str(error.status()) and '"team" was taken off' in error.message(), error
    finally:
        for pid in workers:
            os.kill(pid, signal.SIGCONT)
        world.write_tokens(TOKENS)
        channel.stop_stream(cancel_requests=True)
        channel.close()
        time.sleep(1.1)


def test_attach(world):
    path = os.path.join(world.folder, "attached")
    command = [BINARY, "attach", "--server", f"tcp:localhost:{world.secure.port('tcp')}", "--socket", path, "--tls-ca", world.cert, "--token-file",
               os.path.join(world.folder, "team.token")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as attached:
        try:
            assert attached.stdout.readline().startswith("ready")
            x = np.random.default_rng(7).standard_normal((200000, 4), np.float32)
            with switchyard.Client(path) as client:
                assert client.infer("identity", {"input": x})["output"].tobytes() == x.tobytes()
                assert client.empty((4, 4)).shape == (4, 4)
                raises(switchyard.Denied, lambda: client.load("/etc/passwd"), "models")
            with switchyard.Client(path) as client:  # the server's words come through, though it takes no more bytes
                raises(switchyard.TooLarge, lambda: client.infer("identity", {"input": np.zeros((20000000, 4), np.float32)}), "at most")
            assert subprocess.run([BINARY, "infer", "mlp", "--socket", path], capture_output=True, timeout=LIMIT_S, check=False).returncode == 0
        finally:
            attached.send_signal(signal.SIGTERM)
        assert attached.wait(LIMIT_S) == 0
    assert not os.path.exists(path)
    for extra in (["--server", "tcp:localhost:1"], []):
        assert subprocess.run([BINARY, "attach", *extra, "--socket", path], capture_output=True, timeout=LIMIT_S, check=False).returncode in (1, 2)
    done = subprocess.run([BINARY, "attach", "--server", path, "--socket", path], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 2 and f"'{path}' is not tcp:HOST:PORT" in done.stderr, done.stderr


SLEEPER = """
import sys, numpy as np, switchyard
client = switchyard.Client(sys.argv[1], token=sys.argv[2] or None, tls_ca=sys.argv[3] or None)
client.infer("identity", {"input": np.zeros((1, 4), np.float32)})
print("there", flush=True)
import time; time.sleep(600)
"""


def test_dead_client(world):
    """A killed client's connection is gone within a second."""
    address = f"tcp:localhost:{world.secure.port('tcp')}"
    environment = dict(os.environ, PYTHONPATH=os.path.join(ROOT, "runtime/python"))
    port = world.secure.port("tcp")

    def established():
        rows = subprocess.run(["ss", "-Htn", "state", "established", "sport", "=", f":{port}"], capture_output=True, text=True, check=True).stdout
        return len(rows.splitlines())

    before = established()
    with subprocess.Popen([sys.executable, "-c", SLEEPER, address, TOKENS["team"][0], world.cert], stdout=subprocess.PIPE, text=True, env=environment) as client:
        assert client.stdout.readline() == "there\n"
        assert established() == before + 1
        client.kill()
        client.wait(LIMIT_S)
    deadline = time.monotonic() + 20
    while established() > before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert established() == before


TESTS = [test_same_bits, test_commands, test_rights, test_tenants, test_certificates, test_versions, test_wrong_protocol, test_half_open_handshakes,
         test_strangers_send_little, test_http, test_ends_of_tls, test_grpc, test_paths, test_scripts_stay_here, test_reload, test_reload_ends_streams,
         test_reload_answers_what_was_asked, test_attach, test_dead_client]


def main(tests):
    """Each with one World; 1 if one failed."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(folder)
        failed = run_tests(tests, world)
        for server in (world.secure, world.plain, world.free):
            server.stop()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(TESTS))
