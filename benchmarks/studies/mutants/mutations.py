"""What is changed: sites of the core's code, and the small faults that can be put there.

The operators are Cosmic Ray's (arithmetic, comparisons, boolean words, numbers, signs, decorators, handlers,
loops) and one of our own, :class:`DropStatement`: a check that is not called, an error that is not raised, a
sum that is not updated. A *site* is a place in the code with a family of operators; a sample takes it once.

Left out, since no run can tell them from the code: annotations (they are never evaluated), blocks for type
checkers, protocols, and ``is`` for ``==`` or back.
"""

from __future__ import annotations

import ast
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Example, Operator
from cosmic_ray.operators.provider import OperatorProvider
from parso.python.tree import Keyword

_UNFIT = {"VariableReplacer", "VariableInserter"}  # they want the names of variables
_SAME = {"_Eq_Is", "_NotEq_IsNot", "_Is_Eq", "_IsNot_NotEq"}


class DropStatement(Operator):
    """Put ``pass`` in place of a statement: a bare call, ``raise``, ``del`` or an augmented assignment."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        if node.type == "simple_stmt" and self._drops(node.children[0]):
            yield node.children[0].start_pos, node.children[0].end_pos

    @staticmethod
    def _drops(inner: Any) -> bool:
        if inner.type == "expr_stmt":
            sign = getattr(inner.children[1], "value", "=")
            return len(sign) > 1 and sign.endswith("=")
        if inner.type in ("atom_expr", "power"):
            return bool(inner.children[-1].get_code().startswith("("))
        return inner.type in ("raise_stmt", "del_stmt") or (
            inner.type == "keyword" and inner.value == "raise"
        )

    def mutate(self, node: Any, index: int) -> Any:
        inner = node.children[0]
        node.children[0] = Keyword("pass", inner.start_pos, inner.get_first_leaf().prefix)
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example("f(x)", "pass"), Example("raise E", "pass"), Example("x += 1", "pass"))


@cache
def operators() -> dict[str, type[Operator]]:
    """Every operator by its name."""
    provider = OperatorProvider()
    names = [name for name in provider if name not in _UNFIT and not any(name.endswith(s) for s in _SAME)]
    return {name: provider[name] for name in names} | {DropStatement.__name__: DropStatement}


@dataclass(frozen=True)
class Mutant:
    """One fault, at a line of a file below the source folder; before, after : the lines that differ."""

    file: str
    operator: str
    occurrence: int
    line: int
    before: str = ""
    after: str = ""

    def code(self, source: str) -> str | None:
        """The whole file with the fault in it; None where it is no Python or no other program."""
        text: str | None = mutate_code(source, operators()[self.operator](), self.occurrence)
        if text is None:
            return None
        try:
            return text if ast.dump(ast.parse(text)) != ast.dump(ast.parse(source)) else None
        except SyntaxError:
            return None


def sites(source: str, file: str) -> list[list[Mutant]]:
    """For every place and family of operators the mutants that it has, in the order of the file."""
    unseen = _unseen(source)
    tree = get_ast(source)
    nodes = list(ast_nodes(tree))
    found: dict[tuple[tuple[int, int], str], list[Mutant]] = defaultdict(list)
    for name, operator in operators().items():
        occurrence = 0
        one = operator()
        for node in nodes:
            for start, _ in one.mutation_positions(node):
                if not any(begin <= start < end for begin, end in unseen):
                    family = name.split("_")[0]
                    found[start, family].append(Mutant(file, name, occurrence, start[0]))
                occurrence += 1
    return [found[key] for key in sorted(found)]


def _unseen(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Spans (line, column) that no run evaluates."""
    lines = source.splitlines()

    def span(node: Any) -> tuple[tuple[int, int], tuple[int, int]]:
        def at(line: int, byte: int) -> tuple[int, int]:
            return line, len(lines[line - 1].encode()[:byte].decode())

        return at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)

    tree = ast.parse(source)
    lazy = any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
    hidden: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            hidden += node.body
        elif isinstance(node, ast.ClassDef) and any("Protocol" in ast.unparse(base) for base in node.bases):
            hidden.append(node)
            hidden += node.decorator_list
        elif isinstance(node, ast.FunctionDef):
            if any("overload" in ast.unparse(decorator) for decorator in node.decorator_list):
                hidden += [node, *node.decorator_list]
            every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            every += [one for one in (node.args.vararg, node.args.kwarg) if one]
            if lazy:
                hidden += [one.annotation for one in every if one.annotation]
                hidden += [node.returns] if node.returns else []
        elif isinstance(node, ast.AnnAssign) and lazy:
            hidden.append(node.annotation)
    return [span(node) for node in hidden]


def quotas(sizes: dict[str, int], total: int, least: int) -> dict[str, int]:
    """How many mutants of ``total`` each file gets: by its sites, ``least`` where it has them."""
    whole = sum(sizes.values())
    wanted = {file: min(size, max(least, round(total * size / whole))) for file, size in sizes.items()}
    largest = sorted(sizes, key=lambda file: (-sizes[file], file))
    i = 0
    while sum(wanted.values()) != total and i < 10 * total:
        file = largest[i % len(largest)]
        step = 1 if sum(wanted.values()) < total else -1
        if least <= wanted[file] + step <= sizes[file]:
            wanted[file] += step
        i += 1
    return wanted


def ordered(files: Sequence[str], source: Path, seed: int) -> dict[str, list[Mutant]]:
    """Per file the mutants in the order in which they are drawn: one a site, sites shuffled by the seed."""
    drawn = {}
    for file in files:
        every = sites((source / file).read_text(), file)
        rng = random.Random(f"{seed} {file}")
        rng.shuffle(every)
        drawn[file] = [rng.choice(site) for site in every]
    return drawn


def shown(source: str, text: str) -> tuple[str, str]:
    """The lines that differ, stripped, before and after."""
    old, new = source.splitlines(), text.splitlines()
    i = 0
    while i < min(len(old), len(new)) and old[i] == new[i]:
        i += 1
    j = 0
    while j < min(len(old), len(new)) - i and old[-1 - j] == new[-1 - j]:
        j += 1

    def joined(lines: Iterable[str]) -> str:
        return " / ".join(line.strip() for line in lines if line.strip())

    return joined(old[i : len(old) - j]), joined(new[i : len(new) - j])


def statement(source: str, line: int) -> range:
    """The lines of the innermost statement at ``line``; of one with a body, of its head."""
    best = range(line, line + 1)
    size = None
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.stmt):
            continue
        body = getattr(node, "body", None)
        last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
        span = range(node.lineno, max(last, node.lineno) + 1)
        if line in span and (size is None or len(span) < size):
            best, size = span, len(span)
    return best


__all__ = ["DropStatement", "Mutant", "operators", "ordered", "quotas", "shown", "sites", "statement"]
