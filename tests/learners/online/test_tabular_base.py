"""The learner protocol: presets and knobs, schedules, sub-batches, purity, noise-off equality."""

import pickle
from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pytest

from discreet.accounting.noise_distributions.distributions import NoNoise
from discreet.core.layout import Layout
from discreet.core.rng import Seeded
from discreet.learners.online import tabular_planning_kernels as kernels
from discreet.learners.online.ldp_obi import LDPOBI
from discreet.learners.online.policy_optimization import OPPO, PrivateUCBPO
from discreet.learners.online.pucb import PUCB
from discreet.learners.online.tabular_base import GROWTH, PLAIN_GROWTH
from discreet.learners.online.ucbvi import DPUCBVI, UCBVI, PrivateUCBVI
from discreet.mechanisms.interfaces import Estimate, Learner, ProblemSpec, Release
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.local import Local
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy

TIES = np.array([5, 6], np.uint64)
ALL = [UCBVI, PrivateUCBVI, DPUCBVI, OPPO, PrivateUCBPO, PUCB, LDPOBI]
GREEDY = [UCBVI, PrivateUCBVI, DPUCBVI, PUCB, LDPOBI]
NOISE_AWARE = [PrivateUCBVI, DPUCBVI, PrivateUCBPO, PUCB, LDPOBI]
CONFIGURED = [(cls, preset) for cls in ALL for preset in cls.PRESETS]
BERNSTEIN = [{"bonus": "bernstein", "preset": preset} for preset in UCBVI.BERNSTEIN_PRESETS]
SPEC = ProblemSpec(Layout(4, 3, 4), 1000, stationary=True)


def built():
    yield from (cls(preset=preset) for cls, preset in CONFIGURED)
    yield from (UCBVI(**options) for options in BERNSTEIN)


def fits(learner, problem, **options):
    """A problem and a release of the families that this learner asks for."""
    setting = problem(slots=1 if learner.stationary else None, **options)
    release = setting.release(**{})
    return setting, release


# ------------------------------------------------------------------------------- presets, knobs


@pytest.mark.parametrize("learner", list(built()), ids=repr)
def test_every_preset_makes_a_learner(learner, problem):
    assert isinstance(learner, Learner)
    assert all(getattr(learner, name) is not None for name in type(learner).PRESETS["default"])
    setting, release = fits(learner, problem)
    kernel = learner.kernel(setting.spec)
    assert np.isfinite(kernel.knobs).all()
    assert (kernel.knobs >= 0).all()
    plan, state = learner.plan(learner.begin(setting.spec, TIES), release)
    assert np.isfinite(state.q).all()
    assert state.memory.shape == (learner.memory_size(setting.spec),)
    shape = (4, 4, 3) if learner.stochastic else (4, 4)
    assert plan.policy.shape == shape
    assert learner.query(setting.spec).slots == (1 if learner.stationary else 4)


@pytest.mark.parametrize("cls", ALL)
def test_a_given_option_wins_and_the_rest_is_the_presets(cls):
    paper = cls(preset="paper")
    assert paper.stat_const == "theory"
    mixed = cls(preset="paper", stat_const=0.25, failure=0.1)
    assert mixed.stat_const == 0.25
    assert mixed.failure == 0.1
    assert mixed.constants == paper.constants
    assert cls().stat_const != "theory"


def test_paper_presets_are_the_published_settings():
    paper = PrivateUCBVI(preset="paper")
    assert (paper.post, paper.form, paper.cap, paper.constants) == ("raw", "cost", "H", "published")
    assert not paper.derive_visits
    assert not paper.center_rewards
    paper = DPUCBVI(preset="paper")
    assert (paper.post, paper.cap, paper.monotone, paper.corr_const) == ("lp", "H", True, 1000.0)
    assert paper.noise_failure == pytest.approx(paper.failure / 3)
    assert UCBVI(preset="paper").constants == "azar"
    assert UCBVI(preset="paper", bonus="bernstein").corr_const == 100.0
    assert OPPO(preset="paper").constants == "efroni"
    spec = ProblemSpec(Layout(6, 2, 20), 20_000)
    eta = PrivateUCBPO(preset="paper").kernel(spec).knobs[kernels.ETA]
    assert eta == pytest.approx(np.sqrt(2 * np.log(2) / (400 * 20_000)))
    # iota = 26.386 for failure = 0.01 on RiverSwim (specification, 7.3)
    knobs = DPUCBVI(preset="paper", failure=0.01).kernel(spec).knobs
    assert knobs[kernels.OUTER] ** 2 / 2 == pytest.approx(26.386, abs=1e-3)


@pytest.mark.parametrize(
    ("cls", "options", "message"),
    [
        (DPUCBVI, {"preset": "papers"}, "preset = 'papers': must be one of 'default', 'theory', 'paper'"),
        (UCBVI, {"bonus": "azar"}, "bonus = 'azar': must be one of 'hoeffding', 'bernstein'"),
        (UCBVI, {"preset": "honest", "bonus": "bernstein"}, "preset = 'honest'"),
        (UCBVI, {"corr_scale": 0.5}, "corr_scale = 0.5: is an option of bonus='bernstein' only"),
        (UCBVI, {"constants": "efroni"}, "constants = 'efroni': must be one of 'tight', 'published', 'azar'"),
        (PrivateUCBVI, {"constants": "azar"}, "constants = 'azar': must be one of 'tight', 'published'"),
        (PrivateUCBVI, {"cap": "h"}, "cap = 'h': must be one of 'H-h.1', 'H', 'none'"),
        (PrivateUCBVI, {"post": "none"}, "post = 'none': must be one of 'raw', 'lp'"),
        (PrivateUCBVI, {"form": "loss"}, "form = 'loss'"),
        (PrivateUCBVI, {"missing_mass": True}, "missing_mass = True"),
        (PrivateUCBVI, {"E_mode": "std"}, "E_mode = 'std': must be one of 'quantile', 'sd', 'published'"),
        (PrivateUCBVI, {"E_z": 0.0}, "E_z = 0.0"),
        (PrivateUCBVI, {"priv_scale": -1.0}, "priv_scale = -1.0"),
        (PrivateUCBVI, {"noise_failure": 1.0}, "noise_failure = 1.0"),
        (DPUCBVI, {"corr_const": float("nan")}, "corr_const = nan"),
        (UCBVI, {"bonus_scale": -0.1}, "bonus_scale = -0.1"),
        (UCBVI, {"stat_const": "big"}, "stat_const = 'big'"),
        (UCBVI, {"failure": 0.0}, "failure = 0.0"),
        (UCBVI, {"monotone": 1}, "monotone = 1: must be true or false"),
        (UCBVI, {"tie_break": "last"}, "tie_break = 'last': must be one of 'random', 'first'"),
        (UCBVI, {"tie_batches": 0}, "tie_batches = 0"),
        (UCBVI, {"replan_every": 0}, "replan_every = 0"),
        (UCBVI, {"replan_growth": 0.9}, "replan_growth = 0.9"),
        (UCBVI, {"replan_every": 5, "replan_growth": 1.1}, "must not be given together with replan_every"),
        (UCBVI, {"known_rewards": True, "center_rewards": True}, "must be false when known_rewards is true"),
        (OPPO, {"eta": -1.0}, "eta = -1.0"),
        (LDPOBI, {"alpha": 0.5}, "alpha = 0.5"),
    ],
)
def test_bad_options_are_named(cls, options, message):
    with pytest.raises(ValueError, match=message):
        cls(**options)


@pytest.mark.parametrize("cls", ALL)
def test_what_the_problem_does_not_declare_is_refused(cls):
    spec = ProblemSpec(Layout(4, 3, 4), 100)
    with pytest.raises(ValueError, match="stationary = True: must be false"):
        cls(stationary=True).query(spec)
    with pytest.raises(ValueError, match="known_rewards = True: must be false"):
        cls(known_rewards=True, center_rewards=False).schedule(spec)


@pytest.mark.parametrize("cls", ALL)
def test_summary_says_what_voids_the_theorem(cls):
    assert "does not cover" in cls().summary()
    assert "stat_const = 0.1" in cls(stat_const=0.1).summary()
    assert "The options are those of the regret theorem." in cls(preset="theory").summary()
    assert "several users follow one policy" in cls(preset="theory", replan_growth=1.1).summary()
    assert "bonus_scale = 0.5 is below 1" in cls(preset="theory", bonus_scale=0.5).summary()


def test_baselines_ignore_the_noise_law(problem):
    noisy = problem().laws
    for cls in ALL:
        expected = cls in (UCBVI, OPPO)
        assert cls.ignores_noise is expected
        assert cls().errors(noisy, SPEC).any() != expected


# ------------------------------------------------------------------------ schedules, sub-batches


@pytest.mark.parametrize(
    "options",
    [{}, {"replan_every": 7}, {"replan_every": 2000}, {"replan_growth": 1.1}, {"replan_growth": 2.0}],
)
@pytest.mark.parametrize("users", [1, 2, 50, 999])
def test_plans_cover_every_batch_of_the_schedule(options, users, problem):
    learner = UCBVI(**options)
    setting = problem(users=users)
    times = learner.schedule(setting.spec).release_times
    assert times[0] == 0
    ends = np.append(times[1:], users)
    state, followed = learner.begin(setting.spec, TIES), 0
    for number, (begin, end) in enumerate(zip(times, ends, strict=True)):
        release = setting.release(number=number, users=int(begin))
        sizes, last = [], False
        while not last:
            plan, state = learner.plan(state, release)
            sizes.append(plan.users)
            last = plan.last
        length = int(end - begin)
        parts = learner.tie_batches
        assert sizes == [
            length * (j + 1) // parts - length * j // parts
            for j in range(parts)
            if length * (j + 1) // parts > length * j // parts
        ]
        followed += sum(sizes)
        with pytest.raises(ValueError, match="handed out already"):
            learner.plan(state, release)
    assert followed == users


# ------------------------------------------------------------------------------- when they release

EVERY = [*((cls, {}) for cls in ALL), (UCBVI, {"bonus": "bernstein"})]
PRIVACIES = [
    Central(epsilon=1.0), Central(epsilon=1.0, delta=1e-6), Central(epsilon=1.0, release="tree"),
    Central(epsilon=1.0, release="tree", leaf="user"), Central(mu=0.3, release="square-root"),
    Central(epsilon=1.0, release="tree", tree_estimate="optimal"), Central(epsilon=1.0, release="batches"),
    Central(epsilon=2.0, release="signed-digits"), Local(epsilon=2.0),
    Local(epsilon=2.0, randomizer="laplace"),
]  # fmt: skip


@pytest.mark.parametrize(("cls", "options"), EVERY)
def test_users_share_a_release_unless_the_paper_or_every_user_is_asked_for(cls, options):
    learner, private = cls(**options), replace(SPEC, budget=Central(epsilon=1.0).budget)
    assert learner.schedule(private).growth == learner.schedule(SPEC).growth == GROWTH == 1.1
    assert learner.schedule(replace(SPEC, budget=NoPrivacy().budget)).growth == PLAIN_GROWTH == 1.02
    assert learner.schedule(replace(SPEC, users=None)).growth == GROWTH
    assert learner.schedule(private).release_times.size == 55
    assert "several users follow one policy: growth 1.1, without privacy 1.02 (" in learner.summary()
    assert "several users follow one policy (" in cls(replan_growth=1.3, **options).summary()
    for each in (
        cls(preset="paper", **options), cls(preset="theory", **options), cls(replan_every=1, **options),
        replace(learner, replan_every=1),
    ):  # fmt: skip
        for spec in (SPEC, private):
            assert each.schedule(spec).release_times.tolist() == list(range(1000))
            assert each._batch(500, spec) == 1
        assert "several users" not in each.summary()
    assert replace(learner, replan_growth=1.5).schedule(private).growth == 1.5
    assert learner._batch(500, private) == 50


@pytest.mark.parametrize("privatizer", PRIVACIES, ids=repr)
def test_fewer_releases_keep_the_guarantee_and_need_no_more_noise(privatizer):
    spec = ProblemSpec(Layout(3, 2, 2), 400, budget=privatizer.budget)
    made = []
    for learner in (DPUCBVI(replan_every=1), DPUCBVI()):
        schedule = learner.schedule(spec)
        mechanism = privatizer.mechanism(learner.query(spec), schedule, Seeded(0))
        laws = [mechanism.laws_at(users) for users in schedule.release_times[1:].tolist()]
        noise = max(sum(one.std() ** 2 for one in law.values()) for law in laws)  # families share the budget
        made.append((mechanism.guarantee, noise))
    (each, most), (scheduled, noise) = made
    assert (scheduled.trust, scheduled.delta) == (each.trust, each.delta)
    spent = [one.mu if one.epsilon is None else one.epsilon for one in (scheduled, each)]
    assert spent[0] == pytest.approx(spent[1], rel=1e-9)
    assert noise <= most * (1 + 1e-9)


def test_default_sub_batches():
    assert UCBVI().tie_batches == 4  # several users follow a release by default
    assert UCBVI(replan_every=1).tie_batches == UCBVI(preset="paper").tie_batches == 1
    assert UCBVI(replan_growth=1.1).tie_batches == 4
    assert UCBVI(replan_every=10, tie_break="first").tie_batches == 1
    assert UCBVI(replan_growth=1.1, tie_batches=2).tie_batches == 2
    assert OPPO(replan_growth=1.1).tie_batches == 1
    assert UCBVI(preset="honest", replan_growth=1.3).replan_every == 1


def test_users_unknown(problem):
    spec = ProblemSpec(Layout(4, 3, 4), None)
    setting = problem()
    for options, length in (({}, 1), ({"replan_every": 5}, 5), ({"replan_growth": 1.5}, 20)):
        for cls in (DPUCBVI, PrivateUCBPO):
            learner = cls(preset="theory", **options)
            assert learner.schedule(spec).users is None
            parts, state = 0, learner.begin(spec, TIES)
            release = setting.release(number=3, users=40)
            while parts < length:
                plan, state = learner.plan(state, release)
                parts += plan.users
            assert parts == length
            assert plan.last


# ------------------------------------------------------------------------------- purity, ties


def carried(state):
    """What a state holds, as bytes (its spec caches what follows from the layout)."""
    return pickle.dumps([getattr(state, f.name) for f in fields(state) if f.name != "spec"])


@pytest.mark.parametrize("cls", ALL)
def test_plan_is_a_pure_function_of_its_arguments(cls, problem):
    setting = problem(seed=3)
    learner = cls()
    first = learner.begin(setting.spec, TIES)
    frozen = carried(first)
    releases = [setting.release(number=i, users=i) for i in range(3)]
    runs = []
    for _ in range(2):
        state, policies = first, []
        for release in releases:
            before = carried(state)
            plan, after = learner.plan(state, release)
            assert carried(state) == before
            policies.append(plan.policy)
            state = pickle.loads(pickle.dumps(after))  # what it carries is plain data
        runs.append(policies)
    assert carried(first) == frozen
    for a, b in zip(*runs, strict=True):
        np.testing.assert_array_equal(a, b)


def test_actions_with_the_same_data_tie_exactly(problem):
    # Two actions with the same counts are equal to the last bit, so that ties are found.
    setting = problem(seed=1)
    tables = {k: v.copy() for k, v in setting.tables.items()}
    for table in tables.values():
        table[:, :, 1] = table[:, :, 0]
    release = Release({k: Estimate(v, setting.laws[k]) for k, v in tables.items()}, 5, 1, SimpleNamespace())
    for cls in GREEDY:
        learner = cls()
        q = learner.plan(learner.begin(setting.spec, TIES), release)[1].q.reshape(4, 4, 3)
        np.testing.assert_array_equal(q[:, :, 0], q[:, :, 1])


# ------------------------------------------------------------------------- noise-off equality


def stream(problem, learner, laws=None, shake=0.0, releases=12):
    """Real counts of an arbitrary behaviour, released in the learner's families."""
    layout, spec = problem.layout, problem.spec
    g = np.random.default_rng(21)
    n = np.zeros((4, 4, 3))
    n3, r = np.zeros((4, 4, 3, 4)), np.zeros((4, 4, 3))
    query = learner.query(spec)
    out = []
    for number in range(releases):
        tables = {"visits": n, "transition_counts": n3, "reward_sums": r, "centered_reward_sums": r - n / 2}
        noise = lambda x: x + shake * g.uniform(-1, 1, x.shape) * (number > 0)  # noqa: B023, E731
        kept = {k: noise(tables[k]) for k in query.families}
        estimates = {k: Estimate(v, laws[k] if laws and number else NoNoise()) for k, v in kept.items()}
        out.append(Release(estimates, number * 40, number, SimpleNamespace()))
        n, n3, r = n.copy(), n3.copy(), r.copy()
        for _ in range(40):
            s = g.integers(4)
            for h in range(layout.horizon):
                a = g.integers(3)
                after = g.choice(4, p=problem.transitions[h, s, a])
                n[h, s, a] += 1
                n3[h, s, a, after] += 1
                r[h, s, a] += float(g.random() < problem.rewards[h, s, a])
                s = after
    return out


SAME = [
    (PrivateUCBVI, {}, UCBVI, {}),
    (PrivateUCBVI, {"post": "raw"}, UCBVI, {}),
    (PrivateUCBVI, {"preset": "theory"}, UCBVI, {"preset": "theory"}),
    (PrivateUCBVI, {"preset": "theory", "post": "raw", "monotone": True}, UCBVI,
     {"preset": "theory", "monotone": True}),
    (DPUCBVI, {}, UCBVI, {"bonus": "bernstein"}),
    (DPUCBVI, {"preset": "theory"}, UCBVI, {"bonus": "bernstein", "preset": "theory"}),
    (PrivateUCBPO, {}, OPPO, {}),
    (PrivateUCBPO, {"preset": "theory", "post": "raw"}, OPPO, {"preset": "theory"}),
]  # fmt: skip


@pytest.mark.parametrize(("private", "options", "plain", "plain_options"), SAME)
def test_without_noise_the_private_learner_is_the_baseline_bit_for_bit(
    private, options, plain, plain_options, problem
):
    setting = problem(seed=2)
    a, b = private(**options), plain(**plain_options)
    left, right = a.begin(setting.spec, TIES), b.begin(setting.spec, TIES)
    for release in stream(setting, a):
        one, left = a.plan(left, release)
        two, right = b.plan(right, release)
        np.testing.assert_array_equal(left.q, right.q)
        np.testing.assert_array_equal(left.values, right.values)
        np.testing.assert_array_equal(one.policy, two.policy)


@pytest.mark.parametrize(("private", "options", "plain", "plain_options"), SAME)
def test_tiny_noise_is_a_tiny_change(private, options, plain, plain_options, problem, bounded):
    # As at epsilon = 1e12, along one stream of data; tables, not policies: tiny noise breaks ties.
    setting = problem(seed=2)
    options = {**options, "E_mode": "quantile"}
    a, b = private(**options), plain(**plain_options)
    tiny = bounded(1e-7, 1e-6)
    names = ("visits", "transition_counts", "reward_sums", "centered_reward_sums")
    left, right = a.begin(setting.spec, TIES), b.begin(setting.spec, TIES)
    noisy, exact = stream(setting, a, dict.fromkeys(names, tiny), 1e-7), stream(setting, a)
    for shaken, quiet in zip(noisy, exact, strict=True):
        _, left = a.plan(left, shaken)
        _, right = b.plan(right, quiet)
        np.testing.assert_allclose(left.q, right.q, rtol=0, atol=1e-3)


# ------------------------------------------------------------------------------- invariants


@pytest.mark.parametrize("cls", GREEDY)
@pytest.mark.parametrize("cap", ["H-h+1", "H"])
def test_values_stay_in_range_and_monotone_ones_never_rise(cls, cap, problem):
    setting = problem(seed=6, most=100.0)
    learner = cls(cap=cap, monotone=True)
    top = np.arange(4, 0, -1.0)[:, None] if cap == "H-h+1" else np.full((4, 1), 4.0)
    state = learner.begin(setting.spec, TIES)
    before = np.full((5, 4), np.inf)
    g = np.random.default_rng(0)
    for number in range(20):
        release = setting.release(number=number, users=number)
        for estimate in release.estimates.values():
            shaken = estimate.value * number + g.uniform(-40, 40, estimate.value.shape)
            object.__setattr__(estimate, "value", shaken)
        _, state = learner.plan(state, release)
        assert (state.values >= 0).all()
        assert (state.values[:-1] <= top).all()
        assert (state.values[-1] == 0).all()
        assert (state.values <= before).all()
        before = state.values


def test_pooled_counts_are_read_as_every_step(problem):
    # A pooled release and the same table at every step give one model: Q differs only by the constants.
    pooled = problem(seed=8, slots=1)
    tables = {k: np.repeat(v, 4, axis=0) for k, v in pooled.tables.items()}
    full = Release({k: Estimate(v, pooled.laws[k]) for k, v in tables.items()}, 5, 1, SimpleNamespace())
    for cls in ALL:
        one, four = cls(stationary=True), cls()
        q1 = one.plan(one.begin(pooled.spec, TIES), pooled.release())[1].q
        q4 = four.plan(four.begin(pooled.spec, TIES), full)[1].q
        np.testing.assert_array_equal(q1, q4)
        with pytest.raises(ValueError, match="release has 1 steps: must have 4"):
            four.plan(four.begin(pooled.spec, TIES), pooled.release())
