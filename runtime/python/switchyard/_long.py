"""Long tensors of an answer: received straight into the memory that the result keeps.

In the bytes that the unpacker sees, such a tensor is an extension of as many bytes as its head had; it stands for one of the answer's Longs."""

from __future__ import annotations

import mmap
import struct
import threading
import weakref
from collections import deque
from typing import Any

import msgpack
import numpy as np

from .errors import ProtocolError

LONG_BYTES = 256 << 10
HEAD_MOST = 1 << 20  # an answer whose long tensor does not begin within so many bytes is received as any other
_EXT_TYPE = 0x53
_TURN_BYTES = 4 << 20
_KEPT_BLOCKS = 4
_KEPT_BYTES = 256 << 20
# The bytes of each kind of value that has a fixed length, its head included; and of each that has a length in its head, the bytes of that length and what is added.
_FIXED = {0xC0: 1, 0xC2: 1, 0xC3: 1, 0xCA: 5, 0xCB: 9, 0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9, 0xD0: 2, 0xD1: 3, 0xD2: 5, 0xD3: 9, 0xD4: 3, 0xD5: 4, 0xD6: 6, 0xD7: 10, 0xD8: 18,
          0xDC: 3, 0xDD: 5, 0xDE: 3, 0xDF: 5}
_SIZED = {0xC4: (">B", 0), 0xC5: (">H", 0), 0xC6: (">I", 0), 0xC7: (">B", 1), 0xC8: (">H", 1), 0xC9: (">I", 1), 0xD9: (">B", 0), 0xDA: (">H", 0), 0xDB: (">I", 0)}


def find_long(data: bytes) -> tuple[int, int] | None:
    """(where its bytes begin, how many) of the long tensor that `data`, the beginning of an answer, ends in; None: it ends elsewhere."""
    at, size = 0, len(data)
    while at < size:
        kind = data[at]
        sized = _SIZED.get(kind)
        if sized is None:
            at += 1 + (kind & 31) if 0xA0 <= kind < 0xC0 else _FIXED.get(kind, 1)
            continue
        head = 1 + struct.calcsize(sized[0])
        if at + head > size:
            return None
        length = struct.unpack_from(sized[0], data, at + 1)[0] + sized[1]
        if kind == 0xC6 and length >= LONG_BYTES and at + head + length >= size + LONG_BYTES // 2:
            return at + head, length
        at += head + length
    return None


def refer(data: bytes, data_at: int, index: int) -> bytes:
    """The answer's beginning with a reference in the place of the tensor's head and of what has come of it."""
    return data[:data_at - 5] + struct.pack(">BBBH", 0xC7, 2, _EXT_TYPE, index)


class Long:
    def __init__(self, array: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        self.array = array
        self.left = array.nbytes

    def put(self, data: memoryview) -> None:
        at = self.array.nbytes - self.left
        self.array[at:at + len(data)] = np.frombuffer(data, np.uint8)
        self.left -= len(data)

    def rest(self) -> memoryview:
        at = self.array.nbytes - self.left
        return self.array.data[at:at + _TURN_BYTES]


def resolve(answer: object, longs: list[Long]) -> None:
    """Puts arrays of bytes where the answer's outputs refer to them."""
    outputs = answer.get("outputs", ()) if isinstance(answer, dict) else ()
    for row in outputs if isinstance(outputs, list) else ():
        data = row.get("data") if isinstance(row, dict) else None
        if isinstance(data, msgpack.ExtType):
            index = int.from_bytes(data.data, "big")
            if data.code != _EXT_TYPE or index >= len(longs):
                raise ProtocolError("the server's answer has an output without data")
            row["data"] = longs[index].array


class Blocks:
    """Memory for long tensors. What no array refers to any more is kept for the next answers, as far as _KEPT_BLOCKS and _KEPT_BYTES go: fresh pages cost as much as
    receiving into them. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[mmap.mmap] = []
        # Finalizers run wherever the interpreter is, also under the lock: they only append.
        self._freed: deque[mmap.mmap] = deque(maxlen=_KEPT_BLOCKS)

    def take(self, size: int) -> Long:
        room = (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE * mmap.PAGESIZE
        with self._lock:
            while self._freed:
                self._kept.append(self._freed.popleft())
            while len(self._kept) > _KEPT_BLOCKS or sum(map(len, self._kept)) > _KEPT_BYTES:
                self._kept.pop(0)
            block = next((one for one in self._kept if len(one) == room), None)
            if block is not None:
                self._kept = [one for one in self._kept if one is not block]
        if block is None:
            block = mmap.mmap(-1, room, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            try:
                block.madvise(mmap.MADV_HUGEPAGE)
            except (AttributeError, OSError):
                pass  # a wish
        root: np.ndarray[Any, np.dtype[np.uint8]] = np.frombuffer(block, np.uint8, size)
        weakref.finalize(root, self._freed.append, block).atexit = False
        return Long(root)
