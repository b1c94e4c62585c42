#!/usr/bin/env python3
"""The host image across restarts: taken over after a kill, with the same answers and nothing read; never of a package that changed, of other sizes, half
written, or after the server was stopped in order; by a keeper process, and by a service manager's descriptor store."""
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
VENV = os.path.join(ROOT, "build/venv/bin/python")
if os.path.exists(VENV) and os.path.abspath(sys.executable) != VENV and "SY_IN_VENV" not in os.environ:
    os.execve(VENV, [VENV, *sys.argv], dict(os.environ, SY_IN_VENV="1"))
sys.path.insert(0, os.path.join(ROOT, "tests/torture"))
import torture_server as server_of  # noqa: E402

BUILD = os.path.dirname(os.environ.get("SY_BINARY", os.path.join(ROOT, "build/switchyard")))
NAMES = ["mlp", "tiny_cnn", "mnist_cnn"]
IMAGE = 16 << 20


def keepers(folder):
    """Pids of keepers that have this folder's socket: by the name of their listener in /proc/net/unix."""
    with open("/proc/net/unix", encoding="ascii") as table:
        inodes = {f"socket:[{line.split()[6]}]" for line in table if line.rstrip().endswith(f"{folder}/socket.keep")}
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if server_of.name_of(pid) == "switchyard-keep" and any(os.readlink(f"/proc/{pid}/fd/{fd}") in inodes for fd in os.listdir(f"/proc/{pid}/fd")):
                found.append(int(pid))
        except OSError:
            pass
    return found


def until(what, seconds=20):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, what
        time.sleep(0.02)


class Case:
    def __init__(self, folder, models, *more, environment=None, prefix=()):
        self.folder = folder
        self.server = server_of.Server(BUILD, folder, ["--models", models, "--workers", 2, "--device", "emulated,link-gbps=4", "--pool-bytes", "64M",
                                                       "--image-bytes", IMAGE, *more], environment, prefix)

    def start(self, *words):
        assert self.server.start(), self.server.words()[-2000:]
        for word in words:
            assert word in self.server.words(), f"{word} is not in:\n{self.server.words()}"
        return self

    def ask(self, questions):
        """(bytes read from storage, bytes that were there), after right answers of all."""
        with self.server.client() as client:
            for question in questions:
                result = client.infer(question.model, question.inputs)
                assert question.is_right({name: result[name].tobytes() for name in result}), question.model
            counters = client.status()["counters"]
        return counters["storage_bytes"], counters["image_kept_bytes"]


def check_killed(folder, models):
    case = Case(folder, models, "--keep-image", 60).start()
    questions = server_of.ask_idle(case.server, 1, 1)
    read, kept = case.ask(questions)
    assert read > 0 and kept == 0
    (keeper,) = keepers(folder)
    for _ in range(2):
        case.server.end(signal.SIGKILL)
        case.start("event=image_taken", "event=link_known")
        assert case.ask(questions) == (0, read), "an image that was there is read again, or not used"
        assert keepers(folder) == [keeper], "another keeper than before"
    return case, questions, read


def check_link_remembered(folder, models):
    """A server that ends in order takes its keeper with it; what was measured of the link stays in its state folder."""
    for known in ("event=link_measured", "event=link_known"):
        case = Case(folder, models, "--keep-image", 60, "--state", f"{folder}/state").start(known)
        assert case.server.end() == 0
        assert not keepers(folder)


def check_confined(folder):
    (keeper,) = keepers(folder)
    words = open(f"/proc/{keeper}/status", encoding="ascii").read()
    assert "Seccomp:\t2" in words and "NoNewPrivs:\t1" in words, words
    assert int(next(line for line in words.splitlines() if line.startswith("RssAnon")).split()[1]) < 20000, words
    open_ = {os.readlink(f"/proc/{keeper}/fd/{fd}") for fd in os.listdir(f"/proc/{keeper}/fd")}
    assert not [name for name in open_ if not name.startswith(("socket:", "/memfd:switchyard-", "/dev/null"))], open_


def check_one_at_a_time(folder, models):
    """A second server, of another folder, with this keeper's name: it serves, and is not handed what another writes."""
    other = tempfile.mkdtemp(prefix="switchyard-keeper-")
    try:
        os.symlink(f"{folder}/socket.keep", f"{other}/socket.keep")
        case = Case(other, models, "--keep-image", 60).start("event=image_not_kept", "another server has the image")
        case.server.end()
    finally:
        shutil.rmtree(other)


def check_changed(case, folder, models, questions):
    """Another model of the same name, size and file name while the server is away: its own answers, and not the old weights."""
    case.server.end(signal.SIGKILL)
    subprocess.run([f"{BUILD}/make-models", "--out", f"{folder}/other", "tiny_cnn"], check=True, stdout=subprocess.DEVNULL)
    package = next(os.path.join(at, name) for at, _, names in os.walk(f"{models}/mlp") for name in names if name.endswith(".sypkg"))
    stat = os.stat(package)
    with open(package, "r+b") as file:  # the last weight, with the old times: only what is read from the file may say so
        file.seek(-4096, os.SEEK_END)
        old = file.read(64)
        file.seek(-4096, os.SEEK_END)
        file.write(bytes(b ^ 0xff for b in old))
    os.utime(package, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    case.start("event=image_taken")
    case.ask([q for q in questions if q.model != "mlp"])
    case.server.end(signal.SIGKILL)
    shutil.rmtree(f"{models}/mlp")
    shutil.copytree(f"{folder}/other/tiny_cnn", f"{models}/mlp")
    case.start("event=image_taken")
    with case.server.client() as client:
        question = next(q for q in questions if q.model == "tiny_cnn")
        result = client.infer("mlp", question.inputs)
        assert question.is_right({name: result[name].tobytes() for name in result}), "the changed model answers with other weights"


def check_removed(case, folder, models):
    """A model that was removed while the server was away is forgotten. All others keep their places in the image, so nothing is written over its groups first."""
    case.server.end(signal.SIGKILL)
    os.rename(f"{models}/mnist_cnn", f"{folder}/removed")
    case.start("event=image_taken", "event=image_sifted")
    assert case.server.end() == 0
    os.rename(f"{folder}/removed", f"{models}/mnist_cnn")


def check_dropped(folder, models):
    """Another size; a keeper that was killed; an ordered stop; time."""
    case = Case(folder, models, "--keep-image", 60).start()
    questions = server_of.ask_idle(case.server, 1, 1)
    case.server.end(signal.SIGKILL)
    case.server.arguments[case.server.arguments.index(str(IMAGE))] = str(2 * IMAGE)
    case.start("event=image_dropped", "are asked for")
    assert case.ask(questions)[1] == 0
    (keeper,) = keepers(folder)
    os.kill(keeper, signal.SIGTERM)
    until(lambda: not keepers(folder))
    assert case.ask(questions)[0] > 0
    assert case.server.end() == 0
    case.start()
    assert case.ask(questions)[1] == 0
    assert case.server.end() == 0
    until(lambda: not keepers(folder))
    assert not os.path.exists(f"{folder}/socket.keep")
    case.server.arguments[case.server.arguments.index("60")] = "1"
    case.start().server.end(signal.SIGKILL)
    until(lambda: not keepers(folder), 10)
    case.start()
    assert case.ask(questions)[1] == 0, "an image outlived its time"
    case.server.end()


def check_kept_on_stop(folder, models):
    case = Case(folder, models, "--keep-image", 60, "--keep-on-stop").start()
    questions = server_of.ask_idle(case.server, 1, 1)
    read = case.ask(questions)[0]
    assert case.server.end() == 0
    case.start("event=image_taken")
    assert case.ask(questions) == (0, read)
    (keeper,) = keepers(folder)
    os.kill(keeper, signal.SIGTERM)
    case.server.end()


class Manager:
    """What systemd is to a service that stores descriptors: a socket that hears, and the descriptors that it passes at the next start."""

    def __init__(self, folder):
        self.path, self.stored = f"{folder}/notify", {}
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.setblocking(False)

    def hear(self):
        while True:
            try:
                text, fds = socket.recv_fds(self.socket, 4096, 4)[:2]
            except BlockingIOError:
                return self.stored
            lines = dict(line.split("=", 1) for line in text.decode().splitlines())
            if lines.get("FDSTORE"):
                (self.stored[lines["FDNAME"]],) = fds
            elif lines.get("FDSTOREREMOVE"):
                for fd in [self.stored.pop(lines["FDNAME"])] if lines["FDNAME"] in self.stored else []:
                    os.close(fd)

    def prefix(self):
        """A shell that passes on what is stored, as descriptors 3 and 4."""
        names = list(self.stored)
        moves = " ".join(f"{3 + n}<&{self.stored[name]}" for n, name in enumerate(names))
        return ["/bin/bash", "-c", f'export LISTEN_PID=$$ LISTEN_FDS={len(names)} LISTEN_FDNAMES={":".join(names)}; exec "$@" {moves}', "sh"]


def check_stored(folder, models):
    manager = Manager(folder)
    environment = {"NOTIFY_SOCKET": manager.path, "FDSTORE": "2"}
    case = Case(folder, models, "--keep-image", 60, environment=environment).start()
    questions = server_of.ask_idle(case.server, 1, 1)
    read = case.ask(questions)[0]
    assert set(manager.hear()) == {"switchyard-image", "switchyard-book"} and not keepers(folder)
    case.server.end(signal.SIGKILL)

    def start_again(word):
        for fd in manager.stored.values():
            os.set_inheritable(fd, True)
        case = Case(folder, models, "--keep-image", 60, environment=environment, prefix=manager.prefix())
        popen = subprocess.Popen
        subprocess.Popen = lambda *a, **k: popen(*a, close_fds=False, **k)
        try:
            return case.start(word)
        finally:
            subprocess.Popen = popen

    again = start_again("event=image_taken")
    assert again.ask(questions) == (0, read)
    again.server.end(signal.SIGKILL)
    os.close(manager.stored.pop("switchyard-book"))  # as a kill between the two leaves it
    again = start_again("event=image_dropped")
    assert set(manager.hear()) == {"switchyard-image", "switchyard-book"}, "one of a pair stays with the service manager"
    assert again.server.end() == 0
    assert not manager.hear(), "an ordered stop leaves the image with the service manager"


def main():
    folder = tempfile.mkdtemp(prefix="switchyard-keeper-")
    models = f"{folder}/models"
    subprocess.run([f"{BUILD}/make-models", "--out", models, *NAMES], check=True, stdout=subprocess.DEVNULL)
    case = None
    try:
        case, questions, _ = check_killed(folder, models)
        check_confined(folder)
        check_one_at_a_time(folder, models)
        check_changed(case, folder, models, questions)
        check_removed(case, folder, models)
        check_dropped(folder, models)
        check_link_remembered(folder, models)
        check_kept_on_stop(folder, models)
        check_stored(folder, models)
    finally:
        if case:
            case.server.end(signal.SIGKILL)
        for pid in keepers(folder):
            os.kill(pid, signal.SIGTERM)
        shutil.rmtree(folder, ignore_errors=True)
    print("[       OK ] keeper")
    return 0


if __name__ == "__main__":
    sys.exit(main())
