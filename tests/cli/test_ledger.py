"""Limits, keys and entries of the ledger, on the command line."""

import json
from pathlib import Path

import pandas as pd
import pytest
from commands import call

pytestmark = pytest.mark.usefixtures("figures_are_sketched", "own_ledger")
BUDGET = ["--epsilon", "1", "--delta", "1e-6"]


def test_the_ledger_holds_the_owners_limit(data: tuple[Path, Path], tmp_path: Path) -> None:
    first = call("ledger", "--dataset", "ward", "--limit", 1.2, "--delta", 1e-6)
    assert "nothing has been spent on 'ward'" in first.stderr
    learn = ["learn", data[0], "--schema", data[1], *BUDGET, "--out"]
    call(*learn, tmp_path / "first")
    refused = call(*learn, tmp_path / "second", code=2)
    assert "owner's limit" in refused.stderr
    assert not (tmp_path / "second").exists()
    text = call("ledger", "--export", tmp_path / "all.jsonl").stdout
    assert "1 release, together epsilon = " in " ".join(text.split())
    assert len((tmp_path / "all.jsonl").read_text().splitlines()) == 4
    call("ledger", "--export", tmp_path / "all.jsonl", code=2)
    misspelt = call("ledger", "--dataset", "wrad", "--limit", 1.2, "--delta", 1e-6)
    assert "'wrad'" in misspelt.stderr
    assert "(others here: 'ward')" in misspelt.stderr
    assert "must be given with --dataset" in call("ledger", "--limit", 1.0, code=2).stderr


def test_no_query_leads_round_the_owners_rule(
    data: tuple[Path, Path], tmp_path: Path, own_ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files by SQL, views elsewhere, another population's name, counted parts, a second name of a file."""
    duckdb = pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    rows, schema = data
    Path("ruled").mkdir()
    frame = pd.read_parquet(rows)
    frame.to_csv("ruled/people.csv", index=False)
    call("ledger", "--dataset", "ward", "--limit", 3, "--delta", "1e-6")
    call("ledger", "--dataset", "ward", "--require", "ruled")
    sql = "select * from read_csv_auto('ruled/people.csv')"
    with duckdb.connect("view.duckdb") as base:
        base.execute(f"create view people as {sql}")
    own = ["--schema", schema, "--epsilon", 0.1, "--delta", "1e-6", "--out", "r"]
    asked = ["learn", "duckdb://", "--sql", sql, *own]
    named, rule = ["ruled/people.csv"], "--no-ledger is forbidden"
    for reads in ([], [schema]):
        assert "name each file that it reads" in call(*asked, *reads, "--no-ledger", code=2).stderr
    assert rule in call(*asked, *named, "--no-ledger", code=2).stderr
    view = ["learn", "duckdb://view.duckdb?table=people", *own, "--no-ledger"]
    assert "may read only its database" in call(*view, code=2).stderr
    other = schema.with_name("other.toml")
    other.write_text(schema.read_text().replace('"ward"', '"other"'))
    free = [
        "learn",
        "duckdb://",
        "--sql",
        sql,
        "--schema",
        other,
        "--epsilon",
        50,
        "--delta",
        "1e-6",
        "--out",
        "r",
    ]
    assert "name each file that it reads" in call(*free, code=2).stderr
    assert "dataset = 'other': must be 'ward'" in call(*free, *named, code=2).stderr

    call("aggregate", "--new-key", "key")
    counted = ["aggregate", "duckdb://", "--sql", sql, "--schema", schema, "--key", "key", "--out", "p.tally"]
    assert "name each file that it reads" in call(*counted, code=2).stderr
    call(*counted, *named)
    assert rule in call("learn", "p.tally", *own, "--no-ledger", code=2).stderr

    Path("linked").mkdir()
    Path("linked/free.csv").hardlink_to("ruled/people.csv")
    assert rule in call("learn", "linked/free.csv", *own, "--no-ledger", code=2).stderr
    monkeypatch.chdir("linked")
    assert rule in call("learn", "free.csv", *own, "--no-ledger", code=2).stderr
    linked = ["learn", "duckdb://", "--sql", "from 'free.csv'", "free.csv", *own]
    assert rule in call(*linked, "--no-ledger", code=2).stderr
    assert not Path("r").exists()
    call(*linked)  # with the ledger it goes through
    entries = json.loads(call("ledger", "--json").stdout)["entries"]
    assert [one["entry"] for one in entries] == ["begin", "limit", "reserve", "mark"]


def test_from_an_owners_limit_to_a_signed_folder(
    data: tuple[Path, Path], tmp_path: Path, own_ledger: Path
) -> None:
    pytest.importorskip("cryptography")
    rows, schema = data
    keys = {}
    for name in ("owner", "officer"):
        made = call("keys", "new", tmp_path / "keys" / name)
        assert "private, for you alone" in made.stdout
        keys[name] = json.loads(call("keys", "show", tmp_path / "keys" / name, "--json").stdout)["public_key"]
        assert keys[name] in made.stdout
        assert keys[name] in call("keys", "show", tmp_path / "keys" / f"{name}.pub").stdout
    owner, officer = (tmp_path / "keys" / name for name in keys)
    ward = ["--dataset", "ward"]
    limit = ["ledger", *ward, "--limit", 1.5, "--delta", "1e-6"]
    assert keys["owner"] in call(*limit, "--key", owner).stdout.replace("\n", "")
    for more in ([], ["--key", officer]):
        assert f"must be that of {keys['owner']}" in call(*limit, *more, code=2).stderr
    assert "must be given with --dataset" in call("ledger", "--require", tmp_path, code=2).stderr
    said = call("ledger", "--key", owner, code=2).stderr.replace("\n", " ")
    assert "must be given with --limit, --require or --hand-over" in said
    assert "signed together or not at all" in call("ledger", *ward, "--require", tmp_path, code=2).stderr
    assert "must be in this ledger now" in call("ledger", *ward, "--require", tmp_path, "--key", owner).stderr

    learn = ["learn", rows, "--schema", schema, *BUDGET, "--learner", "dp-apvi", "--out"]
    assert "--no-ledger is forbidden" in call(*learn, tmp_path / "x", "--no-ledger", code=2).stderr
    elsewhere = ["--ledger", tmp_path / "other.sqlite"]
    assert "must be that of identity" in call(*learn, tmp_path / "x", *elsewhere, code=2).stderr
    out = tmp_path / "out"
    call(*learn, out)
    assert "the owner's limit is epsilon 1.5" in call(*learn, tmp_path / "more", code=2).stderr
    assert not (tmp_path / "more").exists()
    assert not (tmp_path / "x").exists()

    asked = ["--public-key", f"{officer}.pub"]
    assert "signed with the key" in call("verify", out, *asked, code=1).stdout
    assert "No signature (" in call("verify", out, "--limit-key", f"{owner}.pub").stdout
    call("verify", out, "--limit-key", f"{officer}.pub", code=1)
    assert "key is missing" in call("sign", out, code=2).stderr
    page = out / "officer.md"
    page.write_bytes(page.read_bytes().replace(b"**Answer 1:** ", b"**Answer 1:** Yes."))
    call("sign", out, "--key", officer, "--name", "A. Weber")
    assert "has signed" in call("sign", out, "--key", officer, code=2).stderr
    said = call("verify", out, *asked, "--limit-key", f"{owner}.pub").stdout
    assert "Signature of A. Weber" in said
    assert "an unknown key" not in said
    assert "an unknown key" in call("verify", out).stdout
    page.write_bytes(page.read_bytes().replace(b"Yes.", b"No."))
    call("verify", out, *asked, code=1)
    assert "does not verify" in call("sign", out, "--key", owner, code=2).stderr
