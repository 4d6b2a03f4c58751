"""``pytest --impl pkg.mod:factory``: a test per clause, and nothing else. Without ``--impl`` nothing happens, and nothing is imported.

Where the package is not installed: ``pytest -p model.conformance.plugin --impl ...``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from model.conformance.result import Result

# The module under which the items stand: ``conformance::CYC-1``.
_ROOT = "conformance"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of ``python -m model.conformance run``."""
    group = parser.getgroup("conformance", "conformance of a data loader (spec/conformance.md)")
    group.addoption("--impl", metavar="pkg.mod:factory", help="judge this loader by every clause, and collect nothing else")
    group.addoption("--conformance-layers", metavar="LAYERS", default=None, help="some of smoke,small,vectors,machine,stress")
    group.addoption("--conformance-bound", choices=["smoke", "small", "large"], default="small", help="of the exhaustive layer")
    group.addoption("--conformance-seconds", type=float, default=600.0, help="begin no scenario after that")
    group.addoption("--conformance-examples", type=int, default=300, help="histories that the machine draws")
    group.addoption("--conformance-vectors", metavar="DIR", help="files of the layer vectors (default: those of the checkout)")
    group.addoption("--conformance-gaps", metavar="FILE", help="known gaps, JSON or TOML: clause to reason")


def pytest_configure(config: pytest.Config) -> None:
    """Take over where a loader is given."""
    if config.getoption("--impl"):
        config.pluginmanager.register(Door(config), "conformance-door")


class ClauseFailure(Exception):
    """A clause fails; the message is what people read."""


class Door:
    """Collects the clauses, and runs the engine once, for the first item that wants to know."""

    def __init__(self, config: pytest.Config) -> None:
        """Read the options: what cannot be used ends the session before it begins."""
        from model.conformance import cli, gaps, vectors  # noqa: PLC0415  nothing of the engine may be imported without --impl

        # An adapter beside the tests, as `python -m pytest` finds it too.
        sys.path.append(str(config.invocation_params.dir))
        self.impl: str = config.getoption("--impl")
        named = config.getoption("--conformance-gaps")
        self.seconds: float = config.getoption("--conformance-seconds")
        self.examples: int = config.getoption("--conformance-examples")
        directory = config.getoption("--conformance-vectors")
        self.vectors: Path | None = None if directory is None else config.invocation_params.dir / directory
        try:
            self.factory = cli.find_factory(self.impl)
            self.layers = cli.read_layers(config.getoption("--conformance-layers"), self.vectors)
            self.gaps = gaps.read_gaps(config.invocation_params.dir / named) if named else {}
        except (cli.UserError, gaps.GapsError, vectors.VectorsError) as error:
            raise pytest.UsageError(str(error)) from error
        if not (self.seconds > 0 and self.examples > 0):
            raise pytest.UsageError("--conformance-seconds and --conformance-examples must be positive")
        self.bound = cli.BOUNDS[config.getoption("--conformance-bound")]
        self._result: Result | None = None
        self._broken: Exception | None = None

    def result(self) -> Result:
        """What the engine found; it is run when this is first asked."""
        if self._broken is not None:
            raise self._broken
        if self._result is None:
            from model.conformance.engine import check_loader  # noqa: PLC0415  as above
            from model.conformance.mistakes import AdapterError  # noqa: PLC0415  as above

            try:
                self._result = check_loader(
                    self.factory,
                    layers=self.layers,
                    bound=self.bound,
                    seconds=self.seconds,
                    examples=self.examples,
                    gaps=self.gaps,
                    vectors=self.vectors,
                )
            except AdapterError as error:
                self._broken = ClauseFailure(f"the adapter does not work, so nothing was judged: {error}")
                raise self._broken from error
            except Exception as error:
                self._broken = ClauseFailure(f"could not run: {' '.join(f'{type(error).__name__}: {error}'.split())}")
                raise self._broken from error
            if self._result.sane is not None:
                self._broken = ClauseFailure(f"the adapter does not work, so nothing was judged: {' '.join(self._result.sane.split())}")
                raise self._broken
        return self._result

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """What no item says: a layer that was not run."""
        for layer, reason in self._result.not_run.items() if self._result else ():
            terminalreporter.write_line(f"the layer {layer} was not run: {reason}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool | None:
        """Instead of pytest's own collection: files, and what importing them costs, are no business of this session."""
        config = session.config
        if config.pluginmanager.hasplugin("dsession"):
            # The controller of pytest-xdist collects nothing; its workers come here, and each runs the engine.
            return None
        root = Clauses.from_parent(session, name=_ROOT, nodeid=_ROOT, door=self)
        report = config.hook.pytest_make_collect_report(collector=root)
        config.hook.pytest_collectreport(report=report)
        session.items = list(report.result)
        config.hook.pytest_collection_modifyitems(session=session, config=config, items=session.items)
        config.hook.pytest_collection_finish(session=session)
        session.testscollected = len(session.items)
        return True


class Clauses(pytest.Collector):
    """All clauses."""

    def __init__(self, *, door: Door, **arguments: Any) -> None:
        """Remember who has the result."""
        super().__init__(**arguments)
        self.door = door

    def collect(self) -> Iterator[pytest.Item]:
        """An item per clause."""
        from model.conformance.clauses import CLAUSES  # noqa: PLC0415  as above

        for clause in CLAUSES:
            yield ClauseItem.from_parent(self, name=clause, door=self.door)


class ClauseItem(pytest.Item):
    """One clause."""

    def __init__(self, *, door: Door, **arguments: Any) -> None:
        """Remember who has the result."""
        super().__init__(**arguments)
        self.door = door

    def runtest(self) -> None:
        """Pass, fail, skip what the loader cannot do; a known gap is an expected failure, a search that was cut short none."""
        from model.conformance.report import BAD, verdict  # noqa: PLC0415  as above
        from model.conformance.screen import failure  # noqa: PLC0415  as above

        result = self.door.result()
        found = verdict(result, self.name)
        if found.kind == "failed":
            raise ClauseFailure(failure(result.violations[self.name], self.door.impl, "codes" in result.description.capabilities))
        if found.kind in BAD:
            raise ClauseFailure(f"{self.name} {found.kind}: {found.reason}")
        if found.kind == "known gap":
            pytest.xfail(found.reason)
        if found.kind == "skipped":
            pytest.skip(f"{result.status(self.name)}: {found.reason}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """One screen, without the frames of the kit."""
        if isinstance(excinfo.value, ClauseFailure):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """What stands above a failure."""
        from model.conformance.clauses import CLAUSES  # noqa: PLC0415  as above

        return self.path, None, f"{self.name} {CLAUSES[self.name].says}"
