"""The guarantee follows from the mechanism: nobody can tell a session what it promises."""

import ast
import importlib
import inspect
import pickle
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from closure import closure

import discreet as dr
from discreet.accounting.randomized_response_event import ReportRecord
from discreet.core.correlated_noise.binary_tree import Tree
from discreet.core.correlated_noise.decaying_sum import Decaying
from discreet.core.correlated_noise.optimal_tree import OptimalTree
from discreet.core.correlated_noise.signed_digit_tree import SignedDigits
from discreet.core.correlated_noise.square_root_toeplitz import SquareRoot
from discreet.core.count_mechanism import CountMechanism, Stated
from discreet.core.count_query import CountQuery
from discreet.core.events import MechanismRecord
from discreet.core.guarantee import guarantee_of
from discreet.core.layout import Layout
from discreet.core.noise.noises import GAUSSIAN, LAPLACE, AdditiveNoise
from discreet.core.rng import Secure, Seeded
from discreet.core.strategies import Batches, Exact, OnDevice, Prefixes, Strategy
from discreet.experiments.simulate import Setup
from discreet.mechanisms import open_session as sessions
from discreet.mechanisms.interfaces import Schedule
from discreet.mechanisms.local.randomized_response import StepReports
from discreet.mechanisms.local.randomized_response_strategy import Reported
from discreet.mechanisms.open_session import session_of
from tests.goldens.cases import RUNS, WORLDS

LAYOUT = Layout(3, 2, 4)
QUERY = CountQuery(LAYOUT)
SCHEDULE = Schedule(100, times=np.array([0, 10, 20, 40]))
STATED = Stated(1e-6, 1.0)
SOURCE = Path(dr.__file__).parent

STRATEGIES = {
    "tree": (Prefixes(Tree(4)), LAPLACE, 2),
    "tree of users": (Prefixes(Tree(100), "user"), LAPLACE, 7),
    "batches": (Batches(), LAPLACE, 1),
    "device": (OnDevice(), LAPLACE, 1),
    "gaussian tree": (Prefixes(Tree(4)), GAUSSIAN, 2),
    "square root": (Prefixes(SquareRoot(4)), GAUSSIAN, 1),
    "decaying": (Batches(0.8), GAUSSIAN, 1),
}


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("factor", [1.0, 1e-3, 7.0])
def test_scales_of_anybodys_making_state_what_they_buy(name: str, factor: float) -> None:
    """Independent of the library's accounting: raw counts of H steps, 6 H in l1, sqrt(6 H) in l2."""
    strategy, family, levels = STRATEGIES[name]
    made = CountMechanism(QUERY, SCHEDULE, "seeded", strategy, family, np.full(3, 20.0), stated=STATED)
    made = replace(made, scales=factor * made.scales)
    for guarantee in (made.guarantee, sessions.session_of(made, Seeded(0)).guarantee):
        if family == LAPLACE:
            assert guarantee.epsilon == pytest.approx(levels * 24 / (20 * factor), rel=1e-12)
            assert guarantee.delta == 0.0
        else:
            assert guarantee.mu == pytest.approx(np.sqrt(levels * 24) / (20 * factor), rel=1e-12)
        assert guarantee.trust == ("local" if name == "device" else "joint")


@pytest.mark.parametrize(
    ("strategy", "family", "grid", "facts"),
    [
        (Exact(), None, None, ("exact", "plain", False, None, 1, "none", "l2", None, 1.0, None)),
        (Batches(), LAPLACE, None,
         ("decaying", "plain", True, None, 1, "joint", "l1", "laplace", 1.0, None)),
        (Batches(), LAPLACE, 64,
         ("decaying", "plain", True, None, 1, "joint", "l1", "discrete_laplace", 1.0, 1)),
        (Batches(0.6), GAUSSIAN, None,
         ("decaying", "plain", True, None, 1, "joint", "l2", "gaussian", 1.0, None)),
        (Batches(0.6), GAUSSIAN, 64,
         ("decaying", "plain", True, None, 1, "joint", "l2", "discrete_gaussian", 1.25, 2**20)),
        (Prefixes(Tree(4)), GAUSSIAN, 64,
         ("walk", "plain", True, Tree(4), 2, "joint", "l2", "discrete_gaussian", 1.0, 1)),
        (OnDevice(), LAPLACE, 64,
         ("local", "plain", True, None, 1, "local", "l1", "discrete_laplace", 1.0, 1)),
    ],
)  # fmt: skip
def test_what_a_mechanism_says_of_itself(
    strategy: Strategy, family: AdditiveNoise | None, grid: int | None, facts: tuple[object, ...]
) -> None:
    """Noise of a decaying sum under exact noise is sigma / gain, gain = 4/5, on multiples of 2^-20."""
    source = "seeded" if grid is None else "secure"
    noise = {} if not family else {"noise": family, "scales": np.full(3, 30.0), "reward_grid": grid}
    made = CountMechanism(QUERY, SCHEDULE, source, strategy, stated=STATED, **noise)  # type: ignore[arg-type]
    name = made.records[0].noise if made.records else None
    found = (
        made.stream, made.asks, made.noisy, made.walk, made.levels, made.trust, made.norm, name,
        made.noise_factor, made.grid("visits"),
    )  # fmt: skip
    assert found == pytest.approx(facts) if made.fixed_point else found == facts
    assert made.fixed_point == (grid is not None and made.decay > 0)
    assert made.grid("reward_sums") == (2**20 if made.fixed_point else grid)
    assert made.grid("transition_counts") == made.grid("visits")
    assert made.leaf == "batch"
    assert made.decay == (strategy.decay if isinstance(strategy, Batches) else 0.0)
    assert made.release_scales.shape == (0, 3)
    assert made.reports is None
    claim = made.guarantee
    assert claim.delta == (1e-6 if family == GAUSSIAN else 0.0)
    assert (claim.mu is not None) == (name == "gaussian")
    assert (claim.epsilon is None) == (family is None)
    assert claim.epsilon_nominal == (1.0 if family else None)
    if family:
        assert made.scales_at(1).tolist() == [30.0] * 3
        rounding = Decaying(0.6).rounding(3, 4) if made.fixed_point else 0.0
        plain = (24 if family == LAPLACE else 24**0.5) / 30
        assert made.records[0].joint == pytest.approx(plain + 3**0.5 * rounding / 30, rel=1e-12)
        assert made.records[0].levels == made.levels


def test_stored_people_are_released_centrally_and_may_have_several_episodes() -> None:
    query = CountQuery(LAYOUT, episodes=3)
    made = CountMechanism(
        query, Schedule.one_shot(9), "seeded", Batches(), LAPLACE, np.full(3, 20.0), stored=True
    )
    assert (made.trust, made.guarantee.trust, made.guarantee.episodes) == ("central", "central", 3)
    assert made.guarantee.epsilon == pytest.approx(3 * 24 / 20, rel=1e-12)
    exact = CountMechanism(query, Schedule.one_shot(9), "seeded", Exact(), stored=True)
    assert (exact.trust, exact.guarantee.trust, exact.guarantee.episodes) == ("none", "none", 3)
    users = CountMechanism(QUERY, Schedule(8), "seeded", Prefixes(Tree(8), "user"), LAPLACE, np.full(3, 20.0))
    assert (users.leaf, users.levels) == ("user", 3)


def test_a_hundredth_of_the_noise_does_not_keep_the_promise() -> None:
    """What the first version accepted: the old guarantee, with noise 1 000 times too small."""
    asked = dr.Central(epsilon=1.0, release="tree").mechanism(QUERY, SCHEDULE, Seeded(0))
    assert isinstance(asked, CountMechanism)
    assert asked.guarantee.epsilon == pytest.approx(1.0)
    less = replace(asked, scales=1e-3 * asked.scales)
    assert session_of(less, Seeded(0)).guarantee.epsilon == pytest.approx(1000.0)
    with pytest.raises(FrozenInstanceError):
        asked.scales = 1e-3 * asked.scales  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        asked.scales[:] = 0.0
    with pytest.raises(FrozenInstanceError):
        asked.guarantee = less.guarantee  # type: ignore[misc]


def test_who_writes_to_a_mechanism_after_the_start_changes_no_noise() -> None:
    made = dr.Central(epsilon=1.0, release="tree").mechanism(QUERY, SCHEDULE, Seeded(0))
    assert isinstance(made, CountMechanism)
    session = session_of(made, Seeded(0))
    object.__setattr__(made, "scales", np.zeros(3))
    made.query.offsets[:] = 0
    session.mechanism.query.offsets[:] = 0
    release = session.release()
    assert session.mechanism.scales.min() > 1.0
    assert set(release.estimates) == set(QUERY.families)


def test_a_subclass_that_states_another_loss_opens_no_session() -> None:
    class Told(CountMechanism):
        guarantee = dr.Central(epsilon=1e-9).mechanism(QUERY, SCHEDULE, Seeded(0)).guarantee  # type: ignore

    Told.__name__ = "CountMechanism"
    with pytest.raises(ValueError, match="no subclass"):
        session_of(Told(QUERY, SCHEDULE, "seeded", Exact()), Seeded(0))
    with pytest.raises(ValueError, match="must be one of"):
        session_of(object(), Seeded(0))


def test_the_source_must_be_that_of_the_mechanism() -> None:
    trees = dr.Central(epsilon=1.0, release="tree")
    seeded, secure = (trees.mechanism(QUERY, SCHEDULE, source) for source in (Seeded(0), Secure()))
    for mechanism, source, own in (
        (seeded, Secure(), "seeded source"),
        (secure, Seeded(0), "secure source with reward_grid = 1024"),
        (secure, Secure(reward_grid=64), "secure source with reward_grid = 1024"),
    ):
        with pytest.raises(ValueError, match=f"randomness = Se.*: this mechanism is of a {own}$"):
            session_of(mechanism, source)
    with pytest.raises(ValueError, match="randomness = 5: must be a Seeded or Secure, no subclass"):
        session_of(seeded, 5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scales": np.zeros(3)}, "must be positive"), ({"scales": np.ones(2)}, "scales has shape"),
        ({"scales": np.full(3, np.nan)}, "finite everywhere"), ({"noise": None}, "noise = None"),
        ({"source": "secure"}, "reward_grid"), ({"reward_grid": 64}, "reward_grid"),
        ({"strategy": Batches(0.5)}, "no finite l1 norm"),
        ({"strategy": "decaying"}, "strategy"), ({"strategy": Prefixes(Tree(5))}, "leaves"),
        ({"strategy": Prefixes(SquareRoot(4))}, "l1 norm"),
        ({"strategy": Prefixes(Tree(None, True)), "schedule": Schedule(None)}, "gaussian"),
        ({"schedule": Schedule(None)}, "known number of users"),
        ({"query": CountQuery(LAYOUT, episodes=2)}, "episodes"),
        ({"query": CountQuery(LAYOUT, stationary=True, first=True)}, "first visits"),
        ({"strategy": Prefixes(OptimalTree(4)), "source": "secure", "reward_grid": 64}, "not integers"),
        ({"strategy": Prefixes(SquareRoot(4)), "noise": GAUSSIAN, "stated": STATED, "source": "secure",
          "reward_grid": 64}, "not integers"),
        ({"query": CountQuery(LAYOUT, groups=2, clip=1.0), "strategy": OnDevice(), "scales": np.ones(4)},
         r"need Exact\(\) or Batches"),
        ({"stored": True, "release_scales": np.full((4, 3), 20.0)}, "by plain"),
        ({"strategy": Prefixes(SignedDigits(2**20, 4, 3), "user"), "schedule": Schedule(2**20),
          "source": "secure", "reward_grid": 1024, "scales": np.full(3, 2.0**26)}, "grid units"),
        ({"release_scales": np.full((4, 3), 19.0)}, "must not cost more"),
        ({"release_scales": np.full((3, 3), 20.0)}, "release_scales has shape"),
        ({"stated": Stated(1e-6, None, True), "query": CountQuery(LAYOUT, True)}, "drawn after the records"),
    ],
)  # fmt: skip
def test_parts_that_do_not_fit_are_refused(changes: dict[str, object], message: str) -> None:
    plain = CountMechanism(QUERY, SCHEDULE, "seeded", Batches(), LAPLACE, np.full(3, 20.0))
    with pytest.raises(ValueError, match=message):
        replace(plain, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("strategy", "schedule", "stored", "most"),
    [
        (Batches(), SCHEDULE, False, 2.0**38), (OnDevice(), SCHEDULE, False, 2.0**38),
        (Prefixes(Tree(None)), Schedule(None), False, 2.0**32),  # scales grow with the epochs
        (Batches(), Schedule(None), True, 2.0**38),  # no epochs: people are released once
        (Prefixes(SignedDigits(2**16, 4, 3), "user"), Schedule(2**16), False, 2.0**36),  # many draws in a sum
    ],
)  # fmt: skip
def test_exact_noise_has_scales_that_can_be_drawn_and_added(
    strategy: Batches | Prefixes | OnDevice, schedule: Schedule, stored: bool, most: float
) -> None:
    """Grid units: of rewards 1 / 1024, of counts 1; each family has its own limit at either end."""
    made = partial(CountMechanism, QUERY, schedule, "secure", strategy, LAPLACE, reward_grid=1024)
    units = np.array([1024.0 if "reward" in name else 1.0 for name in QUERY.row_families])
    for end, beyond in ((2.0**-20, 0.999), (most, 1.001)):
        made(scales=end / units, stored=stored)
        for i in range(units.size):
            scales = 100.0 / units
            scales[i] = beyond * end / units[i]
            with pytest.raises(ValueError, match=f"{[*QUERY.row_families][i]}: exact noise of scale"):
                made(scales=scales, stored=stored)
    for grid in (3, 1000):
        with pytest.raises(ValueError, match="reward_grid"):
            made(scales=100.0 / units, stored=stored, reward_grid=grid)


@pytest.mark.parametrize(
    ("units", "fits"), [(1.001, True), (0.999, False), (2.0**37.999, True), (2.0**38.001, False)]
)
def test_noise_in_fixed_point_has_scales_that_can_be_drawn(units: float, fits: bool) -> None:
    """One draw is sigma / gain in units of 2^-20, of every family."""
    made = partial(CountMechanism, QUERY, SCHEDULE, "secure", Batches(0.5), GAUSSIAN, reward_grid=1024)
    for i in range(3):
        scales = np.full(3, 2.0)
        scales[i] = units * Decaying(0.5).gain / 2**20
        with nullcontext() if fits else pytest.raises(ValueError, match=r"exact noise|do not stay exact"):
            made(scales=scales)


@pytest.mark.parametrize("release", [1, 2, 3])
def test_scales_of_every_release_can_be_drawn_exactly(release: int) -> None:
    """The last release's too, and none may be below what a sampler draws."""
    scales = np.full((4, 3), 20.0)
    scales[release, 0] = 2.0**39
    with pytest.raises(ValueError, match="exact noise of scale"):
        CountMechanism(QUERY, SCHEDULE, "secure", Batches(), LAPLACE, np.full(3, 20.0), 1024, scales)


@pytest.mark.parametrize(
    ("strategy", "family", "schedule"),
    [
        (Prefixes(SignedDigits(4, 3)), LAPLACE, SCHEDULE),  # noise is drawn ahead of its data
        (Prefixes(SquareRoot(4)), GAUSSIAN, SCHEDULE),  # a draw is in sums of other people
        (Prefixes(Tree(None)), LAPLACE, Schedule(None)),  # scales that grow with the epochs
        (Batches(0.5), GAUSSIAN, SCHEDULE),  # a user is in every later sum
    ],
    ids=["digits", "square root", "open tree", "decaying"],
)
def test_privacy_loss_distributions_are_of_fresh_draws_only(
    strategy: Prefixes | Batches, family: AdditiveNoise | None, schedule: Schedule
) -> None:
    closed = CountMechanism(QUERY, schedule, "seeded", strategy, family, np.full(3, 20.0), stated=STATED)
    assert closed.guarantee.epsilon is not None
    with pytest.raises(ValueError, match="drawn after the records"):
        replace(closed, stated=Stated(1e-6, None, True))


@pytest.mark.parametrize(
    "noise",
    [
        {"noise": LAPLACE}, {"scales": np.full(3, 20.0)},
        {"noise": LAPLACE, "scales": np.full(3, 20.0)}, {"release_scales": np.full((4, 3), 20.0)},
        {"reward_grid": 64},
    ],
    ids=lambda noise: " ".join(noise),
)  # fmt: skip
def test_noise_of_which_nothing_is_drawn_is_refused(noise: dict[str, object]) -> None:
    """Who reads the mechanism would believe it."""
    reports = Reported(StepReports.of(QUERY, "subset", 1.0, 1, 0.2), "device")
    for strategy in (Exact(), reports):
        with pytest.raises(ValueError, match=r"has no noise in sums|must be None without noise"):
            CountMechanism(QUERY, SCHEDULE, "seeded", strategy, **noise)  # type: ignore[arg-type]


def test_reports_of_another_query_or_without_coins_are_refused() -> None:
    reports = StepReports.of(QUERY, "subset", 1.0, 1, 0.2)
    made = CountMechanism(QUERY, SCHEDULE, "seeded", Reported(reports, "device"))
    assert made.guarantee.epsilon is not None
    assert made.guarantee.epsilon <= 1.0
    certain = replace(reports.moves[0], own=2**53)
    for broken in (
        replace(reports, moves=(certain, reports.moves[1])), replace(reports, steps=5),
        replace(reports, horizon=3), replace(reports, share=0), replace(reports, kind="oue"),
        replace(reports, moves=reports.rewards),
        StepReports.of(CountQuery(Layout(4, 2, 4)), "krr", 1.0, 1, 0.2),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="reports"):
            CountMechanism(QUERY, SCHEDULE, "seeded", Reported(broken, "device"))


def test_guarantees_are_made_by_mechanisms_alone() -> None:
    """Over the syntax trees of the package: who calls the one maker of guarantees."""
    allowed = {
        "guarantee_of": {
            "core/count_mechanism.py", "mechanisms/linear/per_user_means.py",
            "mechanisms/linear/adaptive_queries.py", "mechanisms/linear/context_sums.py",
            "pipeline/distributed_noise.py", "pipeline/log_judgement.py", "pipeline/verify.py",
        },
        "parallel": {"mechanisms/batch_queries.py"},
    }  # fmt: skip
    found: dict[str, set[str]] = {name: set() for name in allowed}
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        if not any(name in text for name in allowed):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in found:
                found[node.func.id].add(path.relative_to(SOURCE).as_posix())
    assert found == allowed


def test_each_strategy_has_one_channel_that_takes_no_other() -> None:
    groups = CountMechanism(CountQuery(QUERY.layout, groups=2, clip=1.0), SCHEDULE, "seeded", Exact())
    cut = CountMechanism(
        CountQuery(QUERY.layout, visits=False, center_rewards=True, cut=1.0), SCHEDULE, "seeded", Exact()
    )
    reported = dr.Local(epsilon=1.0, randomizer="subset").mechanism(QUERY, SCHEDULE, Seeded(0))
    device = dr.Local(epsilon=1.0, randomizer="laplace").mechanism(QUERY, SCHEDULE, Seeded(0))
    plain = CountMechanism(QUERY, SCHEDULE, "seeded", Exact())
    batches = dr.Central(epsilon=1.0, release="batches").mechanism(QUERY, SCHEDULE, Seeded(0))
    tree = dr.Central(epsilon=1.0, release="tree").mechanism(QUERY, SCHEDULE, Seeded(0))
    mechanisms = (groups, cut, reported, device, plain, batches, tree)
    kinds = [type(sessions.session_of(one, Seeded(0)).channel) for one in mechanisms]  # type: ignore[attr-defined]
    assert len(set(kinds)) == 5  # one for exact sums of every query
    for kind in kinds:
        for one, own in zip(mechanisms, kinds, strict=True):
            if own is not kind:
                with pytest.raises(ValueError, match="has a channel of its own"):
                    kind(one, Seeded(0))


def test_classes_that_only_bear_the_right_name_are_refused() -> None:
    """Kinds that are loaded when asked for are told by name first: a name alone opens nothing."""
    reports = StepReports.of(QUERY, "subset", 20.0, 1, 0.2)

    class Told(Reported):
        def plain(self) -> Reported:
            return self

        def record(self, schedule: Schedule) -> ReportRecord:
            return Reported(StepReports.of(QUERY, "subset", 1.0, 1, 0.2), "device").record(schedule)

    class Less(MechanismRecord):
        loss = 1e-9  # type: ignore[assignment]

    for fake, true in ((Told, Reported), (Less, MechanismRecord)):
        fake.__module__, fake.__qualname__ = true.__module__, true.__qualname__
    with pytest.raises(ValueError, match="strategy"):
        CountMechanism(QUERY, SCHEDULE, "seeded", Told(reports, "device"))
    less = Less("sum", "laplace", {"visits": 1.0}, {"visits": 8.0}, 8.0)
    with pytest.raises(ValueError, match="record"):
        guarantee_of("joint", [less], randomness="seeded")


def test_mechanisms_and_guarantees_reach_worker_processes() -> None:
    """All kinds of them, from the runs of the goldens; a copy is made anew, with arrays that stand."""
    kinds = set()
    for name, (world, learner, privatizer, users) in RUNS.items():
        setup = Setup(WORLDS[world](), learner, privatizer, users)
        guarantee, mechanism = setup.guarantee, setup.mechanism  # kept by the setup that a worker is sent
        there = pickle.loads(pickle.dumps(setup))
        assert there.guarantee == guarantee, name
        kinds.add(type(mechanism).__name__)
        for made in (deepcopy(mechanism), there.mechanism):
            assert "guarantee" not in vars(made), name
            for one in (made, *(made.parts if isinstance(made, dr.mechanisms.BatchMechanism) else ())):
                scales = getattr(one, "scales", None)
                for array in scales.values() if isinstance(scales, dict) else (scales,):
                    if array is not None:
                        with pytest.raises(ValueError, match="read-only"):
                            array *= 0.5
            assert made.guarantee == guarantee, name
            assert session_of(made, Seeded(1)).guarantee == guarantee, name
    assert kinds == {
        "CountMechanism",
        "LinearMechanism",
        "FlipMechanism",
        "AmplifiedMechanism",
        "BatchMechanism",
    }


def _values_of_the_core() -> list[type]:
    """Every dataclass of the modules that a claim rests on."""
    more = (
        "mechanisms.linear.linear_mechanism",
        "mechanisms.linear.linear_queries",
        "mechanisms.linear.adaptive_queries",
        "mechanisms.shuffle.shuffle_mechanisms",
        "accounting.binomial_noise_event",
        "accounting.shuffle_amplification_event",
        "mechanisms.batch_queries",
        "accounting.randomized_response_event",
        "mechanisms.local.randomized_response",
        "mechanisms.local.randomized_response_strategy",
    )
    found = []
    for name in sorted({*closure("discreet.core.count_channels"), *(f"discreet.{one}" for one in more)}):
        for one in vars(importlib.import_module(name)).values():
            if (
                isinstance(one, type)
                and one.__module__ == name
                and is_dataclass(one)
                and not inspect.isabstract(one)
            ):
                found.append(one)
    return found


@pytest.mark.parametrize("value", _values_of_the_core(), ids=lambda one: one.__name__)
def test_no_field_of_a_checked_value_can_be_set(value: type) -> None:
    """What is checked once, when it is built, stays as it was: a guarantee was computed from it."""
    blank = object.__new__(value)
    for item in fields(value):
        with pytest.raises(FrozenInstanceError):
            setattr(blank, item.name, None)
        with pytest.raises(FrozenInstanceError):
            delattr(blank, item.name)
