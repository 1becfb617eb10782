"""Speed, each beside a limit that was measured in the same run: `make bench`."""
