r"""Federated learning across sites that do not share data.

Each site counts the data of its users, and only the sum over sites is decrypted.

All sites and the analyst agree on a :class:`FederationPlan` before any data are read. The plan states the
schema, the learner, the budget and the number of sites. It also states the smallest number of sites in a sum,
and the party that draws the noise. Every site has its own copy of the plan and does not accept a plan from
the analyst. Messages under another plan are rejected. A :class:`FederatedSite` has three parts: the counts of
its users, its ledger, and a key. All sites share the key, and the analyst does not know it. A site charges
its ledger and then sends one vector of integers, only once (:meth:`FederatedSite.send`). The vector is masked
while it is sent (:mod:`discreet.pipeline.flower_app`). :class:`FederatedSum` is the sum over sites.
:func:`discreet.pipeline.learn.learn` accepts it instead of data.

*Noise.*

- ``noise = "analyst"``: sites send exact sums. The analyst sees the exact total over all sites, and adds the
  noise of ``plan.mechanism`` once. The release, its guarantee and its statement are the same as if the data
  were pooled. The analyst must be trusted as much as a curator of pooled data, but does not see the sums of a
  single site.
- ``noise = "sites"``: each site adds its share of the noise before it sends anything. A share is a discrete
  Gaussian. Its standard deviation is 1/sqrt(t) times the standard deviation of the mechanism's noise. Here t
  is the smallest number of honest sites in a sum. No party sees an exact sum. The privacy loss is derived in
  :mod:`discreet.pipeline.distributed_noise`.

The integers, and why the sum is exact
--------------------------------------

A vector contains the number of users and the cells of the query. They are in units of a grid, which is 1 for
users and counts, and 1/1024 for rewards. Therefore all entries are integers. Noise shares are integers in the
same units. Each entry x of a site has |x| <= 2^28 before noise. This is checked from the public number of
users and episodes, never from the data. If a noise share above 2^28 is drawn, the call ends before anything
is sent. At a standard deviation of at most 2^22 units, which is checked, the probability of such a share is
below 2 e^{-2048} per entry. So every entry x that is sent has |x| < 2^29 = C, and the number k = x + C is in
(0, 2^30).

Flower's SecAgg+ quantises floats. With clipping range C and quantisation range 2^30 = 2 C, it computes (x +
C) * (2^30 / 2 C) = k. This is an integer below 2^53, which float64 represents exactly. The stochastic
rounding of SecAgg+ subtracts one with probability ceil(k) - k = 0. Also, k < 2^31 fits its 32-bit integers.
Every site has weight 1 = max_weight, so the weight gives a factor of 1. Masked numbers k are added modulo
2^40, and the sum of k over n <= 1000 sites is below 2^40. So no modular reduction occurs: the sum of k over
sites is exact. The server returns (sum k - n C) * fl(1/n). Here sum k - n C is an integer of at most 2^40.
Two values are rounded, each once: the factor and the product. So n times the result differs from this integer
by at most 2^40 * 3 * 2^-53 < 1/2. Rounding to the nearest integer recovers the integer.

Larger numbers could be split into limbs that are summed separately. This is not done, because the sums of the
limbs would reveal the number of carries, which is not a function of the total and has no noise.

Which sites are in the sum
--------------------------

There are n sites. Every decrypted sum contains at least k sites (``needed``). At most c sites (``colluding``)
tell the analyst their own noise and the shares of secrets that other sites gave them. By default, c is 1,
because every site knows its own noise. It is assumed that the colluding sites do not tell the analyst the key
that all sites share. An analyst who has that key can impersonate any site and decrypt the vector of a single
site, so that t = 1. Without the key, t (``honest``) is a lower bound on the number of honest sites in the
sum. This holds even if the analyst reports different dropouts to different sites. An honest site accepts only
one status (in the sum, or dropped) for every other site, and only once. An honest site accepts at most n - k
dropped sites. It reveals its share of another site's secret only for the accepted status. To decrypt a sum,
the analyst needs every honest site in the sum, or the pair keys of the missing sites. The analyst knows the
pair keys of a site only if k - c honest sites accepted this site as dropped. The reason is that k shares
reconstruct a secret, and c shares are known. A site cannot have both statuses, because the plan requires 2 (k
- c) > n - c. So at most (n - c) (n - k) / (k - c) honest sites are left out, and

    t = n - c - floor((n - c) (n - k) / (k - c)).

*One user, one site.* Noise is calibrated to the records of one user at one site. Sites that do not share data
cannot check that every user is at only one site. Therefore this is an assumption, and every statement
declares it. A user with records at j sites has only the protection of a group of j users (j^2 rho, or j
epsilon).
"""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from discreet.accounting.budget import zcdp_rho
from discreet.accounting.noise_distributions.distributions import GaussianSumLaw
from discreet.core import checks
from discreet.core.count_mechanism import CountMechanism
from discreet.core.count_query import CountQuery
from discreet.core.families import CENTERED_REWARDS, TRANSITIONS, VISITS
from discreet.core.guarantee import Guarantee, joint_loss
from discreet.core.releases import Floats, Ints
from discreet.core.rng import Randomness, Secure, SecureRng, checked_on_grid
from discreet.core.short_repr import brief
from discreet.data.schema import Schema, read_schema
from discreet.ledger.ledger import Ledger
from discreet.ledger.owner_rules import obeyed
from discreet.mechanisms.dataset.dataset_release import KeptRelease, OneShotSession, check_query
from discreet.mechanisms.dataset.partial_aggregate import PartialAggregate, same_sums
from discreet.mechanisms.interfaces import StepSums
from discreet.mechanisms.privatizers.central import Central
from discreet.pipeline.distributed_noise import SplitNoise
from discreet.pipeline.learned_files import Kind, LinearSums, kind_of, learner_of, name_of, options_of
from discreet.pipeline.partial_aggregates import PartialAggregateFile, digest_of, facts_of

BOUND = 2**29  # C: bound on the absolute value of an entry that a site sends
MODULUS = 2**40
MOST_SITES = 1000
_MOST = BOUND // 2  # bound on the absolute value of an entry before noise, and of a noise value
_MOST_SIGMA = 2**22
_GRID = 1024
_FORM = 1  # format version of the vector


@dataclass(frozen=True, eq=False)
class FederationPlan:
    """Plan on which all sites and the analyst agree before any data are read.

    Parameters
    ----------
    schema : Schema
        Schema of the data, the same at every site.
    learner : DecisionPoints or DPAPVI
    privatizer : Central
    sites : int
        Number n of sites, in [2, 1000].
    noise : "analyst" or "sites"
        Party that draws the noise: the analyst once for the sum, or every site a share. In the second case,
        the budget must allow Gaussian noise.
    needed : int, optional
        Smallest number k of sites in a sum that is decrypted; by default, all sites. If a site drops out
        after the key exchange, the sum is made without this site. If a site drops out before the key
        exchange, no site sends anything.
    colluding : int
        Largest number c of colluding sites. They tell the analyst their own noise and the shares of secrets
        that other sites gave them, but not the key that all sites share. Must satisfy 2 k > n + c.
    name : str
        Name of the run. A site with a ledger answers each plan only once, so use another name to repeat the
        run.

    Raises
    ------
    ValueError
        If the values are inconsistent, or the shares of the noise would be too small.
    """

    __repr__ = brief

    schema: Schema
    learner: Any
    privatizer: Central
    sites: int
    noise: Literal["analyst", "sites"] = "analyst"
    needed: int | None = None
    colluding: int = 1
    name: str = ""

    def __post_init__(self) -> None:
        put = object.__setattr__
        sites = checks.integer("sites", self.sites, 2, MOST_SITES)
        checks.choice("noise", self.noise, ("analyst", "sites"))
        if not isinstance(self.name, str):
            raise ValueError(f"name = {checks.said(self.name)}: must be text")
        put(self, "needed", checks.integer("needed", sites if self.needed is None else self.needed, 2, sites))
        checks.integer("colluding", self.colluding, 0, sites - 1)
        if 2 * self.fewest <= sites + self.colluding:
            raise ValueError(
                f"needed = {self.needed}: must be above half of sites + colluding, {sites + self.colluding}: "
                "with fewer, an analyst who tells sites different things could open single sites' sums"
            )
        if not isinstance(self.privatizer, Central):
            raise ValueError(f"privatizer = {checks.said(self.privatizer)}: must be Central(...)")
        if isinstance(self.kind, LinearSums):
            raise ValueError(
                f"learner = {name_of(self.learner)!r}: queries users' data while it plans, and "
                "cannot be counted at sites; must be dp-apvi or decision-points"
            )
        check_query(self.query)
        _ = self.mechanism
        if self.split is not None:
            widest = max(s * (self.mechanism.grid(name) or 1) for name, s in self.split.scales.items())
            if widest > _MOST_SIGMA:
                raise ValueError(
                    f"privatizer: a site's share of the noise has standard deviation {widest:.3g} in units "
                    f"of its grid, must be at most {_MOST_SIGMA} for sums to stay exact: a larger epsilon"
                )

    @property
    def fewest(self) -> int:
        """Smallest number k of sites in a decrypted sum; all sites if ``needed`` is None."""
        assert self.needed is not None
        return self.needed

    @property
    def honest(self) -> int:
        """Smallest number t of sites in any decrypted sum that do not collude with the analyst."""
        others, lost = self.sites - self.colluding, self.sites - self.fewest
        return others - others * lost // (self.fewest - self.colluding)

    @cached_property
    def kind(self) -> Kind:
        """Object that defines which quantities the learner counts and how it plans from them."""
        return kind_of(self.schema, self.learner)

    @cached_property
    def query(self) -> CountQuery:
        """Query that defines the sums."""
        query: CountQuery = self.kind.query  # type: ignore[union-attr]
        return query

    @cached_property
    def mechanism(self) -> CountMechanism:
        """Mechanism whose noise protects the sum over sites."""
        if self.noise == "analyst":
            return self.privatizer.stored_mechanism(self.query, Secure(_GRID))
        privatizer = self.privatizer
        if privatizer.noise == "laplace" or (privatizer.epsilon is not None and not privatizer.delta):
            raise ValueError(
                "noise = 'sites': must be 'analyst' for Laplace noise (a pure epsilon): shares of it are not "
                "known here; give a delta, rho or mu"
            )
        found = replace(privatizer, noise="gaussian").stored_mechanism(self.query, Secure(_GRID))
        if not found.stated.numerical:
            return found
        # The privacy of a sum of noise shares is accounted in rho, not with a privacy-loss distribution.
        assert privatizer.epsilon is not None
        assert privatizer.delta is not None
        names = list(self.query.row_families)
        joint = joint_loss(self.query, "l2", dict(zip(names, found.scales.tolist(), strict=True)))
        wider = joint / math.sqrt(2.0 * zcdp_rho(privatizer.epsilon, privatizer.delta))
        return replace(found, scales=found.scales * wider, stated=replace(found.stated, numerical=False))

    @cached_property
    def split(self) -> SplitNoise | None:
        """Distribution of the sites' noise shares; None if the analyst draws the noise."""
        if self.noise == "analyst":
            return None
        return SplitNoise(self.mechanism, self.sites, self.honest)

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of the release. It is the same for all sites, and known before any data are read."""
        return self.mechanism.guarantee if self.split is None else self.split.guarantee

    @property
    def records(self) -> tuple[Any, ...]:
        """Mechanism records that every site charges to its ledger."""
        return self.guarantee.records

    @property
    def entries(self) -> int:
        """Number of integers that a site sends."""
        if self.split is not None:
            return 1 + self.query.cells
        # Visit counts are not sent, because they are sums of transition counts.
        visits = int(np.prod(self.query.row_families.get(VISITS, (0,))))
        return 2 + self.query.cells - visits

    @cached_property
    def digest(self) -> str:
        """Hash of the plan as 64 hexadecimal digits. Two plans with the same digest are equal."""
        facts = {
            "form": _FORM, "name": self.name, "schema": self.schema.hash, "algorithm": name_of(self.learner),
            "learner": options_of(self.learner), "privatizer": options_of(self.privatizer),
            "scales": self.mechanism.scales.tolist(), **self.statement_facts(self.sites),
        }  # fmt: skip
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def statement_facts(self, sent: int) -> dict[str, Any]:
        """Return the facts of the plan for the statement.

        - sent : number of sites in the sum.
        """
        return {
            "sites": self.sites, "needed": self.fewest, "colluding": self.colluding, "honest": self.honest,
            "noise": self.noise, "sent": sent,
        }  # fmt: skip

    def check_room(self, people: int) -> None:
        """Raise ``ValueError`` if sums over ``people`` users can exceed the range of a secure sum."""
        units = 1 if self.query.known_rewards else _GRID // 2  # centred rewards are in [-1/2, 1/2]
        if people * self.query.episodes * units > _MOST:
            raise ValueError(
                f"people = {people}: must be at most {_MOST // (units * self.query.episodes)} at one site, "
                "for its sums to stay in the range of a secure sum"
            )


@dataclass(frozen=True, eq=False)
class FederatedSite:
    """Site of a federation, with the exact sums of the site's users, the site's ledger and the shared key.

    **Raw data.**

    Parameters
    ----------
    plan : the site's own copy of the plan
    part : exact sums of the site's users, from
        :func:`~discreet.pipeline.partial_aggregates.aggregate_part` with ``key``
    key : 32 secret bytes, the same at all sites and unknown to the analyst
    ledger : ledger that is charged before anything is sent; if None, nothing is recorded

    Raises
    ------
    ValueError
        If the part was counted for another query or under another key, if it has too many users, or if a rule
        of the data's owner forbids the release.
    """

    plan: FederationPlan
    part: PartialAggregateFile
    key: bytes
    ledger: Ledger | str | Path | None

    def __post_init__(self) -> None:
        plan, part = self.plan, self.part
        if not isinstance(plan, FederationPlan) or not isinstance(part, PartialAggregateFile):
            raise ValueError("plan, part: must be a FederationPlan and a PartialAggregateFile")
        if part.synthetic:
            raise ValueError("part: holds synthetic users; a site must count real users")
        for fact, wanted in {**facts_of(plan.schema, plan.kind), "key": digest_of(self.key)}.items():
            if part.facts[fact] != wanted:
                raise ValueError(
                    f"part: was counted with another {fact} ({checks.said(part.facts[fact])}) than that of "
                    f"the plan and this site, {checks.said(wanted)}"
                )
        if not same_sums(part.tally.query, plan.query) or part.tally.grid != _GRID:
            raise ValueError(
                "part: its sums are not those that the plan asks for: count it with the plan's learner and "
                f"options, {checks.said(plan.learner)}"
            )
        plan.check_room(part.tally.people)
        with self._book() as ledger:
            self._check_rules(ledger)

    def _check_rules(self, ledger: Ledger | None) -> None:
        """Raise ``ValueError`` if a rule of the data's owner does not allow a release with this ledger."""
        obeyed(self.part.rules, self.plan.schema.dataset, ledger)

    def _book(self) -> AbstractContextManager[Ledger | None]:
        """Return a context manager for the open ledger; its value is None if the site has no ledger."""
        if isinstance(self.ledger, Ledger | None):
            return nullcontext(self.ledger)
        return Ledger.open(self.ledger)

    def __repr__(self) -> str:
        return f"<FederatedSite of {self.part.tally.people} people: raw data, not private>"

    def send(self) -> Ints:
        """Charge the ledger, draw the noise, and return the vector of this site.

        The vector has (entries,) integers, in units of the grid. It must be masked before any other party
        sees it. With ``noise = "analyst"``, the vector is exact. With ``noise = "sites"``, it has only one
        site's share of the noise, which gives little protection. Raises ``ValueError`` if the ledger shows
        that this site has already answered this plan. Raises ``BudgetError`` if the owner's limit would be
        exceeded. In both cases nothing is charged.
        """
        plan, tally = self.plan, self.part.tally
        with self._book() as ledger:
            # The rules or the ledger file can have changed since this object was created.
            self._check_rules(ledger)
            if ledger is not None:
                self._charge(ledger)
        if plan.split is None:
            return tally.units()
        cells, coins, parts = tally.cells(), SecureRng(), [np.array([tally.people], np.int64)]
        for (name, scale), begin, end in zip(
            plan.split.scales.items(), plan.query.offsets[:-1], plan.query.offsets[1:], strict=True
        ):
            grid = plan.mechanism.grid(name) or 1
            noise = coins.normal(scale, int(end - begin), grid) * grid
            if np.abs(noise).max() > _MOST:
                raise OverflowError("a noise value above the range of a secure sum was drawn")
            own = checked_on_grid(cells[begin:end], grid) * grid
            parts.append(checked_on_grid(own + noise, 1).astype(np.int64))
        return np.concatenate(parts)

    def _charge(self, ledger: Ledger) -> None:
        """Charge the ledger for the plan. Raises ``ValueError`` if this site has already answered the plan.

        Two sums over different sets of sites would reveal the sums of single sites.
        """
        plan = self.plan
        dataset, purpose = plan.schema.dataset, f"one of {plan.sites} sites, plan {plan.digest}"

        def answers() -> list[int]:
            return [one.number for one in ledger.entries(dataset) if one.purpose == purpose]

        refused = ValueError(
            "plan: this site has answered it, by its ledger, and answers once; a new run needs another name"
        )
        if answers():
            raise refused
        reservation = ledger.reserve(
            dataset, plan.records, delta=plan.guarantee.delta, users=self.part.tally.people, purpose=purpose
        )
        if answers()[0] != reservation.number:  # another process charged the ledger for this plan first
            raise refused


class _Shared:
    """Session for sums to which the sites added noise. The session itself draws no noise."""

    def __init__(self, sums: FederatedSum) -> None:
        self._sums = sums

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    @property
    def guarantee(self) -> Guarantee:
        """Privacy guarantee that the plan states."""
        return self._sums.plan.guarantee

    @property
    def records(self) -> tuple[Any, ...]:
        """Mechanism records that the plan states."""
        return self._sums.plan.records

    @property
    def users(self) -> int:
        """Number of users at all sites in the sum."""
        return int(self._sums.units[0])

    def release(self) -> KeptRelease:
        """Return the release, which contains the noisy sums over sites."""
        plan, split = self._sums.plan, self._sums.plan.split
        assert split is not None
        query, cells, tables, laws = plan.query, self._sums.units[1:], dict[str, Floats](), {}
        rows = query.slots * query.layout.rows
        for (name, shape), begin in zip(query.row_families.items(), query.offsets, strict=False):
            size, grid = int(np.prod(shape)), plan.mechanism.grid(name) or 1
            tables[name] = cells[begin : begin + size].reshape(shape) / grid
            tables[name].flags.writeable = False
            laws[name] = GaussianSumLaw(
                scale=split.scales[name], terms=float(self._sums.sent), terms_bound=self._sums.sent,
                cells=size, rows=rows, row_size=size // rows, share=1.0, unit=1.0 / grid,
            )  # fmt: skip
        steps = tuple(
            StepSums(h, tables[TRANSITIONS][h], *(
                tables[name][h] if name in tables else None for name in (VISITS, CENTERED_REWARDS)
            ))
            for h in range(query.slots)
        )  # fmt: skip
        return KeptRelease(query, self.users, laws, self.guarantee, self.records, steps)


@dataclass(frozen=True, eq=False)
class FederatedSum:
    """Sum of the vectors of ``sent`` sites. It is **raw data** if the analyst must still draw the noise.

    Parameters
    ----------
    plan : the plan that the sites agreed on.
    sent : number of sites in the sum, in [``plan.fewest``, ``plan.sites``].
    units : (entries,) int64, the sum in units of the grid. The absolute value of each entry is at most
        ``sent`` times the bound for one site.

    Raises
    ------
    ValueError
        If ``units`` cannot be a sum over this number of sites, for example after an error of a site or of the
        transport.
    """

    plan: FederationPlan
    sent: int
    units: Ints

    def __post_init__(self) -> None:
        plan = self.plan
        sent = checks.integer("sent", self.sent, plan.fewest, plan.sites)
        units = np.array(self.units)
        if units.shape != (plan.entries,) or units.dtype != np.int64:
            raise ValueError(f"units: must be {plan.entries} integers of 64 bits")
        if np.abs(units).max() > sent * BOUND or units[0] < 1:
            raise ValueError("units: cannot be the sum of these sites' users")
        units.flags.writeable = False
        object.__setattr__(self, "units", units)

    def __repr__(self) -> str:
        private = "private" if self.plan.split is not None else "raw data, not private"
        return f"<Sums of {self.sent} sites: {private}>"

    def check(self, learner: Any, privatizer: Any) -> None:
        """Raise ``ValueError`` if the learner or the privatizer is not the one in the plan."""
        plan = self.plan
        same = name_of(learner) == name_of(plan.learner) and options_of(learner) == options_of(plan.learner)
        if not same or privatizer != plan.privatizer:
            raise ValueError("learner, privatizer: must be those of the sites' plan")

    def session(self, randomness: Randomness) -> OneShotSession | _Shared:
        """Return the session that makes the release.

        If the analyst draws the noise, the session has exact sums and adds noise from ``randomness``. If the
        sites drew the noise, the session has noisy sums, and ``randomness`` must be ``Secure()``. Raises
        ``ValueError`` if ``randomness`` is another source in the second case.
        """
        if self.plan.split is not None:
            if type(randomness) is not Secure:
                raise ValueError(
                    f"randomness = {randomness!r}: must be secure, because the sites drew the noise"
                )
            return _Shared(self)
        session = self.plan.privatizer.stored(self.plan.query, randomness)
        session.submit_tally(PartialAggregate.of_units(self.plan.query, _GRID, self.units))
        return session


# ------------------------------------------------------------------------------ a plan as a file

_KEYS = ("schema", "algorithm", "learner", "privatizer", "sites", "noise", "needed", "colluding", "name")


def read_site_plan(path: str | Path) -> FederationPlan:
    """Read a plan from the TOML file at ``path`` and from the schema file that this file names.

    Required keys are ``schema`` (path of the schema file), ``algorithm`` ("decision-points" or "dp-apvi"),
    ``privatizer`` and ``sites``. The table ``learner`` contains options of the learner. The table
    ``privatizer`` contains options of :class:`Central`, for example ``epsilon`` and ``delta``. The keys
    ``sites``, ``noise``, ``needed``, ``colluding`` and ``name`` are those of :class:`FederationPlan`.

    Raises
    ------
    ValueError
        If the file is not a valid plan, or its values are inconsistent.
    """
    path = Path(path)
    try:
        given = tomllib.loads(path.read_text("utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read as TOML ({error})") from None
    if wrong := set(given) - set(_KEYS):
        raise ValueError(f"{path}: key {min(wrong)!r} is unknown, must be one of {', '.join(_KEYS)}")
    if lacks := [key for key in ("schema", "algorithm", "privatizer", "sites") if key not in given]:
        raise ValueError(f"{path}: key {lacks[0]!r} is missing")
    try:
        return FederationPlan(
            read_schema(path.parent / str(given.pop("schema"))),
            learner_of(given.pop("algorithm"), given.pop("learner", {})),
            Central(**given.pop("privatizer")),
            **given,
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
