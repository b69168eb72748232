"""Two versions are compared in pairs, by ratios; and rows of one problem take the place of earlier ones."""

from pathlib import Path

import pytest

from benchmarks import versions
from benchmarks.__main__ import merged

EARLIER = Path("earlier")


@pytest.mark.parametrize(
    ("seconds", "error", "verdict"),
    [
        ([1.0, 1.0, 1.0, 1.0, 1.0], 10.0, "as good"),
        ([1.2, 1.2, 1.2, 1.2, 1.2], 10.0, "slower"),
        ([0.9, 1.2, 1.2, 1.2, 1.2], 10.0, "slower"),
        ([0.9, 0.9, 1.2, 1.2, 1.2], 10.0, "as good"),
        ([1.0, 1.0, 1.0, 1.0, 1.0], 10.2, "less accurate"),
    ],
)
def test_a_case_is_slower_only_where_nearly_all_pairs_say_so(
    monkeypatch: pytest.MonkeyPatch, seconds: list[float], error: float, verdict: str
) -> None:
    left = iter(seconds)

    def apart(sources: Path, _: list[str]) -> dict[str, tuple[float, float]]:
        return {"a case": (1.0, 10.0) if sources == EARLIER else (next(left), error)}

    monkeypatch.setattr(versions, "_apart", apart)
    [row] = versions.compared(EARLIER, [], 5)
    assert row["verdict"] == verdict


def test_a_case_runs_and_tells_its_time_and_error() -> None:
    found = versions.run_cases(["views, pairs of 9 flags"])
    assert list(found) == ["views, pairs of 9 flags"]
    seconds, error = found["views, pairs of 9 flags"]
    assert seconds > 0
    assert 0 < error < 50_000


def test_rows_of_a_problem_take_the_place_of_earlier_ones() -> None:
    earlier = [{"problem": name, "draws": 3} for name in ("a", "b", "b", "c")]
    found = merged(earlier, [{"problem": "b", "draws": 25}])
    assert [(row["problem"], row["draws"]) for row in found] == [("a", 3), ("b", 25), ("c", 3)]
    assert merged([], [{"problem": "b"}]) == [{"problem": "b"}]
