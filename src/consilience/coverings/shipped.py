"""The table of covering designs that ships with the package: for every one its size and how to get its blocks.

`designs.csv` holds a line for each design: points, block, strength, size, recipe. Where the recipe is "searched" the
blocks lie in `searched.bin`, in the order of the lines: each block as its colexicographic number, in as many bits as
the largest such number needs, and each design begins at a whole byte.
"""

import csv
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from math import comb

import numpy as np
from numpy.typing import NDArray

from consilience.coverings.recipes import SEARCHED, cooked
from consilience.coverings.set_ranks import ranked, unranked
from consilience.errors import FileFormatError

Key = tuple[int, int, int]
"""Points, block and strength."""

LARGEST_POINTS, LARGEST_BLOCK, LARGEST_STRENGTH = 64, 10, 4
"""The table holds every design with block > strength ≥ 2 up to these."""


@dataclass(frozen=True)
class ShippedDesign:
    """How many blocks a design has, and how to get them."""

    size: int
    recipe: str


@dataclass(eq=False)
class DesignTable:
    """Designs by points, block and strength; rows are rebuilt at first use and kept."""

    designs: dict[Key, ShippedDesign]
    searched: dict[Key, NDArray[np.int16]]
    built: dict[Key, NDArray[np.int16]] = field(default_factory=dict)

    def rows(self, points: int, block: int, strength: int) -> NDArray[np.int16]:
        """The blocks of a design, one ascending row each."""
        trivial = trivial_rows(points, block, strength)
        if trivial is not None:
            return trivial
        key = (points, block, strength)
        if key not in self.built:
            design = self.designs[key]
            if design.recipe == SEARCHED:
                self.built[key] = self.searched[key]
            else:
                self.built[key] = cooked(design.recipe, points, block, strength, self.rows)
        return self.built[key]


def trivial_rows(points: int, block: int, strength: int) -> NDArray[np.int16] | None:
    """The designs that need no table: all points in one block, any block, a partition, or all t-sets."""
    if block >= points:
        return np.arange(points, dtype=np.int16)[None, :]
    if strength == 0:
        return np.arange(block, dtype=np.int16)[None, :]
    if strength == 1:
        starts = np.minimum(np.arange(0, points, block), points - block)
        return (starts[:, None] + np.arange(block)).astype(np.int16)
    if strength == block:
        return unranked(np.arange(comb(points, block)), points, block).astype(np.int16)
    return None


@lru_cache(maxsize=1)
def shipped_table() -> DesignTable:
    """The table as it lies in the package."""
    return read_table(files("consilience.coverings"))


def read_table(folder: Traversable) -> DesignTable:
    """The table whose two files lie in a folder."""
    lines = folder.joinpath("designs.csv").read_text(encoding="utf-8").splitlines()
    listed = [
        ((int(points), int(block), int(strength)), ShippedDesign(int(size), recipe))
        for points, block, strength, size, recipe in csv.reader(lines[1:])
    ]
    packed = np.frombuffer(folder.joinpath("searched.bin").read_bytes(), dtype=np.uint8)
    searched, begin = {}, 0
    for key, design in listed:
        if design.recipe == SEARCHED:
            end = begin + packed_bytes(key, design.size)
            searched[key] = packed[begin:end]
            begin = end
    if begin != packed.size:
        raise FileFormatError(
            f"searched.bin has {packed.size:,} bytes where designs.csv describes {begin:,}: install the package anew"
        )
    return DesignTable(dict(listed), _Unpacking(dict(listed), searched))


class _Unpacking(dict[Key, NDArray[np.int16]]):
    """Packed blocks by key, unpacked when they are asked for."""

    def __init__(self, designs: dict[Key, ShippedDesign], packed: dict[Key, NDArray[np.uint8]]) -> None:
        super().__init__()
        self._designs, self._packed = designs, packed

    def __missing__(self, key: Key) -> NDArray[np.int16]:
        self[key] = unpacked_rows(self._packed[key], key, self._designs[key].size)
        return self[key]


def _bits(key: Key) -> int:
    return (comb(key[0], key[1]) - 1).bit_length()


def packed_bytes(key: Key, size: int) -> int:
    """How many bytes the blocks of a searched design take."""
    return (_bits(key) * size + 7) // 8


def packed_rows(rows: NDArray[np.int16], key: Key) -> NDArray[np.uint8]:
    """The blocks as bits of their numbers, ascending."""
    numbers = np.sort(ranked(rows, key[0]))
    return np.packbits((numbers[:, None] >> np.arange(_bits(key))) & 1)


def unpacked_rows(packed: NDArray[np.uint8], key: Key, size: int) -> NDArray[np.int16]:
    """The blocks that `packed_rows` wrote."""
    bits = np.unpackbits(packed)[: _bits(key) * size].reshape(size, -1).astype(np.int64)
    return unranked(bits @ (1 << np.arange(_bits(key))), key[0], key[1]).astype(np.int16)
