"""Delimited text: the header decides how a file is read, and every record is read somehow."""

import gzip

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from consilience.domain import Attribute, Domain
from consilience.source import delimited, open_table
from consilience.source.delimited import Header, read_header

DOMAIN = Domain(
    "d",
    (
        Attribute.categorical("a", ["0", "1"], missing="none", unlisted="other"),
        Attribute.numeric("b", [0, 10, 20], missing="none"),
    ),
)


def counts(path, content, domain=DOMAIN, marginal=("a", "b")):
    path.write_bytes(content)
    return open_table(path, domain).exact_counts([marginal])[0]


def cells(counted):
    """The cells that are not empty, by their labels."""
    return {
        (DOMAIN["a"].labels[i], DOMAIN["b"].labels[j]): int(counted[i, j])
        for i, j in zip(*np.nonzero(counted), strict=True)
    }


@pytest.fixture
def path(tmp_path):
    return tmp_path / "table.csv"


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_the_delimiter_is_the_one_that_names_the_declared_columns(path, delimiter, newline, mark):
    lines = [["x, y", "b", " a "], ["9", "5", "0"], ["9", "15", "1"]]
    text = newline.join(delimiter.join(f'"{cell}"' if delimiter in cell else cell for cell in line) for line in lines)
    assert cells(counts(path, mark + text.encode())) == {("0", "0..9"): 1, ("1", "10..19"): 1}


def test_a_delimiter_within_a_header_name_is_no_delimiter():
    assert read_header(b'"a;b",c;d\n', wanted=["a;b", "c;d"]) == Header(",", ("a;b", "c;d"))


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff\xfea\x00,\x00b\x00", b"PAR1\x00\x00,\x00"])
def test_a_file_without_text_has_no_header(content):
    assert read_header(content, wanted=["a"]) is None


@pytest.mark.parametrize(
    ("record", "cell"),
    [
        (b"0,5", ("0", "0..9")),
        (b" 0 ,\t5", ("0", "0..9")),
        (b'"0","5"', ("0", "0..9")),
        (b'" 0 "," 5"', ("0", "0..9")),
        (b",", ("none", "none")),
        (b'"",""', ("none", "none")),
        (b"0", ("0", "none")),
        (b"0,5,6,7", ("0", "0..9")),
        (b"\xff,5", ("other", "0..9")),
        (b"0,\xff", ("0", "none")),
        (b'"0,5', ("other", "0..9")),
        (b'0,"5', ("0", "none")),
        (b'0"0,5', ("other", "0..9")),
        (b"00,5", ("other", "0..9")),
        (b"0,5e0", ("0", "0..9")),
        (b"0,five", ("0", "none")),
        (b"0,nan", ("0", "none")),
        (b"0,-inf", ("0", "0..9")),
        (b"0\x00,5", ("other", "0..9")),
        (b'"0\n",5', ("0", "0..9")),
    ],
)
def test_a_record_is_read_as(path, record, cell):
    assert cells(counts(path, b"a,b\n" + record + b"\n")) == {cell: 1}
    assert cells(counts(path, b"a,b\n1,15\n" + record + b"\n1,15")) == {("1", "10..19"): 2, cell: 1}


def test_blank_lines_are_no_records(path):
    assert counts(path, b"\n\na,b\n\n0,5\r\n\r\n\n").sum() == 1


def test_a_header_alone_is_an_empty_table(path):
    for content in (b"a,b", b"a,b\n", b"a,b\r\n\r\n"):
        assert counts(path, content).sum() == 0


@given(content=st.lists(st.sampled_from(list(b'01,"\n\r5 \xff')), max_size=80).map(bytes), chunk=st.integers(1, 50))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_sequence_of_bytes_raises_and_chunks_do_not_matter(tmp_path, monkeypatch, content, chunk):
    whole = counts(tmp_path / "whole.csv", b"a,b\n" + content)
    with monkeypatch.context() as patch:
        patch.setattr(delimited, "BYTES_PER_BATCH", max(chunk, 4))
        patch.setattr(delimited, "ROWS_PER_BATCH", 1 + chunk % 3)
        assert np.array_equal(counts(tmp_path / "parts.csv", b"a,b\n" + content), whole)
        packed = gzip.compress(b"a,b\n" + content)
        assert np.array_equal(counts(tmp_path / "parts.csv.gz", packed), whole)


def test_a_record_beyond_the_longest_keeps_the_fields_before(path, monkeypatch):
    monkeypatch.setattr(delimited, "LONGEST_RECORD", 50)
    content = b"a,b\n1," + b"9" * 200 + b",0,5\n0,5\n"
    assert cells(counts(path, content)) == {("1", "none"): 1, ("0", "0..9"): 1}


def test_an_open_quote_costs_its_own_record_alone(path, monkeypatch):
    monkeypatch.setattr(delimited, "LONGEST_RECORD", 64)
    content = b'a,b\n"0,5\n' + b"1,15\n" * 100
    assert cells(counts(path, content)) == {("other", "0..9"): 1, ("1", "10..19"): 100}


@pytest.mark.parametrize("stray", [b'"0,5', b'0,"5', b'"0","5', b'"0" 1,5', b'0,"5" and', b'0,5"', b'0"0,5'])
@pytest.mark.parametrize("after", [b"1,15", b'"1","15"', b'1,"15"', b'"1",15', b'"",""', b'"1 ""one""",15'])
def test_a_stray_quote_costs_its_own_record_alone(path, stray, after):
    others = (after + b"\n") * 15_000
    found = counts(path, b"a,b\n" + others + stray + b"\n" + others)
    assert np.abs(found - 2 * counts(path, b"a,b\n" + others)).sum() == 1


def test_the_header_is_read_by_the_grammar_of_the_records():
    assert read_header(b'"a "b" c",d\n', wanted=["d"]) == Header(",", ('a "b" c', "d"))
    assert read_header(b'"a,b\n"0","1"\n', wanted=["b"]) == Header(",", ('"a', "b"))


def test_text_in_another_encoding_matches_no_label_and_does_not_raise(path):
    domain = Domain("d", (Attribute.categorical("a", ["Zoë"], unlisted="other"),))
    content = "a\nZoë\n".encode() + "Zoë\n".encode("latin-1")
    assert counts(path, content, domain, ("a",)).tolist() == [1, 1]
