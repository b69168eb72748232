# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Quickstart
# The flow in Python: declare, open, measure, estimate, ask, publish. It makes its own table, in the folder it runs in.

# %%
import sys

import altair as alt

import consilience as cs
from consilience.demo import write_table

people = int(sys.argv[1]) if sys.argv[1:] and sys.argv[1].isdigit() else 10_000
write_table("town.csv", people=people)

# %% [markdown]
# The domain is public: what the columns may hold. The table is confidential, and nothing of it is read yet. The ledger
# refuses to overspend, and survives a crash.

# %%
domain = cs.Domain.load("town.domain.toml")
table = cs.open_table("town.csv", domain)
ledger = cs.Ledger.open("town.csv.ledger", epsilon=2)
domain

# %% [markdown]
# Only this cell spends privacy: half of the budget. What it returns is noisy, and safe to share.

# %%
plan = cs.plans.Marginals([("age", "sex"), ("age", "employment"), ("district", "income")])
measured = cs.measure(table, plan, ledger=ledger, epsilon=1)
measured.save("town.measurements.parquet")
measured

# %% [markdown]
# One account without negative numbers that agrees with itself. The data is no longer needed.

# %%
estimate = cs.estimate(measured)
print(f"fitted by {estimate.method['method']} ({estimate.status.value}), {estimate.total:,.0f} people")
estimate

# %% [markdown]
# Answers are tables: `to_pandas()`, `to_polars()`, `to_arrow()`, `to_dict()`, `plot()`. Error bars spend nothing.

# %%
young = cs.answer(estimate, "age=25..34 by sex", interval=0.95, refits=50)
print(young.describe())
young

# %% [markdown]
# A picture, drawn here: without this renderer, a page saved from the notebook asks the network for it.

# %%
alt.renderers.enable("svg")
young.plot()

# %%
cs.answer(estimate, "by district, income", cross=True, integers=True)

# %% [markdown]
# What nobody measured is a dash, and says what to measure next time: commuting was in none of the tables.

# %%
cs.answer(estimate, "by commute")

# %%
print("bundle:", cs.write_bundle(estimate, "release"))
print("left in the ledger:", ledger.remaining, "of", ledger.total.describe())
