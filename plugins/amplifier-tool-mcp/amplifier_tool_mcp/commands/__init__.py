"""Hold the verbs of `amplifier mcp`."""
