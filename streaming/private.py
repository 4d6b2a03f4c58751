"""Private names of torch and Python that this package leans on, each with what happens where it is missing."""

from __future__ import annotations

import multiprocessing.process
from collections.abc import Iterable
from multiprocessing.process import BaseProcess

# ---- processes


def forget_children(children: Iterable[BaseProcess]) -> None:
    """In a forked process: these are the parent's, and must not be ended and joined at this one's exit.

    Where the name is missing, a child of ``os.fork()`` that ends by ``sys.exit()`` waits for the parent's workers. Python empties the
    set by itself in children that multiprocessing forks.
    """
    known = getattr(multiprocessing.process, "_children", None)
    if isinstance(known, set):
        known.difference_update(children)
