"""Read the permissions of a bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.permissions import parse_permissions

if TYPE_CHECKING:
    from amplifier_core.permissions import Layer

    from .model import Bundle

KEY = "permissions"


def bundle_layer(bundle: Bundle) -> Layer | None:
    """Return the rules of a bundle's section `permissions`; None without one. Raises `PermissionsError`."""
    if not bundle.permissions:
        return None
    positions = bundle.positions
    place = None if positions is None else lambda path: str(positions.at((KEY, *path)))
    return parse_permissions(bundle.permissions, f"bundle '{bundle.name}'", place=place)
