"""A sequence of requests whose model keeps tensors at the server in between: a decoder and its keys and values."""
from __future__ import annotations

import uuid
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Optional

from .errors import NotFound, SwitchyardError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ._client import Client, Result


class Session:
    """Inputs that the server keeps ("past...") are left out of each request, outputs that it keeps ("present...") are in no result. One request at a time.
    A request that fails leaves the session as it was. One that is idle for too long (serve --session-idle) ends: NotFound."""

    def __init__(self, client: Client, model: str, *, version: Optional[int] = None, tenant: Optional[str] = None) -> None:
        self.id = uuid.uuid4().hex
        self._client, self._model, self._version, self._tenant = client, model, version, tenant
        self._started = False

    def infer(self, inputs: Mapping[str, ArrayLike], *, end: bool = False, **options: Any) -> Result:
        """As Client.infer, with its class_, deadline, outputs and timeout. end: the session is over with this request."""
        try:
            result = self._client.infer(self._model, inputs, version=self._version, tenant=self._tenant, session=self.id,
                                        session_start=not self._started, session_end=end, **options)
        except NotFound:
            self._started = False  # the next request begins anew
            raise
        self._started = not end
        return result

    def close(self) -> None:
        """Ends it, if it has begun; the server's memory for it is free then."""
        if self._started:
            self._started = False
            self._client.end_session(self._model, self.id, tenant=self._tenant)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        try:
            self.close()
        except SwitchyardError:
            if error is None:
                raise
