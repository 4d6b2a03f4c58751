"""Every order of calls on model and implementation, drawn by a state machine with bundles of checkpoints, old ones included.

Rules: open with any rank and world size, pull, exhaust, close, drop, a newer iterator, pull or let go of the older one, save, load (any
checkpoint ever saved, also edited), set_epoch, rewind, merge. The twin asserts agreement after each (tests/support.py).
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, precondition, rule

from model import checkpoint as model_checkpoint
from streaming import merge_state_dicts
from tests.support import Twin, divisors, edited, outcome, settings

EDITS: list[dict[str, Any]] = [
    {"schema_version": 2},
    {"schema_version": 0},
    {"schema_version": -1},
    {"schema_version": "1"},
    {"num_splits": 5},
    {"shuffle": False, "shuffle_clump_size": None},
    {"shuffle_seed": 123},
    {"shuffle_seed": None},
    {"shuffle_clump_size": 3},
    {"shuffle_clump_size": 0},
    {"order_version": 2},
    {"filter": "id > 3"},
    {"table_name": "other"},
    {"table_name": "other", "table_version_created_us": 5},
    {"table_version_created_us": 5},
    {"table_version_created_us": None},
    {"table_version_created_us": -1},
    {"table_version_created_us": "1"},
    {"table_version": 7},
    {"schema_fingerprint": "f" * 64},
    {"selected_rows": 1000},
    {"selected_rows": 0},
    {"world_size": 1},
    {"world_size": 0},
    {"world_size": 5},
    {"world_size": True},
    {"epoch": -1},
    {"epoch": 2**63},
    {"epoch": 3},
    {"epoch": 1.0},
    {"samples_consumed_per_split": []},
    {"samples_consumed_per_split": None},
    {"samples_consumed_per_split": [0, 0, 0, 0, 0, 1]},
    {"samples_consumed_per_split": [2] * 6},
    {"samples_consumed_per_split": [99] * 6},
    {"samples_consumed_per_split": [-1] * 6},
    {"samples_consumed_per_split": ["0"] * 6},
    {"partial_cycle_splits": [0, 1, 2, 3, 4, 5]},
    {"partial_cycle_splits": [1]},
    {"partial_cycle_splits": [0, 3]},
    {"partial_cycle_splits": [3, 0]},
    {"partial_cycle_splits": [3, 3]},
    {"partial_cycle_splits": [0, 0, 2, 3, 4, 4]},
    {"order_version": 0},
    {"schema_version": 2**64},
    {"schema_version": None},
    {"filter": ""},
    {"schema_fingerprint": "F" * 64},
    {"schema_fingerprint": "f" * 63},
    {"selected_rows": 2**63},
    {"table_version": 0},
    {"partial_cycle_splits": [0, 2, 4]},
    {"partial_cycle_splits": [6]},
    {"partial_cycle_splits": "[]"},
    {"rank": 0},
]
ACCEPTABLE = ("filter", "table_name", "table_version", "table_version_created_us", "selected_rows", "schema_fingerprint")
# Well formed where the state is, but of other data or settings, or of another version.
OTHER: list[dict[str, Any]] = [
    {"shuffle": False, "shuffle_clump_size": None},
    {"shuffle": True, "shuffle_seed": 123},
    {"order_version": 2},
    {"filter": "id > 3"},
    {"table_name": "other", "table_version_created_us": 5},
    {"table_version_created_us": 5},
    {"table_version_created_us": None},
    {"table_version": 7},
    {"schema_fingerprint": "f" * 64},
    {"selected_rows": 1000},
    {"selected_rows": 1000, "samples_consumed_per_split": [99] * 6, "partial_cycle_splits": []},
]
PLACE = ("epoch", "samples_consumed_per_split", "partial_cycle_splits")


class Calls(RuleBasedStateMachine):
    checkpoints: Bundle[Any] = Bundle("checkpoints")

    @initialize(rows=st.integers(6, 40), shuffle=st.booleans(), seed=st.integers(0, 2**63 - 1), clump=st.none() | st.integers(1, 7))
    def data(self, rows: int, shuffle: bool, seed: int, clump: int | None) -> None:
        self.common = {"rows": rows, "num_splits": 6, "shuffle": shuffle}
        self.common["shuffle_seed"] = seed if shuffle else None
        self.common["shuffle_clump_size"] = clump if shuffle else None
        self.originals: list[tuple[Any, Any]] = []
        self.open(1, 0, "replay", 0)

    @rule(
        world_size=st.sampled_from(divisors(6)),
        rank=st.integers(0, 5),
        policy=st.sampled_from(["replay", "exact"]),
        epoch=st.integers(0, 3),
    )
    def open(self, world_size: int, rank: int, policy: str, epoch: int) -> None:
        self.twin = Twin(settings(**self.common, world_size=world_size, rank=rank % world_size, partial_cycle=policy), epoch)

    @rule(count=st.integers(1, 9))
    def pull(self, count: int) -> None:
        for _ in range(count):
            if self.twin.pull() is None:
                break

    @rule()
    def exhaust(self) -> None:
        self.twin.pull_all()

    @rule(drop=st.booleans())
    def close(self, drop: bool) -> None:
        self.twin.close(drop)

    @rule(then=st.sampled_from(["nothing", "pull_older", "close_older", "drop_older"]))
    def second_iterator(self, then: str) -> None:
        self.twin.second_iterator()
        if then == "pull_older":
            self.twin.pull_older()
        elif then != "nothing":
            self.twin.close_older(drop=then == "drop_older")

    @rule(target=checkpoints)
    def save(self) -> Any:
        return self.remember(self.twin.dataset.state_dict())

    @rule(target=checkpoints)
    def save_floor(self) -> Any:
        return self.remember(self.twin.dataset.floor_state_dict())

    def remember(self, state: Any) -> Any:
        self.originals.append((state, copy.deepcopy(state)))
        return state

    @rule(state=checkpoints)
    def load(self, state: Any) -> None:
        self.twin.close()
        self.twin.change("load_state_dict", state)

    @rule(state=checkpoints)
    def load_under_whatever_is_alive(self, state: Any) -> None:
        self.twin.change("load_state_dict", state)

    @rule(state=checkpoints, edit=st.sampled_from(OTHER))
    def load_of_other_data(self, state: Any, edit: dict[str, Any]) -> None:
        self.twin.close()
        self.twin.change("load_state_dict", edited(state, **edit))

    @rule(state=checkpoints, edit=st.sampled_from(EDITS))
    def load_edited(self, state: Any, edit: dict[str, Any]) -> None:
        note(str(self.twin.change("load_state_dict", edited(state, **edit))))

    @rule(state=checkpoints, data=st.data())
    def load_without_a_key(self, state: Any, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(state)))
        self.twin.change("load_state_dict", {k: v for k, v in state.items() if k != key})

    @rule(state=checkpoints, edit=st.sampled_from(EDITS))
    def load_tampered(self, state: Any, edit: dict[str, Any]) -> None:
        self.twin.change("load_state_dict", {**state, **edit})

    @rule(state=checkpoints, other=checkpoints, keys=st.sets(st.sampled_from((*PLACE, "digest", "world_size")), min_size=1))
    def load_a_mixture(self, state: Any, other: Any, keys: set[str]) -> None:
        """What torch.distributed.checkpoint may keep of two ranks (MRG-5, LAW-11)."""
        self.twin.change("load_state_dict", {**state, **{key: other[key] for key in keys}})

    @rule(state=checkpoints, edit=st.sampled_from(OTHER), accept=st.sets(st.sampled_from((*ACCEPTABLE, "epoch"))))
    def load_accepting(self, state: Any, edit: dict[str, Any], accept: set[str]) -> None:
        self.twin.close()
        self.twin.change("load_state_dict", edited(state, **edit), accept=accept)

    @rule(state=st.sampled_from([{}, [], None, 3, "state"]))
    def load_nonsense(self, state: Any) -> None:
        self.twin.change("load_state_dict", state)

    @rule(epoch=st.integers(-1, 4))
    def set_epoch(self, epoch: int) -> None:
        self.twin.change("set_epoch", epoch)

    @rule()
    def rewind(self) -> None:
        self.twin.change("rewind")

    @precondition(lambda self: len(self.originals) > 0)
    @rule(data=st.data(), first=checkpoints, skew=st.sampled_from(["refuse", "replay"]))
    def merge(self, data: st.DataObject, first: Any, skew: str) -> None:
        states = [first, *data.draw(st.lists(st.sampled_from([state for state, _ in self.originals]), max_size=6))]
        if data.draw(st.booleans()):
            # The ranks of one run, at places of their own.
            world_size, length = data.draw(st.sampled_from(divisors(6))), first["selected_rows"] // 6
            places = st.tuples(st.integers(0, 1), st.integers(0, length))
            drawn = data.draw(st.lists(places, min_size=world_size, max_size=world_size))
            run = edited(first, world_size=world_size, partial_cycle_splits=[])
            states = [edited(run, epoch=epoch, samples_consumed_per_split=[cycle] * 6) for epoch, cycle in drawn]
        expected = outcome(lambda: model_checkpoint.merge(states, skew))
        assert outcome(lambda: merge_state_dicts(states, skew=skew)) == expected

    def teardown(self) -> None:
        """States never change after they were returned (CKP-1)."""
        for state, original in getattr(self, "originals", []):
            assert state == original


TestCalls = Calls.TestCase


@pytest.mark.parametrize("policy", ["replay", "exact"])
@pytest.mark.parametrize("world_size", divisors(6))
@pytest.mark.parametrize("received", [0, 1, 6, 14, 24])
def test_every_edit_of_a_state(received: int, world_size: int, policy: str) -> None:
    """Each edit alone, on each world size: the outcome is the model's, and a refusal changes nothing (CKP-6, RES-5, LAW-8, LAW-10)."""
    saving = Twin(settings(24, num_splits=6))
    for _ in range(received):
        saving.pull()
    state = saving.dataset.state_dict()
    loading = Twin(settings(24, num_splits=6, world_size=world_size, rank=world_size - 1, partial_cycle=policy))
    refused = [loading.change("load_state_dict", edited(state, **edit)) for edit in EDITS]
    assert refused.count("error state.malformed") >= 20
    assert sum(code is not None and code.startswith("error state.mismatch ") for code in refused) >= 8
