"""Memory that is shared with the server: regions that it gives, cut up into arrays.

An array's memory is free again when no array refers to it any more: each piece is the memory of one array without dimensions of its own, all
views of which keep that one alive (as their `base`), and its finalizer gives the piece back."""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections import deque
from typing import Any

import numpy as np

from ._wire import Connection
from .errors import Busy, SwitchyardError, TooLarge, Unsupported

ALIGN = 64  # bytes: where tensors may begin
_FIRST_BYTES = 4 << 20
_MOST_GROWTH = 64 << 20


class Region:
    def __init__(self, number: int, descriptor: int, size: int) -> None:
        try:
            self.memory = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
        try:
            self.memory.madvise(mmap.MADV_HUGEPAGE)
        except (AttributeError, OSError):
            pass  # a wish
        self.number = number
        self.size = size
        self.address = int(np.frombuffer(self.memory, np.uint8).ctypes.data)
        self.holes = [(0, size)]  # free: (offset, bytes), ascending, no two adjacent

    @property
    def is_free(self) -> bool:
        return self.holes == [(0, self.size)]

    def take(self, size: int) -> int | None:
        for i, (offset, room) in enumerate(self.holes):
            if room >= size:
                self.holes[i:i + 1] = [(offset + size, room - size)] if room > size else []
                return offset
        return None

    def give_back(self, offset: int, size: int) -> None:
        holes = sorted([*self.holes, (offset, size)])
        self.holes = holes[:1]
        for at, room in holes[1:]:
            last, its_room = self.holes[-1]
            if last + its_room == at:
                self.holes[-1] = (last, its_room + room)
            else:
                self.holes.append((at, room))


class Pool:
    """Any thread."""

    def __init__(self, connection: Connection, timeout: float) -> None:
        self._connection = connection
        self._timeout = timeout
        self._lock = threading.Lock()
        self._regions: list[Region] = []
        self._refused: Unsupported | None = None  # the server shares no memory
        # Finalizers run wherever the interpreter is, also under the lock: they only append.
        self._freed: deque[tuple[Region, int, int]] = deque()

    def take(self, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """At least `size` bytes, zeroed only if they were never used. Busy, TooLarge, Unsupported, OutOfMemory: as the server says."""
        size = max(size + ALIGN - 1, ALIGN) // ALIGN * ALIGN
        with self._lock:
            self._collect()
            region, offset = self._find(size) or self._grow(size)
        root: np.ndarray[Any, np.dtype[np.uint8]] = np.frombuffer(region.memory, np.uint8, size, offset)
        weakref.finalize(root, self._freed.append, (region, offset, size)).atexit = False
        return root

    def find(self, array: np.ndarray[Any, Any]) -> tuple[int, int] | None:
        """(region, offset) of a contiguous array that lies in shared memory where a tensor may."""
        address = int(array.__array_interface__["data"][0])
        with self._lock:
            for region in self._regions:
                offset = address - region.address
                if 0 <= offset and offset + array.nbytes <= region.size:
                    return (region.number, offset) if offset % ALIGN == 0 else None
        return None

    def trim(self) -> int:
        """Gives regions that nothing refers to back to the server; how many bytes."""
        with self._lock:
            self._collect()
            return self._drop_free()

    @property
    def size(self) -> int:
        with self._lock:
            return sum(region.size for region in self._regions)

    # ---- under the lock ----

    def _collect(self) -> None:
        while self._freed:
            region, offset, size = self._freed.popleft()
            region.give_back(offset, size)

    def _find(self, size: int) -> tuple[Region, int] | None:
        for region in self._regions:
            offset = region.take(size)
            if offset is not None:
                return region, offset
        return None

    def _grow(self, size: int) -> tuple[Region, int]:
        have = sum(region.size for region in self._regions)
        try:
            region = self._create(max(size, _FIRST_BYTES, min(have, _MOST_GROWTH)))
        except (Busy, TooLarge):
            self._drop_free()
            region = self._create(size)
        self._regions.append(region)
        offset = region.take(size)
        assert offset is not None
        return region, offset

    def _create(self, size: int) -> Region:
        size = (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE * mmap.PAGESIZE
        if self._refused is not None:
            raise Unsupported(str(self._refused))
        try:
            answer, descriptor = self._connection.call_with_descriptor("region_create", {"bytes": size}, self._timeout)
        except Unsupported as error:
            self._refused = error
            raise
        return Region(answer["region"], descriptor, size)

    def _drop_free(self) -> int:
        free = [region for region in self._regions if region.is_free]
        self._regions = [region for region in self._regions if not region.is_free]
        for region in free:
            try:
                self._connection.call("region_drop", {"region": region.number}, self._timeout)
            except SwitchyardError:
                pass  # it goes with the connection
        return sum(region.size for region in free)
