"""Values from a release: unbiased pieces, exact limits, independence of what is not in the release."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

import discreet as dr
from benchmarks.studies.value_intervals import Drawn, Setting, draw, played, setting_of
from discreet.accounting.noise_distributions.distributions import NoNoise
from discreet.core.families import CENTERED_REWARDS, TRANSITIONS, VISITS
from discreet.envs.mdp.planning import evaluate_policy, occupancy, policy_value
from discreet.learners.offline.apvi import DPAPVI
from discreet.learners.ope import count_estimates as evaluation
from discreet.learners.ope.count_estimates import BEHAVIOUR, PolicyEstimate, evaluate, uniform
from discreet.mechanisms.interfaces import ProblemSpec, ReturnBounds

MASK = np.array([[1, 1, 0], [1, 0, 0], [0, 1, 1], [1, 1, 1]], bool)


def world(known: bool = False, seed: int = 0) -> Setting:
    draw_ = np.random.default_rng(seed)
    rows = draw_.dirichlet(np.ones(4), (3, 4, 3))
    mdp = dr.TabularMDP(rows, draw_.uniform(size=(3, 4, 3)), np.full(4, 0.25), mask=MASK)
    behaviour = (draw_.uniform(0.2, 1.0, (3, 4, 3))) * MASK
    return Setting(mdp, behaviour / behaviour.sum(axis=-1, keepdims=True), 1000, None, known)


def expected(setting: Setting, people: float) -> Drawn:
    """The release whose counts are their own means, for any number of people: no luck at all."""
    mdp, layout = setting.mdp, setting.mdp.layout
    d = occupancy(mdp, setting.behaviour)
    visits = layout.to_rows(people * d)
    moves = layout.to_rows(people * d[..., None] * mdp.transitions)
    tables = {VISITS: visits, TRANSITIONS: moves}
    if not setting.known:
        tables[CENTERED_REWARDS] = layout.to_rows(people * d * (mdp.rewards - 0.5))
    laws = {name: NoNoise() for name in tables}
    return Drawn(layout, int(people), laws, setting.noise[1], tables)


@pytest.mark.parametrize("known", [False, True])
def test_with_mean_counts_every_value_is_the_true_one(known: bool) -> None:
    setting = world(known)
    mdp, layout = setting.mdp, setting.mdp.layout
    policy = np.array([[0, 0, 1, 2], [1, 0, 2, 0], [0, 0, 1, 1]])
    goes_on = np.zeros((3, 4), bool)
    goes_on[1, 2] = goes_on[0, 3] = True
    mixed = np.where(goes_on[..., None], setting.behaviour, np.eye(3)[policy])
    found = evaluate(
        expected(setting, 1e9), setting.spec,
        {
            "fixed": PolicyEstimate(policy), "mixed": PolicyEstimate(policy, goes_on),
            "uniform": PolicyEstimate(uniform(layout)),
        },
    )  # fmt: skip
    truth = {
        "fixed": policy_value(mdp, policy),
        "mixed": policy_value(mdp, mixed),
        "uniform": policy_value(mdp, uniform(layout)),
        BEHAVIOUR: policy_value(mdp, setting.behaviour),
    }
    for name, exact in truth.items():
        one = found.values[name]
        assert one.estimate == pytest.approx(exact, abs=1e-9), name
        assert one.low < exact < one.high
        assert one.high - one.low < 1e-3
        assert one.lack == one.choice == one.noise == 0.0
    difference = found.difference("fixed", BEHAVIOUR)
    assert difference.estimate == pytest.approx(truth["fixed"] - truth[BEHAVIOUR], abs=1e-9)


def test_gains_are_advantages_over_behaviour() -> None:
    setting = world()
    mdp = setting.mdp
    policy = np.array([[0, 0, 1, 2], [1, 0, 2, 0], [0, 0, 1, 1]])
    found = evaluate(expected(setting, 1e9), setting.spec, {"fixed": PolicyEstimate(policy)})
    ahead = evaluate_policy(mdp, policy)
    q = mdp.rewards + np.einsum("hsat,ht->hsa", mdp.transitions, ahead[1:])
    own = np.take_along_axis(q, policy[..., None], axis=2)[..., 0]
    np.testing.assert_allclose(found.gains["fixed"], own - (setting.behaviour * q).sum(-1), atol=1e-8)


def test_the_reciprocal_is_unbiased() -> None:
    x = np.linspace(-12.0, 60.0, 400_001)
    step = x[1] - x[0]
    for mean in (6.0, 9.0, 20.0):
        # below the threshold of 4 deviations the estimate is not used; from 6 on that hardly matters
        g = np.where(x > 0, evaluation.reciprocal(x, 1.0), 0.0)
        assert (g * norm.pdf(x - mean)).sum() * step == pytest.approx(1.0 / mean, rel=1e-6)
    np.testing.assert_allclose(evaluation.reciprocal(np.array([0.0, 4.0]), 0.0), [1.0, 0.25])


def test_the_margin_exceeds_the_bias_of_the_threshold() -> None:
    x = np.linspace(4.0, 40.0, 200_001)
    step = x[1] - x[0]
    g, margin = evaluation.reciprocal(x, 1.0), evaluation._NEAR * np.exp(4.0 - x)
    for mean in np.arange(3.0, 15.0, 0.25):
        passed = norm.pdf(x - mean)
        share = passed.sum() * step
        bias = abs(1.0 - mean * (g * passed).sum() * step / share)
        assert (margin * mean * g * passed).sum() * step / share >= bias - 1e-6 or bias < 1e-3, mean


def test_the_expected_maximum_is_bounded() -> None:
    random = np.random.default_rng(0)
    deviations = np.array([1.0, 1.0, 1.0, 0.3, 2.0, 0.5, 0.0, 1.0])
    pointer = np.array([0, 3, 5, 6, 8])
    found = evaluation.expected_maximum(deviations, pointer)
    noise = random.standard_normal((200_000, deviations.size)) * deviations
    means = np.maximum.reduceat(noise, pointer[:-1], axis=1).mean(axis=0)
    assert found[2] == found[3] == 0.0  # nobody to race against
    assert (found[:2] >= means[:2] - 0.01).all()
    assert (found[:2] <= 1.6 * means[:2]).all()


@pytest.mark.parametrize("gap", [0.0, 0.5, 1.0, 2.0, 4.0])
def test_more_noise_tells_what_a_choice_flatters(gap: float) -> None:
    """sqrt(2) E omega_{c'} >= E xi_c in the mean, and E omega_{c'} = E xi_{c'} (equation 3)."""
    random = np.random.default_rng(1)
    many, pointer = 4000, np.arange(0, 2 * 4000 + 1, 2)
    deviations = np.tile([1.0, 0.5], many)
    error = deviations * random.standard_normal(2 * many)
    scores = np.tile([0.0, gap], many) + error
    pairs = scores.reshape(-1, 2)
    true = np.take_along_axis(error.reshape(-1, 2), pairs.argmax(axis=1)[:, None], axis=1).mean()
    found = evaluation.selection_bias(scores, deviations, np.ones(2 * many), pointer, 0).mean()
    assert math.sqrt(2.0) * found >= true - 0.05  # 4 standard errors of the mean of 4000
    fresh = scores + deviations * random.standard_normal(2 * many)
    taken = np.take_along_axis(error.reshape(-1, 2), fresh.reshape(-1, 2).argmax(axis=1)[:, None], axis=1)
    assert found == pytest.approx(taken.mean(), abs=0.06)


def test_the_response_of_scores_to_noise_is_found() -> None:
    random = np.random.default_rng(2)
    pointer = np.arange(0, 3001, 3)
    q = 0.05 * random.standard_normal(3000)
    visits = random.uniform(100.0, 1000.0, 3000)
    used, deviations = np.ones(3000, bool), np.full(3000, 0.05)
    for slope in (0.0, 0.3, 1.0):
        scores = slope * q + 0.01 * random.standard_normal(3000)
        found = evaluation.response(scores, q, deviations, visits, used, pointer)
        assert (found >= slope - 0.02).all()
        assert (found <= slope + 0.1).all(), slope


def test_noise_variances_are_those_of_the_estimates() -> None:
    """One world's people, many noises: the deviation stated is the one seen (false alarm below 1e-6)."""
    setting = replace(setting_of("random", 200_000, 1.0), known=False)
    exact = replace(setting, epsilon=None)
    people = draw(exact, 3)
    policy = np.argmax(setting.behaviour, axis=-1)
    random = np.random.default_rng(5)
    deviations, laws = setting.noise[0], draw(setting, 0).laws
    errors, stated = [], []
    for _ in range(150):
        tables = {
            name: table + deviations[name] * random.standard_normal(table.shape)
            for name, table in people.tables.items()
        }
        found = evaluate(
            Drawn(people.layout, people.users, laws, people.guarantee, tables), setting.spec,
            {"usual": PolicyEstimate(policy)},
        )  # fmt: skip
        errors.append((found.values["usual"].estimate, found.values[BEHAVIOUR].estimate))
        stated.append((found.values["usual"].noise, found.values[BEHAVIOUR].noise))
    seen, said = np.std(errors, axis=0, ddof=1), np.mean(stated, axis=0)
    assert (seen < 1.35 * said).all()  # 150 draws: a deviation is off by 5 x 5.8 %
    assert seen[1] > 0.7 * said[1]


def test_without_support_anything_is_possible() -> None:
    setting = setting_of("random", 300, 0.1)
    drawn = draw(setting, 0)
    learned = DPAPVI(visits="released").learn(drawn.release, setting.spec)
    found = evaluate(
        drawn, setting.spec, {"learned": PolicyEstimate(learned.policy, chosen=True, scores=learned.q)}
    )
    one = found.values["learned"]
    assert one.lower == 0.0
    assert one.high > 4.0
    assert one.lack > 3.0
    smaller = evaluate(drawn, setting.spec, {"learned": PolicyEstimate(learned.policy)}, return_bound=1.0)
    assert smaller.values["learned"].high <= 1.0


def test_equal_releases_give_equal_values_and_more_noise_wider_ones() -> None:
    widths = []
    for epsilon in (None, 1.0, 0.2):
        setting = setting_of("random", 50_000, epsilon)
        drawn = draw(setting, 1)
        learned = DPAPVI(visits="released").learn(drawn.release, setting.spec)
        asked = {"learned": PolicyEstimate(learned.policy, ~learned.supported, chosen=True, scores=learned.q)}
        first, second = (evaluate(drawn, setting.spec, asked) for _ in range(2))
        assert first.values == second.values
        one = first.values["learned"]
        assert one.low <= one.estimate <= one.high
        assert one.low <= one.lower
        assert one.low - 1e-9 <= policy_value(setting.mdp, played(setting, learned)) <= one.high + 1e-9
        widths.append(one.high - one.low)
    assert widths[0] < widths[1] < widths[2]


def test_a_choice_without_scores_costs_more() -> None:
    setting = setting_of("random", 50_000, 1.0)
    drawn = draw(setting, 1)
    learned = DPAPVI(visits="released").learn(drawn.release, setting.spec)
    found = evaluate(
        drawn, setting.spec,
        {
            "fixed": PolicyEstimate(learned.policy), "any": PolicyEstimate(learned.policy, chosen=True),
            "scores": PolicyEstimate(learned.policy, chosen=True, scores=learned.q),
        },
    ).values  # fmt: skip
    assert found["any"].low < found["scores"].low < found["fixed"].low
    assert found["scores"].high == pytest.approx(found["fixed"].high, abs=1e-6)


def test_several_episodes_of_a_person_widen_the_interval() -> None:
    setting = setting_of("random", 50_000, 1.0)
    drawn = draw(setting, 1)
    asked = {"uniform": PolicyEstimate(uniform(drawn.layout))}
    one, four = (evaluate(drawn, setting.spec, asked, episodes_per_user=m) for m in (1, 4))
    for name in ("uniform", BEHAVIOUR):
        assert four.values[name].sampling > 1.5 * one.values[name].sampling


def test_bad_input_is_refused() -> None:
    setting = world()
    drawn = expected(setting, 1000.0)
    policy = np.array([[0, 0, 1, 2]] * 3)

    def asked(**changes: object) -> object:
        arguments = {"level": 0.95, "return_bound": None, "episodes_per_user": 1} | changes
        return evaluate(drawn, setting.spec, {"a": PolicyEstimate(policy)}, **arguments)  # type: ignore[arg-type]

    for changes, message in (
        ({"level": 1.0}, "level = 1.0"),
        ({"return_bound": 0.0}, "return_bound = 0.0"),
        ({"return_bound": 4.0}, "return_bound = 4.0"),
        ({"episodes_per_user": 0}, "episodes_per_user = 0"),
    ):
        with pytest.raises(ValueError, match=message):
            asked(**changes)
    with pytest.raises(ValueError, match="evaluated anyway"):
        evaluate(drawn, setting.spec, {BEHAVIOUR: PolicyEstimate(policy)})
    with pytest.raises(ValueError, match="behaviour has shape"):
        evaluate(drawn, setting.spec, {"a": PolicyEstimate(policy, np.zeros((2, 4), bool))})
    with pytest.raises(ValueError, match="scores has shape"):
        evaluate(drawn, setting.spec, {"a": PolicyEstimate(policy, scores=np.zeros((3, 4)))})
    with pytest.raises(ValueError, match=r"spec\.layout"):
        evaluate(drawn, dr.mechanisms.ProblemSpec(dr.Layout(5, 3, 3)), {})
    with pytest.raises(ValueError, match="other"):
        evaluate(drawn, setting.spec, {}).difference(BEHAVIOUR, "none")
    bare = expected(world(known=True), 1000.0)
    with pytest.raises(ValueError, match="holds no rewards"):
        evaluate(bare, setting.spec, {})


# ------------------------------------------------------------------------------ what is declared of returns
def ward(
    low: float, high: float, outcomes: dict[int, float] | None
) -> tuple[dr.TabularMDP, ProblemSpec, np.ndarray]:
    """Three live states, two ends that pay nothing more; what people do there."""
    draw = np.random.default_rng(11)
    moves = np.zeros((5, 2, 5))
    moves[:3] = draw.dirichlet(np.full(5, 0.8), (3, 2))
    moves[3, :, 3] = moves[4, :, 4] = 1.0
    paid = draw.uniform(low, high, (5, 2, 1)) * np.ones(5)
    if outcomes is not None:
        paid = np.zeros((5, 2, 5))
        for state, reward in outcomes.items():
            paid[:, :, state] = reward
    paid[3:] = 0.0
    mdp = dr.TabularMDP(
        moves, ((paid - low) / (high - low))[None], np.array([0.5, 0.3, 0.2, 0, 0]), horizon=7,
        terminal=(3, 4),
    )  # fmt: skip
    returns = ReturnBounds(low, high, terminal=(3, 4), outcomes=outcomes)
    behaviour = np.repeat(draw.dirichlet(np.ones(2), 5)[None], 7, axis=0)
    return mdp, ProblemSpec(mdp.layout, returns=returns), behaviour


RETURNS = {
    "outcomes": (-1.0, 3.0, {3: -1.0, 4: 3.0}),
    "one outcome": (0.0, 1.0, {4: 1.0}),
    "rewards of steps": (-2.0, 1.0, None),
}


@pytest.mark.parametrize("name", RETURNS)
def test_ends_are_known_and_values_lie_between_what_can_be_earned(name: str) -> None:
    """With mean counts, values are the true ones, in the units of the returns; where nobody came, anything
    that can still be earned.
    """
    low, high, outcomes = RETURNS[name]
    mdp, spec, behaviour = ward(low, high, outcomes)
    scale, offset = high - low, 7 * low
    setting, policy = Setting(mdp, behaviour, 1000, None, False), np.ones((7, 5), np.int64)
    candidates = {"one": PolicyEstimate(policy), "uniform": PolicyEstimate(uniform(mdp.layout))}
    found = evaluate(expected(setting, 1e9), spec, candidates)
    for one, true in ((BEHAVIOUR, behaviour), ("one", policy), ("uniform", uniform(mdp.layout))):
        got = found.values[one]
        assert got.estimate == pytest.approx(policy_value(mdp, true), abs=1e-5)
        assert got.known
        here, earned = mdp.initial, 0.0  # a slow account, in the units of the returns
        rows = np.eye(2)[true] if np.ndim(true) == 2 else np.asarray(true)
        for h in range(7):
            step = np.einsum("s,sa,sat->st", here, rows[h], mdp.transitions[0])
            if outcomes is None:
                own = (rows[h] * (low + scale * mdp.rewards[0])).sum(axis=1)
                earned += float(here[:3] @ own[:3])
            else:
                paid = np.zeros((5, 5))
                paid[:3, list(outcomes)] = list(outcomes.values())
                earned += float((step * paid).sum())
            here = step.sum(axis=0)
        assert got.in_units(scale, offset).estimate == pytest.approx(earned, abs=1e-4)
    least, most = ReturnBounds(low, high, (3, 4), outcomes).bounds(7)
    assert offset + scale * found.least == pytest.approx(least)
    assert offset + scale * found.bound == pytest.approx(most)
    ends = np.isin(mdp.layout.row_state, (3, 4))
    assert found.used["one"][:, ends].all()
    scarce = evaluate(expected(setting, 2.0), spec, candidates).values["one"]
    assert not scarce.known
    assert scarce.to_dict()["estimate"] is None
    units = scarce.in_units(scale, offset)
    assert least - 1e-9 <= units.low <= units.high <= most + 1e-9


def test_an_end_costs_no_support() -> None:
    """Under noise a world that is soon over is told by the steps before: ends' own counts do not matter."""
    mdp, spec, behaviour = ward(0.0, 1.0, {4: 1.0})
    drawn = draw(Setting(mdp, behaviour, 20_000, 2.0, False), 3)
    policy = np.ones((7, 5), np.int64)
    plain = evaluate(drawn, replace(spec, returns=None), {"one": PolicyEstimate(policy)}).values["one"]
    told = evaluate(drawn, spec, {"one": PolicyEstimate(policy)}).values["one"]
    assert told.low <= policy_value(mdp, policy) <= told.high
    assert told.high - told.low < 0.7 * (plain.high - plain.low)
