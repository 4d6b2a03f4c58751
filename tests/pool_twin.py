"""A StreamingDataLoader and its model side by side: every call on both, both must agree on outcome and place."""

from __future__ import annotations

from typing import Any

from model import workers as pool
from model.loader import Settings
from streaming import StreamingDataLoader, StreamingDataset
from tests.support import ARGUMENTS, ids, numbered_table, outcome

# How batches are made: of rows by a collate_fn, or of columns in a format.
LAYOUTS = (None, "python", "torch", "numpy", "arrow")


def batch_ids(batch: Any) -> tuple[int, ...]:
    """The ids of a batch, on either path."""
    return tuple(batch if isinstance(batch, list) else batch["id"].tolist())


class PoolTwin:
    """As ``Twin``, through a loader; ``iterator`` is the newest, None where it was closed or has said its end."""

    def __init__(self, settings: Settings, epoch: int = 0) -> None:
        arguments = {name: getattr(settings, name) for name in ARGUMENTS}
        self.dataset = StreamingDataset(numbered_table(settings.rows), epoch=epoch, **arguments)
        self.model = pool.open_pool(settings, epoch)
        self.iterator: Any = None
        self.newest: Any = None
        self.older: Any = None
        self.passes = 0
        self.check()

    def check(self) -> None:
        assert outcome(self.dataset.state_dict) == outcome(lambda: pool.save(self.model))
        assert self.dataset.floor_state_dict() == pool.floor_state(self.model)
        assert self.dataset.samples_remaining == pool.remaining(self.model)
        assert self.dataset.epoch == self.model.loader.cursor.epoch

    def start(self, workers: int, mode: str, batch_size: int | None, **others: Any) -> str | None:
        """Create loader and iterator; returns the code of a refusal."""
        expected = outcome(lambda: pool.start(self.model, workers, mode, batch_size))

        def begin() -> Any:
            arguments = {"num_workers": workers, "worker_sharding": mode, "batch_size": batch_size, **others}
            arguments |= {"collate_fn": one} if batch_size is None else self.next_path()
            loader = StreamingDataLoader(self.dataset, **arguments)
            assert len(loader) == pool.length(self.model.loader.settings, workers, mode, batch_size)
            return iter(loader)

        actual = outcome(begin)
        if isinstance(expected, str):
            assert actual == expected
            self.check()
            return expected
        assert not isinstance(actual, str), actual
        self.model, self.older, self.newest = expected, self.newest, actual
        self.iterator = actual
        self.check()
        return None

    def next_path(self) -> dict[str, Any]:
        """Another way to make batches for each pass (BAT-1)."""
        self.passes += 1
        layout = LAYOUTS[(self.passes + len(self.dataset)) % len(LAYOUTS)]
        return {"collate_fn": ids} if layout is None else {"format": layout}

    def deliver(self) -> tuple[int, ...] | None:
        """One batch; None at the end of the pass."""
        self.model, expected = pool.deliver(self.model)
        batch = next(self.iterator, None)
        assert (None if batch is None else batch_ids(batch)) == expected
        if expected is None:
            self.iterator = None
        self.check()
        return expected

    def refused(self) -> str | None:
        """The code with which the newest iterator refuses its first batch (CAL-4); it waits on."""
        expected = outcome(lambda: pool.begin(self.model))
        if not isinstance(expected, str):
            return None
        assert outcome(lambda: next(self.iterator)) == expected
        self.check()
        return expected

    def pull_older(self) -> str | None:
        """``next()`` on the iterator before the newest; returns the code of what it raises (CAL-3)."""
        if self.older is None:
            return None
        expected = outcome(lambda: pool.pull_older(self.model)[1])
        assert outcome(lambda: next(self.older, None)) == expected
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
        self.iterator = None
        self.model = pool.close(self.model)
        self.check()

    def change(self, name: str, *arguments: Any) -> str | None:
        """``load_state_dict``, ``set_epoch`` or ``rewind``; returns the code of a refusal."""
        expected = outcome(lambda: getattr(pool, {"load_state_dict": "load"}.get(name, name))(self.model, *arguments))
        actual = outcome(lambda: getattr(self.dataset, name)(*arguments))
        if isinstance(expected, str):
            assert actual == expected
        else:
            assert actual is None
            self.model = expected
        self.check()
        return actual


def one(row: dict[str, int]) -> list[int]:
    return [row["id"]]
