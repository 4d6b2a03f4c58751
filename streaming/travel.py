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


def goes_to_a_plain_loaders_worker(dataset: object) -> bool:
    """Whether torch's multi-process iterator is sending this dataset, by itself or in a wrapper.

    A dataset that is held by a collate_fn, or by the dataset of a StreamingDataLoader, may travel to any worker and delivers nothing there.
    """
    if _search.wanted is not None:
        _search.found |= dataset is _search.wanted
        return False
    sent = _sent_by_torch()
    if sent is None or isinstance(sent, Replica):
        return False
    return sent is dataset or _holds(sent, dataset)


def _sent_by_torch() -> Any:
    """The dataset of the multi-process iterator that is being built, if one is."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "__init__" and frame.f_code.co_filename.endswith("dataloader.py"):
            return getattr(frame.f_locals.get("self"), "_dataset", None)
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
