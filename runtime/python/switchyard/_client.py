"""The client: one connection, any number of threads."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from threading import Lock
from types import TracebackType
from typing import Any, NamedTuple, Optional, Union

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from ._jobs import Jobs
from ._memory import Pool
from ._models import Model, Shape, Shapes, read_model
from ._secure import Security
from ._session import Session
from ._tensors import Array, as_array, as_bytes, is_strings, n_bytes, numpy_dtype, pack_strings, typed, unpack_strings, wire_dtype
from ._wire import CUT_BYTES, Connection
from .errors import Busy, InvalidArgument, NotFound, OutOfMemory, TooLarge, Unsupported

SHARED_BYTES = 64 << 10  # tensors from here on go through shared memory, where there is any
_NO_ROOM = (Busy, TooLarge, OutOfMemory, Unsupported)


class Timing(NamedTuple):
    """A request as the server saw it, in nanoseconds and bytes. total_ns: from its arrival to its end; of it run_ns is
    the worker's part with both messages, and compute_ns its layers alone. bound_ns: the least that its swap
    could have taken; predicted_ns: what total_ns was expected to be."""

    queue_ns: int = 0
    preempt_wait_ns: int = 0
    swap_ns: int = 0
    first_layer_ns: int = 0
    compute_ns: int = 0
    run_ns: int = 0
    served_ns: int = 0
    total_ns: int = 0
    compute_wait_ns: int = 0
    bound_ns: int = 0
    predicted_ns: int = 0
    moved_bytes: int = 0
    storage_bytes: int = 0
    swapped: bool = False
    preempted: bool = False
    attempts: int = 0
    worker: int = 0


class Result(Mapping[str, Array]):
    """The outputs by name. Large ones of a local server lie in shared memory: each is an ordinary array, whose memory is used again only
    when neither it nor a view of it is left. Copy what is to be kept for long."""

    def __init__(self, model: str, outputs: dict[str, Array], timing: Timing) -> None:
        self.model = model
        self.timing = timing
        self._outputs = outputs

    def __getitem__(self, name: str) -> Array:
        return self._outputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)

    def __repr__(self) -> str:
        outputs = ", ".join(f"{name}: {array.dtype}{list(array.shape)}" for name, array in self.items())
        return f"<Result of {self.model}: {outputs}; {self.timing.total_ns / 1e6:.3f} ms>"


def default_address() -> str:
    """Where `switchyard serve` listens unless it is told otherwise."""
    folder = os.environ.get("XDG_RUNTIME_DIR")
    return f"unix:{folder}/switchyard.sock" if folder else f"unix:/tmp/switchyard-{os.getuid()}.sock"


class Client:
    """A connection to a running server.

    address: "unix:/path", "/path" or "tcp:host:port"; default: where `switchyard serve` listens by default. timeout: seconds that each
    call waits, unless it says otherwise.

    A server on another machine ("tcp:..."): token, or token_file with the token in its first line (default: $SWITCHYARD_TOKEN_FILE). tls_ca: TLS; the
    server's certificate goes back to the certificates (PEM) in this file, or to the system's ("system"); default: $SWITCHYARD_TLS_CA, and without that
    plain TCP. tls_name: what the certificate must be for, if it is not the address's host. Denied: the token is none of the server's.

    Any thread may call at any time; calls of several threads run at the server side by side. After a fork, the child needs a Client of its
    own. A connection that is lost is not made again: all calls raise ConnectionLost, and a new Client is needed. Arrays stay valid after
    close."""

    def __init__(self, address: Optional[str] = None, timeout: float = 60.0, *, token: Optional[str] = None,
                 token_file: Union[str, os.PathLike[str], None] = None, tls_ca: Union[str, os.PathLike[str], None] = None,
                 tls_name: Optional[str] = None) -> None:
        self.timeout = timeout
        self._wire = Connection(address or default_address(), timeout, Security(token, token_file, tls_ca, tls_name))
        self._pool = Pool(self._wire, timeout)
        self._shapes = Shapes()
        self._lock = Lock()
        self._described: dict[tuple[str, Optional[int]], Model] = {}

    @property
    def jobs(self) -> Jobs:
        """Training jobs: list, submit, pause, resume, priority, stop, wait."""
        return Jobs(self._call)

    @property
    def address(self) -> str:
        return self._wire.address

    def close(self) -> None:
        """Ends the connection; requests of other threads that wait raise ConnectionLost. Fine to call twice."""
        self._wire.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 where: Optional[TracebackType]) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_wire"):
            self.close()

    # ---- inference ----

    def infer(self, model: str, inputs: Mapping[str, ArrayLike], *, version: Optional[int] = None, class_: Optional[int] = None,
              deadline: Optional[float] = None, tenant: Optional[str] = None,
              outputs: Union[Sequence[str], Mapping[str, Array], None] = None, timeout: Optional[float] = None,
              session: Optional[str] = None, session_start: bool = False, session_end: bool = False) -> Result:
        """Runs one batch.

        inputs: an array for each input, of the dtype and shape that the model takes (see models()). Nothing is converted, but the order of
        bytes. An array of at least 64 KiB that was made by empty() is sent without a copy, also a contiguous part of it that begins at a
        multiple of 64 bytes; others are copied once. It must not change until the call returns.
        class_: 0, the most urgent, to 9. deadline: seconds; a request that would be late by prediction is refused at once (Deadline).
        outputs: names of those that are wanted, or arrays to write them to (without a copy if empty() made them). Default: all.
        timeout: seconds that this call waits; after NoAnswer the request may still run.
        session: an id, of a sequence of requests; see session(), which does this.
        """
        given = {name: as_array(name, value) for name, value in inputs.items()}
        known = self._describe(model, version)
        extra = _given(session=session, session_start=session_start or None, session_end=session_end or None)
        try:
            return self._infer(model, given, known, version, class_, deadline, tenant, outputs, timeout, extra)
        except InvalidArgument:
            if not self._has_changed(model, version, known):
                raise
        return self._infer(model, given, self._describe(model, version), version, class_, deadline, tenant, outputs, timeout, extra)

    def session(self, model: str, *, version: Optional[int] = None, tenant: Optional[str] = None) -> Session:
        """A sequence of requests between which the server keeps what the model's outputs "present..." hold, as a decoder's keys and values."""
        return Session(self, model, version=version, tenant=tenant)

    def end_session(self, model: str, session: str, *, tenant: Optional[str] = None) -> None:
        self._call("session_end", _given(model=model, session=session, tenant=tenant))

    def sessions(self) -> list[dict[str, Any]]:
        """Those that are open: model, version, tenant, id, bytes, runs, idle_s, busy."""
        return list(self._call("sessions", {})["sessions"])

    def empty(self, shape: Union[int, Sequence[int]], dtype: DTypeLike = np.float32) -> Array:
        """An array in memory that is shared with the server: infer sends it without a copy. Its memory is used again when nothing refers to
        it any more. Its contents are arbitrary at first. Over TCP it is an ordinary array. Busy, TooLarge: the server's limits."""
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        kind = np.dtype(dtype)
        if not self._wire.is_local:
            return np.empty(shape, kind)
        try:
            return typed(self._pool.take(n_bytes(kind, shape)), kind, shape)
        except Unsupported:  # attached to a server of another machine
            self._wire.is_local = False
            return np.empty(shape, kind)

    def is_shared(self, array: Array) -> bool:
        """It lies where the server reads and writes it: as an input, or in `outputs`, it is not copied."""
        return array.flags.c_contiguous and self._pool.find(array) is not None

    def trim(self) -> int:
        """Gives shared memory that no array refers to back to the server; how many bytes."""
        return self._pool.trim()

    @property
    def shared_bytes(self) -> int:
        """Shared memory that this client has, in use or not."""
        return self._pool.size

    # ---- models and status ----

    def models(self) -> list[Model]:
        return [read_model(row) for row in self._call("models", {})]

    def load(self, path: Union[str, os.PathLike[str]], *, name: Optional[str] = None, version: Optional[int] = None,
             tenant: Optional[str] = None, replace: bool = False, timeout: float = 600.0) -> None:
        """Loads a package (a path of the server's); returns once every worker has it. replace: one of this name and version that is there
        serves until this one is ready."""
        self._call("model_load", _given(path=os.path.abspath(path), name=name, version=version, tenant=tenant, replace=replace or None),
                   timeout)

    def unload(self, model: str, version: Optional[int] = None) -> None:
        """Without a version: all of them. Requests that run end as they began."""
        self._call("model_unload", _given(model=model, version=version))

    def evict(self, model: str, *, image: bool = False) -> None:
        """Drops the model's weights from the device's pool, and the host's image if asked: for measuring."""
        self._call("evict", {"model": model, "image": image})

    def status(self) -> dict[str, Any]:
        """Everything that the server knows of itself; keys in Switchyard's runtime/core/STATUS.md."""
        return dict(self._call("status", {}))

    def policy(self, policy: Optional[str] = None, *, at_once: Optional[int] = None, max_wait: Optional[float] = None,
               train_share: Optional[float] = None) -> None:
        """One of `switchyard policy --help`, for training jobs. max_wait: seconds. train_share: training's part of the
        time, 0 to 1. What is left out stays."""
        self._call("policy", _given(policy=policy, at_once=at_once, max_wait_s=max_wait, train_share=train_share))

    def tenant(self, tenant: str, *, weight: Optional[float] = None, hard_share: Optional[float] = None,
               memory_bytes: Optional[int] = None) -> None:
        """Rules for a tenant: its weight, its share of the time for good (0: elastic), its memory (0: no limit). What is left out stays."""
        self._call("tenant", _given(tenant=tenant, weight=weight, hard_share=hard_share, memory_bytes=memory_bytes))

    def trace(self, enable: Optional[bool] = None) -> dict[str, Any]:
        """enable=True begins a trace anew, False ends it; without it: what was recorded, as Chrome's trace events."""
        return dict(self._call("trace", _given(enable=enable)))

    def ping(self) -> None:
        self._call("ping", {})

    def drain(self, timeout: float = 60.0) -> None:
        """The server takes no more requests; returns once everything has ended."""
        self._call("drain", {}, timeout)

    # ---- inside ----

    def _call(self, method: str, params: dict[str, Any], timeout: Optional[float] = None) -> Any:
        return self._wire.call(method, params, self.timeout if timeout is None else timeout)

    def _describe(self, name: str, version: Optional[int]) -> Optional[Model]:
        """What the model takes and gives, asked for once. None: the server does not say (it loads models when they are asked for)."""
        with self._lock:
            if (name, version) in self._described:
                return self._described[name, version]
        rows = [model for model in self.models() if model.name == name and model.outputs and version in (None, model.version)]
        if not rows:
            return None
        with self._lock:
            return self._described.setdefault((name, version), max(rows, key=lambda model: model.version))

    def _has_changed(self, name: str, version: Optional[int], known: Optional[Model]) -> bool:
        """A model that was replaced since it was asked about."""
        with self._lock:
            self._described.pop((name, version), None)
        self._shapes.forget(name)
        return known is not None and self._describe(name, version) != known

    def _infer(self, model: str, given: dict[str, Array], known: Optional[Model], version: Optional[int], class_: Optional[int],
               deadline: Optional[float], tenant: Optional[str], outputs: Union[Sequence[str], Mapping[str, Array], None],
               timeout: Optional[float], extra: Mapping[str, Any]) -> Result:
        into = outputs if isinstance(outputs, Mapping) else {}
        dtypes = {port.name: port.dtype for port in known.inputs} if known else {}
        shapes = {name: array.shape for name, array in given.items()}
        keep: list[Array] = []
        params = _given(model=model, version=version, tenant=tenant, deadline_ms=None if deadline is None else deadline * 1e3)
        params.update(extra)
        kept = known.kept if known and "session" in extra else frozenset()
        params["inputs"] = [self._input(name, array, dtypes.get(name), keep) for name, array in given.items()]
        places = self._place_outputs(known, shapes, into, kept) if known else {}
        if places:
            params["outputs"] = [{"name": name, "region": at[0], "offset": at[1], "bytes": memory.nbytes}
                                 for name, (memory, at) in places.items()]
        if class_ is not None:
            params["class"] = class_
        keep += [memory for memory, _ in places.values()]
        has_long = any("data" in row and row["data"].nbytes >= CUT_BYTES for row in params["inputs"])
        answer = self._wire.call("infer", params, self.timeout if timeout is None else timeout, keep, has_long)
        results = {row["name"]: self._output(row, places, into) for row in answer["outputs"]}
        if known and not kept:
            self._shapes.remember(known, shapes, {name: array.shape for name, array in results.items()})
        if outputs is not None:
            results = _choose(model, results, outputs)
        return Result(answer["model"], results, _timing(answer["timing"]))

    def _input(self, name: str, array: Array, expected: Optional[str], keep: list[Array]) -> dict[str, Any]:
        row: dict[str, Any] = {"name": name, "dtype": wire_dtype(name, array.dtype, expected), "shape": list(array.shape)}
        if is_strings(array.dtype):
            row["data"] = pack_strings(array)
            return row
        at = self._share(array, keep) if self._wire.is_local and array.nbytes >= SHARED_BYTES else None
        if at:
            row.update(region=at[0], offset=at[1], bytes=array.nbytes)
        else:
            row["data"] = as_bytes(array)
        return row

    def _share(self, array: Array, keep: list[Array]) -> Optional[tuple[int, int]]:
        """Where it lies in shared memory, or a copy of it. None: there is no room."""
        keep.append(array)
        at = self._pool.find(array) if array.flags.c_contiguous else None
        if at:
            return at
        try:
            copy = typed(self._pool.take(array.nbytes), array.dtype, array.shape)
        except _NO_ROOM as error:
            self._wire.is_local = self._wire.is_local and not isinstance(error, Unsupported)
            return None
        np.copyto(copy, array)
        keep.append(copy)
        return self._pool.find(copy)

    def _place_outputs(self, known: Model, shapes: Mapping[str, Shape],
                       into: Mapping[str, Array], kept: frozenset[str]) -> dict[str, tuple[Array, tuple[int, int]]]:
        """Memory for the outputs that are large and of known size."""
        places = {}
        dtypes = {port.name: numpy_dtype(port.dtype) for port in known.outputs}
        for name, shape in (self._shapes.predict(known, shapes) if self._wire.is_local else {}).items():
            if name in kept or is_strings(dtypes[name]):
                continue
            size = n_bytes(dtypes[name], shape)
            memory: Optional[Array] = None
            if name in into and into[name].shape == shape and into[name].nbytes == size and into[name].flags.c_contiguous:
                memory = into[name]
            elif size >= SHARED_BYTES and name not in into:
                try:
                    memory = self._pool.take(size)
                except _NO_ROOM:
                    continue
            at = self._pool.find(memory) if memory is not None and size > 0 else None
            if memory is not None and at:
                places[name] = (memory, at)
        return places

    def _output(self, row: dict[str, Any], places: Mapping[str, tuple[Array, tuple[int, int]]], into: Mapping[str, Array]) -> Array:
        name, dtype, shape = row["name"], numpy_dtype(row["dtype"]), tuple(row["shape"])
        if row["dtype"] == "BYTES":
            return self._write_strings(name, unpack_strings(name, bytes(row["data"]), shape), into)
        if name in into:
            return self._write_into(row, dtype, shape, into[name], name in places)
        if "region" in row:
            return typed(places[name][0], dtype, shape)
        if isinstance(row["data"], np.ndarray):  # received where it stays
            return typed(row["data"], dtype, shape)
        return np.frombuffer(row["data"], dtype).reshape(shape).copy()

    @staticmethod
    def _write_strings(name: str, strings: Array, into: Mapping[str, Array]) -> Array:
        if name not in into:
            return strings
        if into[name].shape != strings.shape or into[name].dtype != strings.dtype:
            raise InvalidArgument(f'output "{name}" is strings {list(strings.shape)}; the array for it is {into[name].dtype}{list(into[name].shape)}')
        into[name][...] = strings
        return into[name]

    @staticmethod
    def _write_into(row: dict[str, Any], dtype: np.dtype[Any], shape: Shape, array: Array, is_there: bool) -> Array:
        if array.shape != shape or array.dtype.itemsize != dtype.itemsize:
            raise InvalidArgument(f'output "{row["name"]}" is {dtype}{list(shape)}; the array for it is {array.dtype}{list(array.shape)}')
        if not is_there:
            array.view(dtype)[...] = np.frombuffer(row["data"], dtype).reshape(shape)
        return array


def _given(**params: Any) -> dict[str, Any]:
    """Those that are not None."""
    return {key: value for key, value in params.items() if value is not None}


def _choose(model: str, results: dict[str, Array], names: Union[Sequence[str], Mapping[str, Array]]) -> dict[str, Array]:
    if isinstance(names, str):
        raise InvalidArgument(f"outputs: a list of names, not '{names}'")
    for name in names:
        if name not in results:
            raise NotFound(f'model "{model}" has no output "{name}"; it has {", ".join(results)}')
    return {name: results[name] for name in names}


def _timing(row: dict[str, Any]) -> Timing:
    return Timing(*(row.get(name, 0) for name in Timing._fields))
