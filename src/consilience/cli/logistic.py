"""`consilience logistic`: a logistic regression of confidential records, from all rounds of a noisy one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consilience.cli import options
from consilience.cli.console import echo, listen, note, print_json, print_table, progress, tell_chains
from consilience.cli.measure import before_charge, show_preview

if TYPE_CHECKING:
    from consilience.estimators.logistic import RegressionEstimate
    from consilience.measurements import MeasurementSet

EXAMPLE = (
    "Example: consilience logistic patients.csv --domain patients.domain.toml --label cured --features age,dose "
    "--epsilon 1 --out regression"
)


@options.charged
def logistic_command(
    data: options.Points = None,
    label: Annotated[
        str | None, typer.Option("--label", help="What to explain: the upper half of its bounds against the lower.")
    ] = None,
    features: Annotated[
        str | None, typer.Option("--features", help="What explains it, as a,b,c; all other continuous attributes else.")
    ] = None,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    rho: options.Rho = None,
    bounds: options.Bounds = None,
    domain: options.PointsDomainFile = None,
    out: options.NewFolder = None,
    measurements: options.EarlierRounds = None,
    rounds: Annotated[int, typer.Option("--rounds", help="Rounds of noisy gradients; they share the budget.")] = 20,
    step_size: Annotated[
        float, typer.Option("--step-size", help="How far a round moves along its mean gradient.")
    ] = 4.0,
    region: options.RegionOfPoints = "box",
    ridge: Annotated[float, typer.Option("--ridge", help="The weight of the squared coefficients, halved.")] = 1.0,
    level: options.BarLevel = 0.9,
    steps: options.ChainSteps = None,
    chains: options.Chains = None,
    seed: Annotated[int, typer.Option("--seed", help="A public seed of the chains.")] = 0,
    *,
    charge: options.Charged,
    overwrite: options.OverwriteFolder = False,
    pictures: options.Pictures = True,
    dry_run: options.DryRunOnly = False,
    json: options.AsJson = False,
) -> None:
    """Explain a label of confidential records: coefficients with error bars. Spends budget, which the ledger holds."""
    from consilience.iterative import regress_records
    from consilience.measurements import MeasurementSet

    listen()
    declared, suggestion, asked = None, None, None
    amount = {"epsilon": epsilon, "delta": delta, "rho": rho}
    if measurements is not None:
        options.refuse_both(data=data, label=label, features=features, bounds=bounds, domain=domain, **amount)
    else:
        declared = charge.written_as(options.points_domain(data, bounds, domain))
        if domain is not None:
            suggestion = charge.suggestion(domain, str(data), declared)
        plan = _plan(label, features, rounds, step_size, region)
        asked = charge.asked(data=data, domain=declared, plan=plan, **amount)
    if dry_run:
        if asked is None:
            raise typer.BadParameter("rounds that were measured before cost nothing", param_hint="--dry-run")
        show_preview(asked.priced, json=json)
        return
    if out is None:
        raise typer.BadParameter("name the folder to write, or use --dry-run", param_hint="--out")
    if asked is None:
        note("the rounds were measured before: nothing is spent")
    with progress() as show:
        found = regress_records(
            MeasurementSet.load(str(measurements)) if asked is None else asked,
            out,
            ridge=ridge,
            level=level,
            steps=steps,
            chains=chains,
            seed=seed,
            pictures=pictures,
            overwrite=overwrite,
            before_charge=None if declared is None else before_charge(declared, suggestion),
            progress=show,
        )
    _tell(found, out, level, json=json)


def _plan(label: str | None, features: str | None, rounds: int, step_size: float, region: str) -> Any:
    from consilience.plans import Logistic

    if label is None:
        raise typer.BadParameter("name the attribute to explain", param_hint="--label")
    names = None if features is None else [name.strip() for name in features.split(",")]
    kind: Any = region
    return Logistic(label, names, rounds=rounds, step=step_size, region=kind)


def _tell(found: "RegressionEstimate", out: Path, level: float, *, json: bool) -> None:
    from consilience.publication.regressions import REGRESSIONS

    _, measured = REGRESSIONS.open(out)
    if json:
        print_json(_summary(found, measured, out, level))
        return
    _show(found, level)
    echo(measured.privacy.describe())
    drawn = ", two pictures" if (out / REGRESSIONS.picture).exists() else ""
    echo(f"wrote {out}: coefficients.csv, regression.json, measurements.parquet{drawn}")


def _summary(found: "RegressionEstimate", measured: "MeasurementSet", out: Path, level: float) -> dict[str, Any]:
    low, high = found.interval(level)
    shown = {key: value for key, value in found.diagnostics.items() if key not in ("trace", "trace_stride")}
    per_unit = {}
    if found.region == "box":
        least, most = found.interval_in_original_units(level)
        per_unit = {
            "per_unit": found.in_original_units().tolist(),
            "per_unit_low": least.tolist(),
            "per_unit_high": most.tolist(),
        }
    return {
        "folder": str(out),
        "label": found.label,
        "terms": list(found.terms),
        "level": level,
        "coefficients": found.coefficients.tolist(),
        "low": low.tolist(),
        "high": high.tolist(),
        **per_unit,
        "records": found.records,
        "private": found.private,
        "privacy": measured.privacy.to_json(),
        "diagnostics": shown,
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
    tell_chains(found.diagnostics, better="coefficients", many="attributes")


def _cells(value: float, low: float, high: float) -> tuple[str, str]:
    return f"{value:.4g}", f"{low:.4g} – {high:.4g}"
