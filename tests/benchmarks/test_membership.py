"""The study of attacks: what it plays, and the files that it leaves."""

import dataclasses
import json
from pathlib import Path

import pytest

from benchmarks.studies import membership
from benchmarks.studies.membership import Setting, Size

TINY = Size(games=4, shadows=2, trials=4, certain=8)


def test_settings_are_all_different_and_cover_both_targets() -> None:
    every = membership.settings()
    assert len({repr(setting) for setting in every}) == len(every)
    assert {(s.name, s.target) for s in every} >= {
        ("no privacy", "drawn"), ("no privacy", "canary"), ("private", "drawn"), ("private", "canary"),
        ("broken", "canary"),
    }  # fmt: skip


def test_the_broken_setting_is_held_to_what_it_does_not_keep() -> None:
    (broken,) = (setting for setting in membership.settings() if setting.claimed is not None)
    result = membership.attack(broken, TINY)
    assert result.claim.mu == pytest.approx(1.0)
    assert result.realised == pytest.approx(2.0)


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers, tables and figure of settings that the figure needs, in few runs."""
    budgets = ({"mu": 1.0}, {"mu": 4.0})
    few = [Setting("no privacy", membership.USERS, t, "everything") for t in ("drawn", "canary")]  # type: ignore[arg-type]
    few += [dataclasses.replace(s, name="private", budget=dict(b)) for s in few for b in budgets]
    few.append(dataclasses.replace(few[1], name="broken", budget={"mu": 2.0}, claimed={"mu": 1.0}))
    monkeypatch.setattr(membership, "settings", lambda: few)
    monkeypatch.setattr(membership, "QUICK", TINY)
    membership.main(["--quick", "--out", str(tmp_path)])
    document = json.loads((tmp_path / "membership.json").read_text())
    assert [one["setting"] for one in document["attacks"]] == [setting.name for setting in few]
    page = (tmp_path / "membership.md").read_text()
    assert len(page.splitlines()) == 2 + len(few) + 1 + 2 + 3 * len(few)
    assert page.startswith(membership.summary(document["attacks"]))
    assert (tmp_path / "membership.png").read_bytes().startswith(b"\x89PNG")
