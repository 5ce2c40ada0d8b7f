"""Conversion of a count session to flat arrays for the fused driver, the compiled loop of simulations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from discreet.core.correlated_noise import factorization_kernels as walks
from discreet.core.correlated_noise.decaying_sum import Decaying
from discreet.core.correlated_noise.factorization import program
from discreet.core.count_channels import CountChannel, is_of_counts
from discreet.core.count_mechanism import CountMechanism
from discreet.core.releases import Floats, Ints
from discreet.core.rng import Key
from discreet.core.session import ChannelSession
from discreet.mechanisms.local import randomized_response_kernels as local_kernels
from discreet.mechanisms.local.randomized_response_session import report_arrays
from discreet.mechanisms.local.randomized_response_strategy import reports_of

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
    """State of a session as flat arrays for the fused driver."""

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


def handed_over(session: ChannelSession) -> SessionKernel:
    """Return the session as flat arrays for the fused driver, and close the session.

    Raises ``RuntimeError`` unless the session is unused, has a seed and knows the number of users K. Also
    raises ``RuntimeError`` if the query has group returns or clipped rewards, or if a factorization has no
    compiled program.
    """
    if not is_of_counts(session):
        raise RuntimeError("kernel: the fused simulation is for sums of counts")
    if session.query.steered:
        raise RuntimeError("kernel: the fused simulation has no group returns or clipped rewards")
    if (walk := session.mechanism.walk) is not None and walk.code < 0:
        raise RuntimeError(f"kernel: {type(walk).__name__} has no compiled program")
    channel, state = session.hand_over()
    assert isinstance(channel, CountChannel)
    mechanism, query, key = channel.mechanism, channel.mechanism.counts, channel.key
    assert key is not None
    decaying = Decaying(mechanism.decay)
    return SessionKernel(
        stream=_STREAMS.index(mechanism.stream),
        family=mechanism.family,
        key=key,
        offsets=query.offsets,
        scales=channel.scales,
        by_user=mechanism.leaf == "user",
        begins=channel.begins,
        slots=query.slots,
        reward_shift=query.reward_shift,
        cells=state["cells"],
        ends=np.zeros(walk.registers + 1 if walk else 1, np.int64),
        stack=np.zeros((walk.registers if walk else 2, query.cells)),
        decay=decaying.decay,
        gain=decaying.gain,
        program=_NO_PROGRAM if walk is None else program(walk),
        reports=_report_arrays(mechanism),
        release_scales=np.array(mechanism.release_scales),
    )


def _report_arrays(mechanism: CountMechanism) -> local_kernels.ReportArrays:
    reports, layout = reports_of(mechanism), mechanism.query.layout
    if reports is None:
        return _NO_REPORTS
    return report_arrays(reports, layout.rows, layout.states, mechanism.schedule.plans != "deterministic")
