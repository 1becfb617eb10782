"""Measure what a person waits for: a cold start, readiness, the first word of an answer, the prompt after Ctrl-C."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from random import uniform
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING

from tests.wire import anthropic
from tests.wire.server import WireServer

from .measure import Row, called, in_turns
from .startup import BUNDLE, NOTHING, PROGRAM, PYTHON, compiled
from .streams import KEY, SERVICES, SHORT, more_config, serving
from .terminals import PROMPT, Terminal, at_terminal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.wire.server import Answer, Request

    from .measure import Sample
    from .streams import Service

COLD_RATIO = 1.5  # goal: times a script with the SDK
READY_RATIO = 25.0  # goal: times a Python that does nothing
FIRST_RATIO = 4.0  # goal: 5 ms where the SDK alone takes 1.2
PROMPT_RATIO = 2.0  # times a Python that does nothing, far within the goal: 100 ms where that takes 14
ROUNDS = 7
PRESSES = 15

SESSIONS = 20
TRIGGERS = (
    "{module: trigger-file-watcher, config: {patterns: ['src/**/*.txt']}}",
    "{module: trigger-timer, config: {cron: '0 3 * * *'}}",
    "{module: trigger-session-event, config: {event_names: ['work:done']}}",
    "{module: trigger-webhook, config: {path: /hook%d, port: 0, secret_env: BENCH_KEY}}",
    "{module: trigger-manual}",
)
READY = b"Watching "
"""The line of `up` after all triggers are armed begins so."""

PAUSES = (0.1, 0.2)
"""Seconds at least and at most before a first word and before Ctrl-C: no multiple of the time between two drawings."""
CONVERSATION = """from anthropic import Anthropic
client = Anthropic(api_key="{key}", base_url="{url}")
while True:
    said = [{{"role": "user", "content": input("> ")}}]
    try:
        with client.messages.stream(model="{model}", max_tokens=100, messages=said) as asked:
            for text in asked.text_stream:
                print(text, end="", flush=True)
    except KeyboardInterrupt:
        pass
    print()
"""
WORKING = """---
bundle: {name: bench}
permissions: {mode: auto}
providers:
  - module: provider-playbook
    config: {otherwise: {call: {tool: bash, input: {command: sleep 60}}}}
tools: [{module: tool-bash}]
---
"""
WORK = """import subprocess
while True:
    input("> ")
    print("sleep 60", flush=True)
    try:
        subprocess.run(["bash", "-c", "sleep 60"])
    except KeyboardInterrupt:
        pass
"""

# cold: a new process, one answer


async def cold(service: Service) -> AsyncIterator[Row]:
    """Ask a service once, in new processes."""
    async with serving() as url:
        with _asking(service, f"{url}/{SHORT}") as folder:
            ours, limit = await in_turns(
                called(lambda: _run(folder, PROGRAM, "run", "hello"), 1),
                called(lambda: _run(folder, PYTHON, "ask.py"), 1),
                rounds=ROUNDS,
            )
    yield Row(f"amplifier run hello, {service.name} / a script with its SDK", ours, limit, COLD_RATIO)


@contextmanager
def _asking(service: Service, url: str) -> Iterator[Path]:
    """Make a folder with a bundle and a script that ask the same service."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "bundle.md").write_text(_bundle(service, url), encoding="utf-8")
        script = service.script.format(key=KEY, url=url, model=service.model)
        (folder / "ask.py").write_text(script, encoding="utf-8")
        yield folder


def _bundle(service: Service, url: str) -> str:
    config = {"base_url": url, "api_key": "${BENCH_KEY}", "model": service.model, **more_config(service)}
    given = ", ".join(f"{name}: '{value}'" for name, value in config.items())
    return f"---\nbundle: {{name: bench}}\nproviders: [{{module: provider-{service.name}, config: {{{given}}}}}]\n---\n"


def _environ(folder: Path) -> dict[str, str]:
    return {**compiled(), "AMPLIFIER_HOME": str(folder / "home"), "AMPLIFIER_TRUST": "1", "BENCH_KEY": KEY}


def _run(folder: Path, *command: str) -> None:
    environ = _environ(folder)
    subprocess.run(command, check=True, cwd=folder, env=environ, stdin=subprocess.DEVNULL, capture_output=True)


# ready: all triggers are armed


async def ready() -> AsyncIterator[Row]:
    """Bring up background sessions with triggers of each kind."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "src").mkdir()
        listed = "".join(
            f"  - {{name: s{n}, triggers: [{TRIGGERS[n % len(TRIGGERS)].replace('%d', str(n))}]}}\n"
            for n in range(SESSIONS)
        )
        text = BUNDLE.replace("---\n", f"---\nbackground_sessions:\n{listed}", 1)
        (folder / "bundle.md").write_text(text, encoding="utf-8")
        ours, limit = await in_turns(_brought_up(folder), called(lambda: _run(folder, *NOTHING), 3), rounds=ROUNDS)
    yield Row(f"amplifier up, {SESSIONS} background sessions armed / python -c pass", ours, limit, READY_RATIO)


def _brought_up(folder: Path) -> Sample:
    """Return a sample of `up`: the seconds from its start until it says that it watches."""

    async def sample() -> float:
        start = perf_counter()
        process = await asyncio.create_subprocess_exec(
            *(PROGRAM, "up"),
            cwd=folder,
            env=_environ(folder),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert process.stdout is not None
        armed = 0
        while not (line := await process.stdout.readline()).startswith(READY):
            armed += b" is armed" in line
        seconds = perf_counter() - start
        process.send_signal(signal.SIGINT)
        await process.communicate()
        if armed != SESSIONS:
            raise RuntimeError(f"{armed} of {SESSIONS} triggers were armed")
        return seconds

    return sample


# at a terminal: the first word, and the prompt after Ctrl-C


class Model:
    """A model at the other side of the wire, whose answers wait."""

    def __init__(self) -> None:
        self.word = ""
        self.may_speak = asyncio.Event()
        self._numbers = count()

    def prepare(self) -> re.Pattern[bytes]:
        """Have the next answer be a new word, and wait before it; return the pattern of the word."""
        self.word = f"word{next(self._numbers)}x"
        self.may_speak.clear()
        return re.compile(self.word.encode())

    def answer(self, request: Request) -> Answer:
        """Answer a request with the word when it may be said; one to go on gets nothing after it."""
        said = anthropic.says(anthropic.text(self.word, " and more."))
        at = next(n for n, piece in enumerate(said.pieces) if self.word.encode() in piece)
        held = said.hold(at, self.may_speak)
        return held.stall(at + 1) if b"go on" in request.body else held


async def spoken() -> AsyncIterator[Row]:
    """Wait for the first word of answers in a conversation, and stop answers with Ctrl-C."""
    model, service = Model(), SERVICES[0]
    async with WireServer(model.answer) as server, AsyncExitStack() as stack:
        folder = stack.enter_context(_asking(service, server.url))
        script = CONVERSATION.format(key=KEY, url=server.url, model=service.model)
        (folder / "talk.py").write_text(script, encoding="utf-8")
        environ = _environ(folder)
        ours, bare = [
            await stack.enter_async_context(at_terminal(command, folder, environ))
            for command in ((PROGRAM, "run"), (PYTHON, "talk.py"))
        ]
        first, limit = await in_turns(
            _first_word(ours, server, model), _first_word(bare, server, model), rounds=PRESSES
        )
        yield Row("first word of an answer at a terminal / a script with the SDK", first, limit, FIRST_RATIO)
        stopped, script_stopped, nothing = await in_turns(
            _stopped_answer(ours, server, model),
            _stopped_answer(bare, server, model),
            called(lambda: _run(folder, *NOTHING), 1),
            rounds=PRESSES,
        )
        yield Row("Ctrl-C while a model answers, until the prompt / python -c pass", stopped, nothing, PROMPT_RATIO)
        yield Row("  beside a script with the SDK", stopped, script_stopped)


def _first_word(terminal: Terminal, server: WireServer, model: Model) -> Sample:
    """Return a sample of a turn: the seconds from the word at the socket to the word at the terminal."""

    async def sample() -> float:
        word = model.prepare()
        server.arrived.clear()
        terminal.type("hello\n")
        await server.arrived.wait()
        await asyncio.sleep(uniform(*PAUSES))
        began = perf_counter()
        model.may_speak.set()
        seconds = await terminal.until(word) - began
        await terminal.until(PROMPT)
        return seconds

    return sample


def _stopped_answer(terminal: Terminal, server: WireServer, model: Model) -> Sample:
    """Return a sample of an answer that stalls after its first word: the seconds from Ctrl-C to the prompt."""

    async def sample() -> float:
        word = model.prepare()
        model.may_speak.set()
        terminal.type("go on\n")
        await terminal.until(word)
        await asyncio.sleep(uniform(*PAUSES))
        return await _pressed(terminal)

    return sample


async def _pressed(terminal: Terminal) -> float:
    return -terminal.type("\x03") + await terminal.until(PROMPT)


async def stopped() -> AsyncIterator[Row]:
    """Stop a running tool with Ctrl-C, twice."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "bundle.md").write_text(WORKING, encoding="utf-8")
        (folder / "work.py").write_text(WORK, encoding="utf-8")
        async with AsyncExitStack() as stack:
            ours, bare = [
                await stack.enter_async_context(at_terminal(command, folder, _environ(folder)))
                for command in ((PROGRAM, "run"), (PYTHON, "work.py"))
            ]
            took, script, nothing = await in_turns(
                _stopped_tool(ours, re.compile(b"again stops now")),
                _stopped_tool(bare),
                called(lambda: _run(folder, *NOTHING), 1),
                rounds=PRESSES,
            )
    yield Row("Ctrl-C twice while a tool runs, until the prompt / python -c pass", took, nothing, PROMPT_RATIO)
    yield Row("  beside a script that runs the same command", took, script)


def _stopped_tool(terminal: Terminal, question: re.Pattern[bytes] | None = None) -> Sample:
    """Return a sample of a command that is stopped; a `question` is answered by the press that counts."""

    async def sample() -> float:
        terminal.type("work\n")
        await terminal.until(re.compile(b"sleep"))
        await asyncio.sleep(uniform(*PAUSES))
        if question is not None:
            terminal.type("\x03")
            await terminal.until(question)
        return await _pressed(terminal)

    return sample


PARTS = (*(partial(cold, service) for service in SERVICES), ready, spoken, stopped)
