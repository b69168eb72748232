"""The shapes of places: read from GeoJSON or TopoJSON, made ready to be drawn, hatched.

Positions are pairs of longitude and latitude in degrees, or of a plane's coordinates. Rings end where they begin. What
draws them takes the earth for a sphere, on which every ring has two insides: outer rings are turned to run with the
clock, as it wants them, whichever way the file has them (RFC 7946 wants the other).
"""

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from consilience.domain.declarations import label_text, suggestion
from consilience.errors import DeclarationError, FileFormatError, TooLarge, readable_bytes

Ring = NDArray[np.float64]
Polygons = tuple[tuple[Ring, ...], ...]
"""Polygons, each an outer ring and its holes."""

LARGEST_FILE = 500_000_000
GRID = 2_400
"""Corners are moved to the nearest of so many steps along the longer side: half a pixel of a large picture."""
IDENTIFIER = "id"
"""What a feature's own `id` is called among its properties, where none of these has that name."""


@dataclass(frozen=True, eq=False)
class Shape:
    """One feature of a file: its properties, and its polygons."""

    properties: Mapping[str, Any]
    polygons: Polygons

    @property
    def rings(self) -> Iterator[Ring]:
        return (ring for polygon in self.polygons for ring in polygon)

    def geometry(self) -> dict[str, Any]:
        """As GeoJSON, outer rings with the clock."""
        parts = [[_turned(ring, hole=place > 0).tolist() for place, ring in enumerate(each)] for each in self.polygons]
        return {"type": "MultiPolygon", "coordinates": parts}

    def hatching(self, step: float) -> dict[str, Any]:
        """Slanted lines inside the shape, so far from each other, as GeoJSON.

        On the line y = x + c the shape begins and ends where its borders cross it, in turns.
        """
        ends = [np.stack([ring[:-1], ring[1:]], axis=1) for ring in self.rings if len(ring) > 1]
        if not ends:
            return {"type": "MultiLineString", "coordinates": []}
        sides = np.concatenate(ends)
        heights = sides[..., 1] - sides[..., 0]
        found = []
        first, last = math.ceil(heights.min() / step), math.floor(heights.max() / step)
        for line in range(first, last + 1):
            level = line * step
            crossed = (heights[:, 0] > level) != (heights[:, 1] > level)
            part = (level - heights[crossed, 0]) / (heights[crossed, 1] - heights[crossed, 0])
            points = sides[crossed, 0] + part[:, None] * (sides[crossed, 1] - sides[crossed, 0])
            points = points[np.argsort(points[:, 0], kind="stable")]
            found += [[one.tolist(), other.tolist()] for one, other in zip(points[::2], points[1::2], strict=False)]
        return {"type": "MultiLineString", "coordinates": found}


def signed_area(ring: Ring) -> float:
    """Above 0 where the ring runs against the clock.

    >>> signed_area(np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 1.0], [0.0, 0.0]]))
    1.0
    """
    x, y = ring[:, 0] - ring[0, 0], ring[:, 1] - ring[0, 1]
    return float((x[:-1] * y[1:] - x[1:] * y[:-1]).sum() / 2)


def _turned(ring: Ring, *, hole: bool) -> Ring:
    return ring if (signed_area(ring) > 0) == hole else ring[::-1]


@dataclass(frozen=True, eq=False)
class Shapes:
    """The shapes of a file."""

    name: str
    """What the file is called."""
    every: tuple[Shape, ...]

    @cached_property
    def corners(self) -> Ring:
        return np.concatenate([ring for shape in self.every for ring in shape.rings])

    @cached_property
    def extent(self) -> tuple[float, float, float, float]:
        """West, south, east and north; the shorter way around where shapes lie on both sides of 180 degrees."""
        x, y = self.corners.T
        if self.in_degrees and x.max() - x.min() > 180:
            other = np.where(x < 0, x + 360, x)
            x = other if other.max() - other.min() < x.max() - x.min() else x
        return float(x.min()), float(y.min()), float(x.max()), float(y.max())

    @cached_property
    def in_degrees(self) -> bool:
        x, y = np.abs(self.corners).max(axis=0)
        return bool(x <= 360 and y <= 90)

    def by_key(self, key: str | None, places: Sequence[str]) -> "tuple[str, dict[str, Shape]]":
        """The property that names places, and the shape of each name; without a key that with most of the places."""
        known = dict.fromkeys(name for shape in self.every for name in shape.properties)
        if key is None:
            wanted = set(places)
            hits = {name: len(wanted & {label_text_of(each, name) for each in self.every}) for name in known}
            key = max(hits, key=lambda name: hits[name], default=None)
            if key is None or not hits[key]:
                raise DeclarationError(
                    f"no property of the shapes in {self.name} holds the codes of these places ({_some(places)}); its "
                    f"properties are, for instance, {self._example()}. Give shapes of the level that is asked about, "
                    "with codes as the domain has them"
                )
        if key not in known:
            raise DeclarationError(f"the shapes in {self.name} have no property {key!r}; {suggestion(key, known)}")
        found: dict[str, Shape] = {}
        for shape in self.every:
            name = label_text_of(shape, key)
            if name is not None and name in found:
                shape = Shape(shape.properties, (*found[name].polygons, *shape.polygons))
            if name is not None:
                found[name] = shape
        if not set(found) & set(places):
            raise DeclarationError(
                f"none of the places has a shape: by {key!r}, {self.name} calls its shapes {_some(list(found))}, and "
                f"the answers are about {_some(places)}.{_lost_zeros(found, places)}"
            )
        return key, found

    def _example(self) -> str:
        shown = list(self.every[0].properties.items())[:6]
        return ", ".join(f"{name}={value!r}" for name, value in shown) or "none at all"

    def simplified(self) -> "Shapes":
        """The same shapes with corners on a grid, and without those that fall onto the one before.

        Neighbours share corners, and so they do afterwards. A ring that would vanish stays as it is.
        """
        west, south, east, north = self.extent
        step = max(east - west, north - south, 1e-12) / GRID

        def coarse(ring: Ring) -> Ring:
            moved = np.round(ring / step)
            kept = np.concatenate([[True], np.any(moved[1:] != moved[:-1], axis=1)])
            digits = max(0, 1 - math.floor(math.log10(step)))
            return np.round(moved[kept] * step, digits) if kept.sum() > 3 else np.round(ring, digits + 1)

        def lighter(shape: Shape) -> Shape:
            return replace(shape, polygons=tuple(tuple(map(coarse, each)) for each in shape.polygons))

        return replace(self, every=tuple(map(lighter, self.every)))


def label_text_of(shape: Shape, key: str) -> str | None:
    """A property as the text that a domain would have for it."""
    return label_text(shape.properties.get(key))


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:4])) + (f" and {len(names) - 4:,} more" if len(names) > 4 else "")


def _lost_zeros(found: Mapping[str, Shape], places: Sequence[str]) -> str:
    """A hint where the same codes stand on both sides, once without the zeros that lead them.

    >>> _lost_zeros({"1001": None}, ["01001"])
    " '1001' is '01001' without its leading zeros: write the codes of the shapes as texts"
    """
    bare = {name.lstrip("0"): name for name in places}
    for name in found:
        if name.lstrip("0") in bare:
            pair = sorted([name, bare[name.lstrip("0")]], key=len)
            whose = "shapes" if pair[0] == name else "domain"
            return f" {pair[0]!r} is {pair[1]!r} without its leading zeros: write the codes of the {whose} as texts"
    return " Give shapes of the level that is asked about, or name the property with their codes"


# ----------------------------------------------------------------------------------------------------------------------
# The files.


def read_shapes(path: str | os.PathLike[str]) -> Shapes:
    """The shapes of a GeoJSON or TopoJSON file.

    >>> import tempfile
    >>> square = [[[0, 0], [0, 1], [1, 1], [1, 0], [0, 0]]]
    >>> feature = {"type": "Feature", "id": "01", "geometry": {"type": "Polygon", "coordinates": square}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = Path(folder, "one.geojson").write_text(json.dumps(feature))
    ...     print(read_shapes(Path(folder, "one.geojson")).extent)
    (0.0, 0.0, 1.0, 1.0)
    """
    path = Path(path)
    try:
        size = path.stat().st_size
        if size > LARGEST_FILE:
            raise TooLarge(
                f"{path} has {readable_bytes(size)}, and shapes are read up to {readable_bytes(LARGEST_FILE)}; "
                "simplify them first, with mapshaper for instance"
            )
        document = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise FileFormatError(f"there is no file of shapes {path}; give GeoJSON or TopoJSON") from None
    except (OSError, ValueError, RecursionError) as error:
        raise FileFormatError(
            f"{path} cannot be read as JSON: {type(error).__name__}; give GeoJSON or TopoJSON"
        ) from None
    reader = _Reader(path.name)
    try:
        shapes = reader.shapes(document)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise FileFormatError(f"{path} is no GeoJSON or TopoJSON of places: {type(error).__name__} {error}") from None
    if not shapes:
        raise FileFormatError(f"{path} holds no polygons; places are drawn as areas")
    return Shapes(path.name, tuple(shapes))


@dataclass(frozen=True)
class _Reader:
    name: str

    def refuse(self, message: str) -> NoReturn:
        raise FileFormatError(f"{self.name}: {message}")

    def shapes(self, document: Mapping[str, Any]) -> list[Shape]:
        kind = document.get("type") if isinstance(document, dict) else None
        if kind == "Topology":
            arcs = _arcs(document)
            found = [self._features(each, lambda part: _joined(part, arcs)) for each in document["objects"].values()]
            return [shape for part in found for shape in part]
        if kind not in ("FeatureCollection", "Feature"):
            self.refuse(
                f"expected GeoJSON or TopoJSON, found the type {kind!r}; give a FeatureCollection or a Topology"
            )
        return self._features(document, _ring)

    def _features(self, each: Mapping[str, Any], ring: Callable[[Any], Ring]) -> list[Shape]:
        """The shapes of a feature, of a geometry of a topology, or of a collection of them."""
        inner = each.get("features") or each.get("geometries")
        if inner is not None:
            return [shape for part in inner for shape in self._features(part, ring)]
        geometry = each.get("geometry", each) or {}
        kind, parts = geometry.get("type"), geometry.get("coordinates", geometry.get("arcs"))
        if kind not in ("Polygon", "MultiPolygon") or not parts:
            return []
        several = [parts] if kind == "Polygon" else parts
        polygons = tuple(tuple(map(ring, polygon)) for polygon in several)
        properties = dict(each.get("properties") or {})
        if "id" in each:
            properties.setdefault(IDENTIFIER, each["id"])
        return [Shape(properties, polygons)]


def _ring(positions: Any) -> Ring:
    found = np.array([position[:2] for position in positions], dtype=np.float64)
    if found.ndim != 2 or len(found) < 4 or not np.isfinite(found).all():
        raise ValueError("a ring has four positions of two finite numbers at least")
    return found if (found[0] == found[-1]).all() else np.concatenate([found, found[:1]])


def _arcs(document: Mapping[str, Any]) -> list[Ring]:
    """The arcs of a topology: where it has a transform, steps from one position to the next on a grid."""
    arcs = [np.array([position[:2] for position in arc], dtype=np.float64) for arc in document["arcs"]]
    transform = document.get("transform")
    if transform is None:
        return arcs
    scale, shift = np.array(transform["scale"], dtype=np.float64), np.array(transform["translate"], dtype=np.float64)
    return [np.cumsum(arc, axis=0) * scale + shift for arc in arcs]


def _joined(numbers: Any, arcs: Sequence[Ring]) -> Ring:
    """The ring of arcs one after the other; ~k stands for arc k backwards."""
    parts = [arcs[number] if number >= 0 else arcs[~number][::-1] for number in numbers]
    return _ring(np.concatenate([parts[0], *(part[1:] for part in parts[1:])]))
