"""Loaded by every Python that a test starts (``tests/helpers/chance.py`` puts this folder on its path).

Writes down, for the test that started it, which functions drew from the operating system's source. What NumPy
draws when it is imported, for a global generator that nothing here uses, does not count.
"""

import os
import sys

_LOG = os.environ.get("DISCREET_TESTS_CHANCE")


def _is_importing():
    module = sys.modules.get("numpy.random")
    return module is not None and getattr(module.__spec__, "_initializing", False)


def _watched(name, system):
    known = set()

    def drawn(*arguments, **keywords):
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_globals.get("__name__") in ("random", "secrets", "uuid"):
            frame = frame.f_back
        place = f"{frame.f_globals.get('__name__')}.{frame.f_code.co_name}"
        if place not in known and not _is_importing():
            known.add(place)
            test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
            log = os.open(_LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.write(log, f"{test}\t{place}\n".encode())
            os.close(log)
        return system(*arguments, **keywords)

    drawn.system = system
    setattr(os, name, drawn)


if _LOG:
    for _name in ("urandom", "getrandom"):
        if hasattr(os, _name):
            _watched(_name, getattr(os, _name))
