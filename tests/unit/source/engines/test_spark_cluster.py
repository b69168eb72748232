"""A real cluster, a master and two workers on this machine: the same counts whatever happens to it, and no traces.

The workers are processes that this module starts and stops; everything listens on 127.0.0.1 alone.
"""

import datetime
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; install it with: pip install 'consilience[spark]'")
if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
    pytest.skip("Spark needs Java, which is not installed here", allow_module_level=True)

import pyspark
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from consilience.domain import Attribute, Date, Domain
from consilience.errors import SourceError
from consilience.measurements import MeasurementSet
from consilience.measuring import measure
from consilience.plans import Marginals
from consilience.privacy.budgets import budget
from consilience.privacy.ledger import Ledger
from consilience.source import open_table
from tests.unit.source.engines.test_spark import COUNTED, MARGINALS, WEIGHTED, people, sum_of

pytestmark = pytest.mark.slow
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # executors do not know the tests

HOST = "127.0.0.1"
UNIT = {"unit": "person", "max_rows_per_unit": 3}


def free_port():
    with socket.socket() as found:
        found.bind((HOST, 0))
        return found.getsockname()[1]


def page(url):
    with urllib.request.urlopen(url, timeout=20) as found:
        return found.read().decode()


def wait_for(holds, seconds=180):
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, "the cluster does not answer"
        time.sleep(0.3)
    return found


def alive_workers(ui):
    try:
        return json.loads(page(f"{ui}/json/"))["aliveworkers"]
    except OSError:
        return 0


class Cluster:
    """Where the cluster is, and the folder in which it leaves whatever it leaves."""

    def __init__(self, folder):
        self.folder = folder
        self.port, self.ui = free_port(), f"http://{HOST}:{free_port()}"
        self.master = f"spark://{HOST}:{self.port}"
        for name in ("logs", "events", "local", "work"):
            (folder / name).mkdir()
        self.settings = {
            "spark.driver.bindAddress": HOST, "spark.driver.host": HOST, "spark.driver.memory": "512m",
            "spark.driver.maxResultSize": "16m", "spark.executor.memory": "512m", "spark.executor.cores": "1",
            "spark.sql.shuffle.partitions": "5", "spark.speculation": "true", "spark.speculation.interval": "100ms",
            "spark.speculation.multiplier": "1.5", "spark.speculation.quantile": "0.5",
            "spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file://{folder}/events",
            "spark.eventLog.compress": "false", "spark.io.encryption.enabled": "true", "spark.shuffle.compress":
            "false", "spark.shuffle.spill.compress": "false", "spark.ui.port": str(free_port()),
            "spark.ui.showConsoleProgress": "false", "spark.log.level": "INFO", "spark.local.dir": f"{folder}/local",
            "spark.sql.warehouse.dir": f"{folder}/warehouse", "spark.python.worker.reuse": "true",
        }  # fmt: skip
        self._processes = []

    def start(self):
        port, ui = str(self.port), self.ui.rpartition(":")[2]
        self._run("org.apache.spark.deploy.master.Master", "--host", HOST, "--port", port, "--webui-port", ui)
        for host in (HOST, "localhost"):  # two names: Spark repeats no task on the host that it is slow on
            self._run(
                "org.apache.spark.deploy.worker.Worker", "--host", host, "--webui-port", str(free_port()), "-c", "1",
                "-m", "900m", "-d", str(self.folder / "work"), self.master,
            )  # fmt: skip
        wait_for(lambda: alive_workers(self.ui) == 2)

    def _run(self, kind, *arguments):
        number = len(self._processes)
        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        environment = {
            **os.environ, "SPARK_LOCAL_DIRS": str(self.folder / "local"), "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m", "SPARK_NO_DAEMONIZE": "1",
        }  # fmt: skip
        with (self.folder / "logs" / f"{number}.log").open("w") as log:
            self._processes.append(
                subprocess.Popen([program, kind, *arguments], env=environment, stdout=log, stderr=log)
            )

    def stop(self):
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(timeout=60)

    def session(self, **settings):
        return SparkSession.builder.master(self.master).config(map=self.settings | settings).getOrCreate()

    def traces(self, session, words):
        """Which of these words stand in any file that the cluster has written, or on any page it shows."""
        found = set()
        for path in (each for each in self.folder.rglob("*") if each.is_file()):
            try:
                content = path.read_bytes()
            except OSError:  # removed since
                continue
            found |= {(word, path.parent.name) for word in words if word.encode() in content}
        shown = session.sparkContext.uiWebUrl
        api = f"{shown}/api/v1/applications/{session.sparkContext.applicationId}"
        views = ("jobs", "stages?details=true", "executors", "sql?details=true&planDescription=true&length=1000")
        pages = [f"{api}/{each}" for each in views]
        pages += [f"{shown}/{each}/" for each in ("jobs", "stages", "storage", "environment", "executors", "SQL")]
        pages.append(self.ui)
        for each in pages:
            content = page(each)
            found |= {(word, each) for word in words if word in content}
        return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A master and two workers, which end with the tests of this module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        found = Cluster(tmp_path_factory.mktemp("spark"))
        try:
            found.start()
            yield found
        finally:
            if (active := SparkSession.getActiveSession()) is not None:
                active.stop()
            found.stop()


@pytest.fixture
def session(cluster):
    return cluster.session()


# ----------------------------------------------------------------------------------------------------------------------
# The counts are those of this process.


VALUES = {
    "texts": (pa.string(), ["F", "f", "F ", " F", "", "é", "é", "ß", "'=1+1", "x" * 300, "n/a", None]),
    "whole numbers": (pa.int64(), [0, 1, -1, 7, 2**63 - 1, -(2**63), 2**53 + 1, None]),
    "doubles": (pa.float64(), [0.1, 0.3, -0.0, 5e-324, 1e308, float("inf"), float("nan"), 1e16, 1e-7, None]),
    "singles": (pa.float32(), [0.1, 16777216.0, float("nan"), None]),
    "decimals": (pa.decimal128(8, 2), [Decimal("1.50"), Decimal(0), Decimal("-2"), Decimal("99.99"), None]),
    "truths": (pa.bool_(), [True, False, None]),
    "days": (pa.date32(), [datetime.date(2020, 1, 31), datetime.date(2020, 2, 1), datetime.date(9999, 12, 31), None]),
    "moments": (pa.timestamp("us"), [datetime.datetime(2020, 1, 31, 23, 59, 59, 999999), None]),
    "moments in a zone": (pa.timestamp("us", "UTC"), [datetime.datetime(2020, 1, 31, 23, 59, 59), None]),
}  # fmt: skip
LABELS = [
    "F", "é", "1", "7", "0.1", "0.3", "-0", "1e+16", "16777216", "1.5", "true", "2020-01-31", str(2**63 - 1),
    "2020-01-31T23:59:59.999999", "2020-01-31T23:59:59", "x" * 300,
]  # fmt: skip


def attributes_for(kind):
    yield Attribute.categorical("a", LABELS, missing="nothing", unlisted="another")
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        yield Date.between("a", "2019-12-01", "2020-03-31", by="week", missing="none", unlisted="clip")
    elif not pa.types.is_boolean(kind):
        yield Attribute.numeric("a", [0.0, 0.1, 0.3, 2.5], missing="none", unlisted="beyond")


@pytest.mark.parametrize("case", VALUES)
def test_every_value_has_the_code_that_it_has_here(case, session, tmp_path):
    kind, values = VALUES[case]
    table = pa.table({"a": pa.array(values, kind), "row": [str(i) for i in range(len(values))]})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    frame = session.read.parquet(str(tmp_path / "t.parquet"))
    row = Attribute.categorical("row", [str(i) for i in range(len(values))])
    for attribute in attributes_for(kind):
        domain = Domain("t", (attribute, row)).read_as(missing_tokens=["n/a", "-1"])
        (expected,) = open_table(table, domain).exact_counts([("row", "a")])
        for each in (frame, frame.where("true")):
            assert np.array_equal(open_table(each, domain).exact_counts([("row", "a")])[0], expected)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "people.parquet"
    pyarrow.parquet.write_table(people(20_000), path, row_group_size=500)
    return path


def results(source, amount=None):
    """Everything that a source counts and sums."""
    found = source.exact_counts(MARGINALS) + source.exact_sums(["income"], [sum_of, lambda points: sum_of(points) * 2])
    return [each.tolist() for each in found]


def occurrences(source, name):
    return {value: count for part in source.exact_value_counts(name) for value, count in part.items()}


@pytest.mark.parametrize("partitions", [2, 7, 50])
def test_counts_are_the_same_however_the_table_is_divided(partitions, session, table):
    whole = session.read.parquet(str(table))
    session.conf.set("spark.sql.shuffle.partitions", str(partitions))
    try:
        for frame in (whole, whole.repartition(partitions, "age")):
            for domain, options in (
                (WEIGHTED, {}),
                (COUNTED, UNIT),
                (WEIGHTED, {"unit": "sex", "max_rows_per_unit": 20}),
            ):
                here, there = open_table(table, domain, **options), open_table(frame, domain, **options)
                assert results(there) == results(here)
                if domain is COUNTED and partitions == 7:
                    assert occurrences(there, "sex") == occurrences(here, "sex")
        amounts = [each.exact_counts([("sex",)], amount="age")[0].tolist() for each in
                   (open_table(whole, WITH_AMOUNTS), open_table(table, WITH_AMOUNTS))]  # fmt: skip
        assert amounts[0] == amounts[1]
    finally:
        session.conf.set("spark.sql.shuffle.partitions", "5")


WITH_AMOUNTS = replace(
    WEIGHTED,
    attributes=tuple(replace(each, amount=(0.0, 65.0)) if each.name == "age" else each for each in WEIGHTED.attributes),
)


def test_large_counts_are_added_up_on_the_cluster(session, table, monkeypatch):
    from consilience.source.engines import spark

    monkeypatch.setattr(spark, "MOST_GATHERED", 64)
    frame = session.read.parquet(str(table))
    for options in ({}, UNIT):
        for each in (frame, frame.repartition(7)):
            found = results(open_table(each, COUNTED, **options))
            assert found == results(open_table(table, COUNTED, **options))


# ----------------------------------------------------------------------------------------------------------------------
# Whatever happens to the cluster.


def slowly(seconds, first_attempts_of=None):
    """A step that holds every task up, or the first attempt of one."""

    def step(batches):
        from pyspark import TaskContext

        context = TaskContext.get()
        if first_attempts_of is None or (context.attemptNumber(), context.partitionId()) == (0, first_attempts_of):
            time.sleep(seconds)
        yield from batches

    return step


def executors(session):
    """The processes that run tasks: the parents of the parents of Python's."""

    def parents(batches):
        list(batches)
        time.sleep(1)
        state = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()
        yield pa.RecordBatch.from_arrays([pa.array([int(state[1])], pa.int32())], names=["pid"])

    return {row.pid for row in session.range(0, 4, 1, 4).mapInArrow(parents, "pid int").collect()}


@pytest.mark.skipif(sys.platform != "linux", reason="it looks for processes in /proc")
def test_a_killed_executor_changes_no_count(session, table):
    before = wait_for(lambda: len(found := executors(session)) == 2 and found)
    frame = session.read.parquet(str(table)).repartition(30).mapInArrow(slowly(0.5), schema_of(session, table))
    for options in ({}, UNIT):
        there = open_table(frame, COUNTED, **options)
        victim = (wait_for(lambda: len(found := executors(session)) == 2 and found)).pop()
        killer = threading.Timer(4, os.kill, (victim, signal.SIGKILL))
        killer.start()
        found = results(there)
        killer.join()
        assert not Path(f"/proc/{victim}").exists()
        assert found == results(open_table(table, COUNTED, **options))
    assert executors(session) != before


def test_a_task_that_runs_twice_counts_once(session, table):
    frame = session.read.parquet(str(table)).repartition(10)
    frame = frame.mapInArrow(slowly(30, first_attempts_of=3), schema_of(session, table))
    found = open_table(frame, COUNTED).exact_counts(MARGINALS)
    assert all(map(np.array_equal, found, open_table(table, COUNTED).exact_counts(MARGINALS)))
    api = f"{session.sparkContext.uiWebUrl}/api/v1/applications/{session.sparkContext.applicationId}"
    stages = json.loads(page(f"{api}/stages?details=true"))
    assert any(task["speculative"] for stage in stages for task in stage.get("tasks", {}).values())


def schema_of(session, table):
    return session.read.parquet(str(table)).schema


def test_rows_that_the_driver_could_not_hold_are_counted(session, tmp_path):
    rows = 3_000_000
    rng = np.random.default_rng(1)
    columns = {f"a{i}": rng.integers(0, 2, rows) for i in range(6)}
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "large.parquet", row_group_size=rows // 12)
    frame = session.read.parquet(str(tmp_path / "large.parquet"))
    with pytest.raises(Exception, match="maxResultSize"):
        frame.collect()
    domain = Domain.from_sizes(dict.fromkeys(columns, 2))
    expected = open_table(tmp_path / "large.parquet", domain).exact_counts([tuple(columns)])
    for each in (frame, frame.where("true")):
        assert np.array_equal(open_table(each, domain).exact_counts([tuple(columns)])[0], expected[0])


# ----------------------------------------------------------------------------------------------------------------------
# No traces.


CANARIES = ["CANARY-label-7193", "CANARY-unit-5521", "CANARY-other-9902"]
SPIED = Domain("spied", (Attribute.categorical("a", ["x"], unlisted="other"), Attribute.categorical("b", ["y"])))


@pytest.fixture(scope="module")
def spied(tmp_path_factory):
    path = tmp_path_factory.mktemp("spied") / "spied.parquet"
    rows = 4000
    texts = {"a": CANARIES[0], "u": CANARIES[1], "b": CANARIES[2]}
    pyarrow.parquet.write_table(pa.table({name: [text] * rows for name, text in texts.items()}), path)
    return path


def failing(batches):
    for batch in batches:
        raise ValueError(str(batch.to_pylist()[0]).replace("CANARY", "CANARY of the query"))
    yield


def test_no_value_is_in_any_log_page_event_or_spilled_file(cluster, session, spied, tmp_path):
    options = {"unit": "u", "max_rows_per_unit": 5}
    for frame in (session.read.parquet(str(spied)), session.read.parquet(str(spied)).repartition(3)):
        source = open_table(frame, SPIED, **options)
        assert source.exact_counts([("a", "b")])[0].sum() == 0  # b is dropped
        assert occurrences(source, "a") == {CANARIES[0]: 1}
    broken = session.read.parquet(str(spied)).mapInArrow(failing, "a string, b string, u string")
    ledger = Ledger.create(tmp_path / "ledger", dataset="spied", total=budget(epsilon=2))
    with pytest.raises(SourceError, match="The charge stays") as refused:
        measure(open_table(broken, SPIED), Marginals(["a"]), ledger=ledger, epsilon=1)
    assert "CANARY" not in str(refused.value)
    assert refused.value.__context__ is None
    assert str(ledger.spent) == "1"
    session.sparkContext._jvm.java.lang.System.gc()
    assert cluster.traces(session, CANARIES) == set()


def test_the_search_for_traces_finds_what_an_open_shuffle_leaves(cluster, session, spied):
    session.stop()
    session = cluster.session(**{"spark.io.encryption.enabled": "false"})
    try:
        domain = Domain("spied", (Attribute.categorical("a", ["x"], unlisted="other"),))
        source = open_table(session.read.parquet(str(spied)), domain, unit="u", max_rows_per_unit=5,
                            allow_cluster_disk=True)  # fmt: skip
        assert source.exact_counts([("a",)])[0].sum() == 5
        assert {word for word, _ in cluster.traces(session, CANARIES)} == {CANARIES[1]}
    finally:
        session.stop()


# ----------------------------------------------------------------------------------------------------------------------
# From the command line.


@contextmanager
def defaults(cluster, folder):
    """The settings of the cluster's sessions as a file, as an administrator writes them."""
    folder.mkdir()
    lines = [f"{name} {value}" for name, value in cluster.settings.items() if name != "spark.ui.port"]
    (folder / "spark-defaults.conf").write_text("\n".join([*lines, "spark.ui.enabled false"]))
    yield {**os.environ, "SPARK_CONF_DIR": str(folder), "PYSPARK_PYTHON": sys.executable}


PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "run-where-the-data-is.md"


def commands_of_the_page(address):
    """The commands on the page that name such an address, as words."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("consilience ")]
    return [shlex.split(line)[1:] for line in lines if address in line]


def test_commands_work_end_to_end_on_the_cluster(cluster, tmp_path):
    if (active := SparkSession.getActiveSession()) is not None:
        active.stop()
    pyarrow.parquet.write_table(people(3000), tmp_path / "people.parquet")
    points = np.random.default_rng(2).normal([[0.2, 0.3]] * 1500 + [[0.8, 0.6]] * 1500, 0.05).clip(0, 1)
    label = (points[:, :1] > 0.5).astype(float)
    named = dict(zip("xyl", np.hstack([points, label]).T, strict=True))
    pyarrow.parquet.write_table(pa.table(named), tmp_path / "points.parquet")
    counted = COUNTED.project(["sex", "children", "age"])
    counted.save(tmp_path / "people.toml")
    with defaults(cluster, tmp_path / "conf") as environment:

        def run(verb, data, *options):
            table = f"spark:parquet.`{tmp_path}/{data}.parquet`"
            command = [sys.executable, "-m", "consilience.cli.main", verb, table, "--spark-master", cluster.master]
            command += ["--ledger", str(tmp_path / f"{data}.ledger"), "--budget", "1e7", *options]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path, check=False)
            assert done.returncode == 0, done.stderr[-3000:]
            return done

        (shown,) = commands_of_the_page("spark://cluster:7077")
        here = {
            "spark:survey.people": f"spark:parquet.`{tmp_path}/people.parquet`",
            "spark://cluster:7077": cluster.master,
        }
        command = [sys.executable, "-m", "consilience.cli.main", *(here.get(word, word) for word in shown)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        assert (tmp_path / "people.measurements.parquet").exists()
        (tmp_path / "people.ledger").unlink()
        of_people = ["--domain", "people.toml", "--checked", "--epsilon", "1e5"]
        run("measure", "people", *of_people, "--plan", "2-way", "--out", "two.parquet", "--unit", "person",
            "--max-rows-per-unit", "3")  # fmt: skip
        run("release", "people", *of_people, "--plan", "aim", "--out", "aim", "--unit", "person",
            "--max-rows-per-unit", "3")  # fmt: skip
        run("release", "people", *of_people, "--plan", "mwem sex,age; children", "--out", "mwem", "--unit", "person",
            "--max-rows-per-unit", "3")  # fmt: skip
        small = ["--steps", "20", "--chains", "1", "--no-pictures", "--epsilon", "1e4"]
        run("kmeans", "points", "--clusters", "2", "--method", "rounds", "--bounds", "x=0:1,y=0:1", "--out", "clusters",
            "--name", "points", *small)  # fmt: skip
        run("logistic", "points", "--label", "l", "--rounds", "3", "--bounds", "x=0:1,y=0:1,l=0:1", "--out", "model",
            "--name", "points", *small)  # fmt: skip
    measured = MeasurementSet.load(tmp_path / "two.parquet")
    assert measured.provenance["source"]["counted"] == "on Spark"
    source = open_table(tmp_path / "people.parquet", counted, **UNIT)
    exact = source.exact_counts([each.query.attributes for each in measured])
    for each, counts in zip(measured, exact, strict=True):
        np.testing.assert_allclose(each.values, counts.ravel(), atol=0.5)
    assert all((tmp_path / each).is_dir() for each in ("aim", "mwem", "clusters", "model"))


# ----------------------------------------------------------------------------------------------------------------------
# By a Connect server.


CONNECTED = """
import sys
import numpy as np
from pyspark.sql import SparkSession
from tests.unit.source.engines.test_spark import COUNTED, MARGINALS, WEIGHTED, people, sum_of
from consilience.source import open_table
session = SparkSession.builder.remote("local[2]").getOrCreate()
session.conf.set("spark.sql.shuffle.partitions", "2")
frame = session.read.parquet(sys.argv[1])
for domain, options in ((WEIGHTED, {}), (COUNTED, {"unit": "person", "max_rows_per_unit": 3})):
    here = open_table(sys.argv[1], domain, **options)
    there = open_table(frame, domain, **options, allow_cluster_disk=True)
    for one, other in zip(here.exact_counts(MARGINALS), there.exact_counts(MARGINALS), strict=True):
        assert np.array_equal(one, other)
    assert np.array_equal(*(each.exact_sums(["income"], [sum_of])[0] for each in (here, there)))
session.stop()
print("the same")
"""


def test_connect_counts_the_same(tmp_path):
    pytest.importorskip("grpc", reason="Spark Connect needs grpcio; install pyspark[connect]")
    if (active := SparkSession.getActiveSession()) is not None:
        active.stop()
    pyarrow.parquet.write_table(people(), tmp_path / "people.parquet")
    environment = {
        **os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(Path(__file__).parents[4]),
        "SPARK_LOCAL_IP": HOST,
    }  # fmt: skip
    command = [sys.executable, "-c", CONNECTED, str(tmp_path / "people.parquet")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert "the same" in done.stdout, done.stderr[-3000:]
