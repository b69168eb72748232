"""Spending the budget: budgets, noise, private selection, the ledger and the Gate. What an auditor must trust."""
