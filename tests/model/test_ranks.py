"""MRG-3, MRG-4 on the model: what all ranks make of what all of them sent."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from model import checkpoint, ranks
from model.checkpoint import SAID, sign
from model.cycle import Cursor
from model.errors import ModelError
from model.loader import Settings
from model.ranks import Contribution, compared_settings

SETTINGS = Settings(17, 4, 4, 0, True, 5, 3, "replay", "id > 3", "t", 7, "ab" * 32, table_version_created_us=99)


def state_of(settings: Settings = SETTINGS, cycle: int = 1, epoch: int = 2) -> dict[str, Any]:
    """A state at a cycle boundary."""
    return checkpoint.save(settings.identity(), Cursor(epoch, cycle, ()), settings.world_size)


def refusal(call: Callable[[], object]) -> tuple[str, tuple[str, ...]] | None:
    """The code with which a call is refused, and the fields it names; None where it is not."""
    try:
        call()
    except ModelError as error:
        return error.code, error.fields
    return None


def sent(**settings: object) -> list[Contribution]:
    """What four ranks at one place send."""
    return [Contribution(rank, state_of(), settings=settings) for rank in range(4)]


def test_gather_is_merge_in_any_sequence() -> None:
    """MRG-3: all ranks there, all at one place; ranks at different places as MRG-2 says."""
    assert [ranks.gather(order) for order in itertools.permutations(sent())] == [state_of()] * 24
    torn = sent()
    torn[2] = Contribution(2, state_of(cycle=2))
    torn[1] = Contribution(1, state_of(epoch=1, cycle=4))
    for order in itertools.permutations(torn):
        assert refusal(partial(ranks.gather, order)) == ("merge.skew", ())
        assert ranks.gather(order, "replay") == state_of(epoch=1, cycle=4)
    alone = [Contribution(0, state_of(replace(SETTINGS, world_size=1)))]
    assert ranks.gather(alone) == alone[0].state


def test_gather_refusals_in_sequence() -> None:
    """MRG-3: skew, the error of the lowest rank, a rank twice, then as a merge: each hides those after it."""
    wrong = sent()
    assert refusal(lambda: ranks.gather(wrong[:3])) == ("merge.count", ())
    assert refusal(lambda: ranks.gather([])) == ("merge.count", ())
    wrong[2] = Contribution(2, state_of(replace(SETTINGS, filter=None, table_version=8)))
    assert refusal(lambda: ranks.gather(wrong)) == ("state.mismatch", ("filter", "table_version"))
    wrong[2] = Contribution(2, {**state_of(), "epoch": 3})
    assert refusal(lambda: ranks.gather(wrong)) == ("state.malformed", ())
    wrong[0] = Contribution(3, state_of())
    assert refusal(lambda: ranks.gather(wrong)) == ("merge.ranks", ())
    assert refusal(lambda: ranks.gather([*sent(), sent()[0]])) == ("merge.ranks", ())
    wrong[3] = Contribution(3, error="state.unknown")
    assert refusal(lambda: ranks.gather(wrong)) == ("state.unknown", ())
    wrong.append(Contribution(1, error="state.mid_step"))
    assert refusal(lambda: ranks.gather(wrong)) == ("state.mid_step", ())
    assert refusal(lambda: ranks.gather(wrong, "newest")) == ("argument.value", ())
    assert refusal(lambda: ranks.gather(wrong, 1)) == ("argument.type", ())  # type: ignore[arg-type]


def test_check_ranks_says_nothing_where_all_agree() -> None:
    """MRG-4: in any sequence, midway too."""
    for order in itertools.permutations(sent(partial_cycle="exact", batch_size=None)):
        assert refusal(partial(ranks.check_ranks, order)) is None


def test_check_ranks_refusals_in_sequence() -> None:
    """MRG-4: the error of the lowest rank, a rank twice, differences, missing ranks: each hides those after it."""
    wrong = sent(partial_cycle="replay")[:3]
    assert refusal(lambda: ranks.check_ranks(wrong)) == ("merge.count", ())
    assert refusal(lambda: ranks.check_ranks([])) == ("merge.count", ())
    wrong[1] = replace(wrong[1], settings={"partial_cycle": "exact"})
    assert refusal(lambda: ranks.check_ranks(wrong)) == ("ranks.mismatch", ("partial_cycle",))
    wrong[0] = replace(wrong[0], state=None)
    assert refusal(lambda: ranks.check_ranks(wrong)) == ("state.malformed", ())
    wrong[0] = replace(wrong[0], rank=2)
    assert refusal(lambda: ranks.check_ranks(wrong)) == ("merge.ranks", ())
    wrong.append(Contribution(3, error="state.mid_step"))
    wrong.append(Contribution(0, error="state.unknown"))
    assert refusal(lambda: ranks.check_ranks(wrong)) == ("state.unknown", ())


OTHER: dict[str, Any] = {
    "num_splits": 8,
    "shuffle_seed": 6,
    "shuffle_clump_size": None,
    "order_version": 2,
    "filter": None,
    "table_name": "u",
    "table_version": 8,
    "table_version_created_us": None,
    "selected_rows": 18,
    "schema_fingerprint": "cd" * 32,
    "world_size": 2,
    "epoch": 3,
    "samples_consumed_per_split": [2] * 4,
}


@pytest.mark.parametrize("key", OTHER)
def test_check_ranks_names_one_difference(key: str) -> None:
    """MRG-4: anything that a state says, the place included; its digest says nothing more."""
    changes = {key: OTHER[key]}
    if key == "num_splits":
        changes["samples_consumed_per_split"] = [1] * 8
    odd = Contribution(3, sign({**state_of(), **changes}))
    named = tuple(name for name in SAID if name in changes)
    for wrong in ([*sent()[:3], odd], [odd, *sent()[:3]], [sent()[0], odd, *sent()[1:3]]):
        assert refusal(partial(ranks.check_ranks, wrong)) == ("ranks.mismatch", named)


def test_check_ranks_names_all_differences() -> None:
    """MRG-4: the state's fields before the settings, each once."""
    wrong = sent(partial_cycle="exact", batch_size=1)
    wrong[3] = Contribution(3, sign({**state_of(cycle=2), "filter": None, "partial_cycle_splits": [0, 1], "world_size": 2}), settings={})
    fields = ("filter", "world_size", "samples_consumed_per_split", "partial_cycle_splits", "partial_cycle", "batch_size")
    assert refusal(lambda: ranks.check_ranks(wrong)) == ("state.malformed", ())
    wrong[3] = replace(wrong[3], state=sign({**state_of(cycle=2), "filter": None, "partial_cycle_splits": [0, 2], "world_size": 2}))
    assert refusal(lambda: ranks.check_ranks(wrong)) == ("ranks.mismatch", fields)


def test_compared_settings() -> None:
    """MRG-4: of a dataset the policy, of a loader more; no workers are as one, and count in documented mode only."""
    assert compared_settings("exact") == {"partial_cycle": "exact"}
    loader = compared_settings("replay", 8, "splits", 0)
    assert loader == {"partial_cycle": "replay", "batch_size": 8, "worker_sharding": "splits", "num_workers": 1}
    assert compared_settings("replay", 8, "splits", 2)["num_workers"] == 2
    assert "num_workers" not in compared_settings("replay", 8, "batches", 2)
    assert compared_settings("replay", None, "batches")["batch_size"] is None

    def named(*settings: dict[str, Any]) -> tuple[str, tuple[str, ...]] | None:
        return refusal(lambda: ranks.check_ranks([Contribution(rank, state_of(), settings=one) for rank, one in enumerate(settings)]))

    assert named(loader, compared_settings("replay", 8, "splits", 1), loader, loader) is None
    assert named(loader, compared_settings("replay", 8, "splits", 2), loader, loader) == ("ranks.mismatch", ("num_workers",))
    assert named(compared_settings("replay", None, "splits"), loader, loader, loader) == ("ranks.mismatch", ("batch_size",))
    batches = [compared_settings("replay", 8, "batches", count) for count in range(4)]
    assert named(*batches) is None


def test_one_rank_alone_agrees_with_itself() -> None:
    """MRG-4 with R = 1, and one rank of two."""
    alone = replace(SETTINGS, world_size=1, rank=0)
    assert refusal(partial(ranks.check_ranks, [Contribution(0, state_of(alone))])) is None
    two = replace(SETTINGS, world_size=2, rank=0)
    assert refusal(partial(ranks.check_ranks, [Contribution(0, state_of(two))])) == ("merge.count", ())
    assert compared_settings("replay", 1, "splits") == {
        "partial_cycle": "replay",
        "batch_size": 1,
        "worker_sharding": "splits",
        "num_workers": 1,
    }
