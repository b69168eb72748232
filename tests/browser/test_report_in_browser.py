"""The report in a real browser, as wide as a phone and as a desk: no errors, no scrolling sideways, words for all."""

import itertools
import json
import re
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from benchmarks.problems.declared_records import declared_records
from consilience import plans
from consilience.domain import Attribute, Domain
from consilience.estimators import estimate
from consilience.kernels.rng import generator
from consilience.measurements import DiscreteLaplace, MeasurementSet
from consilience.measuring import measure
from consilience.publication import write_bundle
from consilience.publication.report import report

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')

# Opens everything that is folded, so that tables are looked at, too, and writes what it finds into the page.
LOOK = """<script>
const errors = [];
window.addEventListener("error", event => errors.push(String(event.message)), true);
window.addEventListener("load", () => {
  const pictures = [...document.querySelectorAll("img, svg[role=img]")];
  const found = {
    width: innerWidth, errors,
    closed: document.documentElement.scrollWidth,
    pictures: pictures.length,
    broken: pictures.filter(each => each.tagName === "IMG" && !(each.complete && each.naturalWidth > 0)).length,
    wordless: pictures.filter(each => !(each.getAttribute("alt") || each.textContent || "").trim()).length,
    unnamed: [...document.querySelectorAll("table")].filter(each => !each.caption || !each.caption.textContent).length,
    tables: document.querySelectorAll("table").length,
    hostile: document.querySelectorAll("b, script:not([data-look])").length,
  };
  document.querySelectorAll("details").forEach(each => each.open = true);
  found.opened = document.documentElement.scrollWidth;
  const edge = innerWidth + 0.5;
  found.outside = [...document.querySelectorAll("h1, h2, p, li, dt, dd, pre, summary, img, .scroll, nav")]
    .filter(each => !each.closest(".wide") && each.getBoundingClientRect().right > edge)
    .map(each => each.tagName + " " + (each.textContent || each.alt).slice(0, 40));
  const note = document.createElement("pre");
  note.id = "found";
  note.textContent = JSON.stringify(found);
  document.body.append(note);
});
</script>""".replace("<script>", '<script data-look="">')


def browse(page: Path, width: int, place: Path) -> tuple[dict, str]:
    """What the script found, and what the browser wrote to its console; the page shrinks to a frame of the width."""
    text = POLICY.sub("", page.read_text(encoding="utf-8"))
    (place / "inside.html").write_text(text.replace("<head>", "<head>" + LOOK, 1), encoding="utf-8")
    frame = place / "frame.html"
    frame.write_text(
        f'<!DOCTYPE html><body style="margin:0"><iframe src="inside.html" style="border:0" width="{width}" '
        "height=900></iframe><script>addEventListener('load', () => setTimeout(() => {"
        "document.body.append(frames[0].document.getElementById('found'))}, 500))</script>",
        encoding="utf-8",
    )
    command = [str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    command += [f"--user-data-dir={place / 'profile'}", "--enable-logging=stderr", "--virtual-time-budget=15000"]
    command += [f"--window-size={max(width, 600)},1000", "--dump-dom", frame.as_uri()]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    found = re.search(r'<pre id="found">(.*?)</pre>', outcome.stdout, re.DOTALL)
    assert found, outcome.stdout[-500:] + outcome.stderr[-2000:]
    return json.loads(unescape(found[1])), "\n".join(re.findall(r".*CONSOLE.*", outcome.stderr))


def demo(place: Path) -> Path:
    """The release of `make demo`, of fewer people."""
    command = [
        sys.executable,
        "-m",
        "consilience.cli.main",
        "demo",
        "--people",
        "3000",
        "--folder",
        str(place / "demo"),
    ]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    return place / "demo" / "release"


def many_attributes(place: Path) -> Path:
    """Thirty-four attributes with long and hostile names and labels, and simulated noise."""
    rng = generator(0)
    long = "a very long label that goes on and on without any end in sight " * 2
    attributes = [Attribute.categorical(f"attribute number {i} with a long name", ["yes", "no"]) for i in range(32)]
    attributes += [
        Attribute.categorical("<b>bold</b>", ["<script>document.title='x'</script>", long, "x" * 120]),
        Attribute.numeric("age", list(range(61))),
    ]
    domain = Domain("large <b>domain</b>", tuple(attributes))
    names, law = domain.names, DiscreteLaplace(5.0)
    margins = {}
    for one, other in itertools.pairwise(names):
        counts = rng.integers(0, 60, domain.sizes((one, other)))
        margins[one, other] = np.asarray(counts) + law.simulate(counts.shape, rng)
    measured = MeasurementSet.from_marginals(domain, margins, noise=law, private=False, spent={"epsilon": "7"})
    return write_bundle(estimate(measured, method="graphical"), place / "release")


def adult(place: Path) -> Path:
    """Adult with all pairs of attributes measured, or its stand-in where the data is not at hand; simulated noise."""
    records = declared_records("adult", numeric=(0, 2, 10, 11, 12))
    measured = measure(records.source(), plans.Direct(ways=2), epsilon=1.0, simulate=0)
    return write_bundle(estimate(measured), place / "release")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's package chromium")
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("make", [demo, adult, many_attributes], ids=lambda each: each.__name__)
def test_the_report_in_a_browser(make, width: int, tmp_path: Path) -> None:
    made = report(make(tmp_path), refits=20)
    found, console = browse(made.path, width, tmp_path)
    assert found["width"] == width
    assert found["errors"] == []
    assert console == ""
    assert max(found["closed"], found["opened"]) <= width
    assert found["outside"] == []
    assert found["pictures"] == len(made.pictures) > 5
    assert (found["broken"], found["wordless"], found["unnamed"], found["hostile"]) == (0, 0, 0, 0)
    assert found["tables"] > 8
