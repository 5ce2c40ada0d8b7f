"""What releases cost together, against computations by dp-accounting that share no code with ours."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import special
from scipy.stats import norm

from discreet.accounting import budget
from discreet.accounting import pld as numerical
from discreet.accounting import pld_calibration as calibration
from discreet.accounting import privacy_filter as filters
from discreet.accounting.binomial_noise_event import BinomialRecord
from discreet.accounting.randomized_response_event import ReportRecord
from discreet.accounting.skellam_event import SkellamRecord
from discreet.accounting.skellam_loss import SkellamLoss
from discreet.core.correlated_noise.signed_digit_tree import SignedDigits
from discreet.core.count_mechanism import CountMechanism, Stated
from discreet.core.count_query import CountQuery
from discreet.core.guarantee import MechanismRecord
from discreet.core.layout import Layout
from discreet.core.noise.noises import LAPLACE
from discreet.core.releases import Schedule
from discreet.core.strategies import Batches, Prefixes

DELTA = 1e-6


def laplace(epsilon: float, levels: int = 1) -> MechanismRecord:
    return MechanismRecord("counts", "discrete_laplace", {"v": 1 / epsilon}, {"v": 1.0}, epsilon, levels)


def gaussian(mu: float, levels: int = 1) -> MechanismRecord:
    return MechanismRecord("sums", "gaussian", {"v": 1 / mu}, {"v": 1.0}, mu, levels)


def discrete(sigma: float, count: int) -> MechanismRecord:
    """``count`` cells move by one unit each."""
    moved = (("discrete_gaussian", sigma, 1.0, count),)
    own = math.sqrt(count)
    return MechanismRecord(
        "counts", "discrete_gaussian", {"v": sigma}, {"v": own}, own / sigma, exchanges=(moved,)
    )


REPORTS = ReportRecord("reports", 4, {"step 0": ("unary", 4, 1, 2**52 + 2**50, 2**51)})


# ------------------------------------------------------------------------------ one mechanism


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 4.0, 20.0])
def test_a_pure_mechanism_in_the_other_notions(epsilon: float) -> None:
    """Against randomized response itself: its divergences of all orders, and its trade-off function."""
    p = 1 / (1 + math.exp(-epsilon))
    rho = filters.pure_rho(epsilon)
    orders = 1 + np.geomspace(1e-4, 1e3, 400)
    log_p, log_q = math.log(p), math.log(1 - p)
    divergence = np.logaddexp(
        orders * log_p + (1 - orders) * log_q, orders * log_q + (1 - orders) * log_p
    ) / (orders - 1)
    assert (divergence <= rho * orders * (1 + 1e-9) + 1e-9).all()
    assert divergence[0] == pytest.approx(rho, rel=1e-3, abs=1e-9)  # tight
    assert rho <= min(epsilon, epsilon**2 / 2)
    mu = filters.pure_mu(epsilon)
    false = np.linspace(1e-9, 1 - 1e-9, 2001)
    exact = np.maximum(np.maximum(0, 1 - math.exp(epsilon) * false), math.exp(-epsilon) * (1 - false))
    assert (norm.cdf(norm.isf(false) - mu) <= exact + 1e-12).all()
    assert norm.cdf(norm.isf(1 - p) - mu) == pytest.approx(1 - p)  # tight


def test_losses_of_records() -> None:
    assert filters.pure_loss(laplace(0.5, 3)) == 1.5
    assert filters.pure_loss(gaussian(1.0)) is None
    assert filters.zcdp_loss(laplace(0.5, 3)) == pytest.approx(1.5 * math.tanh(0.75))
    assert filters.gdp_loss(laplace(0.5, 3)) == pytest.approx(filters.pure_mu(1.5) ** 2)
    assert filters.zcdp_loss(gaussian(0.5, 4)) == pytest.approx(0.5)
    assert filters.gdp_loss(gaussian(0.5, 4)) == pytest.approx(1.0)
    assert filters.gdp_loss(discrete(3.0, 2)) is None
    assert filters.zcdp_loss(discrete(3.0, 2)) == pytest.approx(2 / 9 / 2)
    one = REPORTS.loss / 4
    assert filters.zcdp_loss(REPORTS) == pytest.approx(4 * one * math.tanh(one / 2))
    split = dataclasses.replace(
        laplace(1.0), exchanges=((("discrete_laplace", 10.0, 1.0, 10),), (("discrete_laplace", 5.0, 1.0, 5),))
    )
    assert filters.zcdp_loss(split) == pytest.approx(5 * 0.2 * math.tanh(0.1))  # the worst of both


# ------------------------------------------------------------------------------ given mechanisms


def accountant_epsilon(*events: object, relation: str = "ADD_OR_REMOVE_ONE") -> float:
    from dp_accounting import NeighboringRelation, dp_event
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant(NeighboringRelation[relation], value_discretization_interval=1e-4)
    accountant.compose(dp_event.ComposedDpEvent(list(events)))
    return float(accountant.get_epsilon(DELTA))


def test_gaussian_noise_composes_by_mu() -> None:
    from dp_accounting import dp_event

    records = [gaussian(0.3), gaussian(0.4, 2)]
    epsilon, how = filters.composed(records, DELTA)
    assert how == filters.GAUSSIAN
    assert epsilon == pytest.approx(budget.gdp_epsilon(math.sqrt(0.09 + 0.32), DELTA), rel=1e-12)
    assert epsilon == pytest.approx(
        accountant_epsilon(
            dp_event.GaussianDpEvent(1 / 0.3),
            dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(1 / 0.4), 2),
        ),
        rel=1e-3,
    )  # fmt: skip
    assert filters.composed(records, 0.0)[0] == math.inf


def test_laplace_noise_adds_without_delta_and_composes_better_with_it() -> None:
    from dp_accounting import dp_event

    records = [laplace(0.1)] * 20 + [laplace(0.2)] * 10
    assert filters.composed(records, 0.0) == (pytest.approx(4.0), filters.PURE)
    epsilon, how = filters.composed(records, DELTA)
    assert how == filters.NUMERICAL
    exact = accountant_epsilon(
        dp_event.SelfComposedDpEvent(dp_event.LaplaceDpEvent(10.0), 20),
        dp_event.SelfComposedDpEvent(dp_event.LaplaceDpEvent(5.0), 10),
    )
    # randomized response stands for Laplace noise whose shift may be spread over cells: a little more
    assert exact <= epsilon <= 1.05 * exact
    # one by one: the accountant drops the count of self-composed randomized responses
    responses = [dp_event.RandomizedResponseDpEvent(2 / (1 + math.exp(0.1)), 2)] * 20
    responses += [dp_event.RandomizedResponseDpEvent(2 / (1 + math.exp(0.2)), 2)] * 10
    assert epsilon == pytest.approx(accountant_epsilon(*responses, relation="REPLACE_ONE"), rel=2e-3)


@pytest.mark.parametrize("delta", [1e-6, 1e-3, 0.02, 0.1])
def test_noise_that_is_used_before_its_data_does_not_compose_sum_by_sum(delta: float) -> None:
    """Who knows the releases before the leaf 3^(L-1) of signed digits knows all differences of its L noises.

    Given that they are equal in the two cells that a user may move, she is hidden by noise of scale b / L.
    """
    levels, scale = 7, 60.0
    query = CountQuery(Layout(2, 2, 1), visits=False, known_rewards=True)
    leaf = 3 ** (levels - 1)
    walk = SignedDigits(leaf + 2, 3, levels)
    mechanism = CountMechanism(
        query, Schedule(leaf + 2), "seeded", Prefixes(walk), LAPLACE, np.array([scale])
    )
    (record,) = mechanism.records
    assert record.loss == pytest.approx(levels * 2.0 / scale)
    true = numerical.laplace_epsilon([(levels / scale, 2)], delta)
    by_rho, by_mu = (one([record], delta)[0] for one in (filters._zcdp, filters._gaussian))
    assert min(filters.composed([record], delta)[0], by_rho, by_mu) >= true * (1 - 1e-3) - 1e-4


def test_discrete_gaussian_noise_composes_numerically() -> None:
    from dp_accounting.pld import privacy_loss_distribution as pld

    epsilon, how = filters.composed([discrete(4.0, 4), discrete(6.0, 9)], DELTA)
    assert how == filters.NUMERICAL
    parts = [
        pld.from_discrete_gaussian_mechanism(sigma, 1, value_discretization_interval=1e-4).self_compose(count)
        for sigma, count in ((4.0, 4), (6.0, 9))
    ]
    assert epsilon == pytest.approx(parts[0].compose(parts[1]).get_epsilon_for_delta(DELTA), rel=2e-3)
    closed = [dataclasses.replace(record, exchanges=()) for record in (discrete(4.0, 4), discrete(6.0, 9))]
    by_rho = filters.composed(closed, DELTA)
    assert by_rho == (pytest.approx(budget.zcdp_epsilon(0.25, DELTA)), filters.ZCDP)
    assert epsilon < by_rho[0] < 1.15 * epsilon


def test_mixtures() -> None:
    from dp_accounting import dp_event

    epsilon, how = filters.composed([gaussian(0.5), laplace(0.3)], DELTA)
    assert how == filters.NUMERICAL
    exact = accountant_epsilon(dp_event.GaussianDpEvent(2.0), dp_event.LaplaceDpEvent(1 / 0.3))
    assert exact <= epsilon <= 1.03 * exact
    unlisted = MechanismRecord("sums", "discrete_gaussian", {"v": 2.0}, {"v": 1.0}, 0.5)
    found, how = filters.composed([unlisted, laplace(0.3), REPORTS], DELTA)
    rho = 0.125 + filters.pure_rho(0.3) + filters.zcdp_loss(REPORTS)
    assert (found, how) == (pytest.approx(budget.zcdp_epsilon(rho, DELTA)), filters.ZCDP)
    assert filters.composed([discrete(4.0, 4)] * 2, DELTA)[0] > filters.composed([discrete(4.0, 4)], DELTA)[0]


def test_the_worst_exchange_of_all_records_together_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "check_listed", lambda _: None)  # no mechanism has noises of two kinds
    ways = ((("discrete_laplace", 2.0, 1.0, 2),), (("discrete_gaussian", 1.0, 1.0, 2),))
    mixed = dataclasses.replace(discrete(1.0, 2), exchanges=ways)
    either = [filters.composed([dataclasses.replace(mixed, exchanges=(way,))] * 2, DELTA)[0] for way in ways]
    assert filters.composed([mixed, mixed], DELTA)[0] >= max(either) * (1 - 1e-9)


def test_the_way_in_a_later_record_may_follow_from_an_earlier_release() -> None:
    """Two records of one step with centred rewards: the second's way is chosen by the first one's loss."""
    query = CountQuery(Layout(3, 2, 1), center_rewards=True)
    mechanism = CountMechanism(
        query, Schedule(3, np.arange(3)), "secure", Batches(), LAPLACE, np.array([5.5, 9.0, 1.7]), 2,
        stated=Stated(1e-3, numerical=True),
    )  # fmt: skip
    (record,) = mechanism.records
    assert len(record.exchanges) == 2
    step = 2e-3

    def law(way: tuple[numerical.Coordinate, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Losses, each rounded down, and their masses: no more than the truth."""
        masses, low = np.ones(1), 0
        for _, scale, shift, count in way:
            z, by = np.arange(-300, 301), int(shift)
            mass = np.exp(-np.abs(z) / scale)
            mass /= mass.sum()
            at = np.floor(np.log(mass[by:] / mass[:-by]) / step).astype(int)
            for _ in range(count):
                masses, low = np.convolve(masses, np.bincount(at - at.min(), mass[by:])), low + at.min()
        return (low + np.arange(masses.size)) * step, masses

    def delta(one: tuple[np.ndarray, np.ndarray], epsilon: np.ndarray) -> np.ndarray:
        losses, masses = one
        at = np.searchsorted(losses, epsilon, side="right")
        above, weighed = (
            np.append(np.cumsum(x[::-1])[::-1], 0.0) for x in (masses, masses * np.exp(-losses))
        )
        return np.maximum(above[at] - np.exp(epsilon) * weighed[at], 0.0)

    laws = [law(way) for way in record.exchanges]
    epsilon = filters.composed([record, record], 1e-2)[0]
    found = [first[1] @ np.max([delta(one, epsilon - first[0]) for one in laws], 0) for first in laws]
    assert max(found) <= 1e-2


def test_too_much_for_numbers_is_told_by_rho() -> None:
    many = [discrete(300.0, 900)] * 3
    assert filters.composed(many, DELTA)[1] == filters.ZCDP
    assert filters.composed(many, 1e-12)[1] == filters.ZCDP  # and so is a delta below double precision


def test_nothing_costs_nothing() -> None:
    assert filters.composed([], DELTA) == (0.0, filters.PURE)
    nothing = ReportRecord("reports", 1, {"step 0": ("unary", 1, 1, 2**52, 2**52)})
    assert filters.composed([nothing], DELTA)[0] == 0.0
    for delta in (-1e-9, 1.0, math.nan):
        with pytest.raises(ValueError, match="delta"):
            filters.composed([], delta)
        with pytest.raises(ValueError, match="delta"):
            filters.filtered([], delta)


# ------------------------------------------------------------------------------ chosen on the way


def test_the_first_reservation_alone_may_be_numerical_and_later_ones_go_by_rho() -> None:
    first = discrete(6.0, 9)
    alone = filters.filtered([[first]], DELTA)
    assert alone == filters.composed([first], DELTA)
    assert alone[1] == filters.NUMERICAL
    both, rule = filters.filtered([[first], [first]], DELTA)
    assert (both, rule) == (pytest.approx(budget.zcdp_epsilon(0.25, DELTA)), filters.ZCDP)
    # what the proof needs: who passes by numbers alone leaves no room for a second one, however small
    assert filters.filtered([[first], [laplace(1e-9)]], DELTA)[0] > budget.zcdp_epsilon(0.125, DELTA) * (
        1 - 1e-9
    )


def test_the_rule_is_the_first_reservation_s() -> None:
    small = gaussian(0.2)
    found = filters.filtered([[small]] * 5, DELTA)
    assert found == (pytest.approx(budget.gdp_epsilon(0.2 * math.sqrt(5), DELTA)), filters.GAUSSIAN)
    mixed = filters.filtered([[small], [laplace(0.1)]], DELTA)
    mu = math.sqrt(0.04 + filters.pure_mu(0.1) ** 2)
    assert mixed == (pytest.approx(budget.gdp_epsilon(mu, DELTA)), filters.GAUSSIAN)
    assert filters.filtered([[small], [discrete(4.0, 4)]], DELTA)[0] == math.inf
    other_way = filters.filtered([[discrete(4.0, 4)], [small]], DELTA)
    assert other_way == (pytest.approx(budget.zcdp_epsilon(0.125 + 0.02, DELTA)), filters.ZCDP)


def test_pure_epsilons_pass_by_their_sum_or_by_rho() -> None:
    few, many = [[laplace(0.5)]] * 2, [[laplace(0.01)]] * 4000
    assert filters.filtered(few, DELTA) == (1.0, filters.PURE)
    assert filters.filtered(few, 0.0) == (1.0, filters.PURE)
    found, rule = filters.filtered(many, DELTA)
    assert rule == filters.ZCDP
    assert found < 4.0 < 40.0 == pytest.approx(filters.filtered(many, 0.0)[0])
    assert filters.filtered([[laplace(0.5)], [gaussian(1.0)]], 0.0)[0] == math.inf


# ------------------------------------------------------------------------------ parallel composition


def sums(loss: float, noise: str = "discrete_gaussian") -> MechanismRecord:
    return MechanismRecord("others", noise, {"w": 2.0 / loss}, {"w": 2.0}, loss)  # type: ignore[arg-type]


def test_covering_records_cost_more_by_every_rule() -> None:
    """Whatever else is reserved, and at every delta."""
    for own, other, beside in (
        (sums(0.8), sums(0.8), (sums(0.3), laplace(0.4), REPORTS)),
        (gaussian(0.5), sums(0.49, "gaussian"), (gaussian(0.2), laplace(0.1))),
        (laplace(0.7), sums(0.7, "discrete_laplace"), (laplace(0.2), REPORTS, discrete(3.0, 2))),
    ):
        assert filters.covers([own], [other])
        for delta in (0.0, 1e-8, 1e-3):
            for some in ([], list(beside[:1]), list(beside)):
                for rule in (filters.closed, filters.composed):
                    covered, total = (rule([one, *some], delta)[0] for one in (other, own))
                    assert covered <= total * (1 + 1e-12)
                parts = [[one, *some[:1]] for one in (other, own)]
                covered, total = (filters.filtered([one, some[1:] or some], delta)[0] for one in parts)
                assert covered <= total * (1 + 1e-12)


def test_other_records_do_not_cover() -> None:
    assert filters.covers([sums(0.3), sums(0.4)], [sums(0.5)])
    for records, others in (
        ([sums(0.5)], [sums(0.5 + 1e-9)]),
        ([sums(0.5)], [sums(0.4, "gaussian")]),  # another noise has other rules
        ([sums(0.5)], [laplace(0.1)]),
        ([discrete(2.0, 4)], [sums(0.1)]),  # its epsilon is numerical, below the closed form
        ([sums(0.5)], [discrete(100.0, 1)]),
        ([REPORTS], [sums(0.1)]),
        ([sums(0.5)], [sums(0.4), sums(0.4)]),
        ([], [sums(0.1)]),
        ([sums(0.1)], []),
    ):
        assert not filters.covers(records, others)


def test_one_mechanism_is_not_covered_by_several_of_the_same_total_epsilon() -> None:
    """At delta > 0, the total of the several is smaller, so it is no bound for users of the one."""
    several, one = [sums(0.1, "laplace")] * 100, [sums(10.0, "laplace")]
    assert filters.composed(several, 1e-6)[0] < 5.0 < 9.9 < filters.composed(one, 1e-6)[0]
    assert not filters.covers(several, one)
    assert filters.covers(several, several)
    assert filters.covers([sums(0.1, "laplace"), sums(0.3, "laplace")], [sums(0.2, "laplace")])
    assert not filters.covers([sums(0.2, "laplace")], [sums(0.1, "laplace")] * 2)


# ------------------------------------------------------------------------------ shuffled sums
def skellam(*pairs: tuple[float, int]) -> SkellamRecord:
    """A record of batches of one cell each: (variance, change)."""
    losses = [SkellamLoss(d / math.sqrt(v), d / v, d / v, d, v) for v, d in pairs]
    parts = [(5, one.mu, one.l1, one.step, one.shift, one.variance) for one in losses]
    return SkellamRecord("sums of contexts", tuple(parts))


def test_rho_of_skellam_noise_bounds_the_divergence_of_every_order():
    record = skellam((400.0, 7), (9000.0, 20), (2.0**34, 2**14))
    rho = filters.zcdp_loss(record)
    least = max(0.5 * d * d / v for v, d in ((400.0, 7), (9000.0, 20), (2.0**34, 2**14)))
    for order in np.exp(np.linspace(math.log(1.25), math.log(256.0), 2000)):
        assert record.renyi(float(order)) <= order * rho * (1 + 1e-12)
    assert least < rho
    large = skellam((2.0**34, 2**14))  # as of real batches
    assert filters.zcdp_loss(large) < 1.001 * 0.5 * 2**28 / 2**34


def pmf(v: float, reach: int) -> np.ndarray:
    return special.ive(np.abs(np.arange(-reach, reach + 1)), v)


@pytest.mark.parametrize("times", [2, 5])
@pytest.mark.parametrize("pair", [(1e5, 300), (4e6, 600)])
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_totals_of_skellam_noise_hold_in_the_hockey_stick(times, pair, delta):
    """The losses of all releases are added by convolution; rounding down gives a lower bound on delta."""
    (v, d), step = pair, 1e-3
    reach = int(14 * math.sqrt(v)) + d
    p = pmf(v, reach)
    plain, shifted = p[d:], p[:-d]  # P(k) and P(k - d)
    kept = (plain > 1e-300) & (shifted > 1e-300)
    loss = np.floor(np.log(shifted[kept] / plain[kept]) / step).astype(int)
    law = np.zeros(loss.max() - loss.min() + 1)
    np.add.at(law, loss - loss.min(), shifted[kept])
    total, low = np.ones(1), 0
    for _ in range(times):
        total, low = np.convolve(total, law), low + loss.min()
    losses = (low + np.arange(total.size)) * step
    epsilon, rule = filters.composed([skellam(pair)] * times, delta)
    assert rule == filters.ZCDP
    true = (total * np.maximum(0.0, -np.expm1(epsilon - losses))).sum()
    assert true <= delta
    assert filters.filtered([[skellam(pair)]] * times, delta)[0] == epsilon
    smaller = (total * np.maximum(0.0, -np.expm1(0.7 * epsilon - losses))).sum()
    assert smaller > delta  # and the total is not far too large
    one = filters.composed([skellam(pair)], delta)
    assert one == (skellam(pair).epsilon(delta), filters.RENYI)


def test_totals_with_other_noise_and_records_that_are_refused():
    record, gaussian = (
        skellam((2.0**30, 2**13)),
        MechanismRecord("m", "gaussian", {"a": 4.0}, {"a": 1.0}, 0.25),
    )
    discrete = MechanismRecord("m", "discrete_gaussian", {"a": 4.0}, {"a": 1.0}, 0.25)
    for other in (gaussian, discrete):
        epsilon, rule = filters.composed([record, other], 1e-6)
        rho = filters.zcdp_loss(record) + filters.zcdp_loss(other)
        assert rule == filters.ZCDP
        assert budget.zcdp_epsilon(rho, 1e-6) <= epsilon <= budget.zcdp_epsilon(rho, 1e-6) * 1.001
    assert filters.filtered([[gaussian], [record]], 1e-6)[0] == math.inf  # the rule of the first is another
    assert filters.filtered([[discrete], [record]], 1e-6)[0] == math.inf
    assert filters.filtered([[record], [discrete]], 1e-6)[0] == filters.composed([record, discrete], 1e-6)[0]
    assert filters.filtered([[discrete, record], [discrete]], 1e-6)[0] < math.inf
    assert filters.total_rho([record, discrete]) is None  # no rho holds at all orders
    assert filters.total_rho([discrete]) == filters.zcdp_loss(discrete)
    assert filters.composed([record, discrete], 1e-12) == (math.inf, filters.NONE)
    assert filters.composed([record], 0.0) == (math.inf, filters.NONE)
    assert filters.pure_loss(record) is filters.gdp_loss(record) is None
    assert not filters.covers([record], [record])
    flips = BinomialRecord.__new__(BinomialRecord)
    with pytest.raises(ValueError, match="no ledger composes"):
        filters.check_records([record, flips])
