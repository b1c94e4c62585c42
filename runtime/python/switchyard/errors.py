"""What calls raise. Each has `status`, the server's name for the kind of error, and says in its text what failed and what to try."""

from __future__ import annotations

from typing import Any


class SwitchyardError(Exception):
    """The base of all errors of this package."""

    status = "EPROTO"

    def __init__(self, message: str, status: str | None = None) -> None:
        super().__init__(message)
        if status is not None:
            self.status = status


class InvalidArgument(SwitchyardError, ValueError):
    """A wrong name, shape, dtype or value."""

    status = "EARG"


class OutOfMemory(SwitchyardError, MemoryError):
    """Host memory of the server (its tensor slab, its image) can never hold it."""

    status = "ENOMEM_HOST"


class OutOfDeviceMemory(SwitchyardError, MemoryError):
    """It does not fit into the device's memory pool."""

    status = "ENOMEM_DEVICE"


class NoDevice(SwitchyardError):
    status = "ENODEVICE"


class DeviceFailed(SwitchyardError):
    status = "EDEVICE"


class PeerGone(SwitchyardError):
    """Worker processes died while they computed the request."""

    status = "EPEER"


class ConnectionLost(PeerGone, ConnectionError):
    """No server answers, or it closed the connection. Make a new Client; memory shared with the old one is no longer read by a server."""


class ProtocolError(SwitchyardError):
    status = "EPROTO"


class Busy(SwitchyardError):
    """Not now: a full queue, a model that is loading, a limit that is reached. Try again later."""

    status = "EBUSY"


class Deadline(SwitchyardError):
    """The request would end after its deadline, by prediction, or did."""

    status = "EDEADLINE"


class NoAnswer(Deadline, TimeoutError):
    """The server did not answer within the call's timeout. The call may still take effect."""


class Corrupt(SwitchyardError):
    status = "ECORRUPT"


class Unsupported(SwitchyardError):
    status = "EUNSUPPORTED"


class NotFound(SwitchyardError, LookupError):
    status = "ENOTFOUND"


class InputOutput(SwitchyardError):
    status = "EIO"


class Canceled(SwitchyardError):
    status = "ECANCELED"


class TooLarge(SwitchyardError):
    status = "ETOOBIG"


class Denied(SwitchyardError):
    """The token is none of the server's, or lacks the right."""

    status = "EDENIED"


class InternalError(SwitchyardError):
    """A defect of the server."""

    status = "EBUG"


class JobFailed(SwitchyardError):
    """A training job ended with an error. `job` is its row of the status."""

    status = "EIO"

    def __init__(self, message: str, job: dict[str, Any]) -> None:
        super().__init__(message)
        self.job = job


_BY_STATUS: dict[str, type[SwitchyardError]] = {
    kind.status: kind
    for kind in (InvalidArgument, OutOfMemory, OutOfDeviceMemory, NoDevice, DeviceFailed, PeerGone, ProtocolError, Busy, Deadline,
                 Corrupt, Unsupported, NotFound, InputOutput, Canceled, TooLarge, Denied, InternalError)
}


def from_wire(error: object) -> SwitchyardError:
    """The error that an answer of the server holds."""
    if not isinstance(error, dict):
        return ProtocolError(f"the server answered with an error of an unknown form: {error!r}")
    status, message = str(error.get("status")), str(error.get("message"))
    return _BY_STATUS.get(status, SwitchyardError)(message, status)
