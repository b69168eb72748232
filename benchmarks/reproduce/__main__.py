"""Regenerate figures of the papers: `python -m benchmarks.reproduce [NAME ...] [--quick]`; without a name, all.

Each writes a CSV and a PNG under `benchmarks/results` (`results/quick` if quick), and prints whether the claims of the
paper held here.
"""

import argparse
import importlib
import sys

from benchmarks.reproduce.figures import judge_again

REPRODUCTIONS: dict[str, str] = {
    "lee2015-linear-programs": "benchmarks.reproduce.lee2015.linear_programs",
    "lee2015-figure-5.1.1": "benchmarks.reproduce.lee2015.figure_5_1_1",
    "lee2015-figure-5.2.1": "benchmarks.reproduce.lee2015.figure_5_2_1",
    "lee2015-figure-5.2.2": "benchmarks.reproduce.lee2015.figure_5_2_2",
    "lee2015-figure-5.3.1": "benchmarks.reproduce.lee2015.figure_5_3_1",
    "lee2015-figure-5.3.2": "benchmarks.reproduce.lee2015.figure_5_3_2",
    "lee2016-figure-1": "benchmarks.reproduce.lee2016.figure_1",
    "mckenna2019-figure-1a": "benchmarks.reproduce.mckenna2019.figure_1a",
    "mckenna2019-figure-1b": "benchmarks.reproduce.mckenna2019.figure_1b",
    "mckenna2019-figure-1c": "benchmarks.reproduce.mckenna2019.figure_1c",
    "mckenna2019-figure-1d": "benchmarks.reproduce.mckenna2019.figure_1d",
    "mckenna2019-figure-2a": "benchmarks.reproduce.mckenna2019.figure_2a",
    "mckenna2019-figure-2b": "benchmarks.reproduce.mckenna2019.figure_2b",
    "mckenna2019-figure-3": "benchmarks.reproduce.mckenna2019.figure_3",
    "qardaji2014-figure-1": "benchmarks.reproduce.qardaji2014.figure_1",
    "qardaji2014-figure-2": "benchmarks.reproduce.qardaji2014.figure_2",
    "qardaji2014-figure-2-divergence": "benchmarks.reproduce.qardaji2014.figure_2_divergence",
    "qardaji2014-figure-3": "benchmarks.reproduce.qardaji2014.figure_3",
    "qardaji2014-figure-4": "benchmarks.reproduce.qardaji2014.figure_4",
    "qardaji2014-figure-5": "benchmarks.reproduce.qardaji2014.figure_5",
    "qardaji2014-figure-6": "benchmarks.reproduce.qardaji2014.figure_6",
    "qardaji2014-table-flat-direct": "benchmarks.reproduce.qardaji2014.table_flat_direct",
    "qardaji2014-table-views": "benchmarks.reproduce.qardaji2014.table_views",
    "qardaji2014-table-times": "benchmarks.reproduce.qardaji2014.table_times",
}
"""The name of each reproduction and the module whose `run(quick)` makes it and says whether every claim held."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reproduce",
        description=__doc__,
        epilog="example: python -m benchmarks.reproduce lee2015-figure-5.2.1 --quick",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which to regenerate: {', '.join(REPRODUCTIONS)}")
    parser.add_argument("--quick", action="store_true", help="fewer runs, for a first look")
    parser.add_argument(
        "--from-csv", action="store_true", help="run nothing: pictures and verdicts anew, from the CSV files"
    )
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in REPRODUCTIONS]
    if unknown:
        parser.error(f"there is no reproduction {unknown[0]!r}; there is: {', '.join(REPRODUCTIONS)}")
    for name in arguments.names or REPRODUCTIONS:
        print(f"== {name}", flush=True)
        module = importlib.import_module(REPRODUCTIONS[name])
        if arguments.from_csv:
            judge_again(name, module.PICTURE, module.claims)
        else:
            module.run(arguments.quick)
    return 0


if __name__ == "__main__":
    sys.exit(main())
