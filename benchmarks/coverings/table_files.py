"""Writing the shipped table."""

import csv
from pathlib import Path

import numpy as np

from consilience import coverings
from consilience.coverings.designs import SEARCHED, DesignTable, packed_rows

FOLDER = Path(coverings.__file__).parent


def write_table(table: DesignTable, folder: Path = FOLDER) -> None:
    """Write sizes and recipes, and the blocks of searched designs, over the files of the package."""
    packed = []
    with (folder / "designs.csv.new").open("w", encoding="utf-8", newline="") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(["points", "block", "strength", "size", "recipe"])
        for key in sorted(table.designs, key=lambda key: (key[2], key[1], key[0])):
            design = table.designs[key]
            writer.writerow([*key, design.size, design.recipe])
            if design.recipe == SEARCHED:
                packed.append(packed_rows(table.searched[key], key))
    blocks = np.concatenate(packed) if packed else np.zeros(0, dtype=np.uint8)
    (folder / "searched.bin.new").write_bytes(blocks.tobytes())
    for name in ("designs.csv", "searched.bin"):
        (folder / f"{name}.new").replace(folder / name)
