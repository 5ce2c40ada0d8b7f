"""Close a session into a file, and list the classes that a file may contain.

The session lists its attributes in tables (:class:`~discreet.core.lifecycle.Saveable`). This module reads
these attributes while it holds the session's lock. After a crash or interrupt exactly one of the two exists,
the session or the file: see :mod:`discreet.mechanisms.saved_state.state_file`.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping
from importlib import import_module

from discreet.core.lifecycle import Saveable
from discreet.mechanisms.saved_state import state_file as saved_state

__all__ = ["CLASSES", "taken_out", "write"]

_HOMES = {
    "mechanisms.features": ("Features", "MixtureFeatures"),
    "core.layout": ("Layout",),
    "device.shuffle_payload": ("Family", "Form"),
    "mechanisms.batch_queries": ("BatchMechanism",),
    "accounting.shuffle_amplification_event": ("AmplifiedRecord",),
    "accounting.binomial_noise_event": ("BinomialRecord",),
    "mechanisms.linear.exact_square_root": ("ExactSquareRoot",),
    "core.correlated_noise.matrix_factorization": ("MatrixFactorization",),
    "core.correlated_noise.optimal_tree": ("OptimalTree",),
    "core.correlated_noise.signed_digit_tree": ("SignedDigits",),
    "core.correlated_noise.square_root_toeplitz": ("SquareRoot",),
    "core.correlated_noise.binary_tree": ("Tree",),
    "core.count_query": ("CountQuery",),
    "core.guarantee": ("Guarantee",),
    "accounting.noise_distributions.linear_noise": ("GoeLaw", "VectorLaw"),
    "mechanisms.linear.linear_mechanism": ("LinearMechanism",),
    "mechanisms.linear.linear_queries": ("GramQuery", "MixtureQuery", "Prepared"),
    "device.randomized_response_device": ("Randomizer",),
    "mechanisms.local.randomized_response": ("StepReports",),
    "core.count_mechanism": ("CountMechanism", "Stated"),
    "core.strategies": ("Batches", "Exact", "OnDevice", "Prefixes"),
    "core.noise.noises": ("Gaussian", "Laplace"),
    "core.exchange": ("AllSteps", "EachStep", "FirstVisitRecords", "OneStep"),
    "core.families": ("RecordFamily",),
    "core.query": ("FamilyQuery",),
    "accounting.noise_distributions.binomial": ("BinomialLaw",),
    "accounting.noise_distributions.distributions": (
        "GaussianSumLaw", "LaplaceSumLaw", "NoNoise", "SubGaussianSumLaw", "WeightedLaplaceLaw",
    ),
    "accounting.noise_distributions.randomized_response": ("ReportLaw",),
    "core.releases": ("Estimate", "Measurement", "Plan", "Release", "Schedule"),
    "core.rng": ("Secure", "Seeded"),
    "core.events": ("MechanismRecord",),
    "accounting.randomized_response_event": ("ReportRecord",),
    "mechanisms.local.randomized_response_strategy": ("Reported",),
    "mechanisms.linear.adaptive_queries": ("Question",),
    "accounting.binomial_noise": ("Flips",),
    "mechanisms.shuffle.shuffle_mechanisms": ("AmplifiedMechanism", "FlipMechanism"),
}  # fmt: skip


class _Classes(Mapping[str, type]):
    """Classes that a file can contain, by name.

    They are imported on first use, and a file cannot add classes.
    """

    def __init__(self) -> None:
        self._homes = {name: home for home, names in _HOMES.items() for name in names}
        self._renamed = {written: name for name, written in saved_state.WRITTEN_NAMES.items()}

    def __getitem__(self, name: str) -> type:
        home = import_module(f"discreet.{self._homes[name]}")
        found: type = getattr(home, self._renamed.get(name, name))
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)


CLASSES: saved_state.Classes = _Classes()


def write(session: Saveable, path: str | os.PathLike[str]) -> None:
    """Close a session and write its whole state to a new file, with the lock held (:meth:`Saveable.save`).

    If an error or interrupt occurs before the file is visible, the file is removed and the session remains
    open.
    """
    draft = saved_state.Draft(path)
    values = {**saved_state.whole_of(session), "session": session._kind}
    try:
        session._saving = True  # until the file is written or removed, only this call and close are accepted
        draft.write(session._identity, values, CLASSES)
        draft.publish()
    except BaseException:
        if draft.published:
            session._drop()
        else:
            draft.withdraw()
            session._saving = False
        raise
    session._drop()


def taken_out(session: Saveable) -> bytes:
    """Close a session and return its state as bytes, in the format of :meth:`Saveable.save`.

    For operators who store sessions in their own database. That database must ensure that each state is
    continued once, in the transaction that replaces the state by the next state. The table of restored states
    does not contain such states (:func:`discreet.mechanisms.restore_session.brought_back`). The bytes are as
    private as the file.
    """
    with session._call():
        session._check_open()
        values = {**saved_state.whole_of(session), "session": session._kind}
        content = io.BytesIO()
        saved_state.write_content(content, session._identity, values, CLASSES)
        session._drop()
        return content.getvalue()
