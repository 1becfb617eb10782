"""Ask the person at the editor whether to trust a bundle, or the settings of a project."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from amplifier_core.permissions.hidden import replace_unprintable

from .approving import ask
from .contents import make_text
from .tool_calls import LONGEST_OUTPUT

if TYPE_CHECKING:
    from amplifier_foundation.security.trust import NotTrusted

    from .peer import Peer

TRUST, REFUSE = "Trust it", "Do not trust it"


class TrustQuestions:
    """Asks in one session; the same content is asked about once."""

    def __init__(self, peer: Peer, session_id: str) -> None:
        self._peer = peer
        self._session_id = session_id
        self._asked: list[object] = []

    async def settle(self, error: NotTrusted) -> bool:
        """Return whether the content of an error is trusted now."""
        from amplifier_foundation.security.session_mark import is_within_session
        from amplifier_foundation.security.trust import trust_content

        content = error.content
        if content is None or content.files in self._asked or is_within_session():
            return False
        self._asked.append(content.files)
        call = {
            "toolCallId": f"trust-{len(self._asked)}",
            "title": f"Trust {content.place}",
            "kind": "other",
            "status": "pending",
            "content": [{"type": "content", "content": make_text(_describe(error))}],
        }
        if await ask(self._peer, self._session_id, call, (TRUST, REFUSE)) != TRUST:
            return False
        await asyncio.to_thread(trust_content, content)
        return True


def _describe(error: NotTrusted) -> str:
    """Return what would run, or what has changed, as text for people."""
    from amplifier_core.utils.command_secrets import redact_words

    content = error.content
    assert content is not None
    if error.changed:
        lines = [f"{content.place} {error.problem}:", *(f"  {path}" for path in error.changed)]
    else:
        lines = [f"{content.place} is not trusted yet. It would run or use:"]
        lines += [f"  {label}: {text}" for label, text in content.lines]
    shown = "\n".join(replace_unprintable(redact_words(line), lambda sign: "?") for line in lines)
    rest = len(shown) - LONGEST_OUTPUT
    return (
        shown if rest <= 0 else f"{shown[:LONGEST_OUTPUT]}\n… {rest} more characters: amplifier trust {content.place}"
    )
