"""The packages here are built and installed by the tests, and run their own tests there."""

collect_ignore_glob = ["amplifier-*"]
