"""The hook in a PyTorch process: the C++ one (workers/torch/torch_hook.cc), built once for this PyTorch; without a compiler one in Python, which looks at each
module and each optimizer step. Both stand at the gate of the script page (workers/torch/script_page.h)."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import importlib
import mmap
import os
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
from typing import Any, Optional

from . import _torch_device

_PAGE_BYTES = 4096
_MAGIC = 0x3365676150795331
_GATE, _OWNER, _HOOK, _STEP, _TOTAL, _LOSS, _PEAK = 64, 192, 196, 200, 208, 216, 232  # offsets in script_page.h
_LIMIT, _DEVICE_LIMIT, _DEVICE_USED, _STEPPER = 8, 16, 248, 308
_STARTED = {_OWNER: 824, _STEPPER: 832}  # where the start of the process stands whose pid stands there
_SOURCES = ("torch_hook.cc", "torch_flight.hh", "torch_spill.hh", "script_page.h")
_MODULES, _OPERATORS = 1, 2
_FUTEX = {"x86_64": 202, "aarch64": 98}
_BUILD_TIMEOUT_S = 600.0

_page: Optional["Page"] = None
_hook: Optional[ctypes.CDLL] = None


def _start_of(pid: int) -> int:
    """When that process started, in ticks since the machine did; 0: it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as line:
            fields = line.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):  # the latter: it was reaped between open and read
        return 0
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])


class Page:
    """The script page, as far as Python writes it."""

    def __init__(self, path: str) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._map = mmap.mmap(fd, _PAGE_BYTES)
        finally:
            os.close(fd)
        if self._read("<Q", 0) != _MAGIC:
            raise RuntimeError("the script page is of another version of Switchyard")
        self.path = path
        self._words = memoryview(self._map).cast("I")
        self._longs = memoryview(self._map).cast("Q")
        self._me = 0, 0  # pid and start, once they were asked for
        self._own_steps = self._longs[_STEP // 8]  # this process's, on top of what was counted before it started

    def _read(self, kind: str, at: int) -> int:
        return int(struct.unpack_from(kind, self._map, at)[0])

    def _is_taken(self, at: int) -> bool:
        """Whether the process of the pid there runs. A start of 0 is one that nobody wrote: then the pid alone tells."""
        pid, started = self._words[at // 4], self._longs[_STARTED[at] // 8]
        now = _start_of(pid) if pid else 0
        return now != 0 and started in (0, now)

    def _take(self, at: int) -> bool:
        """Whether the pid there is this process's: it becomes so if there is none, or that process has ended (its pid may be another's by now)."""
        own = os.getpid()
        if self._me[0] != own:  # also after a fork
            self._me = own, _start_of(own)
        if (self._words[at // 4], self._longs[_STARTED[at] // 8]) == self._me:
            return True
        if self._is_taken(at):
            return self._words[at // 4] == own
        with open(self.path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not self._is_taken(at):
                self._longs[_STARTED[at] // 8] = self._me[1]
                self._words[at // 4] = own
            return self._words[at // 4] == own

    def _counts(self) -> bool:
        """Whether the job's steps are this process's. What the system refuses is no failure of the script's: a later step tries again."""
        try:
            return self._take(_STEPPER)
        except OSError:
            return False

    def claim(self) -> bool:
        """True: this process is the one whose operators are waited for; else another of the script's is."""
        return self._take(_OWNER)

    def set_hook(self, kind: int) -> None:
        self._words[_HOOK // 4] = kind

    @property
    def is_closed(self) -> bool:
        return bool(self._words[_GATE // 4] & 1)

    @property
    def limit_bytes(self) -> int:
        return self._longs[_LIMIT // 8]

    @property
    def peak_bytes(self) -> int:
        """The most that the job's tensors had; counted under a limit only."""
        return self._longs[_PEAK // 8]

    @property
    def device_limit_bytes(self) -> int:
        return self._longs[_DEVICE_LIMIT // 8]

    def set_device_memory(self, used: int, peak: int, refused: int) -> None:
        for i, value in enumerate((used, peak, refused)):
            self._longs[_DEVICE_USED // 8 + i] = value

    def add_step(self, loss: Optional[float], total: Optional[int]) -> None:
        """Counts for the first process that comes here, which may be a rank below a launcher; the others' steps are the same ones. A rank whose last steps
        come after that process has ended takes its place, and adds only those that were not counted yet."""
        self._own_steps += 1
        if not self._counts():
            return
        if loss is not None:
            self._longs[_LOSS // 8] = struct.unpack("<Q", struct.pack("<d", loss))[0]
        if total is not None:
            self._longs[_TOTAL // 8] = total
        self._longs[_STEP // 8] = max(self._longs[_STEP // 8], self._own_steps)

    def stand(self) -> None:
        """Sleeps while the gate is closed. From Python: the caller counts as no operator, so nobody waits for it."""
        word = ctypes.c_uint32.from_buffer(self._map, _GATE)
        libc = ctypes.CDLL(None, use_errno=True)
        number = _FUTEX[os.uname().machine]
        while word.value & 1:
            libc.syscall(number, ctypes.byref(word), 0, word.value, None, None, 0)


# ---- the C++ hook ------------------------------------------------------------------------------


def _sources() -> Optional[str]:
    """The folder with the hook in C++: of an installed package, or of the source tree."""
    here = os.path.dirname(os.path.abspath(__file__))
    for folder in (os.path.join(here, "_run"), os.path.join(here, "..", "..", "..", "workers", "torch")):
        if all(os.path.exists(os.path.join(folder, name)) for name in _SOURCES):
            return os.path.abspath(folder)
    return None


def _compiler() -> Optional[str]:
    return shutil.which(os.environ.get("CXX", "g++")) or shutil.which("c++")


def _usual_cache() -> Optional[str]:
    """None: there is no home, and below the working folder may lie what others wrote."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "switchyard", "torch") if os.path.isabs(base) else None


def _is_own(folder: str) -> bool:
    """Nobody else (but root) can write in it, or put another in its place. No symbolic link: its target may be another's."""
    found, above = os.lstat(folder), os.stat(os.path.dirname(folder))
    is_kept = above.st_uid in (0, os.getuid()) and (not above.st_mode & 0o022 or bool(above.st_mode & stat.S_ISVTX))
    return is_kept and stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _cache() -> str:
    """A folder to write in: the usual one, or where that cannot be written (a home that is read-only, or none) one among the system's temporary files, if it is
    the user's alone: what lies in it is loaded into the script."""
    usual, other = _usual_cache(), os.path.join(tempfile.gettempdir(), f"switchyard-torch-{os.getuid()}")
    try:
        if usual is not None:
            os.makedirs(usual, exist_ok=True)
            if os.access(usual, os.W_OK):
                return usual
    except OSError:
        pass
    try:
        os.mkdir(other, mode=0o700)
    except FileExistsError:
        pass  # of an earlier run, or another user's
    if not _is_own(other):
        raise OSError(errno.EPERM, f"nothing is built: {other} is not a folder in which this user alone can write, and {usual or 'a home'} cannot be written")
    return other


def _library(torch: Any, folder: str) -> str:
    """Where the hook for this PyTorch and these sources lies, or is to lie."""
    digest = hashlib.sha256(os.path.realpath(torch.__file__).encode())
    for name in _SOURCES:
        with open(os.path.join(folder, name), "rb") as source:
            digest.update(source.read())
    name = f"hook-{torch.__version__}-{digest.hexdigest()[:16]}.so"
    usual = _usual_cache()
    if usual is not None and os.path.exists(os.path.join(usual, name)):
        return os.path.join(usual, name)  # also where it cannot be written
    return os.path.join(_cache(), name)


def _environment() -> dict[str, str]:
    """The compiler is no part of the job."""
    return {key: value for key, value in os.environ.items() if key not in ("SWITCHYARD_SCRIPT_PAGE", "LD_PRELOAD", "PYTHONPATH")}


def _build(torch: Any, folder: str, compiler: str, library: str) -> None:
    root = os.path.dirname(torch.__file__)
    made = tempfile.NamedTemporaryFile(dir=os.path.dirname(library), suffix=".so", delete=False)
    made.close()
    print(f"switchyard: building the hook for PyTorch {torch.__version__} (once, into {os.path.dirname(library)})", file=sys.stderr)
    abi = int(sys.modules["torch._C"]._GLIBCXX_USE_CXX11_ABI)  # while torch is imported, it has no _C yet
    command = [compiler, "-O2", "-std=c++20", "-fPIC", "-shared", "-Wl,-z,now", f"-D_GLIBCXX_USE_CXX11_ABI={abi}", "-I" + os.path.join(root, "include"), "-I" + folder,
               os.path.join(folder, "torch_hook.cc"), "-o", made.name, "-L" + os.path.join(root, "lib"), "-lc10", "-ltorch_cpu"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S, env=_environment())
        if done.returncode != 0:
            raise RuntimeError("g++: " + next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[-200:]))
        os.rename(made.name, library)  # whole, or not there
    finally:
        if os.path.exists(made.name):
            os.unlink(made.name)


def _start_operators(torch: Any, page: Page) -> None:
    folder, compiler = _sources(), _compiler()
    if folder is None:
        raise RuntimeError("torch_hook.cc is not installed")
    global _hook
    library = _library(torch, folder)
    if not os.path.exists(library):
        if compiler is None:
            raise RuntimeError("no C++ compiler")
        _build(torch, folder, compiler, library)
    hook = ctypes.CDLL(library, use_errno=True)
    if hook.sy_torch_hook_start(page.path.encode()) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), page.path)
    _hook = hook


# ---- the hook in Python, and steps ---------------------------------------------------------------


def _start_modules(torch: Any, page: Page, is_owner: bool) -> None:
    def look(*_: Any) -> None:
        if page.is_closed:
            if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
                torch.cuda.synchronize()
            page.stand()

    torch.nn.modules.module.register_module_forward_pre_hook(look)
    importlib.import_module("torch.optim.optimizer").register_optimizer_step_pre_hook(look)
    if is_owner:
        page.set_hook(_MODULES)


def _count_steps(page: Page) -> Any:
    def count(*_: Any) -> None:
        page.add_step(None, None)

    return importlib.import_module("torch.optim.optimizer").register_optimizer_step_post_hook(count)


_counting: Any = None


def stop_counting() -> None:
    """The script says itself what a step is."""
    global _counting
    if _counting is not None:
        _counting.remove()
    _counting = None


def page() -> Optional[Page]:
    return _page


def library() -> Optional[ctypes.CDLL]:
    """The C++ hook, if it is what looks."""
    return _hook


_LOST = (RuntimeError, OSError, subprocess.SubprocessError)
_early: Optional[tuple[Page, bool, Optional[Exception]]] = None  # the page, whether this process is the owner, what kept the C++ hook away


def start_library(path: str) -> None:
    """The C++ hook alone, while `import torch` is under way; `start` says if that failed."""
    global _early
    found, failed = Page(path), None
    is_owner = found.claim()  # once: the C++ hook, too, looks whose the page is only when it starts
    try:
        _start_operators(sys.modules["torch"], found)
    except _LOST as error:
        failed = error
    _early = found, is_owner, failed


def start(path: str) -> Page:
    """Puts the hooks into this process. At most once; later calls return the page."""
    global _page, _counting
    if _page is not None:
        return _page
    import torch

    if _early is None:
        start_library(path)
    assert _early is not None
    found, is_owner, error = _early
    if error is not None:
        lost = "; the memory limit is not kept" if found.limit_bytes else ""
        print(f"switchyard: no look per operator ({error}): the script is preempted between modules, or stopped{lost}", file=sys.stderr)
        _start_modules(torch, found, is_owner)
    _counting = _count_steps(found)
    if is_owner or found.device_limit_bytes:
        _torch_device.arrange(torch, found, _hook, is_owner)
    _page = found
    return found
