"""Chapter identity on the model: which version, what fits, what is named, what can be accepted."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from model import checkpoint, identity, loader
from model.checkpoint import sign
from model.cycle import Cursor
from model.errors import ModelError
from model.identity import ACCEPTABLE, DATA, SETTINGS
from model.loader import Settings
from model.tables import Version

V7 = Version(7, 99, 17, "ab" * 32)
OWN = Settings(17, 4, 2, 0, True, 5, 3, "replay", "id > 3", "t", 7, "ab" * 32, table_version_created_us=99)


def state_of(settings: Settings = OWN, cycle: int = 1, served: tuple[int, ...] = (0, 2)) -> dict[str, Any]:
    """A state that these settings save."""
    return checkpoint.save(settings.identity(), Cursor(2, cycle, served), settings.world_size)


def refusal(settings: Settings, state: dict[str, Any], accept: object = ()) -> tuple[str, tuple[str, ...]] | None:
    """The code with which a load is refused, and the fields it names; None where it is not."""
    try:
        loader.load(loader.open_loader(settings), state, accept)
    except ModelError as error:
        return error.code, error.fields
    return None


def mismatch(*fields: str) -> tuple[str, tuple[str, ...]]:
    """A refusal that names these fields."""
    return "state.mismatch", fields


# --- settings -----------------------------------------------------------------------------------------------------------------------

CHANGED: dict[str, dict[str, Any]] = {
    "num_splits": {"num_splits": 2},
    "shuffle_seed": {"shuffle_seed": 6},
    "shuffle_clump_size": {"shuffle_clump_size": None},
    "filter": {"filter": None},
    "table_version_created_us": {"table_version_created_us": 98},
    "selected_rows": {"rows": 18},
    "schema_fingerprint": {"schema_fingerprint": "cd" * 32},
}


@pytest.mark.parametrize("field", CHANGED)
def test_one_difference(field: str) -> None:
    """IDN-6, IDN-8, IDN-9: each by itself is refused and named, as long as it is not accepted."""
    other = replace(OWN, **CHANGED[field])
    assert refusal(OWN, state_of()) is None
    assert refusal(other, state_of()) == mismatch(field)
    if field in ACCEPTABLE:
        assert refusal(other, state_of(), [field]) is None
        assert refusal(other, state_of(), [name for name in ACCEPTABLE if name != field]) == mismatch(field)


def test_constants() -> None:
    """IDN-1, IDN-2, IDN-11: the fields, in sequence."""
    assert SETTINGS == ("num_splits", "shuffle", "shuffle_seed", "shuffle_clump_size", "order_version", "filter")
    assert DATA == ("table_name", "table_version", "table_version_created_us", "selected_rows", "schema_fingerprint")
    assert set(ACCEPTABLE) == {*DATA, "filter"}
    assert tuple(OWN.identity()) == (*SETTINGS, *DATA)


def test_all_differences_in_sequence() -> None:
    """IDN-9: settings and data together where the version is the same; the seed is compared without shuffle too."""
    other = Settings(18, 2, 1, 0, False, None, None, "replay", None, "u", 7, "cd" * 32, table_version_created_us=98)
    named = [name for name in (*SETTINGS, *DATA) if name not in ("order_version", "table_version")]
    assert refusal(other, state_of()) == mismatch(*named)
    assert refusal(other, sign({**state_of(), "order_version": 2})) == mismatch(
        *[name for name in (*SETTINGS, *DATA) if name != "table_version"]
    )
    plain = replace(OWN, shuffle=False, shuffle_clump_size=None)
    assert refusal(replace(plain, shuffle_seed=6), state_of(plain)) == mismatch("shuffle_seed")
    assert refusal(replace(plain, shuffle_seed=None), state_of(plain)) == mismatch("shuffle_seed")


def test_what_is_no_identity() -> None:
    """IDN-10: world size, rank, policy."""
    assert refusal(replace(OWN, world_size=4, rank=3), state_of()) is None
    assert refusal(replace(OWN, partial_cycle="exact", world_size=1), state_of()) is None


def test_drawn_seed_adopts_the_saved_one() -> None:
    """IDN-6: each time, but only a drawn one, and only that of a shuffled state."""
    drawn = replace(OWN, world_size=1, shuffle_seed=99, seed_drawn=True)
    for seed in (5, 6):
        after = loader.load(loader.open_loader(drawn), state_of(replace(OWN, shuffle_seed=seed)))
        assert loader.save(after)["shuffle_seed"] == seed
        again = loader.load(after, state_of(replace(OWN, shuffle_seed=7)))
        assert again.settings.shuffle_seed == 7
    plain = replace(OWN, shuffle=False, shuffle_clump_size=None)
    assert refusal(drawn, state_of(plain)) == mismatch("shuffle", "shuffle_seed", "shuffle_clump_size")
    assert refusal(replace(drawn, filter=None), state_of()) == mismatch("filter")


# --- versions -----------------------------------------------------------------------------------------------------------------------

V9 = Version(9, 120, 21, "cd" * 32)
NEWER = replace(OWN, rows=21, table_version=9, schema_fingerprint="cd" * 32, table_version_created_us=120, versions=(V7,))


def test_reopens_the_recorded_version() -> None:
    """IDN-7: the dataset stands on the recorded version, its later states say so, and it can go back."""
    after = loader.load(loader.open_loader(NEWER), state_of())
    assert after.settings.pinned() == V7
    assert (loader.length(after), loader.remaining(after), after.cursor) == (8, 6, Cursor(2, 1, ()))
    assert loader.save(after) == state_of(cycle=1, served=())
    assert after.settings.versions == (V9,)
    back = loader.load(after, state_of(NEWER))
    assert (back.settings.pinned(), back.settings.versions) == (V9, (V7,))


def test_version_that_cannot_be_opened() -> None:
    """IDN-7: only where the settings fit."""
    gone = replace(NEWER, versions=())
    assert refusal(gone, state_of()) == ("data.version", ())
    assert refusal(gone, state_of(), ["filter", "table_name"]) == ("data.version", ())
    assert refusal(replace(gone, filter=None), state_of()) == mismatch("filter")
    assert refusal(replace(gone, filter=None), state_of(), ["filter"]) == ("data.version", ())


def test_version_that_was_given() -> None:
    """IDN-7, IDN-9: never left, and no other data field is named."""
    given = replace(NEWER, version_given=True)
    assert refusal(given, state_of()) == mismatch("table_version")
    assert refusal(replace(given, filter=None, table_name="u"), state_of()) == mismatch("filter", "table_version")
    assert refusal(replace(given, filter=None), state_of(), ["filter"]) == mismatch("table_version")
    assert refusal(replace(OWN, version_given=True), state_of()) is None
    assert refusal(replace(OWN, version_given=True, table_version_created_us=1), state_of()) == mismatch("table_version_created_us")


def test_data_of_the_recorded_version_decide() -> None:
    """IDN-8: not those of the pinned one."""
    again = Version(7, 100, 19, "ef" * 32)
    wrong = replace(NEWER, versions=(again, Version(8, 110, 17, "ab" * 32)))
    named = ("table_version_created_us", "selected_rows", "schema_fingerprint")
    assert refusal(wrong, state_of()) == mismatch(*named)
    assert refusal(replace(wrong, table_name="u"), state_of()) == mismatch("table_name", *named)
    assert refusal(replace(NEWER, rows=17, schema_fingerprint="ab" * 32, num_splits=2), state_of()) == mismatch("num_splits")
    after = loader.load(loader.open_loader(wrong), state_of(), named)
    assert after.settings.pinned() == again


def test_recorded_version_with_too_few_rows() -> None:
    """ASG-1: a version that has fewer rows than splits is no version to stand on, whoever accepts it."""
    short = replace(NEWER, versions=(Version(7, 99, 3, "ab" * 32),))
    assert refusal(short, state_of(cycle=0, served=()), ["selected_rows"]) == ("data.too_few_rows", ())
    assert refusal(short, state_of(cycle=0, served=())) == mismatch("selected_rows")
    assert refusal(short, state_of(cycle=1, served=()), ["selected_rows"]) == mismatch("selected_rows")


@pytest.mark.parametrize(
    ("recorded", "own", "same"), [(99, 99, True), (99, 98, False), (None, 99, False), (99, None, False), (None, None, False)]
)
def test_moment(recorded: int | None, own: int | None, same: bool) -> None:
    """IDN-8: None equals nothing; the name matters only where the moment is not equal."""
    state = sign({**state_of(), "table_version_created_us": recorded})
    here = replace(OWN, table_version_created_us=own)
    elsewhere = replace(here, table_name="u")
    assert refusal(here, state) == (None if same else mismatch("table_version_created_us"))
    assert refusal(elsewhere, state) == (None if same else mismatch("table_name", "table_version_created_us"))
    if not same:
        assert refusal(elsewhere, state, ["table_version_created_us"]) == mismatch("table_name")
        assert refusal(elsewhere, state, ["table_name"]) == mismatch("table_version_created_us")
        assert refusal(elsewhere, state, {"table_name", "table_version_created_us"}) is None


# --- accept -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accept", [None, "table_name", b"filter", 3, {"table_name": 1}, [1], ["table_name", None], ["epoch", 1]], ids=repr)
def test_accept_of_the_wrong_type(accept: object) -> None:
    """IDN-11: found before anything else, an unknown name included."""
    assert refusal(OWN, {}, accept) == ("argument.type", ())


@pytest.mark.parametrize("name", ["", "Table_name", "epoch", "world_size", "digest", *[name for name in SETTINGS if name != "filter"]])
def test_accept_of_other_names(name: str) -> None:
    """IDN-11: settings but the filter cannot be accepted."""
    assert refusal(OWN, {}, ["table_name", name]) == ("argument.value", ())
    with pytest.raises(ModelError, match=r"argument\.value"):
        identity.fit(state_of(), OWN.identity(), V7, {}, accept=[name])


@pytest.mark.parametrize(
    "accept", [[], (), set(), ["filter"], ("table_name", "filter"), {"selected_rows"}, frozenset({"filter"})], ids=repr
)
def test_accept_that_is_right(accept: object) -> None:
    """IDN-11: accepting what does not differ changes nothing."""
    assert refusal(OWN, state_of(), accept) is None


def test_accepted_version_stays() -> None:
    """IDN-11: even where the recorded one could be opened, and where a version was given; the moments are not compared, all else is."""
    for settings in (NEWER, replace(NEWER, versions=()), replace(NEWER, version_given=True)):
        assert refusal(settings, state_of(), ["table_version"]) == mismatch("selected_rows", "schema_fingerprint")
        elsewhere = replace(settings, table_name="u", table_version_created_us=99)
        assert refusal(elsewhere, state_of(), ["table_version"]) == mismatch("table_name", "selected_rows", "schema_fingerprint")
        after = loader.load(loader.open_loader(settings), state_of(), ["table_version", "selected_rows", "schema_fingerprint"])
        assert (after.settings, after.cursor) == (settings, Cursor(2, 1, ()))
        assert loader.save(after) == state_of(settings, 1, ())
    same = replace(OWN, table_version_created_us=98)
    assert refusal(same, state_of(), ["table_version"]) == mismatch("table_version_created_us")


@pytest.mark.parametrize(
    ("rows", "cycle", "served", "refused"),
    [(8, 2, (), False), (8, 2, (0, 2), True), (8, 3, (), True), (11, 2, (0, 2), True), (12, 2, (0, 2), False), (8, 1, (0, 2), False)],
)
def test_place_that_other_rows_do_not_have(rows: int, cycle: int, served: tuple[int, ...], refused: bool) -> None:
    """IDN-11: N = 8 and 11 have L = 2, N = 12 has L = 3."""
    state = state_of(OWN, cycle, served)
    assert refusal(replace(OWN, rows=rows), state, ["selected_rows"]) == (mismatch("selected_rows") if refused else None)


def test_accepted_values_are_the_own_ones() -> None:
    """IDN-11: the dataset keeps what it has; RES-5: nothing is changed or kept."""
    other = replace(OWN, rows=18, filter=None, table_name="u", schema_fingerprint="cd" * 32, table_version_created_us=1)
    state = state_of()
    before = copy.deepcopy(state)
    current = loader.open_loader(other)
    after = loader.load(current, state, ACCEPTABLE)
    assert after.settings == other == current.settings
    assert loader.save(after) == state_of(other, 1, ())
    assert state == before
