"""The released peer, `lancedb.streaming`, under the kit: torch's DataLoader, its own StreamingDataLoader, and that with worker processes.

Written against lancedb 0.40.0; only its public interface is used. What was found is in spec/verdict-lancedb.md.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import multiprocessing
import shutil
import tempfile
import threading
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import lancedb
import pyarrow as pa
from torch.utils.data import DataLoader

from model.conformance.adapter import Adapter, Description, Failed, Refused, World

# Words with which the engine begins its own refusals; they reach Python as ValueError or RuntimeError without a line of Python that raises.
_ENGINE = ("Invalid input", "lance error")


class BadRow(Exception):
    """What the transform raises for the row of `fault`."""


class Hung(Exception):
    """A call did not return in time: the kit takes it for a crash."""


class Handle:
    """One loader, its iterator, and the row that fails."""

    def __init__(self, around: Callable[..., Any], table: Any, world: World, tuning: Mapping[str, int]) -> None:
        """Build a dataset, and a loader around it."""
        self.bad: int | None = None
        self.iterator: Any = None
        self.hung = False
        self.dataset = _peer().StreamingDataset(
            table,
            num_splits=world.num_splits,
            shuffle=world.shuffle,
            shuffle_seed=world.shuffle_seed,
            shuffle_clump_size=world.shuffle_clump_size,
            epoch=world.epoch,
            rank=world.rank,
            world_size=world.world_size,
            # Workers need a transform that pickles; none of their scenarios has a bad row.
            transform=None if world.num_workers else self._transform,
            **tuning,
        )
        self.loader = around(
            self.dataset,
            batch_size=world.batch_size,
            num_workers=world.num_workers,
            # A forked engine may hang, so its workers are not forked.
            multiprocessing_context=multiprocessing.get_context("forkserver") if world.num_workers else None,
            collate_fn=_ids,
        )

    def next(self) -> Any:
        """The next batch of the iterator, of a new one where none is alive."""
        if self.iterator is None:
            self.iterator = iter(self.loader)
        return next(self.iterator, None)

    def _transform(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = batch.to_pylist()
        if any(row["id"] == self.bad for row in rows):
            raise BadRow
        return rows


class LanceDB(Adapter):
    """StreamingDataset in torch's DataLoader, in the trainer's own process.

    Attributes
    ----------
    tuning : mapping
        Read sizes of the dataset, which must not matter. Rows are read one by one, so that a bad row takes as few others with it as the
        peer allows, and so that what arrives before it does not depend on threads.
    patience_s : float
        How long one call may take.
    """

    name = "lancedb.streaming, DataLoader"
    capabilities: ClassVar[frozenset[str]] = frozenset({"shuffle", "merge", "break", "faults", "append"})
    tuning: ClassVar[Mapping[str, int]] = {
        "read_batch_size": 1,
        "io_queue_depth": 1,
        "transform_queue_depth": 1,
        "transform_parallelism": 1,
    }
    patience_s: ClassVar[float] = 20.0

    def __init__(self) -> None:
        """A database of its own, on disk: tables in memory cannot be read any more once they have grown."""
        folder = tempfile.mkdtemp(prefix="conformance-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.database = lancedb.connect(folder)
        self.tables: dict[str, Any] = {}

    def describe(self) -> Description:
        """No length, no set_epoch, one policy for partial cycles, orders and errors of its own."""
        return Description(self.name, lancedb.__version__, self.capabilities)

    def open(self, world: World) -> Handle:
        """A new dataset and loader."""
        if world.table not in self.tables:
            self.tables[world.table] = self.database.create_table(world.table, _numbers(0, world.rows))
        handle: Handle = self._ask(lambda: Handle(self.around, self.tables[world.table], world, self.tuning))
        return handle

    def around(self, dataset: Any, **arguments: Any) -> Any:
        """The loader around a dataset."""
        return DataLoader(dataset, **arguments)

    def pull(self, handle: Handle) -> Sequence[int] | None:
        """The next batch; after the end of a pass the next pull begins another."""
        if handle.hung:
            raise Hung("an earlier call on this loader has not returned")
        try:
            batch: Sequence[int] | None = self._ask(handle.next)
        except BadRow as error:
            raise Failed from error
        except Hung:
            handle.hung = True
            raise
        if batch is None:
            handle.iterator = None
        return batch

    def save(self, handle: Handle) -> Any:
        """The dataset's state as JSON text."""
        return json.dumps(self._ask(handle.dataset.state_dict))

    def resume(self, handle: Handle, state: Any) -> None:
        """Load a state, or what is none."""
        try:
            loaded = json.loads(state) if isinstance(state, str) else state
        except ValueError:
            loaded = state
        self._ask(lambda: handle.dataset.load_state_dict(loaded))

    def kill(self, handle: Handle) -> None:
        """Drop the iterator; its generator then ends, and with it threads and workers. What fails here is no part of any check."""
        with contextlib.suppress(Exception):
            self.close(handle)

    def close(self, handle: Handle) -> None:
        """Drop the iterator, as leaving a for loop does."""
        self._ask(lambda: setattr(handle, "iterator", None))

    def fault(self, handle: Handle, row: int | None) -> None:
        """Tell the transform."""
        handle.bad = row

    def merge(self, states: Sequence[Any], skew: str) -> Any:
        """There is one way of merging, whatever `skew` asks for."""
        del skew
        return json.dumps(self._ask(lambda: _peer().StreamingDataset.merge_state_dicts([json.loads(state) for state in states])))

    def append(self, table: str, rows: int) -> None:
        """Another version."""
        count = self.tables[table].count_rows()
        self.tables[table].add(_numbers(count, count + rows))

    def _ask(self, call: Callable[[], Any]) -> Any:
        try:
            return within(self.patience_s, call)
        except (ValueError, RuntimeError, TypeError) as error:
            if _meant(error):
                raise Refused from error
            raise


class LanceDBLoader(LanceDB):
    """The same in the peer's own StreamingDataLoader."""

    name = "lancedb.streaming, StreamingDataLoader"

    def around(self, dataset: Any, **arguments: Any) -> Any:
        """The loader around a dataset."""
        return _peer().StreamingDataLoader(dataset, **arguments)


class LanceDBWorkers(LanceDBLoader):
    """StreamingDataLoader with real worker processes for worlds that have workers: seconds for each scenario."""

    name = "lancedb.streaming, StreamingDataLoader with workers"
    capabilities = LanceDB.capabilities | {"workers"}
    patience_s = 90.0


def _peer() -> Any:
    """The module under test. Older releases of lancedb have none, and to import this file must not fail there."""
    return importlib.import_module("lancedb.streaming")


def within(seconds: float, call: Callable[[], Any]) -> Any:
    """The result of a call, made in a thread of its own; `Hung` if it takes longer. The thread is then told to end."""
    outcome: list[tuple[bool, Any]] = []

    def work() -> None:
        try:
            outcome.append((True, call()))
        except BaseException as error:
            outcome.append((False, error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        # A loop of Python ends at its next instruction; what waits outside of Python stays behind as a daemon.
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Hung))
        thread.join(1.0)
        raise Hung(f"no answer within {seconds:g} s")
    succeeded, value = outcome.pop()
    if succeeded:
        return value
    if isinstance(value, Exception):
        raise value
    raise RuntimeError(f"{type(value).__name__}: {value}") from value


def _meant(error: Exception) -> bool:
    """Whether somebody wrote a refusal: a raise statement, not an accident of the interpreter; or the engine's own words."""
    if isinstance(error, ValueError | RuntimeError) and str(error).startswith(_ENGINE):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    return frames[-1].name != "within" and (frames[-1].line or "").startswith("raise ")


def _numbers(start: int, stop: int) -> pa.Table:
    return pa.table({"id": pa.array(range(start, stop), pa.int64())})


def _ids(rows: list[dict[str, Any]]) -> list[int]:
    return [row["id"] for row in rows]
