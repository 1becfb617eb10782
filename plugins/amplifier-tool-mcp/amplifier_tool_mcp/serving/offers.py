"""Describe the tools that a server offers: one asks a bundle, one wakes a background session, one looks at a delivery.

This module knows nothing of the protocol: names, descriptions and JSON Schemas are plain data.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import AmplifierError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_foundation.bundle.background_config import BackgroundSessionConfig
    from amplifier_foundation.bundle.model import Bundle

LONGEST_NAME = 64
"""Characters of a name that every model's API takes."""
LONGEST_WAIT = 3600
"""Seconds that a call may wait for the end of a delivery."""

_WAIT = {
    "type": "number",
    "minimum": 0,
    "maximum": LONGEST_WAIT,
    "default": 0,
    "description": "Seconds to wait for the answer; 0 returns at once.",
}


class NameTaken(AmplifierError, ValueError):
    """Two offers would have one name."""

    def __init__(self, name: str, first: str, second: str) -> None:
        super().__init__(f"{first} and {second} would both be the tool {name}. Serve one of them, or rename a bundle")


@dataclass(frozen=True, slots=True)
class Offer:
    """One tool: it asks `bundle`, or wakes its background session; without a bundle it looks at a delivery."""

    name: str
    description: str
    input_schema: dict[str, Any]
    bundle: Bundle | None = None
    background_session: BackgroundSessionConfig | None = None

    def __str__(self) -> str:
        """Return what it stands for, as messages name it."""
        if self.bundle is None:
            return "the tool for deliveries"
        if self.background_session is None:
            return f"bundle '{self.bundle.name}'"
        return f"background session '{self.background_session.name}' of bundle '{self.bundle.name}'"


def make_offers(bundles: Sequence[Bundle]) -> dict[str, Offer]:
    """Return the tools for these bundles by their names. Raises `NameTaken`."""
    offers: dict[str, Offer] = {}
    found = [offer for bundle in bundles for offer in _list_offers(bundle)]
    if any(offer.background_session is not None for offer in found):
        found.append(_offer_deliveries())
    for offer in found:
        if offer.name in offers:
            raise NameTaken(offer.name, str(offers[offer.name]), str(offer))
        offers[offer.name] = offer
    return offers


def is_asked(bundle: Bundle) -> bool:
    """Return whether a bundle is a tool itself; one without an instruction is there for its background sessions."""
    return bool(bundle.instruction) or not bundle.background_sessions


def _list_offers(bundle: Bundle) -> list[Offer]:
    found = [_offer_wake(bundle, each) for each in bundle.background_sessions]
    if is_asked(bundle):
        found.insert(0, _offer_ask(bundle))
    return found


def _offer_ask(bundle: Bundle) -> Offer:
    about = f" {bundle.description.strip()}" if bundle.description else ""
    return Offer(
        make_name("ask", bundle.name),
        f"Give a task to the agent '{bundle.name}', and return its answer.{about} The agent works in the folder of "
        "this server with its own tools and permissions.",
        {
            "type": "object",
            "properties": {
                "prompt": {"type": "string", "minLength": 1, "description": "The task, with all that it needs."},
                "session": {"type": "string", "description": "The session_id of an earlier answer to go on with."},
                "fork": {
                    "type": "boolean",
                    "default": False,
                    "description": "Go on in a fork of `session`, and leave `session` as it is.",
                },
            },
            "required": ["prompt"],
            "additionalProperties": False,
        },
        bundle,
    )


def _offer_wake(bundle: Bundle, session: BackgroundSessionConfig) -> Offer:
    return Offer(
        make_name("wake", session.name),
        f"Wake the background session '{session.name}' of '{bundle.name}'. The event is stored before this "
        "returns, and handled once, by the process of `amplifier up`.",
        {
            "type": "object",
            "properties": {
                "data": {"type": "object", "description": "The data of the event.", "default": {}},
                "wait": _WAIT,
            },
            "additionalProperties": False,
        },
        bundle,
        session,
    )


def _offer_deliveries() -> Offer:
    return Offer(
        "delivery",
        "Return the state of a delivery of a background session, and its answer once it is done.",
        {
            "type": "object",
            "properties": {
                "delivery_id": {"type": "string", "description": "The delivery_id that a wake tool returned."},
                "wait": _WAIT,
            },
            "required": ["delivery_id"],
            "additionalProperties": False,
        },
    )


def make_name(verb: str, name: str) -> str:
    """Return the name of the tool that does this with a bundle or a background session."""
    return f"{verb}_{re.sub(r'[^A-Za-z0-9_-]', '_', name)}"[:LONGEST_NAME]
