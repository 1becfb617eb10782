"""The verbs of `amplifier bundle`, one module each or two."""
