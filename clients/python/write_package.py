"""Write the package ``discreet_device``: ``python clients/python/write_package.py FOLDER``.

It is a copy of ``discreet.device`` that differs only in the names of its imports. Both packages can be
installed together.
"""

from __future__ import annotations

import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "discreet"


def write_package(folder: Path) -> Path:
    """Write the package ``discreet_device`` to ``folder``, and return its path."""
    package = folder / "discreet_device"
    package.mkdir()
    for path in sorted((SOURCE / "device").glob("*.py")):
        text = path.read_text()
        if path.name == "__init__.py":
            stub = path.with_suffix(".pyi").read_text().partition('"""\n')[2]
            names = [line.split()[-1] for line in stub.splitlines() if line.startswith("from ")]
            text = text.partition("\nfrom discreet.names")[0]
            text += stub.replace("__all__: list[str]", f"__all__ = {names!r}")
        text = text.replace("discreet.device", "discreet_device").replace(
            "discreet[client]", "discreet-device[client]"
        )
        (package / path.name).write_text(text)
    (package / "py.typed").write_text("")
    return package


if __name__ == "__main__":
    print(write_package(Path(sys.argv[1])))
