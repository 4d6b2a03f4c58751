"""The one error of the model. It carries a stable code of ``spec/errors.md``, the fields that it names, and nothing that matters else."""

from __future__ import annotations

# The codes of a model of places and states: no threads, engines and transforms. The others of spec/errors.md belong to production.
CODES = (
    "argument.type",
    "argument.value",
    "data.too_few_rows",
    "data.version",
    "state.malformed",
    "state.schema_version",
    "state.mismatch",
    "state.partial_cycle",
    "merge.count",
    "merge.skew",
    "merge.ranks",
    "ranks.mismatch",
    "iterator.alive",
    "iterator.superseded",
    "iterator.failed",
)

# Those of chapter workers. The model has no plain DataLoader: ``state.unknown`` reaches it only as what a rank sent (MRG-3).
WORKER_CODES = ("state.mid_step", "state.unknown", "workers.mid_step", "workers.partial_cycle")

# Those of chapter batches: what cannot be collated (BAT-4), and what a transform must not do (BAT-10, BAT-12, DLV-7).
BATCH_CODES = ("batch.column", "transform.failed")

# No code of the specification: it stands for whatever a worker raised, the user's own exception or torch's (WRK-14).
RAISED = "worker.raised"


class ModelError(Exception):
    """A refusal.

    Parameters
    ----------
    code : str
        One of ``CODES``, ``WORKER_CODES`` or ``BATCH_CODES``, or ``RAISED``.
    message : str
        For people; nobody may depend on it.
    fields : tuple of str
        The fields that differ, in sequence (IDN-9, MRG-1, MRG-4); the column of ``batch.column`` (BAT-4); empty for other codes.
    """

    def __init__(self, code: str, message: str = "", fields: tuple[str, ...] = ()) -> None:
        """Refuse with a code."""
        assert code in (*CODES, *WORKER_CODES, *BATCH_CODES, RAISED), f"{code} is not a code of spec/errors.md that the model knows"
        super().__init__(f"{code}: {message or ', '.join(fields)}")
        self.code = code
        self.fields = fields
