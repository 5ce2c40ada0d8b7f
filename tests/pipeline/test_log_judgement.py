"""From a log to a verified judgement: policies, units, ledger, refusals before budget is spent."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from discreet.core.rng import Seeded
from discreet.data.schema import parse_schema
from discreet.data.synthetic_mark import MARK
from discreet.data.validate import DataError
from discreet.device.feature_map import FeatureMap
from discreet.learners.offline.linear_advantage import AdvantagePolicy
from discreet.ledger.ledger import Ledger
from discreet.pipeline.log_judgement import forecast_log, forecast_sentence, judge_log, log_facts, verify_log
from discreet.reports.context_report import write_context_policy
from discreet.reports.statement import file_hash

BUDGET = {"epsilon": 3.0, "delta": 1e-6}
NAMES = ("none", "one", "two")
LOGGED = np.array([0.2, 0.3, 0.5])


def schema(unit="impression", **changes):
    """Return the schema of the log."""
    return parse_schema({
        "dataset": "clicks", "unit": unit, "horizon": 1, "actions": {"labels": list(NAMES)},
        "reward": {"low": 0.0, "high": 2.0}, "provenance": {"context": "protocol"},
        "context": {"columns": {"x": {"range": [-1, 1]}, "z": {"range": [0, 1]}}, "propensity": "chance"},
        **changes,
    })  # fmt: skip


def frame(n=4000, seed=0, **changes):
    """Return a log. The reward is 2 more often if the action fits the sign of x."""
    draw = np.random.default_rng(seed)
    x, a = draw.uniform(-1, 1, n), draw.choice(3, n, p=LOGGED)
    fits = a == 1 + (x > 0)
    rows = {
        "action": np.array(NAMES)[a], "reward": 2.0 * (draw.random(n) < 0.2 + 0.4 * fits),
        "chance": LOGGED[a],
        "x": x, "z": draw.random(n), "planned": fits.astype(float), **changes,
    }  # fmt: skip
    return pd.DataFrame(rows)


def judge(out, log=None, policy="column:planned", of=None, **options):
    """Judge with seeded noise and no ledger, unless the options say otherwise."""
    given = {"ledger": None, "randomness": Seeded(0, 0), "cap": 5.0, "least": 0.2, **BUDGET, **options}
    return judge_log(frame() if log is None else log, policy, schema() if of is None else of, out, **given)


def test_a_judgement_verifies_with_its_ledger(tmp_path):
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        found = judge(tmp_path / "out", ledger=ledger, randomness=None)
        assert found.verdict.shown
        assert len(verify_log(found.folder, ledger)) == 2
        assert [entry.kind for entry in ledger.entries("clicks")] == ["reserve", "mark"]
    with Ledger.open(tmp_path / "other.sqlite") as other, pytest.raises(ValueError, match="does not hold"):
        verify_log(found.folder, other)
    text = (found.folder / "judgement.md").read_text()
    assert "UNIT: ONE IMPRESSION" in text
    assert "NO LEDGER" not in text
    assert "reads no column that names people" in text
    assert "rows are independent draws, and the policy" in text.splitlines()[2]
    facts = log_facts(found.folder)
    assert facts["gain"]["low"] > 0.0
    assert facts["value"]["estimate"] == pytest.approx(2 * 0.6, abs=0.1)  # in the units of the schema
    assert log_facts(tmp_path) is None
    assert "no ledger was given" in verify_log(found.folder)[-1]


@pytest.mark.parametrize(
    "where", ["sums", "scale", "cap", "page", "shown", "refuted", "schema", "foreign", "statement"]
)
def test_a_changed_folder_does_not_verify(tmp_path, where):
    folder = judge(tmp_path / "out").folder
    verify_log(folder)
    facts = json.loads((folder / "judgement.json").read_text())
    if where == "page":
        (folder / "judgement.md").write_text((folder / "judgement.md").read_text().replace("better", "worse"))
    elif where == "schema":
        (folder / "schema.toml").write_text((folder / "schema.toml").read_text() + "\n# more\n")
    elif where == "foreign":
        shutil.copy(folder / "judgement.md", folder / "more.md")
    else:
        change = {
            "sums": {"sums": [1.0 + one for one in facts["sums"]]}, "scale": {"scale": facts["scale"] / 2},
            "cap": {"question": {**facts["question"], "cap": 6.0}}, "shown": {"shown": not facts["shown"]},
            "refuted": {"refuted": True},
            "statement": {"statement": "Nothing is revealed."},
        }[where]  # fmt: skip
        (folder / "judgement.json").write_text(json.dumps({**facts, **change}))
    with pytest.raises(ValueError, match="judgement|schema"):
        verify_log(folder)


def test_a_policy_of_contexts_is_judged_and_copied(tmp_path):
    features = FeatureMap(
        {"z": (0.0, 1.0), "x": (-1.0, 1.0)}, 3
    )  # columns in another order than in the schema
    theta = np.zeros((3, features.dimension))
    theta[:, -1] = [-1.0, 0.0, 0.0]
    theta[1, 1], theta[2, 1] = -1.0, 1.0
    write_context_policy(tmp_path, AdvantagePolicy(features, theta), NAMES, "made for a test")
    (tmp_path / "statement.json").write_text('{"population": {"dataset": "clicks"}}')
    found = judge(tmp_path / "out", policy=tmp_path)
    column = judge(tmp_path / "column")
    assert found.verdict.gain == column.verdict.gain or found.verdict.gain.estimate == pytest.approx(
        column.verdict.gain.estimate, abs=1e-9
    )
    assert "NAMES THE SAME DATA SET" in found.text
    assert (found.folder / "policy.json").read_bytes() == (tmp_path / "policy.json").read_bytes()
    verify_log(found.folder)
    with pytest.raises(ValueError, match="name the actions"):
        judge(tmp_path / "more", policy=tmp_path, of=schema(actions={"labels": ["two", "one", "none"]}))
    with pytest.raises(ValueError, match="columns of"):
        judge(tmp_path / "more", policy=tmp_path, of=schema(actions=2))


def test_uniform_and_files_of_text(tmp_path):
    frame().to_csv(tmp_path / "log.csv", index=False)
    found = judge(tmp_path / "out", str(tmp_path / "log.csv"), "uniform")
    again = judge(tmp_path / "again", policy="uniform")
    assert found.verdict.ips == again.verdict.ips
    assert found.verdict.value.low <= 1 / 6 + 0.2 + 0.1 <= 1.0


def test_people_have_one_row_each(tmp_path):
    named = frame(user=[f"p{i}" for i in range(4000)])
    text = judge(tmp_path / "out", named, of=schema("person")).text
    assert "UNIT" not in text
    assert "Decisions: 4,000, one for each person" in text
    with pytest.raises(DataError, match="several rows"):
        judge(tmp_path / "more", frame(user="p1"), of=schema("person"))
    with pytest.raises(ValueError, match="must be 'impression'"):
        judge(tmp_path / "more", of=schema("person"))
    assert not (tmp_path / "more").exists()


def test_categories_are_read_as_their_values(tmp_path):
    rows = frame(user=[f"p{i}" for i in range(4000)])
    plain = judge(tmp_path / "plain", rows, of=schema("person")).verdict
    for name in ("user", "action", "planned"):
        coded = rows.assign(**{name: pd.Categorical(rows[name])})
        assert judge(tmp_path / name, coded, of=schema("person")).verdict.ips == plain.ips
    coded.assign(action=pd.Categorical(coded.action))[:9].to_parquet(tmp_path / "a.parquet")
    coded[9:].to_parquet(tmp_path / "b.parquet")
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    assert judge(tmp_path / "two", files, of=schema("person")).verdict.ips == plain.ips


def test_files_with_different_types_are_refused(tmp_path):
    rows = frame(user=np.arange(4000))
    rows[:9].to_parquet(tmp_path / "a.parquet")
    rows[9:].to_csv(tmp_path / "b.csv", index=False)  # 17 and "17" may be one person
    with pytest.raises(
        ValueError, match="'user': must have one type in all files, has int64 and large_string"
    ):
        judge(tmp_path / "out", [tmp_path / "a.parquet", tmp_path / "b.csv"], of=schema("person"))


@pytest.mark.parametrize(
    "change", [lambda line: line + ",9", lambda line: line[:-5], lambda line: '"' + line]
)
def test_lines_with_a_wrong_number_of_fields_are_refused(tmp_path, change):
    """If such lines were skipped, the published number of users would depend on one user's record."""
    lines = frame(100, planned=0.25).to_csv(index=False).splitlines()
    lines[7] = change(lines[7])
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match=r"log.csv line \d+: must have as many fields as the header"):
        judge(tmp_path / "out", str(tmp_path / "log.csv"), anyway=True)


def test_synthetic_users_are_refused(tmp_path):
    table = pa.Table.from_pandas(frame())
    marked = table.replace_schema_metadata({MARK: json.dumps({"dataset": "clicks"})})
    pq.write_table(marked, tmp_path / "log.parquet")
    with pytest.raises(ValueError, match="synthetic"):
        judge(tmp_path / "out", tmp_path / "log.parquet")


def test_a_ledger_never_adds_impressions_to_people(tmp_path):
    """A person with k impressions loses k^2 times the rho of one, so a total over both would be false."""
    people = frame(user=[f"p{i}" for i in range(4000)])
    for first, second in (("impression", "person"), ("person", "impression")):
        with Ledger.open(tmp_path / f"{first}.sqlite") as ledger:
            given = {"ledger": ledger, "randomness": None}
            rows = {"person": people, "impression": frame()}
            judge(tmp_path / first, rows[first], of=schema(first), **given)
            judge(tmp_path / f"{first} again", rows[first], of=schema(first), purpose="more", **given)
            with pytest.raises(ValueError, match="must be the name of another population"):
                judge(tmp_path / "mixed", rows[second], of=schema(second), **given)
            assert [one.kind for one in ledger.entries("clicks")] == ["reserve", "mark"] * 2
    assert not (tmp_path / "mixed").exists()


def several(people=1500, seed=0):
    """A log with one to seven rows of each person, not in the order of people."""
    draw = np.random.default_rng(seed)
    owner = draw.permutation(np.repeat(np.arange(people), draw.integers(1, 8, people)))
    return frame(len(owner), seed, user=[f"p{i}" for i in owner]), owner


def test_people_with_several_rows_count_once(tmp_path):
    rows, owner = several()
    found = judge(tmp_path / "out", rows, of=schema("person"), rows="mean")
    verify_log(found.folder)
    assert found.verdict.users == 1500
    assert "Persons: 1,500. A mean reward is the mean over persons" in found.text
    assert "persons are independent draws" in found.text
    assert "rows are independent" not in found.text
    assert f"{len(owner):,}" not in found.text  # the number of rows is not public
    assert "A user is all rows of one person, together. The number of users is public." in found.text
    assert "with m episodes" not in found.text
    w = rows.planned / rows.chance
    each = pd.DataFrame({"owner": owner, "wy": w * rows.reward / 2.0, "w": w}).groupby("owner").mean().mean()
    noise = 5 * found.verdict.value.noise
    assert found.verdict.ips == pytest.approx(each.wy, abs=noise)
    assert found.verdict.weight == pytest.approx(each.w, abs=3 * noise)
    facts = json.loads((found.folder / "judgement.json").read_text())
    (found.folder / "judgement.json").write_text(json.dumps({**facts, "rows": "one"}))
    with pytest.raises(ValueError, match="statement, dataset and unit must follow"):
        verify_log(found.folder)


def test_one_row_of_each_person_is_the_same_judgement(tmp_path):
    named = frame(user=[f"p{i}" for i in range(4000)])
    plain = judge(tmp_path / "plain", named, of=schema("person"))
    mean = judge(tmp_path / "mean", named.sample(frac=1.0, random_state=1), of=schema("person"), rows="mean")
    assert mean.verdict.ips == pytest.approx(plain.verdict.ips, abs=1e-5)  # truncated to the grid
    assert mean.verdict.gain.low == pytest.approx(plain.verdict.gain.low, abs=1e-5)


def test_names_that_look_alike_are_told(tmp_path):
    names = [f"p{i}" for i in range(500)] * 7 + ["p1 "] * 500
    with pytest.warns(UserWarning, match="1 of the names in 'user' look like another"):
        judge(tmp_path / "out", frame(user=names), of=schema("person"), rows="mean")


@pytest.mark.parametrize(
    ("changes", "unit", "options", "words"),
    [
        ({"user": [f"p{i % 7}" for i in range(4000)]}, "impression", {}, "unit = 'impression': must name"),
        ({}, "person", {}, "must be 'impression'"),
        ({"user": [None, "p1"] * 2000}, "person", {}, "2000 rows name no user"),
        ({"user": "p1"}, "person", {"rows": "sum"}, "rows = 'sum'"),
    ],
)
def test_several_rows_that_are_refused(tmp_path, changes, unit, options, words):
    with pytest.raises(ValueError, match=words):
        judge(tmp_path / "out", frame(**changes), of=schema(unit), **{"rows": "mean", **options})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"chance": 0.0}, "propensity"), ({"chance": 1.5}, "propensity"), ({"chance": 0.1}, "below least"),
        ({"planned": 1.5}, "not in"), ({"planned": np.nan}, "not in"), ({"reward": 3.0}, "reward"),
        ({"action": "three"}, "action"), ({"x": 400.0}, "out of the declared range"),
    ],
)  # fmt: skip
def test_rows_are_refused_before_budget_is_spent(tmp_path, change, words):
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger, pytest.raises(DataError, match=words):
        judge(tmp_path / "out", frame(**change), ledger=ledger, randomness=None)
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        assert not ledger.entries("clicks")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epsilon": 0.001}, "Nothing can be shown: .* Nothing was spent"), ({"delta": 0.01}, "delta"),
        ({"policy": "column:other"}, "'other'"), ({"cap": 0.0}, "cap"), ({"expected": 2.0}, "expected"),
        ({"policy": "missing.json"}, "must be a policy"), ({"level": 1.0}, "level"),
        ({"log": frame(0)}, "rows"), ({"log": frame(planned="a")}, "must hold numbers"),
    ],
)  # fmt: skip
def test_other_input_is_refused(tmp_path, change, words):
    with pytest.raises(ValueError, match=words):
        judge(tmp_path / "out", **change)
    assert not (tmp_path / "out").exists()


def test_a_hopeless_judgement_can_be_made_anyway(tmp_path):
    found = judge(tmp_path / "out", epsilon=0.01, anyway=True)
    assert found.forecast.hopeless
    assert not found.verdict.shown
    assert found.text.splitlines()[2].startswith("**No gain is shown")
    verify_log(found.folder)


@pytest.mark.parametrize(
    ("factor", "options", "words"),
    [
        (0.5, {}, "at most 1 is possible"), (0.5, {"least": None}, "at most 1 is possible"),
        (0.5, {"policy": "uniform"}, "wrong, or rows are not"),
        (2.0, {"policy": "uniform"}, "only about 1 is possible .* least = 0.2 is, or rows"),
        (2.0, {}, "only about 1 is possible .* least = 0.2 is, or those of column:planned are, or rows"),
    ],
)  # fmt: skip
def test_wrong_probabilities_show_no_gain_and_no_loss(tmp_path, factor, options, words):
    rows = frame()
    right = 1.0 * LOGGED[rows.action.map(NAMES.index)]
    least = options.get("least", 0.2) and min(0.2, 0.2 * factor)
    given = {"cap": 50.0 if factor < 1 else 5.0, "epsilon": 20.0, **options, "least": least}
    wrong = np.minimum(right * factor, 1.0) if factor > 1 else right * factor
    found = judge(tmp_path / "out", rows.assign(chance=wrong), **given)
    assert found.verdict.refuted
    assert not found.verdict.shown
    first = found.text.splitlines()[2]
    assert first.startswith("**No gain is shown: the mean weight is")
    assert re.search(words, first)
    assert "Mean reward under the policy" not in found.text
    assert "Standard deviation of the gain" not in found.text
    facts = log_facts(found.folder)
    assert facts["refuted"]
    assert not facts["shown"]
    verify_log(found.folder)


def test_right_probabilities_are_not_refuted(tmp_path):
    for number, options in enumerate(({}, {"least": None}, {"policy": "uniform"}, {"cap": 2.0})):
        assert not judge(tmp_path / str(number), **options).verdict.refuted


def test_the_remedy_for_several_rows_of_a_person_works(tmp_path):
    rows = frame(user=np.arange(4000) // 2)
    with pytest.raises(DataError, match='"impression" and leave this column out of the log'):
        judge(tmp_path / "out", rows, of=schema("person"))
    judge(tmp_path / "out", rows.drop(columns="user"))
    judge(tmp_path / "one", rows.drop_duplicates("user"), of=schema("person"))


def test_schemas_of_other_data_are_refused(tmp_path):
    with pytest.raises(ValueError, match="horizon = 2"):
        judge(tmp_path / "out", of=schema(horizon=2))
    with pytest.raises(ValueError, match="propensity"):
        judge(tmp_path / "out", of=schema(context={"columns": {"x": {"range": [-1, 1]}}}))
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger, pytest.raises(ValueError, match="seed"):
        judge(tmp_path / "out", ledger=ledger)


def test_the_forecast_is_that_of_the_judgement(tmp_path):
    found = judge(tmp_path / "out")
    ahead = forecast_log(schema(), 4000, cap=5.0, least=0.2, **BUDGET)
    assert found.forecast.least == pytest.approx(ahead.least, rel=1e-9)
    words = forecast_sentence(ahead, schema(), 0.9)
    assert words.startswith(
        "With 4,000 impressions, the 90 % interval of the gain has a half width of at least"
    )
    assert words[: words.index(",")] in found.text
    cut = forecast_log(schema(), 4000, cap=5.0, **BUDGET)
    words = forecast_sentence(cut, schema(), 0.95)
    assert "Weights may be cut" in words
    assert "at most 2 times 1 minus the mean weight" in words
    made = judge(tmp_path / "cut", least=None)
    assert words in made.text
    assert log_facts(made.folder)["forecast"]["most"] is None
    verify_log(made.folder)


def test_the_page_states_what_protects_the_copied_policy(tmp_path):
    """The policy can have been made without privacy, and its file is in the folder."""
    features = FeatureMap({"x": (-1.0, 1.0)}, 3)
    policy = AdvantagePolicy(features, np.eye(3, features.dimension))
    write_context_policy(tmp_path, policy, NAMES, "No privacy guarantee: exact sums.")
    found = judge(tmp_path / "out", policy=tmp_path)
    said = (
        "policy.json is a copy. The guarantee above does not cover it. It states: No privacy guarantee: exact"
    )
    assert said in found.text
    verify_log(found.folder)
    assert "policy.json" not in judge(tmp_path / "column").text
    file = found.folder / "policy.json"
    facts = json.loads((found.folder / "judgement.json").read_text())
    file.write_text(file.read_text().replace("No privacy", "Full privacy"))
    facts["files"]["policy.json"] = file_hash(file)
    (found.folder / "judgement.json").write_text(json.dumps(facts))
    with pytest.raises(ValueError, match="policy.json"):
        verify_log(found.folder)
