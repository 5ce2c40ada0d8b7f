"""Names of files with a hash of their content, so that the record of a run identifies the content."""

from __future__ import annotations

import hashlib
from pathlib import Path


def pinned(name: str, text: str) -> str:
    """Return the path of a file, followed by # and the first sixteen hexadecimal digits of its SHA-256.

    name : name of the option, for error messages. text : the path, with or without the hash. Raises
        ``ValueError`` if the file cannot be read, or has another hash.
    """
    path, _, digest = text.partition("#")
    try:
        found = hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise ValueError(f"{name} = {path!r}: must be a readable file ({error.strerror})") from None
    if digest and digest != found:
        raise ValueError(f"{name} = {text!r}: the file has changed, its hash is {found}")
    return f"{path}#{found}"
