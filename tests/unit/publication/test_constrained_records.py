"""No synthetic record breaks a constraint, whoever fits: judged by the values that are written, and by nothing else."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import consilience as cs
from consilience.domain.record_constraints import holds, numbers_compared
from consilience.errors import DeclarationError
from consilience.kernels.rng import generator
from consilience.publication.synthetic import keep_constraints

HOURS = [0.0, 10.0, 20.0, 35.0, 80.0]
CONSTRAINTS = (
    "age >= 16 or job = Child",
    "if job = Child then worked = ..10",
    "worked <= paid",
    "not (sex = Male and pregnant = yes)",
    "arrival <= departure",
)
PEOPLE = cs.Domain(
    "people",
    (
        cs.Attribute.numeric("age", [0, 16, 40, 65, 100]),
        cs.Attribute.categorical("sex", ["Female", "Male"]),
        cs.Attribute.categorical("pregnant", ["no", "yes"], missing="Unknown"),
        cs.Attribute.categorical("job", ["Child", "Work", "None"]),
        cs.Attribute.numeric("worked", HOURS),
        cs.Attribute.numeric("paid", [0.0, 5.0, 15.0, 40.0, 80.0], missing="Unknown"),
        cs.Date.between("arrival", "2019-01", "2019-06", "month"),
        cs.Date.between("departure", "2019-01", "2019-06", "month"),
    ),
    constraints=CONSTRAINTS,
)


def breaks(records: pa.Table) -> dict[str, int]:
    """How many records break each constraint, as a person would tell from the values."""
    columns = {name: records[name].to_pandas().astype(object).to_numpy() for name in ("sex", "pregnant", "job")}
    job, sex = columns["job"], columns["sex"]
    age, worked = (records[name].to_numpy().astype(float) for name in ("age", "worked"))
    paid = np.nan_to_num(records["paid"].to_numpy().astype(float), nan=np.inf)
    arrival, departure = (
        records[name].to_pandas().astype(str).to_numpy(dtype=str) for name in ("arrival", "departure")
    )
    return {
        CONSTRAINTS[0]: int(((age < 16) & (job != "Child")).sum()),
        CONSTRAINTS[1]: int(((job == "Child") & (worked > 10)).sum()),
        CONSTRAINTS[2]: int((worked > paid).sum()),
        CONSTRAINTS[3]: int(((sex == "Male") & (columns["pregnant"] == "yes")).sum()),
        CONSTRAINTS[4]: int((arrival > departure).sum()),
    }


def measured(ways: int, seed: int = 0) -> cs.MeasurementSet:
    """Marginals with so much noise that impossible cells come out far from zero."""
    rng = generator(seed)
    sets = list(itertools.combinations(PEOPLE.names, ways))
    noisy = {names: 300 + 100 * rng.normal(size=PEOPLE.sizes(names)) for names in sets}
    return cs.MeasurementSet.from_marginals(PEOPLE, noisy, noise=cs.Gaussian(100.0))


@pytest.mark.parametrize(
    ("method", "rows"),
    [
        ("graphical", 40_000),
        pytest.param("graphical", 10**6, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("spread", ["even", "midpoint"])
def test_no_record_breaks_a_constraint(method: str, rows: int, spread: str) -> None:
    account = cs.estimate(measured(2), method=method, allow_misfit=True)
    records = cs.synthesize(account, rows, spread=spread)
    assert breaks(records) == dict.fromkeys(CONSTRAINTS, 0)
    assert records.num_rows == rows
    assert np.unique(records["worked"].to_numpy()).size > (rows // 2 if spread == "even" else 3)


def test_numbers_alone_would_break_them() -> None:
    """The test can fail: bins that allow `worked <= paid` hold numbers of which it is not true."""
    rng = generator(1)
    codes = {"worked": np.full(1000, 1), "paid": np.full(1000, 1)}
    numbers = {"worked": rng.uniform(10, 20, 1000), "paid": rng.uniform(5, 15, 1000)}
    attributes = {each.name: each for each in PEOPLE.attributes}
    assert 800 < (~holds("worked <= paid", attributes, codes, numbers)).sum() < 950
    assert (codes["worked"] < 10).all()


def test_only_comparisons_of_numbers_are_looked_at() -> None:
    attributes = {each.name: each for each in PEOPLE.attributes}
    assert [numbers_compared(text, attributes) for text in CONSTRAINTS] == [(), (), ("worked", "paid"), (), ()]


@given(
    st.lists(st.sampled_from(["a <= b", "a < b", "b >= c", "a == c", "if k = x then c > a"]), min_size=1, unique=True),
    st.sampled_from(["even", "midpoint", "lower"]),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_numbers_stay_in_their_bins_and_break_nothing(texts: list[str], spread: str, whole: bool, seed: int) -> None:
    rng = generator(seed)
    edges = [[0, 3, 5, 9], [0, 4, 9], [0, 2, 7, 9]]
    numeric = [
        cs.Attribute.numeric(name, each, integer=whole, unlisted="drop")
        for name, each in zip("abc", edges, strict=True)
    ]
    try:
        domain = cs.Domain("d", (*numeric, cs.Attribute.categorical("k", ["x", "y"])), constraints=tuple(texts))
    except DeclarationError:
        return  # no record can be as these ask
    allowed = domain.allowed_cells()
    cells = np.argwhere(np.ones(domain.shape, dtype=bool) if allowed is None else allowed)
    codes = cells[rng.integers(0, len(cells), 200)]
    numbers = {
        name: np.array([edges[i][code] for code in codes[:, i]], float) + 0.5 * (not whole)
        for i, name in enumerate("abc")
    }
    before = codes.copy()
    keep_constraints(domain, codes, numbers, spread, rng)
    attributes = {each.name: each for each in domain.attributes}
    by_name = {name: codes[:, place] for place, name in enumerate(domain.names)}
    held = np.logical_and.reduce([holds(text, attributes, by_name, numbers) for text in texts])
    possible = (codes == before).all(axis=1)
    assert held.all() or not (held & possible).any()  # where nothing can be kept, there is nothing to copy
    for place, name in enumerate("abc"):
        low, high = (np.array(edges[place])[codes[:, place] + end] for end in (0, 1))
        assert ((numbers[name] >= low) & (numbers[name] < high)).all()


@given(st.lists(st.tuples(*[st.frozensets(st.integers(0, 2)) for _ in range(3)]), min_size=1, max_size=6, unique=True))
def test_what_contradicts_itself_is_told_by_the_smallest_set(rules: list[tuple[frozenset[int], ...]]) -> None:
    """Against every subset of the sentences, and every record."""
    attributes = tuple(cs.Attribute.categorical(name, ["0", "1", "2"]) for name in "abc")
    tests = [
        [f"{name} in ({', '.join(map(str, codes))})" for name, codes in zip("abc", rule, strict=True) if codes]
        for rule in rules
    ]
    pairs = [(rule, " or ".join(test)) for rule, test in zip(rules, tests, strict=True) if test]
    texts = [text for _, text in pairs]
    cells = list(itertools.product(range(3), repeat=3))
    kept = {
        text: {cell for cell in cells if any(code in rule[i] for i, code in enumerate(cell))} for rule, text in pairs
    }

    def contradicts(some: tuple[str, ...]) -> bool:
        return not set(cells).intersection(*(kept[text] for text in some))

    smallest = [
        r for r in range(1, len(texts) + 1) if any(contradicts(some) for some in itertools.combinations(texts, r))
    ]
    if not smallest:
        cs.Domain("d", attributes, constraints=tuple(texts))
        return
    with pytest.raises(DeclarationError) as caught:
        cs.Domain("d", attributes, constraints=tuple(texts))
    named = [text for text in texts if repr(text) in str(caught.value)]
    assert len(named) == smallest[0]
    assert contradicts(tuple(named))
