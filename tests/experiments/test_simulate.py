"""Three speeds of one simulation: stepwise equals fused bit for bit, batches equal both in law."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from covering import pairwise
from scipy import stats

import discreet as dr
from discreet.experiments.simulate import Setup, iterate_runs, recorded
from discreet.learners.online.tabular_planning_kernels import part_sizes

NONE, CENTRAL, LOCAL = dr.NoPrivacy(), dr.Central(epsilon=1.0), dr.Local(epsilon=1.0)


def world(**options: object) -> dr.TabularMDP:
    return dr.make("random", **{"states": 4, "actions": 3, "horizon": 5, "seed": 3, **options})


def masked() -> dr.TabularMDP:
    rng = np.random.default_rng(0)
    mask = np.array([[1, 1, 0], [1, 0, 1], [0, 0, 1]], bool)
    return dr.TabularMDP(
        rng.dirichlet(np.ones(3), (4, 3, 3)),
        rng.uniform(size=(4, 3, 3)),
        [0.5, 0.5, 0.0],
        mask=mask,
        reward_law="bernoulli",
    )


SCHEDULES = [{}, {"replan_every": 7}, {"replan_growth": 1.3}]
VARIANTS = [
    {},
    {"derive_visits": True},
    {"center_rewards": True},
    {"known_rewards": True, "center_rewards": False},
    {"stationary": True},
]


@pytest.mark.parametrize(
    ("learner", "privatizer", "schedule", "variant", "by"),
    pairwise(
        {"private-vi": dr.learners.PrivateUCBVI, "dp": dr.DPUCBVI, "private-po": dr.learners.PrivateUCBPO},
        {"none": NONE, "central": CENTRAL, "local": LOCAL},
        SCHEDULES,
        VARIANTS,
        ["episode", "batch"],
    ),
)
def test_stepwise_equals_fused_bit_for_bit(
    learner: type, privatizer: object, schedule: dict[str, float], variant: dict[str, bool], by: str
) -> None:
    mdp = world(stationary="stationary" in variant)
    specification = learner(**schedule, **variant)
    fused = Setup(mdp, specification, privatizer, 60, by)  # type: ignore[arg-type]
    stepwise = Setup(mdp, specification, privatizer, 60, by, stepwise=True)  # type: ignore[arg-type]
    assert fused.fused
    assert not stepwise.fused
    one, other = fused.run(1, 2), stepwise.run(1, 2)
    assert (one.regret == other.regret).all()
    assert (one.gap_regret == other.gap_regret).all()


def test_masks_and_gaussian_noise_are_equal_too() -> None:
    for privatizer in (NONE, dr.Central(epsilon=2.0, delta=1e-5, noise="gaussian"), dr.Local(rho=0.1)):
        for by in ("episode", "batch"):
            runs = [
                Setup(masked(), dr.DPUCBVI(), privatizer, 50, by, stepwise).run(0, 0)  # type: ignore[arg-type]
                for stepwise in (False, True)
            ]
            assert (runs[0].regret == runs[1].regret).all()


AWARE = (
    {}, {"stationary": True}, {"known_rewards": True}, {"shrink": False, "derive_visits": False},
    {"pooled": "all", "center_rewards": False}, {"pooled": "first", "known_rewards": True},
    {"consistent": False},
)  # fmt: skip
UNDER = {
    "none": NONE,
    "gaussian": dr.Central(epsilon=3.0, delta=1e-6),
    "laplace": dr.Central(epsilon=3.0),
    "local": LOCAL,
}


@pytest.mark.parametrize(("options", "privatizer", "by"), pairwise(AWARE, UNDER, ["episode", "batch"]))
def test_the_noise_aware_learner_is_equal_too(options: dict[str, bool], privatizer: object, by: str) -> None:
    mdp = world() if "stationary" in options else masked()
    runs = [
        Setup(mdp, dr.NoiseAwareUCBVI(**options), privatizer, 150, by, stepwise).run(2, 1)  # type: ignore[arg-type]
        for stepwise in (False, True)
    ]
    assert (runs[0].regret == runs[1].regret).all()
    assert (runs[0].gap_regret == runs[1].gap_regret).all()


def test_several_plans_of_a_batch_are_equal_too() -> None:
    """Plans of one batch may be submitted as one crowd."""
    learner = dr.NoiseAwareUCBVI(tie_batches=4, replan_every=200)
    privatizer = dr.Central(epsilon=10.0, delta=1e-6)
    fused, stepwise = (
        dr.simulate(
            dr.make("riverswim"), learner, privatizer, 2000, seeds=2, by="batch", stepwise=s, workers=1
        )
        for s in (False, True)
    )
    np.testing.assert_array_equal(fused.regret, stepwise.regret)


EXPLORED = {
    "none": NONE,
    "decaying": dr.Central(epsilon=3.0, delta=1e-6, release="decaying"),
    "batches": dr.Central(epsilon=3.0, delta=1e-6, release="batches"),
    "pure, pooled": dr.Central(epsilon=3.0, release="batches"),
    "reports": dr.Central(epsilon=10.0, release="reports"),
    "local": dr.Local(epsilon=3.0),
}


@pytest.mark.parametrize(
    ("privatizer", "stationary", "by"), pairwise(EXPLORED, [False, True], ["episode", "batch"])
)
def test_explorers_are_equal_too(privatizer: object, stationary: bool, by: str) -> None:
    """A fifth of the first of 300 users follow explorers, a tenth of all, with policies of their own."""
    mdp, finals = world(), {}
    for share in (0.0, 0.2):
        learner = dr.NoiseAwareUCBVI(explore_share=share, stationary=stationary)
        fused, stepwise = (Setup(mdp, learner, privatizer, 300, by, flag) for flag in (False, True))
        assert fused.fused
        assert fused.exploring.sum() == 150 * share
        one, other = fused.run(2, 1), stepwise.run(2, 1)
        assert (one.regret == other.regret).all()
        assert (one.gap_regret == other.gap_regret).all()
        finals[share] = one.regret[-1]
    assert finals[0.0] != finals[0.2]


def test_the_frontier_explorer_is_equal_too() -> None:
    """It starts after 64 000 / explore_share users, and most users of the last batches follow explorers."""
    learner, privatizer = dr.NoiseAwareUCBVI(explore_share=0.999), dr.Central(epsilon=1.0, delta=1e-6)
    one, other = (
        Setup(world(), learner, privatizer, 100_000, "batch", flag).run(2, 1) for flag in (False, True)
    )
    assert (one.regret == other.regret).all()


@pytest.mark.parametrize(
    "privatizer", [CENTRAL, dr.Shuffle(epsilon=1.0, delta=1e-6)], ids=["central", "shuffle"]
)
def test_stepwise_plans_give_explorers_their_users(
    privatizer: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under shuffle there is no compiled driver: the same public numbers, batch by batch, and one result."""
    handed: dict[int, list[int]] = {}
    plan_of = dr.NoiseAwareUCBVI.plan

    def plan(self: dr.NoiseAwareUCBVI, state: object, release: object, ask: object = None) -> object:
        made, after = plan_of(self, state, release, ask)  # type: ignore[arg-type]
        number, parts = release.number, int(self.tie_batches or 1)  # type: ignore[attr-defined]
        first = state.part if state.number == number else 0  # type: ignore[attr-defined]
        sizes = part_sizes(int(np.diff(setup.times)[number]), setup.exploring[number], parts)
        assert made.users == sum(sizes[first : after.part])  # a plan can have several sub-batches
        handed.setdefault(number, [0, 0])
        for part in range(first, after.part):
            handed[number][part >= parts] += sizes[part]
        return made, after

    monkeypatch.setattr(dr.NoiseAwareUCBVI, "plan", plan)
    setup = Setup(
        world(), dr.NoiseAwareUCBVI(explore_share=0.2, pooled="none"), privatizer, 300, "batch", stepwise=True
    )  # type: ignore[arg-type]
    first = setup.run(4, 0)
    assert [users[1] for users in handed.values()] == setup.exploring.sum(axis=1).tolist()
    assert [sum(users) for users in handed.values()] == np.diff(setup.times).tolist()
    assert (setup.run(4, 0).regret == first.regret).all()
    assert (setup.run(4, 1).regret != first.regret).any()


def test_leaf_user_and_leaf_batch_are_both_equal() -> None:
    for leaf in ("user", "batch"):
        privatizer = dr.Central(epsilon=1.0, release="tree", leaf=leaf)  # type: ignore[arg-type]
        runs = [
            Setup(world(), dr.DPUCBVI(replan_every=9), privatizer, 80, "episode", stepwise).run(0, 1)
            for stepwise in (False, True)
        ]
        assert (runs[0].regret == runs[1].regret).all()


@pytest.mark.parametrize("stepwise", [False, pytest.param(True, marks=pytest.mark.statistics)])
def test_any_number_of_workers_gives_the_same_result(stepwise: bool) -> None:
    setup = Setup(world(), dr.learners.PrivateUCBVI(), CENTRAL, 40, stepwise=stepwise)
    one = {r.run: r.regret for r in iterate_runs(setup, 5, range(3), workers=1)}
    two = {r.run: r.regret for r in iterate_runs(setup, 5, [2, 0, 1], workers=2)}
    assert one.keys() == two.keys()
    assert all((one[r] == two[r]).all() for r in one)
    assert len({float(v[-1]) for v in one.values()}) == 3


@pytest.mark.parametrize(
    "learner", [dr.DPUCBVI(), dr.NoiseAwareUCBVI(explore_share=0.2)], ids=["dp", "aware"]
)
def test_cutting_a_run_into_calls_changes_nothing(learner: object, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(world(), learner, CENTRAL, 200)
    whole = setup.run(3, 0)
    monkeypatch.setattr("discreet.experiments.simulate._CHUNK_SECONDS", 0.0)
    assert (setup.run(3, 0).regret == whole.regret).all()


def test_two_learners_meet_the_same_users() -> None:
    """Under one seed the first user's luck is the same for two learners that play the same policy."""
    first = Setup(world(), dr.learners.UCBVI(tie_break="first"), NONE, 1).run(4, 4)
    other = Setup(world(), dr.learners.PrivateUCBVI(tie_break="first"), CENTRAL, 1).run(4, 4)
    assert (first.gap_regret == other.gap_regret).all()


@pytest.mark.parametrize("privatizer", [NONE, dr.Central(epsilon=20.0), dr.Local(epsilon=60.0)])
def test_batches_equal_episodes_in_law(privatizer: object) -> None:
    """Final regrets of 400 seeds each, two-sample Kolmogorov-Smirnov; false alarm 1e-6 each."""
    finals = {}
    for by, seed in (("episode", 1), ("batch", 2)):
        setup = Setup(world(), dr.learners.PrivateUCBVI(replan_growth=1.5), privatizer, 300, by)  # type: ignore[arg-type]
        finals[by] = np.array([setup.run(seed, r).regret[-1] for r in range(400)])
    assert stats.ks_2samp(finals["episode"], finals["batch"]).pvalue > 1e-6
    combined = np.sqrt(finals["episode"].var() / 400 + finals["batch"].var() / 400)
    assert abs(finals["episode"].mean() - finals["batch"].mean()) < 5 * combined


def test_gap_regret_has_the_same_mean() -> None:
    setup = Setup(world(), dr.learners.UCBVI(), NONE, 200)
    runs = [setup.run(9, r) for r in range(300)]
    difference = np.array([r.gap_regret[-1] - r.regret[-1] for r in runs])
    assert abs(difference.mean()) < 5 * difference.std() / np.sqrt(difference.size)
    assert all((np.diff(r.regret) >= -1e-9).all() for r in runs)


def test_recorded_points() -> None:
    assert (recorded(np.arange(1, 11)) == np.arange(1, 11)).all()
    many = recorded(np.arange(1, 10**6))
    assert many.size <= 1000
    assert many[0] == 1
    assert many[-1] == 10**6 - 1
    setup = Setup(world(), dr.learners.UCBVI(), NONE, 5000)
    assert setup.recorded.size <= 1000
    assert setup.recorded[-1] == 5000


def test_learning_and_its_price() -> None:
    """Regret: none < central at a large epsilon < central at a small one."""
    mdp = dr.make("riverswim")
    finals = []
    for privatizer in (NONE, dr.Central(epsilon=2000.0), dr.Central(epsilon=0.1)):
        result = dr.simulate(mdp, dr.DPUCBVI(), privatizer, 3000, seeds=2)
        finals.append(result.final_regret.mean())
    assert finals[0] < 1500
    assert finals[2] > 5 * finals[0]
    assert finals[0] < finals[1] < finals[2]


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="episodes = 0"):
        dr.simulate(world(), dr.learners.UCBVI(), NONE, 0)
    with pytest.raises(ValueError, match="seeds = 0"):
        dr.simulate(world(), dr.learners.UCBVI(), NONE, 5, seeds=0)
    with pytest.raises(ValueError, match="by = 'user'"):
        dr.simulate(world(), dr.learners.UCBVI(), NONE, 5, by="user")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="stationary"):
        dr.simulate(world(stationary=False), dr.learners.UCBVI(stationary=True), NONE, 5)


@pytest.mark.parametrize("own", [False, True])
def test_a_plain_script_has_several_workers(tmp_path: Path, own: bool) -> None:
    """They do not import it; where they must, since its learner is defined there, one process does it all."""
    script = tmp_path / "script.py"
    script.write_text(
        "import discreet as dr\n"
        "class Mine(dr.DPUCBVI): pass\n"
        "print('read')\n"
        "world = dr.make('random', states=2, actions=2, horizon=2)\n"
        f"learner = {'Mine' if own else 'dr.DPUCBVI'}(replan_growth=2.0)\n"
        "how = {'seeds': 2, 'workers': 2, 'stepwise': True}\n"
        "print(dr.simulate(world, learner, dr.Central(epsilon=1.0), 4, **how).runs)\n"
    )
    found = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines()[-1] == "[0 1]"
    if own:
        assert "one after the other" in found.stderr
        assert '`if __name__ == "__main__":`' in found.stderr
        assert f"{script}:7: RuntimeWarning" in found.stderr
    else:
        assert found.stdout == "read\n[0 1]\n"
        assert not found.stderr


def test_what_cannot_be_sent_to_a_worker_is_refused_before_any_starts() -> None:
    class Mine(dr.SDPPE):
        pass

    world = dr.make("riverswim", states=3, horizon=4)
    with pytest.raises(ValueError, match=r"workers = 2: must be workers = 1 .* top of a module"):
        dr.simulate(world, Mine(), dr.NoPrivacy(), 400, seeds=2, workers=2)
    assert dr.simulate(world, Mine(), dr.NoPrivacy(), 400, seeds=2, workers=1).regret.shape[0] == 2
