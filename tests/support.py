"""What the tests share: small tables, and a twin that drives model and implementation side by side."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from typing import Any

import lancedb
import pyarrow as pa

from model import loader
from model.errors import ModelError
from model.loader import Settings
from streaming import StreamingDataset, StreamingError

# IDN-5, computed here by hand: the tests' tables have one nullable int64 column.
FINGERPRINT = hashlib.sha256(b'[["id","int64",true]]').hexdigest()


@cache
def connection() -> Any:
    return lancedb.connect("memory://")


@cache
def numbered_table(rows: int) -> Any:
    """Table ``t<rows>``: the column id holds the row number; read only."""
    return connection().create_table(f"t{rows}", pa.table({"id": pa.array(range(rows), pa.int64())}))


def written_us(table: Any, version: int) -> int:
    """IDN-3, by hand: the engine's client gives the local time, without a zone."""
    moment = next(entry["timestamp"] for entry in table.list_versions() if entry["version"] == version)
    whole: datetime = moment.replace(microsecond=0)
    return int(whole.timestamp()) * 1_000_000 + int(moment.microsecond)


@cache
def numbered_since(rows: int) -> int:
    return written_us(numbered_table(rows), 1)


def edited(state: Mapping[str, Any], **edit: Any) -> dict[str, Any]:
    """A copy with other values and their own digest (CKP-8, by hand); where no JSON text exists, the old digest stays."""
    changed = {key: value for key, value in {**state, **edit}.items() if key != "digest"}
    try:
        text = json.dumps({key: changed[key] for key in sorted(changed)}, separators=(",", ":"), ensure_ascii=True)
    except TypeError:
        return {**state, **edit}
    return {**changed, "digest": hashlib.sha256(text.encode("ascii")).hexdigest()}


def ids(rows: Any) -> list[int]:
    return [row["id"] for row in rows]


def outcome(call: Callable[[], Any]) -> Any:
    """The value of a call, or the code of its error, for either reading."""
    try:
        return call()
    except (StreamingError, ModelError) as error:
        fields = getattr(error, "fields", ())
        return f"error {error.code}" + (f" {' '.join(fields)}" if fields else "")


def divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


ARGUMENTS = ("num_splits", "world_size", "rank", "shuffle", "shuffle_seed", "shuffle_clump_size", "partial_cycle")


class Twin:
    """One dataset and its model; every call is made on both, and both must agree on outcome and afterwards on place.

    It holds the newest two iterators, None for one whose reference was dropped; ``held`` says whether the newest was neither closed nor
    has said its end.
    """

    def __init__(self, settings: Settings, epoch: int = 0) -> None:
        arguments = {name: getattr(settings, name) for name in ARGUMENTS}
        self.dataset = StreamingDataset(numbered_table(settings.rows), epoch=epoch, **arguments)
        self.model = loader.open_loader(settings, epoch)
        self.newest: Any = None
        self.older: Any = None
        self.held = False
        self.check()

    def check(self) -> None:
        """Everything that can be observed without moving (CKP-1, CKP-2, CYC-5, EPO-7)."""
        assert self.dataset.state_dict() == loader.save(self.model)
        assert self.dataset.floor_state_dict() == loader.floor_state(self.model)
        assert len(self.dataset) == loader.length(self.model)
        assert self.dataset.samples_remaining == loader.remaining(self.model)
        assert self.dataset.samples_to_replay == loader.samples_to_replay(self.model)
        assert self.dataset.epoch == self.model.cursor.epoch

    def pull(self) -> int | None:
        """One row, from a new iterator where none is held; None at the end of the pass."""
        if not self.held:
            assert self.second_iterator() is None
        self.model, expected = loader.pull(self.model)
        row = next(self.newest, None)
        assert (None if row is None else row["id"]) == expected
        self.held = expected is not None
        self.check()
        return expected

    def pull_all(self) -> list[int]:
        rows = []
        while (row := self.pull()) is not None:
            rows.append(row)
        return rows

    def pull_older(self) -> str | None:
        """``next()`` on the iterator before the newest; returns the code of what it raises (CAL-3)."""
        if self.older is None:
            return None
        expected = outcome(lambda: loader.pull_older(self.model)[1])
        actual = outcome(lambda: next(self.older, None))
        assert actual == expected
        self.check()
        return expected if isinstance(expected, str) else None

    def close_older(self, drop: bool = True) -> None:
        """Drop or close the iterator before the newest, which changes nothing."""
        if drop:
            self.older = None
        elif self.older is not None:
            self.older.close()
        self.check()

    def close(self, drop: bool = True) -> None:
        """Drop the newest iterator, or close it and keep it."""
        if drop:
            self.newest = None
        elif self.newest is not None:
            self.newest.close()
        self.held = False
        self.model = loader.close(self.model)
        self.check()

    def second_iterator(self) -> Any:
        """Create a newer iterator; returns the code of a refusal."""
        expected = outcome(lambda: loader.start(self.model))
        actual = outcome(lambda: iter(self.dataset))
        if isinstance(expected, str):
            assert actual == expected
            self.check()
            return expected
        assert not isinstance(actual, str), actual
        self.model, self.older, self.newest, self.held = expected, self.newest, actual, True
        self.check()
        return None

    def change(self, name: str, *arguments: Any, **options: Any) -> str | None:
        """``load_state_dict``, ``set_epoch`` or ``rewind``; returns the code of a refusal."""
        before = json.dumps(arguments)
        expected = outcome(lambda: getattr(loader, {"load_state_dict": "load"}.get(name, name))(self.model, *arguments, **options))
        actual = outcome(lambda: getattr(self.dataset, name)(*arguments, **options))
        assert json.dumps(arguments) == before, "the argument was changed (RES-5)"
        if isinstance(expected, str):
            assert actual == expected
        else:
            assert actual is None
            self.model = expected
        self.check()
        return actual


def settings(rows: int, **arguments: Any) -> Settings:
    """Model settings for the numbered table."""
    arguments = {"shuffle_seed": 1 if arguments.get("shuffle", True) else None, **arguments}
    since = numbered_since(rows)
    return Settings(rows=rows, table_name=f"t{rows}", table_version_created_us=since, schema_fingerprint=FINGERPRINT, **arguments)
