"""Scripts of the gallery that need Stable-Baselines3, d3rlpy or Minari (``make test-agents``)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

GALLERY = Path(__file__).parents[2] / "docs" / "gallery"
LIBRARY = {"agents_ppo": "stable_baselines3", "agents_d3rlpy": "d3rlpy", "agents_minari": "minari"}


def test_every_script_is_listed() -> None:
    assert {path.stem for path in GALLERY.glob("agents_*.py")} == set(LIBRARY)


@pytest.mark.docs
@pytest.mark.parametrize("script", LIBRARY)
def test_a_script_runs(script: str, tmp_path: Path) -> None:
    pytest.importorskip(LIBRARY[script])
    own = {"MPLBACKEND": "agg", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(GALLERY)}
    done = subprocess.run(
        [sys.executable, GALLERY / f"{script}.py"], env=os.environ | own, cwd=tmp_path,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
