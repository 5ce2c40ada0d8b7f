"""Evaluation of a policy for contexts by users whose data were not used to learn it.

The division into groups, the ledger entry and the files are as in :mod:`discreet.pipeline.judge_group`.
:mod:`discreet.learners.ope.advantage_verdict` defines the question. All visits of these users stay in memory
until the question is answered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from discreet.core import checks
from discreet.core.lifecycle import Guarded
from discreet.core.rng import Randomness
from discreet.data.context_visits import StoredVisits
from discreet.data.row_batches import Source
from discreet.data.schema import Schema
from discreet.data.user_groups import group_key, in_second_group
from discreet.learners.offline.linear_advantage import AdvantagePolicy
from discreet.learners.ope.advantage_verdict import FLOOR, AdvantageQuestion, AdvantageVerdict
from discreet.mechanisms.dataset.clipped_sum import GRID, ClippedSum
from discreet.mechanisms.privatizers.central import Central
from discreet.pipeline.context_learning import read_contexts
from discreet.reports.statement import SecondGroup

FORMAT = "discreet judgement"


class ContextJudges(Guarded):
    """Second group of users. It keeps their visits (raw data) and computes the noisy sums of their answers.

    Parameters
    ----------
    source, schema, learner, privatizer
        Arguments of :func:`discreet.pipeline.learn.learn`.
    share : float
        Expected share of users in the group, in (0, 1).
    randomness : Randomness
        Source of the noise and of the key that divides users.

    Raises
    ------
    ValueError
        If the source has no identifiers of users, or the release has no noise.
    """

    _what = "group of users"

    def __init__(
        self, source: Any, schema: Schema, learner: Any, privatizer: Any, share: float, randomness: Randomness
    ) -> None:
        super().__init__()
        self.share = checks.real("judge_share", share, 0.0, 1.0, open_low=True, open_high=True)
        if not isinstance(source, Source):
            raise ValueError("judge_share: must be left out with sums that were counted before")
        if not isinstance(privatizer, Central):
            raise ValueError(
                "judge_share: must be left out without privacy; the noise of the answer has the budget of "
                "the release"
            )
        self._schema, self._randomness, self._key = schema, randomness, group_key(randomness)
        self._held: StoredVisits | None = None
        self.users = 0

    def _drop(self) -> None:
        super()._drop()
        self._held = None

    def others(self, stored: StoredVisits) -> StoredVisits | None:
        """Keep the visits of the second group.

        Returns the visits of the other users, or None if there are none.

        stored : visits of all users.
        """
        judges = in_second_group(stored.names, self._key, self.share)
        with self._call():
            self._check_open()
            self._held, self.users = stored.of(judges), int(judges.sum())
        return None if judges.all() else stored.of(~judges)

    def public_facts(self, records: tuple[Any, ...]) -> SecondGroup:
        """Return the public facts about the group, for the ledger and the statement.

        records : records of the release of the other users. Raises ``ValueError`` if the group is empty, or
            if no sum has the same privacy loss as these records.
        """
        if not self.users:
            raise ValueError(f"judge_share = {self.share:g}: no user is in the second group; must be larger")
        (record,) = records
        query = ClippedSum.matching(record, AdvantageQuestion.SIZE)
        query.check_people(self.users)
        return SecondGroup(self.share, self.users, query.record)

    def answer(self, path: Path, schema: Schema, policy: AdvantagePolicy, facts: SecondGroup) -> list[float]:
        """Return the noisy sums of the answers, their squares and penalties, and delete the visits.

        path : release of the other users. policy : the policy that was learned from it. facts : result of
        :meth:`public_facts`.
        """
        question, query = _question(path, schema, policy), _query(facts)
        with self._call():
            self._check_open()
            held = self._held
            assert held is not None
            self._drop()  # called before the noise is drawn, so that the question is answered once
            answers = question.answers(held.visits, len(held.names), held.propensities)
            clip = question.clip(facts.users, query.multiplier)
            return query.release(question.vectors(answers, clip), clip, self._randomness).tolist()


def _query(facts: SecondGroup) -> ClippedSum:
    return ClippedSum(AdvantageQuestion.SIZE, facts.record.noise, facts.record.scales[ClippedSum.FAMILY])


def _question(path: Path, schema: Schema, policy: AdvantagePolicy) -> AdvantageQuestion:
    return AdvantageQuestion(policy, read_contexts(path, schema), schema.horizon)


def write_context_judgement(
    folder: Path, release: Path, schema: Schema, policy: AdvantagePolicy, facts: SecondGroup,
    sums: list[float], level: float, synthetic: bool, names: tuple[str, str],
) -> AdvantageVerdict:  # fmt: skip
    """Write ``judgement.json`` and ``judgement.md`` into a folder.

    The arguments are the same as for :func:`discreet.pipeline.judge_group.write_judgement`, and the names of
    the two files. Returns the verdict, in the units of the return.
    """
    question, query = _question(release, schema, policy), _query(facts)
    assert schema.context is not None
    clip = question.clip(facts.users, query.multiplier)
    logged = schema.context.propensity is not None
    found = question.read(np.array(sums), clip, facts.users, query.std, level, logged)
    least, most = schema.returns.bounds(schema.horizon)
    unit = most - least
    scaled = {name: unit * getattr(found, name) for name in ("estimate", "low", "high", "deviation")}
    document = {
        "format": FORMAT,
        "version": 1,
        "kind": "contexts",
        "dataset": schema.dataset,
        "share": facts.share,
        "users": facts.users,
        "steps": schema.horizon,
        "logged_probabilities": logged,
        "level": level,
        "sums": sums,
        "clip": unit * clip,
        "noise": query.noise,
        "scale": query.scale,
        "grid": GRID,
        **scaled,
        "parts": {name: unit * getattr(found, name) for name in ("sampling", "noise", "model", "beyond")},
        "shown": found.shown,
    }
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    (folder / names[0]).write_text(text, "utf-8", newline="")
    (folder / names[1]).write_text(_page(document, schema, synthetic), "utf-8", newline="")
    return found


def context_verdict(document: Mapping[str, Any], unit: str) -> str:
    """Return the first sentence about a judgement.

    document : content of ``judgement.json``. unit : unit of the population, for example "patient".
    """
    low, high = (f"{document[name]:+.3g}" for name in ("low", "high"))
    numbers = (
        f"if one decision in {document['steps']} followed the policy, the return would change by "
        f"{document['estimate']:+.3g} ({100 * document['level']:g} % interval {low} to {high})."
    )
    if document["shown"] or document["high"] < 0.0:
        condition = (
            f"If every action of the policy has a probability of at least {FLOOR:g} in such contexts"
            if document["logged_probabilities"]
            else f"If nothing but the columns influenced both what {unit}s got and how it ended, every "
            f"action of the policy has a probability of at least {FLOOR:g} in such contexts, and the "
            "models of outcomes and of actions are both right"
        )
        found = "better" if document["shown"] else "worse"
        return f"{condition}, one decision by the policy is {found} than what {unit}s did: {numbers}"
    return f"No gain is shown: {numbers} The interval includes 0."


def _page(document: Mapping[str, Any], schema: Schema, synthetic: bool) -> str:
    unit, parts = schema.unit, document["parts"]
    first = "**SYNTHETIC DATA: this page is about nobody.** " if synthetic else ""
    logged = document["logged_probabilities"]
    causes = (
        "Probabilities of actions were logged in the data. The verdict rests on these numbers."
        if logged
        else "No cause that was not recorded influenced both actions and outcomes. This cannot be tested "
        "with these data: the consistency test of decision-points needs states. Probabilities of actions "
        "were estimated from the release; the interval is wider for the expected errors of the two models."
    )
    lines = [
        f"# The policy, judged by others: {schema.dataset}",
        "",
        f"{first}**{context_verdict(document, unit)}**",
        "",
        f"- Who judged: {document['users']:,} {unit}s whose records had no part in learning the policy. A "
        "keyed hash of the identifier chose them before anything was counted.",
        "- The gain: the decision of one step, drawn in advance, follows the policy, and all others stay as "
        "they were. Following the policy always can gain more or less than the sum of such changes.",
        f"- Standard deviation {document['deviation']:.3g}: {parts['sampling']:.3g} from the number of "
        f"{unit}s, {parts['noise']:.3g} from the noise, and {parts['model']:.3g} from the models.",
        f"- What was released of them: noisy sums of answers, of their squares, and of a penalty for long "
        f"answers. Answers are cut to at most {document['clip']:.3g} in size. {parts['beyond']:.3g} is added "
        "to the standard deviation for what is cut off.",
        f"- Condition: {causes}",
        f"- Condition: every action that the policy takes had a probability of at least {FLOOR:g} in such "
        "contexts. Lower probabilities count as this number, and the interval does not allow for that.",
    ]
    return "\n".join(lines) + "\n"
