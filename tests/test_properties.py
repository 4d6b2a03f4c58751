"""Sampled worlds without small bounds: chains of world sizes, cuts and policies; the same rows in every global step (LAW-1 to LAW-6)."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from streaming import StreamingDataset, merge_state_dicts
from tests.support import Twin, divisors, ids, numbered_table, outcome, settings

SPLITS = st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 24, 48])


@st.composite
def orders(draw: st.DrawFn, rows: int) -> dict[str, Any]:
    if not draw(st.booleans()):
        return {"shuffle": False}
    clump = draw(st.none() | st.integers(1, rows + 2))
    return {"shuffle": True, "shuffle_seed": draw(st.integers(0, 2**63 - 1)), "shuffle_clump_size": clump}


@st.composite
def worlds(draw: st.DrawFn) -> tuple[int, int, dict[str, Any]]:
    splits = draw(SPLITS)
    rows = draw(st.integers(splits, splits * 12 + 11))
    return rows, splits, draw(orders(rows))


@given(worlds(), st.data())
def test_chains_of_resumes(world: tuple[int, int, dict[str, Any]], data: st.DataObject) -> None:
    """Cut at random, resume on another world size, again and again: what comes twice is the partial cycles replayed, nothing is lost."""
    rows, splits, order = world
    state: dict[str, Any] | None = None
    received: list[int] = []
    unfinished: list[int] = []
    replayed: Counter[int] = Counter()
    hops = 0
    while True:
        world_size = data.draw(st.sampled_from([d for d in divisors(splits) if d <= 8]), label="world_size")
        policy = data.draw(st.sampled_from(["replay", "exact"]), label="policy")
        common = {"num_splits": splits, "world_size": world_size, "partial_cycle": policy, **order}
        ranks = [Twin(settings(rows, rank=rank, **common), epoch=0 if state is None else 7) for rank in range(world_size)]
        refusals = {one.change("load_state_dict", state) for one in ranks} if state is not None else {None}
        if refusals != {None}:
            event("exact refused")
            assert refusals == {"error state.partial_cycle"}
            continue
        if state is not None and policy == "replay":
            replayed.update(unfinished)
            unfinished = []
        remaining = {one.dataset.samples_remaining for one in ranks}
        assert len(remaining) == 1
        cut = data.draw(st.integers(0, remaining.pop()), label="steps")
        for _ in range(cut):
            before = ranks[0].dataset.state_dict()["samples_consumed_per_split"]
            step = [one.pull() for one in ranks]
            assert None not in step
            unfinished += step
            received += step
            if ranks[0].dataset.state_dict()["samples_consumed_per_split"] != before:
                unfinished = []
        states = [one.dataset.state_dict() for one in ranks]
        state = merge_state_dicts(states)
        assert state == states[0]
        hops += 1
        if ranks[0].dataset.samples_remaining == 0:
            break
        if hops == 6:
            received += [row for one in ranks for row in one.pull_all()]
            break
    event(f"hops {hops}")
    counts = Counter(received) - replayed
    assert sum(counts.values()) == rows // splits * splits
    assert set(counts.values()) == {1}


@given(worlds(), st.data())
def test_global_steps_do_not_depend_on_the_world_size(world: tuple[int, int, dict[str, Any]], data: st.DataObject) -> None:
    """With R*B a multiple of S, global step t holds the same rows for every R, fresh or resumed at a cycle boundary (LAW-4)."""
    rows, splits, order = world
    multiple = data.draw(st.integers(1, 3), label="cycles per step")
    first, second = (data.draw(st.sampled_from([d for d in divisors(splits) if d <= 8]), label="world_size") for _ in range(2))

    def steps(world_size: int, states: list[dict[str, Any]] | None = None) -> list[set[int]]:
        batches = []
        for rank in range(world_size):
            seed = {"shuffle_seed": 1, **order}
            dataset = StreamingDataset(numbered_table(rows), num_splits=splits, world_size=world_size, rank=rank, **seed)
            if states is not None:
                dataset.load_state_dict(states[0])
            batches.append(list(DataLoader(dataset, batch_size=splits * multiple // world_size, collate_fn=ids)))
        assert len({len(of_rank) for of_rank in batches}) == 1
        return [set().union(*step) for step in zip(*batches, strict=True)]

    fresh = steps(first)
    assert steps(second) == fresh
    cut = data.draw(st.integers(0, len(fresh) - 1), label="step of the cut")
    dataset = StreamingDataset(numbered_table(rows), num_splits=splits, world_size=first, rank=0, **{"shuffle_seed": 1, **order})
    batches = DataLoader(dataset, batch_size=splits * multiple // first, collate_fn=ids)
    iterator = iter(batches)
    for _ in range(cut):
        next(iterator)
    assert steps(second, [dataset.state_dict()]) == fresh[cut:]


@given(worlds(), st.data())
def test_torn_sets_lose_nothing(world: tuple[int, int, dict[str, Any]], data: st.DataObject) -> None:
    """Ranks saved at different steps are refused; with skew="replay" no rank resumes behind its own completed cycles (LAW-9, MRG-2)."""
    rows, splits, order = world
    world_size = data.draw(st.sampled_from([d for d in divisors(splits) if 2 <= d <= 8] or [1]), label="world_size")
    states = []
    for rank in range(world_size):
        one = Twin(settings(rows, num_splits=splits, world_size=world_size, rank=rank, **order))
        for _ in range(data.draw(st.integers(0, one.dataset.samples_remaining), label="steps")):
            one.pull()
        states.append(one.dataset.state_dict())
    skewed = any(state != states[0] for state in states)
    event(f"skewed {skewed}")
    assert outcome(lambda: merge_state_dicts(states)) == ("error merge.skew" if skewed else states[0])
    merged = merge_state_dicts(states, skew="replay")
    least = min(state["samples_consumed_per_split"] for state in states)
    assert merged["samples_consumed_per_split"] == least
    assert merged["partial_cycle_splits"] == ([] if skewed else states[0]["partial_cycle_splits"])
