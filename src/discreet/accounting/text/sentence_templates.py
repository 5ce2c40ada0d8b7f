"""Templates of the sentences about epsilon, delta, rho and mu, without the numbers.

Meaning of the symbols. Two data sets are neighbours if one user's whole record is replaced by any other
record. P and P' are the distributions of the release from the two data sets. (epsilon, delta) means only that
P(E) <= e^epsilon P'(E) + delta **for every event E**. In particular:

- delta is an additive term. Delta is not the probability that the factor e^epsilon is exceeded. Let
  L = ln(P/P') be the privacy loss of the outcome. For Gaussian noise at (1, 1e-6), P(L > epsilon) is 20
  delta. ``Guarantee.exceeds`` is a bound on this probability (:mod:`discreet.accounting.exceedance`);
- the event E = {P' = 0} has P(E) <= delta. So all outcomes that are impossible with the other record have a
  total probability of at most delta. This probability is 0 for noise with the same support for both records;
- the odds P(E) / (1 - P(E)) of one event can change by e^{2 epsilon}, even at delta = 0 (randomized
  response). The odds between two *records*, before and after an outcome, change by at most e^epsilon, but
  only at delta = 0;
- rho and mu are separate measures. Each of them implies an epsilon at every delta. An epsilon that is
  computed from the noise itself may be smaller.

``tests/accounting/text/sentence_templates/test_meanings.py`` evaluates each of these statements on mechanisms
with exactly known distributions.

Versions. The version of a statement determines its sentences. :func:`words` returns the sentences of a
version, and a folder is verified with the sentences of its version. :data:`NOW` contains the newest
sentences. :mod:`discreet.accounting.text.earlier_sentences` contains only the sentences that were different
in earlier versions. Not every template uses every number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

VERSION, OLDEST = 6, 4
_REWORDED = 5  # first version with the present sentences
"""Versions of statements: the version that is written, and the oldest version that can be read."""

NOW: Mapping[str, str] = {
    # ---------------------------------------------------------- the guarantee in words (guarantee_sentences)
    "joint": "Joint differential privacy: after exchanging any one user's {whole}, the probability of "
    "anything that all other users see (every release, policy and action) is at most {factor} times what it "
    "was before{plus}",
    "central": "Differential privacy with a trusted keeper of the data: after exchanging any one user's "
    "{whole}, the probability of anything that is released, or computed from it, is at most {factor} times "
    "what it was before{plus}",
    "local": "Local differential privacy: after exchanging a user's whole trajectory for any other, the "
    "probability of anything that leaves the user's device is at most {factor} times what it was "
    "before{plus}",
    "shuffle": "Shuffle differential privacy: after exchanging any one user's whole trajectory for another, "
    "the probability of any set of messages that leaves the shuffler is at most {factor} times what it was "
    "before{plus}",
    "plus": ", plus δ = {delta}",
    "nominal": "Nominal ε = {nominal:.6g}, but the noise of this calibration gives ε = {rounded_up}: {less} "
    "privacy loss than the name says.",
    "one episode": "A user is one episode; a person with m episodes is protected at {again}.",
    "several episodes": "A user is up to {episodes} episodes; g users together are protected at {again}.",
    "again, epsilon": "{m} times this ε",
    "again, delta": " and (e^{{{m}ε}} − 1) / (e^ε − 1) times this δ",
    "again, mu": "{m} times this μ",
    "again, rho": "{m}² times this ρ",
    # ---------------------------------------------------------- the statement of a release (stored)
    "patient": "The probability of anything that someone could learn about you, or do to you, because of "
    "{what} is at most {factor} times what it would be with another person's data in place of {yours}{plus}. "
    "If a coin toss decides which of the two records is used, an attacker's guess is right at most {right} "
    "times in 100 (without the release: 50).",
    "patient, plus": ", plus {chance}",
    "attackers": "with any knowledge, even of all other people's data, and any computing power, provided "
    "that the operating system's random numbers cannot be distinguished from perfect ones",
    "certain": "The outcomes that exclude one of the two records have together a probability of at most δ = "
    "{delta}{none}.",
    "certain, pure": "No outcome excludes one of the two records.",
    "certain, none": " (with this noise: 0)",
    "times": "e^{epsilon}",
    # ---------------------------------------------------------- the officer's page (reports.dpo_report)
    "row": "factor e^ε that bounds the probability of any event{plus}",
    "epsilon": "The probability of any event is at most e to the power ε times its probability with another "
    "record in place of one {unit}'s record{plus}. Here ε = {epsilon}, and the factor is {factor}. At ε = "
    "0{zero} a release reveals nothing about one {unit}. Each further release about the same people adds to "
    "the total ε.",
    "epsilon, plus": ", plus δ",
    "epsilon, zero": " and δ = 0",
    "delta": "The number that is added to this bound. It is not the probability that an outcome is more than "
    "{factor} times as likely with this record as with another. With this noise, that probability is at most "
    "{exceeds}. The outcomes that are impossible with another record have together a probability of at most "
    "δ{none}. δ must be far below 1 / people.",
    "delta, none": "; with this noise there are no such outcomes",
    "delta, pure": "0 here. The factor holds for every event, without exception.",
    "rho": "Another measure of the same loss. It bounds the total over several releases more tightly. It "
    "implies an ε at every δ; the printed ε may be smaller, because it is computed from the noise itself.",
    "mu": "Another measure. To detect that a record was replaced is at least as hard as to distinguish one "
    "draw of a normal distribution from one that is shifted by μ standard deviations.",
    "no bound": "With δ > 0 the guarantee limits the probabilities of events, not single outcomes{none}.",
    "no bound, none": ". With this release's noise, no outcome is certain proof; the more an outcome "
    "reveals, the less likely it is",
    "threat": "with any knowledge and any computer, provided that the operating system's random numbers "
    "cannot be distinguished from perfect ones",
    "threat, seeded": "with any knowledge EXCEPT THE SEED, as long as no computer finds the seed",
}  # fmt: skip


def words(version: int = VERSION) -> Mapping[str, str]:
    """Return the templates of a version. Raises ``ValueError`` for a version that cannot be read."""
    if _REWORDED <= version <= VERSION:
        return NOW
    from discreet.accounting.text.earlier_sentences import REWORDED, SENTENCES  # imported only for old files

    if version not in SENTENCES:
        raise ValueError(f"version = {version!r}: must be from {OLDEST} to {VERSION}")
    return {**NOW, **REWORDED[version], **SENTENCES[version]}


def with_modules_of(version: int, text: str) -> str:
    """Return the text with each module name replaced by its name in this version."""
    if version < _REWORDED:
        from discreet.accounting.text.earlier_sentences import MODULES

        for now, then in MODULES[version].items():
            text = text.replace(now, then)
    return text


def version_of(guarantee: Mapping[str, Any]) -> int:
    """Return the version of the sentences in the table of a guarantee.

    The version is the newest version if the table has the key ``exceeds``, and otherwise 4.
    """
    return VERSION if "exceeds" in guarantee else 4
