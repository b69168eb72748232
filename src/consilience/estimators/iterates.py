"""How to use every iterate of a noisy algorithm, not only its last (Lee and Kifer 2016): the frame.

An iterative private algorithm releases noisy sums over records in every round and returns what the last round led to.
All rounds are about the same records, so they are read together: a chain walks over datasets and stays at each as long
as it makes all released values likely. The algorithm then runs on these datasets, without noise.

What an algorithm brings along:

    its statistics    φ(x, θ), compiled: a kind (iterates/chain_kernels.py), or a user's (kernels/record_functions.py)
    its problem       target, proposal and starts as arrays, from what it released (iterates/problems.py)
    its refit         the algorithm without noise on simulated records (estimators/clusters.py, estimators/logistic.py)

The published method keeps the single dataset with the greatest posterior. Four things are different here by default,
each because it was measured to be better; `Iterates.as_published()` has none of them.

*All draws count.* E[cost(θ, D) | released] is the cost of θ on all draws put together, so running the algorithm on them
minimises the expected cost. The one best dataset explains noise as well.

*Few points of unequal mass.* Under the uniform prior n' equal points pull toward the uniform law the harder the more
they are: with as many points as records that pull exceeds the evidence, and a long chain ends up worse than it began.
Few points with free masses leave the evidence in charge, and chains of them mix fast.

*A prior that looks at the rounds.* Records gather around centroids. The uniform prior spreads them over the whole cell
of a cluster, which can make quite other clusters look better than those that were seen. A prior in proportion to the
fourth root of the proposal's density does so less.

*Three moves.* Jumps alone are rarely accepted when points are heavy; walks and transfers of mass are.

Post-processing: none of this sees data or spends budget. Seeds are recorded and harmless.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from consilience.domain.declarations import Declaration, suggestion
from consilience.domain.files import write_atomically
from consilience.errors import ConsilienceError, DeclarationError, FileFormatError, MeasurementError
from consilience.estimators.base import Progress, check_choice, check_whole
from consilience.iterates.chain import ChainProblem, ChainRuns, ChainSettings, run_chains
from consilience.iterates.kriging import Kriging
from consilience.measurements import Measurement, MeasurementSet

Array = NDArray[np.float64]
Moves = Literal["all", "jumps"]
Use = Literal["posterior", "best"]
Ratio = Literal["mixture", "component"]
TargetValues = Literal["released", "corrected"]

FEWEST_POINTS, POINTS_PER_CLUSTER = 48, 3
WALK_SHARE, TRANSFER_SHARE = 0.4, 0.3
TRACE_LENGTH = 500
"""Diagnostics keep about so many values of each chain's log posterior."""


@dataclass(frozen=True)
class Iterates:
    """Settings of the chains.

    `steps` are those of one chain, and `burn_in` of them (a third by default) leave no draws. `size` is the number of
    simulated points: three for each cluster and at least 48 by default; "records" takes the noisy number of records.
    `delta` is the variance of a component of the proposal, and where it starts if `tune` is set. `ratio` is
    the exact ratio of mixture densities or that of components, as printed. `target` says which values the posterior is
    about: the released ones, or those corrected to agree (§3.2). `moves="jumps"` is the published chain, and `use` says
    what the result is computed from: all draws or the best dataset. `prior_power` is λ of the prior q^λ, q the density
    of the proposal: 0 is the uniform prior of the paper, 1 takes records to be where the rounds saw clusters. None
    leaves it to the algorithm.

    >>> Iterates(steps=30_000).burn_in_steps
    10000
    """

    steps: int = 60_000
    burn_in: int | None = None
    size: int | Literal["records"] | None = None
    delta: float = 0.001
    ratio: Ratio = "mixture"
    tune: bool = True
    chains: int = 4
    seed: int = 0
    target: TargetValues = "released"
    moves: Moves = "all"
    use: Use = "posterior"
    draws: int = 100
    restarts: int = 5
    prior_power: float | None = None

    def __post_init__(self) -> None:
        least = {"steps": 1, "chains": 1, "seed": 0, "draws": 1, "restarts": 0}
        least |= {} if self.burn_in is None else {"burn_in": 0}
        least |= {} if self.size in (None, "records") else {"size": 1}
        for name, smallest in least.items():
            check_whole(getattr(self, name), name, smallest)
        if self.burn_in_steps >= self.steps:
            raise DeclarationError(
                f"a burn-in of {self.burn_in_steps} leaves none of {self.steps} steps; ask for more steps"
            )
        if isinstance(self.delta, bool) or not isinstance(self.delta, int | float) or not 0 < self.delta < np.inf:
            raise DeclarationError(f"delta is {self.delta!r}; it is a variance above 0, such as 0.001")
        for name, choices in {"ratio": Ratio, "target": TargetValues, "moves": Moves, "use": Use}.items():
            check_choice(getattr(self, name), name, get_args(choices))
        power = 0.0 if self.prior_power is None else self.prior_power
        if isinstance(power, bool) or not isinstance(power, int | float) or not 0 <= power <= 1:
            raise DeclarationError(f"prior_power is {self.prior_power!r}; give a number from 0 to 1, or None")
        if not isinstance(self.tune, bool):
            raise DeclarationError(f"tune is {self.tune!r}; say True or False")

    @staticmethod
    def as_published(
        *, steps: int = 30_000, chains: int = 1, seed: int = 0, target: TargetValues = "corrected"
    ) -> "Iterates":
        """The method as Lee and Kifer print it: the best dataset of one chain of jumps from the last iterate.

        As many points as the released counts say there are records, δ = 0.001 and no tuning, the ratio of components,
        and the values corrected to agree. A regression has none to correct: `target="released"` is for it.
        """
        return Iterates(
            steps=steps,
            chains=chains,
            seed=seed,
            size="records",
            ratio="component",
            target=target,
            tune=False,
            moves="jumps",
            use="best",
            draws=20,
            prior_power=0.0,
        )

    @property
    def burn_in_steps(self) -> int:
        return self.steps // 3 if self.burn_in is None else self.burn_in

    def points(self, clusters: int, records: float) -> int:
        """How many points to simulate."""
        if self.size == "records":
            return max(round(records), 1)
        return max(FEWEST_POINTS, POINTS_PER_CLUSTER * clusters) if self.size is None else int(self.size)

    def run(self, problem: ChainProblem, *, clusters: int, progress: Progress | None = None) -> ChainRuns:
        """The chains of these settings."""
        everything = self.moves == "all"
        settings = ChainSettings(
            size=self.points(clusters, problem.total),
            steps=self.steps,
            burn_in=self.burn_in_steps,
            delta=float(self.delta),
            ratio=self.ratio,
            tune=self.tune,
            walk_share=WALK_SHARE if everything else 0.0,
            transfer_share=TRANSFER_SHARE if everything else 0.0,
            scatter_start=everything,
            rescale=everything,
            prior_power=self.prior_power or 0.0,
            draws=self.draws,
        )
        return run_chains(problem, settings, chains=self.chains, seed=self.seed, progress=progress)

    def to_json(self) -> dict[str, Any]:
        """The settings as plain data."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class SavedIterates:
    """What all rounds of an algorithm speak for: plain data and arrays, which `save` writes and `load` reads back."""

    VERSION: ClassVar[int] = 1
    FORMAT: ClassVar[str]
    ARRAYS: ClassVar[Mapping[str, tuple[str, ...]]]
    """The arrays that a file holds, and what their axes are; axes of one name have one length."""
    TEXTS: ClassVar[Sequence[str]] = ()
    NUMBERS: ClassVar[Sequence[str]] = ()
    UNKNOWN: ClassVar[Sequence[str]] = ()
    """Arrays that may hold NaN, null in a file: what was not measured."""

    attributes: tuple[str, ...]
    private: bool
    """False where the noise was simulated, and protects nobody."""
    method: dict[str, Any] = field(default_factory=dict, kw_only=True)
    diagnostics: dict[str, Any] = field(default_factory=dict, kw_only=True)

    @property
    def no_intervals(self) -> str:
        """Why there are no intervals; empty where there are."""
        return str(self.method.get("no_intervals", ""))

    def to_json(self) -> dict[str, Any]:
        """Plain data; `save` writes it, and `load` reads it back."""
        found: dict[str, Any] = {"format": self.FORMAT, "version": self.VERSION, "attributes": list(self.attributes)}
        found |= {name: getattr(self, name) for name in (*self.TEXTS, *self.NUMBERS)}
        for name in self.ARRAYS:
            values = getattr(self, name)
            if name in self.UNKNOWN and np.isnan(values).any():
                values = values.astype(object)
                values[np.isnan(getattr(self, name))] = None
            found[name] = values.tolist()
        return found | {"private": self.private, "method": self.method, "diagnostics": self.diagnostics}

    def save(self, path: str | Path) -> None:
        """Write the estimate as JSON, whole or not at all."""
        write_atomically(Path(path), (json.dumps(self.to_json(), allow_nan=False) + "\n").encode())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The estimate that `save` wrote; anything else is refused."""
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise FileFormatError(f"cannot read the {cls.FORMAT} in {path}: {reason}; give a saved file") from None
        try:
            return cls._restored(Declaration(json.loads(content), cls.FORMAT))
        except (ValueError, TypeError, RecursionError, ConsilienceError) as error:
            raise FileFormatError(
                f"{path} holds no {cls.FORMAT} of version {cls.VERSION}: {error}; save anew"
            ) from None

    @classmethod
    def _restored(cls, declared: Declaration) -> Self:
        if declared.text("format") != cls.FORMAT or declared.integer("version") != cls.VERSION:
            declared.refuse(f"expected the format {cls.FORMAT!r} of version {cls.VERSION}")
        found: dict[str, Any] = {name: declared.text(name) for name in cls.TEXTS}
        found |= {name: declared.number(name) for name in cls.NUMBERS}
        arrays = {name: np.array(declared.raw(name), dtype=np.float64) for name in cls.ARRAYS}
        names = declared.texts("attributes")
        lengths = {"attributes": len(names), "terms": len(names) + 1, "ends": 2}
        for name, axes in cls.ARRAYS.items():
            shape = arrays[name].shape
            expected = tuple(lengths.setdefault(axis, size) for axis, size in zip(axes, shape, strict=False))
            if len(shape) != len(axes) or shape != expected:
                declared.refuse(f"{name} has the shape {shape}, which does not fit {lengths}")
            if not (np.isfinite(arrays[name]) | (np.isnan(arrays[name]) & (name in cls.UNKNOWN))).all():
                declared.refuse(f"{name} has values that are not finite")
        about = {name: dict(declared.raw(name)) for name in ("method", "diagnostics")}
        return cls(attributes=names, private=declared.flag("private"), **found, **arrays, **about)


def diagnostics(runs: ChainRuns, conditional: Kriging | None) -> dict[str, Any]:
    """How the chains went, as plain data: what to look at before trusting intervals.

    `trace` holds the log posterior at equal distances, a list for each chain. An effective sample size of some dozens
    and an R-hat below about 1.1 say that the chains have seen what there is. `lump` and `misfit` are those of what
    intervals rest on (iterates/kriging.py), None where a round had too many numbers: then on the chains alone.
    """
    jumps, walks, transfers = runs.acceptance_by_move
    traces = runs.traces
    stride = max(1, traces.shape[1] // TRACE_LENGTH)
    return {
        "chains": len(runs.chains),
        "steps": runs.settings.steps,
        "burn_in": runs.settings.burn_in,
        "size": runs.settings.size,
        "delta": [chain.delta for chain in runs.chains],
        "acceptance": runs.acceptance,
        "acceptance_by_move": {"jump": jumps, "walk": walks, "transfer": transfers},
        "best_log_posterior": runs.best_log_posterior,
        "mean_log_posterior": float(traces[:, runs.settings.burn_in :].mean()),
        "effective_sample_size": runs.effective_sample_size,
        "rhat": finite_or_none(runs.rhat),
        "lump": None if conditional is None else conditional.lump,
        "misfit": None if conditional is None else conditional.misfit,
        "trace_stride": stride,
        "trace": traces[:, stride - 1 :: stride].tolist(),
        "seconds": runs.seconds,
    }


def finite_or_none(number: float) -> float | None:
    """The number for a JSON file, which has no infinities."""
    return float(number) if np.isfinite(number) else None


# ----------------------------------------------------------------------------------------------------------------------
# The rounds of an iterative algorithm, read from a measurement set and checked to belong together.
#
# Every measurement of kind "record-sums" describes what it sums: the algorithm, the part of its statistics, what all
# rounds share (attributes, bounds, region, …), and the θ that was in force. An algorithm is known here by its parts and
# by what its rounds share: `ALGORITHMS`.


@dataclass(frozen=True)
class Algorithm:
    """What each round of an algorithm releases, and where its θ and its declarations are found."""

    parts: tuple[str, ...]
    theta: str
    shared: tuple[str, ...]
    plan: str


ALGORITHMS: Mapping[str, Algorithm] = {
    "k-means": Algorithm(("counts", "sums"), "centroids", ("attributes", "bounds", "region", "bits"), "plans.KMeans"),
    "logistic": Algorithm(
        ("count", "gradient"),
        "coefficients",
        ("attributes", "label", "bounds", "region", "bits", "clip", "clip_norm", "step", "radius"),
        "plans.Logistic",
    ),
    "own": Algorithm(
        ("count", "values"),
        "theta",
        ("attributes", "bounds", "region", "bits", "name", "function", "clip", "clip_norm"),
        "plans.OwnRounds",
    ),
}


@dataclass(frozen=True, eq=False)
class Observed:
    """What T rounds of one run released: for each round its parts, all under one set of declarations."""

    algorithm: str
    shared: Mapping[str, Any]
    thetas: Array
    """θ_{t−1} for each round t."""
    rounds: tuple[Mapping[str, Measurement], ...]

    @staticmethod
    def of(measured: MeasurementSet, *, algorithm: str = "k-means") -> "Observed":
        """The rounds of a set that holds one run of the algorithm and nothing else."""
        known = ALGORITHMS.get(algorithm)
        if known is None:
            raise MeasurementError(f"the algorithm {algorithm!r} is not known; {suggestion(algorithm, ALGORITHMS)}")
        rounds = _by_round(measured, algorithm, known)
        first = _statistic(rounds[0][known.parts[0]])
        for parts in rounds:
            for measurement in parts.values():
                _refuse_difference(first, measurement, known)
        missing = [key for key in known.shared if key not in first]
        if missing:
            raise MeasurementError(
                f"the rounds of {algorithm} do not say their {', '.join(missing)}; measure with {known.plan}"
            )
        shared = {key: first[key] for key in known.shared}
        return Observed(algorithm, shared, _thetas(rounds, known), tuple(rounds))

    def values(self, part: str) -> Array:
        """What the part was released as, a row for each round."""
        return np.array([parts[part].values for parts in self.rounds])

    def scales(self, part: str) -> Array:
        """The scale of the part's Laplace noise, or the standard deviation of Gaussian noise, for each round."""
        return np.array([parts[part].noise.scale_parameter for parts in self.rounds])

    @property
    def laplace(self) -> bool:
        """Whether all noise is of Laplace's kind, and not Gaussian; refused where laws mix or values are exact."""
        laws = {each.noise.law.removeprefix("discrete-") for parts in self.rounds for each in parts.values()}
        if laws not in ({"laplace"}, {"gaussian"}):
            raise MeasurementError(
                f"the rounds have {' and '.join(sorted(laws))} noise; give rounds whose noise is all Laplace or all "
                "Gaussian"
            )
        return laws == {"laplace"}


def _by_round(measured: MeasurementSet, algorithm: str, known: Algorithm) -> list[dict[str, Measurement]]:
    """For each round, in order, its parts."""
    found: dict[int, dict[str, Measurement]] = {}
    for each in measured.measurements:
        number, part = _placed(each, algorithm, known)
        parts = found.setdefault(number, {})
        if part in parts:
            raise MeasurementError(
                f"round {number} has its {part} twice; give the measurements of one run, not of several merged ones"
            )
        parts[part] = each
    if not found:
        raise MeasurementError(
            f"there are no measurements, and {algorithm} needs its rounds; measure with {known.plan}"
        )
    for number in range(1, max(found) + 1):
        missing = [part for part in known.parts if part not in found.get(number, {})]
        if missing:
            raise MeasurementError(
                f"round {number} of {max(found)} lacks its {' and '.join(missing)}; give all rounds of the run"
            )
    return [found[number] for number in range(1, max(found) + 1)]


def _placed(measurement: Measurement, algorithm: str, known: Algorithm) -> tuple[int, str]:
    """The round and the part that the measurement is of."""
    statistic = measurement.statistic
    if statistic is None or statistic.get("algorithm") != algorithm:
        raise MeasurementError(
            f"measurement {measurement.name} is no round of {algorithm}, and the set must hold nothing else; "
            f"measure with {known.plan}, or fit a set of other measurements with `estimate`"
        )
    part = statistic.get("part")
    if part not in known.parts or measurement.round is None or measurement.round < 1:
        raise MeasurementError(
            f"measurement {measurement.name} is the part {part!r} of round {measurement.round}; rounds of {algorithm} "
            f"are numbered from 1 and have the parts {' and '.join(known.parts)}"
        )
    if measurement.clipped or measurement.censored is not None:
        raise MeasurementError(
            f"measurement {measurement.name} is clipped or censored; the chain needs every noisy value as it was drawn"
        )
    return measurement.round, str(part)


def _statistic(measurement: Measurement) -> Mapping[str, Any]:
    return measurement.extra["statistic"]


def _refuse_difference(first: Mapping[str, Any], measurement: Measurement, known: Algorithm) -> None:
    other = _statistic(measurement)
    for key in known.shared:
        if first.get(key) != other.get(key):
            raise MeasurementError(
                f"round 1 has the {key} {first.get(key)!r} and round {measurement.round} {other.get(key)!r}; give the "
                "measurements of one run"
            )


def _thetas(rounds: list[dict[str, Measurement]], known: Algorithm) -> Array:
    """θ of each round, on which its parts must agree."""
    found: list[Array] = []
    for number, parts in enumerate(rounds, start=1):
        each = [_plain_theta(measurement, known) for measurement in parts.values()]
        if any(not np.array_equal(each[0], other) for other in each[1:]):
            raise MeasurementError(f"the parts of round {number} were measured under different {known.theta}")
        if found and each[0].shape != found[0].shape:
            raise MeasurementError(
                f"round 1 has {known.theta} of the shape {found[0].shape} and round {number} of {each[0].shape}; give "
                "the measurements of one run"
            )
        found.append(each[0])
    return np.array(found)


def _plain_theta(measurement: Measurement, known: Algorithm) -> Array:
    try:
        theta = np.array(_statistic(measurement)[known.theta], dtype=np.float64)
    except (KeyError, TypeError, ValueError):
        theta = np.array(np.nan)
    if theta.size == 0 or not np.isfinite(theta).all():
        raise MeasurementError(
            f"measurement {measurement.name} does not say its {known.theta} in finite numbers; "
            f"measure with {known.plan}"
        )
    return theta
