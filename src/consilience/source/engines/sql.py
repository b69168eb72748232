"""Counting in a SQL engine: the domain's rules as one query, of which nothing but the counts comes back.

    codes      each column becomes a code by CASE, as the coder of its attribute would have it
    records    those that a rule drops, or that lie in impossible cells, are filtered out
    counted    with a unit, the rows with the smallest hashes of each unit's own rows (`source.unit_rows`)
    counts     GROUP BY GROUPING SETS, one set for each marginal, as many at once as the engine allows

A code is never NULL, so the columns that are not NULL tell which marginal a row of the result belongs to. Cells that
are in no row hold no record. Identifiers are quoted and texts are literals, written by `sqlglot` for each dialect:
only declared names and labels are in a query, and nothing is taken from the data.

Engines compare texts, round numbers and order NULLs in ways of their own. A column is counted here only where its type
leaves no doubt that every value gets the code that `source.coding` gives it; any other column is refused, with the
reason and what to do.
"""

import re
from collections.abc import Collection, Generator, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.attributes import Continuous
from consilience.domain.domains import Domain
from consilience.errors import DeclarationError, SourceError
from consilience.source.base import RecordSum, Source, SourceIdentity, Unit
from consilience.source.engines.columns import REASONS, Column, ColumnRules, is_unicode, numeral
from consilience.source.engines.dialects import Written, engine_of, exp, literal
from consilience.source.readers import attempt, check_columns

ROWS_PER_FETCH = 2**16


class SqlSource(Source):
    """A table that stays in its SQL engine: queries count it there, and the counts alone come here."""

    __slots__ = ("_connection", "_engine", "_rules", "_table", "_unit_column")

    gives_points = False

    def __init__(
        self, connection: Any, domain: Domain, *, table: str, unit: Unit | None, name: str | None, address: str | None
    ) -> None:
        self._engine = engine_of(connection)
        if domain.weight is not None:
            raise DeclarationError(
                f"domain {domain.name!r} weights its records by {domain.weight.column!r}, and weights are not added up "
                f"in SQL: {self._engine.name} counts records; measure an export of the table"
            )
        shown = f"the table in {self._engine.name}"
        identity = SourceIdentity(table=table, name=name, engine=self._engine.name, address=address)
        super().__init__(domain, unit=unit, identity=identity, place=f"in {self._engine.name}")
        self._connection = connection
        self._table = table.split(".")
        refusal = f"{shown} cannot be described; check that it exists, by exactly this name, and that you may read it"
        found = {column.name: column for column in attempt(self._columns, refusal)}
        required = {each.name: each for each in domain.attributes} | ({} if unit is None else {unit.column: None})
        check_columns(shown, list(found), required)
        for column in (found[each] for each in required):
            if column.kind is None:
                raise SourceError(
                    f"the column {column.name!r} of {shown} has the type {column.type}, whose values may "
                    f"not get their codes in {self._engine.name}; convert it in a view, or measure an export of it"
                )
        self._rules = {
            each.name: ColumnRules(self._engine, found[each.name], each, domain) for each in domain.attributes
        }
        self._unit_column = None if unit is None else self._checked_unit(found[unit.column])
        """The text of each record's unit."""

    @property
    def runs_code(self) -> bool:
        return True

    def check_points(self, names: Sequence[str]) -> None:
        super().check_points(names)
        raise DeclarationError(
            f"points are not summed in SQL: {self._engine.name} counts marginals; measure the table on Spark, or an "
            "export of it"
        )

    def exact_sums(self, names: Sequence[str], sums: Sequence[RecordSum]) -> list[NDArray[np.int64]]:
        self.check_points(names)
        return []

    def exact_points(self, names: Sequence[str]) -> NDArray[np.float64] | None:
        self.check_points(names)

    def exact_counts(
        self, marginals: Sequence[tuple[str, ...]], *, amount: str | None = None
    ) -> list[NDArray[np.int64]]:
        self.check_size(marginals, amount=amount)
        refusal = (
            f"the table could not be counted in {self._engine.name}; check that it is there and unchanged since it was "
            "opened, and that the engine allows such a query"
        )
        return attempt(lambda: self._count(marginals), refusal)

    def check_size(self, marginals: Sequence[tuple[str, ...]], *, amount: str | None = None) -> None:
        if amount is not None:
            raise DeclarationError(
                f"amounts of {amount!r} are not added up in SQL: {self._engine.name} counts marginals; measure an "
                "export of the table"
            )
        super().check_size(marginals)

    def exact_value_counts(self, name: str) -> Generator[dict[str, int]]:
        raise DeclarationError(
            f"values that nobody declared are not looked for in SQL; declare the values of {name!r}, or measure an "
            "export of the table"
        )

    def statements(self, marginals: Sequence[tuple[str, ...]]) -> list[str]:
        """The queries that would count these marginals; they hold declarations alone."""
        return [self._written(self._query(sets), pretty=True) for sets in self._chunks(marginals)]

    def _count(self, marginals: Sequence[tuple[str, ...]]) -> list[NDArray[np.int64]]:
        found: dict[tuple[str, ...], NDArray[np.int64]] = {}
        for sets in self._chunks(marginals):
            columns = self._ordered({name for names in sets for name in names})
            tables = {names: np.zeros(self._domain.sizes(names), dtype=np.int64) for names in sets}
            for *codes, number in self._rows(self._query(sets)):
                of = tuple(name for name, code in zip(columns, codes, strict=True) if code is not None)
                tables[of][tuple(int(code) for code in codes if code is not None)] += int(number)
            found |= tables
        return [
            np.transpose(found[key], [key.index(name) for name in names]).copy()
            for names, key in ((names, self._ordered(names)) for names in marginals)
        ]

    def _ordered(self, names: Collection[str]) -> tuple[str, ...]:
        return tuple(name for name in self._domain.names if name in names)

    def _chunks(self, marginals: Sequence[tuple[str, ...]]) -> list[list[tuple[str, ...]]]:
        """The distinct sets of attributes, as many together as one query of the engine may have."""
        chunks: list[list[tuple[str, ...]]] = [[]]
        for names in dict.fromkeys(self._ordered(names) for names in marginals):
            together = {name for each in (*chunks[-1], names) for name in each}
            if len(chunks[-1]) == self._engine.sets or (chunks[-1] and len(together) > self._engine.keys):
                chunks.append([])
            chunks[-1].append(names)
        return chunks if chunks[0] else []

    def _query(self, sets: Sequence[tuple[str, ...]]) -> Written:
        columns = self._ordered({name for names in sets for name in names})
        number = exp.alias_(exp.Count(this=exp.Star(), big_int=True), "n")
        query = exp.select(*[self._place(name) for name in columns], number).from_(self._counted(columns))
        if columns:
            tuples: list[Written] = [exp.Tuple(expressions=[self._place(name) for name in names]) for names in sets]
            query.set("group", exp.Group(grouping_sets=[exp.GroupingSets(expressions=tuples)]))
        return query

    def _counted(self, columns: Sequence[str]) -> Written:
        """The records that are counted, with the codes of these attributes: all that are kept, or those of units."""
        rules = self._domain.impossible
        in_rules = {name for rule in rules for name in rule.attributes}
        needed = [
            name
            for name, each in self._rules.items()
            if each.drops or name in in_rules or name in columns or self._unit is not None
        ]
        unit = self._unit_column
        codes = [exp.alias_(self._rules[name].code.copy(), self._place(name).name) for name in needed]
        table = exp.Table(
            **dict(
                zip(
                    ("this", "db", "catalog"),
                    [exp.to_identifier(part, quoted=True) for part in reversed(self._table)],
                    strict=False,
                )
            )
        )
        source = exp.select(*codes).from_(table) if codes else exp.select(exp.alias_(numeral(1), "c")).from_(table)
        if unit is not None:
            source = source.select(exp.alias_(unit.copy(), "u")).where(unit.copy().is_(exp.null()).not_())
            for token in self._unit_tokens:
                source = source.where(exp.Not(this=exp.Paren(this=self._engine.same_text(unit, token))))
        kept = exp.select("*").from_(source.subquery("codes"))
        for name in needed:
            if self._rules[name].drops:
                kept = kept.where(exp.LT(this=self._place(name), expression=numeral(self._rules[name].size)))
        for rule in rules:
            within = [self._place(name).isin(*[numeral(code) for code in codes_]) for name, codes_ in rule.codes]
            kept = kept.where(exp.Not(this=exp.Paren(this=exp.and_(*within))))
        found = kept.subquery("records")
        return found if self._unit is None else self._of_units(found, self._unit.max_rows)

    def _of_units(self, records: Written, limit: int) -> Written:
        """The rows of each unit with the smallest hashes of format, codes, ordinal and unit."""
        digest, exact = self._engine.digest, self._engine.whole_text
        assert digest is not None
        assert exact is not None
        names = list(self._rules)
        unit = exact(exp.column("u"))
        ordinal = exp.Window(
            this=exp.RowNumber(),
            partition_by=[unit, *[self._place(name) for name in names]],
            order=exp.Order(expressions=[self._place(names[0])]),
        )
        numbered = exp.select("*", exp.alias_(exp.Sub(this=ordinal, expression=numeral(1)), "o")).from_(records)
        message: Written = literal("consilience row 1\n")
        for place, name in enumerate(names):
            message = exp.DPipe(this=message, expression=exp.cast(self._place(name), "text"))
            message = exp.DPipe(this=message, expression=literal("," if place < len(names) - 1 else "\n"))
        message = exp.DPipe(this=message, expression=exp.cast(exp.column("o"), "text"))
        message = exp.DPipe(this=exp.DPipe(this=message, expression=literal("\n")), expression=exp.column("u"))
        place_among = exp.Window(
            this=exp.RowNumber(),
            partition_by=[exact(exp.column("u"))],
            order=exp.Order(expressions=[digest(message)]),
        )
        ranked = exp.select("*", exp.alias_(place_among, "p")).from_(numbered.subquery("numbered"))
        chosen = exp.select("*").from_(ranked.subquery("ranked"))
        return chosen.where(exp.LTE(this=exp.column("p"), expression=numeral(limit))).subquery("counted")

    def _checked_unit(self, column: Column) -> Written:
        """The unit's text; refused where the engine could tell units apart otherwise than this package does."""
        if self._engine.digest is None or self._engine.whole_text is None:
            raise SourceError(
                f"the rows of units are chosen by a hash of their bytes in UTF-8, which {self._engine.name} has not; "
                "measure an export of the table"
            )
        points = next((each.name for each in self._domain.attributes if isinstance(each, Continuous)), None)
        if points is not None:
            raise SourceError(
                f"the rows of units are chosen by a hash of all attributes, of which {points!r} is continuous, and no "
                f"number of it is the same text in {self._engine.name}; leave it out of the domain"
            )
        if column.kind not in ("text", "whole"):
            raise SourceError(f"the column {column.name!r} {REASONS['unit']}, or measure an export of the table")
        return column.sql if column.kind == "text" else exp.cast(column.sql, "text")

    @property
    def _unit_tokens(self) -> list[str]:
        """The texts that stand for a missing unit: such records are of nobody, as everywhere, and are not counted."""
        tokens = self._domain.source_format.notation_of(self.unit or "").missing_tokens
        return [token for token in tokens if is_unicode(token)]

    def _place(self, name: str) -> exp.Column:
        """The column of an attribute's codes within the query: a name of ours, by its place in the domain."""
        return exp.column(f"c{self._domain.names.index(name)}")

    def _columns(self) -> list[Column]:
        """The columns of the table, from the engine's catalogue."""
        engine = self._engine
        if engine.dialect == "postgres":
            ((setting,),) = self._run("SELECT current_setting('standard_conforming_strings')")
            if setting != "on":
                raise SourceError(
                    "this PostgreSQL reads backslashes in texts as escapes, which makes labels ambiguous; set "
                    "standard_conforming_strings = on"
                )
        *above, table = self._table
        names = "column_name, data_type, numeric_precision, numeric_scale"
        owner, places = "table_schema", "ordinal_position"
        view = engine.columns
        if engine.dialect == "oracle":
            names, owner, places = "column_name, data_type, data_precision, data_scale", "owner", "column_id"
        if engine.dialect == "bigquery":
            names = "column_name, data_type, NULL, NULL"
            view = ".".join([*(exp.to_identifier(part, quoted=True).sql("bigquery") for part in above), view])
        # A catalogue may list a table of the same name in another schema or database: one alone is described.
        named = {"table_name": table}
        if above and engine.dialect != "bigquery":
            named[owner] = above[-1]
        if len(above) > 1 and engine.dialect not in ("bigquery", "oracle"):
            named["table_catalog"] = above[-2]
        written = " AND ".join(
            exp.EQ(this=exp.column(each), expression=literal(text)).sql(engine.dialect) for each, text in named.items()
        )
        if not above and engine.dialect != "bigquery":
            written += f" AND {owner} = {engine.schema}"
        if engine.database is not None and "table_catalog" not in named:
            written += f" AND table_catalog = {engine.database}"
        rows = self._run(f"SELECT {names} FROM {view} WHERE {written} ORDER BY {places}")
        if not rows:
            raise SourceError(
                f"{engine.name} has no table {'.'.join(self._table)!r}; names must agree exactly, upper and lower case "
                "included, and a schema stands before a point"
            )
        return [self._column(*row) for row in rows]

    def _column(self, name: str, kind: str, digits: Any, places: Any) -> Column:
        """A column as its catalogue describes it; `decimal(8,2)` says its digits itself."""
        plain = str(kind).lower()
        inside = re.fullmatch(r"(decimal|numeric|number)\((\d+), ?(\d+)\)", plain)
        if inside:
            plain, digits, places = inside[1], inside[2], inside[3]
        found = dict(self._engine.kinds).get(plain)
        digits, places = (None if each is None else int(each) for each in (digits, places))
        if found == "decimal" and digits is None:
            found = None
            plain += " without a number of digits"
        return Column(name, found, plain, digits, places)

    def _written(self, query: Written, *, pretty: bool = False) -> str:
        return query.sql(dialect=self._engine.dialect, pretty=pretty)

    def _run(self, statement: str) -> list[Any]:
        cursor = self._connection.cursor()
        try:
            cursor.execute(statement)
            return cursor.fetchall()
        finally:
            cursor.close()

    def _rows(self, query: Written) -> Iterable[Any]:
        statement = self._written(query)
        if self._engine.dialect == "bigquery" and not hasattr(self._connection, "adbc_get_info"):
            statement = statement.replace("%", "%%")  # its driver takes %% for %, also without parameters
        cursor = self._connection.cursor()
        try:
            cursor.execute(statement)
            while rows := cursor.fetchmany(ROWS_PER_FETCH):
                yield from rows
        finally:
            cursor.close()
