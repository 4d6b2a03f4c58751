"""What a load makes of a state: which version to read, from which place, or why not (spec/identity.md, spec/checkpoint.md)."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from streaming import evolution, identity
from streaming.checkpoint import Saved, check_exact
from streaming.cycle import Cursor
from streaming.errors import ArgumentValueError, StateMismatchError, TooFewRowsError, VersionError
from streaming.identity import Identity
from streaming.position import Standing
from streaming.source import Source
from streaming.topology import Topology

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Resumption:
    """The terms on which a dataset takes states.

    Parameters
    ----------
    topology : Topology
        Splits and ranks of the dataset that loads.
    partial_cycle : str
        ``"replay"`` or ``"exact"``.
    seed_drawn, version_given : bool
        Whether the seed was drawn (IDN-6), and the version asked for (IDN-7).
    accepted : collection of str
        Fields in which a difference is accepted (IDN-11).
    reopen : callable
        Opens another version of the dataset's table.
    """

    topology: Topology
    partial_cycle: str
    seed_drawn: bool
    version_given: bool
    accepted: Collection[str]
    reopen: Callable[[int], Source]

    def of(self, saved: Saved, now: Standing) -> tuple[Cursor, Source, Identity, int]:
        """Return the new cursor, source, identity and number of rows that come again; log what the user should know.

        Raises
        ------
        StateMismatchError, VersionError, TooFewRowsError, PartialCycleError
            The state does not fit.
        """
        own = now.identity
        if self.seed_drawn and saved.identity.shuffle:
            own = replace(own, shuffle_seed=saved.identity.shuffle_seed)
        source = self._source(saved.identity, own, now.source)
        own = replace(own, **data_identity(source))
        if saved.identity.table_version == source.version:
            own = replace(own, table_version_created_us=source.created_us())
        differing = identity.differences(saved.identity, own, self.accepted, version_given=self.version_given)
        columns = ""
        if "schema_fingerprint" in differing:
            columns = evolution.of_versions(saved.identity.table_version, saved.identity.schema_fingerprint, source)
        self._check(saved, own, differing, columns)
        cursor, replay = self._place(saved)
        self._tell(saved, own, differing, now, columns=columns, source=source)
        return cursor, source, own, replay

    def _source(self, saved: Identity, own: Identity, current: Source) -> Source:
        """The source at the recorded version, where nothing speaks against it (IDN-7)."""
        stays = self.version_given or "table_version" in self.accepted or not identity.settings_fit(saved, own, self.accepted)
        if stays or saved.table_version == current.version:
            return current
        staying = self._staying(saved, own, current.version)
        try:
            return self.reopen(saved.table_version)
        except VersionError as error:
            raise VersionError(f"the state needs a version that cannot be read. {error} {staying}") from error
        except ArgumentValueError as error:  # a column, or a filter, that the recorded version does not know
            raise type(error)(
                f"the state was saved on version {saved.table_version}, and this dataset was built on version {current.version}, whose "
                f"columns may be others. {error}. Build the dataset with what both versions have. {staying}",
                error.argument,
            ) from error

    def _staying(self, saved: Identity, own: Identity, version: int) -> str:
        """How to go on where the recorded version cannot be read. With other rows an accept would repeat some and lose others."""
        if saved.selected_rows != own.selected_rows:
            return (
                f"Version {version} selects {own.selected_rows} rows, the state's selected {saved.selected_rows}: its epoch cannot be "
                "finished there; begin the next one (set_epoch)"
            )
        fields = identity.differences(saved, own, {"table_version", *self.accepted})
        return f"Only where version {version} is known to hold the same rows, in the same order, can accept={json.dumps(fields)} stay on it"

    def _check(self, saved: Saved, own: Identity, differing: Sequence[str], columns: str) -> None:
        """Refuse what differs and was not accepted (IDN-9, IDN-11)."""
        refused = [name for name in differing if name not in self.accepted]
        length = own.selected_rows // own.num_splits
        if "selected_rows" in differing and (saved.cursor.cycle > length or (saved.cursor.cycle == length and saved.cursor.served)):
            if not refused:
                raise StateMismatchError(
                    f"the state stands behind {saved.cursor.cycle} cycles (selected_rows: {saved.identity.selected_rows}); the dataset's "
                    f"{own.selected_rows} rows have {length}, so that the place does not exist there, whatever is accepted",
                    ["selected_rows"],
                )
            refused = [name for name in differing if name in refused or name == "selected_rows"]
        identity.refuse(refused, saved.identity, own, columns=columns if "schema_fingerprint" in refused else "")
        if not length:
            raise TooFewRowsError(f"the version to resume on has {own.selected_rows} rows, too few for num_splits={own.num_splits}")

    def _place(self, saved: Saved) -> tuple[Cursor, int]:
        """The cursor, and how many rows of this rank come again (RES-3, RES-4)."""
        if self.partial_cycle == "exact":
            check_exact(saved, self.topology.world_size)
            return saved.cursor, 0
        first, n = self.topology.first_split, self.topology.splits_per_rank
        return replace(saved.cursor, served=()), sum(first <= split < first + n for split in saved.cursor.served)

    @staticmethod
    def _tell(saved: Saved, own: Identity, differing: Sequence[str], now: Standing, *, columns: str, source: Source) -> None:
        if differing:
            said = identity.details(differing, saved.identity, own, columns=columns)
            _log.warning("accepted, though the state belongs to other data (%s)", said)
        if own.table_version != now.source.version:
            others = ""
            if source.fingerprint != now.source.fingerprint:
                others = "; " + evolution.of_versions(source.version, source.fingerprint, now.source)
            _log.info(
                "table %r: reading version %d, which the state records, not %d%s",
                own.table_name,
                own.table_version,
                now.source.version,
                others,
            )
        if saved.identity.table_name != own.table_name and "table_name" not in differing:
            _log.info("the state was saved from table %r, which is %r now", saved.identity.table_name, own.table_name)
        if saved.cursor.epoch != now.floor().epoch:
            _log.info("the state's epoch %d replaces epoch %d", saved.cursor.epoch, now.floor().epoch)


def data_identity(source: Source) -> dict[str, Any]:
    """What a source says of itself in a state, but for its creation time, which costs a listing (IDN-2, IDN-4)."""
    return {
        "table_name": source.name,
        "table_version": source.version,
        "selected_rows": source.rows,
        "schema_fingerprint": source.fingerprint,
    }
