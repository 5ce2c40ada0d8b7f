"""Texts that explain the causes of failures to an operator.

The text of a database driver's error is never repeated, because it can contain data that a user sent. A known
error code is explained by a sentence. For any other error, the text states the type of the error and the
place in the code where it was raised.
"""

from __future__ import annotations

import errno

from discreet.ledger.ledger import BudgetError, LedgerError

__all__ = ["cause", "where"]

# Prefixes of SQLite's error names and of PostgreSQL's error codes.
_KNOWN: tuple[tuple[str, str], ...] = (
    ("SQLITE_FULL", "the disk of the database is full"),
    ("SQLITE_READONLY", "the database is read-only"),
    ("SQLITE_CANTOPEN", "the file of the database cannot be opened"),
    ("SQLITE_IOERR", "the disk of the database fails"),
    ("SQLITE_BUSY", "another process keeps the database for itself"),
    ("SQLITE_LOCKED", "another process keeps the database for itself"),
    ("SQLITE_CORRUPT", "the database is damaged"),
    ("SQLITE_NOTADB", "the database is damaged"),
    ("53100", "the disk of the database is full"),
    ("53", "the database server has no memory or no connections left"),
    ("25006", "the database is read-only"),
    ("08", "the database server does not answer"),
    ("57P", "the database server does not answer"),
    ("28", "the database server refuses the user or the password"),
)
_DISK = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk is full (quota)",
    errno.EROFS: "the file system is read-only",
    errno.EMFILE: "the process has too many files and connections open",
}


def where(error: BaseException) -> str:
    """Return the file and line where an error was raised.

    The error's message is omitted, because it can contain data that a user sent.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


def cause(error: BaseException) -> str:
    """Return the cause of a failure as a sentence, or the type and place of the error if the cause is
    unknown.
    """
    name = type(error).__name__
    # the texts of these errors contain file names and numbers, never a user's message
    if isinstance(error, LedgerError | BudgetError):
        return str(error)
    inner = getattr(error, "orig", None) or error  # SQLAlchemy's errors contain the driver's error
    code = getattr(inner, "sqlite_errorname", None) or getattr(inner, "sqlstate", None) or ""
    for begins, words in _KNOWN:
        if code.startswith(begins):
            return f"{words} ({name}, {code})"
    if isinstance(error, OSError) and error.errno in _DISK:
        return f"{_DISK[error.errno]} ({name})"
    return f"{name} {where(error)}"
