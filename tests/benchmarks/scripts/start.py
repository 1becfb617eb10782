"""Start a session, say something to it, stop it, and again: how this process ends then is the question."""

from __future__ import annotations

import asyncio
import resource

from instant import PROMPT
from kernel import IDLE, started


async def main() -> None:
    """Live twice."""
    for session_id in ("first", "second"):
        session = await started(IDLE, session_id)
        assert await session.execute(PROMPT) == PROMPT
        await session.cleanup()


resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash is counted, and leaves nothing behind
asyncio.run(main())
