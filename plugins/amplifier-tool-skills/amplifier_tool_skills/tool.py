"""Load skills for models, and make prompts of commands and skills for people."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from amplifier_core.models import ToolResult
    from amplifier_core.permissions.calls import Access
    from amplifier_core.prompt_commands import PromptCommand
    from amplifier_foundation.bundle.prompt_files import PromptFile

    from .catalog import Catalog

ABOUT = (
    "Load a skill: instructions for a kind of task, with files that they use. When a task fits the description of a "
    "skill, load the skill before you begin, and follow it. With `file`, read a file of the skill."
)
INPUT = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "The name of the skill."},
        "arguments": {"type": "string", "description": "What the skill is to work on, if it says that it takes that."},
        "file": {"type": "string", "description": "A file of the skill to read, as the skill lists it."},
    },
    "required": ["name"],
    "additionalProperties": False,
}
MAX_BYTES = 256 * 1024
"""Of one file."""


class SkillFailure(Exception):
    """A call fails; the text says what to do."""


class SkillTool:
    """The tool `skill`. Its description lists the skills; a change is seen at the next prompt."""

    name = "skill"
    input_schema = INPUT

    def __init__(self, catalog: Catalog, list_chars: int) -> None:
        self._catalog = catalog
        self._list_chars = list_chars
        self._described: tuple[dict[str, PromptFile], str] | None = None

    @property
    def description(self) -> str:
        """Return what the tool does, with the skills: names and descriptions, names alone where there is no room."""
        if not self._catalog.is_read:
            self._catalog.refresh()
        skills = self._catalog.skills
        if self._described is None or self._described[0] is not skills:
            self._described = skills, f"{ABOUT}\n\n{list_skills(skills.values(), self._list_chars)}"
        return self._described[1]

    def accesses(self, arguments: Mapping[str, Any]) -> Iterable[Access]:
        """Return what a call reaches: a skill by its name, and nothing but its own files."""
        from amplifier_core.permissions.calls import Access

        return [Access("other", str(arguments.get("name") or ""), form="harmless")]

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        """Return the instructions of a skill, or one of its files; the `error` of a failed call has a `message`."""
        from amplifier_core.models import ToolResult

        try:
            return ToolResult(output=await asyncio.to_thread(self._load, input))
        except SkillFailure as failure:
            return ToolResult(success=False, error={"message": str(failure), "type": "SkillFailure"})

    def _load(self, input: Mapping[str, Any]) -> str:
        given = {key: value for key, value in input.items() if value is not None}
        if wrong := next((key for key, value in given.items() if not isinstance(value, str)), ""):
            raise SkillFailure(f"{wrong} must be text")
        skill = self._find(given.get("name", ""))
        if "file" in given:
            return self._read_file(skill, given["file"])
        return self._show(skill, given.get("arguments", ""))

    def _find(self, name: str) -> PromptFile:
        from difflib import get_close_matches

        if name not in self._catalog.skills:
            self._catalog.refresh()
        skill = self._catalog.skills.get(name)
        if skill is not None and skill.is_for_models:
            return skill
        if skill is not None:
            raise SkillFailure(f"the skill '{name}' is for people alone; they type /{name}")
        known = [each.name for each in self._catalog.skills.values() if each.is_for_models]
        close = get_close_matches(name, known, n=1)
        hint = f"; did you mean '{close[0]}'?" if close else f". There are: {', '.join(known[:50]) or 'none'}"
        raise SkillFailure(f"there is no skill '{name}'{hint}")

    def _show(self, skill: PromptFile, argument: str) -> str:
        from html import escape

        from amplifier_foundation.bundle.prompt_files import fill_in

        folder = skill.file.parent
        text = fill_in(self._read_body(skill), argument, positional=False)
        shown = f'<skill name="{skill.name}" folder="{escape(str(folder))}">\n{text}\n</skill>'
        if files := self._catalog.list_files(skill):
            listed = "\n".join(files)
            shown += f"\n\nFiles of the skill, relative to its folder; read one with skill(name, file):\n{listed}"
        return shown

    def _read_body(self, prompt: PromptFile) -> str:
        from amplifier_foundation.bundle.prompt_files import read_front

        front = read_front(prompt.file, self._catalog.read)
        if front is None:
            raise SkillFailure(f"{prompt.file} is gone")
        if isinstance(front, list):
            raise SkillFailure(str(front[0]))
        return front.body

    def _read_file(self, skill: PromptFile, file: str) -> str:
        from amplifier_foundation.bundle.prompt_files import describe_fault

        folder, name = skill.file.parent, file.removeprefix("./")
        known = [skill.file.name, *self._catalog.list_files(skill)]
        if name not in known:
            raise SkillFailure(f"the skill '{skill.name}' has no file '{file}'. It has: {', '.join(known[:50])}")
        try:
            return self._catalog.read(folder / name, MAX_BYTES)
        except (OSError, ValueError) as error:
            raise SkillFailure(f"{folder / name}: {describe_fault(error)}") from None

    # commands

    async def offer_commands(self) -> list[PromptCommand]:
        """Return the commands, and the skills as commands, for the channel `prompt.commands`."""
        await asyncio.to_thread(self._catalog.refresh)
        named = {**self._catalog.skills, **self._catalog.commands}
        return [
            {
                "name": each.name,
                "description": f"{each.description} ({self._catalog.owners.get(each.file, 'bundle')})",
                "hint": each.hint,
                "expand": partial(self._expand, each),
            }
            for each in (named[name] for name in sorted(named))
            if each.is_for_people
        ]

    async def _expand(self, prompt: PromptFile, argument: str) -> str:
        from amplifier_foundation.bundle.prompt_files import fill_in

        if prompt.kind == "skill":
            return await asyncio.to_thread(self._show, prompt, argument)
        body = await asyncio.to_thread(self._read_body, prompt)
        return await self._catalog.expand_mentions(fill_in(body, argument, positional=True), prompt.file)


def list_skills(skills: Iterable[PromptFile], room: int) -> str:
    """Return the skills for a model in at most about `room` characters: descriptions first, then names alone."""
    lines: list[str] = []
    named: list[str] = []
    shown = [each for each in skills if each.is_for_models]
    for each in shown:
        line = f"- {each.name}: {each.description}"
        if not named and len(line) < room:
            lines.append(line)
            room -= len(line) + 1
        else:
            named.append(each.name)
    if not shown:
        return "There are no skills here."
    more = ""
    if named:
        fitting: list[str] = []
        for name in named:
            if len(name) + 2 > room:
                break
            fitting.append(name)
            room -= len(name) + 2
        left = len(named) - len(fitting)
        more = f"\nMore, without a description: {', '.join(fitting)}{f' and {left} others' if left else ''}"
    return "Skills:\n" + "\n".join(lines) + more
