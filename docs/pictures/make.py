"""Makes what pages show of real runs: `python docs/pictures/make.py`.

- Blocks between `<!-- shown -->` and `<!-- end shown -->` are filled with what the command above them prints. A block
  `<!-- shown: FIRST … LAST -->` holds the lines of the demo's output from one that begins with FIRST to one that begins
  with LAST.
- `country.png` is the first map of `consilience demo --country`.
- `report.png` is the report of the demo in headless Chromium: its first screen, and one further down beside it.

Noise has no seed, so that another run shows other numbers. Numbers on these pages are never typed.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))
from page_code import run_page  # noqa: E402

from consilience.demo import write_table  # noqa: E402

PAGES = ["README.md", "docs/tutorials/from-csv-to-publication.md"]
SHOWN = re.compile(
    r"(?P<begin><!-- shown(?:: (?P<first>[^\n]+?) … (?P<last>[^\n]+?))? -->\n).*?(?P<end><!-- end shown -->)",
    re.DOTALL,
)
WIDTH, HEIGHT = 1640, 1000
SCREENS = ("", "margins")
"""The sections of the report that the two halves of the picture begin with: its top, and the margins."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Fill in what pages show of real runs, and make the picture.")
    parser.add_argument("--only", choices=["pages", "picture", "country"], help="leave the others as they are")
    only = parser.parse_args().only
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        if only in (None, "country"):
            run_demo(place, "--country")
            shutil.copyfile(place / "demo-country" / "maps" / "old.png", HERE / "country.png")
        if only == "country":
            return
        printed = run_demo(place)
        if only != "picture":
            for page in PAGES:
                fill(ROOT / page, printed, place)
        if only != "pages":
            take_picture(place / "demo" / "release" / "report.html", HERE / "report.png", place)


def run_demo(place: Path, *options: str) -> str:
    """What the demo prints, run as a newcomer would run it."""
    command = [sys.executable, "-m", "consilience.cli.main", "demo", *options]
    return subprocess.run(command, cwd=place, check=True, capture_output=True, text=True).stdout


def fill(page: Path, demo: str, place: Path) -> None:
    """Fill every block of a page; the page's commands run in a folder of their own."""
    text = page.read_text(encoding="utf-8")
    folder = place / page.stem
    folder.mkdir()
    write_table(folder / "town.csv")
    outputs = dict(run_page(text, folder))

    def shown(found: re.Match[str]) -> str:
        if found["first"]:
            content = between(demo, found["first"], found["last"])
        else:
            above = text[: found.start()]
            content = next(outputs[body] for body in reversed(outputs) if above.rstrip().endswith(f"{body}```"))
        lines = "\n".join(line.rstrip() for line in content.splitlines()).strip("\n")
        return f"{found['begin']}\n```text\n{lines}\n```\n\n{found['end']}"

    page.write_text(SHOWN.sub(shown, text), encoding="utf-8")
    print(f"filled {page.relative_to(ROOT)}")


def between(text: str, first: str, last: str) -> str:
    """The lines from the first that begins with some words to the next that begins with others."""
    lines = text.splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith(first))
    end = next(place for place, line in enumerate(lines) if place >= start and line.strip().startswith(last))
    return "\n".join(lines[start : end + 1])


def take_picture(report: Path, out: Path, place: Path) -> None:
    """Two screens of a report side by side, as PNG."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("the picture needs Chromium; on Debian: apt install chromium")
    frames = "".join(f'<iframe src="{report.as_uri()}#{section}"></iframe>' for section in SCREENS)
    style = "body{margin:0;display:flex;gap:16px;background:#8a929b;padding:16px;box-sizing:border-box;height:100vh}"
    style += "iframe{flex:1;border:0;background:#fff}"
    frame = place / "frame.html"
    frame.write_text(f"<!DOCTYPE html><meta charset=utf-8><style>{style}</style>{frames}", encoding="utf-8")
    command = [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += ["--allow-file-access-from-files", f"--user-data-dir={place / 'profile'}"]
    command += [f"--window-size={WIDTH},{HEIGHT}", "--virtual-time-budget=10000", f"--screenshot={out}"]
    subprocess.run([*command, frame.as_uri()], check=True, capture_output=True, timeout=180)
    print(f"wrote {out.relative_to(ROOT)}, {out.stat().st_size / 1000:,.0f} kB")


if __name__ == "__main__":
    main()
