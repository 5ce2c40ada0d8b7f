"""Statements: what they say, that they verify, and that no part of them can be changed unseen."""

import copy
import dataclasses
import importlib
import json
import math
import re

import numpy as np
import pytest

import discreet as dr
from discreet.accounting import pld_calibration as calibration
from discreet.accounting import privacy_filter as filters
from discreet.core import exchange
from discreet.core.count_query import CountQuery
from discreet.core.guarantee import MechanismRecord, guarantee_of, joint_loss
from discreet.core.layout import Layout
from discreet.data.schema import Schema, write_schema
from discreet.learners.offline.apvi import APVI, DPAPVI
from discreet.learners.offline.release_files import ReleaseFacts, read_tables, write_release
from discreet.ledger.ledger import Ledger
from discreet.pipeline import verify as checking
from discreet.pipeline.learned_files import LearnConfig, kind_of, name_of, options_of, write_plan
from discreet.pipeline.verify import verify
from discreet.reports import statement as module
from discreet.reports.checkable_files import stated_query, write_csv
from discreet.reports.statement import (
    LedgerFacts,
    RunFacts,
    check_delta,
    file_hash,
    make_statement,
    published_hashes,
    versions,
    write_statement,
)
from discreet.reports.statement_schema import violations

pytestmark = pytest.mark.usefixtures("figures_are_sketched")
MASK = np.array([[True, True], [True, False], [True, True]])
NONE = dict.fromkeys(
    ("reservations", "epsilon", "delta", "method", "pure", "mu", "rho", "limit_epsilon", "limit_delta")
)
LEDGER = LedgerFacts(
    "ledger.sqlite", "b" * 32, False, "ward-7", 4, "a" * 64,
    {**NONE, "epsilon": 1.0, "rho": 0.1}, {**NONE, "epsilon": 2.0, "rho": 0.2},
    {"reservations": 1, "epsilon": 2.0, "delta": 1e-4, "rule": "x", "pure": None, "mu": None, "rho": 0.2},
)  # fmt: skip
LAPLACE = MechanismRecord("counts", "discrete_laplace", {"v": 2.0}, {"v": 1.0}, 0.5, 2)  # epsilon 1
SETTINGS = LearnConfig(unsupported="policy")


def schema_of(episodes=1, **more):
    more = {"provenance": {"states": "this data", "actions": "protocol"}, **more}
    return Schema("ward-7", "patient", Layout(3, 2, 2, MASK), episodes_per_user=episodes, **more)


def made(folder, privatizer=None, randomness=None, users=200, schema=None, ledger=None, visits=True, **more):
    """A folder as ``learn`` writes it, from made-up trajectories; ``ledger`` may be an open one."""
    schema = schema or schema_of()
    query = CountQuery(
        schema.layout, center_rewards=True, reward_share=0.3, episodes=schema.episodes_per_user, visits=visits
    )
    session = (privatizer or dr.Central(epsilon=1.0, delta=1e-4)).stored(query, randomness or dr.Secure())
    rng = np.random.default_rng(0)
    states = rng.integers(0, 3, (users, 3))
    data = dr.Trajectories(states, np.zeros((users, 2), np.int64), rng.integers(0, 2, (users, 2)) / 1.0)
    session.submit_many(data, np.arange(users))
    guarantee, records = session.guarantee, session.records
    release = session.release()
    learner = APVI() if guarantee.epsilon is None else DPAPVI(c1=0.2)
    told = {"date": "2026-11-20", "purpose": "a look", "synthetic": more.get("synthetic", False)}
    if isinstance(ledger, Ledger):
        reserved = ledger.reserve(
            schema.dataset, records, delta=guarantee.delta, users=users, purpose="a look"
        )
        ledger_facts = LedgerFacts.of(ledger, reserved)
        told["date"] = ledger.entries()[-1].time
    else:
        ledger_facts = ledger
    told |= {"ledger": None if ledger is None else dataclasses.asdict(ledger_facts), "versions": versions()}
    options = {"learner": options_of(learner), **SETTINGS.chosen()}
    facts = ReleaseFacts(
        layout=schema.layout,
        users=users,
        guarantee=guarantee,
        laws=release.laws,
        records=tuple(record.to_dict() for record in records),
        episodes=schema.episodes_per_user,
        dataset=schema.dataset,
        schema=schema.hash,
        algorithm=name_of(learner),
        options=options,
        run=told,
    )
    write_release(folder / "release.parquet", release, facts)
    write_schema(schema, folder / "schema.toml")
    planned = kind_of(schema, learner).again(folder / "release.parquet", SETTINGS)
    write_plan(folder, planned, guarantee, SETTINGS, replanned=False)
    tables = read_tables(folder / "release.parquet")
    write_csv(tables, folder)
    files = {
        path.relative_to(folder).as_posix(): file_hash(path) for path in folder.rglob("*") if path.is_file()
    }
    run = RunFacts(
        schema=schema,
        users=users,
        guarantee=guarantee,
        records=records,
        algorithm=name_of(learner),
        options=options,
        purpose="a look",
        files=files,
        ledger=ledger_facts,
        date=told["date"],
        query=stated_query(tables),
        **more,
    )
    statement = make_statement(run)
    write_statement(folder, statement)
    if isinstance(ledger, Ledger):
        ledger.mark(reserved, published_hashes(statement.document))
    return run, statement


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("run")
    made(path, ledger=LEDGER, operator="A. Operator")
    return path


def charged_at_every_step(monkeypatch):
    """As versions up to 0.2.0 charged centred rewards: at each step the most that one step can cost."""
    today = calibration.shifts

    def shifts(query):
        return calibration._listed_before(today(query), query.counted_steps)

    monkeypatch.setattr(exchange, "heaviest", lambda costs, steps: steps * costs.largest)
    monkeypatch.setattr(calibration, "shifts", shifts)


@pytest.mark.parametrize("budget", [{"epsilon": 3.0, "delta": 1e-4}, {"rho": 0.5}], ids=str)
def test_ledgers_of_older_versions_are_read(tmp_path, monkeypatch, budget):
    """What they state is more than it costs by today's bound."""
    query = CountQuery(Layout(3, 2, 4, MASK), visits=False, center_rewards=True, reward_share=0.3)
    privatizer = dr.Central(noise="gaussian", **budget)
    with monkeypatch.context() as then, Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        charged_at_every_step(then)
        [record] = privatizer.stored(query, dr.Secure()).records
        ledger.reserve("ward-7", [record], delta=1e-4, users=200, purpose="a look")
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        assert ledger.entries()[-1].text.count('"joint"') == 1
        [now] = privatizer.stored(query, dr.Secure()).records
        ledger.reserve("ward-7", [now], delta=1e-4, users=200, purpose="more")
    assert joint_loss(query, "l2", record.scales) < 0.99 * record.joint
    for exchanges in (record.exchanges, now.exchanges):  # neither list can be shortened
        if exchanges:
            with pytest.raises(ValueError, match="exchanges"):
                dataclasses.replace(record, exchanges=exchanges[1:])


@pytest.mark.parametrize("budget", [{"epsilon": 3.0, "delta": 1e-4}, {"rho": 0.5}], ids=str)
def test_what_an_older_version_stated_is_verified(tmp_path, monkeypatch, budget):
    for name in ("then", "now"):
        (tmp_path / name).mkdir()
    with monkeypatch.context() as then:
        charged_at_every_step(then)
        run, _ = made(tmp_path / "then", dr.Central(noise="gaussian", **budget), visits=False, ledger=LEDGER)
    assert not wrong(tmp_path / "then")
    now, _ = made(tmp_path / "now", dr.Central(noise="gaussian", **budget), visits=False, ledger=LEDGER)
    assert not wrong(tmp_path / "now")
    assert now.records[0].scales["transition_counts"] < 0.99 * run.records[0].scales["transition_counts"]


def wrong(folder, ledger=None):
    return [check for check in verify(folder, ledger) if not check.ok]


def rewritten(folder, document):
    (folder / "statement.json").write_text(module.Statement(document).to_json(), "utf-8", newline="\n")


@pytest.fixture
def kept(folder):
    """The folder, put back as it was."""
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    yield folder
    for path in [path for path in folder.rglob("*") if path.is_file() or path.is_symlink()]:
        if path not in before:
            path.unlink()
    for path, content in before.items():
        path.unlink(missing_ok=True)
        path.write_bytes(content)


@pytest.mark.parametrize(
    ("privatizer", "randomness", "episodes"),
    [
        (dr.Central(epsilon=1.0), dr.Secure(), 1),
        (dr.Central(rho=0.5), dr.Secure(), 1),
        (dr.Central(epsilon=0.3, delta=1e-5, noise="gaussian"), dr.Seeded(3), 1),
        (dr.Central(epsilon=0.3, delta=1e-4, noise="laplace"), dr.Seeded(3), 1),
        (dr.Central(mu=1.0), dr.Secure(), 3),
        (dr.NoPrivacy(), dr.Secure(), 2),
    ],
)
def test_statements_verify(tmp_path, privatizer, randomness, episodes):
    schema = schema_of(episodes, contribute="random")
    _, statement = made(tmp_path, privatizer, randomness, schema=schema)
    assert wrong(tmp_path) == []
    assert list(violations(statement.to_dict())) == []
    assert json.loads((tmp_path / "statement.json").read_text("utf-8")) == statement.to_dict()
    assert (tmp_path / "statement.md").read_text("utf-8") == statement.to_markdown()


def test_it_verifies_and_every_number_was_compared(folder):
    checks = verify(folder)
    assert [check for check in checks if not check.ok] == []
    names = {check.name for check in checks}
    for name in (
        "fingerprint", "files: policy.csv", "files: values.svg", "policy.csv made again",
        "values.svg made again", "release.parquet.run.date", "statement.guarantee.epsilon",
        "statement.attacker.tests[0].true_positives", "release.parquet.users", "release.parquet.schema",
        "sensitivities of mechanism 1: visits", "sensitivities of mechanism 1: exchanges",
        "guarantee by another route: epsilon", "release.parquet: scale of visits",
    ):  # fmt: skip
        assert name in names, name


def leaves(tree, path=()):
    if isinstance(tree, dict | list) and tree:
        items = tree.items() if isinstance(tree, dict) else enumerate(tree)
        for key, value in items:
            yield from leaves(value, (*path, key))
    else:
        yield path, tree


def other(value):
    """A value of the same kind, as near as can be."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return math.nextafter(value, math.inf)
    if isinstance(value, str):
        last = "0" if value.endswith("1") else "1"
        return value[:-1] + last if value else "x"
    return 1.0 if value is None else "more"


def test_every_leaf_is_guarded(kept, monkeypatch):
    """Each leaf of the JSON tree is changed by the least that can be; only two lines for people are free."""
    document = json.loads((kept / "statement.json").read_text("utf-8"))
    cheap = [check.name for check in verify(kept)]
    assert cheap
    # the slow parts need no file that changes here: what finds the change is the fingerprint or quicker
    for slow in ("accounting", "release", "sensitivities", "document", "plan"):
        monkeypatch.setattr(checking, f"_check_{slow}", lambda *_: iter(()))
    for path, value in leaves(document):
        changed = copy.deepcopy(document)
        place = changed
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = other(value)
        rewritten(kept, changed)
        found = wrong(kept)
        assert bool(found) == (path[0] not in ("operator", "approval")), (path, found)


def resealed(folder, document):
    """A forger who knows the library: fingerprint, configuration's hash and page are made to fit."""
    configuration = document["configuration"]
    document["configuration"] = module.configuration_of(configuration["algorithm"], configuration["options"])
    document["fingerprint"] = module.fingerprint_of(document)
    rewritten(folder, document)
    (folder / "statement.md").write_text(module.markdown(document), "utf-8", newline="\n")


FREE = (("operator",), ("approval",))


def test_who_reseals_a_change_is_found_by_recomputation(tmp_path, monkeypatch):
    kept = tmp_path
    with Ledger.open(tmp_path.parent / f"{tmp_path.name}.sqlite") as ledger:
        for _ in range(2):
            ledger.reserve("ward-7", [LAPLACE], delta=1e-4, users=200)
        made(kept, dr.Central(rho=0.01), schema=schema_of(2), ledger=ledger)
    document = json.loads((kept / "statement.json").read_text("utf-8"))
    monkeypatch.setattr(checking, "_check_accounting", lambda *_: iter(()))  # slow, and not needed to see it
    real, seen = checking._check_plan, set()
    for path, value in leaves(document):
        if path[:1] in FREE or path == ("fingerprint",) or path == ("configuration", "hash"):
            continue
        alike = tuple(part for part in path if isinstance(part, str))
        if alike in seen:
            continue
        changed = copy.deepcopy(document)
        place = changed
        for key in path[:-1]:
            place = place[key]
        new = value * 1.001 + 1e-6 if isinstance(value, float) else other(value)
        place[path[-1]] = new
        try:
            resealed(kept, changed)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # a page cannot even be written
        monkeypatch.setattr(checking, "_check_plan", lambda *_: iter(()))  # slow: asked last
        found = wrong(kept)
        if not found:
            monkeypatch.setattr(checking, "_check_plan", real)
            found = wrong(kept)
        assert found, path
        seen.add(alike)
    assert len(seen) > 130


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_fewer_ways_to_exchange_a_user_are_found(kept, place):
    """Shifts and scales of the numerical accounting come from the query, not from the statement."""
    document = json.loads((kept / "statement.json").read_text("utf-8"))
    coordinate = document["mechanisms"][0]["record"]["exchanges"][0][0]
    coordinate[place] = {0: "discrete_laplace", 3: 1}.get(place, coordinate[place] * 2)
    resealed(kept, document)
    (found,) = [check for check in wrong(kept) if check.name == "sensitivities"]
    assert "exchanges" in found.recomputed


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(extra=1),
        lambda d: d["population"].update(note="trust us"),
        lambda d: d.pop("warnings"),
        lambda d: d["not_covered"].pop(),
        lambda d: d["covered"].append("Everything."),
        lambda d: d["mechanisms"][0]["record"].pop("levels"),
        lambda d: d["mechanisms"][0]["record"].update(note=1),
        lambda d: d["mechanisms"].pop(),
        lambda d: d["mechanisms"].append(d["mechanisms"][0]),
        lambda d: d["files"].update({"../secret": "0" * 64}),
        lambda d: d["files"].pop("policy.csv"),
        lambda d: d["guarantee"].update(epsilon=None, rho=None, mu=None),
        lambda d: d.update(version=1),
        lambda d: d.update(version=4),
        lambda d: d.update(version=7),
        lambda d: d["guarantee"].update(exceeds=None),
        lambda d: d["guarantee"]["exceeds"].update(at_most=1e-9),
        lambda d: d["guarantee"].pop("holds_if_seed_is_guessed"),
        lambda d: d["guarantee"].update(
            holds_if_seed_is_guessed=not d["guarantee"]["holds_if_seed_is_guessed"]
        ),
        lambda d: d["population"].update(users=5),
        lambda d: d.update(operator="two\nlines"),
        lambda d: d["attacker"]["tests"].pop(),
    ],
)
def test_nothing_is_added_or_left_out(kept, change):
    document = json.loads((kept / "statement.json").read_text("utf-8"))
    change(document)
    try:
        resealed(kept, document)
    except (ValueError, KeyError, TypeError):
        rewritten(kept, document)
    assert wrong(kept)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"a": NaN}', '{"a": 1, "a": 1}', "\ud800", "[" * 100_000, '{"version": 1e999}']
)
def test_broken_files_are_told(kept, text):
    (kept / "statement.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    assert wrong(kept)


def test_numbers_beyond_all_bounds_are_told(kept):
    text = (kept / "statement.json").read_text("utf-8")
    for old, new in (('"loss": ', '"loss": 1e999, "x": '), ('"users": 200', f'"users": {10**400}')):
        assert old in text
        (kept / "statement.json").write_text(text.replace(old, new, 1))
        assert wrong(kept)
    document = json.loads(text)
    document["mechanisms"][0]["loss"] = "LOSS"
    (kept / "statement.json").write_text(json.dumps(document).replace('"LOSS"', "1e999"))
    assert "fingerprint" in {check.name for check in wrong(kept)}


@pytest.mark.parametrize("privatizer", [dr.Central(rho=5.0), dr.Central(epsilon=1e-3, delta=1e-4)])
def test_extreme_budgets(tmp_path, privatizer):
    _, statement = made(tmp_path, privatizer, dr.Seeded(0))
    attacker = statement.to_dict()["attacker"]
    assert 0.0 < attacker["advantage"] <= 1.0
    assert bool(re.search(r"at most e\^[1-9][0-9.]+ times", statement.document["sentence"])) == bool(
        privatizer.rho
    )
    assert wrong(tmp_path) == []


def test_a_key_twice_is_an_error(kept):
    text = (kept / "statement.json").read_text("utf-8")
    (kept / "statement.json").write_text(text.replace('{\n "format"', '{\n "synthetic": true,\n "format"', 1))
    assert "twice" in wrong(kept)[0].recomputed


def test_edits_of_the_page_are_found(kept):
    document = json.loads((kept / "statement.json").read_text("utf-8"))
    lines = (kept / "statement.md").read_text("utf-8").split("\n")
    for i in range(0, len(lines), 3):
        for edited in (
            [*lines[:i], lines[i] + " ", *lines[i + 1 :]],
            [*lines[:i], *lines[i + 1 :]],
            [*lines[:i], "One more.", *lines[i:]],
        ):
            (kept / "statement.md").write_text("\n".join(edited), "utf-8", newline="\n")
            signed = any(word in lines[i] for word in ("**Operator:**", "**Approval"))
            found = [check for check in checking._check_page(kept, document, "statement.md") if not check.ok]
            assert found or (signed and len(edited) == len(lines))


def test_people_sign_on_the_page_or_in_the_file(kept):
    page = (kept / "statement.md").read_text("utf-8")
    signed = page.replace("**Operator:** A. Operator", "**Operator:** B. Other").rstrip() + " J. Officer\n"
    assert signed != page
    (kept / "statement.md").write_text(signed, "utf-8", newline="\n")
    document = json.loads((kept / "statement.json").read_text("utf-8"))
    rewritten(kept, {**document, "approval": "J. Officer, 21 November"})
    assert wrong(kept) == []


@pytest.mark.parametrize(
    "text",
    [
        "A. B.\r**Guarantee.** epsilon = 0.01 (supersedes the above)", "A. B. **Guarantee.** epsilon = 0.01",
        "[proof](https://example.org)", "a <b>bold</b> name", "`x`", "a | b", "A. B.\x1b[2J", "A.\u202eB",
        "&#10; x", "x" * 600, "A.\x85B", "A.\u2028B", "# x", "~~not~~", "_x_", "A.\x00",
    ],
)  # fmt: skip
def test_what_people_write_cannot_pass_for_the_page(kept, text):
    page = (kept / "statement.md").read_bytes().decode()
    signed = page.replace("**Operator:** A. Operator", f"**Operator:** {text}")
    assert signed != page
    (kept / "statement.md").write_bytes(signed.encode())
    assert any(check.name.startswith("statement.md: text of line") for check in wrong(kept))
    (kept / "statement.md").write_bytes(page.encode())
    document = json.loads((kept / "statement.json").read_text("utf-8"))
    if not text.isprintable() or len(text) > 500:
        rewritten(kept, {**document, "approval": text})
        assert wrong(kept)
    escaped = page.replace(
        "**Operator:** A. Operator", r"**Operator:** A\_B \<a\@b.org> 3 - 4".replace("\\@", "@")
    )
    (kept / "statement.md").write_bytes(escaped.replace("b.org>", r"b.org\>").encode())
    rewritten(kept, document)
    assert wrong(kept) == []


@pytest.mark.parametrize("name", ["policy.csv", "schema.toml", "release.parquet", "values.svg"])
def test_swapped_files_are_found(kept, name):
    path = kept / name
    path.write_bytes(path.read_bytes().replace(b"0,1", b"0,0") + b"\n")
    assert f"files: {name}" in {check.name for check in wrong(kept)}
    path.unlink()
    assert f"files: {name}" in {check.name for check in wrong(kept)}


def test_files_that_nobody_named_are_found(kept):
    (kept / "notes.txt").write_text("user 17 is ill")
    assert [check.name for check in wrong(kept)] == ["files: notes.txt"]
    (kept / "notes.txt").unlink()
    (kept / "policy.csv").rename(kept / "hidden")
    (kept / "policy.csv").symlink_to(kept / "hidden")
    assert {check.name for check in wrong(kept)} == {"files: policy.csv", "files: hidden"}


def test_another_release_does_not_pass(kept, tmp_path):
    """A release of more people, and a statement that names its hash."""
    run, _ = made(tmp_path, users=300)
    document = json.loads((kept / "statement.json").read_text("utf-8"))
    (kept / "release.parquet").write_bytes((tmp_path / "release.parquet").read_bytes())
    document["files"]["release.parquet"] = file_hash(kept / "release.parquet")
    resealed(kept, document)
    assert "release.parquet.users" in {check.name for check in wrong(kept)}
    assert run.users == 300


def test_less_noise_than_the_schema_needs(tmp_path):
    """A mechanism calibrated for one episode, under a schema that admits three."""
    run, _ = made(tmp_path, dr.Central(rho=0.5))
    facts = dataclasses.replace(run, schema=schema_of(3))
    write_schema(facts.schema, tmp_path / "schema.toml")
    files = {**run.files, "schema.toml": file_hash(tmp_path / "schema.toml")}
    write_statement(tmp_path, make_statement(dataclasses.replace(facts, files=files)))
    names = {check.name for check in wrong(tmp_path)}
    assert "sensitivities of mechanism 1: visits" in names
    assert "sensitivities of mechanism 1: joint" in names
    assert "statement.guarantee.unit" in names


def test_the_ledger_at_hand(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    with Ledger.open(tmp_path / "book.sqlite") as ledger:
        ledger.set_limit("ward-7", 50.0, 1e-6)
        ledger.reserve("ward-7", [LAPLACE], delta=1e-4, users=7)
        ledger.reserve("elsewhere", [LAPLACE], delta=1e-4)
        run, _ = made(folder, ledger=ledger)
        facts = run.ledger
        assert (facts.before["reservations"], facts.after["reservations"]) == (1, 2)
        assert (facts.after["limit_epsilon"], facts.name, facts.new) == (50.0, "book.sqlite", False)
        assert facts.identity == ledger.identity
        assert facts.after["rho"] == pytest.approx(facts.before["rho"] + run.guarantee.rho)
        assert wrong(folder, ledger) == []
        ledger.reserve("ward-7", [LAPLACE], delta=1e-4, users=7)  # later ones change nothing here
        assert wrong(folder, ledger) == []
        names = {check.name for check in verify(folder, ledger)}
        assert {
            "ledger: published.release.parquet",
            "ledger: published.values.svg",
            "ledger.identity",
        } <= names
        assert {"ledger: published.statement.md", "ledger: published.statement.json"} <= names
        number, head = facts.number, facts.head
        for field, value in (
            ("users", 1), ("records", ()), ("kind", "mark"), ("number", 3), ("time", "2020-01-01"),
            ("purpose", "another"),
        ):  # fmt: skip
            changed = [
                dataclasses.replace(one, **{field: value}) if one.hash == head else one
                for one in ledger.entries()
            ]
            assert wrong(folder, Forged(ledger, changed)), field
        assert wrong(folder, Forged(ledger, [e for e in ledger.entries() if e.number not in (3, number)]))
    with Ledger.open(tmp_path / "another.sqlite") as other_ledger:
        assert {check.name for check in wrong(folder, other_ledger)} == {"ledger: head", "ledger: identity"}


class Forged:
    """A ledger with other entries."""

    def __init__(self, ledger, rows):
        self.ledger, self.rows, self.path, self.identity = ledger, rows, ledger.path, ledger.identity

    def entries(self, dataset=None):
        return [row for row in self.rows if dataset in (None, row.dataset)]

    def totals(self, *args, **how):
        return self.ledger.totals(*args, **how)

    def certified(self, *args, **how):
        return self.ledger.certified(*args, **how)


@pytest.mark.parametrize("releases", [16, pytest.param(63, marks=pytest.mark.statistics)])
def test_many_releases(releases, tmp_path):
    """What the first sentence says is about all of them, and is never below what they cost together.

    Numerical accounting of 63 takes half a minute.
    """
    folder = tmp_path / "run"
    folder.mkdir()
    with Ledger.open(tmp_path / "book.sqlite") as ledger:
        session = dr.Central(epsilon=1.0, delta=1e-6, noise="gaussian").stored(
            CountQuery(schema_of().layout, center_rewards=True), dr.Secure()
        )
        for _ in range(releases - 1):
            ledger.reserve("ward-7", session.records, delta=1e-6, users=200)
        _, statement = made(folder, dr.Central(epsilon=1.0, delta=1e-6, noise="gaussian"), ledger=ledger)
        records = [record for e in ledger.entries() for record in e.records]
        filtered = filters.filtered([e.records for e in ledger.entries() if e.kind == "reserve"], 1e-6)[0]
        total = ledger.totals("ward-7")
        assert wrong(folder, ledger) == []
    document = statement.to_dict()
    together = document["ledger"]["together"]
    assert together["reservations"] == releases
    assert together["epsilon"] == filtered >= total.epsilon * (1 - 1e-9)
    assert together["epsilon"] > 0.9 * math.sqrt(releases) * document["guarantee"]["epsilon"]
    assert together["rho"] == pytest.approx(releases * session.guarantee.rho, rel=0.2)
    assert len(records) == releases
    times = math.exp(filtered)
    said = float(re.search(r"is at most ([\d,.]+) times", document["sentence"])[1].replace(",", ""))
    assert times <= said <= times * 1.01 + 1
    assert (
        f"because of the {releases} releases of these data in the ledger (including this one)"
        in document["sentence"]
    )
    assert "For this release alone: at most 2.7" in document["sentence"]
    assert any(text.startswith(f"{releases} RELEASES of the same people") for text in document["warnings"])
    # whoever combines that many Gaussian observations is within the attacker's table, and far above one's
    mu = math.sqrt(2 * together["rho"])
    from scipy.special import ndtr, ndtri

    for row, one in zip(document["attacker"]["tests"], document["alone"]["tests"], strict=True):
        assert row["true_positives"] >= ndtr(mu + ndtri(row["false_positives"])) * (1 - 1e-9)
        assert row["true_positives"] > 2 * one["true_positives"]
    assert document["groups"][0]["epsilon"] > together["epsilon"]
    assert f"releases after entry {releases + 1} of this ledger" in (folder / "statement.md").read_text(
        "utf-8"
    )


def test_a_release_without_delta_after_gaussian_ones(tmp_path):
    """No filter has an epsilon at delta = 0 then: it is told at a tenth of 1/users."""
    folder = tmp_path / "run"
    folder.mkdir()
    gaussian = dr.Central(rho=0.1).stored(CountQuery(schema_of().layout, center_rewards=True), dr.Secure())
    with Ledger.open(tmp_path / "book.sqlite") as ledger:
        ledger.reserve("ward-7", gaussian.records, delta=1e-6, users=200)
        _, statement = made(folder, dr.Central(epsilon=1.0), ledger=ledger)
        assert wrong(folder, ledger) == []
    together = statement.to_dict()["ledger"]["together"]
    assert together["delta"] == pytest.approx(0.1 / 200)
    assert together["epsilon"] > 1.0
    assert ", plus 1 in 2,000." in statement.to_dict()["sentence"]


def test_what_the_statement_says_of_the_ledger(tmp_path):
    folders = [tmp_path / name for name in ("first", "second")]
    documents = []
    with Ledger.open(tmp_path / "book.sqlite") as ledger:
        for folder in folders:
            folder.mkdir()
            documents.append(made(folder, ledger=ledger)[1].to_dict())
            ledger.set_limit("ward-7", 5.0, 1e-4)
    first, second = documents
    assert [document["ledger"]["new"] for document in documents] == [True, False]
    assert first["ledger"]["identity"] == second["ledger"]["identity"]
    assert [any("NEW LEDGER" in text for text in d["warnings"]) for d in documents] == [True, False]
    assert [any("NO LIMIT" in text for text in d["warnings"]) for d in documents] == [True, False]
    page = (folders[1] / "statement.md").read_text("utf-8")
    assert f"identity {first['ledger']['identity']}, limit ε = 5 at δ = 0.0001" in page
    assert str(tmp_path) not in page


def test_a_ledger_holds_no_simulations(tmp_path):
    with Ledger.open(tmp_path / "book.sqlite") as ledger:
        for how in ({"randomness": dr.Seeded(1)}, {"synthetic": True}):
            folder = tmp_path / "run"
            folder.mkdir(exist_ok=True)
            with pytest.raises(ValueError, match="a ledger records only releases that protect users"):
                made(folder, ledger=ledger, **how)


def test_a_wrong_folder_is_an_error_in_words(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for name in ("nowhere", "empty", "file"):
        with pytest.raises(
            ValueError, match=r"must be a folder that `discreet learn` made, with its statement"
        ):
            verify(tmp_path / name)


def test_an_older_statement_is_refused_in_words(kept):
    document = json.loads((kept / "statement.json").read_text("utf-8"))
    document["version"] = 2
    del document["purpose"]
    rewritten(kept, document)
    (found,) = wrong(kept)
    assert "written by an older version of this library" in found.stated


def test_delta_against_one_over_users(tmp_path):
    assert check_delta(0.0, 10) == "pure"
    assert check_delta(1e-6, 100_000) == "small"
    assert check_delta(1.1e-6, 100_000) == "warn"
    with pytest.raises(ValueError, match="at most 1/users = 1e-05"):
        check_delta(1.1e-5, 100_000)
    with pytest.raises(ValueError, match="must be at most 1/users"):
        made(tmp_path, users=20_000)


def test_the_page(folder, tmp_path):
    page = (folder / "statement.md").read_text("utf-8")
    assert "this release (the first of these data in the ledger) is at most 2.72 times what it" in page
    assert ", plus 1 in 10,000." in page
    assert "SYNTHETIC" not in page
    assert "NO LEDGER" not in page
    assert f"Ledger** ledger.sqlite, identity {'b' * 32}, NO LIMIT IS SET; data set ward-7, entry 4" in page
    assert "Taken from THIS DATA, and therefore published without noise: states." in page
    assert len(page.split("\n")) < 110
    made(tmp_path, synthetic=True, users=2000)
    page = (tmp_path / "statement.md").read_text("utf-8")
    for words in ("SYNTHETIC DATA", "NO LEDGER", "more than a tenth", "No person's data were used"):
        assert words in page


def test_a_page_without_protection_says_so(tmp_path):
    made(tmp_path, dr.NoPrivacy())
    page = (tmp_path / "statement.md").read_text("utf-8")
    assert "ARE NOT PROTECTED" in page
    assert "NO PRIVACY GUARANTEE" in page
    assert "attacker" not in page


def test_what_is_typed_cannot_pass_for_the_page(tmp_path):
    schema = Schema("a | b ** NO *", "patient <b>", Layout(3, 2, 2, MASK))
    made(tmp_path, schema=schema, operator="**Approval:** me | # `x`")
    page = (tmp_path / "statement.md").read_text("utf-8")
    assert "a \\| b \\*\\* NO \\*" in page
    assert "\\*\\*Approval:\\*\\* me \\| \\# \\`x\\`" in page
    assert wrong(tmp_path) == []


def test_numbers_are_those_of_the_guarantee(folder):
    document = json.loads((folder / "statement.json").read_text("utf-8"))
    attacker, rho = document["attacker"], document["guarantee"]["rho"]
    assert document["guarantee"]["epsilon"] == pytest.approx(1.0, rel=5e-3)
    # never below the Gaussian curve at mu = sqrt(2 rho), of which discrete noise falls short by nothing
    from scipy.special import ndtr, ndtri

    mu = math.sqrt(2 * rho)
    for row in attacker["tests"]:
        assert row["true_positives"] >= ndtr(mu + ndtri(row["false_positives"]))
    pairs = document["mechanisms"][0]["families"]
    assert {row["family"]: row["cells"] for row in pairs} == {
        "visits": 10, "transition_counts": 30, "centered_reward_sums": 10,
    }  # fmt: skip
    assert document["groups"][0]["rho"] == 4 * rho
    assert document["delta"]["ratio"] == pytest.approx(0.02)


def test_a_linear_mechanism_has_many_tables(tmp_path):
    run, _ = made(tmp_path)
    names = [f"{i}.vector[{i}]" for i in range(100)]
    record = MechanismRecord(
        "planned questions", "discrete_gaussian", dict.fromkeys(names, 9.0), dict.fromkeys(names, 0.1), 0.1
    )
    guarantee = guarantee_of("joint", [record], randomness="secure", delta=1e-6)
    statement = make_statement(dataclasses.replace(run, guarantee=guarantee, records=(record,)))
    page = statement.to_markdown()
    assert "statement.json lists 88 more." in page
    assert "| 11.vector\\[11\\] | l2 | 0.1 | 9 | 9 | None |" not in page
    assert "| 11.vector\\[11\\] | l2 | 0.1 | 9 | 9 | - |" in page
    (mechanism,) = statement.to_dict()["mechanisms"]
    assert len(mechanism["families"]) == 100
    assert any("discreet.mechanisms.linear.sensitivities" in text for text in mechanism["proof"])


def test_proofs_name_modules_that_exist():
    named = {
        name for text in module._PROOFS.values() for name in re.findall(r"discreet\.[a-z_.]*[a-z]", text)
    }
    assert len(named) > 3
    for name in named:
        assert importlib.import_module(name).__doc__


def test_facts_at_the_door(tmp_path):
    run, _ = made(tmp_path)
    for change, match in (
        ({"users": 0}, "users"),
        ({"records": ()}, "records"),
        ({"files": {"policy.csv": "0" * 64}}, r"release\.parquet"),
        ({"files": {"release.parquet": "0" * 64, "schema.toml": "0" * 64}}, "policy"),
        ({"schema": 3}, "schema"),
        ({"synthetic": 1}, "synthetic"),
    ):
        with pytest.raises(ValueError, match=match):
            dataclasses.replace(run, **change)
    with pytest.raises(ValueError, match=r"\$\.operator"):
        make_statement(dataclasses.replace(run, operator="two\nlines"))
    with pytest.raises(ValueError, match="without folders"):
        dataclasses.replace(LEDGER, name="/home/x/ledger")
