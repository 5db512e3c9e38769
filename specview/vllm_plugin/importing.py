"""Calls back when a module has been imported: vLLM's heavy modules are wrapped where they are used, and loaded nowhere
else. A plugin runs in every process of vLLM, also in those that never touch a model."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

Callback = Callable[[ModuleType], None]


class _CallingLoader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader, callback: Callback) -> None:
        self._loader = loader
        self._callback = callback

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module keeps the loader that it would have had: tools ask it for source code.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._callback(module)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self) -> None:
        self.waiting: dict[str, Callback] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        callback = self.waiting.pop(fullname, None)
        if callback is None:
            return None
        for finder in sys.meta_path:
            if finder is self:
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _CallingLoader(spec.loader, callback)
                return spec
        return None


_finder = _Finder()


def when_imported(name: str, callback: Callback) -> None:
    """Call `callback` with the module `name`: now if it is loaded, otherwise right after its import."""
    module = sys.modules.get(name)
    if module is not None:
        callback(module)
        return
    _finder.waiting[name] = callback
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
