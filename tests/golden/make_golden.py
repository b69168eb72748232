"""Makes the golden measurement files that do not exist yet; see the README beside it."""

from pathlib import Path

import numpy as np

from consilience.domain import Attribute, Domain, Query, factors
from consilience.domain.constraints import ImpossibleCells
from consilience.domain.public_facts import PublicFacts
from consilience.measurements import (
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    Measurement,
    MeasurementSet,
    PrivacyStatement,
)

FOLDER = Path(__file__).parent

SMALL = Domain("small", (Attribute.categorical("sex", ["Female", "Male"]), Attribute.numeric("age", [0, 18, 65, 100])))

TOWN = Domain(
    "town",
    (
        Attribute.categorical("sex", ["Female", "Male"], missing="Unknown"),
        Attribute.numeric("age", [0, 18, 65, 100]),
        Attribute.numeric("height", [1.0, 1.5, 2.25], integer=False, unlisted="drop"),
        Attribute.hierarchy("place", {"Basel": "Swiss", "Bern": "Swiss", "Köln": "German"}),
        Attribute.continuous("weight", (0.0, 250.5)),
    ),
    (ImpossibleCells((("age", (0,)), ("place", (2,)))),),
    PublicFacts(total=120),
)


def one(measurement: Measurement, **fields: object) -> MeasurementSet:
    """A set of one measurement over the small domain."""
    return MeasurementSet(SMALL, (measurement,), **fields)  # type: ignore[arg-type]


def every_factor() -> tuple[Measurement, ...]:
    queries = [
        Query.of({"sex": factors.Identity(), "age": factors.Prefix()}),
        Query.of({"sex": factors.Total()}),
        Query.of({"place": factors.Value("Swiss")}),
        Query.of({"sex": factors.Subset(("Male", "Unknown"))}),
        Query.of({"age": factors.Range("18..64", None)}),
        Query.of({"age": factors.AllRanges()}),
        Query.of({"place": factors.Buckets.of({"south": ["Basel", "Bern"], "north": ["Köln"]})}),
        Query.of({"age": factors.Mean()}),
        Query.of({"height": factors.Moments(2)}),
        Query.of({"age": factors.Tree(2)}),
        Query.of({"place": factors.Tree(level=0)}),
        Query.of({"age": factors.Haar()}),
        Query.of({"sex": factors.Matrix(2, ((0, 0, 1.0), (0, 1, -0.5), (1, 2, 2.0)), ("contrast", "twice"))}),
        Query(()),
    ]
    noisy = [np.arange(query.bind(TOWN).size) + 0.5 for query in queries]
    return tuple(
        Measurement(query, values, Laplace(2.0), id=f"q{i}")
        for i, (query, values) in enumerate(zip(queries, noisy, strict=True))
    )


def golden_sets() -> dict[str, MeasurementSet]:
    sex, age = Query.marginal("sex"), Query.marginal("age")
    epsilon = PrivacyStatement(spent={"epsilon": "0.5"})
    rho = PrivacyStatement("replace-one", "person, at most 3 rows", {"rho": "0.01"}, notes=("A note.",))
    approximate = PrivacyStatement(spent={"epsilon": "1", "delta": "1e-9"})
    ledger = {"tool": "golden", "ledger": "ledger-1", "release": "r1"}
    censored = np.array([False, True, False])
    return {
        "v1-laplace": one(Measurement(sex, [12.25, -3.5], Laplace(2.5), id="m1"), privacy=epsilon, provenance=ledger),
        "v1-gaussian": one(Measurement(sex, [12.25, -3.5], Gaussian(1.75)), privacy=rho),
        "v1-discrete-laplace": one(Measurement(sex, [12.0, -3.0], DiscreteLaplace(2.5)), privacy=epsilon),
        "v1-discrete-laplace-step": one(Measurement(sex, [12.25, -3.5], DiscreteLaplace(0.75, step=0.25))),
        "v1-discrete-gaussian": one(
            Measurement(sex, [12.0, -3.0], DiscreteGaussian(1.5, step=0.5)), privacy=approximate, private=False
        ),
        "v1-exact": one(Measurement(sex, [12.0, -3.0], Laplace(1.0), id="m1")).with_public(
            total=100, margins={("age", "sex"): np.arange(5.0, 35.0, 5.0).reshape(3, 2) - 5 / 6}
        ),
        "v1-censored": one(Measurement(age, [12.0, 0.0, 15.5], Laplace(2.0), censored=censored, threshold=10.0)),
        "v1-clipped": one(Measurement(age, [0.0, 7.0, 0.0], DiscreteLaplace(2.0), clipped=True)),
        "v1-record-sums": MeasurementSet(
            TOWN,
            tuple(
                Measurement(
                    Query(()),
                    np.array(values),
                    DiscreteLaplace(scale, step=step),
                    kind="record-sums",
                    round=1,
                    extra={
                        "statistic": {
                            "algorithm": "k-means",
                            "part": part,
                            "attributes": ["weight"],
                            "bounds": [[0.0, 250.5]],
                            "region": "box",
                            "bits": 20,
                            "centroids": [[-0.5], [0.25]],
                        }
                    },
                )
                for part, values, scale, step in (
                    ("counts", [57.0, 61.0], 4.0, 1.0),
                    ("sums", [-28.5, 15.25], 4.0, 2.0**-20),
                )
            ),
        ),
        "v1-rounds": MeasurementSet(
            SMALL,
            tuple(
                Measurement(
                    sex, [float(i), 1.0 - i], Gaussian(2.0), id=f"round-{i}", round=i, extra={"picked": [i, "x"]}
                )
                for i in range(3)
            ),
        ),
        "v1-every-factor": MeasurementSet(TOWN, every_factor()),
        "v1-empty": MeasurementSet(SMALL, ()),
    }


if __name__ == "__main__":
    for name, found in golden_sets().items():
        path = FOLDER / f"{name}.parquet"
        if not path.exists():
            found.save(path)
            print(f"wrote {path.name}")
