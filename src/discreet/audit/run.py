"""Implementation of ``discreet audit``: black-box and white-box audits of a privatizer in one report.

Three black-box games (:mod:`discreet.audit.black_box`) share the probability of a false alarm: a game with
one release, a game with several releases, and a game with an unknown number of users. The games use the
mechanism that the privatizer chooses at the size of the white-box audit, if that is possible
(:func:`as_asked`). A learner with linear features is audited in the games of
:mod:`discreet.audit.linear_games`.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from discreet.accounting.text.guarantee_sentences import up
from discreet.audit import black_box as core
from discreet.audit import linear_games as audit_linear
from discreet.audit.black_box import BlackBoxEvidence, Game, People, Restart, Start
from discreet.audit.replay_audit import replay_box
from discreet.audit.secure_noise import secure_box
from discreet.audit.white_box import Identity, white_box
from discreet.core import checks
from discreet.core import count_kernels as kernels
from discreet.core.guarantee import Guarantee
from discreet.core.layout import Layout
from discreet.core.rng import Seeded
from discreet.core.short_repr import brief
from discreet.mechanisms.argument_roles import check_role
from discreet.mechanisms.interfaces import Learner, Privatizer, ProblemSpec, Session
from discreet.mechanisms.restore_session import restore

SHORT, LONG = 2, 6  # numbers of users in the short and in the long game

NO_CERTIFICATE = (
    "A pass is no certificate: it says that no error was found by tests that see some errors and not others. "
    "What is proved stands in the mechanism's own documentation. Games and replays ran on noise from a "
    "seed, as in simulations; exact noise, which other code draws, was tested for its law, its grid and for "
    "being shared."
)


@dataclass(frozen=True)
class Audit:
    """Result of the audit of one privatizer.

    Parameters
    ----------
    privatizer, learner : names
    identities : results of the white-box tests
    runs : number of runs of the short game under each hypothesis
    seconds : duration of the audit in seconds
    guarantee : guarantee in the short game
    evidence : results of the black-box games
    horizon : H of the short game
    games : name of each game in ``evidence``
    power : power of the short game if the noise has half the claimed scale; None if unknown
    alarm : probability of a false alarm in any part of the audit
    mechanisms : descriptions of the mechanism at the size of the white-box audit, and of the mechanism in the
        games
    notes : games that did not run as requested, with reasons
    """

    __repr__ = brief

    privatizer: str
    learner: str
    guarantee: Guarantee
    evidence: tuple[BlackBoxEvidence, ...]
    identities: tuple[Identity, ...]
    power: float | None
    runs: int
    alarm: float
    seconds: float
    horizon: int = 1
    games: tuple[str, ...] = ("one release", "five releases")
    mechanisms: tuple[str, str] = ("", "")
    notes: tuple[str, ...] = ()

    @property
    def epsilon(self) -> float:
        """Largest lower bound on epsilon, at least 0."""
        return max(one.epsilon for one in self.evidence)

    @property
    def mu(self) -> float:
        """Largest lower bound on mu, at least 0. The value is 0 if no mu is claimed."""
        return max(one.mu for one in self.evidence)

    @property
    def failures(self) -> tuple[str, ...]:
        """Findings that contradict the claim. Empty if nothing was found."""
        found = ["a lower bound exceeds the claim"] if any(one.exceeded for one in self.evidence) else []
        return (*found, *(one.name for one in self.identities if one.passed is False))

    @property
    def power_words(self) -> str:
        """Sentence that states the power of the black-box audit."""
        if self.power is None:
            return (
                "The noise law of this mechanism is not known to the audit, so the power of its black box "
                "against noise of half the scale was not computed"
            )
        return (
            f"Noise of half the claimed scale (reports: twice the epsilon) would have been exposed by the "
            f"black box with probability {self.power:.2f} (simulated, {self.runs} runs a world); subtler "
            "errors, with less"
        )

    @property
    def verdict(self) -> str:
        """Verdict of the audit as one paragraph."""
        notes = "".join(f" {note}." for note in self.notes)
        if self.failures:
            return f"FAILED: {'; '.join(self.failures)}. {self.power_words}.{notes}"
        return f"Nothing was found. {self.power_words}.{notes} {NO_CERTIFICATE}"

    def to_json(self) -> dict[str, Any]:
        """Return the audit as one JSON document. Bounds that give no information are null."""
        return {
            "privatizer": self.privatizer,
            "learner": self.learner,
            "passed": not self.failures,
            "failures": list(self.failures),
            "claimed": {name: getattr(self.guarantee, name) for name in ("epsilon", "delta", "mu")},
            "lower_bound": {"epsilon": self.epsilon, "mu": None if self.guarantee.mu is None else self.mu},
            "false_alarm": self.alarm,
            "mechanism": {"asked": self.mechanisms[0], "games": self.mechanisms[1]},
            "notes": list(self.notes),
            "runs_per_world": self.runs,
            "power_half_scale": self.power,
            "games": [
                {
                    "name": name,
                    "claimed": {key: getattr(one.guarantee, key) for key in ("epsilon", "delta", "mu")},
                    "runs_per_world": one.runs,
                    "statistics": [
                        {
                            "name": b.statistic,
                            "epsilon": b.epsilon if math.isfinite(b.epsilon) else None,
                            "mu": b.mu if math.isfinite(b.mu) else None,
                            "hits": list(b.hits),
                            "judged": b.runs,
                        }
                        for b in one.bounds
                    ],
                }
                for name, one in zip(self.games, self.evidence, strict=True)
            ],
            "identities": [
                {"name": one.name, "passed": one.passed, "found": one.found} for one in self.identities
            ],
            "guarantee": self.guarantee.to_dict(),
            "verdict": self.verdict,
            "seconds": self.seconds,
        }


def saved_and_restored(session: Any) -> Session:
    """Save a session to a file, and return the session restored from this file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "session"
        session.save(path)
        again: Any = restore(path, Path(folder) / "table")
        return again


def _restart(start: Start, learner: Any, spec: ProblemSpec) -> Restart | None:
    """Return :func:`saved_and_restored` if sessions of this privatizer can be saved.

    Otherwise return None.
    """
    session = start(learner.query(spec), learner.schedule(spec), Seeded(0))
    return saved_and_restored if hasattr(session, "save") else None


def _games(start: Start, learner: Any, budget: Any) -> tuple[Any, Game, Game]:
    """Return the learner of the short game, the short game, and the long game."""
    short = audit_linear.game_of(learner, SHORT, budget)
    long = audit_linear.game_of(learner, LONG, budget, nonneg=True)
    if short is None or long is None:
        spec = People(SHORT).spec
        session = start(learner.query(spec), learner.schedule(spec), Seeded(0))
        # rewards must be 0 or 1, because devices round other rewards at random
        bits = session.guarantee.trust == "shuffle"
        return learner, People(SHORT, bits=bits), People(LONG, bits=bits)
    probe = audit_linear.Probe.of(learner, short.spec)
    return (probe, audit_linear.canary(start, probe, short)[0], audit_linear.canary(start, learner, long)[0])


_NOISES = {kernels.LAPLACE: "laplace", kernels.GAUSSIAN: "gaussian"}
_RELEASES = {
    "tree": "tree",
    "optimaltree": "tree",
    "signeddigits": "signed-digits",
    "matrixfactorization": "matrix",
}


def _options_of(mechanism: Any) -> dict[str, Any]:
    """Return options of a privatizer for which it chooses this mechanism. Empty for exact sums."""
    stream = getattr(mechanism, "stream", "exact")
    if stream == "exact":
        return {}
    reports = getattr(mechanism, "reports", None)
    if reports is not None:
        if mechanism.trust == "local":
            return {"randomizer": reports.kind}
        return {"release": "reports"}
    laplace = (
        getattr(mechanism, "noise", "") == "laplace" or getattr(mechanism, "family", 0) == kernels.LAPLACE
    )
    noise = "laplace" if laplace else "gaussian"
    if stream == "local":
        return {"randomizer": noise}
    if stream == "walk":
        kind = type(mechanism.walk).__name__.lower()
        found = {"noise": noise, "release": _RELEASES.get(kind, "square-root")}
        return {**found, "tree_estimate": "optimal"} if kind == "optimaltree" else found
    decay = float(getattr(mechanism, "decay", 0.0))
    return (
        {"noise": noise, "release": "decaying", "decay": decay}
        if decay
        else {"noise": noise, "release": "batches"}
    )


def _words(found: dict[str, Any]) -> str:
    said = {"tree_estimate": "{} estimate", "decay": "decay {:g}", "noise": "{} noise"}
    return (
        ", ".join(said.get(name, "{}").format(value) for name, value in found.items()) or "nothing was chosen"
    )


def as_asked(
    privatizer: Any, learner: Any, full: ProblemSpec, short: ProblemSpec
) -> tuple[Any, tuple[str, str], list[str]]:
    """Return a privatizer that chooses the same mechanism in the games as at full size.

    The function also returns descriptions of the two mechanisms (at full size and in the games), and notes.
    Options that the user set are kept. If the mechanism is not possible at the size of the games, or if no
    options select it, the privatizer is returned unchanged. A note then states which mechanism the games use
    instead.
    """

    def chosen(one: Any, spec: ProblemSpec) -> tuple[dict[str, Any], Guarantee]:
        mechanism = one.mechanism(learner.query(spec), learner.schedule(spec), Seeded(0))
        return _options_of(mechanism), mechanism.guarantee

    wanted, claim = chosen(privatizer, full)
    plays, notes = privatizer, []
    if dataclasses.is_dataclass(privatizer) and not isinstance(privatizer, type):
        auto = {n: v for n, v in wanted.items() if getattr(privatizer, n, v) in (None, "auto", "plain")}
        try:
            fixed = dataclasses.replace(privatizer, **auto) if auto else privatizer
            chosen(fixed, short)
            plays = fixed
        except (ValueError, TypeError):
            pass
    found, game = chosen(plays, short)
    if found != wanted:
        notes.append(
            f"Asked for was {_words(wanted)}, the black box played {_words(found)}: its bounds are of that"
        )
    if claim.epsilon is not None and game.delta != claim.delta:
        notes.append(
            f"At the size asked for delta = {claim.delta:g} is claimed, in the games delta = {game.delta:g}: "
            "there the black box tests another claim than was asked for"
        )
    return plays, (_words(wanted), _words(found)), notes


def audit_privatizer(
    privatizer: Privatizer,
    learner: Learner | None = None,
    *,
    runs: int = 8000,
    seed: int = 1,
    alarm: float = core.ALARM,
    layout: Layout | None = None,
    restart: Restart | None = None,
    names: tuple[str, str] = ("", ""),
) -> Audit:
    """Audit a privatizer, with or without a learner.

    Parameters
    ----------
    privatizer : any object with a method ``start``
    learner : learner that makes queries and plans. None: a learner for audits, which queries transitions and
        centred rewards, and makes a plan for each user
    runs : number of runs of the short game per hypothesis, at least 800. The other games use a quarter of
        this number
    seed : seed of all sessions
    alarm : probability of a false alarm, in (0, 0.5]. Half of it is used for the black-box games
    layout : size of the white-box audit, by default S = 6, A = 2, H = 20. Not used with linear features
    restart : function that takes a session and returns a restored session. By default, the white-box audit
        saves sessions to a file and restores them. If the argument is given, the long game uses the function
        too
    names : names of privatizer and learner that the report displays

    Raises
    ------
    ValueError
        If a value is out of range, or privatizer and learner do not fit together.
    """
    runs, begin = checks.integer("runs", runs, 800), time.perf_counter()
    alarm = checks.real("alarm", alarm, 0.0, 0.5, open_low=True)
    _check_audited(privatizer, learner, names[1])
    start = privatizer.start
    plays = learner or core.reactive(start)
    budget = getattr(privatizer, "budget", None)
    linear = audit_linear.game_of(plays, 16, budget, horizon=4)
    full = ProblemSpec(layout or Layout(6, 2, 20), 16) if linear is None else linear.spec
    fixed, mechanisms, notes = as_asked(privatizer, plays, full, _games(start, plays, budget)[1].spec)
    asks, short, long = _games(fixed.start, plays, budget)
    games = {
        "one release": core.black_box(fixed.start, asks, runs, seed, alarm / 4, short),
        "five releases": core.black_box(fixed.start, plays, runs // 4, seed + 1, alarm / 8, long, restart),
    }
    guarantee = games["one release"].guarantee
    unknown = None if linear is not None else core.endless(start)
    if isinstance(unknown, str):
        notes.append(f"No game with an unknown number of users: {unknown}")
    elif unknown is not None:
        people = People(LONG, bits=guarantee.trust == "shuffle")
        found = core.black_box(start, unknown, runs // 4, seed + 2, alarm / 8, people)
        games["unknown number of users"] = found
    power = core.half_scale_power(fixed.start, asks, short, runs, alarm / 4)
    again = restart or _restart(start, plays, short.spec)
    identities = _identities(start, plays, layout, again, seed, alarm, budget, unknown)
    return Audit(
        names[0] or repr(privatizer), names[1] or ("reactive counts" if learner is None else repr(learner)),
        guarantee, tuple(games.values()), tuple(identities), power, runs, alarm,
        time.perf_counter() - begin, short.spec.horizon, tuple(games), mechanisms, tuple(notes),
    )  # fmt: skip


def _identities(
    start: Start, plays: Any, layout: Layout | None, restart: Restart | None, seed: int, alarm: float,
    budget: Any, unknown: Any,
) -> list[Identity]:  # fmt: skip
    """Run all tests except the black-box games: white-box tests, tests of secure noise, and replays.

    unknown : learner for an unknown number of users. Without such a learner, a string or None
    """
    identities = white_box(start, plays, layout, seed=seed, alarm=alarm / 4, restart=restart, budget=budget)
    identities += secure_box(start, plays, seed=seed, alarm=alarm / 8, budget=budget)
    identities.append(replay_box(start, plays, seed=seed, alarm=alarm / 16, budget=budget))
    if unknown is not None and not isinstance(unknown, str):
        ended = replay_box(start, unknown, 48, seed, alarm / 16, budget)
        identities.append(dataclasses.replace(ended, name=f"{ended.name} (unknown number of users)"))
    return identities


def _check_audited(privatizer: Any, learner: Any, name: str) -> None:
    """Raise ``ValueError`` if an argument is not a privatizer or learner, or the learner is not supported."""
    if getattr(learner, "known_initial", False):
        raise ValueError(
            f"learner = {name or learner!r}: must not explore in stages, whose users are more than an audit "
            "simulates; each of its batches is a session of the privatizer, which can be audited alone"
        )
    check_role("privatizer", privatizer, "privatizer")
    if learner is not None:
        check_role("learner", learner, "learner")


# ------------------------------------------------------------------------------- tables for the documentation
_POWER_RUNS = (500, 1000, 2000, 4000, 8000, 16000)


def table(audits: Iterable[Audit]) -> str:
    """Return a Markdown table with one row for each audit: the mechanism, its claim, and the results."""
    rows = [
        "| mechanism | claimed | lower bound | identities | power at half the scale |",
        "|---|---|---|---|---|",
    ]
    for one in audits:
        claim = one.guarantee
        if claim.epsilon is None:
            words, bound = "nothing", f"ε ≥ {one.epsilon:.2f}"
        elif claim.mu is None:
            words, bound = f"ε = {up(claim.epsilon)}", f"ε ≥ {one.epsilon:.2f}"
        else:
            words = f"μ = {up(claim.mu)}, ε = {up(claim.epsilon)} at δ = {up(claim.delta, 2)}"
            bound = f"μ ≥ {one.mu:.2f}, ε ≥ {one.epsilon:.2f}"
        known = [i for i in one.identities if i.passed is not None]
        failed = ", ".join(i.name for i in known if not i.passed)
        passed = f"{sum(bool(i.passed) for i in known)} of {len(known)}"
        passed += f"; failed: {failed}" if failed else ""
        power = "not known" if one.power is None else f"{one.power:.2f}"
        rows.append(f"| {one.privatizer} | {words} | {bound} | {passed} | {power} |")
    return "\n".join(rows)


def power_table(privatizers: Iterable[tuple[str, Any]], alarm: float = core.ALARM) -> str:
    """Return a Markdown table of the power of the short game to detect noise that is too small.

    In the short game, an attacker distinguishes two data sets from one release. The power of the short game
    is the probability of refuting the claimed guarantee if the noise has half the claimed scale. The rows of
    the table are mechanisms, and the columns are numbers of runs of the game.
    """
    rows = [f"| mechanism | {' | '.join(str(n) for n in _POWER_RUNS)} |", f"|---|{'---|' * len(_POWER_RUNS)}"]
    for name, privatizer in privatizers:
        powers = [
            core.half_scale_power(
                privatizer.start, core.reactive(privatizer.start), People(SHORT), n, alarm / 4
            )
            for n in _POWER_RUNS
        ]
        known = [f"{power:.2f}" for power in powers if power is not None]
        if known:
            rows.append(f"| {name} | {' | '.join(known)} |")
    return "\n".join(rows)
