"""Keys of a service, from the first to the current one.

Each key after the first is signed with an earlier key.

Row 0 states the service's first public key and the study's *recovery* key (``[service] recovery``). Each
further row states the next public key. Every row has two signatures of its content: one with the key that it
states, and one with the key of the row before or with the recovery key of the row before. A client that knows
one of the keys follows the rows from this key to the current key (``GET /keys``). Therefore a lost or stolen
key can be replaced, and clients that know an earlier key continue to work.

The holder of the recovery key can replace the key. Keep it offline.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.core import checks
from discreet.ledger.signatures import PrivateKey, new_key, read_private_key, short
from discreet.utils.sync_folder import sync_folder

if TYPE_CHECKING:
    from discreet.service.database import Store
    from discreet.service.study_config import Study

__all__ = ["finish_rotation", "first_row", "key_row", "rotate_key", "set_first_row"]


def key_row(
    identity: str, number: int, key: PrivateKey, recovery: str | None, signer: PrivateKey
) -> dict[str, Any]:
    """Return a signed row.

    Parameters
    ----------
    identity : identity of the study.
    number : number of the row.
    key : key that the row states.
    recovery : public key that can replace ``key``; None without such a key.
    signer : key of the row before, or its recovery key; ``key`` itself for row 0.
    """
    content = {"identity": identity, "number": number, "public": key.public, "recovery": recovery}
    return {
        "content": content,
        "own": key.sign("discreet key, 1", content),
        "signer": signer.public,
        "signature": signer.sign("discreet key, 1", content),
    }


def first_row(study: Study, key: PrivateKey) -> dict[str, Any]:
    """Return row 0, which is signed by the key that it states."""
    return key_row(study.identity, 0, key, study.recovery, key)


def set_first_row(study: Study, store: Store, key: PrivateKey) -> None:
    """Store row 0 if there is none.

    Raises ``ValueError`` if the study file names another recovery key than the newest row.
    """
    rows = store.key_rows()
    if not rows:
        store.add_key_row(first_row(study, key))
        return
    known = rows[-1]["content"]["recovery"]
    if known != study.recovery:
        raise ValueError(
            f"service.recovery = {checks.said(study.recovery)}: is not the key that clients know, "
            f"{known!r}; discreet serve --rotate-key changes it"
        )


def rotate_key(study: Study, store: Store, recovery_key: Path | None = None) -> str:
    """Replace the service's key by a new one, and return the new public key.

    The number of the old key is appended to the name of its file, and the new key's file gets the original
    name. If an earlier call was killed after it stored the new key, this call finishes the replacement. If it
    was killed before, this call uses the earlier call's new key, or makes another one if that key was not
    complete.

    Parameters
    ----------
    recovery_key : path of the recovery key's file; None: the old key signs.

    Raises ``ValueError`` if the signing key is not the current key or its recovery key, if a process serves
    the study, or under shuffle trust, where the shuffler's operator has the key.
    """
    if study.shuffled:
        raise ValueError("--rotate-key: is not for shuffle trust: the shuffler knows one key of the service")
    path = study.path(study.key)
    if finish_rotation(path, store):
        return str(store.public_key())
    rows = store.key_rows()
    signer = read_private_key(path if recovery_key is None else recovery_key, "service.key")
    if not rows:
        if signer.public != store.public_key():
            raise ValueError("--rotate-key: must be signed by the service's key before its first new start")
        rows = [first_row(study, signer)]
        store.add_key_row(rows[0])
    newest = rows[-1]["content"]
    if signer.public not in (newest["public"], newest["recovery"]):
        raise ValueError(
            f"service.key = {signer.public}: is neither the current key, {short(newest['public'])}, nor its "
            "recovery key"
        )
    fresh = _fresh(path)
    if not fresh.exists():
        _make_key(fresh)
    key = read_private_key(fresh, "service.key")
    store.add_key_row(key_row(study.identity, len(rows), key, study.recovery, signer))
    finish_rotation(path, store)
    return key.public


def _make_key(path: Path) -> None:
    """Create a private key, and its public key in the same folder.

    If the file of the private key exists, both files are complete.

    Files of an earlier call that was killed are removed.
    """
    making = path.with_name(f"{path.name}.making")
    for one in (making, Path(f"{making}.pub"), Path(f"{path}.pub")):
        one.unlink(missing_ok=True)
    new_key(making)
    for end in (".pub", ""):
        os.rename(f"{making}{end}", f"{path}{end}")
    sync_folder(path.parent)


def finish_rotation(path: Path, store: Store) -> bool:
    """Rename the files of a key rotation that the database contains, even after a crash.

    Returns True if it contained one.

    path : path of the private key.
    """
    fresh = _fresh(path)
    if not fresh.exists() or read_private_key(fresh, "service.key").public != store.public_key():
        return False
    number = len(store.key_rows()) - 2
    for end in (".pub", ""):  # the private key is renamed last, because its name shows that work is left
        new, old = fresh.with_name(fresh.name + end), path.with_name(path.name + end)
        if not new.exists():  # an earlier call renamed it
            continue
        if old.exists():
            os.replace(old, path.with_name(f"{path.name}.{number}{end}"))
        os.replace(new, old)
    return True


def _fresh(path: Path) -> Path:
    return path.with_name(f"{path.name}.new")
