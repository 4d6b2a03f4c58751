"""Faults in this project's own `streaming`, one function each: the kit must see them behind a real loader, and not in toys only.

Each fault is a context manager within which one function of `streaming` is another one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Any

from model.conformance.adapters.streaming import Streaming
from model.conformance.wrong import Control, patched
from streaming import checkpoint, order
from streaming.cycle import Cursor, RankSequence
from streaming.dataset import StreamingDataset
from streaming.delivery import DealtDelivery, Delivery
from streaming.ending import EndingIterator
from streaming.errors import StreamingError
from streaming.loader import LoaderIterator, StreamingDataLoader
from streaming.position import Position
from streaming.resume import Resumption
from streaming.sharding import Shards
from streaming.topology import Topology

FAULTS: list[Control] = []


def _fault(*clauses: str) -> Callable[[Callable[[], AbstractContextManager[None]]], Callable[[], AbstractContextManager[None]]]:
    def register(during: Callable[[], AbstractContextManager[None]]) -> Callable[[], AbstractContextManager[None]]:
        FAULTS.append(Control(f"streaming/{during.__name__}", str(during.__doc__), frozenset(clauses), Streaming, during))
        return during

    return register


# ---- order and assignment


@_fault("ORD-12")
def too_few_rounds() -> AbstractContextManager[None]:
    """Twelve rounds for small tables too."""
    right = order._round_keys
    return patched(order, "_round_keys", lambda seed, epoch, rounds: right(seed, epoch, min(rounds, 12)))


@_fault("CYC-1")
def block_off_by_one() -> AbstractContextManager[None]:
    """The block of every rank but the first begins one split too late."""
    return patched(Topology, "first_split", property(lambda own: (own.rank * own.splits_per_rank + (own.rank > 0)) % own.num_splits))


@_fault("WRK-13")
def length_without_the_tail() -> AbstractContextManager[None]:
    """len() without the last, shorter batch."""
    return patched(StreamingDataLoader, "__len__", lambda loader: len(loader.dataset) // loader.batch_size)


# ---- places


@_fault("RES-3", "CKP-2", "LAW-4")
def cursor_lags_by_a_row() -> AbstractContextManager[None]:
    """The cursor of whole cycles is one row behind: a completed cycle comes again."""
    right = RankSequence.cursor
    return patched(RankSequence, "cursor", lambda own, received: right(own, max(received - 1, 0)))


@_fault("RES-4")
def partial_cycle_not_remembered() -> AbstractContextManager[None]:
    """Splits served of the partial cycle before the load are not in the states after it."""

    def served_further(own: Any, received: int) -> tuple[int, ...]:
        served = set(right(own, received)) - set(own.start.served)
        return tuple(sorted(served))

    right = RankSequence._served_further
    return patched(RankSequence, "_served_further", served_further)


@_fault("DLV-1", "RES-3")
def rows_handed_count() -> AbstractContextManager[None]:
    """The row that is prepared next counts as received, once a pass is under way."""

    def progress(own: Delivery) -> int | Shards:
        return own.received + (own.received > 0)

    return patched(Delivery, "progress", progress)


@_fault("RES-8")
def partial_cycle_dropped_at_load() -> AbstractContextManager[None]:
    """A load goes on behind the partial cycle."""
    return patched(
        Resumption, "_place", lambda _, saved: (replace(saved.cursor, cycle=saved.cursor.cycle + bool(saved.cursor.served), served=()), 0)
    )


@_fault("RES-6")
def epoch_of_the_state_ignored() -> AbstractContextManager[None]:
    """A load stays in the epoch of the dataset."""

    def of(own: Resumption, saved: Any, now: Any) -> Any:
        cursor, *others = right(own, saved, now)
        return replace(cursor, epoch=now.floor().epoch), *others

    right = Resumption.of
    return patched(Resumption, "of", of)


@_fault("EPO-2")
def epoch_not_moved_on() -> AbstractContextManager[None]:
    """A pass over a completed epoch is one over the same epoch."""

    def begun(own: Any, now: Any, cursor: Cursor) -> Any:
        again = now.remaining() == 0 and not now.asked
        return right(own, now, replace(cursor, epoch=cursor.epoch - 1) if again else cursor)

    right = Position._begun
    return patched(Position, "_begun", begun)


@_fault("EPO-4")
def set_epoch_begins_anew() -> AbstractContextManager[None]:
    """set_epoch to the current epoch begins it anew."""

    def ask_for(own: Position, epoch: int) -> None:
        right(own, epoch)
        own.rewind()

    right = Position.ask_for
    return patched(Position, "ask_for", ask_for)


# ---- refusals


@_fault("IDN-7")
def version_not_opened_again() -> AbstractContextManager[None]:
    """A load stays on the newest version of the table."""
    return patched(Resumption, "_source", lambda *given: given[-1])


@_fault("IDN-6", "IDN-8")
def identity_not_checked() -> AbstractContextManager[None]:
    """Nothing that differs is refused."""
    return patched(Resumption, "_check", lambda *_: [])


@_fault("CKP-6")
def digest_not_checked() -> AbstractContextManager[None]:
    """A state whose digest is not that of its values is well formed."""

    def decode(state: Any) -> Any:
        return right(checkpoint.signed(state) if isinstance(state, dict) and "digest" in state else state)

    right = checkpoint.decode
    return patched(checkpoint, "decode", decode)


@_fault("RES-5")
def refused_load_moves() -> AbstractContextManager[None]:
    """A load that is refused leaves the dataset at the beginning of its epoch."""

    def load(own: Any, state: Any, *, accept: Any = ()) -> None:
        try:
            right(own, state, accept=accept)
        except StreamingError as error:
            if error.code != "iterator.alive":
                own.rewind()
            raise

    right = StreamingDataset.load_state_dict
    return patched(StreamingDataset, "load_state_dict", load)


@_fault("MRG-2")
def merge_takes_the_maximum() -> AbstractContextManager[None]:
    """Ranks at different steps merge to the one that is furthest."""
    return patched(checkpoint, "min", max)


# ---- delivery


@_fault("DLV-4")
def lease_not_checked() -> AbstractContextManager[None]:
    """Nothing is refused under a pass with rows left."""
    return patched(Position, "refuse_if_alive", lambda *_: None)


@_fault("DLV-4")
def older_iterator_goes_on() -> AbstractContextManager[None]:
    """A newer iterator does not end the one before it."""
    return patched(EndingIterator, "supersede", lambda _: None)


@_fault("DLV-4")
def superseded_iterator_is_closed() -> AbstractContextManager[None]:
    """An iterator that was superseded says that its pass has ended."""
    return patched(EndingIterator, "supersede", EndingIterator.close)


@_fault("DLV-4")
def idle_iterator_is_alive() -> AbstractContextManager[None]:
    """An iterator that was never asked for a batch holds the place."""

    def is_alive(own: Position) -> bool:
        newest = own._newest() if own._newest is not None else None
        return newest is not None and not newest.over

    return patched(Position, "_is_alive", is_alive)


@_fault("DLV-4", "EPO-4")
def iter_uses_up_set_epoch() -> AbstractContextManager[None]:
    """What set_epoch asked for is forgotten where an iterator is created."""

    def supersede(own: Position, *given: Any, **others: Any) -> None:
        right(own, *given, **others)
        own._standing = replace(own._standing, asked=False)

    right = Position.supersede
    return patched(Position, "supersede", supersede)


@_fault("DLV-4")
def break_counts_the_next_batch() -> AbstractContextManager[None]:
    """The batch that is next when a pass is left counts as received."""

    def release(own: Any) -> None:
        with suppress(Exception):
            _, worker, count, *_ = next(own._inner)
            own._delivery.commit(worker, count)
        right(own)

    right = LoaderIterator._release
    return patched(LoaderIterator, "_release", release)


@_fault("DLV-5")
def failure_looks_like_the_end() -> AbstractContextManager[None]:
    """After a failure the iterator says that the pass has ended."""

    def over(_: Any) -> None:
        raise StopIteration

    return patched(EndingIterator, "raise_over", over)


@_fault("DLV-6")
def killed_batch_counts() -> AbstractContextManager[None]:
    """A row counts although its batch has failed."""

    def restore(own: Any, progress: Any) -> None:
        right(own, progress)
        own.handed += 1

    right = DealtDelivery.restore
    return patched(DealtDelivery, "restore", restore)
