"""Try the agent as an editor would: start it, initialize it, and open a session in an empty folder."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SECONDS = 30
"""For all answers."""
PART = "acp"


def try_agent() -> Iterator[Mapping[str, str]]:
    """Yield what an editor would find."""
    with tempfile.TemporaryDirectory(prefix="amplifier-acp-") as folder:
        asked: list[tuple[str, dict[str, Any]]] = [
            ("initialize", {"protocolVersion": 1, "clientCapabilities": {}}),
            ("session/new", {"cwd": folder, "mcpServers": []}),
        ]
        lines = [
            json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            for number, (method, params) in enumerate(asked)
        ]
        try:
            done = subprocess.run(
                [sys.executable, "-m", "amplifier_foundation", "acp"],
                input="\n".join(lines) + "\n",
                capture_output=True,
                text=True,
                timeout=SECONDS,
                cwd=folder,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            yield {"part": PART, "state": "weak", "fact": f"amplifier acp does not answer: {error}"}
            return
    yield from _judge(done.stdout, done.stderr)


def _judge(said: str, complained: str) -> Iterator[Mapping[str, str]]:
    answers: dict[Any, dict[str, Any]] = {}
    for line in said.splitlines():
        try:
            message = json.loads(line)
        except ValueError:
            yield {"part": PART, "state": "weak", "fact": f"amplifier acp writes what is no message: {line[:80]!r}"}
            return
        answers[message.get("id")] = message
    first, second = answers.get(0, {}), answers.get(1, {})
    if "result" not in first:
        reason = complained.strip().rpartition("\n")[2][:200]
        yield {"part": PART, "state": "weak", "fact": f"amplifier acp does not answer initialize: {reason}"}
        return
    version = first["result"]["protocolVersion"]
    if "result" not in second:
        reason = str((second.get("error") or {}).get("message") or "no answer")
        yield {"part": PART, "state": "weak", "fact": f"an editor cannot begin a session: {reason}"}
        return
    yield {"part": PART, "state": "ok", "fact": f"amplifier acp answers (protocol {version}), which was tried just now"}
