"""Parts of the library that :mod:`discreet.core.registry` uses but does not import.

The package imports this module first. Each function imports the module of its part when the part is first
used. The import statements are inside functions, so that the package loads quickly. Type checkers and checks
of imports read these statements.
"""

from __future__ import annotations

from collections.abc import Mapping

from discreet.core import registry

TYPE_CHECKING = False  # without ``typing``, the package loads in a third less time
if TYPE_CHECKING:
    from typing import ClassVar, NoReturn

    from discreet.core import part_protocols as protocols
    from discreet.core.count_mechanism import CountMechanism


def _noise() -> protocols.RecordClass:
    from discreet.core.events import MechanismRecord

    return MechanismRecord


def _reports() -> protocols.RecordClass:
    from discreet.accounting.randomized_response_event import ReportRecord

    return ReportRecord


def _flips() -> protocols.RecordClass:
    from discreet.accounting.binomial_noise_event import BinomialRecord

    return BinomialRecord


def _declared() -> protocols.RecordClass:
    from discreet.accounting.declared_event import DeclaredRecord

    return DeclaredRecord


def _amplified() -> protocols.RecordClass:
    from discreet.accounting.shuffle_amplification_event import AmplifiedRecord

    return AmplifiedRecord


def _skellam() -> protocols.RecordClass:
    from discreet.accounting.skellam_event import SkellamRecord

    return SkellamRecord


class _FixedClass(type):
    def __setattr__(cls, name: str, value: object = None) -> NoReturn:
        raise AttributeError(f"{cls.__name__}.{name} is fixed")

    __delattr__ = __setattr__


class WiredParts(metaclass=_FixedClass):
    """Optional parts of the kernel, from the modules of this library (:mod:`discreet.core.part_protocols`).

    Neither the object nor its class can be changed.
    """

    __slots__ = ()
    # These names are only compared with the class of a value. The functions import the classes.
    _records: ClassVar[tuple[tuple[str, protocols.RecordKind], ...]] = (
        ("noise", ("discreet.core.events", "MechanismRecord", _noise)),
        ("reports", ("discreet.accounting.randomized_response_event", "ReportRecord", _reports)),
        ("flips", ("discreet.accounting.binomial_noise_event", "BinomialRecord", _flips)),
        ("declared", ("discreet.accounting.declared_event", "DeclaredRecord", _declared)),
        ("amplified", ("discreet.accounting.shuffle_amplification_event", "AmplifiedRecord", _amplified)),
        ("skellam", ("discreet.accounting.skellam_event", "SkellamRecord", _skellam)),
    )

    @property
    def sentences(self) -> protocols.Sentences:
        """Text of guarantees and records of noise."""
        from discreet.accounting.text import guarantee_sentences

        return guarantee_sentences

    @property
    def mechanism_names(self) -> protocols.MechanismNames:
        """Names of mechanisms."""
        from discreet.accounting.text import mechanism_names

        return mechanism_names

    @property
    def plain(self) -> protocols.PlainValues:
        """Guarantees and records as plain values for files, and back."""
        from discreet.accounting import serialization

        return serialization

    @property
    def accountant(self) -> protocols.Accountant:
        """Numerical privacy losses."""
        from discreet.accounting import pld

        return pld

    @property
    def calibration(self) -> protocols.Calibration:
        """Ways to replace a user, as coordinates for the computation of privacy losses."""
        from discreet.accounting import pld_calibration

        return pld_calibration

    @property
    def declared(self) -> protocols.Declared:
        """Losses that depend on declarations in plug-ins."""
        from discreet.accounting import declared_event

        return declared_event

    @property
    def exceedance(self) -> protocols.Exceedance:
        """Probability that a privacy loss exceeds epsilon."""
        from discreet.accounting import exceedance

        return exceedance

    def count_laws(self, mechanism: CountMechanism) -> protocols.ReleaseDistributions:
        """Return the noise distributions of every release of ``mechanism``."""
        from discreet.accounting.noise_distributions.count_noise import CountLaws

        return CountLaws(mechanism)

    @property
    def seeded(self) -> protocols.SeededNoise:
        """Keys and noise of seeded runs, for simulation."""
        from discreet.mechanisms import seeded_rng

        return seeded_rng

    @property
    def user_sums(self) -> protocols.UserSums:
        """Second implementation of one user's contribution, for audits."""
        from discreet.audit import one_user_sums

        return one_user_sums

    @property
    def query_checks(self) -> protocols.QueryChecks:
        """Checks of batches that have different queries."""
        from discreet.mechanisms import query_checks

        return query_checks

    @property
    def saving(self) -> protocols.Saving:
        """Files of sessions."""
        from discreet.mechanisms.saved_state import save

        return save

    @property
    def shown(self) -> protocols.Shown:
        """Short text of values."""
        from discreet.utils import short_repr

        return short_repr

    @property
    def records(self) -> Mapping[str, protocols.RecordKind]:
        """Kinds of records, by their names in files: a new table at each access."""
        return dict(self._records)


registry.set_parts(WiredParts())
