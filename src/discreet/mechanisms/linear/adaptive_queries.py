"""Sums over stored users that are asked again and again: the trusted core of LSVI and offline linear
learners.

The response sum_i phi_i (r_i + V(s'_i)) is a new question about raw data each time V changes. The raw data
stay in here; a learner hands in public arrays (values of the next state, weights of pairs) and gets noisy
(d,) and (d, d) arrays.

Guarantee. The questions are a list fixed before data: their kind, their step, and the mu_i that each may
spend. They are asked in this order; a question past the list, or another one than is planned, raises and
spends nothing. Given its public arrays, answer i is Gaussian and mu_i-GDP by the lemmas of
:mod:`discreet.mechanisms.linear.sensitivities`, whatever the arrays are; the arrays may depend on earlier
answers, the mu_i may not. By adaptive composition everything is mu-GDP with mu^2 = sum mu_i^2, known before
data. Questions about one half of the users (``half``) add up within the half: a user is in one. That needs
the half of everybody else not to depend on her record. Under exact noise a fair coin of its own puts each
person into a half: given everybody's coins the argument holds, and so it does for the coins' mixture. (The
order of submission would not do: readers number people by where their rows lie in the files, so that one
person's rows could turn all others' halves round.) Seeded sessions, which protect nobody, go by position.

A person may have up to m episodes (``episodes``): the change of any sum is then a sum of m changes of one
episode, and the joint norms of the lemmas are norms, so every sensitivity is m times as large and so is the
noise; ``mu`` of a question is always that of the person. People come in order (``user`` never falls), so
that a person's episodes lie together and m is enforced by remembering the last one. A half is
one of people, not of episodes. Who sent nothing (``absent``), or fewer than m episodes, contributes zeros,
which are inside every contract.

A plan may instead give each question an epsilon, for Laplace noise and pure epsilon-DP: scales follow the l1
sensitivities of :mod:`discreet.mechanisms.linear.sensitivities` with the declared bound of ||phi||_1, the
parts of a question and all questions add up. That is far more noise unless features are one-hot or on a
simplex.

Centre and scale of a response are read off the public array over *all* states (``span="values"``), never over
the visited ones, and only the noise's scale follows them. The bounds of features are certified for every
(s, a) by :class:`~discreet.mechanisms.features.Features`; records are checked at the door and raise before
the first question. Noise has its index spent before it is drawn; a session cannot be copied, pickled, or used
in another process, since a copy would draw the same noise again.

Exact noise (secure randomness). Three roundings make every sum an integer on a public grid, and keep every
contract: rewards are rounded at random, without bias, to multiples of 1/g when they come in (g is
``reward_grid``, or less where the noise is so large that it could not be drawn in such units); the public
weights sqrt(w) are rounded up to multiples of 2^-5 (or coarser ones, likewise), and sqrt(w) phi then
truncated towards 0 to multiples of 2^-12, so that norms do not grow; V - centre is rounded to multiples of u,
a power of two below 2^-10 of the range of which 1/g is a multiple, and clipped so that r + V - centre stays
inside. Sums are added up in 64-bit integers, the noise is discrete Gaussian (or Laplace) on their grid, and
what follows is a function of their sum alone: rho = mu_i^2 / 2 each, composed as zCDP.

Why zCDP and no privacy-loss distributions here. A question's shift vector depends on arrays that were chosen
by earlier answers, and so does the number of grid units that the noise spans; composing numerically needs,
for each question, one pair of distributions that dominates all of these. For several coordinates of discrete
Gaussian noise the l2 norm of the shift does not determine such a pair, while the Renyi bound mu_i^2 / 2 holds
for every direction and every scale. The price is the step from zCDP to (epsilon, delta), 6 to 11 % of the
noise.
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
from discreet.core.noise.seeded_rng import SeededRng
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

Kind = Literal["gram", "response", "pair", "model", "start"]

_GRID = 2**12  # of features under exact noise
_ROOTS = 2**5  # of square roots of weights, at the finest
_RANGE = 2**10  # the least number of units of a target's range
_MOST_FLOAT = 2**51  # of all contributions to an entry of a Gram matrix: summed exactly in float64
_MOST_INT = 2**61  # and to the others: in int64
_NOISE_UNITS = 2.0**-20, 2.0**40  # scales that exact noise can have, in units of the grid
_CHUNK = 1024  # pairs that are multiplied at a time: two blocks of features fit into the cache
_FLAT = 1e-6  # the least range of targets that noise is scaled to

__all__ = ["Answer", "Kind", "Question", "ResponseSession", "checked_plan", "planned_records"]


@dataclass(frozen=True, kw_only=True)
class Question:
    """One planned question about the records of one step.

    kind : "gram": sum w phi phi^T; "response": sum w phi (r + V(s') - centre); "pair": both, priced by
    lemma 3;
        "model": Gram, sum phi (e_{s'} - 1/S)^T and (with ``reward``) sum phi (r - 1/2), by lemma 5;
        "start": how often episodes began in each state (step 0): a replaced one moves two counts by 1.
    step : in 0 .. H - 1.
    mu : what it may spend of a person, in Gaussian DP; None: an exact answer, for baselines without privacy.
    epsilon : in the place of mu: pure, in Laplace noise.
    low, high : bounds of r + V(s') (of V(s') without reward), checked against every state's value.
    reward : r is part of the target.
    centre : subtract the middle of the range from targets (the learner adds it back; unbiased where
        ``Features.constant``); else sums are raw.
    span : "values": the range is that of the array handed in; "declared": always [low, high].
    share : of a pair, the part of mu^2 that is the Gram's.
    shares : of a model, those of Gram, next states and rewards; without ``reward`` the last is 0. None: .4,
        .3 and .3, without rewards 4/7 and 3/7.
    half : None: all users; 0 or 1: a half, by fair coins; with seeded noise those at even or odd positions in
        the order of submission.

    Raises ``ValueError`` on values that are not allowed: shares are in (0, 1), losses and high - low above 0.
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
        """False: an exact answer."""
        return self.mu is not None or self.epsilon is not None

    @property
    def parts(self) -> tuple[float, float, float]:
        """The shares of a model."""
        if self.shares is None:
            return (0.4, 0.3, 0.3) if self.reward else (4 / 7, 3 / 7, 0.0)
        return self.shares


@dataclass(frozen=True, eq=False)
class Answer:
    """What a question released; what it did not ask is None.

    gram (d, d), vector (d,), successors (d, S), rewards (d,) : noisy sums; a start's vector is (S,).
    gram_scale : s of the GOE noise, the standard deviation off the diagonal; 0: exact. vector_scale,
        successors_scale, rewards_scale : standard deviations of one entry.
    centre : what was subtracted from the targets of ``vector``.
    span : the range that its noise was scaled to.
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
    """How y = r + V(s') - centre lies: its range, and the row of the lemmas that prices it."""

    centre: float
    span: float
    row: gram.Target


def _target(question: Question, low: float, high: float, nonneg: bool) -> _Target:
    least = 1.0 if question.reward else _FLAT  # with r the range is 1 or more, but for rounding
    if question.centre:
        return _Target(0.5 * (low + high), max(high - low, least), "centred")
    if low < 0:  # |y| <= max(|low|, |high|): half of a centred range
        return _Target(0.0, max(2 * max(-low, abs(high)), least), "centred")
    return _Target(0.0, max(high, least), "raw-nonneg" if nonneg else "raw")


class ResponseSession(Saveable):
    """Users' records of a dataset, and the planned questions about them.

    It can be saved at any time, and goes on once (:func:`~discreet.mechanisms.restore_session.restore`):
    questions that were asked are spent.

    Parameters
    ----------
    layout : Layout
        S, A, H and the mask of admissible actions.
    features : Features
        phi (S, A, d) with certified contracts.
    plan : sequence of Question
        All that will ever be asked, in order; mu is given in all of them or in none.
    randomness : Seeded or Secure
    episodes : int
        m, how many episodes one person may have at most.
    delta : float
        At which epsilon is stated in the guarantee.

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
        if type(features) is not Features:  # a subclass could declare any bound
            raise ValueError(
                f"features = {checks.said(features)}: must be Features(...), and no subclass of it"
            )
        fitting_features(features, layout)
        if type(randomness) not in (Seeded, Secure):
            raise ValueError(f"randomness = {randomness!r}: must be Seeded(...) or Secure(...)")
        self._layout = Layout(layout.states, layout.actions, layout.horizon, layout.mask)
        self._features = features.copy()  # what the caller does to the table later moves no sum
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
        self._asked = 0  # spent before noise is drawn
        self._stored = Stored(
            layout,
            halves=any(question.half is not None for question in self._plan),
            rewards=any(question.reward for question in self._plan if question.kind != "gram"),
            fine=self._exact,
        )
        self._users = 0
        self._taken = 0  # episodes, whose number is private where m > 1
        self._last: tuple[int, int, int] | None = None  # the last person, her episodes, her half

    def _drop(self) -> None:
        super()._drop()
        self._stored.clear()
        self._last, self._taken = None, 0

    @property
    def _people(self) -> dict[str, Any]:
        """What a saved file holds of them."""
        return state_of(self._stored)

    @_people.setter
    def _people(self, state: Mapping[str, Any]) -> None:
        resume(self._stored, state)
        self._stored.check()

    # -------------------------------------------------------------------------- public facts
    @property
    def guarantee(self) -> Guarantee:
        """Known before any data; never changes."""
        return self._guarantee

    @property
    def records(self) -> tuple[MechanismRecord, ...]:
        """What the guarantee is computed from; empty without privacy."""
        return self._records

    @property
    def layout(self) -> Layout:
        """Sizes and mask."""
        return self._layout

    @property
    def features(self) -> Features:
        """The features (a copy): who writes to its table moves no sum."""
        return self._features.copy()

    @property
    def randomness(self) -> str:
        """Where noise comes from: "secure" or "seeded"."""
        return "secure" if self._exact else "seeded"

    @property
    def episodes(self) -> int:
        """m, the most episodes of one person."""
        return self._episodes

    @property
    def users(self) -> int:
        """People so far (public)."""
        return self._users

    @property
    def most(self) -> int:
        """How many episodes can be summed exactly: more are refused."""
        return self._most

    @property
    def plan(self) -> tuple[Question, ...]:
        """All that may be asked (copies)."""
        return tuple(replace(question) for question in self._plan)

    @property
    def asked(self) -> int:
        """How many questions are spent."""
        return self._asked

    def budget_left(self) -> float:
        """mu^2 (or epsilon) of the questions that are left; 0.0 where answers are exact."""
        return math.fsum((q.mu or 0.0) ** 2 + (q.epsilon or 0.0) for q in self._plan[self._asked :])

    # -------------------------------------------------------------------------------- people
    def submit_many(self, trajectories: Trajectories, user: ArrayLike | None = None) -> None:
        """Store checked copies of many episodes, before the first question.

        trajectories : of the layout's sizes, rewards in [0, 1].
        user : (n,) int, the person of each episode, never falling, from call to call either; a person may
            have m episodes at most. None, where m = 1: each episode is of a new person.

        Raises ``ValueError`` (and stores nothing) if any record is broken or anybody has too many: a private
        message, for the keeper of the data only. ``RuntimeError`` after the first question.
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
            # before the records: an interrupt in between loses them
            self._users, self._taken, self._last = users, self._taken + n, last
            self._stored.add(records.states, records.actions, rewards, half)

    def absent(self, users: int = 1) -> None:
        """So many ``users`` who are in the study and have no episode: they count, and add nothing.

        Raises ``ValueError`` unless it is an integer from 1 on, ``RuntimeError`` after the first question.
        """
        with self._call():
            self._check_open()
            self._check_unasked()
            self._users += checks.integer("users", users, 1)

    def _check_unasked(self) -> None:
        if self._asked:
            raise RuntimeError("questions were asked, nobody can be added any more")

    def _followed(self, user: ArrayLike | None, n: int) -> tuple[Ints, int, tuple[int, int, int] | None]:
        """(n,) the half that the person is in; then how many people; the last one, as ``_last``."""
        if user is None:
            if self._episodes > 1:
                raise ValueError(
                    f"user = None: must be given where a person may have {self._episodes} episodes"
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
        runs = np.diff(np.concatenate([[-had], begins, [n]]))  # the first is of the person before
        if runs.max() > self._episodes:
            at = int(np.flatnonzero(runs > self._episodes)[0])
            person = before if at == 0 else who[begins[at - 1]]
            raise ValueError(
                f"user: {person} has {runs[at]} episodes or more, must have at most {self._episodes}; people "
                f"here with too many: {int((runs > self._episodes).sum())}"
            )
        return half, self._users + int(count[-1]), (int(who[-1]), int(runs[-1]), int(half[-1]))

    def _halves(self, people: int) -> Ints:
        """(people,) 0 or 1 for each new person: by a coin of her own; with seeded noise by her place."""
        if self._exact:
            return np.frombuffer(secrets.token_bytes(people), np.uint8).astype(np.int64) & 1
        return (self._users + np.arange(people)) % 2

    # ----------------------------------------------------------------------------- questions
    def gram(self, step: int, weights: ArrayLike | None = None) -> Answer:
        """Sum over users of w(s, a) phi phi^T at ``step``; ``weights`` (S, A) public, in (0, 1]."""
        return self._ask("gram", step, None, weights)

    def response(self, step: int, values: ArrayLike, weights: ArrayLike | None = None) -> Answer:
        """Sum over users of w phi (r + values[s'] - centre) at ``step`` h in [0, H).

        values : (S,) public, within the planned bounds. weights : w (S, A) in [0, 1], None: 1. Raises
        ``ValueError`` for a question that was not planned, or not now.
        """
        return self._ask("response", step, values, weights)

    def pair(self, step: int, values: ArrayLike, weights: ArrayLike | None = None) -> Answer:
        """The Gram matrix and the response at once: less noise than the two apart. step, values, weights :
        as for :meth:`response`.
        """
        return self._ask("pair", step, values, weights)

    def model(self, step: int) -> Answer:
        """Gram, next-state matrix, centred rewards of ``step``: any values may then be planned with, free."""
        return self._ask("model", step, None, None)

    def start(self) -> Answer:
        """How often episodes began in each state."""
        return self._ask("start", 0, None, None)

    def answer(self, question: Response) -> Estimate:
        """A planned "response" through the door of :mod:`discreet.mechanisms.interfaces`.

        ``question.interval`` must contain all targets, and lie within the planned bounds. Raises
        ``ValueError`` for ``gram=True``, whose two parts have laws of their own: ask :meth:`pair`.
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
            self._asked += 1  # from here on the question is spent, whatever happens
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
        """(S A,) square roots of public weights."""
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
        """Units of sqrt(w) phi sqrt(w) in 1."""
        return _GRID * self._root_grid if weighted else _GRID

    def _unit(self, question: Question, span: float) -> float:
        """u, a power of two: 2^10 of it fit into the range, and 1/g is a multiple where r is asked."""
        fine = int(math.log2(_RANGE)) - math.floor(math.log2(span))
        return 2.0 ** -(max(fine, self._reward_grid.bit_length() - 1) if question.reward else fine)

    def _rows(self, pairs: Ints, root: Floats | None, out: Floats | None = None) -> Floats:
        """sqrt(w) phi of these pairs; under exact noise truncated, in units of 2^-12."""
        x = np.take(self._features.rows, pairs, axis=0, out=out, mode="clip")  # else out is buffered
        if root is not None:
            x *= root[pairs, None]
        if self._exact:
            x *= _GRID
            np.trunc(x, out=x)
        return x

    def _sums(
        self, question: Question, root: Floats | None, values: Floats, target: _Target
    ) -> dict[str, NDArray[Any]]:
        """Exact sums, by pairs: a user's features are a public function of her (s, a).

        Under exact noise all are integers: counts of the grid's units.
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
        """Sum of n x x^T over pairs that occur, a block of rows at a time."""
        d = self._features.dimension
        total, rows, times = np.zeros((d, d)), np.empty((_CHUNK, d)), np.empty((_CHUNK, d))
        for begin in range(0, len(seen), _CHUNK):
            pairs = seen[begin : begin + _CHUNK]
            x = self._rows(pairs, root, rows[: len(pairs)])
            total += np.multiply(x, visits[pairs, None], out=times[: len(pairs)]).T @ x
        return total.astype(np.int64) if self._exact else total

    def _times(self, seen: Ints, y: NDArray[Any], root: Floats | None) -> NDArray[Any]:
        """Sum of x y over pairs that occur."""
        total: NDArray[Any] = np.zeros(self._features.dimension, y.dtype)
        for begin in range(0, len(seen), _CHUNK):
            pairs = seen[begin : begin + _CHUNK]
            total += y[pairs] @ self._rows(pairs, root).astype(y.dtype, copy=False)
        return total

    def _target_units(
        self, question: Question, values: Floats, target: _Target, visits: Ints
    ) -> NDArray[np.int64]:
        """(P,) sums of r + V - centre in units of u: each is inside the range, whatever is rounded."""
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
        """Sums of x (e_{s'} - 1/S), under exact noise times S, and of x (r - 1/2)."""
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
        """The sums with noise in the units of their own; without a budget as they are.

        Sums on a grid are added to noise in 64-bit integers; only then is anything rounded to float64.
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
        spread = math.sqrt(2.0) if pure else 1.0  # the standard deviation of Laplace noise of scale 1
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
            if self._exact:  # int64 sums may be larger than float64 ones
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
    """Private copies of the questions, or ``ValueError`` if they do not fit the layout or each other."""
    questions = tuple(plan)
    if not questions or not all(type(question) is Question for question in questions):
        raise ValueError("plan: must be a list of at least one Question, and no subclass of it")
    for i, question in enumerate(questions):
        checks.integer(f"plan[{i}].step", question.step, 0, layout.horizon - 1)
        if question.kind == "model" and layout.states < 2:
            raise ValueError(f"plan[{i}].kind = 'model': must be another one, there is one state only")
    if len({(question.mu is None, question.epsilon is None) for question in questions}) > 1:
        raise ValueError("plan: mu (or epsilon) must be given in all questions or in none")
    return tuple(  # private copies, no list in them: no noise can be moved later
        replace(question, shares=question.shares and tuple(question.shares))  # type: ignore[arg-type]
        for question in questions
    )


def _delta(delta: float) -> float:
    return checks.real("delta", delta, 0.0, 1.0, open_low=True, open_high=True)


def _scales(
    question: Question, features: Features, states: int, row: gram.Target, episodes: int
) -> dict[str, float]:
    """Noise scales of a question: GOE scale, and standard deviations (a response's per unit of its range).

    A person of m episodes moves every sum m times as far: what is left for one episode is mu / m.
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
    """Replace-one, in the units of :func:`_scales` (the Gram's in units in which GOE(s) has scale s)."""
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
    """One record of all questions, with exact (discrete) or continuous noise; none without privacy."""
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
    """The largest range that the declared bounds allow."""
    return _target(question, question.low, question.high, features.nonneg).span


def _exact_grids(
    plan: tuple[Question, ...], features: Features, states: int, episodes: int, finest: int
) -> tuple[int, int]:
    """The finest grids of rewards and of weights' roots at which exact noise can be drawn.

    What cannot be drawn at all is refused here, before anybody comes.
    """
    low, high = _NOISE_UNITS
    grid, roots = finest, _ROOTS
    for i, question in enumerate(plan):
        if not question.private:
            continue
        row = _target(question, question.low, question.high, features.nonneg).row
        widest = math.ceil(_widest(question, features)) if question.reward else 0
        for name, scale in _scales(question, features, states, row, episodes).items():
            least = most = _GRID * {"gram": _GRID, "successors": states}.get(name, 1)  # units of 1
            if name == "start":
                least = most = 1
            if name == "rewards":
                while grid > 2 and 2 * scale * _GRID * grid > high:
                    grid //= 2
                least = most = _GRID * grid
            elif name == "response":  # the range has 2^10 to 2^11 units, or g of 1
                while 2 * scale * _GRID * roots * max(2 * _RANGE, grid * widest) > high:
                    if grid > 2 and grid * widest > 2 * _RANGE:
                        grid //= 2
                    elif roots > 2:
                        roots //= 2
                    else:
                        break
                least, most = _GRID * _RANGE, _GRID * roots * max(2 * _RANGE, grid * widest)
            if not (low <= scale * least and 2 * scale * most <= high):  # GOE: up to sqrt(2)
                raise ValueError(
                    f"plan[{i}].mu = {question.mu or question.epsilon!r}: exact noise of {scale:.6g} on "
                    f"{name} is outside what can be drawn, [{low / least:.3g}, {high / (2 * most):.3g}]"
                )
    return grid, roots


def _most_episodes(plan: tuple[Question, ...], features: Features, states: int, reward_grid: int) -> int:
    """How many episodes can be summed without overflow of float64's or int64's integers."""
    b = max(1.0, features.bound)
    widest = max(_widest(question, features) for question in plan)
    units = 2 * _RANGE + widest * max(1, reward_grid)
    return int(min(_MOST_FLOAT / (_GRID * b) ** 2, _MOST_INT / (_GRID * b * max(states, _ROOTS * units))))
