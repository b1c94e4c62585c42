"""Sequences and optionals as the tensors that stand for them: NAME, NAME.shapes, NAME.has_value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from ._tensors import Array
from .errors import InvalidArgument


def parts_of(name: str, tensors: Sequence[ArrayLike], *, dtype: Optional[DTypeLike] = None, rank: int = 0, has_value: Optional[bool] = None) -> dict[str, Array]:
    """The inputs to send for a sequence of arrays; for an optional tensor, of one array or none. dtype: needed if there is none; rank: of no arrays, where
    the model declares one. has_value: of an optional sequence only."""
    arrays = [np.asarray(tensor, dtype) for tensor in tensors]
    if any(array.dtype != arrays[0].dtype for array in arrays):
        raise InvalidArgument(f'"{name}" has arrays of {arrays[0].dtype} and of others')
    rank = max([rank] + [array.ndim for array in arrays])
    shapes = np.full((len(arrays), rank), -1, np.int64)
    for row, array in zip(shapes, arrays):
        row[:array.ndim] = array.shape
    elements = np.concatenate([array.reshape(-1) for array in arrays]) if arrays else np.zeros(0, np.float32 if dtype is None else dtype)
    parts = {name: elements, name + ".shapes": shapes}
    return parts if has_value is None else {**parts, name + ".has_value": np.array([has_value])}


def list_of(outputs: Mapping[str, Array], name: str) -> list[Array]:
    """The arrays of an output that is a sequence; of an optional tensor one, or none."""
    arrays, at = [], 0
    for row in outputs[name + ".shapes"]:
        shape = tuple(int(size) for size in row if size >= 0)
        count = int(np.prod(shape, dtype=np.int64))
        arrays.append(outputs[name][at:at + count].reshape(shape))
        at += count
    return arrays
