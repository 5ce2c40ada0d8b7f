"""Find sentences that are likely to make a reader stop, in docstrings, comments and pages.

    python tools/plain_english.py PATH...                     list every finding
    python tools/plain_english.py PATH... --baseline FILE     fail where a file has more than FILE allows
    python tools/plain_english.py PATH... --update FILE       lower the numbers of FILE to those of today
    python tools/plain_english.py PATH... --sample 60 --seed 1      print sentences for a human reader

The rules are in english.toml.

The rules find about two thirds of what a reader marks, so a human sample is the test and the baseline only
keeps what was reached. Code blocks, tables and quoted code are not read.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import random
import re
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
SKIPPED = {".git", ".venv", "node_modules", "__pycache__", "site", "build", "dist", "made", ".mypy_cache"}
_PRAGMA = re.compile(r"#(!| ?(type|noqa|fmt|pragma|isort|mypy|ruff)\b)")
_SECTION = re.compile(r"\n(?:Parameters|Returns|Raises|Attributes|Examples?)\n-+")
_ENDS = re.compile(r"(?<=[.!?;])\s+(?=[A-Z`(*])|\n\s*\n|\n\s*[-*] |\n\s*\d+\. ")
_CLAUSE = re.compile(r"\b(?:that|which|who|whose|what|where)\b")
_PAUSE = re.compile(r"[,;:](?= )")
_SHORTEST = 4  # words; less is a title


@dataclass(frozen=True)
class Sentence:
    """One sentence of a file. first : whether it opens a docstring."""

    path: str
    line: int
    kind: str
    text: str
    first: bool = False


@dataclass(frozen=True)
class Rule:
    """An expression that makes a reader stop, and what to write instead."""

    name: str
    pattern: re.Pattern[str]
    advice: str
    where: str

    def found(self, one: Sentence) -> bool:
        """Whether the sentence breaks the rule."""
        if self.where == "any":
            return bool(self.pattern.search(one.text))
        return (one.first or self.where == "sentence") and bool(self.pattern.match(one.text))


@dataclass(frozen=True)
class Rules:
    """All rules, the lengths that a sentence may have, and sentences that are right as they are."""

    rules: tuple[Rule, ...]
    limits: dict[str, int]
    allow: tuple[re.Pattern[str], ...] = field(default=())

    @classmethod
    def read(cls, path: Path = HERE / "english.toml") -> Rules:
        """Read the rules from TOML."""
        given = tomllib.loads(path.read_text("utf-8"))
        rules = []
        for one in given["rule"]:
            where = one.get("where", "any")
            flags = re.IGNORECASE if where == "any" and not one.get("case", False) else 0
            rules.append(Rule(one["name"], re.compile(one["pattern"], flags), one["advice"], where))
        return cls(tuple(rules), given["limits"], tuple(re.compile(text) for text in given["allow"]))

    def broken(self, one: Sentence) -> Iterator[tuple[str, str]]:
        """Yield the name and the advice of each rule that a sentence breaks."""
        if any(allowed.search(one.text) for allowed in self.allow):
            return
        yield from ((rule.name, rule.advice) for rule in self.rules if rule.found(one))
        most = self.limits
        if len(one.text.split()) > most["words"]:
            yield "long", f"more than {most['words']} words: split"
        if len(_CLAUSE.findall(one.text)) > most["clauses"]:
            yield "clauses", f"more than {most['clauses']} clauses in one sentence: split"
        if len(_PAUSE.findall(one.text)) > most["pauses"]:
            yield "commas", f"more than {most['pauses']} commas, semicolons or colons: split, or make a list"


def split(text: str) -> Iterator[str]:
    """Yield the sentences of a text, with code and links replaced by one word."""
    text = re.sub(r"``[^`]*``|`[^`]*`", "CODE", re.sub(r":\w+:`[^`]*`", "CODE", text))
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"https?://\S+", "URL", text))
    for part in _ENDS.split(text):
        plain = " ".join(part.split()).strip("*_ #>|-")
        if len(plain.split()) >= _SHORTEST:
            yield plain


def read_python(path: Path) -> Iterator[Sentence]:
    """Yield the sentences of docstrings and comments."""
    source = path.read_text("utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = _SECTION.split(ast.get_docstring(node) or "")[0]
            for number, one in enumerate(split(text)):
                yield Sentence(path.as_posix(), node.body[0].lineno, "docstring", one, number == 0)
    for line, text in _comments(source):
        yield from (Sentence(path.as_posix(), line, "comment", one) for one in split(text))


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield comments, those of adjacent lines as one."""
    block: list[str] = []
    begin = last = -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or _PRAGMA.match(token.string):
            continue
        line = token.start[0]
        if block and line != last + 1:
            yield begin, " ".join(block)
            block = []
        begin, last = (begin if block else line), line
        block.append(token.string.lstrip("# "))
    if block:
        yield begin, " ".join(block)


def read_markdown(path: Path) -> Iterator[Sentence]:
    """Yield the sentences of a page without its code, comments, tables and titles."""
    text = path.read_text("utf-8")
    for unread in (r"```.*?```", r"<!--.*?-->"):
        text = re.sub(unread, lambda found: "\n" * found[0].count("\n"), text, flags=re.DOTALL)
    block: list[str] = []
    begin = 1
    for number, line in enumerate([*text.split("\n"), ""], 1):
        if line.strip() and not line.startswith(("|", "#", ":::", "(")):
            begin = begin if block else number
            block.append(line)
            continue
        yield from (Sentence(path.as_posix(), begin, "page", one) for one in split("\n".join(block)))
        block = []


def read(paths: Iterable[str]) -> Iterator[Sentence]:
    """Yield all sentences of files, and of folders with all that is in them."""
    for path in map(Path, paths):
        for one in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if SKIPPED & set(one.parts):
                continue
            if one.suffix == ".md":
                yield from read_markdown(one)
            elif one.suffix in (".py", ".pyi"):
                yield from read_python(one)


def above(counts: Counter[str], baseline: dict[str, int]) -> list[str]:
    """Return a line for each file that has more findings than the baseline allows."""
    return [
        f"{path}: {count} findings, {baseline.get(path, 0)} allowed"
        for path, count in sorted(counts.items())
        if count > baseline.get(path, 0)
    ]


def lowered(counts: Counter[str], baseline: dict[str, int]) -> dict[str, int]:
    """Return the baseline with no number above today's. A file that is not in it starts with none."""
    least = {path: min(count, counts[path]) for path, count in baseline.items()}
    return {path: count for path, count in sorted(least.items()) if count}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("paths", nargs="+", help="files and folders: .py, .pyi and .md are read")
    parser.add_argument("--baseline", type=Path, help="JSON, findings that each file may have")
    parser.add_argument("--update", type=Path, help="JSON, lower its numbers to those of today")
    parser.add_argument("--sample", type=int, help="print so many random sentences instead")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(argv)
    sentences = list(read(given.paths))
    if given.sample:
        for one in random.Random(given.seed).sample(sentences, min(given.sample, len(sentences))):
            print(f"{one.path}:{one.line} | {one.kind} | {one.text}")
        return 0
    rules = Rules.read()
    findings = [(one, name, advice) for one in sentences for name, advice in rules.broken(one)]
    counts = Counter(one.path for one, _, _ in findings)
    allowed = json.loads(given.baseline.read_text("utf-8")) if given.baseline else {}
    for one, name, advice in findings:
        if counts[one.path] > allowed.get(one.path, 0):
            print(f"{one.path}:{one.line}: [{name}] {advice}\n    {one.text[:240]}")
    print(f"{len(findings)} findings in {len(sentences)} sentences")
    if given.update:
        old = json.loads(given.update.read_text("utf-8")) if given.update.exists() else dict(counts)
        given.update.write_text(json.dumps(lowered(counts, old), indent=1) + "\n", "utf-8")
    wrong = above(counts, allowed) if given.baseline else []
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return int(bool(wrong or (findings and not given.baseline and not given.update)))


if __name__ == "__main__":
    sys.exit(main())
