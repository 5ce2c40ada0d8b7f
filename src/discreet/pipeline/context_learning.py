"""Release and planning of LinearAdvantage in ``discreet learn``. There is one noisy sum over visits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from discreet.accounting.randomized_response_event import composable_from_dict
from discreet.core import checks
from discreet.core.guarantee import MechanismRecord
from discreet.core.rng import Randomness
from discreet.data.context_visits import StoredVisits
from discreet.data.row_batches import Progress
from discreet.data.schema import Schema
from discreet.learners.offline.linear_advantage import LinearAdvantage
from discreet.learners.offline.release_files import CONTEXTS, ReleaseFacts, read_tables, write_tables
from discreet.mechanisms.linear.context_sums import GRAM_FAMILY, RESPONSE_FAMILY, ContextRelease, ContextSums
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy
from discreet.reports.context_report import ContextReport


class ContextLearning:
    """Release and planning of :class:`~discreet.learners.offline.linear_advantage.LinearAdvantage`.

    schema : schema with contexts. learner : LinearAdvantage. planned : class of the result, whose arguments
        are the policy and the report.

    Raises ``ValueError`` if the schema has no contexts or allows several episodes for each user.
    """

    progress: Progress | None = None

    def __init__(self, schema: Schema, learner: LinearAdvantage, planned: Callable[..., Any]) -> None:
        if schema.context is None:
            raise ValueError(
                "schema: must have [context.columns] for linear-advantage, which reads real-valued contexts"
            )
        if schema.episodes_per_user != 1 or schema.contribute != "error":
            raise ValueError(
                f"episodes_per_user = {schema.episodes_per_user}, contribute = {schema.contribute!r}: must "
                "be 1 and 'error' with [context]"
            )
        self.schema, self.learner, self.features = schema, learner, schema.context.features
        self.layout, self.asked, self._planned = schema.layout, CONTEXTS, planned

    def say(self, what: str, done: int = 0, total: int | None = None) -> None:
        """Report that a stage begins, or that ``done`` of ``total`` parts of it are finished."""
        if self.progress is not None:
            self.progress(what, done, total)

    @property
    def query(self) -> Any:
        """Not supported: reading it raises ``ValueError``, because visits are not counted in parts."""
        raise ValueError("learner = linear-advantage: must be given all rows, and cannot be counted in parts")

    def to_records(self, people: Any, group: Any = None) -> Any:
        """Raise ``ValueError``, because visits are not counted in parts. ``people``, group : not used."""
        return self.query

    def check(self, settings: Any) -> None:
        """Raise ``ValueError`` for settings that this learner does not support."""
        if settings.compare:
            raise ValueError(
                "compare: must be left out for linear-advantage, rules are compared with decision-points"
            )
        if settings.unsupported != "abstain":
            raise ValueError(
                f"unsupported = {settings.unsupported!r}: must be left out for linear-advantage, whose "
                "policy acts in every context"
            )
        if settings.return_bound is not None:
            raise ValueError(
                f"return_bound = {settings.return_bound:g}: must stand in the schema (return_bound = ...) "
                "for linear-advantage"
            )

    def start(self, privatizer: Any, randomness: Randomness) -> ContextSums:
        """Return the session to which visits are submitted, and which makes the release."""
        return self.learner.open(self.features, privatizer or NoPrivacy(), randomness)

    def submit(self, session: ContextSums, stored: StoredVisits, judges: Any = None) -> None:
        """Submit at most m visits of each user outside the second group.

        stored : visits of all users. judges : second group of users, who evaluate the policy, or None.
        """
        mine = stored if judges is None else judges.others(stored)
        if mine is not None:
            session.submit_many(mine.some(session.visits, session.randomness), len(mine.names))

    def room(self, session: ContextSums) -> int:
        """Return an upper bound on the size of the folder in bytes."""
        blocks, p = self.features.blocks, self.features.dimension
        cells = blocks * p * (p + 1)
        return 2**21 + 100 * cells + 100 * blocks * p

    def release(self, session: ContextSums, path: Path, facts: Mapping[str, Any], settings: Any) -> Any:
        """Write the noisy sums of the session to a file, and plan from this file."""
        self.say("draw noise and write")
        found = session.release()
        tables = [(f"gram {a}", 0, found.gram[a]) for a in range(self.features.blocks)]
        tables += [(f"response {a}", 0, found.response[a]) for a in range(self.features.blocks)]
        bounds = {"bound": 1.0, "l1": math.sqrt(self.features.dimension), "nonneg": False}
        query = {**CONTEXTS, "visits": found.visits, "features": bounds, "map": self.features.to_dict()}
        write_tables(path, tables, ReleaseFacts(**{**facts, "query": query}))
        return self.again(path, settings)

    def again(self, path: Path, settings: Any) -> Any:
        """Read the release in a file.

        Returns the policy that is planned from this release, and its report.
        """
        self.say("plan")
        release = read_contexts(path, self.schema)
        policy = self.learner.learn(release)
        report = ContextReport(policy, release, action_names(self.schema), self.schema.unit)
        return self._planned(policy, report)


def action_names(schema: Schema) -> tuple[str, ...]:
    """Return the labels of the actions of a schema, or their numbers."""
    return schema.action_labels or tuple(str(a) for a in range(schema.layout.actions))


def read_contexts(path: Path, schema: Schema) -> ContextRelease:
    """Return the sums in a release file.

    schema : schema of the run. Raises ``ValueError`` if the file does not contain the sums of this schema.
    """
    stored = read_tables(path)
    facts = stored.facts
    assert schema.context is not None
    features = schema.context.features
    if not facts.contexts or facts.query["map"] != features.to_dict():
        raise ValueError(f"{path}: must hold sums of the contexts that the schema declares")
    visits = checks.integer("visits", facts.query["visits"], 1)
    blocks, p = features.blocks, features.dimension
    gram = np.stack([stored.table(f"gram {a}", 0) for a in range(blocks)])
    response = np.stack([stored.table(f"response {a}", 0) for a in range(blocks)])
    if gram.shape != (blocks, p, p) or response.shape != (blocks, p):
        raise ValueError(f"{path}: tables have other shapes than the features")
    scales = [0.0, 0.0]
    if facts.records:
        (record,) = composable_from_dict(facts.records)
        assert isinstance(record, MechanismRecord)
        spread = math.sqrt(2.0) if record.norm == "l1" else 1.0
        scales = [spread * record.scales[name] for name in (GRAM_FAMILY, RESPONSE_FAMILY)]
    return ContextRelease(features, visits, facts.users, gram, response, *scales)
