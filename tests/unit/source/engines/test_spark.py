"""Tables on Spark, within this process: the same counts as this package's own, and nothing refused late."""

import os
import shutil
import sys
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; install it with: pip install 'consilience[spark]'")
if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
    pytest.skip("Spark needs Java, which is not installed here", allow_module_level=True)

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from consilience.domain import Attribute, Domain
from consilience.domain.domains import ImpossibleCells
from consilience.domain.source_format import Summand
from consilience.errors import DeclarationError, SourceError
from consilience.source import open_table
from consilience.source.base import SparkTable
from consilience.source.engines.spark import address_of

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # executors do not know the tests

COUNTED = Domain(
    "people",
    (
        Attribute.categorical("sex", ["F", "M"], missing="unknown"),
        Attribute.categorical("children", ["0", "1", "2"], missing="0", unlisted="many"),
        Attribute.numeric("age", [0, 18, 65], unlisted="clip"),
        Attribute.continuous("income", (0.0, 10.0)),
    ),
    (ImpossibleCells((("age", (0,)), ("children", (2, 3)))),),
)
WEIGHTED = replace(COUNTED, weight=Summand("weight", (0.0, 3.0), 0.5))
MARGINALS = [("sex", "age"), (), ("age", "sex", "children"), ("children",)]


def people(rows=500):
    rng = np.random.default_rng(3)
    values = {
        "sex": ["F", "M", "f", None], "children": [0, 1, 2, 9, None], "age": [-3, 5, 18, 64, 65, None],
        "income": [0.0, 0.5, 9.9, 10.0, 11.0, float("nan"), None], "weight": [0.0, 0.5, 1.5, 7.0, None],
        "person": [*"abcdefghijklmnop", "", None],
    }  # fmt: skip
    return pa.table({name: [each[i] for i in rng.integers(0, len(each), rows)] for name, each in values.items()})


def sum_of(points):
    return np.round(points * 2).astype(np.int64).sum(axis=0)


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """A session within this process, of two cores."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        settings = {
            "spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2", "spark.ui.showConsoleProgress": "false", "spark.log.level": "OFF",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        }  # fmt: skip
        found = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
        yield found
        found.stop()


def test_executors_count_and_sum_what_this_process_counts_and_sums(session, tmp_path):
    pyarrow.parquet.write_table(people(), tmp_path / "people.parquet", row_group_size=90)
    unit = {"unit": "person", "max_rows_per_unit": 3}
    read = session.read.parquet(str(tmp_path / "people.parquet"))
    for frame, files in ((read, True), (read.where("true").repartition(3), False)):
        here = open_table(people(), WEIGHTED)
        there = open_table(frame, WEIGHTED)
        assert there.reads_files == files
        assert repr(there) == "Source('people', counted on Spark)"
        assert all(map(np.array_equal, there.exact_counts(MARGINALS), here.exact_counts(MARGINALS)))
        here = open_table(people(), COUNTED, **unit)
        there = open_table(frame, COUNTED, **unit, allow_cluster_disk=True)
        assert all(map(np.array_equal, there.exact_sums(["income"], [sum_of]), here.exact_sums(["income"], [sum_of])))
    assert there.place == "on Spark, with shuffles on unencrypted disks"
    assert there.exact_points(["income"]) is None


def test_shuffles_over_open_disks_are_refused_unless_they_are_allowed(session):
    frame = session.createDataFrame([("F",)], "sex string")
    domain = Domain("d", (Attribute.categorical("sex", ["F"]),))
    with pytest.raises(DeclarationError, match=r"spark\.io\.encryption\.enabled.*allow_cluster_disk=True"):
        open_table(frame, domain, unit="sex", max_rows_per_unit=1)
    with pytest.raises(DeclarationError, match="values that nobody declared"):
        open_table(frame, domain).exact_value_counts("sex")


def test_frames_that_do_not_fit_their_declaration_are_refused(session):
    frame = session.createDataFrame([("F", 1)], "sex string, age int")
    with pytest.raises(SourceError, match="has no column 'height'"):
        open_table(frame, Domain("d", (Attribute.categorical("height", ["F"]),)))
    with pytest.raises(DeclarationError, match="are for databases"):
        open_table(frame, Domain("d", (Attribute.categorical("sex", ["F"]),)), table="t")
    with pytest.raises(SourceError, match=r"no table 'nobody\.here'"):
        open_table("spark:nobody.here", Domain("d", (Attribute.categorical("sex", ["F"]),)))


def test_a_cluster_is_told_apart_by_its_address_without_who_asks():
    assert address_of(SparkTable("t", remote="sc://me@host:15002/;token=secret")) == "sc://host:15002"
    assert address_of(SparkTable("t", master="spark://host:7077")) == "spark://host:7077"
    assert address_of(SparkTable("t", master="yarn")) == "yarn"
    with pytest.raises(DeclarationError, match="give one of them"):
        SparkTable("t", master="yarn", remote="sc://host")
