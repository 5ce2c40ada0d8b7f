"""Verification of a privacy statement: recompute all contents of its folder that can be recomputed.

:func:`verify` compares the facts of a statement with their sources. It compares the other parts of the
statement with the output of :func:`discreet.reports.statement.make_statement` for these facts. The
comparisons are:

- the hash of every file with the statement, and with the ledger's mark if the ledger is given; other files
  and links are rejected; the pages with those rendered from the statement;
- every signature with its key, the fingerprint and the files; all keys that are given must have signed;
- the verdict with ``report.json``, which is recomputed from the release;
- the population with ``schema.toml``, sensitivities with the query rebuilt from the schema, the guarantee
  with its mechanisms' records (by the closed forms and through dp-accounting);
- with the metadata of ``release.parquet``: users, records, date and purpose, the ledger's entry, versions,
  learner and options;
- schema, policy, report and figures with files recomputed from the release and the options, byte by byte. If
  numbers from another machine differ in their last digits, they are compared to 1e-9. Figures are compared
  only with the version of Matplotlib that drew them;
- the ledger's identity, entry, totals and filter with the ledger, if it is given.

A statement in an earlier format is compared with the text that the earlier format has for these facts
(:mod:`discreet.accounting.text.earlier_sentences`). The checks do not depend on the library version that
wrote the statement.

Only the free lines cannot be compared with a second source (until a signature is added). A folder made by
:func:`~discreet.pipeline.learn.replan` has two more facts without a second source: the versions that made it,
and options on which no file depends.
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
from discreet.learners.offline.linear_pevi import schema_features
from discreet.learners.offline.linear_query_log import LinearRelease, fingerprint
from discreet.learners.offline.release_files import FIRST_VISITS, StoredTables, read_release, read_tables
from discreet.learners.ope.first_visit_query import FirstVisits
from discreet.mechanisms.linear.adaptive_queries import planned_records
from discreet.pipeline.learned_files import LearnConfig, kind_of, learner_of, name_of, options_of, write_plan
from discreet.reports.document import compared_with
from discreet.reports.signature_file import SIGNATURES_NAME, found_in
from discreet.reports.statement import (
    PAGES,
    SITES,
    LedgerFacts,
    LedgerLike,
    RunFacts,
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

__all__ = ["Check", "verify"]


@dataclass(frozen=True)
class Check:
    """Result of one comparison: the stated value, the recomputed value, and whether they agree."""

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
    folder : folder with ``statement.json``, ``statement.md`` and all files that these two name
    ledger : the open ledger of the run, if available; the run's entry and the totals are then compared too
    learner : learner of the run. Required only if it is not part of this library; learners of this library
        are rebuilt from their options
    public_keys : keys that must have signed the folder (:func:`discreet.ledger.signatures.read_public_key`).
        Without ``public_keys``, each signature is checked only with the key that it names, and anyone can
        make such a key.
    limit_key : public key of the owner. In the statement and in the ledger, the limit must belong to the
        holder of this key or to a successor that the holder named.
    progress : called as ``progress(what, done, total)`` for every part of the statement

    Returns
    -------
    list of Check
        One :class:`Check` for every comparison. The statement is correct if all checks are ok. For a missing
        or damaged file the result is a check that is not ok, never an exception.

    Raises
    ------
    ValueError
        If the folder does not exist, or holds neither a statement nor any other file of a run.
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
    if ledger is not None:
        parts.append(("ledger", lambda: _check_ledger(folder, document, ledger)))
    if limit_key is not None:
        parts.append(("limit's key", lambda: _check_limit_key(document, ledger, limit_key)))
    return _run_parts(parts, progress)


_MADE = ("release.parquet", "schema.toml", MARKDOWN_NAME)
_WRONG = (ValueError, OSError, ArithmeticError, KeyError, TypeError, AttributeError, RecursionError)
"""Exceptions that a damaged or forged file can cause in the readers."""


def _run_parts(parts: Sequence[_Part], progress: Progress | None) -> list[Check]:
    """Return the checks of all parts; a part that cannot be read is a check that fails."""
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
    """Read the statement; also return the checks that fail if it is none that can be compared."""
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
    """Return True if two values of the same type agree.

    Floating-point numbers are compared to 1e-9, because libraries round differently on other machines.
    """
    if type(stated) is not type(recomputed):
        return False
    if type(stated) is float:
        return math.isclose(stated, recomputed, rel_tol=1e-9)
    return bool(stated == recomputed)


def _compared(name: str, stated: Any, recomputed: Any) -> Check:
    return Check(name, stated, recomputed, _same(stated, recomputed))


def _leaves(name: str, stated: Any, recomputed: Any) -> Iterator[Check]:
    """Yield a check for every value in two JSON trees, and for every key or item that only one of the trees
    has.
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
    """Check that the text equals the text rendered from the document, except for the two free lines."""
    own = (folder / JSON_NAME).read_bytes() == Statement(ordered(document)).to_json().encode()
    yield Check(
        f"{JSON_NAME}: text", "as the library writes it", "so" if own else "other spaces or order", own
    )


def _check_files(folder: Path, document: Mapping[str, Any]) -> Iterator[Check]:
    """Check the hashes of all files that the statement names; reject links, and files or folders that it does
    not name.
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
    own = {JSON_NAME, *PAGES, *({SIGNATURES_NAME} & set(present))}
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
    """Check a page line by line, without the free lines."""
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
    """Check that the limit belonged to this key, or to its successor in the ledger, at the release, and still
    does.
    """
    stated = document["ledger"]
    told = None if stated is None else stated["after"].get("limit_key")
    if ledger is None or stated is None:
        yield Check("key of the limit in the statement", told, key, told == key)
        return
    heirs, held = ledger.heirs(stated["dataset"], key), ledger.owner(stated["dataset"])
    yield Check("key of the limit in the statement", told, key, told in heirs)
    yield Check("key of the limit in the ledger", held, key, held in heirs)


def _check_document(folder: Path, document: Mapping[str, Any]) -> Iterator[Check]:
    """Recompute the whole document from its facts; the schema and the mechanism records are read again."""
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


def _order(tree: Any) -> Any:
    """Return the keys of all JSON objects in a document, in the order of the document."""
    if isinstance(tree, dict):
        return [[key, _order(one)] for key, one in tree.items()]
    return [_order(one) for one in tree] if isinstance(tree, list) else None


_FACTS = ("files", "date", "purpose", "synthetic", "replanned", "versions", *FREE)


def _check_sensitivities(folder: Path, document: Mapping[str, Any]) -> Iterator[Check]:
    """Recompute sensitivities.

    Sensitivities of counts come from the query that the schema and the families' names determine; those of
    linear sums come from the queries in the release and the features of the schema.
    """
    schema = read_schema(folder / "schema.toml")
    release = read_tables(folder / "release.parquet")
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


def _joint(query: CountQuery, record: MechanismRecord) -> float:
    """Recompute the joint sensitivity of the mechanism record.

    Versions up to 0.2.0 charged centred rewards, at every step, with the largest cost of any step, which
    gives a larger sensitivity. A folder of these versions that states exactly this larger sensitivity is
    accepted.
    """
    joint = joint_loss(query, record.norm, record.scales)
    if record.norm == "l2" and query.center_rewards and not query.stationary:
        one = joint_loss(replace(query, step=0), record.norm, record.scales)
        crude = math.sqrt(query.counted_steps) * one
        if _same(record.joint, float(crude)):
            joint = crude
    return float(joint)


def _check_linear(schema: Schema, release: StoredTables, document: Mapping[str, Any]) -> Iterator[Check]:
    """Recompute the cost of the planned queries from the queries themselves."""
    features = schema_features(
        schema.layout, schema.features, schema.feature_bound,
        nonneg=schema.features is None or bool((schema.features >= 0.0).all()),
    )  # fmt: skip
    facts = release.facts
    told = LinearRelease.of(facts.layout, facts.users, facts.guarantee, facts.query, release.tables())
    tables = {place: array.shape for place, array in release.tables().items()}
    answered = {(name, step): array.shape for name, step, array in told.tables()}
    yield Check("tables of the release", sorted(tables), sorted(answered), tables == answered)
    yield from _leaves("features of the release", dict(told.features), fingerprint(features))
    exact = document["guarantee"]["randomness"] == "secure"
    plan = [one.question for one in told.asked]
    records = planned_records(plan, features, schema.layout, exact, schema.episodes_per_user)
    stated = [one["record"] for one in document["mechanisms"]]
    yield from _leaves("sensitivities", stated, [json.loads(json.dumps(r.to_dict())) for r in records])


def _check_accounting(document: Mapping[str, Any]) -> Iterator[Check]:
    """Recompute epsilon through dp-accounting, which shares no formula with this library."""
    if document["guarantee"]["epsilon"] is None:
        return
    guarantee = Guarantee.from_dict(document["guarantee"])
    records = composable_from_dict([one["record"] for one in document["mechanisms"]])
    name = "guarantee by another route: epsilon"
    yield Check(name, guarantee.epsilon, numerical.verify(guarantee, records), True)


def _check_release(folder: Path, document: Mapping[str, Any]) -> Iterator[Check]:
    """Check the facts in the release, and that the values of the release are unchanged since they were
    written.
    """
    release = read_tables(folder / "release.parquet")
    if not release.facts.linear:  # a release of counts must have exactly these tables
        release = read_release(folder / "release.parquet")
    release.check()
    found, population = release.facts.to_dict(), document["population"]
    found["guarantee"] = of_guarantee(release.facts.guarantee, document["version"])
    stated = {
        "users": population["users"],
        "guarantee": document["guarantee"],
        "records": [one["record"] for one in document["mechanisms"]],
        "episodes": population["episodes_per_user"],
        "dataset": population["dataset"],
        "schema": population["schema"],
        "run": {name: document[name] for name in ("date", "purpose", "synthetic", "ledger")},
    }
    # the folder was possibly planned again by another library version and with other options
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
    yield _compared("release.parquet: question", asked, FIRST_VISITS["question"] if first else None)
    scales = {
        name: scale
        for record in composable_from_dict(stated["records"])
        if isinstance(record, MechanismRecord)
        for name, scale in record.scales.items()
    }
    told = release.facts.options.get(SITES, {})
    # the record contains the shares of the budget
    shares = math.sqrt(told["honest"]) if told.get("noise") == "sites" else 1.0
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
    """Compute schema, policy, report and figures from the release and the options, and compare them with the
    files.
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
    settings = LearnConfig(**chosen, synthetic=document["synthetic"] is True, compare=rules)
    rewards = folder / REWARDS_NAME
    known = np.load(rewards) if document["replanned"] and rewards.exists() else None
    kind = kind_of(schema if known is None else replace(schema, known=known, outcomes=None), learner)
    planned = kind.again(folder / "release.parquet", settings)
    guarantee = Guarantee.from_dict(document["guarantee"])
    with TemporaryDirectory() as name:
        again = Path(name)
        write_schema(schema, again / "schema.toml")
        settings.write_rules(again)
        write_plan(
            again, planned, guarantee, settings, replanned=document["replanned"], version=document["version"],
            drawn=folder,
        )  # fmt: skip
        made = {path.name: path for path in sorted(again.iterdir())}
        expected = {*made, "release.parquet"} | ({REWARDS_NAME} if known is not None else set())
        stated = set(document["files"])
        yield Check("files of such a run", sorted(stated), sorted(expected), stated == expected)
        # Equal numbers give equal texts. If another machine rounds differently, the last digits can differ.
        steady = all((folder / one).read_bytes() == made[one].read_bytes() for one in _NUMBERS)
        drawn = document["versions"].get("matplotlib") == versions().get("matplotlib")
        for one, path in made.items():
            yield from _check_file(folder / one, path, steady, drawn)


REWARDS_NAME = "rewards.npy"
_NUMBERS = ("policy.csv", "report.json")
_FIGURES = (".png", ".svg")


def _check_file(path: Path, made: Path, steady: bool, drawn: bool) -> Iterator[Check]:
    """Compare a file with the recomputed file; numbers from another machine are allowed to differ in their
    last digits.
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


_IDS = re.compile(r"""((?:id="|url\(#|href="#))[^")]*""")  # derived from the numbers in a figure
_NUMBER = re.compile(r"(\d+\.\d+(?:e[+-]?\d+)?)")


def _texts_alike(one: str, other: str, *, exact: bool) -> bool:
    """Compare two texts.

    Numbers with a decimal point must agree to 1e-9, or to one unit of the last digit shown.
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
    """Check the run's entry in the ledger, the totals up to this entry, and the files named in the entry's
    mark.
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
    facts = vars(LedgerFacts.of(ledger, entry))
    yield from _leaves("ledger", {k: v for k, v in stated.items() if k != "name"}, {
        name: dict(value) if isinstance(value, Mapping) else value
        for name, value in facts.items() if name != "name"  # a copy of the folder can have another name
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
    if document["replanned"]:  # the files that are also in the folder that was published first
        published = {name: digest for name, digest in published.items() if _shared(name)}
    marked = {
        name: digest for name, digest in mark.files.items() if name in published or not document["replanned"]
    }
    yield from _leaves("ledger: published", published, marked)


def _shared(name: str) -> bool:
    return name == "release.parquet" or name.startswith("schema.")
