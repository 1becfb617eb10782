"""Explain the network of the environment by the kernel; the published kernel leaves it to the SDK."""

from __future__ import annotations

from urllib.parse import urlsplit

try:
    from amplifier_core.network import explain_certificate, read_proxies
except ModuleNotFoundError:

    def check_proxy(url: str) -> None:
        """Leave the proxies to the SDK."""

    def explain_certificate(text: str) -> tuple[str, str] | None:
        """Return None: nothing is explained."""
        return None
else:

    def check_proxy(url: str) -> None:
        """Raise `ValueError` for an unreadable address of the proxy to `url`: the SDK would tell of its password."""
        parts = urlsplit(url)
        read_proxies().find(parts.scheme, parts.hostname or "", parts.port)


__all__ = ["check_proxy", "explain_certificate"]
