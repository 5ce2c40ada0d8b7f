"""SCHEMA.toml: all public facts about trajectory files, written by hand before the data are read.

All facts in this file are declarations, and the noise depends on them. The sizes determine the cells that get
noise, the horizon and the episodes per user determine the sensitivity, and the range of rewards determines
the noise scale. The origin of each declaration must also be declared (``[provenance]``). A fact with the
origin ``"this data"`` reveals private information without noise, and the privacy statement reports it. The
origin ``"private release"`` means that the fact was computed from this data by a release in the ledger
(:mod:`discreet.pipeline.state_codebook`). This module does not read any rows of users. ::

    dataset = "icu-2024"            # name of the population, which is the key of its entries in a ledger
    horizon = 20
    unit = "patient"                # word for one user, the unit of privacy

    user_column = "patient_id"      # also episode_, step_, state_, action_, reward_, next_state_column

    first_step = 0                  # or 1: number of the first step in the file

    episodes_per_user = 1           # m
    contribute = "error"            # users with more than m episodes: an error, or "random" keeps m episodes

    states = 716                    # or ["healthy", "ill"], or { count = 716 }, { labels = [...] }
    actions = { count = 25, mask = "admissible.parquet" }

    stationary = false              # true: the MDP is the same at every step, so learners can pool steps

    terminal = 713                  # or a list, or { states = [713, 714], unfinished = "terminal" }

    reward = { low = 0.0, high = 1.0, known = false }       # known = "rewards.npy"

    # or { outcomes = { home = 1.0, dead = 0.0 } }: rewards for reaching these terminal states

    # censored = "transferred"      # only with outcomes: terminal state of users with an unknown outcome

    return_bound = 1.0              # or [-1.0, 1.0]: range of the return, if narrower than H rewards allow
    features = "one-hot"            # or { file = "phi.npy", bound = 1.0 }

    [provenance]
    states = "literature"           # "protocol", "literature", "other data", "private release", "this data"

    [groups]                        # optional: public groups of users, for decision points only

    column = "sex"                  # column with the label of the user's group, the same in all their rows
    labels = ["female", "male", "other"]                    # at most 12

    [context]                       # optional: real-valued contexts instead of states (linear-advantage)

    basis = "linear"                # optional, also radius: see discreet.device.feature_map

    propensity = "chance"           # optional: column with the probability of the action

    [context.columns]               # columns with their public ranges, from outside knowledge

    age = { range = [18, 90] }

    [declared]                      # optional lines for the data protection officer's page

    controller = "..."              # also contact, purpose, legal_basis, recipients, retention, columns

    region = "..."                  # this line and all of REGISTRY_LINES: for `discreet registry`

A schema with contexts declares no states, terminal states, outcomes, masks or known rewards. It has one state
while an episode lasts and one after its end, and ``[provenance]`` can have the fact ``context``.

Files named in a schema are public and are in the folder of the schema. A mask is a ``.npy`` array (S, A) of
bool, or a table (``.parquet``, ``.csv``) with columns ``state`` and ``action`` of the admissible pairs. Known
rewards are a ``.npy`` array of shape ``(S, A)`` or ``(H, S, A)``, in the data file's units, or a table with
the columns ``state``, ``action``, ``reward`` and optionally ``step``. Features are a ``.npy`` array (S, A,
d). ``reward.scaled = true`` declares that the file of known rewards contains rewards in [0, 1].
:func:`write_schema` writes such files, so that no reward is rounded. With ``reward.outcomes``, the data file
needs no column of rewards, and ``low`` and ``high`` are derived from the outcomes if they are not given.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.layout import Layout
from discreet.core.releases import Floats, Ints
from discreet.core.short_repr import brief
from discreet.mechanisms.features import FeatureMap, declared_ranges
from discreet.mechanisms.interfaces import ProblemSpec, ReturnBounds

Made = TypeVar("Made")

PROVENANCES = ("protocol", "literature", "other data", "private release", "this data")
FACTS = (
    "states", "actions", "mask", "horizon", "episodes_per_user", "stationary", "terminal", "reward",
    "features",
)  # fmt: skip
ALL_FACTS = (*FACTS, "groups", "context")  # includes the facts about optional columns
_NOT_OF_CONTEXTS = ("states", "mask", "stationary", "terminal", "features")
DECLARED = ("controller", "contact", "purpose", "legal_basis", "recipients", "retention", "columns")
"""Keys that can be declared for the page of a data protection officer. Each has one line of text."""
REGISTRY_LINES = ("region", "sector", "actors", "plan", "tuning", "justification", "authors", "sources")
"""Keys that can be declared for the record of a deployment registry. Each has one line of text."""
SECTORS = ("Technology", "Healthcare", "Education", "Government", "Energy", "Finance")
"""Values of the declared sector: those of the registry's schema."""
_LARGEST = 2**31 - 1
_LONGEST = 500  # largest number of characters in a declared line
MOST_GROUPS = 12


@dataclass(frozen=True)
class Columns:
    """Names of the seven columns in the data file."""

    user: str = "user"
    episode: str = "episode"
    step: str = "step"
    state: str = "state"
    action: str = "action"
    reward: str = "reward"
    next_state: str = "next_state"

    def __post_init__(self) -> None:
        names = [getattr(self, part.name) for part in fields(self)]
        for part, name in zip(fields(self), names, strict=True):
            text_of(f"{part.name}_column", name)
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"column {twice[0]!r} is named twice: every column must have its own name")


@dataclass(frozen=True)
class Groups:
    """Public groups of users. Every user belongs to exactly one group.

    ``column`` is the name of the column in the file. ``labels`` are the labels of the groups, at most 12. All
    labels are public. The group of a single user is private.

    Raises ``ValueError`` if a label is repeated or is not a string of one line, or if the number of labels is
    not 1 to 12.
    """

    column: str
    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        text_of("groups.column", self.column)
        put = tuple(text_of("groups.labels", label) for label in self.labels)
        object.__setattr__(self, "labels", put)
        if not 1 <= len(put) <= MOST_GROUPS:
            raise ValueError(f"groups.labels has {len(put)} entries: must have 1 to {MOST_GROUPS}")
        twice = sorted({label for label in put if put.count(label) > 1})
        if twice:
            raise ValueError(f"groups.labels holds {twice[0]!r} twice: labels must differ")


@dataclass(frozen=True)
class Contexts:
    """Public declaration of real-valued contexts.

    ``features`` is the public feature map, whose columns are names in the file. ``propensity`` is the name of
    the column with the probability of the action that was taken, or None.

    Raises ``ValueError`` if ``propensity`` is not a text of one line or is a column of the feature map.
    """

    features: FeatureMap
    propensity: str | None = None

    def __post_init__(self) -> None:
        checks.exactly("context.features", self.features, FeatureMap)
        for name in self.features.columns:
            text_of("context.columns", name)
        if self.propensity is not None and text_of("context.propensity", self.propensity) in self.columns:
            raise ValueError(f"context.propensity = {self.propensity!r}: must not be a context column")

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns with contexts."""
        return self.features.columns

    @property
    def read(self) -> tuple[str, ...]:
        """Names of the columns that are read only for schemas with contexts."""
        return (*self.columns, *(() if self.propensity is None else (self.propensity,)))

    def to_dict(self) -> dict[str, Any]:
        """Return the declaration as plain values."""
        return {"features": self.features.to_dict(), "propensity": self.propensity}


@dataclass(frozen=True, eq=False)
class Schema:
    """Public facts about a data set of trajectories. They are checked, and the arrays in files are loaded.

    Parameters
    ----------
    dataset, unit : str
        Name of the population, which is the key of its ledger entries, and the word for one user, such as
        "patient".
    layout : Layout
        S, A, H and the mask of admissible actions.
    columns : Columns
    first_step : 0 or 1
        The number of an episode's first step in the file.
    episodes_per_user, contribute : int >= 1, "error" or "random"
        At most m episodes of each user count. If a user has more episodes, the file is rejected ("error"), or
        m of the episodes are chosen at random ("random").
    state_labels, action_labels : tuple of str, optional
        Texts in the file for the indices 0, 1, ..; None if the file contains indices.
    stationary : bool
        True if the MDP's transitions and rewards are the same at every step, so that learners are allowed to
        pool the steps.
    terminal : tuple of int
        Absorbing states. An episode that reaches a terminal state before step H stays in it for the remaining
        steps, with the first admissible action and reward 0. If the last next state of an episode is empty,
        the episode ends in the first terminal state.
    unfinished : "error" or "terminal"
        Treatment of an episode that ends early in a non-terminal state. Either it is an error, or its last
        next state is replaced by the first terminal state.
    low, high : float
        The range of rewards in the file. Learners use (r - low) / (high - low).
    outcomes : mapping of terminal states to float, optional
        Reward for reaching each of these states, in the file's units. There are no other rewards, and the
        rewards in the file are not read.
    return_bound : (float, float), optional
        The smallest and the largest return of an episode, in the file's units; returns outside this range are
        clipped. If None, it is the range that the rewards of H steps, or the outcomes, allow.
    censored : int, optional
        The terminal state of episodes whose outcome is unknown. In a release, the return of such an episode
        is the middle between the smallest and the largest return. A gain is computed both for the worst and
        for the best return. ``outcomes`` is required and must not name this state. Only decision points
        support censored ends.
    known : (1 or H, S, A) float64, optional
        Known mean rewards, scaled to [0, 1]. If they are given, the rewards in the file are not read.
    features, feature_bound : (S, A, d) float64, optional; float
        None for one-hot features. The l2 norm of each feature vector is at most the bound.
    provenance : mapping of each fact to its origin
    declared : mapping of :data:`DECLARED` and :data:`REGISTRY_LINES` to one line of text each
        Texts for the page of a data protection officer and for a registry, which are printed unchanged.
    groups : Groups, optional
        Public groups of users, for decision points. The outcome and the gain are reported for each group.
    context : Contexts, optional
        Real-valued contexts instead of states, for :class:`~discreet.learners.LinearAdvantage`.

    Raises
    ------
    ValueError
        If a value is not allowed. The message states the key, its value, and the accepted values.
    """

    __repr__ = brief

    dataset: str
    unit: str
    layout: Layout
    columns: Columns = field(default_factory=Columns)
    first_step: int = 0
    episodes_per_user: int = 1
    contribute: Literal["error", "random"] = "error"
    state_labels: tuple[str, ...] | None = None
    action_labels: tuple[str, ...] | None = None
    stationary: bool = False
    terminal: tuple[int, ...] = ()
    unfinished: Literal["error", "terminal"] = "error"
    low: float = 0.0
    high: float = 1.0
    known: Floats | None = None
    features: Floats | None = None
    feature_bound: float = 1.0
    provenance: Mapping[str, str] = field(default_factory=dict)
    outcomes: Mapping[int, float] | None = None
    return_bound: tuple[float, float] | None = None
    declared: Mapping[str, str] = field(default_factory=dict)
    groups: Groups | None = None
    censored: int | None = None
    context: Contexts | None = None

    def __post_init__(self) -> None:
        text_of("dataset", self.dataset)
        text_of("unit", self.unit)
        checks.integer("first_step", self.first_step, 0, 1)
        checks.integer("episodes_per_user", self.episodes_per_user, 1, _LARGEST)
        checks.choice("contribute", self.contribute, ("error", "random"))
        checks.flag("stationary", self.stationary)
        checks.choice("terminal.unfinished", self.unfinished, ("error", "terminal"))
        for name, labels, size in (
            ("states", self.state_labels, self.layout.states),
            ("actions", self.action_labels, self.layout.actions),
        ):
            if labels is not None and len(labels) != size:
                raise ValueError(f"{name}.labels has {len(labels)} entries: must be {size}")
        for state in self.terminal:
            checks.integer("terminal", state, 0, self.layout.states - 1)
        if len(set(self.terminal)) < len(self.terminal):
            raise ValueError(f"terminal = {list(self.terminal)}: must not name a state twice")
        if self.unfinished == "terminal" and not self.terminal:
            raise ValueError("terminal.unfinished = 'terminal': needs a terminal state")
        low, high = checks.real("reward.low", self.low), checks.real("reward.high", self.high)
        if not low < high or not np.isfinite(high - low):
            raise ValueError(
                f"reward.high = {high!r}: must be above reward.low = {low!r}, by a finite number"
            )
        if self.terminal and self.known is None and not low <= 0 <= high:
            raise ValueError(
                f"reward.low = {low!r}, reward.high = {high!r}: must enclose 0 where a terminal state is "
                "declared, since it pays 0"
            )
        if self.outcomes is not None and self.known is not None:
            raise ValueError("reward.outcomes: must not be given together with known rewards")
        if self.outcomes is not None and not all(low <= x <= high for x in self.outcomes.values()):
            raise ValueError(f"reward.outcomes: must be in [{low!r}, {high!r}]")
        if self.censored is not None:
            self._check_censored(self.censored)
        self.returns.bounds(self.horizon)
        if self.groups is not None and self.groups.column in vars(self.columns).values():
            raise ValueError(
                f"groups.column = {self.groups.column!r}: must be a column that is not named already"
            )
        if self.context is not None:
            self._check_context(self.context)
        self._check_arrays()
        known = {"groups": self.groups is not None, "context": self.context is not None}
        for fact, source in self.provenance.items():
            checks.choice("provenance key", fact, [one for one in ALL_FACTS if known.get(one, True)])
            checks.choice(f"provenance.{fact}", source, PROVENANCES)
        for name, said in self.declared.items():
            checks.choice("declared key", name, (*DECLARED, *REGISTRY_LINES))
            if len(text_of(f"declared.{name}", said)) > _LONGEST:
                raise ValueError(f"declared.{name} has {len(said)} characters: must have at most {_LONGEST}")
        if "sector" in self.declared:
            checks.choice("declared.sector", self.declared["sector"], SECTORS)

    def _check_censored(self, state: int) -> None:
        if state not in self.terminal:
            raise ValueError(f"censored = {checks.said(state)}: must be a terminal state")
        if self.outcomes is None:
            raise ValueError(
                "censored: must be given with reward.outcomes; the return of censored users is bounded only "
                "if a rule gives rewards at ends of episodes only"
            )
        if state in self.outcomes:
            raise ValueError("reward.outcomes: must not name the censored state, whose outcome is unknown")

    def _check_context(self, context: Contexts) -> None:
        """Raise ``ValueError`` if the other facts are not allowed in a schema with contexts."""
        named = (*vars(self.columns).values(), *(() if self.groups is None else (self.groups.column,)))
        for name in context.read:
            if name in named:
                raise ValueError(f"context: column {name!r} is named already, must be another column")
        if context.features.actions != self.layout.actions:
            raise ValueError(
                f"context.features has {context.features.actions} actions: must have {self.layout.actions}"
            )
        own = (self.layout.states, self.layout.mask, self.state_labels, self.terminal, self.unfinished)
        if own != (2, None, None, (1,), "terminal"):
            raise ValueError(
                "context: must be given without states, terminal states and a mask of actions; contexts are "
                "instead of states"
            )
        for name in ("outcomes", "known", "censored", "groups", "features"):
            if getattr(self, name) is not None:
                raise ValueError(f"context: must be given without {name}")

    def _check_arrays(self) -> None:
        """Check the shapes and ranges of known rewards and features, and store read-only copies.

        Known rewards of inadmissible pairs are set to 0.
        """
        shape = (self.layout.states, self.layout.actions)
        if self.known is not None:
            slots = len(self.known) if np.ndim(self.known) == 3 and len(self.known) == self.horizon else 1
            known = checks.floats("known", self.known, (slots, *shape))
            if self.layout.mask is not None:
                known[:, ~self.layout.mask] = 0.0
            if not ((known >= 0) & (known <= 1)).all():
                raise ValueError("known: rewards must be scaled to [0, 1]")
            known.flags.writeable = False
            object.__setattr__(self, "known", known)
        bound = checks.positive("feature_bound", self.feature_bound)
        if self.features is not None:
            size = np.shape(self.features)[-1] if np.ndim(self.features) == 3 else 0
            features = checks.floats("features", self.features, (*shape, size))
            largest = float(np.linalg.norm(features, axis=2).max(initial=0.0))
            if largest > bound * (1 + 1e-12):
                raise ValueError(
                    f"features.bound = {bound!r}: must be at least {largest!r}, the norm of a feature vector"
                )
            features.flags.writeable = False
            object.__setattr__(self, "features", features)

    @property
    def horizon(self) -> int:
        """H, the number of steps of an episode."""
        return self.layout.horizon

    @cached_property
    def returns(self) -> ReturnBounds:
        """Definition of the return of an episode and its bounds, in the file's units."""
        least, most = self.return_bound or (None, None)
        return ReturnBounds(self.low, self.high, self.terminal, self.outcomes, least, most, self.censored)

    @property
    def named(self) -> PublicTableReader:
        """Reader of public tables that use the labels of this schema."""
        layout = self.layout
        return PublicTableReader(
            layout.horizon, layout.states, layout.actions, self.state_labels, self.action_labels
        )

    def spec(self, users: int | None = None) -> ProblemSpec:
        """Return the facts that a learner receives.

        These are the layout, ``users`` (the number of users), a flag for stationary MDPs, the known rewards,
        the definition of returns, and the number of groups.
        """
        known = self.known
        if known is not None:
            known = np.broadcast_to(known, (self.horizon, *known.shape[1:]))
        groups = 1 if self.groups is None else len(self.groups.labels)
        return ProblemSpec(self.layout, users, self.stationary, known, returns=self.returns, groups=groups)

    @property
    def reads_rewards(self) -> bool:
        """True if rewards are read from the file.

        Otherwise, rewards are known, or the terminal state determines them.
        """
        return self.known is None and self.outcomes is None

    @property
    def from_this_data(self) -> tuple[str, ...]:
        """Facts that were taken from the private data.

        Each such fact reveals private information, and the statement must report it.
        """
        return tuple(fact for fact in ALL_FACTS if self.provenance.get(fact) == "this data")

    @property
    def unstated(self) -> tuple[str, ...]:
        """Facts that are used but have no stated provenance."""
        used = {
            "context": self.context is not None,
            "mask": self.layout.mask is not None,
            "stationary": self.stationary,
            "terminal": bool(self.terminal),
            "features": self.features is not None,
            "groups": self.groups is not None,
        }
        if self.context is not None:
            used |= dict.fromkeys(_NOT_OF_CONTEXTS, False)
        return tuple(fact for fact in ALL_FACTS if used.get(fact, True) and fact not in self.provenance)

    @cached_property
    def hash(self) -> str:
        """SHA-256 hash of all facts: ``sha256:`` and 64 hexadecimal digits.

        The hash covers the content of the named files, but not the formatting and comments of the TOML file.
        """
        plain: dict[str, Any] = {
            part.name: getattr(self, part.name)
            for part in fields(self)
            if part.name
            not in ("layout", "columns", "provenance", "known", "features", "declared", "groups", "context")
        }
        plain |= {
            "version": 1,
            "horizon": self.layout.horizon,
            "states": self.layout.states,
            "actions": self.layout.actions,
            "columns": {part.name: getattr(self.columns, part.name) for part in fields(self.columns)},
            "provenance": dict(self.provenance),
            "low": float(self.low).hex(),
            "high": float(self.high).hex(),
            "feature_bound": float(self.feature_bound).hex(),
            "mask": _digest(self.layout.mask),
            "known": _digest(self.known),
            "features": _digest(self.features),
        }
        # keys that are absent are omitted, so that the hash of a schema without these keys does not change
        for name in ("outcomes", "return_bound", "censored"):
            if plain[name] is None:
                del plain[name]
        if self.declared:
            plain["declared"] = dict(self.declared)
        if self.groups is not None:
            plain["groups"] = {"column": self.groups.column, "labels": self.groups.labels}
        if self.context is not None:
            plain["context"] = self.context.to_dict()
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _digest(array: NDArray[Any] | None) -> str | None:
    """Return the SHA-256 digest of an array's shape, type and content, independent of the byte order."""
    if array is None:
        return None
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return hashlib.sha256(f"{array.shape}{little.dtype.str}".encode() + little.tobytes()).hexdigest()


def read_schema(path: str | Path) -> Schema:
    """Read and check the schema file ``path`` and the files in the same folder that it names.

    Raises
    ------
    ValueError
        If the file is not TOML, or if a key is unknown, is missing, or has a value that is not allowed.
    """
    return read_toml(path, lambda content, folder, _: parse_schema(content, folder))


def read_toml(path: str | Path, parse: Callable[[dict[str, Any], Path, str], Made]) -> Made:
    """Read a TOML file, and return the result of ``parse(content, folder, text)``.

    The message of a ``ValueError`` starts with the path of the file.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"schema = {str(path)!r}: no such file")
    try:
        text = path.read_text("utf-8")
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not a TOML file ({error})") from None
    try:
        return parse(content, path.parent, text)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def read_rewards(path: str | Path, schema: Schema) -> Floats:
    """Read known mean rewards from a file in the format of ``reward.known``.

    Returns a (1 or H, S, A) array of rewards scaled to [0, 1]. Raises ``ValueError`` if the file cannot be
    read, or if a reward is missing or outside the schema's range.
    """
    layout, path = schema.layout, Path(path)
    if not path.is_file():
        raise ValueError(f"rewards = {str(path)!r}: must be a file")
    named = schema.named
    return named.rewards(path, layout, schema.low, schema.high)


def write_schema(schema: Schema, path: str | Path) -> None:
    """Write a schema to the TOML file ``path``.

    The mask, known rewards and features are written to ``.npy`` files in the same folder. Their names begin
    with the name of the schema file. :func:`read_schema` then returns the same facts, with the same hash.
    Raises ``OSError`` if the folder cannot be written.
    """
    path = Path(path)

    def array(what: str, values: NDArray[Any]) -> str:
        name = f"{path.stem}.{what}.npy"
        np.save(path.with_name(name), values)
        return quoted(name)

    layout = schema.layout
    states = _state_names(schema)
    actions = _sizes(layout.actions, schema.action_labels)
    if layout.mask is not None:
        actions += f", mask = {array('admissible', layout.mask)}"
    reward = f"low = {float(schema.low)!r}, high = {float(schema.high)!r}"
    if schema.known is not None:
        known = schema.known if len(schema.known) > 1 else schema.known[0]
        reward += f", known = {array('rewards', known)}, scaled = true"
    if schema.outcomes is not None:
        paid = (
            f"{quoted(str(states[state]))} = {float(earned)!r}" for state, earned in schema.outcomes.items()
        )
        reward += f", outcomes = {{ {', '.join(paid)} }}"
    lines = [
        f"dataset = {quoted(schema.dataset)}",
        f"horizon = {layout.horizon}",
        f"unit = {quoted(schema.unit)}",
        *(f"{key} = {quoted(getattr(schema.columns, part))}" for key, part in _COLUMN_KEYS.items()),
        f"first_step = {schema.first_step}",
        f"episodes_per_user = {schema.episodes_per_user}",
        f"contribute = {quoted(schema.contribute)}",
        *_facts_of_states(schema),
        f"actions = {{ {actions} }}",
        f"reward = {{ {reward} }}",
    ]
    if schema.terminal and schema.context is None:
        ends = json.dumps([states[state] for state in schema.terminal], ensure_ascii=False)
        lines.append(f"terminal = {{ states = {ends}, unfinished = {quoted(schema.unfinished)} }}")
    if schema.return_bound is not None:
        lines.append(f"return_bound = [{', '.join(repr(float(end)) for end in schema.return_bound)}]")
    if schema.censored is not None:
        lines.append(f"censored = {json.dumps(states[schema.censored], ensure_ascii=False)}")
    if schema.features is not None:
        file = array("features", schema.features)
        lines.append(f"features = {{ file = {file}, bound = {float(schema.feature_bound)!r} }}")
    lines += ["", "[provenance]"]
    lines += [f"{fact} = {quoted(source)}" for fact, source in schema.provenance.items()]
    if schema.groups is not None:
        lines += ["", "[groups]", f"column = {quoted(schema.groups.column)}"]
        lines.append(f"labels = {_listed(schema.groups.labels)}")
    if schema.context is not None:
        lines += _context_lines(schema.context)
    if schema.declared:
        lines += ["", "[declared]"]
        lines += [f"{name} = {quoted(said)}" for name, said in schema.declared.items()]
    path.write_text("\n".join(lines) + "\n", "utf-8")


def _facts_of_states(schema: Schema) -> tuple[str, ...]:
    if schema.context is not None:  # these keys follow from the declaration of contexts
        return ()
    stationary = "true" if schema.stationary else "false"
    sizes = _sizes(schema.layout.states, schema.state_labels)
    return f"stationary = {stationary}", f"states = {{ {sizes} }}"


def _context_lines(context: Contexts) -> list[str]:
    features = context.features
    basis = features.basis if isinstance(features.basis, str) else list(features.basis)
    lines = ["", "[context]", f"basis = {json.dumps(basis)}", f"radius = {features.own_radius!r}"]
    if context.propensity is not None:
        lines.append(f"propensity = {quoted(context.propensity)}")
    lines += ["", "[context.columns]"]
    lines += [
        f"{quoted(name)} = {{ range = [{low!r}, {high!r}] }}" for name, (low, high) in features.ranges.items()
    ]
    return lines


def _state_names(schema: Schema) -> Sequence[str] | Sequence[int]:
    """Return the labels of the states, or their numbers if the states have no labels."""
    return range(schema.layout.states) if schema.state_labels is None else schema.state_labels


def _sizes(count: int, labels: tuple[str, ...] | None) -> str:
    return f"count = {count}" if labels is None else f"labels = {_listed(labels)}"


def quoted(text: str) -> str:
    """Return a string as a TOML string. JSON and TOML escape quotes and backslashes in the same way."""
    return json.dumps(text, ensure_ascii=False)


def _listed(values: Sequence[str] | Sequence[int]) -> str:
    return json.dumps(list(values), ensure_ascii=False)


_COLUMN_KEYS = {f"{part.name}_column": part.name for part in fields(Columns)}
_REQUIRED = ("dataset", "horizon", "unit", "states", "actions", "reward")
_OPTIONAL = (
    *_COLUMN_KEYS, "first_step", "episodes_per_user", "contribute", "stationary", "terminal", "features",
    "provenance", "return_bound", "declared", "censored", "groups", "context",
)  # fmt: skip


def parse_schema(content: Mapping[str, Any], folder: str | Path = ".") -> Schema:
    """Check the content of a TOML document, and return the schema.

    Files that the schema names are read from ``folder``.
    """
    folder = Path(folder)
    if "context" in content:
        _check_place(content)
        content = _with_context(content)
    check_keys("", content, (*_REQUIRED, *_OPTIONAL), _REQUIRED)
    horizon = checks.integer("horizon", content["horizon"], 1, _LARGEST)
    states, state_labels, _ = _names("states", content["states"], ())
    actions, action_labels, more = _names("actions", content["actions"], ("mask",))
    named = PublicTableReader(horizon, states, actions, state_labels, action_labels)
    mask = None if "mask" not in more else named.mask(_file("actions.mask", more["mask"], folder))
    layout = Layout(states, actions, horizon, mask)
    terminal, unfinished = _terminal(content.get("terminal", []), states, state_labels)
    reward = table_of("reward", content["reward"])
    outcomes = _outcomes(reward.get("outcomes"), states, state_labels)
    ends_of = () if outcomes is None else (0.0, *outcomes.values())
    check_keys(
        "reward.", reward, ("low", "high", "known", "scaled", "outcomes"), () if ends_of else ("low", "high")
    )
    low = checks.real("reward.low", reward.get("low", min(ends_of, default=0.0)))
    high = checks.real("reward.high", reward.get("high", max(ends_of, default=1.0)))
    known = reward.get("known", False)
    if known is True:
        raise ValueError("reward.known = True: must be false, or the name of the file with the known rewards")
    scaled = checks.flag("reward.scaled", reward.get("scaled", False))
    if scaled and known is False:
        raise ValueError("reward.scaled = True: must be false where no rewards are known")
    rewards = None
    if known is not False:
        if not low < high:
            raise ValueError(f"reward.high = {high!r}: must be above reward.low = {low!r}")
        ends = (0.0, 1.0) if scaled else (low, high)
        rewards = named.rewards(_file("reward.known", known, folder), layout, *ends)
    features, bound = _features(content.get("features", "one-hot"), folder, states, actions)
    return Schema(
        dataset=content["dataset"],
        unit=content["unit"],
        layout=layout,
        columns=Columns(**{_COLUMN_KEYS[key]: content[key] for key in _COLUMN_KEYS if key in content}),
        first_step=content.get("first_step", 0),
        episodes_per_user=content.get("episodes_per_user", 1),
        contribute=content.get("contribute", "error"),
        stationary=content.get("stationary", False),
        state_labels=state_labels,
        action_labels=action_labels,
        terminal=terminal,
        unfinished=unfinished,
        low=low,
        high=high,
        known=rewards,
        features=features,
        feature_bound=bound,
        provenance=dict(table_of("provenance", content.get("provenance", {}))),
        outcomes=outcomes,
        return_bound=_return_bound(content.get("return_bound")),
        censored=_censored(content.get("censored"), states, state_labels),
        declared=dict(table_of("declared", content.get("declared", {}))),
        groups=_groups(content.get("groups")),
        context=parse_context(content.get("context"), actions),
    )


def _check_place(content: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` if [context] or [context.columns] has a key of the whole schema."""
    context = content["context"]
    columns = context.get("columns") if isinstance(context, Mapping) else None
    for where, table in (("context", context), ("context.columns", columns)):
        for key, value in table.items() if isinstance(table, Mapping) else ():
            known = key in (*_REQUIRED, *_OPTIONAL) and key not in content
            if known and not (isinstance(value, Mapping) and "range" in value):
                raise ValueError(
                    f"{key}: must be written above [{where}], because TOML reads the keys below as part of it"
                )


def _with_context(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content with the states that a schema with contexts has.

    Raises ``ValueError`` if it declares states or facts about states.
    """
    for name in ("states", "terminal", "stationary", "features", "censored", "groups"):
        if name in content:
            raise ValueError(f"{name}: must be left out with [context], contexts are instead of states")
    return {**content, "states": 2, "terminal": {"states": [1], "unfinished": "terminal"}}


def parse_context(value: Any, actions: int) -> Contexts | None:
    """Return the contexts that the table ``[context]`` declares, or None if ``value`` is None.

    actions : number of actions. Raises ``ValueError`` if a key or value is not allowed.
    """
    if value is None:
        return None
    given = table_of("context", value)
    check_keys("context.", given, ("columns", "basis", "radius", "propensity"), ("columns",))
    basis = given.get("basis", "linear")
    basis = tuple(basis) if isinstance(basis, list) else basis
    ranges = declared_ranges(given["columns"])
    features = FeatureMap(ranges, actions, basis=basis, radius=given.get("radius"))
    return Contexts(features, given.get("propensity"))


def _groups(value: Any) -> Groups | None:
    if value is None:
        return None
    given = table_of("groups", value)
    check_keys("groups.", given, ("column", "labels"), ("column", "labels"))
    return Groups(given["column"], tuple(_list("groups.labels", given["labels"])))


def _outcomes(value: Any, states: int, labels: tuple[str, ...] | None) -> dict[int, float] | None:
    """Return a mapping of state indices to the rewards for reaching them, or None if not declared."""
    if value is None:
        return None
    found = {}
    for name, earned in table_of("reward.outcomes", value).items():
        if labels is None and name.isdecimal() and int(name) < states:
            state = int(name)
        elif labels is not None and name in labels:
            state = labels.index(name)
        else:
            raise ValueError(f"reward.outcomes.{name}: must be a state")
        found[state] = checks.real(f"reward.outcomes.{name}", earned)
    return found


def _return_bound(value: Any) -> tuple[float, float] | None:
    if value is None:
        return None
    ends = value if isinstance(value, list) else [0.0, value]
    if len(ends) != 2:
        raise ValueError(f"return_bound = {checks.said(value)}: must be a number, or [least, largest]")
    least, most = (checks.real("return_bound", end) for end in ends)
    if not least < most:
        raise ValueError(f"return_bound = {checks.said(value)}: the largest must be above the least")
    return least, most


def _censored(value: Any, states: int, labels: tuple[str, ...] | None) -> int | None:
    """Return the index of the terminal state for unknown outcomes; None if it is not declared."""
    if value is None:
        return None
    if labels is None:
        return checks.integer("censored", value, 0, states - 1)
    return labels.index(checks.choice("censored", value, labels))


def check_keys(where: str, given: Mapping[str, Any], allowed: Sequence[str], required: Sequence[str]) -> None:
    """Raise ``ValueError`` if a key is not allowed, or if a required key is missing."""
    for key in given:
        if key not in allowed:
            raise ValueError(f"unknown key {where}{key}: must be one of {', '.join(allowed)}")
    for key in required:
        if key not in given:
            raise ValueError(f"{where}{key} is missing: must be given")


def text_of(name: str, value: Any) -> str:
    """Check that ``value`` is a non-empty string of one line, and return it.

    Raises ``ValueError`` if it is not, or if it is "FILL IN".

    - name : key in the error message.
    """
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError(f"{name} = {checks.said(value)}: must be a text of one line, not empty")
    if value.strip() == "FILL IN":  # text of a template that was not replaced
        raise ValueError(f"{name} = {value!r}: must be filled in")
    return value


def table_of(name: str, value: Any) -> Mapping[str, Any]:
    """Check that ``value`` is a TOML table, and return it. Raises ``ValueError`` if it is not."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} = {checks.said(value)}: must be a table")
    return value


def _names(
    name: str, value: Any, extra: tuple[str, ...]
) -> tuple[int, tuple[str, ...] | None, Mapping[str, Any]]:
    """Return the number of states or actions, their labels or None, and the other keys of the table.

    ``extra`` : names of the other keys that are allowed.
    """
    more: dict[str, Any] = {}
    if isinstance(value, Mapping):
        check_keys(f"{name}.", value, ("count", "labels", *extra), ())
        if ("count" in value) == ("labels" in value):
            raise ValueError(f"{name} = {checks.said(dict(value))}: must have either count or labels")
        more = {key: value[key] for key in extra if key in value}
        value = value["count"] if "count" in value else _list(f"{name}.labels", value["labels"])
    if not isinstance(value, list):
        return checks.integer(name, value, 1, _LARGEST), None, more
    labels = tuple(text_of(f"{name}.labels", label) for label in value)
    twice = sorted({label for label in labels if labels.count(label) > 1}) if len(labels) < 2000 else []
    if twice or len(set(labels)) < len(labels):
        raise ValueError(
            f"{name}.labels holds {twice[0] if twice else 'a label'!r} twice: labels must differ"
        )
    if not labels:
        raise ValueError(f"{name}.labels = []: must have at least one label")
    return len(labels), labels, more


def _list(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{name} = {checks.said(value)}: must be a list")
    return value


def _terminal(
    value: Any, states: int, labels: tuple[str, ...] | None
) -> tuple[tuple[int, ...], Literal["error", "terminal"]]:
    unfinished = "error"
    if isinstance(value, Mapping):
        check_keys("terminal.", value, ("states", "unfinished"), ("states",))
        unfinished = checks.choice(
            "terminal.unfinished", value.get("unfinished", "error"), ("error", "terminal")
        )
        value = value["states"]
    several = value if isinstance(value, list) else [value]
    found = []
    for state in several:
        if labels is None:
            found.append(checks.integer("terminal", state, 0, states - 1))
        elif state in labels:
            found.append(labels.index(state))
        else:
            raise ValueError(f"terminal = {checks.said(state)}: must be one of the labels of states")
    return tuple(found), unfinished  # type: ignore[return-value]


def _file(name: str, value: Any, folder: Path) -> Path:
    path = folder / text_of(name, value)
    try:
        there = path.is_file()
    except OSError:  # raised if the name is longer than the operating system allows
        there = False
    if not there:
        raise ValueError(f"{name} = {checks.said(value)}: must be a file, in the folder of the schema")
    return path


def _array(name: str, path: Path) -> NDArray[Any]:
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    # MemoryError is possible because the header of a file can state any size
    except (ValueError, OSError, EOFError, MemoryError) as error:
        raise ValueError(f"{name}: {path.name} is not a .npy file of numbers ({error})") from None


def _features(value: Any, folder: Path, states: int, actions: int) -> tuple[Floats | None, float]:
    if value == "one-hot":
        return None, 1.0
    if not isinstance(value, Mapping):
        raise ValueError(
            f"features = {checks.said(value)}: must be 'one-hot', or a table with file and bound"
        )
    check_keys("features.", value, ("file", "bound"), ("file", "bound"))
    bound = checks.positive("features.bound", value["bound"])
    array = _array("features.file", _file("features.file", value["file"], folder))
    if array.ndim != 3 or array.shape[:2] != (states, actions) or not array.shape[2]:
        raise ValueError(f"features.file has shape {array.shape}: must be ({states}, {actions}, d)")
    if array.dtype.kind not in "iufb":
        raise ValueError(f"features.file holds {array.dtype}: must be real numbers")
    return checks.floats("features.file", array, array.shape), bound


@dataclass(frozen=True)
class PublicTableReader:
    """Reader of public tables with one row per pair of a state and an action.

    States and actions are given by labels if the schema has labels, and by indices otherwise.
    """

    horizon: int
    states: int
    actions: int
    state_labels: tuple[str, ...] | None
    action_labels: tuple[str, ...] | None

    def mask(self, path: Path) -> NDArray[np.bool_]:
        """Return the (S, A) mask in a file, which is True for admissible pairs."""
        if path.suffix == ".npy":
            array = _array("actions.mask", path)
            if array.shape != (self.states, self.actions) or array.dtype != bool:
                raise ValueError(
                    f"actions.mask: {path.name} holds {array.dtype} of shape {array.shape}: must be bool, "
                    f"({self.states}, {self.actions})"
                )
            return array
        table = read_public_table("actions.mask", path, ("state", "action"), ("state", "action"))
        mask = np.zeros((self.states, self.actions), bool)
        mask[self.pair("actions.mask", table)] = True
        return mask

    def rewards(self, path: Path, layout: Layout, low: float, high: float) -> Floats:
        """Return the (1 or H, S, A) rewards in a file, scaled from [low, high] to [0, 1].

        Rewards of inadmissible pairs are 0.
        """
        shape = (self.states, self.actions)
        if path.suffix == ".npy":
            array = _array("reward.known", path)
            array = array[None] if array.ndim == 2 else array
            if array.shape not in ((1, *shape), (self.horizon, *shape)) or array.dtype.kind not in "iufb":
                raise ValueError(
                    f"reward.known: {path.name} holds {array.dtype} of shape {array.shape}: must be numbers, "
                    f"{shape} or {(self.horizon, *shape)}"
                )
            table = array.astype(np.float64)
        else:
            rows = read_public_table(
                "reward.known", path, ("step", "state", "action", "reward"), ("state", "action", "reward")
            )
            table = np.full((self.horizon if "step" in rows else 1, *shape), np.nan)
            steps = self.index("reward.known", "step", rows["step"], self.horizon) if "step" in rows else 0
            if np.asarray(rows["reward"]).dtype.kind not in "iufb":
                raise ValueError(f"reward.known: column 'reward' of {path.name} must hold numbers")
            table[(steps, *self.pair("reward.known", rows))] = rows["reward"]
        admissible = np.ones(shape, bool) if layout.mask is None else layout.mask
        bad = np.argwhere(admissible & ~((table >= low) & (table <= high)))
        if bad.size:
            step, s, a = bad[0].tolist()
            raise ValueError(
                f"reward.known: reward of step {step}, state {s}, action {a} is {table[step, s, a]}: must be "
                f"given, in [{low!r}, {high!r}]"
            )
        return np.where(admissible, (table - low) / (high - low), 0.0)

    def pair(self, name: str, rows: Mapping[str, Any]) -> tuple[Ints, Ints]:
        """Return the indices of the states and the actions in all rows.

        ``name`` : name of the table in error messages.
        """
        return (
            self.index(name, "state", rows["state"], self.states, self.state_labels),
            self.index(name, "action", rows["action"], self.actions, self.action_labels),
        )

    def index(
        self, name: str, column: str, values: Any, size: int, labels: tuple[str, ...] | None = None
    ) -> Ints:
        """Convert the values of one column to indices.

        Raises ``ValueError`` if a value is not a label, or not an integer from 0 to ``size`` - 1.
        """
        array = np.asarray(values)
        if labels is not None:
            index = {label: i for i, label in enumerate(labels)}
            array = np.array([index.get(str(value), -1) for value in array.tolist()], np.int64)
            bad = np.flatnonzero(array < 0)
        elif array.dtype.kind not in "iu":
            raise ValueError(f"{name}: column {column!r} must hold integers without gaps")
        else:
            bad = np.flatnonzero((array < 0) | (array >= size))
        if bad.size:
            allowed = "one of the labels" if labels is not None else f"in [0, {size - 1}]"
            value = checks.said(np.asarray(values)[bad[0]])
            raise ValueError(f"{name}: {column} = {value} in row {bad[0]}: must be {allowed}")
        return array.astype(np.int64)


def read_public_table(
    name: str, path: Path, allowed: Sequence[str], required: Sequence[str]
) -> dict[str, NDArray[Any]]:
    """Read the columns of a small public table.

    ``name`` is the name of the table in error messages. Raises ``ValueError`` if the table cannot be read, or
    if a column is unknown, missing or duplicated.
    """
    import pyarrow as pa
    from pyarrow import csv, parquet

    readers = {".parquet": parquet.read_table, ".csv": csv.read_csv}
    if path.suffix not in readers:
        raise ValueError(f"{name} = {path.name!r}: must end in .npy, .parquet or .csv")
    try:
        table = readers[path.suffix](str(path))
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{name}: {path.name} cannot be read ({error})") from None
    names = table.column_names
    check_keys(f"{name}: column ", dict.fromkeys(names), allowed, required)
    if len(set(names)) < len(names):
        raise ValueError(f"{name}: {path.name} has a column twice: {', '.join(names)}")
    return {column: table[column].to_numpy() for column in table.column_names}
