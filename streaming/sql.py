"""Names in SQL, as the engine reads it."""

from __future__ import annotations


def quoted(name: str) -> str:
    """A column's name, or a path into a struct, for a predicate: words of SQL, spaces and quotes in it mean nothing there.

    Examples
    --------
    >>> quoted("order"), quoted("address.zip code")
    ('`order`', '`address`.`zip code`')
    """
    return ".".join(f"`{part}`" for part in name.split("."))
