"""Client of a running Switchyard server.

    import numpy as np
    import switchyard

    with switchyard.Client() as client:
        result = client.infer("resnet50", {"input": np.zeros((1, 3, 224, 224), np.float32)})
        print(result["output"].argmax(), result.timing.total_ns)
"""

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

from . import errors
from .errors import (Busy, Canceled, ConnectionLost, Corrupt, Deadline, Denied, DeviceFailed, InputOutput, InternalError, InvalidArgument, JobFailed,
                     NoAnswer, NoDevice, NotFound, OutOfDeviceMemory, OutOfMemory, PeerGone, ProtocolError, SwitchyardError, TooLarge,
                     Unsupported)

if TYPE_CHECKING:
    from ._client import Client, Result, Timing, default_address
    from ._jobs import Jobs
    from ._lists import list_of, parts_of
    from ._models import Model, Port
    from ._session import Session

# Imported when they are first asked for: switchyard.torch needs neither numpy nor msgpack.
_LATER = {"Client": "_client", "Result": "_client", "Timing": "_client", "default_address": "_client", "Jobs": "_jobs", "list_of": "_lists",
          "parts_of": "_lists", "Model": "_models", "Port": "_models", "Session": "_session"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'switchyard' has no attribute '{name}'")
    value = getattr(import_module(f"switchyard.{_LATER[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


try:
    __version__ = metadata.version("switchyard")
except metadata.PackageNotFoundError:  # the sources, not installed
    __version__ = "0"

__all__ = [
    "Busy", "Canceled", "Client", "ConnectionLost", "Corrupt", "Deadline", "Denied", "DeviceFailed", "InputOutput", "InternalError", "InvalidArgument",
    "JobFailed", "Jobs", "Model", "NoAnswer", "NoDevice", "NotFound", "OutOfDeviceMemory", "OutOfMemory", "PeerGone", "Port",
    "ProtocolError", "Result", "Session", "SwitchyardError", "Timing", "TooLarge", "Unsupported", "default_address", "errors", "list_of", "parts_of",
]
