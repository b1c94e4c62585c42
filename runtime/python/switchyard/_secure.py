"""A server on another machine: the token that a client shows, and TLS."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Callable
from typing import NamedTuple, Optional, Union

from .errors import ConnectionLost, InvalidArgument

Path = Union[str, "os.PathLike[str]"]
_RECORD = 1 << 14
_TURN = 1 << 20


class Security(NamedTuple):
    token: Optional[str] = None
    token_file: Optional[Path] = None
    tls_ca: Optional[Path] = None
    tls_name: Optional[str] = None

    def secret(self, is_tcp: bool) -> Optional[str]:
        """The token to show. The environment counts for TCP alone."""
        if self.token is not None:
            return self.token
        path = self.token_file or (os.environ.get("SWITCHYARD_TOKEN_FILE") if is_tcp else None)
        if not path:
            return None
        try:
            with open(path, encoding="utf-8") as text:
                words = text.readline().split()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"the token file {os.fspath(path)}: {error}") from error
        if len(words) != 1:
            raise InvalidArgument(f"the token file {os.fspath(path)} holds no token: one line with the secret alone "
                                  "(not the server's lines NAME TOKEN RIGHTS)")
        return words[0]

    def context(self) -> Optional[ssl.SSLContext]:
        """None: plain TCP."""
        path = self.tls_ca or os.environ.get("SWITCHYARD_TLS_CA")
        if not path:
            return None
        try:
            context = ssl.create_default_context(cafile=None if path == "system" else os.fspath(path))
        except (OSError, ssl.SSLError) as error:
            raise InvalidArgument(f"TLS: cannot read the certificates of {os.fspath(path)}: {error}") from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context


class TlsSocket:
    """A connected socket with TLS, as much of a socket as a connection needs: non-blocking, one lock for both directions, as OpenSSL asks for."""

    def __init__(self, plain: ssl.SSLSocket) -> None:
        self._socket = plain
        self._lock = threading.Lock()
        self.family = plain.family

    def fileno(self) -> int:
        return self._socket.fileno()

    def setblocking(self, blocking: bool) -> None:
        self._socket.setblocking(blocking)

    def pending(self) -> int:
        with self._lock:
            return self._socket.pending() if self._socket.fileno() >= 0 else 0

    def sendmsg(self, parts: list[Union[bytes, memoryview]]) -> int:
        data = memoryview(parts[0] if len(parts[0]) >= _RECORD else _join(parts))  # short ones go out as one record
        return self._repeat(self._socket.send, data)

    def recv(self, n: int) -> bytes:
        try:
            with self._lock:
                return self._socket.recv(n)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError from error

    def recv_into(self, to: memoryview) -> int:
        return self._repeat(self._socket.recv_into, to)

    def _repeat(self, step: Callable[[memoryview], int], data: memoryview) -> int:
        """A record at a time, until it would block. The other direction waits for at most _TURN bytes."""
        done = 0
        with self._lock:
            try:
                while done < min(len(data), _TURN):
                    n = step(data[done:])
                    if n == 0:
                        break
                    done += n
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError) as error:
                if done == 0:
                    raise BlockingIOError from error
        return done

    def shutdown(self, how: int) -> None:
        self._socket.shutdown(how)

    def close(self) -> None:
        self._socket.close()


def _join(parts: list[Union[bytes, memoryview]]) -> bytes:
    """The first record's worth; tried again, it is the same bytes."""
    taken, n = [], 0
    for part in parts:
        taken.append(bytes(part[: _RECORD - n]))
        n += len(taken[-1])
        if n == _RECORD:
            break
    return b"".join(taken)


def wrap(plain: socket.socket, context: ssl.SSLContext, name: str, address: str) -> TlsSocket:
    try:
        return TlsSocket(context.wrap_socket(plain, server_hostname=name))
    except (OSError, ValueError) as error:
        raise ConnectionLost(f"{address}: TLS: {error}") from error
