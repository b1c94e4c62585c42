"""A PyTorch script as a job of a running server, from within.

    import switchyard.torch
    switchyard.torch.join(name="resnet")
    for x, y in loader:
        ...
        switchyard.torch.step(loss=loss, total=1000)

Under `switchyard run` nothing of this is needed; `step` works there too, and `join` does nothing.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
from typing import Any, Optional

from . import _torch_hook
from .errors import SwitchyardError

__all__ = ["join", "step", "is_joined"]

_helper: Optional["subprocess.Popen[str]"] = None


def _program() -> str:
    here = os.path.dirname(os.path.abspath(__file__))
    for place in (os.environ.get("SWITCHYARD"), shutil.which("switchyard"), os.path.join(here, "..", "..", "..", "build", "switchyard")):
        if place and os.access(place, os.X_OK):
            return place
    raise SwitchyardError("the program 'switchyard' is not on PATH; the variable SWITCHYARD names it")


def is_joined() -> bool:
    """Whether this process is a job of a server."""
    return _torch_hook.page() is not None


def join(*, name: Optional[str] = None, socket: Optional[str] = None, tenant: Optional[str] = None, opportunistic: bool = False, priority: int = 0,
         memory_bytes: int = 0, total_steps: int = 0) -> None:
    """Makes this process a job; returns once it was admitted. A helper process (`switchyard run --pid`) stands between it and the server. Under `switchyard
    run` it is a job already. SwitchyardError: no server, no program, or the job was refused; the helper has said why on stderr."""
    global _helper
    path = os.environ.get("SWITCHYARD_SCRIPT_PAGE")
    if is_joined():
        return
    if path:
        _torch_hook.start(path)
        return
    command = [_program(), "run", "--pid", str(os.getpid()), "--priority", str(priority), "--memory", str(memory_bytes), "--steps", str(total_steps),
               "--name", name or os.path.basename(getattr(__import__("__main__"), "__file__", "script"))]
    command += ["--socket", socket] if socket else []
    command += ["--tenant", tenant] if tenant else []
    command += ["--class", "opportunistic"] if opportunistic else []
    _helper = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, start_new_session=True)
    assert _helper.stdout is not None
    said = _helper.stdout.readline().split()
    if not said:
        raise SwitchyardError(f"not joined: 'switchyard run --pid' ended with status {_helper.wait()}")
    atexit.register(_say_goodbye)
    _torch_hook.start(said[0])


def _say_goodbye() -> None:
    """The helper sees the end of this process by itself; it must not be waited for here."""
    if _helper is not None and _helper.stdout is not None:
        _helper.stdout.close()
        _helper.returncode = 0


def step(loss: Any = None, total: Optional[int] = None) -> None:
    """An iteration is over. loss: a number, or a tensor of one element. total: how many iterations there will be, in all. From the first call on these are the
    job's steps; before, optimizer steps are counted. Without a server it does nothing."""
    page = _torch_hook.page()
    if page is None:
        return
    _torch_hook.stop_counting()
    page.add_step(None if loss is None else float(getattr(loss, "detach", lambda: loss)()), total)
