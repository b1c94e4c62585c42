#!/usr/bin/env python3
"""What `serve --tcp` does not start with, and what commands do not connect to: token files, certificates, keys, addresses, ports; in words. Run by `make test` with SY_BINARY;
prints a line a test, as the other tests do."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from remote_check import BINARY, LIMIT_S, Server, main, raises, switchyard  # noqa: E402


def refused_start(world, words, *arguments):
    run = subprocess.run([BINARY, "serve", "--socket", os.path.join(world.folder, "other"), "--http", "off", "--grpc", "off", "--metrics", "off", *arguments],
                         capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert run.returncode in (1, 2) and words in run.stderr, run.stderr[-600:]


def test_token_file_without_tokens(world):
    """The server starts: tokens may be written later. Until then nobody is let in, and the log says why."""
    path = os.path.join(world.folder, "later")
    for text in ("", "# none yet\n"):
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        os.chmod(path, 0o600)
        server = Server(world.folder, "tokenless", "--token-file", path, models=False)
        try:
            assert f'path="{path}" why="no token is in it' in server.log(), server.log()
            for who in (None, "ops"):
                assert world.command("status", server=server, tls=False, who=who).returncode == 1
        finally:
            server.stop()


def test_starts_that_are_refused(world):
    refused_start(world, "--token-file", "--tcp", "0.0.0.0:0")
    refused_start(world, "--token-file", "--tcp", "[::]:0")
    refused_start(world, "--tls-key", "--tls-cert", world.cert)
    refused_start(world, "--tls-key", "--tls-cert", world.foreign, "--tls-key", world.key)
    refused_start(world, "no-such", "--token-file", "/no-such")
    refused_start(world, "No such file", "--tls-cert", "/no-such", "--tls-key", world.key)
    refused_start(world, "No such file", "--tls-cert", world.cert, "--tls-key", "/no-such")
    refused_start(world, "PEM", "--tls-cert", world.key, "--tls-key", world.key)
    refused_start(world, "PEM", "--tls-cert", world.cert, "--tls-key", world.cert)
    for port in ("-1", "12a", "65536", "no-port"):
        refused_start(world, f"'{port}' is not a port", "--tcp", f"127.0.0.1:{port}")
    for line in ("a short admin", "a " + "x" * 40 + " everything", "a " + "x" * 40, "a " + "x" * 300 + " admin", "a " + "x" * 40 + " infer tenant=\n"):
        path = os.path.join(world.folder, "bad")
        with open(path, "w", encoding="utf-8") as out:
            out.write("# tokens\n" + line)
        os.chmod(path, 0o600)
        refused_start(world, "line 2", "--token-file", path)
    os.chmod(path, 0o666)
    refused_start(world, "chmod", "--token-file", path)


def test_addresses_that_are_refused(world):
    """In words, before anything is asked of a name server or a peer."""
    for address, words in (("tcp:localhost:0", "'0' is not a port; 1 to 65535"), ("tcp:localhost:", "'' is not a port"), ("tcp:localhost:-1", "'-1' is not a port"),
                           ("tcp:localhost:12a", "'12a' is not a port"), ("tcp:localhost:99999", "'99999' is not a port"), ("tcp:localhost", "not tcp:HOST:PORT")):
        for command in (["status"], ["attach", "--socket", os.path.join(world.folder, "never")]):
            done = subprocess.run([BINARY, *command, "--server", address], capture_output=True, text=True, timeout=LIMIT_S, check=False)
            assert done.returncode == 1 and words in done.stderr, (command, address, done.stderr)
        raises(switchyard.SwitchyardError, lambda address=address: switchyard.Client(address))
    port = world.secure.port("tcp")
    done = subprocess.run([BINARY, "status", "--server", f"tcp:localhost:{port}", "--tls-ca", "/no-such"], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 1 and "/no-such: No such file" in done.stderr, done.stderr


TESTS = [test_token_file_without_tokens, test_starts_that_are_refused, test_addresses_that_are_refused]

if __name__ == "__main__":
    sys.exit(main(TESTS))
