"""Owner's rule for a folder of data: the population of the data, and the ledger that must record releases.

A file ``discreet.ledger.toml`` in a folder of data contains the name of the data's population, the identity
of a ledger, and optionally the owner's key and signature. The rule applies to all files in its folder and its
subfolders. The functions :func:`discreet.pipeline.learn.learn` and
:func:`discreet.pipeline.state_codebook.fit_codebook` reject a release from these files without that ledger
(``--no-ledger``), with another ledger, or with the name of another population. If the rule has a key, the
holder of that key or a successor must control the ledger's limit
(:meth:`discreet.ledger.ledger.Ledger.successors`). Otherwise the functions also reject the release. The
function :func:`discreet.data.prepare.prepare` writes a copy of the rule into the folder of its output.
Partial aggregates contain the rules of their sources (:mod:`discreet.pipeline.partial_aggregates`).

The rules for a database query are the rules for its sources. The sources are the database or the files that
are listed with the query. A query can read no other data (:mod:`discreet.data.sources`). If a file has other
names (hard links), these names are searched, by device and inode, in folders with a rule. The search includes
folders next to the file, next to the working directory, and next to any of their parent folders.

The rule does not enforce access control. The rule prevents mistakes and shortcuts of operators who use this
library. The rule does not restrict a person who can read the data and does one of the following:

- removes the file with the rule;
- copies the data to another place (for example a database);
- passes the data as a data frame in memory or from an object store;
- links the data to a place that has no folder with a rule nearby;
- processes the data without this library.

Only access rights on the data can prevent this. Therefore keep the file with the rule where operators cannot
write.
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
from typing import TYPE_CHECKING, Any

from discreet.core import checks
from discreet.ledger import signatures
from discreet.ledger.signatures import PrivateKey
from discreet.utils.atomic_file import write_aside

if TYPE_CHECKING:
    from discreet.ledger.ledger import Ledger

NAME = "discreet.ledger.toml"
_TEXT = (
    "# The owner's rule for the data in this folder and below: what is released of them is written down in "
    "this\n# ledger, and under this name. Made by `discreet ledger --require`.\n"
)


@dataclass(frozen=True)
class OwnerRule:
    """Rule for a folder of data.

    ``dataset`` is the name of the population, and ``ledger`` is the identity of the ledger. ``key`` is the
    owner's public key, or "" if the rule is not signed.
    """

    dataset: str
    ledger: str
    key: str = ""

    def content(self) -> dict[str, str]:
        """Return the content of the rule. The owner's signature covers this content."""
        return {"dataset": self.dataset, "ledger": self.ledger, "key": self.key}


def require_ledger(folder: str | Path, ledger: Ledger, dataset: str, key: PrivateKey | None = None) -> Path:
    """Write a rule into a folder of data, and return the path of the file with the rule.

    Parameters
    ----------
    folder : existing folder of the data
    ledger : open ledger that must record the releases
    dataset : name of the population in the ledger
    key : private key of the owner, if the limit is signed

    Raises
    ------
    ValueError
        If the folder already has a rule, or if the dataset's limit is signed with a key other than ``key``.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"require = {str(folder)!r}: must be the folder of the data")
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
    """Read the rule in a file and check its signature.

    Raises ``ValueError`` if the rule cannot be read, or if its signature is not valid.
    """
    path = Path(path)
    try:
        held: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
        signature = held.pop("signature", None)
        rule = OwnerRule(**held)
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(
            f"{path}: must be a rule that can be read ({error}); its owner must repair it"
        ) from None
    if not all(isinstance(value, str) for value in held.values()) or not rule.dataset or not rule.ledger:
        raise ValueError(f"{path}: must hold dataset and ledger, as text")
    if bool(rule.key) != bool(signature):
        raise ValueError(f"{path}: must hold key and signature, or neither")
    if rule.key and not signatures.is_valid(rule.key, "discreet ledger rule, 1", rule.content(), signature):
        raise ValueError(f"{path}: its signature is not valid (it was changed)")
    return rule


def rules_over(files: Iterable[Path]) -> dict[Path, OwnerRule]:
    """Return all rules that apply to the files, as a mapping of the path of each rule to the rule.

    The function searches the folders of the files and all parent folders. The function uses the paths as
    given, the paths with symbolic links resolved, and other names of the files in nearby folders with a rule.
    """
    folders: dict[Path, None] = {}
    for file in files:
        for path in (Path(os.path.abspath(file)), Path(os.path.realpath(file)), *_other_names(file)):
            folders |= dict.fromkeys(path.parents)
    return {folder / NAME: read_rule(folder / NAME) for folder in folders if os.path.lexists(folder / NAME)}


def _other_names(file: Path) -> Iterator[Path]:
    """Yield the hard links to a file in nearby folders with a rule, as the module docstring describes."""
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
    """Return the subfolders of a folder, or an empty list if the folder cannot be read."""
    with suppress(OSError), os.scandir(folder) as entries:
        return [Path(entry.path) for entry in entries if entry.is_dir()]
    return []


def check_rules(files: Iterable[Path], dataset: str, ledger: Ledger | None) -> None:
    """Raise ``ValueError`` if a release from these files would violate a rule that applies to them."""
    obeyed(rules_over(files), dataset, ledger)


def obeyed(rules: Mapping[Path, OwnerRule], dataset: str, ledger: Ledger | None) -> None:
    """Raise ``ValueError`` if a release would violate one of these rules, or a rule that is now in their
    files.
    """
    for path, rule in [*rules.items(), *_changed(rules)]:
        said = f"by the owner's rule {path}"
        if ledger is None:
            raise ValueError(
                f"ledger: must be given, --no-ledger is forbidden {said}: releases of these data are "
                f"recorded in the ledger {rule.ledger}"
            )
        check_dataset(path, rule, dataset)
        if rule.ledger != ledger.identity:
            raise ValueError(f"ledger: must be that of identity {rule.ledger} {said}, is {ledger.identity}")
        if rule.key and ledger.owner(dataset) not in ledger.successors(dataset, rule.key):
            raise ValueError(
                f"ledger: must hold a limit of {dataset!r} that is signed with the key {rule.key}, or was "
                f"handed over by it, {said}"
            )


def _changed(rules: Mapping[Path, OwnerRule]) -> list[tuple[Path, OwnerRule]]:
    """Return the rules that are now in the same files, if they differ from the given rules.

    A rule with the name of another population is ignored. A partial aggregate contains the paths of its
    rules, and on another machine the same path can have a rule for other data.
    """
    now = [(path, read_rule(path)) for path in rules if os.path.lexists(path)]
    return [(path, rule) for path, rule in now if rule.dataset == rules[path].dataset and rule != rules[path]]


def check_dataset(path: Path, rule: OwnerRule, dataset: str) -> None:
    """Raise ``ValueError`` if ``dataset`` is not the population of the rule."""
    if rule.dataset != dataset:
        raise ValueError(
            f"dataset = {checks.said(dataset)}: must be {rule.dataset!r} by the owner's rule {path}"
        )
