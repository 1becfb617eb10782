"""Find the requirements of installed packages that the environment does not meet, as `pip check` does."""

from __future__ import annotations

import re
from functools import lru_cache


@lru_cache(maxsize=256)
def find_unmet(dist: str) -> tuple[str, ...]:
    """Return the requirements of a distribution that are not met: `amplifier>=9 (installed: 0.1.0)`."""
    from packaging.requirements import Requirement

    unmet = []
    for text in _read(dist)[1]:
        if "extra ==" in text:  # most of all, and no extra is known here
            continue
        try:
            wanted = Requirement(text)
            if wanted.marker is not None and not wanted.marker.evaluate():
                continue
            present = _read(wanted.name)[0]
            if not present:
                unmet.append(f"{wanted.name}{wanted.specifier} (not installed)")
            elif not wanted.specifier.contains(present, prereleases=True):
                unmet.append(f"{wanted.name}{wanted.specifier} (installed: {present})")
        except ValueError as error:
            unmet.append(f"{text} ({' '.join(str(error).split())})")
    return tuple(unmet)


@lru_cache(maxsize=256)
def _read(dist: str) -> tuple[str, list[str]]:
    """Return the version and the requirements of a distribution, ("", []) if it is absent.

    `importlib_metadata.requires` imports a parser of e-mails, which takes longer than this.
    """
    from importlib_metadata import PackageNotFoundError, distribution

    try:
        found = distribution(dist)
    except (PackageNotFoundError, ValueError):
        return "", []
    headers = ((found.read_text("METADATA") or found.read_text("PKG-INFO") or "").replace("\r", "")).partition("\n\n")[
        0
    ]
    version = re.search(r"^Version:(.*)$", headers, re.MULTILINE)
    requirements = re.findall(r"^Requires-Dist:(.*)$", headers, re.MULTILINE)
    return version[1].strip() if version else "", [each.strip() for each in requirements]
