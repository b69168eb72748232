"""What others wrote into files, and what disks refuse: clear errors, nothing half-written, nothing that runs."""

import csv
import errno
import io
import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import ArrayLike

from consilience.domain import Attribute, Domain
from consilience.errors import DeclarationError, FileFormatError
from consilience.estimators import Estimate, estimate, restore
from consilience.measurements import DiscreteLaplace, Laplace, MeasurementSet, from_long_table
from consilience.measurements.measurement_set import MarginalKey
from consilience.publication import answer_table, cross_table, open_release, write_bundle
from consilience.publication.bundle import folder_in_place_of
from consilience.publication.model_files import load_model, save_model
from consilience.publication.record_files import write_synthetic
from consilience.source import open_table

FORMULAS = ["=1+2", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "＝1", "-5", "'=x", "fine"]
DOMAIN = Domain("=d", (Attribute.categorical("=sum", FORMULAS), Attribute.numeric("x", [-20, -10, 0, 10])))


def fitted(domain: Domain = DOMAIN) -> Estimate:
    tables: dict[MarginalKey, ArrayLike] = {domain.names: np.arange(1.0, domain.cells + 1).reshape(domain.shape)}
    return estimate(MeasurementSet.from_marginals(domain, tables, noise=Laplace(1.0)))


def runs(cell: str) -> bool:
    """Whether a spreadsheet could take the cell for a formula."""
    try:
        float(cell)
    except ValueError:
        return cell[:1] in tuple("=+-@\t\r＝＋－＠") and cell not in DOMAIN["x"].labels
    return False


def test_no_table_holds_text_that_a_spreadsheet_would_run(tmp_path: Path) -> None:
    made = fitted()
    texts = [answer_table(made, query).to_csv() for query in ('by "=sum", x', 'by "=sum"', "by x")]
    texts.append(cross_table(answer_table(made, 'by "=sum", x')).to_csv())
    path = write_bundle(made, tmp_path / "release")
    texts += [each.read_text(encoding="utf-8") for each in (path / "tables").iterdir()]
    texts.append(write_synthetic(made, tmp_path / "records.csv", 500).read_text(encoding="utf-8"))
    cells = [cell for text in texts for row in csv.reader(io.StringIO(text)) for cell in row]
    assert not any(runs(cell) for cell in cells)
    assert {"'=1+2", "''=x", "-5", "-20..-11", "fine"} <= set(cells)


def test_synthetic_records_and_tables_with_such_labels_are_read_back_as_they_were(tmp_path: Path) -> None:
    made = fitted()
    path = write_synthetic(made, tmp_path / "records.csv", 500)
    other = write_synthetic(made, tmp_path / "records.parquet", 500)
    counts = [open_table(each, DOMAIN).exact_counts([DOMAIN.names])[0] for each in (path, other)]
    assert counts[0].sum() == 500
    assert np.array_equal(counts[0], counts[1])
    (tmp_path / "table.csv").write_text(answer_table(made, 'by "=sum"').to_csv(), encoding="utf-8")
    found = from_long_table(
        tmp_path / "table.csv",
        DOMAIN,
        keys=["=sum"],
        value="estimate",
        column_of={"=sum": "'=sum"},
        noise=DiscreteLaplace(1.0),
        neighbours="add-remove",
        clipped=False,
        released="all",
    )
    assert np.allclose(next(iter(found)).values, made.marginal("=sum"))


def test_labels_that_csv_cannot_tell_apart_are_left_to_parquet(tmp_path: Path) -> None:
    made = fitted(Domain("d", (Attribute.categorical("a", ["=x", "'=x"]),)))
    with pytest.raises(DeclarationError, match="parquet"):
        write_synthetic(made, tmp_path / "records.csv", 5)
    write_synthetic(made, tmp_path / "records.parquet", 5)


def test_tables_of_attributes_with_long_names_have_short_unique_file_names(tmp_path: Path) -> None:
    names = ["\U0001d54f" * 80, "\U0001d54f" * 79 + "Y", "\U0001d54f" * 79 + "y", "n" * 200, "n" * 201]
    made = fitted(Domain("d", tuple(Attribute.categorical(name, ["0", "1"]) for name in names)))
    path = write_bundle(made, tmp_path / "release")
    files = [each.name for each in (path / "tables").glob("*.csv")]
    assert len({name.casefold() for name in files}) == len(files) == 7
    assert max(len(name.encode()) for name in files) <= 100
    assert open_release(path).estimate.domain.names == tuple(names)


@pytest.mark.parametrize("call", ["write_text", "fsync", "replace"])
def test_a_full_disk_leaves_nothing_behind_and_the_old_bundle_in_place(call, tmp_path: Path, monkeypatch) -> None:
    made = fitted()
    old = write_bundle(made, tmp_path / "old")
    before = {each: each.read_bytes() for each in old.rglob("*") if each.is_file()}

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for target, overwrite in ((tmp_path / "new", False), (old, True)):
        with monkeypatch.context() as patch:
            patch.setattr(*((Path, call) if call == "write_text" else (os, call)), full)
            with pytest.raises(FileFormatError, match="No space left"):
                write_bundle(made, target, overwrite=overwrite)
    assert {each: each.read_bytes() for each in old.rglob("*") if each.is_file()} == before
    assert [each.name for each in tmp_path.iterdir()] == ["old"]
    assert open_release(old).estimate.total == made.total


def test_a_folder_whose_last_step_fails_gives_the_old_one_back(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "kept").write_text("old")
    real = os.replace

    def fails_for_new(source, target):
        if Path(source).name == "new":
            raise OSError(errno.EIO, "Input/output error")
        real(source, target)

    monkeypatch.setattr(os, "replace", fails_for_new)
    with pytest.raises(FileFormatError, match="Input/output"), folder_in_place_of(tmp_path / "out") as building:
        (building / "file").write_text("new")
    assert (tmp_path / "out" / "kept").read_text() == "old"


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no endless file")
def test_a_bundle_with_a_link_out_of_it_is_refused_unread(tmp_path: Path) -> None:
    path = write_bundle(fitted(), tmp_path / "release")
    (path / "tables" / "total.csv").unlink()
    (path / "tables" / "total.csv").symlink_to("/dev/zero")
    with pytest.raises(FileFormatError, match="no plain file"):
        open_release(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("method", b"5"),
        ("method", b'"table"'),
        ("method", b"[" * 100_000),
        ("method", b"\xff\xfe"),
        ("method", b'{"method": ["table"]}'),
        ("stats", b"[]"),
        ("status", b"odd"),
        ("version", b"\xff"),
        ("shape", b""),
        ("name", b""),
    ],
)
def test_a_model_with_odd_contents_is_refused(key, value, tmp_path: Path) -> None:
    made = fitted()
    save_model(made, tmp_path / "model.parquet")
    table = pq.read_table(tmp_path / "model.parquet")
    metadata = dict(table.schema.metadata)
    if key == "shape":
        table = table.set_column(1, "shape", pa.array([[-1, 24]]))
    elif key == "name":
        table = table.set_column(0, "name", pa.array([b"\xff"], pa.binary()).view(pa.string()))
    else:
        metadata[f"consilience.{key}".encode()] = value
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "model.parquet")
    with pytest.raises(FileFormatError):
        restore(load_model(tmp_path / "model.parquet"), made.measurements)


def test_scopes_that_are_none_are_refused(tmp_path: Path) -> None:
    made = fitted()
    save_model(made, tmp_path / "model.parquet")
    saved = load_model(tmp_path / "model.parquet")
    for method in ({"method": "graphical", "scopes": 5}, {"method": "bayesian-network", "families": [1]}):
        with pytest.raises(FileFormatError):
            restore(saved.__class__(method, saved.status, saved.stats, saved.arrays), made.measurements)


def test_json_and_messages_show_control_characters_and_do_not_obey_them(tmp_path: Path, capsys) -> None:
    from consilience.cli.answer import print_answers
    from consilience.cli.console import note, print_json

    odd = "red\x1b[31m\x9b2J\u202egnp"
    made = fitted(Domain("d", (Attribute.categorical("a", [odd, "b"]),)))
    print_answers(answer_table(made, "by a"))
    note(odd)
    print_json({"label": odd})
    shown = capsys.readouterr()
    assert not set("\x1b\x9b\u202e") & set(shown.out + shown.err)
    assert "red\\u001b[31m" in shown.out
    assert json.loads(shown.out[shown.out.index("{") :]) == {"label": odd}
