"""A job's GPUs: its memory limit there, what it has of it, and what launches without being an operator. Done when the script first uses CUDA; it costs nothing
before. How what is in flight is bounded: workers/torch/torch_flight.hh."""

from __future__ import annotations

import atexit
import ctypes
import errno
import functools
import importlib
import math
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    from ._torch_hook import Page

_CUDA = 1  # c10::DeviceType
_MEASURE_EVERY_S = 0.1


def arrange(torch: Any, page: "Page", hook: Optional[ctypes.CDLL], is_owner: bool) -> None:
    """Without the C++ hook the limit is kept all the same."""
    process = os.getpid()
    torch.cuda._lazy_call(lambda: _begin(torch, page, hook, is_owner and os.getpid() == process))


def _begin(torch: Any, page: "Page", hook: Optional[ctypes.CDLL], is_owner: bool) -> None:
    """Must not raise: the script's first use of CUDA would fail. A child has a limit of its own, and is not counted."""
    try:
        if page.device_limit_bytes:
            _limit(torch, page.device_limit_bytes)
    except Exception as error:
        print(f"switchyard: the memory limit on GPUs is not kept: {error!r}", file=sys.stderr)
    if not is_owner:
        return
    try:
        _measure_often(torch, page)
        if hook is not None:
            _watch(torch, hook)
    except Exception as error:
        print(f"switchyard: a pause does not wait for the GPU: {error!r}", file=sys.stderr)


# ---- memory ------------------------------------------------------------------------------------


def fraction_within(limit: int, total: int) -> float:
    """The largest fraction of which PyTorch makes no more than `limit` bytes of `total`."""
    fraction = min(1.0, limit / total)
    while fraction * total > limit:
        fraction = math.nextafter(fraction, 0.0)
    return fraction


def _limit(torch: Any, limit: int) -> None:
    """PyTorch's caching allocator refuses, exactly and after it has freed what it only kept. The script can set itself less, not more."""
    totals = {device: torch.cuda.get_device_properties(device).total_memory for device in range(torch.cuda.device_count())}
    most = {device: fraction_within(limit, total) for device, total in totals.items()}
    here = torch.cuda.current_device()
    theirs = torch.cuda.set_per_process_memory_fraction

    @functools.wraps(theirs)
    def set_fraction(fraction: float, device: Any = None) -> None:
        index = torch.cuda.current_device() if device is None else torch.device(device if not isinstance(device, int) else f"cuda:{device}").index
        index = torch.cuda.current_device() if index is None else index
        theirs(min(fraction, most[index]) if isinstance(fraction, float) else fraction, device)

    for device, total in totals.items():
        if total == totals[here]:  # PyTorch asks the current GPU for its total; making another one current would cost a context there
            theirs(most[device], device)
            continue
        with torch.cuda.device(device):
            theirs(most[device], device)
    torch.cuda.set_per_process_memory_fraction = torch.cuda.memory.set_per_process_memory_fraction = set_fraction


def _measure(torch: Any, page: "Page", is_last: bool = False) -> None:
    devices = range(torch.cuda.device_count())
    refused = sum(torch.cuda.memory_stats(device).get("num_ooms", 0) for device in devices) if is_last else 0
    page.set_device_memory(sum(map(torch.cuda.memory_reserved, devices)), max(map(torch.cuda.max_memory_reserved, devices), default=0), refused)


def _measure_often(torch: Any, page: "Page") -> None:
    last, owner = time.monotonic(), os.getpid()

    def measure(*_: Any) -> None:
        nonlocal last
        if time.monotonic() - last >= _MEASURE_EVERY_S and os.getpid() == owner:
            _measure(torch, page)
            last = time.monotonic()

    def measure_last() -> None:
        if os.getpid() == owner:  # a forked child has this hook too, and no GPU
            _measure(torch, page, True)

    importlib.import_module("torch.optim.optimizer").register_optimizer_step_post_hook(measure)  # torch.optim may not be imported yet
    atexit.register(measure_last)


# ---- what is in flight ---------------------------------------------------------------------------


def _watch(torch: Any, hook: ctypes.CDLL) -> None:
    failed = hook.sy_torch_hook_device(ctypes.c_int(_CUDA))
    if failed == errno.ENOTSUP:
        raise OSError(failed, f"PyTorch {torch.__version__} is too old for it")
    if failed:
        raise OSError(failed, errno.errorcode.get(failed, "?"))
    graph = getattr(torch.cuda, "CUDAGraph", None)
    if graph is not None and hasattr(graph, "capture_begin"):
        _watch_graphs(torch, hook, graph)


def _watch_graphs(torch: Any, hook: ctypes.CDLL, graph: Any) -> None:
    """While a CUDA graph is recorded nothing of the GPU may be asked for; its replay is no operator of PyTorch's, and is one here."""

    begin, end, replay = graph.capture_begin, graph.capture_end, graph.replay

    def capture(begins: bool) -> None:
        hook.sy_torch_hook_capture(ctypes.c_int(begins))

    @functools.wraps(begin)
    def capture_begin(*args: Any, **kwargs: Any) -> None:
        torch.cuda.synchronize()
        capture(True)
        try:
            begin(*args, **kwargs)
        except BaseException:
            capture(False)
            raise

    @functools.wraps(end)
    def capture_end(*args: Any, **kwargs: Any) -> None:
        try:
            end(*args, **kwargs)
        finally:
            capture(False)

    @functools.wraps(replay)
    def replay_as_operator(*args: Any, **kwargs: Any) -> None:
        hook.sy_torch_hook_enter()
        try:
            replay(*args, **kwargs)
        finally:
            hook.sy_torch_hook_leave()

    graph.capture_begin, graph.capture_end, graph.replay = capture_begin, capture_end, replay_as_operator
