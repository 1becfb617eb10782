"""Speak the protocols of model services to their official SDKs, on 127.0.0.1, with every fault on a schedule."""
