"""Judgement of a policy from logged decisions with known probabilities, with one private release.

A row of the log is one decision: the context, the action, the probability of this action, and the reward. The
schema has ``horizon = 1`` and ``[context]`` with ``propensity``. If the log has a column of users, each user
has one row, or the mean over each user's rows is used (``rows = "mean"``). Otherwise the unit of privacy is
one row, and the schema must state this: ``unit = "impression"``. A person with k impressions then has k times
the mu of one impression, or k^2 times its rho.

:mod:`discreet.learners.ope.logged_values` defines the release, the sensitivity and the intervals. The steps
have the same order as in :func:`discreet.pipeline.learn.learn`. First, all rows are checked and the forecast
is compared with the budget. Then the ledger reserves the budget, and noise is drawn.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from discreet.core import checks
from discreet.core.guarantee import Guarantee, guarantee_of
from discreet.core.releases import Floats, Ints
from discreet.core.rng import Randomness, Secure
from discreet.core.short_repr import brief
from discreet.data.cell_parsing import flat
from discreet.data.context_visits import read_visits
from discreet.data.row_batches import BATCH_ROWS, Progress, open_source
from discreet.data.schema import DECLARED, Schema, read_schema, write_schema
from discreet.data.sources import Text, local_files, mark_of, places_of
from discreet.data.synthetic_mark import check_mark
from discreet.data.validate import DataError
from discreet.learners.ope.logged_values import LogForecast, LogQuestion, LogVerdict, means_of_users
from discreet.learners.ope.verdict import IntervalEstimate
from discreet.ledger.ledger import ONE_ROW, Ledger, LedgerError, Reservation, spent
from discreet.ledger.owner_rules import check_rules
from discreet.mechanisms.dataset.clipped_sum import GRID, ClippedSum
from discreet.pipeline.state_codebook import agree, budget_of, ledger_facts
from discreet.reports.codebook_page import release_document
from discreet.reports.context_report import POLICY_JSON, read_context_policy
from discreet.reports.statement import file_hash
from discreet.utils.atomic_folder import aside, check_free, claims_out, room_for

FACTS, PAGE, SCHEMA = "judgement.json", "judgement.md", "schema.toml"
FORMAT = "discreet log judgement"
IMPRESSION = "impression"
_COLUMN = "column:"
_SIZE = 2**20  # upper bound on the bytes of a folder, without the policy


@dataclass(frozen=True, eq=False)
class LogJudgement:
    """Result of :func:`judge_log`.

    Attributes
    ----------
    folder : folder with ``judgement.json`` and ``judgement.md``.
    verdict : LogVerdict, for rewards scaled to [0, 1].
    forecast : LogForecast, made before the release.
    text : content of ``judgement.md``.
    """

    __repr__ = brief

    folder: Path
    verdict: LogVerdict
    forecast: LogForecast
    text: str


def forecast_log(
    schema: Schema, users: int, *, epsilon: float | None = None, delta: float | None = None,
    rho: float | None = None, cap: float = 10.0, expected: float | None = None, least: float | None = None,
    level: float = 0.95, rows: str = "one",
) -> LogForecast:  # fmt: skip
    """Forecast the width of the interval of :func:`judge_log`, from public facts only.

    schema : Schema of the log.

    users : number of units.

    epsilon, delta, rho : as for :func:`judge_log`.

    cap, expected, least, level, rows : as for :func:`judge_log`.

    Raises ``ValueError`` if an argument is out of range.
    """
    question = _question(_checked(schema, rows), cap, expected, least)
    return question.forecast(users, _query(budget_of(epsilon, delta, rho)[0], True).std, level)


@claims_out
def judge_log(
    where: Any, policy: str | Path, schema: Schema, out: str | Path, *, ledger: Ledger | None,
    epsilon: float | None = None, delta: float | None = None, rho: float | None = None, cap: float = 10.0,
    expected: float | None = None, least: float | None = None, level: float = 0.95, rows: str = "one",
    randomness: Randomness | None = None, anyway: bool = False, purpose: str = "",
    progress: Progress | None = None, **how: Any,
) -> LogJudgement:  # fmt: skip
    """Judge a policy by a log of decisions, with one private release, and write a new folder.

    Parameters
    ----------
    where, how : the log, and options for reading it (``sql``, ``reads``, ``delimiter``, ``decimal``,
        ``encoding``); see :func:`discreet.data.row_batches.open_source`
    policy : folder or file of a policy of contexts, ``"uniform"``, or ``"column:NAME"`` with the probability
    of
        the row's action under the policy
    schema : Schema with ``horizon = 1`` and ``[context]`` with ``propensity``
    out : new folder
    ledger : Ledger, which is charged. If None, nothing is recorded. Must be None for seeded noise
    epsilon, delta, rho : budget of one unit: delta, and either epsilon or rho
    cap : M, at least 1. This value is public: do not choose it from these data
    expected : public guess of the mean reward, in the units of the schema; None for the middle of the range
    least : smallest probability of an action that the policy takes, if it is known. Rows with such an action
        and a smaller probability are refused
    level : level of the intervals, in (0, 1)
    rows : "one" if each user has one row at most. "mean": users can have several rows, and the mean over the
        rows of each user is used. The noise is the same
    randomness : Secure (default), or Seeded for simulations
    anyway : if True, the release is made even if the forecast says that nothing can be shown
    purpose : purpose for the entry in the ledger, one line
    progress : function that is called with a string about the current stage

    Raises
    ------
    DataError
        If rows violate the schema. The message is private. No budget is spent.
    BudgetError
        If the owner's limit would be exceeded. No budget is spent.
    ValueError
        If any other input is not allowed, or the forecast says that nothing can be shown. No budget is spent.
    """
    schema, out = _checked(schema, rows), Path(out)
    randomness = Secure() if randomness is None else randomness
    check_free(out)
    if ledger is not None and randomness.kind != "secure":
        raise ValueError("ledger: must be None with noise from a seed, which protects no user")
    question, (loss, delta) = _question(schema, cap, expected, least), budget_of(epsilon, delta, rho)
    query = _query(loss, randomness.kind == "secure")
    level = checks.real("level", level, 0.0, 1.0, open_low=True, open_high=True)
    vectors, facts = _read(where, policy, schema, question, how, progress, ledger, rows == "mean")
    users = len(vectors)
    if delta > 1 / users:
        raise ValueError(f"delta = {delta:g}: must be at most 1/users, better below a tenth of it")
    query.check_people(users)
    expects = question.forecast(users, query.std, level)
    if expects.hopeless and not anyway:
        raise ValueError(
            f"{forecast_sentence(expects, schema, level)} Nothing was spent (--anyway: judge all the same)"
        )
    unit = () if facts["identified"] else (ONE_ROW,)
    facts |= {
        "format": FORMAT, "version": 1, "dataset": schema.dataset, "unit": schema.unit, "users": users,
        "episodes_per_user": 1, "provenance": dict(schema.provenance),
        "declared": {name: schema.declared.get(name) for name in DECLARED},
        "purpose": " ".join([purpose or f"judge {facts['policy']['name']} by a log", *unit]), "level": level,
        "question": asdict(question), "noise": query.noise, "scale": query.scale, "grid": GRID,
    }  # fmt: skip
    facts["guarantee"] = guarantee_of(
        "central", [query.record], randomness=randomness.kind, delta=delta
    ).to_dict()
    job = _LogRelease(out, schema, question, query, expects, facts, ledger, randomness)
    return job.make(vectors, delta)


@dataclass(frozen=True, eq=False)
class _LogRelease:
    """Public facts of one judgement, before its budget is reserved."""

    out: Path
    schema: Schema
    question: LogQuestion
    query: ClippedSum
    expects: LogForecast
    facts: dict[str, Any]
    ledger: Ledger | None
    randomness: Randomness

    def make(self, vectors: Floats, delta: float) -> LogJudgement:
        """Reserve the privacy cost in the ledger, draw the noise, and write the folder.

        vectors : (users, 5) vectors of the units.
        """
        facts, ledger, schema, users = self.facts, self.ledger, self.schema, len(vectors)
        copy = facts["policy"]["file"]
        text = None if copy is None else Path(copy).read_text("utf-8")
        facts["policy"]["file"] = None if text is None else POLICY_JSON
        reservation = None
        with room_for(self.out, _SIZE + (0 if text is None else 2 * len(text))):
            if ledger is not None:
                reservation = ledger.reserve(
                    schema.dataset, [self.query.record], delta=delta, users=users, purpose=facts["purpose"]
                )
        with spent(ledger, reservation):
            sums = self.query.release(vectors, self.question.clip, self.randomness).tolist()
            facts |= {
                "sums": sums, "statement": _statement(Guarantee.from_dict(facts["guarantee"]), facts),
                "date": datetime.now(UTC).isoformat(timespec="seconds"),
                "ledger": None if ledger is None or reservation is None else ledger_facts(ledger,
                reservation),
            }  # fmt: skip
            if ledger is None:
                facts["warning"] = (
                    "NO LEDGER: this release was not recorded. Privacy losses of several add up."
                )
            verdict = self.question.read(sums, users, self.query.std, facts["level"])
            facts |= _results(verdict, self.expects, schema)
            page, published = self._write(text)
        if ledger is not None and reservation is not None:
            ledger.mark(reservation, published)
        return LogJudgement(self.out, verdict, self.expects, page)

    def _write(self, text: str | None) -> tuple[str, dict[str, str]]:
        """Write the folder. Returns the page, and the hashes of the files.

        text : content of the policy's file, or None.
        """
        facts = self.facts
        with aside(self.out, ledger=None if self.ledger is None else self.ledger.path) as hidden:
            write_schema(self.schema, hidden / SCHEMA)
            if text is not None:
                (hidden / POLICY_JSON).write_text(text, "utf-8", newline="")
            facts["files"] = {path.name: file_hash(path) for path in sorted(hidden.iterdir())}
            page = _page(facts, self.schema)
            (hidden / PAGE).write_text(page, "utf-8", newline="\n")
            plain = json.dumps(facts, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
            (hidden / FACTS).write_text(plain, "utf-8", newline="\n")
            return page, {**facts["files"], **{name: file_hash(hidden / name) for name in (FACTS, PAGE)}}


def _checked(schema: Schema, rows: str) -> Schema:
    """Return the schema. Raises ``ValueError`` if the schema does not describe logged decisions.

    rows : "one" or "mean".
    """
    checks.exactly("schema", schema, Schema)
    if checks.choice("rows", rows, ("one", "mean")) == "mean" and schema.unit == IMPRESSION:
        raise ValueError(f"unit = {IMPRESSION!r}: must name users, for example 'person', with rows = 'mean'")
    if schema.context is None or schema.context.propensity is None:
        raise ValueError("schema: must have [context.columns], and [context] with propensity, for a log")
    if schema.horizon != 1 or schema.episodes_per_user != 1:
        raise ValueError(f"horizon = {schema.horizon}: must be 1 for a log, with one decision for each unit")
    return schema


def _question(schema: Schema, cap: float, expected: float | None, least: float | None) -> LogQuestion:
    low, high = schema.returns.bounds(1)
    expected = (low + high) / 2 if expected is None else checks.real("expected", expected, low, high)
    return LogQuestion(cap, (expected - low) / (high - low), least)


def _query(rho: float, secure: bool) -> ClippedSum:
    """Return the noisy sum whose privacy loss is rho. The sensitivity is 2, so 2^2 / (2 scale^2) <= rho."""
    scale = float(np.sqrt(2.0 / rho)) * (1.0 + 1e-12)
    return ClippedSum(LogQuestion.SIZE, "discrete_gaussian" if secure else "gaussian", scale)


def _read(
    where: Any, policy: str | Path, schema: Schema, question: LogQuestion, how: Mapping[str, Any],
    progress: Progress | None, ledger: Ledger | None, several: bool,
) -> tuple[Floats, dict[str, Any]]:  # fmt: skip
    """Return the (users, 5) vectors of all units, and facts about log and policy.

    several : True if the mean over the rows of each user is used.
    """
    assert schema.context is not None
    name = str(policy)
    chosen = name.removeprefix(_COLUMN) if name.startswith(_COLUMN) else None
    rule = None if chosen is not None or name == "uniform" else _policy(Path(policy), schema)
    text = Text(how.get("delimiter"), how.get("decimal", "."), how.get("encoding", "utf-8"))
    places = places_of(where, text, how.get("sql"), how.get("reads"))
    check_mark(((place.name, mark_of(place)) for place in places), schema.dataset, allowed=False)
    check_rules(local_files(places), schema.dataset, ledger)
    wanted, identified = _wanted(places, schema, chosen)
    columns = schema.columns
    table = _table(places, sorted(wanted), schema)
    rows = table.num_rows
    owner = _owners(table, columns.user) if several else None
    if identified and not several:
        _check_single(table, schema)
    plain = {one: table[one] for one in table.column_names if one != chosen or one in schema.context.read}
    if owner is not None:  # checks the names of users, with one row of each
        first = np.unique(owner, return_index=True)[1]
        named = pa.table(plain | _one_step(schema, rows)).take(first)
        read_visits(open_source(named, schema), progress=progress, workers=1)
    if owner is not None or not identified:
        plain[columns.user] = pa.array(np.arange(rows))
    plain |= _one_step(schema, rows)
    stored = read_visits(open_source(pa.table(plain), schema), progress=progress, workers=1)
    visits, logged = stored.visits, stored.propensities
    assert logged is not None
    if rule is not None:
        order = [schema.context.columns.index(one) for one in rule[0].features.columns]
        probability = (rule[0](visits.contexts[:, order]) == visits.actions).astype(np.float64)
    else:
        uniform = np.full(rows, 1.0 / schema.layout.actions)
        probability = uniform if chosen is None else _probabilities(table, chosen)
    low = np.flatnonzero((probability > 0.0) & (logged < (question.least or 0.0)))
    if low.size:
        raise DataError(
            f"{low.size} rows of the policy have a probability below least = {question.least:g}, the "
            f"first is row {low[0]}",
            {"propensity": int(low.size)}, ("propensity", int(low[0])),
        )  # fmt: skip
    check_rules(local_files(places), schema.dataset, ledger)  # the owner may have added a rule meanwhile
    same = rule is not None and rule[2] == schema.dataset
    named = {"name": name if rule is None else rule[1].name, "file": None if rule is None else str(rule[1])}
    named["privacy"] = None if rule is None else rule[3]
    facts: dict[str, Any] = {"policy": {**named, "same_dataset": same}, "identified": identified}
    vectors = question.vectors(question.weights(probability, logged), visits.targets)
    if owner is None:
        return vectors, facts
    return means_of_users(vectors, owner), {**facts, "rows": "mean"}


def _owners(table: pa.Table, name: str) -> Ints:
    """Return the (n,) number of each row's user. Raises ``DataError`` if a cell is missing."""
    column = table[name].combine_chunks()
    if column.null_count:
        words = f"column {name!r}: {column.null_count} rows name no user"
        raise DataError(words, {"missing user": column.null_count}, ("missing user", 0))
    coded = pc.dictionary_encode(column)
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks()
    return np.asarray(coded.indices.to_numpy(zero_copy_only=False), np.int64)


def _check_single(table: pa.Table, schema: Schema) -> None:
    """Raise ``DataError`` if a user has several rows."""
    name, rows = schema.columns.user, table.num_rows
    if pc.count_distinct(table[name], mode="all").as_py() < rows:
        raise DataError(
            f"column {name!r}: a {schema.unit} has several rows: use their mean (rows = mean), or declare "
            f'unit = "{IMPRESSION}" and leave this column out of the log (then the guarantee is for one row, '
            f"and rows of one {schema.unit} must be independent draws)",
            {"repeated step": rows}, ("repeated step", 0),
        )  # fmt: skip


def _one_step(schema: Schema, rows: int) -> dict[str, Any]:
    """Return the columns of episode and step of a table with one decision in each row."""
    columns = schema.columns
    steps = np.full(rows, schema.first_step)
    return {columns.episode: pa.array(np.zeros(rows, np.int64)), columns.step: pa.array(steps)}


def _wanted(places: Any, schema: Schema, chosen: str | None) -> tuple[set[str], bool]:
    """Return the columns to read, and True if the log has a column of users.

    chosen : column of the policy's probabilities, or None. Raises ``ValueError`` if these columns cannot be
    used.
    """
    assert schema.context is not None
    columns = schema.columns
    if chosen in (columns.action, columns.reward, columns.user):
        raise ValueError(
            f"policy = {_COLUMN + str(chosen)!r}: must name a column of probabilities of the policy"
        )
    wanted = {columns.action, columns.reward, *schema.context.read, *(() if chosen is None else (chosen,))}
    identified = [columns.user in place.names([*wanted, columns.user]) for place in places]
    if any(identified) != all(identified):
        raise ValueError(f"{columns.user!r}: must be a column of all files of the log, or of none")
    if not any(identified) and schema.unit != IMPRESSION:
        raise ValueError(
            f"unit = {schema.unit!r}: must be {IMPRESSION!r} for a log without a column {columns.user!r}"
        )
    return wanted | ({columns.user} if any(identified) else set()), any(identified)


def _probabilities(table: pa.Table, name: str) -> Floats:
    """Return the probabilities in a column. Raises ``DataError`` if a cell is not in [0, 1]."""
    try:
        found = pc.cast(table[name], pa.float64(), safe=False).to_numpy()
    except pa.ArrowException:
        text = f"column {name!r}: must hold numbers, has another text"
        raise DataError(text, {"propensity": len(table)}, ("propensity", 0)) from None
    bad = np.flatnonzero(~((found >= 0.0) & (found <= 1.0)))
    if bad.size:
        raise DataError(
            f"column {name!r}: {bad.size} rows are not in [0, 1], the first is row {bad[0]}",
            {"propensity": int(bad.size)}, ("propensity", int(bad[0])),
        )  # fmt: skip
    return np.asarray(found, np.float64)


def _policy(path: Path, schema: Schema) -> tuple[Any, Path, str | None, str]:
    """Return the policy, its file, the dataset that the statement in the same folder names, and the privacy
    that the file states.

    The dataset is None without a statement.
    """
    found = read_context_policy(path)
    assert schema.context is not None
    columns, actions = found.features.columns, found.features.actions
    if set(columns) - set(schema.context.columns) or actions != schema.layout.actions:
        raise ValueError(
            f"policy = {str(path)!r}: must have {schema.layout.actions} actions and columns of "
            "[context], has "
            f"{actions} actions and {', '.join(columns)}"
        )
    file = path / POLICY_JSON if path.is_dir() else path
    text = file.read_text("utf-8")
    labels, privacy = json.loads(text).get("actions"), _stated(text)
    if schema.action_labels is not None and labels != list(schema.action_labels):
        raise ValueError(f"policy = {str(path)!r}: must name the actions as the schema does, has {labels!r}")
    beside = file.parent / "statement.json"
    try:
        return found, file, json.loads(beside.read_text("utf-8"))["population"]["dataset"], privacy
    except (OSError, ValueError, KeyError, TypeError):
        return found, file, None, privacy


def _stated(text: str) -> str:
    """Return the sentence about privacy in the text of a policy's file, on one line."""
    said = json.loads(text).get("privacy")
    return " ".join(said.split()) if isinstance(said, str) and said.split() else "nothing about privacy."


def _table(places: Any, wanted: list[str], schema: Schema) -> pa.Table:
    """Return the columns of all files. Raises ``ValueError`` for missing columns or rows, malformed lines, or
    mixed types.
    """
    columns = schema.columns
    types: dict[str, Any] = dict.fromkeys(wanted, pa.float64())
    types[columns.action] = pa.int64() if schema.action_labels is None else pa.string()
    if columns.user in wanted:
        types[columns.user] = pa.string()
    parts = []
    for place in places:
        missing = sorted(set(wanted) - set(place.names(wanted)))
        if missing:
            raise ValueError(
                f"{place.name}: must have a column {missing[0]!r}, which the schema or POLICY names"
            )
        parts += [
            pa.table({one: flat(part[one]) for one in wanted})
            for part in place.batches(wanted, BATCH_ROWS, types)
        ]
        if place.malformed:  # the lines were skipped, and the number of rows is published
            line = place.malformed[0]
            raise DataError(
                f"{Path(place.name).name} line {line}: must have as many fields as the header. Offending "
                f"rows in total: malformed line: {len(place.malformed)}",
                {"malformed line": len(place.malformed)}, ("malformed line", line),
            )  # fmt: skip
    parts = [part for part in parts if part.num_rows]
    if not parts:
        raise ValueError("log: must have rows")
    return pa.table({one: _joined([part.select([one]) for part in parts]) for one in wanted})


def _joined(parts: list[pa.Table]) -> pa.Array:
    """Return the values of tables with one column. Raises ``ValueError`` if the types cannot be merged."""
    try:
        return flat(pa.concat_tables(parts, promote_options="permissive").column(0))
    except pa.ArrowTypeError:
        name, kinds = parts[0].column_names[0], sorted({str(part.schema.types[0]) for part in parts})
        raise ValueError(
            f"column {name!r}: must have one type in all files, has {' and '.join(kinds)}"
        ) from None


def _results(verdict: LogVerdict, expects: LogForecast, schema: Schema) -> dict[str, Any]:
    """Return the results in the units of the schema."""
    low, high = schema.returns.bounds(1)
    unit = high - low

    def scaled(one: IntervalEstimate, start: float) -> dict[str, float]:
        ends = {name: start + unit * getattr(one, name) for name in ("estimate", "low", "high")}
        return ends | {name: unit * getattr(one, name) for name in ("deviation", "sampling", "noise")}

    return {
        "value": scaled(verdict.value, low),
        "gain": scaled(verdict.gain, 0.0),
        "method": verdict.method,
        "ips": low + unit * verdict.ips,
        "snips": None if verdict.snips is None else low + unit * verdict.snips,
        "weight": verdict.weight,
        "logged": low + unit * verdict.logged,
        "shown": verdict.shown,
        "refuted": verdict.refuted,
        "forecast": {"least": unit * expects.least,
                     "most": None if expects.most is None else unit * expects.most,
                     "expected": low + unit * expects.expected, "hopeless": expects.hopeless},
    }  # fmt: skip


def forecast_sentence(expects: LogForecast, schema: Schema, level: float) -> str:
    """Return the sentences about a forecast.

    expects : result of :func:`forecast_log`. schema : schema of the log. level : level of the interval.
    """
    low, high = schema.returns.bounds(1)
    unit, mean = high - low, low + (high - low) * expects.expected
    words = (
        f"With {expects.users:,} {schema.unit}s, the {100 * level:g} % interval of the gain has a "
        "half width of at "
        f"least {unit * expects.least:.3g}"
    )
    if expects.most is None:
        words += (
            ". Weights may be cut: the interval is then wider by the reward that is lost (at most "
            f"{unit:g} times 1 minus the mean weight) and by the noise of the mean weight. This has no bound "
            "before the release."
        )
    else:
        words += f", and about {unit * expects.most:.3g} if weights are as uneven as possible."
    if expects.hopeless:
        gain = unit * min(expects.expected, 1.0 - expects.expected)
        words += f" Nothing can be shown: not even a gain of {gain:.3g}, if the mean reward is {mean:.3g}."
    return words


def _sentence(facts: Mapping[str, Any]) -> str:
    if facts["refuted"]:
        return _refutation(facts)
    gain, level = facts["gain"], f"{100 * facts['level']:g} % interval"
    numbers = f"{gain['estimate']:+.3g} ({level} {gain['low']:+.3g} to {gain['high']:+.3g})"
    if facts["shown"] or gain["high"] < 0.0:
        found = "better" if facts["shown"] else "worse"
        return (
            "If the logged probabilities are those with which actions were drawn, "
            f"{_draws(facts)} are independent draws, and the policy was not made from these decisions, "
            "the policy is "
            f"{found} than what was done: the mean reward changes by {numbers}."
        )
    return f"No gain is shown: the mean reward would change by {numbers}. The interval includes 0."


def _refutation(facts: Mapping[str, Any]) -> str:
    """Return the sentence for a mean weight that contradicts a condition of the estimate."""
    weight, least, policy = facts["weight"], facts["question"]["least"], facts["policy"]["name"]
    few = weight < 1.0  # only possible if least is declared
    others = [f"least = {least:g} is"] if few else []
    others += [f"those of {policy} are"] if policy.startswith(_COLUMN) else []
    return (
        f"No gain is shown: the mean weight is {weight:.5g}, but {'only about' if few else 'at most'} 1 is "
        "possible if the logged probabilities are those with which actions were drawn. They are wrong, or "
        + "".join(f"{one}, or " for one in others)
        + f"{_draws(facts)} are not independent draws."
    )


def _draws(facts: Mapping[str, Any]) -> str:
    """Return the word for what must be independent draws: rows, or users with several rows."""
    return f"{facts['unit']}s" if _several(facts) else "rows"


def _several(facts: Mapping[str, Any]) -> bool:
    """Return True if the mean over the rows of each user was used. Raises ``ValueError`` for other facts."""
    return checks.choice("rows", facts.get("rows", "one"), ("one", "mean")) == "mean"


def _statement(guarantee: Guarantee, facts: Mapping[str, Any]) -> str:
    """Return the statement of a guarantee. With means of rows, a user is all their rows, not one episode."""
    said = guarantee.statement
    if not _several(facts):
        return said
    before, _, after = said.partition("A user is one episode; ")
    return f"{before}A user is all rows of one {facts['unit']}, together. {after.partition('. ')[2]}"


def _estimates(facts: Mapping[str, Any]) -> list[str]:
    """Return the lines of ``judgement.md`` about the estimates."""
    value, unit = facts["value"], facts["unit"]
    if facts["refuted"]:
        return [
            f"- Mean reward in the log: {facts['logged']:.4g}. Mean weight: {facts['weight']:.4g}. Value and "
            f"gain in {FACTS} must not be used."
        ]
    snips = "not available" if facts["snips"] is None else f"{facts['snips']:.4g}"
    return [
        f"- Mean reward under the policy: {value['estimate']:.4g} ({value['low']:.4g} to "
        f"{value['high']:.4g}); in the log: {facts['logged']:.4g}. Method: {facts['method'].upper()}. IPS: "
        f"{facts['ips']:.4g}, SNIPS: {snips}, mean weight: {facts['weight']:.4g}.",
        f"- Standard deviation of the gain {facts['gain']['deviation']:.3g}: "
        f"{facts['gain']['sampling']:.3g} from the number of {unit}s, {facts['gain']['noise']:.3g} from the "
        "noise.",
    ]


def _people(facts: Mapping[str, Any]) -> tuple[str, str]:
    """Return the sentence about the number of units, and the condition on their draws."""
    unit = facts["unit"]
    if _several(facts):
        people = (
            f"{unit.capitalize()}s: {facts['users']:,}. A mean reward is the mean over {unit}s of the mean "
            f"over their rows, so a {unit} with many rows counts like one with a single row."
        )
        condition = (
            f"{unit}s are independent draws. What was done changes neither the later rows of a {unit} nor "
            f"their number. Rows of one {unit} can be correlated."
        )
    else:
        people = f"Decisions: {facts['users']:,}, one for each {unit}."
        condition = (
            "rows are independent draws. If an action was drawn once for several rows, or rows are copies, "
            "intervals are too narrow."
        )
    return people, condition


def _page(facts: Mapping[str, Any], schema: Schema) -> str:
    """Return the content of ``judgement.md``, from the facts and the schema only."""
    question, unit = facts["question"], facts["unit"]
    exact = LogQuestion(**question).exact
    word = unit if facts["identified"] else f"person with one {unit}"
    doc = release_document({**facts, "unit": word})
    ahead = LogForecast(facts["users"], *_scaled_forecast(facts, schema))
    cap = (
        f"Declared: the policy takes only actions with a probability of at least "
        f"{question['least']:g}. No weight is "
        f"then above the cap {question['cap']:g}."
        if exact
        else f"Weights are cut at {question['cap']:g}. The interval allows for what is cut, with any rewards."
    )
    privacy = [doc["sentence"], *doc["warnings"], f"{facts['statement']}"]
    if not facts["identified"]:
        privacy.append(
            f"UNIT: ONE {IMPRESSION.upper()}. This judgement reads no column that names people. For a person "
            f"with k {IMPRESSION}s, rho is k^2 times that of one {IMPRESSION}."
        )
    if facts["policy"]["file"] is not None:
        privacy.append(
            f"{POLICY_JSON} is a copy. The guarantee above does not cover it. It states: "
            f"{facts['policy']['privacy']}"
        )
    people, condition = _people(facts)
    lines = [
        f"# A policy, judged by a log: {facts['dataset']}",
        "",
        f"**{_sentence(facts)}**",
        "",
        f"- Policy: {facts['policy']['name']}. {people}",
        *_estimates(facts),
        f"- {cap}",
        f"- Forecast before the release: {forecast_sentence(ahead, schema, facts['level'])}",
        f"- What was released: noisy sums over {unit}s of {'means of ' if _several(facts) else ''}w y, w, y, "
        "w^2 y and w^2, where w is the weight and y the reward.",
        "- Condition: probabilities in the log are right, and actions were drawn with them. Only the mean "
        "weight tests this: wrong ones can pass. With right ones, it differs by chance by 4 standard "
        "deviations in less than 1 of 10 000 judgements.",
        f"- Condition: {condition}",
        "- Condition: the policy was not made from these decisions."
        + (
            " THE POLICY'S STATEMENT NAMES THE SAME DATA SET: if it has these people, a gain can be "
            "shown by chance."
            if facts["policy"]["same_dataset"]
            else ""
        ),
        "",
        "## Privacy",
        "",
        *(f"- {words}" for words in privacy),
        *(f"- {one['description']}" for one in doc["mechanisms"]),
    ]
    return "\n".join(lines) + "\n"


def _scaled_forecast(facts: Mapping[str, Any], schema: Schema) -> tuple[float, float | None, float]:
    low, high = schema.returns.bounds(1)
    forecast, unit = facts["forecast"], high - low
    most = None if forecast["most"] is None else forecast["most"] / unit
    return forecast["least"] / unit, most, facts["question"]["expected"]


def log_facts(folder: Path) -> dict[str, Any] | None:
    """Return the facts in the folder of :func:`judge_log`, or None.

    folder : any folder.
    """
    try:
        facts: dict[str, Any] = json.loads((folder / FACTS).read_text("utf-8"))
        return facts if facts["format"] == FORMAT else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def verify_log(folder: str | Path, ledger: Ledger | None = None) -> tuple[str, ...]:
    """Raise ``ValueError`` if files of a judgement do not follow from its sums, or the ledger differs.

    Sensitivity, guarantee, estimates, forecast and page are computed again.

    folder : folder that :func:`judge_log` wrote. ledger : Ledger with the entry of the judgement, or None.
    Returns sentences about facts that cannot be checked.
    """
    folder = Path(folder)
    where = folder / FACTS
    try:
        facts = json.loads(where.read_text("utf-8"))
        if facts["format"] != FORMAT or facts["version"] != 1:
            raise ValueError("another format")
        schema = _checked(read_schema(folder / SCHEMA), "mean" if _several(facts) else "one")
        question = LogQuestion(**facts["question"])
        query = ClippedSum(LogQuestion.SIZE, facts["noise"], facts["scale"])
        stated, files = Guarantee.from_dict(facts["guarantee"]), dict(facts["files"])
        verdict = question.read(facts["sums"], facts["users"], query.std, facts["level"])
        expects = question.forecast(facts["users"], query.std, facts["level"])
        names = {FACTS, PAGE, *files}
        if {one.name for one in folder.iterdir()} != names:
            raise ValueError(f"files must be {', '.join(sorted(names))}")
        page = (folder / PAGE).read_bytes().decode("utf-8")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{where}: is not what a judgement writes ({error})") from None
    for name, digest in files.items():
        if file_hash(folder / name) != digest:
            raise ValueError(f"{folder / name}: is not the file that was made")
    made = guarantee_of("central", [query.record], randomness=stated.randomness, delta=stated.delta)
    agree(where, "guarantee", facts["guarantee"], made.to_dict())
    if (
        facts["statement"] != _statement(made, facts)
        or facts["dataset"] != schema.dataset
        or facts["unit"] != schema.unit
    ):
        raise ValueError(f"{where}: statement, dataset and unit must follow from guarantee and schema")
    if POLICY_JSON in files and facts["policy"]["privacy"] != _stated(
        (folder / POLICY_JSON).read_text("utf-8")
    ):
        raise ValueError(f"{where}: must repeat what {POLICY_JSON} states about privacy")
    if facts["ledger"] is None and "warning" not in facts:
        raise ValueError(f"{where}: must warn that no ledger was kept")
    for name, value in _results(verdict, expects, schema).items():
        agree(where, name, facts.get(name), value)
    if page != _page(facts, schema):
        raise ValueError(f"{folder / PAGE}: does not follow from {FACTS}")
    if ledger is not None:
        _held(folder, facts, ledger)
    unread = ledger is None and facts["ledger"] is not None
    of_ledger = ("that the ledger has this release, because no ledger was given",) if unread else ()
    return ("that the sums are those of the log", "that the probabilities in the log are right", *of_ledger)


def _held(folder: Path, facts: Mapping[str, Any], ledger: Ledger) -> None:
    """Raise an error if the ledger does not contain this judgement with the hashes of its files."""
    held = facts["ledger"]
    if held is None:
        raise ValueError(f"{folder / FACTS}: names no ledger")
    marks = {entry.reservation: entry for entry in ledger.entries(facts["dataset"]) if entry.kind == "mark"}
    mark = marks.get(held["number"])
    if held["identity"] != ledger.identity or not ledger.contains(held["hash"]) or mark is None:
        raise LedgerError(f"{ledger}: does not hold this judgement")
    again = ledger_facts(ledger, Reservation(facts["dataset"], held["number"], held["hash"]))
    agree(folder / FACTS, "ledger", {**held, "name": again["name"]}, again)
    if dict(mark.files) != {name: file_hash(folder / name) for name in (*facts["files"], FACTS, PAGE)}:
        raise ValueError(f"{folder}: its files are not those that the ledger marked")
