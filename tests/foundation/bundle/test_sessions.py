"""From a bundle to a session: its own modules, its system prompt, its working folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.errors import BundleValidationError
from amplifier_core.module_sources import ModuleLoadError, ModuleNotFoundError
from amplifier_foundation.bundle import Bundle, BundleModuleResolver, load_bundle, load_bundle_sync, problems_of

if TYPE_CHECKING:
    from pathlib import Path

LOOP = """
class Loop:
    async def execute(self, prompt, context, providers, tools, hooks, **kwargs):
        return f"{prompt} {sorted(tools)} {[m['content'] for m in await context.get_messages_for_request()]}"

async def mount(coordinator, config):
    coordinator.session_state["seen"] = coordinator.get_capability("session.working_dir")
    coordinator.session_state["extra"] = coordinator.get_capability("extra")
    await coordinator.mount("orchestrator", Loop())
    await coordinator.mount("providers", object(), name="none")
"""
CONTEXT = """
class Context:
    def __init__(self):
        self.messages, self.factory = [], None
    async def add_message(self, message):
        self.messages.append(message)
    async def get_messages(self):
        return self.messages
    async def get_messages_for_request(self, token_budget=None, provider=None):
        first = [{"role": "system", "content": await self.factory()}] if self.factory else []
        return first + self.messages

class Prompted(Context):
    async def set_system_prompt_factory(self, factory):
        self.factory = factory

async def mount(coordinator, config):
    await coordinator.mount("context", (Prompted if config.get("prompted") else Context)())
"""
TOOL = """
class Tool:
    name = "check"

async def mount(coordinator, config):
    await coordinator.mount("tools", Tool())
"""


@pytest.fixture
def session_front(folder: Path) -> str:
    """Front matter of a bundle that brings all of its modules."""
    (folder / "mods/context").mkdir(parents=True)
    (folder / "mods/loop.py").write_text(LOOP)
    (folder / "mods/context/__init__.py").write_text(CONTEXT)
    package = folder / "mods/amplifier-module-tool-check/amplifier_module_tool_check"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(TOOL)
    return (
        "session:\n  orchestrator: {module: loop-here, source: ./mods/loop.py}\n"
        "  context: {module: context-here, source: mods/context, config: {prompted: PROMPTED}}\n"
        "tools: [{module: tool-check, source: ./mods}]\n"
    )


@pytest.mark.parametrize(
    ("emptied", "told"),
    [
        ("mods/loop.py", "orchestrator: module 'loop-here'"),
        ("mods/context/__init__.py", "context manager: module 'context-here'"),
    ],
)
async def test_a_required_module_that_mounts_nothing_is_named(
    write: Any, session_front: str, folder: Path, emptied: str, told: str
) -> None:
    path = write(session_front.replace("PROMPTED", "true"), "Be brief.\n")
    (folder / emptied).write_text("async def mount(coordinator, config):\n    pass\n")
    prepared = await (await load_bundle(path)).prepare()
    with pytest.raises(RuntimeError, match=f"^Cannot initialize without {told} has mounted none$"):
        await prepared.create_session()


@pytest.mark.parametrize("prompted", ["true", "false"])
async def test_a_session_runs_on_the_modules_that_its_bundle_brings(
    write: Any, session_front: str, prompted: str, folder: Path
) -> None:
    path = write(session_front.replace("PROMPTED", prompted), "Be brief.\n")
    prepared = await (await load_bundle(path)).prepare()
    session = await prepared.create_session(session_id="s1", session_cwd=folder / "mods", capabilities={"extra": 7})
    async with session:
        assert await session.execute("Hello") == "Hello ['check'] ['Be brief.']"
        assert session.coordinator.session_state == {"seen": str(folder / "mods"), "extra": 7}
        assert session.load_failures == []


@pytest.mark.parametrize(("reloads", "second"), [(False, "Old."), (True, "New.")])
async def test_context_and_mentioned_files_are_part_of_the_system_prompt(
    reloads: bool, second: str, write: Any, session_front: str, folder: Path
) -> None:
    (folder / "rules.md").write_text("Old. See @more.md")
    (folder / "more.md").write_text("More.\n")
    (folder / "style.md").write_text("Old.")
    reload = f"session:\n  reload_context: {str(reloads).lower()}\n"
    front = session_front.replace("PROMPTED", "true").replace("session:\n", reload) + "context: {rules: rules.md}\n"
    prepared = await load_bundle_sync(write(front, "Be brief: @demo:style")).prepare()
    async with await prepared.create_session() as session:
        said = await session.execute("x")
        parts = [
            "Be brief: @demo:style",
            '<context_file paths="rules → rules.md">\\nOld. See @more.md\\n</context_file>',
            '<context_file paths="@demo:style → style.md">\\nOld.\\n</context_file>',
            '<context_file paths="@more.md → more.md">\\nMore.\\n</context_file>',
        ]
        assert all(part in said for part in parts)
        (folder / "style.md").write_text("New.")
        said = await session.execute("x")
        assert f'<context_file paths="@demo:style → style.md">\\n{second}\\n' in said


async def test_sessions_of_one_bundle_share_no_plan(write: Any, session_front: str) -> None:
    prepared = await load_bundle_sync(write(session_front.replace("PROMPTED", "true"))).prepare()
    async with await prepared.create_session() as one, await prepared.create_session() as two:
        one.config["tools"].clear()
        assert len(two.config["tools"]) == len(prepared.mount_plan["tools"]) == 1


async def test_a_session_that_cannot_be_set_up_is_cleaned_up(write: Any, session_front: str, folder: Path) -> None:
    (folder / "mods/loop.py").write_text(
        "async def mount(coordinator, config):\n"
        "    coordinator.register_cleanup(lambda: open('cleaned', 'w').close())\n    raise OSError('no loop')\n"
    )
    prepared = await load_bundle_sync(write(session_front.replace("PROMPTED", "true"))).prepare()
    with pytest.raises(RuntimeError, match="Cannot initialize without orchestrator: OSError: no loop .*:3"):
        await prepared.create_session()
    assert (folder / "cleaned").exists()


async def test_orchestrator_and_context_are_filled_in_when_a_session_is_made(write: Any) -> None:
    prepared = await load_bundle_sync(write("session: {context: context-other, raw: true}\n")).prepare()
    assert prepared.mount_plan == {"session": {"context": "context-other", "raw": True}}
    from amplifier_foundation.bundle.prepared import with_default_session

    assert with_default_session(prepared.mount_plan)["session"] == {
        "orchestrator": {"module": "loop-basic"},
        "context": "context-other",
        "raw": True,
    }


async def test_modules_whose_source_is_elsewhere_are_looked_for_by_name(write: Any) -> None:
    bundle = load_bundle_sync(write("tools: [{module: tool-x, source: 'git+https://host/x'}]\n"))
    assert bundle.problems == []
    assert (await bundle.prepare()).mount_plan == {"tools": [{"module": "tool-x"}]}


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("../outside.py", "AMP107] tools[0].source: leads out of the bundle's folder inside"),
        ("./link.py", "AMP107] tools[0].source: leads out of the bundle's folder inside"),
        ("./missing.py", "AMP108] tools[0].source: inside/missing.py does not exist"),
        ("./notes.txt", "AMP108] tools[0].source: inside/notes.txt is neither a .py file nor a folder"),
        ('"a\\0b.py"', "AMP108] tools[0].source: a path cannot contain the character U+0000"),
    ],
)
def test_code_must_be_there_and_in_the_folder(write: Any, folder: Path, source: str, problem: str) -> None:
    path = write(f"tools: [{{module: tool-x, source: {source}}}]\n", name="inside/bundle.md")
    (folder / "outside.py").write_text(TOOL)
    (folder / "inside/link.py").symlink_to(folder / "outside.py")
    (folder / "inside/notes.txt").write_text("x")
    assert [str(found) for found in problems_of(path)] == [f"inside/bundle.md:3:34: error[{problem}"]


def test_code_behind_a_link_that_leads_to_itself_is_refused(write: Any, folder: Path) -> None:
    path = write("tools: [{module: tool-x, source: ./loop/x}]\n", name="inside/bundle.md")
    (folder / "inside/loop").symlink_to(folder / "inside/loop")
    [problem] = problems_of(path)
    assert problem.code in ("AMP107", "AMP108")  # which of them depends on how Python's version resolves a circle
    assert problem.path == "tools[0].source"


def test_an_absolute_source_may_be_anywhere(write: Any, folder: Path) -> None:
    (folder / "outside.py").write_text(TOOL)
    for source in (str(folder / "outside.py"), (folder / "outside.py").as_uri()):
        bundle = load_bundle_sync(write(f"tools: [{{module: tool-x, source: '{source}'}}]\n", name="inside/bundle.md"))
        resolver = BundleModuleResolver.of(bundle)
        assert resolver.resolve("tool-x", bundle.tools[0]["source"]).resolve() == folder / "outside.py"


def test_code_that_left_since_the_bundle_was_loaded_is_not_used(write: Any, folder: Path) -> None:
    (folder / "outside.py").write_text(TOOL)
    own = folder / "inside/own.py"
    path = write("tools: [{module: tool-x, source: ./own.py}]\n", name="inside/bundle.md")
    own.write_text(TOOL)
    source = BundleModuleResolver.of(load_bundle_sync(path)).resolve("tool-x")
    assert source.resolve() == own
    own.unlink()
    with pytest.raises(ModuleLoadError, match=r"module 'tool-x': inside/bundle\.md:3:34: error\[AMP108\]"):
        source.resolve()
    own.symlink_to(folder / "outside.py")
    with pytest.raises(ModuleLoadError, match="AMP107"):
        source.resolve()


def test_a_module_that_the_bundle_does_not_bring_is_not_found(write: Any) -> None:
    resolver = BundleModuleResolver.of(load_bundle_sync(write("tools: [{module: tool-x}]\n")))
    for hint in (None, "git+https://host/x", {"path": "x"}):
        with pytest.raises(ModuleNotFoundError, match="has no code for 'tool-x', and it is not installed"):
            resolver.resolve("tool-x", source_hint=hint)


def test_the_code_of_an_included_bundle_is_found_in_its_folder(write: Any, folder: Path) -> None:
    write("tools: [{module: tool-x, source: ./x.py}]\n", name="base/bundle.md", bundle="base") and (
        folder / "base/x.py"
    ).write_text(TOOL)
    bundle = load_bundle_sync(write("includes: [./base]\n"))
    assert BundleModuleResolver.of(bundle).resolve("tool-x").resolve() == folder / "base/x.py"


def test_a_relative_source_without_a_folder_is_refused() -> None:
    data = {"bundle": {"name": "x"}, "tools": [{"module": "t", "source": "./t.py"}]}
    with pytest.raises(ValueError, match="is relative, and the bundle has no folder"):
        Bundle.from_dict(data)


def test_a_context_file_outside_of_the_folder_is_refused_and_a_missing_one_is_a_warning(write: Any) -> None:
    path = write("context: {a: ../x.md, include: [b.md, 'demo:../c.md']}\n", name="inside/bundle.md")
    assert [(found.severity, found.code, found.path) for found in problems_of(path)] == [
        ("error", "AMP107", "context.a"),
        ("warning", "AMP108", "context.include[0]"),
        ("error", "AMP107", "context.include[1]"),
    ]


async def test_a_bundle_is_prepared_as_programs_for_other_kernels_say_it(write: Any) -> None:
    bundle = load_bundle_sync(write("seasons: [winter]\nproviders: [{module: provider-playbook}]\n"))
    told: list[tuple[str, str]] = []
    prepared = await bundle.prepare(True, None, lambda *step: told.append(step))
    assert (prepared.bundle, told) == (bundle, [("preparing", bundle.name)])
    with pytest.raises(BundleValidationError, match="unknown section"):
        await bundle.prepare(strict=True)
