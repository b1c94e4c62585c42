#!/usr/bin/env python3
"""PyTorch scripts under `switchyard run` against a real server: the same bits as alone, status, pause, cancel, memory limit, faults; models by torch.onnx. Run by
`make test-torch` (PyTorch is too large for `make test`); prints a line a test. Arguments: names of tests."""
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BINARY = os.path.join(ROOT, os.environ.get("SY_BINARY", "build/switchyard"))
TRAIN = os.path.join(ROOT, "tests/peers/torch_scripts/train.py")
sys.path.insert(0, os.path.join(ROOT, "runtime/python"))
import switchyard  # noqa: E402

KINDS = {"lstm": 150, "resnet": 12, "bert": 20, "unet": 20, "loader": 10, "accumulate": 4, "bf16": 8}
LIMIT_S = 600


class Server:
    def __init__(self, *more):
        self.folder = tempfile.mkdtemp(prefix="torch_check_")
        self.socket, self.more = self.folder + "/socket", more
        subprocess.run([os.path.join(os.path.dirname(BINARY), "make-models"), "--out", self.folder + "/models", "identity"], check=True,
                       stdout=subprocess.DEVNULL)
        self.start()

    def start(self):
        self.log = open(self.folder + "/log", "w")
        self.process = subprocess.Popen([BINARY, "serve", "--models", self.folder + "/models", "--socket", self.socket, "--pool-bytes", "1Gi", "--http", "off", "--grpc", "off", "--metrics", "off", "--state",
                                         self.folder + "/state", *self.more], stdout=self.log, stderr=subprocess.STDOUT)
        for _ in range(1200):
            if re.search("^ready$", open(self.folder + "/log").read(), re.M):
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError("the server is not ready: " + open(self.folder + "/log").read()[-2000:])

    def status(self):
        with switchyard.Client(self.socket) as client:
            return client.status()

    def job(self, name):
        return [j for j in self.status()["jobs"] if j["name"] == name][-1]

    def wait_job(self, name, wanted, seconds=LIMIT_S):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                job = self.job(name)
                if wanted(job):
                    return job
            except (IndexError, switchyard.SwitchyardError, OSError):
                pass
            time.sleep(0.05)
        raise AssertionError(f"job {name} did not come so far in {seconds} s: {self.job(name)}")

    def run(self, *options, program, **more):
        return subprocess.Popen([BINARY, "run", "--socket", self.socket, *options, "--", *program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                **more)

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)


def finish(process):
    out, err = process.communicate(timeout=LIMIT_S)
    return process.returncode, out, err


def script(server, text):
    path = os.path.join(tempfile.mkdtemp(dir=server.folder), "script.py")
    with open(path, "w") as file:
        file.write(text)
    return path


def hash_of(out):
    found = re.search("hash ([0-9a-f]{64})", out)
    assert found, out
    return found[1]


class Requests:
    """One request after the other while it is open, with pauses; each interrupts training."""

    def __init__(self, server, pause=0.003):
        self.server, self.pause, self.over, self.n = server, pause, False, 0
        self.thread = threading.Thread(target=self.send)

    def send(self):
        import numpy as np
        with switchyard.Client(self.server.socket) as client:
            while not self.over:
                client.infer("identity", {"input": np.ones((1, 4), np.float32)})
                self.n += 1
                time.sleep(self.pause)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over = True
        self.thread.join()


# ---- tests -----------------------------------------------------------------------------------------


def test_bits(server):
    """Each kind: the weights after preemptions are those of a run alone."""
    most = 0
    for kind, steps in KINDS.items():
        alone = subprocess.run([sys.executable, TRAIN, kind, str(steps)], capture_output=True, text=True, timeout=LIMIT_S)
        assert alone.returncode == 0, alone.stderr
        before = server.status()["counters"]["preemptions"]
        process = server.run("--name", kind, program=[sys.executable, TRAIN, kind, str(steps)])
        with Requests(server):
            code, out, err = finish(process)
        n = server.status()["counters"]["preemptions"] - before
        most = max(most, n)
        assert code == 0, (kind, code, err)
        assert hash_of(out) == hash_of(alone.stdout), f"{kind}: other bits after {n} preemptions"
        assert n > 0, f"{kind} was never preempted"
        assert server.job(kind)["step"] == steps, server.job(kind)
        print(f"    {kind}: {n} preemptions, same bits", flush=True)
    assert most >= 200, f"at most {most} preemptions"


def test_spill(server):
    """Opportunistic scripts leave for a guaranteed one that needs their room, and come back with the same bits; requests are answered meanwhile."""
    for kind, steps in {"resnet": 40, "bert": 60, "loader": 20}.items():
        alone = subprocess.run([sys.executable, TRAIN, kind, str(steps)], capture_output=True, text=True, timeout=LIMIT_S)
        before = server.status()["counters"]
        process = server.run("--name", "out_" + kind, "--class", "opportunistic", "--memory", "600M", program=[sys.executable, TRAIN, kind, str(steps)])
        with Requests(server, 0.02):
            server.wait_job("out_" + kind, lambda j: j["step"] > 2)
            other = server.run("--memory", "700M", program=["sleep", "1"])
            server.wait_job("out_" + kind, lambda j: j["state"] == "spilled")
            assert finish(other)[0] == 0
            code, out, err = finish(process)
        after = server.status()["counters"]
        assert code == 0 and hash_of(out) == hash_of(alone.stdout), (kind, code, err)
        assert after["spills"] > before["spills"] and after["spilled_bytes"] > before["spilled_bytes"], (before, after)
        print(f"    {kind}: {(after['spilled_bytes'] - before['spilled_bytes']) >> 10} KiB out and back, same bits", flush=True)


def test_status_and_pause(server):
    process = server.run("--name", "long", program=[sys.executable, TRAIN, "lstm", "100000"])
    server.wait_job("long", lambda j: j["step"] > 3 and j["steps_per_s"] > 0)
    job = server.job("long")["job"]
    with switchyard.Client(server.socket) as client:
        client.jobs.pause(job)
        server.wait_job("long", lambda j: j["state"] == "suspended")
        time.sleep(1)
        stood = server.job("long")["step"]
        time.sleep(0.5)
        assert server.job("long")["step"] == stood, "it steps while it is suspended"
        client.jobs.resume(job)
        server.wait_job("long", lambda j: j["step"] > stood)
        client.jobs.cancel(job)
    code, _, err = finish(process)
    assert code == 128 + signal.SIGTERM and "canceled" in err, (code, err)
    assert server.job("long")["state"] == "ended", server.job("long")


def test_memory(server):
    path = script(server, "import torch\nkept = []\ntry:\n    while True: kept.append(torch.ones(1 << 18))\nexcept RuntimeError as error:\n"
                          "    print('refused', len(kept), 'out of memory' in str(error))\nkept.clear()\nprint('again', torch.ones(1 << 20).sum().item())\n")
    code, out, err = finish(server.run("--memory", "32Mi", program=[sys.executable, path]))
    assert code == 0 and "refused 31 True" in out and "again 1048576.0" in out, (code, out, err)
    assert "refused" in err, err


FILL = ("import torch\nkept = []\ntry:\n    while len(kept) < 200: kept.append(torch.ones(1 << 18))\nexcept RuntimeError as error:\n    assert 'out of memory' in str(error)\n"
        "print('tensors', len(kept))\n")

# What a C++ extension could do: an allocator of its own in place of the counted one.
TAKER = """#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
struct taker final : c10::Allocator {
    c10::DataPtr allocate(size_t n) override { void *p = c10::alloc_cpu(n); return {p, p, &c10::free_cpu, c10::Device(c10::DeviceType::CPU)}; }
    c10::DeleterFnPtr raw_deleter() const override { return &c10::free_cpu; }
    void copy_data(void *to, const void *from, std::size_t n) const override { default_copy_data(to, from, n); }
};
static taker all;
extern "C" void take() { c10::SetCPUAllocator(&all, 255); }
"""


def filled(server, text, *options, **environment):
    return finish(server.run("--memory", "32Mi", *options, program=[sys.executable, script(server, text)], env=dict(os.environ, **environment)))


def test_other_allocators(server):
    """The limit holds under another malloc, whoever loads it, and against another allocator of tensors."""
    import ctypes.util
    import torch
    jemalloc = ctypes.util.find_library("jemalloc")
    if jemalloc:
        path = next(line.split()[-1] for line in subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout.splitlines() if jemalloc in line)
        code, out, err = filled(server, FILL, LD_PRELOAD=path)
        assert code == 0 and "tensors 31" in out, (code, out, err)
        code, out, err = filled(server, f"import ctypes, torch\nctypes.CDLL({path!r}, mode=ctypes.RTLD_GLOBAL)\n" + FILL, GLIBC_TUNABLES="glibc.rtld.optional_static_tls=65536")
        assert code == 0 and "tensors 31" in out, (code, out, err)
    folder, root = tempfile.mkdtemp(dir=server.folder), os.path.dirname(torch.__file__)
    with open(folder + "/taker.cc", "w") as file:
        file.write(TAKER)
    subprocess.run(["g++", "-std=c++20", "-fPIC", "-shared", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", f"-I{root}/include", folder + "/taker.cc",
                    "-o", folder + "/taker.so", f"-L{root}/lib", "-lc10"], check=True)
    code, out, err = filled(server, f"import torch, ctypes\nctypes.CDLL({folder + '/taker.so'!r}).take()\n" + FILL)
    assert code == 0 and "tensors 31" in out and "put back" in err, (code, out, err)


def test_memory_early_and_elsewhere(server):
    """Tensors of what `import torch` imports count; a child has the limit for itself; a Python without our hook says what was not kept."""
    folder = tempfile.mkdtemp(dir=server.folder)
    os.mkdir(folder + "/early-1.0.dist-info")
    with open(folder + "/early-1.0.dist-info/METADATA", "w") as file:
        file.write("Metadata-Version: 2.1\nName: early\nVersion: 1.0\n")
    with open(folder + "/early-1.0.dist-info/entry_points.txt", "w") as file:
        file.write("[torch.backends]\nearly = early:load\n")
    with open(folder + "/early.py", "w") as file:
        file.write("def load():\n    import torch\n    global kept\n    kept = [torch.ones(1 << 18) for _ in range(10)]\n")
    code, out, err = filled(server, FILL, PYTHONPATH=folder)
    assert code == 0 and "tensors 21" in out, (code, out, err)
    code, out, err = filled(server, "import os\nif os.fork() == 0:\n    " + FILL.replace("\n", "\n    ") + "\n    import sys; sys.stdout.flush(); os._exit(0)\nos.wait()\n" + FILL)
    assert code == 0 and out.count("tensors 31") == 2, (code, out, err)
    path = script(server, "import torch\nx = torch.ones(1 << 24)\n")
    code, out, err = finish(server.run("--memory", "32Mi", program=[sys.executable, "-E", path]))
    assert code == 0 and "--memory was not kept" in err, (code, out, err)
    code, out, err = finish(server.run("--memory", "32Mi", "--process-memory", "900M", program=[sys.executable, "-E", script(server, "import torch, time\nx = torch.ones(1 << 28)\ntime.sleep(60)")]))
    assert code == 128 + signal.SIGKILL and "--process-memory" in err, (code, out, err)


def test_ends(server):
    """However it ends, the job ends with it and says how."""
    for text, code, word in [("import os, torch\nos._exit(3)", 3, "exit status 3"), ("raise SystemExit(0)", 0, ""),
                             ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", 128 + signal.SIGSEGV, "signal 11"),
                             ("import torch, os\npid = os.fork()\nx = torch.ones(9).sum()\nif pid: os.wait()\nelse: os._exit(0)", 0, "")]:
        got, _, err = finish(server.run("--name", "ends", program=[sys.executable, script(server, text)]))
        job = server.wait_job("ends", lambda j: j["state"] in ("ended", "failed"))
        assert got == code, (text, got, err)
        assert word in job["error"] and (job["state"] == "failed") == bool(word), (text, job)
    code, _, err = finish(server.run("--name", "shell", program=["sh", "-c", "exit 4"]))
    assert code == 4 and "did not import torch" in err, (code, err)
    code, _, err = finish(server.run("--name", "none", program=["/no/such/program"]))
    assert code == 127 and "/no/such/program" in err, (code, err)


def test_no_home(server):
    """Where the user's cache cannot be written, the hook is built in a folder of the user's own among temporary files, once; in one that others can write it is not."""
    place = tempfile.mkdtemp(dir=server.folder)
    path = script(server, "import torch\nprint(torch.ones(3).sum().item())\n")
    for cache, built in (("/proc/none", True), ("no/absolute/path", False)):
        environment = dict(os.environ, XDG_CACHE_HOME=cache, TMPDIR=place)
        code, out, err = finish(server.run(program=[sys.executable, path], env=environment))
        assert code == 0 and "no look" not in err and ("building the hook" in err) == built, (code, out, err)
    assert not os.path.exists("no")
    os.chmod(os.path.join(place, f"switchyard-torch-{os.getuid()}"), 0o777)
    code, out, err = finish(server.run(program=[sys.executable, path], env=environment))
    assert code == 0 and "this user alone" in err, (code, out, err)


CACHE = "from switchyard import _torch_hook\nprint(_torch_hook._cache())\n"


def test_folder_of_others(server):
    """The folder among temporary files may have been made by another user first, with what that user wants loaded; a symbolic link may lead to such a one."""
    def cache(place):
        environment = dict(os.environ, XDG_CACHE_HOME="/proc/none", TMPDIR=place, PYTHONPATH=os.path.join(ROOT, "runtime/python"))
        done = subprocess.run([sys.executable, "-c", CACHE], capture_output=True, text=True, env=environment, timeout=LIMIT_S)
        assert done.returncode == 0 or "this user alone" in done.stderr, done.stderr
        return done.stdout.strip() if done.returncode == 0 else None

    place = tempfile.mkdtemp(dir=server.folder)
    own = os.path.join(place, f"switchyard-torch-{os.getuid()}")
    assert cache(place) == own and cache(place) == own and os.lstat(own).st_mode & 0o777 == 0o700
    for mode in (0o770, 0o702, 0o755):
        os.chmod(own, mode)
        assert (cache(place) is None) == (mode & 0o022 != 0), oct(mode)
    os.chmod(own, 0o700)
    if os.getuid() == 0:
        os.chown(own, 1, 1)
        assert cache(place) is None
        os.chown(own, 0, 0)
    os.rename(own, own + "-aside")
    for target in (own + "-aside", own + "-nowhere"):
        os.symlink(target, own)
        assert cache(place) is None
        os.unlink(own)
    assert not os.path.exists(own + "-nowhere")
    with open(own, "w"):
        assert cache(place) is None
    os.unlink(own)
    for mode, taken in ((0o777, False), (0o1777, True)):
        os.chmod(place, mode)
        assert (cache(place) is not None) == taken, oct(mode)


RANKS = """import torch, torch.distributed as ranks
ranks.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(7):
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
ranks.destroy_process_group()
"""


def test_several_processes(server):
    """A process that imported torch and has ended leaves its place to the next one; a launcher's ranks count one's steps."""
    code, out, err = finish(server.run("--name", "second", "--memory", "256Mi", program=["sh", "-c", f"{sys.executable} -c 'import torch' && {sys.executable} {TRAIN} lstm 9"]))
    assert code == 0 and server.job("second")["step"] == 9, (code, err, server.job("second"))
    path = script(server, RANKS)
    code, out, err = finish(server.run("--name", "ranks", program=[sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", path]))
    assert code == 0 and server.job("ranks")["step"] == 7, (code, err, server.job("ranks"))


def test_ignores_signals(server):
    path = script(server, "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up', flush=True)\nwhile True: pass\n")
    process = server.run("--name", "stubborn", "--kill-after", "1", program=[sys.executable, path])
    assert process.stdout.readline() == "up\n"
    with Requests(server) as requests:  # it never gives way: it is stopped, and requests are answered
        until = time.monotonic() + LIMIT_S
        while requests.n < 10 and time.monotonic() < until:
            time.sleep(0.1)
    assert requests.n >= 10
    with switchyard.Client(server.socket) as client:
        client.jobs.cancel(server.job("stubborn")["job"])
    code, _, err = finish(process)
    assert code == 128 + signal.SIGKILL, (code, err)


def test_worker_and_run_killed(server):
    """A worker's death costs nothing; a run's death ends the script and the job."""
    alone = subprocess.run([sys.executable, TRAIN, "lstm", "60"], capture_output=True, text=True, timeout=LIMIT_S)
    process = server.run("--name", "hit", program=[sys.executable, TRAIN, "lstm", "60"])
    server.wait_job("hit", lambda j: j["step"] > 2)
    os.kill([w["pid"] for w in server.status()["workers"] if w["job"] == server.job("hit")["job"]][0], signal.SIGKILL)
    code, out, err = finish(process)
    assert code == 0 and hash_of(out) == hash_of(alone.stdout), (code, err)
    process = server.run("--name", "orphan", program=[sys.executable, TRAIN, "lstm", "100000"])
    server.wait_job("orphan", lambda j: j["step"] > 2)
    process.kill()
    job = server.wait_job("orphan", lambda j: j["state"] == "failed")
    assert "gone" in job["error"], job


def test_checkpoint(server):
    kept = os.path.join(server.folder, "kept.pt")
    alone = subprocess.run([sys.executable, TRAIN, "lstm", "30"], capture_output=True, text=True, timeout=LIMIT_S)
    code, _, _ = finish(server.run(program=[sys.executable, TRAIN, "lstm", "30", "--checkpoint", kept, "--die-at", "17"]))
    assert code == 128 + signal.SIGKILL, code
    code, out, err = finish(server.run(program=[sys.executable, TRAIN, "lstm", "30", "--checkpoint", kept]))
    assert code == 0 and hash_of(out) == hash_of(alone.stdout), (code, err)


def test_server_killed(server):
    """The script goes on by itself, and is the next server's job."""
    process = server.run("--name", "outlives", program=[sys.executable, TRAIN, "lstm", "100000"])
    server.wait_job("outlives", lambda j: j["step"] > 2)
    server.process.kill()
    server.process.wait()
    server.start()
    seen = server.wait_job("outlives", lambda j: j["state"] == "training" and j["step"] > 2)
    server.wait_job("outlives", lambda j: j["step"] > seen["step"] + 2)
    process.terminate()
    assert finish(process)[0] == 128 + signal.SIGTERM


def test_join(server):
    text = ("import switchyard.torch, torch\nswitchyard.torch.join(name='joined', socket=%r)\nm = torch.nn.Linear(4, 4)\n"
            "for i in range(5): switchyard.torch.step(loss=m(torch.ones(1, 4)).sum(), total=5)\n"
            "import time\nwhile True: time.sleep(0.1)\n" % server.socket)
    environment = dict(os.environ, PYTHONPATH=os.path.join(ROOT, "runtime/python"), SWITCHYARD=BINARY)
    process = subprocess.Popen([sys.executable, script(server, text)], env=environment)
    job = server.wait_job("joined", lambda j: j["step"] == 5)
    assert job["total_steps"] == 5 and job["loss"] != 0, job
    process.kill()
    process.wait()
    server.wait_job("joined", lambda j: j["state"] in ("ended", "failed"), 30)


def test_device(server):
    """The hook with an accelerator that is played; a process of its own, since PyTorch takes it for CUDA's."""
    done = subprocess.run([sys.executable, os.path.join(os.path.dirname(TRAIN), "device.py"), tempfile.mkdtemp(dir=server.folder)], capture_output=True, text=True,
                          timeout=LIMIT_S)
    assert done.returncode == 0 and done.stdout.startswith("ok"), done.stderr


BAD_MODELS = """import os, sys, torch
print("words on stdout")
class Wide(torch.nn.Module):
    def forward(self, x):
        return x @ torch.ones(9, 2)
def good():
    return torch.nn.Linear(8, 4), torch.ones(1, 8)
def shapes():
    return Wide(), torch.ones(2, 8)
def exits():
    sys.exit(3)
def leaves():
    os._exit(0)
"""


def test_import_refused(server):
    """What stands in the way is said in a line that names it; only the package's name comes on stdout."""
    path = script(server, BAD_MODELS)
    folder = os.path.dirname(path)
    import torch

    @torch.library.custom_op("ours::triple", mutates_args=())
    def triple(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    triple.register_fake(torch.empty_like)

    class Custom(torch.nn.Module):
        def forward(self, x):
            return torch.ops.ours.triple(x)

    torch.export.save(torch.export.export(Custom(), (torch.ones(2),)), folder + "/custom.pt2")
    torch.save({"weight": torch.ones(2)}, folder + "/state.pt2")
    for what, words in ((path + ":shapes", "same reduction dim"), (path + ":exits", "exit 3"), (path + ":leaves", "before it had exported"),
                        (folder + "/custom.pt2", "ours.triple"), (folder + "/state.pt2", "archive_format")):
        done = subprocess.run([BINARY, "import", what, "--python", sys.executable], capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 1 and any(what in line and words in line for line in done.stderr.splitlines()), (what, done.stderr)
    done = subprocess.run([BINARY, "import", path + ":good", "--python", sys.executable], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0 and "words" not in done.stdout and done.stdout.strip().endswith("good.sypkg"), done


def test_import(server):
    path = script(server, "import torch\nclass Lacking(torch.nn.Module):\n    def forward(self, x):\n        return torch.special.bessel_j0(x)\n"
                          "def good():\n    return torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()), torch.ones(1, 8)\n"
                          "def two():\n    return torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)\n"
                          "def named():\n    return torch.nn.Linear(2, 2), (), {'input': torch.ones(1, 2)}\ndef lacking():\n    return Lacking(), torch.ones(3)\ndef wrong():\n    return 5\n")
    folder = os.path.dirname(path)

    def bring(what):
        return subprocess.run([BINARY, "import", what, "--python", sys.executable], capture_output=True, text=True, timeout=LIMIT_S)

    done = bring(path + ":good")
    assert done.returncode == 0 and os.path.exists(folder + "/good.sypkg"), done.stderr
    import torch
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Tanh()).eval()
    torch.export.save(torch.export.export(model, (torch.ones(1, 8),)), folder + "/net.pt2")
    done = bring(folder + "/net.pt2")
    assert done.returncode == 0, done.stderr
    with switchyard.Client(server.socket) as client:
        client.load(folder + "/net.sypkg")
        import numpy as np
        x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(1, 8)
        result = client.infer("net", {[m for m in client.models() if m.name == "net"][0].inputs[0].name: x})
        assert np.allclose(result[next(iter(result))], model(torch.from_numpy(x)).detach().numpy(), atol=1e-5)
    done = bring(path + ":lacking")
    assert done.returncode == 1 and "bessel_j0" in done.stderr, done.stderr
    done = bring(path + ":nothing")
    assert done.returncode == 1 and "no function nothing" in done.stderr, done.stderr
    for what, words in (("two", "hold a model"), ("named", "no argument 'input'; inputs by name are {'kwargs'")):
        done = bring(path + ":" + what)
        assert done.returncode == 1 and words in done.stderr, (what, done.stderr)
    done = bring(path + ":wrong")
    assert done.returncode == 1 and "int" in done.stderr, done.stderr


def test_gpu_script(server):
    """What `run.sh gpu-torch` runs on a GPU, on the CPU."""
    script_path = os.path.join(ROOT, "tests/on_gpu/gpu_torch.py")
    done = subprocess.run([sys.executable, script_path, os.path.dirname(os.path.abspath(BINARY)), "--device", "cpu"], capture_output=True, text=True,
                          timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout[-2000:]


def main():
    wanted = sys.argv[1:]
    tests = [(name[5:], test) for name, test in globals().items() if name.startswith("test_") and (not wanted or name[5:] in wanted)]
    server, failed = Server(), 0
    for name, test in tests:
        try:
            test(server)
            print(f"ok   torch_check {name}", flush=True)
        except Exception as error:
            failed += 1
            print(f"FAIL torch_check {name}: {error!r}", flush=True)
    server.stop()
    print(f"{len(tests) - failed} passed, {failed} failed, 0 skipped")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
