"""Files, queries and plans that nobody would write are read or refused: no other error, no hang, no flood of memory.

Most of them are well-formed, so that they get past the first check: plain data of the right shape with a few changes,
written as TOML, JSON or Parquet as it should be, and bundles with checksums made anew. `make test-slow` reads 10,000 of
each kind and prints how many were accepted.
"""

import hashlib
import json
import multiprocessing
import signal
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from mutations import Nonsense

GOLDEN = Path(__file__).parents[1] / "golden"
LONGEST = 10
"""Seconds of CPU for one file."""
MOST_MEMORY = 1e9
"""Bytes for all of a kind's files, with everything that is imported to read them."""


class Outcome(NamedTuple):
    accepted: int
    refused: int
    longest_message: int
    memory: float


def _domain():
    from consilience.domain import Domain

    return Domain.load(GOLDEN / "domains" / "town.toml")


NAMES = ("sex", "age", "district")
VALUES = ("Female", "Male", "Unknown", "0", "17", "18", "64", "0..17", "65", "100", "North", "South", '"18..64"', "99")


def query(nonsense: Nonsense, folder: Path) -> None:
    from consilience.domain import Query

    found = Query.parse(nonsense.question(NAMES, VALUES))
    found.bind(_domain())
    found.describe()


def plan(nonsense: Nonsense, folder: Path) -> None:
    from consilience.measuring import price
    from consilience.plans.texts import plan_from_text

    text = nonsense.one_of(
        (
            "2-way", "1-way", "3-way", "flat", "marginals sex,age", "histogram age", "wavelet age", "efpa age",
            "php age", "dawa age", "matrix age", "low-rank age", "views 2", "mwem", "aim", "mst", "independent",
        )
    )  # fmt: skip
    for _ in range(int(nonsense.rng.integers(3))):
        place = int(nonsense.rng.integers(len(text) + 1))
        text = (
            text[:place] + nonsense.one_of((" ", ",", "-", "9", "x", "age", "\x00", "(", "é", "99999")) + text[place:]
        )
    chosen = plan_from_text(text)
    price(_domain(), chosen, epsilon=float(nonsense.one_of((0.1, 1.0, 1e-9, 1e6))))


def toml(path: Path, tree: Any) -> Path:
    import tomli_w

    try:
        path.write_bytes(tomli_w.dumps(tree).encode("utf-8", "surrogatepass"))
    except (TypeError, ValueError, AttributeError):  # plain data that TOML cannot hold
        path.write_text("name = 1")
    return path


def domain(nonsense: Nonsense, folder: Path) -> None:
    from consilience.domain import Domain

    tree = tomllib.loads((GOLDEN / "domains" / "town.toml").read_text(encoding="utf-8"))
    tree["attributes"]["home"] = {"kind": "hierarchy", "parents": {"Bern": "Swiss", "Basel": "Swiss", "Lyon": "French"}}
    tree["attributes"]["weight"] = {"kind": "continuous", "bounds": [0.0, 250.5]}
    tree["attributes"]["income"] = {"kind": "numeric", "from": 0, "to": 100, "step": 10, "unlisted": "drop"}
    tree["impossible"] = [{"age": [0, 18], "district": ["North"]}]
    tree["public"] = {"total": 61}
    path = toml(folder / "domain.toml", nonsense.changed(tree))
    if nonsense.chance(0.1):
        path.write_bytes(nonsense.damaged(path.read_bytes()))
    Domain.load(path).save(folder / "again.toml")


def workload(nonsense: Nonsense, folder: Path) -> None:
    from consilience.domain import Workload

    asks = [nonsense.question(NAMES, VALUES)] if nonsense.chance(0.5) else []
    tree: dict[str, Any] = {"queries": [{"ask": "by age, sex", "weight": 2.0}, *({"ask": ask} for ask in asks)]}
    tree["queries"].append(
        {"factors": [{"kind": "identity", "attribute": "sex"}, {"kind": "tree", "attribute": "age", "branching": 2}]}
    )
    Workload.load(toml(folder / "workload.toml", nonsense.changed(tree))).check(_domain())


def parquet(path: Path, nonsense: Nonsense, original: Path) -> Path:
    """A copy of a Parquet file with changes to its rows and to the plain data in its texts and metadata."""
    import pyarrow.parquet as pq

    table = pq.read_table(original)
    rows = [{name: _unpacked(value) for name, value in row.items()} for row in table.to_pylist()]
    about = {key.decode(): _unpacked(value.decode()) for key, value in (table.schema.metadata or {}).items()}
    for _ in range(20):  # a change may leave no table at all
        changed = (nonsense.changed(rows, most=2), about) if nonsense.chance(0.6) else (rows, nonsense.changed(about))
        if _write(path, table.schema, *changed):
            return path
    path.write_bytes(nonsense.damaged(original.read_bytes()))
    return path


def _write(path: Path, schema: Any, rows: Any, about: Any) -> bool:
    """Write the table if it is one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        columns = [[_packed(row[name]) for row in rows] for name in schema.names]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        metadata = {str(key): str(_packed(value)) for key, value in about.items()}
        pq.write_table(pa.Table.from_arrays(arrays, names=schema.names).replace_schema_metadata(metadata), path)
    except (pa.ArrowException, TypeError, KeyError, AttributeError, OverflowError, UnicodeError, ValueError):
        return False
    return True


def _unpacked(value: Any) -> Any:
    try:
        return _Json(json.loads(value)) if isinstance(value, str) and value[:1] in "{[" and value else value
    except ValueError:
        return value


class _Json(dict):
    """Plain data that stands in a file as text."""

    def __init__(self, content: Any) -> None:
        super().__init__(content=content)


def _packed(value: Any) -> Any:
    return json.dumps(value.get("content")) if isinstance(value, _Json) else value


def measurements(nonsense: Nonsense, folder: Path) -> None:
    from consilience.measurements import MeasurementSet

    original = nonsense.one_of(sorted(GOLDEN.glob("v1-*.parquet")))
    found = MeasurementSet.load(parquet(folder / "measurements.parquet", nonsense, original))
    found.privacy.describe()
    found.save(folder / "again.parquet")


def model(nonsense: Nonsense, folder: Path) -> None:
    from consilience.estimators import restore
    from consilience.measurements import MeasurementSet
    from consilience.publication.model_files import load_model

    original = nonsense.one_of(sorted((GOLDEN / "models").glob("*.model.parquet")))
    saved = load_model(parquet(folder / "model.parquet", nonsense, original))
    measured = MeasurementSet.load(original.with_name(original.name.replace(".model.", ".measurements.")))
    estimate = restore(saved, measured)
    estimate.marginal(estimate.domain.counted_names[0])


def bundle(nonsense: Nonsense, folder: Path) -> None:
    import shutil

    from consilience.publication import open_release

    copy = folder / "bundle"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(GOLDEN / "bundles" / "town", copy)
    manifest = json.loads((copy / "release.json").read_text(encoding="utf-8"))
    what = nonsense.one_of(("manifest", "manifest", "measurements.parquet", "model.parquet", "table"))
    if what == "manifest":
        manifest = nonsense.changed(manifest)
    elif what == "table":
        name = nonsense.one_of(sorted((copy / "tables").iterdir()))
        name.write_bytes(nonsense.damaged(name.read_bytes()))
    else:
        parquet(copy / what, nonsense, copy / what)
    if isinstance(manifest, dict) and isinstance(manifest.get("files"), dict):
        for path in (each for each in copy.rglob("*") if each.is_file()):
            if (name := str(path.relative_to(copy))) in manifest["files"]:
                manifest["files"][name] = hashlib.sha256(path.read_bytes()).hexdigest()
    (copy / "release.json").write_text(json.dumps(manifest), encoding="utf-8", errors="surrogatepass")
    open_release(copy).estimate.marginal("age")


def synthetic(nonsense: Nonsense, folder: Path) -> None:
    from consilience.file_checks import check

    check(parquet(folder / "synthetic.parquet", nonsense, GOLDEN / "synthetic" / "town.parquet"))


def source(nonsense: Nonsense, folder: Path) -> None:
    from consilience.source import open_table

    path = folder / "town.csv"
    path.write_bytes(nonsense.damaged((GOLDEN / "data" / "town.csv").read_bytes()))
    open_table(path, _domain()).exact_counts([("sex", "age")])


def long_table(nonsense: Nonsense, folder: Path) -> None:
    from consilience.measurements import DiscreteLaplace
    from consilience.measurements.importers import from_long_table

    path = folder / "counts.csv"
    lines = ["sex,district,n"] + [
        f"{a},{b},{k}" for k, a in enumerate(("Female", "Male", "Unknown")) for b in VALUES[-4:-2]
    ]
    text = "\n".join(lines).encode()
    path.write_bytes(nonsense.damaged(text) if nonsense.chance(0.8) else text)
    released, threshold = nonsense.one_of((("all", None), ("above-threshold", 3.0), ("above-threshold", 3.0)))
    from_long_table(
        path, _domain(), keys=["sex", "district"], value="n", noise=DiscreteLaplace(2.0), neighbours="add-remove",
        clipped=False, released=released, threshold=threshold,
    )  # fmt: skip


KINDS: dict[str, Callable[[Nonsense, Path], None]] = {
    each.__name__: each
    for each in (
        query, plan, domain, workload, measurements, model, bundle, synthetic, source, long_table,
    )
}  # fmt: skip


def read_many(kind: str, files: int, seed: int, folder: Path) -> Outcome:
    """How many of a kind's files were accepted and refused; anything else raises, with the seed that repeats it."""
    import resource

    from consilience.errors import ConsilienceError

    accepted = refused = longest = 0
    for number in range(files):
        # Work is timed, not the clock on the wall; the first file may also have to compile what reads it.
        signal.setitimer(signal.ITIMER_PROF, LONGEST if number else 10 * LONGEST)
        try:
            KINDS[kind](Nonsense(seed + number), folder)
            accepted += 1
        except ConsilienceError as error:
            refused += 1
            longest = max(longest, len(str(error)))
        except BaseException as error:
            raise AssertionError(f"{kind} {seed + number}: {type(error).__name__}: {str(error)[:300]}") from error
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    return Outcome(accepted, refused, longest, 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


@pytest.fixture
def _timer():
    def ring(*_):
        raise TimeoutError(f"more than {LONGEST} seconds of work")

    before = signal.signal(signal.SIGPROF, ring)
    yield
    signal.signal(signal.SIGPROF, before)


@pytest.mark.skipif(not hasattr(signal, "SIGPROF"), reason="a timer is needed to notice a hang")
@pytest.mark.usefixtures("_timer")
@pytest.mark.parametrize("kind", KINDS)
def test_nonsense_is_read_or_refused(kind, tmp_path):
    found = read_many(kind, 60, 0, tmp_path)
    assert found.accepted > 0
    assert found.refused > 0
    assert found.longest_message <= 2000


def _read_many_alone(given: tuple[str, int, int, str]) -> Outcome:
    def ring(*_: object) -> None:
        raise TimeoutError(f"more than {LONGEST} seconds of work")

    signal.signal(signal.SIGPROF, ring)
    kind, files, seed, folder = given
    return read_many(kind, files, seed, Path(folder))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGPROF"), reason="a timer is needed to notice a hang")
@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand_pieces_of_nonsense_are_read_or_refused(kind, tmp_path, capsys):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.apply(_read_many_alone, ((kind, 10_000, 10**6, str(tmp_path)),))
    with capsys.disabled():
        print(f"\n{kind}: {found.accepted} accepted, {found.refused} refused, {found.memory / 1e6:.0f} MB")
    assert found.longest_message <= 2000
    assert found.memory < MOST_MEMORY
    assert found.accepted >= 500
