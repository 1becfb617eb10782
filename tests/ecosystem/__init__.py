"""Modules written for the published kernel, run on ours and on theirs; run with `make ecosystem`."""
