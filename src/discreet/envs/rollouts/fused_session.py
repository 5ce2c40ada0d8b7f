"""Conversion of a count session to flat arrays for the fused driver, the compiled loop of simulations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from discreet.core.correlated_noise import factorization_kernels as walks
from discreet.core.correlated_noise.decaying_sum import Decaying
from discreet.core.correlated_noise.factorization import program
from discreet.core.count_sessions import CountSession
from discreet.core.releases import Floats, Ints
from discreet.core.rng import Key
from discreet.mechanisms.local import randomized_response_kernels as local_kernels
from discreet.mechanisms.local.randomized_response_session import report_arrays

__all__ = ["SessionKernel", "handed_over"]

_STREAMS = ("exact", "walk", "local", "decaying", "reports")  # compiled loops use the index as a code

_NO_PROGRAM = walks.Program(
    walks.TREE, np.zeros(2, np.int64), np.zeros(0), np.zeros((1, 6), np.int64), np.zeros((1, 4))
)
_NOTHING = np.zeros(1, np.int64)
_NO_REPORTS = local_kernels.ReportArrays(
    np.zeros(local_kernels.FIRST + 16, np.int64), np.zeros(8), _NOTHING, _NOTHING, _NOTHING, _NOTHING,
    np.zeros((1, 1, 1), np.int64), np.zeros((1, 1, 1), np.int64), _NOTHING,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class SessionKernel:
    """State of a session as flat arrays, the form that the fused driver uses.

    The kernels that read them are in :mod:`discreet.core.count_kernels`.
    """

    stream: int
    family: int
    key: Key
    offsets: Ints
    scales: Floats
    by_user: bool
    begins: Ints
    slots: int
    reward_shift: float
    cells: Floats
    ends: Ints
    stack: Floats
    decay: float
    gain: float
    program: walks.Program
    reports: local_kernels.ReportArrays
    release_scales: Floats


def handed_over(session: CountSession) -> SessionKernel:
    """Return the session as flat arrays for the fused driver, and close the session.

    The session is closed because two callers must not draw the same noise. Raises ``RuntimeError`` unless the
    session is unused, has a seed and knows the number of users K. Group returns and clipped rewards also
    raise ``RuntimeError``.
    """
    with session._call():
        session._check_open()
        if session._query.steered:
            raise RuntimeError("kernel: the fused simulation has no group returns or clipped rewards")
        if session._plans or session._number or session._key is None or session._schedule.users is None:
            raise RuntimeError(
                "kernel: only a fresh, seeded session with a known number of users can be fused"
            )
        mechanism = session._mechanism
        walk, decaying = mechanism.walk, Decaying(mechanism.decay)
        out = SessionKernel(
            stream=_STREAMS.index(mechanism.stream),
            family=mechanism.family,
            key=session._key,
            offsets=session._query.offsets,
            scales=session._scales,
            by_user=session._leaf == "user",
            begins=session._begins,
            slots=session._query.slots,
            reward_shift=session._query.reward_shift,
            cells=session._cells,
            ends=np.zeros(walk.registers + 1 if walk else 1, np.int64),
            stack=np.zeros((walk.registers if walk else 2, session._query.cells)),
            decay=decaying.decay,
            gain=decaying.gain,
            program=_NO_PROGRAM if walk is None else program(walk),
            reports=_report_arrays(session),
            release_scales=np.array(mechanism.release_scales),
        )
        session._drop()
        return out


def _report_arrays(session: CountSession) -> local_kernels.ReportArrays:
    reports, layout = session.mechanism.reports, session._query.layout
    if reports is None:
        return _NO_REPORTS
    return report_arrays(reports, layout.rows, layout.states, session._schedule.plans != "deterministic")
