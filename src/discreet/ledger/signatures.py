"""Signatures with Ed25519 keys in files, computed by ``cryptography`` (``pip install 'discreet[sign]'``).

The signed text consists of a *kind* (see ``Kind``), a line break, and canonical JSON. Therefore a signature
of one kind is never valid for another kind, and the order of fields in a file does not matter. Each module
that creates signatures describes the signed fields that prevent the reuse of a signature in another place
(:mod:`discreet.ledger.ledger`, :mod:`discreet.ledger.owner_rules`, :mod:`discreet.reports.signature_file`).

A private key is a file in PKCS 8 and PEM format with mode 0600. A file that other users can read is rejected.
The file can be encrypted by AES-256 with a key that PBKDF2 derives from a passphrase (2 048 rounds of
HMAC-SHA-256, as ``cryptography`` writes). Anyone who steals the file can try millions of passphrases per
second, so the passphrase must be long. Files that OpenSSL encrypted with scrypt can also be read. The public
key is stored in the same folder as ``NAME.pub``, in the format of OpenSSL. In text, a public key is given as
its 32 bytes in hexadecimal. A signature proves that the holder of the key signed. This module cannot
determine which person holds a key.
"""

from __future__ import annotations

import json
import os
import re
import stat
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from discreet.core import checks
from discreet.utils.atomic_file import write_aside

Kind = Literal[
    "discreet limit, 1",
    "discreet owner, 1",
    "discreet ledger rule, 1",
    "discreet statement, 1",
    "discreet codebook, 1",
    "discreet plan, 1",
    "discreet log, 1",
    "discreet key, 1",
    "discreet service, 1",
    "discreet shuffler, 1",
    "discreet withdrawal, 1",
]
Passphrase = str | Callable[[], str] | None
"""Passphrase, or a function that asks for the passphrase. It is called only if the file is encrypted."""

_SIGNATURE = re.compile("[0-9a-f]{128}")
_LARGEST = 100_000  # largest size of a key file, in bytes
_SHORTEST, _LONGEST = 12, 1000  # smallest and largest number of characters of a new passphrase


class SigningMissing(ValueError):
    """Error that is raised if the package ``cryptography`` is not installed."""

    def __init__(self) -> None:
        super().__init__("signatures need the package cryptography: pip install 'discreet[sign]'")


class PassphraseMissing(ValueError):
    """Error that is raised if a private key is encrypted and no passphrase was given."""


def _ed25519() -> tuple[Any, Any]:
    """Import and return the modules ``ed25519`` and ``serialization`` of the package ``cryptography``."""
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
    """Private key, created by :func:`read_private_key`. ``public`` is the public key in hexadecimal."""

    public: str
    _key: Any = field(repr=False, compare=False)

    def sign(self, kind: Kind, content: Mapping[str, Any]) -> str:
        """Return the signature of this kind and content, as 128 hexadecimal digits."""
        return str(self._key.sign(_message(kind, content)).hex())

    def __reduce__(self) -> Any:
        raise TypeError("a private key cannot be copied to other processes or files")


def is_key(text: Any) -> bool:
    """Return True if the value is text in the format of a public key (64 hexadecimal digits)."""
    return isinstance(text, str) and len(text) == 64 and not set(text) - set("0123456789abcdef")


def short(public: str) -> str:
    """Return a short form of a public key for display. Comparisons must use all 64 digits."""
    return f"{public[:16]}..."


def is_valid(public: str, kind: Kind, content: Mapping[str, Any], signature: str) -> bool:
    """Return True if the holder of the public key signed this kind and content.

    Raises :class:`SigningMissing` if the package ``cryptography`` is not installed.
    """
    ed25519, _ = _ed25519()
    from cryptography.exceptions import InvalidSignature

    if not is_key(public) or not isinstance(signature, str) or not _SIGNATURE.fullmatch(signature):
        return False
    try:
        key = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(bytes.fromhex(signature), _message(kind, content))
    except (ValueError, InvalidSignature):
        return False
    return True


def new_key(path: str | Path, passphrase: str | None = None) -> str:
    """Create a new key, and return the public key in hexadecimal.

    The private key is written to the file ``path`` (mode 0600), and the public key to ``NAME.pub`` in the
    same folder. ``passphrase`` has 12 to 1000 characters and encrypts the private key. If it is None, the
    private key is not encrypted. Raises ``ValueError`` if one of the files exists, or if the passphrase has
    another length.
    """
    ed25519, serialization = _ed25519()
    path = Path(path)
    beside = path.with_name(path.name + ".pub")
    for one in (path, beside):
        if os.path.lexists(one):
            raise ValueError(f"key = {str(one)!r}: exists already, must be a new file")
    path.parent.mkdir(parents=True, exist_ok=True)
    key = ed25519.Ed25519PrivateKey.generate()
    private = _private_bytes(key, passphrase)
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    for where, content, mode in ((path, private, 0o600), (beside, public, 0o644)):
        with os.fdopen(os.open(where, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    return _raw(key.public_key())


def _private_bytes(key: Any, passphrase: str | None) -> bytes:
    _, serialization = _ed25519()
    how = serialization.NoEncryption()
    if passphrase is not None:
        if not (isinstance(passphrase, str) and _SHORTEST <= len(passphrase) <= _LONGEST):
            raise ValueError(  # the message must not contain the secret
                f"passphrase: must have {_SHORTEST} to {_LONGEST} characters"
            )
        how = serialization.BestAvailableEncryption(_as_bytes(passphrase))
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return bytes(key.private_bytes(pem, pkcs8, how))


def _as_bytes(passphrase: str) -> bytes:
    """Return the bytes of a passphrase in a normal form, so that all keyboards give the same bytes."""
    return unicodedata.normalize("NFC", passphrase).encode()


def change_passphrase(path: str | Path, old: Passphrase, new: str | None) -> str:
    """Encrypt the file of a private key with a new passphrase, and return the public key.

    If ``new`` is None, the new file is not encrypted. The file is replaced by one rename. The old passphrase
    still decrypts copies of the old file. Raises ``ValueError`` for the same reasons as
    :func:`read_private_key` and :func:`new_key`. Nothing is changed in these cases.
    """
    path = Path(path)
    key = read_private_key(path, passphrase=old)
    content = _private_bytes(key._key, new)
    write_aside(path, content, 0o600)
    return key.public


def read_passphrase(path: str | Path, name: str = "passphrase-file") -> str:
    """Return the first line of a file that only its owner can read (mode 0600).

    Batch jobs read passphrases from such files.

    ``name`` is the name of the argument in error messages.
    """
    content = _content(name, Path(path), private=True)
    try:
        line = content.decode().splitlines()[0]
    except (UnicodeDecodeError, IndexError):
        line = ""
    if not line:
        raise ValueError(f"{name} = {str(path)!r}: must hold a passphrase in its first line, as UTF-8")
    return line


def _raw(public: Any) -> str:
    _, serialization = _ed25519()
    return str(public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw).hex())


def _content(name: str, path: Path, *, private: bool) -> bytes:
    """Return the bytes of a small file.

    Raises ``ValueError`` if the file cannot be read. Also raises ``ValueError`` if ``private`` is True and
    other users can read the file. ``name`` is the name of the argument in error messages.
    """
    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise ValueError(f"{name} = {str(path)!r}: must be a file")
            if private and os.name == "posix":
                if found.st_mode & 0o077:
                    raise ValueError(
                        f"{name} = {str(path)!r}: users other than its owner can read or write it (mode "
                        f"{found.st_mode & 0o777:04o}), must have mode 0600 (and if they may have read it, "
                        "make a new key)"
                    )
                if found.st_uid != os.geteuid():
                    raise ValueError(f"{name} = {str(path)!r}: belongs to another user, must be your own")
            return file.read(_LARGEST)
    except OSError as error:
        raise ValueError(f"{name} = {str(path)!r}: cannot be read ({error.strerror or error})") from None


def read_private_key(path: str | Path, name: str = "key", passphrase: Passphrase = None) -> PrivateKey:
    """Read the private key in the file ``path``. ``name`` is the name of the argument in error messages.

    ``passphrase`` is the passphrase of an encrypted file, or a function that asks for it. A passphrase is not
    needed if the file is not encrypted. Raises ``ValueError`` if the file is not a key, if users other than
    its owner can read it, or if the passphrase is wrong. Raises :class:`PassphraseMissing` if no passphrase
    is given.
    """
    ed25519, serialization = _ed25519()
    path = Path(path)
    content = _content(name, path, private=True)
    secret: bytes | None = None
    if b"ENCRYPTED" in content:
        given = passphrase() if callable(passphrase) else passphrase
        if given is None:
            raise PassphraseMissing(f"{name} = {str(path)!r}: is encrypted, its passphrase must be given")
        secret = _as_bytes(given)
    try:
        key = serialization.load_pem_private_key(content, secret)
    except Exception:  # the exception is not passed on, because it could contain the passphrase or the key
        key = None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        wrong = "this is not its passphrase, or it is damaged: it " if secret is not None else ""
        raise ValueError(
            f"{name} = {str(path)!r}: {wrong}must be a private Ed25519 key in PEM, as `discreet keys new` "
            "makes it"
        )
    return PrivateKey(_raw(key.public_key()), key)


def read_public_key(path: str | Path, name: str = "public-key") -> str:
    """Read the public key in the file ``path``, and return it in hexadecimal.

    ``name`` is the name of the argument in error messages. Raises ``ValueError`` if the file is not a public
    key.
    """
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
