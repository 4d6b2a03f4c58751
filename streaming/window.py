"""Rows as they were read: a window in storage order, and the order in which they are wanted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streaming.joining import fitted


@dataclass(frozen=True)
class Window:
    """Rows of a sequence, in two steps: as they were read, and where each wanted one is.

    Parameters
    ----------
    read : pyarrow.RecordBatch
        The rows as they came.
    index : array of shape (n,)
        For each wanted row, in order, its place among them.
    schema : pyarrow.Schema
        The types of the wanted rows; all rows together may need large ones (BAT-17).
    """

    read: pa.RecordBatch
    index: npt.NDArray[np.int64]
    schema: pa.Schema

    def __len__(self) -> int:
        return len(self.index)

    @property
    def nbytes(self) -> int:
        """Arrow bytes of the wanted rows."""
        return int(self.read.nbytes * len(self) // self.read.num_rows)

    def rows(self, begin: int, end: int) -> pa.RecordBatch:
        """The wanted rows ``begin <= i < end``, in memory of their own."""
        return fitted(self.read.take(pa.array(self.index[begin:end])), self.schema)
