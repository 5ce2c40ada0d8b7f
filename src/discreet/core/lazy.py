"""Optional modules of the kernel, listed by name and imported on first use.

The code for a simple release of counts must be small enough to read. It therefore does not import modules
that it does not use: numerical privacy losses, records of the shuffle model, randomized response, saved
state. A mechanism, file or call that needs such a module looks it up here. The tables are fixed: other names
are rejected, other code cannot add entries, and all entries are modules of this library.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from typing import Any, Literal

from discreet.core import checks

__all__ = ["RECORDS", "is_record", "module", "record_class"]

Part = Literal[
    "accounting", "calibration", "contributions", "declared", "exceeding", "laws", "mechanism words", "plain",
    "questions", "saving", "seeded noise", "seeds", "sentences", "shown", "steered",
]  # fmt: skip

_MODULES: dict[Part, str] = {
    "accounting": "discreet.accounting.pld",  # numerical privacy losses
    "calibration": "discreet.accounting.pld_calibration",  # Changes of each cell if one user is replaced.
    "contributions": "discreet.audit.one_user_sums",  # Summand of one user, recomputed for audits.
    "declared": "discreet.accounting.declared_event",  # Losses that depend on declarations in plug-ins.
    "exceeding": "discreet.accounting.exceedance",  # Probability that a loss exceeds epsilon.
    "laws": "discreet.accounting.noise_distributions.count_noise",  # Noise distributions; they read no sum.
    "questions": "discreet.mechanisms.query_checks",  # Batches that answer separate queries.
    "saving": "discreet.mechanisms.saved_state.save",  # Writes a session to a file.
    "seeded noise": "discreet.core.noise.seeded_noise_kernels",  # Seeded noise, for simulation.
    "seeds": "discreet.core.noise.seeded_rng",  # Random keys of a run, for simulation.
    "mechanism words": "discreet.accounting.text.mechanism_names",  # Names of mechanisms.
    "plain": "discreet.accounting.serialization",  # Guarantees and records as plain values, and back.
    "sentences": "discreet.accounting.text.guarantee_sentences",  # Sentences of a guarantee.
    "shown": "discreet.utils.short_repr",  # Short repr of values.
    "steered": "discreet.core.clipped_returns",  # Group returns and clipped rewards.
}

RECORDS = {
    "noise": ("discreet.core.events", "MechanismRecord"),
    "reports": ("discreet.accounting.randomized_response_event", "ReportRecord"),
    "flips": ("discreet.accounting.binomial_noise_event", "BinomialRecord"),
    "declared": ("discreet.accounting.declared_event", "DeclaredRecord"),
    "amplified": ("discreet.accounting.shuffle_amplification_event", "AmplifiedRecord"),
}
"""For every kind of record, by its name in files: the module and the name of its class."""


def module(name: Part) -> Any:
    """Import an optional module and return it."""
    return import_module(_MODULES[name])


def record_class(kind: Any) -> Any:
    """Return the class of a kind of record. Raises ``ValueError`` if the kind is unknown."""
    home, name = RECORDS[checks.choice("record: kind", kind, RECORDS)]
    return getattr(import_module(home), name)


def _is(value: Any, homes: Collection[tuple[str, str]]) -> bool:
    """Return True if the class of ``value`` is one of ``homes``, given as (module, class name).

    Class names are compared first, so that a module is imported only if the name matches.
    """
    home = type(value).__module__, type(value).__qualname__
    return home in homes and type(value) is getattr(import_module(home[0]), home[1])


def is_record(value: Any) -> bool:
    """Return True if ``value`` is a privacy record of this library.

    The result is False for subclasses, because they could state another loss.
    """
    return _is(value, RECORDS.values())
