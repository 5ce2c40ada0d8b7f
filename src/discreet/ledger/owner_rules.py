"""The owner's rule over a folder: the population of its data, and the ledger for their releases.

A file ``discreet.ledger.toml`` in a folder of data holds the name of their population, the identity of a
ledger, and optionally the owner's key and signature. It covers all files of its folder and of the folders
below. :func:`discreet.pipeline.learn.learn` and :func:`discreet.pipeline.state_codebook.fit_codebook` refuse
a release from them without that ledger (``--no-ledger``), with another one, or under another population's
name. If the rule has a key, they also refuse while the ledger's limit belongs neither to its holder nor to
their successors (:meth:`discreet.ledger.ledger.Ledger.heirs`). :func:`discreet.data.prepare.prepare` puts a
copy beside the rows that it makes. Counted parts carry the rules over their sources
(:mod:`discreet.pipeline.partial_aggregates`).

A query is under the rules over what it reads: its data base, or the files that are named beside it, and it
can read nothing else (:mod:`discreet.data.sources`). If a file has a second name (a hard link), that name is
searched, by device and inode, in ruled folders. These are the ones beside the file, beside a folder above it,
or beside the working directory or one above that.

The rule is not a lock. It stops mistakes and shortcuts of operators who use this library. It does not stop
anyone who can read the data and:

- removes the file;
- copies the data elsewhere (into a data base, too);
- gives them as a frame in memory or from an object store;
- links them to a place without a ruled folder nearby;
- or computes without this library.

Only the data's own access rights can prevent that. So keep the file where operators cannot write.
"""

from __future__ import annotations

import json
import os
import stat
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from discreet.core import checks
from discreet.ledger import signatures
from discreet.ledger.signatures import PrivateKey
from discreet.utils.atomic_file import write_aside

__all__ = [
    "NAME",
    "OwnerRule",
    "check_dataset",
    "check_rules",
    "obeyed",
    "read_rule",
    "rules_over",
    "require_ledger",
]

NAME = "discreet.ledger.toml"
_TEXT = (
    "# The owner's rule for the data in this folder and below: what is released of them is written down in "
    "this\n# ledger, and under this name. Made by `discreet ledger --require`.\n"
)


class _OwnedLedger(Protocol):
    @property
    def identity(self) -> str: ...
    def owner(self, dataset: str) -> str | None: ...
    def heirs(self, dataset: str, key: str) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class OwnerRule:
    """Rule over a folder.

    dataset : the population. ledger : its identity. key : the owner's public one, or empty.
    """

    dataset: str
    ledger: str
    key: str = ""

    def content(self) -> dict[str, str]:
        """Return the signed content."""
        return {"dataset": self.dataset, "ledger": self.ledger, "key": self.key}


def require_ledger(
    folder: str | Path, ledger: _OwnedLedger, dataset: str, key: PrivateKey | None = None
) -> Path:
    """Write a rule into a folder; returns its path.

    Parameters
    ----------
    folder : folder of the data, which exists
    ledger : the open ledger that releases must be recorded in
    dataset : the population's name in the ledger
    key : the owner's key, if the limit is signed

    Raises
    ------
    ValueError
        If there is a rule already, or the key is not that of the dataset's limit.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"require = {str(folder)!r}: must be a folder, that of the data")
    path = folder / NAME
    if os.path.lexists(path):
        raise ValueError(f"require = {str(folder)!r}: holds {NAME} already, which only its owner may remove")
    owner = ledger.owner(dataset)
    if owner != (None if key is None else key.public):
        raise ValueError(
            f"key: must be {'left out, the limit is not signed' if owner is None else f'that of {owner}'}: "
            f"the rule and the limit of {dataset!r} are signed together or not at all"
        )
    rule = OwnerRule(dataset, ledger.identity, "" if key is None else key.public)
    held = {name: value for name, value in rule.content().items() if value}
    if key is not None:
        held["signature"] = key.sign("discreet ledger rule, 1", rule.content())
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in held.items()]
    write_aside(path, (_TEXT + "".join(lines)).encode())
    return path


def read_rule(path: str | Path) -> OwnerRule:
    """Read the rule in a file, check its signature. Raises ``ValueError``: an unreadable rule still holds."""
    path = Path(path)
    try:
        held: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
        signature = held.pop("signature", None)
        rule = OwnerRule(**held)
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(
            f"{path}: is not a rule that can be read ({error}); its owner has to mend it"
        ) from None
    if not all(isinstance(value, str) for value in held.values()) or not rule.dataset or not rule.ledger:
        raise ValueError(f"{path}: must hold dataset and ledger, as text")
    if bool(rule.key) != bool(signature):
        raise ValueError(f"{path}: must hold key and signature, or neither")
    if rule.key and not signatures.is_valid(rule.key, "discreet ledger rule, 1", rule.content(), signature):
        raise ValueError(f"{path}: its signature does not fit (it was changed)")
    return rule


def rules_over(files: Iterable[Path]) -> dict[Path, OwnerRule]:
    """Return all rules over some files.

    Searches their folders and those above, by the paths as given and as they resolve, and other names of the
    files in ruled folders nearby.
    """
    folders: dict[Path, None] = {}
    for file in files:
        for path in (Path(os.path.abspath(file)), Path(os.path.realpath(file)), *_other_names(file)):
            folders |= dict.fromkeys(path.parents)
    return {folder / NAME: read_rule(folder / NAME) for folder in folders if os.path.lexists(folder / NAME)}


def _other_names(file: Path) -> Iterator[Path]:
    """Yield hard links to a file in the ruled folders nearby (see the module's docstring)."""
    try:
        facts = os.stat(file)
    except OSError:
        return
    if facts.st_nlink < 2 or stat.S_ISDIR(facts.st_mode):
        return
    above = dict.fromkeys([*Path(os.path.realpath(file)).parents, Path.cwd(), *Path.cwd().parents])
    for ruled in {child for folder in above for child in _folders(folder) if os.path.lexists(child / NAME)}:
        for within, _, _ in os.walk(ruled):
            with suppress(OSError), os.scandir(within) as entries:
                for entry in entries:
                    if entry.inode() == facts.st_ino and os.path.samestat(facts, entry.stat()):
                        yield Path(entry.path)


def _folders(folder: Path) -> list[Path]:
    """Return the folders in a folder; none if it cannot be read."""
    with suppress(OSError), os.scandir(folder) as entries:
        return [Path(entry.path) for entry in entries if entry.is_dir()]
    return []


def check_rules(files: Iterable[Path], dataset: str, ledger: _OwnedLedger | None) -> None:
    """Raise ``ValueError`` if a release from these files would break a rule over them."""
    obeyed(rules_over(files), dataset, ledger)


def obeyed(rules: Mapping[Path, OwnerRule], dataset: str, ledger: _OwnedLedger | None) -> None:
    """Raise ``ValueError`` if a release would break one of these rules, or their present content."""
    for path, rule in [*rules.items(), *_changed(rules)]:
        said = f"by the owner's rule {path}"
        if ledger is None:
            raise ValueError(
                f"ledger: must be given, --no-ledger is forbidden {said}: releases of these data are written "
                f"down in the ledger {rule.ledger}"
            )
        check_dataset(path, rule, dataset)
        if rule.ledger != ledger.identity:
            raise ValueError(f"ledger: must be that of identity {rule.ledger} {said}, is {ledger.identity}")
        if rule.key and ledger.owner(dataset) not in ledger.heirs(dataset, rule.key):
            raise ValueError(
                f"ledger: must hold a limit of {dataset!r} that is signed with the key {rule.key}, or was "
                f"handed over by it, {said}"
            )


def _changed(rules: Mapping[Path, OwnerRule]) -> list[tuple[Path, OwnerRule]]:
    """Return the present rules in these files, of the same population, that differ from the given ones.

    A part carries rules to other machines, where other data may have one at the same place.
    """
    now = [(path, read_rule(path)) for path in rules if os.path.lexists(path)]
    return [(path, rule) for path, rule in now if rule.dataset == rules[path].dataset and rule != rules[path]]


def check_dataset(path: Path, rule: OwnerRule, dataset: str) -> None:
    """Raise ``ValueError`` for another population's name."""
    if rule.dataset != dataset:
        raise ValueError(
            f"dataset = {checks.said(dataset)}: must be {rule.dataset!r} by the owner's rule {path}"
        )
