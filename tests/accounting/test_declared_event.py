"""Losses that rest on declarations: their price, their record, and who refuses them."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from discreet.accounting import pld
from discreet.accounting.declared_event import DeclaredRecord, price
from discreet.core.correlated_noise.binary_tree import Tree
from discreet.core.correlated_noise.signed_digit_tree import SignedDigits
from discreet.core.count_mechanism import CountMechanism, Stated
from discreet.core.count_query import CountQuery
from discreet.core.exchange import ALL_STEPS
from discreet.core.families import visits
from discreet.core.guarantee import Guarantee, guarantee_of, parallel
from discreet.core.layout import Layout
from discreet.core.noise.noises import LAPLACE, AdditiveNoise, Laplace
from discreet.core.query import FamilyQuery
from discreet.core.releases import Plan, Schedule
from discreet.core.rng import Secure, Seeded
from discreet.core.strategies import Batches, OnDevice, Prefixes
from discreet.core.vectors import BoundedVector
from discreet.ledger.ledger import Ledger
from discreet.mechanisms.open_session import session_of

LAYOUT = Layout(3, 2, 2)
SCHEDULE = Schedule(12, np.array([0, 4, 8]), reads="measurements")
QUERY = CountQuery(LAYOUT, visits=False)


@dataclass(frozen=True)
class Steps(AdditiveNoise):
    """Integer noise with p(k) proportional to exp(-abs(k) / scale)."""

    name: ClassVar[str] = "steps"
    norm: ClassVar[str] = "l1"  # type: ignore[assignment]

    def cost(self, shift: float, scale: float) -> float:
        return math.ceil(shift - 1e-12) / scale

    def draw(self, coins: Any, scale: float, size: int, grid: int | None) -> np.ndarray:
        return np.rint(coins.laplace(scale, size, grid))

    def log_mass(self, values: Any, scale: float, grid: int) -> np.ndarray:
        total = (1 + math.exp(-1 / scale)) / (1 - math.exp(-1 / scale))
        return np.where(values % grid == 0, -np.abs(values) / (grid * scale) - math.log(total), -np.inf)


@dataclass(frozen=True)
class Twice(Laplace):
    """A subclass of a derived noise is a declared one."""


def made(noise: AdditiveNoise = Steps(), query: Any = QUERY, **more: Any) -> CountMechanism:
    given: dict[str, Any] = {"source": "seeded", "strategy": Batches(), **more}
    scales = np.full(len(query.row_families), 5.0)
    return CountMechanism(query, SCHEDULE, noise=noise, scales=scales, **given)


def test_the_loss_is_the_price_of_the_declared_costs() -> None:
    """Two transitions and one or two rewards a step: 4 cells in OTHER, each of one step of the staircase."""
    claim = made().guarantee
    assert claim.epsilon == pytest.approx(2 * 4 / 5.0)
    assert (claim.delta, claim.rho, claim.mu) == (0.0, None, None)
    (record,) = claim.records
    assert isinstance(record, DeclaredRecord)
    assert record.losses == pytest.approx({"transition_counts": 4 / 5.0, "reward_sums": 4 / 5.0})
    assert claim.statement.startswith(
        "This epsilon rests on a declaration that this library has not derived: "
    )
    assert Guarantee.from_dict(claim.to_dict()) == claim
    assert made(strategy=Prefixes(Tree(3))).guarantee.epsilon == pytest.approx(2 * 2 * 4 / 5.0)


def test_a_subclass_is_declared_and_must_keep_its_word() -> None:
    assert made(Twice()).guarantee.rests_on
    assert made(Laplace()).guarantee.rests_on == ()
    assert made(Twice()).guarantee.epsilon == made(Laplace()).guarantee.epsilon

    @dataclass(frozen=True)
    class Bent(Laplace):
        def cost(self, shift: float, scale: float) -> float:
            return math.sqrt(shift) / scale

    with pytest.raises(ValueError, match="homogeneous = True, but its cost is not at"):
        made(Bent())


def test_a_staircase_is_not_homogeneous_at_every_shift() -> None:
    @dataclass(frozen=True)
    class Stairs(Steps):
        homogeneous: ClassVar[bool] = True

        def cost(self, shift: float, scale: float) -> float:
            return math.ceil(16 * shift - 1e-12) / (16 * scale)

    with pytest.raises(ValueError, match="but its cost is not"):
        made(Stairs(), VECTOR)


def test_continuous_shifts_between_those_of_a_grid_are_examined() -> None:
    @dataclass(frozen=True)
    class Lattice(Steps):
        def cost(self, shift: float, scale: float) -> float:
            return shift / scale if (1024 * shift) % 1 == 0 else math.inf

    with pytest.raises(ValueError, match="finite"):
        _ = made(Lattice()).guarantee


def test_a_noise_without_a_standard_deviation_is_refused_before_anybody_comes() -> None:
    class Silent(Steps):
        def log_mass(self, values: Any, scale: float, grid: int) -> np.ndarray:
            raise NotImplementedError

    class Heavy(Steps):
        def log_mass(self, values: Any, scale: float, grid: int) -> np.ndarray:
            return np.full(np.shape(values), -50.0)

    with pytest.raises(ValueError, match="must define log_mass or std"):
        made(Silent())
    with pytest.raises(ValueError, match="mass beyond"):
        made(Heavy())


def test_a_noise_that_changes_later_changes_no_session() -> None:
    @dataclass(frozen=True)
    class Mutable(Steps):
        wide: float = 1.0

        def cost(self, shift: float, scale: float) -> float:
            return self.wide * super().cost(shift, scale)

    noise = Mutable()
    mechanism = made(noise)
    object.__setattr__(noise, "wide", 0.01)
    assert mechanism.guarantee.epsilon == replace(mechanism).guarantee.epsilon == pytest.approx(1.6)


def test_nested_parts_keep_what_they_rest_on() -> None:
    one = made().guarantee
    both = parallel(
        [("all", parallel([("a", one), ("b", made(strategy=Prefixes(Tree(3))).guarantee)])), ("c", one)]
    )
    assert both.rests_on == one.rests_on
    assert "rests on a declaration" in both.statement


VECTOR = FamilyQuery(LAYOUT, (BoundedVector("x", 3, 1.0, lambda r, c: np.zeros(3)),))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"query": VECTOR}, "not homogeneous"),
        ({"query": FamilyQuery(LAYOUT, (visits(ALL_STEPS),))}, "not homogeneous"),
        ({"query": CountQuery(LAYOUT, stationary=True)}, "not homogeneous"),
        ({"strategy": Prefixes(SignedDigits(3, 3))}, "draws by the server that follow"),
        ({"strategy": Batches(0.5)}, "no finite l1 norm"),
        ({"stated": Stated(1e-6, None, True)}, "costs are summed"),
        ({"release_scales": np.full((3, 2), 9.0)}, "scales that change"),
        ({"query": CountQuery(LAYOUT, groups=2, clip=1.0)}, "derived noises only"),
        ({"stored": True}, "derived noises only"),
    ],
    ids=["vector", "pooled", "stationary", "digits", "decay", "numerical", "scales", "groups", "stored"],
)
def test_what_has_no_price_is_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(**more)


def test_vectors_are_not_rounded_in_fixed_point() -> None:
    with pytest.raises(ValueError, match="decaying sum under exact noise"):
        CountMechanism(
            VECTOR, SCHEDULE, "secure", Batches(0.5), noise=__import__("discreet").mechanisms.Gaussian(),
            scales=np.array([50.0]), reward_grid=64, stated=Stated(1e-6),
        )  # fmt: skip


@pytest.mark.parametrize("source", [Seeded(3), Secure(2)], ids=["seeded", "secure"])
def test_noise_of_ones_own_is_drawn_once_for_each_address(source: Any) -> None:
    secure = isinstance(source, Secure)
    mechanism = made(source=source.kind, reward_grid=2 if secure else None)
    found = []
    for _ in range(2):
        with session_of(mechanism, source) as session:
            session.release()
            for _ in range(2):
                session.begin(Plan(np.zeros((2, 3), np.int64), 4))
                session.absent(4)
                release = session.release()
                assert release.measurement is not None
                found.append(release.measurement.estimates["transition_counts"])
    values = [one.value for one in found]
    assert not np.array_equal(values[0], values[1])
    assert np.array_equal(values[0], values[2]) == (not secure)
    assert found[0].law.std() == pytest.approx(math.sqrt(2 * math.exp(-0.2)) / (1 - math.exp(-0.2)), rel=1e-3)


@dataclass(frozen=True)
class Off(Steps):
    name: ClassVar[str] = "off"

    def draw(self, coins: Any, scale: float, size: int, grid: int | None) -> np.ndarray:
        return np.full(size, 0.3) if scale == 5.0 else np.zeros(size + 1)


def test_noise_off_the_grid_or_of_another_size_releases_nothing() -> None:
    for scale in (5.0, 6.0):
        mechanism = replace(made(Off(), source="secure", reward_grid=2), scales=np.full(2, scale))
        with session_of(mechanism, Secure(2)) as session:
            session.release()
            session.begin(Plan(np.zeros((2, 3), np.int64), 4))
            session.absent(4)
            with pytest.raises(RuntimeError):
                session.release()


RECORD = DeclaredRecord("m", "steps", "l1", {"a": 2.0, "b": 1.0}, {"a": 1.0, "b": 3.0}, 3.5, 2, ("it is so",))


def test_records_compose_and_are_read_again() -> None:
    assert RECORD.loss == 7.0
    assert replace(RECORD, norm="l2", joint=3.1).loss == pytest.approx(3.1 * math.sqrt(2))
    assert DeclaredRecord.from_dict(RECORD.to_dict()) == RECORD
    claim = guarantee_of("joint", [RECORD, RECORD], randomness="seeded")
    assert (claim.epsilon, claim.rests_on) == (14.0, ("it is so",))
    zcdp = guarantee_of("joint", [replace(RECORD, norm="l2", joint=3.1)], randomness="seeded", delta=1e-6)
    assert (zcdp.mu, zcdp.rho) == (None, pytest.approx(3.1**2))


@pytest.mark.parametrize(
    "wrong",
    [
        {"joint": 2.9}, {"joint": 4.1}, {"rests_on": ()}, {"norm": "l3"}, {"scales": {"a": 1.0}},
        {"levels": 0},
        {"losses": {"a": 1.0, "b": -1.0}},
    ],
    ids=str,
)  # fmt: skip
def test_numbers_that_do_not_fit_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        replace(RECORD, **wrong)


def test_owners_and_verifiers_refuse_declarations(tmp_path: Any) -> None:
    claim = made().guarantee
    with pytest.raises(ValueError, match="rest on a declaration"):
        pld.verify(claim, claim.records)
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger, pytest.raises(ValueError, match="records"):
        ledger.reserve("ward-7", list(claim.records), delta=1e-6, users=12, purpose="a look")


def test_strategies_on_devices_add_no_noise_of_ones_own() -> None:
    with pytest.raises(ValueError, match=r"declared|device"):
        made(strategy=OnDevice())


class Narrow(Laplace):
    """Doubled integer noise: shifts of one unit are seen with certainty."""

    homogeneous = False

    def cost(self, shift: float, scale: float) -> float:
        return shift / scale if shift % 2 == 0 else 50.0


def test_the_dearest_shift_prices_a_declared_noise() -> None:
    assert price(LAPLACE, 2.0, 8)(3.0) == 1.5
    assert Narrow().cost(2.0, 1.0) == 2.0
    assert price(Narrow(), 1.0, 1)(2.0) == 50.0
    with pytest.raises(ValueError, match="at most 65536"):
        price(Narrow(), 1.0, 2**20)(1.0)


class Endless(Laplace):
    def cost(self, shift: float, scale: float) -> float:
        return float("inf")


def test_costs_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        price(Endless(), 1.0, 1)(1.0)
