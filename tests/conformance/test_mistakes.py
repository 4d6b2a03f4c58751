"""Mistakes of an adapter: one sentence with the method, what was expected and what came; exit code 2 on every door."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from model.conformance import Description, check_loader, cli
from model.conformance.adapter import CAPABILITIES
from model.conformance.adapters.example import ListLoader
from model.conformance.mistakes import CALLS, AdapterError, made
from model.conformance.reference import Reference


def pulling(value: Any) -> Callable[[], Any]:
    class Pulls(ListLoader):
        def pull(self, handle: Any) -> Any:
            return value

    return Pulls


def described(value: Any) -> Callable[[], Any]:
    class Describes(ListLoader):
        def describe(self) -> Any:
            if isinstance(value, Exception):
                raise value
            return value

    return Describes


def claiming(capability: str) -> Callable[[], Any]:
    class Claims(ListLoader):
        def describe(self) -> Description:
            return Description("claims", "1", frozenset({capability}))

        def close(self, handle: Any) -> None:
            raise NotImplementedError

    return Claims


class NotYet(ListLoader):
    def save(self, handle: Any) -> Any:
        raise NotImplementedError


def raising() -> Any:
    raise OSError("no\ndisk")


PULL = "pull() must return the ids of a batch as a sequence of ints, or None at the end of the pass, and returned"
MISTAKES: list[tuple[Callable[[], Any], str]] = [
    (lambda: None, "the factory must return an adapter, an instance of model.conformance.Adapter, and returned None"),
    (lambda: ListLoader, "the factory must return an adapter, an instance of model.conformance.Adapter, and returned the class ListLoader"),
    (raising, "the factory must return an adapter, and raised OSError: no disk"),
    (described({"name": "x"}), "describe() must return a model.conformance.Description, and returned {'name': 'x'} (dict)"),
    (described(None), "describe() must return a model.conformance.Description, and returned None"),
    (described(KeyError("name")), "describe() must return a model.conformance.Description, and raised KeyError: 'name'"),
    (pulling(["0"]), f"{PULL} ['0'] (list)"),
    (pulling([0.5]), f"{PULL} [0.5] (list)"),
    (pulling({"id": [0]}), f"{PULL} {{'id': [0]}} (dict)"),
    (pulling(0), f"{PULL} 0 (int)"),
    (pulling([None]), f"{PULL} [None] (list)"),
    (NotYet, "save() must be implemented, and raised NotImplementedError"),
    *(
        (claiming(capability), f"{method}() must be implemented, because describe() claims {capability!r}, and raised NotImplementedError")
        for capability, method in CALLS.items()
    ),
]


@pytest.mark.parametrize(("make", "sentence"), MISTAKES, ids=[str(number) for number in range(len(MISTAKES))])
@pytest.mark.parametrize("timeout", [[], ["--timeout", "60"]], ids=["free", "watched"])
def test_a_mistake_is_one_sentence(
    make: Callable[[], Any], sentence: str, timeout: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "find_factory", lambda _: make)
    assert cli.main(["run", "--impl", "x", "--layers", "smoke", "--quiet", *timeout]) == 2
    shown = capsys.readouterr()
    (line,) = [line for line in (shown.out + shown.err).splitlines() if "must" in line]
    assert line.endswith(sentence)


@pytest.mark.parametrize("command", [["replay", "--impl", "x", "-"], ["vectors", "--run", "--impl", "x", "spec/vectors/generated"]])
def test_other_doors_say_it_too(command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "find_factory", lambda _: lambda: None)
    monkeypatch.setattr("sys.stdin.read", lambda: '[{"open": "a", "rows": 4, "num_splits": 2}]', raising=False)
    assert cli.main(command) == 2
    assert capsys.readouterr().err == f"python -m model.conformance: {MISTAKES[0][1]}\n"


def test_from_python_it_is_an_error_of_its_own() -> None:
    with pytest.raises(AdapterError, match="the factory must return an adapter"):
        check_loader(lambda: None, layers=["smoke"])  # type: ignore[arg-type, return-value]


def test_every_capability_with_a_method_is_called() -> None:
    assert set(CALLS) < set(CAPABILITIES)
    assert {"break", "newest", "faults", "epochs", "merge", "length", "append"} == set(CALLS)
    adapter, description = made(Reference)
    assert adapter.describe() == description


def test_ids_may_be_ints_of_any_library() -> None:
    class Arrays(ListLoader):
        def pull(self, handle: Any) -> Any:
            batch = super().pull(handle)
            return None if batch is None else np.array(batch)

    assert check_loader(Arrays, layers=["smoke"]).sane is None
