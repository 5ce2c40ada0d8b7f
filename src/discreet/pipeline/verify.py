"""Verification of a privacy statement: recompute the contents of its folder.

:func:`verify` compares the facts of a statement with their sources. It compares the rest of the statement
with the output of :func:`discreet.reports.statement.make_statement` for these facts. The comparisons are:

- The hash of every file is compared with the statement and, if the ledger is given, with the hashes in the
  ledger. Links, and files that the statement does not name, are rejected. The pages are compared with pages
  made from the statement.
- Every signature is compared with its key, the fingerprint and the files. All keys that are given must have
  signed the folder.
- The verdict is compared with ``report.json``, which is recomputed from the release.
- The population is compared with ``schema.toml``, and sensitivities with the query that the schema
  determines. The guarantee is recomputed from the records of its mechanisms, with closed forms and with
  dp-accounting.
- Users, records, date, purpose, ledger entry, versions, learner and options are compared with the metadata of
  ``release.parquet``.
- Schema, policy, report and figures are compared, byte by byte, with files recomputed from the release and
  the options. If another machine made the files, numbers must agree only to 1e-9. Figures are compared only
  if the installed version of Matplotlib is the version that drew them.
- Each file of synthetic users in ``postprocessing.jsonl`` is written again from the release and its seed, if
  the installed versions are those that wrote it. This list is not part of the statement and not signed.
- The identity of the ledger, the entry, the totals and the filter are compared with the ledger, if it is
  given.

A statement in an earlier format is compared with the text that the earlier format has for these facts
(:mod:`discreet.accounting.text.earlier_sentences`). The checks do not depend on the library version that
wrote the statement.

The free lines cannot be compared with a second source until a signature is added. A folder made by
:func:`~discreet.pipeline.learn.replan` has two more facts that cannot be compared: the library versions that
made the folder, and options on which no file depends.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from discreet.accounting import pld as numerical
from discreet.accounting import pld_calibration as calibration
from discreet.accounting.randomized_response_event import composable_from_dict
from discreet.accounting.serialization import of_guarantee
from discreet.core.count_query import CountQuery
from discreet.core.guarantee import Guarantee, MechanismRecord, guarantee_of, joint_loss, no_guarantee
from discreet.core.short_repr import brief
from discreet.data.row_batches import Progress
from discreet.data.schema import Schema, read_schema, write_schema
from discreet.data.synthetic_mark import SYNTHETIC_INPUT
from discreet.learners.offline.linear_pevi import schema_features
from discreet.learners.offline.linear_query_log import LinearRelease, fingerprint
from discreet.learners.offline.release_files import StoredTables, read_release, read_tables
from discreet.learners.ope.first_visit_query import FirstVisits
from discreet.mechanisms.dataset.clipped_sum import ClippedSum
from discreet.mechanisms.linear.adaptive_queries import planned_records
from discreet.mechanisms.linear.context_query import ContextQuery
from discreet.mechanisms.linear.context_sums import GRAM_FAMILY, RESPONSE_FAMILY, visits_record
from discreet.pipeline.judge_group import JUDGEMENT, answer_in, write_judgement
from discreet.pipeline.learned_files import LearnConfig, kind_of, learner_of, name_of, options_of, write_plan
from discreet.pipeline.synthetic_users import POSTPROCESSING, processed, remade
from discreet.reports.checkable_files import LEDGER_NAME, ledger_lines, stated_query, write_csv
from discreet.reports.evaluation_report import JUDGED
from discreet.reports.signature_file import SIGNATURES_NAME, found_in
from discreet.reports.statement import (
    PAGES,
    SITES,
    LedgerFacts,
    LedgerLike,
    RunFacts,
    SecondGroup,
    Statement,
    count_query,
    file_hash,
    fingerprint_of,
    make_statement,
    published_hashes,
    versions,
)
from discreet.reports.statement_page import FREE, JSON_NAME, MARKDOWN_NAME
from discreet.reports.statement_schema import OLDEST, VERSION, ordered, read_json, violations
from discreet.reports.verdict_text import stated_verdict
from discreet.utils.atomic_folder import recover_command
from discreet.utils.document import compared_with


@dataclass(frozen=True)
class Check:
    """Result of one comparison: its name, the stated value, the recomputed value, and whether both agree."""

    __repr__ = brief

    name: str
    stated: Any
    recomputed: Any
    ok: bool


_Part = tuple[str, Callable[[], Iterator[Check]]]


def verify(
    folder: str | Path,
    ledger: LedgerLike | None = None,
    *,
    learner: Any = None,
    public_keys: Sequence[str] = (),
    limit_key: str | None = None,
    progress: Progress | None = None,
) -> list[Check]:
    """Recompute every number, sentence, file and hash of the statement in a folder.

    Parameters
    ----------
    folder : folder with ``statement.json``, its pages and all files that the statement names
    ledger : open ledger of the run, if available. The statement is then also compared with the run's entry
        and the totals in the ledger
    learner : learner of the run. Required only for a learner that is not part of this library. Learners of
        this library are rebuilt from their options
    public_keys : public keys; for each key, a signature with this key must be in the folder
        (:func:`discreet.ledger.signatures.read_public_key`). Without ``public_keys``, each signature is
        checked only with the key that it names, and anyone can make such a key.
    limit_key : public key of the owner. In the statement and in the ledger, the limit must be signed with
        this key, or with the key of a successor that the owner named.
    progress : function that is called as ``progress(what, done, total)`` for every part of the statement

    Returns
    -------
    list of Check
        One :class:`Check` for every comparison. The statement is correct if ``ok`` is True in all checks. A
        missing or damaged file gives a check in which ``ok`` is False, never an exception.

    Raises
    ------
    ValueError
        If the folder does not exist, or contains neither a statement nor any other file of a run.
    """
    folder = Path(folder)
    if not folder.is_dir() or not (any((folder / name).exists() for name in (JSON_NAME, *_MADE))):
        raise ValueError(
            f"folder = {str(folder)!r}: must be a folder that `discreet learn` made, with its {JSON_NAME}"
        )
    document, wrong = _read_statement(folder)
    if wrong:
        return wrong
    parts: list[_Part] = [
        (f"{JSON_NAME}: text", lambda: _check_text(folder, document)),
        ("fingerprint", lambda: _leaves("fingerprint", document["fingerprint"], fingerprint_of(document))),
        ("files", lambda: _check_files(folder, document)),
        *((name, partial(_check_page, folder, document, name)) for name in PAGES),
        ("signatures", lambda: _check_signatures(folder, document, public_keys)),
        ("statement", lambda: _check_document(folder, document)),
        ("sensitivities", lambda: _check_sensitivities(folder, document)),
        ("guarantee by another route", lambda: _check_accounting(document)),
        ("release.parquet", lambda: _check_release(folder, document)),
        ("policy and report", lambda: _check_plan(folder, document, learner)),
    ]
    if (folder / POSTPROCESSING).exists():
        parts.append((POSTPROCESSING, lambda: _check_processed(folder)))
    if ledger is not None:
        parts.append(("ledger", lambda: _check_ledger(folder, document, ledger)))
    if limit_key is not None:
        parts.append(("limit's key", lambda: _check_limit_key(document, ledger, limit_key)))
    return _run_parts(parts, progress)


_MADE = ("release.parquet", "schema.toml", MARKDOWN_NAME)
_WRONG = (ValueError, OSError, ArithmeticError, KeyError, TypeError, AttributeError, RecursionError)
"""Exceptions that can be raised when a damaged or forged file is read."""


def _run_parts(parts: Sequence[_Part], progress: Progress | None) -> list[Check]:
    """Return the checks of all parts. If a part raises an error, its result is one failed check."""
    found: list[Check] = []
    for done, (name, part) in enumerate(parts):
        if progress is not None:
            progress("verify", done, len(parts))
        try:
            found.extend(part())
        except _WRONG as error:
            found.append(Check(name, "what can be recomputed", str(error), False))
    return found


def _read_statement(folder: Path) -> tuple[Any, list[Check]]:
    """Return the JSON document of the statement, and the checks that fail.

    Checks fail if the file is missing, has a version that cannot be read, or violates the schema. The
    document cannot be compared then.
    """
    try:
        document = read_json(folder / JSON_NAME)
        version = document.get("version") if isinstance(document, dict) else None
        if type(version) is int and version < OLDEST:
            words = (
                f"version {version}: written by an older version of this library; must be version {OLDEST} "
                f"to {VERSION} (verify it with the library that wrote it)"
            )
            return None, [Check(f"{JSON_NAME}: version", words, VERSION, False)]
        broken = list(violations(document))
    except FileNotFoundError:
        return None, [Check(JSON_NAME, "a statement", "no such file in the folder", False)]
    except _WRONG as error:
        return None, [Check(JSON_NAME, JSON_NAME, str(error), False)]
    return document, [Check(JSON_NAME, text, "the statement's JSON Schema", False) for text in broken]


def _same(stated: Any, recomputed: Any) -> bool:
    """Return True if two values have the same type and agree.

    Floating-point numbers must agree to a relative tolerance of 1e-9, because libraries round differently on
    other machines.
    """
    if type(stated) is not type(recomputed):
        return False
    if type(stated) is float:
        return math.isclose(stated, recomputed, rel_tol=1e-9)
    return bool(stated == recomputed)


def _compared(name: str, stated: Any, recomputed: Any) -> Check:
    return Check(name, stated, recomputed, _same(stated, recomputed))


def _leaves(name: str, stated: Any, recomputed: Any) -> Iterator[Check]:
    """Yield the checks that compare two JSON values.

    There is one check for every number, text or truth value that both JSON values contain. There is a failed
    check for every key that only one of them contains.
    """
    if isinstance(stated, dict) and isinstance(recomputed, dict):
        for key in dict.fromkeys((*stated, *recomputed)):
            if key in stated and key in recomputed:
                yield from _leaves(f"{name}.{key}", stated[key], recomputed[key])
            else:
                yield Check(f"{name}.{key}", stated.get(key), recomputed.get(key), False)
        if not stated and not recomputed:
            yield Check(name, stated, recomputed, True)
    elif isinstance(stated, list) and isinstance(recomputed, list):
        yield Check(f"{name}: items", len(stated), len(recomputed), len(stated) == len(recomputed))
        for i, (one, other) in enumerate(zip(stated, recomputed, strict=False)):
            yield from _leaves(f"{name}[{i}]", one, other)
    else:
        yield _compared(name, stated, recomputed)


def _check_text(folder: Path, document: Mapping[str, Any]) -> Iterator[Check]:
    """Check that the text of ``statement.json`` is the text that the library writes for this document."""
    own = (folder / JSON_NAME).read_bytes() == Statement(ordered(document)).to_json().encode()
    yield Check(
        f"{JSON_NAME}: text", "as the library writes it", "so" if own else "other spaces or order", own
    )


def _check_files(folder: Path, document: Mapping[str, Any]) -> Iterator[Check]:
    """Check the hashes of all files that the statement names.

    A check fails for each link, and for each file or folder that the statement does not name. Signatures and
    the record of evaluations are added later, so no statement names them.
    """
    stated = document["files"]
    present = {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or not path.is_dir()
    }
    for name, digest in stated.items():
        path = present.get(name)
        if path is None or path.is_symlink() or not path.is_file():
            yield Check(f"files: {name}", digest, "no such file in the folder", False)
        else:
            yield _compared(f"files: {name}", digest, file_hash(path))
    own = {JSON_NAME, *PAGES, *({SIGNATURES_NAME, JUDGED, POSTPROCESSING} & set(present))}
    for name in sorted(own):
        path = present.get(name)
        whole = path is not None and not path.is_symlink() and path.is_file()
        yield Check(f"files: {name}", "a file", "a file" if whole else "a link, or no file", whole)
    for name in sorted(present.keys() - stated.keys() - own):
        yield Check(f"files: {name}", "not named", "lies in the folder", False)
    for path in sorted(folder.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            name = path.relative_to(folder).as_posix()
            if not any(file.startswith(f"{name}/") for file in stated):
                yield Check(f"files: {name}/", "not named", "a folder that no file is named in", False)


def _check_page(folder: Path, document: Mapping[str, Any], name: str) -> Iterator[Check]:
    """Check a page line by line. In free lines, only the fixed text is compared."""
    text = (folder / name).read_bytes().decode("utf-8")
    for what, stated, rendered, ok in compared_with(text, PAGES[name](document)):
        yield Check(f"{name}: {what}", stated, rendered, ok)


def _check_signatures(
    folder: Path, document: Mapping[str, Any], public_keys: Sequence[str]
) -> Iterator[Check]:
    """Check that all signatures are valid, and that the required signatures exist."""
    for found in found_in(folder, document["fingerprint"], public_keys):
        yield Check(*found)


def _check_limit_key(document: Mapping[str, Any], ledger: LedgerLike | None, key: str) -> Iterator[Check]:
    """Check the key with which the owner's limit is signed, in the statement and in the ledger.

    The key must be ``key``, or the key of a successor in the ledger. Without a ledger, only the statement is
    checked.
    """
    stated = document["ledger"]
    in_statement = None if stated is None else stated["after"].get("limit_key")
    if ledger is None or stated is None:
        yield Check("key of the limit in the statement", in_statement, key, in_statement == key)
        return
    successors, held = ledger.successors(stated["dataset"], key), ledger.owner(stated["dataset"])
    yield Check("key of the limit in the statement", in_statement, key, in_statement in successors)
    yield Check("key of the limit in the ledger", held, key, held in successors)


def _check_document(folder: Path, document: Mapping[str, Any]) -> Iterator[Check]:
    """Recompute the whole document from its facts, the file ``schema.toml`` and the mechanism records."""
    schema = read_schema(folder / "schema.toml")
    records = composable_from_dict([one["record"] for one in document["mechanisms"]])
    ledger, population, stated = document["ledger"], document["population"], document["guarantee"]
    episodes = schema.episodes_per_user
    if records:
        guarantee = guarantee_of(
            stated["trust"],
            records,
            randomness=stated["randomness"],
            delta=stated["delta"] or None,
            epsilon_nominal=stated["epsilon_nominal"],
            users_public=stated["users_public"],
            episodes=episodes,
        )
    else:
        guarantee = no_guarantee(stated["randomness"], episodes=episodes)
    facts = RunFacts(
        schema=schema,
        users=population["users"],
        guarantee=guarantee,
        records=records,
        ledger=None if ledger is None else LedgerFacts(**ledger),
        # report.json itself is compared with the report that is recomputed from the release
        verdict=stated_verdict(read_json(folder / "report.json")) if "verdict" in document else None,
        second_group=_second_group(document),
        query=stated_query(read_tables(folder / "release.parquet")) if "query" in document else None,
        **{name: document["configuration"][name] for name in ("algorithm", "options")},
        **{name: document[name] for name in _FACTS},
    )
    recomputed = make_statement(facts, document["version"]).to_dict()
    kept = {key: value for key, value in document.items() if key != "fingerprint"}
    yield from _leaves("statement", kept, {key: recomputed[key] for key in recomputed if key in kept})
    yield _compared(
        "statement: order of fields", _order(kept), _order({key: recomputed[key] for key in kept})
    )
    if ledger is not None:
        yield _compared("statement.ledger.dataset of the schema", ledger["dataset"], schema.dataset)


def _second_group(document: Mapping[str, Any]) -> SecondGroup | None:
    """Return the facts about users who are not in the release, or None if all users are in it."""
    stated = document.get("second_group")
    if stated is None:
        return None
    record = MechanismRecord.from_dict(stated["mechanism"]["record"])
    return SecondGroup(stated["share"], stated["users"], record)


def _order(tree: Any) -> Any:
    """Return the keys of all JSON objects in a document, in the order of the document."""
    if isinstance(tree, dict):
        return [[key, _order(one)] for key, one in tree.items()]
    return [_order(one) for one in tree] if isinstance(tree, list) else None


_FACTS = ("files", "date", "purpose", "synthetic", "replanned", "versions", *FREE)


def _check_sensitivities(folder: Path, document: Mapping[str, Any]) -> Iterator[Check]:
    """Recompute the sensitivities that the mechanism records state.

    The sensitivities of counts are computed from the query that the schema and the names of the families
    determine. The sensitivities of linear sums are computed from the queries in the release and the features
    of the schema.
    """
    schema = read_schema(folder / "schema.toml")
    release = read_tables(folder / "release.parquet")
    if release.facts.contexts:
        yield from _check_contexts(schema, release, document)
        return
    if release.facts.linear:
        yield from _check_linear(schema, release, document)
        return
    for i, record in enumerate(composable_from_dict([one["record"] for one in document["mechanisms"]])):
        names = list(record.scales) if isinstance(record, MechanismRecord) else []
        query = count_query(names, schema, release.facts.first_visits)
        name = f"sensitivities of mechanism {i + 1}"
        if query is None or not isinstance(record, MechanismRecord):
            yield Check(name, record.line(0.0), "no query of counts has these families", False)
            continue
        for family, own in record.sensitivities.items():
            yield _compared(f"{name}: {family}", own, float(query.sensitivity(record.norm, {family: 1.0})))
        yield _compared(f"{name}: joint", record.joint, _joint(query, record))
        yield _compared(f"{name}: noisy sums with one user", record.levels, 1)
        if record.exchanges:
            additive = calibration.shift_patterns(query, record.levels) is not None
            found = additive and calibration.is_listed(record, query.counted_steps)
            words = "as stated" if found else "another list"
            yield Check(f"{name}: exchanges", "as stated", words, found)
    yield from _check_second(document)


def _check_second(document: Mapping[str, Any]) -> Iterator[Check]:
    """Recompute the mechanism of the second group from the mechanism of the release."""
    second = _second_group(document)
    if second is not None:
        (record,) = composable_from_dict([one["record"] for one in document["mechanisms"]])
        expected = ClippedSum.matching(record).record.to_dict()  # type: ignore[arg-type]
        yield from _leaves("mechanism of the second group", second.record.to_dict(), expected)


def _joint(query: CountQuery, record: MechanismRecord) -> float:
    """Recompute the joint sensitivity of a mechanism record.

    Versions up to 0.2.0 of the library used the largest cost of any step for the centred rewards of every
    step. This gives a larger sensitivity. If a folder states exactly this larger sensitivity, it is accepted.
    """
    joint = joint_loss(query, record.norm, record.scales)
    if record.norm == "l2" and query.center_rewards and not query.stationary:
        one = joint_loss(replace(query, step=0), record.norm, record.scales)
        crude = math.sqrt(query.counted_steps) * one
        if _same(record.joint, float(crude)):
            joint = crude
    return float(joint)


def _check_contexts(schema: Schema, release: StoredTables, document: Mapping[str, Any]) -> Iterator[Check]:
    """Recompute the sensitivities of sums of contexts from the map of the schema and the number of visits."""
    assert schema.context is not None
    features, facts = schema.context.features, release.facts
    yield from _leaves("features of the release", dict(facts.query["map"]), features.to_dict())
    for one in document["mechanisms"]:
        record = MechanismRecord.from_dict(one["record"])
        scales = [record.scales[name] for name in (GRAM_FAMILY, RESPONSE_FAMILY)]
        visits = facts.options["learner"]["visits"]
        own = visits_record(ContextQuery(features=features), visits, record.noise, *scales)
        yield from _leaves("sensitivities", record.to_dict(), json.loads(json.dumps(own.to_dict())))
        yield _compared("visits of the release", facts.query["visits"], visits)
    yield from _check_second(document)


def _check_linear(schema: Schema, release: StoredTables, document: Mapping[str, Any]) -> Iterator[Check]:
    """Recompute the sensitivities of a linear learner's queries from the queries in the release."""
    features = schema_features(
        schema.layout, schema.features, schema.feature_bound,
        nonneg=schema.features is None or bool((schema.features >= 0.0).all()),
    )  # fmt: skip
    facts = release.facts
    linear = LinearRelease.of(facts.layout, facts.users, facts.guarantee, facts.query, release.tables())
    tables = {place: array.shape for place, array in release.tables().items()}
    answered = {(name, step): array.shape for name, step, array in linear.tables()}
    yield Check("tables of the release", sorted(tables), sorted(answered), tables == answered)
    yield from _leaves("features of the release", dict(linear.features), fingerprint(features))
    exact = document["guarantee"]["randomness"] == "secure"
    plan = [one.question for one in linear.asked]
    records = planned_records(plan, features, schema.layout, exact, schema.episodes_per_user)
    stated = [one["record"] for one in document["mechanisms"]]
    yield from _leaves("sensitivities", stated, [json.loads(json.dumps(r.to_dict())) for r in records])


def _check_accounting(document: Mapping[str, Any]) -> Iterator[Check]:
    """Recompute epsilon with the package dp-accounting, which shares no formula with this library."""
    if document["guarantee"]["epsilon"] is None:
        return
    guarantee = Guarantee.from_dict(document["guarantee"])
    records = composable_from_dict([one["record"] for one in document["mechanisms"]])
    name = "guarantee by another route: epsilon"
    yield Check(name, guarantee.epsilon, numerical.verify(guarantee, records), True)
    second = _second_group(document)
    if second is not None:  # parallel composition: no user is in both groups
        alone = guarantee_of(
            guarantee.trust, [second.record], randomness=guarantee.randomness, delta=guarantee.delta or None
        )
        other = numerical.verify(alone, [second.record])
        same = math.isclose(alone.epsilon or 0.0, guarantee.epsilon or 0.0, rel_tol=1e-9)
        yield Check(f"{name} of the second group", guarantee.epsilon, other, same)


def _check_release(folder: Path, document: Mapping[str, Any]) -> Iterator[Check]:
    """Compare the metadata of the release with the statement.

    It is also checked that the values of the release have not changed since they were written.
    """
    release = read_tables(folder / "release.parquet")
    if not release.facts.linear:  # read_release raises an error if a release of counts has other tables
        release = read_release(folder / "release.parquet")
    release.check()
    found, population = release.facts.to_dict(), document["population"]
    found["guarantee"] = of_guarantee(release.facts.guarantee, document["version"])
    second = _second_group(document)
    stated = {
        "users": population["users"] - (0 if second is None else second.users),
        "guarantee": document["guarantee"],
        "records": [one["record"] for one in document["mechanisms"]],
        "episodes": population["episodes_per_user"],
        "dataset": population["dataset"],
        "schema": population["schema"],
        "run": {name: document[name] for name in ("date", "purpose", "synthetic", "ledger")},
    }
    if second is not None or "second_group" in found["run"]:
        stated["run"]["second_group"] = None if second is None else second.to_dict()
        found["run"] = {"second_group": None, **found["run"]}
    # A run of `replan` may have used another version of the library and other options.
    if document["replanned"]:
        found["run"] = {name: value for name, value in found["run"].items() if name != "versions"}
    else:
        stated["run"]["versions"] = document["versions"]
        stated |= {name: document["configuration"][name] for name in ("algorithm", "options")}
    plain = json.loads(json.dumps({key: found[key] for key in stated}, allow_nan=False))
    yield from _leaves("release.parquet", stated, plain)
    schema = read_schema(folder / "schema.toml")
    first = release.facts.first_visits
    layout = FirstVisits(schema.spec()).layout if first else schema.layout
    same = release.facts.layout == layout
    yield Check("release.parquet: states, actions, horizon, admissible pairs", True, same, same)
    asked = document["configuration"]["options"].get("question")
    yield _compared("release.parquet: question", asked, release.facts.query.get("question"))
    scales = {
        name: scale
        for record in composable_from_dict(stated["records"])
        if isinstance(record, MechanismRecord)
        for name, scale in record.scales.items()
    }
    sites = release.facts.options.get(SITES, {})
    # The release states the noise of one site's share. The record states the noise of all honest sites.
    shares = math.sqrt(sites["honest"]) if sites.get("noise") == "sites" else 1.0
    for name, law in release.facts.laws.items():
        if name in scales:
            scale = shares * float(law.scale)  # type: ignore[attr-defined]
            yield Check(
                f"release.parquet: scale of {name}",
                scales[name],
                scale,
                math.isclose(scales[name], scale, rel_tol=2e-9),
            )


def _check_plan(folder: Path, document: Mapping[str, Any], learner: Any = None) -> Iterator[Check]:
    """Recompute schema, policy, report and figures from the release, and compare them with the files.

    The options are those in the statement.

    - learner : learner of the run, if it is not part of this library.
    """
    schema, configuration = read_schema(folder / "schema.toml"), document["configuration"]
    options = configuration["options"]
    if learner is None:
        learner = learner_of(configuration["algorithm"], options["learner"])
    else:
        yield _compared("learner", configuration["algorithm"], name_of(learner))
        yield from _leaves("learner", options["learner"], json.loads(json.dumps(options_of(learner))))
    chosen = {name: options[name] for name in ("unsupported", "level", "return_bound")}
    rules = LearnConfig.rules_in(folder, options, schema)
    settings = LearnConfig(
        **chosen, synthetic=document["synthetic"] is True, synthetic_input=SYNTHETIC_INPUT in options,
        compare=rules,
    )  # fmt: skip
    rewards = folder / REWARDS_NAME
    known = np.load(rewards) if document["replanned"] and rewards.exists() else None
    kind = kind_of(schema if known is None else replace(schema, known=known, outcomes=None), learner)
    planned = kind.again(folder / "release.parquet", settings)
    guarantee, second = Guarantee.from_dict(document["guarantee"]), _second_group(document)
    with TemporaryDirectory() as name:
        again = Path(name)
        write_schema(schema, again / "schema.toml")
        settings.write_rules(again)
        write_plan(
            again, planned, guarantee, settings, replanned=document["replanned"], version=document["version"],
            drawn=folder,
        )  # fmt: skip
        if second is not None and not document["replanned"]:
            given = schema, planned.table, second, answer_in(folder), settings.level, settings.synthetic
            write_judgement(again, folder / "release.parquet", *given)
        if "query" in document:
            write_csv(read_tables(folder / "release.parquet"), again)
        made = {path.name: path for path in sorted(again.iterdir())}
        expected = {*made, "release.parquet"} | ({REWARDS_NAME} if known is not None else set())
        stated = set(document["files"])
        if LEDGER_NAME in stated and document["ledger"] is not None:
            expected |= {LEDGER_NAME}
            yield from _check_lines(folder, document)
        yield Check("files of such a run", sorted(stated), sorted(expected), stated == expected)
        # If the numbers are equal, all files must be equal byte by byte. If the numbers are from a machine
        # that rounds differently, the last digits can differ.
        numbers = [*({*_NUMBERS, JUDGEMENT} & set(made))]
        steady = all((folder / one).read_bytes() == made[one].read_bytes() for one in numbers)
        drawn = document["versions"].get("matplotlib") == versions().get("matplotlib")
        for one, path in made.items():
            yield from _check_file(folder / one, path, steady, drawn)


def _check_processed(folder: Path) -> Iterator[Check]:
    """Write again each file of synthetic users that the folder's list names, and compare the hashes."""
    for line in processed(folder):
        name, found = f"{POSTPROCESSING}: {line['file']}", remade(folder, line)
        if found is None:
            yield Check(f"{name}: not compared, other versions wrote it", "its hash", "its hash", True)
        else:
            yield _compared(name, line["sha256"], found)


def _check_lines(folder: Path, document: Mapping[str, Any]) -> Iterator[Check]:
    """Check that ``ledger.jsonl`` ends with the entry of the run, and that every hash matches its entry."""
    stated, last, number = document["ledger"], {}, 0
    text = (folder / LEDGER_NAME).read_bytes().decode("utf-8")
    for number, line in enumerate(text.splitlines(), 1):
        last = json.loads(line)
        if "text" in last:
            found = hashlib.sha256(last["text"].encode()).hexdigest()
            yield _compared(f"{LEDGER_NAME}: entry {number}", last["hash"], found)
    yield _compared(f"{LEDGER_NAME}: entry of the run", stated["head"], last.get("hash"))
    yield _compared(f"{LEDGER_NAME}: entries", (stated["number"], "\n"), (number, text[-1:]))


REWARDS_NAME = "rewards.npy"
_NUMBERS = ("policy.csv", "policy.json", "report.json")
_FIGURES = (".png", ".svg")


def _check_file(path: Path, made: Path, steady: bool, drawn: bool) -> Iterator[Check]:
    """Compare a file with the recomputed file ``made``.

    - steady : True if the numbers of the run are reproduced exactly, so that files must be equal byte by
      byte. Otherwise, numbers may differ in their last digits.
    - drawn : True if the installed version of Matplotlib drew the figures. Otherwise, figures are not
      compared.
    """
    name, kind = f"{path.name} made again", path.suffix
    found, expected = path.read_bytes(), made.read_bytes()
    if kind in _FIGURES and not drawn:
        yield Check(f"{name}: not compared, another Matplotlib drew it", "its hash", "its hash", True)
    elif found == expected or steady or kind in (".npy", ".toml"):
        stated, other = (hashlib.sha256(content).hexdigest() for content in (found, expected))
        yield Check(name, stated, other, found == expected)
    elif kind == ".json":
        document = read_json(path)
        text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        yield Check(f"{name}: text", "as it was written", "so", text.encode() == found)
        yield from _leaves(name, document, read_json(made))
    elif kind == ".png":
        from matplotlib.image import imread

        pictures = imread(path), imread(made)
        same = pictures[0].shape == pictures[1].shape
        same = same and float(np.abs(pictures[0] - pictures[1]).max()) <= 0.02
        yield Check(name, "the picture", "the picture" if same else "another picture", same)
    else:
        texts = [_IDS.sub(r"\1", content.decode()) for content in (found, expected)]
        same = _texts_alike(texts[0], texts[1], exact=kind == ".csv")
        yield Check(name, "the text", "the text" if same else "another text", same)


_IDS = re.compile(r"""((?:id="|url\(#|href="#))[^")]*""")  # IDs in SVG, which depend on the numbers drawn
_NUMBER = re.compile(r"(\d+\.\d+(?:e[+-]?\d+)?)")


def _texts_alike(one: str, other: str, *, exact: bool) -> bool:
    """Return True if two strings agree, except for the last digits of numbers with a decimal point.

    These numbers must agree to 1e-9. If ``exact`` is False, a difference of one unit in the last digit shown
    is also allowed.
    """
    parts = _NUMBER.split(one), _NUMBER.split(other)
    if len(parts[0]) != len(parts[1]):
        return False
    for i, (a, b) in enumerate(zip(*parts, strict=True)):
        if a == b:
            continue
        shown = 0.0 if exact or i % 2 == 0 else 1.01 * 10.0 ** -len(a.partition("e")[0].partition(".")[2])
        if i % 2 == 0 or not math.isclose(float(a), float(b), rel_tol=1e-9, abs_tol=shown):
            return False
    return True


def _check_ledger(folder: Path, document: Mapping[str, Any], ledger: LedgerLike) -> Iterator[Check]:
    """Compare the statement with the ledger.

    The run's entry, the totals up to this entry, and the hashes of the published files are compared.
    """
    stated = document["ledger"]
    if stated is None:
        yield Check("ledger", "NO LEDGER", "NO LEDGER", True)
        return
    yield _compared("ledger: identity", stated["identity"], ledger.identity)
    entries = ledger.entries(stated["dataset"])
    entry = next((one for one in entries if one.hash == stated["head"]), None)
    if entry is None:
        yield Check("ledger: head", stated["head"], "no such entry in this ledger", False)
        return
    yield Check("ledger: head", stated["head"], entry.hash, True)
    yield _compared("ledger: kind of the entry", "reserve", entry.kind)
    yield _compared("ledger: users", document["population"]["users"], entry.users)
    yield _compared("ledger: date", document["date"], entry.time)
    yield _compared("ledger: purpose", document["purpose"], entry.purpose)
    records = [record.to_dict() for record in entry.records]
    yield from _leaves("ledger: records", [one["record"] for one in document["mechanisms"]], records)
    second = _second_group(document)
    others = [] if second is None else [second.record.to_dict()]
    yield from _leaves(
        "ledger: records of the second group", others, [one.to_dict() for one in entry.parallel]
    )
    if LEDGER_NAME in document["files"]:
        lines = ledger_lines(ledger.entries(), stated["dataset"], entry.number).encode()
        same = (folder / LEDGER_NAME).read_bytes() == lines
        yield Check(f"ledger: {LEDGER_NAME}", "as in the ledger", "so" if same else "other entries", same)
    facts = vars(LedgerFacts.of(ledger, entry))
    yield from _leaves("ledger", {k: v for k, v in stated.items() if k != "name"}, {
        name: dict(value) if isinstance(value, Mapping) else value
        for name, value in facts.items() if name != "name"  # a copy of the ledger can have another file name
    })  # fmt: skip
    limit = (stated["after"]["limit_epsilon"], stated["after"]["limit_delta"])
    if limit[0] is not None and entry.checked:
        used = ledger.certified(stated["dataset"], limit[1], upto=entry.number).epsilon
        yield Check("ledger: within the owner's limit", limit[0], used, used <= limit[0] * (1 + 1e-6))
    mark = next((one for one in entries if one.kind == "mark" and one.reservation == entry.number), None)
    if mark is None:
        remedy = recover_command(folder.absolute().parent, getattr(ledger, "path", None))
        yield Check(f"ledger: not marked as published (`{remedy}` does it)", None, None, True)
        return
    published = published_hashes(document)
    if document["replanned"]:  # only files that this folder shares with the folder that was published first
        published = {name: digest for name, digest in published.items() if _shared(name)}
    marked = {
        name: digest for name, digest in mark.files.items() if name in published or not document["replanned"]
    }
    yield from _leaves("ledger: published", published, marked)


def _shared(name: str) -> bool:
    return name == "release.parquet" or name.startswith("schema.")
