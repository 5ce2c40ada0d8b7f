"""Records of other libraries: what is recomputed, what is not, and the page."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import other_records as others
from benchmarks.other_records import OtherRecord, bounds, page, read, replaced, verdict
from discreet.accounting.budget import gdp_epsilon, zcdp_epsilon

PLAIN = OtherRecord("t", "s", "https://a", "1.00", 1e-6, "add-remove", "u", (), False)


def noisy(
    epsilon: str, *events: dict[str, object], delta: float = 1e-6, shuffled: bool = False
) -> OtherRecord:
    return replace(PLAIN, epsilon=epsilon, events=events, delta=delta, shuffled=shuffled)


def test_the_page_is_made_from_the_files() -> None:
    assert others.main(["--check"]) == 0
    records = [read(path) for path in others.HERE.glob("*.toml")]
    assert {verdict(one) for one in records} == {"recomputed", "stated only", "refuted"}
    assert len({one.title for one in records}) == len(records) >= 20


def test_closed_forms_are_those_of_the_library() -> None:
    two = ({"kind": "gaussian", "scale": 10.0}, {"kind": "gaussian", "mu": 0.2})
    assert bounds(noisy("1", *two)) == pytest.approx((gdp_epsilon(0.05**0.5, 1e-6),) * 2, rel=1e-9)
    assert bounds(noisy("1", {"kind": "zcdp", "rho": 0.03})) == pytest.approx((0.0, zcdp_epsilon(0.03, 1e-6)))
    four = {"kind": "gaussian", "scale": 40.0, "shift": 2.0, "count": 4}
    assert bounds(noisy("1", four)) == pytest.approx((gdp_epsilon(0.1, 1e-6),) * 2, rel=1e-9)
    laplace = [{"kind": "laplace", "scale": 4.0}] * 2
    assert bounds(noisy("1", *laplace, delta=0.0)) == (0.5, 0.5)
    many = {"kind": "laplace", "scale": 60.0, "shift": 3.0, "count": 5}
    assert bounds(noisy("1", many, delta=0.0)) == (0.25, 0.25)
    with pytest.raises(ValueError, match="cannot be recomputed together"):
        bounds(noisy("1", *laplace, *two))


@pytest.mark.parametrize(
    ("epsilon", "kind", "said"),
    [
        ("0.9998", "gaussian", "refuted"),
        ("1.00", "gaussian", "recomputed"),
        ("0.994", "gaussian", "refuted"),
        ("1.1", "zcdp", "recomputed"),
        ("1.0", "zcdp", "stated only"),  # a bound on rho has no lower bound on epsilon
    ],
)
def test_verdicts(epsilon: str, kind: str, said: str) -> None:
    """Gaussian noise at (1, 1e-6), and the rho of it, which implies 1.0767 only."""
    mu = 0.23669877
    event = {"kind": kind, "mu": mu} if kind == "gaussian" else {"kind": kind, "rho": mu**2 / 2}
    assert verdict(noisy(epsilon, event)) == said
    assert verdict(noisy(epsilon, event, shuffled=True)) == "stated only"
    assert verdict(noisy(epsilon)) == "stated only"


def test_add_or_remove_is_converted() -> None:
    one = noisy("0.5", {"kind": "laplace", "scale": 2.0}, delta=0.0)
    assert replaced(one) == "(1, 0)"
    assert replaced(replace(one, relation="replace")) == "same relation"
    assert replaced(replace(one, relation="not stated")) == replaced(PLAIN) == "not known"
    assert page([one]).count("None.") == 2


FILE = """format = 1
system = "other"
title = "t"
source = "s"
address = "https://a"
[statement]
relation = "replace"
unit = "u"
epsilon = "1"
delta = 0.0
events = [{ kind = "laplace", scale = 1.0 }]
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("format = 1", "format = 2", "format = 2"),
        ('"other"', '"ours"', "system = 'ours'"),
        ("https", "http", "address = "),
        ('unit = "u"', "", "statement.unit: is missing"),
        ('unit = "u"', 'unit = "u"\nplace = 1', "statement.place: is unknown"),
        ('"replace"', '"swap"', "relation = 'swap'"),
        ('"laplace"', '"cauchy"', "kind = 'cauchy'"),
        ("scale = 1.0", "scale = 0.0", "scale = 0.0"),
        ("scale = 1.0", "mu = 1.0", "'laplace' must not have"),
        ("scale = 1.0", "scale = 1.0, count = 0", "count = 0"),
        ('"laplace", scale', '"zcdp", count = 2, rho', "'zcdp' must not have"),
        ("delta = 0.0", 'delta = 0.0\nsampling = "poisson"', "sampling: must be given exactly"),
        ("delta = 0.0", "delta = 1.0", "delta = 1.0"),
        ('"1"', '"one"', "could not convert"),
    ],
)
def test_files_are_checked(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "one.toml"
    path.write_text(FILE, "utf-8")
    assert verdict(read(path)) == "recomputed"
    path.write_text(FILE.replace(old, new, 1), "utf-8")
    with pytest.raises(ValueError, match=said):
        read(path)
