# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # What would another ε buy?
# Before anything is spent: how wide would error bars be at ε = 0.25, 1 and 4? Noise is simulated around public, or
# made-up, counts. Nothing confidential is looked at, and everything made here is marked NOT PRIVATE.

# %%
import sys

import numpy as np

import consilience as cs
from consilience.demo import write_table

people = int(sys.argv[1]) if sys.argv[1:] and sys.argv[1].isdigit() else 10_000
write_table("last-year.csv", people=people)  # stands for a table that is public already
domain = cs.Domain.load("last-year.domain.toml")
table = cs.open_table("last-year.csv", domain)
plan = cs.plans.Marginals([("age", "sex"), ("district", "employment")])

# %% [markdown]
# `simulate=` draws noise from a seed. It needs no ledger, and protects nobody.

# %%
question = "by district"
print("epsilon  half width  of the count")
for epsilon in (0.25, 1.0, 4.0):
    measured = cs.measure(table, plan, epsilon=epsilon, simulate=7)
    answers = cs.answer(cs.estimate(measured), question, interval=0.95, refits=20)
    columns = {name: np.array(column) for name, column in answers.to_dict().items()}
    half = (columns["high"] - columns["low"]) / 2
    print(f"{epsilon:<7}  {half.mean():10.1f}  {(half / columns['estimate']).mean():12.1%}")

# %% [markdown]
# Four times the budget makes error bars about a quarter as wide. Where the smallest group would drown, ask for fewer
# tables, wider bins, or more budget.

# %%
answers  # at the largest of them
