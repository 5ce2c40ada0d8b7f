"""Guarantees: computed from records, said in words, kept in JSON; recomputed by another route."""

import ast
import copy
import dataclasses
import json
import math
import pickle
from pathlib import Path

import numpy as np
import pytest

from discreet.accounting import budget
from discreet.accounting import pld as numerical
from discreet.accounting import pld_calibration as calibration
from discreet.accounting.binomial_noise import Flips
from discreet.accounting.binomial_noise_event import BinomialRecord
from discreet.accounting.randomized_response_event import ReportRecord
from discreet.accounting.shuffle_amplification_event import AmplifiedRecord
from discreet.accounting.text.guarantee_sentences import up
from discreet.core import guarantee as guarantee_module
from discreet.core.count_query import CountQuery
from discreet.core.guarantee import (
    Guarantee,
    MechanismRecord,
    guarantee_of,
    no_guarantee,
    parallel,
)
from discreet.core.layout import Layout

HORIZON = 20
QUERY = CountQuery(Layout(6, 2, HORIZON))


def record(noise="laplace", scale=1800.0, levels=15, query=QUERY):
    return MechanismRecord.of(
        query, "binary tree over users", noise, dict.fromkeys(query.families, scale), levels
    )


def listed(noise, scale, grid=1):
    """One sum, with every way in which a user can move it."""
    scales = dict.fromkeys(QUERY.families, scale)
    units = [(name, scale, grid if name == "rewards" else 1) for name in QUERY.families]
    ways = calibration.exchanges(calibration.shift_patterns(QUERY, 1), noise, units)
    return MechanismRecord.of(QUERY, "sum", noise, scales, 1, ways)


def joint(records, **options):
    return guarantee_of("joint", records, **{"randomness": "seeded", **options})


@pytest.mark.parametrize("users", [2, 3, 4, 5, 1000, 1024, 20_000])
def test_epsilon_of_the_tree(users):
    """spec/tabular.md, section 10, 2: exact is epsilon, published is 2 epsilon ceil(log2 K) / log K."""
    levels, epsilon = (users - 1).bit_length(), 0.7
    exact = joint([record(scale=6 * HORIZON * levels / epsilon, levels=levels)], epsilon_nominal=epsilon)
    assert exact.epsilon == pytest.approx(epsilon, rel=1e-12)
    assert "Nominal" not in exact.statement
    for log in (math.log, math.log2):
        scale = 3 * HORIZON * log(users) / epsilon
        published = joint([record(scale=scale, levels=levels)], epsilon_nominal=epsilon)
        expected = 2 * epsilon * math.ceil(math.log2(users)) / log(users)
        assert published.epsilon == pytest.approx(expected, rel=1e-12)
        assert published.epsilon_nominal == epsilon
        assert f"Nominal ε = 0.7, but the noise of this calibration gives ε = {up(expected, 6)}" in str(
            published
        )


def test_published_local_noise_is_two_epsilon():
    message = MechanismRecord.of(QUERY, "message", "laplace", dict.fromkeys(QUERY.families, 3 * HORIZON))
    guarantee = guarantee_of("local", [message], randomness="seeded", epsilon_nominal=1.0)
    assert guarantee.epsilon == pytest.approx(2.0)
    assert guarantee.statement.startswith("Local differential privacy:")
    assert "e^2 = 7.39 times what it was before (ε = 2, δ = 0)" in guarantee.statement
    assert "more privacy loss" in guarantee.statement


def test_sentence_of_a_pure_guarantee():
    guarantee = joint([record()], epsilon_nominal=1.0)
    text = str(guarantee)
    assert text == guarantee.statement
    for part in (
        "Joint differential privacy: after exchanging any one user's whole trajectory",
        "all other users see",
        "is at most e^1 = 2.72 times what it was before (ε = 1, δ = 0)",
        "each user in at most 15 noisy sums",
        "for simulation only",
        "The number of users is public",
    ):
        assert part in text
    assert (guarantee.rho, guarantee.mu, guarantee.delta) == (None, None, 0.0)
    assert "b = 1800 (l1 sensitivity 40)" in guarantee.composition[0]
    assert "epsilon = 15 x 0.0666667 = 1" in guarantee.composition[0]


def test_gaussian_noise_composes_in_mu():
    sigma = math.sqrt(6 * HORIZON * 15) / budget.gdp_mu(1.0, 1e-6)
    guarantee = joint([record("gaussian", sigma)], delta=1e-6, epsilon_nominal=1.0)
    assert guarantee.epsilon == pytest.approx(1.0, rel=1e-9)
    assert guarantee.mu == pytest.approx(1 / 4.2247, rel=1e-4)
    assert guarantee.rho == pytest.approx(guarantee.mu**2 / 2)
    assert "before, plus δ = 1e-06" in guarantee.statement
    split = joint([record("gaussian", sigma, 5), record("gaussian", sigma, 10)], delta=1e-6)
    assert split.mu == pytest.approx(guarantee.mu)
    assert len(split.composition) == 3


def test_discrete_gaussian_noise_claims_zcdp_only():
    sigma = math.sqrt(6 * HORIZON * 15 / (2 * budget.zcdp_rho(1.0, 1e-6)))
    guarantee = joint([record("discrete_gaussian", sigma)], delta=1e-6, randomness="secure")
    assert guarantee.mu is None
    assert guarantee.epsilon == pytest.approx(1.0, rel=1e-9)
    assert "cryptographic source" in guarantee.statement
    assert joint([record("gaussian", sigma)], delta=1e-6).epsilon < guarantee.epsilon


def test_families_that_are_jointly_bounded_cost_less_than_their_sum():
    centred = CountQuery(Layout(6, 2, HORIZON), center_rewards=True)
    assert record(query=centred).joint == pytest.approx(5 * HORIZON / 1800)
    own = record(query=centred).sensitivities
    assert own["centered_reward_sums"] == HORIZON
    stationary = CountQuery(Layout(6, 2, HORIZON), stationary=True)
    assert record("gaussian", 1.0, 1, stationary).joint == pytest.approx(math.sqrt(6) * HORIZON)


def test_json_has_exactly_the_fields_and_comes_back():
    for guarantee in (joint([record()]), joint([record("gaussian")], delta=1e-6), no_guarantee("seeded")):
        table = json.loads(guarantee.to_json())
        assert list(table) == [
            "trust", "epsilon", "delta", "rho", "mu", "exceeds", "epsilon_nominal", "unit", "neighbours",
            "users_public", "randomness", "holds_if_seed_is_guessed", "composition", "statement", "episodes",
            "reason", "mechanisms", "kinds",
        ]  # fmt: skip
        assert table["holds_if_seed_is_guessed"] is False
        assert Guarantee.from_dict(table) == guarantee
        assert pickle.loads(pickle.dumps(guarantee)) == guarantee
        with pytest.raises(ValueError, match="'spent' is unknown"):
            Guarantee.from_dict({**table, "spent": 1})
        if guarantee.epsilon is not None:
            for wrong in (
                None,
                {},
                {**table["exceeds"], "at_most": 1e-9},
                {**table["exceeds"], "epsilon": 0.0},
            ):
                with pytest.raises(ValueError, match="exceeds = "):
                    Guarantee.from_dict({**table, "exceeds": wrong})
        del table["mu"]
        with pytest.raises(ValueError, match="'mu' is missing"):
            Guarantee.from_dict(table)


def test_json_says_whether_the_claim_holds_against_who_guesses_the_seed():
    """Who reads epsilon alone took a simulation's for a promise."""
    seeded, secure = (
        joint([record("discrete_laplace")]),
        joint([record("discrete_laplace")], randomness="secure"),
    )
    assert not seeded.holds_if_seed_is_guessed
    assert secure.holds_if_seed_is_guessed
    assert not no_guarantee("secure").holds_if_seed_is_guessed
    for guarantee in (seeded, secure):
        table = guarantee.to_dict()
        assert table["holds_if_seed_is_guessed"] is guarantee.holds_if_seed_is_guessed
        for wrong in (not guarantee.holds_if_seed_is_guessed, "true", 1):
            with pytest.raises(ValueError, match="holds_if_seed_is_guessed"):
                Guarantee.from_dict({**table, "holds_if_seed_is_guessed": wrong})


def kinds():
    """Every way in which a guarantee is made: its closed forms, numerical accounting, kinds, nothing."""
    message = ReportRecord("reports", 2, {"moves": ("subset", 12, 3, 2**52 + 1, 0)})
    composed = listed("laplace", 40.0)
    gaussian = joint([record("gaussian")], delta=1e-6)
    flips = BinomialRecord("bits", ((("visits", Flips(2000, 1, 2**31)),),), ((("visits", 1, 2),),))
    shuffled = {"trust": "shuffle", "randomness": "seeded", "delta": 1e-6}
    amplified = AmplifiedRecord("reports of 1 step", ((1000, 1.5), (50, 0.25)))
    return {
        "pure": joint([record(), record(scale=700.0, levels=2)], epsilon_nominal=0.5, users_public=False),
        "gaussian": gaussian,
        "exact": joint([record("discrete_gaussian")], delta=1e-6, randomness="secure", episodes=3),
        "reports": guarantee_of("local", [message], randomness="secure"),
        "numerical": joint([composed], delta=1e-6),
        "flips": guarantee_of(records=[flips], **shuffled),
        "amplified": guarantee_of(records=[amplified], **shuffled),
        "kinds": parallel([("5 users", joint([record()])), ("7 users", gaussian)]),
        "nothing": no_guarantee("seeded", reason="of a baseline", episodes=2),
    }


KINDS = kinds()


@pytest.mark.parametrize("name", KINDS)
def test_every_guarantee_comes_back_from_its_numbers(name):
    guarantee = KINDS[name]
    table = json.loads(guarantee.to_json())
    assert Guarantee.from_dict(table) == guarantee
    assert hash(Guarantee.from_dict(table)) == hash(guarantee)
    assert pickle.loads(pickle.dumps(guarantee)) == guarantee
    for key in ("unit", "neighbours", "statement"):
        with pytest.raises(ValueError, match=f"{key} = .*is not the sentence of these numbers"):
            Guarantee.from_dict({**table, key: table[key] + " "})
    with pytest.raises(ValueError, match="composition = .*is not the sentence"):
        Guarantee.from_dict({**table, "composition": [*table["composition"], "Private."]})


@pytest.mark.parametrize("name", [name for name in KINDS if name != "nothing"])
def test_who_writes_numbers_and_sentences_anew_is_refused(name):
    """Sentences made of forged numbers are consistent; the mechanisms still give other numbers."""
    guarantee = KINDS[name]
    near = 1e-6 if any(one.numerical for one in guarantee.records) else 1e-9  # what may be rounding
    for field in ("epsilon", "rho", "mu"):
        if getattr(guarantee, field) is not None:
            dataclasses.replace(guarantee, **{field: (1 + near / 3) * getattr(guarantee, field)})
            for factor in (0.5, 1 - 3 * near, 1 + 3 * near, 2.0):
                false = factor * getattr(guarantee, field)
                with pytest.raises(ValueError, match=f"{field} = .* which the mechanisms give"):
                    dataclasses.replace(guarantee, **{field: false})
                forged = copy.copy(guarantee)
                object.__setattr__(forged, field, false)
                with pytest.raises(ValueError, match=f"{field} = .* which the mechanisms give"):
                    Guarantee.from_dict(json.loads(forged.to_json()))
    for changes, message in (
        ({"records": (), "kinds": ()}, "exactly one"), ({"reason": "none"}, "exactly one"),
        ({"trust": "none"}, "trust = 'none'"), ({"randomness": "lava"}, "randomness"),
        ({"trust": "everyone"}, "trust = 'everyone'"),
        ({"users_public": 1}, "users_public = 1"),
        ({"episodes": 0}, "episodes = 0"), ({"delta": 0.5}, "delta = 0.5|epsilon"),
        ({"epsilon": None, "rho": None, "mu": None}, "epsilon = None"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(guarantee, **changes)


def test_kinds_are_alike_and_promise_something():
    stated = KINDS["kinds"]
    (words, first), other = stated.kinds
    for change in ({"users_public": False}, {"episodes": 2}, {"epsilon_nominal": 1.0}, {"trust": "central"}):
        with pytest.raises(ValueError, match=f"kinds: {next(iter(change))} of '5 users'"):
            dataclasses.replace(stated, kinds=((words, dataclasses.replace(first, **change)), other))
    none = no_guarantee("seeded", reason="of a baseline")
    nothing = dataclasses.replace(none, trust="joint")
    assert parallel([other, (words, nothing)]) is nothing
    for kinds in ([other, (words, dataclasses.replace(none, trust="central"))], []):
        with pytest.raises(ValueError, match="kinds"):
            parallel(kinds)
    with pytest.raises(ValueError, match="every one must promise something"):
        dataclasses.replace(stated, kinds=((words, nothing), other))


def test_of_disjoint_users_every_number_is_the_worst_and_none_where_one_has_none():
    """Two Gaussian mechanisms of which each is the worse one in another number, and a pure one."""
    loud, late = record("gaussian", 2000.0), record("gaussian", 1900.0)
    first, second = joint([loud], delta=1e-6), joint([late], delta=1e-9)
    both = parallel([("a", first), ("b", second)])
    for name in ("epsilon", "delta", "rho", "mu"):
        assert getattr(both, name) == max(getattr(first, name), getattr(second, name))
    assert (both.delta, both.mu) == (1e-6, second.mu)
    mixed = parallel([("a", first), ("b", joint([record()]))])
    assert (mixed.rho, mixed.mu, mixed.delta) == (None, None, 1e-6)
    assert mixed.epsilon == max(first.epsilon, joint([record()]).epsilon)
    assert parallel([("a", first), ("b", first)]) is first
    assert (mixed.users_public, mixed.episodes, mixed.trust) == (True, 1, "joint")


def test_losses_of_several_mechanisms_on_the_same_users_add_up():
    """Laplace: levels times joint, summed. Gaussian: squares of sqrt(levels) times joint."""
    pure = joint([record(levels=2), record(scale=700.0, levels=3)])
    change = QUERY.sensitivity("l1", dict.fromkeys(QUERY.families, 1.0))
    assert pure.epsilon == pytest.approx(2 * change / 1800 + 3 * change / 700, rel=1e-12)
    assert (pure.delta, pure.rho, pure.mu) == (0.0, None, None)
    change = QUERY.sensitivity("l2", dict.fromkeys(QUERY.families, 1.0))
    squares = 2 * (change / 1800) ** 2 + 3 * (change / 700) ** 2
    for noise in ("gaussian", "discrete_gaussian"):
        found = joint([record(noise, levels=2), record(noise, 700.0, 3)], delta=1e-5)
        assert found.rho == pytest.approx(squares / 2, rel=1e-12)
        assert found.mu == (pytest.approx(math.sqrt(squares), rel=1e-12) if noise == "gaussian" else None)
        by_noise = budget.gdp_epsilon if noise == "gaussian" else budget.zcdp_epsilon
        assert found.epsilon == by_noise(found.mu or found.rho, 1e-5)
    mixed = joint([record("gaussian"), record("discrete_gaussian")], delta=1e-5)
    assert mixed.mu is None
    listing = joint([listed("discrete_gaussian", 30.0)], delta=1e-6)
    assert listing.rho == pytest.approx((change / 30) ** 2 / 2, rel=1e-12)
    assert listing.mu is None


def test_only_a_promise_under_system_randomness_outlives_a_guessed_seed():
    exact = KINDS["exact"]
    assert exact.holds_if_seed_is_guessed
    assert not joint([record()]).holds_if_seed_is_guessed
    assert not no_guarantee("secure").holds_if_seed_is_guessed
    named = dataclasses.replace(record(), mechanism="Bäume")
    assert "Bäume" in joint([named]).to_json()
    forged = copy.copy(exact)
    object.__setattr__(forged, "mu", math.nan)  # what no guarantee holds is not written either
    with pytest.raises(ValueError, match="JSON|finite"):
        forged.to_json()


def test_what_only_sentences_are_left_of_is_refused_plainly():
    table = KINDS["pure"].to_dict()
    for key in ("episodes", "reason", "mechanisms", "kinds"):
        del table[key]
    with pytest.raises(ValueError, match="no guarantee is made of sentences"):
        Guarantee.from_dict(table)


def test_records_of_a_guarantee_are_fixed():
    """They are shared with the session: no reader of a release changes what it says that it did."""
    message = KINDS["reports"].records[0]
    for table in (KINDS["pure"].records[0].scales, KINDS["pure"].records[0].sensitivities, message.alphabets):
        before = dict(table)
        name = next(iter(table))
        for change in (
            lambda t, n: t.__setitem__(n, 1.0), lambda t, n: t.pop(n), lambda t, n: t.clear(),
            lambda t, n: t.update({n: 1.0}), lambda t, n: t.__delitem__(n), lambda t, n: t.popitem(),
            lambda t, n: t.setdefault("more", 1.0), lambda t, n: t.__ior__({n: 1.0}),
        ):  # fmt: skip
            with pytest.raises(TypeError, match="fixed"):
                change(table, name)
        for again in (copy.copy(table), copy.deepcopy(table), pickle.loads(pickle.dumps(table))):
            assert again == table == before
            with pytest.raises(TypeError, match="fixed"):
                again.clear()


def test_guarantees_are_made_in_one_module():
    """Over the syntax tree of all source: no call of a class named Guarantee elsewhere."""
    source = Path(guarantee_module.__file__).parents[1]
    calls = {}
    for path in source.rglob("*.py"):
        text = path.read_text()
        if "Guarantee(" not in text.replace(" ", ""):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call):
                called = getattr(node.func, "id", getattr(node.func, "attr", None))
                if called == "Guarantee":
                    calls.setdefault(path.relative_to(source).as_posix(), set()).add(called)
    assert calls == {"core/guarantee.py": {"Guarantee"}}


def test_none_promises_nothing():
    guarantee = no_guarantee("seeded")
    assert guarantee.statement.startswith("No privacy guarantee:")
    assert json.loads(guarantee.to_json())["epsilon"] is None
    assert (guarantee.trust, guarantee.rho, guarantee.mu) == ("none", None, None)
    told = no_guarantee("seeded", reason="noise is drawn again at each release")
    told = dataclasses.replace(told, trust="joint", epsilon_nominal=1.0)
    assert str(told) == "No privacy guarantee: noise is drawn again at each release."


def test_what_does_not_fit_is_refused():
    laplace, gaussian = record(), record("gaussian")
    with pytest.raises(ValueError, match="all Laplace or all Gaussian"):
        joint([laplace, gaussian], delta=1e-6)
    with pytest.raises(ValueError, match="at least one"):
        joint([])
    with pytest.raises(ValueError, match="delta = 1e-06: must be 0 or None for Laplace"):
        joint([laplace], delta=1e-6)
    for delta in (None, 0.0):
        with pytest.raises(ValueError, match="delta"):
            joint([gaussian], delta=delta)
    with pytest.raises(ValueError, match="secure randomness must draw discrete noise"):
        joint([laplace], randomness="secure")
    with pytest.raises(ValueError, match="trust"):
        guarantee_of("none", [laplace], randomness="seeded")
    with pytest.raises(ValueError, match="epsilon = 1"):
        dataclasses.replace(no_guarantee("seeded"), epsilon=1.0)
    with pytest.raises(ValueError, match=r"joint = 0\.5: must be in"):
        dataclasses.replace(laplace, joint=0.5)
    with pytest.raises(ValueError, match="joint"):
        dataclasses.replace(laplace, joint=0.01)
    with pytest.raises(ValueError, match="must be those of sensitivities"):
        dataclasses.replace(laplace, scales={"visits": 1800.0})
    with pytest.raises(ValueError, match="levels = 0"):
        dataclasses.replace(laplace, levels=0)
    with pytest.raises(
        ValueError, match="noise = 'cauchy': must be one of 'laplace', 'gaussian', 'discrete_lap"
    ):
        dataclasses.replace(laplace, noise="cauchy")


def test_epsilon_bounds_the_density_ratio_of_adaptive_laplace_releases():
    """Worst pair of neighbours, brute force: exp(epsilon) is attained at extreme outputs and never passed."""
    small = CountQuery(Layout(2, 2, 2))
    scale, levels = 30.0, 3
    epsilon = joint([record(scale=scale, levels=levels, query=small)]).epsilon
    rng = np.random.default_rng(0)
    shift = np.zeros(small.cells)
    shift[:6], shift[6:12] = 1.0, -1.0  # 12 unit changes: three families, two steps, out and in
    outputs = rng.laplace(0, 10 * scale, (2000, levels, small.cells))
    outputs[0, :, :6], outputs[0, :, 6:] = 1e6, -1e6
    losses = (np.abs(outputs - 0) - np.abs(outputs - shift)).sum(axis=(1, 2)) / scale
    assert losses.max() == pytest.approx(epsilon)
    assert np.abs(losses).max() <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize(
    ("noise", "scale", "delta"),
    [("laplace", 1800.0, None), ("gaussian", 179.24, 1e-6), ("discrete_gaussian", 192.3, 1e-6)],
)
def test_guarantees_recomputed_through_dp_accounting(noise, scale, delta):
    records = [record(noise, scale)]
    guarantee = joint(records, delta=delta)
    assert numerical.verify(guarantee, records) == pytest.approx(guarantee.epsilon, rel=2e-3)
    for claimed in (0.5, 0.98):
        with pytest.raises(ValueError, match="which the mechanisms give"):
            dataclasses.replace(guarantee, epsilon=claimed * guarantee.epsilon)
        with pytest.raises(ValueError, match="is not what the noise gives"):
            numerical.verify(joint([record(noise, scale / claimed)], delta=delta), records)
    with pytest.raises(ValueError, match="states no epsilon"):
        numerical.verify(no_guarantee("seeded"), records)
