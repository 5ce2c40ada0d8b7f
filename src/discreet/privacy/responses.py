"""Sums over stored users that are asked again and again: the trusted core of LSVI and offline linear
learners.

Specification: linear-and-offline, sections 0 and 1. The response sum_i phi_i (r_i + V(s'_i)) is a new
question about raw data each time V changes. The raw data stay in here; a learner hands in public arrays
(values of the next state, weights of pairs) and gets noisy (d,) and (d, d) arrays.

Guarantee. The questions are a list fixed before data: their kind, their step, and the mu_i that each may
spend. They are asked in this order; a question past the list, or another one than is planned, raises and
spends nothing. Given its public arrays, answer i is Gaussian and mu_i-GDP by the lemmas of
:mod:`discreet.privacy.gram`, whatever the arrays are; the arrays may depend on earlier answers, the mu_i
may not. By adaptive composition everything is mu-GDP with mu^2 = sum mu_i^2, known before data. Questions
about one half of the users (``half``, by position in the order of submission) add up within the half: a
user is in one.

Centre and scale of a response are read off the public array over *all* states (``span="values"``), never over
the visited ones, and only the noise's scale follows them. The bounds of features are certified for every
(s, a) by :class:`~discreet.mdp.features.Features`; records are checked at the door and raise before the first
question. Noise has its index spent before it is drawn; a session cannot be copied, pickled, or used in
another process, since a copy would draw the same noise again.

Exact noise (secure randomness). sqrt(w) phi is truncated towards 0 to multiples of 2^-12, and sqrt(w) y, in
units of its range, rounded to the nearest: norms do not grow, and the ends of the range are on the grid, so
every contract is kept. All sums are then integers on a public grid, the noise is discrete Gaussian on it,
and what follows (times the range) is a function of their sum alone: rho = mu_i^2 / 2 each, composed as
zCDP.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, NoReturn, get_args

import numpy as np
from numpy.typing import ArrayLike

from discreet.mdp.features import Features
from discreet.mdp.layout import Layout
from discreet.mdp.trajectories import Trajectories, checked, copied_many
from discreet.numerics import checks
from discreet.privacy import gram
from discreet.privacy.guarantee import Guarantee, MechanismRecord, guarantee_of, no_guarantee
from discreet.privacy.noise import laws
from discreet.privacy.protocol import Coins, Estimate, Floats, Ints, Response
from discreet.privacy.randomness import Randomness, Secure, SecureCoins, Seeded, SeededCoins

Kind = Literal["gram", "response", "pair", "model"]

_GRID = 2**12  # of features and of targets under exact noise
_MOST_UNITS = 2**51  # of all users' contributions to an entry: beside noise they add up exactly
_NOISE_UNITS = 2.0**-20, 2.0**40  # scales that exact noise can have, in units of the grid
_FLAT = 1e-6  # the least range of targets that noise is scaled to

__all__ = ["Answer", "Kind", "Question", "ResponseSession"]


@dataclass(frozen=True, kw_only=True)
class Question:
    """One planned question about the records of one step.

    kind : "gram": sum w phi phi^T; "response": sum w phi (r + V(s') - centre); "pair": both, priced by
    lemma 3;
        "model": Gram, sum phi (e_{s'} - 1/S)^T and sum phi (r - 1/2), by lemma 5.
    step : in 0 .. H - 1.
    mu : what it may spend, in Gaussian DP; None: an exact answer, for baselines without privacy.
    low, high : bounds of r + V(s') (of V(s') without reward), checked against every state's value.
    reward : r is part of the target.
    centre : subtract the middle of the range from targets (the learner adds it back; unbiased where
        ``Features.constant``); else sums are raw.
    span : "values": the range is that of the array handed in; "declared": always [low, high].
    share : of a pair, the part of mu^2 that is the Gram's.
    shares : of a model, those of Gram, next states and rewards.
    half : None: all users; 0 or 1: those at even or odd positions in the order of submission.
    """

    kind: Kind
    step: int
    mu: float | None
    low: float = 0.0
    high: float = 1.0
    reward: bool = True
    centre: bool = True
    span: Literal["values", "declared"] = "values"
    share: float = 0.5
    shares: tuple[float, float, float] = (0.4, 0.3, 0.3)
    half: int | None = None

    def __post_init__(self) -> None:
        checks.choice("kind", self.kind, get_args(Kind))
        checks.integer("step", self.step, 0)
        if self.mu is not None:
            checks.positive("mu", self.mu)
        low = checks.real("low", self.low)
        checks.real("high", self.high, low)
        if self.high <= low:
            raise ValueError(f"high = {self.high!r}: must be above low = {low!r}")
        checks.flag("reward", self.reward)
        checks.flag("centre", self.centre)
        checks.choice("span", self.span, ("values", "declared"))
        checks.real("share", self.share, 0.0, 1.0, open_low=True, open_high=True)
        checks.choice("half", self.half, (None, 0, 1))
        if self.kind == "model" and self.mu is not None:
            gram.model_scales(1.0, self.mu, self.shares, 2)


@dataclass(frozen=True, eq=False)
class Answer:
    """What a question released; what it did not ask is None.

    gram (d, d), vector (d,), successors (d, S), rewards (d,) : noisy sums.
    gram_scale : s of the GOE noise; 0: exact. vector_scale, successors_scale, rewards_scale : standard
        deviations of one entry.
    centre : what was subtracted from the targets of ``vector``.
    span : the range that its noise was scaled to.
    """

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
    if question.centre:
        return _Target(0.5 * (low + high), max(high - low, _FLAT), "centred")
    if low < 0:  # |y| <= max(|low|, |high|): half of a centred range
        return _Target(0.0, max(2 * max(-low, abs(high)), _FLAT), "centred")
    return _Target(0.0, max(high, _FLAT), "raw-nonneg" if nonneg else "raw")


class ResponseSession:
    """Users' records of a dataset, and the planned questions about them.

    Parameters
    ----------
    layout : Layout
        S, A, H and the mask of admissible actions.
    features : Features
        phi (S, A, d) with certified contracts.
    plan : sequence of Question
        All that will ever be asked, in order; mu is given in all of them or in none.
    randomness : Seeded or Secure
    delta : float
        At which epsilon is stated in the guarantee.

    Raises
    ------
    ValueError
        If the plan does not fit the layout, or its noise cannot be drawn exactly under secure randomness.
    """

    def __init__(
        self,
        layout: Layout,
        features: Features,
        plan: Sequence[Question],
        randomness: Randomness,
        *,
        delta: float = 1e-6,
    ) -> None:
        if type(features) is not Features:  # a subclass could declare any bound
            raise ValueError(
                f"features = {checks.said(features)}: must be Features(...), and no subclass of it"
            )
        if (features.states, features.actions) != (layout.states, layout.actions):
            raise ValueError(
                f"features are of {features.states} states and {features.actions} actions: must be of "
                f"{layout.states} and {layout.actions}"
            )
        if not isinstance(randomness, Seeded | Secure):
            raise ValueError(f"randomness = {randomness!r}: must be Seeded(...) or Secure(...)")
        self._layout = Layout(layout.states, layout.actions, layout.horizon, layout.mask)
        self._features = Features(
            features.table, features.bound, l1=features.l1, nonneg=features.nonneg
        )  # a private copy: what the caller does to the table later moves no sum
        self._plan = _checked_plan(plan, layout)
        self._exact = isinstance(randomness, Secure)
        self._key = randomness.keys.noise.copy() if isinstance(randomness, Seeded) else None
        self._grid = _GRID if self._exact else None
        self._guarantee = _guarantee(self._plan, self._features, layout, randomness, delta)
        self._most = int(_MOST_UNITS / (_GRID**2 * layout.states * max(features.bound, features.bound**2)))
        if self._exact:
            _check_exact(self._plan, self._features, layout.states)
        self._asked = 0  # spent before noise is drawn
        self._chunks: list[tuple[Ints, Ints, Floats]] = []  # (H, n) rows, next states, rewards
        self._users = 0
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._closed = False

    def __reduce__(self) -> NoReturn:
        raise TypeError("a session cannot be pickled or copied: the copy would draw the same noise again")

    def __copy__(self) -> NoReturn:
        self.__reduce__()

    def __enter__(self) -> ResponseSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the session: records are dropped, every later call raises."""
        self._closed = True
        self._chunks = []

    @contextmanager
    def _call(self) -> Iterator[None]:
        """One call at a time, in the process that started the session, while it is open."""
        if os.getpid() != self._process:
            raise RuntimeError(
                "this session was started in another process: a copy would draw the same noise again"
            )
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("a call on this session is running: it must end first")
        try:
            if self._closed:
                raise RuntimeError("this session is closed: start another one")
            yield
        finally:
            self._lock.release()

    # -------------------------------------------------------------------------- public facts
    @property
    def guarantee(self) -> Guarantee:
        """Known before any data; never changes."""
        return self._guarantee

    @property
    def users(self) -> int:
        """Users stored so far (public)."""
        return self._users

    @property
    def plan(self) -> tuple[Question, ...]:
        """All that may be asked (copies)."""
        return tuple(replace(question) for question in self._plan)

    @property
    def asked(self) -> int:
        """How many questions are spent."""
        return self._asked

    def budget_left(self) -> float:
        """mu^2 of the questions that are left; 0.0 where answers are exact."""
        return math.fsum((question.mu or 0.0) ** 2 for question in self._plan[self._asked :])

    # -------------------------------------------------------------------------------- people
    def submit_many(self, trajectories: Trajectories) -> None:
        """Store checked copies of the records of many users, before the first question.

        Raises ``ValueError`` (and stores nothing) if any record is broken: a private message, for the
        keeper of the data only. ``RuntimeError`` after the first question.
        """
        with self._call():
            if self._asked:
                raise RuntimeError("submit_many: questions were asked, nobody can be added any more")
            if not isinstance(trajectories, Trajectories):
                raise ValueError(f"trajectories is a {type(trajectories).__name__}: must be Trajectories")
            users = checks.integer("len(trajectories)", len(trajectories), 1)
            if self._users + users > self._most:
                raise ValueError(
                    f"len(trajectories) = {users}: sums of more than {self._most} users are not exact"
                )
            records = copied_many(trajectories, users, self._layout)
            rows = _checked_rows(records, self._layout)
            self._users += users  # before the records: an interrupt in between loses them
            by_step = [np.ascontiguousarray(part.T) for part in (rows, records.states[:, 1:])]
            self._chunks.append((by_step[0], by_step[1], np.ascontiguousarray(records.rewards.T)))

    # ----------------------------------------------------------------------------- questions
    def gram(self, step: int, weights: ArrayLike | None = None) -> Answer:
        """Sum over users of w(s, a) phi phi^T at ``step``; ``weights`` (S, A) public, in (0, 1]."""
        return self._ask("gram", step, None, weights)

    def response(self, step: int, values: ArrayLike, weights: ArrayLike | None = None) -> Answer:
        """Sum of w phi (r + values[s'] - centre); ``values`` (S,) public, within the planned bounds."""
        return self._ask("response", step, values, weights)

    def pair(self, step: int, values: ArrayLike, weights: ArrayLike | None = None) -> Answer:
        """The Gram matrix and the response at once: less noise than the two apart."""
        return self._ask("pair", step, values, weights)

    def model(self, step: int) -> Answer:
        """Gram, next-state matrix and centred rewards: any values may then be planned with, free."""
        return self._ask("model", step, None, None)

    def answer(self, question: Response) -> Estimate:
        """A planned "response" through the door of :mod:`discreet.privacy.protocol`.

        ``question.interval`` must contain all targets, and lie within the planned bounds. Raises
        ``ValueError`` for ``gram=True``, whose two parts have laws of their own: ask :meth:`pair`.
        """
        if question.gram:
            raise ValueError("question.gram = True: ask session.pair, whose two parts have laws of their own")
        low, high = question.interval
        planned = self._plan[self._asked] if self._asked < len(self._plan) else None
        if planned is not None and not planned.low <= low < high <= planned.high:
            raise ValueError(
                f"question.interval = {question.interval!r}: must lie in [{planned.low:g}, {planned.high:g}]"
            )
        found = self._ask("response", question.step, question.values, question.weights, (low, high))
        assert found.vector is not None
        d = self._features.dimension
        law: laws.NoNoise | laws.GaussianSumLaw = laws.NoNoise()
        if found.vector_scale:
            unit = found.span / _GRID**2 if self._exact else None
            law = laws.GaussianSumLaw(
                found.vector_scale, 1.0, 1, cells=d, rows=d, share=1.0 / len(self._plan), unit=unit
            )
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
            question = self._next(kind, step)
            root = self._roots(weights)
            table = np.zeros(self._layout.states)
            if values is not None:
                table = checks.floats("values", values, table.shape)
            target = self._targets(question, table, bounds)
            self._asked += 1  # from here on the question is spent, whatever happens
            users = slice(None) if question.half is None else slice(question.half, None, 2)
            parts = [(rows[step, users], to[step, users], r[step, users]) for rows, to, r in self._aligned()]
            exact = self._sums(question, parts, root, table, target)
            return exact if question.mu is None else self._noisy(question, exact, target)

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
        return np.sqrt(table.ravel())

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

    def _aligned(self) -> list[tuple[Ints, Ints, Floats]]:
        """The records as one chunk, so that halves go by the position among all users."""
        if len(self._chunks) > 1:
            rows, to, rewards = zip(*self._chunks, strict=True)
            self._chunks = [(np.concatenate(rows, 1), np.concatenate(to, 1), np.concatenate(rewards, 1))]
        return self._chunks

    def _sums(
        self,
        question: Question,
        parts: list[tuple[Ints, Ints, Floats]],
        root: Floats | None,
        values: Floats,
        target: _Target,
    ) -> Answer:
        """Exact sums, by pairs: a user's features are a public function of her (s, a)."""
        pairs, states = len(self._features.rows), self._layout.states
        x = self._features.rows if root is None else self._features.rows * root[:, None]
        if self._exact:
            x = np.trunc(x * _GRID) / _GRID
        rows, to, rewards = parts[0] if parts else (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
        out: dict[str, Floats] = {}
        if question.kind != "response":
            out["gram"] = (x.T * np.bincount(rows, minlength=pairs)) @ x
        if question.kind == "model":
            cells = np.bincount(rows * states + to, minlength=pairs * states).reshape(pairs, states)
            moved = x.T @ (states * cells - cells.sum(axis=1, keepdims=True)).astype(np.float64)
            out["successors"] = moved / states
            out["rewards"] = x.T @ np.bincount(rows, self._on_grid(rewards - 0.5), minlength=pairs)
        elif question.kind != "gram":
            y = values[to] - target.centre
            y = np.clip(y + rewards if question.reward else y, *self._ends(target))
            if root is not None:
                y = y * root[rows]
            if self._exact:  # in units of the range, until noise is added
                y = self._on_grid(y / target.span)
            out["vector"] = x.T @ np.bincount(rows, y, minlength=pairs)
            if self._exact and question.mu is None:
                out["vector"] *= target.span
        return Answer(
            out.get("gram"),
            out.get("vector"),
            out.get("successors"),
            out.get("rewards"),
            centre=target.centre,
            span=target.span,
        )

    @staticmethod
    def _ends(target: _Target) -> tuple[float, float]:
        """The range of y: rounding of r + V - centre never leaves it."""
        return (-target.span / 2, target.span / 2) if target.row == "centred" else (0.0, target.span)

    def _on_grid(self, array: Floats) -> Floats:
        """Rounded to the grid, under exact noise; -1/2, 1/2 and 1 are on it, so ranges do not grow."""
        return np.rint(array * _GRID) / _GRID if self._exact else array

    def _noisy(self, question: Question, exact: Answer, target: _Target) -> Answer:
        """Add noise for mu. Sums on a grid stay on it: integers below 2^51 add up exactly in float64."""
        coins: Coins = SecureCoins() if self._key is None else SeededCoins(self._key, self._asked - 1)
        d, states = self._features.dimension, self._layout.states
        fine = None if self._grid is None else self._grid**2
        scales = _scales(question, self._features, states, target.row)
        out: dict[str, Floats] = {}
        if exact.gram is not None:
            out["gram"] = exact.gram + gram.goe(scales["gram"], d, coins, fine)
        if exact.vector is not None:
            unit = target.span if self._exact else 1.0
            std = scales["response"] * target.span / unit
            out["vector"] = unit * (exact.vector + gram.vector_noise(std, (d,), coins, fine))
        if exact.successors is not None and exact.rewards is not None:
            coarse = None if self._grid is None else self._grid * states
            noise = gram.vector_noise(scales["successors"], (d, states), coins, coarse)
            if coarse is None:
                out["successors"] = exact.successors + noise
            else:  # S is no power of two: integers are added, or the last bits would tell the two apart
                units = np.rint(exact.successors * coarse) + np.rint(noise * coarse)
                out["successors"] = units / coarse
            out["rewards"] = exact.rewards + gram.vector_noise(scales["rewards"], (d,), coins, fine)
        return Answer(
            out.get("gram"),
            out.get("vector"),
            out.get("successors"),
            out.get("rewards"),
            gram_scale=scales.get("gram", 0.0),
            vector_scale=scales.get("response", 0.0) * target.span,
            successors_scale=scales.get("successors", 0.0),
            rewards_scale=scales.get("rewards", 0.0),
            centre=exact.centre,
            span=exact.span,
        )


# ---------------------------------------------------------------------------------- public numbers


def _checked_plan(plan: Sequence[Question], layout: Layout) -> tuple[Question, ...]:
    questions = tuple(plan)
    if not questions or not all(type(question) is Question for question in questions):
        raise ValueError("plan: must be a list of at least one Question, and no subclass of it")
    for i, question in enumerate(questions):
        checks.integer(f"plan[{i}].step", question.step, 0, layout.horizon - 1)
        if question.kind == "model" and layout.states < 2:
            raise ValueError(f"plan[{i}].kind = 'model': must be another one, there is one state only")
    if len({question.mu is None for question in questions}) > 1:
        raise ValueError("plan: mu must be given in all questions or in none")
    return tuple(replace(question) for question in questions)  # private copies: no noise can be moved later


def _checked_rows(records: Trajectories, layout: Layout) -> Ints:
    """(n, H) s A + a of every record; ``ValueError`` names the first broken user."""
    from discreet.privacy import records_kernels

    index = layout.row_index
    broken = int(records_kernels.first_broken(records.states, records.actions, records.rewards, index))
    if broken >= 0:
        try:
            checked(records[broken], layout)
        except ValueError as error:
            message = str(error).removeprefix("trajectory")
            raise ValueError(f"trajectories[{broken}]{message}") from None
    rows: Ints = records.states[:, :-1] * layout.actions + records.actions
    return rows


def _scales(question: Question, features: Features, states: int, row: gram.Target) -> dict[str, float]:
    """Noise scales of a question: GOE scale, and standard deviations (a response's per unit of its range)."""
    assert question.mu is not None
    b, mu = features.bound, question.mu
    if question.kind == "gram":
        return {"gram": gram.gram_scale(b, mu)}
    if question.kind == "response":
        return {"response": gram.vector_sensitivity(b, 1.0, row) / mu}
    if question.kind == "pair":
        pair = gram.pair_scales(b, mu, question.share, row)
        return {"gram": pair.gram, "response": pair.vector}
    model = gram.model_scales(b, mu, question.shares, states, features.nonneg)
    return {"gram": model.gram, "successors": model.successors, "rewards": model.rewards}


def _sensitivities(features: Features, states: int, row: gram.Target) -> dict[str, float]:
    """Replace-one, in the units of :func:`_scales` (the Gram's in units in which GOE(s) has scale s)."""
    b = features.bound
    return {
        "gram": b**2,
        "response": gram.vector_sensitivity(b, 1.0, row),
        "successors": gram.successor_sensitivity(b, max(2, states), features.nonneg),
        "rewards": gram.vector_sensitivity(b, 1.0, "centred"),
    }


def _guarantee(
    plan: tuple[Question, ...], features: Features, layout: Layout, randomness: Randomness, delta: float
) -> Guarantee:
    checks.real("delta", delta, 0.0, 1.0, open_low=True, open_high=True)
    if plan[0].mu is None:
        return no_guarantee(randomness.kind)
    scales: dict[str, float] = {}
    own: dict[str, float] = {}
    for i, question in enumerate(plan):
        row = _target(question, question.low, question.high, features.nonneg).row
        sensitivities = _sensitivities(features, layout.states, row)
        for name, scale in _scales(question, features, layout.states, row).items():
            scales[f"{i}.{name}[{question.step}]"] = scale
            own[f"{i}.{name}[{question.step}]"] = sensitivities[name]
    mu = max(
        math.sqrt(math.fsum((q.mu or 0.0) ** 2 for q in plan if q.half in (None, half))) for half in (0, 1)
    )
    record = MechanismRecord(
        f"{len(plan)} planned questions about stored trajectories (responses per unit of their public range)",
        "gaussian" if isinstance(randomness, Seeded) else "discrete_gaussian",
        scales, own, mu,
    )  # fmt: skip
    return guarantee_of("joint", [record], randomness=randomness.kind, delta=delta)


def _check_exact(plan: tuple[Question, ...], features: Features, states: int) -> None:
    """Scales at which exact noise can be drawn: refused before anybody comes, not after."""
    low, high = _NOISE_UNITS
    for i, question in enumerate(plan):
        if question.mu is None:
            continue
        target = _target(question, question.low, question.high, features.nonneg)
        for name, scale in _scales(question, features, states, target.row).items():
            grid = _GRID * (states if name == "successors" else _GRID)
            if not (low <= scale * grid and 2 * scale * grid <= high):  # GOE and raw rows: up to sqrt(2), 2
                raise ValueError(
                    f"plan[{i}].mu = {question.mu!r}: exact noise of scale {scale:.6g} on {name} is outside "
                    f"what can be drawn, [{low / grid:.3g}, {high / grid:.3g}]"
                )
