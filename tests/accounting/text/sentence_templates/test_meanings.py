"""What sentences about epsilon, delta, rho and mu say, as claims about two laws, and whether it is so.

Every template of :mod:`discreet.accounting.text.sentence_templates` has a claim: (what the mechanism does,
the most that the sentence allows). Claims are evaluated on mechanisms whose laws are known: randomized
response, Gaussian noise in closed form, discrete Gaussian and discrete Laplace noise by exact sums, and a
mechanism that reveals the record with probability delta. A sentence is true if no claim is passed, and as
sharp as it can be if one is met within 1 %. Sentences that an earlier version wrote instead must fail on one
of the mechanisms.
"""

import html
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from discreet.accounting import budget
from discreet.accounting import exceedance as exceeding
from discreet.accounting.text import guarantee_sentences as sentences
from discreet.accounting.text.earlier_sentences import SENTENCES
from discreet.accounting.text.sentence_templates import NOW, VERSION
from discreet.core.guarantee import Guarantee, MechanismRecord, guarantee_of
from discreet.reports.statement import PAGES
from discreet.reports.statement_page import times
from discreet.reports.trade_off_function import TradeOff
from discreet.utils.document import text_of

EPSILONS, DELTAS = (0.1, 0.5, 1.0, 2.0, 5.0), (0.0, 1e-8, 1e-5, 1e-2)
UNITS = 8  # of its grid by which one person moves a discrete sum
ROOT = Path(__file__).parents[4]


# ------------------------------------------------------------------------------ laws
class Pair:
    """Two laws P and P', with record and with another; symmetric: either order has the same losses."""

    def delta(self, epsilon: float) -> float:
        """The largest P(E) - e^epsilon P'(E)."""
        raise NotImplementedError

    def above(self, epsilon: float) -> float:
        """P(L > epsilon)."""
        raise NotImplementedError

    def events(self) -> tuple[np.ndarray, np.ndarray]:
        """(P(E), P'(E)) of the events that an outcome has at least some loss: no others are more extreme."""
        raise NotImplementedError

    def ruled_out(self) -> float:
        """P of the outcomes that are impossible under P'."""
        return 0.0

    def epsilon(self, delta: float) -> float:
        """The least epsilon >= 0 at a delta."""
        low, high = 0.0, 50.0
        if self.delta(low) <= delta:
            return 0.0
        for _ in range(200):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if self.delta(middle) <= delta else (middle, high)
        return high

    def guess(self) -> float:
        """How often the best guess between two records is right, of which each is as likely."""
        return 0.5 * (1.0 + self.delta(0.0))


@dataclass(frozen=True, eq=False)
class Finite(Pair):
    """Masses of finitely many outcomes."""

    p: np.ndarray
    q: np.ndarray

    @property
    def losses(self) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.log(self.p) - np.log(self.q)

    def delta(self, epsilon):
        return float(np.maximum(self.p - math.exp(epsilon) * self.q, 0.0).sum())

    def above(self, epsilon):
        return float(self.p[self.losses > epsilon + 1e-12].sum())

    def events(self):
        order = np.argsort(-self.losses, kind="stable")
        return np.cumsum(self.p[order])[:-1], np.cumsum(self.q[order])[:-1]

    def ruled_out(self):
        return float(self.p[self.q == 0.0].sum())

    def divergence(self, order):
        """Of Renyi."""
        kept = self.p > 0
        terms = order * np.log(self.p[kept]) + (1 - order) * np.log(self.q[kept])
        return float(np.logaddexp.reduce(terms)) / (order - 1)


@dataclass(frozen=True)
class Gaussian(Pair):
    """Gaussian noise that one person moves by mu standard deviations: N(mu, 1) and N(0, 1)."""

    mu: float

    def delta(self, epsilon):
        return budget.gdp_delta(self.mu, epsilon)

    def above(self, epsilon):
        return float(ndtr(0.5 * self.mu - epsilon / self.mu))

    def events(self):
        cuts = np.linspace(-8.0, 30.0, 20_001)
        return ndtr(self.mu - cuts), ndtr(-cuts)

    def divergence(self, order):
        return 0.5 * order * self.mu**2


def response(epsilon: float) -> Finite:
    """Randomized response."""
    p = 1.0 / (1.0 + math.exp(-epsilon))
    return Finite(np.array([p, 1.0 - p]), np.array([1.0 - p, p]))


def revealing(epsilon: float, delta: float) -> Finite:
    """Reveals the record with probability delta; else randomized response."""
    one, zero = np.array([delta, 0.0]), np.array([0.0, delta])
    rest = response(epsilon)
    return Finite(np.append(one, (1 - delta) * rest.p), np.append(zero, (1 - delta) * rest.q))


def on_a_grid(log_mass: Callable[[np.ndarray], np.ndarray], reach: int, shift: int) -> Finite:
    """Noise on the integers, moved by ``shift``; reach : beyond it there is nothing that a float sees."""
    x = np.arange(-reach, reach + shift + 1)
    whole = np.arange(-4 * reach, 4 * reach + 1)
    norm = float(np.logaddexp.reduce(log_mass(whole)))
    return Finite(np.exp(log_mass(x - shift) - norm), np.exp(log_mass(x) - norm))


def discrete_gaussian(sigma: float, shift: int = UNITS) -> Finite:
    return on_a_grid(lambda x: -0.5 * (x / sigma) ** 2, math.ceil(12 * sigma) + shift, shift)


def discrete_laplace(scale: float, shift: int = UNITS) -> Finite:
    return on_a_grid(lambda x: -np.abs(x) / scale, math.ceil(40 * scale) + shift, shift)


@dataclass(frozen=True)
class Case:
    """A mechanism, and the numbers that are printed of it."""

    name: str
    pair: Pair
    epsilon: float
    delta: float
    exceeds: float
    rho: float | None = None
    mu: float | None = None
    full: bool = True  # no outcome is impossible under another record
    group: Callable[[int], Pair] | None = field(default=None, compare=False)  # m people exchanged


def noise(kind: str, scale: float, delta: float) -> Guarantee:
    """The guarantee of one sum that a person moves by UNITS units (one, of continuous noise)."""
    own = float(UNITS if kind.startswith("discrete") else 1)
    record = MechanismRecord("a sum", kind, {"v": scale}, {"v": own}, own / scale)
    secure = "secure" if kind.startswith("discrete") else "seeded"
    return guarantee_of("central", [record], randomness=secure, delta=delta or None)


@lru_cache(maxsize=1)
def cases() -> tuple[Case, ...]:
    """Every mechanism at 20 (epsilon, delta), as the library states it."""
    found = []
    for epsilon in EPSILONS:
        for delta in DELTAS:
            found += at(epsilon, delta)
    assert len(found) >= 80
    return tuple(found)


def at(epsilon: float, delta: float) -> Iterator[Case]:
    pair = revealing(epsilon, delta) if delta else response(epsilon)
    most = exceeding.bound(pair.epsilon, epsilon, delta) if delta else 0.0
    yield Case("response, or all", pair, epsilon, delta, most, full=delta == 0.0)
    yield Case("response", response(epsilon), epsilon, delta, most)
    made = noise("discrete_laplace", UNITS / epsilon, 0.0)
    yield Case(
        "discrete Laplace", discrete_laplace(UNITS / epsilon), made.epsilon, 0.0, made.exceeds["at_most"],
        group=lambda m: discrete_laplace(UNITS / epsilon, m * UNITS),
    )  # fmt: skip
    if not delta:
        return
    mu, rho = budget.gdp_mu(epsilon, delta), budget.zcdp_rho(epsilon, delta)
    made = noise("gaussian", 1.0 / mu, delta)
    yield Case(
        "Gaussian", Gaussian(mu), made.epsilon, delta, made.exceeds["at_most"], made.rho, made.mu,
        group=lambda m: Gaussian(m * mu),
    )  # fmt: skip
    sigma = UNITS / math.sqrt(2.0 * rho)
    made = noise("discrete_gaussian", sigma, delta)
    yield Case(
        "discrete Gaussian", discrete_gaussian(sigma), made.epsilon, delta, made.exceeds["at_most"], made.rho,
        group=lambda m: discrete_gaussian(sigma, m * UNITS),
    )  # fmt: skip


# ------------------------------------------------------------------------------ claims
Claim = Callable[[Case], Iterator[tuple[float, float]]]
"""Pairs: what the mechanism does, and the most that the sentence allows."""


def every_event(case, epsilon=None, delta=None):
    """P(E) <= e^epsilon P'(E) + delta."""
    epsilon = case.epsilon if epsilon is None else epsilon
    delta = case.delta if delta is None else delta
    p, q = case.pair.events()
    ratio = p / (np.exp(epsilon) * q + delta + 1e-300)
    yield float(ratio[p > 1e-13].max()), 1.0  # smaller ones are rounding


def without_delta(case):
    """P(E) <= e^epsilon P'(E), of every event that is ever seen."""
    yield from every_event(case, delta=0.0)


def odds_of_events(case):
    """The odds of an event change by e^epsilon at most."""
    p, q = case.pair.events()
    kept = (q > 1e-13) & (p < 1 - 1e-13)
    p, q = p[kept], q[kept]
    yield float((p / (1 - p) / (q / (1 - q))).max()), math.exp(case.epsilon)


def exceeded_at_most(case):
    """P(L > epsilon) <= what ``exceeds`` says; outcomes that are impossible with another record: delta."""
    yield case.pair.above(case.epsilon), case.exceeds
    yield from ruled_out(case)


def exceeded_by_delta(case):
    yield case.pair.above(case.epsilon), case.delta


def exceeded_never(case):
    if case.delta == 0.0:
        yield case.pair.above(case.epsilon), 0.0
        yield from every_event(case)


def ruled_out(case):
    yield case.pair.ruled_out(), case.delta


def none_ruled_out(case):
    if case.full:
        yield case.pair.ruled_out(), 0.0


def told_outright(case):
    """With a chance of delta an outcome does tell everything."""
    yield case.delta, case.pair.ruled_out()


def several(case):
    """m people exchanged together: m epsilon and so much delta, m mu, m^2 rho."""
    for m in (2, 3) if case.group else ():
        pair = case.group(m)
        if case.rho is None:
            grown = math.expm1(m * case.epsilon) / math.expm1(case.epsilon) * case.delta
            yield from every_event(Case("", pair, m * case.epsilon, grown, 0.0))
        elif case.mu is None:
            for order in (1.5, 4.0):
                yield pair.divergence(order), order * m**2 * case.rho
        else:
            yield from as_hard(Case("", pair, 0.0, 0.0, 0.0, mu=m * case.mu))


def taking_part(case):
    """m times this epsilon for who takes part m times rather than not at all: the number is public."""
    with_, without = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    yield Finite(with_, without).delta(2 * case.epsilon), case.delta


def as_hard(case):
    """At least as hard as N(mu, 1) against N(0, 1): no test has more power."""
    if case.mu is not None:
        p, q = case.pair.events()
        kept = (q > 1e-6) & (q < 1 - 1e-6)
        yield float((p[kept] / ndtr(case.mu + ndtri(q[kept]))).max()), 1.0


def just_as_hard(case):
    """Also of somebody who moves the sum by half of what is possible."""
    if case.mu is not None:
        half = Gaussian(0.5 * case.mu)
        yield case.mu, half.mu


def every_delta(case):
    """Renyi divergences, and the epsilon that follows at every delta."""
    if case.rho is not None:
        for order in (1.01, 2.0, 8.0, 32.0):
            yield case.pair.divergence(order), order * case.rho
        for delta in (1e-7, 1e-4, 1e-2):
            yield case.pair.delta(budget.zcdp_epsilon(case.rho, delta)), delta


def printed_from_rho(case):
    """The epsilon that is printed is the one that follows from the rho beside it."""
    listed = Guarantee.from_dict(GUARANTEES["numerical, central"])
    yield budget.zcdp_epsilon(listed.rho, listed.delta), listed.epsilon


def for_patients(case):
    """The numbers as they are printed: factor, chance and right guesses."""
    factor, chance = math.exp(float(sentences.up(case.epsilon))), 1.0
    found = times(case.epsilon, NOW)
    assert found.startswith("e^") or float(found.replace(",", "")) >= math.exp(case.epsilon) * (1 - 1e-9)
    if case.delta:
        from discreet.reports.statement import _chance

        chance = 1.0 / float(_chance(case.delta).removeprefix("1 in ").replace(",", ""))
    yield from every_event(case, math.log(factor), chance if case.delta else 0.0)
    known = TradeOff(((case.epsilon, case.delta),), case.mu, case.rho)
    yield case.pair.guess(), known.right_guess(0.5)


def power_of_e(case):
    large = response(15.00004)
    yield from every_event(Case("", large, float(times(15.00004, NOW).removeprefix("e^")), 0.0, 0.0))


def a_million(case):
    large = response(15.00004)
    yield from every_event(Case("", large, math.log(1e6), 0.0, 0.0))


def rounded(case, template):
    true = 5.0000049
    said = template.format(nominal=0.1, epsilon=true, rounded_up=sentences.up(true, 6), less="more")
    printed = float(re.search(r"gives ε = ([0-9.]+):", said)[1])
    yield from every_event(Case("", response(true), printed, 0.0, 0.0))


def whatever_computer(case):
    """Noise from a seed of eight bits, against who tries all of them: 256 outcomes of either world."""
    rng = np.random.default_rng(1)
    drawn = np.unique(np.rint(rng.normal(0, 1e6, 256)))
    p, q = np.isin(all_ := np.union1d(drawn, drawn + UNITS), drawn + UNITS), np.isin(all_, drawn)
    yield Finite(p / p.sum(), q / q.sum()).delta(case.epsilon), case.delta


def perfect_numbers(case):
    """The law of perfect random numbers, which is what is printed."""
    yield from every_event(case)


def events_not_outcomes(case):
    """No limit on a single outcome where delta > 0; but the more it tells, the rarer."""
    losses = np.linspace(0.0, 3 * case.epsilon, 20)
    above = [case.pair.above(loss) for loss in losses]
    yield max(np.diff(above)), 0.0
    yield from none_ruled_out(case)


GUARANTEES = json.loads((ROOT / "tests" / "pipeline" / "version_4" / "guarantees.json").read_text("utf-8"))

TRUE: dict[str, Claim] = {
    "joint": every_event, "central": every_event, "local": every_event, "shuffle": every_event,
    "plus": every_event,
    "nominal": lambda case: rounded(case, NOW["nominal"]),
    "one episode": several, "several episodes": several, "again, epsilon": several, "again, delta": several,
    "again, mu": several, "again, rho": several,
    "patient": for_patients, "patient, plus": for_patients,
    "attackers": perfect_numbers, "threat": perfect_numbers, "threat, seeded": perfect_numbers,
    "certain": ruled_out, "certain, pure": lambda case: () if case.delta else none_ruled_out(case),
    "certain, none": none_ruled_out,
    "times": power_of_e,
    "row": every_event, "epsilon": every_event, "epsilon, plus": every_event, "epsilon, zero": every_event,
    "delta": exceeded_at_most, "delta, none": none_ruled_out, "delta, pure": exceeded_never,
    "rho": every_delta, "mu": as_hard,
    "no bound": events_not_outcomes, "no bound, none": events_not_outcomes,
}  # fmt: skip
"""Template to its claim."""

ZERO = {"certain, pure", "certain, none", "delta, none", "no bound", "no bound, none"}
"""Claims that something is 0: met wherever they hold."""

FALSE: dict[str, Claim] = {
    "joint": without_delta, "central": without_delta, "local": without_delta, "shuffle": without_delta,
    "plus": without_delta,
    "nominal": lambda case: rounded(case, SENTENCES[4]["nominal"]),
    "one episode": taking_part, "several episodes": taking_part,
    "attackers": whatever_computer, "threat": whatever_computer, "threat, seeded": whatever_computer,
    "certain": told_outright, "certain, pure": told_outright,
    "times": a_million,
    "row": without_delta, "epsilon": odds_of_events, "delta": exceeded_by_delta,
    "delta, pure": odds_of_events,
    "rho": printed_from_rho, "mu": just_as_hard,
    "no bound": told_outright,
}  # fmt: skip
"""What a reader could take the sentence of an earlier version for, where that is not so."""

SLACK = 1e-7  # what sums of masses lose


def shares(claim: Claim) -> list[tuple[str, float, float]]:
    return [(case.name, done, most) for case in cases() for done, most in claim(case)]


def test_every_template_has_a_meaning() -> None:
    assert set(TRUE) == set(NOW)
    assert set(FALSE) == {name for table in SENTENCES.values() for name in table}


@pytest.mark.parametrize("name", NOW)
def test_a_sentence_is_true_of_every_mechanism(name: str) -> None:
    found = shares(TRUE[name])
    assert found
    passed = [one for one in found if one[1] > one[2] * (1 + SLACK) + 1e-14]
    assert passed == []
    if name not in ZERO:  # somewhere it is met: a smaller number would be false
        assert any(done >= 0.99 * most > 0.0 for _, done, most in found)


@pytest.mark.parametrize("name", FALSE)
def test_an_earlier_sentence_is_not(name: str) -> None:
    assert SENTENCES[4][name] != NOW[name]
    assert any(done > most * (1 + SLACK) + 1e-14 for _, done, most in shares(FALSE[name]))


def test_laws_are_those_of_the_mechanisms() -> None:
    """Exact sums against closed forms that share nothing with them."""
    for case in cases():
        if case.name == "discrete Gaussian" and case.rho < 0.05:  # sigma above 25 units: hardly a grid
            near = Gaussian(math.sqrt(2 * case.rho))
            assert case.pair.delta(case.epsilon) == pytest.approx(near.delta(case.epsilon), rel=0.02)
        if isinstance(case.pair, Finite):
            assert case.pair.p.sum() == pytest.approx(1.0, abs=1e-10)
            assert case.pair.q.sum() == pytest.approx(1.0, abs=1e-10)


def test_the_bound_on_what_is_exceeded_is_met() -> None:
    """Losses that are just above epsilon or below every order: no smaller bound follows from the curve."""
    epsilon, excess, chance = 1.0, 1e-6, 1e-3
    q = chance * math.exp(-epsilon - excess)
    pair = Finite(np.array([chance, 1 - chance]), np.array([q, 1 - q]))
    delta = pair.delta(epsilon)
    found = exceeding.bound(pair.epsilon, epsilon, delta, (2.0, 1e2, 1e4))
    assert chance == pair.above(epsilon) <= found <= 1.01 * chance


def test_the_odds_of_an_event_change_by_twice_epsilon() -> None:
    case = Case("response", response(1.0), 1.0, 0.0, 0.0)
    ((change, allowed),) = odds_of_events(case)
    assert change == pytest.approx(math.exp(2.0))
    assert allowed == pytest.approx(math.e)


def test_what_delta_is_not() -> None:
    """Gaussian noise passes e^epsilon with 20 delta at (1, 1e-6), and 1.5 epsilon hardly ever."""
    rows = {(1, 1e-6): (2.01e-5, 54.7), (1, 1e-5): (1.61e-4, 55.3), (3, 1e-5): (6.89e-5, 64.0),
            (0.1, 1e-6): (1.49e-4, 50.6)}  # fmt: skip
    for (epsilon, delta), (above, right) in rows.items():
        pair = Gaussian(budget.gdp_mu(epsilon, delta))
        assert pair.above(epsilon) == pytest.approx(above, rel=5e-3)
        assert 100 * pair.guess() == pytest.approx(right, abs=0.06)
    assert Gaussian(budget.gdp_mu(1, 1e-6)).above(1.5) == pytest.approx(2.5e-10, rel=0.01)
    listed = Guarantee.from_dict(GUARANTEES["numerical, central"])  # discrete Gaussian: by its rho
    assert 100 * TradeOff.of(listed, listed.records).right_guess(0.5) == pytest.approx(55.9, abs=0.05)


# ------------------------------------------------------------------------------ what is printed
WRONG = {
    r"\b(bound|promise|ε|epsilon)\b[^.\n|]{0,20} fails": (),
    r"\bodds\b": (
        "odds between two records", "odds between two *records*", "posterior odds",
        # of what people did, under a hidden cause: no promise
        "odds of an action", "as likely (in odds) for some",
        "the recorded state itself changes these odds", "The recorded state itself changes these odds",
        "under a cause that changes odds by a factor",
    ),
    r"except with": (),
    r"chance of a failure": (),
    r"[Ff]ailure probability of the guarantee": (),
    r"(any|unlimited) computing power": (
        "any computing power, provided that the operating system's random numbers",
        "unlimited computing power, provided that the operating system's random numbers",
    ),
    r"any computer\b": ("any computer, provided that the operating system's random numbers",),
    r"may tell everything": (),
    r"tells for certain": (),
    r"changes the probability of anything": (),
    r"takes part m times": (),
}  # fmt: skip
"""What no page says, and where it may."""


def wrong_words(text: str) -> list[str]:
    """Lines are joined first, as pages are wrapped."""
    flat = re.sub(r"\s+", " ", html.unescape(text))
    found = []
    for pattern, allowed in WRONG.items():
        rest = flat
        for context in allowed:
            rest = rest.replace(context, "")
        found += [match[0] for match in re.finditer(pattern, rest)]
    return found


def documents() -> Iterator[tuple[str, dict]]:
    """Statements of many kinds of release, as the newest version writes them."""
    kept = json.loads((ROOT / "tests" / "pipeline" / "version_4" / "statements.json").read_text("utf-8"))
    for name, one in kept.items():
        document = dict(one["document"])
        guarantee = Guarantee.from_dict(document["guarantee"])
        said = [text.replace(SENTENCES[4]["attackers"], NOW["attackers"]) for text in document["covered"]]
        for trust in ("central", "joint"):
            table = guarantee.to_dict() | ({} if guarantee.epsilon is None else {"trust": trust})
            yield f"{name}, {trust}", {**document, "version": VERSION, "guarantee": table, "covered": said}


def pages() -> Iterator[tuple[str, str]]:
    for name, document in documents():
        for page, lines in PAGES.items():
            yield f"{name}: {page}", text_of(lines(document))
    for name, table in GUARANTEES.items():
        yield name, str(Guarantee.from_dict(table))
    goldens = (ROOT / "tests" / "goldens" / "goldens.json").read_text("utf-8")
    yield from ((line[:60], line) for line in goldens.splitlines())
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        yield str(path.relative_to(ROOT)), path.read_text("utf-8")
    for path in sorted((ROOT / "src").rglob("*.md")):
        yield str(path.relative_to(ROOT)), path.read_text("utf-8")
    for name, template in NOW.items():
        yield name, template


def test_no_page_says_more_than_is_so() -> None:
    found = dict(pages())
    assert len(found) > 400
    assert {name: words for name, text in found.items() if (words := wrong_words(text))} == {}


@pytest.mark.parametrize(
    "name", ["delta", "epsilon", "no bound", "attackers", "threat", "certain", "central"]
)
def test_the_scan_finds_earlier_sentences(name: str) -> None:
    assert wrong_words(SENTENCES[4][name]) != []


def test_no_docstring_takes_delta_for_the_probability_of_a_failure() -> None:
    """Gaussian noise at (1, 1e-6) has P(L > 1) = 2e-5."""
    wrong = re.compile(
        r"probability (that )?(of )?(the|its|this) (guarantee|epsilon|bound by epsilon)( fails)?\b"
    )
    for path in sorted((ROOT / "src").rglob("*.py")):
        text = re.sub(r"\s+", " ", path.read_text("utf-8"))
        assert not [match[0] for match in wrong.finditer(text)], path
