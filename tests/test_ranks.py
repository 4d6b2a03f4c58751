"""`gather_state_dict` and `check_ranks` (MRG-3, MRG-4) against the model, the exchange replaced; tests/integration has real groups."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from model import ranks as model_ranks
from model.errors import ModelError
from streaming import StreamingDataLoader, StreamingDataset
from streaming.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    DuplicateRankError,
    GroupMissingError,
    MergeCountError,
    RanksDifferError,
    StreamingError,
    UnknownPlaceError,
)
from tests.support import ids, numbered_table, outcome


class Group:
    """A process group whose members are called one after the other: what they send is collected first, then handed to each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[bytes] = []
        self.size = 0
        monkeypatch.setattr(dist, "is_initialized", lambda: True)
        monkeypatch.setattr(dist, "get_world_size", lambda group=None: self.size)
        monkeypatch.setattr(dist, "all_gather_object", self.exchange)

    def exchange(self, received: list[Any], mine: Any, group: Any = None) -> None:
        if len(self.sent) < self.size:
            self.sent.append(pickle.dumps(mine))
            raise Collected
        received[:] = [pickle.loads(one) for one in self.sent]

    def call(self, members: list[Any], method: str, **arguments: Any) -> list[Any]:
        """The outcome on each member: a value, or code and fields of an error."""
        self.sent, self.size = [], len(members)
        for member in members:
            with pytest.raises(Collected):
                getattr(member, method)(**arguments)
        return [outcome(lambda member=member: getattr(member, method)(**arguments)) for member in members]


class Collected(Exception):
    pass


@pytest.fixture
def group() -> Iterator[Group]:
    with pytest.MonkeyPatch.context() as patch:
        yield Group(patch)


def member(rank: int, world_size: int = 2, rows: int = 0, **arguments: Any) -> StreamingDataset:
    dataset = StreamingDataset(
        numbered_table(24), **{"num_splits": 4, "shuffle_seed": 1, "rank": rank, "world_size": world_size, **arguments}
    )
    iterator = iter(dataset)
    for _ in range(rows):
        next(iterator)
    return dataset


ARGUMENTS = st.fixed_dictionaries(
    {"rank": st.integers(0, 3), "world_size": st.just(2) | st.sampled_from([1, 4]), "rows": st.integers(0, 5)},
    optional={
        "shuffle_seed": st.integers(1, 2),
        "epoch": st.integers(0, 1),
        "partial_cycle": st.sampled_from(["replay", "exact"]),
        "num_splits": st.sampled_from([4, 8]),
    },
)


@given(drawn=st.lists(ARGUMENTS, min_size=1, max_size=4), alike=st.booleans(), skew=st.sampled_from(["refuse", "replay"]))
def test_any_set_of_ranks_is_judged_like_the_models(drawn: list[dict[str, Any]], alike: bool, skew: str) -> None:
    if alike:  # else hardly any set would be a right one
        drawn = [{**drawn[0], "rank": one["rank"], "world_size": len(drawn) if len(drawn) != 3 else 4} for one in drawn]
    members = [member(**{**one, "rank": one["rank"] % one["world_size"]}) for one in drawn]
    sent = [
        model_ranks.Contribution(one.rank, one.state_dict(), None, {"partial_cycle": arguments.get("partial_cycle", "replay")})
        for one, arguments in zip(members, drawn, strict=True)
    ]
    with pytest.MonkeyPatch.context() as patch:
        group = Group(patch)
        for found in group.call(members, "gather_state_dict", skew=skew):
            assert found == outcome(lambda: model_ranks.gather(sent, skew))
        for found in group.call(members, "check_ranks"):
            assert unordered(found) == unordered(outcome(lambda: model_ranks.check_ranks(sent)))


def unordered(found: Any) -> Any:
    return sorted(found.split()) if isinstance(found, str) else found


def test_ranks_at_one_step_gather_one_state(group: Group) -> None:
    members = [member(rank, 4, rows=5) for rank in (2, 0, 3, 1)]
    states = group.call(members, "gather_state_dict")
    assert states == [members[0].state_dict()] * 4
    assert states[0] is not states[1]
    assert group.call(members, "check_ranks") == [None] * 4


def test_an_error_of_one_rank_reaches_all(group: Group) -> None:
    members = [member(rank, 4) for rank in range(4)]
    members[2]._position.travel()
    members[1]._position.travel()
    for method in ("gather_state_dict", "check_ranks"):
        assert group.call(members, method) == ["error state.unknown"] * 4
    with pytest.raises(UnknownPlaceError, match="StreamingDataLoader"):
        members[0].gather_state_dict()


def test_even_an_unexpected_error_of_one_rank_reaches_all(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    members = [member(rank) for rank in range(2)]

    def fail() -> Any:
        raise MemoryError("out of it")

    monkeypatch.setattr(members[1], "state_dict", fail)
    for one in members:
        with pytest.raises(Collected):
            group.size = 2
            one.check_ranks()
    for one in members:
        with pytest.raises(RuntimeError, match="rank 1: MemoryError"):
            one.check_ranks()


def test_what_differs_is_named_with_values_and_ranks(group: Group) -> None:
    members = [member(0, 4), member(1, 4, rows=2), member(2, 4, epoch=3), member(3, 4, partial_cycle="exact")]
    group.call(members, "check_ranks")
    with pytest.raises(RanksDifferError) as refused:
        members[0].check_ranks()
    assert set(refused.value.fields) == {"samples_consumed_per_split", "epoch", "partial_cycle"}
    assert "epoch: 0 on ranks [0, 1, 3], 3 on ranks [2]" in str(refused.value)
    assert "partial_cycle: 'replay' on ranks [0, 1, 2], 'exact' on ranks [3]" in str(refused.value)


def test_two_processes_with_one_rank_and_missing_ranks(group: Group) -> None:
    for method in ("gather_state_dict", "check_ranks"):
        group.call([member(0), member(0)], method)
        with pytest.raises(DuplicateRankError, match="data-parallel"):
            getattr(member(0), method)()
        group.call([member(0, 4), member(3, 4)], method)
        with pytest.raises(MergeCountError, match=r"\[1, 2\]" if method == "check_ranks" else "world_size 4"):
            getattr(member(0, 4), method)()


def test_loaders_compare_their_own_settings_too(group: Group) -> None:
    def loader(rank: int, dataset: dict[str, Any] | None = None, **arguments: Any) -> StreamingDataLoader:
        return StreamingDataLoader(member(rank, **(dataset or {})), **{"batch_size": 2, **arguments})

    assert group.call([loader(0), loader(1)], "check_ranks") == [None, None]
    assert group.call([loader(0, num_workers=1), loader(1)], "check_ranks") == [None, None]
    for other, field in (
        ({"batch_size": 3}, "batch_size"),
        ({"batch_size": None}, "batch_size"),
        ({"num_workers": 2}, "num_workers"),
        ({"dataset": {"epoch": 1}}, "epoch"),
    ):
        assert group.call([loader(0), loader(1, **other)], "check_ranks") == [f"error ranks.mismatch {field}"] * 2
    batches = [loader(0, num_workers=2, worker_sharding="batches"), loader(1, num_workers=1, worker_sharding="batches")]
    assert group.call(batches, "check_ranks") == [None, None]
    assert "worker_sharding" in group.call([batches[0], loader(1, num_workers=2)], "check_ranks")[0]
    assert group.call(batches, "gather_state_dict") == [batches[0].state_dict()] * 2


def test_one_rank_needs_no_group_and_several_do() -> None:
    alone = member(0, 1, rows=3)
    assert alone.gather_state_dict() == alone.state_dict()
    assert StreamingDataLoader(alone).gather_state_dict(skew="replay") == alone.state_dict()
    alone.check_ranks()
    for call in (member(0).gather_state_dict, member(0).check_ranks, StreamingDataLoader(member(1)).check_ranks):
        with pytest.raises(GroupMissingError, match="init_process_group"):
            call()


def test_bad_arguments_are_refused_before_anything_is_sent(group: Group) -> None:
    group.size = 1
    for skew, kind in ((None, ArgumentTypeError), ("drop", ArgumentValueError)):
        with pytest.raises(kind, match="skew"):
            member(0).gather_state_dict(skew=skew)
    assert group.sent == []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "get_world_size", lambda group: group.size())
        for wrong in ("abc", 3):
            with pytest.raises(ArgumentTypeError, match="process group"):
                member(0).check_ranks(wrong)
    group.size = -1  # torch's answer to a process that is not in the group
    with pytest.raises(ArgumentValueError, match="group"):
        member(0).check_ranks("not a group of mine")


def test_gathered_with_skew_nothing_is_lost(group: Group) -> None:
    """Ranks at different steps: the merged state goes back to the slowest one's completed cycles (LAW-9)."""
    received = {}
    members = []
    for rank, rows in ((0, 9), (1, 4)):
        members.append(member(rank))
        iterator = iter(members[-1])
        received[rank] = [next(iterator)["id"] for _ in range(rows)]
    assert group.call(members, "gather_state_dict") == ["error merge.skew"] * 2
    (state, _) = group.call(members, "gather_state_dict", skew="replay")
    again = []
    for rank in range(2):
        resumed = member(rank)
        resumed.load_state_dict(state)
        again += ids(resumed)
    assert sorted(set(received[0] + received[1]) | set(again)) == list(range(24))


def test_errors_travel() -> None:
    """They are pickled between ranks, with what they name."""
    for error in (RanksDifferError("a", ["b"]), ArgumentValueError("c", "d"), UnknownPlaceError("e")):
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error)
        assert vars(copy) == vars(error)
        assert str(copy) == str(error)
        assert isinstance(copy, StreamingError)
        assert not isinstance(copy, ModelError)
