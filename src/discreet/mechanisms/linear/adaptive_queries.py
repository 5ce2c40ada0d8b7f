"""Repeated queries about sums over stored data: the trusted core of LSVI and offline linear learners.

The response sum_i phi_i (r_i + V(s'_i)) is a new query of raw data for each new value function V. The raw
data stay in this module. A learner supplies public arrays (values of the next state, weights of pairs) and
receives noisy (d,) and (d, d) arrays.

Guarantee. The plan is a list of questions that is fixed before data are read. The plan sets the kind, the
step and the budget mu_i of each question. Questions are asked in this order. A question that is not next in
the plan raises an error and spends no budget. Given its public arrays, answer i is Gaussian and mu_i-GDP by
the lemmas of :mod:`discreet.mechanisms.linear.sensitivities`, for any arrays. The arrays may depend on
earlier answers, but the mu_i must not. By adaptive composition all answers together are mu-GDP with mu^2 =
sum mu_i^2, known before data are read.

Halves. Each user is in only one half. Therefore questions about one half of the users (``half``) compose only
with questions about the same half. This requires that no user's half depends on another user's record. Under
exact noise, each user's half is drawn independently with probability 1/2. The guarantee holds given all these
draws, so it also holds for their mixture. The halves must not depend on the order of submission. (Readers
number users by the position of their rows in the files, so one user's rows could change the halves of all
other users.) Seeded sessions, which protect no data, use positions.

A user may have up to m episodes (``episodes``). A change of one user's data then changes up to m episodes,
and a sum changes by the total of these m changes. The joint norms in the lemmas satisfy the triangle
inequality, so sensitivities and noise are m times as large. ``mu`` of a question is always the value for one
user. Users are submitted in order (``user`` never decreases). A user's episodes are therefore adjacent, and
storing the last user is sufficient to enforce m. Halves divide users, not episodes. A user without data
(``absent``), or with fewer than m episodes, contributes zeros, which satisfy every bound on one user's
contribution.

A plan may instead give each question an epsilon, for Laplace noise and pure epsilon-DP. Noise scales are
computed from the l1 sensitivities of :mod:`discreet.mechanisms.linear.sensitivities` with the declared bound
of ||phi||_1. The total epsilon is the sum over all parts of all questions. Laplace noise is much larger than
Gaussian noise unless features are one-hot or on a simplex.

Centre and scale of a response are computed from the public array over *all* states (``span="values"``), never
only over visited states. Centre and scale affect only the noise scale. The bounds of features are certified
for every (s, a) by :class:`~discreet.mechanisms.features.Features`. Records are checked on submission, so
invalid records raise an error before the first question. A question counts as asked before its noise is
drawn, so no noise is used twice. A session cannot be copied, pickled, or used in another process, since a
copy would draw the same noise again.

Exact noise (secure randomness). Three roundings make every sum an integer on a public grid, and keep every
bound valid:

- When rewards are submitted, they are rounded randomly and without bias to multiples of 1/g. g is
  ``reward_grid``, or smaller if the noise is too large for such units.
- The public weights sqrt(w) are rounded up to multiples of 2^-5, or to a coarser grid if the noise is too
  large. Then sqrt(w) phi is truncated towards 0 to multiples of 2^-12, so that norms do not grow.
- V - centre is rounded to multiples of u, a power of two below 2^-10 of the range such that 1/g is a multiple
  of u. The rounded value is clipped so that r + V - centre stays inside the range.

Sums are computed in 64-bit integers, and the noise is discrete Gaussian (or Laplace) on their grid. All
results are functions of the noisy integer sums. Each question has rho = mu_i^2 / 2, and questions are
composed as zCDP.

The guarantee uses zCDP instead of privacy-loss distributions, for the following reason. The shift vector of a
query, and the noise scale in grid units, depend on arrays that were chosen from earlier answers. For each
question, numerical composition needs one pair of distributions that dominates all possible shifts and scales.
For several coordinates of discrete Gaussian noise the l2 norm of the shift does not determine such a pair.
The Renyi bound mu_i^2 / 2 holds for every direction and every scale. The disadvantage of zCDP is its
conversion to (epsilon, delta), which needs 6 to 11 % more noise.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.accounting.noise_distributions import distributions as laws
from discreet.core import checks
from discreet.core.guarantee import Guarantee, MechanismRecord, NoiseFamily, guarantee_of, no_guarantee
from discreet.core.layout import Layout
from discreet.core.lifecycle import Saveable
from discreet.core.protocols import Coins
from discreet.core.releases import Estimate, Floats, Ints
from discreet.core.rng import Randomness, Secure, SecureRng, Seeded, checked_on_grid
from discreet.core.short_repr import brief
from discreet.core.trajectories import Trajectories, checked
from discreet.mechanisms.features import Features, fitting_features
from discreet.mechanisms.linear import sensitivities as gram
from discreet.mechanisms.linear.dataset_sums import Stored
from discreet.mechanisms.query_queue import Response
from discreet.mechanisms.saved_state.state_file import resume, state_of
from discreet.mechanisms.seeded_rng import SeededRng

Kind = Literal["gram", "response", "pair", "model", "start"]

_GRID = 2**12  # Under exact noise, features are multiples of 1 / _GRID.
_ROOTS = 2**5  # Square roots of weights are multiples of 1 / _ROOTS or of a coarser unit.
_RANGE = 2**10  # Least number of units in a target's range.
_MOST_FLOAT = 2**51  # Limit of all contributions to an entry of a Gram matrix, summed exactly in float64.
_MOST_INT = 2**61  # Limit of all contributions to an entry of another sum, in int64.
_NOISE_UNITS = 2.0**-20, 2.0**40  # Range of exact noise scales, in units of the grid.
_CHUNK = 1024  # Pairs per matrix product, so that two blocks of features fit into the cache.
_FLAT = 1e-6  # Smallest range of targets that determines the noise scale. It replaces smaller ranges.


@dataclass(frozen=True, kw_only=True)
class Question:
    """One planned question about the records of one step.

    Parameters
    ----------
    kind
        - "gram": sum w phi phi^T.
        - "response": sum w phi (r + V(s') - centre).
        - "pair": both of these, accounted jointly by lemma 3.
        - "model": Gram, sum phi (e_{s'} - 1/S)^T and (with ``reward``) sum phi (r - 1/2), by lemma 5.
        - "start": number of episodes that began in each state (step 0). Replacing one episode changes two
          counts by 1.
    step
        Step in 0 .. H - 1.
    mu
        Budget of the question: mu of Gaussian DP for one user. None: the answer is exact, for baselines
        without privacy.
    epsilon
        Epsilon of pure epsilon-DP with Laplace noise. It is used instead of mu.
    low, high
        Bounds of r + V(s'), or of V(s') if the target does not include r. The values of all states are
        checked against these bounds.
    reward
        True if r is part of the target.
    centre
        If True, the middle of the range is subtracted from targets, and the learner adds it again. This is
        unbiased if ``Features.constant`` is True. If False, the sums are not centred.
    span
        "values": the range is that of the array in the call. "declared": the range is always [low, high].
    share
        Share of mu^2 that the Gram matrix of a "pair" question gets.
    shares
        Shares of Gram matrix, next states and rewards in the budget of a "model" question. Without
        ``reward`` the last share is 0. None: 0.4, 0.3 and 0.3, or 4/7, 3/7 and 0 without ``reward``.
    half
        None: all users. 0 or 1: one half of the users. The halves are random. With seeded noise, half 0 is
        the even positions in the order of submission and half 1 is the odd positions.

    Raises
    ------
    ValueError
        If a value is not allowed. Shares must be in (0, 1). mu, epsilon and high - low must be above 0.
    """

    __repr__ = brief

    kind: Kind
    step: int
    mu: float | None
    epsilon: float | None = None
    low: float = 0.0
    high: float = 1.0
    reward: bool = True
    centre: bool = True
    span: Literal["values", "declared"] = "values"
    share: float = 0.5
    shares: tuple[float, float, float] | None = None
    half: int | None = None

    def __post_init__(self) -> None:
        checks.choice("kind", self.kind, get_args(Kind))
        checks.integer("step", self.step, 0)
        if self.mu is not None:
            checks.positive("mu", self.mu)
        if self.epsilon is not None:
            checks.positive("epsilon", self.epsilon)
            if self.mu is not None:
                raise ValueError(f"epsilon = {self.epsilon!r}: must be None where mu is given")
        low = checks.real("low", self.low)
        checks.real("high", self.high, low)
        if self.high <= low:
            raise ValueError(f"high = {self.high!r}: must be above low = {low!r}")
        checks.flag("reward", self.reward)
        checks.flag("centre", self.centre)
        checks.choice("span", self.span, ("values", "declared"))
        checks.real("share", self.share, 0.0, 1.0, open_low=True, open_high=True)
        checks.choice("half", self.half, (None, 0, 1))
        if self.kind == "model":
            gram.model_scales(1.0, self.mu or 1.0, self.parts, 2)
            if (self.parts[2] > 0) != self.reward:
                raise ValueError(f"shares = {self.shares!r}: the last must be above 0 with reward, else 0")

        if self.kind == "start" and (self.step or self.reward):
            raise ValueError(f"step = {self.step!r}: a start is of step 0, without reward")

    @property
    def private(self) -> bool:
        """True unless the answer is exact."""
        return self.mu is not None or self.epsilon is not None

    @property
    def parts(self) -> tuple[float, float, float]:
        """Shares of the three statistics of a "model" question in its budget."""
        if self.shares is None:
            return (0.4, 0.3, 0.3) if self.reward else (4 / 7, 3 / 7, 0.0)
        return self.shares


@dataclass(frozen=True, eq=False)
class Answer:
    """Released answer to a question. Fields that the question did not request are None.

    Parameters
    ----------
    gram, vector, successors, rewards
        (d, d), (d,), (d, S) and (d,) noisy sums. The vector of a "start" question is (S,).
    gram_scale
        Scale s of the GOE noise. It is the standard deviation outside the diagonal. 0: the sums are exact.
    vector_scale, successors_scale, rewards_scale
        Standard deviation of the noise of one entry.
    centre
        Value subtracted from the targets of ``vector``.
    span
        Range of the targets. The noise of ``vector`` is proportional to this range.
    """

    __repr__ = brief

    gram: Floats | None = None
    vector: Floats | None = None
    successors: Floats | None = None
    rewards: Floats | None = None
    gram_scale: float = 0.0
    vector_scale: float = 0.0
    successors_scale: float = 0.0
    rewards_scale: float = 0.0
    centre: float = 0.0
    span: float = 0.0


@dataclass(frozen=True)
class _Target:
    """Range of the target y = r + V(s') - centre, and the case of the lemmas for its sensitivity."""

    centre: float
    span: float
    row: gram.Target


def _target(question: Question, low: float, high: float, nonneg: bool) -> _Target:
    least = 1.0 if question.reward else _FLAT  # with r the range is at least 1, except for rounding
    if question.centre:
        return _Target(0.5 * (low + high), max(high - low, least), "centred")
    if low < 0:  # |y| <= max(|low|, |high|), so y is in a centred range with twice this size
        return _Target(0.0, max(2 * max(-low, abs(high)), least), "centred")
    return _Target(0.0, max(high, least), "raw-nonneg" if nonneg else "raw")


class ResponseSession(Saveable):
    """Session that stores users' records of a data set and answers planned questions about them.

    The session can be saved at any time and restored once
    (:func:`~discreet.mechanisms.restore_session.restore`). Questions that were asked before the save count as
    used after the restore.

    Parameters
    ----------
    layout : Layout
        S, A, H and the mask of admissible actions.
    features : Features
        Features phi (S, A, d) with certified bounds.
    plan : sequence of Question
        All questions that will be asked, in order. There are three possibilities: all questions have mu, all
        questions have epsilon, or no question has a budget.
    randomness : Seeded or Secure
        Source of the noise.
    episodes : int
        m, the largest number of episodes of one user.
    delta : float
        The delta at which the guarantee states epsilon.

    Raises
    ------
    ValueError
        If the plan does not fit the layout, or its noise cannot be drawn exactly under secure randomness.
    """

    _kind = "responses"
    _BOUND = ("_layout", "_features", "_plan", "_randomness", "_episodes", "_delta")
    _STATE = ("_users", "_taken", "_asked", "_last", "_people")
    _DERIVED = (
        *Saveable._DERIVED, "_exact", "_key", "_records", "_guarantee", "_reward_grid", "_root_grid", "_most",
        "_stored",
    )  # fmt: skip

    def __init__(
        self,
        layout: Layout,
        features: Features,
        plan: Sequence[Question],
        randomness: Randomness,
        *,
        episodes: int = 1,
        delta: float = 1e-6,
    ) -> None:
        super().__init__()
        checks.exactly("features", features, Features)
        fitting_features(features, layout)
        if not checks.is_exactly(randomness, Seeded, Secure):
            raise ValueError(f"randomness = {randomness!r}: must be Seeded(...) or Secure(...)")
        self._layout = Layout(layout.states, layout.actions, layout.horizon, layout.mask)
        self._features = features.copy()  # a copy, so that later changes of the caller's table change no sum
        self._plan = checked_plan(plan, layout)
        self._randomness, self._delta = randomness, delta
        self._exact = isinstance(randomness, Secure)
        self._key = randomness.keys.noise.copy() if isinstance(randomness, Seeded) else None
        self._episodes = checks.integer("episodes", episodes, 1)
        self._records = planned_records(self._plan, self._features, layout, self._exact, self._episodes)
        self._guarantee = (
            guarantee_of(
                "central",
                self._records,
                randomness=randomness.kind,
                delta=_delta(delta) if self._plan[0].epsilon is None else None,
                episodes=self._episodes,
            )
            if self._records
            else no_guarantee(randomness.kind, episodes=self._episodes)
        )
        self._reward_grid = self._root_grid = 0
        if isinstance(randomness, Secure):
            self._reward_grid, self._root_grid = _exact_grids(
                self._plan, self._features, layout.states, self._episodes, randomness.reward_grid
            )
        self._most = _most_episodes(self._plan, self._features, layout.states, self._reward_grid)
        self._asked = 0  # number of questions that were asked; it increases before noise is drawn
        self._stored = Stored(
            layout,
            halves=any(question.half is not None for question in self._plan),
            rewards=any(question.reward for question in self._plan if question.kind != "gram"),
            fine=self._exact,
        )
        self._users = 0
        self._taken = 0  # number of episodes, private if m > 1
        # The tuple has the number of the last user, the number of that user's episodes, and the user's half.
        self._last: tuple[int, int, int] | None = None

    def _drop(self) -> None:
        super()._drop()
        self._stored.clear()
        self._last, self._taken = None, 0

    @property
    def _people(self) -> dict[str, Any]:
        """State of the stored records, to be saved in a file."""
        return state_of(self._stored)

    @_people.setter
    def _people(self, state: Mapping[str, Any]) -> None:
        resume(self._stored, state)
        self._stored.check()

    # -------------------------------------------------------------------------- public facts
    @property
    def guarantee(self) -> Guarantee:
        """Privacy guarantee, known before any data are read. It never changes."""
        return self._guarantee

    @property
    def records(self) -> tuple[MechanismRecord, ...]:
        """Privacy records from which the guarantee is computed. Empty without privacy."""
        return self._records

    @property
    def layout(self) -> Layout:
        """Sizes and mask of admissible actions."""
        return self._layout

    @property
    def features(self) -> Features:
        """Copy of the features. Writing to the table of the copy changes no sum."""
        return self._features.copy()

    @property
    def randomness(self) -> str:
        """Kind of randomness: "secure" or "seeded"."""
        return "secure" if self._exact else "seeded"

    @property
    def episodes(self) -> int:
        """m, the largest number of episodes of one user."""
        return self._episodes

    @property
    def users(self) -> int:
        """Number of users so far. It is public."""
        return self._users

    @property
    def most(self) -> int:
        """Largest number of episodes that can be summed exactly. More episodes are rejected."""
        return self._most

    @property
    def plan(self) -> tuple[Question, ...]:
        """Copies of all planned questions."""
        return tuple(replace(question) for question in self._plan)

    @property
    def asked(self) -> int:
        """Number of questions that were asked."""
        return self._asked

    def budget_left(self) -> float:
        """Return the sum of mu^2 (or of epsilon) over the remaining questions; 0.0 if answers are exact."""
        return math.fsum((q.mu or 0.0) ** 2 + (q.epsilon or 0.0) for q in self._plan[self._asked :])

    # --------------------------------------------------------------------------------- users
    def submit_many(self, trajectories: Trajectories, user: ArrayLike | None = None) -> None:
        """Store checked copies of many episodes, before the first question.

        Parameters
        ----------
        trajectories
            Episodes of the layout's sizes, with rewards in [0, 1].
        user
            (n,) int, the user number of each episode. The numbers never decrease, also between calls. A user
            can have at most m episodes. None (only if m = 1): each episode belongs to a new user.

        Raises
        ------
        ValueError
            If a record is invalid or a user has too many episodes. Nothing is stored. The error message is
            private data, for the data curator only.
        RuntimeError
            If a question was already asked.
        """
        with self._call():
            self._check_open()
            self._check_unasked()
            if not isinstance(trajectories, Trajectories):
                raise ValueError(f"trajectories is a {type(trajectories).__name__}: must be Trajectories")
            n = checks.integer("len(trajectories)", len(trajectories), 1)
            if self._taken + n > self._most:
                raise ValueError(
                    f"len(trajectories) = {n}: sums of more than {self._most} episodes are not exact"
                )
            records = checked(trajectories, self._layout, n)
            half, users, last = self._followed(user, n)
            rewards = records.rewards
            if self._exact:
                rewards = SecureRng().rounded(rewards, self._reward_grid)
            # These numbers are set before records are added, so that an interrupt can only lose records.
            self._users, self._taken, self._last = users, self._taken + n, last
            self._stored.add(records.states, records.actions, rewards, half)

    def absent(self, users: int = 1) -> None:
        """Count ``users`` users of the study who have no episode. These users contribute zero to sums.

        Raises ``ValueError`` unless ``users`` is an integer >= 1, and ``RuntimeError`` after the first
        question.
        """
        with self._call():
            self._check_open()
            self._check_unasked()
            self._users += checks.integer("users", users, 1)

    def _check_unasked(self) -> None:
        if self._asked:
            raise RuntimeError("questions were asked, no user can be added")

    def _followed(self, user: ArrayLike | None, n: int) -> tuple[Ints, int, tuple[int, int, int] | None]:
        """Return the halves (n,) of the episodes, the number of users, and the new value of ``_last``."""
        if user is None:
            if self._episodes > 1:
                raise ValueError(
                    f"user = None: must be given where a user may have {self._episodes} episodes"
                )
            if self._last is not None:
                raise ValueError("user = None: must be given in every call or in none")
            return self._halves(n), self._users + n, None
        if self._last is None and self._taken:
            raise ValueError("user: must be given in every call or in none")
        who = np.array(user)
        if who.shape != (n,) or who.dtype.kind not in "iu":
            raise ValueError(f"user has shape {who.shape} and dtype {who.dtype}: must be {(n,)}, integers")
        new = np.concatenate([[self._last is None or who[0] != self._last[0]], who[1:] != who[:-1]])
        falls = np.concatenate([[self._last is not None and who[0] < self._last[0]], who[1:] < who[:-1]])
        if falls.any():
            at = int(falls.argmax())
            raise ValueError(f"user[{at}] = {who[at]}: must not be below the one before")
        before, had, place = (None, 0, 0) if self._last is None else self._last
        count = np.cumsum(new)
        half = np.concatenate([[place], self._halves(int(count[-1]))])[count]
        begins = np.flatnonzero(new)
        # the first run of equal numbers belongs to the previous user
        runs = np.diff(np.concatenate([[-had], begins, [n]]))
        if runs.max() > self._episodes:
            at = int(np.flatnonzero(runs > self._episodes)[0])
            person = before if at == 0 else who[begins[at - 1]]
            raise ValueError(
                f"user: {person} has {runs[at]} episodes or more, must have at most {self._episodes}; users "
                f"here with too many: {int((runs > self._episodes).sum())}"
            )
        return half, self._users + int(count[-1]), (int(who[-1]), int(runs[-1]), int(half[-1]))

    def _halves(self, people: int) -> Ints:
        """Return the half, 0 or 1, of each of ``people`` new users; shape (people,).

        The halves are random. With seeded noise they alternate in the order of submission.
        """
        if self._exact:
            return np.frombuffer(secrets.token_bytes(people), np.uint8).astype(np.int64) & 1
        return (self._users + np.arange(people)) % 2

    # ----------------------------------------------------------------------------- questions
    def gram(self, step: int, weights: ArrayLike | None = None) -> Answer:
        """Return the noisy sum over users of w(s, a) phi phi^T at ``step``.

        weights : public w (S, A) in (0, 1]. None: all weights are 1.
        """
        return self._ask("gram", step, None, weights)

    def response(self, step: int, values: ArrayLike, weights: ArrayLike | None = None) -> Answer:
        """Return the noisy sum over users of w phi (r + values[s'] - centre) at ``step`` h in [0, H).

        values : (S,) public, within the planned bounds.

        weights : public w (S, A) in (0, 1]. None: all weights are 1.

        Raises ``ValueError`` unless this question is the next one of the plan.
        """
        return self._ask("response", step, values, weights)

    def pair(self, step: int, values: ArrayLike, weights: ArrayLike | None = None) -> Answer:
        """Return the Gram matrix and the response in one answer. One answer needs less noise than two
        answers.

        The arguments step, values and weights are those of :meth:`response`.
        """
        return self._ask("pair", step, values, weights)

    def model(self, step: int) -> Answer:
        """Return the Gram matrix, next-state matrix and centred rewards of ``step``.

        The learner can then plan with any values at no further privacy cost.
        """
        return self._ask("model", step, None, None)

    def start(self) -> Answer:
        """Return the noisy number of episodes that began in each state."""
        return self._ask("start", 0, None, None)

    def answer(self, question: Response) -> Estimate:
        """Answer a planned "response" question in the form of :mod:`discreet.mechanisms.interfaces`.

        ``question.interval`` must contain all targets and be within the planned bounds. Raises ``ValueError``
        for ``gram=True``, because the two parts of the answer have different noise distributions. Use
        :meth:`pair` instead.
        """
        if question.gram:
            raise ValueError("question.gram = True: ask session.pair, whose two parts have laws of their own")
        low, high = (checks.real("question.interval", end) for end in question.interval)
        planned = self._plan[self._asked] if self._asked < len(self._plan) else None
        if planned is not None and not planned.low <= low < high <= planned.high:
            raise ValueError(
                f"question.interval = {question.interval!r}: must lie in [{planned.low:g}, {planned.high:g}]"
            )
        found = self._ask("response", question.step, question.values, question.weights, (low, high))
        assert found.vector is not None
        d = self._features.dimension
        law: laws.NoNoise | laws.GaussianSumLaw | laws.LaplaceSumLaw = laws.NoNoise()
        if found.vector_scale and planned is not None:
            unit = None
            if self._exact:
                unit = self._unit(planned, found.span) / self._grid_of(question.weights is not None)
            kind = laws.GaussianSumLaw if planned.epsilon is None else laws.LaplaceSumLaw
            scale = found.vector_scale / (1.0 if planned.epsilon is None else math.sqrt(2.0))
            law = kind(scale, 1.0, 1, cells=d, rows=d, share=1.0 / len(self._plan), unit=unit)
        return Estimate(found.vector, law, covers=self._users, effective=float(self._users))

    def _ask(
        self,
        kind: Kind,
        step: int,
        values: ArrayLike | None,
        weights: ArrayLike | None,
        bounds: tuple[float, float] | None = None,
    ) -> Answer:
        with self._call():
            self._check_open()
            question = self._next(kind, step)
            root = self._roots(weights)
            table = np.zeros(self._layout.states)
            if values is not None:
                table = checks.floats("values", values, table.shape)
            target = self._targets(question, table, bounds)
            self._asked += 1  # the question now counts as asked, also after an error
            sums = self._sums(question, root, table, target)
            return self._released(question, sums, root is not None, target)

    def _next(self, kind: Kind, step: int) -> Question:
        if self._asked >= len(self._plan):
            raise RuntimeError(f"all {len(self._plan)} planned questions are spent")
        planned = self._plan[self._asked]
        if (planned.kind, planned.step) != (kind, step):
            raise ValueError(
                f"{kind} of step {step!r}: must be {planned.kind} of step {planned.step}, question "
                f"{self._asked} of the plan"
            )
        return planned

    def _roots(self, weights: ArrayLike | None) -> Floats | None:
        """Return the (S A,) square roots of public weights, rounded up to a grid if noise is exact."""
        if weights is None:
            return None
        table = checks.floats("weights", weights, (self._layout.states, self._layout.actions))
        if table.min() <= 0 or table.max() > 1:
            bad = table.min() if table.min() <= 0 else table.max()
            raise ValueError(f"weights holds {bad}: must be in (0, 1] everywhere")
        root: Floats = np.sqrt(table.ravel())
        return np.ceil(root * self._root_grid) / self._root_grid if self._exact else root

    def _targets(self, question: Question, values: Floats, bounds: tuple[float, float] | None) -> _Target:
        low, high = float(values.min()), float(values.max()) + (1.0 if question.reward else 0.0)
        allowed = (question.low, question.high) if bounds is None else bounds
        if question.kind in ("response", "pair") and not allowed[0] <= low <= high <= allowed[1]:
            raise ValueError(
                f"values: targets lie in [{low!r}, {high!r}], must lie in [{allowed[0]!r}, {allowed[1]!r}]"
            )
        if question.span == "declared":
            low, high = allowed
        return _target(question, low, high, self._features.nonneg)

    def _grid_of(self, weighted: bool) -> int:
        """Return the number of grid units per unit of the factor that multiplies a target.

        The factor is phi, or sqrt(w) phi sqrt(w) if ``weighted``.
        """
        return _GRID * self._root_grid if weighted else _GRID

    def _unit(self, question: Question, span: float) -> float:
        """Return the grid unit u of targets, a power of two.

        The range ``span`` has at least 2^10 units. If r is part of the target, 1/g is a multiple of u.
        """
        fine = int(math.log2(_RANGE)) - math.floor(math.log2(span))
        return 2.0 ** -(max(fine, self._reward_grid.bit_length() - 1) if question.reward else fine)

    def _rows(self, pairs: Ints, root: Floats | None, out: Floats | None = None) -> Floats:
        """Return the rows sqrt(w) phi of state-action pairs. ``root`` is sqrt(w), or None for weights 1.

        With exact noise, the rows are truncated to integers in units of 2^-12.
        """
        x = np.take(self._features.rows, pairs, axis=0, out=out, mode="clip")  # other modes copy ``out``
        if root is not None:
            x *= root[pairs, None]
        if self._exact:
            x *= _GRID
            np.trunc(x, out=x)
        return x

    def _sums(
        self, question: Question, root: Floats | None, values: Floats, target: _Target
    ) -> dict[str, NDArray[Any]]:
        """Return the sums without noise that answer a question, by name.

        The sums are computed from counts of pairs, because features are functions of (s, a). If the noise
        will be exact, all sums are integers in units of the grid.
        """
        h, half, stored = question.step, question.half, self._stored
        visits = stored.visits(h, half)
        if question.kind == "start":
            return {"start": visits.reshape(self._layout.states, -1).sum(axis=1)}
        seen = np.flatnonzero(visits)
        out: dict[str, NDArray[Any]] = {}
        if question.kind != "response":
            out["gram"] = self._gram(seen, visits, root)
        if question.kind == "model":
            out |= self._model(question, visits)
        elif question.kind != "gram":
            y: NDArray[Any]
            if self._exact:
                y = self._target_units(question, values, target, visits)
            else:
                y = stored.values(h, half, values - target.centre)
                if question.reward:
                    y = y + stored.rewards(h, half)
            if root is not None:
                y = y * (np.rint(root * self._root_grid).astype(np.int64) if self._exact else root)
            out["vector"] = self._times(seen, y, root)
        return out

    def _gram(self, seen: Ints, visits: Ints, root: Floats | None) -> NDArray[Any]:
        """Return the sum of n x x^T over the pairs in ``seen``, computed one block of pairs at a time.

        n is the number of visits to a pair, and x = sqrt(w) phi.
        """
        d = self._features.dimension
        total, rows, times = np.zeros((d, d)), np.empty((_CHUNK, d)), np.empty((_CHUNK, d))
        for begin in range(0, len(seen), _CHUNK):
            pairs = seen[begin : begin + _CHUNK]
            x = self._rows(pairs, root, rows[: len(pairs)])
            total += np.multiply(x, visits[pairs, None], out=times[: len(pairs)]).T @ x
        return total.astype(np.int64) if self._exact else total

    def _times(self, seen: Ints, y: NDArray[Any], root: Floats | None) -> NDArray[Any]:
        """Return the sum of x y over the pairs in ``seen``, where x = sqrt(w) phi and y is given by pair."""
        total: NDArray[Any] = np.zeros(self._features.dimension, y.dtype)
        for begin in range(0, len(seen), _CHUNK):
            pairs = seen[begin : begin + _CHUNK]
            total += y[pairs] @ self._rows(pairs, root).astype(y.dtype, copy=False)
        return total

    def _target_units(
        self, question: Question, values: Floats, target: _Target, visits: Ints
    ) -> NDArray[np.int64]:
        """Return the (P,) sums of r + V - centre by pair, in units of u.

        Each summand is clipped to the declared range of the question.
        """
        unit = self._unit(question, target.span)
        most = math.floor((target.span / 2 if target.row == "centred" else target.span) / unit)
        low = -most if target.row == "centred" else 0
        top = most - round(1 / unit) if question.reward else most
        ahead = np.clip(np.rint((values - target.centre) / unit), low, top).astype(np.int64)
        y = self._stored.values(question.step, question.half, ahead)
        if question.reward:
            rewards = self._stored.rewards(question.step, question.half)
            y = y + (checked_on_grid(rewards, self._reward_grid) / unit).astype(np.int64)
        return y

    def _model(self, question: Question, visits: Ints) -> dict[str, NDArray[Any]]:
        """Return the sums of x (e_{s'} - 1/S)^T and, with ``reward``, of x (r - 1/2).

        If the noise will be exact, the sums are integers in units of the grid, and the first sum is
        multiplied by S.
        """
        h, half, states = question.step, question.half, self._layout.states
        x: NDArray[Any] = self._rows(np.arange(len(self._features.rows)), None)
        if self._exact:
            x = x.astype(np.int64)
        moved = states * self._stored.moves(h, half, x) - (visits @ x)[:, None]
        out = {"successors": moved if self._exact else moved / states}
        if question.reward:
            extra: NDArray[Any] = self._stored.rewards(h, half) - 0.5 * visits
            if self._exact:
                extra = (checked_on_grid(extra, self._reward_grid) * self._reward_grid).astype(np.int64)
            out["rewards"] = extra @ x
        return out

    def _released(
        self, question: Question, sums: dict[str, NDArray[Any]], weighted: bool, target: _Target
    ) -> Answer:
        """Add noise to the sums, convert them from grid units, and return them as an answer.

        If the question has no budget, the sums get no noise. Sums on a grid and their noise are added as
        64-bit integers and are rounded to float64 only afterwards.
        """
        coins: Coins = SecureRng() if self._key is None else SeededRng(self._key, self._asked - 1)
        d, states = self._features.dimension, self._layout.states
        scales: dict[str, float] = {}
        if question.private:
            scales = _scales(question, self._features, states, target.row, self._episodes)
        units = {"start": 1.0, "gram": 1.0, "vector": 1.0, "successors": 1.0, "rewards": 1.0}
        if self._exact:
            y = self._unit(question, target.span) / self._grid_of(weighted)
            units |= {"gram": 2.0**-24, "vector": y, "successors": 1 / (_GRID * states)}
            units["rewards"] = 1 / (_GRID * self._reward_grid)
        pure = question.epsilon is not None
        spread = math.sqrt(2.0) if pure else 1.0  # standard deviation of Laplace noise of scale 1
        shapes = {"start": (states,), "vector": (d,), "successors": (d, states), "rewards": (d,)}
        out: dict[str, Floats] = {}
        stds = {"gram": scales.get("gram", 0.0), "vector": scales.get("response", 0.0) * target.span}
        stds |= {name: scales.get(name, 0.0) for name in ("start", "successors", "rewards")}
        grid = 1 if self._exact else None
        for name, exact in sums.items():
            if not question.private:
                out[name] = exact * units[name]
                continue
            scale = stds[name] / units[name]
            if name == "gram":
                noise = (gram.symmetric_laplace if pure else gram.goe)(scale, d, coins, grid)
            elif pure:
                noise = coins.laplace(scale, math.prod(shapes[name]), grid).reshape(shapes[name])
            else:
                noise = gram.vector_noise(scale, shapes[name], coins, grid)
            if self._exact:  # exact sums can be larger in int64 than in float64
                checked_on_grid(exact, 1, _MOST_INT)
                noise = checked_on_grid(noise, 1).astype(np.int64)
            out[name] = (exact + noise) * units[name]
        return Answer(
            out.get("gram"),
            out.get("start", out.get("vector")),
            out.get("successors"),
            out.get("rewards"),
            gram_scale=spread * stds["gram"],
            vector_scale=spread * max(stds["vector"], stds["start"]),
            successors_scale=spread * stds["successors"],
            rewards_scale=spread * stds["rewards"],
            centre=target.centre,
            span=target.span,
        )


# ---------------------------------------------------------------------------------- public numbers


def checked_plan(plan: Sequence[Question], layout: Layout) -> tuple[Question, ...]:
    """Check the questions in ``plan`` and return copies.

    Raises ``ValueError`` if they do not fit the ``layout`` or each other.
    """
    questions = tuple(plan)
    if not questions or not all(type(question) is Question for question in questions):
        raise ValueError("plan: must be a list of at least one Question, and no subclass of it")
    for i, question in enumerate(questions):
        checks.integer(f"plan[{i}].step", question.step, 0, layout.horizon - 1)
        if question.kind == "model" and layout.states < 2:
            raise ValueError(f"plan[{i}].kind = 'model': must be another one, there is one state only")
    if len({(question.mu is None, question.epsilon is None) for question in questions}) > 1:
        raise ValueError("plan: mu (or epsilon) must be given in all questions or in none")
    return tuple(  # copies without mutable lists, so that no code can change the noise later
        replace(question, shares=question.shares and tuple(question.shares))  # type: ignore[arg-type]
        for question in questions
    )


def _delta(delta: float) -> float:
    return checks.real("delta", delta, 0.0, 1.0, open_low=True, open_high=True)


def _scales(
    question: Question, features: Features, states: int, row: gram.Target, episodes: int
) -> dict[str, float]:
    """Return the noise scale of each statistic of a question.

    The scale is s of the GOE noise for the Gram matrix, and the standard deviation for the other statistics.
    For pure epsilon, all scales are scales of Laplace noise. The scale of a response is for targets with a
    range of 1. A user with m episodes changes every sum by up to m times as much as a user with one episode,
    so each episode gets mu / m.
    """
    if question.epsilon is not None:
        own = _sensitivities(features, states, row, episodes, pure=True)
        one = (1.0,)
        shares = {"gram": one, "response": one, "start": one, "pair": (question.share, 1.0 - question.share)}
        parts = dict(zip(_FAMILIES[question.kind], shares.get(question.kind, question.parts), strict=True))
        return {name: own[name] / (part * question.epsilon) for name, part in parts.items() if part}
    assert question.mu is not None
    b, mu = features.bound, question.mu / episodes
    if question.kind == "gram":
        return {"gram": gram.gram_scale(b, mu)}
    if question.kind == "start":
        return {"start": math.sqrt(2.0) / mu}
    if question.kind == "response":
        return {"response": gram.vector_sensitivity(b, 1.0, row) / mu}
    if question.kind == "pair":
        pair = gram.pair_scales(b, mu, question.share, row)
        return {"gram": pair.gram, "response": pair.vector}
    model = gram.model_scales(b, mu, question.parts, states, features.nonneg)
    found = {"gram": model.gram, "successors": model.successors}
    return found | {"rewards": model.rewards} if question.reward else found


_FAMILIES: dict[Kind, tuple[str, ...]] = {
    "gram": ("gram",), "response": ("response",), "pair": ("gram", "response"),
    "model": ("gram", "successors", "rewards"), "start": ("start",),
}  # fmt: skip


def _sensitivities(
    features: Features, states: int, row: gram.Target, episodes: int, pure: bool = False
) -> dict[str, float]:
    """Return the sensitivity of each statistic to one replaced user, in the units of :func:`_scales`.

    Noise of scale s then has the loss sensitivity / s. The same formula is valid for the GOE(s) noise of the
    Gram matrix.
    """
    b = features.bound
    if pure:
        l1 = features.l1
        sums = {
            "start": 2.0,
            "gram": gram.gram_l1(b, l1),
            "response": gram.vector_l1(l1, 1.0, row),
            "successors": gram.successor_l1(l1, max(2, states)),
            "rewards": gram.vector_l1(l1, 1.0, "centred"),
        }
        return {name: episodes * value for name, value in sums.items()}
    one = {
        "start": math.sqrt(2.0),
        "gram": b**2,
        "response": gram.vector_sensitivity(b, 1.0, row),
        "successors": gram.successor_sensitivity(b, max(2, states), features.nonneg),
        "rewards": gram.vector_sensitivity(b, 1.0, "centred"),
    }
    return {name: episodes * value for name, value in one.items()}


def planned_records(
    plan: Sequence[Question], features: Features, layout: Layout, exact: bool, episodes: int
) -> tuple[MechanismRecord, ...]:
    """Return one privacy record for all questions. Empty if the questions have no budget.

    plan, features, layout, episodes : as in :class:`ResponseSession`.

    exact : True for exact (discrete) noise, False for continuous noise.
    """
    if not plan[0].private:
        return ()
    pure = plan[0].epsilon is not None
    scales: dict[str, float] = {}
    own: dict[str, float] = {}
    for i, question in enumerate(plan):
        row = _target(question, question.low, question.high, features.nonneg).row
        sensitivities = _sensitivities(features, layout.states, row, episodes, pure)
        for name, scale in _scales(question, features, layout.states, row, episodes).items():
            scales[f"{i}.{name}[{question.step}]"] = scale
            own[f"{i}.{name}[{question.step}]"] = sensitivities[name]
    halves = [[q for q in plan if q.half in (None, half)] for half in (0, 1)]
    joint = max(
        math.fsum(q.epsilon or 0.0 for q in half)
        if pure
        else math.sqrt(math.fsum((q.mu or 0.0) ** 2 for q in half))
        for half in halves
    )
    noise: NoiseFamily = "laplace" if pure else "gaussian"
    if exact:
        noise = "discrete_laplace" if pure else "discrete_gaussian"
    people = f" of at most {episodes} episodes a person" if episodes > 1 else ""
    record = MechanismRecord(
        f"{len(plan)} planned questions about stored trajectories{people} (responses per unit of their "
        "public range)",
        noise,
        scales, own, joint,
    )  # fmt: skip
    return (record,)


def _widest(question: Question, features: Features) -> float:
    """Return the largest range of a question's targets that its declared bounds allow."""
    return _target(question, question.low, question.high, features.nonneg).span


def _exact_grids(
    plan: tuple[Question, ...], features: Features, states: int, episodes: int, finest: int
) -> tuple[int, int]:
    """Return the finest grids of rewards and of square roots of weights for which exact noise can be drawn.

    Raises ``ValueError``, before any user is submitted, if such grids do not exist.
    """
    low, high = _NOISE_UNITS
    grid, roots = finest, _ROOTS
    for i, question in enumerate(plan):
        if not question.private:
            continue
        row = _target(question, question.low, question.high, features.nonneg).row
        widest = math.ceil(_widest(question, features)) if question.reward else 0
        for name, scale in _scales(question, features, states, row, episodes).items():
            # Least and largest possible number of grid units in 1.
            least = most = _GRID * {"gram": _GRID, "successors": states}.get(name, 1)
            if name == "start":
                least = most = 1
            if name == "rewards":
                while grid > 2 and 2 * scale * _GRID * grid > high:
                    grid //= 2
                least = most = _GRID * grid
            elif name == "response":  # there are 2^10 to 2^11 units in the range, or g units in 1
                while 2 * scale * _GRID * roots * max(2 * _RANGE, grid * widest) > high:
                    if grid > 2 and grid * widest > 2 * _RANGE:
                        grid //= 2
                    elif roots > 2:
                        roots //= 2
                    else:
                        break
                least, most = _GRID * _RANGE, _GRID * roots * max(2 * _RANGE, grid * widest)
            # The factor 2 covers the diagonal of GOE noise, whose scale is sqrt(2) times as large.
            if not (low <= scale * least and 2 * scale * most <= high):
                raise ValueError(
                    f"plan[{i}].mu = {question.mu or question.epsilon!r}: exact noise of {scale:.6g} on "
                    f"{name} is outside what can be drawn, [{low / least:.3g}, {high / (2 * most):.3g}]"
                )
    return grid, roots


def _most_episodes(plan: tuple[Question, ...], features: Features, states: int, reward_grid: int) -> int:
    """Return the largest number of episodes whose sums are exact integers in float64 or int64."""
    b = max(1.0, features.bound)
    widest = max(_widest(question, features) for question in plan)
    units = 2 * _RANGE + widest * max(1, reward_grid)
    return int(min(_MOST_FLOAT / (_GRID * b) ** 2, _MOST_INT / (_GRID * b * max(states, _ROOTS * units))))
