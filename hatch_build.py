"""A wheel brings compiled kernels along where somebody compiled them: CONSILIENCE_KERNELS names their folder.

Such a wheel is for one platform, and for every Python: where no kernels fit, they are compiled as from any other wheel.
"""

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLATFORMS = {"x86_64-unknown-linux-gnu": "manylinux_2_28_x86_64", "aarch64-unknown-linux-gnu": "manylinux_2_28_aarch64"}
"""The tag of a wheel for what LLVM calls the machine."""


class Kernels(BuildHookInterface):
    """Adds the kernels, and says for which platform the wheel is."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        folder = os.environ.get("CONSILIENCE_KERNELS")
        if self.target_name != "wheel" or not folder or version == "editable":
            return
        built = [each for each in Path(folder).iterdir() if each.is_dir()]
        tags = {tag for triple, tag in PLATFORMS.items() if any(triple in each.name for each in built)}
        if len(tags) != 1:
            raise ValueError(f"{folder} holds kernels for {len(tags)} platforms; a wheel is for one")
        build_data["tag"] = f"py3-none-{tags.pop()}"
        build_data["pure_python"] = False
        build_data["force_include"][str(Path(folder).resolve())] = "consilience/kernels/compiled"
