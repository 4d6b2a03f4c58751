"""Each private name that `streaming.private` leans on: there today, and what happens where it is missing."""

from __future__ import annotations

import multiprocessing.process

import pytest

from streaming import private

# ---- processes


def test_the_children_of_a_parent_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(multiprocessing.process._children, set)
    ours, another = multiprocessing.Process(), multiprocessing.Process()
    monkeypatch.setattr(multiprocessing.process, "_children", known := {ours, another})
    private.forget_children([ours])
    assert known == {another}
    monkeypatch.delattr(multiprocessing.process, "_children")
    private.forget_children([another])
