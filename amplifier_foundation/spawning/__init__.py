"""Make sessions from sessions: inheritance, families, limits, budgets, conversations, and agents by name."""
