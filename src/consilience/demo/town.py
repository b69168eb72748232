"""A believable town that does not exist: seeded, so that everyone who makes it gets the same people.

People have an age, a sex, a district, an education, an employment status, an income and a way to work. These depend on
each other as they do in real towns: retired people are old, graduates earn more, the young live near the station, and
few drive where the trains stop. As in real tables, some answers are missing and a few are odd: ages of 999, misspelt
districts, ways to work that no list foresaw. `town.domain.toml` says what becomes of those.

    consilience demo --table town.csv --people 2000
"""

import csv
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.rng import Generator, generator

DOMAIN_FILE = Path(__file__).with_name("town.domain.toml")
PEOPLE = 50_000
SEED = 1876

Codes = NDArray[np.int64]
Weights = NDArray[np.float64]

SEXES = ("Female", "Male")
DISTRICTS = {
    "Ferry Lane": "Riverside",
    "Saltmarket": "Riverside",
    "Beacon": "Hilltop",
    "Orchard": "Hilltop",
    "Gardens": "Newtown",
    "Station": "Newtown",
}
EDUCATIONS = ("Basic", "Secondary", "University")
EMPLOYMENTS = ("Employed", "Unemployed", "Student", "Retired", "At home")
COMMUTES = ("No commute", "Walk or cycle", "Public transport", "Car")

# A number for each district, in the order of DISTRICTS.
DISTRICT_SHARES = np.array([0.16, 0.14, 0.17, 0.14, 0.20, 0.19])
DISTRICT_WEALTH = np.array([0.15, -0.15, 0.20, 0.30, -0.05, -0.10])
DISTRICT_YOUTH = np.array([0.2, 0.4, -0.3, -0.2, -0.1, 0.7])
DISTRICT_RAIL = np.array([0.3, 0.4, -0.6, -0.8, 0.1, 1.2])


def make_town(people: int = PEOPLE, seed: int = SEED) -> dict[str, list[str]]:
    """The columns of the town's table, as a CSV file holds them: text, and empty where an answer is missing."""
    rng = generator(seed)
    age = _ages(rng, people)
    sex = (rng.random(people) > 0.49 + 0.0018 * np.maximum(age - 55, 0)).astype(np.int64)
    district = _districts(rng, age)
    education = _educations(rng, age, district)
    employment = _employments(rng, age, sex, education)
    income = _incomes(rng, age, sex, district, education, employment)
    commute = _commutes(rng, employment, district, income)
    columns = {
        "person": [f"P{number:06d}" for number in range(1, people + 1)],
        "age": [str(years) for years in age],
        "sex": _named(SEXES, sex),
        "district": _named(tuple(DISTRICTS), district),
        "education": _named(EDUCATIONS, education),
        "employment": _named(EMPLOYMENTS, employment),
        "income": [str(amount) for amount in income],
        "commute": _named(COMMUTES, commute),
    }
    _leave_gaps(rng, columns, age)
    _make_slips(rng, columns, age)
    return columns


def write_town(path: str | os.PathLike[str], *, people: int = PEOPLE, seed: int = SEED) -> Path:
    """Write the town as a CSV file, the same bytes for the same arguments, and return its path."""
    write_columns(path, make_town(people, seed))
    return Path(path)


def write_table(path: str | os.PathLike[str], *, people: int = PEOPLE, seed: int = SEED) -> tuple[Path, Path]:
    """Write the town as a CSV file, and beside it the domain file that describes it; the paths of both."""
    data = write_town(path, people=people, seed=seed)
    domain = data.with_suffix(".domain.toml")
    shutil.copyfile(DOMAIN_FILE, domain)
    return data, domain


def write_columns(path: str | os.PathLike[str], columns: Mapping[str, Sequence[str]]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def _pick(rng: Generator, weights: Weights) -> Codes:
    """For each row of weights one column, with a probability in proportion to its weight."""
    cumulated = np.cumsum(weights, axis=1)
    thresholds = rng.random(len(weights)) * cumulated[:, -1]
    return (cumulated < thresholds[:, None]).sum(axis=1).astype(np.int64)


def _bell(age: Codes, centre: float, width: float) -> Weights:
    return np.exp(-0.5 * ((age - centre) / width) ** 2)


def _slope(age: Codes, middle: float, width: float) -> Weights:
    """From 0 for the young to 1 for the old, half of it at `middle`."""
    return 1 / (1 + np.exp(-(age - middle) / width))


def _ages(rng: Generator, people: int) -> Codes:
    """A population pyramid: even among the young, a bulge of those born in good years, fewer and fewer of the old."""
    years = np.arange(100)
    weights = (1 + 0.35 * _bell(years, 33, 7) + 0.3 * _bell(years, 56, 7)) * (1 - _slope(years, 79, 6.5))
    return rng.choice(years, size=people, p=weights / weights.sum()).astype(np.int64)


def _districts(rng: Generator, age: Codes) -> Codes:
    young_adult = _bell(age, 26, 6)
    old = _slope(age, 68, 4)
    pull = DISTRICT_YOUTH[None, :] * (young_adult - 0.6 * old)[:, None]
    return _pick(rng, DISTRICT_SHARES[None, :] * np.exp(1.5 * pull))


def _educations(rng: Generator, age: Codes, district: Codes) -> Codes:
    """Pupils count as basic; degrees came within reach of later generations, and of wealthier districts first."""
    old = _slope(age, 58, 9)
    wealth = DISTRICT_WEALTH[district]
    university = np.where(age < 21, 0.01, (0.44 - 0.28 * old) * np.exp(1.6 * wealth))
    basic = (0.12 + 0.3 * old) * np.exp(-1.2 * wealth)
    secondary = np.maximum(1 - university - basic, 0.1)
    pupil = np.where(age < 16, 1.0, np.where(age < 19, 0.75, 0.0))
    grown = np.stack([basic, secondary, university], axis=1) * (1 - pupil)[:, None]
    return _pick(rng, grown + pupil[:, None] * np.array([1.0, 0.0, 0.0]))


def _employments(rng: Generator, age: Codes, sex: Codes, education: Codes) -> Codes:
    adult = age >= 16
    graduate = education == EDUCATIONS.index("University")
    basic = (education == EDUCATIONS.index("Basic")) & (age >= 19)
    retired = np.where(age >= 50, 0.98 * _slope(age, 64.5, 1.6), 0.0)
    student = np.where(age < 19, 0.8, 0.55 * _bell(age, 20, 3))
    unemployed = 0.05 + 0.05 * basic + 0.03 * (age < 25) - 0.02 * graduate
    at_home = 0.05 + 0.07 * (sex == 0) * _bell(age, 36, 8) + 0.03 * basic
    working = np.where(adult, 1 - unemployed - at_home, 0.0)
    not_retired = np.where(adult, 1 - retired, 1.0)
    studying = np.where(adult, student, np.where(age >= 6, 1.0, 0.0))
    weights = np.stack(
        [
            working * (1 - studying) * not_retired,
            np.where(adult, unemployed, 0.0) * (1 - studying) * not_retired,
            studying * not_retired,
            retired,
            np.where(adult, at_home, 1.0) * (1 - studying) * not_retired,
        ],
        axis=1,
    )
    return _pick(rng, weights)


def _incomes(rng: Generator, age: Codes, sex: Codes, district: Codes, education: Codes, employment: Codes) -> Codes:
    """Lognormal, with a Pareto tail among those who work: a few earn very much. Whole crowns a year."""
    people = len(age)
    level = np.array([31_000, 11_000, 5_500, 17_500, 4_000])[employment]
    degree = np.array([-0.2, 0.0, 0.38])[education]
    career = 0.45 * (_slope(age, 30, 6) - 0.5) - 0.08 * (sex == 0)
    works = employment == EMPLOYMENTS.index("Employed")
    centre = np.log(level) + degree + DISTRICT_WEALTH[district] + np.where(works, career, 0.0)
    amount = np.exp(centre + rng.normal(0, np.where(works, 0.42, 0.35), people))
    fortunate = works & (rng.random(people) < 0.025)
    amount = np.where(fortunate, 60_000 * (1 + rng.pareto(1.6, people)), amount)
    return np.where(age < 16, 0, np.round(amount / 100) * 100).astype(np.int64)


def _commutes(rng: Generator, employment: Codes, district: Codes, income: Codes) -> Codes:
    travels = np.isin(employment, [EMPLOYMENTS.index("Employed"), EMPLOYMENTS.index("Student")])
    student = employment == EMPLOYMENTS.index("Student")
    rail = DISTRICT_RAIL[district]
    walk = np.where(student, 0.6, 0.25) * np.exp(0.3 * rail)
    public = np.where(student, 0.3, 0.28) * np.exp(rail)
    car = np.where(student, 0.03, 0.42) * np.exp(-0.6 * rail) * np.clip(income / 30_000, 0.4, 1.6)
    stays = np.where(travels, 0.08, 1.0)
    moving = np.stack([walk, public, car], axis=1) * travels[:, None]
    return _pick(rng, np.concatenate([stays[:, None], moving], axis=1))


def _named(names: tuple[str, ...], codes: Codes) -> list[str]:
    return [names[code] for code in codes]


def _leave_gaps(rng: Generator, columns: dict[str, list[str]], age: Codes) -> None:
    """Blank answers: incomes that people keep to themselves, the rich more often, and educations nobody remembers."""
    amounts = np.array(columns["income"], dtype=np.int64)
    refuses = (age >= 16) & (rng.random(len(age)) < 0.05 + 0.1 * (amounts > 60_000))
    forgets = (age >= 16) & (rng.random(len(age)) < 0.02 + 0.03 * (age > 75))
    for row in np.flatnonzero(refuses):
        columns["income"][row] = ""
    for row in np.flatnonzero(forgets):
        columns["education"][row] = ""


def _make_slips(rng: Generator, columns: dict[str, list[str]], age: Codes) -> None:
    """A few odd answers: ages of 999, losses as incomes, misspelt districts, new ways to work."""
    slips = {
        "age": (["999", "120"], age >= 75, 0.01),
        "income": (["-2500", "-800"], age >= 25, 0.001),
        "district": (["Saltmarkt", "Harbour", "?"], age >= 0, 0.001),
        "commute": (["Scooter", "Kayak", "On horseback"], age >= 16, 0.004),
    }
    for name, (odd, eligible, share) in slips.items():
        for row in np.flatnonzero(eligible & (rng.random(len(age)) < share)):
            columns[name][row] = odd[int(rng.integers(len(odd)))]
