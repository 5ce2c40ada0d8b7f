"""Parts that only some mechanisms rest on: known here by name, and loaded when one of them asks.

What a plain release of counts rests on must be small enough to be read, so it does not import what it does
not use: numerical privacy losses, records of the shuffle model, randomized reports, saved state. Where a
mechanism, a file or a call is of such a kind, its code is looked up here. The tables are closed: names that
are not in them are refused, nothing can be added from outside, and they name modules of this library only.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from typing import Any, Literal

from discreet.core import checks

__all__ = ["RECORDS", "is_record", "is_reported", "module", "record_class"]

Part = Literal[
    "accounting", "calibration", "contributions", "exceeding", "laws", "mechanism words", "plain",
    "questions", "saving", "seeded noise", "seeds", "sentences", "shown", "steered",
]  # fmt: skip

_MODULES: dict[Part, str] = {
    "accounting": "discreet.accounting.pld",  # numerical privacy losses
    "calibration": "discreet.accounting.pld_calibration",  # what one exchanged user moves, cell by cell
    "contributions": "discreet.audits.contributions",  # a user's summand once more, for audits
    "exceeding": "discreet.accounting.exceedance",  # how often a loss is above epsilon
    "laws": "discreet.accounting.noise_distributions.count_noise",  # public, no cell of a sum
    "questions": "discreet.mechanisms.query_checks",  # batches with queries of their own
    "saving": "discreet.mechanisms.saved_state.save",  # from a session to a file
    "seeded noise": "discreet.core.noise.seeded_noise_kernels",  # for simulation
    "seeds": "discreet.core.noise.seeded_rng",  # keys of a run, for simulation
    "mechanism words": "discreet.accounting.text.mechanism_names",  # what a mechanism is called
    "plain": "discreet.accounting.serialization",  # guarantees and records as plain values, and back
    "sentences": "discreet.accounting.text.guarantee_sentences",  # a guarantee in words
    "shown": "discreet.utils.short_repr",  # values at a prompt
    "steered": "discreet.core.clipped_returns",  # group returns and cut rewards
}

RECORDS = {
    "noise": ("discreet.core.events", "MechanismRecord"),
    "reports": ("discreet.accounting.randomized_response_event", "ReportRecord"),
    "flips": ("discreet.accounting.binomial_noise_event", "BinomialRecord"),
    "amplified": ("discreet.accounting.shuffle_amplification_event", "AmplifiedRecord"),
}
"""Every kind of record, as files name it: where its class stands."""


_REPORTED = (
    "discreet.mechanisms.local.randomized_response_strategy",
    "Reported",
)  # the strategy of a mechanism of counts


def module(name: Part) -> Any:
    """A part, loaded."""
    return import_module(_MODULES[name])


def record_class(kind: Any) -> Any:
    """The class of a kind of record. Raises ``ValueError`` on a kind that there is not."""
    home, name = RECORDS[checks.choice("record: kind", kind, RECORDS)]
    return getattr(import_module(home), name)


def _is(value: Any, homes: Collection[tuple[str, str]]) -> bool:
    """Is it of one of these classes? By its name first, so that none is loaded in vain; then by identity."""
    home = type(value).__module__, type(value).__qualname__
    return home in homes and type(value) is getattr(import_module(home[0]), home[1])


def is_reported(value: Any) -> bool:
    """Is it the strategy of randomized reports, and of no subclass, whatever it calls itself?"""
    return _is(value, (_REPORTED,))


def is_record(value: Any) -> bool:
    """Is it of one of the classes in the table, and of no subclass, which could state any loss?"""
    return _is(value, RECORDS.values())
