"""A session ends and goes into a file; and the classes that may stand in one.

The session says what it is made of, in tables (:class:`~discreet.privacy.stream_session.StreamSession`); it
is read here, under its lock. Crash and interrupt leave the session or the file, never both and never neither:
:mod:`discreet.privacy.saved_state`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from discreet.privacy import saved_state
from discreet.privacy.stream_session import StreamSession

__all__ = ["CLASSES", "write"]

_HOMES = {
    "mdp.features": ("Features", "MixtureFeatures"),
    "mdp.layout": ("Layout",),
    "device.messages": ("Family", "Form"),
    "privacy.amplified_record": ("AmplifiedRecord",),
    "privacy.binomial_record": ("BinomialRecord",),
    "privacy.continual.clocks": ("Clocks",),
    "privacy.continual.exact_square_root": ("ExactSquareRoot",),
    "privacy.continual.optimal_tree": ("OptimalTree",),
    "privacy.continual.signed_digits": ("SignedDigits",),
    "privacy.continual.square_root": ("SquareRoot",),
    "privacy.continual.tree": ("Tree",),
    "privacy.counts": ("CountQuery",),
    "privacy.guarantee": ("Guarantee",),
    "privacy.linear_laws": ("GoeLaw", "VectorLaw"),
    "privacy.linear_mechanism": ("LinearMechanism",),
    "privacy.linear_sums": ("GramQuery", "MixtureQuery", "Prepared"),
    "device.reports": ("Randomizer",),
    "privacy.local_reports": ("StepReports",),
    "privacy.mechanism": (
        "Batches", "CountMechanism", "Exact", "OnDevice", "Prefixes", "Stated",
    ),
    "privacy.noise.binomial_law": ("BinomialLaw",),
    "privacy.noise.laws": (
        "GaussianSumLaw", "LaplaceSumLaw", "NoNoise", "SubGaussianSumLaw", "WeightedLaplaceLaw",
    ),
    "privacy.noise.report_law": ("ReportLaw",),
    "privacy.releases": ("Estimate", "Measurement", "Plan", "Release", "Schedule"),
    "privacy.randomness": ("Secure", "Seeded"),
    "privacy.records": ("MechanismRecord",),
    "privacy.report_record": ("ReportRecord",),
    "privacy.reported": ("Reported",),
    "privacy.responses": ("Question",),
    "privacy.shuffle_calibration": ("Flips",),
    "privacy.shuffle_mechanism": ("AmplifiedMechanism", "FlipMechanism"),
}  # fmt: skip


class _Classes(Mapping[str, type]):
    """The classes that may stand in a file, by name, imported when they are met; no file adds one."""

    def __init__(self) -> None:
        self._homes = {name: home for home, names in _HOMES.items() for name in names}

    def __getitem__(self, name: str) -> type:
        found: type = getattr(import_module(f"discreet.{self._homes[name]}"), name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)


CLASSES: saved_state.Classes = _Classes()


def write(session: StreamSession, path: str | os.PathLike[str]) -> None:
    """End a session and write all it knows to a new file: for :meth:`StreamSession.save`, under its lock.

    If an error or interrupt comes before the file is visible, nothing is left of it and the session goes on.
    """
    draft = saved_state.Draft(path)
    values: dict[str, Any] = {name: getattr(session, name) for name in (*session._BOUND, *session._STATE)}
    values["session"] = session._kind
    try:
        session._saving = True  # no call but this one and close until the file's fate is known
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
