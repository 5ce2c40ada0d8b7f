"""Study of the independent verifiers: honest folders that must agree, and forged folders that must differ.

``python -m benchmarks.verifier honest`` writes ``verifier_folders.md``: kinds of folders with three releases each.
``python -m benchmarks.verifier forged`` writes ``verifier.md``: changes of eight folders. A forger is assumed to know
this library: pages are made again from the changed statement, ``ledger.jsonl`` gets a new chain of hashes, and all
hashes fit. If Node is installed, the script of the page ``verify_statement.html`` must find the same.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import discreet
import discreet as dr
from discreet.data.row_batches import open_source
from discreet.data.schema import Schema
from discreet.learners.offline.linear_advantage import LinearAdvantage
from discreet.ledger.ledger import Ledger
from discreet.pipeline.learn import learn
from discreet.reports.statement import Statement, fingerprint_of, write_statement
from tests.helpers import vitals_files

_FILE = Path(discreet.__file__).parent / "checker" / "verify_statement.py"
_PAGE = _FILE.with_suffix(".html")
_DRIVER = Path(__file__).parents[1] / "tests" / "checker" / "page.mjs"
OUT = Path(__file__).with_suffix(".md")
Change = Callable[[dict[str, Any], Path], None]


def verifier() -> Any:
    """Return the verifier as a module."""
    spec = importlib.util.spec_from_file_location("verify_statement", _FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page_agrees(folders: list[Path], results: list[list[Any]]) -> bool | None:
    """Return whether the page's script finds the same as the verifier in all folders; None without Node."""
    node = shutil.which("node")
    if node is None:
        return None
    command = [node, _DRIVER, _PAGE, "folders", *folders]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return [[(one[0], one[3]) for one in rows] for rows in found] == [
        [(one[0], one[3]) for one in rows] for rows in results
    ]


def made(
    out: Path, learner: Any, privatizer: Any, *, ledger: Any = None, users: int = 400, states: int = 3,
    steps: int = 4, episodes: int = 1, randomness: Any = None, seed: int = 1, judge_share: float | None = None,
    **schema: Any,
) -> Path:  # fmt: skip
    """Make a folder from made-up trajectories of a uniform policy, and return its path."""
    rng = np.random.default_rng(seed)
    rows = ["user,episode,step,state,action,reward,next_state"]
    for user in range(users):
        for episode in range(episodes):
            s = rng.integers(0, states - ("terminal" in schema), steps + 1)
            s[-1] = rng.integers(0, states)
            rows += [f"u{user},{episode},{h},{s[h]},{rng.integers(0, 2)},{rng.integers(0, 2)},{s[h + 1]}"
                     for h in range(steps)]  # fmt: skip
    data = out.with_suffix(".csv")
    data.write_text("\n".join(rows) + "\n", "utf-8")
    facts = Schema(
        "ward", "person", dr.Layout(states, 2, steps), stationary=True, episodes_per_user=episodes, **schema
    )
    learn(open_source(data, facts), learner, out, ledger=ledger, privatizer=privatizer,
          randomness=randomness or dr.Secure(), judge_share=judge_share)  # fmt: skip
    return out


def made_contexts(out: Path) -> Path:
    """Make a folder from simulated stays with vital signs, with a ledger beside it."""
    with Ledger.open(out.with_suffix(".sqlite")) as ledger:
        learn(open_source(vitals_files.frame(), vitals_files.schema(False)), LinearAdvantage(), out, ledger=ledger,
              privatizer=dr.Central(epsilon=3.0, delta=1e-4), judge_share=0.5)  # fmt: skip
    return out


# ------------------------------------------------------------------------------------ honest folders


def kinds() -> dict[str, dict[str, Any]]:
    """Return kinds of folders by name; the last ones are at the edges of what is allowed."""
    found: dict[str, dict[str, Any]] = {}
    central = dr.Central
    budgets = {
        "epsilon 0.5": {"epsilon": 0.5, "delta": 1e-6}, "epsilon 1": {"epsilon": 1.0, "delta": 1e-6},
        "epsilon 3": {"epsilon": 3.0, "delta": 1e-5}, "pure 1": {"epsilon": 1.0, "delta": 0.0},
        "pure 5": {"epsilon": 5.0, "delta": 0.0}, "rho 0.1": {"rho": 0.1}, "rho 1": {"rho": 1.0},
    }  # fmt: skip
    for name, budget in budgets.items():
        found[f"decision-points, {name}"] = {"learner": dr.DecisionPoints(), "privatizer": central(**budget)}
        found[f"decision-points, 3 episodes, {name}"] = {
            "learner": dr.DecisionPoints(), "privatizer": central(**budget), "episodes": 3, "users": 150,
        }  # fmt: skip
        if "rho" in budget or budget["delta"] == 0.0:
            found[f"dp-apvi, {name}"] = {"learner": dr.DPAPVI(), "privatizer": central(**budget)}
            found[f"dp-apvi, 3 episodes, {name}"] = {
                "learner": dr.DPAPVI(), "privatizer": central(**budget), "episodes": 3, "users": 150,
            }  # fmt: skip
        found[f"dp-pevi, {name}"] = {"learner": dr.DPPEVI(
            **budget, **({"noise": "laplace"} if budget.get("delta", 1.0) == 0.0 else {})), "privatizer": None}  # fmt: skip
    found["dp-apvi, epsilon 1, numerical"] = {
        "learner": dr.DPAPVI(),
        "privatizer": central(epsilon=1.0, delta=1e-6, noise="gaussian"),
    }
    found["dp-apvi, Laplace, epsilon 1, numerical"] = {
        "learner": dr.DPAPVI(), "privatizer": central(epsilon=1.0, delta=1e-6, noise="laplace"),
    }  # fmt: skip
    found["dp-apvi, seeded"] = {"learner": dr.DPAPVI(), "privatizer": central(epsilon=1.0, delta=1e-6),
                                "randomness": dr.Seeded(1)}  # fmt: skip
    found["decision-points, seeded"] = {"learner": dr.DecisionPoints(), "privatizer": central(epsilon=1.0, delta=1e-6),
                                        "randomness": dr.Seeded(1)}  # fmt: skip
    found["apvi, exact"] = {"learner": dr.learners.APVI(), "privatizer": None}
    found["dp-pevi, model"] = {"learner": dr.DPPEVI(rho=0.5, response="model"), "privatizer": None}
    found["dp-pevi, judged"] = {"learner": dr.DPPEVI(rho=0.5, judged=True), "privatizer": None}
    found["dp-pevi, Laplace, model"] = {
        "learner": dr.DPPEVI(epsilon=5.0, delta=0.0, noise="laplace", response="model"),
        "privatizer": None,
    }
    found["dp-vapvi, rho 0.5"] = {"learner": dr.learners.DPVAPVI(rho=0.5), "privatizer": None}
    found["dp-apvi, rho 0.1, limit"] = {"learner": dr.DPAPVI(), "privatizer": central(rho=0.1), "limit": True}
    found["decision-points, pure 1, limit"] = {
        "learner": dr.DecisionPoints(),
        "privatizer": central(epsilon=1.0, delta=0.0),
        "limit": True,
    }
    found["dp-apvi, epsilon 1, numerical, 11 exchanges"] = {
        "learner": dr.DPAPVI(), "privatizer": central(epsilon=1.0, delta=1e-6, noise="gaussian"), "steps": 10,
    }  # fmt: skip
    found["decision-points, two groups"] = {
        "learner": dr.DecisionPoints(), "privatizer": central(epsilon=1.0, delta=1e-6), **GROUPS,
    }  # fmt: skip
    for name, budget in {"epsilon 0.001": {"epsilon": 1e-3, "delta": 1e-6}, "pure 0.001": {"epsilon": 1e-3, "delta": 0.0},
                         "epsilon 50": {"epsilon": 50.0, "delta": 1e-6}, "pure 50": {"epsilon": 50.0, "delta": 0.0}}.items():  # fmt: skip
        found[f"decision-points, {name}"] = {"learner": dr.DecisionPoints(), "privatizer": central(**budget)}
        if budget["delta"]:
            laplace = central(**budget, noise="laplace")
            found[f"dp-apvi, {name}, numerical"] = {"learner": dr.DPAPVI(), "privatizer": central(**budget)}
            found[f"dp-apvi, Laplace, {name}, numerical"] = {"learner": dr.DPAPVI(), "privatizer": laplace}
            found[f"dp-pevi, {name}"] = {"learner": dr.DPPEVI(**budget), "privatizer": None}
    found["dp-apvi, two users, numerical"] = {
        "learner": dr.DPAPVI(), "privatizer": central(epsilon=1.0, delta=0.1), "users": 2,
    }  # fmt: skip
    found["dp-pevi, two users"] = {"learner": dr.DPPEVI(rho=0.3), "privatizer": None, "users": 2}
    found["dp-apvi, one step, rho 0.1"] = {"learner": dr.DPAPVI(), "privatizer": central(rho=0.1), "steps": 1}
    return found


GROUPS: dict[str, Any] = {"judge_share": 0.5, "states": 4, "terminal": (3,), "outcomes": {3: 1.0}}


def write_honest(rows: list[tuple[str, list[str], float, bool | None]]) -> None:
    """Write the page about honest folders."""
    good, wrong = (sum(test(one) for _, exits, *_ in rows for one in exits) for test in (
        lambda one: one == "agrees", lambda one: "DIFFERS" in one))  # fmt: skip
    closed = max(longest for name, _, longest, _ in rows if "numerical" not in name and "limit" not in name)
    same = {True: "yes", False: "no", None: "no Node"}
    text = ["# The independent verifier: honest folders\n", "`python -m benchmarks.verifier honest` writes this page.\n",
            f"{good} of {3 * len(rows)} releases ({len(rows)} kinds) agree in every check, {wrong} differ in one, and in the others "
            "a check is not possible, which the table names. The page finds the same in "
            f"{sum(one is True for *_, one in rows)} kinds. Longest verification, seconds of one core: {closed:.1f} by closed forms, "
            f"{max(one[2] for one in rows):.1f} with exchanges.\n",
            "| kind | three releases | longest verification, s of one core | the page finds the same |", "|---|---|---|---|",
            *(f"| {name} | {', '.join(exits)} | {longest:.1f} | {same[page]} |" for name, exits, longest, page in rows)]  # fmt: skip
    OUT.with_name("verifier_folders.md").write_text("\n".join(text) + "\n", "utf-8")


def honest(place: Path, checker: Any) -> list[tuple[str, list[str], float, bool | None]]:
    """Return name, results of three releases, longest time of a verification, and whether the page agrees."""
    rows: list[tuple[str, list[str], float, bool | None]] = []
    for number, (name, options) in enumerate(kinds().items()):
        limit = options.pop("limit", False)
        without = options.get("randomness") is not None or "exact" in name
        exits, longest, folders, all_found = [], 0.0, [], []
        with Ledger.open(place / f"{number}.sqlite") as ledger:
            if limit:
                ledger.set_limit("ward", 20.0, 1e-6)
            for release in range(3):
                out = made(
                    place / f"k{number}-{release}",
                    ledger=None if without else ledger,
                    seed=release,
                    **options,
                )
                begin = time.process_time()
                results = list(checker.verify(out))
                folders.append(out)
                all_found.append(results)
                longest = max(longest, time.process_time() - begin)
                rest = sorted({f"{result}: {check}" for check, _, _, result in results if result != "agrees"})
                exits.append("; ".join(rest) or "agrees")
                for one in results:
                    if one[3] != "agrees":
                        print(name, release, one, flush=True)
        rows.append((name, exits, longest, page_agrees(folders, all_found)))
        write_honest(rows)
        print(name, exits, f"{longest:.1f} s", rows[-1][3], flush=True)
    return rows


# ------------------------------------------------------------------------------------ forged folders


def put(path: str, value: Any) -> Change:
    """Return a change that sets one value, at a dotted path; a function is applied to the old value."""

    def change(document: dict[str, Any], folder: Path) -> None:
        *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        table: Any = document
        for part in parents:
            table = table[part]
        table[last] = value(table[last]) if callable(value) else value

    return change


def all_of(*changes: Change) -> Change:
    """Return a change that makes several changes."""

    def change(document: dict[str, Any], folder: Path) -> None:
        for one in changes:
            one(document, folder)

    return change


def records(edit: Callable[[dict[str, Any]], Any]) -> Change:
    """Return a change of the mechanism record, in all places of the statement."""

    def change(document: dict[str, Any], folder: Path) -> None:
        for one in (document["guarantee"]["mechanisms"][0], document["mechanisms"][0]["record"]):
            edit(one)
        for family in document["mechanisms"][0]["families"]:
            record = document["mechanisms"][0]["record"]
            factor = record["scales"][family["family"]] / family["scale"]
            family.update(scale=record["scales"][family["family"]], std=family["std"] * factor,
                          sensitivity=record["sensitivities"][family["family"]])  # fmt: skip

    return change


def times(factor: float) -> Callable[[Any], Any]:
    return lambda value: value * factor


def scaled(factor: float) -> Callable[[dict[str, Any]], Any]:
    """Multiply all scales of a record."""
    return lambda record: record["scales"].update({k: v * factor for k, v in record["scales"].items()})


def believed(factor: float, checker: Any) -> Change:
    """State all scales as ``factor`` times the true ones, with every number that follows from them."""

    def edit(record: dict[str, Any]) -> None:
        scaled(factor)(record)
        record["joint"] /= factor

    return followed(records(edit), checker)


def silent(family: str, checker: Any) -> Change:
    """State a record without one of the noisy sums, with every number that follows from it."""

    def change(document: dict[str, Any], folder: Path) -> None:
        mechanism, query = document["mechanisms"][0], document["query"]
        find = checker.linear_sensitivity if query["kind"] == "linear sums" else checker.count_sensitivity
        for record in (mechanism["record"], document["guarantee"]["mechanisms"][0]):
            del record["scales"][family], record["sensitivities"][family]
            record["joint"] = find(query, 2, record["scales"])
        mechanism["families"] = [one for one in mechanism["families"] if one["family"] != family]

    return followed(change, checker)


def fewer(name: str, key: str, old: int, new: int, checker: Any) -> Change:
    """State another horizon, number of states or of episodes in query, population, schema and joint sensitivity."""

    def change(document: dict[str, Any], folder: Path) -> None:
        query, record = document["query"], document["mechanisms"][0]["record"]
        query[name] += new - old
        document["population"][key] = new
        if name == "episodes":
            document["guarantee"]["episodes"] = new
        path = folder / "schema.toml"
        text = path.read_text("utf-8")
        label = "count" if name == "states" else key
        assert f"{label} = {old}" in text, text
        path.write_text(text.replace(f"{label} = {old}", f"{label} = {new}", 1), "utf-8")
        find = checker.linear_sensitivity if query["kind"] == "linear sums" else checker.count_sensitivity
        joint = find(query, 2, record["scales"])
        alone = {family: find(query, 2, {family: 1.0}) for family in record["scales"]}
        records(lambda r: r.update(joint=joint, sensitivities=alone))(document, folder)

    return followed(change, checker)


def asked(path: str, value: Any, checker: Any) -> Change:
    """Change the query of linear sums, with every number that follows from it."""

    def change(document: dict[str, Any], folder: Path) -> None:
        put(path, value)(document, folder)
        query, scales = document["query"], document["mechanisms"][0]["record"]["scales"]
        joint = checker.linear_sensitivity(query, 2, scales)
        alone = {family: checker.linear_sensitivity(query, 2, {family: 1.0}) for family in scales}
        records(lambda r: r.update(joint=joint, sensitivities=alone))(document, folder)

    return followed(change, checker)


def odd_file(name: str, make: Callable[[Path], Any]) -> Change:
    """Return a change that puts something other than a regular file in the place of a file."""

    def change(document: dict[str, Any], folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return change


def followed(start: Change, checker: Any) -> Change:
    """Return a change after which every number that follows from the first record is made again."""

    def change(document: dict[str, Any], folder: Path) -> None:
        start(document, folder)
        guarantee, record = document["guarantee"], document["mechanisms"][0]["record"]
        document["mechanisms"][0]["loss"] = record["joint"]
        rho, delta = record["joint"] ** 2 / 2, guarantee["delta"]
        epsilon = checker.zcdp_epsilon(rho, delta)
        guarantee.update(rho=rho, epsilon=epsilon)
        at_most = checker.exceedance(lambda t: checker.zcdp_delta(rho, t), epsilon)
        guarantee["exceeds"] = {"epsilon": epsilon, "at_most": at_most}
        consistent(document, checker)

    return change


def consistent(document: dict[str, Any], checker: Any) -> None:
    """Recompute tables and sentences of a first release from its guarantee, as a forger would."""
    guarantee = document["guarantee"]
    bounds = checker.Bounds([(guarantee["epsilon"], guarantee["delta"])], guarantee["mu"], guarantee["rho"])
    document["attacker"] = bounds.table()
    for group in document["groups"]:
        many = bounds.group(group["people"])
        group.update(
            epsilon=many.epsilon(guarantee["delta"]), rho=many.rho, mu=many.mu, advantage=many.excess(0.0)
        )
    right = math.ceil(1000 * document["attacker"]["priors"][0]["right_guess"]) / 10
    factor = math.ceil(100 * math.exp(guarantee["epsilon"])) / 100
    text = re.sub(r"at most [e^\d.]+ times what", f"at most {factor} times what", document["sentence"])
    document["sentence"] = re.sub(r"right at most [\d.]+ times", f"right at most {right} times", text)
    guarantee["statement"] = re.sub(
        r"ε = [\d.e-]+\d", f"ε = {math.ceil(1e6 * guarantee['epsilon']) / 1e6}", guarantee["statement"]
    )
    if guarantee["rho"]:
        guarantee["statement"] = re.sub(
            r"ρ = [\d.e-]+\d", f"ρ = {math.ceil(1e6 * guarantee['rho']) / 1e6}", guarantee["statement"]
        )
    for name in ("before", "after", "together") if document["ledger"] else ():
        if name != "before":
            document["ledger"][name].update(epsilon=guarantee["epsilon"], rho=guarantee["rho"])


def drop(key: str, start: str) -> Change:
    """Return a change that removes a line that starts with a text."""

    def change(document: dict[str, Any], folder: Path) -> None:
        kept = [line for line in document[key] if not line.startswith(start)]
        assert len(kept) < len(document[key]), start
        document[key] = kept

    return change


def on_file(name: str, edit: Callable[[str], str]) -> Change:
    """Return a change of a text file."""

    def change(document: dict[str, Any], folder: Path) -> None:
        path = folder / name
        before = path.read_text("utf-8")
        assert edit(before) != before, name
        path.write_text(edit(before), "utf-8")

    return change


def on_page(name: str, edit: Callable[[str], str]) -> Change:
    """Return a change of a page that is made after the pages were written from the statement."""

    def change(document: dict[str, Any], folder: Path) -> None:
        """Change nothing yet."""

    change.last = on_file(name, edit)  # type: ignore[attr-defined]
    return change


def remove(name: str) -> Change:
    def change(document: dict[str, Any], folder: Path) -> None:
        (folder / name).unlink()
        del document["files"][name]

    return change


def users(number: int) -> Change:
    """State another number of users everywhere."""

    def change(document: dict[str, Any], folder: Path) -> None:
        old = document["population"]["users"]
        document["population"]["users"] = number
        document["delta"].update(per_user=1 / number, ratio=document["delta"]["delta"] * number)
        document["not_covered"] = [
            line.replace(f"people, {old}", f"people, {number}") for line in document["not_covered"]
        ]
        on_file("release.csv", lambda text: text.replace(f"users={old}", f"users={number}"))(document, folder)

    return change


def values(edit: Callable[[float], float], family: str = "transition") -> Change:
    """Change the values of a family in release.csv."""

    def lines(text: str) -> str:
        found = []
        for line in text.splitlines():
            head, _, value = line.rpartition(",")
            found.append(
                f"{head},{edit(float(value))}" if line.startswith(family) and "state" not in line else line
            )
        return "\n".join(found) + "\n"

    return on_file("release.csv", lines)


def synthetic(document: dict[str, Any], folder: Path) -> None:
    document["synthetic"] = True


def on_ledger(edit: Callable[[list[dict[str, Any]]], Any]) -> Change:
    """Return a change of the entries of ledger.jsonl; their hashes are made again afterwards."""

    def lines(text: str) -> str:
        rows = [json.loads(line) for line in text.splitlines()]
        entries = [json.loads(row["text"]) for row in rows]
        edit(entries)
        return "".join(
            json.dumps({"hash": "", "text": json.dumps(one, sort_keys=True, separators=(",", ":"))}) + "\n"
            for one in entries
        )

    return on_file("ledger.jsonl", lines)


def limited(value: float) -> Change:
    """State another limit, which nobody signed, in the statement and the ledger."""

    def edit(entries: list[dict[str, Any]]) -> None:
        next(one for one in entries if one["kind"] == "limit")["epsilon"] = value

    return all_of(
        put("ledger.before.limit_epsilon", value), put("ledger.after.limit_epsilon", value), on_ledger(edit)
    )


def group_of(**values: Any) -> Change:
    """Change parts of the second group's mechanism; a key with a dot names a table and its entry."""

    def change(document: dict[str, Any], folder: Path) -> None:
        mechanism = document["second_group"]["mechanism"]
        record, family = mechanism["record"], mechanism["families"][0]
        for name, value in values.items():
            if name == "scale":
                record["scales"]["clipped_answers"] = family["scale"] = family["std"] = (
                    value * family["scale"]
                )
            elif name == "sensitivity":
                record["sensitivities"]["clipped_answers"] = family["sensitivity"] = value
            else:
                (mechanism if name == "loss" else record)[name] = (
                    value(record["joint"]) if callable(value) else value
                )

    return change


def moved(number: int, everywhere: bool) -> Change:
    """Count some people of the second group in the release."""

    def change(document: dict[str, Any], folder: Path) -> None:
        second = document["second_group"]
        mine, other = second["users_of_release"], second["users"]
        second.update(users=other - number, users_of_release=mine + number)
        document["covered"] = [
            line.replace(
                f"{mine} in the release, and {other}", f"{mine + number} in the release, and {other - number}"
            )
            for line in document["covered"]
        ]
        if everywhere:
            on_file("release.csv", lambda text: text.replace(f"users={mine}", f"users={mine + number}"))(
                document, folder
            )

    return change


def said_secure(document: dict[str, Any], folder: Path) -> None:
    """State that seeded noise was drawn from the operating system, everywhere."""
    guarantee = document["guarantee"]
    guarantee.update(randomness="secure", holds_if_seed_is_guessed=True)
    for record in (guarantee["mechanisms"][0], document["mechanisms"][0]["record"]):
        record["noise"] = f"discrete_{record['noise']}"
    document["mechanisms"][0]["source_of_randomness"] = "operating system's cryptographic source"
    document["warnings"] = [one for one in document["warnings"] if "SEEDED NOISE" not in one]
    on_file("release.csv", lambda text: text.replace("randomness=seeded", "randomness=secure"))(
        document, folder
    )


def reported(**values: Any) -> Change:
    """Change entries of report.json."""
    return on_file("report.json", lambda text: json.dumps(json.loads(text) | values))


def forgeries(checker: Any) -> list[tuple[str, str, Change]]:
    """Return (folder, name, change) of all forgeries."""
    half = times(0.5)
    found: list[tuple[str, str, Change]] = []
    for what in ("epsilon", "rho", "delta"):
        found.append(("counts", f"guarantee.{what} halved", put(f"guarantee.{what}", half)))
    found += [
        ("counts", "epsilon halved, with tables and sentence",
         all_of(put("guarantee.epsilon", half), lambda d, f: consistent(d, checker))),
        ("counts", "rho halved, with tables and sentence",
         all_of(put("guarantee.rho", half), lambda d, f: consistent(d, checker))),
        ("counts", "exceeds: bound divided by 10", put("guarantee.exceeds.at_most", times(0.1))),
        ("counts", "exceeds: other epsilon", put("guarantee.exceeds.epsilon", half)),
        ("counts", "joint sensitivity halved", records(lambda r: r.update(joint=r["joint"] / 2))),
        ("counts", "a sensitivity halved", records(lambda r: r["sensitivities"].update(
            transition_counts=r["sensitivities"]["transition_counts"] / 2))),
        ("counts", "all sensitivities halved", records(lambda r: r.update(
            sensitivities={k: v / 2 for k, v in r["sensitivities"].items()}))),
        ("counts", "scales doubled in the record only", records(scaled(2.0))),
        ("counts", "scales stated 2 times, everything consistent", believed(2.0, checker)),
        ("counts", "scales stated 1.5 times, everything consistent", believed(1.5, checker)),
        ("counts", "scales stated 1.05 times, everything consistent", believed(1.05, checker)),
        ("counts", "levels 2", records(lambda r: r.update(levels=2))),
        ("counts", "another kind of noise", records(lambda r: r.update(noise="gaussian"))),
        ("counts", "noise of another name", records(lambda r: r.update(noise="cauchy"))),
        ("counts", "mu stated", put("guarantee.mu", 0.1)),
        ("counts", "loss of the mechanism halved", put("mechanisms.0.loss", half)),
        ("counts", "scale of a table doubled", put("mechanisms.0.families.0.scale", times(2.0))),
        ("counts", "standard deviation doubled", put("mechanisms.0.families.0.std", times(2.0))),
        ("counts", "advantage halved", put("attacker.advantage", half)),
        ("counts", "true positives halved", put("attacker.tests.0.true_positives", half)),
        ("counts", "right guess lowered", put("attacker.priors.0.right_guess", 0.5)),
        ("counts", "posterior lowered", put("attacker.priors.1.posteriors.0.posterior", half)),
        ("counts", "a posterior of any outcome", put("attacker.priors.0.posterior_of_any_outcome", 0.6)),
        ("counts", "group epsilon halved", put("groups.1.epsilon", half)),
        ("counts", "group advantage halved", put("groups.2.advantage", half)),
        ("counts", "a group removed", put("groups", lambda g: g[:2])),
        ("counts", "group of 2 named 5", put("groups.0.people", 5)),
        ("counts", "factor in the sentence", put("sentence", lambda s: re.sub(
            r"at most [e^\d.]+ times what", "at most 1.05 times what", s))),
        ("counts", "right guesses in the sentence", put("sentence", lambda s: s.replace("right at most", "right at most 50.1 times in 100 or at most"))),
        ("counts", "chance in the sentence", put("sentence", lambda s: s.replace("1 in 1,000,000", "1 in 9,000,000"))),
        ("counts", "another sentence", put("sentence", "Your data are safe.")),
        ("counts", "users 10 times as many", users(4000)),
        ("counts", "users 1.5 times as many", users(600)),
        ("counts", "users 1.5 times as many, also in the report", all_of(users(600), reported(users=600))),
        ("counts", "report: other users", reported(users=4000)),
        ("counts", "report: another guarantee", reported(guarantee="Nothing is revealed.")),
        ("counts", "report: another level", reported(level=0.5)),
        ("counts", "report: another verdict in report.json", reported(verdict="Shown to be better.")),
        ("counts", "users 1 more", users(401)),
        ("counts", "users in the population only", put("population.users", 4000)),
        ("counts", "users not public", put("population.users_public", False)),
        ("counts", "episodes 3 for 1", put("population.episodes_per_user", 3)),
        ("counts", "query: episodes 3", put("query.episodes", 3)),
        ("counts", "query: fewer steps", put("query.steps", 2)),
        ("counts", "query: first visits", all_of(put("query.kind", "first visits"), put("query.first", True))),
        ("counts", "query: a coarser grid", put("query.families.centered_reward_sums.grid", 1.0)),
        ("counts", "query: another number of cells", put("query.families.transition_counts.cells", 12)),
        ("counts", "states in the population", put("population.states", 30)),
        ("counts", "horizon in the population", put("population.horizon", 2)),
        ("counts", "source of a fact", put("population.provenance", {"states": "protocol"})),
        ("counts", "dataset renamed in the statement", put("population.dataset", "elsewhere")),
        ("counts", "trust local", put("guarantee.trust", "local")),
        ("counts", "trust local, also in release.csv", all_of(put("guarantee.trust", "local"),
            on_file("release.csv", lambda t: t.replace("trust=central", "trust=local")))),
        ("counts", "randomness seeded said secure, reversed", put("guarantee.randomness", "seeded")),
        ("counts", "synthetic", synthetic),
        ("counts", "delta against users", put("delta.verdict", "pure")),
        ("counts", "not covered: raw data dropped", drop("not_covered", "The raw data")),
        ("counts", "not covered: side channels dropped", drop("not_covered", "Side channels")),
        ("counts", "not covered: later releases dropped", drop("not_covered", "Releases of the same people")),
        ("counts", "covered: a line added", put("covered", lambda c: [*c, "Whether a person is in the data set."])),
        ("counts", "warning of no limit dropped", drop("warnings", "NO LIMIT")),
        ("counts", "warning of a new ledger dropped", drop("warnings", "NEW LEDGER")),
        ("counts", "ledger said old", all_of(put("ledger.new", False), drop("warnings", "NEW LEDGER"))),
        ("counts", "together: epsilon halved", put("ledger.together.epsilon", half)),
        ("counts", "together: rho halved", put("ledger.together.rho", half)),
        ("counts", "a limit that nobody set", all_of(put("ledger.after.limit_epsilon", 5.0), put("ledger.after.limit_delta", 1e-6),
            drop("warnings", "NO LIMIT"))),
        ("counts", "another head of the ledger", put("ledger.head", "0" * 64)),
        ("counts", "another number of the entry", put("ledger.number", 9)),
        ("counts", "ledger.jsonl cut", on_file("ledger.jsonl", lambda t: "\n".join(t.splitlines()[:1]) + "\n")),
        ("counts", "ledger.jsonl: a text changed", on_file("ledger.jsonl", lambda t: t.replace("ward", "wand"))),
        ("counts", "ledger removed", all_of(put("ledger", None), remove("ledger.jsonl"))),
        ("counts", "ledger.jsonl removed", remove("ledger.jsonl")),
        ("counts", "release.csv removed", remove("release.csv")),
        ("counts", "no noise in release.csv", values(lambda v: 11.0)),
        ("counts", "noise halved in release.csv", values(lambda v: float(round(16.7 + (v - 16.7) / 2)))),
        ("counts", "release off the grid", values(lambda v: v + 0.25)),
        ("counts", "one value of release.csv plus 1", on_file("release.csv", lambda t: t.replace("transition_counts,0,0,0,0,", "transition_counts,0,0,0,0,1", 1))),
        ("counts", "a row of release.csv removed", on_file("release.csv", lambda t: "\n".join(t.splitlines()[:-1]) + "\n")),
        ("counts", "a file that nobody named", lambda d, f: (f / "extra.txt").write_text("x") and None),
        ("counts", "policy replaced", on_file("policy.csv", lambda t: t.replace(",0,", ",1,"))),
        ("counts", "report: a line before the verdict", on_file("report.md", lambda t: "Shown to be better.\n" + t)),
        ("counts", "report replaced: verdict in all its files", all_of(reported(verdict="Shown to be better."),
            on_file("report.md", lambda t: "**Shown to be better.**\n" + t.partition("\n")[2]))),
        ("counts", "purpose replaced", put("purpose", "care")),
        ("counts", "date replaced", put("date", "2020-01-01T00:00:00+00:00")),
        ("counts", "level replaced in the options", put("configuration.options.level", 0.5)),
        ("counts", "release.parquet replaced", lambda d, f: (f / "release.parquet").write_bytes(b"other") and None),
        ("counts", "report.md: another epsilon", on_file("report.md", lambda t: re.sub(r"ε = [\d.]+", "ε = 0.0123", t))),
        ("counts", "report.html: another epsilon", on_file("report.html", lambda t: re.sub(r"ε = [\d.]+", "ε = 0.0123", t))),
        ("counts", "the epsilon that was asked for", put("guarantee.epsilon_nominal", 0.1)),
        ("counts", "composition: another number", put("guarantee.composition", lambda c: [re.sub(r"epsilon [\d.]+", "epsilon 0.0123", one) for one in c])),
        ("counts", "composition: other words", put("guarantee.composition", ["Nothing is revealed."])),
        ("counts", "description: another number", put("mechanisms.0.description", lambda t: re.sub(r"sigma = [\d.]+", "sigma = 812.5", t))),
        ("counts", "description: other words", put("mechanisms.0.description", "noise without end")),
        ("counts", "derivation: other words", put("query.derivation", "No user can change anything.")),
        ("counts", "pairs in the population", put("population.pairs", times(10))),
        ("counts", "proof: other words", put("mechanisms.0.proof", ["proved elsewhere"])),
        ("counts", "method of a total: other words", put("ledger.after.method", "a better method")),
        ("counts", "rule of the total: other words", put("ledger.together.rule", "a better rule")),
        ("counts", "officer.html: a text after the glossary", on_page("officer.html", lambda t: t.replace("</main>", "<p>Nobody can be found in these data.</p></main>") if "</main>" in t else t + "<p>Nobody can be found in these data.</p>")),
        ("counts", "options of the learner replaced", put("configuration.options.learner.width", 0.1)),
        ("exchanges", "an exchange dropped: the worst", records(lambda r: r.update(exchanges=r["exchanges"][:-1]))),
        ("exchanges", "all but one exchange dropped", records(lambda r: r.update(exchanges=r["exchanges"][:1]))),
        ("exchanges", "shifts halved", records(lambda r: r.update(exchanges=[[[n, s, max(1.0, x / 2), c] for n, s, x, c in way] for way in r["exchanges"]]))),
        ("exchanges", "scales in exchanges doubled", records(lambda r: r.update(exchanges=[[[n, 2 * s, x, c] for n, s, x, c in way] for way in r["exchanges"]]))),
        ("exchanges", "counts in exchanges lowered", records(lambda r: r.update(exchanges=[[[n, s, x, 1] for n, s, x, c in way] for way in r["exchanges"]]))),
        ("exchanges", "epsilon lowered by 1 %", put("guarantee.epsilon", times(0.99))),
        ("linear", "linear: joint halved", records(lambda r: r.update(joint=r["joint"] / 2))),
        ("linear", "linear: bound of the features halved", put("query.features.bound", 0.5)),
        ("linear", "linear: two halves of the users", put("query.questions", lambda q: [{**one, "half": i % 2} for i, one in enumerate(q)])),
        ("linear", "linear: scales stated 2 times, everything consistent", believed(2.0, checker)),
        ("linear", "linear: users 1.5 times as many", users(600)),
        ("linear", "linear: two halves of the users, everything consistent", asked(
            "query.questions", lambda q: [{**one, "half": i % 2} for i, one in enumerate(q)], checker)),
        ("linear", "linear: bound of the features halved, everything consistent", asked("query.features.bound", 0.5, checker)),
        ("contexts", "contexts: bound of the features halved, everything consistent", asked("query.features.bound", 0.5, checker)),
        ("contexts", "contexts: one visit for three in the query, everything consistent", asked("query.episodes", 1, checker)),
        ("linear", "linear: only the response has noise, everything consistent", all_of(
            *(silent(f"{i}.gram[{3 - i}]", checker) for i in range(4)))),
        ("counts", "a kind of query that nobody knows", put("query.kind", "sums")),
        ("linear", "linear: noise of Gram matrices halved", values(lambda v: v / 2, "0001.gram")),
        ("model", "linear: no noise in next states", values(lambda v: 0.25, "0001.successors")),
        ("counts", "a sum without noise in the record, everything consistent", silent("visits", checker)),
        ("counts", "rewards without noise in the record, everything consistent", silent("centered_reward_sums", checker)),
        ("first", "first visits: a sum without noise in the record, everything consistent", silent("visits", checker)),
        ("linear", "linear: a sum without noise in the record, everything consistent", silent("0.response[3]", checker)),
        ("model", "linear: next states without noise in the record, everything consistent", silent("1.successors[2]", checker)),
        ("contexts", "contexts: a sum without noise in the record, everything consistent", silent("0.response[0]", checker)),
        ("counts", "a sensitivity of a sum that has no noise", records(lambda r: r["sensitivities"].update(other=1.0))),
        ("counts", "fewer steps, everything consistent", fewer("steps", "horizon", 8, 4, checker)),
        ("counts", "fewer states, everything consistent", fewer("states", "states", 6, 5, checker)),
        ("first", "first visits: fewer states, everything consistent", fewer("states", "states", 8, 3, checker)),
        ("first", "first visits: fewer steps, everything consistent", fewer("steps", "horizon", 4, 2, checker)),
        ("episodes", "one episode for three, everything consistent", fewer("episodes", "episodes_per_user", 3, 1, checker)),
        ("counts", "rewards: the same value in all cells of release.csv", values(lambda v: 10.0, "centered_reward")),
        ("linear", "responses: the same value in all cells of release.csv", values(lambda v: 10.0, "0001.vector")),
        ("linear", "linear: responses said to be centred, everything consistent", asked(
            "query.questions", lambda q: [{**one, "centre": True} for one in q], checker)),
        ("wide", "wide noise: epsilon lowered by 1 %, with tables and sentence", all_of(
            put("guarantee.epsilon", times(0.99)), lambda d, f: consistent(d, checker))),
        ("wide", "wide noise: an exchange dropped: the worst", records(lambda r: r.update(exchanges=r["exchanges"][:-1]))),
        ("small", "noise below a unit of the grid: scales stated 4 times, everything consistent", believed(4.0, checker)),
        ("small", "noise below a unit of the grid: no noise in release.csv", values(lambda v: 10.0)),
        ("contexts", "contexts: joint halved", records(lambda r: r.update(joint=r["joint"] / 2))),
        ("contexts", "contexts: one visit for three in the query", put("query.episodes", 1)),
        ("contexts", "contexts: bound of the features halved", put("query.features.bound", 0.5)),
        ("contexts", "contexts: epsilon halved, with tables and sentence", all_of(put("guarantee.epsilon", half), lambda d, f: consistent(d, checker))),
        ("contexts", "contexts: scales stated 2 times, everything consistent", believed(2.0, checker)),
        ("contexts", "contexts: second group: scale doubled", group_of(scale=2.0)),
        ("counts", "a link in the place of a file", odd_file("policy.csv", lambda path: path.symlink_to("statement.md"))),
        ("counts", "a pipe in the place of a file", odd_file("policy.csv", os.mkfifo)),
        ("counts", "a folder in the place of a file", odd_file("policy.csv", Path.mkdir)),
        ("first", "first visits: fewer states", put("query.states", 2)),
        ("first", "first visits: epsilon halved, with tables and sentence", all_of(put("guarantee.epsilon", half), lambda d, f: consistent(d, checker))),
        ("first", "first visits: scales stated 3 times, everything consistent", believed(3.0, checker)),
        ("first", "first visits: joint halved", records(lambda r: r.update(joint=r["joint"] / 2))),
        ("first", "first visits: episodes 2", put("query.episodes", 2)),
        ("groups", "second group removed", lambda d, f: d.pop("second_group") and None),
        ("groups", "second group removed, with its line", all_of(lambda d, f: d.pop("second_group") and None, drop("covered", "People are in two"))),
        ("groups", "second group: its line dropped", drop("covered", "People are in two")),
        ("groups", "second group: loss halved", group_of(loss=times(0.5))),
        ("groups", "second group: joint halved", group_of(joint=times(0.5))),
        ("groups", "second group: loss and joint halved", group_of(joint=times(0.5), loss=times(1.0))),
        ("groups", "second group: scale doubled", group_of(scale=2.0)),
        ("groups", "second group: scale stated 2 times, everything consistent", group_of(scale=2.0, joint=times(0.5), loss=times(1.0))),
        ("groups", "second group: scale halved, everything consistent", group_of(scale=0.5, joint=times(2.0), loss=times(1.0))),
        ("groups", "second group: sensitivity 1", group_of(sensitivity=1.0)),
        ("groups", "second group: sensitivity 1, everything consistent", group_of(sensitivity=1.0, joint=times(0.5), loss=times(1.0))),
        ("groups", "second group: levels 2", group_of(levels=2)),
        ("groups", "second group: another noise", group_of(noise="discrete_laplace")),
        ("groups", "second group: another kind of record", group_of(kind="declared")),
        ("groups", "second group: more users", put("second_group.users", lambda n: n + 50)),
        ("groups", "second group: users moved", moved(50, False)),
        ("groups", "second group: users moved, also in release.csv", moved(50, True)),
        ("groups", "second group: another share", put("second_group.share", 0.1)),
        ("groups", "second group: seeded noise", put("second_group.mechanism.source_of_randomness", "a seed")),
        ("groups", "two groups: users of the release 10 times as many", put("second_group.users_of_release", times(10))),
        ("second", "second release: one release stated", put("ledger.together.reservations", 1)),
        ("second", "second release: none before", put("ledger.before.reservations", 0)),
        ("second", "second release: epsilon before halved", put("ledger.before.epsilon", half)),
        ("second", "second release: rho after halved", put("ledger.after.rho", half)),
        ("second", "second release: epsilon together as alone", lambda d, f: d["ledger"]["together"].update(epsilon=d["guarantee"]["epsilon"])),
        ("second", "second release: table of this release removed", put("alone", None)),
        ("second", "second release: advantage alone halved", put("alone.advantage", half)),
        ("second", "second release: advantage together as alone", lambda d, f: d.update(attacker=d["alone"])),
        ("second", "second release: warning of two releases dropped", drop("warnings", "2 RELEASES")),
        ("second", "second release: sentence about this release only", put("sentence", lambda s: s.partition(" For this release alone:")[0])),
        ("second", "second release: another identity", put("ledger.identity", "0" * 32)),
        ("second", "second release: an entry of the ledger removed", on_file("ledger.jsonl", lambda t: "".join(t.splitlines(True)[:1] + t.splitlines(True)[2:]))),
        ("second", "second release: first records halved in the ledger", on_ledger(lambda es: [r.update(joint=r["joint"] / 2) for r in es[2]["records"]])),
        ("second", "second release: first entry of another dataset", on_ledger(lambda es: es[2].update(dataset="elsewhere"))),
        ("second", "second release: first entry at a later time", on_ledger(lambda es: es[2].update(time="2099-01-01T00:00:00+00:00"))),
        ("second", "second release: other number in the ledger", on_ledger(lambda es: es[2].update(number=7))),
        ("second", "limit raised in the statement", put("ledger.after.limit_epsilon", 100.0)),
        ("second", "limit raised in the ledger", on_ledger(lambda es: es[1].update(epsilon=100.0))),
        ("second", "limit raised in statement and ledger, not signed", limited(100.0)),
        ("second", "limit below the total", limited(0.5)),
        ("second", "limit: another key", put("ledger.after.limit_key", "0" * 64)),
        ("second", "limit: a signature that is none", on_ledger(lambda es: es[1].update(key="0" * 64, signature="0" * 128))),
        ("pure", "pure: epsilon halved, with tables and sentence", all_of(put("guarantee.epsilon", half), lambda d, f: consistent(d, checker))),
        ("pure", "pure: joint halved", records(lambda r: r.update(joint=r["joint"] / 2))),
        ("pure", "pure: scales doubled in the record only", records(scaled(2.0))),
        ("pure", "pure: Gaussian noise", records(lambda r: r.update(noise="discrete_gaussian"))),
        ("pure", "pure: a delta", put("guarantee.delta", 1e-6)),
        ("pure", "pure: a bound on exceeding epsilon", put("guarantee.exceeds.at_most", 0.1)),
        ("exact", "exact: epsilon 1", put("guarantee.epsilon", 1.0)),
        ("exact", "exact: trust central", put("guarantee.trust", "central")),
        ("exact", "exact: warning dropped", drop("warnings", "NO PRIVACY GUARANTEE")),
        ("exact", "exact: another sentence", put("sentence", "Your data are safe.")),
        ("seeded", "seeded: said secure", put("guarantee.randomness", "secure")),
        ("seeded", "seeded: said secure everywhere", said_secure),
        ("seeded", "seeded: warning dropped", drop("warnings", "SEEDED NOISE")),
    ]  # fmt: skip
    return found


def signed(folder: Path, checker: Any, edit: Callable[[dict[str, Any]], Any]) -> None:
    """Sign a finished folder with a new key, then change the signature's entry."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key, names = Ed25519PrivateKey.generate(), ("statement.json", *checker.PAGES)
    document = json.loads((folder / "statement.json").read_text("utf-8"))
    entry = {"name": "A. B.", "key": key.public_key().public_bytes_raw().hex(), "time": "2026-01-01T00:00:00+00:00",
             "fingerprint": document["fingerprint"],
             "files": {name: checker.sha256((folder / name).read_bytes()) for name in names}}  # fmt: skip
    text = json.dumps(entry, sort_keys=True, separators=(",", ":"))
    entry["signature"] = key.sign(f"discreet statement, 1\n{text}".encode()).hex()
    edit(entry)
    (folder / "signatures.json").write_text(
        json.dumps({"format": "discreet signatures", "version": 1, "signatures": [entry]}), "utf-8"
    )


FEW = ("contexts", "exchanges", "small")  # too few sums that are 0 without noise, also if nothing is forged
SIGNED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "signed: another name": lambda one: one.update(name="C. D."),
    "signed: another time": lambda one: one.update(time="2027-01-01T00:00:00+00:00"),
    "signed: another key": lambda one: one.update(
        key="d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    ),
    "signed: another fingerprint": lambda one: one.update(fingerprint="0" * 64),
    "signed: another file": lambda one: one["files"].update({"statement.md": "0" * 64}),
    "signed: a bit of the signature": lambda one: one.update(
        signature=f"{int(one['signature'], 16) ^ 1:0128x}"
    ),
    "signed: no signature": lambda one: one.update(signature=""),
}


def forge(
    folder: Path, change: Change, out: Path, checker: Any, edit: Any = None
) -> tuple[list[Any], bool | None]:
    """Copy a folder, change it, make pages, ledger and hashes fit, verify it, and compare the page's result."""
    shutil.copytree(folder, out)
    document = json.loads((out / "statement.json").read_text("utf-8"))
    change(document, out)
    relink(document, out)
    for name in document["files"]:
        if (out / name).is_file():
            document["files"][name] = checker.sha256((out / name).read_bytes())
    options = {key: document["configuration"][key] for key in ("algorithm", "options")}
    document["configuration"]["hash"] = checker.sha256(
        checker.canonical(checker.strict_json(json.dumps(options).encode()))
    )
    document["fingerprint"] = fingerprint_of(document)
    try:
        write_statement(out, Statement(document))
    except (KeyError, TypeError, ValueError, IndexError):
        (out / "statement.json").write_text(json.dumps(document), "utf-8")  # pages stay as they were
    if hasattr(change, "last"):
        change.last(document, out)
    if edit is not None:
        signed(out, checker, edit)
    found = list(checker.verify(out))
    page = page_agrees([out], [found])
    shutil.rmtree(out)
    return found, page


def relink(document: dict[str, Any], folder: Path) -> None:
    """Write the statement's records, users, date and purpose into ``ledger.jsonl``, with a new chain of hashes."""
    path, ledger = folder / "ledger.jsonl", document["ledger"]
    if ledger is None or not path.is_file() or ledger["head"] == "0" * 64:
        return
    rows, previous = [json.loads(line) for line in path.read_text("utf-8").splitlines()], ""
    if len(rows) < 2 or "wand" in path.read_text("utf-8"):
        return
    for row in rows:
        entry = json.loads(row["text"])
        if entry["kind"] == "reserve" and row is rows[-1]:
            second = document.get("second_group")
            entry.pop("parallel", None)
            entry.update({"parallel": [second["mechanism"]["record"]]} if second else {})
            entry.update(records=[one["record"] for one in document["mechanisms"]], users=document["population"]["users"],
                         time=document["date"], purpose=document["purpose"], dataset=ledger["dataset"])  # fmt: skip
        entry["previous"] = previous
        row["text"] = json.dumps(entry, sort_keys=True, separators=(",", ":"))
        previous = row["hash"] = hashlib.sha256(row["text"].encode()).hexdigest()
    ledger["head"] = previous
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def forged(place: Path, checker: Any) -> list[tuple[str, str, bool | None]]:
    """Return name, result, and whether the page agrees, for every forgery.

    A result is "seen", "exit 2" with the check's name, or "not seen".
    """
    folders = {}
    options: dict[str, dict[str, Any]] = {
        "counts": {"learner": dr.DPAPVI(), "privatizer": dr.Central(rho=0.03), "states": 6, "steps": 8},
        "exchanges": {
            "learner": dr.DPAPVI(),
            "privatizer": dr.Central(epsilon=1.0, delta=1e-6, noise="gaussian"),
            "steps": 2,
        },
        "linear": {"learner": dr.DPPEVI(rho=0.05), "privatizer": None},
        "model": {"learner": dr.DPPEVI(rho=0.5, response="model"), "privatizer": None},
        "episodes": {"learner": dr.DPAPVI(), "privatizer": dr.Central(rho=1.0), "episodes": 3},
        "first": {"learner": dr.DecisionPoints(), "privatizer": dr.Central(rho=0.03), "states": 8},
        "groups": {"learner": dr.DecisionPoints(), "privatizer": dr.Central(rho=0.03), **GROUPS},
        "second": {"learner": dr.DPAPVI(), "privatizer": dr.Central(rho=0.03), "states": 6, "steps": 8},
        "pure": {"learner": dr.DPAPVI(), "privatizer": dr.Central(epsilon=1.0, delta=0.0)},
        "wide": {"learner": dr.DPAPVI(), "privatizer": dr.Central(epsilon=1e-3, delta=1e-6)},
        "small": {
            "learner": dr.DecisionPoints(),
            "privatizer": dr.Central(epsilon=50.0, delta=1e-6),
            "users": 2000,
        },
        "exact": {"learner": dr.learners.APVI(), "privatizer": None},
        "seeded": {"learner": dr.DPAPVI(), "privatizer": dr.Central(rho=0.03), "randomness": dr.Seeded(1)},
    }
    for name, one in options.items():
        with Ledger.open(place / f"{name}.sqlite") as ledger:
            if name == "second":
                ledger.set_limit("ward", 20.0, 1e-6)
                made(place / "before", ledger=ledger, **one)
            folders[name] = made(place / name, ledger=None if name in ("exact", "seeded") else ledger, **one)
    folders["contexts"] = made_contexts(place / "contexts")
    rows = []
    for name, folder in folders.items():
        honestly, _ = forge(folder, all_of(), place / "signed", checker, lambda one: None)
        other = {one[0]: one[3] for one in [*checker.verify(folder), *honestly] if one[3] != "agrees"}
        assert other == ({"size of the noise": "not checkable"} if name in FEW else {}), (name, other)
    forging = [(base, name, change, None) for base, name, change in forgeries(checker)]
    for base, name, change, edit in [
        *forging,
        *(("counts", name, all_of(), edit) for name, edit in SIGNED.items()),
    ]:
        results, page = forge(folders[base], change, place / "forged", checker, edit)
        wrong = [one[0] for one in results if one[3] == "DIFFERS"]
        unable = [one[0] for one in results if one[3] == "not checkable"]
        unable = [one for one in unable if base not in FEW or one != "size of the noise"]
        rows.append((name, "seen" if wrong else f"exit 2 ({unable[0]})" if unable else "not seen", page))
        print(f"{rows[-1][1]:12} {page} {name}: {wrong[:2]}", flush=True)
    return rows


def main(arguments: list[str]) -> int:
    """Run both parts, or the part that is named ("forged" or "honest"), and write their pages."""
    checker = verifier()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        if "honest" not in arguments:
            rows = forged(place, checker)
            seen, same = (sum(one[i] == value for one in rows) for i, value in ((1, "seen"), (2, True)))
            text = ["# The independent verifier: forgeries\n", "`python -m benchmarks.verifier forged` writes this page.\n",
                    f"{seen} of {len(rows)} kinds of forged and resealed folders are seen ({100 * seen / len(rows):.1f} %). "
                    f"The page `verify_statement.html` finds the same in {same} of {len(rows)}. Not seen:\n",
                    *(f"- {name}: {result}" for name, result, _ in rows if result != "seen"), "\nSeen:\n",
                    *(f"- {name}" for name, result, _ in rows if result == "seen")]  # fmt: skip
            OUT.write_text("\n".join(text) + "\n", "utf-8")
        if "forged" not in arguments:
            honest(place, checker)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
