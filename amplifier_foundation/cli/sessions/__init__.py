"""The verbs of `amplifier session`, each imported when it is invoked."""
