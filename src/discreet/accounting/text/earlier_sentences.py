"""Exact sentences of earlier versions of the statement, so that old files can be verified.

New statements do not use these sentences. Several of them claim more than the numbers support. A comment
above each such sentence states its error. The file
``tests/accounting/text/sentence_templates/test_meanings.py`` contains a counterexample to each of them.
"""

from __future__ import annotations

from collections.abc import Mapping

SENTENCES: Mapping[int, Mapping[str, str]] = {
    4: {
        "joint": "Joint differential privacy: exchanging any one user's {whole} changes the probability of "
        "anything that all other users see (every release, policy and action) by a factor of at most "
        "{factor}{plus}",
        "central": "Differential privacy with a trusted keeper of the data: exchanging any one user's "
        "{whole} changes the probability of anything that is released, or computed from it, by a factor of "
        "at most {factor}{plus}",
        "local": "Local differential privacy: exchanging a user's whole trajectory for any other changes the "
        "probability of anything that leaves the user's device by a factor of at most {factor}{plus}",
        "shuffle": "Shuffle differential privacy: exchanging any one user's whole trajectory for another "
        "changes the probability of any set of messages that leaves the shuffler by a factor of at most "
        "{factor}{plus}",
        "plus": ", plus at most δ = {delta}",
        # epsilon was rounded to the nearest number, so the stated value could be below the true value
        "nominal": "Nominal ε = {nominal:.6g}, but the noise of this calibration really gives ε = "
        "{epsilon:.6g}: {less} privacy loss than the name says.",
        "one episode": "A user is one episode; who takes part m times has {again}.",
        "several episodes": "A user is up to {episodes} episodes; g users together have {again}.",
        # false for unlimited computing power, because secure noise depends on a cryptographic generator
        "attackers": "with any computing power and any other knowledge, even of everybody else's data",
        "certain": "No outcome tells for certain, but with a chance of at most δ = {delta}.",
        "certain, pure": "No outcome tells for certain, but with a chance of at most δ = {delta}.",
        "times": "more than a million",  # for a large epsilon this is not an upper bound
        "row": "anything is at most ... times as likely",  # the δ is missing
        # false: the odds of an event can change by a factor of e^{2ε}
        "epsilon": "how far one {unit} can move the odds of anything: by a factor of at most e to the power "
        "ε. Here ε = {epsilon}: {factor} times. 0 would tell nothing; every release adds to it.",
        # false: with Gaussian noise, the factor is exceeded with many times this probability
        "delta": "the chance that the bound by ε fails; it must be far below 1 in the number of people.",
        "delta, pure": "the chance that the bound by ε fails: 0 here.",
        "rho": "another measure of the same loss, which adds up more sharply over several releases; ε at a δ "
        "follows from it.",
        "mu": "another measure: to find out whether a record was exchanged is as hard as to tell one draw of "
        "a normal distribution from one that is shifted by μ standard deviations.",
        "no bound": "with a chance of at most δ an outcome may tell everything, so that no limit can be "
        "given for the worst one.",
        "threat": "with any knowledge and any computer",
        "threat, seeded": "with any knowledge BUT THE SEED and any computer",
    },
}  # fmt: skip
"""For each version: templates that differ from :data:`discreet.accounting.text.sentence_templates.NOW`."""

REWORDED: Mapping[int, Mapping[str, str]] = {
    4: {
        "patient": "whatever anyone could learn about you, or do to you, because of {what}, is at most "
        "{factor} times as likely with {yours} in the data as with somebody else's instead{plus}; and who "
        "has to guess which of the two it was is right at most {right} times in 100, where tossing a coin is "
        "right 50 times.",
        "patient, plus": ", plus a chance of at most {chance}",
    },
}  # fmt: skip
"""For each version: templates with the same claim as now but different words."""

MODULES: Mapping[int, Mapping[str, str]] = {
    4: {
        "discreet.accounting.pld_calibration": "discreet.accounting.calibration",
        "discreet.accounting.pld": "discreet.accounting.numerical",
        "discreet.core.count_query": "discreet.core.counts",
        "discreet.core.noise.discrete_samplers": "discreet.core.noise.exact",
        "discreet.mechanisms.linear.sensitivities": "discreet.linear.gram",
        "discreet.mechanisms.local.randomized_response": "discreet.local.reports",
        "discreet.pipeline.distributed_noise": "discreet.stored.split_noise",
        "discreet.reports.trade_off_function": "discreet.stored.tradeoff",
    },
}
"""For each version: the current name of every module that statements cite, and its name in that version.

Longer names come first.
"""
