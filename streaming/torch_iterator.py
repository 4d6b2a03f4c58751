"""torch's DataLoader without workers, made to tell when a batch begins, fails and arrives (DLV-2).

What is private to torch: while its single-process iterator is being built it asks the dataset for an iterator, from a frame in which it
is ``self``; and it has the attributes below. Its class is then replaced by a subclass of it, which counts behind torch's own ``__next__``.
Where torch is built otherwise, rows count as they are handed out, and one warning says so (DLV-3).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Hashable
from functools import cache
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from torch.utils.data import get_worker_info

from streaming.delivery import BatchDelivery, Delivery
from streaming.transforms import ended_silently

if TYPE_CHECKING:
    from streaming.rows import RowIterator

_ATTRIBUTES: Final = frozenset({"_drop_last", "_auto_collation", "_index_sampler"})
_log = logging.getLogger(__name__)


class TorchIterator:
    """torch's iterator, once it was found.

    Parameters
    ----------
    iterator
        The iterator, which may still be under construction.
    """

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator

    def delivery(self) -> Delivery:
        """What counts its batches."""
        torch_iterator = self._iterator
        by_batches = bool(torch_iterator._auto_collation)
        size = int(torch_iterator._index_sampler.batch_size) if by_batches else 1
        return BatchDelivery(size, by_batches and bool(torch_iterator._drop_last))

    def drive(self, rows: RowIterator) -> None:
        """Let its batches begin and end the pass of these rows."""
        self._iterator._streaming_rows = rows
        self._iterator.__class__ = _counting(self._iterator.__class__)


class _CountsBatches:
    """Stands before torch's class. A batch counts with the last instruction before it is returned: no interrupt comes in between."""

    _streaming_rows: RowIterator

    def __next__(self) -> Any:
        rows = self._streaming_rows
        if rows.over:
            rows.raise_over()
        delivery: Any = rows.delivery
        arrived = delivery.batches
        try:
            rows.inside = True
            rows.begin()
            batch = super().__next__()  # type: ignore[misc]
            if delivery.after(arrived + 1) == delivery.rows:
                rows.end("ended")
            delivery.batches = arrived + 1
            rows.inside = False
        except BaseException as error:
            rows.inside = False
            delivery.batches = arrived
            if not rows.begun:
                raise  # refused: nothing has changed
            if isinstance(error, StopIteration):
                delivery.exhausted = rows.drained
                if delivery.received == delivery.rows:
                    rows.end("ended")
                    raise
                delivery.exhausted = False
                if delivery.handed == delivery.received:
                    rows.close()  # torch, or what is built on it, has its own reasons; no row is at stake
                    raise
            rows.fail()
            if isinstance(error, StopIteration):
                raise ended_silently("collate_fn") from error
            raise
        return batch


@cache
def _counting(torch_class: Hashable) -> Any:
    # Under its own name, because others look for it by name.
    base: Any = torch_class
    return type(base.__name__, (_CountsBatches, base), {"__module__": base.__module__})


def find(dataset: object) -> TorchIterator | None:
    """The iterator of torch that is being built and asks this very dataset for its rows; None for everybody else.

    To be called from the dataset's ``__iter__``. Through a wrapper the rows of the dataset need not be those of torch's batches.
    """
    frame: FrameType | None = sys._getframe(2)
    # Only torch's frames are asked for their locals: the answer is kept with the frame, and would prolong the life of a user's variables.
    if frame is None or frame.f_code.co_name != "__init__" or not frame.f_code.co_filename.endswith("fetch.py"):
        return None
    if type(frame.f_locals.get("self")).__name__ != "_IterableDatasetFetcher" or frame.f_locals.get("dataset") is not dataset:
        return None
    for _ in range(3):
        frame = frame.f_back
        if frame is None or not frame.f_code.co_filename.endswith(("fetch.py", "dataloader.py")):
            break
        iterator = frame.f_locals.get("self")
        if type(iterator).__name__.endswith("SingleProcessDataLoaderIter") and vars(iterator).keys() >= _ATTRIBUTES:
            return TorchIterator(iterator)
    if get_worker_info() is None:
        _log.warning("this torch's DataLoader has an unknown shape: rows count as received when they are handed out, not with their batch")
    return None
