"""Study file: MDP, learner, privatizer, schedule, ledger and rules for participants.

The file has the format TOML. All its values are public, and they are fixed before the first user takes part::

    name = "ward"

    [world]
    states = 6                 # S, A, H
    actions = 2
    horizon = 20

    users = 20000              # K, one episode each

    rewards = [0.0, 1.0]       # least and largest reward of a step, in the units that users send

    stationary = false         # True if the MDP is the same at every step
    mask = [[true, true], ...] # (S, A) true where an action is admissible; left out: all are

    [context]                  # only for real-valued contexts: the table above then has no states
    form = "per_action"        # and basis, radius and intercept (:mod:`discreet.device.feature_map`)

    [context.columns]
    age = { range = [18, 90] } # declared without the data

    [learner]
    name = "noise-aware"       # and the learner's options (`discreet describe noise-aware`)

    [learner.prior]            # left out: the learner starts without a prior
    file = "prior.csv"         # a table, or an earlier release (.parquet)
    strength = 100.0           # visits that each pair of a table is worth

    [privatizer]
    name = "central"           # or "local", "shuffle"; and its options, which include the budget
    epsilon = 1.0
    delta = 1e-6

    [schedule]
    replan_growth = 1.2        # or replan_every: learner options that set the release times
    replan_first = 100         # users of the first batch; left out: 1

    [people]
    answer_within = 3600       # seconds from a place to its answer; later users count as absent
    closes_after = 86400       # only with close = "all": untaken places count as absent after these seconds

    participations = 3         # largest number of times that a person takes part; left out: 1

    separation = 2             # least number of releases between; both need tickets for pseudonyms

    [serving]
    close = "resolved"         # rule that closes a batch; or "clock", "all"

    every = 86400              # only with close = "clock": seconds between two releases

    in_flight_least = 100      # a place is free while fewer reservations are open

    in_flight_share = 0.1      # the same, as a share of the resolved reservations

    [ledger]                   # left out: the study is in no ledger, which the statement says
    dataset = "ward-2026"
    path = "ledger.sqlite"     # left out: the user's own ledger

    [chain]                    # left out: the head is beside the database
    head = "/other-disk/ward.head"     # the newest release and beat (:mod:`discreet.service.release_chain`)

    [shuffler]                 # only with privatizer "shuffle": the process that sees single messages
    url = "https://shuffler.example"   # address to which devices send messages
    key = "9f3c..."            # its public key (`discreet shuffler study.toml --key`), which signs its sums

    [service]
    key = "service.key"        # signs plans and statement; made only at the first start
    recovery = "9f3c..."       # public key that can replace a lost one (--rotate-key)

    origins = ["https://page.example"]  # sites whose pages can use the service; left out: none

    [rehearsal]                # simulated users of `--dry-run`; never read by a real study
    env = "riverswim"
    options = { rewards = "bernoulli" }
    seed = 0

The *identity* of a study is a hash of everything except ``chain``, ``service``, ``rehearsal`` and
``answer_within``. The source of noise is part of the hash. A database serves one study. A longer
``answer_within`` holds from the next start, also for places that are open; a shorter one has no effect.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from discreet import registry
from discreet.core import checks
from discreet.core.count_mechanism import CountMechanism
from discreet.core.count_query import CountQuery
from discreet.core.guarantee import Guarantee
from discreet.core.layout import Layout
from discreet.core.rng import Randomness, Secure, Seeded
from discreet.core.short_repr import brief
from discreet.core.strategies import MOST_PARTICIPATIONS
from discreet.envs.context_worlds import ContextWorld
from discreet.ledger.signatures import is_key
from discreet.mechanisms.argument_roles import check_role
from discreet.mechanisms.features import FeatureMap, declared_ranges
from discreet.mechanisms.interfaces import ProblemSpec, Schedule, Session
from discreet.mechanisms.linear.context_query import ContextQuery
from discreet.mechanisms.linear.linear_mechanism import LinearMechanism
from discreet.mechanisms.open_session import session_of
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.shuffle.shuffle_mechanisms import AmplifiedMechanism, FlipMechanism
from discreet.mechanisms.shuffle.skellam_session import SkellamMechanism
from discreet.service.clock_batches import ClockBatches, check_mechanism
from discreet.service.resolved_batches import ResolvedBatches
from discreet.service.returning_users import Participation
from discreet.utils.pinned_file import pinned
from discreet.utils.toml_file import read_toml

__all__ = ["MOST_RELEASES", "Study", "read_study"]

MOST_RELEASES = 10_000  # the database keeps every release with its plans
_STREAMS = ("walk", "decaying", "local", "reports")
_TABLES: Mapping[str, tuple[str, ...]] = {
    "world": ("states", "actions", "horizon", "users", "rewards", "stationary", "mask"),
    "context": ("columns", "form", "basis", "radius", "intercept"),
    "people": ("answer_within", "closes_after", "participations", "separation"),
    "serving": ("close", "every", "in_flight_least", "in_flight_share"),
    "ledger": ("dataset", "path"),
    "chain": ("head",),
    "shuffler": ("url", "key"),
    "service": ("key", "origins", "recovery"),
    "rehearsal": ("env", "options", "seed"),
}
_FREE = ("chain", "service", "rehearsal")  # tables that can change after the first start
_ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:[0-9]{1,5})?")
_OPEN = ("learner", "privatizer", "schedule")  # tables whose keys are options of a learner or privatizer


@dataclass(frozen=True, eq=False)
class Study:
    """Checked study: all public values that determine the noise scale, and the rules for users.

    Parameters
    ----------
    name : str
        Name of the study: 1 to 100 printable characters.
    layout : Layout
        Sizes S, A and H, and the mask of admissible actions.
    users : int
        Number of users K, 1 to 10^9. Each user has one episode.
    learner : learner
        The learner's schedule determines the times of releases, at most 10,000.
    privatizer : privatizer
        The privatizer's attribute ``trust`` must be "joint", "local" or "shuffle".
    rewards : (low, high)
        Smallest and largest reward of one step, in users' units; finite, low < high.
    stationary : bool
        True if the MDP is declared to be the same at every step.
    features : FeatureMap, optional
        Map of users' real-valued contexts, which replace states; the layout then has one state and one step.
    answer_within : float
        Time in seconds from a user's place to their answer, above 0. Users who answer later count as absent.
    closes_after : float, optional
        Time in seconds after which places that no user has taken count as absent, at least ``answer_within``;
        None for no limit.
    participations, separation : int
        A person takes part at most ``participations`` times (1 to 100), and at least ``separation`` releases
        apart (:mod:`discreet.service.returning_users`). More than 1 needs the privatizer "central".
    close : "resolved", "clock" or "all", optional
        Rule that closes batches (:mod:`discreet.service.resolved_batches`,
        :mod:`discreet.service.clock_batches`). None: "resolved", or "all" under shuffle trust and with
        ``closes_after``.
    every : float, optional
        Time in seconds between two releases, above 0. Required with the rule "clock", and not allowed
        otherwise.
    in_flight_least, in_flight_share : int, float
        With the rule "resolved", a place is free while fewer than max(``in_flight_least``,
        ``in_flight_share`` r) reservations are open, where r reservations are answered or absent; 1..10^6 and
        0..10.
    ledger : mapping, optional
        ``dataset``, and ``path`` of the ledger's file; by default, the user's ledger. None if the study uses
        no ledger.
    shuffler : mapping, optional
        ``url`` (http or https, no / at the end) and ``key`` (public key, 64 hexadecimal digits). Required
        under shuffle trust, and not allowed otherwise.
    key : str
        Path of the file with the private key that signs plans and the statement.
    recovery : str, optional
        Public key (64 hexadecimal digits) that can replace ``key`` (:mod:`discreet.service.key_history`).
    head : str, optional
        Path of the head of the chain of releases; None for a file beside the database.
    origins : list of str
        Origins (scheme, host and port) of the web pages that can use the service in a browser.
    rehearsal : mapping
        ``env``, ``options`` and ``seed`` of the simulated users of a dry run.
    randomness : Secure or Seeded
        Source of noise: Secure, or Seeded for dry runs.
    folder : Path
        Folder to which relative paths refer.
    simulated : bool
        True for a dry run.
    table : mapping
        The study file as it was read; :attr:`identity` is a hash of this table.

    Raises
    ------
    ValueError
        If a value is outside its range, if the learner and the privatizer are incompatible, or if the service
        does not support them (:attr:`mechanism`).
    """

    __repr__ = brief

    name: str
    layout: Layout
    users: int
    learner: Any
    privatizer: Any
    rewards: tuple[float, float] = (0.0, 1.0)
    stationary: bool = False
    features: FeatureMap | None = None
    answer_within: float = 3600.0
    closes_after: float | None = None
    participations: int = 1
    separation: int = 1
    close: str | None = None
    every: float | None = None
    in_flight_least: int = 100
    in_flight_share: float = 0.1
    ledger: Mapping[str, Any] | None = None
    shuffler: Mapping[str, Any] | None = None
    key: str = "service.key"
    recovery: str | None = None
    head: str | None = None
    origins: tuple[str, ...] = ()
    rehearsal: Mapping[str, Any] = field(default_factory=dict)
    randomness: Randomness = field(default_factory=Secure)
    folder: Path = Path()  # folder to which relative paths refer
    table: Mapping[str, Any] = field(default_factory=dict)  # the study file as it was read
    simulated: bool = False
    # set by :func:`discreet.service.frozen_mechanism.frozen`: the stated guarantee as JSON values, and the
    # texts in the database from which mechanism and statement were read
    stated: Mapping[str, Any] | None = field(default=None, init=False)
    frozen_as: tuple[str, str] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        if not isinstance(self.name, str) or not self.name.isprintable() or not 0 < len(self.name) <= 100:
            raise ValueError(f"name = {checks.said(self.name)}: must be a text of 1 to 100 letters")
        put(self, "users", checks.integer("world.users", self.users, 1, 10**9))
        put(self, "stationary", checks.flag("world.stationary", self.stationary))
        if not isinstance(self.rewards, list | tuple) or len(self.rewards) != 2:
            raise ValueError(f"world.rewards = {checks.said(self.rewards)}: must be [least, largest]")
        low, high = (checks.real("world.rewards", one) for one in self.rewards)
        if not low < high:
            raise ValueError(f"world.rewards = [{low:g}, {high:g}]: the least must be below the largest")
        if not math.isfinite(high - low):
            raise ValueError(f"world.rewards = [{low:g}, {high:g}]: the difference must be finite")
        put(self, "rewards", (low, high))
        put(self, "answer_within", checks.positive("people.answer_within", self.answer_within))
        if self.closes_after is not None:
            after = checks.real("people.closes_after", self.closes_after, self.answer_within)
            put(self, "closes_after", after)
        put(self, "origins", _origins(self.origins))
        if self.recovery is not None and not is_key(self.recovery):
            raise ValueError(
                f"service.recovery = {checks.said(self.recovery)}: must be a public key, 64 "
                "hexadecimal digits"
            )
        if self.head is not None and not (isinstance(self.head, str) and self.head):
            raise ValueError(f"chain.head = {checks.said(self.head)}: must be the path of a file")
        least = checks.integer("serving.in_flight_least", self.in_flight_least, 1, 10**6)
        share = checks.real("serving.in_flight_share", self.in_flight_share, 0.0, 10.0)
        put(self, "in_flight_least", least)
        put(self, "in_flight_share", share)
        check_role("learner", self.learner, "learner")
        check_role("privatizer", self.privatizer, "privatizer")
        self._set_participation()
        _ = self.mechanism
        if self.features is not None and self.schedule.final:
            raise ValueError(
                "learner.final_share: must be 0 in a study of the service, which makes no release after the "
                "last user"
            )
        if (self.shuffler is None) == self.shuffled:
            raise ValueError(
                "shuffler: must be given with the privatizer 'shuffle', and no other: the address of the "
                "process that single messages are sent to, and its public key"
            )
        self._check_close()
        if self.shuffler is not None:
            url, key = self.shuffler.get("url"), self.shuffler.get("key")
            if not isinstance(url, str) or not url.startswith(("http://", "https://")) or url.endswith("/"):
                raise ValueError(
                    f"shuffler.url = {checks.said(url)}: must be http(s)://..., without / at the end"
                )
            if not is_key(key):
                raise ValueError(
                    f"shuffler.key = {checks.said(key)}: must be a public key, 64 hexadecimal digits"
                )

    def _set_participation(self) -> None:
        """Give the privatizer the limits of a person. Raises ``ValueError`` if they do not fit the study."""
        put, own = object.__setattr__, self.privatizer
        m = checks.integer("people.participations", self.participations, 1, MOST_PARTICIPATIONS)
        s = checks.integer("people.separation", self.separation, 1)
        put(self, "participations", m)
        put(self, "separation", s)
        if m == 1:
            if s > 1:
                raise ValueError(f"people.separation = {s}: must be left out with people.participations = 1")
            for name in ("participations", "separation"):
                if getattr(own, name, 1) != 1:
                    raise ValueError(
                        f"privatizer.{name} = {getattr(own, name)}: must be left out; give people.{name}"
                    )
            return
        if not isinstance(own, Central):
            raise ValueError(
                f"people.participations = {m}: must be 1 with privatizer {type(own).__name__}; only "
                "'central' computes the loss of a person who returns"
            )
        if self.close == "clock":
            raise ValueError(
                f'people.participations = {m}: must be 1 with serving.close = "clock"; use "resolved"'
            )
        if m * s >= self.releases:  # release 0 contains no person
            raise ValueError(
                f"people.participations = {m}, people.separation = {s}: need {m * s} releases, and the "
                f"schedule has {self.releases - 1}"
            )
        if (own.participations, own.separation) not in ((1, 1), (m, s)):
            raise ValueError("privatizer.participations: must be left out; give people.participations")
        put(self, "privatizer", replace(own, participations=m, separation=s))

    @property
    def participation(self) -> Participation:
        """Limits of one person."""
        return Participation(self.participations, self.separation)

    def _check_close(self) -> None:
        """Raise ``ValueError`` if the rule that closes batches does not fit the other values."""
        if self.close is not None:
            checks.choice("serving.close", self.close, ("resolved", "clock", "all"))
        if self.close in ("resolved", "clock") and (self.shuffled or self.closes_after is not None):
            what = "a shuffler" if self.shuffled else "people.closes_after"
            raise ValueError(
                f'serving.close = "{self.close}": must be "all" with {what}, as only plans that hold a fixed '
                "number of places need it"
            )
        for name, value, usual in (
            ("least", self.in_flight_least, 100),
            ("share", self.in_flight_share, 0.1),
        ):
            if self.close_rule != "resolved" and value != usual:
                raise ValueError(
                    f"serving.in_flight_{name} = {value}: must be left out with serving.close = "
                    f'"{self.close_rule}"'
                )
        if (self.close == "clock") != (self.every is not None):
            raise ValueError(
                f"serving.every = {checks.said(self.every)}: must be a number of seconds with serving.close "
                '= "clock", and left out otherwise'
            )
        if self.every is not None:
            object.__setattr__(self, "every", checks.positive("serving.every", self.every))
            check_mechanism(self.mechanism)

    # ------------------------------------------------------------------------ values that the study fixes
    @cached_property
    def spec(self) -> ProblemSpec:
        """Public description of the problem that the learner receives."""
        budget = getattr(self.privatizer, "budget", None)
        return ProblemSpec(self.layout, self.users, self.stationary, None, budget, self.features)

    @property
    def sizes(self) -> dict[str, Any]:
        """Public sizes, range of rewards, mask and feature map, in the form that devices and participants
        receive.
        """
        layout = self.layout
        return {
            "states": layout.states,
            "actions": layout.actions,
            "horizon": layout.horizon,
            "rewards": list(self.rewards),
            "mask": None if layout.mask is None else layout.mask.tolist(),
            **({} if self.features is None else {"features": self.features.to_dict()}),
        }

    @cached_property
    def schedule(self) -> Schedule:
        """Release times that the learner requests."""
        found: Schedule = self.learner.schedule(self.spec)
        return found

    @cached_property
    def mechanism(
        self,
    ) -> CountMechanism | FlipMechanism | AmplifiedMechanism | SkellamMechanism | LinearMechanism:
        """Mechanism of the study's releases. Raises ``ValueError`` if the service does not support it."""
        if self.privatizer.trust == "none":
            raise ValueError("privatizer: must have a guarantee")
        try:
            query = self.learner.query(self.spec)
        except ValueError as error:
            # this error is about features, which a study file cannot set
            if not str(error).startswith("spec.features"):
                raise
            name = self.table.get("learner", {}).get("name", type(self.learner).__name__)
            raise ValueError(
                f"learner.name = {checks.said(name)}: learns from features that this study does not give; "
                "'linear-bandit' needs [context], and other studies a learner of tables, such as "
                "'noise-aware'"
            ) from None
        if self.features is not None and not isinstance(query, ContextQuery):
            raise ValueError(
                f"context: must be left out with learner {type(self.learner).__name__}, which reads no "
                "contexts"
            )
        found = self.privatizer.mechanism(query, self.schedule, self.randomness)
        kinds = CountMechanism, FlipMechanism, AmplifiedMechanism, SkellamMechanism, LinearMechanism
        if not isinstance(query, CountQuery | ContextQuery) or not isinstance(found, kinds):
            raise ValueError(
                f"learner: {type(self.learner).__name__} asks for more than counts or sums of contexts, all "
                f"that is served with privatizer {type(self.privatizer).__name__}"
            )
        if type(found) is CountMechanism and (found.asks != "plain" or found.stream not in _STREAMS):
            raise ValueError(
                f"privatizer: a session of {found.asks} sums ({found.stream}) is not served, whose plans say "
                "more than a policy"
            )
        if found.guarantee.rests_on:
            raise ValueError(
                f"privatizer: its epsilon rests on a declaration, which a service does not accept: "
                f"{found.guarantee.rests_on[0]}"
            )
        if self.releases > MOST_RELEASES:
            raise ValueError(
                f"schedule: has {self.releases} releases, at most {MOST_RELEASES} are served: give "
                "schedule.replan_growth (1.1 or more) or schedule.replan_every"
            )
        for name in ("replan_first", "replan_every"):
            first = getattr(self.learner, name, None)
            if first is not None and self.releases == 1 < self.users:
                raise ValueError(
                    f"schedule.{name} = {first}: must be below world.users = {self.users}, as only releases "
                    "before the last user are made"
                )
        return found

    @cached_property
    def guarantee(self) -> Guarantee:
        """Guarantee of the whole study."""
        return self.mechanism.guarantee

    @property
    def trust(self) -> str:
        """Trust model of the study: ``"joint"`` (users trust the server), ``"local"`` or ``"shuffle"``."""
        return self.mechanism.trust

    @property
    def local(self) -> bool:
        """True if users trust no party."""
        return self.trust == "local"

    @property
    def shuffled(self) -> bool:
        """True if devices send messages to a shuffler, and the server receives only sums."""
        return self.trust == "shuffle"

    @property
    def close_rule(self) -> str:
        """Rule that closes the batches of a new database, "resolved", "clock" or "all"."""
        return self.close or ("all" if self.shuffled or self.closes_after is not None else "resolved")

    def batches(self, close: str, start: float) -> ResolvedBatches | None:
        """Return the rule of a database; None for "all".

        close : the rule with which the database was begun. start : time at which it was begun.

        Raises ``ValueError`` if the rule does not fit the mechanism.
        """
        if close == "all":
            return None
        given = tuple(int(n) for n in self.times), self.users, self.in_flight_least, self.in_flight_share
        if self.every is None:
            return ResolvedBatches(*given)
        check_mechanism(self.mechanism)
        return ClockBatches(*given, start, self.every, self.answer_within)

    @property
    def times(self) -> Any:
        """Number of users before each release; the first entry is 0."""
        times = self.schedule.release_times
        return times[times < self.users]

    @property
    def releases(self) -> int:
        """Number of releases, including release 0."""
        return int(self.times.size)

    def start(self) -> Session:
        """Return a new session of the study's mechanism."""
        return session_of(self.mechanism, self.randomness)

    @cached_property
    def identity(self) -> str:
        """Hash of the study file, without ``chain``, ``service``, ``rehearsal`` and
        ``people.answer_within``, and of the source of noise, as 64 hexadecimal digits.
        """
        people = {name: one for name, one in self.table.get("people", {}).items() if name != "answer_within"}
        kept = {name: one for name, one in self.table.items() if name != "people"}
        return self._hash(kept | ({"people": people} if people else {}))

    def adopt(self, stored: str | None) -> None:
        """Keep the identity of a database that an earlier version began, which also bound ``answer_within``.

        stored : identity in the database. It changes nothing if it is of another study.
        """
        if stored is not None and stored == self._hash(self.table):
            self.__dict__["identity"] = stored

    def _hash(self, table: Mapping[str, Any]) -> str:
        kept = {name: value for name, value in table.items() if name not in _FREE}
        source: dict[str, str] = {"kind": self.randomness.kind}
        if isinstance(self.randomness, Seeded):
            source |= {"seed": str(self.randomness.seed), "run": str(self.randomness.run)}
        text = json.dumps([kept, source], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    def path(self, name: str) -> Path:
        """Return the path of the file ``name``. A relative name is taken relative to the folder of the study
        file.
        """
        return self.folder / name

    # ------------------------------------------------------------------------- dry runs
    @cached_property
    def world(self) -> Any:
        """Simulated TabularMDP or ContextWorld of a dry run.

        In a study with contexts, the environment's columns get the study's names and ranges, in their order.
        Raises ``ValueError`` if the layout, or the form or number of columns of contexts, differs from the
        study's.
        """
        if "env" not in self.rehearsal:
            raise ValueError("rehearsal.env is missing: name the environment of the simulated users")
        options = self.rehearsal.get("options", {})
        mdp: Any = registry.build("environment", self.rehearsal["env"], None, options)
        if isinstance(mdp, ContextWorld) != (self.features is not None):
            kind = "no contexts" if self.features is None else "contexts, for example action-contexts"
            raise ValueError(f"rehearsal.env = {self.rehearsal['env']!r}: must have {kind}, as the study")
        if mdp.layout != self.layout:
            raise ValueError(f"rehearsal.env: has {mdp.layout}, must be that of the study, {self.layout}")
        if self.features is None:
            return mdp
        try:
            return mdp.with_features(self.features)
        except ValueError as error:
            raise ValueError(f"rehearsal.env, rehearsal.options: [context] differs: {error}") from None

    def for_dry_run(self, users: int | None = None) -> Study:
        """Return a copy of the study for simulated users, with seeded noise. Seeded noise protects no user.

        If devices add noise to sums, they send messages only with exact noise. The copy of such a study keeps
        the study's source of noise.

        users : number of simulated users, at least 1; by default, the number in the study.

        Raises ``ValueError`` if ``users`` or ``rehearsal.seed`` is outside its range.
        """
        seed = checks.integer("rehearsal.seed", self.rehearsal.get("seed", 0), 0)
        name, table = f"{self.name} (rehearsal)"[:100], dict(self.table)
        exact = self.local and self.mechanism.stream == "local"  # type: ignore[union-attr]
        if exact:  # same source of noise as the study, so the name must change the identity
            table["name"] = name
        if users is not None:
            users = checks.integer("rehearse", users, 1)
            table["world"] = {**table.get("world", {}), "users": users}
        return replace(
            self, users=users or self.users, ledger=None, head=None, table=table, name=name, simulated=True,
            randomness=self.randomness if exact else Seeded(seed),
        )  # fmt: skip


def read_study(path: str | Path, plugins: tuple[str, ...] = ()) -> Study:
    """Read a study file.

    Parameters
    ----------
    path : str or Path
        TOML file. Relative paths in it are relative to its folder.
    plugins : tuple of str
        Names of modules to import before the file is read; these modules can register learners, privatizers
        and environments.

    Returns
    -------
    Study

    Raises
    ------
    ValueError
        If the file cannot be read, is not TOML, or contains an unknown key or an invalid value, or if a
        module cannot be imported. The message names the key or the value.
    """
    for module in plugins:
        registry.load_plugin(module)
    path = Path(path)
    return study_of(read_toml(path), path.parent)


def study_of(table: Mapping[str, Any], folder: Path = Path()) -> Study:
    """Return the study that a parsed study file describes.

    Raises ``ValueError`` in the same cases as :func:`read_study`.
    """
    known = {"name", *_TABLES, *_OPEN}
    for name, value in table.items():
        if name not in known:
            raise ValueError(f"{name!r}: is unknown; must be one of {', '.join(sorted(known))}")
        if name != "name" and not isinstance(value, Mapping):
            raise ValueError(f"{name} = {checks.said(value)}: must be a table, [{name}]")
        for key in value if name in _TABLES else ():
            if key not in _TABLES[name]:
                raise ValueError(f"{name}.{key}: is unknown; must be one of {', '.join(_TABLES[name])}")
    for name in ("name", "world", "learner", "privatizer"):
        if name not in table:
            raise ValueError(f"{name} is missing: a study must say it")
    world, people, ledger = dict(table["world"]), table.get("people", {}), table.get("ledger")
    features = _context(table.get("context"), world)
    if features is not None:
        world |= {"states": 1, "horizon": 1}
    for name in ("states", "actions", "horizon", "users"):
        if name not in world:
            raise ValueError(f"world.{name} is missing: a study must say it")
    if ledger is not None and "dataset" not in ledger:
        raise ValueError("ledger.dataset is missing: it names the population, whose releases compose")
    mask = world.get("mask")
    table = _with_pinned_prior(table, folder)
    return Study(
        name=table["name"],
        layout=Layout(world["states"], world["actions"], world["horizon"], _mask(mask)),
        users=world["users"],
        learner=_part("learner", {**_in_folder(table["learner"], folder), **_schedule(table)}),
        privatizer=_part("privatizer", table["privatizer"]),
        rewards=world.get("rewards", (0.0, 1.0)),
        stationary=world.get("stationary", False),
        features=features,
        answer_within=people.get("answer_within", 3600.0),
        closes_after=people.get("closes_after"),
        participations=people.get("participations", 1),
        separation=people.get("separation", 1),
        **{name: table["serving"][name] for name in _TABLES["serving"] if name in table.get("serving", {})},
        ledger=ledger,
        shuffler=table.get("shuffler"),
        key=table.get("service", {}).get("key", "service.key"),
        recovery=table.get("service", {}).get("recovery"),
        head=table.get("chain", {}).get("head"),
        origins=table.get("service", {}).get("origins", ()),
        rehearsal=table.get("rehearsal", {}),
        folder=folder,
        table=table,
    )


def _context(given: Any, sizes: Mapping[str, Any]) -> FeatureMap | None:
    """Return the feature map that ``[context]`` declares, or None without this table.

    sizes : table with the number of actions. Raises ``ValueError`` for values that are not allowed.
    """
    if given is None:
        return None
    for name in ("states", "horizon", "stationary", "mask"):
        if name in sizes:
            raise ValueError(f"world.{name}: must be left out with [context], contexts are instead of states")
    options = {name: value for name, value in given.items() if name != "columns"}
    if isinstance(options.get("basis"), list):
        options["basis"] = tuple(options["basis"])
    for where, table, name in (("context", given, "columns"), ("world", sizes, "actions")):
        if name not in table:
            raise ValueError(f"{where}.{name} is missing: a study with contexts must say it")
    ranges = declared_ranges(given["columns"])
    try:
        return FeatureMap(ranges, sizes["actions"], **options)
    except ValueError as error:
        raise ValueError(f"context: {error}") from None


def _with_pinned_prior(table: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """Return the table with a hash of the prior's content, which is then part of the study's identity."""
    prior = table["learner"].get("prior")
    given = dict(prior) if isinstance(prior, Mapping) else {"file": prior}
    if not isinstance(given.get("file"), str):
        return table
    digest = pinned("prior", str(folder / given["file"])).rpartition("#")[2]
    given["file"] = f"{given['file'].partition('#')[0]}#{digest}"
    return {**table, "learner": {**table["learner"], "prior": given}}


def _in_folder(learner: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the learner's options with the path of the prior relative to the working folder."""
    prior = learner.get("prior")
    if not isinstance(prior, Mapping) or not isinstance(prior.get("file"), str):
        return dict(learner)
    return {**learner, "prior": {**prior, "file": str(folder / prior["file"])}}


def _origins(origins: Any) -> tuple[str, ...]:
    """Check the origins (scheme, host and port, as browsers write them), and return them as a tuple."""
    listed = isinstance(origins, list | tuple)
    if not listed or not all(isinstance(one, str) and _ORIGIN.fullmatch(one) for one in origins):
        raise ValueError(
            f"service.origins = {checks.said(origins)}: must be a list of origins such as "
            "'https://page.example', in small letters and without a path"
        )
    return tuple(origins)


def _mask(mask: Any) -> Any:
    if mask is None:
        return None
    if not isinstance(mask, list) or not all(isinstance(row, list) for row in mask):
        raise ValueError(f"world.mask = {checks.said(mask)}: must be a list of lists of true and false")
    flat = [one for row in mask for one in row]
    if len({len(row) for row in mask}) != 1 or not all(isinstance(one, bool) for one in flat):
        raise ValueError("world.mask: must be (states, actions) values true or false")
    return np.array(mask, bool)


def _schedule(table: Mapping[str, Any]) -> Mapping[str, Any]:
    found = table.get("schedule", {})
    for name in found:
        known = ("replan_growth", "replan_every", "replan_first")
        if name not in known:
            raise ValueError(f"schedule.{name}: is unknown; must be one of {', '.join(known)}")
        if name in table["learner"]:
            raise ValueError(f"schedule.{name}: is given in [learner], too")
    return dict(found)


def _part(kind: Any, table: Mapping[str, Any]) -> Any:
    options = dict(table)
    name, preset = options.pop("name", None), options.pop("preset", None)
    if not isinstance(name, str):
        raise ValueError(f"{kind}.name is missing: see `discreet list`")
    return registry.build(kind, name, preset, options)
