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


class ModelError(Exception):
    """A refusal.

    Parameters
    ----------
    code : str
        One of ``CODES``.
    message : str
        For people; nobody may depend on it.
    """

    def __init__(self, code: str, message: str = "") -> None:
        """Refuse with a code."""
        assert code in CODES, f"{code} is not a code of spec/errors.md that the model knows"
        super().__init__(f"{code}: {message}")
        self.code = code
