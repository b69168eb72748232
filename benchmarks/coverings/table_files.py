"""Writing the shipped table."""

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from consilience import coverings
from consilience.coverings.designs import SEARCHED, DesignTable, Key, block_bits
from consilience.coverings.sets import binomials

FOLDER = Path(coverings.__file__).parent


def ranked(sets: NDArray[np.integer], points: int) -> NDArray[np.int64]:
    """The numbers of sets given as ascending rows.

    >>> ranked(np.array([[0, 1], [0, 2], [2, 3]]), points=4).tolist()
    [0, 1, 5]
    """
    size = sets.shape[1]
    coefficients = binomials(points, size)
    return sum((coefficients[sets[:, i], i + 1] for i in range(size)), np.zeros(len(sets), dtype=np.int64))


def packed_rows(rows: NDArray[np.int16], key: Key) -> NDArray[np.uint8]:
    """The blocks as bits of their numbers, ascending."""
    numbers = np.sort(ranked(rows, key[0]))
    return np.packbits((numbers[:, None] >> np.arange(block_bits(key))) & 1)


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
                packed.append(table.searched[key])
    blocks = np.concatenate(packed) if packed else np.zeros(0, dtype=np.uint8)
    (folder / "searched.bin.new").write_bytes(blocks.tobytes())
    for name in ("designs.csv", "searched.bin"):
        (folder / f"{name}.new").replace(folder / name)
