"""Which designs a recipe refers to, so that no design is ever made from itself."""

from collections.abc import Iterable

from benchmarks.coverings.candidates import GEOMETRIES
from consilience.coverings.designs import DesignTable, Key

LINES = {name: (points, block) for name, points, block, _, _ in GEOMETRIES}


def references(recipe: str, key: Key) -> list[Key]:
    """The designs that carrying out a recipe may ask for."""
    points, block, strength = key
    name, *words = recipe.split()
    if name in ("greedy", "searched"):
        return []
    numbers = [int(word) for word in words]
    if name == "split":
        first, found = numbers[0], []
        for low, high, taken in zip(numbers[1::3], numbers[2::3], numbers[3::3], strict=True):
            found += [(first, taken, high), (points - first, block - taken, strength - low)]
        return found
    if name == "multiplied":
        base, line = numbers[0], numbers[1]
        found = [(base, line, strength)]
    else:
        base, line = LINES[recipe.rsplit(" ", 1)[0]]
        found = []
    longest = min(points, -(-points // base) * line)
    return found + [(length, block, strength) for length in range(block + 1, longest + 1)]


def affected_by(table: DesignTable, changed: Iterable[Key]) -> set[Key]:
    """The changed designs and all that refer to them, directly or through others."""
    users: dict[Key, list[Key]] = {}
    for key, design in table.designs.items():
        for part in references(design.recipe, key):
            users.setdefault(part, []).append(key)
    waiting, met = list(changed), set()
    while waiting:
        each = waiting.pop()
        if each not in met:
            met.add(each)
            waiting += users.get(each, [])
    return met


def leads_to(table: DesignTable, recipe: str, key: Key) -> bool:
    """Whether a recipe for a design refers to the design itself, directly or through others."""
    waiting, met = references(recipe, key), set()
    while waiting:
        each = waiting.pop()
        if each == key:
            return True
        if each not in met and each in table.designs:
            met.add(each)
            waiting += references(table.designs[each].recipe, each)
    return False
