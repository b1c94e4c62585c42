"""Client of a running Switchyard server.

    import numpy as np
    import switchyard

    with switchyard.Client() as client:
        result = client.infer("resnet50", {"input": np.zeros((1, 3, 224, 224), np.float32)})
        print(result["output"].argmax(), result.timing.total_ns)
"""

from importlib import metadata

from . import errors
from ._client import Client, Result, Timing, default_address
from ._jobs import Jobs
from ._lists import list_of, parts_of
from ._models import Model, Port
from ._session import Session
from .errors import (Busy, Canceled, ConnectionLost, Corrupt, Deadline, Denied, DeviceFailed, InputOutput, InternalError, InvalidArgument, JobFailed,
                     NoAnswer, NoDevice, NotFound, OutOfDeviceMemory, OutOfMemory, PeerGone, ProtocolError, SwitchyardError, TooLarge,
                     Unsupported)

try:
    __version__ = metadata.version("switchyard")
except metadata.PackageNotFoundError:  # the sources, not installed
    __version__ = "0"

__all__ = [
    "Busy", "Canceled", "Client", "ConnectionLost", "Corrupt", "Deadline", "Denied", "DeviceFailed", "InputOutput", "InternalError", "InvalidArgument",
    "JobFailed", "Jobs", "Model", "NoAnswer", "NoDevice", "NotFound", "OutOfDeviceMemory", "OutOfMemory", "PeerGone", "Port",
    "ProtocolError", "Result", "Session", "SwitchyardError", "Timing", "TooLarge", "Unsupported", "default_address", "errors", "list_of", "parts_of",
]
