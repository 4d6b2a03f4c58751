"""A fresh process for each measurement: imports, threads, caches and peak memory of one do not touch the next."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = ("lancedb", "pylance", "torch", "pyarrow", "numpy", "datasets", "torchdata")
ROOT = Path(__file__).parents[2]

Figures = dict[str, Any]
Launch = Callable[[str, Mapping[str, Any]], Figures]


class MeasurementError(Exception):
    """A measurement failed; the last words of its process."""


def launch(module: str, setting: Mapping[str, Any], seconds: float = 1800) -> Figures:
    """Have ``python -m module SETTING`` print figures as JSON in its last line."""
    command = [sys.executable, "-m", module, "--one", json.dumps(setting)]
    try:
        shown = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise MeasurementError(f"no result within {seconds:g} s") from error
    if shown.returncode:
        words = shown.stderr.strip().splitlines() or [""]
        raise MeasurementError(f"exit status {shown.returncode}: {words[-1]}")
    figures: Figures = json.loads(shown.stdout.splitlines()[-1])
    return figures


def answer(measure: Callable[..., Figures]) -> bool:
    """In such a process: measure, print, and tell that it was one."""
    if sys.argv[1:2] != ["--one"]:
        return False
    warnings.simplefilter("ignore")  # those of other loaders
    print(json.dumps(measure(**json.loads(sys.argv[2]))), flush=True)
    return True


def surroundings() -> str:
    """Machine and versions."""
    found = []
    for package in _PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, {', '.join(found)}"
