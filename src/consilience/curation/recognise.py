"""What a column is: told by its name and by what a pass over it remembered, as an experienced person would tell.

Each rule looks for one kind and gives reasons. Rules are asked in turn, the surest first; what none of them knows is
numbers, a list of values, or free text by how its values repeat. NOT PRIVATE: findings hold values of the data.
"""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from consilience.curation.cells import Cut, Numbers, age_bands, cut, is_time_of_day, periods, written_as
from consilience.curation.columns import Look, read_numbers
from consilience.curation.vocabulary import (
    ASIDE,
    BODY,
    CERTAIN,
    GRADED,
    HIGH_SENTINELS,
    PLACES,
    TICKS,
    UNITS,
    YES_NO,
    folded,
)
from consilience.domain.attributes import Attribute
from consilience.domain.declarations import format_number, visible


class Finding(NamedTuple):
    """What a column was taken for: the attribute to declare, or none where it is left out, and what to say of it."""

    kind: str
    attribute: Attribute | None
    seen: str
    """What was seen, with values of the data."""
    decide: str
    """What a person has to decide."""


# ----------------------------------------------------------------------------------------------------------------------
# The rules. Each knows one kind, or says nothing.


def recognise(look: Look) -> Finding:
    """What the column is, with the title that its code book has for it."""
    found = next((found for rule in RULES if (found := rule(look)) is not None), None) or _text(look)
    if look.entry is None or found.attribute is None or not look.entry.title:
        return found
    return found._replace(attribute=found.attribute.worded(title=look.entry.title))


def _by_the_book(look: Look) -> Finding | None:
    """What the code book lists: its codes in its order, those that nobody has too, with their labels."""
    entry = look.entry
    if entry is None or not look.rows:
        return None
    if entry.weight:
        return _left_out("weight", "the code book says that it is a survey weight")
    labels = {code: label for code, label in entry.labels if code not in look.tokens and code not in entry.missing}
    strange = [text for text in look.texts if text not in labels]
    rows = sum(look.texts[text] for text in strange)
    if not labels or rows > 0.5 * sum(look.texts.values()):
        return None
    told = f"{len(labels):,} codes of the code book"
    told += f"; {len(strange):,} others in {rows:,} rows become Other" if strange else ""
    attribute = Attribute.categorical(
        look.column.name, list(labels), missing=_absent(look), unlisted="Other" if strange else "drop"
    ).worded(labels={code: label for code, label in labels.items() if label != code})
    return Finding("code" if len(labels) > look.thresholds.categories else "category", attribute, told, "")


def _left_out(kind: str, seen: str, decide: str = "") -> Finding:
    return Finding(kind, None, seen, decide)


def _nothing(look: Look) -> Finding | None:
    if look.column.stored == "other":
        return _left_out("nested", "it holds lists, structures or durations, which no attribute can match")
    if not look.rows:
        return _left_out("empty", "it has no values")
    if look.distinct == 1 and look.missing and folded(next(iter(look.texts))) in TICKS:
        return _list(look, "yes/no", [next(iter(look.texts))], "one answer, and blanks for the other", missing="No")
    if look.distinct == 1:
        return _left_out("constant", "all its rows have the same value")
    return None


def _identifying(look: Look) -> Finding | None:
    """Names, addresses and other texts that tell who it is, whatever their number."""
    patterns = (
        ("e-mail addresses", r"[^@\s]+@[^@\s]+\.\w+"),
        ("web addresses", r"(?:https?://|www\.)\S+"),
        ("random identifiers", r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}|[0-9a-fA-F]{24,64}"),
        ("network addresses", r"\d{1,3}(?:\.\d{1,3}){3}"),
        ("telephone numbers", r"(?:\+\d[\d ()/.-]{7,}|\(?\d{3}\)?[ -/.]\d{3}[ -.]\d{4})"),
    )
    for what, pattern in patterns:
        if look.share(lambda text, pattern=pattern: re.fullmatch(pattern, text)) > 0.8:
            return _left_out("identifier", f"it holds {what}")
    grouped = look.distinct <= look.thresholds.categories and look.repeats >= look.thresholds.repeats
    certain = re.search(CERTAIN, look.name) is not None and look.distinct > 2
    if look.named("personal") and not look.is_numeric and (certain or not grouped):
        return _left_out("free text", f"its name and its {look.distinct:,} different texts are those of people")
    return None


def _yes_no(look: Look) -> Finding | None:
    if look.column.stored == "truth":
        return _list(look, "yes/no", ["false", "true"], "truth values")
    answers = {folded(text) for text in look.texts} - ASIDE
    pairs = [pair.split() for pair in YES_NO]
    fits = [pair for pair in pairs if answers == set(pair)]
    mixed = [{pair[side] for pair in pairs[:3]} for side in (0, 1)]
    if not fits and not (answers <= mixed[0] | mixed[1] and answers & mixed[0] and answers & mixed[1]):
        return None
    noes = {pair[0] for pair in (fits or pairs)}
    order = sorted(look.texts, key=lambda text: (_aside(text), folded(text) not in noes, text))
    spelled = "" if len(look.texts) == len(answers) else ", in several spellings, which a query has to add up"
    return _list(look, "yes/no", order, f"yes and no{spelled}")


def _aside(text: str) -> bool:
    return folded(text) in ASIDE


def _dates(look: Look) -> Finding | None:
    if look.column.stored == "time" or look.share(is_time_of_day) > look.thresholds.exact:
        return _left_out(
            "time",
            "it holds times of day",
            "store the hour, or a part of the day, in a column or a query, and draft again",
        )
    texts = sorted(look.texts)
    own = periods(texts) if look.distinct <= look.thresholds.codes else None
    if own:
        return _list(look, "date", own[1], f"{own[0]}, in their order")
    found = written_as(texts, exact=look.thresholds.exact)
    if found is None or (look.column.stored == "number" and found.format != "%Y%m%d"):
        return None
    written = "as ISO 8601 has it" if found.format is None else found.format
    seen = f"dates from {found.first} to {found.last}, written {written}"
    if found.ambiguous:
        seen += " (or with day and month the other way round: no day is above 12)"
    return Finding(
        "date",
        found.attribute(look.column.name, "Unknown" if found.strays else _absent(look)),
        f"{seen}; counted by {found.by}, in whole {'months' if found.by == 'day' else 'years'}",
        "the unit that people ask for, and ends known without the data",
    )


def _places(look: Look) -> Finding | None:
    wkt = look.share(lambda text: re.match(r"(?:MULTI)?(?:POINT|POLYGON|LINESTRING)\s*\(", text)) > 0.9
    pairs = look.share(lambda text: re.fullmatch(r"\(?-?\d+\.\d+\s*[,;]\s*-?\d+\.\d+\)?", text)) > 0.9
    numbers = look.is_numeric and look.numbers is not None and look.named("place")
    if numbers and look.numbers is not None:
        exact = not look.numbers.whole or look.numbers.high - look.numbers.low > 1000
        numbers = exact and look.distinct > look.thresholds.categories
    if not (wkt or pairs or numbers):
        return None
    return _left_out(
        "coordinate",
        "it holds coordinates, which tell people apart and have no useful bins of their own",
        "for points declare it kind = 'continuous' with public bounds, in a domain of its own",
    )


def _weights(look: Look) -> Finding | None:
    numbers = look.numbers
    if numbers is None or not look.is_numeric or numbers.low < 0 or not look.named("weight"):
        return None
    if look.distinct <= look.thresholds.categories or BODY.search(look.name):
        return None
    middle = numbers.at(0.5)
    plain = re.fullmatch(r"weights?|peso|poids|gewicht|wt|factor", look.name) is not None
    design = look.named("sampling") or not plain
    normalised = 0.3 <= middle <= 3 and not numbers.whole
    if not (design or normalised or (middle > 1000 and not numbers.whole)):
        return None
    return _left_out(
        "weight",
        "survey weights by their names: how many people a row stands for, which is no property of the person",
        "",
    )


def _long_numbers(look: Look) -> Finding | None:
    """Whole numbers that only tell rows apart."""
    numbers = look.numbers
    if numbers is None or not look.is_numeric or not numbers.whole or look.distinct < 20:
        return None
    spread = numbers.high - numbers.low + 1
    dense = spread <= 1.5 * look.distinct
    same_length = len({len(text) for text in look.texts}) == 1 and len(next(iter(look.texts))) >= 6
    named = look.named("identifier") or re.search(r"(?:^|\w)(?:id|no|nr)$", look.name.replace(" ", "")) is not None
    counts = f"{look.distinct:,} different values in {look.rows:,} rows"
    if look.unique and (dense or same_length or named):
        how = "that count the rows" if dense else "that tell the rows apart"
        return _left_out("identifier", f"it holds whole numbers {how}: {counts}")
    strictly = look.named("identifier")
    if strictly and look.distinct >= 50 and look.repeats <= 20 and not look.named("code"):
        return _left_out("identifier", f"it holds numbers that tell units apart: {counts}")
    counter = spread >= 50 and look.named("counter")
    few = numbers.low <= 1 or (strictly and look.distinct >= 50 and not look.named("code"))
    if dense and (counter or strictly) and few and _even(look):
        return _left_out("identifier", f"it counts rows within groups: {counts}")
    if same_length and len(next(iter(look.texts))) >= 8 and look.distinct > look.thresholds.codes:
        return _left_out("identifier", f"it holds long numbers that tell units apart: {counts}")
    return None


def _even(look: Look) -> bool:
    """Whether values have about equally many rows, as serial numbers within groups do."""
    rows = np.array(list(look.texts.values()))
    return bool(rows.max() <= 3 * max(1.0, float(np.median(rows))))


def _codes(look: Look) -> Finding | None:
    """Codes of a classification: with leading zeros, of one length, or by the name of the column."""
    digits = look.share(lambda text: re.fullmatch(r"\d+", text))
    zeros = look.column.stored == "text" and look.share(lambda text: re.fullmatch(r"0\d+", text)) > 0.005
    if digits > 0.9 and (zeros or look.is_numeric):
        return _digit_codes(look, zeros=zeros)
    coded = re.compile(r"[A-Za-z]{0,4}[ ./-]?\d[\dA-Za-z./-]{0,9}|[A-Z]{2,4}")
    fixed = len({len(text) for text in look.texts}) <= 2 and look.share(re.compile(r"\d\d\.\d{1,2}").fullmatch) > 0.9
    if look.is_numeric and not (fixed and look.named("code") and look.column.stored == "text"):
        return None
    if look.share(coded.fullmatch) < look.thresholds.exact or look.distinct <= look.thresholds.categories:
        return None
    if look.repeats < look.thresholds.repeats or look.distinct > look.thresholds.codes:
        return None
    return _list(look, "code", sorted(_codes_alone(look, coded)), "codes, in the order of their signs")


def _codes_alone(look: Look, coded: re.Pattern[str]) -> list[str]:
    """The texts that are codes or frequent; others may be anything that was typed there."""
    return [text for text, rows in look.texts.items() if coded.fullmatch(text) or rows >= look.thresholds.rare]


def _digit_codes(look: Look, *, zeros: bool) -> Finding | None:
    t, numbers = look.thresholds, look.numbers
    lengths = Counter(len(text) for text in look.texts)
    if zeros:
        if look.unique or look.distinct > t.codes:
            return _left_out(
                "identifier" if look.unique else "code",
                f"it holds numbers with leading zeros: {look.distinct:,} different values in {look.rows:,} rows",
                "" if look.unique else "store the first digits in a column or a query, and draft again",
            )
        order = sorted(_codes_alone(look, re.compile(r"\d+")), key=lambda text: (not text.isdigit(), text))
        how = f"{lengths.most_common(1)[0][0]} digits" if len(lengths) == 1 else "digits"
        return _list(look, "code", order, f"codes of {how} with leading zeros, which numbers would lose")
    if numbers is None or not numbers.whole or numbers.low < 0 or look.distinct <= t.categories:
        return None
    if look.distinct > t.codes or look.repeats < t.repeats or look.named("age") or look.named("year"):
        return None
    if not (look.named("code") or look.named("identifier") or _looks_coded(look, lengths)):
        return None
    order = sorted((text for text in look.texts if text.isdigit()), key=int)
    order += sorted(text for text in _codes_alone(look, re.compile(r"\d+")) if not text.isdigit())
    return _list(look, "code", order, "numbers that name things rather than measure them")


def _looks_coded(look: Look, lengths: Counter[int]) -> bool:
    """Numbers of one length, often repeated, between which there are gaps of all sizes, also where most rows are."""
    length, often = lengths.most_common(1)[0]
    if look.named("measure") or UNITS.match(look.column.name):
        return False
    if length < 3 or often < 0.95 * look.distinct or look.repeats < 10:
        return False
    values = np.array(sorted(int(text) for text in look.texts if text.isdigit()))
    core = values[len(values) // 10 : max(len(values) - len(values) // 10, 2)]
    step = int(np.gcd.reduce(np.diff(core))) if core.size > 1 else 1
    return step == 1 and core.size < 0.5 * (core[-1] - core[0] + 1)


def _scales(look: Look) -> Finding | None:
    """Words, or bands of numbers, that have an order."""
    if not 2 <= look.distinct <= 60 or not look.column.complete or look.is_numeric:
        return None
    aside = [text for text in look.texts if _aside(text)]
    steps = [text for text in look.texts if text not in aside]
    spoken = {text: folded(re.sub(r"^\s*[(\[]?\d{1,2}[.):\s-]+(?=\D)", "", text)) for text in steps}
    places = _scale_of(set(spoken.values())) if len(steps) >= 2 else None
    if places is not None:
        order = sorted(steps, key=lambda text: (places[spoken[text]], text))
        return _list(look, "scale", [*order, *sorted(aside)], "words of a scale, in its order")
    graded = {text: re.fullmatch(GRADED, folded(text)) for text in steps}
    if len(steps) >= 3 and all(graded.values()) and len({found[1] for found in graded.values() if found}) == 1:
        order = sorted(steps, key=lambda text: int(graded[text][2]))  # type: ignore[index]
        return _list(look, "scale", [*order, *sorted(aside)], "grades with a number, in its order")
    numbered = {text: re.match(r"\s*[(\[]?(\d{1,2})[.):\s-]+\D", text) for text in steps}
    if len(steps) >= 3 and all(numbered.values()):
        places = {text: int(found[1]) for text, found in numbered.items() if found}
        if len(set(places.values())) == len(steps):
            order = sorted(steps, key=places.__getitem__)
            return _list(look, "scale", [*order, *sorted(aside)], "answers with numbers before them, in that order")
    bands = {text: _band(text) for text in steps}
    if len(steps) >= 3 and sum(place is not None for place in bands.values()) >= 0.8 * len(steps):
        order = sorted(steps, key=lambda text: (bands[text] is None, bands[text] or (0.0, 0.0), text))
        return _list(look, "scale", [*order, *sorted(aside)], "bands of numbers, in their order")
    return None


def _scale_of(words: set[str]) -> dict[str, int] | None:
    """The places of words on the scale that has them all; on two of one length where they are in two languages."""
    whole = next((places for places in PLACES if words <= places.keys()), None)
    if whole is not None or len(words) < 4:
        return whole
    parts = [(places, words & places.keys()) for places in PLACES if len(words & places.keys()) > 1]
    for (one, ours), (two, theirs) in itertools.combinations(parts, 2):
        alike = max(one.values()) == max(two.values()) and all(one[word] == two[word] for word in ours & theirs)
        if alike and ours | theirs == words and ours - theirs and theirs - ours:
            return two | one
    return None


_BELOW = r"<|≤|under|less than|below|up to|unter|bis|menos de|hasta|moins de|jusqu|at most|fewer than|to "
_ABOVE = r">|≥|over|more than|above|uber|ab|mas de|plus de|at least|from "


def _band(text: str) -> tuple[float, float] | None:
    """Where a band of numbers begins, or None where the text is no band.

    >>> _band("$10,000 to $14,999"), _band("<18"), _band("65+"), _band("red")
    ((10000.0, 0.0), (18.0, -1.0), (65.0, 1.0), None)
    """
    plain = re.sub(r"(?<=\d)[,.' ](?=\d{3}(?:\D|$))", "", text.casefold())
    numbers = re.findall(r"\d+(?:[.,]\d+)?", plain)
    words = re.sub(r"[$€£%()\[\],]", "", plain).strip()
    if not numbers:
        return None
    first = float(numbers[0].replace(",", "."))
    if re.match(_BELOW, words):
        return first, -1.0
    if re.match(_ABOVE, words) or re.search(r"\d\s*(?:\+|(?:years? )?(?:and|or|und|y|et|ou|o) |plus\b)", words):
        return first, 1.0
    between = re.search(r"\d\s*(?:-|–|—|to|bis|a|à|through|until|up to|\.\.+)\s*\d", words)
    return (first, 0.0) if between and len(numbers) == 2 else None


def _number(look: Look) -> Finding | None:
    """Numbers to be cut into bins, or few whole numbers to be listed."""
    numbers, t = look.numbers, look.thresholds
    if numbers is None or not look.is_numeric or not numbers.count:
        return None
    if look.column.complete and look.distinct <= t.categories and not _counts(look):
        values = dict(zip(look.texts, read_numbers(list(look.texts), look.notation), strict=True))
        order = sorted(look.texts, key=lambda text: (np.isnan(values[text]), values[text], text))
        return _list(look, "category", order, "few different numbers, in their order")
    low, high = format_number(numbers.low), format_number(numbers.high)
    seen = f"{look.distinct:,} different {'whole ' if numbers.whole else ''}numbers from {low} to {high}"
    bands = age_bands(numbers) if look.named("age") else None
    found = bands or (_years(numbers) if look.named("year") else None) or cut(numbers, t.cutting)
    if look.entry is not None and look.entry.bounds is not None:
        found = _within_bounds(found, look.entry.bounds, whole=numbers.whole)
    attribute = Attribute.numeric(look.column.name, found.edges, integer=numbers.whole, missing=_absent(look))
    labels = open_labels(attribute, found)
    unit = UNITS.match(look.column.name)
    worded = attribute.worded(
        title=unit["title"] if unit else None, unit=unit["unit"] if unit else None, labels=labels or None
    )
    if str(high) in HIGH_SENTINELS and len(look.texts) > 1 and numbers.share(0.5 * numbers.high, numbers.high - 1) == 0:
        seen += f" ({high} lies apart: a missing value, or a top code?)"
    how = "the usual bands of ages" if bands else "round edges near the quantiles"
    ends = " and ".join(word for word, is_open in (("below", found.open_below), ("above", found.open_above)) if is_open)
    if ends:
        how += f"; open {ends}, for the tail is long" if bands is None else f"; open {ends}"
    return Finding("number", worded, f"{seen}; {how}", "the bins that people ask for, and ends known without the data")


def _within_bounds(found: Cut, bounds: tuple[float, float], *, whole: bool) -> Cut:
    """The bins with the public ends that the code book gives; whole numbers up to and with the last."""
    low, high = bounds[0], bounds[1] + 1 if whole else bounds[1]
    edges = [low, *(edge for edge in found.edges if low < edge < high), high]
    return Cut([int(edge) if whole else edge for edge in edges], False, False)


def _counts(look: Look) -> bool:
    """Whether few whole numbers count something: from 0, which is frequent, with ever fewer rows."""
    numbers = look.numbers
    if numbers is None or not numbers.whole or numbers.low != 0 or look.distinct < 5:
        return False
    rows = [rows for _, rows in sorted((int(float(text)), rows) for text, rows in _whole(look).items())]
    return len(rows) >= 5 and max(rows) in rows[:2] and rows[-1] < 0.05 * sum(rows) and rows[-1] <= rows[-2] * 1.5


def _whole(look: Look) -> dict[str, int]:
    return {text: rows for text, rows in look.texts.items() if re.fullmatch(r"\d+(?:\.0)?", text)}


def _years(numbers: Numbers) -> Cut | None:
    """Years in periods of one, five, ten or more, all alike."""
    if not (numbers.whole and numbers.low >= 1000 and numbers.high <= 2200):
        return None
    low, high = int(numbers.low), int(numbers.high)
    step = next(step for step in (1, 5, 10, 20, 25, 50, 100, 1000) if (high - low) / step <= 10)
    first = low // step * step
    return Cut(list(range(first, high + step + 1, step)), False, False)


def open_labels(attribute: Attribute, found: Cut) -> dict[str, str]:
    """Labels of the bins that also hold what is beyond."""
    bins, edges = attribute.ordinary_labels, [format_number(edge) for edge in found.edges]
    labels = {bins[-1]: f"{edges[-2]} or more"} if found.open_above else {}
    return labels | ({bins[0]: f"below {edges[1]}"} if found.open_below else {})


SIGNED = re.compile(r"(?:[$€£¥]|[A-Z]{3} )\s*[+-]?[\d.,]+|[+-]?[\d.,]+\s*(?:[%€$£¥‰]|[A-Z]{3}|kg|g|km|cm|mm|m|h|min)")


def _signed(look: Look) -> Finding | None:
    if look.share(SIGNED.fullmatch) < look.thresholds.exact or look.distinct <= look.thresholds.categories:
        return None
    return _left_out(
        "number",
        "it holds numbers with a sign of a currency, a percent sign or a unit, which are read as no numbers",
        "remove the signs in the source or in a query, and draft again",
    )


def _text(look: Look) -> Finding:
    """Texts: a list where they repeat, and free text or identifiers where they do not."""
    t = look.thresholds
    counts = f"{look.distinct:,} different texts in {look.rows:,} rows"
    words = sum(len(text.split()) for text in look.texts) / max(len(look.texts), 1)
    sentences = look.share(lambda text: re.search(r"[.!?]$", text), of_rows=False) >= 0.3
    many = look.distinct > t.categories
    if words >= t.words and (sentences or (look.named("prose") and look.distinct > 2)):
        return _left_out("free text", f"it holds sentences: {counts}")
    if look.named("prose") and many and (look.repeats < 2 * t.repeats or words >= t.words):
        return _left_out("free text", f"its name and {counts} tell that people wrote what they liked")
    if (many and look.repeats < t.repeats) or look.unique:
        spoken = words >= 1.5 or look.share(str.isalpha, of_rows=False) > 0.5
        return _left_out("free text" if spoken else "identifier", f"it hardly repeats: {counts}")
    if many and look.named("identifier") and look.repeats <= 20 and look.distinct > 50 and not look.named("code"):
        return _left_out("identifier", f"it tells units apart: {counts}")
    frequent = [text for text, rows in look.texts.items() if rows >= t.rare] if many else list(look.texts)
    kept = sum(look.texts[text] for text in frequent)
    if not look.column.complete or kept < 0.5 * look.rows:
        return _left_out("free text", f"few of its texts repeat: {counts}")
    frequent = sorted(sorted(frequent, key=lambda text: (-look.texts[text], text))[: t.listed])
    others = look.distinct - len(frequent)
    if not others:
        few = sum(rows < t.rare for rows in look.texts.values())
        rare = f", {few} of them in fewer than {t.rare} rows: misspelt, or to be put together?" if few else ""
        return _list(look, "category", sorted(frequent), f"values{rare}")
    return _list(look, "category", frequent, f"the most frequent values; {others:,} rarer become Other", other=True)


def _list(
    look: Look, kind: str, values: Sequence[str], what: str, *, missing: str | None = None, other: bool = False
) -> Finding:
    """A categorical attribute of these values."""
    can_be = [text for text in values if visible(text) == text and text]
    other = other or len(can_be) < len(values) or (kind == "code" and len(can_be) < len(look.texts))
    attribute = Attribute.categorical(
        look.column.name,
        can_be,
        missing=missing or _absent(look),
        unlisted="Other" if other else "drop",
    )
    decide = {
        "code": "values from the code book, with those that nobody has; a hierarchy by their first signs",
        "date": "the periods that people ask for",
        "yes/no": "what a blank means" if missing else "",
        "scale": "the order, and steps that nobody chose",
    }.get(kind, "values from the questionnaire, with those that nobody has")
    return Finding(kind, attribute, f"{what} ({look.distinct:,} different)", decide)


def _absent(look: Look) -> str | None:
    """What a missing value becomes: a value of its own where there are any."""
    stray = look.numbers is not None and look.numbers.count < look.rows
    return "Unknown" if look.missing or stray else None


RULES: tuple[Callable[[Look], Finding | None], ...] = (
    _by_the_book,
    _nothing,
    _identifying,
    _yes_no,
    _dates,
    _places,
    _weights,
    _long_numbers,
    _scales,
    _codes,
    _number,
    _signed,
)
