"""Distributions that exist for one test."""

from __future__ import annotations

from tests.core.conftest import Site, site

__all__ = ["Site", "site"]
