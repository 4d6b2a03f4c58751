"""The one error of the model. It carries a stable code of ``spec/errors.md`` and nothing that matters else."""

from __future__ import annotations

# The codes that a model without threads, tables and transforms can raise. The others of spec/errors.md belong to production.
CODES = (
    "argument.type",
    "argument.value",
    "data.too_few_rows",
    "state.malformed",
    "state.schema_version",
    "state.mismatch",
    "state.partial_cycle",
    "merge.count",
    "merge.skew",
    "iterator.alive",
    "iterator.failed",
)

# Those of chapter workers.
WORKER_CODES = ("state.mid_step", "workers.mid_step", "workers.partial_cycle")

# No code of the specification: it stands for whatever a worker raised, the user's own exception or torch's (WRK-14).
RAISED = "worker.raised"


class ModelError(Exception):
    """A refusal.

    Parameters
    ----------
    code : str
        One of ``CODES`` or ``WORKER_CODES``, or ``RAISED``.
    message : str
        For people; nobody may depend on it.
    """

    def __init__(self, code: str, message: str = "") -> None:
        """Refuse with a code."""
        assert code in (*CODES, *WORKER_CODES, RAISED), f"{code} is not a code of spec/errors.md that the model knows"
        super().__init__(f"{code}: {message}")
        self.code = code
