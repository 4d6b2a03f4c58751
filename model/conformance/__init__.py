"""The checks of this specification as a kit that anybody points at a loader (spec/conformance.md)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from model.conformance.adapter import Adapter, Description, Failed, Refused, World
    from model.conformance.engine import check_loader
    from model.conformance.result import Result

__all__ = ["Adapter", "Description", "Failed", "Refused", "Result", "World", "check_loader"]

_WHERE = {"Result": "result", "check_loader": "engine"}


def __getattr__(name: str) -> Any:
    # On first use: whoever has pytest load the plugin, and does not use it, must not wait for the engine.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE.get(name, 'adapter')}"), name)
