"""Keys, signed limits and owners' rules: what each refuses, and what an attacker with both files can do."""

import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from forged import Edit, rewrite

from discreet.core.guarantee import MechanismRecord
from discreet.ledger import owner_rules
from discreet.ledger.ledger import BudgetError, Ledger, LedgerError, read_export, table
from discreet.ledger.owner_rules import check_rules, read_rule, require_ledger, rules_over
from discreet.ledger.signatures import (
    PassphraseMissing,
    PrivateKey,
    change_passphrase,
    is_valid,
    new_key,
    read_passphrase,
    read_private_key,
    read_public_key,
)

pytest.importorskip("cryptography")
LAPLACE = MechanismRecord("counts", "discrete_laplace", {"v": 2.0}, {"v": 1.0}, 0.5, 2)  # epsilon 1
LIMIT, STATEMENT = "discreet limit, 1", "discreet statement, 1"


def key_of(folder: Path, name: str) -> PrivateKey:
    if not (folder / name).exists():
        new_key(folder / name)
    return read_private_key(folder / name)


@pytest.fixture
def owner(tmp_path: Path) -> PrivateKey:
    return key_of(tmp_path, "owner")


@pytest.fixture
def path(tmp_path: Path, owner: PrivateKey) -> Path:
    """A ledger whose limit of 2.5 is signed, lowered from 9; one release was made."""
    where = tmp_path / "ledger.sqlite"
    with Ledger.open(where) as ledger:
        ledger.set_limit("icu", 9.0, key=owner)
        ledger.set_limit("icu", 2.5, key=owner)
        ledger.reserve("icu", [LAPLACE], users=40)
    return where


# ------------------------------------------------------------------------------------------- keys
def test_a_key_signs_one_kind_of_one_content(tmp_path: Path) -> None:
    key = key_of(tmp_path, "a")
    other = key_of(tmp_path, "b")
    content = {"epsilon": 1.0, "name": "Wärter"}
    made = key.sign(LIMIT, content)
    assert is_valid(key.public, LIMIT, content, made)
    assert is_valid(key.public, LIMIT, dict(reversed(content.items())), made)  # one text for one content
    assert read_public_key(tmp_path / "a.pub") == key.public
    wrong = [
        (other.public, LIMIT, content, made),
        (key.public, STATEMENT, content, made),
        (key.public, LIMIT, {**content, "epsilon": 1.0000001}, made),
        (key.public, LIMIT, {**content, "more": None}, made),
        (key.public, LIMIT, content, made[:-1]),
        (key.public, LIMIT, content, made[:-1] + ("0" if made[-1] != "0" else "1")),
        (key.public, LIMIT, content, ""),
        (key.public, LIMIT, content, "zz"),
        (key.public.upper() + "0", LIMIT, content, made),
        ("", LIMIT, content, made),
    ]
    assert [is_valid(*one) for one in wrong] == [False] * len(wrong)


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o620, 0o610])
def test_a_private_key_that_others_can_reach_is_refused(tmp_path: Path, mode: int) -> None:
    new_key(tmp_path / "k")
    assert (tmp_path / "k").stat().st_mode & 0o777 == 0o600
    (tmp_path / "k").chmod(mode)
    with pytest.raises(ValueError, match=f"mode {mode:04o}.*0600"):
        read_private_key(tmp_path / "k")


def test_what_is_no_key_is_refused_without_telling_what_it_holds(tmp_path: Path) -> None:
    key_of(tmp_path, "k")
    with pytest.raises(ValueError, match="exists already"):
        new_key(tmp_path / "k")
    secret = tmp_path / "secret"
    secret.write_text("-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----\n")
    secret.chmod(0o600)
    with pytest.raises(ValueError, match="must be a private Ed25519 key") as found:
        read_private_key(secret)
    assert "hunter2" not in str(found.value)
    (tmp_path / "k.pub").chmod(0o600)
    with pytest.raises(ValueError, match="must be a private Ed25519 key"):
        read_private_key(tmp_path / "k.pub")
    with pytest.raises(ValueError, match="must be a public Ed25519 key"):
        read_public_key(tmp_path / "k")
    with pytest.raises(ValueError, match="cannot be read"):
        read_public_key(tmp_path / "none")
    with pytest.raises(ValueError, match="cannot be read|must be a file"):
        read_private_key(tmp_path)


def test_other_kinds_of_keys_are_refused(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    for name, content in (("ec", private), ("ec.pub", public)):
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(0o600)
    with pytest.raises(ValueError, match="must be a private Ed25519 key"):
        read_private_key(tmp_path / "ec")
    with pytest.raises(ValueError, match="is another kind"):
        read_public_key(tmp_path / "ec.pub")


def test_a_private_key_neither_prints_nor_travels(owner: PrivateKey) -> None:
    assert "_key" not in repr(owner)
    with pytest.raises(TypeError, match="cannot be copied"):
        pickle.dumps(owner)


def test_openssl_reads_the_keys_and_checks_a_signature(tmp_path: Path, owner: PrivateKey) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl here")
    text = tmp_path / "text"
    text.write_bytes(b'discreet limit, 1\n{"a":1,"b":"\\u00e4"}')
    (tmp_path / "sig").write_bytes(bytes.fromhex(owner.sign(LIMIT, {"b": "ä", "a": 1})))
    done = subprocess.run(
        [openssl, "pkeyutl", "-verify", "-pubin", "-inkey", str(tmp_path / "owner.pub"), "-rawin", "-in",
         str(text), "-sigfile", str(tmp_path / "sig")], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


# ------------------------------------------------------------------------------------------ limits
def test_only_the_owner_moves_a_signed_limit(path: Path, tmp_path: Path, owner: PrivateKey) -> None:
    with Ledger.open(path) as ledger:
        before = ledger.head
        for wrong in (None, key_of(tmp_path, "runner")):
            with pytest.raises(ValueError, match=f"key: must be that of {owner.public}"):
                ledger.set_limit("icu", 100.0, key=wrong)
        with pytest.raises(ValueError, match="limit_check = False: must be True"):
            ledger.reserve("icu", [LAPLACE], limit_check=False)
        with pytest.raises(ValueError, match="must be a PrivateKey"):
            ledger.set_limit("icu", 1.0, key=owner.public)  # type: ignore[arg-type]
        assert ledger.head == before
        ledger.reserve("icu", [LAPLACE])  # who runs needs no key
        with pytest.raises(BudgetError):
            ledger.reserve("icu", [LAPLACE])
        ledger.set_limit("icu", 3.5, key=owner)
        ledger.reserve("icu", [LAPLACE])
        totals = ledger.totals("icu")
        assert (totals.limit, totals.limit_key) == ((3.5, 0.0), owner.public)
        assert ledger.totals("icu", upto=1).limit_key is None
        assert ledger.owner("icu") == owner.public
        assert ledger.owner("other") is None
        ledger.set_limit("other", 1.0)  # datasets are apart
        rows = table(ledger.entries("icu"))
        assert rows[0][10] == f"signed: {owner.public[:16]}..."


def test_an_unsigned_limit_may_be_taken_over_by_an_owner(tmp_path: Path, owner: PrivateKey) -> None:
    with Ledger.open(tmp_path / "book") as ledger:
        ledger.set_limit("icu", 9.0)
        ledger.reserve("icu", [LAPLACE], limit_check=False)
        ledger.set_limit("icu", 1.0, key=owner)
        assert ledger.owner("icu") == owner.public
    with Ledger.open(tmp_path / "book", readonly=True) as ledger:
        assert ledger.limit("icu") == (1.0, 0.0)


def test_forgeries_of_signed_limits(path: Path, tmp_path: Path, owner: PrivateKey) -> None:
    """Entries: begin, limit 9, limit 2.5, reserve. The chain is whole after each forgery but the last."""
    runner = key_of(tmp_path, "runner")

    def plain(entries: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        kept = {k: v for k, v in entries[2].items() if k not in ("key", "signature")}
        return {**kept, "epsilon": 100.0, **more}

    ways: dict[str, Edit] = {
        "raised": lambda e: e[2].update(epsilon=100.0),
        "another delta": lambda e: e[2].update(delta=0.5),
        "another time": lambda e: e[2].update(time="2020-01-01T00:00:00+00:00"),
        "another dataset": lambda e: e[2].update(dataset="other"),
        "unsigned one after": lambda e: e.append(plain(e)),
        "the runner's after": lambda e: e.append(plain(e, key=runner.public, signature=e[2]["signature"])),
        "the owner's name only": lambda e: e.append(plain(e, key=owner.public)),
        "an empty signature": lambda e: e.append(plain(e, key=owner.public, signature="")),
        "a signature without a key": lambda e: e.append(plain(e, signature=e[2]["signature"])),
        "the first one again": lambda e: e.append(dict(e[1])),
        "the first one last": lambda e: e.insert(2, e.pop(1)) or e[1:3].reverse(),
        "the second one out, a gap": lambda e: e.pop(1),
        "one unsigned between": lambda e: e.insert(2, plain(e)),
        "key swapped": lambda e: e[2].update(key=runner.public),
        "key of another kind": lambda e: e[2].update(key=5),
        "stripped, the second": lambda e: [e[2].pop(name) for name in ("key", "signature")],
        "stripped, the first": lambda e: [e[1].pop(name) for name in ("key", "signature")],
        "a reservation before": lambda e: e.insert(1, e.pop(3)),
        "the limit set aside": lambda e: e.append({**e[3], "checked": False}),
        "a signed reservation": lambda e: e[3].update(key=owner.public, signature=e[2]["signature"]),
        "another ledger's identity": lambda e: e[0].update(identity="0" * 32),
    }
    kept = path.read_bytes(), path.with_name(path.name + ".head").read_bytes()
    rewrite(path, lambda e: None)
    Ledger.open(path, readonly=True).close()  # the attacker's tool alone changes nothing
    seen = []
    for name, way in ways.items():
        path.write_bytes(kept[0])
        path.with_name(path.name + ".head").write_bytes(kept[1])
        rewrite(path, way)
        try:
            Ledger.open(path, readonly=True).close()
        except LedgerError:
            seen.append(name)
    assert seen == [*ways]


def test_what_no_signature_sees(path: Path, owner: PrivateKey) -> None:
    """Both files put back to before a limit was lowered, or rewritten without signatures: the ledger opens.
    The key that a rule or `verify --limit-key` names is what tells of the second.
    """
    rewrite(path, lambda e: e.__delitem__(slice(2, None)))
    with Ledger.open(path, readonly=True) as ledger:
        assert ledger.limit("icu") == (9.0, 0.0)
    rewrite(path, lambda e: [e[1].pop(name) for name in ("key", "signature")])
    with Ledger.open(path, readonly=True) as ledger:
        assert ledger.owner("icu") is None != owner.public


def test_a_limit_signed_for_another_ledger(path: Path, tmp_path: Path, owner: PrivateKey) -> None:
    other = tmp_path / "other.sqlite"
    with Ledger.open(other) as ledger:
        ledger.set_limit("icu", 1000.0, key=owner)
        taken = json.loads(ledger.entries()[1].text)
    rewrite(path, lambda e: e.__setitem__(1, dict(taken)))
    with pytest.raises(LedgerError, match="the signature of entry 2 is not valid"):
        Ledger.open(path)


def test_exports_are_checked_too(path: Path, tmp_path: Path) -> None:
    with Ledger.open(path, readonly=True) as ledger:
        ledger.export(tmp_path / "book.jsonl")
        held = ledger.entries()
    lines = (tmp_path / "book.jsonl").read_text("utf-8").splitlines()
    assert read_export(iter(lines)) == held


_WITHOUT = (
    "import sys\nsys.modules['cryptography'] = None\nfrom discreet.ledger.ledger import Ledger\n"
    "from discreet.ledger.signatures import new_key\n"
)


def test_without_cryptography(path: Path, tmp_path: Path) -> None:
    """Nothing but signed things needs it, and those say what to install."""
    code = (
        f"{_WITHOUT}Ledger.open({str(tmp_path / 'plain')!r}).set_limit('a', 1.0)\n"
        f"for act in (lambda: Ledger.open({str(path)!r}), lambda: new_key({str(tmp_path / 'k')!r})):\n"
        "    try:\n        act()\n        print('done')\n"
        "    except ValueError as error:\n        print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first.endswith(
        "holds a signed limit, and signatures need the package cryptography: pip install 'discreet[sign]'"
    )
    assert second.endswith("pip install 'discreet[sign]'")


# ----------------------------------------------------------------------------- handing a limit over
def test_a_limit_is_handed_over_by_its_owner_or_by_the_recovery_key(
    tmp_path: Path, owner: PrivateKey
) -> None:
    second, third, safe, runner = (key_of(tmp_path, name) for name in ("second", "third", "safe", "runner"))
    with Ledger.open(tmp_path / "book") as ledger:
        for make, said in (
            (lambda: ledger.hand_over("icu", second.public, owner), "it is not signed"),
            (lambda: ledger.set_limit("icu", 1.0, recovery=safe.public), "it is not signed"),
            (lambda: ledger.set_limit("icu", 1.0, key=owner, recovery=owner.public), "other than the one"),
            (lambda: ledger.set_limit("icu", 1.0, key=owner, recovery="ab"), "must be a public key"),
        ):
            with pytest.raises(ValueError, match=said):
                make()
        ledger.set_limit("icu", 3.0, key=owner, recovery=safe.public)
        require_ledger(tmp_path, ledger, "icu", owner)
        for to, key, said in (
            (second.public, runner, f"must be that of {owner.public}, or the recovery key {safe.public}"),
            (owner.public, owner, "must be a public key other than"),
            (safe.public, owner, "must be a public key other than"),
            ("ab", owner, "must be a public key other than"),
        ):
            with pytest.raises(ValueError, match=said):
                ledger.hand_over("icu", to, key)
        with pytest.raises(ValueError, match="cannot be changed"):
            ledger.set_limit("icu", 3.0, key=owner, recovery=runner.public)
        ledger.hand_over("icu", second.public, owner)
        with pytest.raises(ValueError, match=f"must be that of {second.public}"):
            ledger.set_limit("icu", 9.0, key=owner)
        with pytest.raises(ValueError, match="must be that of"):
            ledger.hand_over("icu", third.public, owner)
        ledger.set_limit("icu", 2.0, key=second)
        ledger.hand_over("icu", third.public, safe)  # the second key is lost
        ledger.set_limit("icu", 1.0, key=third)
        ledger.reserve("icu", [LAPLACE])
    with Ledger.open(tmp_path / "book", readonly=True) as ledger:  # every signature is checked again
        assert (ledger.owner("icu"), ledger.recovery("icu")) == (third.public, safe.public)
        assert ledger.successors("icu", owner.public) == (owner.public, second.public, third.public)
        assert ledger.successors("icu", second.public) == (second.public, third.public)
        assert ledger.successors("icu", runner.public) == ledger.successors("other", owner.public) == ()
        check_rules([tmp_path / "rows.csv"], "icu", ledger)  # the first owner's rule still holds
        assert [row[10] for row in table(ledger.entries("icu"))[:2]] == [
            f"signed: {owner.public[:16]}..., recovery: {safe.public[:16]}...",
            f"to {second.public[:16]}..., signed: {owner.public[:16]}...",
        ]


def test_who_can_write_the_ledger_takes_no_limit_over(tmp_path: Path, owner: PrivateKey) -> None:
    """With both files but no key of the owner's. Entries: begin, limit, owner, limit of the second one."""
    second, safe, runner = (key_of(tmp_path, name) for name in ("second", "safe", "runner"))
    path = tmp_path / "book"
    with Ledger.open(path) as ledger:
        ledger.set_limit("icu", 3.0, key=owner, recovery=safe.public)
        ledger.hand_over("icu", second.public, owner)
        ledger.set_limit("icu", 2.0, key=second)
        identity = ledger.identity
        require_ledger(tmp_path, ledger, "icu", second)

    def forged(entries: list[dict[str, Any]], kind: str, **more: Any) -> dict[str, Any]:
        """One more entry, signed by the runner for the very place that it gets."""
        text = json.dumps(entries[-1], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        one = {k: v for k, v in entries[2].items() if k not in ("key", "signature", "to")}
        one |= {"number": len(entries) + 1, "previous": hashlib.sha256(text.encode()).hexdigest()}
        one |= {"kind": kind, "key": runner.public, **more}
        which: Any = "discreet owner, 1" if kind == "owner" else LIMIT
        return {**one, "signature": runner.sign(which, {**one, "ledger": identity})}

    to_me = {"to": runner.public}
    limit = {"epsilon": 99.0, "delta": 0.0}
    ways: dict[str, Edit] = {
        "to me, signed by me": lambda e: e.append(forged(e, "owner", **to_me)),
        "to me, by the second": lambda e: e.append(forged(e, "owner", **to_me) | {"key": second.public}),
        "to me, by the recovery": lambda e: e.append(forged(e, "owner", **to_me) | {"key": safe.public}),
        "the true one, to me": lambda e: e[2].update(to=runner.public),
        "the true one again": lambda e: e.append(dict(e[2])),
        "the true one out, the limit kept": lambda e: e.pop(2),
        "unsigned": lambda e: e.append(
            {k: v for k, v in forged(e, "owner", **to_me).items() if k not in ("key", "signature")}
        ),
        "a limit by me that names me": lambda e: e.append(forged(e, "limit", **to_me, **limit)),
        "my recovery key": lambda e: e[1].update(recovery=runner.public),
        "no recovery key": lambda e: e[1].pop("recovery"),
        "a recovery key later": lambda e: e[3].update(recovery=runner.public),
        "a recovery key in a reservation": lambda e: e.append(
            {**{k: v for k, v in e[0].items() if k not in ("identity", "library")}, "kind": "reserve",
             "dataset": "icu", "records": [], "recovery": runner.public}
        ),
        "a limit's signature for it": lambda e: e[2].update(signature=e[1]["signature"]),
        "another dataset": lambda e: e[2].update(dataset="other"),
    }  # fmt: skip
    kept = path.read_bytes(), path.with_name(path.name + ".head").read_bytes()

    def put_back() -> None:
        path.write_bytes(kept[0])
        path.with_name(path.name + ".head").write_bytes(kept[1])

    seen = []
    for name, way in ways.items():
        put_back()
        rewrite(path, way)
        try:
            Ledger.open(path, readonly=True).close()
        except LedgerError:
            seen.append(name)
    assert seen == [*ways]

    # a beginning of the runner's own, handed over to the owner's key and back by a recovery key of his: the
    # chain is whole, but the owner's key signed nothing in it
    for trusted in (second, owner):
        put_back()
        rewrite(path, lambda e: e.__delitem__(slice(1, None)))
        with Ledger.open(path) as ledger:
            assert ledger.identity == identity
            ledger.set_limit("icu", 99.0, key=runner, recovery=key_of(tmp_path, "mine").public)
            ledger.hand_over("icu", trusted.public, runner)
            assert ledger.owner("icu") == trusted.public
            assert ledger.successors("icu", trusted.public) == ()
            with pytest.raises(ValueError, match="or was handed over by it"):
                check_rules([tmp_path / "rows.csv"], "icu", ledger)
            ledger.hand_over("icu", key_of(tmp_path, "mine2").public, key_of(tmp_path, "mine"))
            assert ledger.successors("icu", trusted.public) == ()


# -------------------------------------------------------------------------------------- passphrases
def test_keys_under_a_passphrase(tmp_path: Path) -> None:
    public = new_key(tmp_path / "k", "correct hörse battery")
    text = (tmp_path / "k").read_text()
    assert "BEGIN ENCRYPTED PRIVATE KEY" in text
    assert (tmp_path / "k").stat().st_mode & 0o777 == 0o600
    decomposed = "correct ho\u0308rse battery"
    for given in ("correct hörse battery", decomposed, lambda: decomposed):
        assert read_private_key(tmp_path / "k", passphrase=given).public == public
    with pytest.raises(PassphraseMissing, match="is encrypted, its passphrase must be given"):
        read_private_key(tmp_path / "k")
    for wrong in ("", "correct horse battery", "x" * 5000):
        with pytest.raises(ValueError, match="is not its passphrase") as found:
            read_private_key(tmp_path / "k", passphrase=wrong)
        assert wrong == "" or wrong not in str(found.value)
    for wrong in ("short", "x" * 1001, 5):
        with pytest.raises(ValueError, match="passphrase: must have 12 to 1000 characters"):
            new_key(tmp_path / "none", wrong)  # type: ignore[arg-type]
    assert not (tmp_path / "none").exists()
    with pytest.raises(ValueError, match="is not its passphrase"):
        change_passphrase(tmp_path / "k", "another passphrase", "a new passphrase")
    assert (tmp_path / "k").read_text() == text
    assert change_passphrase(tmp_path / "k", decomposed, "a new passphrase") == public
    with pytest.raises(ValueError, match="is not its passphrase"):
        read_private_key(tmp_path / "k", passphrase=decomposed)
    assert change_passphrase(tmp_path / "k", "a new passphrase", None) == public
    assert read_private_key(tmp_path / "k", passphrase=lambda: pytest.fail("asked in vain")).public == public
    assert sorted(one.name for one in tmp_path.iterdir()) == ["k", "k.pub"]


def test_a_passphrase_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "phrase"
    file.write_text("twelve words or so\nmore\n")
    file.chmod(0o644)
    with pytest.raises(ValueError, match="must have mode 0600"):
        read_passphrase(file)
    file.chmod(0o600)
    assert read_passphrase(file) == "twelve words or so"
    file.write_text("\n")
    with pytest.raises(ValueError, match="must hold a passphrase"):
        read_passphrase(file)


def test_keys_that_openssl_encrypted_are_read(tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl here")
    public = new_key(tmp_path / "k")
    (tmp_path / "phrase").write_text("openssl's own words\n")
    subprocess.run(
        [openssl, "pkcs8", "-topk8", "-scrypt", "-in", str(tmp_path / "k"), "-out", str(tmp_path / "s"),
         "-passout", f"file:{tmp_path / 'phrase'}"], check=True, capture_output=True,
    )  # fmt: skip
    (tmp_path / "s").chmod(0o600)
    assert read_private_key(tmp_path / "s", passphrase="openssl's own words").public == public


# ------------------------------------------------------------------------------------------- rules
def test_a_rule_binds_what_lies_below(path: Path, tmp_path: Path, owner: PrivateKey) -> None:
    data = tmp_path / "data"
    file = data / "2024" / "rows.parquet"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"")
    (tmp_path / "link.parquet").symlink_to(file)
    elsewhere = tmp_path / "elsewhere.parquet"
    check_rules([file], "icu", None)  # nothing is required yet
    with Ledger.open(path) as ledger, Ledger.open(tmp_path / "second") as second:
        with pytest.raises(ValueError, match="signed together or not at all"):
            require_ledger(data, ledger, "icu")
        with pytest.raises(ValueError, match="signed together or not at all"):
            require_ledger(data, ledger, "other", owner)
        with pytest.raises(ValueError, match="must be the folder"):
            require_ledger(file, ledger, "icu", owner)
        made = require_ledger(data, ledger, "icu", owner)
        with pytest.raises(ValueError, match="holds discreet.ledger.toml already"):
            require_ledger(data, ledger, "icu", owner)
        assert [*rules_over([file, elsewhere])] == [made]
        for given in (file, tmp_path / "link.parquet"):
            check_rules([elsewhere, given], "icu", ledger)
            for dataset, book, said in (
                ("icu", None, "--no-ledger is forbidden"),
                ("icu-2", ledger, "must be 'icu' by the owner's rule"),
                ("icu", second, f"must be that of identity {ledger.identity}"),
            ):
                with pytest.raises(ValueError, match=said):
                    check_rules([elsewhere, given], dataset, book)
    rewrite(path, lambda e: [one.pop(name, None) for one in e for name in ("key", "signature")])
    with Ledger.open(path) as stripped, pytest.raises(ValueError, match="signed with the key"):
        check_rules([file], "icu", stripped)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('dataset = "icu"', 'dataset = "free"', "signature is not valid"),
        ("ledger = ", 'key2 = "x"\nledger = ', "must be a rule that can be read"),
        ('ledger = "', 'ledger = "0', "signature is not valid"),
        ('key = "', 'key = "0', "signature is not valid"),
        ("signature = ", "# signature = ", "key and signature, or neither"),
        ("key = ", "# key = ", "key and signature, or neither"),
        ("dataset = ", "dataset = [", "must be a rule that can be read"),
        ('dataset = "icu"', "dataset = 5", "must hold dataset and ledger|is not valid"),
        ('dataset = "icu"', "", "must be a rule that can be read"),
    ],
)
def test_a_changed_rule_holds_all_the_more(
    path: Path, tmp_path: Path, owner: PrivateKey, old: str, new: str, said: str
) -> None:
    with Ledger.open(path) as ledger:
        made = require_ledger(tmp_path, ledger, "icu", owner)
        text = made.read_text("utf-8")
        assert text.count(old) == 1 or old == "key = "
        made.write_text(text.replace(old, new, 1), "utf-8")
        with pytest.raises(ValueError, match=said):
            check_rules([tmp_path / "rows.csv"], "icu", ledger)


def test_an_unsigned_rule(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "book") as ledger:
        made = require_ledger(tmp_path, ledger, 'a "quoted" ward')
        assert read_rule(made) == owner_rules.OwnerRule('a "quoted" ward', ledger.identity)
        check_rules([tmp_path / "rows.csv"], 'a "quoted" ward', ledger)
        with pytest.raises(ValueError, match="must be given"):
            check_rules([tmp_path / "rows.csv"], 'a "quoted" ward', None)
