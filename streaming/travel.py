"""Whether a dataset is on its way to the worker of a plain DataLoader, whose deliveries it will not see (WRK-19)."""

from __future__ import annotations

import pickle
import sys
import threading
from typing import Any

from streaming.replica import Replica


class _Search(threading.local):
    """What is looked for while a user's wrapper is pickled on trial, and whether it came by."""

    wanted: object = None
    found = False


_search = _Search()


def plain_iterator_that_takes(dataset: object) -> Any:
    """torch's multi-process iterator that is sending this dataset to its workers, by itself or in a wrapper, if one is.

    A dataset that is held by a collate_fn, or by the dataset of a StreamingDataLoader, may travel to any worker and delivers nothing there.
    """
    if _search.wanted is not None:
        _search.found |= dataset is _search.wanted
        return None
    iterator = _being_built()
    sent = getattr(iterator, "_dataset", None)
    if sent is None or isinstance(sent, Replica):
        return None
    return iterator if sent is dataset or _holds(sent, dataset) else None


def _being_built() -> Any:
    """torch's multi-process iterator that is being built, if one is."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "__init__" and frame.f_code.co_filename.endswith("dataloader.py"):
            return frame.f_locals.get("self")
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _holds(wrapper: Any, dataset: object) -> bool:
    """Whether a wrapper takes the dataset along when it is pickled."""
    _search.wanted, _search.found = dataset, False
    try:
        pickle.dumps(wrapper)
    except Exception:  # torch will say so itself
        return True
    finally:
        _search.wanted = None
    return _search.found
