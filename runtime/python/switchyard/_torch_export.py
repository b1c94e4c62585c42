"""A PyTorch model as an ONNX file: run by `switchyard import` in a process of its own.

    python _torch_export.py model.pt2 OUT.onnx
    python _torch_export.py script.py:make_model OUT.onnx

Both are run with the caller's rights, unlike what reads the ONNX file: a script is code, and torch.export.load unpacks what PyTorch saved. What a script prints goes to
stderr. make_model() takes nothing and returns (model, example_inputs) or (model, example_inputs, options), options being further arguments of torch.onnx.export, as
dynamic_shapes or input_names. A failure is one line on stderr that names the operator, if one is the reason.
"""

from __future__ import annotations

import importlib.util
import inspect
import io
import logging
import os
import re
import sys
import traceback
from contextlib import redirect_stdout
from typing import Any


# Python puts this file's folder in front, where `import torch` would find switchyard/torch.py.
sys.path[:] = [place for place in sys.path if os.path.abspath(place or ".") != os.path.dirname(os.path.abspath(__file__))]


class Refused(Exception):
    """What a person reads."""


def _make(path: str, name: str) -> Any:
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location("switchyard_model", path)
    if spec is None or spec.loader is None:
        raise Refused(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules["switchyard_model"] = module
    spec.loader.exec_module(module)
    make = getattr(module, name, None)
    if not callable(make):
        others = ", ".join(n for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", "") == "switchyard_model") or "none"
        raise Refused(f"{path} has no function {name}; functions there: {others}")
    return make()


def _parts(made: Any, where: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    import torch

    if not isinstance(made, tuple) or len(made) not in (2, 3) or not isinstance(made[0], torch.nn.Module):
        raise Refused(f"{where} returns {type(made).__name__}, not (model, example_inputs) or (model, example_inputs, options)")
    model, inputs, options = made[0], made[1], made[2] if len(made) == 3 else {}
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    if not isinstance(options, dict):
        raise Refused(f"options are {type(options).__name__}, not a dict of arguments of torch.onnx.export")
    if any(isinstance(value, torch.nn.Module) for value in inputs):
        raise Refused("the example inputs hold a model; one function makes one model")
    known = inspect.signature(torch.onnx.export).parameters
    for name in options:
        if name not in known:
            raise Refused(f"torch.onnx.export has no argument {name!r}; inputs by name are {{'kwargs': {{{name!r}: ...}}}}")
    return model.eval(), inputs, options


class _Kept(logging.Handler):
    """The log of torch.export: what it raises at the end says no more than that something failed."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += self.format(record) + "\n"


def _load_program(source: str) -> Any:
    import torch

    log, said = logging.getLogger("torch.export"), _Kept()
    log.propagate, log.handlers = False, [said]
    try:
        return torch.export.load(source)
    except Exception as error:
        custom = re.search(r"resolve torch\.ops\.([\w.]+)", said.text)
        if custom:
            raise Refused(f"the operator {custom[1]} is a custom one, which nothing registers here: let a function of a script register it and build the model "
                          "(SCRIPT.py:FUNCTION)") from None
        last = (said.text.strip() or str(error).strip() or type(error).__name__).splitlines()[-1].partition(". ")[0]
        raise Refused(f"no program that torch.export.save of this PyTorch wrote, or a damaged one ({last})") from None


def _load(source: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    import torch

    if source.endswith(".pt2"):
        if not os.path.exists(source):
            raise Refused(f"{source}: no such file")
        return _load_program(source), (), {}
    path, _, name = source.rpartition(":")
    if not os.path.exists(path):
        raise Refused(f"{path}: no such file")
    return _parts(_make(path, name), source)


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))


def _innermost(error: BaseException) -> str:
    """The first words of what all others were raised from: those speak of steps of the export."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else '(no words)'}"


def _reason(error: BaseException) -> str:
    """The operator that is lacking, or the cause."""
    text = _trace(error)
    for pattern in (r"No (?:ONNX function|decomposition|lowering)[^\n]*?(?:op=)?'([\w:]+\.[\w.]+)'", r"OpOverload\(op='([^']+)'",
                    r"operator '?(aten::\w+|[\w]+::[\w]+)'?"):
        found = re.search(pattern, text)
        if found:
            return f"the operator {found[1]} has no form in ONNX"
    return _innermost(error)


def _export(source: str, out: str) -> None:
    try:
        import torch
    except ImportError as error:
        raise Refused(f"{sys.executable} has no PyTorch ({error}); --python names an interpreter that has") from None
    model, inputs, options = _load(source)
    noise = io.StringIO()
    try:
        with redirect_stdout(noise):
            torch.onnx.export(model, inputs, out, **{"dynamo": True, "external_data": False, **options})
    except ImportError as error:
        raise Refused(f"torch.onnx needs a package that {sys.executable} lacks ({error}): pip install onnxscript") from None
    except Exception as error:
        raise Refused(_reason(error)) from None


def main() -> int:
    source, out = sys.argv[1:3]
    os.dup2(2, 1)
    try:
        _export(source, out)
    except Refused as error:
        print(f"{source}: {error}", file=sys.stderr)
        return 1
    except SystemExit as error:
        print(f"{source}: the script ended itself (exit {error.code}) before there was a model", file=sys.stderr)
        return 1
    except Exception as error:  # the script's own
        print(f"{source}: {_reason(error)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
