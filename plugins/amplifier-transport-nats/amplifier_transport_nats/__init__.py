"""Offer the transport `transport-nats`: it carries events between sites over NATS JetStream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core.hookspecs import Register
    from amplifier_foundation.hookspecs import TransportFactory

    from .transport import NatsTransport

__all__ = ["amplifier_register_transport", "make_nats"]

NAME = "transport-nats"


def make_nats(config: Mapping[str, Any]) -> NatsTransport:
    """Return a transport for this configuration, without a connection. Raises `ValueError`."""
    from .config import read_config  # not at import: whoever lists plugins needs neither nats nor pydantic
    from .transport import NatsTransport

    return NatsTransport(read_config(config))


@hookimpl
def amplifier_register_transport(register: Register[TransportFactory]) -> None:
    """Offer the transport."""
    register(NAME, make_nats)
