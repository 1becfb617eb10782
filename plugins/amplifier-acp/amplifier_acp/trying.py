"""Try the agent as an editor would: start it, initialize it, and open a session in an empty folder."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from threading import Timer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SECONDS = 30
"""For all answers."""
PART = "acp"


def try_agent() -> Iterator[Mapping[str, str]]:
    """Yield what an editor would find."""
    with tempfile.TemporaryDirectory(prefix="amplifier-acp-") as folder:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "amplifier_foundation", "acp"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
        )
        patience = Timer(SECONDS, process.kill)
        patience.start()
        try:
            version = _ask(process, "initialize", {"protocolVersion": 1})["protocolVersion"]
            _ask(process, "session/new", {"cwd": folder, "mcpServers": []})
        except (OSError, ValueError, KeyError) as error:
            process.kill()
            said = process.communicate()[1].decode(errors="replace").strip().rpartition("\n")[2]
            missing = dict.fromkeys(re.findall(r"Install it with: pip install (\S+)", str(error)))
            problem = str(error).partition("\n")[0].partition(" Install it with: ")[0].rstrip(".")
            fact = f"amplifier acp does not serve an editor: {problem}. {said[:200]}".rstrip()
            remedy = f"pip install {' '.join(missing)}" if missing else ""
            yield {"part": PART, "state": "weak", "fact": fact, "remedy": remedy}
            return
        finally:
            patience.cancel()
        process.communicate()
    yield {"part": PART, "state": "ok", "fact": f"amplifier acp serves an editor (protocol {version}), tried just now"}


def _ask(process: subprocess.Popen[bytes], method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a request. Raises `ValueError` for an error, and for anything else on stdout."""
    assert process.stdin is not None and process.stdout is not None
    asked = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
    process.stdin.write(json.dumps(asked).encode() + b"\n")
    process.stdin.flush()
    for line in process.stdout:
        message = json.loads(line)
        if message.get("id") == method:
            if "error" in message:
                raise ValueError(f"{method}: {message['error']['message']}")
            result: dict[str, Any] = message["result"]
            return result
    raise ValueError(f"{method}: it ended without an answer")
