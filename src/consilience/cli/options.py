"""Options that several verbs share, and how they become the library's nouns."""

import functools
import inspect
import shlex
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consilience.errors import DeclarationError

if TYPE_CHECKING:
    from consilience.domain import Domain
    from consilience.estimators import PublicRecords
    from consilience.request import Request

Data = Annotated[
    str,
    typer.Argument(
        help="The confidential table: CSV, Parquet (globs too), DuckDB or SQLite, a URL, or spark:catalog.schema.table."
    ),
]
DomainFile = Annotated[Path, typer.Option("--domain", help="The domain file (TOML).")]
Epsilon = Annotated[float | None, typer.Option("--epsilon", help="The privacy budget epsilon; alone it is pure.")]
Delta = Annotated[float | None, typer.Option("--delta", help="With --epsilon: (epsilon, delta), by Gaussian noise.")]
Records = Annotated[
    int | None,
    typer.Option("--records", help="About how many records there are: public or a guess, never read off data."),
]
Rho = Annotated[float | None, typer.Option("--rho", help="The privacy budget as zero-concentrated rho.")]
PlanText = Annotated[
    str | None,
    typer.Option(
        "--plan",
        help="What to measure: '2-way', 'flat', 'marginals age,sex; income', 'histogram age 16', 'aim', "
        "'2-way with sums income by sex'. "
        "By default a plan is chosen for the workload, or for all pairs of attributes.",
    ),
]
WorkloadFile = Annotated[
    Path | None,
    typer.Option("--workload", help="What you want to know (TOML); without --plan one is chosen for it, and says why."),
]
UnnamedShare = Annotated[
    float | None,
    typer.Option(
        "--unnamed-share",
        help="Of the budget, for the tables of attributes the workload does not name; by default 0.05, 0 for none.",
    ),
]
DiscoverShare = Annotated[
    float | None,
    typer.Option(
        "--discover-share", help="Of the budget, for what the domain leaves to be found ('discover'); by default 0.1."
    ),
]
FailureDelta = Annotated[
    float | None,
    typer.Option(
        "--failure-delta",
        help="With --rho: how often values found for 'discover' may break its promise, such as 1e-10.",
    ),
]
SumsShare = Annotated[
    float | None,
    typer.Option(
        "--sums-share",
        help="Of the budget, for sums and means of declared amounts the workload names; by default 0.25; 0 makes them "
        "of the middles of bins.",
    ),
]
LedgerFile = Annotated[
    Path | None, typer.Option("--ledger", help="The ledger; by default it lies beside the data: DATA.ledger.")
]
TotalBudget = Annotated[
    float | None,
    typer.Option("--budget", help="The total of a new ledger, in the unit asked with; by default this first request."),
]
RequestId = Annotated[
    str | None,
    typer.Option("--id", help="A name for this request. The same id with the same contents is never charged twice."),
]
NeighbourRelation = Annotated[str, typer.Option("--neighbours", help="add-remove or replace-one.")]
UnitColumn = Annotated[str | None, typer.Option("--unit", help="The column that names the protected person or unit.")]
MaxRows = Annotated[
    int | None, typer.Option("--max-rows-per-unit", help="With --unit: how many rows of each are kept.")
]
SourceTable = Annotated[str | None, typer.Option("--table", help="The table of a database.")]
SourceQuery = Annotated[
    str | None, typer.Option("--sql", help="A query of a database; one row of its result is protected.")
]
SourceName = Annotated[
    str | None, typer.Option("--name", help="What published files call this source; by default the domain's name.")
]
SparkMaster = Annotated[
    str | None, typer.Option("--spark-master", help="For a table spark:NAME: the master, such as spark://host:7077.")
]
SparkRemote = Annotated[
    str | None,
    typer.Option("--spark-remote", help="For a table spark:NAME: a Connect server, such as sc://host:15002."),
]
AllowClusterDisk = Annotated[
    bool,
    typer.Option(
        "--allow-cluster-disk", help="Spark may shuffle codes of records and units over disks it does not encrypt."
    ),
]
Encoding = Annotated[
    str | None, typer.Option("--encoding", help="The encoding of a text file, such as latin-1; by default as declared.")
]
Delimiter = Annotated[
    str | None, typer.Option("--delimiter", help="What separates its fields, '\\t' for a tab; by default as declared.")
]
Decimal = Annotated[
    str | None, typer.Option("--decimal", help="The decimal mark of numbers in texts; by default as declared.")
]
Thousands = Annotated[
    str | None, typer.Option("--thousands", help="The mark between groups of three digits; by default as declared.")
]
MissingTokens = Annotated[
    list[str] | None,
    typer.Option("--missing-tokens", help="A text that means a missing value; once for each. By default as declared."),
]
Convert = Annotated[
    bool,
    typer.Option(
        "--convert", help="The ledger protects another unit or relation: charge what this costs under its own."
    ),
]
Checked = Annotated[
    bool,
    typer.Option("--checked", help="Do not suggest `domain check --against` before the first spend of a ledger."),
]
Simulate = Annotated[
    int | None,
    typer.Option("--simulate", help="A seed for simulated noise: NOT PRIVATE, and stamped so on every file."),
]
ErrorBars = Annotated[
    bool, typer.Option("--interval", help="Error bars in the bundle's tables, from refits. They spend no budget.")
]
Level = Annotated[float, typer.Option("--level", help="With --interval: how often it is to hold.")]
Refits = Annotated[int, typer.Option("--refits", help="With --interval: how often the fit is repeated.")]
AllowMisfit = Annotated[
    bool,
    typer.Option(
        "--allow-misfit", help="Write the account even if it misses the measurements by far more than their noise."
    ),
]
PublicFile = Annotated[
    str | None,
    typer.Option("--public-records", help="A published table, such as another year's, that the account begins with."),
]
PublicName = Annotated[
    str | None, typer.Option("--public-name", help="What statements call the published table: 'Census 2021'.")
]
TakeOver = Annotated[
    bool, typer.Option("--take-over", help="A process on another machine began this request, and it has ended.")
]
ShowSql = Annotated[
    bool, typer.Option("--show-sql", help="Print the SQL that would count a table in its engine; no row is read.")
]
DryRunOnly = Annotated[bool, typer.Option("--dry-run", help="Tell the price and the noise; touch nothing.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Tell why: the choice of plan and method, and the fit.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

Points = Annotated[
    str | None,
    typer.Argument(help="The confidential points: CSV, Parquet (globs too), DuckDB or SQLite, or spark:TABLE."),
]
Bounds = Annotated[
    str | None,
    typer.Option("--bounds", help="Columns and their public bounds: x=0:100,y=-50:50. Not read off the data."),
]
PointsDomainFile = Annotated[
    Path | None, typer.Option("--domain", help="A domain file with continuous attributes, in place of --bounds.")
]
NewFolder = Annotated[Path | None, typer.Option("--out", help="The folder to write: a new one.")]
EarlierRounds = Annotated[
    Path | None,
    typer.Option("--measurements", help="Noisy rounds of an earlier run, in place of data: spends nothing."),
]
RegionOfPoints = Annotated[
    str, typer.Option("--region", help="box, or ball or radial-ball: less noise in many dimensions.")
]
BarLevel = Annotated[float, typer.Option("--level", help="The level of the error bars.")]
ChainSteps = Annotated[int | None, typer.Option("--steps", help="Steps of each chain; more are more exact.")]
Chains = Annotated[int | None, typer.Option("--chains", help="How many chains.")]
OverwriteFolder = Annotated[bool, typer.Option("--overwrite", help="Replace a folder that this command wrote.")]
Pictures = Annotated[bool, typer.Option("--pictures/--no-pictures", help="Whether to draw.")]


@dataclass(frozen=True)
class Charged:
    """What every verb that spends asks about the source and the ledger."""

    ledger: LedgerFile = None
    budget: TotalBudget = None
    request: RequestId = None
    neighbours: NeighbourRelation = "add-remove"
    unit: UnitColumn = None
    max_rows: MaxRows = None
    table: SourceTable = None
    sql: SourceQuery = None
    encoding: Encoding = None
    delimiter: Delimiter = None
    decimal: Decimal = None
    thousands: Thousands = None
    missing_tokens: MissingTokens = None
    name: SourceName = None
    simulate: Simulate = None
    take_over: TakeOver = False
    convert: Convert = False
    checked: Checked = False
    spark_master: SparkMaster = None
    spark_remote: SparkRemote = None
    allow_cluster_disk: AllowClusterDisk = False

    def written_as(self, domain: "Domain") -> "Domain":
        """The domain of a source that is written as the command line says."""
        how = ("encoding", "delimiter", "decimal", "thousands", "missing_tokens")
        return written_as(domain, **{each: getattr(self, each) for each in how})

    def asked(self, **others: Any) -> "Request":
        """The request for what is asked beside these options."""
        from consilience.request import Request

        same = ("ledger", "budget", "neighbours", "unit", "table", "name", "simulate", "take_over", "convert")
        given = {each: getattr(self, each) for each in (*same, "allow_cluster_disk")}
        others["data"] = self._reached(others["data"])
        return Request(id=self.request, max_rows_per_unit=self.max_rows, query=self.sql, **given, **others)

    def _reached(self, data: str) -> object:
        """The table with the way to its cluster, if it is on Spark."""
        from consilience.source.base import ON_SPARK, SparkTable

        if data is not None and data.startswith(ON_SPARK):
            return SparkTable(data.removeprefix(ON_SPARK), self.spark_master, self.spark_remote)
        if self.spark_master is not None or self.spark_remote is not None:
            raise typer.BadParameter("a table on Spark is named as spark:catalog.schema.table", param_hint="DATA")
        return data

    def planned(self, data: str, domain: Path, plan: str | None, workload: Path | None, **others: Any) -> "Request":
        """The request for a plan, or for the one that suits a workload, of a table that a domain file declares.

        What the domain leaves to be found is found first.
        """
        from consilience.domain import Domain, Workload

        declared = self.written_as(Domain.load(domain))
        if plan is not None and others["unnamed_share"] is not None:
            raise typer.BadParameter("a named plan measures what it names; choose one of --plan and --unnamed-share")
        wanted = None if workload is None else Workload.load(workload)
        return self.asked(data=data, domain=declared, plan=plan, workload=wanted, **others)

    def suggestion(self, domain: Path, data: str, declared: "Domain") -> str | None:
        """The command that compares the domain with the data, unless that was checked."""
        from consilience.source.tables import is_address

        if self.checked or is_address(data) or declared.to_find:
            return None
        return check_command(domain, data, self.ledger, self.table, self.sql, declared)


@dataclass(frozen=True)
class Found:
    """What the verbs ask that find what a domain leaves to be found before they measure."""

    discover_share: DiscoverShare = None
    failure_delta: FailureDelta = None


def charged(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of `Charged` in place of its parameter `charge`, and so for other such classes."""
    signature = inspect.signature(command)
    groups: dict[str, tuple[type, Any]] = {
        name: (each.annotation, inspect.signature(each.annotation).parameters)
        for name, each in signature.parameters.items()
        if isinstance(each.annotation, type) and is_dataclass(each.annotation)
    }

    @functools.wraps(command)
    def expanded(**given: Any) -> None:
        for name, (kind, inner) in groups.items():
            given[name] = kind(**{option: given.pop(option) for option in inner})
        command(**given)

    parameters = [
        part.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, each in signature.parameters.items()
        for part in (groups[name][1].values() if name in groups else [each])
    ]
    expanded.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    expanded.__annotations__ = {each.name: each.annotation for each in parameters}
    return expanded


def written_as(
    domain: "Domain",
    *,
    encoding: str | None,
    delimiter: str | None,
    decimal: str | None,
    thousands: str | None,
    missing_tokens: list[str] | None,
) -> "Domain":
    """The domain of a source that is written as the command line says."""
    return domain.read_as(
        encoding=encoding,
        delimiter=as_delimiter(delimiter),
        decimal=decimal,
        thousands=thousands,
        missing_tokens=missing_tokens or None,
    )


def check_command(
    domain: Path, data: str, ledger: Path | None, table: str | None, sql: str | None, declared: "Domain"
) -> str:
    """The command that compares a domain with the data, written as the source is."""
    how = declared.source_format
    given = {
        "--table": table,
        "--sql": sql,
        "--ledger": ledger,
        "--encoding": how.encoding if how.encoding != "utf-8" else None,
        "--delimiter": how.delimiter,
        **{f"--{key}": mark for key, mark in how.notation.to_declaration().items() if key != "missing_tokens"},
    }
    words = ["consilience", "domain", "check", str(domain), "--against", data]
    words += [str(word) for option, value in given.items() if value is not None for word in (option, value)]
    words += [word for token in how.notation.missing_tokens for word in ("--missing-tokens", token)]
    return shlex.join(words)


def as_delimiter(text: str | None) -> str | None:
    """The delimiter that was typed; a tab is hard to type, and is written as in many languages."""
    return "\t" if text == "\\t" else text


def refuse_existing(path: Path, *, overwrite: bool = False) -> None:
    """Refuse to write over a file, before anything is spent."""
    if path.exists() and not overwrite:
        raise DeclarationError(f"{path} exists already; choose another name, or remove it first")
    if not path.parent.exists():
        raise DeclarationError(f"there is no folder {path.parent}; create it first")


def refuse_both(**given: object) -> None:
    """Refuse what rounds that were measured before take the place of."""
    for name, value in given.items():
        if value is not None:
            what = "data" if name == "data" else f"--{name}"
            raise typer.BadParameter(
                f"it takes the place of data, and {what} was given, too; give one of them", param_hint="--measurements"
            )


def points_domain(data: str | None, bounds: str | None, path: Path | None) -> "Domain":
    """The domain of points, from their bounds or from a file."""
    from consilience.domain import Domain

    if data is None:
        raise typer.BadParameter("name the points, or rounds that were measured before with --measurements")
    if (bounds is None) == (path is None):
        raise typer.BadParameter("give either the bounds or a domain file with --domain", param_hint="--bounds")
    if path is not None:
        return Domain.load(path)
    name = data.rpartition(".")[2] if data.startswith("spark:") else Path(data).name.partition(".")[0]
    return domain_of_bounds(bounds or "", name=name)


def domain_of_bounds(text: str, *, name: str) -> "Domain":
    """A domain of continuous attributes, as people type them: x=0:100,y=-50:50.

    >>> [each.name for each in domain_of_bounds("x=0:100, y=-50:50", name="plane").attributes]
    ['x', 'y']
    """
    from consilience.domain import Attribute, Domain

    found = []
    for part in text.split(","):
        column, equals, interval = part.rpartition("=")
        low, colon, high = interval.partition(":")
        try:
            if not (equals and colon and column.strip()):
                raise ValueError
            found.append(Attribute.continuous(column.strip(), (float(low), float(high))))
        except ValueError:
            raise DeclarationError(
                f"cannot read the bounds {part.strip()!r}; write column=low:high, such as x=0:100"
            ) from None
    return Domain(name, tuple(found))


def public_records_of(file: str | None, name: str | None, domain: "Domain") -> "PublicRecords | None":
    """The public records of these two options, which belong together."""
    if (file is None) != (name is None):
        missing = "--public-name" if name is None else "--public-records"
        raise typer.BadParameter("public records have a file and a name; give both", param_hint=missing)
    if file is None or name is None:
        return None
    from consilience.flow import public_records

    return public_records(file, domain, name=name)
