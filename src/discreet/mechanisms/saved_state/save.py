"""Function that saves a session to a file and closes it, and the list of classes in such a file.

The session lists its attributes in tables (:class:`~discreet.core.lifecycle.Saveable`). This module reads
these attributes while it holds the session's lock. After a crash or interrupt, either the session or the file
exists, but not both (:mod:`discreet.mechanisms.saved_state.state_file`).
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping
from functools import cache

from discreet.core.lifecycle import Saveable
from discreet.mechanisms.saved_state import state_file as saved_state


def _counts() -> tuple[type, ...]:
    from discreet.accounting.noise_distributions.distributions import (
        GaussianSumLaw,
        LaplaceSumLaw,
        NoNoise,
        SubGaussianSumLaw,
        WeightedLaplaceLaw,
    )
    from discreet.accounting.noise_distributions.randomized_response import ReportLaw
    from discreet.accounting.randomized_response_event import ReportRecord
    from discreet.core.correlated_noise.binary_tree import Tree
    from discreet.core.correlated_noise.matrix_factorization import MatrixFactorization
    from discreet.core.correlated_noise.optimal_tree import OptimalTree
    from discreet.core.correlated_noise.signed_digit_tree import SignedDigits
    from discreet.core.correlated_noise.square_root_toeplitz import SquareRoot
    from discreet.core.count_mechanism import CountMechanism, Stated
    from discreet.core.count_query import CountQuery
    from discreet.core.events import MechanismRecord
    from discreet.core.exchange import AllSteps, EachStep, FirstVisitRecords, OneStep
    from discreet.core.families import RecordFamily
    from discreet.core.guarantee import Guarantee
    from discreet.core.layout import Layout
    from discreet.core.noise.noises import Gaussian, Laplace
    from discreet.core.query import FamilyQuery
    from discreet.core.releases import Estimate, Measurement, Plan, Release, Schedule
    from discreet.core.rng import Secure, Seeded
    from discreet.core.strategies import Batches, Exact, OnDevice, Prefixes
    from discreet.device.randomized_response_device import Randomizer
    from discreet.mechanisms.features import Features, MixtureFeatures
    from discreet.mechanisms.local.randomized_response import StepReports
    from discreet.mechanisms.local.randomized_response_strategy import Reported

    return (
        AllSteps, Batches, CountMechanism, CountQuery, EachStep, Estimate, Exact, FamilyQuery, Features,
        FirstVisitRecords, Gaussian, GaussianSumLaw, Guarantee, Laplace, LaplaceSumLaw, Layout,
        MatrixFactorization, Measurement, MechanismRecord, MixtureFeatures, NoNoise, OnDevice, OneStep,
        OptimalTree, Plan, Prefixes, Randomizer, RecordFamily, Release, ReportLaw, ReportRecord, Reported,
        Schedule, Secure, Seeded, SignedDigits, SquareRoot, Stated, StepReports, SubGaussianSumLaw, Tree,
        WeightedLaplaceLaw,
    )  # fmt: skip


def _linear() -> tuple[type, ...]:
    from discreet.accounting.noise_distributions.linear_noise import GoeLaw, VectorLaw
    from discreet.device.feature_map import FeatureMap
    from discreet.mechanisms.batch_queries import BatchMechanism
    from discreet.mechanisms.linear.adaptive_queries import Question
    from discreet.mechanisms.linear.context_query import ContextQuery
    from discreet.mechanisms.linear.exact_square_root import ExactSquareRoot
    from discreet.mechanisms.linear.linear_mechanism import LinearMechanism
    from discreet.mechanisms.linear.linear_queries import GramQuery, MixtureQuery, Prepared

    return (
        BatchMechanism, ContextQuery, ExactSquareRoot, FeatureMap, GoeLaw, GramQuery, LinearMechanism,
        MixtureQuery, Prepared, Question, VectorLaw,
    )  # fmt: skip


def _shuffle() -> tuple[type, ...]:
    from discreet.accounting.binomial_noise import Flips
    from discreet.accounting.binomial_noise_event import BinomialRecord
    from discreet.accounting.noise_distributions.binomial import BinomialLaw
    from discreet.accounting.shuffle_amplification_event import AmplifiedRecord
    from discreet.accounting.skellam_event import SkellamRecord
    from discreet.device.shuffle_payload import Family, SessionConfig
    from discreet.mechanisms.shuffle.shuffle_mechanisms import AmplifiedMechanism, FlipMechanism
    from discreet.mechanisms.shuffle.skellam_session import SkellamMechanism

    return (
        AmplifiedMechanism, AmplifiedRecord, BinomialLaw, BinomialRecord, Family, FlipMechanism, Flips,
        SessionConfig, SkellamMechanism, SkellamRecord,
    )  # fmt: skip


_GROUPS: dict[Callable[[], tuple[type, ...]], tuple[str, ...]] = {
    _counts: (
        "AllSteps", "Batches", "CountMechanism", "CountQuery", "EachStep", "Estimate", "Exact",
        "FamilyQuery", "Features", "FirstVisitRecords", "Gaussian", "GaussianSumLaw", "Guarantee",
        "Laplace", "LaplaceSumLaw", "Layout", "MatrixFactorization", "Measurement", "MechanismRecord",
        "MixtureFeatures", "NoNoise", "OnDevice", "OneStep", "OptimalTree", "Plan", "Prefixes",
        "Randomizer", "RecordFamily",
        "Release", "ReportLaw", "ReportRecord", "Reported", "Schedule", "Secure", "Seeded", "SignedDigits",
        "SquareRoot", "Stated", "StepReports", "SubGaussianSumLaw", "Tree", "WeightedLaplaceLaw",
    ),
    _linear: (
        "BatchMechanism", "ContextQuery", "ExactSquareRoot", "FeatureMap", "GoeLaw", "GramQuery",
        "LinearMechanism", "MixtureQuery", "Prepared", "Question", "VectorLaw",
    ),
    _shuffle: (
        "AmplifiedMechanism", "AmplifiedRecord", "BinomialLaw", "BinomialRecord", "Family", "FlipMechanism",
        "Flips", "Form", "SkellamMechanism", "SkellamRecord",
    ),
}  # fmt: skip
"""Functions that import classes, and the names of these classes in files."""
_GROUP_OF = tuple((name, group) for group, names in _GROUPS.items() for name in names)


@cache
def _imported(group: Callable[[], tuple[type, ...]]) -> tuple[tuple[str, type], ...]:
    return tuple((saved_state.WRITTEN_NAMES.get(one.__name__, one.__name__), one) for one in group())


class _Classes(Mapping[str, type]):
    """Classes that a file can contain, by name.

    The classes are imported on first use, and a file cannot add classes.
    """

    __slots__ = ()

    def __getitem__(self, name: str) -> type:
        return dict(_imported(dict(_GROUP_OF)[name]))[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in _GROUP_OF)

    def __len__(self) -> int:
        return len(_GROUP_OF)


CLASSES: saved_state.Classes = _Classes()


def write(session: Saveable, path: str | os.PathLike[str]) -> None:
    """Close a session and write its whole state to a new file. Holds the lock (:meth:`Saveable.save`).

    If an error or interrupt occurs before the file is visible, the file is removed and the session remains
    open.
    """
    draft = saved_state.Draft(path)
    values = {**saved_state.whole_of(session), "session": session._kind}
    try:
        # until the file is written or removed, only this call and ``close`` are accepted
        session._saving = True
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

    This function is for operators who store sessions in their own database. Each state must be continued only
    once. The database must ensure this in the transaction that replaces the state by the next state. The
    table of restored states does not contain such states
    (:func:`discreet.mechanisms.restore_session.brought_back`). The bytes are as private as the file.
    """
    with session._call():
        session._check_open()
        values = {**saved_state.whole_of(session), "session": session._kind}
        content = io.BytesIO()
        saved_state.write_content(content, session._identity, values, CLASSES)
        session._drop()
        return content.getvalue()
