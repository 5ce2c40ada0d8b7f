"""Exact distribution of a device's message, computed by running the device's code on all random outcomes.

An encoder that draws random numbers only with ``below`` and ``flip`` has finitely many outcomes. A random
source that replays given outcomes enumerates them with exact rational probabilities.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import NoReturn

import numpy as np

from discreet.core.call_protocols import Encoder
from discreet.core.layout import Layout
from discreet.core.releases import Plan
from discreet.core.trajectories import Trajectory

_GRID = 2**53
_MOST_OUTCOMES = 200_000

Message = tuple[float, ...]
Law = Mapping[Message, Fraction]


class _NotFinite(Exception):
    """Exception for a device that draws from a continuous distribution."""


class _Script:
    """Random source that returns the outcomes in ``path``, and then the first outcome of each draw.

    taken : for each draw, (index of the outcome, number of possible outcomes).
    """

    exact = True

    def __init__(self, path: list[int]) -> None:
        self._path = path
        self.taken: list[tuple[int, int]] = []
        self.chance = Fraction(1)

    def _choose(self, chances: list[Fraction]) -> int:
        """Return the index of the next outcome in ``path`` among outcomes of positive probability."""
        possible = [i for i, chance in enumerate(chances) if chance > 0]
        at = self._path[len(self.taken)] if len(self.taken) < len(self._path) else 0
        self.taken.append((at, len(possible)))
        self.chance *= chances[possible[at]]
        return possible[at]

    def below(self, n: int) -> int:
        return self._choose([Fraction(1, n)] * n)

    def flip(self, numerator: int) -> bool:
        p = min(Fraction(1), max(Fraction(0), Fraction(numerator, _GRID)))
        return bool(self._choose([1 - p, p]))

    def rounded(self, *_: object) -> NoReturn:
        raise _NotFinite

    laplace = normal = rounded


def law_of(encoder: Encoder, life: Trajectory, plan: Plan) -> Law | None:
    """Return the exact probability of each message that the encoder can make from a trajectory.

    The result is None if the number of outcomes is infinite or too large.
    """
    law: dict[Message, Fraction] = defaultdict(Fraction)
    path: list[int] = []
    for _ in range(_MOST_OUTCOMES):
        coins = _Script(path)
        try:
            report = encoder(life, plan, coins)
        except _NotFinite:
            return None
        if report.message is None:
            return None
        law[tuple(np.asarray(report.message).ravel().tolist())] += coins.chance
        while coins.taken and coins.taken[-1][0] + 1 == coins.taken[-1][1]:
            coins.taken.pop()
        if not coins.taken:
            return dict(law)
        path = [choice for choice, _ in coins.taken]
        path[-1] += 1
    return None


def log_ratio(one: Law, zero: Law, message: Message) -> float:
    """Return the log-likelihood ratio of a message, ``one`` over ``zero``. The ratio can be infinite."""
    p, q = one.get(message, Fraction(0)), zero.get(message, Fraction(0))
    if p == q:
        return 0.0
    if p == 0 or q == 0:
        return math.inf if p else -math.inf
    return math.log(p / q)


def largest_ratio(laws: Iterable[Law]) -> float:
    """Return the exact epsilon of several message distributions.

    The result is the largest log-likelihood ratio over all messages and all pairs of distributions.
    """
    every = list(laws)
    worst = 0.0
    for message in set(itertools.chain.from_iterable(every)):
        chances = [law.get(message, Fraction(0)) for law in every]
        if min(chances) == 0:
            return math.inf
        worst = max(worst, math.log(max(chances) / min(chances)))
    return worst


def lives(layout: Layout) -> Iterator[Trajectory]:
    """Yield every trajectory with rewards 0 or 1."""
    h = layout.horizon
    pairs = [
        (s, a) for s in range(layout.states) for a in range(layout.actions) if layout.row_index[s, a] >= 0
    ]
    for path in itertools.product(pairs, repeat=h):
        for last in range(layout.states):
            for rewards in itertools.product((0.0, 1.0), repeat=h):
                states = np.array([*(s for s, _ in path), last])
                yield Trajectory(states, np.array([a for _, a in path]), np.array(rewards))
