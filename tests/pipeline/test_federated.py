"""Sites that do not share data: exact sums, shares of noise and what they hide, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import discreet as dr
from discreet.core.layout import Layout
from discreet.core.rng import Seeded
from discreet.data.schema import Schema, write_schema
from discreet.ledger.ledger import BudgetError, Ledger
from discreet.ledger.owner_rules import NAME, OwnerRule
from discreet.pipeline import federated as sites
from discreet.pipeline.federated import BOUND, MODULUS, FederatedSite, FederatedSum, FederationPlan
from discreet.pipeline.synthetic_data import write_made_up

pytestmark = pytest.mark.usefixtures("figures_are_sketched")

SCHEMA = Schema(
    "ward", "patient", Layout(5, 3, 4), stationary=True, terminal=(3, 4), outcomes={4: 1.0}
)  # fmt: skip
STEPS = Schema("ward", "patient", Layout(3, 2, 2), episodes_per_user=2, contribute="random")
BUDGET = dr.Central(epsilon=1.0, delta=1e-6)
KEY = bytes(range(32))
ALARM = 1e-6


def plan_of(number: int = 3, **how: Any) -> FederationPlan:
    how = {"schema": SCHEMA, "learner": dr.DecisionPoints(), "privatizer": BUDGET, **how}
    return FederationPlan(sites=number, **how)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[dr.pipeline.PartialAggregateFile]:
    """Of three sites, with 40 people each."""
    found = []
    for seed in range(3):
        path = tmp_path_factory.mktemp("site") / "people.parquet"
        write_made_up(SCHEMA, 40, path, seed=seed)
        frame = dr.data.open_source(path, SCHEMA)
        found.append(dr.pipeline.aggregate_part(frame, dr.DecisionPoints(), KEY))
    for number, part in enumerate(found):
        part.people = part.people + np.uint64(number)  # other people, though files count from 0 alike
    return found


def summed(plan: FederationPlan, parts: list[dr.pipeline.PartialAggregateFile]) -> FederatedSum:
    return FederatedSum(plan, len(parts), sum(FederatedSite(plan, part, KEY, None).send() for part in parts))


# ------------------------------------------------------------------------------ exact sums


def test_the_analysts_release_is_the_pooled_one(
    parts: list[dr.pipeline.PartialAggregateFile], tmp_path: Path
) -> None:
    """Bit for bit under one noise; the statement says what it rests on, and holds."""
    plan, whole = plan_of(), dr.pipeline.merge_aggregates(parts)
    assert plan.guarantee == BUDGET.stored_mechanism(plan.query, dr.Secure()).guarantee
    how: dict[str, Any] = {"privatizer": BUDGET, "ledger": None, "randomness": Seeded(3)}
    dr.learn(whole, plan.learner, tmp_path / "pooled", schema=SCHEMA, **how)
    found = dr.learn(summed(plan, parts), plan.learner, tmp_path / "sites", **how)
    for file in ("policy.csv", "report.md", "report.html", "report.json"):
        assert (tmp_path / "pooled" / file).read_bytes() == (tmp_path / "sites" / file).read_bytes()
    assert [check.name for check in dr.verify(tmp_path / "sites") if not check.ok] == []
    text = " ".join(found.statement.document["not_covered"])
    assert "at j sites is protected like a group of j patients" in text
    assert "The exact sum over 3 sites, which the analyst sees before noise is added" in text


def test_integers_come_back() -> None:
    """As Flower's floats carry them: sum of x + C, less n C, times 1/n, at both ends of the range."""
    for n in (*range(2, 40), 999, 1000):
        ends = n * (BOUND - 1)
        total = np.array([-ends, -ends + 1, -1, 0, 1, ends - 1, ends, ends // 3], np.int64)
        carried = (total + n * BOUND).astype(np.float64) * 1.0 - BOUND - (n - 1) * float(BOUND)
        np.testing.assert_array_equal(np.rint(carried * (1 / n) * n).astype(np.int64), total)
    assert n * (2 * BOUND) < MODULUS


def test_a_tally_as_integers(parts: list[dr.pipeline.PartialAggregateFile]) -> None:
    one, two = parts[0].tally, parts[1].tally
    query, grid = one.query, one.grid
    assert dr.mechanisms.PartialAggregate.of_units(query, grid, one.units() + two.units()) == one + two
    wrong = one.units()
    wrong[2] += 1000
    with pytest.raises(ValueError, match="as many records as there are episodes|first visits|counts"):
        dr.mechanisms.PartialAggregate.of_units(query, grid, wrong)
    with pytest.raises(ValueError, match="32-bit"):
        dr.mechanisms.PartialAggregate.of_units(query, grid, one.units() - two.units() * 1000)
    with pytest.raises(ValueError, match="as many 64-bit integers"):
        dr.mechanisms.PartialAggregate.of_units(query, grid, one.units()[1:])


# ------------------------------------------------------------------------------ shares of noise


def law(sigma: float, terms: int, reach: int) -> np.ndarray:
    """Of a sum of discrete Gaussians on [-reach, reach], by convolution."""
    x = np.arange(-3 * reach, 3 * reach + 1)
    one = np.exp(-(x**2) / (2 * sigma**2))
    one /= one.sum()
    found = one
    for _ in range(terms - 1):
        found = np.convolve(found, one, mode="same")
    return found[2 * reach : 4 * reach + 1]


def test_shares_have_the_pooled_law(parts: list[dr.pipeline.PartialAggregateFile]) -> None:
    """Sums of three sites' vectors, less the exact ones: the noise of one release, by chi-square.

    False alarms: ALARM, shared by the families.
    """
    plan = plan_of(noise="sites", colluding=0)
    assert plan.honest == 3
    exact = dr.pipeline.merge_aggregates(parts).tally.cells()
    drawn = np.array([summed(plan, parts).units[1:] for _ in range(60)])
    for (name, begin), end in zip(
        zip(plan.query.row_families, plan.query.offsets, strict=False), plan.query.offsets[1:], strict=True
    ):
        grid = plan.mechanism.grid(name) or 1
        noise = (drawn[:, begin:end] - exact[begin:end] * grid).ravel()
        assert np.array_equal(noise, np.rint(noise))
        index = list(plan.query.row_families).index(name)
        sigma = float(plan.mechanism.scales[index]) * grid
        edges = stats.norm.ppf(np.arange(1, 20) / 20) * sigma
        x = np.arange(-math.ceil(9 * sigma), math.ceil(9 * sigma) + 1)
        masses = np.exp(-(x**2) / (2 * sigma**2))
        wanted = np.bincount(np.searchsorted(edges, x), masses, 20) / masses.sum() * noise.size
        seen = np.bincount(np.searchsorted(edges, noise), minlength=20)
        assert stats.chisquare(seen, wanted).pvalue > ALARM / 3


def test_a_release_with_shared_noise(parts: list[dr.pipeline.PartialAggregateFile], tmp_path: Path) -> None:
    """What is written holds; its noise law is that of all who sent; planned again it says so still."""
    plan = plan_of(noise="sites")
    found = dr.learn(summed(plan, parts), plan.learner, tmp_path / "a", privatizer=BUDGET, ledger=None)
    dr.replan(tmp_path / "a" / "release.parquet", plan.learner, tmp_path / "b")
    for folder in ("a", "b"):
        assert [check.name for check in dr.verify(tmp_path / folder) if not check.ok] == []
    assert found.statement.document["population"]["users"] == 120
    signers = [dr.new_key(tmp_path / f"{i}.key") for i in range(2)]  # each site can sign the result
    for i in range(2):
        dr.sign(tmp_path / "a", dr.ledger.read_private_key(tmp_path / f"{i}.key"), name=f"hospital {i}")
    assert all(check.ok for check in dr.verify(tmp_path / "a", public_keys=signers))
    text = " ".join(found.statement.document["not_covered"])
    assert "counts the noise of 2 honest sites among the 3 in the sum" in text
    law = dr.learners.read_release(tmp_path / "a" / "release.parquet").laws["transition_counts"]
    assert law.std() == pytest.approx(plan.mechanism.scales[1] * math.sqrt(3 / 2), rel=1e-6)
    with pytest.raises(ValueError, match="because the sites drew the noise"):
        dr.learn(
            summed(plan, parts), plan.learner, tmp_path / "c", privatizer=BUDGET, ledger=None,
            randomness=Seeded(3),
        )  # fmt: skip
    with pytest.raises(ValueError, match="must be those of the sites' plan"):
        dr.learn(
            summed(plan, parts), plan.learner, tmp_path / "c", ledger=None,
            privatizer=dr.Central(epsilon=2.0, delta=1e-6),
        )  # fmt: skip


# ------------------------------------------------------------------------------ refused


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"number": 1}, "sites = 1"),
        ({"noise": "server"}, "noise = 'server'"),
        ({"number": 4, "needed": 2}, "needed = 2: must be above half"),
        ({"number": 3, "needed": 2}, "needed = 2: must be above half of sites [+] colluding, 4"),
        ({"number": 4, "colluding": 4}, "colluding = 4"),
        ({"privatizer": dr.NoPrivacy()}, "privatizer = "),
        ({"privatizer": dr.Central(epsilon=1.0), "noise": "sites"}, "shares of it are not known"),
        ({"learner": dr.DPPEVI(rho=1.0)}, "learner = 'dp-pevi'"),
        ({"privatizer": dr.Central(epsilon=1e-5, delta=1e-6), "noise": "sites"}, "at most 4194304"),
        ({"privatizer": dr.Central(rho=20.0), "noise": "sites", "number": 9}, "a site's share of the noise"),
        ({"name": 3}, "name = 3"),
    ],
)
def test_plans_that_are_refused(how: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        plan_of(**how)


def test_sites_that_are_refused(parts: list[dr.pipeline.PartialAggregateFile], tmp_path: Path) -> None:
    plan = plan_of()
    assert (
        repr(FederatedSite(plan, parts[0], KEY, None))
        == "<FederatedSite of 40 people: raw data, not private>"
    )
    with pytest.raises(ValueError, match="counted with another key"):
        FederatedSite(plan, parts[0], bytes(32), None)
    with pytest.raises(ValueError, match="key: must be 32 secret bytes"):
        FederatedSite(plan, parts[0], b"short", None)
    with pytest.raises(ValueError, match="counted with another schema"):
        FederatedSite(plan_of(schema=replace(SCHEMA, unit="person")), parts[0], KEY, None)
    with pytest.raises(ValueError, match="people = 600000: must be at most 524288"):
        plan.check_room(600_000)
    path = tmp_path / "ledger"
    FederatedSite(plan, parts[0], KEY, path).send()
    with pytest.raises(ValueError, match="this site has answered it, by its ledger"):
        FederatedSite(plan, parts[0], KEY, path).send()
    with Ledger.open(path) as ledger:
        ledger.set_limit("ward", epsilon=1.2, delta=1e-5)
        (entry,) = [one for one in ledger.entries("ward") if one.kind == "reserve"]
        assert (entry.records, entry.users) == (plan.records, 40)
    with pytest.raises(BudgetError):
        FederatedSite(replace(plan, name="again"), parts[0], KEY, path).send()


def test_of_two_answers_at_once_the_second_is_refused(
    parts: list[dr.pipeline.PartialAggregateFile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process of this site reserved between the look into the ledger and the reservation."""
    inner = Ledger.reserve

    def reserve(self: Ledger, *given: Any, **how: Any) -> Any:
        inner(self, *given, **how)
        return inner(self, *given, **how)

    one = FederatedSite(plan_of(), parts[0], KEY, tmp_path / "ledger")
    monkeypatch.setattr(Ledger, "reserve", reserve)
    with pytest.raises(ValueError, match="this site has answered it, by its ledger"):
        one.send()


def test_rules_are_obeyed_when_a_site_is_charged(
    parts: list[dr.pipeline.PartialAggregateFile], tmp_path: Path
) -> None:
    """The ledger was exchanged, or the owner's rule changed, after the site was made ready."""
    path, rule = tmp_path / "ledger", tmp_path / NAME
    with Ledger.open(path) as ledger, Ledger.open(tmp_path / "other") as other:
        kept, wanted = OwnerRule("ward", ledger.identity), OwnerRule("ward", other.identity)
    part = dr.pipeline.PartialAggregateFile(parts[0].tally, parts[0].people, parts[0].facts, {rule: kept})

    def answers(ready: FederatedSite) -> None:
        with pytest.raises(ValueError, match="must be that of identity .* by the owner's rule"):
            ready.send()
        with Ledger.open(path) as ledger:
            assert len(ledger.entries()) == 1

    ready = FederatedSite(plan_of(), part, KEY, path)
    rule.write_text(f'dataset = "ward"\nledger = "{wanted.ledger}"\n')
    answers(ready)
    rule.write_text('dataset = "another population, whose data lie at this place here"\nledger = "its own"\n')
    ready = FederatedSite(plan_of(), part, KEY, path)
    for end in ("", ".head"):
        (tmp_path / f"other{end}").rename(tmp_path / f"ledger{end}")
    answers(ready)


def test_sums_that_are_refused(parts: list[dr.pipeline.PartialAggregateFile]) -> None:
    plan = plan_of()
    units = summed(plan, parts).units
    for wrong, words in ((units[1:], "integers of 64 bits"), (units * 10**9, "cannot be the sum")):
        with pytest.raises(ValueError, match=words):
            FederatedSum(plan, 3, wrong)
    with pytest.raises(ValueError, match="sent = 2"):
        FederatedSum(plan, 2, units)
    bent = np.array(units)
    bent[3] += 1000  # a site that counts what nobody did
    with pytest.raises(ValueError, match=r"counts\[0\]"):
        FederatedSum(plan, 3, bent).session(dr.Secure())


def test_a_plan_as_a_file(tmp_path: Path) -> None:
    write_schema(SCHEMA, tmp_path / "ward.toml")
    text = (
        'schema = "ward.toml"\nalgorithm = "decision-points"\nsites = 4\nneeded = 3\nnoise = "sites"\n'
        "[privatizer]\nepsilon = 1.0\ndelta = 1e-6\n"
    )
    path = tmp_path / "plan.toml"
    path.write_text(text)
    assert dr.pipeline.read_site_plan(path).digest == plan_of(4, needed=3, noise="sites").digest
    others = [plan_of(4, **how).digest for how in ({}, {"needed": 3}, {"name": "a"}, {"colluding": 2})]
    assert len(set(others)) == 4
    for wrong, words in (
        (text.replace("sites = 4", "sites = 1"), "sites = 1"),
        (text.replace("needed", "wanted"), "key 'wanted' is unknown"),
        (text.replace('schema = "ward.toml"', ""), "key 'schema' is missing"),
        (text.replace("delta", "deltas"), "deltas"),
        ("=", "cannot be read as TOML"),
    ):
        path.write_text(wrong)
        with pytest.raises(ValueError, match=words):
            sites.read_site_plan(path)


def test_a_part_of_other_sums_than_those_of_the_plan_is_refused(tmp_path: Path) -> None:
    """Its cells would get the noise of others."""
    path = tmp_path / "people.parquet"
    write_made_up(STEPS, 40, path, seed=1)
    counted = dr.pipeline.aggregate_part(dr.data.open_source(path, STEPS), dr.DPAPVI(visits="released"), KEY)
    released = FederationPlan(STEPS, dr.DPAPVI(visits="released"), BUDGET, 3, noise="sites")
    derived = FederationPlan(STEPS, dr.DPAPVI(visits="derived"), BUDGET, 3, noise="sites")
    assert FederatedSite(released, counted, KEY, None).send().size == released.mechanism.query.cells + 1
    with pytest.raises(ValueError, match="not those that the plan asks for"):
        FederatedSite(derived, counted, KEY, None)
    counted.tally._grid = 64
    with pytest.raises(ValueError, match="not those that the plan asks for"):
        FederatedSite(released, counted, KEY, None)
