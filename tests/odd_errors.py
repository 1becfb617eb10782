"""Raise what modules and stores may raise, and few programs think of."""

from __future__ import annotations


class PanicException(BaseException):
    """As a panic of an extension in Rust."""


class Unreadable(Exception):
    """It has no text."""

    def __str__(self) -> str:
        raise ValueError("no text")
