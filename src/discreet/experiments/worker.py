"""Tasks that worker processes execute, and local pools of worker processes."""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from multiprocessing import current_process, parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from discreet.experiments.compile_notice import in_workers
from discreet.experiments.engine import Engine, EngineError
from discreet.experiments.run_config import made_by

if TYPE_CHECKING:
    from discreet.experiments.seed_run import PreparedRun, SeedRun

_FEW = 4  # Number of set-ups that a worker keeps. A few are enough, because runs of one set-up are sent in
# order.
_SECONDS = 0.2  # Expected duration in seconds up to which runs share one task of a local process.

_stop: Any = None


def versions() -> dict[str, str]:
    """Return the versions of the code in this process. ``kernels`` is a hash of all compiled sources."""
    return made_by()


def differing(here: Mapping[str, str], there: Mapping[str, str]) -> str:
    """Describe the versions in which two processes differ; empty if all versions are equal."""
    names = [name for name in here if here[name] != there.get(name)]
    return "; ".join(f"{name} {there.get(name, 'none')} there, {here[name]} here" for name in names)


def _check_code(made_by: Mapping[str, str]) -> None:
    if said := differing(made_by, versions()):
        raise EngineError(f"a worker has other code than the process that sent it runs: {said}")


@dataclass(frozen=True)
class Made:
    """Task that calls ``make()``, a function of a module whose arguments are already bound."""

    make: Callable[[], Any]
    made_by: Mapping[str, str] = field(default_factory=versions)

    def __call__(self, items: Sequence[int]) -> list[tuple[int, Any]]:
        """Call ``make()`` once for each item, and return a list of (item, result of the call).

        Raises :class:`EngineError` if the code of this process differs from the sender's.
        """
        _check_code(self.made_by)
        return [(item, self.make()) for item in items]


@dataclass(frozen=True)
class Play:
    """Task that simulates repetitions of one experiment.

    Parameters
    ----------
    build : a function of a module.
    what : the argument of ``build``, a hashable value (a configuration, or bytes).
    seed : seed of the run.
    made_by : versions of the sender's code.
    """

    build: Callable[[Any], PreparedRun]
    what: Any
    seed: int
    made_by: Mapping[str, str] = field(default_factory=versions)

    def __call__(self, runs: Sequence[int]) -> list[SeedRun]:
        """Simulate the repetitions with the indices ``runs``.

        Raises :class:`EngineError` if the code of this process differs from the sender's.
        """
        _check_code(self.made_by)
        setup = _built(self.build, self.what)
        return [setup.run(self.seed, run, None, _stop) for run in runs]


@lru_cache(_FEW)
def _built(build: Callable[[Any], PreparedRun], what: Any) -> PreparedRun:
    return build(what)


def packed(setup: object, where: str) -> bytes:
    """Return a pickled experiment for the processes of an engine.

    - where : name of the engine, for the error message.

    Raises ``ValueError`` if the experiment cannot be pickled.
    """
    try:
        return pickle.dumps(setup)
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise ValueError(
            f"{where}: must be workers = 1 for a learner, privatizer or world that Python cannot send to "
            f"another process ({error}); or define its class at the top of a module"
        ) from error


# ------------------------------------------------------------------------------ local worker processes
def _begin(stop: Any, initializer: Callable[..., None] | None = None, initargs: tuple[Any, ...] = ()) -> None:
    global _stop
    _stop = stop
    threading.Thread(target=_end_with_the_sender, daemon=True).start()
    if initializer is not None:
        initializer(*initargs)


def _end_with_the_sender() -> None:
    """End this worker process when the process that started it ends."""
    if (sender := parent_process()) is not None:
        sender.join()
        os._exit(1)


class NoWorkers(EngineError):
    """Error: worker processes cannot be started here."""


_hiding = threading.Lock()


@contextmanager
def _no_script() -> Iterator[None]:
    """Create a context in which new processes do not import the running script."""
    with _hiding:
        script = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = script


class _Process(SpawnProcess):
    """Worker process that imports the library's modules but not the running script."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        with _no_script():
            return SpawnProcess._Popen(process_obj)


class _Context(SpawnContext):
    Process = _Process


def _script() -> Path | None:
    """Return the file of the running script; None in a notebook or an interactive session."""
    name = getattr(sys.modules["__main__"], "__file__", None)
    found = None if name is None else Path(name)
    return found if found is not None and found.is_file() else None


class _Processes(Engine):
    """Engine with a process pool, which is replaced if a worker fails after the pool has returned a result.

    script : if True, workers import the running script, because the objects sent to them are defined there.
    """

    def __init__(self, workers: int, script: bool = False) -> None:
        from concurrent.futures import ProcessPoolExecutor

        if script and getattr(current_process(), "_inheriting", False):
            # This process is a worker that imports a script, and the script starts workers. End this worker;
            # the process that started it continues without workers.
            raise SystemExit(1)
        if script and _script() is None:
            raise NoWorkers("what is sent to them is defined in no file that they could import")
        self._script = script
        context = SpawnContext() if script else _Context()
        self._shared = context.Event()
        begin = partial(_begin, self._shared, **in_workers())
        super().__init__(
            f"workers = {workers}",
            lambda: ProcessPoolExecutor(workers, mp_context=context, initializer=begin),
            workers,
            together=_SECONDS,
        )

    def reopen(self, error: BaseException) -> None:
        if self.served:
            super().reopen(error)
        elif self._script:
            raise NoWorkers(
                "they import this script, since it defines what they run: put what calls this under `if "
                '__name__ == "__main__":`'
            ) from error
        else:
            raise EngineError(
                f"{self.name}: a worker process ended before its first run; is memory short? workers = 1 "
                "needs least"
            ) from error

    def close(self) -> None:
        self._shared.set()
        super().close()


def processes(workers: int, sent: bytes = b"") -> Engine:
    """Return an engine of ``workers`` local processes, for the objects pickled in ``sent``.

    The processes import the running script if an object in ``sent`` is defined there. The engine raises
    :class:`NoWorkers` if this import is needed but impossible.
    """
    return _Processes(workers, script=b"__main__" in sent or b"__mp_main__" in sent)
