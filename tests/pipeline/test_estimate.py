"""Forecasts: against direct computation, simulated errors, and real releases of made-up people."""

import json
import math
import re

import numpy as np
import pytest
from commands import RUNNER

import discreet as dr
from discreet import registry
from discreet.cli import app
from discreet.core.layout import Layout
from discreet.data.schema import Schema, write_schema
from discreet.learners.offline.release_files import ReleaseFacts, read_tables, write_release
from discreet.pipeline.estimate import estimate_release, visits_needed
from discreet.pipeline.learn import learn
from discreet.pipeline.learned_files import default_algorithm, learner_of, name_of
from discreet.pipeline.synthetic_data import write_made_up

MASK = np.array([[True, True], [True, False], [True, True]])


def schema_of(layout=None, **more):
    return Schema("ward-7", "patient", layout or Layout(3, 2, 4, MASK), **more)


def run(*words):
    return RUNNER.invoke(app, [str(word) for word in words])


def quick(schema, users=10_000, privatizer=None, learner=None, **more):
    options = {"measure": False, "randomness": dr.Seeded(0), **more}
    return estimate_release(schema, users, privatizer or dr.Central(rho=0.5), learner, **options)


@pytest.mark.parametrize("share", [0.1, 0.5])
@pytest.mark.parametrize("states", [2, 6])
def test_visits_needed_for_transitions(share, states):
    """The error of the mean next value, with and without noise, where successors are uniform.

    40 000 rows: each standard deviation is off by more than 2.5 % with probability below 1e-10.
    """
    rng, sigma, runs = np.random.default_rng(1), 12.0, 40_000
    n = math.ceil(visits_needed(share, states, sigma)[0])
    values = rng.uniform(0, 5, states)
    rows = rng.multinomial(n, np.full(states, 1 / states), runs).astype(float)
    exact = rows @ values / n
    rows += rng.normal(0.0, sigma, rows.shape)
    noisy = rows @ values / rows.sum(axis=1)
    assert noisy.std() / exact.std() == pytest.approx(1 + share, rel=0.03)


def test_visits_needed_for_rewards():
    """The error of a mean of uniform rewards; the same rates as above."""
    rng, sigma, runs, share = np.random.default_rng(2), 3.0, 40_000, 0.2
    n = math.ceil(visits_needed(share, 3, 0.0, sigma)[1])
    exact = rng.uniform(0, 1, (runs, n)).mean(axis=1)
    noisy = exact + rng.normal(0.0, sigma, runs) / n
    assert noisy.std() / exact.std() == pytest.approx(1 + share, rel=0.03)


def test_numbers_by_hand():
    """rho = 1/2, H = 4, equal shares: sigma^2 = (families) x (own sensitivity)^2 / (2 rho)."""
    found = quick(schema_of(), learner=dr.DPAPVI(visits="released", reward_share=1 / 3), share=0.5)
    stds = {one.family: one.std for one in found.noise}
    assert stds["visits"] == stds["transition_counts"]
    query = dr.DPAPVI(visits="released", reward_share=1 / 3).query(schema_of().spec())
    loss = query.sensitivity("l2", {name: 1 / std for name, std in stds.items()})
    assert loss == pytest.approx(1.0)  # mu = sqrt(2 rho)
    assert [one.half_width / one.std for one in found.noise] == pytest.approx([1.959964] * 3, rel=1e-5)
    assert {one.family: one.cells for one in found.noise} == {
        "visits": 20, "transition_counts": 60, "centered_reward_sums": 20,
    }  # fmt: skip
    assert (found.cells, found.pairs, found.memory_bytes) == (100, 20, 4 * 60 + 8 * 20)
    assert found.visits_needed == max(
        3 * stds["transition_counts"] ** 2 / 1.25, 12 * stds["centered_reward_sums"] ** 2 / 1.25
    )
    assert found.users_needed == 5 * found.visits_needed
    assert found.file_bytes == 800
    assert found.visits_per_pair == 2000.0


def test_pure_epsilon_and_known_rewards():
    schema = schema_of(known=np.full((1, 3, 2), 0.5))
    found = quick(schema, privatizer=dr.Central(epsilon=2.0), learner=dr.DPAPVI(visits="released"))
    assert [one.family for one in found.noise] == ["visits", "transition_counts"]
    # l1: 2 H in each of two families
    assert found.noise[0].std == pytest.approx(math.sqrt(2) * 16 / 2.0)
    assert found.noise[0].half_width == pytest.approx(8 * math.log(20))
    assert found.needed_for_rewards == 0.0
    assert found.delta_verdict == "pure"
    assert [one.delta for one in found.others] == [0.0] * 7
    again = next(one for one in found.others if one.epsilon == 2.0)
    assert (again.std, again.visits_needed) == (found.noise[1].std, found.visits_needed)


def test_episodes_cost_their_number():
    one, three = (quick(schema_of(episodes_per_user=m)) for m in (1, 3))
    assert three.noise[0].std == pytest.approx(3 * one.noise[0].std)
    assert three.visits_needed == pytest.approx(9 * one.visits_needed)
    assert "up to 3 episodes" in three.guarantee.unit


@pytest.mark.parametrize(
    ("users", "delta", "verdict"), [(10**3, 1e-6, "small"), (10**6, 5e-7, "warn"), (10**6, 2e-6, "refused")]
)
def test_delta(users, delta, verdict):
    found = quick(schema_of(), users, dr.Central(epsilon=1.0, delta=delta))
    assert found.delta_verdict == verdict
    text = dict(found.rows())["delta against 1/users"]
    assert ("REFUSED" in text, "TIMES" in text) == (verdict == "refused", verdict != "small")


def test_other_epsilons():
    found = quick(schema_of(), privatizer=dr.Central(epsilon=1.0, delta=1e-6), epsilons=(0.1, 1.0, 10.0))
    assert found.others[1].std == found.noise[-2].std
    low, middle, high = found.others
    assert low.std > middle.std > high.std
    assert low.users_needed > middle.users_needed > high.users_needed
    assert low.supported_share <= middle.supported_share <= high.supported_share
    # a budget in rho is compared at the delta that its guarantee states
    assert quick(schema_of(), epsilons=(1.0,)).others[0].delta == 1e-6


def even(layout, users, privatizer, learner, randomness):
    """A release of people whose pairs are uniform at every step."""
    query = learner.query(schema_of(layout).spec())
    session = privatizer.stored(query, randomness)
    rng = np.random.default_rng(5)
    shape = (users, layout.horizon)
    states = rng.integers(0, layout.states, (users, layout.horizon + 1))
    data = dr.Trajectories(states, rng.integers(0, layout.actions, shape), rng.integers(0, 2, shape) / 1.0)
    session.submit_many(data, np.arange(users))
    return session


@pytest.mark.parametrize("users", [300, 800])
def test_support_of_a_real_release(users):
    """2 560 estimated visits: their share above T is off by more than .05 with probability below 1e-6."""
    layout, learner, privatizer = Layout(8, 4, 80), dr.DPAPVI(visits="derived"), dr.Central(rho=20.0)
    found = quick(schema_of(layout), users, privatizer, learner)
    release = even(layout, users, privatizer, learner, dr.Seeded(1)).release()
    visits = np.array([step.transitions.sum(axis=1) for step in release])
    assert 0.3 < found.supported_share < 0.99
    assert (visits > found.threshold).mean() == pytest.approx(found.supported_share, abs=0.05)
    assert found.supported == pytest.approx(found.supported_share * 2560)
    half = quick(schema_of(layout), users, privatizer, learner, reachable=0.5)
    assert half.users_needed == found.users_needed / 2
    assert half.visits_per_pair == 2 * found.visits_per_pair
    assert half.chance_supported == pytest.approx(0.1587, abs=1e-4)  # T is one standard deviation


def test_size_of_a_real_release(tmp_path):
    layout, learner, privatizer = Layout(150, 4, 2), dr.DPAPVI(), dr.Central(rho=0.5)
    found = estimate_release(schema_of(layout), 1000, privatizer, learner)
    session = even(layout, 1000, privatizer, learner, dr.Secure())
    facts = ReleaseFacts(layout=layout, users=1000, guarantee=session.guarantee, laws=session.laws)
    assert [one.std for one in found.noise] == [law.std() for law in session.laws.values()]
    write_release(tmp_path / "release.parquet", session.release(), facts)
    size = (tmp_path / "release.parquet").stat().st_size
    assert 0.4 * size < found.file_bytes < 1.5 * size
    assert found.noise_seconds > 0.0
    assert found.delta_verdict == "small"


def test_without_privacy():
    found = quick(schema_of(), privatizer=dr.NoPrivacy())
    assert (found.visits_needed, found.others, found.delta_verdict) == (0.0, (), "none")
    assert found.supported == 20


def test_what_is_printed():
    found = quick(schema_of(), privatizer=dr.Central(epsilon=1.0, delta=1e-6), successors=2)
    assert found.needed_for_transitions == pytest.approx(2 / 3 * quick(
        schema_of(), privatizer=dr.Central(epsilon=1.0, delta=1e-6)).needed_for_transitions)  # fmt: skip
    table = found.to_dict()
    assert json.loads(json.dumps(table, allow_nan=False)) == table
    rows = dict(found.rows())
    assert rows["guarantee"].startswith("Differential privacy with a trusted keeper")
    assert "to 2 next states" in next(text for name, text in rows.items() if "10 %" in name)
    head, body = found.epsilon_rows()
    assert {len(row) for row in body} == {len(head)}
    assert [row[0] for row in body] == ["0.1", "0.2", "0.5", "1", "2", "5", "10"]


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"users": 0}, "users"),
        ({"share": 0.0}, "share"),
        ({"reachable": 1.5}, "reachable"),
        ({"successors": 4}, "successors"),
        ({"epsilons": (0.0,)}, "epsilon"),
        ({"privatizer": dr.Central(epsilon=1.0, release="tree")}, "release"),
    ],
)
def test_bad_numbers(more, match):
    with pytest.raises(ValueError, match=match):
        quick(schema_of(), **more)


def test_other_learners_are_refused():
    class Other:
        def query(self, spec):
            return spec

    with pytest.raises(ValueError, match="must be an offline learner"):
        quick(schema_of(), learner=Other())
    for learner, privatizer in ((dr.learners.PEVI(), None), (dr.learners.APVI(), None)):
        with pytest.raises(ValueError, match="no noise to forecast"):
            quick_without(learner, privatizer)


def quick_without(learner, privatizer):
    return estimate_release(schema_of(), 1000, privatizer, learner, measure=False)


def test_a_learner_of_somebody_else_states_no_threshold():
    class Own(dr.DPAPVI):
        pass

    class Other:
        """Learns from counts, and is no subclass of a learner here."""

        query = staticmethod(dr.DPAPVI().query)
        learn = staticmethod(dr.DPAPVI().learn)

    assert quick(schema_of(), learner=Own()).threshold is not None
    found = quick(schema_of(), learner=Other())
    assert found.threshold is found.supported_share is None
    assert found.visits_needed > 0
    assert "supported" not in " ".join((*dict(found.rows()), *found.epsilon_rows()[0]))


# ------------------------------------------------------------- the forecast and the release that follows it
_ENDS = {"terminal": (2,)}
SCHEMAS = {
    "steps": {},
    "mask": {"layout": Layout(3, 2, 4, MASK)},
    "pooled": {"stationary": True},
    "pooled, outcomes": {"stationary": True, "outcomes": {2: 1.0}, "low": 0.0, "high": 1.0, **_ENDS},
    "pooled, bound": {"stationary": True, "return_bound": (0.0, 2.0)},
    "known rewards": {"known": np.full((1, 3, 2), 0.5)},
    "known, pooled": {"known": np.full((1, 3, 2), 0.5), "stationary": True},
    "three episodes": {"episodes_per_user": 3},
    "three episodes, pooled": {"episodes_per_user": 3, "stationary": True},
    "features": {"features": np.eye(6).reshape(3, 2, 6)[:, :, :4] * 0.5 + 0.1, "feature_bound": 1.0},
    "units": {"low": -1.0, "high": 3.0},
}  # fmt: skip
BUDGETS = {"approximate": (1.0, 1e-6), "pure": (2.0, 0.0)}
HOLD_THEIR_BUDGET = {"dp-pevi": dr.DPPEVI, "dp-vapvi": dr.learners.DPVAPVI}
ALGORITHMS = ("default", "dp-apvi", "decision-points", *HOLD_THEIR_BUDGET)


def schema_named(kind):
    return schema_of(**{"layout": Layout(3, 2, 4), **SCHEMAS[kind]})


def asked(algorithm, schema, budget):
    """(learner, privatizer) of an algorithm with this budget."""
    epsilon, delta = BUDGETS[budget]
    if algorithm in HOLD_THEIR_BUDGET:
        noise = {} if delta or algorithm == "dp-vapvi" else {"noise": "laplace"}
        return HOLD_THEIR_BUDGET[algorithm](epsilon=epsilon, delta=delta, **noise), None
    name = default_algorithm(schema) if algorithm == "default" else algorithm
    return learner_of(name, {}), dr.Central(epsilon=epsilon, delta=delta)


@pytest.mark.parametrize(
    ("kind", "budget"),
    [*((kind, "approximate") for kind in SCHEMAS), ("steps", "pure"), ("pooled", "pure")],
)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_forecast_is_of_the_release_that_learn_makes(tmp_path, monkeypatch, algorithm, kind, budget):
    """Noise, guarantee and cells are those of the statement; or both refuse, in the same words."""
    monkeypatch.setattr("discreet.pipeline.learn.fill", told)
    schema = schema_named(kind)
    how = {"measure": False, "randomness": dr.Seeded(0), "epsilons": (1.0,)}
    if (refusal := refused(tmp_path, schema, algorithm, budget)) is not None:
        with pytest.raises(ValueError, match=re.escape(refusal)):
            estimate_release(schema, 300, *asked(algorithm, schema, budget)[::-1], **how)
        assert algorithm != "default"
        return
    learner, privatizer = asked(algorithm, schema, budget)
    found = estimate_release(schema, 300, privatizer, None if algorithm == "default" else learner, **how)
    run, cells = released(tmp_path, schema, learner, privatizer)
    assert found.algorithm == name_of(learner)
    assert found.guarantee == run.guarantee
    assert found.guarantee.records == run.records
    (record,) = run.records
    factor = math.sqrt(2) if record.norm == "l1" else 1.0
    stds = {}
    for name, scale in record.scales.items():
        family = name.split(".")[-1].split("[")[0]
        stds[family] = max(stds.get(family, 0.0), factor * scale)
    assert {one.family: one.std for one in found.noise} == pytest.approx(stds)
    assert found.cells == sum(one.cells for one in found.noise)
    assert found.cells == cells or algorithm in HOLD_THEIR_BUDGET  # answers stand beside ranges and scales
    assert dict(found.rows())["algorithm"] == name_of(learner)
    assert {len(row) for row in found.epsilon_rows()[1]} == {len(found.epsilon_rows()[0])}
    json.dumps(found.to_dict(), allow_nan=False)


def refused(folder, schema, algorithm, budget):
    """Why this algorithm does not learn under this schema; None if it does."""
    try:
        released(folder, schema, *asked(algorithm, schema, budget))
    except ValueError as error:
        return str(error)
    return None


def told(folder, schema, planned, algorithm, options, settings, run):
    """In place of report and statement: the run, and how many noisy numbers its release holds."""
    tables = read_tables(folder / "release.parquet")
    raise Told(run, sum(tables.table(name, h).size for name in tables.families for h in tables.steps(name)))


class Told(Exception):
    """What a run released."""


def released(folder, schema, learner, privatizer):
    """(run, cells) of a release of 300 made-up people."""
    file = folder / "people.parquet"
    if not file.exists():
        write_made_up(schema, 300, file, seed=1)
    with pytest.raises(Told) as done:
        learn(
            dr.data.open_source(file, schema), learner, folder / "p", privatizer=privatizer, ledger=None,
            randomness=dr.Seeded(0), settings=dr.pipeline.LearnConfig(unsupported="abstain"),
        )  # fmt: skip
    return done.value.args


@pytest.mark.parametrize("kind", SCHEMAS)
def test_commands_without_algorithm_are_of_one_learner(tmp_path, monkeypatch, kind):
    """`discreet estimate` is of what `discreet learn` runs. No algorithm ends in a traceback."""
    monkeypatch.setattr("discreet.pipeline.learn.fill", lambda *a: (_ for _ in ()).throw(ValueError(a[3])))
    file = tmp_path / "S.toml"
    write_schema(schema_named(kind), file)
    budget = ["--epsilon", "1", "--delta", "1e-6"]
    done = run("estimate", "--schema", file, "--users", 300, *budget, "--json")
    assert done.exit_code == 0, done.output
    learned = run(
        "dry-run",
        file,
        "--users",
        300,
        *budget,
        "--seed",
        1,
        "--out",
        tmp_path / "p",
    )
    assert json.loads(done.stdout)["algorithm"] in str(learned.output)
    for one in registry.entries("offline learner"):
        done = run("estimate", "--schema", file, "--users", 300, *budget, "--learner", one.name)
        assert done.exception is None or isinstance(done.exception, SystemExit), one.name
