"""Evaluation of policies with the release in a folder, for the command `discreet evaluate`.

:func:`discreet.learners.ope.policy_gains.evaluate_policies` computes the gains. Releases of first visits also
get the verdict of `discreet learn` (:mod:`discreet.learners.ope.policy_verdict`). All computations are
post-processing: no data are read, and no budget is spent.

Every call appends one line to ``judged.jsonl`` in the folder of the release. A line is a JSON object with the
time, the hash of the release, the part of the release, and the SHA-256 of each policy. The intervals of one
call hold jointly. The intervals cannot be corrected for earlier calls that read the release for other
policies. Therefore the report of a call states the number of such calls. A call with the same policies gives
the same result and is not counted.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from discreet.accounting.text import guarantee_sentences as sentences
from discreet.core import checks
from discreet.data.schema import Schema, read_schema
from discreet.learners.offline.release_files import StoredRelease, read_release, read_tables
from discreet.learners.ope.consistency_test import consistency_of
from discreet.learners.ope.deviation_gains import path_of
from discreet.learners.ope.first_visit_query import FirstVisits, VisitSums
from discreet.learners.ope.policy_gains import Made, PolicyGains, PolicySteps, evaluate_policies, policy_steps
from discreet.learners.ope.policy_verdict import policy_verdict
from discreet.learners.ope.verdict import ASKED, Verdict
from discreet.mechanisms.interfaces import ProblemSpec
from discreet.pipeline.learn import Run
from discreet.pipeline.learned_files import learner_of
from discreet.reports.decision_report import LabelNames
from discreet.reports.evaluation_report import JUDGED, EvaluatedPolicy, EvaluationReport
from discreet.reports.policy_inputs import GivenPolicy, read_given_policy


def evaluate_with_release(
    release: str | Path,
    policies: Sequence[str | Path],
    *,
    made: Made = "train",
    share: float = 0.5,
    level: float = 0.95,
    compare: bool = False,
    run_code: bool = False,
) -> EvaluationReport:
    """Evaluate policies in files with the release in a folder, and record the call.

    Parameters
    ----------
    release : str or Path
        Folder that ``discreet learn`` made, or its ``release.parquet``. ``schema.toml`` must be in the same
        folder.
    policies : paths of files or folders
        Formats are described in :mod:`discreet.reports.policy_inputs`. The intervals of all policies hold
        jointly.
    made : "train", "outside" or "release"
        Origin of the policies; see :func:`discreet.learners.ope.policy_gains.evaluate_policies`. "release" is
        for folders in which ``dp-apvi`` or ``apvi`` learned from this release. Their policies are planned
        again.
    share : float
        Share of the users in the training part, in (0, 1).
    level : float
        Joint confidence level of the intervals, in (0, 1).
    compare : bool
        If True, each other policy is also compared to the first one.
    run_code : bool
        If True, a ``policy.py`` may be executed.

    Returns
    -------
    EvaluationReport

    Raises
    ------
    ValueError
        If a file is missing or invalid, the release is of another kind, or a policy contradicts ``made``.
        Nothing is recorded.
    OSError
        If the call cannot be recorded.
    """
    path = _release_in(Path(release))
    stored, schema, run = _opened(path)
    share = checks.real("share", share, 0.0, 1.0, open_low=True, open_high=True)
    given = [read_given_policy(one, schema, run_code) for one in policies]
    names = [one.name for one in given]
    if not given or len(set(names)) < len(names):
        raise ValueError(f"policies = {checks.said(names)}: must be at least one, each of them once")
    if checks.flag("compare", compare) and len(given) == 1:
        raise ValueError("compare: must be given with at least two policies")
    known = path.parent / "rewards.npy"
    spec = schema.spec() if not known.is_file() else _with_rewards(schema, known)
    asked = {one.name: _learned(one, stored, spec) if made == "release" else one.policy for one in given}
    against = names[0] if compare else None
    gains = evaluate_policies(stored, asked, spec, made=made, share=share, level=level, against=against)
    steps = {name: policy_steps(name, policy, spec) for name, policy in asked.items()}
    common: dict[str, Any] = {
        "gains": gains, "share": share, "made": made, "users": stored.users,
        "guarantee": sentences.statement(stored.guarantee), "synthetic": run.synthetic,
    }  # fmt: skip
    if stored.facts.first_visits:
        report = _of_first_visits(stored, schema, gains, steps, given, common)
    else:
        found = tuple(_result(one, gains, steps[one.name], stored, None) for one in given)
        report = EvaluationReport(policies=found, behaviour=None, ended=1.0, named=None, earlier=0, **common)
    return replace(report, earlier=_recorded(path.parent / JUDGED, gains, steps))


def _release_in(path: Path) -> Path:
    """Return the path of a release file. Raises ``ValueError`` if there is none."""
    if path.is_dir():
        found = path / "release.parquet"
        if not found.is_file():
            why = "has no release.parquet; give a folder that `discreet learn` made"
            if (path / "config.toml").is_file() and (path / "seeds").is_dir():
                why = (
                    "holds the regret of simulated users, no release; in Python, give the release of a "
                    "session to dr.learners.ope.evaluate_policies"
                )
            raise ValueError(f"release = {str(path)!r}: {why}")
        return found
    if not path.is_file():
        raise ValueError(f"release = {str(path)!r}: no such file")
    return path


def _opened(path: Path) -> tuple[StoredRelease, Schema, Run]:
    schema_path = path.parent / "schema.toml"
    if not schema_path.is_file():
        raise ValueError(f"{path}: schema.toml must be in the same folder")
    if read_tables(path).facts.linear:
        raise ValueError(
            f"{path}: holds sums of features, which say nothing about other policies than their own; must "
            "hold counts (decision-points, dp-apvi, apvi)"
        )
    schema = read_schema(schema_path)
    return read_release(path), schema, Run.of(path, schema)


def _with_rewards(schema: Schema, path: Path) -> ProblemSpec:
    return replace(schema, known=np.load(path, allow_pickle=False), outcomes=None).spec()


def _learned(given: GivenPolicy, stored: StoredRelease, spec: ProblemSpec) -> Any:
    """Plan again with the learner that made a policy from the release, and return its result.

    Raises ``ValueError`` if the policy was not learned from this release by a learner with one policy per
    step.
    """
    if stored.facts.first_visits:
        raise ValueError(
            f"{given.name}: made = 'release' is for counts per step only; the interval of a folder's own "
            "policy is in its report.md; plan any other policy from the training part "
            "(dr.learners.world_model), and use made = 'train'"
        )
    origin = given.policy.made_from
    if given.release is None or origin is None:
        raise ValueError(
            f"{given.name}: must be in a folder that `discreet learn` or `replan` made from this release, "
            "with made = 'release'; the scores of its planner are needed"
        )
    algorithm, options, unsupported = _configuration(given.release, stored)
    if algorithm not in ("dp-apvi", "apvi"):
        raise ValueError(f"{given.name}: was made by {algorithm}: must be of dp-apvi or apvi")
    learned = learner_of(algorithm, options).learn(stored, spec)
    if unsupported == "policy":
        learned = replace(learned, supported=np.ones_like(learned.supported))
    elif unsupported != "abstain":
        raise ValueError(
            f"{given.name}: unsupported = {unsupported!r}: must be 'abstain' or 'policy' with made = "
            "'release'"
        )
    if not np.array_equal(np.where(learned.supported, learned.policy, -1), np.asarray(given.policy)):
        raise ValueError(f"{given.name}: is not the policy that {algorithm} plans from this release")
    return learned


def _configuration(release: Path, stored: StoredRelease) -> tuple[str, Mapping[str, Any], str]:
    """Return the learner's name, its options and ``unsupported`` of the folder of a release."""
    try:
        found = json.loads((release.parent / "statement.json").read_text("utf-8"))["configuration"]
        return found["algorithm"], found["options"]["learner"], found["options"]["unsupported"]
    except FileNotFoundError:
        facts = stored.facts
        return str(facts.algorithm), facts.options["learner"], facts.options.get("unsupported", "abstain")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{release.parent}: must hold the statement of its release ({error!r})") from None


def _result(
    given: GivenPolicy, gains: PolicyGains, table: PolicySteps, stored: StoredRelease, verdict: Verdict | None
) -> EvaluatedPolicy:
    """Return the result for one policy."""
    origin, related = given.policy.made_from, False
    if given.release is not None and origin is not None and origin["release"] != gains.made_from["release"]:
        related = read_tables(given.release).facts.dataset == stored.facts.dataset
    changes = int((~table.before).any(axis=0).sum())
    return EvaluatedPolicy(given.name, gains.gains[given.name], changes, origin, verdict, related)


def _of_first_visits(
    stored: StoredRelease, schema: Schema, gains: PolicyGains, steps: Mapping[str, PolicySteps],
    given: Sequence[GivenPolicy], common: Mapping[str, Any],
) -> EvaluationReport:  # fmt: skip
    """Return the report with a verdict on each policy. The consistency test reads the whole release."""
    sums: VisitSums = FirstVisits(schema.spec(), schema.episodes_per_user).read(stored)
    test = consistency_of(sums)
    options = stored.facts.options.get("learner", {})
    asked = options.get("hidden_cause", ASKED)
    found = []
    for one in given:
        table = steps[one.name]
        verdict = policy_verdict(sums, table, gains.gains[one.name], test, asked)
        found.append(_result(one, gains, table, stored, verdict))
    return EvaluationReport(
        policies=tuple(found), behaviour=path_of(sums, gains.level).behaviour(), ended=sums.ended,
        named=LabelNames(schema, sums).row, earlier=0, **common,
    )  # fmt: skip


def _recorded(path: Path, gains: PolicyGains, steps: Mapping[str, PolicySteps]) -> int:
    """Append this call to the record. Returns the number of earlier calls with other policies."""
    made_from = gains.made_from
    hashes = sorted(
        hashlib.sha256(table.weights.tobytes() + table.before.tobytes()).hexdigest()
        for table in steps.values()
    )
    entry = {
        "version": 1, "time": datetime.now(UTC).isoformat(timespec="seconds"), **made_from,
        "level": gains.level, "policies": hashes,
    }  # fmt: skip
    earlier = _earlier(path, made_from["release"])
    line = json.dumps(entry, ensure_ascii=True, allow_nan=False) + "\n"
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, line.encode())
        os.fsync(handle)
    finally:
        os.close(handle)
    return len(earlier - {frozenset(hashes)})


def _earlier(path: Path, release: str) -> set[frozenset[str]]:
    """Return the sets of policies of the recorded calls. Raises ``ValueError`` if a line is invalid."""
    if not path.exists():
        return set()
    found = set()
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        try:
            entry = json.loads(line)
            if entry["release"] == release:
                found.add(frozenset(str(one) for one in entry["policies"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}, line {number}: must be a call that was recorded ({error!r})") from None
    return found
