"""Pages as a reader types them: every block of Python and every command, in order, in a folder of its own.

A block is run unless the line above its fence says otherwise, in a comment that readers do not see:

=====================================  ================================================================
``<!-- run: not, REASON -->``          it is not run, and counted (``python tests/helpers/pages.py``)
``<!-- run: quick A -> B; C -> D -->`` it is run with B in place of A: as long, or as large, as a test may be
``<!-- run: fails -->``                each command must be refused (status 1 or 2), with a message
``<!-- run: as FILE -->``              it is written to this file
``<!-- run: prints -->``               the block before must have printed this; ``...`` stands for anything
=====================================  ================================================================

``<!-- run: first`` up to ``-->`` holds commands, and ``<!-- run: python`` Python, that a reader has done
before. Blocks without a language whose first line is no command are shown, and not run: outputs.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import types
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHELL = {
    "discreet",
    "python",
    "make",
    "cd",
    "cp",
    "mkdir",
    "ls",
    "head",
    "cat",
    "rm",
    "pip",
    ".",
    "#!/bin/bash",
}
RUNNABLE = {"python", "sh", "bash", "console"}


@dataclass(frozen=True)
class Block:
    """A fenced block, or a hidden one. ``line`` : of its first line, from 1. ``order`` : what stands above
    it.
    """

    page: Path
    line: int
    language: str
    text: str
    order: str = ""

    @property
    def kind(self) -> str:
        """python, commands, file, output, or shown."""
        verb = self.order.partition(" ")[0].rstrip(",")
        if verb in ("as", "prints"):
            return {"as": "file", "prints": "output"}[verb]
        if self.language == "python":
            return "python"
        lines = [line for line in self.text.splitlines() if line.strip() and not line.startswith("#")]
        first = lines[0].split()[0] if lines else ""
        if self.language in ("sh", "bash", "console") or (not self.language and first in SHELL):
            return "commands"
        return "shown"

    @property
    def left_out(self) -> str | None:
        """Why it is not run, or None."""
        if self.order.startswith("not"):
            return self.order.partition(",")[2].strip()
        return None

    def __str__(self) -> str:
        page = self.page.relative_to(ROOT) if ROOT in self.page.parents else self.page.name
        return f"{page}:{self.line}"


def pages() -> list[Path]:
    """All pages with blocks of their own."""
    made = ROOT / "docs" / "made"
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if made not in page.parents and list(blocks(page))]


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page, in order. ``ValueError`` on an order that is none."""
    lines = page.read_text(encoding="utf-8").splitlines()
    order, i = "", 0
    while i < len(lines):
        line = lines[i]
        hidden = re.match(r"<!-- run: (first|python)$", line)
        told = re.match(r"<!-- run: (.*) -->$", line)
        fence = re.match(r"(\s*)```([\w{}-]*)", line)
        if hidden or fence:
            end = "-->" if hidden else f"{fence[1]}```"  # type: ignore[index]
            last = next((k for k in range(i + 1, len(lines)) if lines[k].rstrip() == end), None)
            if last is None:
                raise ValueError(f"{page.name}:{i + 1}: this block must be closed")
            text = (
                "\n".join(one.removeprefix(fence[1] if fence else "") for one in lines[i + 1 : last]) + "\n"
            )
            language = ({"first": "sh", "python": "python"}[hidden[1]]) if hidden else fence[2]  # type: ignore[index]
            if not language.startswith("{"):
                yield Block(page, i + 2, language, text, order)
            order, i = "", last
        elif told:
            order = told[1]
            if not re.match(r"not, \w|quick .+ -> .|fails$|as [\w./-]+$|prints$", order):
                raise ValueError(f"{page.name}:{i + 1}: run: {order}: must be one of those in {__file__}")
        elif line.strip():
            if order:
                raise ValueError(f"{page.name}:{i + 1}: a block must follow, run: {order}")
        i += 1


def quicker(block: Block) -> str:
    """The text that is run."""
    text = block.text
    if block.order.startswith("quick "):
        for change in block.order.removeprefix("quick ").split("; "):
            long, _, short = change.partition(" -> ")
            if long not in text:
                raise ValueError(f"{block}: there is no {long!r} to be shortened")
            text = text.replace(long, short)
    return text


class Reader:
    """Somebody who types what a page shows, in an empty folder with the repository's examples in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.module = types.ModuleType("__main__")
        self.printed = ""
        shutil.copytree(ROOT / "docs" / "examples", folder / "docs" / "examples")

    def read(self, page: Path) -> None:
        """Run a page. ``AssertionError`` or the block's own exception, with the place in the page."""
        here, main = Path.cwd(), sys.modules["__main__"]
        try:
            os.chdir(self.folder)
            sys.modules["__main__"] = self.module
            for block in blocks(page):
                if block.left_out is None:
                    try:
                        self._do(block)
                    except BaseException as stop:
                        stop.add_note(f"at {block}, after this output:\n{self.printed[-3000:]}")
                        raise
        finally:
            os.chdir(here)
            sys.modules["__main__"] = main

    def _do(self, block: Block) -> None:
        text = quicker(block)
        if block.kind == "file":
            path = Path(block.order.removeprefix("as "))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif block.kind == "python":
            with self._listening():
                exec(compile("\n" * (block.line - 1) + text, str(block.page), "exec"), self.module.__dict__)
        elif block.kind == "commands":
            with self._listening():
                for line in text.replace("\\\n", " ").splitlines():
                    self._command(line, block)
        elif block.kind == "output":
            wanted, found = _plain(text), _plain(self.printed)
            pattern = ".*?".join(re.escape(part.strip()) for part in wanted.split("..."))
            assert re.search(pattern, found, re.S), (
                f"{block}: shows\n{wanted}\nbut this was printed:\n{found}"
            )

    @contextmanager
    def _listening(self) -> Iterator[None]:
        heard = StringIO()
        try:
            with redirect_stdout(heard), redirect_stderr(heard):
                yield
        finally:
            self.printed = heard.getvalue()

    def _command(self, line: str, block: Block) -> None:
        words = shlex.split(line, comments=True)
        if not words:
            return
        if words[0] == "cd":
            os.chdir(words[1])
            return
        status = _discreet(words[1:]) if words[0] == "discreet" else _other(line)
        allowed = (1, 2) if block.order == "fails" else (0,)
        assert status in allowed, f"{block}: {line.strip()} ended with {status}"


def _discreet(arguments: Sequence[str]) -> int:
    """The command in this process, which has its kernels already."""
    import typer

    from discreet import cli

    try:
        found = typer.main.get_command(cli.app)(list(arguments), standalone_mode=True)
    except SystemExit as end:
        return int(end.code or 0) if not isinstance(end.code, str) else 1
    return int(found or 0)


def _other(line: str) -> int:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", line], env=environment, capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr, sep="\n")
    return done.returncode


def _plain(text: str) -> str:
    """Words and numbers, without the frames of tables."""
    return " ".join(re.sub(r"[─│┌┐└┘├┤┬┴┼━]+", " ", text).split())


def counted() -> str:
    """How many blocks there are of each kind, and those that are not run, each with its reason."""
    every = [block for page in pages() for block in blocks(page)]
    kinds = Counter(block.kind for block in every if block.left_out is None)
    short = sum(block.order.startswith("quick") for block in every)
    skipped = [block for block in every if block.left_out is not None]
    said = [
        f"{len(every)} blocks on {len(pages())} pages",
        f"{kinds['python']} of Python and {kinds['commands']} of commands are run, {short} of them shortened",
        f"{kinds['file']} are written to files, {kinds['output']} outputs compared",
        f"{kinds['shown']} are shown only",
        f"{len(skipped)} are not run",
    ]
    return "\n".join(["; ".join(said), *(f"  {block}: {block.left_out}" for block in skipped)])


if __name__ == "__main__":
    print(counted())
