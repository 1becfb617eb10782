"""Fork a process that uses a store: the fork has the open files, but not the locks that keep two writers apart."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path

PROGRAM = """
from amplifier_core.errors import StoreUnavailable
store = {open}({{"path": sys.argv[1]}})
run = asyncio.new_event_loop().run_until_complete
run(store.create(SessionRecord("s")))
run(store.append("s", [{{}}], at=0))
if not (child := os.fork()):
    try:
        asyncio.run(store.append("s", [{{}}], at=1))
    except StoreUnavailable as error:
        say(error)
    os._exit(0)
os.waitpid(child, 0)
say(run(store.append("s", [{{}}], at=1)))
run(store.close())
"""


async def check_fork(start: Callable[..., subprocess.Popen[str]], opening: str, path: Path) -> None:
    """Assert that the fork is refused and its parent goes on; `opening` is the function that opens the store.

    `start` runs a program after the imports of the tests of that store.
    """
    forking = start(PROGRAM.format(open=opening), path)
    answers = (await asyncio.to_thread(forking.communicate))[0].splitlines()
    assert len(answers) == 2 and "is a fork of" in answers[0] and answers[1] == "2"
