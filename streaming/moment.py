"""When a table version was written (IDN-3): asked for in the background, from the time when the version is pinned."""

from __future__ import annotations

import logging
import threading
import time
from datetime import datetime, timedelta, timezone
from typing import Any, Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
# A listing fails where a clean-up removes a version under it; asked again, it nearly always succeeds.
_ATTEMPTS: Final = 4
_PAUSE_S: Final = 0.05

_log = logging.getLogger(__name__)


class Moment:
    """One listing of the versions of a table, under way.

    It begins at once, because the engine lists by place: the longer one waits, the more may another table or history lie there.

    Parameters
    ----------
    handle : lancedb.table.Table
        The pinned version.
    proof : str or None
        A column of which one row is read after the listing. For listings that come late: what can be read after it was not dropped
        before it.
    """

    def __init__(self, handle: Any, proof: str | None = None) -> None:
        self._handle, self._proof = handle, proof
        self._found: int | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._ask, name="streaming-moment", daemon=True)
        self._thread.start()

    def microseconds(self) -> int | None:
        """Microseconds of UTC since 1970, None where the engine does not tell; waits for the listing."""
        self._thread.join()
        return self._found

    def warn(self) -> None:
        """Say why there is none."""
        _log.warning(
            "the creation time of version %s of table %r cannot be read (%r): states say None for it, and fit only with "
            'accept=["table_version_created_us"]',
            self._handle.version,
            self._handle.name,
            self._error,
        )

    def _ask(self) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                self._found = self._listed()
                return
            except Exception as error:  # whatever the engine raises: a state without the moment is worth more than none
                self._error = error
            time.sleep(_PAUSE_S * attempt)

    def _listed(self) -> int:
        written = {int(entry["version"]): entry["timestamp"] for entry in self._handle.list_versions()}
        if self._proof is not None:
            self._handle.take_offsets([0]).select([self._proof]).to_arrow()
        return microseconds(written[int(self._handle.version)])


def microseconds(moment: datetime) -> int:
    """Since 1970, of a time with a zone, or of one without, which the engine's client gives in this machine's zone.

    In the hour that a zone repeats when daylight saving ends, a time without a zone is taken for the first pass.
    """
    return (moment.astimezone(timezone.utc) - _EPOCH) // timedelta(microseconds=1)
