"""The explorer: its engine against the library, and its page as a file."""

import json
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from consilience.cli.main import app
from consilience.domain import Attribute, Domain
from consilience.domain.domains import ImpossibleCells
from consilience.errors import FileFormatError
from consilience.estimators import Estimator, Graphical, Residual, Table
from consilience.file_checks import check
from consilience.measurements import Gaussian, Laplace, MeasurementSet
from consilience.publication import open_release, write_bundle
from consilience.publication.explorer import MODULES, explore, levels_of
from tests.unit.web.page_views import differences, random_views

NODE = shutil.which("node")
HERE = Path(__file__).parent
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed")

HOSTILE = "</script><img src=x onerror=alert(1)>"
AGE = Attribute.numeric("age", [0, 10, 20, 40, 80])
PLACE = Attribute.hierarchy("place", {"x1": "x", "x2": "x", "y1": "y", "y2": "y"}, levels=["region", "town"])
DOMAIN = Domain(
    "small",
    (AGE, PLACE, Attribute.categorical("sex", ["F", "M"]), Attribute.categorical(HOSTILE, ["<b>1</b>", "2", "3"])),
    impossible=(ImpossibleCells((("age", (0,)), ("sex", (1,)))),),
)
CHAIN = [("age", "sex"), ("place", "age"), (HOSTILE,)]


def measured(scale: float, scopes=CHAIN, law=Gaussian) -> MeasurementSet:
    rng = np.random.default_rng(3)
    truth = rng.gamma(0.5, 60.0, DOMAIN.shape)
    truth[0, :, 1] = 0.0
    names = DOMAIN.counted_names
    tables = {}
    for scope in scopes:
        away = tuple(axis for axis, name in enumerate(names) if name not in scope)
        table = truth.sum(axis=away).transpose(np.argsort(np.argsort([names.index(name) for name in scope])))
        tables[scope] = table + rng.normal(0.0, scale, table.shape)
    return MeasurementSet.from_marginals(DOMAIN, tables, noise=law(scale), private=False)


MODELS: dict[str, tuple[Estimator, MeasurementSet]] = {
    "potentials": (Graphical(stop="converged"), measured(3.0)),
    "potentials that smooth": (Graphical(), measured(25.0)),
    "a full table": (Table(), measured(3.0, [("age", "sex", "place")], Laplace)),
    "tables of marginals": (Residual(), measured(3.0)),
}


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's modules with their tests, as node takes them."""
    place = tmp_path_factory.mktemp("web")
    for name in MODULES:
        (place / name).write_text((files("consilience") / "web" / name).read_text(encoding="utf-8"), encoding="utf-8")
    for name in ("engine.test.js", "ask.js"):
        shutil.copy(HERE / name, place)
    (place / "package.json").write_text('{"type": "module"}')
    return place


@needs_node
def test_the_modules_pass_their_own_tests(modules: Path) -> None:
    outcome = subprocess.run(
        [str(NODE), "--test"], cwd=modules, capture_output=True, text=True, check=False, timeout=120
    )
    assert outcome.returncode == 0, outcome.stdout[-3000:]


DRAWN = {
    "random": lambda rng: rng.random(200),
    "normal": lambda rng: rng.standard_normal(20_000),
    "exponential": lambda rng: rng.standard_exponential(20_000),
    "gamma(0.3)": lambda rng: rng.gamma(0.3, size=2_000),
    "gamma(40)": lambda rng: rng.gamma(40.0, size=2_000),
    "poisson(3.3)": lambda rng: rng.poisson(3.3, 2_000),
    "poisson(1e5)": lambda rng: rng.poisson(1e5, 2_000),
    "below(37)": lambda rng: rng.choice(np.arange(37.0), 2_001),
    "below(1)": lambda rng: rng.choice(np.zeros(1), 3),
}


@needs_node
def test_the_page_draws_the_random_numbers_of_numpy(modules: Path) -> None:
    """One stream for all laws, so that a law that took one number too many would be seen in the next."""
    rng = np.random.default_rng([0, 2**31])
    wanted = {name: draw(rng) for name, draw in DRAWN.items()}
    calls = [f"{name}|{numbers.size}" for name, numbers in wanted.items()]
    code = (
        'import { Generator } from "./random.js"; const g = new Generator(0, 2 ** 31);'
        "const found = process.argv.slice(1).map(each => {"
        "const [call, size] = each.split('|'); const [name, given] = call.split(/[()]/);"
        "return Array.from({ length: Number(size) }, () => g[name](...(given ? [Number(given)] : []))); });"
        "process.stdout.write(JSON.stringify(found));"
    )
    command = [str(NODE), "--input-type=module", "--eval", code, *calls]
    outcome = subprocess.run(command, cwd=modules, capture_output=True, text=True, check=True, timeout=60)
    for found, (name, numbers) in zip(json.loads(outcome.stdout), wanted.items(), strict=True):
        np.testing.assert_allclose(found, numbers, rtol=1e-9, err_msg=name)


@needs_node
@pytest.mark.parametrize("name", MODELS)
def test_a_page_answers_as_the_library_does(name: str, modules: Path, tmp_path: Path) -> None:
    method, given = MODELS[name]
    release = open_release(write_bundle(method.fit(given), tmp_path / "release"))
    page = explore(release, refits=40)
    data = json.loads(re.findall(r'id="release">(.*?)</script>', page.html, re.DOTALL)[0])
    (tmp_path / "views.json").write_text(json.dumps(list(random_views(data, 40, seed=5))))
    command = [str(NODE), "ask.js", str(page.path), str(tmp_path / "views.json")]
    outcome = subprocess.run(command, cwd=modules, capture_output=True, text=True, check=True, timeout=120)
    answers = [each for each in json.loads(outcome.stdout) if "refused" not in each]
    assert len(answers) >= 20
    bars = 0
    for found in answers:
        what, worst = differences(release.estimate, found, 40)
        assert worst < 1e-6, (found["text"], what, worst)
        bars += sum(end is not None for end in found["high"])
    assert bars > 20


def test_the_page_is_part_of_its_bundle_and_carries_no_markup_of_labels(tmp_path: Path) -> None:
    release = open_release(write_bundle(MODELS["a full table"][0].fit(MODELS["a full table"][1]), tmp_path / "release"))
    page = release.explore(refits=20)
    assert page.path == tmp_path / "release" / "explorer.html"
    assert check(page.path.parent).private is False
    assert "NOT PRIVATE" in page.html
    assert HOSTILE not in page.html
    assert page.html.count("</script>") == 2
    policy = re.findall(r'Content-Security-Policy" content="([^"]*)"', page.html)[0]
    assert policy.startswith("default-src &#x27;none&#x27;")
    assert "unsafe" not in policy
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|https?://(?!www\.w3\.org)", page.html
    )
    assert release.explore(refits=20).html == page.html


def test_the_command_writes_the_page_where_it_is_told(tmp_path: Path) -> None:
    bundle = write_bundle(MODELS["potentials"][0].fit(MODELS["potentials"][1]), tmp_path / "release")
    out = tmp_path / "page.html"
    words = ["explore", str(bundle), "--refits", "20", "--out", str(out)]
    outcome = CliRunner().invoke(app, [*words, "--json"])
    assert outcome.exit_code == 0, outcome.output
    assert json.loads(outcome.stdout)["refits"] == 20
    assert not (bundle / "explorer.html").exists()
    assert CliRunner().invoke(app, words).exit_code != 0
    with pytest.raises(FileFormatError, match="exists already"):
        explore(bundle, out=out)


def test_a_hierarchy_that_names_no_level_can_be_looked_into_as_well() -> None:
    place = Attribute.hierarchy("place", {"x1": "x", "x2": "x", "y1": "y"})
    [(name, spelled, groups)] = levels_of(place)
    assert (name, spelled, groups) == ("level 1", None, {"x": (0, 1), "y": (2,)})
    assert [each for each, *_ in levels_of(PLACE)] == ["region", "town"]


def test_what_is_too_large_for_a_page_is_left_out_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = write_bundle(MODELS["potentials"][0].fit(MODELS["potentials"][1]), tmp_path / "release")
    size = 1 + 8 + 16 + 3  # the total, and a potential for each measured cell
    monkeypatch.setattr("consilience.publication.explorer.MOST_STEPS", 25 * size)
    assert explore(bundle, refits=40).refits == 25
    monkeypatch.setattr("consilience.publication.explorer.MOST_STEPS", 10)
    page = explore(bundle, refits=40)
    assert page.refits == 0
    assert "too large for this page" in page.html
