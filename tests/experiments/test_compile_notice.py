"""Compilation is announced once."""

import subprocess
import sys


def test_compilation_is_said_once_and_not_for_what_is_compiled_already() -> None:
    code = (
        "import numba; from discreet.experiments import compile_notice as c; assert c.in_workers() == {};"
        "c.announce(lambda: print('said')); print('before');"
        "f = numba.njit(lambda x: x); f(1); f(1); f(1.0); said = c.in_workers()['initargs'][1];"
        "print(said.value)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["before", "said", "1"]
