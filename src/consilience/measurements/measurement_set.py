"""Measurements that belong together: one domain, one promise of privacy, one provenance."""

import itertools
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal, DivisionByZero, Inexact, InvalidOperation, Overflow
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from consilience.domain.descriptions import Described, Description
from consilience.domain.domains import Domain
from consilience.domain.public_facts import PublicFacts, PublicMargin
from consilience.domain.queries import Query
from consilience.domain.sensitivity import Neighbours
from consilience.errors import MeasurementError
from consilience.measurements.further_laws import Exact
from consilience.measurements.measurement import Measurement, checksum, finite_number, plain_mapping
from consilience.measurements.noise_laws import NoiseLaw, what_to_write
from consilience.measurements.parquet import MeasurementFile, read_file, refusing_what_is_odd, write_file
from consilience.measurements.privacy_statement import PrivacyStatement, describe_budget

MarginalKey = str | tuple[str, ...]
Ledgers = Literal["one", "add"]
"""Whether sets that several ledgers paid for merge."""

NOT_PRIVATE = "NOT PRIVATE: made by a simulation whose noise can be repeated. It protects nobody."


@dataclass(frozen=True)
class MeasurementSet(Described):
    """The waist of the hourglass: all that estimators know of the data.

    `private` is False where the noise was simulated from a seed, and stays so in everything made from the set. Facts
    that the domain declares public are always named in the privacy statement.

    >>> from consilience.measurements import Laplace
    >>> domain = Domain.from_sizes({"age": 3, "sex": 2})
    >>> measured = MeasurementSet.from_marginals(domain, {"sex": [10.0, 12.0]}, noise=Laplace(2.0))
    >>> len(measured), measured.privacy.neighbours
    (1, 'add-remove')
    """

    domain: Domain
    measurements: tuple[Measurement, ...]
    privacy: PrivacyStatement = field(default_factory=PrivacyStatement)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    private: bool = True
    sums: tuple[Measurement, ...] = ()
    """Sums of amounts, which are fitted beside the counts (`publication.amount_sums`); they may be given among
    `measurements`, too."""

    def __post_init__(self) -> None:
        self.domain.refuse_draft()
        given = (*self.measurements, *self.sums)
        object.__setattr__(self, "measurements", tuple(each for each in given if each.amount is None))
        object.__setattr__(self, "sums", tuple(each for each in given if each.amount is not None))
        object.__setattr__(self, "provenance", plain_mapping(self.provenance, what="the provenance"))
        if not isinstance(self.private, bool):
            raise MeasurementError(f"private is True or False, found {self.private!r}")
        object.__setattr__(self, "privacy", self.privacy.relying_on(self.domain.public.describe()))
        seen: set[str] = set()
        for measurement in given:
            measurement.check(self.domain)
            if measurement.id and measurement.id in seen:
                raise MeasurementError(f"two measurements have the id {measurement.id!r}; ids are unique: rename one")
            seen.add(measurement.id)

    @staticmethod
    def from_marginals(
        domain: Domain,
        marginals: Mapping[MarginalKey, ArrayLike],
        *,
        noise: NoiseLaw | Mapping[MarginalKey, NoiseLaw],
        neighbours: Neighbours = "add-remove",
        unit: str = "row",
        clipped: bool = False,
        spent: Mapping[str, Any] | None = None,
        ledger: str | None = None,
        public: str | None = None,
        private: bool = True,
    ) -> "MeasurementSet":
        """The set of noisy marginals that are at hand as arrays.

        A key names the attributes in the order of the array's axes (`"age"`, `("age", "sex")`, and `()` for the
        total); the array has that shape, or is flat with the last attribute varying fastest. `noise` is one law for
        all of them, or a law for each key. `ledger` names the budget that paid: sets of one ledger can be merged.
        `public` names a published source, such as "Census 2021": `noise` is then its own error, and it costs nothing.
        """
        if public is not None and (spent is not None or ledger is not None):
            raise MeasurementError(f"public data ({public!r}) cost no budget; leave out spent and ledger, or public")
        if not isinstance(noise, NoiseLaw | Mapping):
            raise MeasurementError(f"noise={noise!r} does not say which law it is; {what_to_write(noise)}")
        laws = None if isinstance(noise, NoiseLaw) else {_as_names(key): law for key, law in noise.items()}
        measurements = []
        for key, array in marginals.items():
            names = _as_names(key)
            law = noise if isinstance(noise, NoiseLaw) else (laws or {}).get(names)
            if law is None:
                raise MeasurementError(f"the marginal by {_said(names)} has no noise law; give one for every marginal")
            values = _shaped(domain, names, array)
            measurements.append(Measurement(Query.marginal(*names), values, law, clipped=clipped))
        named = {"ledger": ledger, "public": public}
        provenance = {"tool": "arrays"} | {key: name for key, name in named.items() if name is not None}
        privacy = PrivacyStatement(neighbours, unit, spent)
        return MeasurementSet(domain, tuple(measurements), privacy, provenance, private)

    def with_public(
        self, *, total: float | None = None, margins: Mapping[MarginalKey, ArrayLike] | None = None
    ) -> "MeasurementSet":
        """The set with exact facts from outside, which the privacy statement then names.

        The facts must agree with each other and with what the domain declares. Margins that differ by no more than
        single precision rounds (a millionth) agree: the small differences are shared out.
        """
        total = None if total is None else finite_number(total, "the public total")
        margins = margins or {}
        tables = {_as_names(key): _shaped(self.domain, _as_names(key), array) for key, array in margins.items()}
        tables = _without_rounding(tables, total)
        listed = tuple(PublicMargin(names, tuple(array.ravel().tolist())) for names, array in tables.items())
        facts = PublicFacts(total, listed)
        known = self._known_totals()
        for name, found in _totals_of(facts).items():
            _refuse_other_total(known, name, found)
            known[name] = found
        # The domain's own checks: finite, not negative, one count for each cell.
        replace(self.domain, public=facts)
        added = [] if total is None else [_public_measurement((), [total])]
        added += [_public_measurement(names, array) for names, array in tables.items()]
        measurements = _joined(self.measurements, added)
        return replace(self, measurements=measurements, privacy=self.privacy.relying_on(facts.describe()))

    def relying_on(self, *facts: str) -> "MeasurementSet":
        """The set whose privacy statement also names these, which were known from elsewhere."""
        return replace(self, privacy=self.privacy.relying_on(facts))

    def _known_totals(self) -> dict[str, float]:
        known = _totals_of(self.domain.public)
        for measurement in self.measurements:
            if measurement.id.startswith("public:"):
                known[f"the public {measurement.id.removeprefix('public:')}"] = float(measurement.values.sum())
        return known

    def merge(self, *others: "MeasurementSet", ledgers: Ledgers = "one") -> "MeasurementSet":
        """One set of all measurements; what they spent is added up.

        Refused for another domain, neighbour relation or unit, and for another ledger unless `ledgers="add"`: the sum
        is then what these measurements spent, and says nothing of what else their ledgers paid for. Public data (see
        `from_marginals`) join any set, cost nothing, and are named in the statement. A measurement that is in several
        sets (same id, same contents) is kept once, and a release that is in several sets is paid for once. The result
        is private only if all parts are.
        """
        if not others:
            return self
        sets = (self, *others)
        paid = [each for each in sets if not _is_public(each)]
        first = paid[0] if paid else self
        for other in sets:
            if other is not first or len(paid) > 1:
                _refuse_strangers(first, other, ledgers)
        measurements, releases = (*self.measurements, *self.sums), _releases(self)
        spent = [] if _is_public(self) else [self.privacy.spent]
        for other in others:
            theirs = _releases(other)
            shared = _shared_releases(releases, theirs)
            added = [each for each in (*other, *other.sums) if not (shared and each in measurements)]
            measurements = _joined(measurements, added)
            if len(shared) < len(theirs) and not _is_public(other):
                spent.append(other.privacy.spent)
            releases += [each for each in theirs if _release_name(each) not in shared]
        total, notes = _total_spent(spent) if spent else (None, ())
        names = sorted({ledger for each in paid for ledger in _ledgers(each)}, key=str)
        if len(names) > 1:
            notes += (f"Several ledgers paid: {', '.join(map(_ledger_name, names))}. Each may have paid for more.",)
        facts = [fact for each in sets for fact in each.privacy.public_facts]
        facts += [f"{each.provenance['public']}, with its own error" for each in sets if _is_public(each)]
        lines = tuple(line for each in sets for line in each.privacy.notes) + notes
        privacy = PrivacyStatement(first.privacy.neighbours, first.privacy.unit, total, tuple(facts), lines)
        provenance: dict[str, Any] = {"merged": releases}
        if len(names) == 1 and names[0] is not None:
            provenance |= {"ledger": names[0]}
        elif names:
            provenance |= {"ledgers": names}
        else:
            provenance |= {"public": ", ".join(str(each.provenance["public"]) for each in sets)}
        return MeasurementSet(self.domain, measurements, privacy, provenance, all(each.private for each in sets))

    @property
    def as_drawn(self) -> bool | None:
        """Whether all noisy values and their laws are those that were drawn, by the checksum recorded then.

        None where there is none for all of them: of noise drawn elsewhere, and of files of earlier versions. Whoever
        changes a file on purpose can write a new checksum; the one in the ledger is out of reach.
        """
        recorded = {_release_name(each): each.get("checksum") for each in _releases(self)}
        found: dict[str | None, list[Measurement]] = {name: [] for name in recorded}
        for each in (*self.measurements, *self.sums):
            if not isinstance(each.noise, Exact):
                found.setdefault(each.id.rpartition("/")[0], []).append(each)
        if any(known is not None and checksum(found[name]) != known for name, known in recorded.items()):
            return False
        return True if all(recorded.get(name) is not None for name in found) else None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the set as a measurement file, whole or not at all."""
        contents = MeasurementFile(
            self.domain, (*self.measurements, *self.sums), self.privacy, dict(self.provenance), private=self.private
        )
        write_file(path, contents)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> "MeasurementSet":
        """The set that a measurement file holds; whatever is wrong with the file is a `FileFormatError`."""
        with refusing_what_is_odd(os.path.basename(path)):
            contents = read_file(path)
            return MeasurementSet(
                contents.domain, contents.measurements, contents.privacy, contents.provenance, contents.private
            )

    @cached_property
    def by_query(self) -> Mapping[Query, tuple[Measurement, ...]]:
        """The measurements of each query that was measured."""
        found: dict[Query, list[Measurement]] = {}
        for each in self.measurements:
            found.setdefault(each.query, []).append(each)
        return {query: tuple(measured) for query, measured in found.items()}

    def __len__(self) -> int:
        return len(self.measurements)

    def __iter__(self) -> Iterator[Measurement]:
        return iter(self.measurements)

    def described(self) -> Description:
        """What was measured, how noisy it is, and what is promised."""
        rows = tuple((each.asks, f"{each.values.size:,}", each.noise.describe()) for each in self.measurements)
        title = f"{len(self):,} measurement{'s' * (len(self) != 1)} over the domain {self.domain.name!r}"
        lines = tuple(self.privacy.describe().split("\n"))
        warning = "" if self.private else NOT_PRIVATE
        return Description(title, lines, ("query", "values", "noise"), rows, warning=warning)

    def describe(self) -> str:
        """The set for a reader: what was measured, how noisy it is, and what is promised."""
        every = (*self.measurements, *self.sums)
        values = sum(measurement.values.size for measurement in every)
        lines = [] if self.private else [NOT_PRIVATE]
        counted = "1 measurement" if len(every) == 1 else f"{len(every)} measurements"
        lines.append(f"{counted} ({values} values) over the domain {self.domain.name!r}")
        lines += [f"  {measurement.describe()}" for measurement in every[:SHOWN_MEASUREMENTS]]
        if len(every) > SHOWN_MEASUREMENTS:
            lines.append(f"  and {len(every) - SHOWN_MEASUREMENTS} more")
        return "\n".join([*lines, self.privacy.describe()])


# Wide enough for sums of amounts of 200 characters; a sum that would have to be rounded is refused.
_EXACT = Context(prec=500, traps=[Inexact, InvalidOperation, Overflow, DivisionByZero])

SHOWN_MEASUREMENTS = 20

LARGEST_ROUNDING, ROUNDS_OF_SCALING = 1e-6, 200
"""By what part public margins may differ and still be the same numbers, rounded; and how often they are scaled."""

Table = np.ndarray[Any, np.dtype[np.float64]]


def _as_names(key: MarginalKey) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else tuple(key)


def _said(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing (the total)"


def _shaped(domain: Domain, names: tuple[str, ...], array: ArrayLike) -> Table:
    """The array as floats in the shape of the marginal; another shape is refused, naming both."""
    shape = domain.sizes(names)
    found = np.asanyarray(array)
    if np.ma.isMaskedArray(found) or found.dtype.kind not in "iuf":
        raise MeasurementError(f"the marginal by {_said(names)} must be a plain array of numbers, found {found.dtype}")
    cells = math.prod(shape)
    if found.shape not in (shape, (cells,)):
        hint = "; the axes follow the order of the key" if sorted(found.shape) == sorted(shape) else ""
        raise MeasurementError(
            f"the marginal by {_said(names)} has the shape {found.shape}, but the domain {domain.name!r} "
            f"gives it the shape {shape}, or flat ({cells},){hint}"
        )
    return found.reshape(shape).astype(np.float64)


def _without_rounding(tables: dict[tuple[str, ...], Table], total: float | None) -> dict[tuple[str, ...], Table]:
    """Margins that agree to a millionth, made to agree: what several say of the same counts is scaled to its mean.

    Proportional fitting keeps zeros. Margins that differ by more are given back as they are, to be refused.
    """
    fitted = {names: table.copy() for names, table in tables.items()}
    shared = {frozenset(one) & frozenset(other) for one, other in itertools.combinations(tables, 2)}
    holders = {kept: [names for names in tables if kept <= set(names)] for kept in shared}
    for _ in range(ROUNDS_OF_SCALING):
        widest = 0.0
        for kept, among in holders.items():
            sums = {names: _sums(fitted[names], names, kept) for names in among}
            mean = sum(sums.values()) / len(among)
            for names, own in sums.items():
                off = np.divide(mean, own, out=np.ones_like(own), where=own > 0) - 1.0
                if not np.all((np.abs(off) <= LARGEST_ROUNDING) | (np.abs(mean - own) <= LARGEST_ROUNDING * own.max())):
                    return tables
                widest = max(widest, float(np.abs(off).max(initial=0.0)))
                away = tuple(axis for axis, name in enumerate(names) if name not in kept)
                axes = [name for name in names if name in kept]
                order = [sorted(axes).index(name) for name in axes]
                fitted[names] *= 1.0 + np.expand_dims(off.transpose(order), away)
        if widest <= 1e-15:
            break
    if total and all(abs(table.sum() / total - 1.0) <= LARGEST_ROUNDING for table in fitted.values()):
        fitted = {names: table * (total / table.sum()) for names, table in fitted.items()}
    return fitted


def _sums(table: Table, names: tuple[str, ...], kept: frozenset[str]) -> Table:
    """The sums over all but the kept attributes, whose axes are in alphabetical order."""
    axes = [name for name in names if name in kept]
    away = tuple(axis for axis, name in enumerate(names) if name not in kept)
    return np.asarray(table.sum(axis=away)).transpose([axes.index(name) for name in sorted(axes)])


def _public_measurement(names: tuple[str, ...], counts: ArrayLike) -> Measurement:
    label = "public:" + (", ".join(names) or "total")
    return Measurement(Query.marginal(*names), np.asarray(counts, dtype=np.float64), Exact(), id=label)


def _totals_of(facts: PublicFacts) -> dict[str, float]:
    """Each fact, and the total that it implies."""
    totals = {} if facts.total is None else {"the public total": float(facts.total)}
    return totals | {f"the public {', '.join(m.attributes)}": math.fsum(m.counts) for m in facts.margins}


def _refuse_other_total(known: Mapping[str, float], name: str, found: float) -> None:
    for other, total in known.items():
        if not math.isclose(found, total, rel_tol=1e-9, abs_tol=1e-9):
            raise MeasurementError(
                f"{name} comes to {found:.12g}, but {other} comes to {total:.12g}; public facts must agree"
            )


def _joined(measurements: Sequence[Measurement], added: Iterable[Measurement]) -> tuple[Measurement, ...]:
    """All measurements; of equal ones with one id, one."""
    known = {measurement.id: measurement for measurement in measurements if measurement.id}
    joined = list(measurements)
    for measurement in added:
        same = known.get(measurement.id)
        if same is not None and same != measurement:
            raise MeasurementError(
                f"the id {measurement.id!r} names two different measurements ({same.describe()}; "
                f"{measurement.describe()}); an id names one for ever: rename one of them"
            )
        if same is None:
            joined.append(measurement)
        if measurement.id:
            known[measurement.id] = measurement
    return tuple(joined)


def _is_public(measured: MeasurementSet) -> bool:
    return isinstance(measured.provenance.get("public"), str)


def _ledgers(measured: MeasurementSet) -> list[Any]:
    """The ledgers that paid, None for an unnamed one."""
    several = measured.provenance.get("ledgers")
    return list(several) if isinstance(several, list) else [measured.provenance.get("ledger")]


def _refuse_strangers(one: MeasurementSet, other: MeasurementSet, ledgers: Ledgers) -> None:
    """Refuse to merge sets whose promises do not add up to one."""
    if ledgers not in get_args(Ledgers):
        raise MeasurementError(f"ledgers is {ledgers!r}; there is {' and '.join(map(repr, get_args(Ledgers)))}")
    if one.domain.fingerprint != other.domain.fingerprint:
        raise MeasurementError(
            f"sets of different domains do not merge: {one.domain.name!r} with {', '.join(one.domain.names)}, "
            f"and {other.domain.name!r} with {', '.join(other.domain.names)}"
            f"{' (declared differently)' if one.domain.names == other.domain.names else ''}; "
            "measure both on one declaration"
        )
    if _is_public(other):
        return
    for word, mine, theirs in (
        ("neighbour relation", one.privacy.neighbours, other.privacy.neighbours),
        ("unit of protection", one.privacy.unit, other.privacy.unit),
    ):
        if mine != theirs:
            raise MeasurementError(f"sets of one {word} merge; these have {mine!r} and {theirs!r}: keep them apart")
    mine, theirs = _ledgers(one), _ledgers(other)
    if ledgers == "one" and (None in mine or mine != theirs):
        raise MeasurementError(
            f"sets of one ledger merge; these come from {_ledger_list(mine)} and {_ledger_list(theirs)}: only one "
            'ledger knows what they spent together. To add up what they spent themselves, merge them with ledgers="add"'
        )


def _ledger_list(ledgers: Iterable[object]) -> str:
    return ", ".join(map(_ledger_name, ledgers))


def _ledger_name(ledger: object) -> str:
    return "an unnamed ledger" if ledger is None else f"the ledger {ledger!r}"


def _releases(measured: MeasurementSet) -> list[dict[str, Any]]:
    """The provenance of each release in the set, with what it spent."""
    merged = measured.provenance.get("merged")
    if isinstance(merged, list) and merged and all(isinstance(each, dict) for each in merged):
        return list(merged)
    spent = measured.privacy.spent
    return [dict(measured.provenance) | {"spent": None if spent is None else dict(spent)}]


def _release_name(release: Mapping[str, Any]) -> str | None:
    name = release.get("release")
    return None if name is None else str(name)


def _shared_releases(known: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> set[str]:
    """The named releases that are in both lists; one that claims two prices is refused."""
    spent = {_release_name(each): each.get("spent") for each in known}
    shared = set()
    for each in others:
        name = _release_name(each)
        if name is None or name not in spent:
            continue
        if spent[name] != each.get("spent"):
            raise MeasurementError(
                f"the release {name!r} is said to have spent {spent[name]} and {each.get('spent')}; "
                "a release is paid for once: ask its ledger which is right"
            )
        shared.add(name)
    return shared


def _total_spent(parts: Sequence[Mapping[str, str] | None]) -> tuple[dict[str, str] | None, tuple[str, ...]]:
    """The sum of what the parts spent; where there is none, None and a note that says why."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None, ("What some of the merged measurements spent is not known.",)
    if len({frozenset(part) - {"failure_delta"} for part in known}) > 1:
        listed = "; ".join(describe_budget(part) for part in known)
        return None, (f"The merged measurements spent {listed}. The ledger converts these to one unit and adds them.",)
    return sum_spent(known), ()


def sum_spent(budgets: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The sum of budgets of one unit, number by number, to the last digit.

    >>> sum_spent([{"epsilon": "0.1"}, {"epsilon": "0.2"}])
    {'epsilon': '0.3'}
    """
    total: dict[str, Decimal] = {}
    try:
        for budget in budgets:
            for name, text in budget.items():
                total[name] = _EXACT.add(total.get(name, Decimal(0)), Decimal(text))
    except Inexact:
        raise MeasurementError("the budgets spent differ too much in size to be added exactly") from None
    return {name: _decimal_text(amount) for name, amount in total.items()}


def _decimal_text(value: Decimal) -> str:
    plain = _EXACT.normalize(value)
    return format(plain, "f") if -6 < plain.adjusted() < 15 else format(plain, "e")
