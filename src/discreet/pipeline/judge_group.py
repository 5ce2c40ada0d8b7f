"""Second group of users (``discreet learn --judge-share``), who answer one question about the learned policy.

Users are divided into two groups before anything is counted (:mod:`discreet.data.user_groups`). The release
of group A gives the policy. Group B answers one question about this policy
(:mod:`discreet.pipeline.fixed_policy`) with clipped sums (:mod:`discreet.mechanisms.dataset.clipped_sum`).
Each user is in exactly one group, so the privacy loss of a user is the loss of their group. Therefore each
group can spend the whole (epsilon, delta) (parallel composition).

Two files are written to the folder of the policy. ``judgement.json`` contains the noisy sums, C and all other
numbers. ``judgement.md`` states the estimate, its interval and whether a gain is shown. All other numbers are
computed from the noisy sums, ``release.parquet`` and the facts of the run. Therefore
:func:`discreet.pipeline.verify.verify` can compute both files again.

Group B's episodes are in memory until the question is answered. This takes about 4 bytes for each state and
each action.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.lifecycle import Guarded
from discreet.core.releases import Ints
from discreet.core.rng import Randomness
from discreet.core.trajectories import Trajectories
from discreet.data.row_batches import Source
from discreet.data.schema import Schema
from discreet.data.user_groups import group_key, in_second_group
from discreet.data.validate import Checked
from discreet.learners.offline.decision_points import DecisionPoints
from discreet.learners.offline.linear_advantage import AdvantagePolicy
from discreet.learners.offline.release_files import StoredRelease, read_release
from discreet.learners.ope.advantage_verdict import AdvantageQuestion, AdvantageVerdict
from discreet.mechanisms.dataset.clipped_sum import GRID, ClippedSum
from discreet.mechanisms.privatizers.central import Central
from discreet.pipeline.context_judges import context_verdict, write_context_judgement
from discreet.pipeline.fixed_policy import PolicyAnswer, PolicyQuestion, kappa, policy_question
from discreet.pipeline.world_model import AS_BEFORE
from discreet.reports.policy_files import PolicyTable
from discreet.reports.statement import SecondGroup

JUDGEMENT, JUDGEMENT_PAGE = "judgement.json", "judgement.md"
SUMS = 2  # two families of sums: the answers, and the squares of the answers
_FORMAT = "discreet judgement"


class JudgeGroup(Guarded):
    """Group B. It keeps the group's episodes (raw data) and computes the noisy sums of the group's answers.

    Parameters
    ----------
    source, schema, learner, privatizer
        Arguments of :func:`discreet.pipeline.learn.learn`, which describes them.
    share : float
        Expected share of users in group B, in (0, 1).
    randomness : Randomness
        Source of the noise and of the key that divides the users.

    Raises
    ------
    ValueError
        If the source has no identifiers of users, or if schema, learner or privatizer do not allow the
        question.
    """

    _what = "group of users"

    def __init__(
        self, source: Any, schema: Schema, learner: Any, privatizer: Any, share: float, randomness: Randomness
    ) -> None:
        super().__init__()
        self.share = checks.real("judge_share", share, 0.0, 1.0, open_low=True, open_high=True)
        self._schema, self._randomness, self._key = schema, randomness, group_key(randomness)
        _check(source, schema, learner, privatizer)
        self._states: list[NDArray[np.int32]] = []
        self._actions: list[NDArray[np.int32]] = []

    def _drop(self) -> None:
        super()._drop()
        self._states, self._actions = [], []

    @property
    def users(self) -> int:
        """Number of users in the group. It depends only on the users' identifiers and the key."""
        return sum(map(len, self._states))

    def others(self, part: Checked) -> tuple[Trajectories, Ints] | None:
        """Store the users of group B, and return the rest.

        Returns the episodes and user numbers of group A, or None if there are none.

        part : checked episodes, one of each user.
        """
        judges = in_second_group(part.names.to_pylist(), self._key, self.share)
        if len(judges) != len(part.user):
            raise ValueError("part: must have one episode of each user")
        people = part.trajectories
        with self._call():
            self._check_open()
            self._states.append(np.asarray(people.states[judges], np.int32))
            self._actions.append(np.asarray(people.actions[judges], np.int32))
        rest = ~judges
        if not rest.any():
            return None
        return Trajectories(people.states[rest], people.actions[rest], people.rewards[rest]), part.user[rest]

    def public_facts(self, records: tuple[Any, ...]) -> SecondGroup:
        """Return the public facts about the group, for the ledger and the statement.

        records : records of the release of group A.

        Raises ``ValueError`` if a group is empty, or if no sum has the same privacy loss as these records.
        """
        users = self.users
        if not users:
            raise ValueError(f"judge_share = {self.share:g}: no user is in the second group; must be larger")
        (record,) = records
        query = ClippedSum.matching(record, SUMS)
        query.check_people(users)
        return SecondGroup(self.share, users, query.record)

    def answer(self, path: Path, schema: Schema, table: PolicyTable, facts: SecondGroup) -> list[float]:
        """Return the noisy sums of the answers and their squares, and delete the episodes.

        - path : release of group A.
        - table : policy that was learned from this release.
        - facts : result of :meth:`public_facts`.
        """
        question, query = _question(read_release(path), schema, table), _query(facts)
        with self._call():
            self._check_open()
            states, actions = (np.concatenate(parts) for parts in (self._states, self._actions))
            self._drop()  # called before the noise is drawn, so that the question is answered once
            people = Trajectories(states.astype(np.int64), actions.astype(np.int64), np.zeros(actions.shape))
            clip = question.clip(facts.users, query.multiplier, query.laplace)
            given = question.contributions(people, clip, query.laplace)
            bound = kappa(query.laplace) * clip
            return query.release(given, bound, self._randomness).tolist()


def _check(source: Any, schema: Schema, learner: Any, privatizer: Any) -> None:
    """Raise ``ValueError`` if group B cannot answer a question about this learner's policy."""

    def refuse(why: str) -> None:
        raise ValueError(f"judge_share: must be left out {why}")

    if not isinstance(source, Source):
        refuse("with sums that were counted before; they have no identifiers by which to divide users")
    if not isinstance(learner, DecisionPoints):
        refuse(
            "with this learner; only decision-points releases first visits, which the question needs "
            "(stationary = true in the schema)"
        )
    if not isinstance(privatizer, Central):
        refuse("without privacy; the noise of the answer has the budget of the release")
    if schema.outcomes is None or schema.censored is not None:
        refuse("unless the schema pays rewards by the state in which an episode ends, and none is censored")
    if schema.episodes_per_user > 1:
        refuse(f"with episodes_per_user = {schema.episodes_per_user}; a user answers for one episode")
    if schema.groups is not None:
        refuse("with groups of users in the schema")


def _query(facts: SecondGroup) -> ClippedSum:
    return ClippedSum(SUMS, facts.record.noise, facts.record.scales[ClippedSum.FAMILY])


def _question(release: StoredRelease, schema: Schema, table: PolicyTable) -> PolicyQuestion:
    """Return the question. In states without support, the policy follows the behaviour policy."""
    policy = np.where(table.supported, table.policy, AS_BEFORE)
    return policy_question(release, schema.spec(), policy[None])


def write_judgement(
    folder: Path, release: Path, schema: Schema, table: PolicyTable | AdvantagePolicy, facts: SecondGroup,
    sums: list[float], level: float, synthetic: bool,
) -> PolicyAnswer | AdvantageVerdict:  # fmt: skip
    """Write ``judgement.json`` and ``judgement.md`` into a folder.

    For a policy for contexts, :mod:`discreet.pipeline.context_judges` writes them.

    Parameters
    ----------
    folder : Path
        Folder of the run.
    release : Path
        Release of group A.
    schema : Schema
        Schema of the data.
    table : PolicyTable or AdvantagePolicy
        Policy that was learned from the release.
    facts : SecondGroup
        Facts about group B.
    sums : list of float
        Noisy sums of the answers and of their squares, as :meth:`JudgeGroup.answer` returns them.
    level : float
        Confidence level of the interval.
    synthetic : bool
        True for synthetic data. The page then states this.

    Returns
    -------
    PolicyAnswer or AdvantageVerdict
    """
    if isinstance(table, AdvantagePolicy):
        return write_context_judgement(
            folder, release, schema, table, facts, sums, level, synthetic, (JUDGEMENT, JUDGEMENT_PAGE)
        )
    question, query = _question(read_release(release), schema, table), _query(facts)
    clip = question.clip(facts.users, query.multiplier, query.laplace)
    (answer,) = question.read(np.array(sums), clip, facts.users, query.std, level, query.laplace)
    unit = question.world.units[0]
    bound = unit * kappa(query.laplace) * clip
    document = {
        "format": _FORMAT,
        "version": 1,
        "dataset": schema.dataset,
        "share": facts.share,
        "users": facts.users,
        "changed_states": int((question.policies[0] != AS_BEFORE).any(axis=0).sum()),
        "level": level,
        "sums": sums,
        "clip": unit * clip,
        "bound": bound,
        "sensitivity": bound * ClippedSum.SENSITIVITY,
        "noise": query.noise,
        "scale": bound * query.scale,
        "grid": GRID,
        **{name: getattr(answer, name) for name in ("estimate", "low", "high", "deviation")},
        "parts": {name: getattr(answer, name) for name in ("sampling", "noise", "model")},
        "shown": answer.shown,
    }
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    (folder / JUDGEMENT).write_text(text, "utf-8", newline="")
    (folder / JUDGEMENT_PAGE).write_text(_page(document, schema, synthetic), "utf-8", newline="")
    return answer


def answer_in(folder: Path) -> list[float]:
    """Return the noisy sums in the file ``judgement.json`` of a folder.

    Raises ``ValueError`` if the file has another format.
    """
    try:
        document: Mapping[str, Any] = json.loads((folder / JUDGEMENT).read_text("utf-8"))
        sums = list(document["sums"])
        size = AdvantageQuestion.SIZE if document.get("kind") == "contexts" else SUMS
        right = len(sums) == size and all(type(one) is float and math.isfinite(one) for one in sums)
        if document["format"] != _FORMAT or not right:
            raise ValueError(f"sums must be {size} numbers")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder / JUDGEMENT}: must be as `discreet learn` wrote it ({error!r})") from None
    return sums


def verdict(document: Mapping[str, Any], unit: str) -> str:
    """Return the first sentence of a judgement.

    - document : content of ``judgement.json``.
    - unit : unit of the population, for example "patient".
    """
    if document.get("kind") == "contexts":
        return context_verdict(document, unit)
    if not document["changed_states"]:
        return f"The policy changes nothing that {unit}s did, so there is no gain to judge."
    low, high = _shown(document["low"]), _shown(document["high"])
    numbers = (
        f"the estimated gain of the policy over what {unit}s did is {_shown(document['estimate'])} "
        f"({100 * document['level']:g} % interval {low} to {high})."
    )
    if document["shown"]:
        return f"Chance and noise do not explain the gain: {numbers}"
    if document["high"] < 0.0:
        return f"The policy is worse than what {unit}s did: {numbers}"
    return f"No gain is shown: {numbers} The interval includes 0."


def _shown(value: float) -> str:
    return f"{value:+.3g}"


def _page(document: Mapping[str, Any], schema: Schema, synthetic: bool) -> str:
    unit, parts = schema.unit, document["parts"]
    first = "**SYNTHETIC DATA: this page is about nobody.** " if synthetic else ""
    lines = [
        f"# The policy, judged by others: {schema.dataset}",
        "",
        f"{first}**{verdict(document, unit)}**",
        "",
        f"- Who judged: {document['users']:,} {unit}s whose records had no part in learning the policy. A "
        "keyed hash of the identifier chose them before anything was counted.",
        f"- The policy: that of `policy.csv` in its {document['changed_states']} changed states. Elsewhere, "
        f"{unit}s go on as before.",
        "- The gain is in the units of the return of an episode.",
        f"- Standard deviation {document['deviation']:.3g}: {parts['sampling']:.3g} from the number of "
        f"{unit}s, {parts['noise']:.3g} from the noise, and {parts['model']:.3g} from the model.",
        f"- What was released of them: two noisy sums, of answers and of their squares. A {unit}'s answer is "
        f"between {-document['clip']:.3g} and {document['clip']:.3g}. Replacing one record moves the pair of "
        f"sums by at most {document['sensitivity']:.3g}.",
        "- Condition: no cause that was not recorded influenced both actions and outcomes. `report.md` says "
        "how strong a cause the gain withstands.",
    ]
    return "\n".join(lines) + "\n"


def judgement_of(folder: Path) -> dict[str, Any] | None:
    """Return the content of ``judgement.json`` in a folder, or None if the folder has no such file."""
    path = folder / JUDGEMENT
    return dict(json.loads(path.read_text("utf-8"))) if path.is_file() else None
