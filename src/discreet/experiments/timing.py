"""Estimate of the duration of a run, from the time that its beginning takes.

A run is started twice: the first start loads compiled code, and the second start is timed. If the estimates
from the two halves of the timed period disagree, no estimate is given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

PROBED = 0.5  # Length of the timed period, in seconds.
_AGREE = 2.0  # Largest allowed ratio of the two estimates from the two halves of the timed period.


class _Enough(Exception):
    """Exception that ends a run when it has been timed for long enough."""


@dataclass(frozen=True)
class Moments:
    """Timed beginning of a run: after ``seconds[i]`` seconds, ``users[i]`` users were simulated.

    seconds, users : ascending values, counted from the start of the run.
    """

    seconds: tuple[float, ...]
    users: tuple[int, ...]

    def estimate(self, times: ArrayLike, batched: bool) -> float | None:
        """Estimate the duration of a whole run in seconds; None if no estimate is possible.

        Parameters
        ----------
        times : (releases + 1,) number of users before each release, and finally K.
        batched : if True, the duration of a run depends only on the number of releases.
        """
        at = np.asarray(times, np.int64)
        releases = np.searchsorted(at[:-1], np.array(self.users), side="left").astype(float)
        done = np.stack([releases, np.array(self.users, float)], axis=1)
        if batched:
            done[:, 1] = 0.0
        seconds = np.array(self.seconds)
        left = np.array([at.size - 1, 0.0 if batched else float(at[-1])]) - done[0]
        if seconds.size < 3:
            return None
        half = int(np.searchsorted(seconds, (seconds[0] + seconds[-1]) / 2))
        half = min(max(half, 1), seconds.size - 2)
        spans = (slice(0, None), slice(0, half + 1), slice(half, None))
        whole, *parts = (
            seconds[0] + _rates(np.diff(done[s], axis=0), np.diff(seconds[s])) @ left for s in spans
        )
        if max(parts) > _AGREE * min(parts):
            return None
        return whole


def _rates(steps: NDArray[np.float64], took: NDArray[np.float64]) -> NDArray[np.float64]:
    """Fit the seconds per release and the seconds per user by least squares; both are at least 0.

    Parameters
    ----------
    steps : (n, 2) numbers of releases and of users in n intervals.
    took : (n,) durations of these intervals in seconds.
    """
    from scipy.optimize import nnls

    if np.allclose(steps[:, 0], steps[:, 1]):  # each user has a release, so only one rate can be estimated
        return np.array([took.sum() / max(steps[:, 0].sum(), 1.0), 0.0])
    found: NDArray[np.float64] = nnls(steps, took)[0]
    return found


def moments(
    run: Callable[[Callable[[int, int], None]], object], clock: Callable[[], float] = time.perf_counter
) -> Moments | None:
    """Start a run twice, and return the times of the second start; None if a run ends before it is timed.

    Parameters
    ----------
    run : function that simulates a repetition. It calls its argument with (repetition, number of users
        simulated so far).
    clock : function that returns the time in seconds.
    """
    found: Moments | None = None
    for _ in range(2):
        begin = clock()
        seen: list[tuple[float, int]] = []

        def watch(_: int, users: int, seen: list[tuple[float, int]] = seen, begin: float = begin) -> None:
            seen.append((clock() - begin, users))
            if len(seen) > 3 and seen[-1][0] - seen[0][0] > PROBED:
                raise _Enough

        try:
            run(watch)
        except _Enough:
            found = Moments(*_columns(seen))
        else:
            return None
    return found


def _columns(seen: Sequence[tuple[float, int]]) -> tuple[tuple[float, ...], tuple[int, ...]]:
    return tuple(seconds for seconds, _ in seen), tuple(users for _, users in seen)


def in_words(seconds: float) -> str:
    """Format a duration in seconds as text, without the word ``about``."""
    for size, name in ((3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} seconds"
