"""How a table is opened again in another process: a recipe, never an open handle (WRK-17)."""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from streaming.errors import PickleError, VersionError

ConnectionFactory = Callable[[str], Any]


@dataclass(frozen=True)
class Recipe:
    """How to open a table by itself.

    Parameters
    ----------
    name : str
        Table name.
    factory : callable or None
        The user's own: maps the table name to a table, with the user's own credentials.
    connection : str or None
        What lancedb's connection says of itself, where there is no factory.
    namespace : tuple of str
        Path of the namespace.
    """

    name: str
    factory: ConnectionFactory | None
    connection: str | None
    namespace: tuple[str, ...]

    @classmethod
    def of(cls, table: Any, factory: ConnectionFactory | None) -> Recipe:
        """The recipe of an open table.

        Raises
        ------
        PickleError
            The table does not tell how it was opened.
        """
        if factory is not None:
            return cls(table.name, factory, None, ())
        try:
            connection = table._conn.serialize()
        except (AttributeError, NotImplementedError) as error:
            raise PickleError(
                f"table {table.name!r} does not tell how to open it again in a worker process; pass connection_factory, a function "
                "defined in a module that maps the table name to a table"
            ) from error
        return cls(table.name, None, connection, tuple(table._namespace_path or ()))

    @property
    def in_memory(self) -> bool:
        """Whether the table lives in this process only."""
        return self.factory is None and '"memory://' in (self.connection or "")

    def open(self) -> Any:
        """Open the table.

        Raises
        ------
        VersionError
            It is not there any more.
        """
        try:
            if self.factory is not None:
                return self.factory(self.name)
            import lancedb  # noqa: PLC0415  importing lancedb starts threads: only in the process that reads

            return lancedb.deserialize_conn(self.connection).open_table(self.name, namespace_path=list(self.namespace) or None)
        except Exception as error:  # whatever the engine or the user's own function raises
            raise VersionError(f"table {self.name!r} cannot be opened again, as it was opened before: {error}") from error


class _TrialPickler(pickle.Pickler):
    """Refuses functions and classes of a main module that worker processes do not import, which would end them at their start."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, (type, FunctionType)) and value.__module__ == "__main__" and not _main_is_imported():
            raise pickle.PicklingError(
                f"{value.__qualname__} is defined in the main module, of which workers have no file (a notebook, or python -c)"
            )
        return NotImplemented


def _main_is_imported() -> bool:
    """Whether multiprocessing imports this main module in the processes that it starts."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return not f".{spec.name}".endswith(".__main__")
    return getattr(main, "__file__", None) is not None


def check_picklable(**items: Any) -> None:
    """Refuse what cannot travel to a worker process, naming the argument (WRK-17).

    Raises
    ------
    PickleError
        The first argument that cannot be pickled.
    """
    for name, item in items.items():
        try:
            _TrialPickler(io.BytesIO()).dump(item)
        except Exception as error:
            if isinstance(error, RuntimeError) and "through inheritance" in str(error):
                continue  # a lock or a queue of multiprocessing, which can be pickled only while a process is started
            remedy = "define functions and classes at the top level of a module"
            raise PickleError(f"{name} cannot be pickled, which worker processes need ({error}); {remedy}") from error
