"""What is said of other people's public code, shown on that code itself.

::

    git clone https://github.com/XingyuZhou989/PrivateTabularRL
    python -m papers.public_code --checkout PrivateTabularRL

A :class:`PublicCode` names the repository, the commit that was read, the files with their Git blob ids, what
was found (:class:`Finding`: file, lines, the lines themselves, and a demonstration) and what is no fault. The
demonstration imports the files of the checkout and runs them unchanged: run it on code that you trust.

A checkout may be another version. Then that is said, the quoted lines are looked for wherever they stand now,
and the demonstration is run all the same: the numbers are those of the code that is there.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

__all__ = ["Finding", "Load", "PublicCode", "Seen", "blob_id", "examine", "known", "lines_of", "report"]

Load = Callable[[str], ModuleType]
_KNOWN = {"chowdhury-zhou-2021": "papers.chowdhury_zhou_2021.findings"}


@dataclass(frozen=True)
class Seen:
    """What a demonstration saw: whether it shows what is claimed, and the numbers."""

    shown: bool
    numbers: str


@dataclass(frozen=True)
class Finding:
    """Something that is claimed of some lines.

    name : in a few words; file : its path in the repository; first : line number at the pinned commit;
    quote : the lines, without indentation; claim : what follows from them, and why; show : runs the code.
    """

    name: str
    file: str
    first: int
    quote: tuple[str, ...]
    claim: str
    show: Callable[[Load], Seen]

    @property
    def last(self) -> int:
        """Number of the last quoted line."""
        return self.first + len(self.quote) - 1


@dataclass(frozen=True)
class PublicCode:
    """A repository at a commit: files (path to Git blob id), findings, what is no fault, what is open."""

    name: str
    repository: str
    commit: str
    paper: str
    files: Mapping[str, str]
    findings: tuple[Finding, ...]
    no_faults: tuple[str, ...]
    not_shown: str


def known(name: str) -> PublicCode:
    """The code of this name; raises ``ValueError`` if none is known by it."""
    if name not in _KNOWN:
        raise ValueError(f"code = {name!r}: must be one of {', '.join(_KNOWN)}")
    found: PublicCode = importlib.import_module(_KNOWN[name]).CODE
    return found


# ------------------------------------------------------------------------------------- the checkout
def blob_id(content: bytes) -> str:
    """The name that Git gives to a file with this content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _read(checkout: Path, code: PublicCode) -> dict[str, bytes]:
    """The files that are spoken of; raises ``ValueError`` where one is missing."""
    if not checkout.is_dir():
        raise ValueError(
            f"checkout = {str(checkout)!r}: must be a folder with a checkout of {code.repository}"
        )
    missing = [path for path in code.files if not (checkout / path).is_file()]
    if missing:
        raise ValueError(
            f"checkout = {str(checkout)!r}: {', '.join(missing)} not found; "
            f"must be a checkout of {code.repository}"
        )
    return {path: (checkout / path).read_bytes() for path in code.files}


def lines_of(content: bytes, quote: Sequence[str]) -> int | None:
    """Line number (from 1) at which these lines stand in a row, indentation aside; None if nowhere."""
    lines = [line.strip() for line in content.decode("utf-8", "replace").splitlines()]
    wanted = [line.strip() for line in quote]
    for start in range(len(lines) - len(wanted) + 1):
        if lines[start : start + len(wanted)] == wanted:
            return start + 1
    return None


def _loader(checkout: Path) -> Load:
    """Imports a file of the checkout by its path, under a name of its own, once."""
    loaded: dict[str, ModuleType] = {}

    def load(path: str) -> ModuleType:
        if path not in loaded:
            name = f"_public_code_{Path(path).stem}"
            spec = importlib.util.spec_from_file_location(name, checkout / path)
            if spec is None or spec.loader is None:
                raise ValueError(f"{path} of the checkout cannot be imported as Python")
            module = importlib.util.module_from_spec(spec)
            try:
                spec.loader.exec_module(module)
            except Exception as error:
                raise ValueError(f"{path} of the checkout cannot be imported: {error}") from error
            loaded[path] = module
        return loaded[path]

    return load


# ----------------------------------------------------------------------------------- what is found
def examine(code: PublicCode, checkout: Path) -> list[tuple[Finding, int | None, Seen]]:
    """Each finding, the line at which its quote stands in this checkout (None: nowhere), and what is seen.

    Raises ``ValueError`` if the folder has not the files. Code that has not the classes spoken of shows
    nothing, and what Python said is given as the numbers.
    """
    contents = _read(checkout, code)
    load = _loader(checkout)
    found = []
    for one in code.findings:
        try:
            seen = one.show(load)
        except Exception as error:
            seen = Seen(
                False, f"the demonstration does not run on this version ({type(error).__name__}: {error})"
            )
        found.append((one, lines_of(contents[one.file], one.quote), seen))
    return found


def report(code: PublicCode, checkout: Path) -> tuple[str, bool]:
    """What is found in a checkout, as text, and whether every finding is shown there."""
    contents = _read(checkout, code)
    lines = [f"{code.paper}", f"code: {code.repository} at commit {code.commit}", ""]
    for path, expected in code.files.items():
        there = blob_id(contents[path])
        same = (
            "as at that commit"
            if there == expected
            else f"another version: {there[:12]}, not {expected[:12]}"
        )
        lines.append(f"{path}: {same}")
    everything = True
    for number, (one, line, seen) in enumerate(examine(code, checkout), 1):
        everything &= seen.shown
        at = f"lines {one.first} to {one.last}" if one.last > one.first else f"line {one.first}"
        if line is None:
            at += " of that commit, which are not in this file"
        elif line != one.first:
            at += f" of that commit, here from line {line}"
        lines += ["", f"{number}. {one.name}: {one.file}, {at}"]
        lines += [f"     {quoted}" for quoted in one.quote]
        lines += [f"   {one.claim}", f"   {'shown' if seen.shown else 'NOT SHOWN'}: {seen.numbers}"]
    lines += ["", "What is no fault:", *(f"- {words}" for words in code.no_faults)]
    lines += ["", f"What is not shown: {code.not_shown}"]
    return "\n".join(lines), everything


def _command(
    checkout: Annotated[
        Path, typer.Option(help="Folder with a checkout of the code; its files are imported and run.")
    ],
    code: Annotated[str, typer.Option(help=f"Which code: {', '.join(_KNOWN)}.")] = next(iter(_KNOWN)),
) -> None:
    """Show on a checkout of public code what the pages say of it; exit status 1 if something is not shown."""
    try:
        words, everything = report(known(code), checkout)
    except ValueError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(2) from None
    print(words)
    raise typer.Exit(0 if everything else 1)


if __name__ == "__main__":
    typer.run(_command)
