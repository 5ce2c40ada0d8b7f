r"""Replay audit: the largest effect of one user on all outputs, for a learner's own plans.

The learner is run once, and its plans, batches, groups, shares, clipping thresholds and queries are recorded.
These decisions are replayed in other sessions, whatever those sessions release. Two replays with equal seeds
that differ in one user's record have equal noise, so their difference is the exact effect of the record on
all sums, measurements and answers. Replays with equal records and different seeds differ only in noise, and
give an estimate of the noise covariance. The audit uses no distribution, scale or mixing matrix that a
mechanism states.

**The metric.** Let d be the effect on one cell in all outputs, and C the covariance matrix of this cell's
outputs, estimated over seeds and over cells that are noisy at the same releases. For Gaussian noise, mu^2 is
the sum of d^T C^-1 d over cells. If C is estimated from n samples of p outputs, each term is too large by a
factor n / chi^2, where chi^2 has n - p + 1 degrees of freedom. A quantile of chi^2 therefore gives a lower
bound on mu. For Laplace noise, the sum of sqrt(2 d^T C^-1 d) over cells is a lower bound on epsilon, and n is
multiplied by 2/5 because of the fourth moment. If the effect is outside the range of the noise, the loss is
infinite. The user and the records with the largest loss are chosen on one set of seeds, and their loss is
computed on another set.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import stats

from discreet.audit import linear_games as audit_linear
from discreet.audit.black_box import ALARM, Start, reactive
from discreet.audit.noise_model import AuditQuery
from discreet.audit.white_box import Identity
from discreet.core.layout import Layout
from discreet.core.releases import Estimate, Floats, Plan, Release
from discreet.core.rng import Seeded
from discreet.core.trajectories import Trajectories, Trajectory
from discreet.mechanisms.interfaces import Budget, ProblemSpec
from discreet.mechanisms.linear.linear_queries import LinearQuery
from discreet.mechanisms.open_session import mechanism_reused
from discreet.mechanisms.query_queue import Response
from discreet.mechanisms.seeded_rng import SeededRng

NAME = "the learner's own plans, replayed: a user moves all outputs by at most the claimed"
_SIZES = (4096, 1024, 256, 32)
_MOST_RELEASES = 100
# number of runs to choose the exchange, and number of other runs to evaluate it
_FIRST, _SEEDS = 12, 96
_TARGETS = 6

Key = tuple[str, int]
Outputs = dict[Key, Floats]  # for each family, an array (outputs, cells) in the order of releases


@dataclass(frozen=True, eq=False)
class LearnerReplay:
    """Plans of a learner in one run, in order, and the queries that it made before each plan."""

    query: AuditQuery
    schedule: Any
    plans: tuple[Plan, ...]
    asked: tuple[tuple[Response, ...], ...]

    @property
    def users(self) -> int:
        """Number of users of all plans together."""
        return sum(plan.users for plan in self.plans)

    def __str__(self) -> str:
        users = f"{len(self.plans)} plans of {self.users} users"
        forgets = sum(plan.forget for plan in self.plans)
        cuts = len({plan.cut for plan in self.plans if plan.cut is not None})
        groups = len({plan.group for plan in self.plans if plan.group is not None})
        asked = sum(map(len, self.asked))
        said = ((forgets, "that forget"), (groups, "groups"), (cuts, "cuts"), (asked, "questions"))
        return ", ".join([users, *(f"{n} {words}" for n, words in said if n)])


# ------------------------------------------------------------------------------- users and sessions
def _life(plan: Plan, layout: Layout, states: Sequence[int], action: int, reward: float) -> Trajectory:
    """Return a trajectory that cycles through ``states`` and follows the plan's policy.

    action : 0 for the first action of positive probability, -1 for the last
    """
    path = np.resize(np.asarray(states, np.int64), layout.horizon + 1)
    rows = np.asarray(plan.policy)[np.arange(layout.horizon), path[:-1]]
    if rows.ndim > 1:
        rows = np.array([np.flatnonzero(row)[action] for row in rows])
    return Trajectory(path, rows.astype(np.int64), np.full(layout.horizon, reward))


def _pairs(plan: Plan, layout: Layout) -> list[tuple[Trajectory, Trajectory]]:
    """Return pairs of trajectories whose contributions differ most."""
    last = layout.states - 1
    ways = (
        (([0], 0, 1.0), ([last], -1, 1.0)),
        (([0], 0, 1.0), ([last], -1, 0.0)),
        (([0, last], 0, 0.0), ([last, 0], -1, 1.0)),
        (([0], 0, 1.0), ([0, 0, last], -1, 0.0)),
    )
    return [tuple(_life(plan, layout, *one) for one in way) for way in ways]  # type: ignore[misc]


def _flat(query: AuditQuery, release: Release) -> list[tuple[Key, Floats]]:
    """Return every noisy number of a release once, grouped by family.

    For linear sums, each step is a family, and the diagonal of a Gram matrix is a separate family.
    """
    out: list[tuple[Key, Floats]] = []
    for found in (release.estimates, getattr(release.measurement, "estimates", {})):
        for name, estimate in found.items():
            values = np.asarray(estimate.value, np.float64)
            if not isinstance(query, LinearQuery):
                out.append(((name, 0), values.ravel()))
                continue
            for step, table in enumerate(values):
                if query.is_gram(name):
                    above = np.triu_indices(len(table), 1)
                    out.append(((f"{name} diagonal", step), np.diagonal(table).copy()))
                    out.append(((name, step), table[above]))
                else:
                    out.append(((name, step), table.ravel()))
    return out


def _submit(
    session: Any, plan: Plan, encoder: Any, layout: Layout, key: Any, came: int, who: int, life: Any
) -> None:
    """Submit the users of a plan. User ``who`` has the trajectory ``life``, and all others stay in one state.

    who : number of the user within the plan, from 0; negative for none
    came : number of earlier users
    """
    opened, still = getattr(session, "open_plan", plan), _life(plan, layout, [0], 0, 0.25)
    if session.guarantee.trust not in ("local", "shuffle") and hasattr(session, "submit_many"):
        states, actions, rewards = (
            np.repeat(getattr(still, name)[None], plan.users, axis=0)
            for name in ("states", "actions", "rewards")
        )
        if 0 <= who < plan.users:
            states[who], actions[who], rewards[who] = life.states, life.actions, life.rewards
        session.submit_many(Trajectories(states, actions, rewards), opened.number)
        return
    for user in range(plan.users):
        record = life if user == who else still
        session.submit(encoder(record, opened, SeededRng(key, came + user)))


def recorded(start: Start, learner: Any, spec: ProblemSpec, users: int, seed: int) -> LearnerReplay:
    """Run the learner with ``users`` users once, and return its plans and queries."""
    query, schedule, source = learner.query(spec), learner.schedule(spec), Seeded(seed)
    session: Any = start(query, schedule, source)
    state, came = learner.begin(spec, source.keys.ties), 0
    plans: list[Plan] = []
    asked: list[tuple[Response, ...]] = []
    while came < users:
        questions: list[Response] = []

        def ask(question: Response, questions: list[Response] = questions) -> Estimate:
            questions.append(question)
            found: Estimate = session.answer(question)
            return found

        release = session.release()
        plan, state = learner.plan(state, release, ask)
        plan = dataclasses.replace(plan, users=min(plan.users, users - came))
        encoder = session.begin(plan)
        _submit(session, plan, encoder, spec.layout, source.keys.noise, came, -1, None)
        plans.append(dataclasses.replace(plan, number=0))
        asked.append(tuple(questions))
        came += plan.users
    session.close()
    return LearnerReplay(query, schedule, tuple(plans), tuple(asked))


def replayed(
    start: Start, replay: LearnerReplay, source: Seeded, target: int = -1, life: Trajectory | None = None
) -> Outputs:
    """Replay recorded plans and queries in a new session, and return all outputs by family.

    User ``target`` (counted from 0) has the trajectory ``life``. All other users stay in one state.
    """
    session: Any = start(replay.query, replay.schedule, source)
    out: dict[Key, list[Floats]] = {}
    came, number = 0, -1
    for plan, questions in zip(replay.plans, replay.asked, strict=True):
        release = session.release()
        outputs = _flat(replay.query, release) if release.number > max(number, 0) else []
        number = release.number
        outputs += [((f"answers {one.step}", 0), session.answer(one).value) for one in questions]
        for name, values in outputs:
            out.setdefault(name, []).append(values)
        encoder = session.begin(plan)
        who = -1 if life is None else target - came
        _submit(session, plan, encoder, replay.query.layout, source.keys.noise, came, who, life)
        came += plan.users
    session.close()
    return {name: np.array(values) for name, values in out.items()}


# --------------------------------------------------------------------------------------- the metric
@dataclass(frozen=True, eq=False)
class _Pool:
    """Cells of one family that are noisy at the same outputs.

    Parameters
    ----------
    rows : indices of the noisy outputs
    cells : indices of the cells
    noise : (rows, samples) noise of these outputs minus its mean
    samples : number of independent samples
    """

    name: Key
    rows: Any
    cells: Any
    noise: Floats
    samples: int

    @cached_property
    def _covariance(self) -> Floats:
        covariance: Floats = self.noise @ self.noise.T / self.samples
        return covariance

    @cached_property
    def _axes(self) -> dict[bytes, tuple[Floats, Floats]]:
        return {}

    def axes(self, kept: Any) -> tuple[Floats, Floats]:
        """Return eigenvalues and eigenvectors of the covariance of the outputs ``kept`` (their indices)."""
        key = kept.tobytes()
        if key not in self._axes:
            self._axes[key] = np.linalg.eigh(self._covariance[np.ix_(kept, kept)])
        return self._axes[key]


def _pools(seeds: Sequence[Outputs]) -> list[_Pool]:
    found: list[_Pool] = []
    for name in seeds[0]:
        drawn = np.array([one[name] for one in seeds])  # (seeds, outputs, cells)
        drawn = drawn - drawn.mean(axis=0)
        noisy = drawn.std(axis=0) > 1e-12 * (1 + np.abs(seeds[0][name]))
        kinds, which = np.unique(noisy, axis=1, return_inverse=True)
        for k in range(kinds.shape[1]):
            cells, rows = np.flatnonzero(which.ravel() == k), np.flatnonzero(kinds[:, k])
            many = np.moveaxis(drawn[:, rows][:, :, cells], 1, 0)
            many = many.reshape(rows.size, len(seeds) * cells.size)
            found.append(_Pool(name, rows, cells, many, (len(seeds) - 1) * cells.size))
    return found


def _loss(pools: Sequence[_Pool], shift: Outputs, laplace: bool, alarm: float) -> float:
    """Return a lower bound on the privacy loss of a shift, with error probability at most ``alarm``.

    The loss is infinite if an output without noise changes.
    """
    total = 0.0
    for pool in pools:
        moved = shift[pool.name][:, pool.cells]
        largest = float(np.abs(moved).max(initial=0.0))
        if not largest:
            continue
        if np.abs(np.delete(moved, pool.rows, axis=0)).max(initial=0.0) > 1e-9 * (1 + largest):
            return math.inf
        if not pool.rows.size:
            continue
        # A subset of outputs also gives a lower bound. Use the outputs with the largest shifts, and few
        # enough of them for a good estimate.
        own = moved[pool.rows]
        effective = pool.samples * (0.4 if laplace else 1.0)
        kept = np.sort(np.argsort(-np.abs(own).max(axis=1), kind="stable")[: int(effective // 4)])
        own = own[kept]
        values, axes = pool.axes(kept)
        seen = values > 1e-12 * values[-1]
        if np.abs(axes[:, ~seen].T @ own).max(initial=0.0) > 1e-5 * largest:
            return math.inf
        freedom = effective - int(seen.sum()) + 1
        least = float(stats.chi2.isf(1 - alarm / len(pools), freedom)) / effective
        squares = ((axes[:, seen].T @ own) ** 2 / values[seen, None]).sum(axis=0) * least  # (cells,)
        total += float(np.sqrt(2 * squares).sum()) if laplace else float(squares.sum())
    return total if laplace else math.sqrt(total)


# ---------------------------------------------------------------------------------------- the whole
def _spec(learner: Any, budget: Budget | None, users: int | None) -> ProblemSpec:
    linear = audit_linear.game_of(learner, 64, budget)
    if linear is not None:
        return linear.spec
    if users is not None:
        return ProblemSpec(Layout(3, 2, 4), users, budget=budget)
    for size in _SIZES:
        spec = ProblemSpec(Layout(3, 2, 4), size, budget=budget)
        releases = learner.schedule(spec).releases
        if releases is None or releases <= _MOST_RELEASES:
            break
    return spec


def replay_box(
    start: Start,
    learner: Any = None,
    users: int | None = None,
    seed: int = 1,
    alarm: float = ALARM,
    budget: Budget | None = None,
) -> Identity:
    """Run the replay audit, and return its result.

    The sizes are S = 3, A = 2 and H = 4; games of linear learners have other sizes.

    Parameters
    ----------
    users : number of users in the learner's run. None: several numbers up to 4096 are compared, and the
        largest one with at most 100 releases is used
    seed : seed of all runs
    alarm : probability of a false alarm
    budget : budget of the privatizer
    """
    learner, start = learner or reactive(start), mechanism_reused(start)
    spec = _spec(learner, budget, users)
    number = spec.users or 48
    session: Any = start(learner.query(spec), learner.schedule(spec), Seeded(seed))
    claim, mechanism = session.guarantee, getattr(session, "mechanism", None)
    session.close()
    laplace = claim.mu is None
    if mechanism is None or getattr(mechanism, "reports", None) is not None or claim.trust == "shuffle":
        return Identity(NAME, None, "what is released is no sum with noise added to it")
    if claim.epsilon is None or (laplace and claim.delta):
        return Identity(NAME, None, "the claim is no sum of shifts in units of the noise")
    replay = recorded(start, learner, spec, number, seed)
    base = replayed(start, replay, Seeded(seed))
    pools = _pools([base, *(replayed(start, replay, Seeded(seed, run)) for run in range(1, _FIRST))])
    worst, who, tried, moved = -1.0, 0, 0, base
    ends = np.cumsum([0, *(plan.users for plan in replay.plans)])
    targets = ends[np.unique(np.linspace(0, len(replay.plans) - 1, _TARGETS).astype(int))].tolist()
    for target in targets:
        plan = replay.plans[int(np.searchsorted(ends, target, side="right")) - 1]
        for pair in _pairs(plan, spec.layout):
            both = [replayed(start, replay, Seeded(seed), target, life) for life in pair]
            shift = {name: both[1][name] - both[0][name] for name in base}
            loss, tried = _loss(pools, shift, laplace, 0.5), tried + 1
            if loss > worst:
                worst, who, moved = loss, target + 1, shift
    runs = range(_FIRST, _FIRST + _SEEDS)
    worst = _loss(_pools([replayed(start, replay, Seeded(seed, run)) for run in runs]), moved, laplace, alarm)
    claimed, symbol = (claim.epsilon, "epsilon") if laplace else (claim.mu, "mu")
    found = f"{symbol} at least {worst:.4g} of {claimed:.4g}, by user {who}; {tried} exchanges; {replay}"
    return Identity(NAME, worst <= claimed * (1 + 1e-6), found)
