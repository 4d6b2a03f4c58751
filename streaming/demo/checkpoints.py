"""Checkpoints on disk: the trainer's own, with the dataset's state as one of the entries."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch


def save(directory: Path, step: int, content: Mapping[str, Any]) -> None:
    """Write the checkpoint from which `step` is the next step.

    The file appears under its name when it is complete (`os.replace`), so a kill at any moment leaves whole checkpoints only.
    """
    unfinished = directory / "unfinished"
    torch.save({"step": step, **content}, unfinished)
    os.replace(unfinished, directory / f"step-{step:08d}.pt")


def latest(directory: Path) -> tuple[int, Path] | None:
    """Return the next step and the path of the last complete checkpoint, if there is one."""
    found = max(directory.glob("step-*.pt"), default=None)
    return None if found is None else (int(found.stem.removeprefix("step-")), found)


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint; tensors and plain values only, no code is run."""
    content: dict[str, Any] = torch.load(path, weights_only=True)
    return content
