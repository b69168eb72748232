"""The blocks of the pages that say what benchmarks found, from the rows under `benchmarks/results`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"


def results(name: str, part: str) -> list[dict[str, Any]]:
    """The rows that a benchmark wrote."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["results"][part]


def as_table(header: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def losses_by_length() -> str:
    """For each tree, ε and length of ranges, every loss's error in parts of the best loss's."""
    rows = [row for row in results("histograms", "histograms") if row["histogram"].startswith("all")]
    ways = [key for key in rows[0] if key.endswith(" / best")]
    header = [
        "tree",
        "ε",
        "length",
        *(way.removesuffix(" / best") for way in ways),
        "elastic 0.7 within 5 % of the best",
    ]
    return as_table(
        header,
        [
            [
                row["tree"],
                f"{row['epsilon']:g}",
                str(row["length"]),
                *(f"{row[way]:.2f}" for way in ways),
                f"{row['elastic 0.7 within 5 %']} of {row['histogram'].split()[1]}",
            ]
            for row in rows
        ],
    )


def long_ranges() -> str:
    """For each tree and ε, how `auto` and its rivals do over all lengths and at the worst one."""
    rows = [row for row in results("totals", "totals") if row["part"] == "ranges" and row["branching"] != "all"]
    ways = [key.removesuffix(" / best") for key in rows[0] if key.endswith(" / best")]
    header = [
        "branching",
        "ε",
        "histograms",
        "`auto` within 5 % of the best",
        *(f"{way}, over all lengths" for way in ways),
    ]
    return as_table(
        [*header, *(f"{way}, worst length" for way in ways)],
        [
            [
                str(row["branching"]),
                f"{row['epsilon']:g}",
                row["half"],
                f"{row['auto within 5 %']} of {row['histograms']}",
                *(f"{row[f'{way} / best']:.2f}" for way in ways),
                *(f"{row[f'{way}, worst length']:.3g}" for way in ways),
            ]
            for row in rows
        ],
    )


def totals_held() -> str:
    """For each sparse problem the mean error of its total, held and not, and what it does to the cells."""
    rows = [row for row in results("totals", "totals") if row["part"] == "totals" and "draws" in row]
    header = ["problem", "ε", "true total", "mean error", "in standard errors", "mean error, not held"]
    return as_table(
        [*header, "error of cells, to not held"],
        [
            [
                row["problem"],
                f"{row['epsilon']:g}",
                f"{row['true total']:,.0f}",
                f"{row['mean error']:,.0f}",
                f"{row['in standard errors']:.1f}",
                f"{row['mean error, not held']:,.0f}" if "mean error, not held" in row else "always held",
                f"{row['cells / not held']:.2f}" if "cells / not held" in row else "",
            ]
            for row in rows
        ],
    )


def bins_by_histogram() -> str:
    """For each histogram the error of single bins against HTree's."""
    rows = [row for row in results("histograms", "histograms") if not row["histogram"].startswith("all")]
    shown = [row for row in rows if row["tree"] == "binary"]
    names = list(dict.fromkeys(row["histogram"] for row in shown))
    found = {(row["histogram"], row["epsilon"]): row for row in shown}
    header = ["histogram", "empty bins", "elastic 0.7, ε = 0.1", "non-negative L2, ε = 0.1"]
    header += ["elastic 0.7, ε = 1", "non-negative L2, ε = 1"]
    return as_table(
        header,
        [
            [f"`{name}`", found[name, 0.1]["empty"]]
            + [
                f"{found[name, epsilon][key]:.3f}"
                for epsilon in (0.1, 1.0)
                for key in ("elastic 0.7 / HTree", "non-negative l2 / HTree")
            ]
            for name in names
        ],
    )


def losses_for_tables() -> str:
    """For each table, ε and size of marginals, every loss's error in parts of the best loss's."""
    rows = results("marginals", "marginals")
    ways = [key for key in rows[0] if key.endswith(" / best")]
    header = ["table", "ε", "attributes", *(way.removesuffix(" / best") for way in ways)]
    lines = [
        [row["table"], f"{row['epsilon']:g}", str(row["ways"]), *(f"{row[way]:.2f}" for way in ways)] for row in rows
    ]
    return as_table(header, lines)


def solver_speed() -> str:
    """Seconds and ratios against the peers."""
    rows = [row for row in results("consistency", "consistency") if "ratio" in row]
    header = ["problem", "peer", "peer's seconds", "times faster than it", "target"]
    return as_table(
        header,
        [
            [row["problem"], row["solver"], f"{row['seconds']:.3g}", _times(row["ratio"]), row.get("target", "")]
            for row in rows
        ],
    )


def stops() -> str:
    """The errors of graphical fits by where they stop, beside those of the measurements and of `Residual`."""
    rows = [row for row in results("reconstruction", "reconstruction") if row["measured"].endswith("triples")]
    shown = ["clipped and rescaled", "graphical", "graphical, noise level", "graphical, converged", "residual"]
    found = {(row["records"], row["way"]): row["error"] for row in rows}
    names = [name for name in dict.fromkeys(row["records"] for row in rows) if (name, shown[1]) in found]
    header = ["15 triples of", "clipped at zero", "`least-risk`", "`noise`", "`converged`", "`Residual`"]
    return as_table(header, [[name, *(f"{found[name, way]:.3g}" for way in shown)] for name in names])


def pairs_by_residual() -> str:
    """The errors and seconds of `Residual` on all pairs of attributes."""
    rows = [row for row in results("reconstruction", "reconstruction") if row["measured"].endswith("pairs")]
    raw = {row["records"]: row["error"] for row in rows if row["way"] == "clipped and rescaled"}
    header = ["all pairs of", "marginals", "cells", "clipped at zero", "`Residual`", "seconds"]
    return as_table(
        header,
        [
            [
                row["records"],
                row["measured"].split()[0],
                f"{row['cells']:,}",
                f"{raw[row['records']]:.2g}",
                f"{row['error']:.2g}",
                f"{row['seconds']:.2g}",
            ]
            for row in rows
            if row["way"] == "residual"
        ],
    )


def graphical_speed() -> str:
    """Times, memory and errors against mbi."""
    rows = [row for row in results("graphical", "graphical") if "ratio" in row and "mbi" in row]
    header = ["problem", "quantity", "Consilience", "mbi", "ratio", "target"]
    return as_table(
        header,
        [
            [
                row["problem"],
                row["quantity"],
                f"{row['consilience']:.3g}",
                f"{row['mbi']:.3g}",
                _times(row["ratio"]),
                row.get("target", ""),
            ]
            for row in rows
        ],
    )


def designs() -> str:
    """How many views the shipped designs have, for some numbers of attributes."""
    from consilience.coverings.designs import covering_size

    points = (16, 24, 32, 45, 64)
    rows = [
        [f"{attributes}", *(f"{covering_size(attributes, 8, strength):,}" for strength in (2, 3, 4))]
        for attributes in points
    ]
    return as_table(["attributes", "views of 8 for all pairs", "for all triples", "for all quadruples"], rows)


def views_by_method() -> str:
    """The median errors of the ways to fit the same views, and of Direct."""
    found: dict[tuple[str, ...], dict[str, float]] = {}
    for row in results("views", "views"):
        if "k" in row:
            key = (row["records"], f"{row['epsilon']:g}", f"{row['views']}", f"{row['k']:.0f}")
            found.setdefault(key, {})[row["way"]] = row["L2 / N"]
    ways = ["direct", "views, by ripple", "views", "residual", "graphical"]
    header = ["records", "ε", "views", "attributes asked", *ways]
    rows = []
    for key, errors in found.items():
        best = min(errors.values())
        shown = [f"{errors[way]:.2g}" if way in errors else "" for way in ways]
        best_shown = f"{best:.2g}"
        rows.append([*key, *(f"**{text}**" if text == best_shown else text for text in shown)])
    return as_table(header, rows) + (
        "\n\nMedian L2 error in parts of the number of records, `python -m benchmarks views`; empty where a model is "
        "too large for its method, or the method was left out."
    )


def iterate_coverage() -> str:
    """How often intervals of centres, sizes and coefficients hold, and how wide they are."""
    rows = results("iterate-coverage", "iterate-coverage")

    def shown(row: dict[str, Any]) -> list[str]:
        sizes = f"{row['sizes covered']:.0%}" if "sizes covered" in row else ""
        silent = f"{row['silent']:.0%}" if "sizes covered" in row else ""
        return [
            row["intervals of"],
            row["measured by"],
            row["records"] + (" (tuned)" if row["tuned"] == "yes" else ""),
            row["region"],
            f"{row['epsilon']:g}",
            f"{row['covered']:.0%}",
            sizes,
            silent,
            f"{row['width']:.2g}",
            f"{row['narrowest']:.2g}",
            *(f"{row[name]:.2g}" if name in row else "" for name in ("size width", "narrowest for sizes")),
            str(row["runs"]),
        ]

    header = ["intervals of", "measured by", "records", "region", "ε", "held", "sizes held", "silent", "width"]
    return (
        as_table([*header, "narrowest", "size width", "narrowest for sizes", "runs"], [shown(row) for row in rows])
        + "\n\nShares of the 90 % intervals that hold (`python -m benchmarks iterate-coverage`). *Silent* are clusters "
        "within the noise, of whose centre nothing is said. *Width* is the median, with the declared range of an "
        "attribute of length 2; *narrowest* is the one width that would have held 90 % by hindsight; those of sizes "
        "are in shares of the records. On records marked *tuned* constants were chosen, with other seeds; those of a "
        "grid in the ball were narrowed after a first judgement of Lifesci."
    )


def cluster_choice() -> str:
    """How far the choice among clusterings is from the best of them."""
    rows = [row for row in results("cluster-choice", "cluster-choice") if "target" in row]
    shown = [[row["points"], f"{row['within a tenth']:.0%}", f"{row['over the best']:.2f}", row["met"]] for row in rows]
    return as_table(["cells", "within a tenth of the best", "farthest from the best", "as wanted"], shown) + (
        "\n\nMean costs over that of the best of the three; 90 % of the cells are to be within a "
        "tenth, and none beyond 1.3 times (`python -m benchmarks cluster-choice`, whose file has a row for each cell, "
        "of several runs of 4 to 10 draws)."
    )


def cluster_costs() -> str:
    """The costs of the ways to read all rounds."""
    rows = results("clusters", "clusters")
    keys = list(dict.fromkeys((row["points"], row["region"], row["epsilon"]) for row in rows))
    ways = list(dict.fromkeys(row["way"] for row in rows))
    found = {(row["points"], row["region"], row["epsilon"], row["way"]): row for row in rows}
    costs = as_table(
        ["points", "region", "ε", "last round", *ways],
        [
            [points, region, f"{epsilon:g}", f"{found[points, region, epsilon, 'default']['last round']:.3g}"]
            + [f"{found[points, region, epsilon, way]['all rounds']:.3g}" for way in ways]
            for points, region, epsilon in keys
        ],
    )
    return (
        "The within-cluster sums of squares of the ways to read all rounds, means of "
        f"{rows[0]['runs']} runs (`python -m benchmarks clusters`):\n\n{costs}"
    )


def regression() -> str:
    """The loss of private logistic regressions beyond that of the fit without noise."""
    rows = results("regression", "regression")
    ways = ["last round", "all rounds", "last round, tuned", "all rounds, tuned"]
    return as_table(
        ["records", "ε", *ways],
        [[row["records"], f"{row['epsilon']:g}", *(f"{row[way]:.2g}" for way in ways)] for row in rows],
    )


def mechanisms() -> str:
    """The errors of all mechanisms on all tables, with the references."""
    rows = results("mechanisms", "mechanisms")
    tables = list(dict.fromkeys(row["records"] for row in rows))
    names = list(dict.fromkeys(row["mechanism"] for row in rows))
    found = {(row["mechanism"], row["records"]): row for row in rows}

    def shown(mechanism: str, table: str) -> str:
        row = found.get((mechanism, table), {})
        if "error" not in row:
            return ""
        reference = f"; reference {row['reference']}" if "reference" in row else ""
        seconds = f"{row['seconds']:.0f}" if row["seconds"] >= 10 else f"{row['seconds']:.2g}"
        return f"{row['error']:.3g} ({seconds} s{reference})"

    lines = [[name, *(shown(name, table) for table in tables)] for name in names]
    return as_table(["", *tables], lines) + (
        "\n\n`python -m benchmarks mechanisms`. References are public implementations on the same data. On tables of "
        "very many triples 500 of them are judged; empty where a mechanism was not run or did not finish. Titanic and "
        "Adult were used to set the rules, the others were not."
    )


def coverage() -> str:
    """How often 95 % intervals held the truth, and how wide they were."""
    rows = results("coverage", "coverage")
    header = ["problem", "ε", "answers", "how many", "coverage", "of the worst one", "clearly below 90 %"]
    header += ["without interval", "median width", "by hindsight", "of one width", "draws"]
    lines = [
        [
            row["problem"],
            f"{row['epsilon']:g}",
            row["answers"],
            f"{row['number']:,}",
            f"{100 * row['coverage']:.1f} %",
            f"{100 * row['worst answer']:.0f} %",
            f"{row['clearly below 90 %']}",
            f"{100 * row['without interval']:.0f} %",
            f"{row['median width']:.2f}",
            f"{row['by hindsight']:.2f}",
            f"{row['of one width']:.2f}",
            f"{row['draws']}",
        ]
        for row in rows
    ]
    return as_table(header, lines) + (
        f"\n\n`python -m benchmarks coverage`, {rows[0]['refits']} refits for each draw of the noise. Widths are "
        "medians, in units of the interval that one measured value has by itself (of quantiles and differences, in "
        "those of what is asked); *by hindsight*: had all intervals "
        "of the row been scaled by the one factor that gives 95 %; *of one width*: had they all had the same width. "
        "The benchmark takes 100 draws, 1,000 of totals, and 10 of the flat table: so few say little of its total."
    )


def interval_cost() -> str:
    """Refits in units of one fit from the beginning."""
    rows = results("intervals", "intervals")
    header = ["problem", "measured cells", "one fit, seconds", "refits", "seconds", "in fits", "in other runs"]
    lines = [
        [
            row["problem"],
            f"{row['cells']:,}",
            f"{row['cold fit']:.2g}",
            f"{row['refits']}",
            f"{row['seconds']:.3g}",
            f"{row['cold fits']:.0f}",
            f"{row['fewest']:.0f} and {row['most']:.0f}",
        ]
        for row in rows
    ]
    return as_table(header, lines) + "\n\n`python -m benchmarks intervals`, on two cores."


def synthetic() -> str:
    """What a classifier keeps of its gain when it learns from synthetic records."""
    rows = [row for row in results("synthetic", "synthetic") if "kept, accuracy" in row]
    header = ["workload", "accuracy", "AUC", "kept of the gain, accuracy", "AUC"]
    header += ["largest 1-way difference, records", "pairs off by, account", "records"]
    lines = [
        [
            row["workload"],
            f"{row['accuracy']:.3f}",
            f"{row['AUC']:.3f}",
            f"{100 * row['kept, accuracy']:.0f} %",
            f"{100 * row['kept, AUC']:.0f} %",
            f"{row['off by']:.2f}",
            f"{100 * row['pairs, account']:.1f} %",
            f"{100 * row['pairs, records']:.1f} %",
        ]
        for row in rows
    ]
    return as_table(header, lines) + (
        "\n\n`python -m benchmarks synthetic`: income on Adult, ε = 1, δ = 10⁻⁹, tested on true records that were held "
        "out; medians of three releases of one split. The gain is over always saying the more frequent class. "
        "Pairs are off by half the sum of differences of shares from the true ones, on average; all pairs *as tables* "
        "are measured themselves, and no model is fitted to them."
    )


def diagnostics() -> str:
    """How often the check of the noise rejects."""
    rows = results("diagnostics", "diagnostics")
    header = ["plan", "noise", "runs", f"rejected at {100 * rows[0].get('level', 0.05):g} %"]
    lines = [[row["plan"], row["declared"], f"{row['runs']}", f"{100 * row['rejected']:.1f} %"] for row in rows]
    return as_table(header, lines) + "\n\n`python -m benchmarks diagnostics`: Adult at ε = 1."


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"


def memory() -> str:
    """Predicted and measured memory of fits and refits, and how many predictions hold."""
    rows = results("memory", "memory")
    header = ["method", "problem", "predicted, MB", "measured, MB", "with a refit, MB", "predicted / measured"]
    header += ["asking, ms", "asking / fit"]
    lines = []
    for row in rows:
        numbers = [f"{row[key]:.0f}" for key in ("predicted", "fit", "refit")]
        ratio = "small" if row["met"] == "small" else f"{row['ratio']:.2f}"
        asking = [f"{1e3 * row['asking']:.1f}", f"{row['share']:.2%}"]
        lines.append([f"`{row['method']}`", row["problem"], *numbers, ratio, *asking])
    told = []
    for answer in ("yes", "no"):
        some = [row["met"] == "yes" for row in rows if row["set by"] == answer and row["met"] != "small"]
        told.append(f"{sum(some)} of {len(some)}")
    quick = sum(row["quick"] == "yes" for row in rows)
    return (
        f"{as_table(header, lines)}\n\nWithin a factor of 1.5: {told[0]} cases by which the constants of the "
        f"predictions were set, and {told[1]} others, the last of the table. Asking took at most a hundredth of the "
        f"fit, or a millisecond, in {quick} of {len(rows)}."
    )


def places_errors() -> str:
    """The mean absolute error at each level of a generated country, by method."""
    rows = [row for row in results("geography", "geography") if row["problem"] == "error"]
    ways = ["measured", "level by level", "Tree", "Geographic"]
    body = [[row["level"], row["of"], *(f"{row[way]:.3g}" for way in ways)] for row in rows]
    return as_table(["level", "of", *ways], body)


def places_coverage() -> str:
    """How often 95 % intervals hold the truth at each level of a generated country."""
    rows = [row for row in results("geography", "geography") if row["problem"] == "coverage"]
    body = [
        [row["level"], row["of"], f"{row['answers']:,}", f"{100 * row['held']:.1f} %", f"{row['width']:.3g}"]
        for row in rows
    ]
    return as_table(["level", "of", "answers", "held", "mean width"], body)


def places_bias() -> str:
    """The mean signed error of the totals of blocks, by size."""
    rows = [row for row in results("geography", "geography") if row["problem"] == "bias"]
    body = [
        [row["of"], f"{row['places']:,}", f"{row['mean signed error']:+.3f}", f"{row['standard error']:.3f}"]
        for row in rows
    ]
    return as_table(["blocks, people", "places", "mean signed error", "standard error"], body)


def places_seconds() -> str:
    """The processor time of a fit."""
    rows = [row for row in results("geography", "geography") if row["problem"] == "scale"]
    body = [[row["of"], f"{row['least squares']:.2g}", f"{row['seconds']:.2g}"] for row in rows]
    return as_table(["places", "seconds of least squares", "with division and whole numbers"], body)


def scale() -> str:
    """What grows with draws, rows, cells and attributes, and how fast."""
    units = {"noise": "draws", "rows": "rows", "cells": "cells", "attributes": "attributes"}
    lines = []
    for row in results("scale", "scale"):
        grows = f"{row['exponent']:.2f}" if "exponent" in row else ""
        ratio = f"{_times(row['ratio'])}×" if "ratio" in row else ""
        size = f"{row['size']:,} {units[row['part']]}"
        lines.append([row["what"], size, f"{row['cpu']:.3g}", f"{row['peak MB']:,.0f}", grows, ratio])
    return as_table(["what", "of how many", "processor time, s", "peak, MB", "exponent", "ratio"], lines)


def startup() -> str:
    """What a newcomer waits for."""
    rows = {row["what"]: row for row in results("startup", "startup")}
    shown = [
        ["what is installed", f"{rows['install']['megabytes']:,.0f} MB"],
        ["`import consilience`", f"{rows['import']['seconds']:.2f} s"],
        ["`consilience --help`", f"{rows['--help']['processor seconds']:.2f} s of processor time"],
        ["a first release that has to compile", f"{rows['first release']['processor seconds']:.0f} s"],
        [
            "the next one, or the first one of a wheel with kernels",
            f"{rows['second release']['processor seconds']:.1f} s",
        ],
    ]
    return as_table(["", "measured on one core"], shown)


READ_BY = {"local": "one local process", "files": "executors, from files", "rows": "Spark's rows"}


def spark_speed() -> str:
    """Processor time of counting on Spark and here."""
    lines = []
    for row in results("spark", "spark"):
        held = f"{row['driver MB']:,.0f}" if "driver MB" in row else ""
        numbers = [f"{row['rows']:,}", f"{row['cpu seconds']:.1f}", f"{row['ratio']:.2f}", held]
        lines.append([row["work"], READ_BY[row["by"]], *numbers])
    header = [
        "32 columns of two values",
        "read by",
        "rows",
        "processor seconds",
        "in units of local",
        "driver with Java, MB",
    ]
    return as_table(header, lines)


def spark_plan() -> str:
    """Core hours for more rows: the processor time of each row at the largest size, times the rows."""
    rows = results("spark", "spark")
    most = max(row["rows"] for row in rows)
    lines = []
    for row in rows:
        if row["rows"] == most:
            hours = [f"{row['cpu seconds'] / most * planned / 3600:,.2g}" for planned in (10**9, 10**11)]
            lines.append([row["work"], READ_BY[row["by"]], f"{1e6 * row['cpu seconds'] / most:.2g}", *hours])
    return as_table(["32 columns of two values", "read by", "µs a row", "10⁹ rows", "10¹¹ rows"], lines)


BLOCKS: dict[str, Callable[[], str]] = {
    "places-errors": places_errors,
    "places-coverage": places_coverage,
    "places-bias": places_bias,
    "places-seconds": places_seconds,
    "losses-by-length": losses_by_length,
    "long-ranges": long_ranges,
    "totals-held": totals_held,
    "bins-by-histogram": bins_by_histogram,
    "losses-for-tables": losses_for_tables,
    "solver-speed": solver_speed,
    "stops": stops,
    "pairs-by-residual": pairs_by_residual,
    "graphical-speed": graphical_speed,
    "regression": regression,
    "cluster-choice": cluster_choice,
    "cluster-costs": cluster_costs,
    "iterate-coverage": iterate_coverage,
    "designs": designs,
    "views-by-method": views_by_method,
    "mechanisms": mechanisms,
    "coverage": coverage,
    "interval-cost": interval_cost,
    "startup": startup,
    "synthetic": synthetic,
    "diagnostics": diagnostics,
    "memory": memory,
    "spark-speed": spark_speed,
    "spark-plan": spark_plan,
    "scale": scale,
}
"""What fills each block, by its name."""
