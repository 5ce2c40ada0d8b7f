"""Code that all commands share: application, one-line error messages, tables, progress bars and JSON output.

Results are printed on standard output (with ``--json``, as a single JSON document). Progress and remarks are
printed on standard error. The exit status is 0 after success, 1 if a check or the execution failed, 2 for
invalid input, 3 for a service's database that is older than what it published, and 130 after an interrupt.
For invalid input, one line states the argument, its value and the allowed values.
"""

from __future__ import annotations

import functools
import json
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer
import typer.core

from discreet.cli.examples import examples_of
from discreet.cli.renamed import COMMANDS, MOVED, OPTIONS, SAME_MEANING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from discreet.experiments.sweep import Progress

F = TypeVar("F", bound=Callable[..., Any])


class Command(typer.core.TyperCommand):
    """Command whose help text replaces ``NAMES(kind)`` by the registered names of this kind."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help text with the names inserted. The registry is loaded only for this."""
        for param in self.params:
            text = str(getattr(param, "help", None) or "")
            for kind in re.findall(r"NAMES\(([\w ]+)\)", text):
                text = text.replace(f"NAMES({kind})", _names_of(kind))
                param.help = text  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


def _names_of(kind: Any) -> str:
    from discreet import registry

    return ", ".join(one.name for one in registry.entries(kind))


class Group(typer.core.TyperGroup):
    """Group of commands that the help lists in the order of their definition."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands, in the order in which their functions were passed to
        :func:`guarded`.
        """
        return sorted(
            super().list_commands(ctx), key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER)
        )


class OneLine(Group):
    """Group of commands in which an error of the parser is one line, with exit status 2."""

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> Any:  # type: ignore[override]
        """Parse the arguments and run the command. The method returns only if ``standalone_mode`` is False;
        otherwise it ends the process.
        """
        if not extra.pop("standalone_mode", True):
            return super().main(args, standalone_mode=False, **extra)
        given = list(sys.argv[1:] if args is None else args)
        if self.name == "discreet" and given and given[0] in COMMANDS:
            say(f"discreet {given[0]} was renamed in 0.3.0: {COMMANDS[given[0]]}")
            sys.exit(2)
        try:
            status = super().main(args, standalone_mode=False, **extra)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader of the output has closed the pipe, for example in `discreet list
            # | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # it is flushed again at exit
            sys.exit(1)
        except Exception as error:
            if not hasattr(error, "format_message"):  # not an error of the parser, whose classes are private
                raise
            if not given:
                print(error.format_message())
            else:
                say(f"discreet: {_refused(error, given)}")
            sys.exit(getattr(error, "exit_code", 2))
        sys.exit(status if isinstance(status, int) else 0)


def _refused(error: Any, given: Sequence[str]) -> str:
    """Return one line that describes an error of the parser: argument, value (if it has one) and allowed
    values.
    """
    context, param = getattr(error, "ctx", None), getattr(error, "param", None)
    path = getattr(context, "command_path", "discreet")
    name = getattr(error, "option_name", None)
    if name is not None and (meant := _meant(name, context)):
        return meant
    value = _value_of(param, given)
    if param is None or value is None:
        return f"{' '.join(error.format_message().split())} (see `{path} --help`)"
    reason = " ".join(str(error.message).split())
    return f"{param.opts[-1]} = {value!r}: {reason[:1].lower()}{reason[1:]}"


def _meant(name: str, context: Any) -> str | None:
    """Return a hint for an option ``name`` that the command does not have; None without a hint.

    The hint is the new name of the option, an option with the same meaning, or a command that has the option.
    """
    path = context.command_path
    offered = _options_of(context.command)
    new = OPTIONS.get(name)
    if new is not None and offered & set(new.split()):
        return f"{name} was renamed: {new}"
    if (other := SAME_MEANING.get(name)) in offered:
        return f"{name}: is no option of `{path}`; did you mean {other}? (see `{path} --help`)"
    commands = context.find_root().command.commands
    owners = [f"discreet {one}" for one, command in commands.items() if name in _options_of(command)]
    if name in MOVED:
        return f"{name}: use {MOVED[name]}"
    return f"{name}: use {' or '.join(owners)}" if 1 <= len(owners) <= 2 else None


def _options_of(command: Any) -> set[str]:
    """Return the names of a command's options, including the leading dashes."""
    return {option for param in command.params for option in param.opts if option.startswith("--")}


def _value_of(param: Any, given: Sequence[str]) -> str | None:
    """Return the text that the user gave for an option on the command line; None if the option was not
    given.
    """
    for name in getattr(param, "opts", ()):
        for i, word in enumerate(given):
            if word == name and i + 1 < len(given):
                return given[i + 1]
            if word.startswith(f"{name}="):
                return word.partition("=")[2]
    return None


JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]
WorkersOption = Annotated[int | None, typer.Option(help="Parallel runs (default: all processors).")]
OutOption = Annotated[Path | None, typer.Option(help="Result folder. Seeds in it are not run again.")]
EngineOption = Annotated[
    str | None,
    typer.Option(
        help="Where runs are executed: local (default), dask://HOST:PORT, ray[://HOST:PORT], slurm."
    ),
]
ShardOption = Annotated[
    str | None, typer.Option(help="i/n: only the i-th of n equal parts of the runs, for job arrays.")
]
ConfigArgument = Annotated[
    Path | None, typer.Argument(help="Configuration file; options on the command line override it.")
]
EnvOption = Annotated[str | None, typer.Option(help="NAMES(environment) (default: riverswim).")]
EnvOptions = Annotated[list[str] | None, typer.Option(help="KEY=VALUE for the environment. Repeatable.")]
LearnerOption = Annotated[str | None, typer.Option(help="NAMES(learner) (default: noise-aware).")]
PrivatizerOption = Annotated[str | None, typer.Option(help="NAMES(privatizer) (default: none).")]
EpsilonOption = Annotated[float | None, typer.Option(help="Privacy budget, above 0.")]
DeltaOption = Annotated[
    float | None, typer.Option(help="Privacy delta, in (0, 1); 0 (default; shuffle: 1e-6): pure epsilon.")
]
KnobOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="KEY=VALUE for learner or privatizer; preset=NAME: named settings. Repeatable."
    ),
]
PriorOption = Annotated[
    Path | None,
    typer.Option(help="Public prior of the learner: a table (.csv) or an earlier release (.parquet)."),
]
PriorStrengthOption = Annotated[
    float | None,
    typer.Option(help="Number of visits to which each pair of the prior is equivalent (default: 100)."),
]
EpisodesOption = Annotated[int | None, typer.Option(help="Users, one episode each (default: 20000).")]
PluginOption = Annotated[
    list[str] | None, typer.Option("--plugin", help="Module that registers names. Repeatable.")
]


# with --out, these commands keep finished seeds after an interrupt
_KEEP_SEEDS = ("run", "sweep", "compare", "tune")


_ORDER: list[str] = []


def new_app(name: str, about: str) -> typer.Typer:
    """Return an application without commands. An error of its parser is one line, with exit status 2."""
    return typer.Typer(
        name=name, cls=OneLine, help=about, no_args_is_help=True, add_completion=False,
        pretty_exceptions_enable=False, context_settings={"token_normalize_func": _with_new_name},
    )  # fmt: skip


def _with_new_name(token: str) -> str:
    """Return the current name of an option: ``set`` for ``option``.

    ``--option`` is an alias of ``--set`` until version 0.4.0.
    """
    return "set" if token == "option" else token


app = new_app(
    "discreet", "Differentially private reinforcement learning, with guarantees that can be checked."
)


def command(function: F, to: typer.Typer | None = None) -> F:
    """Add a function as a command to an application, by default ``discreet``.

    Invalid input to the command is reported in one line, with exit status 2. Returns the function unchanged.
    """
    name = _name_of(function)
    path = name if to is None else f"{to.info.name} {name}"
    (app if to is None else to).command(name, cls=Command, epilog=examples_of(path))(guarded(function))
    return function


def _name_of(function: Callable[..., Any]) -> str:
    return function.__name__.rstrip("_").replace("_", "-")


def guarded(function: F) -> F:
    """Return a wrapper that converts expected exceptions to a one-line message and an exit status."""
    _ORDER.append(_name_of(function))

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                return function(*args, **kwargs)
        except ValueError as error:
            say(f"discreet: {' '.join(str(error).split())}")
            _say_notes(error)
            raise typer.Exit(getattr(error, "exit_status", 2)) from None
        except BrokenPipeError:
            raise
        except RuntimeError as error:
            from discreet.experiments.engine import EngineError

            if not isinstance(error, EngineError):
                raise
            say(f"discreet: {' '.join(str(error).split())}")
            raise typer.Exit(1) from None
        except MemoryError as error:
            say(f"discreet: not enough memory ({' '.join(str(error).split()) or 'no details'})")
            raise typer.Exit(1) from None
        except OSError as error:
            say(f"discreet: {error}")
            _say_notes(error)
            raise typer.Exit(1) from None
        except KeyboardInterrupt as error:
            keeps = (
                kwargs.get("out") if function.__name__ in _KEEP_SEEDS else function.__name__ == "reproduce"
            )
            kept = "; finished seeds are kept, the same command does the rest" if keeps else ""
            say(f"discreet: interrupted{kept}")
            _say_notes(error)
            raise typer.Exit(130) from None

    return cast("F", run)


def _say_notes(error: BaseException) -> None:
    """Print the notes that were added to the error."""
    for note in getattr(error, "__notes__", ()):
        say(f"discreet: {note}")


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    say(f"discreet: {message}")


def say(text: str) -> None:
    """Print one line on standard error."""
    print(text, file=sys.stderr, flush=True)


def print_json(document: Any) -> None:
    """Print a document as JSON on standard output."""
    print(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))


def console() -> Console:
    """Return a console on standard output. If the output is not a terminal, the console is wide enough for
    tables.
    """
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else 132)


def new_table(*columns: str, right: Sequence[str] = ()) -> Table:
    """Return an empty table.

    - right : names of the columns that are aligned to the right.
    """
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(
            column, justify="right" if column in right else "left", no_wrap=column in right, overflow="fold"
        )
    return table


@contextmanager
def progress_bar(title: str, total: int, unit: str = "users") -> Iterator[Progress]:
    """Show a progress bar on standard error for the users of all runs.

    Yields the function that reports progress; its arguments are (run, number of users simulated so far).

    If standard error is not a terminal, one line is printed at the end instead of a bar.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    done: dict[int, int] = {}
    begin = time.perf_counter()
    to = Console(stderr=True)
    if not to.is_terminal:
        yield lambda run, users: done.__setitem__(run, users)
        say(f"{title}: {time.perf_counter() - begin:.1f} s")
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(unit))
    with Progress(*columns, TimeElapsedColumn(), console=to) as bar:
        task = bar.add_task(title, total=total)

        def update(run: int, users: int) -> None:
            done[run] = users
            bar.update(task, completed=sum(done.values()))

        yield update
        bar.update(task, completed=total)


def check_files(files: Sequence[str], **named: Path) -> None:
    """Raise ``ValueError`` if a file is missing. Call this function before slow imports."""
    for name, path in named.items():
        if not path.is_file():
            raise ValueError(f"{name} = {str(path)!r}: no such file")
    for file in files:
        if "://" not in file and not file.startswith("minari:") and not Path(file).exists():
            raise ValueError(f"{file}: no such file")


def announce_compilation() -> None:
    """Arrange that a line is printed when a kernel is compiled, because compilation takes some time."""
    from discreet.experiments.compile_notice import announce

    announce(_say_compiling)


def _say_compiling() -> None:
    say("discreet: compiling kernels, once (`discreet warmup` does it ahead) ...")


def pairs(flag: str, given: Sequence[str] | None) -> dict[str, str]:
    """Parse options of the form KEY=VALUE, and return them as a mapping.

    flag : name of the option in error messages.
    """
    found: dict[str, str] = {}
    for item in given or []:
        name, equals, value = item.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name:
            raise ValueError(f"--{flag} {item!r}: must be KEY=VALUE")
        if name in found:
            raise ValueError(f"--{flag} {item!r}: {name} is given twice")
        found[name] = value
    return found


def settings_of(given: Sequence[str] | None) -> tuple[str | None, dict[str, str]]:
    """Parse the values of ``--set``. Returns the preset, or None, and the other options as a mapping."""
    options = pairs("set", given)
    preset = options.pop("preset", None)
    return preset, options


def typed_pairs(flag: str, given: Sequence[str] | None, kinds: Mapping[str, type]) -> dict[str, Any]:
    """Parse options of the form KEY=VALUE that can have only certain keys.

    - flag : name of the option in error messages.
    - kinds : type of the value of each allowed key.

    Raises ``ValueError`` for an unknown key and for a value of a wrong type.
    """
    from discreet import registry

    found = pairs(flag, given)
    for name in found:
        if name not in kinds:
            raise ValueError(f"--{flag} {name}: {registry.must_be_one_of(kinds)}")
    return {name: registry.coerce(name, value, kinds[name]) for name, value in found.items()}
