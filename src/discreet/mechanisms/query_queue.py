"""What a learner is handed to ask a session about stored users: a queue, with nothing of the session in it.

A bound method would hand over the session, and with it people's exact sums and records. Here the learner's
end is a function that holds a queue; a thread at the other end, which knows the session by a weak reference,
asks it and sends back the answer, or the refusal without the frames that it came from. The thread ends when
the learner's end is gone. That is a door for honest code: whatever runs in the same process can find the
session by other ways (its caller's frames, the garbage collector), and no library can stop it.

The session's own guards stand. A fork is refused here, since it has no such thread; a question out of a
running call is refused by the session; an interrupt of who waits for an answer loses the answer, whose
question is spent.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Any

import numpy as np

from discreet.core.releases import Estimate, Floats
from discreet.core.short_repr import brief

__all__ = ["Response", "asking"]


@dataclass(frozen=True, eq=False)
class Response:
    """A new sum over the users already stored, with public arrays (LSVI, DP-VAPVI): sum phi (r + values[s']).

    step : h in [0, H). values : (S,), within ``interval`` (low, high), which enters the noise. weights : (S,
    A) of records, at least 0, or None: 1. gram : ask for the weighted Gram matrix, too.
    """

    __repr__ = brief

    step: int
    values: Floats  # (S,), inside `interval`
    interval: tuple[float, float]
    weights: Floats | None = None
    gram: bool = False


Answer = Callable[[Response], Estimate]


def asking(answer: Answer) -> Answer:
    """The learner's end of a bound method ``answer``, whose object it does not hold and is not reached by."""
    questions: SimpleQueue[Any] = SimpleQueue()
    process = os.getpid()

    def ask(question: Response) -> Estimate:
        """The next planned response. Raises what the session raises."""
        if os.getpid() != process:
            raise RuntimeError("this session was started in another process: it answers nothing here")
        if type(question) is not Response:
            raise ValueError(f"question is a {type(question).__name__}: must be a Response")
        weights = None if question.weights is None else np.array(question.weights)
        # plain arrays: what reads them there must not run code of the caller
        question = replace(question, values=np.array(question.values), weights=weights)
        reply: SimpleQueue[Any] = SimpleQueue()
        questions.put((question, reply))
        found, error = reply.get()
        if error is None:
            answered: Estimate = found
            return answered
        try:
            raise error
        finally:
            del error  # which holds this frame

    weakref.finalize(ask, questions.put, None)
    serving = threading.Thread(
        target=_serve, args=(questions, weakref.WeakMethod(answer)), name="discreet-answers", daemon=True
    )
    serving.start()
    return ask


def _serve(questions: SimpleQueue[Any], answer: Callable[[], Answer | None]) -> None:
    asked: tuple[Response, SimpleQueue[Any]] | None
    while (asked := questions.get()) is not None:
        _reply(asked[0], asked[1], answer())
        del asked  # while it waits for the next one


def _reply(question: Response, reply: SimpleQueue[Any], answer: Answer | None) -> None:
    try:
        if answer is None:
            raise RuntimeError("this session is closed: start another one")
        reply.put((answer(question), None))
    except BaseException as error:  # the caller's, whatever it is
        error.__cause__ = error.__context__ = None
        reply.put((None, error.with_traceback(None)))
