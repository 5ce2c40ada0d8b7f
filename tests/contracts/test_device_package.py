"""The package ``discreet_device`` of ``clients/python``: the device code without the library."""

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / "clients"
ALONE = (
    "import runpy, sys; sys.modules['discreet'] = None; import discreet_device as device; "
    "assert all(hasattr(device, name) for name in device.__all__); "
    "assert not {'numba', 'scipy', 'httpx'} & set(sys.modules); "
    "sys.argv = ['vectors.py', '--check']; runpy.run_path('vectors.py', run_name='__main__')"
)


def test_the_package_makes_the_messages_of_the_library_without_it(tmp_path: Path) -> None:
    """All test vectors are computed again by the package, in a process that cannot import ``discreet``."""
    write = runpy.run_path(str(CLIENTS / "python" / "write_package.py"))["write_package"]
    package = write(tmp_path)
    sizes = sum(path.stat().st_size for path in package.iterdir())
    assert sizes < 5_000_000
    text = (CLIENTS / "js" / "vectors.py").read_text().replace("discreet.device", "discreet_device")
    (tmp_path / "vectors.py").write_text(text)
    shutil.copytree(CLIENTS / "js" / "test", tmp_path / "test")
    subprocess.run([sys.executable, "-W", "error", "-c", ALONE], cwd=tmp_path, check=True)
    (tmp_path / "test" / "vectors.json").write_text("{}")
    assert subprocess.run([sys.executable, "-c", ALONE], cwd=tmp_path, capture_output=True).returncode != 0


def test_licence_is_that_of_the_repository() -> None:
    assert (CLIENTS / "python" / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
