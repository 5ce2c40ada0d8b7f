"""Stand-ins for packages that are not installed, so that modules which import them can be loaded."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

import pytest


def module(name: str, **content: Any) -> ModuleType:
    """Return a module of this name with the given attributes."""
    made = ModuleType(name)
    made.__dict__.update(content)
    return made


def load(patch: pytest.MonkeyPatch, name: str, *fakes: ModuleType) -> Any:
    """Import a fresh copy of the module ``name``, which sees ``fakes`` instead of the real packages."""
    for fake in fakes:
        patch.setitem(sys.modules, fake.__name__, fake)
    # the old entry, or its absence, comes back after the test, so that no other test sees the copy
    patch.setitem(sys.modules, name, module(name))
    del sys.modules[name]
    return importlib.import_module(name)
