"""Build hook of the wheel ``discreet-device``."""

from __future__ import annotations

import runpy
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WRITE = runpy.run_path(str(Path(__file__).with_name("write_package.py")))["write_package"]


class DevicePackage(BuildHookInterface[Any]):
    """Add the copied package to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the package to a temporary folder, and include its files."""
        self._folder = tempfile.TemporaryDirectory()
        build_data["force_include"][str(WRITE(Path(self._folder.name)))] = "discreet_device"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Delete the temporary folder."""
        self._folder.cleanup()
