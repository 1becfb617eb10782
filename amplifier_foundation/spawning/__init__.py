"""What spawning is made of: inheritance, families, limits, records, and agents by name."""
