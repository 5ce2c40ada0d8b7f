"""What a device says that its message gives away: the mechanism's own numbers, and brute force."""

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import discreet as dr
from discreet import envs
from discreet.core.count_mechanism import CountMechanism, Stated
from discreet.core.count_query import CountQuery
from discreet.core.epsilon_conversions import gdp_epsilon, zcdp_epsilon
from discreet.core.layout import Layout
from discreet.core.noise.noises import LAPLACE
from discreet.core.raw_encoder import add_records, family_begins
from discreet.core.rng import Secure, Seeded
from discreet.core.strategies import OnDevice
from discreet.core.trajectories import Trajectories, Trajectory
from discreet.device.count_device import CountDevice
from discreet.device.linear_device import LinearDevice
from discreet.device.message_guarantee import MessageGuarantee
from discreet.device.randomized_response_device import GRID, Randomizer, ReportDevice
from discreet.device.shuffle_encoder import ShuffleEncoder
from discreet.device.shuffle_payload import COIN, Family, SessionConfig
from discreet.mechanisms.features import Features
from discreet.mechanisms.interfaces import Plan, Schedule
from discreet.mechanisms.linear.linear_mechanism import LinearMechanism
from discreet.mechanisms.linear.linear_queries import GramQuery, MixtureQuery
from discreet.mechanisms.local import noisy_vector_session as device_session
from discreet.mechanisms.shuffle.shuffle_session import BatchTooSmall

LAYOUT = Layout(3, 2, 4, np.array([[True, True], [True, False], [True, True]]))
POLICY = np.zeros((4, 3), np.int64)
MIXED = np.where(LAYOUT.mask, 1.0, 0.0) / LAYOUT.mask.sum(axis=1, keepdims=True) * np.ones((4, 1, 1))
COUNTS = {
    "raw": CountQuery(LAYOUT),
    "centred": CountQuery(LAYOUT, center_rewards=True),
    "lean": CountQuery(LAYOUT, visits=False, center_rewards=True),
    "known": CountQuery(LAYOUT, known_rewards=True),
    "alike": CountQuery(LAYOUT, stationary=True),
    "alike, centred": CountQuery(LAYOUT, stationary=True, center_rewards=True),
    "all": CountQuery(LAYOUT, pooled="all", center_rewards=True),
    "first": CountQuery(LAYOUT, pooled="first", visits=False),
    "first, known": CountQuery(LAYOUT, pooled="first", known_rewards=True),
    "step": CountQuery(LAYOUT, step=2, center_rewards=True),
}
WORLD = envs.linear_mixture(states=5, actions=3, horizon=4, models=3, seed=3, reward_models=2)
SIGNED = Features(np.random.default_rng(1).normal(size=(5, 3, 2)) / 4, 1.0, l1=1.2)
PHI = Features(np.random.default_rng(1).dirichlet(np.ones(3), (5, 3)), 1.0, l1=1.0, nonneg=True)
VALUES = MixtureQuery(layout=WORLD.layout, features=WORLD.features, rewards=WORLD.features.rewards)
LINEAR = {
    "span": VALUES,
    "raw": dataclasses.replace(VALUES, targets="raw", rewards="tabular"),
    "centred": dataclasses.replace(VALUES, targets="centred", rewards=None),
    "second": dataclasses.replace(VALUES, second=True, largest_weight=2.0, rewards=PHI),
    "signed rewards": dataclasses.replace(VALUES, rewards=SIGNED),
    "model": GramQuery(layout=WORLD.layout, features=PHI),
    "model, signed": GramQuery(layout=WORLD.layout, features=SIGNED),
    "model, known rewards": GramQuery(layout=WORLD.layout, features=PHI, rewards=False),
}  # fmt: skip


def same(message: MessageGuarantee, stated: Any) -> None:
    """The device's numbers are the mechanism's."""
    for name in ("mu", "rho"):
        if getattr(message, name) is not None:
            assert getattr(message, name) == pytest.approx(getattr(stated, name), rel=1e-12)
            assert message.epsilon_at(stated.delta) == pytest.approx(stated.epsilon, rel=1e-9)
    if message.epsilon is not None:
        assert stated.delta == 0.0
        assert message.epsilon == pytest.approx(stated.epsilon, rel=1e-12)
    assert message.exact == (stated.randomness == "secure")
    assert message.shows == 0.0


# ------------------------------------------------------------------------------ equal to the mechanism's
@pytest.mark.parametrize("source", [Seeded(0), Secure(reward_grid=64)], ids=["seeded", "secure"])
@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("privatizer", [dr.Local(epsilon=3.0, randomizer="laplace"), dr.Local(rho=0.5)])
def test_noisy_counters(privatizer: Any, name: str, source: Any) -> None:
    mechanism = privatizer.mechanism(COUNTS[name], Schedule(9), source)
    own: Any = np.random.default_rng(4).uniform(3.0, 9.0, mechanism.scales.size)
    for made in (mechanism, dataclasses.replace(mechanism, scales=own)):  # by hand too
        with dr.mechanisms.session_of(made, source) as session:
            session.release()
            encoder: Any = session.begin(Plan(POLICY))
            same(encoder.guarantee, made.guarantee)
            same(session.device.guarantee, made.guarantee)
            assert not encoder.guarantee.shuffled


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("kind", ["krr", "subset", "oue"])
@pytest.mark.parametrize("plans", ["any", "deterministic", "stochastic"])
@pytest.mark.parametrize("name", ["raw", "lean", "known", "alike", "step"])
def test_randomized_reports(kind: str, steps: int, plans: Any, name: str) -> None:
    query = COUNTS[name]
    local = dr.Local(epsilon=3.0, randomizer=kind, steps=1 if query.step else steps)  # type: ignore[arg-type]
    session: Any = local.start(query, Schedule(9, plans=plans), Secure())
    session.release()
    stated = session.guarantee
    same(session.device.guarantee, stated)
    losses = []
    for policy in [POLICY] if plans == "deterministic" else [POLICY, MIXED]:
        encoder = session.begin(Plan(policy))
        losses.append(encoder.guarantee.epsilon)
        session.absent()
        session.release()
    assert max(losses) == pytest.approx(stated.epsilon, rel=1e-12)


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("source", [Seeded(0), Secure(reward_grid=64)], ids=["seeded", "secure"])
@pytest.mark.parametrize(
    "privatizer",
    [dr.Local(epsilon=9.0), dr.Local(mu=1.0), dr.Local(epsilon=9.0, delta=1e-5, calibration="published")],
    ids=["laplace", "gaussian", "published"],
)
def test_linear_sums(privatizer: Any, name: str, source: Any) -> None:
    if privatizer.calibration == "published" and name != "centred":
        pytest.skip("is printed for value-targeted regression with known rewards")
    mechanism = privatizer.mechanism(LINEAR[name], Schedule(9), source)
    scaled = {k: 1.7 * v for k, v in mechanism.scales.items()}
    for made in (mechanism, dataclasses.replace(mechanism, scales=scaled)):
        assert isinstance(made, LinearMechanism)
        with dr.mechanisms.session_of(made, source) as session:
            same(session.device.guarantee, made.guarantee)


@pytest.mark.parametrize("share", [1.0, 0.6])
def test_amplified_reports_without_the_shuffler(share: float) -> None:
    query = COUNTS["lean"]
    shuffle = dr.Shuffle(epsilon=1.0, delta=1e-4, randomizer="amplified", dishonest=1.0 - share)
    session: Any = shuffle.start(query, Schedule(2000, times=np.array([0, 20, 1500])), Secure())
    session.release()
    batches = dict(session.mechanism.records[0].batches)  # honest users: what a message costs by itself
    found = []
    for users in (20, 1480):
        encoder = session.begin(Plan(POLICY, users))
        assert encoder.guarantee == session.device.guarantee
        found.append(encoder.guarantee.epsilon)
        assert encoder.guarantee.shuffled
        assert "Without the shuffler" in str(encoder.guarantee)
        session.absent(users)
        with pytest.raises(BatchTooSmall):  # nobody came
            session.release()
    assert found == pytest.approx([batches[shuffle.honest(n)] for n in (20, 1480)], rel=1e-12)
    assert found[0] < found[1]  # more users, less noise each


# ------------------------------------------------------------------------------ coins, by brute force
def laws_of(form: SessionConfig) -> tuple[Any, Any]:
    """(lives, counters, values) what every trajectory sends: probabilities, by independent counters."""
    lives = []
    for states in itertools.product(range(form.states), repeat=form.horizon + 1):
        for actions in itertools.product(range(form.actions), repeat=form.horizon):
            for rewards in itertools.product((0.0, 0.5, 1.0), repeat=form.horizon):
                lives.append((states, actions, rewards))
    most = max(family.messages for family in form.families)
    laws = np.zeros((len(lives), form.begins[-1], most + 1))
    for i, family in enumerate(form.families):
        m, p = family.flips, family.coin / COIN
        noise = binom.pmf(np.arange(m + 1), m, p)
        if family.paired:
            halves = [binom.pmf(np.arange(m // 2 + 1), m // 2, q) for q in (p, 1 - p)]
            noise = np.convolve(*halves)
        for n, (states, actions, rewards) in enumerate(lives):
            own = np.zeros((form.counters[i], family.own + 1))  # the law of her own bits
            own[:, int(family.own == 2)] = 1.0
            for h in range(form.horizon):
                if form.step not in (None, h):
                    continue
                t = h if form.step is None else 0
                cell = t * form.pairs + form.row_table[states[h], actions[h]]
                if family.kind == "transitions":
                    own[cell * form.states + states[h + 1]] = 0.0, 1.0
                elif family.kind == "visits":
                    own[cell] = 0.0, 1.0
                elif family.own == 1:
                    own[cell] = 1.0 - rewards[h], rewards[h]
                else:
                    own[cell] = 1.0 - rewards[h], 0.0, rewards[h]
            for at in range(form.counters[i]):
                law = np.convolve(own[at], noise)
                laws[n, form.begins[i] + at, : law.size] = law
    return lives, laws


FAIR = COIN // 2
FORMS = {
    "visits": (SessionConfig(2, 2, 2, (Family("visits", 1, FAIR),)), True),
    "biased": (SessionConfig(2, 1, 2, (Family("visits", 3, COIN // 5),)), True),
    "transitions": (SessionConfig(2, 1, 2, (Family("transitions", 2, COIN // 3),)), True),
    "rewards": (SessionConfig(2, 2, 1, (Family("rewards", 2, COIN // 3),)), True),
    "centred": (SessionConfig(2, 2, 1, (Family("centered_rewards", 4, COIN // 3, True),)), False),
    "lean": (
        SessionConfig(2, 1, 2, (Family("transitions", 3, FAIR), Family("centered_rewards", 2, COIN // 7,
        True))),
        False,
    ),
    "all": (
        SessionConfig(2, 1, 2, (Family("visits", 2, FAIR), Family("transitions", 3, FAIR),
        Family("rewards", 1, FAIR))),
        True,
    ),
    "one step": (
        SessionConfig(2, 2, 2, (Family("transitions", 3, FAIR), Family("rewards", 4, COIN // 3)), step=1),
        True,
    ),
    "one pair": (SessionConfig(1, 1, 2, (Family("visits", 1, FAIR), Family("rewards", 3, COIN // 3))), True),
    "masked": (SessionConfig(2, 2, 1, (Family("visits", 1, FAIR),), ((0, -1), (1, 2))), True),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_coins_without_the_shuffler(name: str) -> None:
    """All trajectories, rewards 0, 1/2 and 1: nobody's message shows more than is stated; most attain it."""
    form, attained = FORMS[name]
    guarantee = ShuffleEncoder(form, 1).guarantee
    assert guarantee.epsilon == math.inf
    worst = worst_of_admissible(form)
    assert worst <= guarantee.shows * (1 + 1e-12)
    if attained:
        assert worst == pytest.approx(guarantee.shows, rel=1e-12)
    assert 0.0 < guarantee.shows < 1.0
    assert "no epsilon holds" in str(guarantee)
    assert str(guarantee).startswith("Without the shuffler")


def worst_of_admissible(form: SessionConfig) -> float:
    lives, laws = laws_of(form)
    kept = [
        i for i, (states, actions, _) in enumerate(lives)
        if all(form.row_table[s, a] >= 0 for s, a in zip(states, actions, strict=False))
    ]  # fmt: skip
    hidden = np.ones((len(kept), len(kept)))
    for counter in range(laws.shape[1]):
        mine = laws[kept, counter]
        hidden *= mine @ (mine > 0).T.astype(float)
    return float(1.0 - hidden.min())


def test_a_shuffle_session_says_what_its_devices_say() -> None:
    session: Any = dr.Shuffle(epsilon=1.0, delta=1e-4).start(COUNTS["lean"], Schedule.one_shot(50), Secure())
    session.release()
    encoder = session.begin(Plan(POLICY, 50))
    assert encoder.guarantee == session.device.guarantee == session.device.form.guarantee
    assert encoder.guarantee.epsilon == math.inf


# ------------------------------------------------------------------------------ forms that claim too much


def linear_device(name: str) -> LinearDevice:
    with dr.Local(mu=1.0).start(LINEAR[name], Schedule(9), Secure()) as session:
        device: LinearDevice = session.device  # type: ignore[attr-defined]
    return device


def test_a_linear_form_that_does_not_fit_states_nothing() -> None:
    device, model = linear_device("raw"), linear_device("model")
    assert device.guarantee.rho is not None
    pairs, gram = device.form.pairs, model.form  # type: ignore[union-attr]
    first, signed = pairs[0], linear_device("model, signed")
    moved = dataclasses.replace(first, target="centred")
    negative = -np.array(device.form.columns)  # type: ignore[union-attr]
    wrong: list[tuple[LinearDevice, dict[str, Any]]] = [
        (device, {"scales": device.scales[:-1]}), (device, {"scales": -device.scales}),
        (device, {"scales": np.full(device.scales.size, np.nan)}), (device, {"units": device.units * 2}),
        (device, {"offsets": device.offsets[::-1].copy()}), (device, {"grid": 8 * (device.grid or 1)}),
        (device, {"form": dataclasses.replace(device.form, names=device.form.names[::-1])}),
        (device, {"form": dataclasses.replace(device.form, columns=negative)}),  # below 0: not "raw-nonneg"
        (device, {"form": dataclasses.replace(device.form, targets="span")}),
        (device, {"form": dataclasses.replace(device.form, pairs=(moved, *pairs[1:]))}),
        (model, {"form": dataclasses.replace(gram, rows=gram.rows * 1.01)}),  # type: ignore[union-attr]
        (model, {"form": dataclasses.replace(gram, l1=0.9)}),
        (model, {"form": dataclasses.replace(gram, bound=0.4)}),
        (signed, {"form": dataclasses.replace(signed.form, nonneg=True)}),
    ]  # fmt: skip
    assert first.target == "raw-nonneg"
    for own, change in wrong:
        with pytest.raises(ValueError):
            _ = dataclasses.replace(own, **change).guarantee
    for change in (
        {"bounds": first.bounds[:-1]}, {"l1": ()}, {"bounds": (0.0,) * 3},
        {"low": first.high, "high": first.low},
    ):  # fmt: skip
        with pytest.raises(ValueError, match="bounds, l1, low, high"):
            dataclasses.replace(first, **change)


def test_contributions_keep_the_l1_norm_that_noise_is_for() -> None:
    """A form with features beyond its claim: what is sent is scaled back into it, so the numbers hold."""
    with dr.Local(epsilon=9.0).start(LINEAR["span"], Schedule(9), Seeded(0)) as session:
        device: LinearDevice = session.device  # type: ignore[attr-defined]
    form: Any = device.form
    narrow = dataclasses.replace(
        form, pairs=tuple(dataclasses.replace(p, l1=tuple(0.3 * a for a in p.l1)) for p in form.pairs)
    )
    context = {"values": np.random.default_rng(2).uniform(size=(5, 5)) * np.arange(4, -1, -1)[:, None]}
    states, actions, rewards = np.array([0, 1, 2, 3, 4]), np.array([0, 1, 2, 0]), np.full(4, 0.75)
    for own, beyond in ((form, False), (narrow, True)):
        tables, scaled = own.tables(own.prepared(context), states, actions, rewards), False
        for pair in own.pairs:
            d = own.shapes[pair.matrix][1]
            lengths = tables[pair.matrix][:, :d]  # squares of x
            l1 = np.sqrt(lengths).sum(axis=1)
            assert (l1 <= np.array(pair.l1) * (1 + 1e-9)).all()
            scaled |= bool((l1 >= np.array(pair.l1) * (1 - 1e-9)).any())
        assert scaled == beyond


# ------------------------------------------------------------------------------ the value
def test_epsilon_at_a_delta_is_the_houses() -> None:
    for value in (1e-3, 0.05, 0.7, 3.0, 20.0):
        for delta in (1e-12, 1e-6, 1e-2, 0.3):
            assert MessageGuarantee(mu=value).epsilon_at(delta) == pytest.approx(
                gdp_epsilon(value, delta), rel=1e-6, abs=1e-9
            )
            assert MessageGuarantee(rho=value).epsilon_at(delta) == pytest.approx(
                zcdp_epsilon(value, delta), rel=1e-9, abs=1e-12
            )
    assert MessageGuarantee(epsilon=1.5).epsilon_at(0.1) == 1.5
    assert MessageGuarantee(mu=0.0).epsilon_at(0.1) == MessageGuarantee(rho=0.0).epsilon_at(0.1) == 0.0
    for delta in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="delta"):
            MessageGuarantee(mu=1.0).epsilon_at(delta)


def test_words_say_what_is_protected() -> None:
    for guarantee, words in (
        (MessageGuarantee(epsilon=2.0), "epsilon = 2."), (MessageGuarantee(mu=0.5), "mu = 0.5."),
        (MessageGuarantee(rho=0.25), "rho = 0.25."), (MessageGuarantee(epsilon=2.0, exact=False),
        "simulation"),
    ):  # fmt: skip
        assert words in str(guarantee)
        assert "whole trajectory of one episode against replacement by any other" in str(guarantee)


@pytest.mark.parametrize(
    "wrong",
    [
        {}, {"epsilon": 1.0, "mu": 1.0}, {"epsilon": -1.0}, {"mu": math.nan}, {"epsilon": 1.0, "shows": 0.1},
        {"epsilon": math.inf, "shows": 1.1},
    ],
)  # fmt: skip
def test_values_that_are_no_guarantee_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        MessageGuarantee(**wrong)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------ one way to count
@pytest.mark.parametrize("name", COUNTS)
def test_a_device_counts_what_the_server_counts(name: str) -> None:
    """Bit for bit: NumPy here, the compiled kernel there; 50 trajectories that come back to states."""
    query, rng = COUNTS[name], np.random.default_rng(7)
    mechanism = CountMechanism(
        query, Schedule(9), "seeded", OnDevice(), LAPLACE, np.full(len(query.row_families), 2.0),
        stated=Stated(),
    )  # fmt: skip
    device = device_session.device_of(query, mechanism, 0)
    assert np.array_equal(device.offsets, query.offsets)
    for _ in range(50):
        states, rewards = rng.integers(0, 3, 5), rng.uniform(size=4)
        actions = np.where(states[:-1] == 1, 0, rng.integers(0, 2, 4))
        mine, theirs = rng.normal(size=(1, query.cells)).repeat(2, axis=0)
        rows = device.row_table[states[:-1], actions]
        device.add(states, rows, rewards, mine)
        one = Trajectories.of(Trajectory(states, actions, rewards))
        add_records(query, family_begins(query), one, theirs)
        assert np.array_equal(mine, theirs)


def test_bad_devices_are_refused() -> None:
    good = CountDevice(2, 2, 3, (("visits", 1.0), ("transition_counts", 1.0)), "laplace")
    wrong: list[dict[str, Any]] = [
        {"families": ()}, {"families": (("visits", 1.0),)}, {"families": (("transition_counts", 0.0),)},
        {"families": (("transition_counts", math.nan),)}, {"families": (("transition_counts", 1.0),) * 2},
        {"families": (("transition_counts", 1.0), ("others", 1.0))}, {"noise": "none"}, {"grid": 3},
        {"grid": 1},
        {"pooled": "all"}, {"pooled": "some"}, {"centered": True}, {"stationary": True, "step": 1},
        {"step": 3},
        {"rows": ((0, 1), (2, 2))}, {"session": -1}, {"states": 0},
        {"families": (("transition_counts", 1.0), ("pooled_transition_counts", 1.0))},
    ]  # fmt: skip
    for change in wrong:
        with pytest.raises(ValueError):
            dataclasses.replace(good, **change)
    with pytest.raises(ValueError, match="Secure"):
        good(1, [0, 0, 0, 0], [0, 0, 0], [0.0, 0.0, 0.0])
    exact = dataclasses.replace(good, grid=4)
    for life in (
        ([0, 0, 0], [0, 0, 0], [0.0] * 3),
        ([0, 0, 0, 2], [0, 0, 0], [0.0] * 3),
        ([0] * 4, [0] * 3, [2.0] * 3),
    ):
        with pytest.raises(ValueError):
            exact(1, *life)
    one = Randomizer(False, 4, 1, GRID // 2, 0)
    pairs = Randomizer(False, 8, 1, GRID // 2, 0)
    form = ReportDevice(2, 2, 3, 1, 0, (one, pairs), (one, pairs))
    for change in (
        {"steps": 4}, {"steps": 0}, {"share": GRID}, {"moves": (one, one)}, {"rewards": (pairs, one)},
        {"plans": "none"}, {"step": 1, "steps": 2},
    ):  # fmt: skip
        with pytest.raises(ValueError):
            dataclasses.replace(form, **change)
    wrong = [
        {"size": 0}, {"size": 4}, {"other": 1}, {"own": 0}, {"own": GRID + 1},
        {"unary": True}, {"elements": 3},
    ]  # fmt: skip
    for broken in wrong:
        with pytest.raises(ValueError):
            dataclasses.replace(form, moves=(dataclasses.replace(one, **broken), pairs))
    life = [0, 0, 0, 0], [0, 0, 0], [0.0, 0.0, 0.0]
    for policy in (np.zeros((2, 2), int), np.full((3, 2), 2), np.zeros((3, 2)), np.full((3, 2), -1)):
        with pytest.raises(ValueError, match="policy"):
            form(1, policy, *life)
    with pytest.raises(ValueError, match="deterministic"):
        dataclasses.replace(form, plans="deterministic")(1, np.full((3, 2, 2), 0.5), *life)


def test_printed_losses_of_messages_are_rounded_up() -> None:
    for x in np.exp(np.random.default_rng(0).uniform(-9, 5, 200)).tolist():
        for name in ("epsilon", "mu", "rho"):
            said = str(MessageGuarantee(**{name: x})).split(f"{name} = ")[1].split(" ")[0].rstrip(".")
            assert x * (1 - 2e-9) <= float(said) <= x * (1 + 1.1e-5)
    half = MessageGuarantee(epsilon=math.inf, shows=0.12345612)
    assert "up to 0.123457." in str(half)
