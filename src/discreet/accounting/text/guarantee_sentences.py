"""Functions that build the sentences of guarantees from numbers. No sentence is ever parsed.

Every sentence is a function of a :class:`discreet.core.guarantee.Guarantee` or of a record. Printed numbers
are rounded up, so no printed guarantee is below the true value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Decimal

from discreet.accounting.text import sentence_templates as promises
from discreet.accounting.text.sentence_templates import VERSION
from discreet.core.events import MechanismRecord
from discreet.core.guarantee import Guarantee

NOISE_WORDS = {
    "laplace": "Laplace", "gaussian": "Gaussian",
    "discrete_laplace": "discrete Laplace", "discrete_gaussian": "discrete Gaussian",
}  # fmt: skip
_SOURCES = {
    "seeded": "Noise from a seeded generator in floating point: for simulation only, "
    "whoever knows the seed can remove it.",
    "secure": "Noise drawn exactly, in integers, from the operating system's cryptographic source.",
}


def unit(episodes: int) -> str:
    """Return the name of the protected unit, for users with at most ``episodes`` episodes."""
    if episodes == 1:
        return "one user: one episode, the whole trajectory of states, actions and rewards"
    return f"one user: up to {episodes} episodes, the whole trajectories of states, actions and rewards"


def neighbours(episodes: int, trust: str = "central") -> str:
    """Return the neighbouring relation as text. trust : trust model of the guarantee."""
    if episodes == 1:
        return "one user's whole trajectory is replaced by any other one; the number of users stays the same"
    if trust == "joint":  # the server knows when a user takes part
        return (
            f"all of one user's episodes, up to {episodes}, are replaced by any others at the same times; "
            "the number of users stays the same"
        )
    return (
        f"all of one user's episodes, up to {episodes}, are replaced by any others, more or fewer; the "
        "number of users stays the same"
    )


def up(x: float, digits: int = 4) -> str:
    """Return ``x`` as text with ``digits`` digits, rounded up.

    ``x`` is first reduced by a relative amount of 1e-9, so that a rounding error does not change a digit. The
    printed number is therefore at least x (1 - 1e-9).
    """
    if x == 0.0 or not math.isfinite(x):
        return f"{x:g}"
    exact = Decimal(x) * (1 - Decimal(10) ** -9)
    last_digit = Decimal(1).scaleb(exact.adjusted() + 1 - digits)
    return f"{float(exact.quantize(last_digit, ROUND_CEILING)):.{digits}g}"


# ------------------------------------------------------------------------------ composition, line by line


def composition(claim: Guarantee) -> tuple[str, ...]:
    """Return one line of text per mechanism (or per kind of batches), and a last line with the total."""
    if claim.epsilon is None:
        return ()
    stated = f"epsilon {up(claim.epsilon, 6)} at delta {claim.delta:g}"
    if claim.kinds:
        return (
            *(
                f"{words}: {'; '.join(composition(one)[:-1])}; at delta {one.delta:g} "
                f"epsilon = {one.epsilon!r}"
                for words, one in claim.kinds
            ),
            f"{len(claim.kinds)} kinds of batches, each user in one: {stated}, that of the worst",
        )
    number = len(claim.records)
    if any(record.numerical for record in claim.records):
        sums = f"{stated} by {getattr(claim.records[0], 'by', 'its privacy-loss distribution')}"
    elif claim.rho is None:
        sums = f"epsilon adds to {up(claim.epsilon, 6)}, delta 0"
    elif claim.mu is None:
        sums = f"rho adds to {up(claim.rho, 6)}; {stated} by the best Renyi order"
    else:
        sums = f"mu^2 adds to {up(claim.mu, 6)}^2; {stated} by the exact Gaussian curve"
    return (
        *(record.line(claim.delta) for record in claim.records),
        f"{number} mechanism{'s' if number > 1 else ''} on the same users: {sums}",
    )


def noise_line(record: MechanismRecord) -> str:
    """Return a line of text about a mechanism and its privacy loss, in the norm that its noise requires."""
    letter = "b" if record.norm == "l1" else "sigma"
    shown = ", ".join(
        f"{name} {letter} = {scale:.6g} ({record.norm} sensitivity {record.sensitivities[name]:.6g})"
        for name, scale in record.scales.items()
    )
    times = f"{record.levels}" if record.norm == "l1" else f"sqrt({record.levels})"
    symbol = {"laplace": "epsilon", "gaussian": "mu"}[record.noise.removeprefix("discrete_")]
    if record.noise == "discrete_gaussian":
        symbol = "sqrt(2 rho)"
    return (
        f"{record.mechanism}: {NOISE_WORDS[record.noise]} noise, {shown}; joint {record.norm} in units of "
        f"the noise {record.joint:.6g}, a user in at most {record.levels} noisy "
        f"sum{'s' if record.levels > 1 else ''}: {symbol} = {times} x {record.joint:.6g} = "
        f"{record.loss:.6g}"
    )


# ------------------------------------------------------------------------------ whole statement


def statement(claim: Guarantee, version: int = VERSION) -> str:
    """Return the guarantee as text.

    ``version`` selects the templates of :mod:`discreet.accounting.text.sentence_templates`.
    """
    if claim.epsilon is None:
        return f"No privacy guarantee: {claim.reason}."
    said = promises.words(version)
    return " ".join(
        [
            *(
                f"This epsilon rests on a declaration that this library has not derived: {text}."
                for text in claim.rests_on
            ),
            f"{_promise(claim, claim.epsilon, said)} ({_numbers(claim, claim.epsilon)}).",
            *_nominal(claim.epsilon_nominal, claim.epsilon, said),
            *_means(claim),
            *_closing(claim, said),
        ]
    )


def _factor(epsilon: float) -> str:
    return f"e^{up(epsilon)} = {up(math.exp(epsilon), 3)}" if epsilon < 16 else f"e^{up(epsilon)}"


def _numbers(claim: Guarantee, epsilon: float) -> str:
    words = f"ε = {up(epsilon)}, δ = {up(claim.delta, 3)}"
    if claim.mu is not None and claim.rho is not None:
        words += f"; μ = {up(claim.mu)} in Gaussian DP, ρ = {up(claim.rho)} in zCDP"
    elif claim.rho is not None:
        words += f"; ρ = {up(claim.rho)} in zCDP"
    return words


def _promise(claim: Guarantee, epsilon: float, said: Mapping[str, str]) -> str:
    """Return the sentence that states (epsilon, delta), the protected unit and the attacker."""
    m = claim.episodes
    return said[claim.trust].format(
        whole="whole trajectory for another" if m == 1 else f"episodes (up to {m}) for any others",
        factor=_factor(epsilon),
        plus=said["plus"].format(delta=up(claim.delta, 3)) if claim.delta else "",
    )


def _nominal(nominal: float | None, epsilon: float, said: Mapping[str, str]) -> list[str]:
    """Return a sentence about the nominal epsilon if it differs from the epsilon that the noise gives."""
    # Noise on a grid meets the budget with a small margin. A margin below a thousandth is not stated.
    spared = nominal is not None and 0.999 * nominal <= epsilon <= nominal
    if nominal is None or spared or math.isclose(nominal, epsilon, rel_tol=1e-6):
        return []
    less = "more" if epsilon > nominal else "less"
    return [said["nominal"].format(nominal=nominal, epsilon=epsilon, rounded_up=up(epsilon, 6), less=less)]


def _means(claim: Guarantee) -> list[str]:
    """Return sentences about the mechanisms that protect the data.

    If there are several kinds of batches, the sentences state which batches have which mechanism.
    """
    if not claim.kinds:
        return _mechanisms(claim)
    said: dict[str, list[str]] = {}
    for words, one in claim.kinds:
        said.setdefault(" ".join(_means(one)), []).append(words)
    return [
        "People come in batches, each person in exactly one, and every batch has a mechanism of its own with "
        "randomness of its own: what is said here of all of them is true of the worst.",
        *(f"In {' and in '.join(words)}: {means}" for means, words in said.items()),
    ]


def of_noise(record: MechanismRecord) -> str:
    """Return text about the noise that protects the data, and about the number of sums with data of a
    user.
    """
    times = f", each user in at most {record.levels} noisy sums" if record.levels > 1 else ""
    return record.mechanism + times


def _mechanisms(claim: Guarantee) -> list[str]:
    sentences = []
    noisy = [record for record in claim.records if isinstance(record, MechanismRecord)]
    if noisy:
        noise = " and ".join(dict.fromkeys(NOISE_WORDS[record.noise] for record in noisy))
        sentences.append(
            f"Noise: {noise} in every cell ({'; '.join(record.sentence(claim.trust) for record in noisy)})."
        )
    others = (record for record in claim.records if not isinstance(record, MechanismRecord))
    return [*sentences, *(record.sentence(claim.trust) for record in others)]


def _closing(claim: Guarantee, said: Mapping[str, str]) -> Sequence[str]:
    """Return sentences about several episodes of one user, public values, and the source of the noise."""
    m = "m" if claim.episodes == 1 else "g"
    if claim.rho is None:
        again = said["again, epsilon"] + (said["again, delta"] if claim.delta else "")
    else:
        again = said["again, mu" if claim.mu is not None else "again, rho"]
    whom = said["one episode" if claim.episodes == 1 else "several episodes"]
    return [
        whom.format(episodes=claim.episodes, again=again.format(m=m)),
        *(["The number of users is public."] if claim.users_public else []),
        _SOURCES[claim.randomness],
    ]
