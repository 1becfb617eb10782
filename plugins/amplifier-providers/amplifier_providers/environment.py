"""Explain which variable of the environment keeps the client of a service from being made."""

from __future__ import annotations

import os

_PROXIES = ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY")
_CERTIFICATES = "SSL_CERT_FILE"


def explain_environment(error: Exception) -> tuple[str, str] | None:
    """Return the problem and its remedy if a variable is the cause of `error`; None if it is not.

    Some SDKs make a client when they are imported, so that an error of an import may be about a proxy.
    """
    if getattr(error, "is_of_environment", False):
        return vars(error)["problem"], f"{vars(error)['remedy']}."
    if isinstance(error, ImportError) and "socksio" in str(error):
        set_here = [name for each in _PROXIES for name in (each, each.lower())]
        named = " and ".join(name for name in set_here if os.environ.get(name, "").startswith("socks"))
        named = named or "the system's proxy"
        return f"a SOCKS proxy ({named}) needs a package", f"Run: pip install 'httpx[socks]', or unset {named}."
    try:
        from amplifier_core.network import read_proxies

        for scheme in () if isinstance(error, ImportError) else ("http", "https", "all"):
            if (proxy := read_proxies().find(scheme, "")) is not None:
                proxy.require("http", "https", "socks5", "socks5h")
    except ModuleNotFoundError:  # the published kernel does not read them
        pass
    except ValueError as fault:
        return vars(fault)["problem"], f"{vars(fault)['remedy']}."
    name = "no_proxy" if os.environ.get("no_proxy") else "NO_PROXY"
    if type(error).__name__ == "InvalidURL" and ":" in os.environ.get(name, ""):
        remedy = f"Write an IPv6 address in {name} without brackets and port, and no IPv6 network."
        return f"{name} has an entry that the HTTP library of this SDK cannot read", remedy
    file = os.environ.get(_CERTIFICATES)
    if file and isinstance(error, OSError) and not _holds_certificates(file):
        problem = f"{_CERTIFICATES}={file} holds no certificates that can be read ({error.strerror or error})"
        return problem, f"Correct or unset {_CERTIFICATES}."
    return None


def _holds_certificates(file: str) -> bool:
    import ssl

    try:
        ssl.create_default_context(cafile=file)
    except OSError:
        return False
    return True
