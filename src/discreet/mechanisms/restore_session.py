"""Restore a saved session once from its file (:mod:`discreet.mechanisms.saved_state.state_file`).

The state of every kind of session is in its tables (:class:`~discreet.core.lifecycle.Saveable`). The state
includes the indices of used noise draws, the registers of correlated noise, and the releases. A restored
session therefore never draws the same noise twice.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from discreet.core import checks
from discreet.core.releases import Release
from discreet.core.session import ChannelSession
from discreet.mechanisms.dataset.dataset_release import OneShotSession
from discreet.mechanisms.linear.adaptive_queries import ResponseSession
from discreet.mechanisms.open_session import session_of
from discreet.mechanisms.saved_state import state_file as saved_state
from discreet.mechanisms.saved_state import version_2
from discreet.mechanisms.saved_state.save import CLASSES

Restored = ChannelSession | ResponseSession | OneShotSession

_CLASSES: tuple[type[ResponseSession] | type[OneShotSession], ...] = (ResponseSession, OneShotSession)
_KINDS = {kind._kind: kind for kind in _CLASSES}


def restore(path: str | os.PathLike[str], folder: str | os.PathLike[str] | None = None) -> Restored:
    """Continue a saved session: remove its file permanently and return the session.

    Parameters
    ----------
    path : path of the file that ``session.save`` wrote
    folder : path, optional
        Folder with the table of restored states. Default: ``$DISCREET_STATE_DIR``, otherwise
        ``$XDG_STATE_HOME/discreet``, otherwise ``~/.local/state/discreet``.

    Raises
    ------
    RuntimeError
        If this state was already restored on this machine, from this file or a copy of it. Also if another
        file replaced this file while it was read. The file at the path is not removed.
    ValueError
        If the file is not a saved state, is damaged, or has another format version. The file is not removed.
    FileNotFoundError
        If the file does not exist.

    Notes
    -----
    A second session from one state would release more than the guarantee covers. This function cannot detect
    a copy that is restored on another machine, by another user or with another table of restored states. It
    also cannot detect that a disk or virtual machine was reset to an earlier snapshot, or that the table was
    deleted. The machine's operator must prevent copies.

    A restored seeded run equals the uninterrupted run bit for bit. A restored secure run has the same
    distribution as the uninterrupted run.
    """
    try:
        saved = saved_state.read(path, CLASSES)
    except FileNotFoundError as error:
        error.add_note("a saved session is restored once: that takes its file away, for good")
        raise
    claim = saved_state.Claim(saved, folder)
    session = _revived(saved)
    try:
        claim.take()
        session._closed = False
        return session
    except BaseException:
        # No caller has this session yet. It is closed before another session can get its state.
        session._drop()
        claim.undo(saved.values, CLASSES)
        raise


def brought_back(content: bytes) -> Restored:
    """Return the session from the bytes of :func:`discreet.mechanisms.saved_state.save.taken_out`.

    This function does not detect that the same bytes were restored before. The caller must not publish any
    output of the session until the session's new state has replaced this state in one transaction. Only one
    of two sessions from the same state can replace it. Therefore no noise is published twice.

    Raises ``ValueError`` if the bytes are not a saved state, are damaged, or have another format version.
    """
    said = "content"
    identity, values = saved_state.read_content(io.BytesIO(content), len(content), said, CLASSES)
    session = _revived(saved_state.SavedState(Path(said), identity, values, content[-32:]))
    session._closed = False
    return session


def _revived(saved: saved_state.SavedState) -> Restored:
    """Return the session in a file. Calls are rejected until the file is removed."""
    where, values = f"path = {str(saved.path)!r}", dict(saved.values)
    kind = values.pop("session", "counts")  # files of version 1 with counts may lack this field
    stream = kind in (ChannelSession._kind, *version_2.STREAMS)
    if not isinstance(kind, str) or not (stream or kind in _KINDS):
        raise ValueError(f"{where}: was written by another version (of a session of {checks.said(kind)})")
    try:
        session: Restored = _stream(values) if stream else saved_state.made_of(_KINDS[kind], values)
    except (KeyError, IndexError, TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"{where}: was written by another version ({error!r})") from error
    except ValueError as error:
        raise ValueError(f"{where}: was written by another version ({error})") from error
    session._closed = True
    return session


def _stream(values: dict[str, Any]) -> ChannelSession:
    """Return the session of a mechanism, with the state read from a file."""
    session = session_of(*(values.pop(name) for name in ChannelSession._BOUND))
    if not isinstance(session, ChannelSession):
        raise ValueError("_mechanism: has no stream")
    saved_state.resume(session, version_2.converted(values, session))
    if not isinstance(session._last, Release | None):
        raise ValueError("_last: must be a Release")
    return session
