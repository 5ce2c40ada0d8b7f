"""Files computed from a release: policy, report and figures.

:func:`write_plan` writes these files. :func:`discreet.pipeline.learn.learn` calls it after it has written
``release.parquet``. :mod:`discreet.pipeline.verify` computes the files again and compares them. The files
depend only on the release, the schema, the learner's options and :class:`LearnConfig`.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from discreet.accounting.text import guarantee_sentences as sentences
from discreet.accounting.text.sentence_templates import VERSION
from discreet.core import checks
from discreet.core.count_query import CountQuery
from discreet.core.guarantee import Guarantee
from discreet.core.layout import Layout
from discreet.core.releases import Floats, Ints
from discreet.core.rng import Randomness
from discreet.core.short_repr import brief
from discreet.core.trajectories import Trajectories
from discreet.data.row_batches import Progress
from discreet.data.schema import Schema
from discreet.learners.offline import apvi as tabular
from discreet.learners.offline import linear_pevi as linear
from discreet.learners.offline.decision_points import DecisionPoints, DecisionPolicy
from discreet.learners.offline.linear_advantage import AdvantagePolicy, LinearAdvantage
from discreet.learners.offline.linear_query_log import LinearRelease
from discreet.learners.offline.release_files import (
    FIRST_VISITS,
    ReleaseFacts,
    read_release,
    read_tables,
    write_release,
    write_tables,
)
from discreet.learners.ope.first_visit_query import FirstVisits
from discreet.learners.ope.linear_gains import LinearGain
from discreet.learners.ope.policy_comparison import policy_of, state_values
from discreet.mechanisms.dataset.dataset_release import OneShotSession
from discreet.mechanisms.linear.adaptive_queries import ResponseSession
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy
from discreet.pipeline.context_learning import ContextLearning
from discreet.pipeline.model_planner import ModelPlanner, check_outcomes
from discreet.reports.checkable_files import csv_room
from discreet.reports.context_report import ContextReport, write_context_policy
from discreet.reports.decision_report import DecisionReport, decision_report_of
from discreet.reports.earlier_report import SINCE, EarlierReport
from discreet.reports.linear_report import LinearReport
from discreet.reports.policy_files import PolicyTable, Unsupported, write_policy
from discreet.reports.policy_report import Report, make_report
from discreet.reports.report_files import (
    HTML_REPORT,
    MARKDOWN_REPORT,
    pictures_in,
    report_html,
    report_markdown,
    with_preface,
)
from discreet.reports.rule_files import StationaryRule, read_rule, rule_names
from discreet.utils.config import Knobs

Privatizer = Central | NoPrivacy
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class LearnConfig:
    """Settings of ``learn`` and ``replan`` that do not change the release.

    Parameters
    ----------
    unsupported : "abstain", "behaviour" or "policy"
        Entry in the policy files for a step and state at which too few data support the planner's action.
    level : float in (0, 1)
        Confidence level of the intervals in the report.
    return_bound : float > 0, optional
        For DPAPVI and APVI: a public upper bound on the return of an episode, with rewards in [0, 1] per
        step; by default, H. Unknown parts of the MDP are assumed to be worth at most this bound. A smaller
        bound makes the intervals in the report shorter. For DecisionPoints, the schema states the bound.
    operator, approval, purpose : str
        Lines of the statement: operator, approver and purpose of the release. The ledger also stores the
        purpose.
    synthetic : bool
        True if the data are synthetic. The statement then says this.
    synthetic_input : bool True if the data are synthetic users from the model of an earlier release
        (:mod:`discreet.pipeline.synthetic_users`). Report and statement then say that intervals describe the
        model, not real users.
    compare : tuple of StationaryRule
        Rules to which the report compares the policy (:func:`discreet.reports.rule_files.read_rule`). Only
        for DecisionPoints, and only if the schema defines rewards by outcomes.

    Raises
    ------
    ValueError
        If a value is outside its range, or a line of the statement is not text.
    """

    __repr__ = brief

    unsupported: Unsupported = "abstain"
    level: float = 0.95
    return_bound: float | None = None
    operator: str = ""
    approval: str = ""
    purpose: str = ""
    synthetic: bool = False
    synthetic_input: bool = False
    compare: tuple[StationaryRule, ...] = ()

    def __post_init__(self) -> None:
        checks.choice("unsupported", self.unsupported, ("abstain", "behaviour", "policy"))
        checks.real("level", self.level, 0.0, 1.0, open_low=True, open_high=True)
        if self.return_bound is not None:
            checks.positive("return_bound", self.return_bound)
        checks.flag("synthetic", self.synthetic)
        checks.flag("synthetic_input", self.synthetic_input)
        for name in ("operator", "approval", "purpose"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name} = {checks.said(getattr(self, name))}: must be text on one line")

    def chosen(self) -> dict[str, Any]:
        """Return the settings as they appear in the configuration of the statement."""
        return {
            "unsupported": self.unsupported, "level": self.level, "return_bound": self.return_bound,
            **({"compare": len(self.compare)} if self.compare else {}),
        }  # fmt: skip

    def write_rules(self, folder: Path) -> None:
        """Write the rules in ``compare`` into a folder, one file per rule."""
        for name, rule in zip(rule_names(len(self.compare)), self.compare, strict=True):
            (folder / name).write_text(rule.text(), "utf-8", newline="")

    @staticmethod
    def rules_in(folder: Path, options: Mapping[str, Any], schema: Schema) -> tuple[StationaryRule, ...]:
        """Return the rules to which the report in a folder compares the policy.

        options : options in the statement of the folder, which state the number of rules.
        """
        return tuple(read_rule(folder / name, schema) for name in rule_names(options.get("compare", 0)))


# ------------------------------------------------------------------------------ two kinds of sums


@dataclass(frozen=True, eq=False)
class PlannedPolicy:
    """Policy that was learned from a release, and the report on it.

    earlier : table of the policy in the format of earlier statement versions; None if ``table`` already has
        this format.
    """

    table: PolicyTable | AdvantagePolicy
    report: DecisionReport | LinearReport | Report | ContextReport
    earlier: PolicyTable | None = None


class _Told(ABC):
    """Base class of objects that define the release and the planning of a learner.

    It reports progress as (stage, number of finished parts, total).
    """

    schema: Schema
    progress: Progress | None = None

    def say(self, what: str, done: int = 0, total: int | None = None) -> None:
        """Report that a stage begins, or that ``done`` of ``total`` parts of it are finished."""
        if self.progress is not None:
            self.progress(what, done, total)

    def followed(self, what: str, parts: Iterable[T], total: int) -> Iterator[T]:
        """Yield ``parts`` unchanged, and report the progress of stage ``what`` before each part."""
        for done, part in enumerate(parts):
            self.say(what, done, total)
            yield part
        self.say(what, total, total)

    def to_records(self, people: Trajectories, group: Ints | None = None) -> Trajectories:
        """Return the episodes in the form in which the release counts them.

        - people : episodes of n users.
        - group : (n,) indices of the users' groups, if the schema has groups.
        """
        return people

    def room(self, session: Any) -> int:
        """Return an upper bound on the size of the folder in bytes.

        The bound covers the release and its text copy, policy files with a row for each step and state, pages
        and figures.
        """
        labels = max(
            map(len, (*(self.schema.state_labels or ()), *(self.schema.action_labels or ()))), default=0
        )
        rows = self.schema.horizon * self.schema.layout.states
        release = self.release_bytes(session)
        return _PAGES + 4 * rows * (64 + 2 * labels) + release + csv_room(release)

    @abstractmethod
    def release_bytes(self, session: Any) -> int:
        """Return the size in bytes of the release, which is the file with the noisy numbers."""


_PAGES = 2**21  # upper bound on the bytes of statement, pages and figures together, for any schema


class _OneRelease(_Told):
    """Base class for learners with a single query. Its sums are released once and written step by step."""

    query: CountQuery

    def start(self, privatizer: Privatizer | None, randomness: Randomness) -> OneShotSession:
        """Return the session to which users' episodes are submitted, and which makes the release."""
        return (privatizer or NoPrivacy()).stored(self.query, randomness)

    def release(
        self, session: Any, path: Path, facts: Mapping[str, Any], settings: LearnConfig
    ) -> PlannedPolicy:
        """Write the noisy sums of the session to a file, and plan from this file."""
        released = session.release()
        steps = self.followed("draw noise and write", released, released.query.slots)
        write_release(path, steps, ReleaseFacts(**facts, laws=released.laws))
        return self.again(path, settings)

    def release_bytes(self, session: Any) -> int:
        """Return an estimate of the size of the release in bytes.

        Each cell gets enough bits for the number of all visits plus 12 standard deviations of the noise, or 8
        bytes if the noise is not on a grid. The overhead of the file is half a byte per cell.
        """
        people = session.users * self.query.episodes * self.query.counted_steps
        size = 0.0
        # If the sites drew the noise, the session has no noise distributions.
        laws = getattr(session, "laws", {})
        for name, shape in self.query.row_families.items():
            law, digits = laws.get(name), 8.0
            if law is not None and law.std() and law.unit is not None:
                digits = math.log2(2.0 + (people + 12.0 * law.std()) / law.unit) / 8
            size += math.prod(shape) * (0.5 + min(8.0, digits))
        return round(size)

    @abstractmethod
    def again(self, path: Path, settings: LearnConfig) -> PlannedPolicy:
        """Read the release in a file.

        Returns the policy that is planned from this release, and its report.
        """


class _CountLearning(_OneRelease):
    """Release and planning of APVI and DP-APVI, which read one release of counts for every step."""

    def __init__(self, schema: Schema, learner: tabular.APVI | tabular.DPAPVI) -> None:
        self.schema, self.learner, self.spec = schema, learner, schema.spec()
        self.layout: Layout = schema.layout
        self.asked: Mapping[str, str] = {}
        self.query = replace(learner.query(self.spec), episodes=schema.episodes_per_user)

    def check(self, settings: LearnConfig) -> None:
        """Raise ``ValueError`` for settings that this learner does not support."""
        _check_nothing_compared(settings, self.learner)

    def start(self, privatizer: Privatizer | None, randomness: Randomness) -> OneShotSession:
        exact = privatizer is None or isinstance(privatizer, NoPrivacy)
        if exact and isinstance(self.learner, tabular.DPAPVI):
            raise ValueError(f"privatizer = {checks.said(privatizer)}: must be Central(...) for DP-APVI")
        if not exact and isinstance(self.learner, tabular.APVI):
            raise ValueError(
                f"privatizer = {checks.said(privatizer)}: must be none for APVI, which ignores noise"
            )
        return super().start(privatizer, randomness)

    def again(self, path: Path, settings: LearnConfig) -> PlannedPolicy:
        stored = read_release(path)
        if stored.facts.first_visits:
            raise ValueError(f"{path}: holds counts of first visits, for decision-points")
        self.say("plan")
        learned = self.learner.learn(stored, self.spec)
        self.say("judge the policy")
        named = {"states": self.schema.state_labels, "actions": self.schema.action_labels}
        found = make_report(
            stored, learned, self.spec, unsupported=settings.unsupported, level=settings.level,
            return_bound=settings.return_bound, episodes_per_user=stored.facts.episodes,
            first_step=self.schema.first_step,
            labels={name: labels for name, labels in named.items() if labels is not None},
        )  # fmt: skip
        table = PolicyTable.of(learned, self.schema)
        return PlannedPolicy(replace(table, values=_in_units(table.values, self.schema)), found)


_WELL_KNOWN = 0.05  # largest standard deviation of a value in policy.csv, relative to the range of returns


class _FirstVisits(_OneRelease):
    """Release and planning of DecisionPoints, which reads sums after the first visit to each state."""

    def __init__(self, schema: Schema, learner: DecisionPoints) -> None:
        self.schema, self.learner, self.spec = schema, learner, schema.spec()
        self.question = FirstVisits(self.spec, schema.episodes_per_user)
        self.layout, self.asked = self.question.layout, FIRST_VISITS
        self.query = self.question.query()

    def check(self, settings: LearnConfig) -> None:
        """Raise ``ValueError`` for settings or rewards that this learner does not support."""
        if isinstance(self.learner, ModelPlanner):
            check_outcomes(self.question)
        if settings.unsupported == "policy":
            raise ValueError(
                "unsupported = 'policy': must be 'abstain' or 'behaviour', decision points keep the "
                "behaviour policy elsewhere"
            )
        if settings.return_bound is not None:
            raise ValueError(
                f"return_bound = {settings.return_bound:g}: must stand in the schema (return_bound = ...) "
                "for decision-points, whose noise rests on it"
            )
        for rule in settings.compare:
            if self.question.returns.outcomes is None:
                raise ValueError(
                    "compare: must be left out where no rule pays rewards by the state in which an episode "
                    "ends (reward = { outcomes = ... } in the schema), transitions do not tell what a rule "
                    "earns there"
                )
            if self.question.returns.censored is not None:
                raise ValueError(
                    "compare: must be left out where ends are censored, the interval of a rule does not "
                    "allow for outcomes that are not known"
                )
            policy_of(self.question, rule.table, rule.named)

    def to_records(self, people: Trajectories, group: Ints | None = None) -> Trajectories:
        return self.question.to_records(people, group)

    def again(self, path: Path, settings: LearnConfig) -> PlannedPolicy:
        stored = read_release(path)
        if not stored.facts.first_visits:
            raise ValueError(f"{path}: holds counts per step, must be a release of first visits")
        self.say("plan and judge")
        learned = self.learner.of(stored, self.question, settings.level)
        report = decision_report_of(stored, learned, self.schema, settings.compare)
        self.say("value changed states")
        plain = PolicyTable.of(learned, self.schema)
        return PlannedPolicy(self._valued(plain, learned), report, plain)

    def _valued(self, table: PolicyTable, learned: DecisionPolicy) -> PolicyTable:
        """Return the table with values of the changed states and their intervals.

        A value is NaN if it is not known accurately enough (``_WELL_KNOWN``).
        """
        states = self.schema.layout.states
        value, low, high = np.full((3, states), np.nan)
        returns = self.question.returns
        if returns.outcomes is not None and returns.censored is None:
            found = state_values(learned.path, learned.changes, _WELL_KNOWN)
            value, low, high = (one[:states] for one in (found.value, found.low, found.high))
        shape = table.policy.shape
        value, low, high = (np.broadcast_to(one, shape) for one in (value, low, high))
        return replace(table, values=value, intervals=(low, high))


class LinearSums(_Told):
    """Release and planning of PEVI and related learners, which query sums of features while they plan."""

    def __init__(self, schema: Schema, learner: linear.Linear) -> None:
        self.schema, self.learner = schema, learner
        self.layout: Layout = schema.layout
        self.asked: Mapping[str, str] = {}
        self.known = schema.spec().known_rewards
        self.features = linear.schema_features(
            schema.layout, schema.features, schema.feature_bound,
            nonneg=schema.features is None or bool((schema.features >= 0.0).all()),
        )  # fmt: skip

    def check(self, settings: LearnConfig) -> None:
        """Raise ``ValueError`` for settings that linear learners do not support, before budget is spent."""
        _check_nothing_compared(settings, self.learner)
        if settings.unsupported == "behaviour":
            raise ValueError(
                "unsupported = 'behaviour': must be 'abstain' or 'policy' for linear learners, whose sums do "
                "not say what users did most often"
            )
        if settings.return_bound is not None:
            raise ValueError(
                f"return_bound = {settings.return_bound:g}: must be left out for {name_of(self.learner)}, "
                "whose report has no intervals"
            )

    def start(self, privatizer: Privatizer | None, randomness: Randomness) -> ResponseSession:
        if privatizer is not None:
            raise ValueError("privatizer: must be none, because linear learners contain their budget")
        return self.learner.open(
            self.schema.layout, self.features, randomness, episodes=self.schema.episodes_per_user,
            known_rewards=self.known is not None,
        )  # fmt: skip

    def release_bytes(self, session: Any) -> int:
        """Return an upper bound on the size of the release in bytes.

        Each number has 8 bytes, and a query has at most d x (d + S + 2) numbers, where d is the dimension of
        the features.
        """
        size = self.features.dimension
        return 8 * len(session.plan) * size * (size + self.layout.states + 2)

    def release(
        self, session: Any, path: Path, facts: Mapping[str, Any], settings: LearnConfig
    ) -> PlannedPolicy:
        self.say("plan, with noise")
        released, learned = self.learner.ask(session, self.known)
        write_tables(path, released.tables(), ReleaseFacts(**facts, query=released.query()))
        return self._planned(learned, settings)

    def again(self, path: Path, settings: LearnConfig) -> PlannedPolicy:
        stored = read_tables(path)
        facts = stored.facts
        self.say("plan")
        tables = {(name, h): stored.table(name, h) for name in stored.families for h in stored.steps(name)}
        released = LinearRelease.of(facts.layout, facts.users, facts.guarantee, facts.query, tables)
        return self._planned(
            linear.replan_linear(self.learner, released, self.features, self.known), settings
        )

    def _planned(self, learned: linear.LinearOfflinePolicy, settings: LearnConfig) -> PlannedPolicy:
        chosen = np.take_along_axis(learned.q, learned.policy[..., None], axis=-1)[..., 0]
        table = PolicyTable(
            policy=learned.policy, supported=learned.supported, values=_in_units(chosen, self.schema),
            state_labels=self.schema.state_labels, action_labels=self.schema.action_labels,
            first_step=self.schema.first_step,
        )  # fmt: skip
        gain = learned.gain and _gain_in_units(learned.gain, settings.level, self.schema)
        return PlannedPolicy(
            table, LinearReport(table, learned, settings.unsupported, self.learner.judged, gain)
        )


def _check_nothing_compared(settings: LearnConfig, learner: Any) -> None:
    if settings.compare:
        raise ValueError(
            f"compare: must be left out for {name_of(learner)}, rules are compared with decision-points"
        )


def _in_units(values: Floats, schema: Schema) -> Floats:
    """Convert values from scaled rewards in [0, 1] to the units of the file.

    values : (H, S) sums of scaled rewards over the remaining steps. The result is 0 in terminal states. It is
        at most the largest possible remaining return, so lower bounds stay valid.
    """
    left = np.arange(schema.horizon, 0, -1)[:, None]
    found = left * schema.low + (schema.high - schema.low) * np.asarray(values)
    if schema.outcomes is not None:
        found = np.minimum(found, max(0.0, *schema.outcomes.values()))
    # Rewards of earlier steps are not negative, so the bound on the return also bounds the remaining return.
    elif schema.return_bound is not None and schema.low >= 0.0:
        found = np.minimum(found, schema.return_bound[1])
    found[:, list(schema.terminal)] = 0.0
    return found


def _gain_in_units(gain: LinearGain, level: float, schema: Schema) -> LinearGain:
    """Return the gain in the units of the returns in the file.

    level : confidence level of the interval of the gain.
    """
    scale = schema.high - schema.low
    least, most = schema.returns.bounds(schema.horizon)
    parts = ("estimate", "noise", "sampling", "lacking", "bent", "usual_error")
    scaled = {name: scale * getattr(gain, name) for name in parts}
    usual = schema.horizon * schema.low + scale * gain.usual
    return replace(gain, usual=usual, **scaled).at(level, most - least)


Kind = _CountLearning | _FirstVisits | LinearSums | ContextLearning


def kind_of(schema: Schema, learner: Any, progress: Progress | None = None) -> Kind:
    """Return the object that defines the release and the planning of a learner.

    Raises ``ValueError`` if the learner is not supported, or does not support the schema.
    """
    made: Kind
    if schema.context is not None and not isinstance(learner, LinearAdvantage):
        raise ValueError(
            f"algorithm = {name_of(learner)!r}: must be linear-advantage with [context] in the schema"
        )
    if schema.censored is not None and not isinstance(learner, DecisionPoints):
        raise ValueError(
            f"algorithm = {name_of(learner)!r}: must be decision-points (stationary = true) with censored "
            "ends, the only one that evaluates both bounds of the unknown returns"
        )
    if isinstance(learner, linear.Linear):
        made = LinearSums(schema, learner)
    elif isinstance(learner, LinearAdvantage):
        made = ContextLearning(schema, learner, PlannedPolicy)
    elif isinstance(learner, DecisionPoints):
        made = _FirstVisits(schema, learner)
    elif not isinstance(learner, type) and hasattr(learner, "query") and hasattr(learner, "learn"):
        made = _CountLearning(schema, learner)
    else:
        raise ValueError(f"learner = {checks.said(learner)}: must be an offline learner")
    if not isinstance(made, _FirstVisits):
        refuse_groups(schema, name_of(learner))
    made.progress = progress
    return made


def refuse_groups(schema: Schema, algorithm: str) -> None:
    """Raise ``ValueError`` if the schema has groups.

    - algorithm : name of a learner that does not support groups.
    """
    if schema.groups is not None:
        raise ValueError(
            f"groups: must be left out of the schema for {algorithm}, only decision-points counts users by "
            "group"
        )


# ------------------------------------------------------------------------------ learners by name

_LEARNERS: dict[str, type[Any]] = {
    "apvi": tabular.APVI, "dp-apvi": tabular.DPAPVI, "decision-points": DecisionPoints,
    "world-model": ModelPlanner, "linear-advantage": LinearAdvantage,
    "pevi": linear.PEVI, "vapvi": linear.VAPVI, "dp-pevi": linear.DPPEVI, "dp-vapvi": linear.DPVAPVI,
}  # fmt: skip


def default_algorithm(schema: Schema) -> str:
    """Return the name of the default learner of `discreet learn` and `discreet estimate`.

    For a schema with contexts, this is ``linear-advantage``.

    If the schema says that the MDP is the same at every step, this is ``decision-points``, which makes a few
    changes of the behaviour. Otherwise it is ``dp-apvi``, which learns a policy for all states.
    """
    if schema.context is not None:
        return "linear-advantage"
    return "decision-points" if schema.stationary else "dp-apvi"


def name_of(learner: Any) -> str:
    """Return the name of the learner on the command line; without such a name, the name of the class."""
    return next((name for name, kind in _LEARNERS.items() if type(learner) is kind), type(learner).__name__)


def learner_of(algorithm: str, options: Mapping[str, Any]) -> Any:
    """Build a learner.

    - algorithm : name of the learner on the command line.
    - options : its options, as :func:`options_of` returns them.
    """
    checks.choice("algorithm", algorithm, tuple(_LEARNERS))
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    return _LEARNERS[algorithm](**given)


def options_of(knobs: Knobs) -> dict[str, Any]:
    """Return a mapping of the names of all options of a learner to their values, as JSON values."""
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in knobs.options().items()
    }


# ------------------------------------------------------------------------------ files

_MODEL = "SYNTHETIC INPUT: intervals describe the model of an earlier release, not people. For its users: "
_DRY_RUN = "DRY RUN with synthetic users: nothing is shown about real users. The report would say: "
_DRY_RUN_5 = "A REHEARSAL, these people are made up and nothing is shown of anybody. What it would say: "
"""The same words up to version 5 of statements."""


def write_plan(
    folder: Path,
    planned: PlannedPolicy,
    guarantee: Guarantee,
    settings: LearnConfig,
    *,
    replanned: bool,
    version: int = VERSION,
    drawn: Path | None = None,
) -> str:
    """Write policy, report and figures into a folder. Returns the text of the report.

    Parameters
    ----------
    replanned : True if the policy was planned again from an earlier release.
    version : version of the statement and of the report, which selects the sentences about the guarantee.
    drawn : folder whose figures the HTML report includes; by default, ``folder``.
    """
    promised = sentences.statement(guarantee, version)
    report = planned.report
    if isinstance(report, Report | DecisionReport):
        report = replace(report, guarantee=promised)
    table = planned.table
    if version < SINCE and isinstance(report, DecisionReport):
        report, table = EarlierReport.of(report), planned.earlier or table
    again = " Planned again from a release that was made before, without reading data." if replanned else ""
    if isinstance(report, ContextReport):
        write_context_policy(folder, report.policy, report.actions, promised + again)
    elif isinstance(table, PolicyTable):
        write_policy(folder, table, promised + again, settings.unsupported, version)
    blocks = report.blocks()
    if settings.synthetic:
        dry_run = _DRY_RUN if version > 5 else _DRY_RUN_5
        blocks = with_preface(blocks, _MODEL if settings.synthetic_input else dry_run)
    text = report_markdown(blocks)
    (folder / MARKDOWN_REPORT).write_text(text, "utf-8", newline="\n")
    document = json.dumps(report.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
    (folder / "report.json").write_text(document + "\n", "utf-8", newline="\n")
    figures = [Path(path) for path in report.figures(folder)]
    if version >= SINCE:  # earlier versions of the folder had no HTML report
        place = folder if drawn is None else drawn
        page = report_html(blocks, pictures_in(place / path.name for path in figures))
        (folder / HTML_REPORT).write_text(page, "utf-8", newline="\n")
    return text
