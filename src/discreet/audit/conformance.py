"""Conformance checks of all registered components, including those of plug-ins.

``discreet check-plugin`` runs all checks. ``discreet check-plugin my_module`` runs the checks of the names
that a module registers. A plug-in's own test suite can run the same checks::

    @pytest.mark.parametrize("case", conformance.plugin_cases("my_module"), ids=str)
    def test_conforms(case):
        case.run()

The checks use three states and a dozen users, and test the rules of :mod:`discreet.mechanisms.interfaces`:

* a learner works with at least one privatizer, and a privatizer with at least one learner;
* equal seeds give equal results, and compiled runs give the same results as stepwise runs;
* a policy depends only on earlier releases, and a learner holds only released data;
* the noise gives the stated guarantee;
* invalid input is rejected.

A privatizer of a plug-in must also pass the white-box audit (probability of a false alarm 1e-6).
"""

from __future__ import annotations

import dataclasses
import io
import math
import pickle
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from discreet import registry
from discreet.envs.context_worlds import ContextWorld
from discreet.mechanisms.features import FeatureMap
from discreet.registry import RegistryEntry

if TYPE_CHECKING:
    from discreet.core.trajectories import Trajectory
    from discreet.envs.mdp.tabular import TabularMDP
    from discreet.experiments.run_config import By
    from discreet.experiments.simulate import Setup
    from discreet.mechanisms.interfaces import Plan, Release

_USERS = 11
_EPSILON = 1.5
_ALARM = 1e-6  # Probability of a false alarm in one white-box audit.
_PARTNERS = ("private-ucb-vi", "private-ucb-po")  # Learners that are used to test a privatizer.
_DATA_PACKAGES = (
    "discreet.core.count_channels",
    "discreet.core.session",
    "discreet.mechanisms.dataset.dataset_release",
    "discreet.core.raw_encoder",
    "discreet.mechanisms.privatizers",
    "discreet.core.rng",
    "discreet.envs.mdp.tabular",
    "discreet.core.trajectories",
    "discreet.envs",
)


class NotApplicable(Exception):
    """Exception for a check that does not apply to its subject. The message gives the reason."""


@dataclass(frozen=True)
class CheckResult:
    """Result of a check. ``message`` is empty if a check of a plug-in passed."""

    subject: str
    check: str
    status: Literal["passed", "failed", "skipped"]
    message: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the fields as JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Case:
    """One check of one subject."""

    subject: str
    check: str
    body: Callable[[], None]

    def __str__(self) -> str:
        return f"{self.subject}: {self.check}"

    def run(self) -> None:
        """Run the check. Raises ``AssertionError`` if it fails. Returns normally if it does not apply."""
        try:
            self._checked()
        except NotApplicable:
            return

    def _checked(self) -> None:
        """Run the check, with invalid floating-point operations and divisions by zero as failures."""
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            self.body()

    def outcome(self) -> CheckResult:
        """Run the check and return its result. A failure does not raise an error."""
        try:
            self._checked()
        except NotApplicable as reason:
            return CheckResult(self.subject, self.check, "skipped", str(reason))
        except Exception as error:
            return CheckResult(self.subject, self.check, "failed", _error_text(error))
        return CheckResult(self.subject, self.check, "passed")


def _error_text(error: Exception) -> str:
    """Return a one-line description of an error: its class, and its text or its place in the code."""
    text = " ".join(str(error).split())
    if isinstance(error, AssertionError):
        return text or f"assertion failed in {_place(error)}"
    return f"{type(error).__name__}: {text}" if text else f"{type(error).__name__} in {_place(error)}"


def _place(error: Exception) -> str:
    """Return the function, file and line that raised the error."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.name} ({Path(last.filename).name}, line {last.lineno})"


def _expect(true: Any, otherwise: str) -> None:
    """Raise ``AssertionError`` if a condition is false, also under ``python -O``."""
    if not true:
        raise AssertionError(otherwise)


# ------------------------------------------------------------------------------ small environments
def small_world(stationary: bool = False) -> TabularMDP:
    """Return a small MDP for checks.

    The MDP has three states, two actions (one is inadmissible in one state), three steps, and Bernoulli
    rewards.
    """
    from discreet.envs.mdp.tabular import TabularMDP

    transitions = np.array(
        [
            [[0.7, 0.3, 0.0], [0.1, 0.2, 0.7]],
            [[0.0, 0.5, 0.5], [0.4, 0.4, 0.2]],
            [[0.25, 0.5, 0.25], [0.25, 0.5, 0.25]],
        ]
    )
    rewards = np.array([[0.1, 0.0], [0.2, 0.6], [1.0, 1.0]])
    mask = np.array([[True, True], [True, True], [True, False]])
    steps = transitions if stationary else np.stack([transitions, transitions[:, ::-1], transitions])
    start = [0.5, 0.5, 0.0]
    return TabularMDP(steps, rewards, start, horizon=3, mask=mask, reward_law="bernoulli", name="small world")


def small_featured_world(kind: type) -> TabularMDP:
    """Return an MDP with three states, two actions, three steps, and public features.

    kind : class of the features that a learner needs.
    """
    from discreet import envs
    from discreet.mechanisms.features import MixtureFeatures

    if issubclass(kind, MixtureFeatures):
        return envs.linear_mixture(states=3, actions=2, horizon=3, models=2, rewards="bernoulli")
    return envs.random_linear(states=3, actions=2, horizon=3, dimension=2, rewards="bernoulli")


_GAUSSIAN = " gaussian"  # name suffix of the privatizer variant with Gaussian noise
_RELEASES: dict[str, dict[str, Any]] = {  # variants of privatizers that have the option `release`
    " signed-digits": {"release": "signed-digits"},
    " square-root": {"release": "square-root", "noise": "gaussian", "delta": 1e-4},
    " optimal tree": {"release": "tree", "tree_estimate": "optimal"},
    " reports": {"release": "reports"},
}
# mechanisms that are not the default
_MECHANISMS = {"local": ("laplace", "oue", "krr"), "shuffle": ("amplified",)}
# A learner is tested with each set of options that it supports.
_QUERIES: tuple[dict[str, Any], ...] = (
    {},
    {"derive_visits": False, "center_rewards": False},
    {"derive_visits": True, "center_rewards": False},
    {"derive_visits": False, "center_rewards": True},
    {"derive_visits": True, "center_rewards": True},
    {"known_rewards": True, "center_rewards": False},
    {"stationary": True},
)


def _variants(entry: RegistryEntry) -> Iterator[str]:
    """Yield the name of a privatizer and of each variant (other noise, release method or randomizer)."""
    yield entry.name
    if {"arity", "tree_estimate"} <= set(registry.options_of(entry.factory())):
        yield from (entry.name + variant for variant in _RELEASES)
    if {"noise", "delta"} <= set(registry.options_of(entry.factory())):
        yield entry.name + _GAUSSIAN
    yield from (f"{entry.name} {mechanism}" for mechanism in _MECHANISMS.get(entry.name, ()))


def _privatizer(name: str) -> Any:
    """Return a new privatizer or one of its variants. All privatizers with a budget have the same epsilon."""
    mechanisms = {f" {one}": {"randomizer": one} for several in _MECHANISMS.values() for one in several}
    variants = {_GAUSSIAN: {"noise": "gaussian", "delta": 1e-4}, **_RELEASES, **mechanisms}
    variant = next((v for v in variants if name.endswith(v)), "")
    bare = name.removesuffix(variant)
    options = _budget(registry.entry("privatizer", bare)) | variants.get(variant, {})
    return registry.build("privatizer", bare, None, options)


def _budget(entry: RegistryEntry) -> dict[str, Any]:
    takes = registry.options_of(entry.factory())
    return {"epsilon": _EPSILON} if "epsilon" in takes and "epsilon" not in entry.fixed else {}


def _setup(
    learner: str,
    privatizer: str,
    by: By = "episode",
    stepwise: bool = False,
    users: int = _USERS,
    options: dict[str, Any] | None = None,
) -> Setup:
    """Prepare a run of a learner and a privatizer on the small MDP.

    Raises :class:`NotApplicable` if they are incompatible.
    """
    from discreet.experiments.simulate import Setup
    from discreet.mechanisms.interfaces import ProblemSpec

    learns = registry.build("learner", learner, None, options)
    protects = _privatizer(privatizer)
    needs = getattr(learns, "FEATURES", None)  # class of the public features that the learner needs, or None
    pooled = bool((options or {}).get("stationary")) or getattr(learns, "needs_stationary", False)
    world = small_world(stationary=pooled)
    if needs is FeatureMap:
        raise NotApplicable("does not fit: the learner needs contexts, not a table of states")
    if needs is not None:
        world = small_featured_world(needs)
    if hasattr(learns, "truncates_at"):
        from discreet.envs import heavy_tailed

        world = heavy_tailed(world, threshold=learns.truncates_at)
    if hasattr(learns, "least_users"):  # the schedule of such a learner needs a minimum number of users
        users = max(users, learns.least_users(ProblemSpec(world.layout)))
    try:
        return Setup(world, learns, protects, users, by=by, stepwise=stepwise)
    except ValueError as reason:
        raise NotApplicable(f"does not fit: {reason}") from reason


def _queries(learner: str) -> Iterator[dict[str, Any]]:
    takes = registry.options_of(registry.entry("learner", learner).factory())
    for options in _QUERIES:
        if set(options) <= set(takes):
            try:
                registry.build("learner", learner, None, options)
            except ValueError:  # the learner has the option, but does not accept this value
                continue
            yield options


# --------------------------------------------------------------------------- a run, step by step
@dataclass(frozen=True)
class _Transcript:
    """Public outputs of a run, and the learner's states."""

    policies: list[Any]  # policy of each user
    plans: list[Plan]
    releases: list[Release]
    states: list[Any]
    guarantee: Any


def _interact(setup: Setup, replaced: int | None = None) -> _Transcript:
    """Run a learner and a privatizer step by step.

    replaced : user with another trajectory; None: no user
    """
    from discreet.core.rng import Seeded
    from discreet.envs.rollouts.rollout import rollout
    from discreet.mechanisms.seeded_rng import SeededRng

    randomness = Seeded(3, 0)
    keys = randomness.keys
    session = setup.start(randomness)
    state = setup.learner.begin(setup.spec, keys.ties)
    seen = _Transcript([], [], [], [state], session.guarantee)
    users = 0
    while users < setup.episodes:
        release = session.release()
        plan, state = setup.learner.plan(state, release, session.answer)
        encoder = session.begin(plan)
        for _ in range(plan.users):
            trajectory = rollout(setup.mdp, plan.policy, keys.environment, users)
            if users == replaced:
                trajectory = _other_life(setup, trajectory)
            session.submit(encoder(trajectory, plan, SeededRng(keys.noise, users)))
            seen.policies.append(np.array(plan.policy))
            users += 1
        seen.plans.append(plan)
        seen.releases.append(release)
        seen.states.append(state)
    return seen


def _other_life(setup: Setup, trajectory: Trajectory) -> Trajectory:
    """Return an admissible trajectory whose states differ from the given trajectory at every step."""
    from discreet.core.trajectories import Trajectory

    layout = setup.mdp.layout
    states = (trajectory.states + 1) % layout.states
    actions = np.array([layout.row_action[layout.state_ptr[s]] for s in states[:-1]], dtype=np.int64)
    return Trajectory(states, actions, np.ones(layout.horizon))


class _Inventory(pickle.Pickler):
    """Pickler that records the class of every object."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO())
        self.classes: set[type] = set()

    def reducer_override(self, thing: Any) -> Any:
        """Record the class of an object, and pickle the object as usual."""
        self.classes.add(thing if isinstance(thing, type) else type(thing))
        return NotImplemented


def _classes_in(thing: Any) -> set[type]:
    inventory = _Inventory()
    inventory.dump(thing)
    return inventory.classes


def _same_bits(left: Any, right: Any) -> bool:
    return np.asarray(left).tobytes() == np.asarray(right).tobytes()


# ------------------------------------------------------------------- checks of learner x privatizer
def _deterministic(learner: str, privatizer: str) -> None:
    """Check that equal seeds give equal results, and that other seeds give other results."""
    setup = _setup(learner, privatizer)
    later, first = setup.run(5, 1), setup.run(5, 0)
    again = setup.run(5, 0)
    _expect(_same_bits(first.regret, again.regret), "two runs of one seed differ")
    _expect(_same_bits(first.gap_regret, again.gap_regret), "two runs of one seed differ in gap regret")
    _expect(not _same_bits(first.gap_regret, later.gap_regret), "runs 0 and 1 of a seed are the same")


def _curves(learner: str, privatizer: str) -> None:
    """Check that regret curves are finite, nondecreasing, at most H per user, and recorded up to the last
    user.
    """
    for by in ("episode", "batch"):
        setup = _setup(learner, privatizer, by)
        run = setup.run(1, 0)
        _expect(
            run.episodes[-1] == setup.episodes, f"by={by}: the last recorded episode is {run.episodes[-1]}"
        )
        _expect(np.all(np.diff(run.episodes) > 0), f"by={by}: recorded episodes do not ascend")
        for name, curve in (("regret", run.regret), ("gap_regret", run.gap_regret)):
            _expect(curve.shape == run.episodes.shape, f"by={by}: {name} has shape {curve.shape}")
            _expect(np.isfinite(curve).all(), f"by={by}: {name} is not finite")
            steps = np.diff(curve, prepend=0.0)
            _expect(steps.min() >= -1e-9, f"by={by}: {name} falls by {-steps.min():g}")
        per_user = run.regret / run.episodes
        _expect(per_user.max() <= setup.mdp.layout.horizon + 1e-9, f"by={by}: regret above H per user")


def _stepwise_is_fused(learner: str, privatizer: str) -> None:
    """Check that compiled and stepwise runs give identical results, by episode and by batch."""
    for options in _queries(learner):
        for by in ("episode", "batch"):
            pair = partial(_setup, learner, privatizer, by, options=options)
            setup = pair()
            if not setup.fused:
                raise NotApplicable("runs step by step only (no compiled face)")
            fast, slow = setup.run(2, 0), pair(stepwise=True).run(2, 0)
            for name in ("episodes", "regret", "gap_regret"):
                mine, theirs = getattr(fast, name), getattr(slow, name)
                _expect(_same_bits(mine, theirs), f"by={by}, {options or 'defaults'}: {name} differs")


def _plans(learner: str, privatizer: str) -> None:
    """Check that plans have the declared shapes and admissible actions, and depend only on the arguments."""
    setup = _setup(learner, privatizer)
    layout = setup.mdp.layout
    seen = _interact(setup)
    _expect(len(seen.policies) == setup.episodes, f"{len(seen.policies)} users were planned for")
    for plan in seen.plans:
        policy = np.asarray(plan.policy)
        _expect(plan.users >= 1, f"plan.users = {plan.users}")
        if policy.ndim == 2:
            _expect(policy.shape == (layout.horizon, layout.states), f"policy has shape {policy.shape}")
            _expect(policy.dtype.kind in "iu", f"policy has dtype {policy.dtype}")
            _expect(policy.min() >= 0, "a policy plays a negative action")
            _expect(policy.max() < layout.actions, "a policy plays an action past A")
            rows = layout.row_index[np.arange(layout.states)[None, :], policy]
            _expect((rows >= 0).all(), "a policy plays an inadmissible action")
        else:
            shape = (layout.horizon, layout.states, layout.actions)
            _expect(policy.shape == shape, f"policy has shape {policy.shape}")
            _expect(policy.min() >= 0, "a policy has a negative probability")
            _expect(
                np.allclose(policy.sum(axis=-1), 1.0, atol=1e-9), "a policy's probabilities do not sum to 1"
            )
            if layout.mask is not None:
                _expect((policy[:, ~layout.mask] == 0).all(), "a policy plays an inadmissible action")
    state = seen.states[-2]
    before = pickle.dumps(state)
    twice = [setup.learner.plan(state, seen.releases[-1], _no_answers)[0].policy for _ in range(2)]
    _expect(_same_bits(*twice), "plan called twice with the same arguments gives two policies")
    _expect(pickle.dumps(state) == before, "plan changed the state that it was given")


def _no_answers(question: Any) -> Any:
    raise NotApplicable("the learner asks its session for more answers")


def _isolated(learner: str, privatizer: str) -> None:
    """Check that the learner's state contains no object with user data, and can be stored and restored."""
    setup = _setup(learner, privatizer)
    seen = _interact(setup)
    for state in (seen.states[1], seen.states[-1]):
        strangers = sorted(
            f"{c.__module__}.{c.__qualname__}"
            for c in _classes_in(state)
            if c.__module__.startswith(_DATA_PACKAGES)
        )
        _expect(not strangers, f"the learner's state holds {', '.join(strangers)}")
    restored = pickle.loads(pickle.dumps(seen.states[-2]))
    plan = setup.learner.plan(restored, seen.releases[-1], _no_answers)[0]
    _expect(_same_bits(plan.policy, seen.plans[-1].policy), "a stored state continues differently")


def _no_foresight(learner: str, privatizer: str) -> None:
    """Check that user k's trajectory does not affect the policies of users 1 to k if the noise is equal."""
    setup = _setup(learner, privatizer)
    ours = _interact(setup)
    for user in (0, setup.episodes // 2):
        theirs = _interact(setup, replaced=user)
        for k in range(user + 1):
            _expect(
                _same_bits(ours.policies[k], theirs.policies[k]), f"user {user}'s data changed policy {k}"
            )


def _guaranteed(learner: str, privatizer: str) -> None:
    """Check that the guarantee is known before data are read, never changes, and states the trust model."""
    setup = _setup(learner, privatizer)
    guarantee = setup.guarantee
    seen = _interact(setup)
    _expect(seen.guarantee == guarantee, "the session's guarantee is not the one of the mechanism")
    _expect(
        all(release.guarantee == guarantee for release in seen.releases), "the guarantee changed on the way"
    )
    _expect(guarantee.trust == setup.privatizer.trust, f"trust is {guarantee.trust!r}, not the privatizer's")
    _expect(guarantee.statement.strip(), "the guarantee has no sentence")
    _expect(guarantee.randomness == "seeded", "a simulation's guarantee must say that its noise is seeded")
    if guarantee.trust == "none":
        _expect(guarantee.epsilon is None, "no privatizer, but an epsilon")
        return
    if guarantee.epsilon is None:
        raise AssertionError("a private session states no epsilon")
    _expect(0 < guarantee.epsilon < math.inf, f"epsilon = {guarantee.epsilon}")
    _expect(0 <= guarantee.delta < 1, f"delta = {guarantee.delta}")


def _recomputed(learner: str, privatizer: str) -> None:
    """Check that the noise gives the stated epsilon or mu, by :func:`worst_loss`."""
    for options in _queries(learner):
        setup = _setup(learner, privatizer, options=options)
        if setup.guarantee.trust == "none":
            raise NotApplicable("no guarantee to recompute")
        _costs_what_it_states(setup, f"with {options or 'defaults'}")


def _costs_what_it_states(setup: Setup, where: str) -> None:
    from discreet.core.rng import Seeded

    session = setup.start(Seeded(0, 0))
    loss, stated = worst_loss(setup), session.guarantee  # the guarantee that the session states
    session.close()
    promised = stated.epsilon if loss.norm == "l1" else stated.mu
    name = "epsilon" if loss.norm == "l1" else "mu"
    if promised is None:
        raise AssertionError(f"{where}: two lives differ by {name} = {loss.value:g}, and none is stated")
    _expect(
        loss.value <= promised * (1 + 1e-9), f"{where}: costs {name} = {loss.value:g}, stated {promised:g}"
    )
    _expect(loss.value >= 0.4 * promised, f"{where}: costs {name} = {loss.value:g} only, stated {promised:g}")
    if loss.norm == "l2":
        delta = _gaussian_delta(promised, float(stated.epsilon or 0.0))
        _expect(delta <= stated.delta * (1 + 1e-6), f"{where}: delta is {delta:g}, stated {stated.delta:g}")


@dataclass(frozen=True)
class PrivacyLoss:
    """Privacy loss of an exchange of two given trajectories.

    The loss is epsilon if ``norm`` is "l1", and mu if ``norm`` is "l2".
    """

    norm: Literal["l1", "l2"]
    value: float


def worst_loss(setup: Setup) -> PrivacyLoss:
    """Return the privacy loss of a session of counts.

    The two exchanged trajectories have no common states. The scale of one draw is that of the first release's
    noise distribution. The cost of a user's unit shift is computed from the noise matrix B. For Laplace
    noise, it is the least l1 norm of draws that produce the shift of all prefixes. For Gaussian noise, it is
    the norm of this shift with respect to the covariance B B^T. Under local privacy, each user affects one
    message. For randomized response, the loss of a reported step is the largest log-ratio of the randomizer's
    probabilities. Raises :class:`NotApplicable` for other mechanisms.
    """
    from discreet.audit.noise_matrix import noise_matrix
    from discreet.core.count_channels import is_of_counts
    from discreet.core.rng import Seeded
    from discreet.core.trajectories import Trajectory
    from discreet.mechanisms.local.randomized_response_strategy import reports_of

    session = setup.start(Seeded(0, 0))
    if not is_of_counts(session):
        raise NotApplicable("not a session of counts: its own tests recompute the guarantee")
    if session.mechanism.query.rests_on:
        raise NotApplicable("a vector of two trajectories can differ by less than the bound: check-vector")
    releases = setup.schedule.release_times
    if releases.size < 2:
        raise NotApplicable("nothing is released after the first users arrived")
    users = int(releases[1])
    draws, exposures = float(users), 1.0
    reports = reports_of(session.mechanism)
    if reports is not None:
        plans = {"deterministic": (False,), "stochastic": (True,)}.get(setup.schedule.plans, (False, True))
        abouts = (0, 1) if reports.share else (0,)
        ratios = [reports.randomizer(about, stochastic).ratio for about in abouts for stochastic in plans]
        return PrivacyLoss(
            "l1", reports.steps * max(math.log(r.numerator) - math.log(r.denominator) for r in ratios)
        )
    noise = session.laws_at(users)
    if session.mechanism.stream == "decaying":
        # Each release has fresh noise. The effect of one user on all future decaying sums is a column of l2
        # norm 1.
        draws, noise = 1, session.mechanism.laws.measurement(users, users, None, session.cut)
    elif session.guarantee.trust == "joint":
        assert session.mechanism.walk is not None
        matrix, _ = noise_matrix(session.mechanism.walk)
        leaf = users if session.mechanism.leaf == "user" else 1
        draws = float((matrix[leaf - 1] ** 2).sum())
        exposures = _exposures(matrix, next(iter(noise.values())).family)
    laplace = {law.family for law in noise.values()} <= {"laplace", "discrete_laplace"}
    horizon = setup.mdp.layout.horizon
    actions, ones = np.zeros(horizon, np.int64), np.ones(horizon)
    one, other = (
        setup.query.contribution(Trajectory(np.full(horizon + 1, state, np.int64), actions, ones))
        for state in (0, 1)
    )
    total = 0.0
    for name, law in noise.items():
        deviation = law.std() / math.sqrt(draws)  # standard deviation of one draw
        change = np.abs(one[name] - other[name])
        total += float(
            change.sum() * math.sqrt(2) / deviation if laplace else (change**2).sum() / deviation**2
        )
    return (
        PrivacyLoss("l1", exposures * total) if laplace else PrivacyLoss("l2", math.sqrt(exposures * total))
    )


def _exposures(matrix: Any, family: str) -> float:
    """Return the largest cost of a unit change that begins at one step and shifts all later prefixes.

    The cost is an l1 norm for Laplace noise, and a squared l2 norm for Gaussian noise.
    """
    from scipy.optimize import linprog

    prefixes = np.tril(np.ones((len(matrix), len(matrix))))
    if family.endswith("gaussian"):
        shifts = np.linalg.solve(np.linalg.cholesky(matrix @ matrix.T), prefixes)
        return float((shifts**2).sum(axis=0).max())
    costs = np.ones(2 * matrix.shape[1])
    return max(
        float(linprog(costs, A_eq=np.hstack([matrix, -matrix]), b_eq=column).fun) for column in prefixes.T
    )


def _gaussian_delta(mu: float, epsilon: float) -> float:
    """Return delta(epsilon) of a Gaussian mechanism with parameter mu (Balle and Wang 2018, equation 6)."""

    def normal(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2))

    return normal(-epsilon / mu + mu / 2) - math.exp(epsilon) * normal(-epsilon / mu - mu / 2)


# --------------------------------------------------------------------------- checks of a learner
def _learner_specification(learner: str) -> None:
    """Check that a learner is immutable, is compared by value, can be pickled, and names unknown options."""
    built = registry.build("learner", learner)
    _expect(dataclasses.is_dataclass(built), "a learner is a frozen dataclass")
    _expect(pickle.loads(pickle.dumps(built)) == built, "does not survive pickling")
    _expect(built == registry.build("learner", learner), "two learners of equal options differ")
    _frozen(built)
    _refuses_unknown("learner", learner)


def _learner_runs(learner: str) -> None:
    """Check that a learner runs with at least one privatizer."""
    names = [name for entry in registry.entries("privatizer") for name in _variants(entry)]
    built = registry.build("learner", learner)
    if getattr(built, "FEATURES", None) is FeatureMap:
        from discreet.envs.context_worlds import shared_contexts
        from discreet.experiments.context_runs import ContextSetup

        ContextSetup(shared_contexts(2, 2), built, _privatizer("central"), _USERS).run(0, 0)
        return
    _first_fitting(names, partial(_setup, learner)).run(0, 0)


def _first_fitting(partners: Iterable[str], setup_of: Callable[[str], Setup]) -> Setup:
    reasons = []
    for partner in partners:
        try:
            return setup_of(partner)
        except NotApplicable as reason:
            reasons.append(str(reason))
    raise AssertionError(f"fits none of {len(reasons)} partners; the first {reasons[0]}")


def _noise_off(learner: str) -> None:
    """Check that a private learner without noise gives the same results as its baseline without privacy."""
    baseline = registry.entry("learner", learner).baseline
    if baseline is None:
        raise NotApplicable("names no baseline")
    for by in ("episode", "batch"):
        ours, theirs = (_setup(name, "none", by).run(4, 0) for name in (learner, baseline))
        _expect(_same_bits(ours.regret, theirs.regret), f"by={by}: differs from {baseline} without noise")


def _frozen(built: Any) -> None:
    names = [f.name for f in dataclasses.fields(built)]
    try:
        setattr(built, names[0] if names else "anything", None)
    except dataclasses.FrozenInstanceError:
        return
    raise AssertionError("its options can be changed after it was built")


def _refuses_unknown(kind: registry.Kind, name: str) -> None:
    try:
        registry.build(kind, name, None, {"no_such_option": "1"})
    except ValueError as error:
        _expect("no_such_option" in str(error), f"the error does not name the option: {error}")
    else:
        raise AssertionError("an unknown option was accepted")


# ------------------------------------------------------------------------- checks of a privatizer
def _privatizer_specification(privatizer: str) -> None:
    """Check that a privatizer is immutable, can be pickled, and rejects invalid budgets."""
    entry = registry.entry("privatizer", privatizer)
    built = _privatizer(privatizer)
    _expect(dataclasses.is_dataclass(built), "a privatizer is a frozen dataclass")
    _expect(pickle.loads(pickle.dumps(built)) == built, "does not survive pickling")
    _frozen(built)
    _refuses_unknown("privatizer", privatizer)
    _expect(built.trust in ("none", "joint", "local", "shuffle"), f"trust = {built.trust!r}")
    for option, bad in (("epsilon", (0.0, -1.0, math.nan, math.inf)), ("delta", (-0.1, 1.0, math.nan))):
        if option not in registry.options_of(entry.factory()):
            continue
        for value in bad:
            try:
                registry.build("privatizer", privatizer, None, {**_budget(entry), option: value})
            except ValueError as error:
                _expect(option in str(error), f"{option} = {value}: the error does not name it: {error}")
            else:
                raise AssertionError(f"{option} = {value} was accepted")


def _any_learner(privatizer: str) -> Setup:
    names = dict.fromkeys([*_PARTNERS, *(entry.name for entry in registry.entries("learner"))])
    return _first_fitting(names, lambda learner: _setup(learner, privatizer))


def _privatizer_starts(privatizer: str) -> None:
    """Check that a privatizer makes releases for at least one learner."""
    _interact(_any_learner(privatizer))


def _white_box(privatizer: str) -> None:
    """Check that a privatizer passes the white-box audit."""
    from discreet.audit.black_box import reactive
    from discreet.audit.white_box import white_box
    from discreet.core.layout import Layout

    setup = _any_learner(privatizer)
    start, budget = setup.privatizer.start, getattr(setup.privatizer, "budget", None)
    featured = getattr(setup.learner, "FEATURES", None) is not None
    asks, layout = (setup.learner, None) if featured else (reactive(start), Layout(3, 2, 3))
    found = white_box(start, asks, layout, seed=1, alarm=_ALARM, budget=budget)
    failed = [f"{one.name}: {one.found}" for one in found if one.passed is False]
    _expect(not failed, f"white-box audit: {'; '.join(failed)}")
    if setup.guarantee.trust == "joint" and not any("loss" in one.name and one.passed for one in found):
        raise AssertionError("white-box audit: could not compare the realised loss with the claimed one")


def _order_of_calls(privatizer: str) -> None:
    """Check that wrong call orders, too many users and invalid records raise errors and add nothing."""
    for setup in _with_partners(privatizer):
        _misuse(setup)


def _misuse(setup: Setup) -> None:
    from discreet.core.rng import Seeded
    from discreet.mechanisms.interfaces import Plan
    from discreet.mechanisms.seeded_rng import SeededRng

    randomness = Seeded(0, 0)
    session, layout = setup.start(randomness), setup.mdp.layout
    life = _first_life(setup)
    plan = Plan(np.tile(layout.row_action[layout.state_ptr[:-1]], (layout.horizon, 1)), users=2)
    first = session.release()
    _expect(first.users == 0, "the first release is made before anybody came")
    _expect(first.number == 0, "the first release has number 0")
    for name, estimate in first.estimates.items():
        _expect(not np.asarray(estimate.value).any(), f"{name}: release 0 must be zeros, without noise")
    crowd = dataclasses.replace(plan, users=setup.episodes + 1)
    _raises(ValueError, "more users than declared", session.begin, crowd)
    encoder = session.begin(plan)

    turns = iter(range(100))

    def submit(trajectory: Trajectory) -> None:
        session.submit(encoder(trajectory, plan, SeededRng(randomness.keys.noise, next(turns))))

    bad_reward = dataclasses.replace(life, rewards=np.full(layout.horizon, 1.2))
    _raises(ValueError, "a reward of 1.2", submit, bad_reward)
    _raises(ValueError, "a missing state", submit, dataclasses.replace(life, states=life.states[:-1]))
    far = dataclasses.replace(life, states=np.full(layout.horizon + 1, layout.states))
    _raises(ValueError, "a state index past S", submit, far)
    submit(life)
    _raises(RuntimeError, "a release before the plan's users came", session.release)
    submit(life)
    _expect(session.release().users == 2, "the release does not count its users, and no others")
    _raises((TypeError, RuntimeError), "pickling a session", pickle.dumps, session)
    session.close()
    _raises(RuntimeError, "a release of a closed session", session.release)


def _with_partners(privatizer: str) -> Iterator[Setup]:
    """Yield the set-up of a privatizer with each learner of ``_PARTNERS`` that it supports."""
    fitting, reasons = [], []
    for learner in _PARTNERS:
        try:
            fitting.append(_setup(learner, privatizer))
        except NotApplicable as reason:
            reasons.append(str(reason))
    if not fitting:
        raise NotApplicable(reasons[0])
    yield from fitting


def _first_life(setup: Setup) -> Trajectory:
    from discreet.core.rng import Seeded
    from discreet.envs.mdp.planning import uniform_policy
    from discreet.envs.rollouts.rollout import rollout

    return rollout(setup.mdp, uniform_policy(setup.mdp), Seeded(0).keys.environment, 0)


def _raises(kind: type[Exception] | tuple[type[Exception], ...], what: str, call: Any, *args: Any) -> None:
    try:
        call(*args)
    except kind:
        return
    raise AssertionError(f"{what} was accepted")


def _support_is_public(privatizer: str) -> None:
    """Check that the data do not affect which cells of a release are zero."""
    from discreet.core.rng import Seeded

    for setup in _with_partners(privatizer):
        if setup.guarantee.trust == "none":
            raise NotApplicable("exact sums show which cells are empty; they have no guarantee")
        reports = getattr(getattr(setup.start(Seeded(0)), "mechanism", None), "reports", None)
        if reports is not None:
            raise NotApplicable("every cell is a function of randomized messages, zeros too")
        ours, theirs = _interact(setup).releases[-1], _interact(setup, replaced=0).releases[-1]
        if {estimate.law.family for estimate in ours.estimates.values()} == {"binomial"}:
            raise NotApplicable("noise of coin flips is zero now and then; its own tests count over releases")
        for name, estimate in ours.estimates.items():
            mine, other = np.asarray(estimate.value) != 0, np.asarray(theirs.estimates[name].value) != 0
            _expect(np.array_equal(mine, other), f"{name}: the set of non-zero cells depends on user 0")
            support = np.asarray(setup.query.support[name])
            _expect(np.array_equal(mine, support), f"{name}: some cells of the public support have no noise")


# ----------------------------------------------------------------------- checks of an environment
def _environment(name: str) -> Any:
    if name == f"{registry.GYM_PREFIX}ID":
        raise NotApplicable("stands for many: check gym:FrozenLake-v1 and the like by name")
    try:
        return registry.build("environment", name)
    except ValueError as error:
        if isinstance(error.__cause__, ImportError):
            raise NotApplicable(str(error)) from error
        raise


def _contexts_are_sound(one: ContextWorld, other: ContextWorld) -> None:
    """Check that equal options give equal contexts, and that mean rewards are equal probabilities."""
    x, again = (world.draw(100, np.random.default_rng(0)) for world in (one, other))
    _expect(_same_bits(x, again), "contexts differ between two builds")
    means = one.means(x)
    _expect(_same_bits(means, other.means(x)), "means differ between two builds")
    _expect(means.shape == (100, one.actions), "means do not have one value for each action")
    _expect(bool(((means >= 0) & (means <= 1)).all()), "a mean reward is outside [0, 1]")


def _world_is_sound(name: str) -> None:
    """Check the tables and the values of an environment.

    Distributions must sum to 1, and rewards must be in [0, 1]. The optimal value must be at least the value
    of the uniform policy. Equal options must give equal tables.
    """
    from discreet.envs.mdp import planning

    mdp, again = _environment(name), _environment(name)
    if isinstance(mdp, ContextWorld):
        _contexts_are_sound(mdp, again)
        return
    world, twin = mdp.world, again.world
    for field in world._fields:
        _expect(
            _same_bits(getattr(world, field), getattr(twin, field)), f"{field} differs between two builds"
        )
    sums = np.add.reduceat(world.probability, world.row_ptr[:-1])
    _expect(np.abs(sums - 1).max() <= 1e-9, "a row of transitions does not sum to 1")
    _expect(mdp.rewards.min() >= 0, "a mean reward is below 0")
    _expect(mdp.rewards.max() <= 1, "a mean reward is above 1")
    best = float(mdp.initial @ planning.optimal_values(mdp)[0][0])
    uniform = float(planning.policy_value(mdp, planning.uniform_policy(mdp)))
    _expect(-1e-9 <= uniform <= best + 1e-9, f"uniform policy {uniform:g}, optimal {best:g}")
    _expect(best <= mdp.layout.horizon + 1e-9, f"optimal value {best:g} above H")


def _people_are_sound(name: str) -> None:
    """Check simulated trajectories and the occupancy measure.

    Trajectories must be admissible, and equal seeds must give equal trajectories.
    """
    from discreet.core.trajectories import checked
    from discreet.envs.mdp import planning
    from discreet.envs.rollouts.rollout import rollout_batch

    mdp = _environment(name)
    if isinstance(mdp, ContextWorld):
        raise NotApplicable("has contexts and no trajectories")
    policy = planning.uniform_policy(mdp)
    people, again = rollout_batch(mdp, policy, 20, seed=1), rollout_batch(mdp, policy, 20, seed=1)
    for life in people:
        checked(life, mdp.layout)
    for field in ("states", "actions", "rewards"):
        _expect(
            _same_bits(getattr(people, field), getattr(again, field)), f"{field} do not repeat under a seed"
        )
    occupancy = planning.occupancy(mdp, policy)
    _expect(
        np.allclose(occupancy.sum(axis=(1, 2)), 1.0, atol=1e-9), "occupancy does not sum to 1 at each step"
    )
    value, inner = planning.policy_value(mdp, policy), float((occupancy * mdp.rewards).sum())
    _expect(
        abs(value - inner) <= 1e-9 * max(1.0, abs(value)), f"value {value:g}, occupancy x rewards {inner:g}"
    )


# ----------------------------------------------------------------------------------- the suite
LEARNER_CHECKS: dict[str, Callable[[str], None]] = {
    "is a frozen value": _learner_specification,
    "runs with some privatizer": _learner_runs,
    "noise off equals the baseline": _noise_off,
}
PRIVATIZER_CHECKS: dict[str, Callable[[str], None]] = {
    "is a frozen value": _privatizer_specification,
    "starts with some learner": _privatizer_starts,
    "keeps the order of calls": _order_of_calls,
    "noise covers the public support": _support_is_public,
}
PAIR_CHECKS: dict[str, Callable[[str, str], None]] = {
    "repeats under a seed": _deterministic,
    "curves are sound": _curves,
    "stepwise equals fused": _stepwise_is_fused,
    "plans are sound": _plans,
    "learner is isolated": _isolated,
    "no policy foresees its user": _no_foresight,
    "guarantee is stated": _guaranteed,
    "guarantee is what the noise buys": _recomputed,
}
OWN_PRIVATIZER_CHECKS: dict[
    str, Callable[[str], None]
] = {  # the tests of this library audit the built-in privatizers
    "noise passes the white-box audit": _white_box,
}
ENVIRONMENT_CHECKS: dict[str, Callable[[str], None]] = {
    "world is sound": _world_is_sound,
    "simulated users are sound": _people_are_sound,
}


# -------------------------------------------------------------------------- offline learners
def _learn_offline(name: str, folder: Path, secure: bool = False) -> tuple[Path, Any]:
    """Learn a policy from stored rows of a dozen synthetic users, and store it in a folder.

    Return the folder and the learner.
    """
    from discreet.core.rng import Secure, Seeded
    from discreet.data.row_batches import open_source
    from discreet.data.schema import Contexts, Schema
    from discreet.learners.offline.apvi import APVI
    from discreet.learners.offline.linear_advantage import LinearAdvantage
    from discreet.learners.offline.linear_pevi import Linear
    from discreet.mechanisms.features import FeatureMap
    from discreet.mechanisms.privatizers.central import Central
    from discreet.pipeline.learn import learn
    from discreet.pipeline.model_planner import ModelPlanner
    from discreet.pipeline.synthetic_data import write_made_up

    found = registry.entry("offline learner", name)
    own = "rho" in registry.options_of(found.factory())  # True if the learner itself has the budget
    budget = {"epsilon": _EPSILON, "delta": 1e-6}
    learner = registry.build("offline learner", name, None, budget if own else {})
    exact = isinstance(learner, APVI | Linear)
    privatizer = None if own or exact else Central(epsilon=_EPSILON, delta=1e-6)
    layout = small_world().layout
    schema = Schema("conformance", "person", layout, stationary=True)
    if isinstance(learner, LinearAdvantage):  # reads contexts instead of states
        contexts = Contexts(FeatureMap({"age": (18.0, 90.0)}, layout.actions))
        own_layout = replace(layout, states=2, mask=None)
        schema = Schema(
            "conformance", "person", own_layout, terminal=(1,), unfinished="terminal", context=contexts
        )
    elif isinstance(learner, ModelPlanner):  # needs rewards by outcomes
        end = layout.states - 1
        schema = replace(schema, terminal=(end,), outcomes={end: 1.0})
    rows = folder / "people.parquet"
    write_made_up(schema, _USERS + 1, rows)
    out = folder / f"{name}-{len(list(folder.iterdir()))}"
    source, randomness = open_source(rows, schema), Secure() if secure else Seeded(1)
    learn(source, learner, out, privatizer=privatizer, ledger=None, randomness=randomness)
    return out, learner


def _offline_learns(name: str) -> None:
    """Check an offline learner from a data file to a folder with a policy and a statement.

    The statement must pass verification, actions must be admissible, and equal noise must give an equal
    policy.
    """
    from discreet.pipeline.verify import verify
    from discreet.reports.policy_files import read_policy

    with TemporaryDirectory() as scratch:
        one, again = (_learn_offline(name, Path(scratch)) for _ in range(2))
        failed = [check.name for check in verify(one[0], learner=one[1]) if not check.ok]
        _expect(not failed, f"the statement does not verify: {failed[:3]}")
        kept = one[0] / "policy.json"
        if kept.exists():  # a policy of contexts
            same = kept.read_bytes() == (again[0] / "policy.json").read_bytes()
            _expect(same, "equal data and noise give another policy")
            return
        actions, supported = read_policy(one[0])
        mask, shape = small_world().layout.mask, (small_world().layout.horizon, small_world().layout.states)
        _expect(actions.shape == supported.shape == shape, f"the policy has shape {actions.shape}")
        at = np.argwhere(actions >= 0)
        _expect(mask is not None and all(mask[s, actions[h, s]] for h, s in at), "an action is inadmissible")
        same = (one[0] / "policy.csv").read_bytes() == (again[0] / "policy.csv").read_bytes()
        _expect(same, "equal data and noise give another policy")


OFFLINE_CHECKS: dict[str, Callable[[str], None]] = {"learns from stored users": _offline_learns}


def plugin_cases(module: str | None = None, pairs: bool = True) -> Iterator[Case]:
    """Yield all checks of all registered components, or only of the components that ``module`` registers.

    A learner is checked together with every privatizer. A privatizer is checked together with two learners,
    and with the learners that the module registers. ``pairs=False`` omits the checks of pairs. Raises
    ``ValueError`` if the module cannot be imported or registers nothing.
    """
    mine = registry.entries() if module is None else registry.load_plugin(module)
    if not mine:
        raise ValueError(f"module = {module!r}: registers nothing; it must call discreet.register(...)")
    for entry in mine:
        yield from _single(entry)
    if pairs:
        for learner, privatizer in dict.fromkeys(_pairs_of(mine)):
            for check, body in PAIR_CHECKS.items():
                yield Case(f"{learner} x {privatizer}", check, partial(body, learner, privatizer))


def check_plugin(module: str | None = None) -> list[CheckResult]:
    """Run every check of :func:`plugin_cases`, and return the results.

    Parameters
    ----------
    module : str, optional
        Module that registers names. None: all registered components are checked.

    Returns
    -------
    list of CheckResult
        ``status`` is "passed", "skipped" (the check does not apply) or "failed". ``message`` gives the
        details.

    Raises
    ------
    ValueError
        If the module cannot be imported or registers nothing.
    """
    return [case.outcome() for case in plugin_cases(module)]


def _single(entry: RegistryEntry) -> Iterator[Case]:
    suites = {
        "learner": LEARNER_CHECKS,
        "offline learner": OFFLINE_CHECKS,
        "privatizer": PRIVATIZER_CHECKS,
        "environment": ENVIRONMENT_CHECKS,
    }
    checks = dict(suites[entry.kind])
    if entry.kind == "privatizer" and entry.plugin is not None:
        checks |= OWN_PRIVATIZER_CHECKS
    for check, body in checks.items():
        yield Case(f"{entry.kind} {entry.name}", check, partial(body, entry.name))


def _pairs_of(mine: tuple[RegistryEntry, ...]) -> Iterator[tuple[str, str]]:
    own = {entry.name for entry in mine if entry.kind == "learner"}
    for learner in (entry for entry in mine if entry.kind == "learner"):
        for privatizer in registry.entries("privatizer"):
            yield from ((learner.name, variant) for variant in _variants(privatizer))
    for privatizer in (entry for entry in mine if entry.kind == "privatizer"):
        for name in dict.fromkeys((*_PARTNERS, *own)):
            yield from ((name, variant) for variant in _variants(privatizer))


def run_every_combination() -> int:
    """Run every learner with every privatizer once on a tiny problem, stepwise and compiled.

    Returns the number of combinations that ran.
    """
    count = 0
    for learner, privatizer in dict.fromkeys(_pairs_of(registry.entries())):
        for by, stepwise in (("episode", False), ("batch", False), ("episode", True), ("batch", True)):
            try:
                _setup(learner, privatizer, by, stepwise, users=3).run(0, 0)  # type: ignore[arg-type]
            except NotApplicable:
                continue
            count += 1
    _by_the_way()
    with TemporaryDirectory() as scratch:
        for entry in registry.entries("offline learner"):
            _learn_offline(entry.name, Path(scratch), secure=entry.baseline is not None)
            count += 1
    return count


def _by_the_way() -> None:
    """Run code that no pair of learner and privatizer uses in a run with three users."""
    import pyarrow as pa

    from discreet.data.near_duplicate_ids import hashed

    _setup("joint", "central" + _GAUSSIAN, "batch", users=200).run(0, 0)
    _setup("noise-aware", "central" + _GAUSSIAN, "batch", users=2000, options={"explore": "returns"}).run(
        0, 0
    )
    _secure_release()
    hashed(pa.array(["a person"]))


def _secure_release() -> None:
    """Make releases with secure Laplace and Gaussian noise, from single users and from a batch."""
    from discreet.core.rng import Secure, SecureRng
    from discreet.envs.rollouts.rollout import rollout_batch
    from discreet.mechanisms.interfaces import Plan

    for privatizer in ("central", "central" + _GAUSSIAN):
        setup = _setup(_PARTNERS[0], privatizer)
        session = setup.privatizer.start(setup.query, setup.schedule, Secure())
        session.release()
        policy = np.zeros((setup.mdp.layout.horizon, setup.mdp.layout.states), np.int64)
        plan = Plan(policy)
        encoder = session.begin(plan)
        session.submit(encoder(_first_life(setup), plan, SecureRng()))
        session.release()
        session.begin(plan)
        session.submit_many(rollout_batch(setup.mdp, policy, 1), 2)  # type: ignore[attr-defined]
        session.close()
