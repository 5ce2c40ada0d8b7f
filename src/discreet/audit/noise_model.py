r"""Model of the noise that a session claims to add: its mixing into releases, its scales, and its residuals.

If a session releases sums, the releases of family f are the exact sums plus B_f z. The entries of z are
independent with scale 1, and B_f is the mechanism's mixing matrix times the scale of the family. Other
sessions release only measurements (group returns, clipped rewards). A measurement is gain * S plus fresh
noise, where S is the decaying sum of the data. Decay, gain and scales are read from the release, and S is
computed from the records.

For linear sums, a family in this module is a contiguous block of cells that share a scale
(:attr:`LinearQuery.blocks`). For matrices, only the cells of the upper triangle are used. Each answer to a
query about offline data (:class:`AnsweredQuery`) has fresh noise of the scale that the answer states.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.audit import noise_matrix as walks
from discreet.core import count_kernels as kernels
from discreet.core.correlated_noise.decaying_sum import Decaying
from discreet.core.count_query import CountQuery
from discreet.core.families import GROUP_RETURNS
from discreet.core.releases import Estimate, Floats, Release
from discreet.core.trajectories import Trajectory
from discreet.mechanisms.linear.linear_queries import GramQuery, LinearQuery
from discreet.mechanisms.query_queue import Response

AuditQuery = CountQuery | LinearQuery


# ------------------------------------------------------------------------------ claimed noise
def noise_matrix(session: Any, times: Sequence[int]) -> Floats | None:
    """Return the (T, m) mixing matrix B.

    In every cell, the noise of the sums after times[i] users is B[i] z. The m entries of z are independent
    and have the family's scale. A session of another class can provide its matrix by a method
    ``noise_matrix(times)``. The result is None if noise is not added to sums, or if the mixing is unknown.
    """
    own = getattr(session, "noise_matrix", None)
    if own is not None:
        return np.asarray(own(times), np.float64)
    mechanism = getattr(session, "mechanism", None)
    stream = getattr(mechanism, "stream", None)
    n = len(times)
    if mechanism is None or not n:
        return None
    if stream == "local":
        return (np.arange(1, times[-1] + 1)[None] <= np.asarray(times)[:, None]).astype(np.float64)
    if stream == "batches":
        return np.tril(np.ones((n, n)))
    if stream == "decaying":
        law = Decaying(mechanism.decay)
        return (np.tril(np.full((n, n), 1.0 - law.decay), -1) + np.eye(n)) / law.gain
    if stream != "walk" or mechanism.walk is None or mechanism.walk.leaves is None:
        return None
    matrix, _ = walks.noise_matrix(mechanism.walk)
    leaves = np.asarray(times) if mechanism.leaf == "user" else np.arange(1, n + 1)
    matrix = matrix[leaves - 1]
    return matrix[:, (matrix != 0).any(axis=0)]


@dataclass(frozen=True, eq=False)
class Noise:
    """Noise that a session claims.

    Parameters
    ----------
    family : code of the noise distribution
    scales : (families,) scales of one draw
    mixings : mixing matrix B_f of each family; None if the matrices are unknown
    measured : True if no sums are released. Each measurement then has fresh noise with the scales that it
    states
    """

    family: int
    scales: Floats
    mixings: tuple[Floats, ...] | None
    measured: bool

    @property
    def laplace(self) -> bool:
        """True for Laplace noise, False for Gaussian noise."""
        return self.family == kernels.LAPLACE

    @property
    def square(self) -> bool:
        """True if every whitened residual is a single draw of noise."""
        return self.measured or (
            self.mixings is not None and self.mixings[0].shape[0] == self.mixings[0].shape[1]
        )


def has_sums(session: Any) -> bool:
    """Return True if a session releases sums, and False if it releases only measurements."""
    return not getattr(getattr(session, "query", None), "steered", False)


def _linear_noise(session: Any, query: LinearQuery, times: Sequence[int]) -> Noise | None:
    """Return the claimed noise of linear sums, with one scale for each block."""
    mechanism = session.mechanism
    if not mechanism.scales:
        return None
    family = kernels.LAPLACE if mechanism.noise == "laplace" else kernels.GAUSSIAN
    scales, unit = query.block_scales(mechanism.scales, mechanism.noise), noise_matrix(session, times)
    return Noise(family, scales, None if unit is None else tuple(unit * scale for scale in scales), False)


def noise_of(session: Any, query: AuditQuery, times: Sequence[int]) -> Noise | None:
    """Return the noise that a session claims to add to the query's cells, or None if it adds none."""
    if isinstance(query, LinearQuery):
        return _linear_noise(session, query, times)
    mechanism: Any = getattr(session, "mechanism", None)
    scales: Any = getattr(mechanism, "scales", None)
    if scales is None or np.size(scales) != len(query.row_families) or (np.asarray(scales) <= 0).any():
        return None
    family, scales = int(mechanism.family), np.asarray(scales, np.float64)
    if not has_sums(session):
        return Noise(family, scales, None, True)
    unit = noise_matrix(session, times)
    if unit is None:
        return Noise(family, scales, None, False)
    by_release = getattr(mechanism, "release_scales", None)
    # the scales differ between releases, and each release has its own draw
    if by_release is not None and np.size(by_release):
        columns = np.array([mechanism.scales_at(i) for i in range(1, len(times) + 1)])
        return Noise(family, scales, tuple(unit * columns[:, f] for f in range(scales.size)), False)
    return Noise(family, scales, tuple(unit * scale for scale in scales), False)


# --------------------------------------------------------------------------- releases as numbers
@dataclass(frozen=True, eq=False)
class Readings:
    """Numbers of T releases, with the cells in the query's order.

    Parameters
    ----------
    values : (T, cells) released numbers.
    due : (T, cells) mask, True where a release contains the cell.
    scales : (T, cells) scales of the noise. The scale is infinite if a release omits the family.
    decay, gain : (T,) constants that the measurements state. They are 0 and 1 for sums.
    measured : True for measurements, False for sums.
    """

    values: Floats
    due: NDArray[np.bool_]
    scales: Floats
    decay: Floats
    gain: Floats
    measured: bool


def families_of(query: AuditQuery) -> list[str]:
    """Return the names of the families, in the order of the query's offsets."""
    if isinstance(query, LinearQuery):
        return [f"{name}[{step}]{' diagonal' if diagonal else ''}" for name, step, diagonal in query.blocks]
    return list(query.row_families)


def stated_stds(query: AuditQuery, release: Release) -> list[float]:
    """Return the standard deviation of one cell's noise that a release states for each family."""
    if isinstance(query, LinearQuery):
        laws: dict[str, Any] = {name: e.law for name, e in release.estimates.items()}
        return [
            laws[name].std(step) * (math.sqrt(laws[name].diagonal) if diagonal else 1.0)
            for name, step, diagonal in query.blocks
        ]
    return [estimate.law.std() for estimate in release.estimates.values()]


def summand(
    query: AuditQuery, life: Trajectory, context: Mapping[str, Any], cut: float | None = None
) -> Floats:
    """Return the (cells,) contribution of one user's record under a plan with the given context.

    cut : current clipping threshold C.
    """
    if isinstance(query, LinearQuery):
        return query.to_cells(query.user_tables(query.prepared(context), life))
    return query.to_cells(query.contribution(life, cut=cut))


def _released(query: AuditQuery, release: Release) -> Floats:
    """Return the (cells,) sums of a release; for a matrix, the diagonal and then the part above it."""
    values = {name: np.asarray(e.value, np.float64) for name, e in release.estimates.items()}
    if isinstance(query, LinearQuery):
        for name in filter(query.is_gram, values):
            d = values[name].shape[-1]
            above = np.triu_indices(d, 1)
            parts = values[name][:, range(d), range(d)], values[name][:, above[0], above[1]]
            values[name] = np.concatenate(parts, axis=1)
    return query.to_cells(values)


def _cells(query: CountQuery, name: str, table: NDArray[Any]) -> NDArray[Any]:
    return table.ravel() if name == GROUP_RETURNS else query.layout.to_rows(table).ravel()


def scale_of(estimate: Estimate) -> float:
    """Return the scale of one draw, read from the estimate's noise distribution."""
    laplace = estimate.law.family.endswith("laplace")
    return estimate.law.std() / (math.sqrt(2.0) if laplace else 1.0)


def readings(query: AuditQuery, releases: Sequence[Release]) -> Readings:
    """Return the sums of the releases, or their measurements if they contain no sums."""
    if releases and releases[-1].estimates:
        values = np.array([_released(query, release) for release in releases])
        still = np.zeros(len(releases))
        return Readings(values, np.ones_like(values, bool), np.ones_like(values), still, still + 1, False)
    if isinstance(query, LinearQuery):
        raise ValueError("releases: linear sums hold estimates")
    shape = (len(releases), query.cells)
    values, due, scales = np.zeros(shape), np.zeros(shape, bool), np.ones(shape)
    decay, gain = np.zeros(shape[0]), np.ones(shape[0])
    for i, release in enumerate(releases):
        made = release.measurement
        assert made is not None
        decay[i], gain[i] = made.decay, made.gain
        for f, name in enumerate(query.families):
            part = slice(query.offsets[f], query.offsets[f + 1])
            if name not in made.estimates:
                scales[i, part] = math.inf
                continue
            one = made.estimates[name]
            values[i, part], scales[i, part] = _cells(query, name, one.value), scale_of(one)
            due[i, part] = True
    return Readings(values, due, scales, decay, gain, True)


def expected(read: Readings, batches: Floats) -> Floats:
    """Return the (T, cells) numbers that the releases would have without noise.

    batches : (T, cells) exact sums of each batch.
    """
    if not read.measured:
        return np.asarray(np.cumsum(batches, axis=0))
    held, decaying, out = np.zeros(batches.shape[1]), np.zeros(batches.shape[1]), np.zeros_like(batches)
    for i, batch in enumerate(batches):
        held = held + batch
        ticks = read.due[i] | np.isinf(read.scales[i])
        decaying = np.where(ticks, held + read.decay[i] * decaying, decaying)
        held = np.where(ticks, 0.0, held)
        out[i] = np.where(read.due[i], read.gain[i] * decaying, 0.0)
    return out


def whitened(noise: Noise, query: AuditQuery, read: Readings, residuals: Floats) -> Floats:
    """Return the (T, cells) residuals, transformed to independent noise of scale 1.

    Cells that are not due have the value 0.
    """
    if read.measured:
        return np.where(read.due, residuals / read.scales, 0.0)
    assert noise.mixings is not None
    parts = np.split(residuals, query.offsets[1:-1], axis=1)
    return np.hstack(
        [
            np.linalg.solve(np.linalg.cholesky(b @ b.T), part)
            for b, part in zip(noise.mixings, parts, strict=True)
        ]
    )


# --------------------------------------------------------------------- answers from offline data
@dataclass(frozen=True, eq=False)
class AnsweredQuery:
    """Query about the data of the first ``users`` users, and the answer to this query."""

    question: Response
    users: int
    answer: Estimate


def expected_answer(query: GramQuery, question: Response, lives: Sequence[Trajectory]) -> Floats:
    """Return the (d,) exact answer: the sum over users of w phi (r + V(s') - centre) at the query's step."""
    h, after = question.step, np.asarray(question.values, np.float64)
    low, high = question.interval
    if query.span == "values":
        low, high = float(after.min()), float(after.max()) + query.rewards
    centre = 0.5 * (low + high) if query.centre else 0.0
    weights = np.ones(query.features.table.shape[:2]) if question.weights is None else question.weights
    found = np.zeros(query.features.dimension)
    for life in lives:
        s, a = int(life.states[h]), int(life.actions[h])
        y = query.rewards * life.rewards[h] + after[life.states[h + 1]] - centre
        found += weights[s, a] * y * query.features.table[s, a]
    return found
