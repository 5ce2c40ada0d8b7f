"""Signatures: Ed25519 keys in files, through ``cryptography`` (``pip install 'discreet[sign]'``).

What is signed is a *kind* (one of the names below), a line break, and canonical JSON: a signature of one kind
never passes for another's, and the order of fields in a file does not matter. What the content must hold, so
that a signature cannot be played again elsewhere, is said where it is made (:mod:`discreet.storage.ledger`,
:mod:`discreet.storage.owner_rules`, :mod:`discreet.stored.signing`).

A private key is a file for its holder alone: PKCS 8 in PEM, mode 0600, without a passphrase; one that others
could read is refused. Its public key lies beside it, ``NAME.pub``, as OpenSSL writes it, and is named by its
32 bytes in hexadecimal. A signature says that the holder of a key signed; whose key it is, people tell each
other: nothing here knows it.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from discreet.core import checks

__all__ = [
    "Kind", "PrivateKey", "SigningMissing", "is_key", "is_valid", "new_key", "read_private_key",
    "read_public_key", "short",
]  # fmt: skip

Kind = Literal[
    "discreet limit, 1", "discreet ledger rule, 1", "discreet statement, 1", "discreet plan, 1",
    "discreet service, 1",
]  # fmt: skip
_LARGEST = 100_000  # bytes of a file that could be a key


class SigningMissing(ValueError):
    """``cryptography`` is not installed."""

    def __init__(self) -> None:
        super().__init__("signatures need the package cryptography: pip install 'discreet[sign]'")


def _ed25519() -> tuple[Any, Any]:
    """The modules that are needed."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise SigningMissing from None
    return ed25519, serialization


def _message(kind: Kind, content: Mapping[str, Any]) -> bytes:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return f"{kind}\n{text}".encode()


@dataclass(frozen=True)
class PrivateKey:
    """A key that signs. Made by :func:`read_private_key`; ``public`` names it."""

    public: str
    _key: Any = field(repr=False, compare=False)

    def sign(self, kind: Kind, content: Mapping[str, Any]) -> str:
        """The signature, 128 hexadecimal digits."""
        return str(self._key.sign(_message(kind, content)).hex())

    def __reduce__(self) -> Any:
        raise TypeError("a private key is not copied to other processes or files")


def is_key(text: Any) -> bool:
    """Whether a text can name a public key."""
    return isinstance(text, str) and len(text) == 64 and not set(text) - set("0123456789abcdef")


def short(public: str) -> str:
    """A public key for people; who compares keys compares all 64 digits."""
    return f"{public[:16]}..."


def is_valid(public: str, kind: Kind, content: Mapping[str, Any], signature: str) -> bool:
    """Whether the holder of a public key signed this. Raises :class:`SigningMissing`."""
    ed25519, _ = _ed25519()
    from cryptography.exceptions import InvalidSignature

    if not is_key(public) or not isinstance(signature, str):
        return False
    try:
        key = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(bytes.fromhex(signature), _message(kind, content))
    except (ValueError, InvalidSignature):
        return False
    return signature == signature.lower()


def new_key(path: str | Path) -> str:
    """Make a key: a private file (mode 0600) and ``NAME.pub`` beside it, neither of which may exist.

    Returns the public key in hexadecimal.
    """
    ed25519, serialization = _ed25519()
    path = Path(path)
    beside = path.with_name(path.name + ".pub")
    for one in (path, beside):
        if os.path.lexists(one):
            raise ValueError(f"key = {str(one)!r}: exists already, a key overwrites nothing")
    path.parent.mkdir(parents=True, exist_ok=True)
    key = ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    for where, content, mode in ((path, private, 0o600), (beside, public, 0o644)):
        with os.fdopen(os.open(where, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    return _raw(key.public_key())


def _raw(public: Any) -> str:
    _, serialization = _ed25519()
    return str(public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw).hex())


def _content(name: str, path: Path, *, private: bool) -> bytes:
    """The bytes of a small file; of a private one, only if nobody else can read it."""
    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise ValueError(f"{name} = {str(path)!r}: must be a file")
            if private and os.name == "posix":
                if found.st_mode & 0o077:
                    raise ValueError(
                        f"{name} = {str(path)!r}: others than its owner can read or write it (mode "
                        f"{found.st_mode & 0o777:04o}), must have mode 0600 (and if they may have read it, "
                        "make a new key)"
                    )
                if found.st_uid != os.geteuid():
                    raise ValueError(f"{name} = {str(path)!r}: belongs to another user, must be your own")
            return file.read(_LARGEST)
    except OSError as error:
        raise ValueError(f"{name} = {str(path)!r}: cannot be read ({error.strerror or error})") from None


def read_private_key(path: str | Path, name: str = "key") -> PrivateKey:
    """The private key in a file; ``name`` is what the argument is called in messages.

    Raises ``ValueError`` if it is none, or can be read by others than its owner.
    """
    ed25519, serialization = _ed25519()
    path = Path(path)
    content = _content(name, path, private=True)
    try:
        key = serialization.load_pem_private_key(content, None)
    except Exception:  # what is wrong with a secret is not repeated
        key = None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise ValueError(
            f"{name} = {str(path)!r}: must be a private Ed25519 key in PEM without a passphrase, as "
            "`discreet keys new` makes it"
        )
    return PrivateKey(_raw(key.public_key()), key)


def read_public_key(path: str | Path, name: str = "public-key") -> str:
    """The public key in a file, in hexadecimal. Raises ``ValueError`` if it is none."""
    ed25519, serialization = _ed25519()
    path = Path(path)
    content = _content(name, path, private=False)
    try:
        key = serialization.load_pem_public_key(content)
    except Exception as error:
        raise ValueError(
            f"{name} = {str(path)!r}: must be a public Ed25519 key in PEM, as the file NAME.pub that "
            f"`discreet keys new` makes ({checks.said(str(error))})"
        ) from None
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise ValueError(f"{name} = {str(path)!r}: must be an Ed25519 key, is another kind")
    return _raw(key)
