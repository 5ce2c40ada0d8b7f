r"""Sites that do not share data: each counts its people at home, and what is opened is the sum of all sites.

A :class:`SitePlan` is what all sites and the analyst agree on before any data: schema, learner, budget, how
many sites there are, how many of them must be in a sum, and who draws the noise. Every site holds a copy of
its own and takes none from the analyst; a message under another plan is refused. A :class:`Site` is one of
them: its counted part, its ledger, and the key that all sites share and the analyst does not know. What a
site sends is a vector of integers (:meth:`Site.send`), once, after its ledger has been charged; it travels
masked (:mod:`discreet.pipeline.flower_app`), and :class:`SiteSums` is the sum over sites, which
:func:`discreet.pipeline.learn.learn` takes in place of data.

Who draws the noise.

- ``noise = "analyst"``: sites send exact sums, the analyst sees their exact sum over sites, and draws the
  noise of ``plan.mechanism`` into it, once. The release, its guarantee and its statement are those of the
  pooled data. The analyst is trusted as the keeper of pooled data would be, but sees no site's own sums.
- ``noise = "sites"``: each site adds its share, a discrete Gaussian of 1/sqrt(t) times the mechanism's
  standard deviation, before anything leaves it. Nobody sees an exact sum. The loss is derived in
  :mod:`discreet.pipeline.distributed_noise`, for the t honest sites that are in a sum at least.

The integers, and why the sum is exact
--------------------------------------
A vector holds the number of people and the cells of the query, all in units of their grid (people and counts:
1; rewards: 1/1024), so that all of it is integer. Noise shares are integers in the same units. Each entry x
of a site has |x| <= 2^28: checked before noise, from the public number of people and episodes, never from the
data. A noise share above 2^28 ends the call before anything is sent; at a standard deviation of at most 2^22
units, which is checked, its probability is below 2 e^{-2048} an entry. So |x| < 2^29 = C for what is sent,
and the number k = x + C is in (0, 2^30).

Flower's SecAgg+ quantises floats: with clipping range C and quantisation range 2^30 = 2 C it takes (x + C) *
(2^30 / 2 C) = k, an integer below 2^53 in float64, without rounding; its stochastic rounding subtracts one
with probability ceil(k) - k = 0; and k < 2^31 fits its 32-bit integers. Every site has weight 1 = max_weight,
whose factor is 1. Masked k are added modulo 2^40, and n <= 1000 sites' k are below 2^40, so that nothing is
reduced: the sum of k over sites is exact. It comes back as (sum k - n C) * fl(1/n): sum k - n C is an integer
of at most 2^40, and the factor and the product are rounded once each, so that n times the result is within
2^40 * 3 * 2^-53 < 1/2 of it: rounding to the nearest integer gives it back.

No limbs. Larger numbers could be cut into parts that are summed apart; but the sums of the parts say how many
carries there were, which is not a function of the sum, and no noise is on it.

Who can be in the sum
---------------------
n sites; every sum that is opened holds k of them at least (``needed``), c of which may tell the analyst
their own noise and their shares of others' secrets (``colluding``; 1 by default, as every site knows its
own noise), but not the key that all sites share: an analyst who has that can pose as any site, and open one
site's vector alone, so that t = 1. While she has not, how many honest sites are in it at least (``honest``,
t), if the analyst may tell different sites different things about who dropped out: every
honest site names one status for every other site, once, calls n - k of them dropped at most, and gives its
share of a site's secret for that status only. To open anything, every honest site must be either in the sum
or have its pair keys known, for which k - c honest sites must have called it dropped (k shares make a secret,
and c are known); it cannot be both, as 2 (k - c) > n - c is required. So at most (n - c) (n - k) / (k - c)
honest sites are left out, and

    t = n - c - floor((n - c) (n - k) / (k - c)).

One person, one site. Noise is calibrated to one person's records at one site. Sites that do not share data
cannot check that nobody is at two, so that it is declared, and every statement says so: a person at j sites
is protected as j people together are (j^2 rho, or j epsilon).
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
from numpy.typing import NDArray

from discreet.accounting.budget import zcdp_rho
from discreet.accounting.noise_distributions.distributions import GaussianSumLaw
from discreet.core import checks
from discreet.core.count_mechanism import CountMechanism
from discreet.core.count_query import CENTERED_REWARDS, TRANSITIONS, VISITS, CountQuery
from discreet.core.guarantee import Guarantee, joint_loss
from discreet.core.rng import Randomness, Secure, SecureCoins, checked_on_grid
from discreet.core.short_repr import brief
from discreet.data.schema import Schema, read_schema
from discreet.ledger.ledger import Ledger
from discreet.ledger.owner_rules import obeyed
from discreet.mechanisms.dataset.dataset_release import KeptRelease, OneShotSession, check_query
from discreet.mechanisms.dataset.partial_aggregate import Tally, same_sums
from discreet.mechanisms.interfaces import StepSums
from discreet.mechanisms.privatizers.central import Central
from discreet.pipeline.distributed_noise import SplitNoise
from discreet.pipeline.learned_files import Kind, LinearSums, kind_of, learner_of, name_of, options_of
from discreet.pipeline.partial_aggregates import Part, digest_of, facts_of

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

__all__ = ["BOUND", "MODULUS", "MOST_SITES", "Site", "SitePlan", "SiteSums", "read_site_plan"]

BOUND = 2**29  # C: what a site sends is below it
MODULUS = 2**40
MOST_SITES = 1000
_MOST = BOUND // 2  # of an entry before noise, and of noise
_MOST_SIGMA = 2**22
_GRID = 1024
_FORM = 1  # of the vector


@dataclass(frozen=True, eq=False)
class SitePlan:
    """What all sites and the analyst agree on before any data.

    Parameters
    ----------
    schema : Schema
        The same at every site.
    learner : DecisionPoints or DPAPVI
    privatizer : Central
    sites : int
        n, in [2, 1000].
    noise : "analyst" or "sites"
        Who draws it: once in the sum, or a share at every site (then the budget must allow Gaussian noise).
    needed : int, optional
        k: how many sites a sum must hold to be opened; all by default. A site that drops out after keys were
        exchanged is then left out; before that, nobody sends anything.
    colluding : int
        c: how many sites may pass on their own noise and what was dealt to them, but not the sites' key.
        2 k > n + c.
    name : str
        Of the run. A site with a ledger answers a plan once; to do the same again, give it another name.

    Raises
    ------
    ValueError
        If they do not fit together, or the shares of the noise would be too small.
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
                f"learner = {name_of(self.learner)!r}: asks stored people questions while it plans, and "
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
        """k, which is set."""
        assert self.needed is not None
        return self.needed

    @property
    def honest(self) -> int:
        """t: how many sites that do not collude are in every sum that is opened."""
        others, lost = self.sites - self.colluding, self.sites - self.fewest
        return others - others * lost // (self.fewest - self.colluding)

    @cached_property
    def kind(self) -> Kind:
        """What is counted, and how the learner plans."""
        return kind_of(self.schema, self.learner)

    @cached_property
    def query(self) -> CountQuery:
        """What is summed."""
        query: CountQuery = self.kind.query  # type: ignore[union-attr]
        return query

    @cached_property
    def mechanism(self) -> CountMechanism:
        """The noise of the whole sum."""
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
        # a sum of shares is accounted by its rho, not by its privacy-loss distribution
        assert privatizer.epsilon is not None
        assert privatizer.delta is not None
        names = list(self.query.row_families)
        joint = joint_loss(self.query, "l2", dict(zip(names, found.noise_scales.tolist(), strict=True)))
        wider = joint / math.sqrt(2.0 * zcdp_rho(privatizer.epsilon, privatizer.delta))
        return replace(
            found, scales=found.noise_scales * wider, stated=replace(found.stated, numerical=False)
        )

    @cached_property
    def split(self) -> SplitNoise | None:
        """The shares; None where the analyst draws the noise."""
        if self.noise == "analyst":
            return None
        return SplitNoise(self.mechanism, self.sites, self.honest)

    @property
    def guarantee(self) -> Guarantee:
        """Of the release: the same for all sites, known before any data."""
        return self.mechanism.guarantee if self.split is None else self.split.guarantee

    @property
    def records(self) -> tuple[Any, ...]:
        """What every site's ledger is charged."""
        return self.guarantee.records

    @property
    def entries(self) -> int:
        """How many integers a site sends."""
        if self.split is not None:
            return 1 + self.query.cells
        visits = int(np.prod(self.query.row_families.get(VISITS, (0,))))  # they are sums of the others
        return 2 + self.query.cells - visits

    @cached_property
    def digest(self) -> str:
        """64 hexadecimal digits: two plans with the same are the same."""
        told = {
            "form": _FORM, "name": self.name, "schema": self.schema.hash, "algorithm": name_of(self.learner),
            "learner": options_of(self.learner), "privatizer": options_of(self.privatizer),
            "scales": self.mechanism.noise_scales.tolist(), **self.told(self.sites),
        }  # fmt: skip
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()

    def told(self, sent: int) -> dict[str, Any]:
        """What the statement of a release says of it; ``sent`` : how many sites are in the sum."""
        return {
            "sites": self.sites, "needed": self.fewest, "colluding": self.colluding, "honest": self.honest,
            "noise": self.noise, "sent": sent,
        }  # fmt: skip

    def check_room(self, people: int) -> None:
        """``ValueError`` if sums of so many people may leave the range of a secure sum."""
        units = 1 if self.query.known_rewards else _GRID // 2  # rewards are centred at 1/2
        if people * self.query.episodes * units > _MOST:
            raise ValueError(
                f"people = {people}: must be at most {_MOST // (units * self.query.episodes)} at one site, "
                "for its sums to stay in the range of a secure sum"
            )


@dataclass(frozen=True, eq=False)
class Site:
    """One site: its counted people, its ledger, and the key that all sites share. **Raw data.**

    plan : its own copy. part : :func:`~discreet.pipeline.partial_aggregates.count_part` of its people, under
    ``key``. key : 32 secret bytes, the same at all sites, unknown to the analyst. ledger : is charged before
    anything is sent; None writes nothing down.

    Raises
    ------
    ValueError
        If the part was counted for another question or under another key, if it has too many people, or if
        its owner's rule forbids it.
    """

    plan: SitePlan
    part: Part
    key: bytes
    ledger: Ledger | str | Path | None

    def __post_init__(self) -> None:
        plan, part = self.plan, self.part
        if not isinstance(plan, SitePlan) or not isinstance(part, Part):
            raise ValueError("plan, part: must be a SitePlan and a Part")
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
        """``ValueError`` where the owner's rules forbid to answer with this ledger."""
        obeyed(self.part.rules, self.plan.schema.dataset, ledger)

    def _book(self) -> AbstractContextManager[Ledger | None]:
        """The ledger, open."""
        if isinstance(self.ledger, Ledger | None):
            return nullcontext(self.ledger)
        return Ledger.open(self.ledger)

    def __repr__(self) -> str:
        return f"<Site of {self.part.tally.people} people: raw data, not private>"

    def send(self) -> Ints:
        """(entries,) what this site adds to the sum, in units: first the ledger is charged, then noise drawn.

        Not to be seen by anybody before it is masked: without noise shares it is exact, and a share alone
        hides little. Raises ``ValueError`` if the ledger says that this site has answered this plan, and
        ``BudgetError`` if the owner's limit would be passed; nothing is charged then.
        """
        plan, tally = self.plan, self.part.tally
        with self._book() as ledger:
            self._check_rules(ledger)  # they, or the ledger in that place, may have changed since
            if ledger is not None:
                self._charge(ledger)
        if plan.split is None:
            return tally.units()
        cells, coins, parts = tally.cells(), SecureCoins(), [np.array([tally.people], np.int64)]
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
        """Write down what the release costs; once for a plan: two sums over other sites tell sites apart."""
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
        if answers()[0] != reservation.number:  # another process was faster
            raise refused


class _Shared:
    """A session whose noise was drawn at the sites: nothing is left to be drawn."""

    def __init__(self, sums: SiteSums) -> None:
        self._sums = sums

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    @property
    def guarantee(self) -> Guarantee:
        """Of the plan."""
        return self._sums.plan.guarantee

    @property
    def records(self) -> tuple[Any, ...]:
        """Of the plan."""
        return self._sums.plan.records

    @property
    def users(self) -> int:
        """How many people there are at the sites together."""
        return int(self._sums.units[0])

    def release(self) -> KeptRelease:
        """The noisy sums."""
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
class SiteSums:
    """The sum of what ``sent`` sites sent. **Raw data** where the analyst is to draw the noise.

    plan : that of the sites. sent : how many sites' messages it is of, from ``plan.fewest`` to
    ``plan.sites``. units : (entries,) int64, at most ``sent`` times the bound of one site's.

    Raises
    ------
    ValueError
        If they cannot be sums of so many sites: a site, or the way to here, sent something else.
    """

    plan: SitePlan
    sent: int
    units: Ints

    def __post_init__(self) -> None:
        plan = self.plan
        sent = checks.integer("sent", self.sent, plan.fewest, plan.sites)
        units = np.array(self.units)
        if units.shape != (plan.entries,) or units.dtype != np.int64:
            raise ValueError(f"units: must be {plan.entries} integers of 64 bits")
        if np.abs(units).max() > sent * BOUND or units[0] < 1:
            raise ValueError("units: cannot be the sum of these sites' people")
        units.flags.writeable = False
        object.__setattr__(self, "units", units)

    def __repr__(self) -> str:
        private = "private" if self.plan.split is not None else "raw data, not private"
        return f"<Sums of {self.sent} sites: {private}>"

    def check(self, learner: Any, privatizer: Any) -> None:
        """``ValueError`` for another learner, or a privatizer of another budget, than those of the plan."""
        plan = self.plan
        same = name_of(learner) == name_of(plan.learner) and options_of(learner) == options_of(plan.learner)
        if not same or privatizer != plan.privatizer:
            raise ValueError("learner, privatizer: must be those of the sites' plan")

    def session(self, randomness: Randomness) -> OneShotSession | _Shared:
        """What is to be released: exact sums that wait for their noise of ``randomness``, or noisy ones.

        Raises ``ValueError`` where the sites drew the noise and ``randomness`` is not ``Secure()``.
        """
        if self.plan.split is not None:
            if type(randomness) is not Secure:
                raise ValueError(f"randomness = {randomness!r}: must be secure, the sites drew the noise")
            return _Shared(self)
        session = self.plan.privatizer.stored(self.plan.query, randomness)
        session.submit_tally(Tally.of_units(self.plan.query, _GRID, self.units))
        return session


# ------------------------------------------------------------------------------ a plan as a file

_KEYS = ("schema", "algorithm", "learner", "privatizer", "sites", "noise", "needed", "colluding", "name")


def read_site_plan(path: str | Path) -> SitePlan:
    """The plan in the TOML file at ``path``, beside the schema that it names.

    Keys: ``schema`` (a file), ``algorithm`` ("decision-points" or "dp-apvi"), tables ``learner`` (its
    options, if any) and ``privatizer`` (of :class:`Central`: ``epsilon``, ``delta``, ..), and ``sites``,
    ``noise``, ``needed``, ``colluding``, ``name`` as for :class:`SitePlan`.

    Raises
    ------
    ValueError
        If it is not such a file, or what it says does not fit together.
    """
    path = Path(path)
    try:
        told = tomllib.loads(path.read_text("utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read as TOML ({error})") from None
    if wrong := set(told) - set(_KEYS):
        raise ValueError(f"{path}: key {min(wrong)!r} is unknown, must be one of {', '.join(_KEYS)}")
    if lacks := [key for key in ("schema", "algorithm", "privatizer", "sites") if key not in told]:
        raise ValueError(f"{path}: key {lacks[0]!r} is missing")
    try:
        return SitePlan(
            read_schema(path.parent / str(told.pop("schema"))),
            learner_of(told.pop("algorithm"), told.pop("learner", {})),
            Central(**told.pop("privatizer")),
            **told,
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
