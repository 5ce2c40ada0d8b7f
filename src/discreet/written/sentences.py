"""Sentences of guarantees: made here, from numbers, and never read back.

Everything is a function of a :class:`discreet.core.guarantee.Guarantee` or of a record. No printed
promise is below the truth: numbers of promises are rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, Decimal

from discreet.core.guarantee import Guarantee
from discreet.core.records import MechanismRecord

__all__ = ["composition", "neighbours", "statement", "unit", "up"]

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
    """Who is protected, if a user has at most so many episodes."""
    if episodes == 1:
        return "one user: one episode, the whole trajectory of states, actions and rewards"
    return f"one user: up to {episodes} episodes, the whole trajectories of states, actions and rewards"


def neighbours(episodes: int) -> str:
    """Against which exchange."""
    if episodes == 1:
        return "one user's whole trajectory is replaced by any other one; the number of users stays the same"
    return (
        f"all of one user's episodes, up to {episodes}, are replaced by any others, more or fewer; the "
        "number of users stays the same"
    )


def up(x: float, digits: int = 4) -> str:
    """``x`` with this many digits, rounded up (but for 1e-9 of it): no promise is below the truth."""
    if x == 0.0:
        return "0"
    exact = Decimal(x) * (1 - Decimal(10) ** -9)
    last_digit = Decimal(1).scaleb(exact.adjusted() + 1 - digits)
    return f"{float(exact.quantize(last_digit, ROUND_CEILING)):.{digits}g}"


# ------------------------------------------------------------------------------ the composition, line by line


def composition(claim: Guarantee) -> tuple[str, ...]:
    """One line per mechanism, or per kind of batches, with the numbers that led to the last line's."""
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
        sums = f"{stated} by its privacy-loss distribution"
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
    """What was done, with its loss, in the norm of the noise."""
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


# ------------------------------------------------------------------------------ the whole in words


def statement(claim: Guarantee) -> str:
    """The whole in words."""
    if claim.epsilon is None:
        return f"No privacy guarantee: {claim.reason}."
    slack = f", plus at most δ = {up(claim.delta, 3)}" if claim.delta else ""
    return " ".join(
        [
            f"{_subject(claim)} by a factor of at most {_factor(claim.epsilon)}{slack} "
            f"({_numbers(claim, claim.epsilon)}).",
            *_nominal(claim.epsilon_nominal, claim.epsilon),
            *_means(claim),
            *_closing(claim),
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


def _subject(claim: Guarantee) -> str:
    m = claim.episodes
    whole = "whole trajectory for another" if m == 1 else f"episodes (up to {m}) for any others"
    return {
        "joint": f"Joint differential privacy: exchanging any one user's {whole} "
        "changes the probability of anything that all other users see (every release, policy and action)",
        "central": "Differential privacy with a trusted keeper of the data: exchanging any one user's "
        f"{whole} changes the probability of anything that is released, or computed from it,",
        "local": "Local differential privacy: exchanging a user's whole trajectory for any other changes the "
        "probability of anything that leaves the user's device",
        "shuffle": "Shuffle differential privacy: exchanging any one user's whole trajectory for another "
        "changes the probability of any set of messages that leaves the shuffler",
    }[claim.trust]


def _nominal(nominal: float | None, epsilon: float) -> list[str]:
    """What the user typed, where the noise gives another epsilon."""
    # noise on a grid meets the budget with a little to spare: below a thousandth nobody needs to hear of it
    spared = nominal is not None and 0.999 * nominal <= epsilon <= nominal
    if nominal is None or spared or math.isclose(nominal, epsilon, rel_tol=1e-6):
        return []
    less = "more" if epsilon > nominal else "less"
    return [
        f"Nominal ε = {nominal:.6g}, but the noise of this calibration really gives ε = {epsilon:.6g}: "
        f"{less} privacy loss than the name says."
    ]


def _means(claim: Guarantee) -> list[str]:
    """What hides the data: the mechanisms in words, or which batches have which."""
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
    """What hides the data, and in how many sums."""
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


def _closing(claim: Guarantee) -> Sequence[str]:
    """What who takes part again loses, what is public, where the noise comes from."""
    m = "m" if claim.episodes == 1 else "g"
    if claim.rho is None:
        again = f"{m} times this ε"
        if claim.delta:
            again += f" and (e^{{{m}ε}} − 1) / (e^ε − 1) times this δ"
    else:
        again = f"{m} times this μ" if claim.mu is not None else f"{m}² times this ρ"
    return [
        f"A user is one episode; who takes part m times has {again}."
        if claim.episodes == 1
        else f"A user is up to {claim.episodes} episodes; g users together have {again}.",
        *(["The number of users is public."] if claim.users_public else []),
        _SOURCES[claim.randomness],
    ]
