"""Queue through which a learner queries a session about earlier users, without access to the session.

A bound method would give access to the session, and therefore to users' exact sums and records. Instead, the
learner gets a function that has only a reference to a queue. A thread reads the queue and has a weak
reference to the session. The thread queries the session and returns the answer, or the exception without its
stack frames. The thread ends when the learner's function is deleted.

The queue only prevents mistakes of honest code. Malicious code in the same process can find the session in
other ways (frames of the caller, garbage collector). No library can prevent this.

The checks of the session still apply. This module rejects calls from a forked process, because that process
has no such thread. The session rejects a question while another call on it is running. If the caller is
interrupted while waiting, the answer is lost, but its budget is spent.
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


@dataclass(frozen=True, eq=False)
class Response:
    """Query for one more sum over the records of earlier users: sum phi (r + values[s']).

    phi is the feature vector of a record's state-action pair, r is its reward and s' its next state. The
    arrays of the query are public. The learners LSVI and DP-VAPVI send such queries.

    Attributes
    ----------
    step : int
        Step h in [0, H).
    values : (S,)
        Values of the states, all within ``interval``.
    interval : (low, high)
        Range of the values. It determines the noise.
    weights : (S, A) or None
        Weight, at least 0, of each record with this state and action. None: all weights are 1.
    gram : bool
        True to return the weighted Gram matrix too.
    """

    __repr__ = brief

    step: int
    values: Floats  # (S,), within `interval`
    interval: tuple[float, float]
    weights: Floats | None = None
    gram: bool = False


Answer = Callable[[Response], Estimate]


def asking(answer: Answer) -> Answer:
    """Return a function that calls the bound method ``answer`` without a reference to the method's object."""
    questions: SimpleQueue[Any] = SimpleQueue()
    process = os.getpid()

    def ask(question: Response) -> Estimate:
        """Return the session's answer to the next planned question. Raises the session's exceptions."""
        if os.getpid() != process:
            raise RuntimeError("this session was started in another process: it answers nothing here")
        if type(question) is not Response:
            raise ValueError(f"question is a {type(question).__name__}: must be a Response")
        weights = None if question.weights is None else np.array(question.weights)
        # Copies of class numpy.ndarray, because reading a subclass could run code of the caller.
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
            del error  # otherwise the exception and this frame would refer to each other

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
        del asked  # no reference is kept while waiting for the next question


def _reply(question: Response, reply: SimpleQueue[Any], answer: Answer | None) -> None:
    try:
        if answer is None:
            raise RuntimeError("this session is closed: start another one")
        reply.put((answer(question), None))
    except BaseException as error:  # every exception is raised again in the caller's thread
        error.__cause__ = error.__context__ = None
        reply.put((None, error.with_traceback(None)))
