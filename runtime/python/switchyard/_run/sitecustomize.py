"""Python imports this at its start under `switchyard run`, which puts this folder in front of PYTHONPATH.

It waits for `import torch`, then starts the hook (`switchyard.torch`): its library as soon as PyTorch's are loaded, the rest at the end. It changes nothing else: a sitecustomize of the machine, which this one
hides, is imported as well.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _import_hidden():
    """The sitecustomize that Python would have found without us."""
    places = [place for place in sys.path if os.path.abspath(place or ".") != _HERE]
    try:
        spec = importlib.machinery.PathFinder.find_spec("sitecustomize", places)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module(importlib.util.module_from_spec(spec))
    except Exception as error:  # as Python's own site.py does
        print(f"switchyard: another sitecustomize failed: {error!r}", file=sys.stderr)


class _After(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a module as the others do, and starts a part of the hook once it is executed."""

    def __init__(self, wanted, then):
        self._wanted, self._then = wanted, then  # module, function of _torch_hook
        self._busy = False
        self._loader = None

    def find_spec(self, name, path=None, target=None):
        if name != self._wanted or self._busy:
            return None
        self._busy = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._busy = False
        if spec is None or spec.loader is None:
            return None
        self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _start(self._then)


def _start(name):
    """switchyard._torch_hook.NAME(page)"""
    try:
        from switchyard import _torch_hook

        getattr(_torch_hook, name)(os.environ["SWITCHYARD_SCRIPT_PAGE"])
    except Exception as error:
        print(f"switchyard: no hook in this PyTorch ({error}); the script is stopped from outside", file=sys.stderr)


def _arrange():
    if "SWITCHYARD_SCRIPT_PAGE" in os.environ:
        package = os.path.dirname(os.path.dirname(_HERE))
        if package not in sys.path:
            sys.path.append(package)  # behind all that the script has itself
        sys.meta_path[:0] = [_After("torch", "start"), _After("torch._C", "start_library")]  # what `import torch` itself allocates counts
    _import_hidden()


_arrange()
