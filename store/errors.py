"""What can go wrong with the store where somebody is there to be told.

::

    StoreError
    ├── UnsupportedStore    the URL names something this release cannot use
    ├── StoreMissing        there is no store where a command that only looks was told to look
    ├── StoreInUse          another proxy holds this database
    ├── SchemaTooNew        the database was written by a newer release
    ├── StoreUnavailable    an administrative change could not be written (disk full, locked, closing)
    └── UnknownDimension    a purge or a listing names a dimension that does not exist

None of them is raised on the path of a chat request: there every failure is a miss.
"""

from __future__ import annotations

__all__ = [
    "SchemaTooNew",
    "StoreError",
    "StoreInUse",
    "StoreMissing",
    "StoreUnavailable",
    "UnknownDimension",
    "UnsupportedStore",
]


class StoreError(Exception):
    """Base of everything the store raises on purpose; the message is one line fit for an operator."""


class UnsupportedStore(StoreError):  # noqa: N818 - reads as what it says
    """The URL names a database that this release cannot use, or a file that is not its own."""


class StoreMissing(StoreError):  # noqa: N818
    """There is no store where the URL points, and what was asked for is none of the things that make one."""


class StoreInUse(StoreError):  # noqa: N818
    """Another process (or another `Cache` of this one) holds the database."""


class SchemaTooNew(StoreError):  # noqa: N818
    """The database was written by a newer release; using it could destroy what that release relies on."""


class StoreUnavailable(StoreError):  # noqa: N818
    """A change that somebody waits for could not be written."""


class UnknownDimension(StoreError, ValueError):  # noqa: N818
    """A purge or listing names an unknown dimension, or none; the message names the nearest known one."""
