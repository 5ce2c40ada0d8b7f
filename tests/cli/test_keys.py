"""Keys that sign: made, shown, lost, and refused."""

import json
from pathlib import Path

import pytest
from commands import call


def test_a_lost_key_and_passphrases(
    tmp_path: Path, own_ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cryptography")
    phrase = tmp_path / "phrase"
    phrase.write_text("words for the owner\n")
    phrase.chmod(0o600)
    owner, new, safe = (tmp_path / name for name in ("owner", "new", "safe"))
    assert "there is no terminal" in call("keys", "new", owner, "--passphrase", code=2).stderr
    call("keys", "new", owner, "--passphrase", "--passphrase-file", phrase)
    call("keys", "new", new)
    monkeypatch.setenv("DISCREET_PASSPHRASE", "words for the safe")
    call("keys", "new", safe, "--passphrase")
    limit = ["ledger", "--dataset", "ward", "--limit", 1.5, "--delta", "1e-6", "--key", owner]
    assert "is not its passphrase" in call(*limit, code=2).stderr
    assert "with --limit and --key" in call("ledger", "--recovery", f"{safe}.pub", code=2).stderr
    call(*limit, "--passphrase-file", phrase, "--recovery", f"{safe}.pub")
    over = ["ledger", "--dataset", "ward", "--hand-over", f"{new}.pub"]
    assert "must be given with --dataset and --key" in call(*over, code=2).stderr
    assert "cannot be done" in call(*over, "--key", new, code=2).stderr
    said = call(*over, "--key", safe).stderr.replace("\n", "")
    assert json.loads(call("keys", "show", new, "--json").stdout)["public_key"] in said
    assert "must be that of" in call(*limit, "--passphrase-file", phrase, code=2).stderr
    call(*limit[:-1], new)
    renewed = tmp_path / "renewed"
    renewed.write_text("other words for the safe\n")
    renewed.chmod(0o600)
    call("keys", "passphrase", safe, "--new-passphrase-file", renewed)
    assert "is not its passphrase" in call("keys", "show", safe, code=2).stderr
    call("keys", "passphrase", safe, "--no-passphrase", "--passphrase-file", renewed)
    monkeypatch.delenv("DISCREET_PASSPHRASE")
    call("keys", "show", safe)


def test_keys_in_the_wrong_place(tmp_path: Path, own_ledger: Path) -> None:
    pytest.importorskip("cryptography")
    call("keys", "new", tmp_path / "k")
    assert "exists already" in call("keys", "new", tmp_path / "k", code=2).stderr
    assert "must be one of" in call("keys", "old", tmp_path / "k", code=2).stderr
    (tmp_path / "k").chmod(0o644)
    assert "must have mode 0600" in call("keys", "show", tmp_path / "k", code=2).stderr
    assert "public-key = " in call("verify", tmp_path, "--public-key", tmp_path / "k", code=2).stderr
