"""A believable country that does not exist: an island with states, counties, tracts and blocks, and its people.

Blocks lie closer together in towns. Each is the land nearest to its point (a Voronoi cell), so that the shapes of
blocks that make up a tract make up its shape, and so on; points in the sea make the coast. How many live in a block is
lognormal: half of all blocks have below 30 people, as in real censuses. People have a sex, an age and a group; the old
live by the western coast and the young in towns, groups gather in parts of the country, and no two blocks are alike.

    consilience demo --country --table people.csv --people 10000
"""

import csv
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree, Voronoi

from consilience.kernels.rng import Generator, generator

PEOPLE = 1_000_000
PEOPLE_OF_A_BLOCK = 50
"""On average."""
SPREAD = 1.08
"""Of the lognormal sizes of blocks: with 50 people on average half of them are below 30."""
BLOCKS_OF_A_PLACE = {"State": 1700, "County": 100, "Tract": 10}
LEVELS = ("State", "County", "Tract", "Block")
SEED = 1889
SEXES, GROUPS = ("Female", "Male"), ("Coastal", "Inland", "Newcomer")
WEST, SOUTH, WIDTH, HEIGHT = -33.0, 46.0, 9.0, 6.0
"""Where the island lies, in degrees: in the Atlantic, where there is none."""
AT_ONCE = 200_000
"""Lines of the table that are written at a time."""

Numbers = NDArray[np.float64]
Codes = NDArray[np.int64]

DOMAIN = """\
# The public description of the country's table: what each column may hold.

name = "country"

[attributes.block]                                    # the places, from blocks to states
kind = "hierarchy"
parents = "places.csv"
geography = true

[attributes.sex]
kind = "categorical"
values = ["Female", "Male"]

[attributes.age]
kind = "numeric"
title = "Age"
unit = "years"
edges = [0, 5, 18, 30, 45, 65, 80, 105]

[attributes.group]
kind = "categorical"
values = ["Coastal", "Inland", "Newcomer"]
"""


@dataclass(frozen=True, eq=False)
class Country:
    """The places of each level, which of them a block is part of, and where it lies."""

    above: Mapping[str, Codes]
    """For each level the place that each block is in; at the level of blocks itself."""
    names: Mapping[str, tuple[str, ...]]
    """The codes of the places of each level: those of the places above, and a number."""
    points: Numbers
    sea: Numbers
    """Points off the coast."""
    town: Numbers
    """How urban each block is, from 0 to 1."""

    @property
    def blocks(self) -> int:
        return len(self.points)


def make_country(people: int = PEOPLE, seed: int = SEED) -> Country:
    """The places of a country of so many people, the same for the same arguments."""
    rng = generator(seed)
    blocks = max(24, people // PEOPLE_OF_A_BLOCK)
    points, town, sea = _land(rng, blocks)
    inside = np.zeros(blocks, dtype=np.int64)
    above: dict[str, Codes] = {}
    for level, size in BLOCKS_OF_A_PLACE.items():
        inside = _parts(rng, points, inside, size)
        above[level] = inside
    order = np.lexsort([np.arange(blocks), *(above[level] for level in ("Tract", "County", "State"))])
    points, town = points[order], town[order]
    above = {level: np.unique(places[order], return_inverse=True)[1] for level, places in above.items()}
    above["Block"] = np.arange(blocks)
    return Country(above, _names(above), points, sea, town)


def _land(rng: Generator, blocks: int) -> tuple[Numbers, Numbers, Numbers]:
    """Points on the island, how urban each is, and points around it."""
    towns = rng.random((24, 2)) * [WIDTH, HEIGHT] * 0.8 + np.array([WIDTH, HEIGHT]) * 0.1
    towns = towns[_is_land(towns)]
    sizes = rng.pareto(2.5, len(towns)) + 0.3
    tried = 6 * blocks + 200
    spread = rng.random((tried, 2)) * [WIDTH, HEIGHT]
    of = rng.choice(len(towns), tried, p=sizes / sizes.sum())
    near = towns[of] + rng.normal(0, 0.2, (tried, 2)) * np.sqrt(sizes[of])[:, None].clip(0.5, 1.6)
    every = np.where((rng.random(tried) < 0.4)[:, None], near, spread)
    points = every[_is_land(every)][:blocks]
    reach = KDTree(towns).query(points)[0]
    sea = spread[~_is_land(spread)][: max(200, blocks // 4)]
    corners = np.array([[x, y] for x in (-9.0, 4.5, 18.0) for y in (-6.0, 3.0, 12.0) if (x, y) != (4.5, 3.0)])
    place = np.array([WEST, SOUTH])
    return points + place, np.exp(-((reach / 0.25) ** 2)), np.concatenate([sea, corners]) + place


def _is_land(points: Numbers) -> NDArray[np.bool_]:
    """Within an ellipse with bays."""
    x, y = ((points / [WIDTH, HEIGHT] - 0.5) * 2.0).T
    angle = np.arctan2(y, x)
    coast = 0.8 + 0.09 * np.sin(3 * angle + 1) + 0.06 * np.sin(7 * angle) + 0.03 * np.cos(13 * angle)
    return np.hypot(x, y) < coast


def _parts(rng: Generator, points: Numbers, inside: Codes, size: int) -> Codes:
    """Each place divided into parts of about so many blocks: those nearest to the same of some points in its middle."""
    found, number = np.empty_like(inside), 0
    for place in range(int(inside.max()) + 1):
        own = np.flatnonzero(inside == place)
        parts = max(2 if len(own) > 1 else 1, round(len(own) / size))
        centres = points[rng.choice(own, parts, replace=False)]
        for _ in range(4):
            nearest = KDTree(centres).query(points[own])[1]
            centres = np.array([points[own[nearest == part]].mean(0) for part in np.unique(nearest)])
        nearest = np.unique(KDTree(centres).query(points[own])[1], return_inverse=True)[1]
        found[own] = number + nearest
        number += int(nearest.max()) + 1
    return found


def _names(above: Mapping[str, Codes]) -> dict[str, tuple[str, ...]]:
    """Codes of two digits for states, and of three, four and four more for what they are made of."""
    names: dict[str, tuple[str, ...]] = {}
    upper, prefix = np.zeros(len(above["Block"]), dtype=np.int64), [""]
    for level, digits in zip(LEVELS, (2, 3, 4, 4), strict=True):
        first = np.unique(above[level], return_index=True)[1]
        start: dict[int, int] = {}
        found = []
        for block in first.tolist():
            within = int(upper[block])
            start[within] = start.get(within, 0) + 1
            found.append(f"{prefix[within]}{start[within]:0{digits}d}")
        names[level], upper, prefix = tuple(found), above[level], found
    return names


# ----------------------------------------------------------------------------------------------------------------------
# The people.


def make_people(country: Country, people: int, seed: int = SEED) -> dict[str, Codes]:
    """The block, sex, age and group of each person, as codes; ages in years."""
    rng = generator(seed, 1)
    weights = np.exp(rng.normal(0, SPREAD, country.blocks))
    weights[rng.random(country.blocks) < 0.01] = 0.0  # lakes and fields
    block = rng.choice(country.blocks, people, p=weights / weights.sum())
    west = (country.points[:, 0] - WEST) / WIDTH
    years = np.arange(105)
    pyramid = (1 + 0.35 * _bell(years, 33, 8) + 0.3 * _bell(years, 57, 8)) / (1 + np.exp((years - 80) / 6.5))
    old = 1.6 * (0.55 - west) - 1.1 * country.town + _by_place(rng, country, 0.15)
    tilt = np.exp(np.outer(old, (years - 40) / 40).clip(-3, 3)) * np.exp(
        0.5 * np.outer(country.town, _bell(years, 24, 5))
    )
    age = _pick(rng, pyramid * tilt, block)
    sex = (rng.random(people) > 0.49 + 0.0018 * np.maximum(age - 55, 0)).astype(np.int64)
    coastal = 1.5 * np.cos(4 * west) + _by_place(rng, country, 0.5)
    newcomer = 1.6 * country.town - 1.4 + _by_place(rng, country, 0.5)
    group = _pick(rng, np.exp(np.stack([coastal, np.zeros(country.blocks), newcomer], axis=1)), block)
    return {"block": block.astype(np.int64), "sex": sex, "age": age, "group": group}


def _bell(age: Codes, centre: float, width: float) -> Numbers:
    return np.exp(-0.5 * ((age - centre) / width) ** 2)


def _by_place(rng: Generator, country: Country, size: float) -> Numbers:
    """What sets each block apart: a part from its state, its county, its tract, and itself."""
    return sum((rng.normal(0, size, len(country.names[level]))[country.above[level]] for level in LEVELS), np.zeros(1))


def _pick(rng: Generator, weights: Numbers, block: Codes) -> Codes:
    """For each person a column, with a probability in proportion to the weights of their block."""
    cumulated = np.cumsum(weights, axis=1)
    cumulated /= cumulated[:, -1:]
    flat = (cumulated + np.arange(len(weights))[:, None]).ravel()
    found = np.searchsorted(flat, block + rng.random(len(block)), side="right")
    return np.clip(found - block * weights.shape[1], 0, weights.shape[1] - 1)


# ----------------------------------------------------------------------------------------------------------------------
# The files: people, domain, places, and a map of each level.


def write_country(
    path: str | os.PathLike[str], *, people: int = PEOPLE, seed: int = SEED
) -> tuple[Path, Path, list[Path]]:
    """Write the people as a CSV file, and beside it the domain, the places, and the shapes; the paths of them."""
    data, country = Path(path), make_country(people, seed)
    _write_people(data, country, make_people(country, people, seed))
    domain = data.with_suffix(".domain.toml")
    domain.write_text(DOMAIN, encoding="utf-8")
    rows = zip(*([country.names[level][place] for place in country.above[level]] for level in LEVELS), strict=True)
    with (data.parent / "places.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(LEVELS)
        writer.writerows(rows)
    return data, domain, write_shapes(country, data.parent)


def _write_people(path: Path, country: Country, people: Mapping[str, Codes]) -> None:
    labels: dict[str, Sequence[str]] = {"block": country.names["Block"], "sex": SEXES, "group": GROUPS}
    labels["age"] = [str(age) for age in range(105)]
    columns = [np.array(labels[name])[codes] for name, codes in people.items()]
    with path.open("w", encoding="utf-8", newline="") as stream:
        stream.write(",".join(people) + "\n")
        for start in range(0, len(columns[0]), AT_ONCE):
            rows = zip(*(column[start : start + AT_ONCE].tolist() for column in columns), strict=True)
            stream.write("\n".join(map(",".join, rows)) + "\n")


def write_shapes(country: Country, folder: Path) -> list[Path]:
    """A GeoJSON file for each level: what its places look like, with their codes as GEOID."""
    points = np.concatenate([country.points, country.sea])
    cells = Voronoi(points)
    corners = np.round(cells.vertices, 5)
    sides = cells.ridge_points.astype(np.int64)
    ends = np.array(cells.ridge_vertices)
    written = []
    for level in LEVELS:
        codes = np.concatenate([country.above[level], np.full(len(country.sea), -1)])
        border = codes[sides[:, 0]] != codes[sides[:, 1]]
        borders = _borders(codes[sides[border]], points[sides[border]], ends[border], cells.vertices)
        features = [
            {
                "type": "Feature",
                "properties": {"GEOID": name, "name": f"{level} {name}"},
                "geometry": {"type": "MultiPolygon", "coordinates": _polygons(borders.get(place, {}), corners)},
            }
            for place, name in enumerate(country.names[level])
        ]
        path = folder / f"{PLURAL[level]}.geojson"
        path.write_text(json.dumps({"type": "FeatureCollection", "features": features}, separators=(",", ":")))
        written.append(path)
    return written


PLURAL = {"State": "states", "County": "counties", "Tract": "tracts", "Block": "blocks"}


def _borders(codes: Codes, points: Numbers, ends: Codes, corners: Numbers) -> dict[int, dict[int, list[int]]]:
    """For each place its border as steps from corner to corner, the place always on the left."""
    found: dict[int, dict[int, list[int]]] = {}
    along = corners[ends[:, 1]] - corners[ends[:, 0]]
    for side in (0, 1):
        inward = points[:, side] - corners[ends[:, 0]]
        left = along[:, 0] * inward[:, 1] - along[:, 1] * inward[:, 0] > 0
        for place, (start, end), forward in zip(codes[:, side].tolist(), ends.tolist(), left.tolist(), strict=True):
            if place >= 0:
                one, other = (start, end) if forward else (end, start)
                found.setdefault(place, {}).setdefault(one, []).append(other)
    return found


def _polygons(steps: dict[int, list[int]], corners: Numbers) -> list[Any]:
    """The closed rings of a border, each hole with the polygon that it is in."""
    rings = []
    while steps:
        ring = [next(iter(steps))]
        while ring[-1] in steps:
            after = steps[ring[-1]]
            ring.append(after.pop())
            if not after:
                del steps[ring[-2]]
            if ring[-1] == ring[0]:
                break
        rings.append(corners[ring])
    outer = [ring for ring in rings if signed_area(ring) > 0]
    found = [[ring.tolist()] for ring in outer]
    for hole in (ring for ring in rings if signed_area(ring) <= 0):
        largest = max(range(len(outer)), key=lambda k: signed_area(outer[k]) if _holds(outer[k], hole[0]) else -1.0)
        found[largest].append(hole.tolist())
    return found


def _holds(ring: Numbers, point: Numbers) -> bool:
    x, y = (ring - point).T
    crosses = (y[:-1] > 0) != (y[1:] > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        at = x[:-1] - y[:-1] * (x[1:] - x[:-1]) / (y[1:] - y[:-1])
    return bool((crosses & (at > 0)).sum() % 2)


def signed_area(ring: Numbers) -> float:
    """Above 0 where the ring runs against the clock."""
    x, y = ring.T
    return float((x[:-1] * y[1:] - x[1:] * y[:-1]).sum() / 2)
