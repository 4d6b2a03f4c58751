"""The place of a dataset as its user sees it: saved, loaded, merged, compared, moved (spec/checkpoint.md, spec/identity.md)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from streaming import arguments, checkpoint, identity, ranks
from streaming.checkpoint import State
from streaming.cycle import Cursor
from streaming.position import Position, Standing
from streaming.ranks import Contribution
from streaming.resume import Resumption
from streaming.source import Source
from streaming.topology import Topology


class Stateful:
    """What `StreamingDataset` can do with its place, torch.distributed.checkpoint's protocol of the same name included (MRG-5)."""

    _position: Position
    _topology: Topology
    _columns: Sequence[str] | None
    _partial_cycle: str
    _seed_drawn: bool
    _version_given: bool

    # ---- checkpoints

    def state_dict(self) -> State:
        """Return the place after the rows received so far: a plain dict, the same on all ranks at one step (CKP-1, CKP-2).

        The first call asks the engine when the pinned version was written, which lists the table's versions (IDN-4).

        Raises
        ------
        MidStepError
            With several workers in documented mode, between step boundaries; the message says how many more batches to take (WRK-9).
        UnknownPlaceError
            While a plain DataLoader delivers from worker processes (WRK-19).
        """
        standing, cursor = self._position.checkpoint()
        return self._encoded(standing, cursor)

    def floor_state_dict(self) -> State:
        """Return the state of the completed cycles only; it never raises (CKP-4)."""
        standing = self._position.standing
        return self._encoded(standing, standing.floor())

    def load_state_dict(self, state: Mapping[str, Any], *, accept: Collection[str] = ()) -> None:
        """Go to the place of a state; a refused load changes nothing (spec/checkpoint.md, Resume; spec/identity.md).

        A table that has grown is opened again at the recorded version; one that was copied, moved or renamed fits.

        Parameters
        ----------
        state : mapping
            What `state_dict` or `merge_state_dicts` returned, also after JSON, pickle or torch.save; it is not changed.
        accept : list, tuple or set of str
            Fields of the data's identity in which a difference is accepted, with a warning, at your own risk: ``"table_version"`` stays
            on the pinned version, ``"table_version_created_us"`` takes a table made again for the old one (IDN-11).

        Raises
        ------
        IteratorAliveError
            A pass of this dataset is alive, with rows left (DLV-4).
        MalformedStateError, SchemaVersionError
            Not a state, or not one of this release.
        StateMismatchError
            It belongs to other data or settings; `fields` names them.
        PartialCycleError
            ``partial_cycle="exact"`` cannot finish the cycle on this world size.
        VersionError
            The recorded table version cannot be opened.
        ArgumentTypeError, ArgumentValueError
            `accept` is no collection of such fields.
        """
        accepted = identity.check_accept(accept)
        self._position.refuse_if_alive("load_state_dict")
        terms = Resumption(self._topology, self._partial_cycle, self._seed_drawn, self._version_given, accepted, self._at_version)
        self._position.go_to(*terms.of(checkpoint.decode(state), self._position.standing))

    @property
    def samples_to_replay(self) -> int:
        """Rows that this rank receives a second time because of the last load (RES-3, EPO-7)."""
        return self._position.standing.replaying()

    @staticmethod
    def merge_state_dicts(states: Iterable[Mapping[str, Any]], *, skew: str = "refuse") -> State:
        """Merge one state per rank into one that serves all; see `streaming.merge_state_dicts` (MRG-1, MRG-2)."""
        return checkpoint.merge_state_dicts(states, skew=skew)

    def gather_state_dict(self, group: Any = None, *, skew: str = "refuse") -> State:
        """Merge the states of all ranks over a process group; every process calls it and gets the same state (MRG-3).

        Parameters
        ----------
        group : torch.distributed.ProcessGroup, optional
            A group with one process per rank. Default: the default group; needless where there is one rank only.
        skew : {"refuse", "replay"}
            As for `merge_state_dicts`.

        Raises
        ------
        DuplicateRankError, MergeCountError, MergeSkewError, StateMismatchError
            The ranks do not make one consistent set.
        MidStepError, UnknownPlaceError
            What `state_dict` raised on some rank, raised on all.
        GroupMissingError, ArgumentTypeError, ArgumentValueError
            Several ranks and no process group; a wrong argument.
        """
        return ranks.gather(self._contribution(), group, skew)

    def check_ranks(self, group: Any = None) -> None:
        """Compare identity, settings and place over all ranks, before the first step; every process calls it (MRG-4).

        Parameters
        ----------
        group : torch.distributed.ProcessGroup, optional
            As for `gather_state_dict`.

        Raises
        ------
        RanksDifferError
            `fields` names what differs; the message says which ranks have which value.
        DuplicateRankError, MergeCountError, MidStepError, UnknownPlaceError, GroupMissingError, ArgumentValueError
            As for `gather_state_dict`.
        """
        ranks.check(self._contribution(), group)

    # ---- epochs

    @property
    def epoch(self) -> int:
        """The epoch that the current place belongs to."""
        return self._position.standing.floor().epoch

    def set_epoch(self, epoch: int) -> None:
        """Ask for exactly this epoch: another one starts at its beginning, the current one keeps its place (EPO-4).

        Raises
        ------
        ArgumentTypeError, ArgumentValueError
            Not an int in ``[0, 2**63)``.
        IteratorAliveError
            A pass of this dataset is alive, with rows left (DLV-4).
        """
        number = arguments.integer("epoch", epoch, 0)
        self._position.refuse_if_alive("set_epoch")
        self._position.ask_for(number)

    def rewind(self) -> None:
        """Go to the start of the current epoch (EPO-5).

        Raises
        ------
        IteratorAliveError
            A pass of this dataset is alive, with rows left (DLV-4).
        """
        self._position.refuse_if_alive("rewind")
        self._position.rewind()

    # ---- inside

    def _contribution(self, **settings: Any) -> Contribution:
        """What this rank tells the others."""
        return Contribution.of(
            self._topology.rank, self._topology.world_size, self.state_dict, {"partial_cycle": self._partial_cycle, **settings}
        )

    def _encoded(self, standing: Standing, cursor: Cursor) -> State:
        named = replace(standing.identity, table_version_created_us=standing.source.created_us())
        return checkpoint.encode(named, self._topology.world_size, cursor)

    def _at_version(self, version: int) -> Source:
        """Another version of the same table, with the same selection."""
        standing = self._position.standing
        return standing.source.at(version, self._columns, standing.identity.filter)
