"""The flow in Python: declare, open, measure, estimate, ask, publish. Run it in an empty directory."""

import sys

import consilience as cs
from consilience.demo import write_table

people = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
write_table("town.csv", people=people)

domain = cs.Domain.load("town.domain.toml")  # public
table = cs.open_table("town.csv", domain)  # confidential
ledger = cs.Ledger.open("town.csv.ledger", epsilon=2)  # refuses to overspend, survives a crash

plan = cs.plans.Marginals([("age", "sex"), ("age", "employment"), ("district", "income")])
measured = cs.measure(table, plan, ledger=ledger, epsilon=1)  # spends half of the budget
measured.save("town.measurements.parquet")  # noisy, so safe to share

estimate = cs.estimate(measured)  # consistent and non-negative; the data is no longer needed
print(f"fitted by {estimate.method['method']} ({estimate.status.value}), {estimate.total:,.0f} people")
print("by sex:                   ", estimate.marginal("sex").round())
print("aged 25 to 34, by sex:    ", estimate.answer("age=25..34 by sex").round())
bars = cs.interval(estimate, "age=25..34 by sex")  # error bars spend nothing
print("with 95 % certainty:      ", bars.low.round(), "to", bars.high.round())
print("retired, up to each age:  ", estimate.answer("employment=Retired by prefix(age)").round())
print("bundle:                   ", cs.write_bundle(estimate, "release"))
print("left in the ledger:       ", ledger.remaining, "of", ledger.total.describe())
