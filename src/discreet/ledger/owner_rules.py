"""The owner's rule over a folder: whose data lie there, and in which ledger their releases are written down.

A file ``discreet.ledger.toml`` in a folder of data holds the name of their population, the identity of a
ledger, and perhaps the owner's key and signature. It is over all files of its folder and of the folders
below. :func:`discreet.pipeline.learn.learn` and :func:`discreet.pipeline.state_codebook.fit_codebook` refuse
to release anything of them without that ledger (``--no-ledger``), with another one, under another
population's name, or, where the rule has a key, while the ledger's limit is not its holder's, nor of those
whom it was handed over to since (:meth:`discreet.ledger.ledger.Ledger.heirs`).
:func:`discreet.data.prepare.prepare` lays a copy beside the rows that it makes, and counted parts carry the
rules over what they count (:mod:`discreet.pipeline.partial_aggregates`).

A query is under the rules over what it reads: its data base, or the files that are named beside it, and it
can read nothing else (:mod:`discreet.data.sources`). A file that has a second name (a hard link) is looked
for, by device and inode, in the ruled folders that lie beside it, beside a folder above it, or beside the
working directory or one above that.

What it is not: a lock. It stops oversight and shortcuts of people who use this library. It does not stop who
can read the data and removes the file, copies the data elsewhere (into a data base, too), gives them as a
frame in memory or from an object store, links them to where no ruled folder is near, or computes without this
library; that is a matter of the data's own access rights. So keep the file where those who run cannot write.
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
    "Rule",
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


class _Ledger(Protocol):
    @property
    def identity(self) -> str: ...
    def owner(self, dataset: str) -> str | None: ...
    def heirs(self, dataset: str, key: str) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class Rule:
    """What holds over a folder.

    dataset : the population; ledger : its identity; key : the owner's public one, or empty.
    """

    dataset: str
    ledger: str
    key: str = ""

    def content(self) -> dict[str, str]:
        """What is signed."""
        return {"dataset": self.dataset, "ledger": self.ledger, "key": self.key}


def require_ledger(folder: str | Path, ledger: _Ledger, dataset: str, key: PrivateKey | None = None) -> Path:
    """Lay a rule over a folder; returns its path.

    folder : of the data, which exists. ledger : the open one that releases must be written into. dataset :
    under this name. key : the owner's, where the limit is signed.

    Raises ``ValueError`` if there is one already, or the key is not that of the dataset's limit.
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
    rule = Rule(dataset, ledger.identity, "" if key is None else key.public)
    held = {name: value for name, value in rule.content().items() if value}
    if key is not None:
        held["signature"] = key.sign("discreet ledger rule, 1", rule.content())
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in held.items()]
    write_aside(path, (_TEXT + "".join(lines)).encode())
    return path


def read_rule(path: str | Path) -> Rule:
    """The rule in a file, its signature checked. Raises ``ValueError``: a rule that cannot be read holds."""
    path = Path(path)
    try:
        held: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
        signature = held.pop("signature", None)
        rule = Rule(**held)
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


def rules_over(files: Iterable[Path]) -> dict[Path, Rule]:
    """All rules over some files: in their folders and above, by the paths as given and as they resolve, and
    by other names of theirs in ruled folders near by.
    """
    folders: dict[Path, None] = {}
    for file in files:
        for path in (Path(os.path.abspath(file)), Path(os.path.realpath(file)), *_other_names(file)):
            folders |= dict.fromkeys(path.parents)
    return {folder / NAME: read_rule(folder / NAME) for folder in folders if os.path.lexists(folder / NAME)}


def _other_names(file: Path) -> Iterator[Path]:
    """Hard links to a file in the ruled folders near by (module's text)."""
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
    """The folders in a folder; none where it cannot be read."""
    with suppress(OSError), os.scandir(folder) as entries:
        return [Path(entry.path) for entry in entries if entry.is_dir()]
    return []


def check_rules(files: Iterable[Path], dataset: str, ledger: _Ledger | None) -> None:
    """``ValueError`` where a release of a population, from these files, would break a rule over them."""
    obeyed(rules_over(files), dataset, ledger)


def obeyed(rules: Mapping[Path, Rule], dataset: str, ledger: _Ledger | None) -> None:
    """``ValueError`` where a release of a population would break one of these rules, or what they say now."""
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


def _changed(rules: Mapping[Path, Rule]) -> list[tuple[Path, Rule]]:
    """What the files of rules say now, of the same population, where that is something else.

    A part carries rules to other machines, where other data may have one at the same place.
    """
    now = [(path, read_rule(path)) for path in rules if os.path.lexists(path)]
    return [(path, rule) for path, rule in now if rule.dataset == rules[path].dataset and rule != rules[path]]


def check_dataset(path: Path, rule: Rule, dataset: str) -> None:
    """``ValueError`` for another population's name."""
    if rule.dataset != dataset:
        raise ValueError(
            f"dataset = {checks.said(dataset)}: must be {rule.dataset!r} by the owner's rule {path}"
        )
