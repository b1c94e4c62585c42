"""What models take and give, and how large a request's outputs will be."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Mapping, Optional, Union

Shape = tuple[int, ...]
Dim = Union[int, str]
_Key = tuple[str, int, tuple[tuple[str, Shape], ...]]


@dataclass(frozen=True)
class Port:
    """An input or output. dims: numbers, "N" for the batch, "seq" for a size that a request chooses by its shapes, "2*seq+1" for what
    follows, "?" for what only a run knows. usual_shape: of one row, -1 where only a run knows."""

    name: str
    dtype: str
    dims: tuple[Dim, ...]
    usual_shape: Shape


@dataclass(frozen=True)
class Model:
    """A model of the server. `inputs` and `outputs` are empty while it is loading or unavailable; `status` is its row of the status."""

    name: str
    state: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    sizes: Mapping[str, int]  # the open ones, and what each usually is
    status: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def version(self) -> int:
        return int(self.status.get("version", 1))

    @property
    def kept(self) -> frozenset[str]:
        """Outputs that a session keeps at the server."""
        return frozenset(pair["output"] for pair in self.status.get("state_tensors", ()))

    @property
    def error(self) -> Optional[str]:
        """Why it is unavailable."""
        return self.status.get("error") or None


def _ports(rows: list[dict[str, Any]]) -> tuple[Port, ...]:
    return tuple(Port(row["name"], row["dtype"], tuple(row["dims"]), tuple(row["usual_shape"])) for row in rows)


def read_model(row: dict[str, Any]) -> Model:
    return Model(row["name"], row.get("state", "ready"), _ports(row.get("inputs", [])), _ports(row.get("outputs", [])),
                 {size["name"]: size["usual"] for size in row.get("sizes", [])}, row)


class Shapes:
    """Shapes of outputs by those of inputs. Dimensions that are numbers or stand among an input's dimensions as they are follow from the
    model; any others are remembered from the last answer to a request of the same shapes."""

    _MOST = 256

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: OrderedDict[_Key, dict[str, Shape]] = OrderedDict()

    def predict(self, model: Model, inputs: Mapping[str, Shape]) -> dict[str, Shape]:
        """Outputs that are not known are left out; so are those whose size only a run knows."""
        bound: dict[str, int] = {}
        for port in model.inputs:
            for dim, size in zip(port.dims, inputs.get(port.name, ())):
                if isinstance(dim, str):
                    bound[dim] = size
        with self._lock:
            remembered = self._known.get(self._key(model, inputs), {})
        shapes = {}
        for port in model.outputs:
            sizes = [dim if isinstance(dim, int) else bound.get(dim) for dim in port.dims]
            if "?" in port.dims:
                continue
            if None not in sizes:
                shapes[port.name] = tuple(size for size in sizes if size is not None)
            elif port.name in remembered:
                shapes[port.name] = remembered[port.name]
        return shapes

    def remember(self, model: Model, inputs: Mapping[str, Shape], outputs: Mapping[str, Shape]) -> None:
        if all(isinstance(dim, int) or dim == "N" for port in model.outputs for dim in port.dims):
            return
        key = self._key(model, inputs)
        with self._lock:
            self._known[key] = dict(outputs)
            self._known.move_to_end(key)
            while len(self._known) > self._MOST:
                self._known.popitem(last=False)

    def forget(self, name: str) -> None:
        """The model may have changed."""
        with self._lock:
            for key in [key for key in self._known if key[0] == name]:
                del self._known[key]

    @staticmethod
    def _key(model: Model, inputs: Mapping[str, Shape]) -> _Key:
        return (model.name, model.version, tuple(sorted(inputs.items())))
