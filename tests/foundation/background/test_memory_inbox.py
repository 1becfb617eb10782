"""An inbox in memory beside a store of sessions."""

from __future__ import annotations

from amplifier_core.testing import MemoryStore
from amplifier_core.testing.store_checks.administration import check_161_a_deleted_session_takes_its_texts_along
from amplifier_foundation.background.memory_inbox import MemoryInboxStore


async def test_a_session_deleted_in_the_store_beside_takes_its_texts_along() -> None:
    await check_161_a_deleted_session_takes_its_texts_along(MemoryInboxStore(MemoryStore()))
