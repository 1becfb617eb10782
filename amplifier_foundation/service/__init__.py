"""`amplifier up` as a service of the system: what systemd and launchd are told of it, and what it tells them."""
