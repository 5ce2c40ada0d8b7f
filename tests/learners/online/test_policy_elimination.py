"""Stages, enumeration, elimination: SDP-PE and APEVE."""

import dataclasses
import itertools
import math
import pickle
from contextlib import closing

import numpy as np
import pytest
from staged import batches

import discreet as dr
from discreet import envs
from discreet.audit.conformance import small_world
from discreet.core.layout import Layout
from discreet.core.rng import Seeded
from discreet.core.session import ChannelSession
from discreet.envs.mdp.tabular import TabularMDP
from discreet.experiments import simulate
from discreet.experiments.simulate import Setup
from discreet.learners.estimation.tabular_model import ErrorBounds
from discreet.learners.online import elimination_schedule as stages
from discreet.learners.online.elimination_schedule import StageModel
from discreet.learners.online.policy_elimination import APEVE, SDPPE, Enumeration, absorbing
from discreet.mechanisms.batch_queries import BatchChannel
from discreet.mechanisms.interfaces import ProblemSpec
from discreet.mechanisms.policy_rows import policy_rows
from discreet.utils.random_streams_kernels import run_key


def problem(seed, layout, fixed=True, missing=0.0):
    """Transitions (H, R, S) (rows may lack mass), rewards (H, R), the first state's law."""
    g = np.random.default_rng(seed)
    shape = (layout.horizon, layout.rows)
    p = g.dirichlet(np.ones(layout.states), size=shape) * (1.0 - missing * g.random((*shape, 1)))
    start = np.eye(layout.states)[0] if fixed else g.dirichlet(np.ones(layout.states))
    return p, g.random(shape), start


def value_of(rows, p, r, start):
    v = np.zeros(p.shape[2])
    for h in range(len(rows) - 1, -1, -1):
        v = r[h, rows[h]] + p[h, rows[h]] @ v
    return float(start @ v)


def test_too_many_policies_are_counted():
    setup = dr.make("riverswim"), SDPPE(), dr.NoPrivacy(), 10**6
    with pytest.raises(ValueError, match=r"max_policies = 1048576: .* about 1e34 .*use sdp-pe-om"):
        Setup(*setup)
    with pytest.raises(ValueError, match=r"max_policies = 31: this problem has 32 deterministic policies"):
        Enumeration.of(Layout(2, 2, 3), np.array([1.0, 0.0]), 31)


def test_absorbing_model_is_that_with_an_end_state():
    """Rows with mass missing are the printed ones: S + 1 states, the last for ever and worth nothing."""
    layout = Layout(3, 2, 4)
    p, r, start = problem(3, layout, fixed=False)
    rare = np.random.default_rng(0).random(p.shape) < 0.4
    short = absorbing(p, rare)
    everyone = Enumeration.of(layout, start)
    end = np.zeros((layout.horizon, layout.rows + 1, layout.states + 1))
    end[:, :-1, :-1] = np.where(rare, 0.0, p)
    end[:, :-1, -1] = 1.0 - end[:, :-1, :-1].sum(axis=-1)
    end[:, -1, -1] = 1.0
    np.testing.assert_allclose(end.sum(axis=-1), 1.0, atol=1e-14)
    paid = np.pad(r, [(0, 0), (0, 1)])
    found, plain = everyone.values(short, r), everyone.values(p, r)
    for i in range(0, everyone.count, 97):
        rows = np.pad(everyone.rows(i), [(0, 0), (0, 1)], constant_values=layout.rows)
        assert found[i] == pytest.approx(value_of(rows, end, paid, np.append(start, 0.0)), abs=1e-13)
    assert (found <= plain + 1e-14).all()
    for h in range(layout.horizon):  # visits too, for every policy: that is what the proof reads
        for row in range(layout.rows):
            there = np.zeros_like(r)
            there[h, row] = 1.0
            assert (everyone.values(short, there) <= everyone.values(p, there) + 1e-14).all()


# ------------------------------------------------------------------------------------- stages


@pytest.mark.parametrize("make", [SDPPE, APEVE, dr.learners.SDPPEOM])
@pytest.mark.parametrize("options", [{}, {"initial": 3}, {"explore_share": 0.3, "initial": 7}])
@pytest.mark.parametrize("sizes", [(2, 2, 3), (1, 1, 1), (1, 2, 1)])
def test_the_least_number_of_users(make, options, sizes):
    """Also where T^(1) of APEVE, the square root of K, is more than may explore."""
    states, actions, horizon = sizes
    mdp = envs.random_mdp(states=states, actions=actions, horizon=horizon, seed=0, rewarding=1)
    learner = make(**options)
    least = learner.least_users(ProblemSpec(mdp.layout))
    assert Setup(mdp, learner, dr.NoPrivacy(), least).schedule.release_times.size > 1
    with pytest.raises(ValueError, match=f"episodes = {least - 1}: must be at least {least} users for one"):
        Setup(mdp, learner, dr.NoPrivacy(), least - 1)


def test_no_fewer_users_would_do():
    """Also where a quotient is rounded: 168 / 0.7 is above 240 in floating point."""
    for share in (0.05, 0.07, 0.2, 0.3, 0.7, 1.0):
        for initial in (1, 3, 7, 49):
            learner = SDPPE(explore_share=share, initial=initial)
            for sizes in ((1, 1, 1), (2, 2, 3), (5, 3, 7)):
                least = learner.least_users(ProblemSpec(Layout(*sizes)))
                one = 2 * math.prod(sizes) * initial
                assert learner._explorers(least) >= one > learner._explorers(least - 1)


def test_what_must_be_public():
    layout = Layout(2, 2, 3)
    start, rewards = np.array([1.0, 0.0]), np.zeros((3, 2, 2))
    with pytest.raises(ValueError, match="users = None"):
        SDPPE().sizes(ProblemSpec(layout, None, initial=start))
    with pytest.raises(ValueError, match=r"spec\.initial = None"):
        SDPPE().schedule(ProblemSpec(layout, 10**5))
    with pytest.raises(ValueError, match="known_rewards = True"):
        APEVE().schedule(ProblemSpec(layout, 10**5, initial=start))
    assert APEVE().schedule(ProblemSpec(layout, 10**5, known_rewards=rewards, initial=start)).queries
    with pytest.raises(ValueError, match="initial.*sums to"):
        ProblemSpec(layout, 5, initial=[0.5, 0.4])


def test_bad_options_are_refused():
    for options, message in (
        ({"initial": 0}, "initial = 0"),
        ({"explore_share": 0.0}, "explore_share = 0"),
        ({"stages": "tripling"}, "stages = 'tripling'"),
        ({"elimination": "luck"}, "elimination = 'luck'"),
        ({"C_1": -1.0}, "C_1 = -1"),
        ({"failure": 1.0}, "failure = 1"),
        ({"known_rewards": True, "center_rewards": True}, "center_rewards = True"),
    ):
        with pytest.raises(ValueError, match=message):
            SDPPE(**options)


def test_each_user_is_in_one_batch_with_its_query():
    mdp = envs.random_mdp(states=2, actions=2, horizon=3, seed=1, rewards="bernoulli")
    setup = Setup(mdp, SDPPE(preset="theory", initial=5), dr.NoPrivacy(), 3000, "batch")
    sizes = setup.learner.sizes(setup.spec)
    seen = batches(setup)
    assert sum(plan.users for one in seen for plan in one.plans) == 3000
    assert len(seen) == 4 * len(sizes) + 1
    for i, one in enumerate(seen[:-1]):
        stage, batch = divmod(i, 4)
        query = setup.schedule.queries[i]
        pairs = mdp.layout.rows * (1 if batch < 3 else 3)
        assert query.step == (batch if batch < 3 else None)
        assert sum(plan.users for plan in one.plans) == sizes[stage] * pairs
        assert len({plan.policy.tobytes() for plan in one.plans}) == len(one.plans)
        assert [plan.last for plan in one.plans] == [False] * (len(one.plans) - 1) + [True]
    crude, fine = setup.schedule.queries[0], setup.schedule.queries[3]
    assert crude.sensitivity("l1", {"transition_counts": 1.0}) == 2.0
    assert fine.sensitivity("l1", {"transition_counts": 1.0}) == 6.0


# ------------------------------------------------------------------------------- widths and models
def test_widths_bound_every_policys_error():
    """|V^pi(r, P) - V^pi(r~, P~)| <= V^pi(w, P~) with w = |r - r~| + G / 2 |P - P~|_1."""
    layout = Layout(3, 2, 4)
    p, r, start = problem(5, layout)
    later = np.arange(3, -1, -1.0)[:, None]
    everyone = Enumeration.of(layout, start)
    for seed in range(5):
        p_hat, r_hat, _ = problem(50 + seed, layout)
        p_hat = p + 0.3 * (p_hat - p)
        w = np.abs(r - r_hat) + 0.5 * later * np.abs(p - p_hat).sum(axis=-1)
        w = np.minimum(w, later + 1.0)
        error = np.abs(everyone.values(p, r) - everyone.values(p_hat, r_hat))
        assert (error <= everyone.values(p_hat, w) + 1e-12).all()


# --------------------------------------------------------------------------------------- runs
def world(seed):
    return envs.random_mdp(states=2, actions=2, horizon=3, seed=seed, rewards="bernoulli")


def optimal(setup):
    """Values of all policies in the true world."""
    mdp = setup.mdp
    everyone = setup.learner.enumeration(setup.spec)
    tables = (
        np.broadcast_to(table, (mdp.horizon, *table.shape[1:])) for table in (mdp.transitions, mdp.rewards)
    )
    return everyone.values(*(mdp.layout.to_rows(table) for table in tables))


def test_sets_shrink_and_keep_the_best():
    """As in the specification for (2, 2, 3), m_0 = 64, scale .1, 40 000 users: who is left is good."""
    for seed in range(50):
        setup = Setup(
            world(seed),
            SDPPE(initial=64, width_scale=0.1, explore_share=1.0),
            dr.NoPrivacy(),
            40_000,
            "batch",
        )
        values = optimal(setup)
        seen = batches(setup, seed)
        sets = [one.memory.active for one in seen]
        for before, after in itertools.pairwise(sets):
            assert not (after & ~before).any()
            assert after.any()
        assert sets[0].all()
        assert sets[-1][np.argmax(values)]
        assert values[sets[-1]].min() > values.max() - 0.2
        assert sets[-1].sum() <= 12
        assert len(seen[-1].plans) == 1  # who comes last follows one policy, of the set
        assert sets[-1][seen[-1].memory.best]


def test_theory_width_needs_many_users():
    setup = Setup(world(0), SDPPE(preset="theory", initial=64), dr.NoPrivacy(), 1_600_000, "batch")
    sizes = [int(one.memory.active.sum()) for one in batches(setup)[::4]]
    assert sizes[:3] == [32] * 3
    assert sizes[3] > 24
    assert len(sizes) == 11
    assert sizes[-1] <= 12


def test_elimination_by_theory():
    """xi_b by hand; with the paper's C = 1 it is far above H, with a tiny C only the best policy is left."""
    setup = Setup(world(0), SDPPE(preset="paper", initial=64), dr.NoPrivacy(), 40_000, "batch")
    iota = math.log(2 * 3 * 2 * 40_000 / 0.05)
    length = 12 * 64
    xi = math.sqrt(3**5 * 4 * 2 * iota / length) + 8 * 4 * 3**5 * iota / length
    assert setup.learner._radius(setup.spec, 0.0, 64) == pytest.approx(xi)
    assert setup.learner._threshold(setup.spec, 0.0) == pytest.approx(6 * 9 * iota)
    assert setup.learner._threshold(setup.spec, 1.5) == pytest.approx(6 * 2 * 9 * iota)
    assert setup.learner._threshold(setup.spec, 7.0) == pytest.approx(6 * 7 * 9 * iota)
    assert xi > 3
    assert all(one.memory.active.all() for one in batches(setup))
    strict = dataclasses.replace(setup.learner, C=1e-9, C_1=0.0)
    sets = [
        one.memory.active.sum() for one in batches(Setup(world(0), strict, dr.NoPrivacy(), 40_000, "batch"))
    ]
    assert sets[0] == 32
    assert 1 <= sets[-1] < 32


@pytest.mark.parametrize("C_1", [0.02])
def test_threshold_follows_the_noise(C_1):
    """W is what was seen less often than C_1 E H^2 iota, with the released E of each batch."""
    learner = SDPPE(initial=2000, C_1=C_1)
    setup = Setup(world(3), learner, dr.Central(epsilon=1.0, delta=1e-6), 500_000, "batch")
    seen = batches(setup, 1)
    share = 0.05 / (len(learner.sizes(setup.spec)) * 4)
    for i in (1, 2, 3):
        model = StageModel.of(seen[i].release, setup.spec, 0.05, False)
        alone = {n: dataclasses.replace(e.law, share=1.0) for n, e in seen[i].release.estimates.items()}
        errors = ErrorBounds("quantile", share).of(alone, setup.spec.layout, 500_000)  # shared once
        assert model.width == pytest.approx(4 * max(errors[0], errors[2]))
        assert seen[i].memory.width >= model.width
        assert i > 1 or seen[i].memory.width == model.width
        assert model.width > 2
        limit = learner._threshold(setup.spec, model.width)
        rare = model.counts[0] < limit
        assert rare.any()
        assert not rare.all()
        np.testing.assert_array_equal(seen[i].memory.rare[i - 1], rare)
        np.testing.assert_array_equal(seen[i].memory.crude[i - 1], np.where(rare, 0.0, model.transitions[0]))


@pytest.mark.parametrize("elimination", ["data", "theory"])
@pytest.mark.parametrize("known", [True, False])
def test_noise_off_equals_apeve(elimination, known):
    options = {
        "stages": "doubling", "known_rewards": known, "center_rewards": False, "elimination": elimination,
        "C": 0.01, "initial": 16, "explore_share": 0.7, "C_1": 0.1,
    }  # fmt: skip
    runs = [Setup(world(4), make(**options), dr.NoPrivacy(), 20_000, "batch") for make in (SDPPE, APEVE)]
    ours, theirs = (batches(setup, 5) for setup in runs)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine.memory.active, other.memory.active)
        for a, b in zip(mine.plans, other.plans, strict=True):
            assert a.users == b.users
            np.testing.assert_array_equal(a.policy, b.policy)
    assert runs[0].run(5, 0).regret.tobytes() == runs[1].run(5, 0).regret.tobytes()
    assert ours[-1].memory.active.sum() < 32


def test_apeve_has_few_stages():
    setup = Setup(world(4), APEVE(preset="paper"), dr.NoPrivacy(), 10**6, "batch")
    assert setup.schedule.queries[-1].known_rewards
    assert len(setup.learner.sizes(setup.spec)) == 4
    assert setup.schedule.release_times[-1] > 10**6 - 25


def test_masked_world_with_a_random_first_state():
    """Policies are admissible; the first state's law is a proper distribution."""
    mdp = small_world()
    setup = Setup(mdp, SDPPE(initial=50), dr.Central(epsilon=2.0, delta=1e-6), 200_000, "batch")
    seen = batches(setup)
    assert setup.learner.enumeration(setup.spec).count == 4**3
    for one in seen:
        for plan in one.plans:
            policy_rows(mdp.layout, plan.policy)
    values = optimal(setup)
    assert seen[-1].memory.active[np.argmax(values)]


def test_summary_says_what_is_heuristic():
    assert "width_scale = 0.03 is below 1" in SDPPE().summary()
    paper = SDPPE(preset="paper").summary()
    assert "does not name" in paper
    assert "below" not in paper
    assert "its guarantee holds" in paper
    assert stages.MOST_INITIAL == 64


def test_one_pair_only():
    """A world without a choice: one policy, no regret."""
    mdp = TabularMDP(np.ones((1, 1, 1)), np.full((1, 1), 0.5), horizon=2)
    result = dr.simulate(mdp, SDPPE(), dr.NoPrivacy(), 1000, seeds=1)
    assert result.regret[:, -1].max() == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("make", [SDPPE, dr.learners.SDPPEOM])
def test_plans_of_a_batch_are_submitted_together(make, monkeypatch):
    """Where no device's part depends on its plan: the same sums, and a joint run is the same bit for bit."""
    learner, submitted, calls = make(initial=20), {}, []
    setup = Setup(world(2), learner, dr.Central(epsilon=1.0, delta=1e-6), 20_000, "batch")
    session = setup.start(dr.Seeded(0))
    plain = type(session)
    assert isinstance(session, ChannelSession)
    assert isinstance(session.channel, BatchChannel) == (make is SDPPE)
    whole = plain.submit_sum

    def watched(self, sums, users):
        if type(self.channel) is type(session.channel):  # and no session of a batch inside it
            calls.append(users)
        whole(self, sums, users)

    monkeypatch.setattr(plain, "submit_sum", watched)
    for together in (True, False):
        calls.clear()
        if not together:
            monkeypatch.setattr(simulate, "_added_at_once", lambda *_: False)
        submitted[together] = setup.run(3, 0), tuple(calls)
    ends = setup.schedule.release_times[1:]
    for run, users in submitted.values():
        assert set(ends.tolist()) <= set(np.cumsum(users).tolist())
        assert run.regret.tobytes() == submitted[True][0].regret.tobytes()
    assert len(submitted[True][1]) <= 2 * ends.size + 1 < len(submitted[False][1])


def test_what_devices_add_is_drawn_for_the_crowd():
    """Shuffle: 4 000 users of one plan or of many have noise of the same law; local devices stay apart."""
    for privatizer, expected in (
        (dr.NoPrivacy(), True),
        (dr.Shuffle(epsilon=4.0, delta=1e-6), True),
        (dr.Shuffle(epsilon=4.0, delta=1e-6, randomizer="amplified"), False),
        (dr.Local(epsilon=4.0), False),
    ):
        setup = Setup(world(2), SDPPE(initial=500), privatizer, 200_000, "batch")
        with closing(setup.start(Seeded(1, 0))) as session:
            plan, _ = setup.learner.plan(setup.learner.begin(setup.spec, run_key(1)), session.release())
            session.begin(plan)
            assert simulate._added_at_once(setup, session) is expected


@pytest.mark.parametrize("make", [SDPPE, APEVE, dr.learners.SDPPEOM])
def test_state_is_a_function_of_releases(make):
    """Read again from releases alone, through pickles: the same plans, and the same state to the byte."""
    privatizer = dr.NoPrivacy() if make is APEVE else dr.Central(epsilon=3.0, delta=1e-6)
    setup = Setup(world(5), make(initial=20), privatizer, 20_000, "batch")
    seen = batches(setup, 2)
    state = setup.learner.begin(setup.spec, Seeded(2, 0).keys.ties)
    for one in seen:
        for plan in one.plans:
            state = pickle.loads(pickle.dumps(state))
            again, state = setup.learner.plan(state, one.release)
            assert (again.users, again.last) == (plan.users, plan.last)
            np.testing.assert_array_equal(again.policy, plan.policy)
        assert pickle.dumps(state.memory) == pickle.dumps(pickle.loads(pickle.dumps(one.memory)))
    with pytest.raises(ValueError, match="its last plan was handed out already"):
        setup.learner.plan(state, seen[-1].release)
