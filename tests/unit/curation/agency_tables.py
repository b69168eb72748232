"""Tables made up the way agencies publish theirs, each with what its columns truly are.

Half of them, and of the public tables, tuned the recogniser; `JUDGED` are the others. Nothing in them is of anybody.
"""

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np

RAW = Path(os.environ.get("CONSILIENCE_DATA", "../shared/data"))
IDENTIFIER, FREE_TEXT = "identifier", "free text"
LEFT_OUT = {IDENTIFIER, FREE_TEXT}
"""Either word will do: what matters is that nothing of it is kept."""


class Case(NamedTuple):
    """A table in a file, and the kind of each of its columns; kinds with a bar are equally right."""

    path: Path
    kinds: dict[str, str]
    table: str | None = None


def _write(path: Path, columns: dict[str, list[str]], *, sign: str = ",", encoding: str = "utf-8") -> Path:
    rows = zip(*columns.values(), strict=True)
    lines = [sign.join(columns), *(sign.join(f'"{x}"' if sign in x else x for x in row) for row in rows)]
    content = ("\n".join(lines) + "\n").encode(encoding)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def _kinds(**groups: str) -> dict[str, str]:
    """Column names by kind, each group divided by semicolons."""
    return {
        name.strip(): kind.replace("yes_no", "yes/no").replace("_or_", "|").replace("_", " ")
        for kind, names in groups.items()
        for name in names.split(";")
    }


def _public(name: str) -> Path | None:
    path = RAW / name
    return path if path.exists() else None


def titanic(folder: Path) -> Case | None:
    path = _public("raw/titanic.csv")
    return path and Case(
        path,
        _kinds(
            identifier="PassengerId; Ticket; Cabin",
            free_text="Name",
            yes_no="Survived",
            category="Pclass; Sex; Embarked",
            number="Age; SibSp; Parch; Fare",
        ),
    )


def penguins(folder: Path) -> Case | None:
    path = _public("raw/penguins_raw.csv")
    return path and Case(
        path,
        _kinds(
            identifier="Sample Number; Individual ID",
            free_text="Comments",
            constant="Region; Stage",
            category="studyName; Species; Island; Sex",
            yes_no="Clutch Completion",
            date="Date Egg",
            number="Culmen Length (mm); Culmen Depth (mm); Flipper Length (mm); Body Mass (g); Delta 15 N (o/oo); "
            "Delta 13 C (o/oo)",
        ),
    )


def arrests(folder: Path) -> Case | None:
    path = _public("raw/nypd_arrests_part.csv.gz")
    return path and Case(
        path,
        _kinds(
            identifier="ARREST_KEY",
            date="ARREST_DATE",
            code="PD_CD; KY_CD; LAW_CODE; ARREST_PRECINCT",
            category="PD_DESC; OFNS_DESC; LAW_CAT_CD; PERP_SEX; PERP_RACE",
            code_or_category="JURISDICTION_CODE",
            constant="ARREST_BORO",
            scale="AGE_GROUP",
            coordinate="X_COORD_CD; Y_COORD_CD; Latitude; Longitude; New Georeferenced Column",
        ),
    )


def adult(folder: Path) -> Case | None:
    path = _public("records/adult-raw.data.gz")
    if path is None:
        return None
    names = "age workclass fnlwgt education education-num marital-status occupation relationship race sex capital-gain"
    header = [*names.split(), "capital-loss", "hours-per-week", "native-country", "income"]
    lines = [line for line in gzip.decompress(path.read_bytes()).decode().splitlines() if line.strip()]
    columns = dict(zip(header, map(list, zip(*(line.split(", ") for line in lines), strict=True)), strict=True))
    return Case(
        _write(folder / "adult.csv", columns),
        _kinds(
            number="age; education-num; capital-gain; capital-loss; hours-per-week",
            weight="fnlwgt",
            scale="education",
            category="workclass; marital-status; occupation; relationship; race; sex; native-country",
            category_or_scale="income",
        ),
    )


def _some(rng: np.random.Generator, texts: list[str], values: list[str], share: float) -> list[str]:
    """The texts with this share of them replaced."""
    hit = rng.random(len(texts)) < share
    return [values[rng.integers(len(values))] if here else text for here, text in zip(hit, texts, strict=True)]


def _choice(rng: np.random.Generator, values: list[str], rows: int, *, skew: float = 0.0) -> list[str]:
    shares = np.arange(1.0, len(values) + 1) ** -skew
    return [values[i] for i in rng.choice(len(values), rows, p=shares / shares.sum())]


def encuesta(folder: Path) -> Case:
    """A survey of household budgets: latin-1, semicolons, decimal commas, points between thousands."""
    rng, rows = np.random.default_rng(1), 2400

    def spanish(number: float) -> str:
        return f"{number:,.2f}".translate(str.maketrans(",.", ".,"))

    income = np.exp(rng.normal(9.8, 0.7, rows))
    provinces = [
        "Álava",
        "Ávila",
        "Cáceres",
        "Córdoba",
        "León",
        "Málaga",
        "Jaén",
        "Madrid",
        "Barcelona",
        "A Coruña",
        "Cádiz",
        "Almería",
    ]
    columns = {
        "NUMERO": [str(20230000 + i) for i in range(rows)],
        "CCAA": [f"{i:02d}" for i in rng.integers(1, 20, rows)],
        "provincia": _choice(rng, provinces, rows, skew=0.5),
        "municipio": [f"{i * 37 % 900 + 1000:05d}" for i in rng.integers(0, 300, rows)],
        "edad": [str(i) for i in rng.integers(16, 97, rows)],
        "sexo": _choice(rng, ["1", "6"], rows),
        "ingresos anuales": _some(rng, [spanish(x) for x in income], [""], 0.04),
        "gasto_mensual": [spanish(x) for x in rng.gamma(2, 600, rows)],
        "superficie (m2)": [f"{x:.1f}".replace(".", ",") for x in rng.gamma(9, 10, rows)],
        "salud": _some(rng, _choice(rng, ["Muy buena", "Buena", "Regular", "Mala", "Muy mala"], rows), ["NS/NC"], 0.03),
        "calefaccion": _choice(rng, ["Sí", "No"], rows),
        "nacimiento": [
            f"{rng.integers(1, 29):02d}/{rng.integers(1, 13):02d}/{y}" for y in rng.integers(1927, 2008, rows)
        ],
        "factor_elevacion": [f"{x:.4f}".replace(".", ",") for x in rng.gamma(6, 120, rows)],
        "observaciones": _some(
            rng, [""] * rows, [f"La persona {i} no quiso contestar a la pregunta." for i in range(200)], 0.15
        ),
    }
    path = _write(folder / "encuesta.csv", columns, sign=";", encoding="latin-1")
    return Case(
        path,
        _kinds(
            identifier="NUMERO",
            code="CCAA; municipio",
            category="provincia; sexo",
            number="edad; ingresos anuales; gasto_mensual; superficie (m2)",
            scale="salud",
            yes_no="calefaccion",
            date="nacimiento",
            weight="factor_elevacion",
            free_text="observaciones",
        ),
    )


def persons(folder: Path) -> Case:
    """A file of persons of a census: 264 industries, serial numbers, a weight with 80 replicates, N for not asked."""
    rng, rows = np.random.default_rng(2), 4000
    industries = [f"{code:04d}" for code in sorted(rng.choice(np.arange(17, 993) * 10 // 1, 264, replace=False))]
    occupations = [f"{code}" for code in sorted(rng.choice(np.arange(1005, 9830, 5), 300, replace=False))]
    weight = rng.gamma(3, 33, rows).astype(int) + 1
    age = rng.integers(0, 95, rows)
    columns = {
        "SERIALNO": [f"2019HU{rng.integers(10**6, 10**7)}" for _ in range(rows)],
        "SPORDER": [str(i) for i in rng.geometric(0.5, rows).clip(1, 9)],
        "PUMA": [f"{i:05d}" for i in rng.integers(101, 180, rows)],
        "AGEP": [str(i) for i in age],
        "SEX": _choice(rng, ["1", "2"], rows),
        "RAC1P": _choice(rng, [str(i) for i in range(1, 10)], rows, skew=1.5),
        "SCHL_LABEL": _choice(rng, ["Some high school", "High school", "Some college", "Bachelor's degree"], rows),
        "PINCP": ["N" if a < 15 else str(int(x)) for a, x in zip(age, np.exp(rng.normal(10.2, 1, rows)), strict=True)],
        "WKHP": _some(rng, [str(i) for i in rng.normal(38, 11, rows).astype(int).clip(1, 99)], ["N"], 0.4),
        "INDP": _some(rng, _choice(rng, industries, rows, skew=0.7), ["N"], 0.3),
        "OCCP": _some(rng, _choice(rng, occupations, rows, skew=0.7), ["N"], 0.3),
        "HICOV": _choice(rng, ["Y", "N"], rows),
        "PWGTP": [str(i) for i in weight],
    }
    columns |= {f"PWGTP{i}": [str(x) for x in (weight * rng.uniform(0.3, 1.7, rows)).astype(int)] for i in range(1, 81)}
    replicates = "; ".join(f"PWGTP{i}" for i in range(1, 81))
    return Case(
        _write(folder / "persons.csv.gz", columns),
        _kinds(
            identifier="SERIALNO",
            category="SEX; RAC1P; SPORDER",
            code="PUMA; INDP; OCCP",
            number="AGEP; PINCP; WKHP",
            scale="SCHL_LABEL",
            yes_no="HICOV",
            weight=f"PWGTP; {replicates}",
        ),
    )


def stored(folder: Path) -> Case:
    """A table of a database, with types of its own: truth values, dates, timestamps, decimals, doubles beside nulls."""
    path = folder / "clinic.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("SELECT setseed(0.3)")
        connection.execute(
            """CREATE TABLE visits AS SELECT
            i AS visit_id, uuid() AS token, 1000 + (i * 7919 % 800) AS patient_id,
            DATE '2023-01-01' + (i % 300)::INT AS visited,
            TIMESTAMP '2023-01-01 08:00:00' + INTERVAL (i * 37) MINUTE AS checked_in,
            i % 3 = 0 AS insured, CASE WHEN i % 9 = 0 THEN NULL ELSE 50 + (random() * 70)::INT END AS pulse,
            (random() * random() * 900)::DECIMAL(8, 2) AS charge, 36 + random() * 3 AS temperature,
            ['north', 'south', 'east', 'west'][1 + i % 4] AS wing,
            ['mild', 'moderate', 'severe'][1 + (i * i) % 3] AS pain,
            [1, 2] AS readings, 'patient ' || i || ' said that it hurts' AS note
            FROM range(3000) AS r(i)"""
        )
    return Case(
        path,
        _kinds(
            identifier="visit_id; token; patient_id",
            date="visited; checked_in",
            yes_no="insured",
            number="pulse; charge; temperature",
            category="wing",
            scale="pain",
            nested="readings",
            free_text="note",
        ),
        table="visits",
    )


def hospital(folder: Path) -> Case:
    """Admissions to hospitals, as a German statistics office would have them: latin-1, days with points, ICD codes."""
    rng, rows = np.random.default_rng(3), 5000
    icd = sorted({f"{rng.choice(list('ABCEFIJKMNST'))}{rng.integers(0, 99):02d}" for _ in range(400)})
    stay = rng.geometric(0.18, rows)
    columns = {
        "Fallnummer": [f"{rng.integers(10**9, 10**10)}" for _ in range(rows)],
        "AGS": [f"0{rng.integers(1, 10)}{rng.integers(1, 8)}{rng.integers(51, 60):02d}" for _ in range(rows)],
        "Aufnahmedatum": [f"{rng.integers(1, 29):02d}.{m:02d}.2022" for m in rng.integers(1, 13, rows)],
        "Uhrzeit": [f"{rng.integers(0, 24):02d}:{rng.integers(0, 60):02d}" for _ in range(rows)],
        "Geburtsjahr": [str(y) for y in rng.integers(1925, 2023, rows)],
        "Geschlecht": _choice(rng, ["männlich", "weiblich", "divers"], rows, skew=1),
        "Hauptdiagnose": _choice(rng, icd, rows, skew=0.6),
        "Pflegegrad": _some(rng, [str(i) for i in rng.integers(1, 6, rows)], ["k.A."], 0.1),
        "Verweildauer (Tage)": [str(i) for i in stay],
        "Erlös": [f"{x:,.2f}".translate(str.maketrans(",.", ".,")) for x in stay * rng.gamma(3, 300, rows)],
        "Gewicht (kg)": [f"{x:.1f}".replace(".", ",") for x in rng.normal(78, 15, rows)],
        "Notfall": _choice(rng, ["ja", "nein"], rows),
        "Zustand": _some(rng, _choice(rng, ["sehr gut", "gut", "mittel", "schlecht"], rows), ["-"], 0.05),
        "Fachabteilung": _choice(rng, [f"{i:04d}" for i in range(100, 3800, 100)], rows),
        "Bemerkung": _some(
            rng, [""] * rows, [f"Patient {i}: Rücksprache mit Angehörigen nötig" for i in range(900)], 0.3
        ),
        "Nachname": _choice(
            rng, [f"{a}{b}" for a in ("Mül", "Schmid", "Fisch") for b in ("ler", "t", "er", "mann")], rows
        ),
    }
    path = _write(folder / "krankenhaus.csv", columns, sign=";", encoding="latin-1")
    return Case(
        path,
        _kinds(
            identifier="Fallnummer",
            code="AGS; Hauptdiagnose; Fachabteilung",
            date="Aufnahmedatum",
            time="Uhrzeit",
            number="Geburtsjahr; Verweildauer (Tage); Erlös; Gewicht (kg)",
            category="Geschlecht; Pflegegrad",
            yes_no="Notfall",
            scale="Zustand",
            free_text="Bemerkung; Nachname",
        ),
    )


LIKERT = ["Strongly disagree", "Disagree", "Neither agree nor disagree", "Agree", "Strongly agree"]


def questionnaire(folder: Path) -> Case:
    """A survey of 200 questions, as it comes out of a statistics package: codes, words, -9, points for nothing."""
    rng, rows = np.random.default_rng(4), 1200
    columns = {"respondent": [f"R{i:06d}" for i in rng.permutation(rows)]}
    kinds = {"respondent": IDENTIFIER}
    for i in range(1, 61):
        columns[f"q{i}_rating"] = _some(rng, [str(x) for x in rng.integers(1, 6, rows)], ["-9", "-8"], 0.05)
        kinds[f"q{i}_rating"] = "category"
    for i in range(1, 51):
        columns[f"agree_{i}"] = _some(rng, _choice(rng, LIKERT, rows), ["Don't know", ""], 0.06)
        kinds[f"agree_{i}"] = "scale"
    for i in range(1, 41):
        columns[f"uses_{i}"] = _some(
            rng, _choice(rng, [["Yes", "No"], ["yes", "no"], ["Y", "N"]][i % 3], rows), ["."], 0.03
        )
        kinds[f"uses_{i}"] = "yes/no"
    for i in range(1, 21):
        minutes = rng.gamma(1.3, 40 + i, rows).astype(int)
        columns[f"minutes_{i}"] = _some(rng, [str(x) for x in minutes], ["-9", "-99"], 0.04)
        kinds[f"minutes_{i}"] = "number"
    for i in range(1, 16):
        columns[f"brand_{i}"] = _choice(rng, ["Alpha", "Beta", "Gamma", "Delta", "none of these"], rows, skew=0.4)
        kinds[f"brand_{i}"] = "category"
    for i in range(1, 6):
        words = rng.choice(["nice", "slow", "too", "dear", "helpful", "staff", "shop", "never", "again"], (rows, 6))
        columns[f"q{i}_open"] = [" ".join(row) + f" {j % 700}" if j % 3 else "" for j, row in enumerate(words)]
        kinds[f"q{i}_open"] = FREE_TEXT
    columns["age_band"] = _choice(rng, ["Under 18", "18 to 24", "25 to 44", "45 to 64", "65 and over"], rows)
    columns["income_band"] = _choice(
        rng, ["Less than $10,000", "$10,000 to $24,999", "$25,000 to $49,999", "$50,000 or more"], rows
    )
    columns["region"] = _choice(rng, ["North", "South", "East", "West"], rows)
    columns["interview_start"] = [
        f"2023-0{rng.integers(3, 6)}-{rng.integers(1, 29):02d} 1{i % 8}:{i % 60:02d}:07" for i in range(rows)
    ]
    columns["wave"] = ["3"] * rows
    columns["children"] = [str(x) for x in rng.poisson(0.9, rows)]
    columns["household_weight"] = [f"{x:.5f}" for x in rng.lognormal(0, 0.3, rows)]
    columns["email"] = [f"person{i}@example.org" for i in range(rows)]
    columns["satisfaction"] = _choice(
        rng, ["very dissatisfied", "dissatisfied", "neutral", "satisfied", "very satisfied"], rows
    )
    kinds |= {
        "age_band": "scale", "income_band": "scale", "region": "category", "interview_start": "date",
        "wave": "constant", "children": "number", "household_weight": "weight", "email": IDENTIFIER,
        "satisfaction": "scale",
    }  # fmt: skip
    assert len(columns) == 200
    return Case(_write(folder / "questionnaire.csv", columns), kinds)


def businesses(folder: Path) -> Case:
    """A register of businesses: branches, turnover with a long tail, telephone numbers, places on the map, quarters."""
    rng, rows = np.random.default_rng(5), 3000
    branches = [f"{a:02d}.{b}{c}" for a in range(10, 33) for b in range(1, 4) for c in range(3)]
    people = rng.zipf(1.7, rows).clip(1, 60000)
    founded = [f"{y}{rng.integers(1, 13):02d}{rng.integers(1, 29):02d}" for y in rng.integers(1950, 2024, rows)]
    columns = {
        "unit_number": [str(i + 1) for i in range(rows)],
        "vat_id": [f"XX{rng.integers(10**8, 10**9)}" for _ in range(rows)],
        "company_name": [f"Company {i}, Ltd." for i in rng.permutation(rows)],
        "street": [f"{rng.integers(1, 200)} High Street {rng.integers(1, 40)}" for _ in range(rows)],
        "postcode": [f"{rng.integers(1, 10)}{rng.integers(0, 10)}00" for _ in range(rows)],
        "nace": _choice(rng, branches, rows, skew=0.5),
        "employees": [str(x) for x in people],
        "turnover": [f"{x:,.0f}" for x in people * rng.lognormal(11, 1, rows)],
        "founded": founded,
        "period": [f"{y}-Q{q}" for y, q in zip(rng.integers(2019, 2023, rows), rng.integers(1, 5, rows), strict=True)],
        "month": [f"2022-{m:02d}" for m in rng.integers(1, 13, rows)],
        "legal_form": _choice(rng, ["sole", "partnership", "limited", "public", "cooperative"], rows, skew=1),
        "exports": _choice(rng, ["TRUE", "FALSE"], rows),
        "size_class": _choice(rng, ["small", "medium", "large"], rows, skew=1),
        "phone": [f"+44 20 {rng.integers(1000, 9999)} {rng.integers(1000, 9999)}" for _ in range(rows)],
        "lat": [f"{x:.5f}" for x in rng.uniform(50, 55, rows)],
        "lon": [f"{x:.5f}" for x in rng.uniform(-3, 1, rows)],
        "energy_kwh": _some(rng, [str(int(x)) for x in rng.gamma(0.8, 9000, rows)], ["-999"], 0.03),
        "growth": [f"{x:.1f}" for x in rng.normal(2, 9, rows)],
        "closed": _some(rng, [""] * rows, ["x"], 0.07),
    }
    return Case(
        _write(folder / "businesses.csv", columns),
        _kinds(
            identifier="unit_number; vat_id; phone",
            free_text="company_name; street",
            code="postcode; nace",
            number="employees; turnover; energy_kwh; growth",
            date="founded; period; month",
            category="legal_form",
            scale="size_class",
            coordinate="lat; lon",
        )
        | {"exports": "yes/no", "closed": "yes/no"},
    )


TUNED: tuple[Callable[[Path], Case | None], ...] = (titanic, penguins, encuesta, persons, stored)
JUDGED: tuple[Callable[[Path], Case | None], ...] = (arrests, adult, hospital, questionnaire, businesses)
