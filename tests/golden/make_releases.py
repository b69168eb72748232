"""Makes the golden ledgers, models, bundles, synthetic files and domains that do not exist yet; see the README."""

import multiprocessing
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa

from consilience.cli.domain import draft
from consilience.domain import Attribute, Domain, Query, Workload, factors
from consilience.domain.public_facts import PublicFacts
from consilience.estimators.base import Estimate
from consilience.estimators.choose import ESTIMATORS
from consilience.estimators.clusters import cluster
from consilience.estimators.geographic import Geographic
from consilience.estimators.graphical import Graphical
from consilience.estimators.iterates import Iterates
from consilience.estimators.logistic import regress
from consilience.estimators.published.learning import Learning
from consilience.estimators.reweighted import PublicRecords, Reweighted
from consilience.measurements import Gaussian, Laplace, Measurement, MeasurementSet
from consilience.measuring import measure
from consilience.plans import DualQuery, Flat, Fourier, KMeans, Logistic, Marginals
from consilience.privacy import ledger as ledgers
from consilience.privacy.ledger import Ledger
from consilience.privacy.reservations import Owner
from consilience.publication import write_bundle, write_synthetic
from consilience.publication.iterate_folders import CLUSTERS
from consilience.publication.model_files import save_model
from consilience.source import open_table

FOLDER = Path(__file__).parent
DATA = FOLDER / "data" / "town.csv"

TOWN = Domain(
    "town",
    (
        Attribute.categorical("sex", ["Female", "Male"], missing="Unknown"),
        Attribute.numeric("age", [0, 18, 65, 100]),
        Attribute.categorical("district", ["North", "South"]),
    ),
)
PLAN = Marginals(["age", ("sex", "district")])
OWNER = Owner("0" * 32, "golden", 12345, "a boot 678")
"""Who made the ledgers: they do not tell of the machine that it was."""


def main() -> None:
    for folder in ("data", "ledgers", "models", "bundles", "synthetic", "domains"):
        (FOLDER / folder).mkdir(exist_ok=True)
    makers: dict[str, Callable[[Path], None]] = {"data/town.csv": write_data, "data/points.csv": write_points}
    makers |= {f"ledgers/{name}.ledger": make for name, make in LEDGERS.items()}
    makers |= {f"models/{name}.measurements.parquet": saved_model(name) for name in MODELS}
    makers |= {"models/clusters": write_clusters, "models/regression.json": write_regression}
    makers |= {"bundles/town": write_private_bundle, "bundles/simulated": write_simulated_bundle}
    makers |= {
        f"synthetic/{name}.{suffix}": synthetic(name) for name in ("town", "simulated") for suffix in ("csv", "parquet")
    }
    makers |= {"domains/town.toml": TOWN.save, "domains/drafted.toml": write_draft}
    with mock.patch.object(Owner, "this_process", return_value=OWNER):
        for name, make in makers.items():
            if not (FOLDER / name).exists():
                make(FOLDER / name)
                print(f"wrote {name}")


def write_data(path: Path) -> None:
    """Sixty rows of twenty people, three rows each."""
    rng = np.random.default_rng(0)
    rows = [
        f"p{person:02d},{rng.choice(['Female', 'Male', ''])},{rng.integers(0, 100)},{rng.choice(['North', 'South'])}"
        for person in range(20)
        for _ in range(3)
    ]
    path.write_text("\n".join(["person,sex,age,district", *rows]) + "\n", encoding="utf-8")


def write_points(path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = [f"{x:.2f},{y:.2f},{int(x > 5)}" for x, y in rng.uniform(0, 10, (200, 2))]
    path.write_text("\n".join(["x,y,label", *rows]) + "\n", encoding="utf-8")


def spend(ledger: Ledger, **request: object) -> MeasurementSet:
    """Measure the town; a `unit` in the request has at most three rows."""
    unit = request.pop("unit", None)
    source = open_table(str(DATA), TOWN, unit=unit, max_rows_per_unit=None if unit is None else 3)  # type: ignore[arg-type]
    return measure(source, request.pop("plan", PLAN), ledger=ledger, **request)  # type: ignore[call-overload]


def charged(total: dict[str, float], requests: Iterable[dict[str, object]]) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        ledger = Ledger.open(path, dataset="town", **total)  # type: ignore[arg-type]
        for request in requests:
            spend(ledger, **request)

    return make


def with_dead_reservation(path: Path) -> None:
    """One finished request, and one whose process was killed after the first of its two steps was recorded."""
    spend(Ledger.open(path, dataset="town", epsilon=2.0), epsilon=0.5)
    process = multiprocessing.get_context("fork").Process(target=_die_after_one_step, args=(path,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


class TwoSteps:
    """Two queries, one after the other."""

    def run(self, gate) -> None:
        half = gate.budget.scaled(0.5)
        gate.measure([Query.marginal("sex")], half)
        gate.measure([Query.marginal("district")], half)

    def to_json(self) -> dict[str, str]:
        return {"plan": "two steps"}


def _die_after_one_step(path: Path) -> None:
    record = ledgers.Reservation.record

    def record_and_die(self, step, **contents) -> None:
        record(self, step, **contents)
        os.kill(os.getpid(), signal.SIGKILL)

    ledgers.Reservation.record = record_and_die  # type: ignore[method-assign]
    spend(Ledger.open(path), plan=TwoSteps(), epsilon=0.25, id="dead")


LEDGERS: dict[str, Callable[[Path], None]] = {
    "epsilon": charged({"epsilon": 1.0}, [{"epsilon": 0.5}, {"epsilon": 0.25, "id": "second", "plan": Flat()}]),
    "rho": charged({"rho": 0.5}, [{"rho": 0.125}]),
    "epsilon-delta": charged({"epsilon": 1.0, "delta": 1e-6}, [{"epsilon": 0.5, "delta": 1e-6}]),
    "mixed-units": charged(
        {"rho": 0.5}, [{"rho": 0.125}, {"epsilon": 0.5}, {"epsilon": 0.5, "delta": 1e-6, "id": "approximate"}]
    ),
    "mixed-protection": charged(
        {"epsilon": 2.0},
        [
            {"epsilon": 0.5, "id": "rows"},
            {"epsilon": 0.5, "id": "people", "unit": "person"},
            {"epsilon": 0.5, "id": "replaced", "neighbours": "replace-one"},
        ],
    ),
    "dead": with_dead_reservation,
    "unbound": lambda path: (Ledger.open(path, epsilon=1.0), None)[1],
}


def some_measurements(domain: Domain, queries: Iterable[Query], law: type = Laplace) -> MeasurementSet:
    rng = np.random.default_rng(2)
    truth = np.random.default_rng(0).poisson(5, domain.shape).astype(float)
    found = []
    for i, query in enumerate(queries):
        exact = query.bind(domain).answer_full(truth).ravel()
        found.append(Measurement(query, np.round(exact + rng.laplace(0, 2, exact.size), 2), law(2.0), id=f"q{i}"))
    return MeasurementSet(domain, tuple(found), provenance={"tool": "golden"}, private=False)


TABLE = Domain.from_sizes({"a": 2, "b": 3, "c": 4}, name="table")
FLAGS = Domain.from_sizes(dict.fromkeys("abc", 2), name="flags")
COUNTED = Domain("counted", TABLE.attributes, public=PublicFacts(total=120))


def cliques(*cliques: str) -> list[Query]:
    return [Query.marginal(*names) for names in cliques]


def dual_queries() -> MeasurementSet:
    rng = np.random.default_rng(3)
    columns = {name: rng.integers(0, COUNTED[name].size, 120).astype(str) for name in "abc"}
    plan = DualQuery(Workload.of(cliques("ab", "bc")), draws=10, rounds=20)
    source = open_table(pa.table(columns), COUNTED)
    return measure(source, plan, epsilon=1.0, delta=1e-3, neighbours="replace-one", simulate=0)


CHAIN = lambda: some_measurements(TABLE, cliques("ab", "bc"))  # noqa: E731
MODELS: dict[str, Callable[[], MeasurementSet]] = {
    "tree": lambda: some_measurements(TABLE, cliques("", "a", "ab")),
    "table": CHAIN,
    "matrix": lambda: some_measurements(TABLE, [Query.of({"c": factors.Prefix(), "a": factors.Identity()})]),
    "graphical": CHAIN,
    "graphical-prior": CHAIN,
    "reweighted": CHAIN,
    "residual": CHAIN,
    "views": CHAIN,
    "multiplicative-weights": CHAIN,
    "fourier": lambda: some_measurements(FLAGS, Fourier(2).queries(FLAGS)),
    "learning": lambda: some_measurements(TABLE, cliques("", "a", "b", "c", "ab", "ac", "bc")),
    "uniform": CHAIN,
    "bayesian-network": lambda: some_measurements(TABLE, cliques("a", "ab", "bc")),
    "dual-query": dual_queries,
    "dual-query-model": dual_queries,
    "factored-weights": lambda: some_measurements(COUNTED, cliques("ab", "c"), Gaussian),
    "local-squares": lambda: some_measurements(TABLE, cliques("ab", "bc"), Gaussian),
    "geographic": lambda: some_measurements(TABLE, cliques("", "b", "ab"), Gaussian),
}


def saved_model(method: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        public = PublicRecords.of(TABLE, np.random.default_rng(8).integers(0, TABLE.shape, (40, 3)), name="Census 2021")
        special = {"learning": lambda: Learning(3, 1 / 4), "reweighted": lambda: Reweighted(public)}
        special |= {"graphical-prior": lambda: Graphical(prior=public), "geographic": lambda: Geographic("a")}
        fitted = (special.get(method) or ESTIMATORS[method])().fit(MODELS[method]())
        save_model(fitted, path.with_name(f"{method}.model.parquet"))
        fitted.measurements.save(path)

    return make


POINTS = Domain(
    "points",
    (
        Attribute.continuous("x", (0.0, 10.0)),
        Attribute.continuous("y", (0.0, 10.0)),
        Attribute.continuous("label", (0.0, 1.0)),
    ),
)
FEW_STEPS = Iterates(steps=200, chains=2)


def write_clusters(path: Path) -> None:
    source = open_table(str(FOLDER / "data" / "points.csv"), POINTS)
    measured = measure(source, KMeans(2, attributes=("x", "y"), rounds=2), epsilon=5.0, simulate=0)
    CLUSTERS.publish(cluster(measured, FEW_STEPS), measured, path, pictures=False)


def write_regression(path: Path) -> None:
    source = open_table(str(FOLDER / "data" / "points.csv"), POINTS)
    measured = measure(source, Logistic("label", attributes=("x", "y"), rounds=2), epsilon=5.0, simulate=0)
    regress(measured, FEW_STEPS).save(path)


def town_estimate(*, private: bool) -> Estimate:
    """Fitted to what the golden ledger of epsilon recorded, or to simulated noise."""
    if not private:
        measured = measure(open_table(str(DATA), TOWN), PLAN, epsilon=0.5, simulate=1)
    else:
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copy(FOLDER / "ledgers" / "epsilon.ledger", folder)
            measured = spend(Ledger.open(copy), epsilon=0.5)
    return ESTIMATORS["graphical"]().fit(measured)


def write_private_bundle(path: Path) -> None:
    write_bundle(town_estimate(private=True), path, interval=0.9, refits=20)


def write_simulated_bundle(path: Path) -> None:
    write_bundle(town_estimate(private=False), path)


def synthetic(name: str) -> Callable[[Path], None]:
    return lambda path: (write_synthetic(town_estimate(private=name == "town"), path), None)[1]


def write_draft(path: Path) -> None:
    draft(str(DATA), name="town", out=path)


if __name__ == "__main__":
    main()
