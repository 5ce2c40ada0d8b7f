"""Log of the queries of a linear learner, with their public arrays and noisy answers.

With ``response="model"``, any policy can be planned from the log. All other answers are for the values V that
the learner had computed at that point. :func:`~discreet.learners.offline.linear_pevi.replan_linear` raises
``ValueError`` if an array of a new query differs from the stored array by more than 1e-9 of the range.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from discreet.core import checks
from discreet.core.guarantee import Guarantee
from discreet.core.layout import Layout
from discreet.core.releases import Floats
from discreet.core.short_repr import brief
from discreet.mechanisms.features import Features
from discreet.mechanisms.linear.adaptive_queries import Answer, Question, ResponseSession

_SAME = 1e-9  # largest difference due to rounding on another machine, relative to an array's range
_FEATURES = ("sha256", "dimension", "bound", "l1", "nonneg")
_ARRAYS = ("gram", "vector", "successors", "rewards")
_SCALES = ("gram_scale", "vector_scale", "successors_scale", "rewards_scale", "centre", "span")


@dataclass(frozen=True, eq=False)
class LoggedQuery:
    """One query and its answer.

    values (S,), weights (S, A) : public arrays of the query; None if the query has no such array.
    """

    question: Question
    answer: Answer
    values: Floats | None = None
    weights: Floats | None = None


@dataclass(frozen=True, eq=False)
class LinearRelease:
    """All queries and answers of one session.

    features : hash and declared bounds of the features (see :func:`fingerprint`), without the table.
    users : number of users in the sums. asked : the queries with their answers, in order.
    """

    __repr__ = brief

    layout: Layout
    features: Mapping[str, Any]
    users: int
    guarantee: Guarantee
    asked: tuple[LoggedQuery, ...]

    def query(self) -> dict[str, Any]:
        """Return the features and the queries as JSON values, without arrays."""
        questions = [
            {
                "question": asdict(one.question),
                "answer": {name: getattr(one.answer, name) for name in _SCALES},
                "arrays": [name for name, _ in _named(one)],
            }
            for one in self.asked
        ]
        return {"features": dict(self.features), "questions": questions}

    def tables(self) -> Iterator[tuple[str, int, Floats]]:
        """Yield (name, step, array) for all arrays of the queries and answers.

        An array has at most two dimensions.
        """
        for i, one in enumerate(self.asked):
            for name, array in _named(one):
                yield f"{i:04d}.{name}", one.question.step, array

    @classmethod
    def of(
        cls,
        layout: Layout,
        users: int,
        guarantee: Guarantee,
        query: Mapping[str, Any],
        tables: Mapping[tuple[str, int], Floats],
    ) -> LinearRelease:
        """Return the release from the results of :meth:`query` and :meth:`tables`.

        Raises ``ValueError`` if a key, a table or a shape is invalid.
        """
        users = checks.integer("users", users, 1)
        try:
            features = {name: query["features"][name] for name in _FEATURES}
            d = checks.integer("features.dimension", features["dimension"], 1)
            listed = list(query["questions"])
            asked = tuple(_asked(i, one, layout, d, tables) for i, one in enumerate(listed))
        except (KeyError, TypeError) as error:
            raise ValueError(f"query: is not that of a linear release ({error!r})") from None
        return cls(layout, features, users, guarantee, asked)


def _named(one: LoggedQuery) -> Iterator[tuple[str, Floats]]:
    for name in _ARRAYS:
        array = getattr(one.answer, name)
        if array is not None:
            yield name, array
    if one.values is not None:
        yield "values", one.values
    if one.weights is not None:
        yield "weights", one.weights


def _asked(
    i: int, table: Mapping[str, Any], layout: Layout, d: int, tables: Mapping[tuple[str, int], Floats]
) -> LoggedQuery:
    options = dict(table["question"])
    if set(options) != {part.name for part in fields(Question)}:
        raise ValueError(f"query.questions[{i}]: must have exactly the keys of a question")
    if options["shares"] is not None:
        options["shares"] = tuple(options["shares"])
    question = Question(**options)
    checks.integer(f"query.questions[{i}].step", question.step, 0, layout.horizon - 1)
    states, pairs = layout.states, (layout.states, layout.actions)
    shapes = {
        "gram": (d, d), "vector": (d,), "successors": (d, states), "rewards": (d,), "values": (states,),
        "weights": pairs,
    }  # fmt: skip
    if question.kind == "start":
        shapes["vector"] = (states,)
    found: dict[str, Floats] = {}
    for name in table["arrays"]:
        checks.choice(f"query.questions[{i}].arrays", name, shapes)
        key = f"{i:04d}.{name}", question.step
        if key not in tables:
            raise ValueError(f"tables: {key!r} is missing")
        found[name] = checks.floats(f"tables[{key!r}]", tables[key], shapes[name])
    numbers: dict[str, Any] = {name: checks.real(name, table["answer"][name]) for name in _SCALES}
    arrays: dict[str, Any] = {name: found.get(name) for name in _ARRAYS}
    answer = Answer(**arrays, **numbers)
    return LoggedQuery(question, answer, found.get("values"), found.get("weights"))


def fingerprint(features: Features) -> dict[str, Any]:
    """Return a hash of the features with their dimension and declared bounds, as JSON values.

    The hash is the SHA-256 of the table's shape and entries (little-endian float64, row-major).
    """
    digest = hashlib.sha256(repr(features.table.shape).encode())
    digest.update(np.ascontiguousarray(features.table, "<f8").tobytes())
    return {
        "sha256": digest.hexdigest(),
        "dimension": features.dimension,
        "bound": features.bound,
        "l1": features.l1,
        "nonneg": features.nonneg,
    }


# ------------------------------------------------------------------------------ two cores


class Recorder:
    """Session that records queries and answers."""

    def __init__(self, session: ResponseSession) -> None:
        self._session, self._plan = session, session.plan
        self._asked: list[LoggedQuery] = []

    @property
    def users(self) -> int:
        """Return the number of users in the sums."""
        return self._session.users

    def gram(self, step: int, weights: ArrayLike | None = None) -> Answer:
        return self._kept(self._session.gram(step, weights), None, weights)

    def response(self, step: int, values: ArrayLike, weights: ArrayLike | None = None) -> Answer:
        return self._kept(self._session.response(step, values, weights), values, weights)

    def pair(self, step: int, values: ArrayLike, weights: ArrayLike | None = None) -> Answer:
        return self._kept(self._session.pair(step, values, weights), values, weights)

    def model(self, step: int) -> Answer:
        return self._kept(self._session.model(step), None, None)

    @property
    def episodes(self) -> int:
        """Return the largest number of episodes of one user."""
        return self._session.episodes

    def start(self, values: ArrayLike) -> Answer:
        """Return the answer to the query on first states.

        values : (S,) values of the evaluated policy.
        """
        return self._kept(self._session.start(), values, None)

    def _kept(self, answer: Answer, values: ArrayLike | None, weights: ArrayLike | None) -> Answer:
        arrays = (None if x is None else np.array(x, np.float64) for x in (values, weights))
        self._asked.append(LoggedQuery(self._plan[self._session.asked - 1], answer, *arrays))
        return answer

    def release(self) -> LinearRelease:
        """Return a release with all queries that were made so far, and their answers."""
        session = self._session
        return LinearRelease(
            session.layout, fingerprint(session.features), session.users, session.guarantee,
            tuple(self._asked),
        )  # fmt: skip


class LoggedAnswers:
    """Source of answers from a stored release, without reading data or spending budget.

    ``plan`` contains the queries that the learner declared. A query gets the stored answer to the query with
    the same kind, step, half, reward and public arrays. ``ValueError`` is raised if the release has no such
    query.
    """

    def __init__(self, release: LinearRelease, plan: tuple[Question, ...]) -> None:
        self._release = release
        self._plan = plan
        self._at = self._from = 0

    @property
    def users(self) -> int:
        """Return the number of users in the sums."""
        return self._release.users

    def gram(self, step: int, weights: ArrayLike | None = None) -> Answer:
        return self._find(step, None, weights)

    def response(self, step: int, values: ArrayLike, weights: ArrayLike | None = None) -> Answer:
        return self._find(step, values, weights)

    def pair(self, step: int, values: ArrayLike, weights: ArrayLike | None = None) -> Answer:
        return self._find(step, values, weights)

    def model(self, step: int) -> Answer:
        return self._find(step, None, None)

    @property
    def episodes(self) -> int:
        """Return the largest number of episodes of one user."""
        return self._release.guarantee.episodes

    def start(self, values: ArrayLike) -> Answer | None:
        """Return the stored answer to the query on first states; None if it was made for another policy."""
        try:
            return self._find(0, values, None)
        except ValueError:
            return None

    def _find(self, step: int, values: ArrayLike | None, weights: ArrayLike | None) -> Answer:
        wanted = self._plan[self._at]
        self._at += 1
        for i in range(self._from, len(self._release.asked)):
            one = self._release.asked[i]
            if _answers(one.question, wanted):
                self._from = i + 1
                _compare("values", step, values, one.values)
                _compare("weights", step, weights, one.weights)
                return one.answer
        about = "" if wanted.kind == "gram" else f", {'with' if wanted.reward else 'without'} rewards"
        raise ValueError(
            f"release: holds no answer to {wanted.kind!r} of step {step}{about}, which this learner asks"
        )


def _answers(given: Question, wanted: Question) -> bool:
    if (given.kind, given.step, given.half) != (wanted.kind, wanted.step, wanted.half):
        return False
    if given.kind == "model":  # rewards in the stored answer are ignored if the learner does not need them
        return given.reward or not wanted.reward
    return given.kind == "gram" or given.reward == wanted.reward


def _compare(name: str, step: int, wanted: ArrayLike | None, given: Floats | None) -> None:
    if wanted is None and given is None:
        return
    if wanted is not None and given is not None:
        array = np.asarray(wanted, np.float64)
        range_ = max(1.0, float(np.abs(given).max()))
        if array.shape == given.shape and np.abs(array - given).max() <= _SAME * range_:
            return
    raise ValueError(
        f"release: the question of step {step} was asked with other {name} than these options lead to; an "
        f"answer holds for the {name} that it was asked with, so this needs a release in model form "
        "(response = 'model'), or the options of the first planning"
    )
