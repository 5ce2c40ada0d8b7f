"""Fitted centres and cuts: what one person changes, the law of the noise, the ledger, refusals."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from discreet.accounting.text.guarantee_sentences import up
from discreet.core.guarantee import Guarantee, MechanismRecord
from discreet.core.rng import Seeded, checked_on_grid
from discreet.data.prepare import Refused, prepare
from discreet.data.prepare_config import nearest, read_prepare_config
from discreet.ledger.ledger import BudgetError, Ledger
from discreet.ledger.signatures import new_key, read_private_key
from discreet.mechanisms.linear.per_user_means import GRID, PersonSums, guaranteed, noisy
from discreet.pipeline.approve import sign
from discreet.pipeline.codebook_sums import CodebookQuery
from discreet.pipeline.state_codebook import budget_of, estimate_codebook, fit_codebook, verify_codebook
from discreet.reports.codebook_page import write_codebook_pages

TEXT = """
dataset = "ward"
unit = "patient"
horizon = 6
reward = { outcomes = { end = 1.0 } }
[prepare]
user = "who"
time = { column = "when", numbers = "hours" }
step = "1 hour"
long = "cut"
[prepare.values.x]
column = "x"
within = "last"
range = [-10, 10]
[prepare.values.y]
column = "y"
within = "last"
range = [0, 5]
[prepare.values.a]
column = "x"
within = "last"
range = [-10, 10]
cuts = [0]
[prepare.states.codebook]
file = "fitted/codebook.csv"
scale = { x = 2.0, y = 1.0 }
[prepare.actions]
product = ["a"]
[prepare.end]
column = "who"
states = { "nobody" = "end" }
unreadable = "missing"
missing = "end"
"""

MIDDLES = np.array([[-6.0, 1.0], [0.0, 4.0], [6.0, 1.5]])


def people(users: int, seed: int = 0) -> pd.DataFrame:
    """Steps near one of three middles, one for each person."""
    draw = np.random.default_rng(seed)
    steps = draw.integers(1, 7, users)
    who = np.repeat(np.arange(users), steps)
    spots = MIDDLES[draw.integers(0, 3, users)][who] + draw.normal(0, 0.4, (len(who), 2))
    when = np.concatenate([np.arange(count) for count in steps])
    return pd.DataFrame(
        {
            "who": [f"P{one}" for one in who],
            "when": when,
            "x": spots[:, 0].clip(-10, 10),
            "y": spots[:, 1].clip(0, 5),
        }
    )


@pytest.fixture
def declared(tmp_path: Path) -> Path:
    path = tmp_path / "P.toml"
    path.write_text(TEXT)
    return path


@pytest.mark.parametrize("what", ["centres", "quantiles"])
def test_neighbours_from_records_to_sums(
    declared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """All of one person's records are replaced, their number too: what the noise is laid on moves by at most
    the stated sensitivity, whatever the files, and comes near to it.
    """
    seen: list[np.ndarray] = []

    def caught(sums: np.ndarray, sigma: int, source: Any) -> np.ndarray:
        seen.append(sums / GRID)
        return sums.astype(np.float64) / GRID

    monkeypatch.setattr("discreet.pipeline.state_codebook.noisy", caught)
    how: dict[str, Any] = {"ledger": None, "rho": 1e9, "delta": 1e-6}
    how |= {"centres": 4, "rounds": 1} if what == "centres" else {"quantiles": ("x", 4), "bins": 8}
    base, draw = people(30), np.random.default_rng(1)
    corners = [(-10.0, 0.0), (10.0, 5.0), (-10.0, 5.0), (10.0, 0.0), (0.0, 2.5)]
    largest = 0.0
    for case in range(24):
        found = []
        for side in range(2):
            steps = int(draw.integers(1, 9)) if case % 2 else 1
            spots = [corners[(case + 1 + side) % 4] if case < 8 else corners[draw.integers(0, 5)]] * steps
            own = pd.DataFrame(spots, columns=["x", "y"]).assign(who="P3", when=np.arange(steps))
            frame = pd.concat([base[base["who"] != "P3"], own]).sample(frac=1.0, random_state=case)
            seen.clear()
            fit_codebook(frame, declared, tmp_path / f"{case}-{side}", **how)
            found.append(seen[0])
        largest = max(largest, float(np.linalg.norm(found[0] - found[1])))
    radius = math.hypot(10 / 2, 2.5)
    stated = 2 * radius if what == "centres" else math.sqrt(2)
    assert largest <= stated * (1 + 1e-4)
    assert largest >= 0.99 * stated


def test_more_than_the_public_sizes_allow_is_refused() -> None:
    sums = PersonSums(3, 1, 1.0, 0.0, 2)
    owner, one = np.zeros(3, np.int64), np.ones((3, 1))
    for wrong in (
        (owner, np.array([0, 1, 3]), one),
        (owner, np.array([0, -1, 1]), one),
        (owner, np.array([0, 1, 2]), one),
        (owner, np.array([0, 1, 1]), 1.001 * one),
        (owner, np.array([0, 1, 1]), math.nan * one),
        (np.array([1, 0, 0]), np.array([0, 1, 1]), one),
    ):
        with pytest.raises(ValueError, match="must|more than"):
            sums.exact(*wrong)


@pytest.mark.filterwarnings("ignore:readings taken after the action form states:UserWarning")
def test_sums_of_a_step_outside_of_the_range_are_cut(declared: Path, tmp_path: Path) -> None:
    """The range is of a cell: doses add up, and constants may be anywhere; nobody counts for more."""
    text = TEXT.replace(
        'column = "y"\nwithin = "last"', 'column = "y"\nwithin = "sum"\nmissing = { value = -99 }'
    )
    declared.write_text(text)
    frame = people(2000)
    frame["y"] = np.where(np.arange(len(frame)) % 3 == 0, np.nan, 5.0)
    frame = pd.concat([frame, frame.assign(x=frame["x"] + 0.0, y=frame["y"] - 1.0, when=frame["when"] + 0.2)])
    how: dict[str, Any] = {"ledger": None, "rho": 1e9, "delta": 1e-6}
    fitted = fit_codebook(frame, declared, tmp_path / "a", centres=3, **how)
    assert (fitted.found[:, 1] >= 0).all()
    assert (fitted.found[:, 1] <= 5).all()
    cuts = fit_codebook(frame, declared, tmp_path / "b", quantiles=("y", 2), **how).found
    assert (cuts > 0).all()
    assert (cuts < 5).all()


def test_readings_after_the_action_are_told_or_refused_before_anything_is_spent(
    declared: Path, tmp_path: Path
) -> None:
    frame = people(200)
    frame = pd.concat([frame, frame.assign(when=frame["when"] + 0.2)])
    how: dict[str, Any] = {"centres": 3, "rho": 1e9, "delta": 1e-6}
    with pytest.warns(UserWarning, match="readings taken after the action form states"):
        fit_codebook(frame, declared, tmp_path / "told", ledger=None, **how)
    for path in (tmp_path / "told").iterdir():
        assert b"later than" not in path.read_bytes()
    declared.write_text(TEXT.replace("[prepare]\n", "[prepare]\nstrict = true\n"))
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        with pytest.raises(ValueError, match="refused by strict = true"):
            fit_codebook(frame, declared, tmp_path / "strict", ledger=ledger, **how)
        assert [entry.kind for entry in ledger.entries()] == ["begin"]
    assert not (tmp_path / "strict").exists()


# ------------------------------------------------------------------------------------- the loss
@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 1e-6), (1.0, 1e-6), (4.0, 1e-9), (12.0, 1e-5)])
def test_budgets_by_an_independent_account(epsilon: float, delta: float) -> None:
    """rho from epsilon: the conversion of Canonne, Kamath and Steinke (2020), minimised on a fine grid."""
    rho, _ = budget_of(epsilon, delta, None)
    alpha = 1 + np.exp(np.linspace(-8, 14, 400_001))
    line = rho * alpha + (np.log(1 / delta) + (alpha - 1) * np.log(1 - 1 / alpha) - np.log(alpha)) / (
        alpha - 1
    )
    assert line.min() == pytest.approx(epsilon, rel=1e-4)


def test_the_printed_loss_covers_the_noise_that_is_drawn() -> None:
    """delta(epsilon) of one coordinate moved by the whole sensitivity, by summing the two laws."""
    sums = PersonSums(3, 2, 1.0, 1.0, 3)
    for epsilon, delta in ((1.0, 1e-6), (5.0, 1e-5)):
        rho, _ = budget_of(epsilon, delta, None)
        sigma = sums.sigma(rho, 1)
        guarantee = forecast_guarantee(sums, sigma, delta)
        assert guarantee.epsilon is not None
        assert guarantee.epsilon <= epsilon * (1 + 1e-9)
        step = GRID // 512  # both laws on a coarser grid, which their shape allows
        shift = math.ceil(sums.sensitivity * GRID / step)
        x = np.arange(-40 * sigma // step, 40 * sigma // step)
        log_p = -((x * step) ** 2) / (2.0 * sigma**2)
        log_q = -(((x - shift) * step) ** 2) / (2.0 * sigma**2)
        p = np.exp(log_p) / np.exp(log_p).sum()
        lost = p * np.maximum(0.0, 1 - np.exp(guarantee.epsilon - (log_p - log_q)))
        assert lost.sum() <= delta


def forecast_guarantee(sums: PersonSums, sigma: int, delta: float) -> Guarantee:
    from discreet.core.guarantee import guarantee_of

    return guarantee_of("central", [sums.record("test", sigma, 1)], randomness="secure", delta=delta)


def test_rounds_add_up() -> None:
    sums = PersonSums(5, 3, 2.0, 2.0, 5)
    rho = 0.2
    for times in (1, 3, 10):
        record = sums.record("test", sums.sigma(rho, times), times)
        assert record.loss**2 / 2 == pytest.approx(rho, rel=1e-5)
        assert record.loss**2 / 2 <= rho


def test_the_noise_has_the_law_that_is_stated() -> None:
    """40 000 draws: mean and variance within 6 standard errors (a false alarm in 1e8)."""
    sums = np.zeros((200, 200), np.int64)
    sigma = 3 * GRID
    drawn = noisy(sums, sigma, np.random.default_rng(5).bytes)
    assert abs(drawn.mean()) < 6 * 3 / 200
    assert abs(drawn.var() / 9 - 1) < 6 * math.sqrt(2) / 200
    assert len(np.unique(drawn)) > 39_000


# --------------------------------------------------------------------------------------- fitting
def test_centres_are_found_charged_and_read_back(declared: Path, tmp_path: Path) -> None:
    frame = people(4000)
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        fitted = fit_codebook(
            frame, declared, tmp_path / "fitted", ledger=ledger, centres=3, rounds=6, epsilon=2.0, delta=1e-6
        )
        assert ledger.totals("ward").epsilon == pytest.approx(2.0, rel=1e-6)
        assert ledger.totals("ward").unmarked == 0
        assert ledger.entries()[1].users == 4000
        verify_codebook(tmp_path / "fitted", ledger)
    distance = np.linalg.norm(fitted.found[:, None] - MIDDLES[None], axis=2).min(axis=0)
    assert distance.max() < 0.5
    facts = json.loads((tmp_path / "fitted" / "codebook.json").read_text())
    assert Guarantee.from_dict(facts["guarantee"]) == fitted.guarantee
    assert facts["guarantee"]["epsilon"] <= 2.0
    assert facts["guarantee"]["randomness"] == "secure"
    done = prepare(frame, declared, tmp_path / "rows")
    assert done.people == 4000
    assert done.schema.state_labels == ("centre 0", "centre 1", "centre 2", "end")


def test_without_noise_it_is_lloyds_algorithm(declared: Path, tmp_path: Path) -> None:
    """At an absurd budget, against a slow account in which a person's steps weigh 1 / T."""
    frame = people(300, seed=4)
    start = tmp_path / "start.csv"
    start.write_text("x,y\n-9,4\n1,1\n9,4\n")
    fitted = fit_codebook(
        frame, declared, tmp_path / "out", ledger=None, centres=3, rounds=4, rho=1e9, delta=1e-6, start=start
    )
    scale = np.array([2.0, 1.0])
    points = frame[["x", "y"]].to_numpy() / scale
    weight = 1 / frame.groupby("who")["x"].transform("size").to_numpy()
    centres = np.array([[-9.0, 4.0], [1.0, 1.0], [9.0, 4.0]]) / scale
    for _ in range(4):
        own = nearest(points, centres)
        centres = np.array([np.average(points[own == j], axis=0, weights=weight[own == j]) for j in range(3)])
    assert fitted.found == pytest.approx(centres * scale, abs=1e-3)


def test_quantiles(declared: Path, tmp_path: Path) -> None:
    frame = people(5000, seed=2)
    frame = frame[frame["when"] == 0]
    fitted = fit_codebook(
        frame, declared, tmp_path / "out", ledger=None, quantiles=("x", 4), epsilon=1.0, delta=1e-6, bins=100
    )
    for cut, share in zip(fitted.found, (0.25, 0.5, 0.75), strict=True):
        assert (frame["x"] < cut).mean() == pytest.approx(share, abs=0.03)
    assert "cuts = [" in (tmp_path / "out" / "cuts.toml").read_text()
    assert "NO LEDGER" in (tmp_path / "out" / "codebook.json").read_text()


def test_the_error_that_is_forecast_is_the_error_that_comes(declared: Path, tmp_path: Path) -> None:
    """One centre, so that the truth is a mean: 60 draws, root mean square against the forecast's 95 %."""
    frame = people(2000, seed=3)
    frame = frame[frame["when"] == 0]
    truth = frame[["x", "y"]].mean().to_numpy()
    expected = estimate_codebook(declared, 2000, centres=1, rounds=1, epsilon=0.5, delta=1e-6)
    widths = np.array(expected.widths)
    off = []
    for seed in range(60):
        fitted = fit_codebook(
            frame, declared, tmp_path / f"{seed}", ledger=None, centres=1, rounds=1, epsilon=0.5, delta=1e-6,
            randomness=Seeded(seed),
        )  # fmt: skip
        off.append(np.abs(fitted.found[0] - truth) / widths)
    share = (np.array(off) <= np.array(expected.error)).mean()
    assert share >= 0.9  # it is an upper bound: centres within the radius move less
    assert np.array(off).max() > 0.2 * max(expected.error)  # but not an idle one


# ------------------------------------------------------------------------------ said, and refused
def test_what_is_hopeless_is_said_and_refused_before_it_is_paid_for(declared: Path, tmp_path: Path) -> None:
    found = estimate_codebook(declared, 300, centres=100, epsilon=0.5, delta=1e-6)
    assert found.hopeless
    assert found.verdict.startswith("HOPELESS: ")
    assert "Public ones cost nothing" in found.verdict
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        how: dict[str, Any] = {"ledger": ledger, "centres": 100, "epsilon": 0.5, "delta": 1e-6}
        with pytest.raises(ValueError, match="HOPELESS.*Nothing was spent"):
            fit_codebook(people(300), declared, tmp_path / "out", **how)
        assert [entry.kind for entry in ledger.entries()] == ["begin"]
        fit_codebook(people(300), declared, tmp_path / "out", anyway=True, **how)
        assert [entry.kind for entry in ledger.entries()] == ["begin", "reserve", "mark"]
    better = estimate_codebook(declared, 10**7, centres=100, epsilon=0.5, delta=1e-8)
    assert not better.hopeless
    assert max(better.error) < max(found.error)


@pytest.mark.parametrize(
    ("values", "users", "centres", "epsilon", "hopeless"),
    [
        (40, 5_000, 20, 1.0, True),  # fitted: 2 centres of 20 held anybody
        (40, 5_000, 10, 1.0, True),  # 1 of 10
        (40, 5_000, 20, 3.0, True),
        (20, 4_000, 20, 1.0, True),
        (5, 2_000, 20, 1.0, True),
        (2, 20_000, 750, 1.0, True),
        (40, 20_000, 20, 1.0, False),  # they help to learn
        (40, 100_000, 20, 1.0, False),
        (20, 16_000, 20, 1.0, False),
        (5, 20_000, 20, 1.0, False),
        (2, 20_000, 20, 1.0, False),
        (2, 300, 1, 0.5, False),
    ],
)
def test_many_values_are_hopeless_where_centres_cannot_be_told_apart(
    declared: Path, values: int, users: int, centres: int, epsilon: float, hopeless: bool
) -> None:
    found = estimate_codebook(
        many_values(declared, values), users, centres=centres, epsilon=epsilon, delta=1e-6
    )
    assert found.hopeless is hopeless
    assert found.verdict.startswith("HOPELESS") is hopeless
    if values == 40:
        assert "centres of users who fill the ranges evenly differ by about" in found.verdict


def many_values(declared: Path, number: int) -> Path:
    """The declaration with so many values in [0, 1], all of them in the codebook."""
    one = '[prepare.values.v{0}]\ncolumn = "v{0}"\nwithin = "last"\nrange = [0, 1]\n'
    scale = ", ".join(f"v{i} = 0.1" for i in range(number))
    text = TEXT.replace("scale = { x = 2.0, y = 1.0 }", f"scale = {{ {scale} }}")
    at = text.index("[prepare.states")
    path = declared.with_name("many.toml")
    path.write_text(text[:at] + "".join(one.format(i) for i in range(number)) + text[at:])
    return path


def test_the_forecast_of_many_values_is_what_comes(declared: Path, tmp_path: Path) -> None:
    """Two hidden numbers behind 40 values: few centres hold anybody where the forecast calls it hopeless."""
    draw = np.random.default_rng(2)
    weights = draw.normal(size=(2, 40))
    weights /= np.linalg.norm(weights, axis=0)
    held = []
    for users in (5_000, 100_000):
        values = 0.8 * draw.normal(size=(users, 2)) @ weights + 0.6 * draw.normal(size=(users, 40))
        frame = pd.DataFrame((0.5 + 0.087 * values).clip(0, 1), columns=[f"v{i}" for i in range(40)])
        frame = frame.assign(who=np.arange(users), when=0, x=0.0, y=0.0)
        out = tmp_path / str(users)
        fitted = fit_codebook(
            frame, many_values(declared, 40), out, ledger=None, centres=20, epsilon=1.0, delta=1e-6,
            randomness=Seeded(5), anyway=True,
        )  # fmt: skip
        near = nearest(frame[[f"v{i}" for i in range(40)]].to_numpy(), fitted.found)
        held.append(int((np.bincount(near, minlength=20) > users / 200).sum()))
        assert fitted.forecast.hopeless is (users == 5_000)
    assert held[0] <= 3
    assert held[1] > held[0]


def test_a_limit_an_offence_and_seeds(declared: Path, tmp_path: Path) -> None:
    good: dict[str, Any] = {"centres": 3, "epsilon": 1.0, "delta": 1e-6}
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        ledger.set_limit("ward", 0.5, 1e-6)
        with pytest.raises(BudgetError):
            fit_codebook(people(2000), declared, tmp_path / "out", ledger=ledger, **good)
        broken = people(2000)
        broken.loc[5, "x"] = 11.0
        with pytest.raises(Refused, match="x: outside of its range: 1"):
            fit_codebook(broken, declared, tmp_path / "out", ledger=ledger, **good)
        with pytest.raises(ValueError, match="ledger: must be None with noise from a seed"):
            fit_codebook(people(99), declared, tmp_path / "out", ledger=ledger, randomness=Seeded(1), **good)
        assert [entry.kind for entry in ledger.entries()] == ["begin", "limit"]
    assert not (tmp_path / "out").exists()
    fitted = fit_codebook(
        people(2000), declared, tmp_path / "seeded", ledger=None, randomness=Seeded(1), **good
    )
    assert fitted.guarantee.randomness == "seeded"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": None}, "must be given one of the two"),
        ({"delta": None}, "delta is missing"),
        ({"delta": 1.0}, "delta = 1.0"),
        ({"delta": 0.01}, "delta = 0.01: must be at most 1/users"),
        ({"centres": None}, "centres, quantiles: must be given one"),
        ({"centres": 0}, "centres = 0"),
        ({"rounds": 0}, "rounds = 0"),
        ({"centres": None, "quantiles": ("z", 4)}, "quantiles = 'z'"),
        ({"centres": None, "quantiles": ("x", 4), "bins": 3}, "bins = 3"),
    ],
)
def test_bad_arguments(declared: Path, tmp_path: Path, change: dict[str, Any], message: str) -> None:
    good = {"centres": 3, "epsilon": 1.0, "delta": 1e-6}
    with pytest.raises(ValueError, match=message):
        fit_codebook(people(200), declared, tmp_path / "out", ledger=None, **{**good, **change})
    assert not (tmp_path / "out").exists()


def test_sums_that_could_wrap_are_refused_before_anything_is_reserved(declared: Path, tmp_path: Path) -> None:
    """2^24 people with a radius of 2^19 scales: from public numbers alone. Then real people, and a ledger."""
    unscaled = TEXT.replace("[-10, 10]", "[-1e6, 1e6]").replace(
        "{ x = 2.0, y = 1.0 }", "{ x = 1.9073486328 }"
    )
    declared.write_text(unscaled)
    asked: dict[str, Any] = {"centres": 1, "rounds": 1, "delta": 1e-9}
    with pytest.raises(
        ValueError, match=r"people = 16777216: must be at most 8\d\d\d .* larger scale .*scale\)"
    ):
        estimate_codebook(declared, 2**24, rho=0.5, **asked)
    assert not estimate_codebook(declared, 8000, rho=0.5, **asked).hopeless
    declared.write_text(TEXT.replace("{ x = 2.0, y = 1.0 }", "{ x = 1e-8, y = 1.0 }"))
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        with pytest.raises(ValueError, match="people = 6: must be at most 4"):
            fit_codebook(people(6), declared, tmp_path / "out", ledger=ledger, rho=5000.0, **asked)
        with pytest.raises(ValueError, match="people = 1: must be at most 0"):  # noise needs all the room
            fit_codebook(people(6), declared, tmp_path / "out", ledger=ledger, epsilon=1.0, **asked)
        assert [entry.kind for entry in ledger.entries()] == ["begin"]
    with pytest.raises(ValueError, match=r"people = 4294967297: must be at most 42949\d{5} "):
        estimate_codebook(declared, 2**32 + 1, quantiles=("x", 4), rho=0.5, delta=1e-11)


def test_people_at_the_limit_are_fitted_and_one_more_costs_nothing(
    declared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All in one cell, so that its sum is as large as it can be; the grid ends at 8 people and their noise.

    Draws are beyond 12 sigma with probability below 2 exp(-72) each, of which there are four: 2.2e-31.
    """
    schema = read_prepare_config(declared, fitting=True).schema
    sigma = CodebookQuery.of(schema, {"x": (-10.0, 10.0)}, None, number=2, bins=2).sums.sigma(0.5, 1)
    limit = 8 * (GRID + 1) + 12 * sigma
    monkeypatch.setattr("discreet.mechanisms.linear.per_user_means.MOST_UNITS", limit)
    monkeypatch.setattr(
        "discreet.mechanisms.linear.per_user_means.checked_on_grid", partial(checked_on_grid, most=limit)
    )
    how: dict[str, Any] = {"quantiles": ("x", 2), "bins": 2, "rho": 0.5, "delta": 1e-6, "anyway": True}
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        for count in (7, 8):
            there = people(count).assign(x=9.0)
            fit_codebook(there, declared, tmp_path / f"{count}", ledger=ledger, **how)
        before = len(ledger.entries())
        with pytest.raises(ValueError, match="people = 9: must be at most 8 .* with their noise"):
            fit_codebook(people(9), declared, tmp_path / "9", ledger=ledger, **how)
        assert len(ledger.entries()) == before


def test_a_range_is_needed(declared: Path) -> None:
    declared.write_text(TEXT.replace("range = [0, 5]\n", ""))
    with pytest.raises(ValueError, match="values.y: must be a number with a declared range"):
        estimate_codebook(declared, 1000, centres=3, epsilon=1.0, delta=1e-6)
    assert read_prepare_config(declared, fitting=True).schema.layout.states == 2
    with pytest.raises(ValueError, match="must be a file"):
        read_prepare_config(declared)


@pytest.mark.parametrize("victim", ["codebook.csv", "codebook.json", "guarantee", "statement"])
def test_a_changed_fit_does_not_verify(declared: Path, tmp_path: Path, victim: str) -> None:
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        fit_codebook(
            people(3000), declared, tmp_path / "out", ledger=ledger, centres=3, epsilon=1.0, delta=1e-6
        )
        verify_codebook(tmp_path / "out", ledger)
        path = tmp_path / "out" / (victim if "." in victim else "codebook.json")
        if victim == "guarantee":
            path.write_text(path.read_text().replace('"levels": 5', '"levels": 4'))
        elif victim == "statement":
            path.write_text(path.read_text().replace("Differential privacy", "Perfect privacy"))
        else:
            path.write_bytes(path.read_bytes() + b"\n")
        with pytest.raises(ValueError, match="is not|are not|does not|which the mechanisms give"):
            verify_codebook(tmp_path / "out", ledger)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of two releases of the same people, the second one: centres; declared lines, a limit, a ledger."""
    here = tmp_path_factory.mktemp("fitted")
    text = TEXT.replace("[prepare]\n", '[declared]\ncontroller = "Hospital <H> & Co."\n[prepare]\n', 1)
    (here / "d.toml").write_text(text)
    with Ledger.open(here / "ledger.sqlite") as ledger:
        ledger.set_limit("ward", 5.0, 1e-6)
        asked: dict[str, Any] = {"ledger": ledger, "delta": 1e-6}
        fit_codebook(people(3000), here / "d.toml", here / "cuts", quantiles=("x", 4), epsilon=0.5, **asked)
        fit_codebook(people(3000), here / "d.toml", here / "out", centres=3, epsilon=1.0, **asked)
        verify_codebook(here / "cuts", ledger)
    return here


def test_a_fit_has_the_officers_page(fitted: Path) -> None:
    """Its numbers are those of the facts and of the ledger; both pages say the same; it is no policy's."""
    facts = json.loads((fitted / "out" / "codebook.json").read_text("utf-8"))
    page = (fitted / "out" / "officer.md").read_text("utf-8")
    web = (fitted / "out" / "officer.html").read_text("utf-8")
    with Ledger.open(fitted / "ledger.sqlite") as ledger:
        together = ledger.certified("ward", 1e-6)
    assert together.reservations == 2
    for said in (
        "because of the 2 releases of these data in the ledger (including this one)",
        "3 centres, of x, y, in 5 noisy rounds",
        facts["ledger"]["identity"],
        "all 2 releases in the ledger",
        "codebook.csv",
        "limit ε = 5",
    ):
        assert said in page
        assert said in web
    for number in (facts["guarantee"]["epsilon"], together.epsilon):
        assert f"| {up(number)} |" in page
    assert "Hospital \\<H\\> \\& Co." in page
    assert "Hospital &lt;H&gt; &amp; Co." in web
    for foreign in ("release.parquet", "report.md", "statement", "Method", "Prior"):
        assert foreign not in page
    first = (fitted / "cuts" / "officer.md").read_text("utf-8")
    assert "4 bins of equal shares, of x, in 1 noisy rounds" in first
    assert "this release (the first of these data in the ledger)" in first


def test_a_fit_is_signed_and_fixed(fitted: Path, tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    for name in ("officer", "other"):
        new_key(tmp_path / name)
    key, other = (read_private_key(tmp_path / name) for name in ("officer", "other"))
    out = tmp_path / "out"
    shutil.copytree(fitted / "out", out)
    with Ledger.open(fitted / "ledger.sqlite") as ledger:
        page = out / "officer.md"
        page.write_bytes(page.read_bytes().replace(b"**Answer 1:** ", b"**Answer 1:** Yes."))
        verify_codebook(out, ledger)  # people may write into the lines
        with pytest.raises(ValueError, match="signed with the key"):
            verify_codebook(out, ledger, public_keys=[key.public])
        sign(out, key, name="A. Weber", ledger=ledger)
        verify_codebook(out, ledger, public_keys=[key.public])
        with pytest.raises(ValueError, match="has signed"):
            sign(out, key, ledger=ledger)
        with pytest.raises(ValueError, match="signed with the key"):
            verify_codebook(out, ledger, public_keys=[other.public])
        changes: dict[str, tuple[str, bytes, bytes]] = {
            "an answer after it was signed": ("officer.md", b"Yes.", b"No."),
            "the page's promise": ("officer.html", b"at most", b"at least"),
            "a centre": ("codebook.csv", b"\n", b"\n1"),
            "a fact": ("codebook.json", b'"users": 3000', b'"users": 4000'),
            "the ledger's limit": ("codebook.json", b'"limit_epsilon": 5.0', b'"limit_epsilon": 3.0'),
            "the name that signed": ("signatures.json", b"A. Weber", b"B. Weber"),
            "the time": ("signatures.json", b'"time": "20', b'"time": "21'),
        }
        for name, (file, old, new) in changes.items():
            kept = (out / file).read_bytes()
            assert old in kept, name
            (out / file).write_bytes(kept.replace(old, new, 1))
            with pytest.raises(ValueError, match="is not|are not|does not|must be"):
                verify_codebook(out, ledger, public_keys=[key.public])
            (out / file).write_bytes(kept)
        (out / "more.txt").write_text("")
        with pytest.raises(ValueError, match="is not of this fit"):
            sign(out, other, ledger=ledger)
        (out / "more.txt").unlink()
        (out / "officer.html").unlink()
        with pytest.raises(ValueError, match="is not there"):
            verify_codebook(out, ledger)


def test_pages_that_do_not_follow_from_the_facts_are_seen(fitted: Path, tmp_path: Path) -> None:
    """The facts' own text rewritten, and every page made again to fit: the ledger's mark tells."""
    out = tmp_path / "out"
    shutil.copytree(fitted / "out", out)
    text = (out / "codebook.json").read_text("utf-8").replace('"purpose": "', '"purpose": "harmless ', 1)
    (out / "codebook.json").write_text(text, "utf-8")
    with pytest.raises(ValueError, match=r"officer.md: line \d+ is not as it was made"):
        verify_codebook(out)
    write_codebook_pages(out, text)
    verify_codebook(out)  # whole in itself
    with (
        Ledger.open(fitted / "ledger.sqlite") as ledger,
        pytest.raises(ValueError, match="that the ledger marked"),
    ):
        verify_codebook(out, ledger)


# --------------------------------------------------------- what follows from the noisy sums, and forgeries
def rewritten(out: Path, change: Any) -> dict[str, Any]:
    """The facts of a folder changed, its files' hashes and pages made again: whole in itself."""
    facts = json.loads((out / "codebook.json").read_text("utf-8"))
    change(facts)
    for name in facts["files"]:
        facts["files"][name] = hashlib.sha256((out / name).read_bytes()).hexdigest()
    text = json.dumps(facts, indent=2, ensure_ascii=False) + "\n"
    (out / "codebook.json").write_text(text, "utf-8")
    write_codebook_pages(out, text)
    return facts


def with_noise(facts: dict[str, Any], times: float) -> None:
    """The noise stated so many times as large, with the guarantee that it would have."""
    table = facts["guarantee"]["mechanisms"][0]
    table["scales"]["sums"] *= times
    table["joint"] /= times
    record = MechanismRecord.from_dict(table)
    guarantee = guaranteed(record, facts["guarantee"]["delta"], "secure")
    facts["guarantee"], facts["statement"] = guarantee.to_dict(), guarantee.statement


def test_a_forged_epsilon_is_refused(fitted: Path, tmp_path: Path) -> None:
    """Fifty times the noise is stated and a fiftieth of the loss, in pages made again; without the ledger."""
    for name in ("out", "cuts"):
        out = tmp_path / name
        shutil.copytree(fitted / name, out)
        assert verify_codebook(out) == ()
        facts = rewritten(out, lambda facts: with_noise(facts, 50.0))
        assert facts["guarantee"]["epsilon"] < 0.03
        with pytest.raises(ValueError, match=r"guarantee\.\w+ is not what follows"):
            verify_codebook(out)


def test_every_printed_number_is_compared(fitted: Path, tmp_path: Path) -> None:
    """Each changed alone, hashes and pages made again."""

    def edit(file: str, old: str, new: str) -> Any:
        def change(out: Path, _: dict[str, Any]) -> None:
            text = (out / file).read_text()
            assert old in text
            (out / file).write_text(text.replace(old, new, 1))

        return change

    def at(path: str, value: Any) -> Any:
        def change(_: Path, facts: dict[str, Any]) -> None:
            *above, last = path.split("/")
            table = facts
            for name in above:
                table = table[name]
            assert last in table
            table[last] = value(table[last]) if callable(value) else value

        return change

    def last_digit(out: Path, _: dict[str, Any]) -> None:
        text = (out / "codebook.csv").read_text()
        at = text.index(",", text.index("\n")) - 1
        (out / "codebook.csv").write_text(text[:at] + str((int(text[at]) + 5) % 10) + text[at + 1 :])

    def moved_sum(out: Path, _: dict[str, Any]) -> None:
        rows = [row.split(",") for row in (out / "sums.csv").read_text().split("\n")[:-1]]
        most = max(rows[-3:], key=lambda row: int(row[-1]))  # of the last round, with 1 000 people at least
        most[2] = str(int(most[2]) + 2**22)
        (out / "sums.csv").write_text("\n".join(map(",".join, rows)) + "\n")

    changes: dict[str, tuple[str, Any]] = {
        "a digit of a centre": ("out", last_digit),
        "a noisy sum": ("out", moved_sum),
        "a line of the sums": ("out", edit("sums.csv", "\n0,1,", "\n0,2,")),
        "a foreign number": ("out", edit("sums.csv", "\n0,1,", "\n0,1, ")),
        "the start": ("out", edit("start.csv", ".", ".1")),
        "a cut": ("cuts", edit("cuts.toml", "cuts = [", "cuts = [-9.9, ")),
        "a range": ("out", at("query/ranges/x", [-5.0, 5.0])),
        "a scale": ("out", at("query/scale/x", 4.0)),
        "the radius": ("out", at("query/radius", lambda r: r * 0.99)),
        "k": ("out", at("query/k", 2)),
        "bins": ("cuts", at("query/bins", 32)),
        "touched": ("out", at("query/touched", 1)),
        "horizon": ("cuts", at("query/horizon", 1)),
        "sigma": ("out", at("query/sigma", lambda s: s + 1)),
        "the grid": ("out", at("query/grid", 2**10)),
        "where the start is from": ("cuts", at("query/start", "halton")),
        "rounds": ("out", at("forecast/rounds", 4)),
        "epsilon of the forecast": ("out", at("forecast/epsilon", 0.1)),
        "the verdict": ("out", at("forecast/verdict", lambda said: said.replace("= 1 ", "= .1 "))),
        "people": ("out", at("users", 30_000)),
        "a share": ("cuts", at("shares", lambda shares: [shares[0] + 1e-6, *shares[1:]])),
        "the sentence": ("out", at("statement", "Perfect privacy.")),
    }  # fmt: skip
    for name, (which, change) in changes.items():
        out = tmp_path / name.replace(" ", "-")
        shutil.copytree(fitted / which, out)
        rewritten(out, lambda facts, change=change, out=out: change(out, facts))
        with pytest.raises(ValueError, match="must|is not|does not|do not"):
            print(name, verify_codebook(out))


def test_a_start_from_a_file_is_said_to_be_unchecked(declared: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("y,x\n4,-9\n1,1\n4,99\n")
    fit_codebook(
        people(3000), declared, tmp_path / "out", ledger=None, centres=3, epsilon=1.0, delta=1e-6,
        start=tmp_path / "mine.csv", randomness=Seeded(1),
    )  # fmt: skip
    assert (tmp_path / "out" / "start.csv").read_text() == "x,y\n-9.0,4.0\n1.0,1.0\n99.0,4.0\n"
    (said,) = verify_codebook(tmp_path / "out")
    assert "came from a file" in said


@pytest.mark.parametrize("version", [1, 2])
def test_earlier_versions_are_read(fitted: Path, tmp_path: Path, version: int) -> None:
    """Folders without sums, in other words: what can be checked is, and the rest is named."""

    def earlier(out: Path) -> Any:
        def change(facts: dict[str, Any]) -> None:
            del facts["query"]
            facts |= {"version": version, "files": {"codebook.csv": ""}, "statement": "In other words."}
            facts["guarantee"]["statement"] = "In other words."
            del facts["guarantee"]["neighbours"]
            if version == 1:
                held = facts["ledger"]
                facts["ledger"] = {name: held[name] for name in ("identity", "hash")}
                facts["ledger"]["entry"] = held["number"]
                for name in ("declared", "provenance", "episodes_per_user", "unit"):
                    del facts[name]
            facts["files"]["codebook.csv"] = hashlib.sha256((out / "codebook.csv").read_bytes()).hexdigest()

        return change

    out = tmp_path / "out"
    shutil.copytree(fitted / "out", out)
    for name in ("sums.csv", "start.csv"):
        (out / name).unlink()
    facts = json.loads((out / "codebook.json").read_text("utf-8"))
    earlier(out)(facts)
    (out / "codebook.json").write_text(json.dumps(facts), "utf-8")
    for name in ("officer.md", "officer.html"):
        if version == 1:
            (out / name).unlink()
        else:
            (out / name).write_text("As it was written then.")
    said = verify_codebook(out)
    assert "did not keep the sums" in said[0]
    assert "did not write them down" in said[1]
    assert ("earlier version" if version == 2 else "no officer's page") in said[2]
    facts["guarantee"]["mechanisms"][0]["scales"]["sums"] *= 50
    facts["guarantee"]["mechanisms"][0]["joint"] /= 50
    record = MechanismRecord.from_dict(facts["guarantee"]["mechanisms"][0])
    forged = guaranteed(record, 1e-6, "secure").to_dict()
    facts["guarantee"] |= {name: forged[name] for name in ("epsilon", "rho", "mu")}
    (out / "codebook.json").write_text(json.dumps(facts), "utf-8")
    with pytest.raises(ValueError, match=r"forecast\.epsilon is not what follows"):
        verify_codebook(out)


def test_each_round_asks_by_what_was_released_alone(
    declared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cells of every round are the nearest of centres that the start and the kept sums give."""
    asked_by: list[tuple[np.ndarray, np.ndarray]] = []
    exact = PersonSums.exact

    def caught(self: PersonSums, owner: np.ndarray, cell: np.ndarray, payload: np.ndarray) -> np.ndarray:
        asked_by.append((cell, payload[:, :-1]))
        return exact(self, owner, cell, payload)

    monkeypatch.setattr(PersonSums, "exact", caught)
    out = tmp_path / "out"
    fit_codebook(
        people(3000), declared, out, ledger=None, centres=20, rounds=4, epsilon=1.0, delta=1e-6,
        randomness=Seeded(7), anyway=True,
    )  # fmt: skip
    facts = json.loads((out / "codebook.json").read_text("utf-8"))
    asked = CodebookQuery.read(facts["query"], facts["forecast"], facts["episodes_per_user"])
    centres = asked.read_start((out / "start.csv").read_text())
    released = asked.read_sums((out / "sums.csv").read_text())
    assert len(asked_by) == len(released) == 4
    for (cell, z), sums in zip(asked_by, released, strict=True):
        assert (cell == nearest(z, centres)).all()
        centres = asked.moved(centres, sums, facts["query"]["sigma"])


def test_names_that_look_alike_are_counted(declared: Path, tmp_path: Path) -> None:
    """Everybody counts once: so somebody with two names counts twice, and their owner is told."""
    records = people(2000)
    records.loc[records["who"] == "P7", "who"] = "P12.0"
    how: dict[str, Any] = {"centres": 3, "epsilon": 1.0, "delta": 1e-6, "ledger": None}
    with pytest.warns(UserWarning, match="^1 of the names in 'who' look like another one"):
        fit_codebook(records, declared, tmp_path / "out", randomness=Seeded(1), **how)
