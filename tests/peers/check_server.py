"""The server of a check: started, waited for until it is ready, its log and its ports, stopped."""
import os
import re
import signal
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BINARY = os.path.abspath(os.environ.get("SY_BINARY", os.path.join(ROOT, "build/switchyard")))
LIMIT_S = 120  # of one wait: a hang, on whatever machine


class CheckServer:
    """`switchyard serve` with these arguments and no metrics; `folder` has its socket, `name`, and its log, NAME.log. It is ready once this returns."""

    def __init__(self, folder, *arguments, name="socket"):
        self.folder, self.socket = folder, os.path.join(folder, name)
        self.log_path = self.socket + ".log"
        with open(self.log_path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([BINARY, "serve", "--socket", self.socket, "--metrics", "off", *arguments], stdout=subprocess.PIPE, stderr=log, text=True,
                                            env=dict(os.environ, SY_LOG="info"))  # which has the ports
        while (line := self.process.stdout.readline().strip()) != "ready":
            assert line, self.log()  # no line: it has ended

    def log(self):
        with open(self.log_path, encoding="utf-8") as log:
            return log.read()

    def address(self, what):
        """HOST:PORT of one of its front ends: http, grpc, tcp."""
        return "127.0.0.1:" + re.search(rf"what={what} port=(\d+)", self.log()).group(1)

    def stop(self):
        """Its exit code after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(LIMIT_S)
