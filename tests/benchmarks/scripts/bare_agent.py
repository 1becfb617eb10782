"""Answer an editor by hand: the least that a fork on the disk and a stream of updates take.

Usage: bare_agent.py DATABASE
"""

from __future__ import annotations

import json
import sqlite3
import sys
from typing import Any


def answer(db: sqlite3.Connection, method: str) -> dict[str, Any]:
    if method == "session/fork":
        with db:
            db.execute("INSERT INTO rows (body) VALUES (?)", ("x" * 200,))
    if method == "session/prompt":
        for number in range(20_000):
            piece = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": f"{number} "}}
            send({"method": "session/update", "params": {"sessionId": "bare", "update": piece}})
    return {"sessionId": "bare"}


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def main(path: str) -> None:
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, body TEXT NOT NULL)")
    for line in sys.stdin:
        asked = json.loads(line)
        send({"id": asked["id"], "result": answer(db, asked["method"])})


main(sys.argv[1])
