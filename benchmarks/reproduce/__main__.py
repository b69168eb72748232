"""Regenerate figures of the papers: `python -m benchmarks.reproduce [NAME ...] [--quick]`; without a name, all.

Each writes a CSV, a PNG and its verdicts under `benchmarks/results` (`results/quick` if quick, `results/seed-N` with
`--seed N`). `--compare N` runs nothing: it says which verdicts differ between the results and those of another seed.
"""

import argparse
import importlib
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from benchmarks.reproduce.comparison import compare
from benchmarks.reproduce.figures import Extent, judge_again, reproduce

REPRODUCTIONS: dict[str, str] = {
    "lee2015-linear-programs": "benchmarks.reproduce.lee2015.linear_programs",
    "lee2015-figure-5.1.1": "benchmarks.reproduce.lee2015.figure_5_1_1",
    "lee2015-figure-5.2.1": "benchmarks.reproduce.lee2015.figure_5_2_1",
    "lee2015-figure-5.2.2": "benchmarks.reproduce.lee2015.figure_5_2_2",
    "lee2015-figure-5.3.1": "benchmarks.reproduce.lee2015.figure_5_3_1",
    "lee2015-figure-5.3.2": "benchmarks.reproduce.lee2015.figure_5_3_2",
    "lee2016-figure-1": "benchmarks.reproduce.lee2016.figure_1",
    "mckenna2019-table-1": "benchmarks.reproduce.mckenna2019.table_1",
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
"""The name of each reproduction and its module."""


def main() -> int:
    arguments = read_arguments()
    if arguments.compare is not None:
        return compare(list(REPRODUCTIONS), arguments.compare)
    extent = Extent(arguments.quick, arguments.seed)
    names = arguments.names or list(REPRODUCTIONS)
    if arguments.jobs > 1 and len(names) > 1:
        return run_apart(names, arguments.jobs)
    for name in names:
        module = importlib.import_module(REPRODUCTIONS[name])
        print(f"== {name}", flush=True)
        began = time.perf_counter()
        (judge_again if arguments.from_csv else reproduce)(name, module, extent)
        print(f"== {name}: {time.perf_counter() - began:.0f} s", flush=True)
    return 0


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reproduce",
        description=__doc__,
        epilog="example: python -m benchmarks.reproduce lee2015-figure-5.2.1 --quick",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which to regenerate: {', '.join(REPRODUCTIONS)}")
    parser.add_argument("--quick", action="store_true", help="fewer runs, for a first look")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the seed of the first run")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="so many at a time; what is timed runs alone")
    parser.add_argument("--compare", type=int, metavar="N", help="which verdicts differ from those of another seed")
    parser.add_argument(
        "--from-csv", action="store_true", help="run nothing: pictures and verdicts anew, from the CSV files"
    )
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in REPRODUCTIONS]
    if unknown:
        parser.error(f"there is no reproduction {unknown[0]!r}; there is: {', '.join(REPRODUCTIONS)}")
    if arguments.seed < 0:
        parser.error(f"the seed is {arguments.seed}; give a whole number from 0 up")
    return arguments


TOGETHER = ("qardaji2014-figure-2", "qardaji2014-figure-2-divergence")
"""The two halves of a figure, which are made of the same runs."""
LONGEST = ("mckenna2019-figure-1b", "mckenna2019-figure-1c", "lee2016-figure-1", "lee2015-figure-5.2.1")
"""What takes ten minutes of a processor or more, the longest first; it begins first."""


def run_apart(names: list[str], jobs: int) -> int:
    """Each reproduction in a process of its own, so many at a time; those that are timed come last, one by one."""
    timed = [name for name in names if importlib.import_module(REPRODUCTIONS[name]).ABOUT.timed]
    together = [name for name in TOGETHER if name in names]
    groups = [together if name in together[:1] else [name] for name in names if name not in together[1:]]
    groups.sort(key=lambda group: LONGEST.index(group[0]) if group[0] in LONGEST else len(LONGEST))
    options = [each for each in sys.argv[1:] if each not in REPRODUCTIONS]
    at = options.index("--jobs") if "--jobs" in options else None
    options = options if at is None else options[:at] + options[at + 2 :]

    def run(group: list[str]) -> int:
        return subprocess.run([sys.executable, "-m", "benchmarks.reproduce", *group, *options], check=False).returncode

    with ThreadPoolExecutor(jobs) as workers:
        codes = list(workers.map(run, [group for group in groups if group[0] not in timed]))
    return max([*codes, *(run([name]) for name in timed)], default=0)


if __name__ == "__main__":
    sys.exit(main())
