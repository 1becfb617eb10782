"""The verbs of `amplifier trigger`, each imported when it is invoked."""
