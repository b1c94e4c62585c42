"""One connection: msgpack-RPC over a Unix or TCP socket, many threads at once.

There is no thread of its own. Of the threads that wait for an answer one reads the socket and hands out what comes; when its own answer
is there, another one goes on. A call that nobody waits for any more stays pending, with what it keeps alive, until the server has answered
it: the server may write to shared memory until then."""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import time
from typing import Any, Union

import msgpack

from ._long import HEAD_MOST, Blocks, Long, find_long, refer, resolve
from ._secure import Security, TlsSocket, wrap
from .errors import ConnectionLost, NoAnswer, ProtocolError, SwitchyardError, Unsupported, from_wire

_READ_BYTES = 1 << 18
_SEND_BYTES = 2 << 20
_HEAD_LEAST = 1 << 14  # shorter beginnings of answers are not looked at: more comes
_FILLED = b"filled"  # in the place of bytes: they went to a long tensor
_LOW_WATER_BYTES = 512 << 10  # of a long tensor: the sender wakes the reader once for so many, not for each segment
_MOST_BYTES = (1 << 32) - 1  # of a tensor in a message
CUT_BYTES = 1 << 12  # shorter tensors are copied into the message

Part = Union[bytes, memoryview]


def encode(message: object, has_long: bool = True) -> list[Part]:
    """A message as parts to be sent one after the other; memoryviews in it (flat, of bytes) become bins, long ones without a copy.
    has_long: there may be long ones; what has none is packed in one go."""
    if not has_long:
        return [msgpack.packb(message, use_bin_type=True)]
    packer = msgpack.Packer(autoreset=False, use_bin_type=True)
    parts: list[Part] = []

    def flush() -> None:
        parts.append(packer.bytes())
        packer.reset()

    def add(value: object) -> None:
        if isinstance(value, dict):
            packer.pack_map_header(len(value))
            for key, item in value.items():
                packer.pack(key)
                add(item)
        elif isinstance(value, (list, tuple)):
            packer.pack_array_header(len(value))
            for item in value:
                add(item)
        elif isinstance(value, memoryview) and value.nbytes >= CUT_BYTES:
            if value.nbytes > _MOST_BYTES:
                raise Unsupported(f"a tensor of {value.nbytes} bytes; a message holds {_MOST_BYTES}")
            flush()
            parts.append(struct.pack(">BI", 0xC6, value.nbytes))
            parts.append(value)
        else:
            packer.pack(bytes(value) if isinstance(value, memoryview) else value)

    add(message)
    flush()
    return [part for part in parts if len(part) > 0]


class _Pending:
    """A call that waits for its answer."""

    __slots__ = ("done", "error", "keep", "result")

    def __init__(self, keep: object) -> None:
        self.done = False
        self.error: SwitchyardError | None = None
        self.result: Any = None
        self.keep = keep


def _again(error: SwitchyardError) -> SwitchyardError:
    """The same for another thread to raise."""
    return type(error)(str(error), error.status)


def _no_answer(timeout: float) -> NoAnswer:
    return NoAnswer(f"the server did not answer within {timeout:g} s; is it busy, or stopped? A larger timeout= waits longer")


def _connect(address: str, timeout: float, security: Security) -> Union[socket.socket, TlsSocket]:
    try:
        if address.startswith("tcp:"):
            host, _, port = address[4:].rpartition(":")
            if not port.isdigit():
                raise ConnectionLost(f'"{address}" is not tcp:HOST:PORT')
            host = host.strip("[]") or "127.0.0.1"
            sock = socket.create_connection((host, int(port)), timeout)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            context = security.context()
            return sock if context is None else wrap(sock, context, security.tls_name or host, address)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)  # for `switchyard attach`, through which tensors go as bytes
        sock.settimeout(timeout)
        sock.connect(address[5:] if address.startswith("unix:") else address)
        return sock
    except OSError as error:
        raise ConnectionLost(f"no server answers on {address}: {error}; 'switchyard serve' starts one, and its --socket or --tcp says "
                             "where") from error


def _unpacker() -> msgpack.Unpacker:
    return msgpack.Unpacker(raw=False, strict_map_key=False, max_buffer_size=(1 << 32) - 1)


class Connection:
    def __init__(self, address: str, timeout: float, security: Security = Security()) -> None:
        self.address = address
        self._socket = _connect(address, timeout, security)
        self._socket.setblocking(False)
        self.is_local = self._socket.family == socket.AF_UNIX  # until it turns out to be attached to a server of another machine
        self._low_water = 1  # bytes with which the socket is readable
        self._process = os.getpid()
        self._sending = threading.Lock()
        self._changed = threading.Condition(threading.Lock())  # guards what follows
        self._reading = False  # a thread reads the socket
        self._pending: dict[int, _Pending] = {}
        self._next_id = 0
        self._broken: SwitchyardError | None = None  # why it is of no use any more
        self._n_calls = 0  # that use the socket
        self._has_heard = False
        self._descriptors: list[int] = []  # that came with an answer
        self._unpacker = _unpacker()
        self._fed = 0  # bytes that it was given
        self._head = b""  # those of the answer that has begun, until they are more than HEAD_MOST
        self._blocks = Blocks()
        self._longs: list[Long] = []  # of the answer that has begun; the last may still be filled
        token = security.secret(not self.is_local)
        if token is not None:
            try:
                self.call("auth", {"token": token}, timeout)
            except SwitchyardError:
                self.close()
                raise

    def close(self, why: str = "the client is closed") -> None:
        with self._changed:
            self._break(ConnectionLost(why))

    @property
    def is_open(self) -> bool:
        return self._broken is None

    def call(self, method: str, params: dict[str, Any], timeout: float, keep: object = None, has_long: bool = False) -> Any:
        """The result, or the server's error. `keep` stays alive until the server has answered, also if this call gives up before. has_long:
        there are memoryviews of CUT_BYTES or more in params."""
        if os.getpid() != self._process:
            raise ConnectionLost("this Client was made by another process; make one in this process, after the fork")
        deadline = time.monotonic() + timeout
        pending = _Pending(keep)
        with self._changed:
            self._check_open()
            self._n_calls += 1
            self._next_id += 1
            call_id = self._next_id
            self._pending[call_id] = pending
        try:
            self._exchange(call_id, encode([0, call_id, method, [params] if params else []], has_long), pending, deadline, timeout)
        finally:
            with self._changed:
                self._n_calls -= 1
                self._close_socket()
        if pending.error is not None:
            raise pending.error
        return pending.result

    def _exchange(self, call_id: int, parts: list[Part], pending: _Pending, deadline: float, timeout: float) -> None:
        try:
            self._send(parts, deadline, timeout)
        except BaseException:
            with self._changed:
                self._pending.pop(call_id, None)
            raise
        self._wait(pending, deadline, timeout)

    def call_with_descriptor(self, method: str, params: dict[str, Any], timeout: float) -> tuple[Any, int]:
        """The same for a method whose answer brings a file descriptor, which is the caller's. One such call at a time."""
        result = self.call(method, params, timeout)
        with self._changed:
            if not self._descriptors:
                raise ProtocolError(f"the server's answer to {method} brought no memory")
            return result, self._descriptors.pop(0)

    # ---- sending ----

    def _send(self, parts: list[Part], deadline: float, timeout: float) -> None:
        """A message that was sent in part only leaves the connection of no use."""
        with self._sending:
            begun = False
            try:
                while parts:
                    sent = self._send_some(parts, deadline, timeout)
                    begun = begun or sent > 0
                    while parts and sent >= len(parts[0]):
                        sent -= len(parts.pop(0))
                    if sent > 0:
                        parts[0] = memoryview(parts[0])[sent:]
            except BaseException:
                if begun:
                    self.close("a call was interrupted while it was being sent; make a new Client")
                raise

    def _send_some(self, parts: list[Part], deadline: float, timeout: float) -> int:
        try:
            return self._socket.sendmsg(parts[:512])
        except BlockingIOError:
            self._poll(select.POLLOUT, deadline, timeout)
            return 0
        except OSError as error:
            with self._changed:
                if not self._reading and self._broken is None:
                    self._read(0.0)  # a server that closes may have said why
                self._break(ConnectionLost(f"the server closed the connection ({error}); make a new Client"))
                self._check_open()
            return 0

    # ---- receiving ----

    def _poll(self, events: int, deadline: float, timeout: float) -> None:
        poller = select.poll()
        poller.register(self._socket, events)
        left = deadline - time.monotonic()
        if left <= 0 or not poller.poll(left * 1000 + 1):
            raise _no_answer(timeout)

    def _wait(self, pending: _Pending, deadline: float, timeout: float) -> None:
        with self._changed:
            while not pending.done:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise _no_answer(timeout)
                if self._reading:
                    self._changed.wait(left)
                else:
                    self._read(left)

    def _read(self, left: float) -> None:
        """Waits for bytes, without the lock, and hands out the answers that are complete."""
        self._reading = True
        self._changed.release()
        data: bytes | None = None
        descriptors: list[int] = []
        why = ""
        try:
            poller = select.poll()
            poller.register(self._socket, select.POLLIN)
            if (isinstance(self._socket, TlsSocket) and self._socket.pending()) or poller.poll(left * 1000 + (1 if left > 0 else 0)):
                data, descriptors = self._receive()
        except OSError as error:
            data, why = b"", f" ({error})"
        finally:
            self._changed.acquire()
            self._reading = False
            self._descriptors += descriptors
            self._changed.notify_all()
        if data:
            self._hand_out(data)
        elif data is not None:
            self._break(ConnectionLost(f"the server closed the connection{why}; is it still running? Make a new Client"))

    def _receive(self) -> tuple[bytes | None, list[int]]:
        try:
            if self._longs and self._longs[-1].left > 0:
                return self._fill(self._longs[-1]), []
            if isinstance(self._socket, TlsSocket) or not self.is_local:
                return self._socket.recv(_READ_BYTES), []
            data, descriptors, _, _ = socket.recv_fds(self._socket, _READ_BYTES, 4)
            return data, descriptors
        except (BlockingIOError, InterruptedError):
            return None, []

    def _fill(self, long: Long) -> bytes:
        n = self._socket.recv_into(long.rest())
        long.left -= n
        self._set_low_water(long.left)
        return _FILLED if n > 0 else b""

    def _set_low_water(self, left: int) -> None:
        """Over plain TCP the socket is readable when as many bytes have come of a long tensor of which `left` are missing; 0: with any byte."""
        wanted = max(min(left, _LOW_WATER_BYTES), 1)
        if wanted == self._low_water or self._socket.family == socket.AF_UNIX or isinstance(self._socket, TlsSocket):
            return
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)
            self._low_water = wanted
        except OSError:
            pass  # closed meanwhile, which the next read says

    def _hand_out(self, data: bytes) -> None:
        first, self._has_heard = not self._has_heard, True
        if first and data[:2] == b"\x15\x03" and not isinstance(self._socket, TlsSocket):
            self._break(ProtocolError("the server speaks TLS on this port; give tls_ca="))
            return
        try:
            if data is not _FILLED:
                self._feed(data)
            elif self._longs[-1].left > 0:
                return
            for answer in self._unpacker:
                self._take(answer)
                behind = self._fed - self._unpacker.tell()
                self._head, self._longs = data[len(data) - behind:] if behind > 0 else b"", []
            if self._head:
                self._divert()
        except (ValueError, msgpack.exceptions.UnpackException) as error:
            self._break(ProtocolError(f"the server's answer is not msgpack-RPC ({error})"))

    def _feed(self, data: bytes) -> None:
        self._unpacker.feed(data)
        self._fed += len(data)
        if len(self._head) <= HEAD_MOST:  # more is not looked at: not kept a second time, nor copied with each read
            self._head = self._head + data if self._head else data

    def _divert(self) -> None:
        """If the answer that has begun stands inside of a long tensor, that is received into memory of its own from here on."""
        if not _HEAD_LEAST <= len(self._head) <= HEAD_MOST:
            return
        found = find_long(self._head)
        if found is None:
            return
        data_at, size = found
        long = self._blocks.take(size)
        long.put(memoryview(self._head)[data_at:])
        head = refer(self._head, data_at, len(self._longs))
        self._longs.append(long)
        self._unpacker, self._fed, self._head = _unpacker(), 0, b""
        self._feed(head)
        self._set_low_water(long.left)

    def _take(self, answer: object) -> None:
        if not isinstance(answer, (list, tuple)) or len(answer) != 4 or answer[0] != 1:
            self._break(ProtocolError("the server's answer is not a msgpack-RPC response"))
            return
        pending = self._pending.pop(answer[1], None)
        if pending is not None:
            pending.error = None if answer[2] is None else from_wire(answer[2])
            pending.result = answer[3]
            if self._longs:
                resolve(answer[3], self._longs)
            pending.done = True
            pending.keep = None
        elif answer[1] == 0:  # it could not read which call this is, or refuses the connection
            self._break(from_wire(answer[2]))

    def _break(self, error: SwitchyardError) -> None:
        """The end of the connection, and of all calls that wait."""
        if self._broken is not None:
            return
        self._broken = error
        for pending in self._pending.values():
            pending.error = _again(error)
            pending.done = True
        self._pending.clear()
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()
        self._changed.notify_all()
        try:
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads
        except OSError:
            pass
        self._close_socket()

    def _close_socket(self) -> None:
        if self._broken is not None and self._n_calls == 0:
            self._socket.close()

    def _check_open(self) -> None:
        if self._broken is not None:
            raise _again(self._broken)
