#!/usr/bin/env python3
"""Programs under `switchyard run`, from outside and without torch: one ends with its own exit status, one is canceled, one whose `run` is stopped (Ctrl-Z) is canceled in
bounded time, one whose worker is killed goes on; bad ones (forks, daemons, os._exit, deaf to
signals, threads that compute at the end, too much memory) harm nobody.

    SY_BINARY=build/switchyard run_check.py
"""
import concurrent.futures
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

from checks import wait_for

BINARY = os.environ.get("SY_BINARY", "build/switchyard")
KILL_AFTER = 1
LOOP = "import sys, time\nopen(sys.argv[1], 'w').write('x')\nwhile True:\n    time.sleep(0.01)\n"


class Server:
    def __init__(self, folder):
        self.folder, self.socket = folder, f"{folder}/s"
        with open(f"{folder}/log", "ab") as log:
            self.process = subprocess.Popen([BINARY, "serve", "--socket", self.socket, "--pool-bytes", "64M", "--workers", "3", "--http", "off", "--grpc", "off",
                                             "--metrics", "off"], stdout=log, stderr=log)
        wait_for(lambda: os.path.exists(self.socket), "the server")

    def call(self, *words):
        return subprocess.run([BINARY, words[0], "--socket", f"unix:{self.socket}", *words[1:]], capture_output=True, text=True, timeout=120, check=False)

    def status(self):
        return json.loads(self.call("status", "--json").stdout)

    def job(self, name):
        return next((j for j in self.status()["jobs"] if j["name"] == name), {"state": "none"})

    def run(self, name, *words, options=()):
        return subprocess.Popen([BINARY, "run", "--socket", f"unix:{self.socket}", "--name", name, "--kill-after", str(KILL_AFTER), *options, "--", *words], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, start_new_session=True)

    def start_loop(self, name):
        mark = f"{self.folder}/{name}"
        run = self.run(name, sys.executable, "-c", LOOP, mark)
        wait_for(lambda: os.path.exists(mark) or run.poll() is not None, name)
        assert run.poll() is None, run.communicate()[0]
        return run


def state_of(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[0]


def check_exit_status(server):
    for code in (0, 7):
        run = server.run(f"exit{code}", sys.executable, "-c", f"raise SystemExit({code})")
        said, _ = run.communicate(timeout=60)
        assert run.returncode == code, said
    wait_for(lambda: server.job("exit0")["state"] == "ended", "the job's end")
    assert server.job("exit7")["state"] == "failed"


def check_cancel(server):
    run = server.start_loop("cancel")
    done = server.call("train", "--stop", str(server.job("cancel")["job"]))
    assert done.returncode == 0, done.stderr
    said, _ = run.communicate(timeout=60)
    assert run.returncode == 128 + signal.SIGTERM and "was canceled" in said, said


def check_cancel_while_stopped(server):
    run = server.start_loop("stopped")
    os.kill(run.pid, signal.SIGSTOP)
    done = server.call("train", "--stop", str(server.job("stopped")["job"]))
    assert done.returncode != 0 and "is that stopped (Ctrl-Z)?" in done.stderr, done.stderr
    assert server.job("stopped")["state"] == "failed"
    other = server.run("other", "true")  # its worker is free
    assert other.wait(60) == 0
    os.kill(run.pid, signal.SIGCONT)
    said, _ = run.communicate(timeout=60)
    assert run.returncode == 128 + signal.SIGTERM and "was canceled" in said, said


def check_killed_worker(server):
    run = server.start_loop("killed")
    worker = wait_for(lambda: next((w for w in server.status()["workers"] if w["job"] == server.job("killed")["job"]), None), "its worker")
    os.kill(worker["pid"], signal.SIGKILL)
    wait_for(lambda: server.job("killed")["state"] == "training" and
             any(w["job"] == server.job("killed")["job"] and w["pid"] != worker["pid"] for w in server.status()["workers"]), "the next worker")
    assert run.poll() is None
    assert server.call("train", "--stop", str(server.job("killed")["job"])).returncode == 0
    run.communicate(timeout=60)


def own_cgroup():
    """The folder of this process's cgroup of version 2; None: there is none."""
    with open("/proc/self/cgroup", encoding="ascii") as file:
        path = next((line[3:].strip() for line in file if line.startswith("0::")), None)
    mount = next((m for m in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified") if os.path.exists(m + "/cgroup.procs")), None)
    return path and mount and (mount + path).rstrip("/")


def can_have_a_cgroup():
    place = own_cgroup() and f"{own_cgroup()}/run_check-{os.getpid()}"
    try:
        os.mkdir(place or "/nowhere/at/all")
    except OSError:
        return False
    can = os.access(place + "/cgroup.kill", os.W_OK) and os.access(own_cgroup() + "/cgroup.procs", os.W_OK)
    os.rmdir(place)
    return can


def scripts_cgroups():
    """Of runs that this check started: others may run beside it."""
    place = own_cgroup()
    return [name for name in os.listdir(place or "/nowhere") if name.startswith("switchyard-run-") and not os.path.exists("/tmp/" + name)] if place else []


def check_killed_run(server):
    """What a shell started dies with a `run` that is killed, also in a session of its own; a process that joined by itself, and stands still then, goes on; so it does
    when its `run` is told to end. The system's first process is nobody's job."""
    done = server.call("run", "--pid", "1")
    assert done.returncode == 2 and "1 is the first process" in done.stderr, done.stderr
    for how in ("", "setsid", "setsid env -i"):
        if "env" in how and not can_have_a_cgroup():
            continue  # nothing tells then what such a process belongs to
        mark = f"{server.folder}/in_shell{len(how)}"
        run = server.run(f"in_shell{len(how)}", "sh", "-c", f"{how} '{sys.executable}' -c \"$0\" {mark} & echo $! > {mark}.pid; wait", LOOP)
        wait_for(lambda: os.path.exists(mark), "the shell's child")
        run.kill()
        run.communicate()
        wait_for(lambda: is_gone(read_number(mark + ".pid")), "the shell's child to end")
    wait_for(lambda: not scripts_cgroups(), "the scripts' cgroups to be removed")
    mark = f"{server.folder}/joined"
    process = subprocess.Popen([sys.executable, "-c", LOOP, mark])
    try:
        wait_for(lambda: os.path.exists(mark), "the process")
        for name, ends, state in (("joined", signal.SIGKILL, "failed"), ("left", signal.SIGTERM, "ended")):
            run = subprocess.Popen([BINARY, "run", "--socket", f"unix:{server.socket}", "--name", name, "--pid", str(process.pid)], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
            wait_for(lambda: server.job(name)["state"] == "training", "the job")
            assert server.call("jobs", "pause", str(server.job(name)["job"])).returncode == 0
            wait_for(lambda: state_of(process.pid) == "T", "its stop")
            run.send_signal(ends)
            said = run.communicate()[1]
            wait_for(lambda: state_of(process.pid) != "T", "it to go on")
            wait_for(lambda: server.job(name)["state"] == state, "the job's end")
        assert run.returncode == 0 and "continues" in said, said
    finally:
        process.kill()
        process.wait()


BAD = '''import os, signal, sys, threading, time
what, mark = sys.argv[1:]
end = time.monotonic() + 120
if what == "fork":  # nobody waits for the child, which ignores what would end it
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open(mark, "w").write(str(os.getpid()))
        while True:
            pass
    while not os.path.exists(mark) or not open(mark).read():
        pass
if what.startswith("daemon"):  # a session of its own, and no parent
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        open(mark, "w").write(str(os.getpid()))
        for _ in iter(lambda: time.monotonic() < end, False):
            pass
        os._exit(0)
    while not os.path.exists(mark) or not open(mark).read():
        pass
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while what == "daemon_and_parent":
        pass
if what == "memory":  # each of its processes is below the limit
    for _ in range(4):
        if os.fork() == 0:
            kept = bytearray(40 << 20)
            time.sleep(600)
            os._exit(0)
    time.sleep(600)
if what == "shared":  # children share what they were forked with: that counts once
    kept = bytearray(os.urandom(1 << 16)) * (40 << 4)
    children = [os.fork() for _ in range(2)]
    if all(children):
        time.sleep(1.6)
    else:
        time.sleep(600)
    for child in children:
        os.kill(child, signal.SIGKILL)
if what == "helper":  # ends by itself a moment after the script, as multiprocessing's resource tracker
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pipe = os.pipe()
    if os.fork() == 0:
        os.close(pipe[1])
        os.read(pipe[0], 1)
        time.sleep(0.02)
        open(mark, "w").write("x")
        os._exit(0)
if what == "late_helper":  # needs a core, of which it has a twentieth, for 0.05 s
    pipe = os.pipe()
    if os.fork() == 0:
        os.close(pipe[1])
        os.read(pipe[0], 1)
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        while time.process_time() < 0.05:
            pass
        open(mark, "w").write("x")
        os._exit(0)
if what == "exit":
    os._exit(5)
if what == "threads":
    for _ in range(3):
        threading.Thread(target=lambda: [0 for _ in iter(int, 1)], daemon=True).start()
if what == "deaf":
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    open(mark, "w").write("x")
    while True:
        pass
'''


def run_bad(server, what, *options):
    mark = f"{server.folder}/bad-{what}"
    return server.run(what, sys.executable, "-c", BAD, what, mark, options=options), mark


def is_gone(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return not file.read()
    except OSError:
        return True


def read_number(path):
    with open(path, encoding="utf-8") as file:
        return int(file.read() or 0)


def check_helper(server):
    """One that ends by itself is no process left behind, also where it has to wait for a core."""
    run, mark = run_bad(server, "helper")
    said, _ = run.communicate(timeout=60)
    assert run.returncode == 0 and "left processes" not in said, said
    assert os.path.exists(mark), said


def check_late_helper(server):
    """As above, with so many that compute on its core that it takes more than 0.2 s until its turn has come."""
    core = {min(os.sched_getaffinity(0))}
    busy = [subprocess.Popen([sys.executable, "-c", f"import os\nos.sched_setaffinity(0, {core})\nwhile True:\n    pass"]) for _ in range(20)]
    try:
        run, mark = run_bad(server, "late_helper")
        said, _ = run.communicate(timeout=60)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert run.returncode == 0 and "left processes" not in said, said
    assert os.path.exists(mark), said


def check_bad_scripts(server):
    """Each ends with its job and a word, and leaves nothing that computes; the server takes the next one."""
    run, mark = run_bad(server, "fork")
    said, _ = run.communicate(timeout=60)
    assert run.returncode == 0 and "left processes behind" in said, said
    child = read_number(mark)
    wait_for(lambda: is_gone(child), "the end of what it left")
    run, _ = run_bad(server, "exit")
    said, _ = run.communicate(timeout=60)
    assert run.returncode == 5 and "left processes" not in said, said
    wait_for(lambda: server.job("exit")["state"] == "failed", "the job's end")
    assert "exit status 5" in server.job("exit")["error"]
    check_helper(server)
    check_late_helper(server)
    run, _ = run_bad(server, "threads")
    said, _ = run.communicate(timeout=60)
    assert run.returncode == 0, said
    run, mark = run_bad(server, "deaf")
    wait_for(lambda: os.path.exists(mark), "the deaf script")
    run.send_signal(signal.SIGINT)
    assert "goes on" in run.stdout.readline()  # nobody else would know why nothing happens
    assert server.call("train", "--stop", str(server.job("deaf")["job"])).returncode == 0
    said, _ = run.communicate(timeout=60)
    assert run.returncode == 128 + signal.SIGKILL and "was killed (--kill-after)" in said, said
    assert server.run("after", "true").wait(60) == 0


def check_daemon(server):
    """A child that left group and session, and whose parent ended, stands still while the job does, goes on with it, and ends with it."""
    run, mark = run_bad(server, "daemon")
    said, _ = run.communicate(timeout=60)
    assert run.returncode == 0 and "left processes behind" in said, said
    assert is_gone(read_number(mark))
    run, mark = run_bad(server, "daemon_and_parent")
    wait_for(lambda: os.path.exists(mark) and read_number(mark), "the daemon")
    assert server.call("jobs", "pause", str(server.job("daemon_and_parent")["job"])).returncode == 0
    wait_for(lambda: server.job("daemon_and_parent")["state"] == "suspended", "the pause")
    wait_for(lambda: state_of(read_number(mark)) == "T", "the daemon's stop")
    run.send_signal(signal.SIGINT)  # for a script to hear it, all of it goes on
    wait_for(lambda: state_of(read_number(mark)) != "T", "the daemon to go on")
    assert server.call("train", "--stop", str(server.job("daemon_and_parent")["job"])).returncode == 0
    run.communicate(timeout=60)
    assert is_gone(read_number(mark))


def check_process_memory(server):
    """The limit holds for all its processes together, and what they share counts once."""
    run, _ = run_bad(server, "memory", "--process-memory", "100M")
    said, _ = run.communicate(timeout=60)
    assert run.returncode == 128 + signal.SIGKILL and "--process-memory" in said, said
    wait_for(lambda: server.job("memory")["state"] == "failed", "the job's end")
    assert "--process-memory" in server.job("memory")["error"], server.job("memory")
    run, _ = run_bad(server, "shared", "--process-memory", "100M")
    said, _ = run.communicate(timeout=60)
    assert run.returncode == 0, said


def check_all(checks):
    """At a server of their own."""
    folder = tempfile.mkdtemp(prefix="runs")
    server = Server(folder)
    try:
        for check in checks:
            check(server)
            print(f"[       OK ] {check.__name__[6:]}", flush=True)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
    except BaseException:
        server.process.kill()
        with open(f"{folder}/log", encoding="utf-8", errors="replace") as log:
            print(log.read()[-4000:])
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    """Most of the time passes in limits of time: two servers at once."""
    halves = ((check_exit_status, check_cancel, check_cancel_while_stopped, check_killed_worker, check_killed_run, check_daemon),
              (check_bad_scripts, check_process_memory))
    with concurrent.futures.ThreadPoolExecutor(len(halves)) as threads:
        for half in [threads.submit(check_all, checks) for checks in halves]:
            half.result()
    print("run_check: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
