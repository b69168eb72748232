"""The blocks of the page about the papers, from the verdicts under `benchmarks/results`."""

import csv
import json
import runpy
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE.parent / "benchmarks" / "results"
as_table = runpy.run_path(str(HERE / "benchmark_tables.py"))["as_table"]


def verdicts(prefix: str) -> str:
    """Each reproduced figure of a paper with its picture, what became of the paper's claims, and what differs."""
    parts = []
    for path in sorted(RESULTS.glob(f"{prefix}-*.csv")):
        title = path.stem.removeprefix(f"{prefix}-").replace("-", " ").replace("figure", "Figure").capitalize()
        judged = path.parent / f"{path.stem}.json"
        document = json.loads(judged.read_text(encoding="utf-8")) if judged.exists() else None
        shown = _csv_table(path) if document and not document["picture"] else f"![{title}]({_PICTURES}/{path.stem}.png)"
        words = _judged(document) if document else _earlier(path.parent / f"{path.stem}.txt")
        parts.append("\n".join([f"### {title}", "", shown, "", *words]))
    return "\n\n".join(parts)


_PICTURES = "../../benchmarks/results"


def _judged(document: dict[str, Any]) -> list[str]:
    """The claims of a reproduction with outcome, statistic, interval and threshold; then what differs."""
    lines = []
    for claim in document["claims"]:
        outcome = claim["outcome"].capitalize()
        whose = " (said here, not in the paper)" if claim["ours"] else ""
        text = f"- **{outcome}**{whose}: *{claim['words']}.* {_sentence(claim['statistic'])}: {claim['evidence']}"
        text += f"; holds if {claim['threshold']}."
        text += f" The paper: {claim['paper']}." if claim["paper"] else ""
        lines.append(f"{text} {claim['more']}".rstrip())
    differs = [f"- {each}" for each in document["differs"]]
    return [*lines, "", f"{document['runs']} What differs:".strip(), "", *differs]


def _earlier(path: Path) -> list[str]:
    """The claims of a reproduction that was run before there were intervals."""
    lines = ["From an earlier run, judged without intervals:", ""]
    for line in path.read_text(encoding="utf-8").splitlines():
        no, text = line.startswith("NOT"), line.removeprefix("NOT ").removeprefix("HELD").strip()
        lines.append(f"- {'**Did not hold**' if no else '**Held**'}: {_sentence(text)}")
    return lines


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _csv_table(path: Path) -> str:
    """A small CSV as a table, with commas in large whole numbers."""
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    return as_table(header, [[f"{int(cell):,}" if cell.isdigit() else cell for cell in row] for row in rows])


def threshold_words() -> str:
    """What the words of the papers mean as thresholds."""
    words = runpy.run_path(str(HERE.parent / "benchmarks" / "reproduce" / "verdicts.py"))["WORDS"]
    return as_table(["words of a paper", "what has to be shown"], [list(row) for row in words])


PAPERS = {
    "lee2015": "Lee, Wang and Kifer (2015)",
    "mckenna2019": "McKenna, Sheldon and Miklau (2019)",
    "qardaji2014": "Qardaji, Yang and Li (2014)",
    "lee2016": "Lee and Kifer (2016)",
}


def outcomes() -> str:
    """How many claims of each paper had each outcome, and how many are the project's own."""
    kinds = ("held", "did not hold", "cannot be told")
    rows, earlier, documents = [], 0, []
    for prefix, paper in PAPERS.items():
        names = [path.stem for path in sorted(RESULTS.glob(f"{prefix}-*.csv"))]
        there = [RESULTS / f"{name}.json" for name in names if (RESULTS / f"{name}.json").exists()]
        earlier += len(names) - len(there)
        of_paper = [json.loads(path.read_text(encoding="utf-8")) for path in there]
        documents += of_paper
        claims = [claim for document in of_paper for claim in document["claims"]]
        counts = [sum(claim["outcome"] == kind and not claim["ours"] for claim in claims) for kind in kinds]
        own = [sum(claim["outcome"] == kind and claim["ours"] for claim in claims) for kind in kinds]
        rows.append([paper, f"{len(there)} of {len(names)}", *map(str, counts), " / ".join(map(str, own))])
    header = ["paper", "figures and tables judged", *kinds, "said here: " + " / ".join(kinds)]
    note = f"\n\n{earlier} figures are from an earlier run, without intervals, and not counted." if earlier else ""
    return as_table(header, rows) + note + untold(documents) + made_from(documents) + other_seeds()


def untold(documents: list[dict[str, Any]]) -> str:
    """The share of all claims that the runs cannot decide."""
    outcomes = [claim["outcome"] for document in documents for claim in document["claims"]]
    count = outcomes.count("cannot be told")
    return f"\n\nOf all {len(outcomes)} claims {count}, {count / max(len(outcomes), 1):.0%}, cannot be told."


def made_from(documents: list[dict[str, Any]]) -> str:
    """Of which commits the numbers are, and how long the runs kept a processor busy."""
    commits = Counter(each["provenance"].get("commit", "not recorded") for each in documents)
    used = "processor seconds"
    seconds = [each["provenance"][used] for each in documents if used in each["provenance"]]
    told = ", ".join(f"{name} ({count})" if len(commits) > 1 else name for name, count in commits.most_common())
    text = f"Commit of the code, for the figures judged: {told}."
    if seconds:
        text += f" {len(seconds)} of them took {sum(seconds) / 60:.0f} minutes of one processor."
    return f"\n\n{text}"


def other_seeds() -> str:
    """Which verdicts changed when figures were run again with other seeds."""
    path = RESULTS / "reproduce-other-seeds.json"
    if not path.exists():
        return ""
    found = json.loads(path.read_text(encoding="utf-8"))
    changes = [
        f"- {each['name']}: *{each['words']}*: {each['first']}, then {each['second']}" for each in found["changes"]
    ]
    turned = sum("cannot be told" not in (each["first"], each["second"]) for each in found["changes"])
    told = (
        f"\n\n{len(found['reproductions'])} of them were run a second time with other seeds (from {found['seed']} on). "
        f"Of their {found['claims']} verdicts {len(changes)} differ, {turned} of them between held and did not hold"
    )
    return told + (":\n\n" + "\n".join(changes) if changes else ".")
