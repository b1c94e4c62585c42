#!/usr/bin/env python3
"""What the package does in a PyTorch process, without PyTorch: who counts a script's steps and who is waited for, when its processes start and end in any order; what
`switchyard import` says of a file that PyTorch does not read; the order of a bench's blocks.

    script_page_check.py
"""
import builtins
import os
import struct
import subprocess
import sys
import tempfile
import types

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "runtime/python"), os.path.join(ROOT, "bench"), os.path.join(ROOT, "tests/peers/torch_scripts")]
from switchyard import _torch_export, _torch_hook  # noqa: E402
from checks import run_tests  # noqa: E402

OWNER, HOOK, STEP, STEPPER = _torch_hook._OWNER, _torch_hook._HOOK, _torch_hook._STEP, _torch_hook._STEPPER


class Other:
    """Another process of the script's."""

    def __init__(self):
        self.process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        self.pid = self.process.pid

    def end(self):
        self.process.kill()
        self.process.communicate()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


class PageFile:
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="script_page")
        self.path = f"{self.folder.name}/page"
        with open(self.path, "wb") as file:
            file.write(struct.pack("<Q", _torch_hook._MAGIC).ljust(4096, b"\0"))

    def read(self, kind, at):
        with open(self.path, "rb") as file:
            return struct.unpack_from(kind, file.read(), at)[0]

    def write(self, kind, at, value):
        with open(self.path, "r+b") as file:
            file.seek(at)
            file.write(struct.pack(kind, value))

    def put(self, at, pid, started):
        self.write("<I", at, pid)
        self.write("<Q", _torch_hook._STARTED[at], started)

    def page(self):
        return _torch_hook.Page(self.path)


def check_places():
    """A process keeps its place until it has ended, also if its pid is another's then."""
    file = PageFile()
    with Other() as other:
        for started in (_torch_hook._start_of(other.pid), 0):  # 0: it did not say
            file.put(OWNER, other.pid, started)
            assert not file.page().claim() and file.read("<I", OWNER) == other.pid
        file.put(OWNER, other.pid, _torch_hook._start_of(other.pid) - 1)
        assert file.page().claim() and file.page().claim() and file.read("<I", OWNER) == os.getpid()
        file.put(OWNER, other.pid, 0)
    assert file.page().claim()
    file.put(OWNER, os.getpid(), 1)  # this pid was another's
    assert file.page().claim()
    if os.fork() == 0:
        os._exit(int(file.page().claim()))
    assert os.wait()[1] == 0, "a child took the place of its parent, which runs"


def check_reaped_while_read():
    """The kernel says ESRCH to who reads the file of a process that has been reaped since."""
    file = PageFile()
    page = file.page()

    def open_and_reap(path, *more):
        opened = builtins.open(path, *more)
        if path == f"/proc/{other.pid}/stat":
            other.end()
        return opened

    with Other() as other:
        file.put(STEPPER, other.pid, 0)
        _torch_hook.open = open_and_reap
        try:
            page.add_step(None, None)
        finally:
            del _torch_hook.open
    assert file.read("<Q", STEP) == 1 and file.read("<I", STEPPER) == os.getpid()


def check_steps():
    """Ranks' steps count once, however late the last one comes; those of processes that follow one another add up."""
    file = PageFile()
    with Other() as first:
        rank = file.page()
        file.put(STEPPER, first.pid, 0)
        for step in range(1, 8):
            file.write("<Q", STEP, step)
            if step < 7:
                rank.add_step(None, None)
    rank.add_step(None, None)
    assert file.read("<Q", STEP) == 7, file.read("<Q", STEP)
    rank.add_step(None, None)
    assert file.read("<Q", STEP) == 8
    file.put(STEPPER, first.pid, 0)
    file.page().add_step(None, None)
    assert file.read("<Q", STEP) == 9, "of a process that started after the others"


def check_refused():
    """A step that cannot be counted is no failure of the script's, and is counted with the next one."""
    file = PageFile()
    page = file.page()
    page.path = "/nowhere/at/all"
    page.add_step(None, None)
    assert file.read("<Q", STEP) == 0
    page.path = file.path
    page.add_step(2.5, 9)
    assert file.read("<Q", STEP) == 2 and file.read("<d", _torch_hook._LOSS) == 2.5 and file.read("<Q", _torch_hook._TOTAL) == 9


def fake_torch(**more):
    """As much of PyTorch as the hook in Python calls."""
    names = ("register_module_forward_pre_hook", "register_optimizer_step_pre_hook", "register_optimizer_step_post_hook")
    module = types.SimpleNamespace(**{name: lambda hook: hook for name in names})
    cuda = types.SimpleNamespace(_lazy_call=lambda call: None)
    torch = types.ModuleType("torch")
    vars(torch).update(__version__="0", __file__=__file__, nn=types.SimpleNamespace(modules=types.SimpleNamespace(module=module)), cuda=cuda, **more)
    sys.modules.update({"torch": torch, "torch.optim": types.ModuleType("torch.optim"), "torch.optim.optimizer": module})


def check_owner_is_decided_once():
    """Who was not the owner when the hook's library started is not later either: that does not look again."""
    file = PageFile()
    fake_torch()
    paths, os.environ["PATH"], os.environ["XDG_CACHE_HOME"] = os.environ["PATH"], "/nowhere", file.folder.name
    os.environ.pop("CXX", None)
    try:
        with Other() as other:
            file.put(OWNER, other.pid, 0)
            _torch_hook.start_library(file.path)  # no compiler: the hook in Python
        _torch_hook.start(file.path)
    finally:
        os.environ["PATH"] = paths
    assert file.read("<I", OWNER) == other.pid and file.read("<I", HOOK) == 0, (file.read("<I", OWNER), os.getpid())
    assert file.page().claim(), "the place is free for the next process"


def check_error_without_words():
    for words, error in (("AssertionError", AssertionError()), ("AssertionError", AssertionError(" \n")), ("what is wrong", ValueError("so\nwhat is wrong. And more"))):
        def load(_, error=error):
            raise error

        fake_torch(export=types.SimpleNamespace(load=load))
        try:
            _torch_export._load_program("x.pt2")
            raise SystemExit("it was not refused")
        except _torch_export.Refused as refused:
            assert f"({words})" in str(refused), refused


def check_blocks():
    """As many as were asked for, of both ways the same."""
    import torch_jobs

    for blocks in range(1, 9):
        turns = torch_jobs.turns(blocks)
        assert blocks <= turns.count(True) == turns.count(False) <= blocks + 1, (blocks, turns)


def main():
    return 1 if run_tests((check_places, check_reaped_while_read, check_steps, check_refused, check_owner_is_decided_once, check_error_without_words, check_blocks)) else 0


if __name__ == "__main__":
    sys.exit(main())
