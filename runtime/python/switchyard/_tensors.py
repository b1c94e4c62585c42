"""Arrays as the protocol's tensors and back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .errors import InvalidArgument, ProtocolError

Array = np.ndarray[Any, np.dtype[Any]]

_DTYPES: dict[str, np.dtype[Any]] = {
    "FP64": np.dtype("<f8"), "FP32": np.dtype("<f4"), "FP16": np.dtype("<f2"), "BF16": np.dtype("<u2"), "INT64": np.dtype("<i8"),
    "INT32": np.dtype("<i4"), "INT16": np.dtype("<i2"), "INT8": np.dtype("i1"), "UINT64": np.dtype("<u8"), "UINT32": np.dtype("<u4"),
    "UINT16": np.dtype("<u2"), "UINT8": np.dtype("u1"), "BOOL": np.dtype("?"), "BYTES": np.dtype(object),
}
try:
    import ml_dtypes
    _DTYPES["BF16"] = np.dtype(ml_dtypes.bfloat16)
except ImportError:
    pass  # their bits, as uint16

_NAMES = {dtype.newbyteorder("=") if dtype.kind != "V" else dtype: name for name, dtype in _DTYPES.items() if name not in ("BF16", "BYTES")}
if _DTYPES["BF16"].kind == "V":
    _NAMES[_DTYPES["BF16"]] = "BF16"


def wire_dtype(name: str, dtype: np.dtype[Any], expected: str | None) -> str:
    """The protocol's name of an array's dtype. uint16 stands for BF16 where the model takes that."""
    if expected == "BF16" and dtype == np.uint16:
        return "BF16"
    if is_strings(dtype):
        return "BYTES"
    known = _NAMES.get(dtype.newbyteorder("=") if dtype.kind != "V" else dtype)
    if known is None:
        raise InvalidArgument(f'"{name}" is an array of {dtype}; there are {", ".join(_DTYPES)}')
    return known


def numpy_dtype(wire: str) -> np.dtype[Any]:
    if wire not in _DTYPES:
        raise ProtocolError(f"the server's answer has dtype {wire}, which this version of the package does not know")
    return _DTYPES[wire]


def as_array(name: str, value: object) -> Array:
    array = np.asarray(value)
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    if array.dtype.hasobject:
        for item in array.reshape(-1) if array.dtype == np.dtype(object) else [None]:
            if not isinstance(item, (str, bytes)):
                raise InvalidArgument(f'"{name}" is an array of objects other than str and bytes')
    return array


def is_strings(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "OUS"


def pack_strings(array: Array) -> memoryview:
    """Each behind its length, text as UTF-8."""
    parts = []
    for item in array.reshape(-1):
        text = item.encode() if isinstance(item, str) else bytes(item)
        parts += [len(text).to_bytes(4, "little"), text]
    return memoryview(b"".join(parts))


def unpack_strings(name: str, data: bytes, shape: tuple[int, ...]) -> Array:
    """As an array of bytes objects."""
    array = np.empty(math.prod(shape), object)
    at = 0
    for i in range(array.size):
        size = int.from_bytes(data[at:at + 4], "little")
        array[i] = bytes(data[at + 4:at + 4 + size])
        at += 4 + size
    if at != len(data):
        raise ProtocolError(f'the strings of output "{name}" do not fit its shape')
    return array.reshape(shape)


def as_bytes(array: Array) -> memoryview:
    """Its bytes in order, without a copy where it is contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def n_bytes(dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    return dtype.itemsize * math.prod(shape)


def typed(memory: np.ndarray[Any, np.dtype[np.uint8]], dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """The first bytes of `memory` as an array, which keeps it alive."""
    return memory[:n_bytes(dtype, shape)].view(dtype).reshape(shape)
