"""One turn of a session made of the modules beside this file, on whatever kernel this interpreter has.

    python turn.py FOLDER (entry-points | source) [--cancel]

FOLDER is empty before; what happened is printed as JSON. Nothing of a kernel is used but what is published.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

from cloud import Cloud, calls, fails, says, text, thinking

from amplifier_core import AmplifierSession, ApprovalRequest, ApprovalResponse, HookResult

MODULES = Path(__file__).with_name("modules")
KEY = "key-of-the-cloud"

SCRIPT = [
    fails(503, "overloaded"),
    says(
        thinking("Notes first."),
        text("I will look."),
        calls("1", "read_file", path="@notes"),
        calls("2", "todo", add="sort"),
    ),
    says(
        calls("3", "write_file", path="sorted.md", content="a\nb\n"),
        calls("4", "write_file", path="secrets.md", content="c\n"),
    ),
    says(text("Sorted.")),
]


def install(modules: Path, site: Path) -> None:
    """Put every module into a folder for `sys.path`, with what pip leaves beside a package."""
    for folder in sorted(modules.iterdir()):
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        package = folder.name.replace("-", "_")
        shutil.copytree(folder / package, site / package, ignore=shutil.ignore_patterns("__pycache__"))
        about = site / f"{package}-{project['version']}.dist-info"
        about.mkdir()
        head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        (about / "METADATA").write_text(head, encoding="utf-8")
        offered = project["entry-points"]["amplifier.modules"]
        lines = "".join(f"{name} = {target}\n" for name, target in offered.items())
        (about / "entry_points.txt").write_text(f"[amplifier.modules]\n{lines}", encoding="utf-8")


class FolderSource:
    """The code of one module in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def resolve(self) -> Path:
        return self.folder


class FolderResolver:
    """Finds a module where its `source` says."""

    def resolve(self, module_id: str, source_hint: Any = None, profile_hint: Any = None) -> FolderSource:
        return FolderSource(Path(source_hint))


class Mentions:
    """Knows one name, `@notes`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def resolve(self, mention: str) -> Path | None:
        return self.folder / "notes.md" if mention == "@notes" else None


class Approver:
    """Allows everything but secrets."""

    async def request_approval(self, request: ApprovalRequest) -> ApprovalResponse:
        secret = "secret" in request.details["path"]
        return ApprovalResponse(approved=not secret, reason="secrets stay" if secret else None)


def plan(url: str, sources: Path | None) -> dict[str, Any]:
    """Return the mount plan; with `sources`, each module says where its code is."""

    def entry(module_id: str, **config: Any) -> dict[str, Any]:
        found = {} if sources is None else {"source": str(sources / f"amplifier-module-{module_id}")}
        return {"module": module_id, "config": config, **found}

    return {
        "session": {"orchestrator": entry("loop-stream"), "context": entry("context-memory"), "raw": True},
        "providers": [entry("provider-cloud", base_url=url, api_key=KEY, min_retry_delay=0, default_model="large")],
        "tools": [entry("tool-files"), entry("tool-tasks")],
        "hooks": [entry("hooks-log", path="log/events.jsonl"), entry("hooks-consent", tools=["write_file"])],
    }


async def system_prompt() -> str:
    return "You tidy."


def prepare(session: AmplifierSession, work: Path) -> None:
    """Register what an application gives to a session before its modules are mounted."""
    session.coordinator.register_capability("session.working_dir", str(work))
    session.coordinator.register_capability("mention_resolver", Mentions(work))
    session.coordinator.register_capability("observability.events", ["session:config"])


async def take_part(session: AmplifierSession, *, cancel: bool) -> None:
    """Do what an application does with a session that is ready: steer it, answer it, stop it."""
    coordinator = session.coordinator
    coordinator.session_state["goal"] = "tidy notes"
    coordinator.get_capability("approval.register_provider")(Approver())
    await coordinator.get("context").set_system_prompt_factory(system_prompt)

    async def after_tool(event: str, data: dict[str, Any]) -> HookResult:
        if data["tool_name"] == "read_file":
            coordinator.get_capability("session.steer")("Keep it short.")
        if cancel:
            await coordinator.request_cancel()
        return HookResult(action="continue")

    coordinator.hooks.register("tool:post", after_tool, name="application")


async def run(folder: Path, found: str, *, cancel: bool = False) -> dict[str, Any]:
    """Run the turn and return what happened, seen from outside the session."""
    work = folder / "work"
    (work / "log").mkdir(parents=True)
    (work / "notes.md").write_text("b\na\n", encoding="utf-8")
    sources = shutil.copytree(MODULES, folder / "modules") if found == "source" else None
    if sources is None:
        install(MODULES, folder / "site")
        sys.path.insert(0, str(folder / "site"))
    async with Cloud(SCRIPT) as cloud:
        session = AmplifierSession(plan(cloud.url, sources), session_id="s", parent_id="p")
        prepare(session, work)
        if sources is not None:
            await session.coordinator.mount("module-source-resolver", FolderResolver())
        await session.initialize()
        await take_part(session, cancel=cancel)
        answer = await session.execute("Tidy my notes")
        happened = {"answer": answer, **await seen_inside(session)}
        provider = session.coordinator.get("providers")["cloud"]
        await session.cleanup()
    happened |= {"closed": provider.client.is_closed, "keys": sorted(cloud.keys), "requests": cloud.requests}
    return happened | {"log": read_log(work), "files": {file.name: file.read_text() for file in work.glob("*.md")}}


async def seen_inside(session: AmplifierSession) -> dict[str, Any]:
    """Return what the modules left in the session."""
    coordinator: Any = session.coordinator  # modules set attributes of their own on it
    return {
        "cost": [str(each["cost_usd"]) for each in await coordinator.collect_contributions("session.cost")],
        "todos": coordinator.todo_state,
        "dispatching": coordinator._tool_dispatch_contexts,
        "running": coordinator.cancellation.running_tool_names,
        "mounted": {point: list(coordinator.get(point)) for point in ("providers", "tools")},
        "history": [[each["role"], each["content"]] for each in await coordinator.get("context").get_messages()],
    }


def read_log(work: Path) -> list[dict[str, Any]]:
    lines = (work / "log" / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


if __name__ == "__main__":
    happened = asyncio.run(run(Path(sys.argv[1]), sys.argv[2], cancel="--cancel" in sys.argv))
    sys.stdout.write(json.dumps(happened))
    sys.stdout.flush()
    os._exit(0)  # the published kernel, which is not Python, may crash while the interpreter is torn down
