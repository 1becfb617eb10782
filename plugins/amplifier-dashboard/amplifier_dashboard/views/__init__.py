"""Hold one module for each view, with the acts of its forms."""
