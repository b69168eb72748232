"""Search for smaller covering designs and merge what is found into the table that ships with the package.

First every construction is tried on the chosen parameters, then annealing goes on for the given time, an equal share
for each design that is not proved smallest. At the end what the finds are parts of is rebuilt, and the table written.
"""

import argparse
import sys
from time import monotonic

from benchmarks.coverings.bounds import schonheim_bound
from benchmarks.coverings.candidates import LARGEST_BLOCK, LARGEST_POINTS
from benchmarks.coverings.constructing import construct, level, settle
from benchmarks.coverings.searching import search
from benchmarks.coverings.table_files import write_table
from consilience.coverings.designs import Key, ShippedDesign, shipped_table

EXAMPLE = "example: python -m benchmarks.coverings --points 45 --block 8 --strength 2 --seconds 60"


def main() -> int:
    arguments = _arguments()
    table = shipped_table()
    keys = [
        (points, block, strength)
        for strength in arguments.strength
        for points in arguments.points
        for block in arguments.block
        if strength < block < points
    ]
    before = dict(table.designs)
    started = monotonic()
    _say(f"{len(keys)} designs; constructions first, then {arguments.seconds:g} seconds of annealing")
    if not arguments.no_constructions:
        construct(table, keys, report=_say)
        _say(f"constructions took {monotonic() - started:.0f} seconds")
    search(table, keys, until=monotonic() + arguments.seconds, seed=arguments.seed, report=_say)
    level(table, report=_say)
    changed = [key for key, design in table.designs.items() if before.get(key) != design]
    if changed:
        _say(f"rebuilding what {len(changed)} changed designs are parts of")
        settle(table, changed, report=_say)
        write_table(table)
    _summary(table.designs, before)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.coverings",
        description=__doc__,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    every = {
        "points": range(3, LARGEST_POINTS + 1),
        "block": range(3, LARGEST_BLOCK + 1),
        "strength": (2, 3, 4),
    }
    for name, values in every.items():
        parser.add_argument(
            f"--{name}",
            nargs="+",
            type=int,
            choices=values,
            default=list(values),
            metavar="N",
            help=f"{name}; all if not given",
        )
    parser.add_argument("--seconds", type=float, default=60.0, help="time for annealing (default 60)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the search (default 0)")
    parser.add_argument("--no-constructions", action="store_true", help="anneal only")
    return parser.parse_args()


def _say(text: str) -> None:
    print(text, flush=True)


def _summary(designs: dict[Key, ShippedDesign], before: dict[Key, ShippedDesign]) -> None:
    """What became smaller, against the size so far and the bound of Schönheim."""
    found = [key for key, design in designs.items() if key in before and design.size < before[key].size]
    print(f"{len(found)} designs became smaller, {len(designs) - len(before)} are new")
    if found:
        print("points  block  strength  so far     now   bound")
    for key in sorted(found, key=lambda key: (key[2], key[1], key[0])):
        points, block, strength = key
        now, so_far = designs[key].size, before[key].size
        print(f"{points:6} {block:6} {strength:9} {so_far:7} {now:7} {schonheim_bound(*key):7}")


if __name__ == "__main__":
    sys.exit(main())
