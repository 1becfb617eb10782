"""Explain the network of the environment by the kernel; the published kernel leaves it to the SDK."""

from __future__ import annotations

try:
    from amplifier_core.network import explain_certificate, read_proxies
except ModuleNotFoundError:

    def check_proxies() -> None:
        """Leave the proxies to the SDK."""

    def explain_certificate(text: str) -> tuple[str, str] | None:
        """Return None: nothing is explained."""
        return None
else:

    def check_proxies() -> None:
        """Raise `ValueError` for an unreadable address of a proxy: the SDK would tell a part of its password."""
        read_proxies()


__all__ = ["check_proxies", "explain_certificate"]
