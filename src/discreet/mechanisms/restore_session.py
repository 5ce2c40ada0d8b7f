"""Restore a saved session, once, from its own file (:mod:`discreet.mechanisms.saved_state.state_file`).

What a session of any kind knows is in its tables (:class:`~discreet.core.lifecycle.Saveable`).
Addresses of noise that were spent, registers of running noises, and what was released are among it, so that a
restored session draws no noise again, neither for the same sum nor for another one.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

from discreet.core import checks
from discreet.core.count_sessions import CountSession, MeasuredSession, WalkSession
from discreet.core.fresh_noise_session import DecayingSession
from discreet.mechanisms.batch_queries import BatchSession
from discreet.mechanisms.central.clipped_reward_session import CutSession
from discreet.mechanisms.central.per_pair_session import ClockSession
from discreet.mechanisms.central.policy_return_session import GroupSession
from discreet.mechanisms.dataset.dataset_release import OneShotSession
from discreet.mechanisms.linear.adaptive_queries import ResponseSession
from discreet.mechanisms.linear.linear_session import LinearSession
from discreet.mechanisms.local.noisy_vector_session import DeviceSession
from discreet.mechanisms.local.randomized_response_session import ReportedSession
from discreet.mechanisms.saved_state import state_file as saved_state
from discreet.mechanisms.saved_state.save import CLASSES
from discreet.mechanisms.shuffle.amplified_session import AmplifiedSession
from discreet.mechanisms.shuffle.shuffle_session import ShuffleSession

Restored = CountSession | LinearSession | ShuffleSession | BatchSession | ResponseSession | OneShotSession

_SESSIONS: tuple[type[Restored], ...] = (
    MeasuredSession, WalkSession, DecayingSession, GroupSession, CutSession, ClockSession, DeviceSession,
    ReportedSession, LinearSession, ShuffleSession, AmplifiedSession, BatchSession, ResponseSession,
    OneShotSession,
)  # fmt: skip
_KINDS = {kind._kind: kind for kind in _SESSIONS}


def restore(path: str | os.PathLike[str], folder: str | os.PathLike[str] | None = None) -> Restored:
    """Continue a saved session: takes the file, for good, and returns the session that it held.

    Parameters
    ----------
    path : path of the file that ``session.save`` wrote
    folder : path, optional
        Where the table of restored states is kept; default ``$DISCREET_STATE_DIR``, else
        ``$XDG_STATE_HOME/discreet``, else ``~/.local/state/discreet``.

    Raises
    ------
    RuntimeError
        If this state, from this file or a copy of it, was restored before on this machine, or another file
        took the place of this one while it was read; what is there stays.
    ValueError
        If the file is no saved state, damaged, or of another version; the file stays.
    FileNotFoundError
        If there is no such file.

    Notes
    -----
    A second session from one state would release more than the guarantee covers. What cannot be
    seen here: a copy restored on another machine, by another user or with another table; a disk or
    virtual machine set back to an earlier snapshot; a deleted table. Copies are for the machine's
    keeper to prevent.

    A seeded run continued here equals the uninterrupted one bit for bit; a secure one has the same law.
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
        # nobody has seen the session: it ends before anybody else can have its state
        session._drop()
        claim.undo(saved.values, CLASSES)
        raise


def brought_back(content: bytes) -> Restored:
    """The session in bytes that :func:`discreet.mechanisms.saved_state.save.taken_out` gave.

    Nothing here knows whether it was brought back before. Who calls this shows nothing that the session
    releases before the state after it has taken this one's place, in one transaction; and of two sessions
    from one state only one can do that. So each noise that anybody sees was drawn once.

    Raises ``ValueError`` if the bytes are no saved state, damaged, or of another version.
    """
    said = "content"
    identity, values = saved_state.read_content(io.BytesIO(content), len(content), said, CLASSES)
    session = _revived(saved_state.SavedState(Path(said), identity, values, content[-32:]))
    session._closed = False
    return session


def _revived(saved: saved_state.SavedState) -> Restored:
    """The session in a file, closed until the file is taken."""
    where, values = f"path = {str(saved.path)!r}", dict(saved.values)
    kind = values.pop("session", MeasuredSession._kind)  # files of version 1 with counts may lack it
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"{where}: was written by another version (of a session of {checks.said(kind)})")
    try:
        session: Restored = saved_state.made_of(_KINDS[kind], values)
    except (KeyError, IndexError, TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"{where}: was written by another version ({error!r})") from error
    except ValueError as error:
        raise ValueError(f"{where}: was written by another version ({error})") from error
    session._closed = True
    return session
