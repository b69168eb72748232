"""`consilience logistic`: a logistic regression of confidential records, from all rounds of a noisy one."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consilience.cli import options
from consilience.cli.console import echo, note, print_json, print_table, tell_chains
from consilience.cli.iterates import IterateOptions, names_of, or_none, summary, wrote

if TYPE_CHECKING:
    from consilience.estimators.logistic import RegressionEstimate
    from consilience.measurements import MeasurementSet
    from consilience.privacy.measure import Plan

EXAMPLE = (
    "Example: consilience logistic patients.csv --domain patients.domain.toml --label cured --features age,dose "
    "--epsilon 1 --out regression"
)


@options.charged
def logistic_command(
    *,
    label: Annotated[
        str | None, typer.Option("--label", help="What to explain: the upper half of its bounds against the lower.")
    ] = None,
    features: Annotated[
        str | None, typer.Option("--features", help="What explains it, as a,b,c; all other continuous attributes else.")
    ] = None,
    iterates: IterateOptions,
    method: Annotated[
        str, typer.Option("--method", help="rounds of noisy gradients, or privgene: no error bars.")
    ] = "rounds",
    rounds: Annotated[int, typer.Option("--rounds", help="Rounds of noisy gradients; they share the budget.")] = 20,
    step_size: Annotated[
        float, typer.Option("--step-size", help="How far a round moves along its mean gradient.")
    ] = 4.0,
    ridge: Annotated[float, typer.Option("--ridge", help="The weight of the squared coefficients, halved.")] = 1.0,
    seed: Annotated[int, typer.Option("--seed", help="A public seed: the chains, or the candidates of privgene.")] = 0,
    charge: options.Charged,
) -> None:
    """Explain a label of confidential records: coefficients with error bars. Spends budget, which the ledger holds."""
    from consilience.iterative import regress_records

    def plan() -> "Plan":
        from consilience.plans.published.privgene import regression_plan

        if label is None:
            raise typer.BadParameter("name the attribute to explain", param_hint="--label")
        chosen: dict[str, Any] = {"region": iterates.region, "rounds": rounds, "step": step_size, "seed": seed}
        return regression_plan(method, label, names_of(features), **chosen)

    publish = partial(regress_records, ridge=ridge, seed=seed)
    found = iterates.publish(publish, charge, plan, label=label, features=features)
    if found is not None:
        _tell(found, iterates)


def _tell(found: "RegressionEstimate", iterates: IterateOptions) -> None:
    from consilience.publication.regressions import REGRESSIONS

    _, measured = REGRESSIONS.open(iterates.folder)
    if iterates.json:
        print_json(_summary(found, measured, iterates))
        return
    _show(found, iterates.level)
    echo(measured.privacy.describe())
    files = ("coefficients.csv", "regression.json", "measurements.parquet", "coefficients.png", "chain.png")
    echo(wrote(iterates.folder, *files))


def _summary(found: "RegressionEstimate", measured: "MeasurementSet", iterates: IterateOptions) -> dict[str, Any]:
    low, high = found.interval(iterates.level)
    per_unit = {}
    if found.region == "box":
        least, most = found.interval_in_original_units(iterates.level)
        per_unit = {
            "per_unit": found.in_original_units().tolist(),
            "per_unit_low": or_none(least),
            "per_unit_high": or_none(most),
        }
    return {
        "folder": str(iterates.folder),
        "label": found.label,
        "terms": list(found.terms),
        "level": iterates.level,
        "coefficients": found.coefficients.tolist(),
        "low": or_none(low),
        "high": or_none(high),
        **per_unit,
        "records": found.records,
        **summary(found, measured),
    }


def _show(found: "RegressionEstimate", level: float) -> None:
    """The coefficients for attributes between −1 and 1, and per unit where there are such."""
    columns = [(found.coefficients, found.interval(level))]
    header = ["term", "coefficient", f"{level:.0%}"]
    if found.region == "box":
        columns.append((found.in_original_units(), found.interval_in_original_units(level)))
        header += ["per unit", f"{level:.0%}"]
    rows = [
        [term, *(text for values, (low, high) in columns for text in _cells(values[i], low[i], high[i]))]
        for i, term in enumerate(found.terms)
    ]
    print_table(header, rows, numeric=len(header) - 1)
    echo(
        f"log odds of the upper half of {found.label} among about {found.records:,.0f} records; "
        "`coefficient` is for attributes whose bounds are mapped to -1 and 1"
    )
    if found.no_intervals:
        note(found.no_intervals)
        return
    tell_chains(found.diagnostics, better="coefficients", many="attributes")


def _cells(value: float, low: float, high: float) -> tuple[str, str]:
    return f"{value:.4g}", "—" if low != low else f"{low:.4g} – {high:.4g}"
