"""Pictures of a report: valid files with words, stamped where the noise was simulated, whatever labels say."""

import builtins
import itertools
import json
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from consilience.domain import Query
from consilience.domain.questions import Question
from consilience.measurements.basis import Basis
from consilience.publication.diagnostics import Moved
from consilience.publication.intervals import Interval
from consilience.publication.noise_checks import QuantilePlot
from consilience.publication.report.associations import Associations, associations, cramers_v, draw_associations
from consilience.publication.report.facts import Margin
from consilience.publication.report.pictures import MOST_BARS, draw_margin, draw_moved, draw_quantiles
from consilience.publication.report.texts import english
from consilience.publication.report_page import NoPictures, Picture, check_pictures

SAY = english()
SIMULATED = SAY("simulated_stamp")
HOSTILE = "<script>alert(1)</script> & \"quotes\" 'too'"


def margin(labels: list[str], *, kind: str = "categorical", wide: bool = False) -> Margin:
    estimates = np.arange(1.0, len(labels) + 1) * 10
    spread = 20.0 if wide else 2.0
    interval = Interval(
        Question(Query.marginal("x")),
        0.95,
        estimates,
        estimates - spread,
        estimates + spread,
        "measured",
        "refits",
        20,
        (),
    )
    basis = Basis(np.zeros(len(labels), dtype=np.int8))
    return Margin("x " + HOSTILE, kind, tuple(labels), estimates, interval, basis)


def test_what_has_no_place_in_an_order_stands_beside_the_curve() -> None:
    months = [f"2019-{month:02}" for month in range(1, 13)] + [f"2020-{month:02}" for month in range(1, 13)]
    with_unknown = margin([*months, "Unknown", "Elsewhere"], kind="date")
    drawn = draw_margin(replace(with_unknown, ordinary=24), 1, SAY, level=0.95, private=True)
    curve, beside = json.loads(drawn.specification)["hconcat"]
    values = [[row["label"] for row in part["data"]["values"]] for part in (curve, beside)]
    assert values == [months, ["Unknown", "Elsewhere"]]
    assert json.loads(drawn.specification)["resolve"] == {"scale": {"y": "shared"}}
    assert "Unknown" in texts(drawn)
    assert drawn.width < 400
    alone = draw_margin(replace(margin(months, kind="date"), ordinary=24), 1, SAY, level=0.95, private=True)
    assert "hconcat" not in alone.specification


def texts(drawn: Picture) -> str:
    """All words in the picture; it must be well-formed, hold no program, and name nothing outside."""
    root = ET.fromstring(drawn.svg)
    tags = {each.tag.rpartition("}")[2] for each in root.iter()}
    assert "script" not in tags
    assert not any(name.startswith("on") or "href" in name for each in root.iter() for name in each.attrib)
    assert drawn.png.startswith(b"\x89PNG")
    assert drawn.description
    return " ".join(each.text or "" for each in root.iter())


def test_margins_have_labels_bars_and_words() -> None:
    drawn = draw_margin(margin(["a", HOSTILE, "c"]), 1, SAY, level=0.95, private=True)
    shown = texts(drawn)
    assert "a" in shown
    assert "95 % intervals" in shown
    assert SIMULATED not in shown
    assert "†" not in shown
    assert drawn.name == "margin-01"
    assert "largest is c with 30" in drawn.description
    assert 200 < drawn.width < 400


def test_uncertain_counts_are_marked_without_colour() -> None:
    drawn = draw_margin(margin(["a", "b"], wide=True), 1, SAY, level=0.95, private=True)
    assert texts(drawn).count("†") == 2
    assert "2 of them have an interval wider than the answer" in drawn.description


def test_simulated_noise_is_stamped_on_every_picture() -> None:
    moved = [Moved(HOSTILE, 4, 2.0, 0.7, 1.2, 0, 0, 0.0), Moved("exact", 1, 0.0, 0.0, 0.0, 0, 0, 0.0)]
    found = Associations(("a", HOSTILE), np.array([[np.nan, 0.3], [0.3, np.nan]]), 0, frozenset(), frozenset(), {})
    line = np.linspace(-2, 2, 9)
    plot = QuantilePlot("noise", line, line, line - 0.3, line + 0.3)
    pictures = [
        draw_margin(margin(["a"]), 1, SAY, level=0.9, private=False),
        draw_moved(moved, SAY, private=False),
        draw_associations(found, {}, SAY, private=False),
        draw_quantiles(plot, "As declared.", SAY, private=False),
    ]
    for drawn in pictures:
        assert SIMULATED in texts(drawn), drawn.name


def test_long_margins_stay_small() -> None:
    many = [f"value {i}" for i in range(300)]
    bars = draw_margin(margin(many), 1, SAY, level=0.95, private=True)
    assert f"the {MOST_BARS} largest counts" in texts(bars)
    assert "value 299" in texts(bars)
    assert "value 0" not in texts(bars).replace("value 299", "")
    curve = draw_margin(margin(many, kind="numeric"), 1, SAY, level=0.95, private=True)
    assert "largest counts" not in texts(curve)
    assert max(len(bars.svg), len(curve.svg)) < 300_000


def test_pairs_that_were_not_measured_have_a_star() -> None:
    strengths = np.full((3, 3), 0.25)
    found = Associations(("a", "b", "c"), strengths, 0, frozenset({frozenset("ab")}), frozenset(), {})
    shown = texts(draw_associations(found, {}, SAY, private=True))
    assert shown.count(".25*") == 2
    assert shown.count(".25") == 3


def test_cramers_v_against_scipy() -> None:
    from scipy.stats.contingency import association

    table = np.random.default_rng(0).integers(1, 40, (4, 6))
    assert cramers_v(table.astype(float)) == pytest.approx(association(table, method="cramer"))
    assert np.isnan(cramers_v(np.ones((1, 5))))
    assert np.isnan(cramers_v(np.zeros((3, 5))))


def test_of_many_attributes_the_most_associated_are_kept() -> None:
    from consilience.domain import Domain
    from consilience.estimators import estimate
    from consilience.measurements import Laplace, MeasurementSet

    names = [f"x{i}" for i in range(45)]
    pairs = {(names[i], names[i + 1]): [[30.0, 5.0], [5.0, 30.0]] for i in range(0, 8, 2)}
    weak = {(names[i], names[i + 1]): [[20.0, 20.0], [19.0, 21.0]] for i in range(8, 44)}
    domain = Domain.from_sizes(dict.fromkeys(names, 2))
    fitted = estimate(MeasurementSet.from_marginals(domain, pairs | weak, noise=Laplace(1.0)), method="graphical")
    found = associations(fitted)
    assert len(found.attributes) == 30
    assert found.left_out == 15
    assert set(names[:8]) <= set(found.attributes)
    assert found.strengths.shape == (30, 30)
    linked = [frozenset(pair) not in found.not_measured for pair in itertools.combinations(found.attributes, 2)]
    assert 0 < sum(linked) < len(linked)
    assert np.isfinite(found.strengths[np.triu_indices(30, 1)]).tolist() == linked


def test_without_the_libraries_there_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: object, **named: object) -> object:
        if name == "altair":
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(NoPictures, match="pip install altair vl-convert-python"):
        check_pictures()


def test_the_png_has_twice_the_pixels() -> None:
    drawn = draw_margin(margin(["a", "b"]), 1, SAY, level=0.95, private=True)
    assert int.from_bytes(drawn.png[16:20], "big") == pytest.approx(2 * drawn.width, abs=4)
