# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Bring your own measurements
# Noisy tables from another tool, made consistent. No confidential data and no budget are involved any more.

# %%
import numpy as np

import consilience as cs

domain = cs.Domain(
    "survey",
    (
        cs.Attribute.categorical("sex", ["Female", "Male"]),
        cs.Attribute.numeric("age", [0, 18, 35, 65, 100]),
        cs.Attribute.categorical("smoker", ["No", "Yes"]),
    ),
)

# %% [markdown]
# What the other tool handed out: three tables with Laplace noise of scale 20 on each count. One count is negative, and
# no two tables agree on the totals.

# %%
noisy: dict[str | tuple[str, ...], np.ndarray] = {
    ("sex", "age"): np.array([[412.0, 530.0, 861.0, 402.0], [455.0, 497.0, 902.0, 318.0]]),
    ("sex", "smoker"): np.array([[1874.0, 301.0], [1703.0, 512.0]]),
    ("age", "smoker"): np.array([[903.0, -14.0], [795.0, 208.0], [1329.0, 455.0], [612.0, 131.0]]),
}
measured = cs.MeasurementSet.from_marginals(domain, noisy, noise=cs.Laplace(20.0))
estimate = cs.estimate(measured)
estimate

# %%

for names, table in noisy.items():
    print(f"{' by '.join(names):<15} noisy total {table.sum():7,.1f}   smallest count {table.min():7,.1f}")
smallest = min(estimate.marginal(*names).min() for names in noisy)
print(f"{'consistent':<15}       total {estimate.total:7,.1f}   smallest count {smallest:7,.1f}")

# %%
for label, smokers in zip(domain["age"].labels, estimate.answer("smoker=Yes by age").ravel(), strict=True):
    print(f"smokers aged {label:<7} {smokers:7,.1f}")

# %%
cs.answer(estimate, "smoker=Yes by age", interval=0.95, refits=50)
