"""An own convolution of privacy losses against closed forms, dp-accounting, and bugs elsewhere."""

import math
from collections.abc import Iterator
from typing import Any

import pytest

from discreet.accounting import budget
from discreet.accounting import pld as numerical
from discreet.accounting import pld_calibration as calibration
from discreet.accounting import pld_convolution as convolution
from discreet.accounting.pld_convolution import loss_norm, recomposed_epsilon
from discreet.core.count_query import CountQuery
from discreet.core.guarantee import MechanismRecord
from discreet.core.layout import Layout
from discreet.core.rng import Secure, Seeded
from discreet.mechanisms.privatizers.central import Central

DISCRETE = ("discrete_gaussian", 26.726, 1.0, 40)


def test_gaussian_losses_are_the_closed_form() -> None:
    """mu of all coordinates together; the split of cells adds a few millionths."""
    for mu, count, delta in ((0.2, 1, 1e-6), (1 / 26, 40, 1e-10), (0.01, 2500, 1e-3)):
        found = recomposed_epsilon([("gaussian", 1.0, mu, count)], delta)
        exact = budget.gdp_epsilon(mu * math.sqrt(count), delta)
        assert exact * (1 - 1e-9) <= found <= exact * (1 + 1e-4)


def test_one_laplace_shift_is_the_closed_form() -> None:
    """delta(epsilon) = 1 - e^{(epsilon - shift/b)/2}, and far below it the pure epsilon."""
    for delta in (1e-9, 1e-3, 0.2):
        expected = 1.0 + 2 * math.log1p(-delta)
        assert recomposed_epsilon([("laplace", 2.0, 2.0, 1)], delta) == pytest.approx(expected, rel=1e-4)
    assert recomposed_epsilon([("laplace", 1.0, 0.1, 3)], 0.9) == 0.0


def test_randomized_response_is_the_closed_form() -> None:
    """delta(epsilon) of one: p - e^epsilon (1 - p)."""
    p = math.exp(0.7) / (1 + math.exp(0.7))
    for epsilon in (0.2, 0.6):
        delta = p - math.exp(epsilon) * (1 - p)
        assert recomposed_epsilon([("pure", 1.0, 0.7, 1)], delta) == pytest.approx(epsilon, rel=1e-6)


def test_one_discrete_shift_is_the_sum_over_integers() -> None:
    for noise, scale, shift, delta in (
        ("discrete_laplace", 3.0, 4, 1e-2),
        ("discrete_gaussian", 3.0, 4, 1e-4),
        ("discrete_gaussian", 0.5, 1, 1e-3),
    ):
        found = recomposed_epsilon([(noise, scale, float(shift), 1)], delta)
        exponents = {
            z: abs(z) / scale if "laplace" in noise else (z / scale) ** 2 / 2 for z in range(-200, 201)
        }
        law = {z: math.exp(-x) for z, x in exponents.items()}
        total = math.fsum(law.values())
        told = math.fsum(
            max(0.0, law[z - shift] - math.exp(found) * law[z]) / total for z in range(shift - 200, 201)
        )
        assert told == pytest.approx(delta, rel=2e-3)


@pytest.mark.parametrize(
    "coordinates",
    [
        (DISCRETE,),
        (("discrete_gaussian", 2.3, 1.0, 4), ("discrete_gaussian", 1500.0, 512.0, 2)),
        (("laplace", 2.0, 1.0, 2), ("laplace", 3.0, 0.5, 4)),
        (("discrete_laplace", 20.0, 1.0, 40), ("discrete_laplace", 20000.0, 512.0, 40)),
        (("pure", 1.0, 0.3, 10), ("gaussian", 5.0, 1.0, 4)),
    ],
)
def test_mixtures_agree_with_the_library(coordinates: Any) -> None:
    found = recomposed_epsilon(coordinates, 1e-6)
    assert found == pytest.approx(numerical.composed_epsilon(coordinates, 1e-6), rel=2e-4)


def test_integers_become_a_continuum_without_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    fine = [("discrete_gaussian", 900.0, 40.0, 20)]
    exact = recomposed_epsilon(fine, 1e-6)
    monkeypatch.setattr(convolution, "_FINE", 100.0)
    assert recomposed_epsilon(fine, 1e-6) == pytest.approx(exact, rel=1e-6)


def test_bad_input_is_refused() -> None:
    for coordinates, match in (
        ([], "coordinates is empty"),
        ([("cauchy", 1.0, 1.0, 1)], "noise"),
        ([("discrete_laplace", 2.0, 0.5, 1)], "whole number"),
        ([("laplace", -2.0, 0.5, 1)], "scale"),
    ):
        with pytest.raises(ValueError, match=match):
            recomposed_epsilon(coordinates, 1e-6)
    with pytest.raises(ValueError, match="delta"):
        recomposed_epsilon([DISCRETE], 1e-11)


@pytest.mark.parametrize("asked", [{}, {"visits": False, "center_rewards": True}])
def test_the_ways_to_exchange_a_user_move_what_the_joint_sensitivity_says(asked: Any) -> None:
    """Two derivations of one number: the table of ways, and the maximum over pairs of trajectories."""
    query = CountQuery(Layout(3, 2, 5), **asked)
    for noise, power in (("discrete_gaussian", 2), ("laplace", 1)):
        scales = {name: 3.0 + f for f, name in enumerate(query.row_families)}
        patterns = calibration.shift_patterns(query, 2)
        assert patterns is not None
        ways = calibration.exchanges(patterns, noise, [(n, s, 1) for n, s in scales.items()])
        record = MechanismRecord.of(query, "batches", noise, scales, 2, ways)  # type: ignore[arg-type]
        assert max(loss_norm(way, power) for way in ways) == pytest.approx(record.loss, rel=1e-9)


# ------------------------------------------------------------------- bugs in what makes the guarantee
CACHED = (numerical.composed_epsilon, numerical._coordinate_pld, calibration.least_factor)


@pytest.fixture
def fresh() -> Iterator[None]:
    """Nothing that a bug has made is left behind, nor anything from before it."""
    for function in CACHED:
        function.cache_clear()
    yield
    for function in CACHED:
        function.cache_clear()


def stated(randomness: Any, **options: Any) -> Any:
    """(guarantee, records) of a release for stored people, as ``learn`` makes it."""
    session = Central(epsilon=1.0, delta=1e-6, **options).stored(
        CountQuery(Layout(3, 2, 4), visits=False, center_rewards=True), randomness
    )
    with session:
        return session.guarantee, session.records


KINDS = {"secure": (Secure(), {"noise": "gaussian"}), "laplace": (Seeded(1), {"noise": "laplace"})}


@pytest.mark.parametrize("kind", KINDS)
def test_an_honest_release_is_verified(kind: str, fresh: None) -> None:
    randomness, options = KINDS[kind]
    guarantee, records = stated(randomness, **options)
    assert records[0].exchanges
    assert numerical.verify(guarantee, records) == pytest.approx(guarantee.epsilon, rel=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_half_the_epsilon_is_exposed(kind: str, fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug in the very function that makes the guarantee: half the noise is released as if it were all."""
    randomness, options = KINDS[kind]
    right = numerical.composed_epsilon
    monkeypatch.setattr(numerical, "composed_epsilon", lambda *a: 0.5 * right(*a))
    wrong, records = stated(randomness, **options)
    assert wrong.epsilon == pytest.approx(1.0, rel=1e-2)
    with pytest.raises(ValueError, match="is not what the noise gives: recomputed"):
        numerical.verify(wrong, records)


def test_a_wrong_law_of_discrete_noise_is_exposed(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug further inside: losses of noise with 1.05 times its deviation, under the caches too."""
    right = numerical._discrete_gaussian_pld
    monkeypatch.setattr(numerical, "_discrete_gaussian_pld", lambda s, x, h: right(1.05 * s, x, h))
    randomness, options = KINDS["secure"]
    wrong, records = stated(randomness, **options)
    with pytest.raises(ValueError, match="is not what the noise gives: recomputed"):
        numerical.verify(wrong, records)


def test_a_way_to_exchange_a_user_that_moves_too_little_is_exposed(
    fresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the moved cells forgotten: the joint sensitivity, made elsewhere, says so."""
    right = calibration.shift_patterns

    def forgetful(query: Any, levels: int) -> Any:
        return tuple(tuple((n, x, max(1, c // 2)) for n, x, c in way) for way in right(query, levels) or ())

    monkeypatch.setattr(calibration, "shift_patterns", forgetful)
    with pytest.raises(ValueError, match="exchanges"):  # by the record itself
        stated(Secure(), noise="gaussian")
    monkeypatch.setattr(calibration, "check_listed", lambda _: None)
    wrong, records = stated(Secure(), noise="gaussian")
    with pytest.raises(ValueError, match="exchanges"):
        numerical.verify(wrong, records)
