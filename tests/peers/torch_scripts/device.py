"""The hook with an accelerator (fake_device.cc) and this process as its own worker: what is in flight is bounded, a closed gate is only told as drained once it is,
the memory limit becomes PyTorch's own, and a CUDA graph's recording is left alone. Prints "ok"; needs a C++ compiler, no GPU.

The bound is one of time: the hook holds its clock against what the accelerator tells, so this test takes both as they are and asks for milliseconds, of the best of
three goes. Beside much other work it may fail, so it is part of `make test-torch`, which is run by hand, and of nothing that must pass by itself.

    device.py FOLDER    for what is compiled
"""
import ctypes
import os
import struct
import subprocess
import sys
import threading
import time

import torch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(ROOT, "runtime/python"))
from switchyard import _torch_device, _torch_hook  # noqa: E402

GATE, BUSY, OWNER, DEVICE_USED, DRAINED = 64, 128, 192, 248, 276  # in script_page.h
LONG_MS, SHORT_MS = 4.0, 0.05
BOUND_MS, LOOSE_MS, TIGHT_FOR_S = 1.0, 6.0, 10  # the hook aims at 0.7 after a pause and 3 without one for a while, by what it learned

IS_WITHIN, LET_GO = threading.Event(), threading.Event()


def fake(folder):
    torch_root = os.path.dirname(torch.__file__)
    library = folder + "/fake_device.so"
    subprocess.run(["g++", "-O1", "-std=c++20", "-fPIC", "-shared", f"-I{torch_root}/include", os.path.join(os.path.dirname(__file__), "fake_device.cc"), "-o",
                    library, f"-L{torch_root}/lib", "-lc10"], check=True)
    device = ctypes.CDLL(library)
    device.fake_launch.argtypes = [ctypes.c_double]
    device.fake_most_in_flight.restype = device.fake_in_flight.restype = ctypes.c_double
    return device


class Worker:
    """The page, and the side of it that a worker has."""

    def __init__(self, folder):
        self.path = folder + "/page"
        with open(self.path, "wb") as file:
            file.write(struct.pack("<QQQ", _torch_hook._MAGIC, 0, 1 << 30).ljust(4096, b"\0"))
        self.page = _torch_hook.start(self.path)
        self.words = self.page._words
        self.pauses = 0

    def move(self):
        self.words[GATE // 4] += 1
        word = ctypes.c_uint32.from_buffer(self.page._map, GATE)
        ctypes.CDLL(None).syscall(_torch_hook._FUTEX[os.uname().machine], ctypes.byref(word), 1, 1 << 30, None, None, 0)

    def pause(self, device):
        self.move()
        until = time.monotonic() + 60
        while self.words[BUSY // 4] or self.words[DRAINED // 4] != self.words[GATE // 4]:
            assert time.monotonic() < until, (self.words[BUSY // 4], self.words[DRAINED // 4], self.words[GATE // 4])
        assert device.fake_in_flight() == 0, "told as drained while work was in flight"
        time.sleep(0.002)
        assert device.fake_in_flight() == 0, "something was launched behind a closed gate"
        self.pauses += 1
        self.move()


def make_operators(device):
    """Operators that launch and return at once, as CUDA's do; and one of the CPU's that takes until it is let go."""
    library = torch.library.Library("fake", "DEF")
    for name, ms in [("long", LONG_MS), ("short", SHORT_MS)]:
        library.define(f"{name}(Tensor x) -> Tensor")
        library.impl(name, lambda x, ms=ms: (device.fake_launch(ms), x)[1], "CPU")
    library.define("held(Tensor x) -> Tensor")
    library.impl("held", lambda x: (IS_WITHIN.set(), LET_GO.wait(), x)[2], "CPU")
    return library


def check_start(hook):
    """The accelerator counts from now on, while a thread is within an operator."""
    thread = threading.Thread(target=lambda: torch.ops.fake.held(torch.ones(1)))
    thread.start()
    IS_WITHIN.wait()
    assert hook.sy_torch_hook_device(ctypes.c_int(1)) == 0
    LET_GO.set()
    thread.join()


def work(n):
    x = torch.ones(1)
    for _ in range(n):
        torch.ops.fake.long(x)
        for _ in range(40):
            torch.ops.fake.short(x)


def check_bound(device, least, at_most):
    """The best of three goes: beside other work this process may stand still while it looks."""
    most = []
    for _ in range(3):
        device.fake_most_in_flight()
        work(20)
        most.append(device.fake_most_in_flight())
    assert least < min(most) <= at_most, f"{most} ms in flight in front of a launch"


def check_memory():
    """PyTorch's side of CUDA is played: what it is told."""
    total, told = 80 * 10**9 + 12345, {}
    for limit in (1, 12345, 2**30, 2**30 + 1, 3 * 10**9 + 7, total - 1, total, 2 * total):
        fraction = _torch_device.fraction_within(limit, total)
        assert 0 <= fraction <= 1 and int(fraction * total) <= limit and (limit - int(fraction * total) < 64 or limit > total), (limit, fraction)
    torch.cuda.device_count = lambda: 2
    torch.cuda.get_device_properties = lambda device: type("Properties", (), {"total_memory": total})
    torch.cuda.set_per_process_memory_fraction = lambda fraction, device=None: told.__setitem__(device, fraction)
    torch.cuda.current_device = lambda: 1
    torch.cuda.device = lambda device: __import__("contextlib").nullcontext()
    _torch_device._limit(torch, 2**30)
    assert set(told) == {0, 1} and all(0 < 2**30 - int(f * total) + 1 < 64 for f in told.values()), told
    torch.cuda.set_per_process_memory_fraction(1.0, 0)  # the script wants more than its limit, and less
    torch.cuda.memory.set_per_process_memory_fraction(1e-3)
    torch.cuda.set_per_process_memory_fraction(1.0, "cuda:1")
    assert int(told[0] * total) <= 2**30 and told[None] == 1e-3 and int(told["cuda:1"] * total) <= 2**30, told


def check_child(page):
    """What a forked child does is not told as the job's GPU memory."""
    has = lambda: page._longs[DEVICE_USED // 8]  # noqa: E731
    reserved = [7]
    torch.cuda.memory_reserved = torch.cuda.max_memory_reserved = lambda device: reserved[0]
    _torch_device._MEASURE_EVERY_S = 0
    _torch_device._measure_often(torch, page)
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], 0.1)
    optimizer.step()
    assert has() == 14, has()
    reserved[0] = 0
    child = os.fork()
    if child == 0:
        optimizer.step()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0 and has() == 14, has()


def check_graphs(hook, words):
    """A recording that fails is none; a replay is an operator, also one that fails."""
    class Graph:
        def capture_begin(self, good):
            assert good

        def capture_end(self):
            pass

        def replay(self, good):
            self.busy = words[BUSY // 4]
            assert good

    calls = []
    played = type("Hook", (), {"sy_torch_hook_capture": lambda _, n: calls.append(n.value), "sy_torch_hook_enter": lambda _: hook.sy_torch_hook_enter(),
                               "sy_torch_hook_leave": lambda _: hook.sy_torch_hook_leave()})()
    torch.cuda.synchronize = lambda: None
    _torch_device._watch_graphs(torch, played, Graph)
    graph = Graph()
    for good in (True, False):
        for call in (graph.capture_begin, graph.replay):
            try:
                call(good)
                assert good
            except AssertionError:
                assert not good
        assert graph.busy == 1 and words[BUSY // 4] == 0
    graph.capture_end()
    assert calls == [1, 1, 0, 0], calls


def main():
    folder = sys.argv[1]
    device, worker = fake(folder), Worker(folder)
    hook = _torch_hook.library()
    assert hook is not None and hook.sy_torch_hook_device(ctypes.c_int(15)) == 19, "no table for that accelerator, and no ENODEV"
    kept = make_operators(device)
    check_start(hook)
    work(20)  # it learns what takes how long
    check_bound(device, SHORT_MS, LOOSE_MS)
    worker.pause(device)
    work(5)
    check_bound(device, SHORT_MS, BOUND_MS)
    time.sleep(TIGHT_FOR_S)
    check_bound(device, BOUND_MS, LOOSE_MS)
    thread = threading.Thread(target=work, args=(60,))
    thread.start()
    while thread.is_alive():
        worker.pause(device)
        time.sleep(0.003)
    assert worker.pauses > 20 and device.fake_n_drains() >= worker.pauses, (worker.pauses, device.fake_n_drains())
    worker.pause(device)  # nobody is in an operator
    device.fake_launch(30.0)
    torch.ones(1)
    worker.pause(device)  # and nobody looks: its own thread drains
    hook.sy_torch_hook_capture(1)  # nothing is asked of it, nothing bounded
    drains = device.fake_n_drains()
    work(2)
    worker.pause(device) if device.fake_in_flight() == 0 else time.sleep(0.05)
    assert device.fake_n_drains() == drains
    hook.sy_torch_hook_capture(0)
    check_graphs(hook, worker.words)
    check_memory()
    check_child(worker.page)
    del kept
    print("ok")


if __name__ == "__main__":
    main()
