"""Run `amplifier up` as a service of the system: units of systemd and launchd, and messages to systemd."""
