"""Read what a skill (a folder with `SKILL.md`) or a command (a Markdown file) says of itself.

The formats are the published ones: Agent Skills, and the Markdown files of slash commands. Their front matter is YAML.
Many published files hold values that YAML reads otherwise, such as `argument-hint: [FILE] [LINE]`: front matter that
is no YAML is read once more, with the values of its top lines as plain text.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from amplifier_core.frozen import frozen
from amplifier_core.permissions.hidden import replace_unprintable

from ..documents.positions import Place, Positions, show_file
from ..documents.problems import error_at, warning_at
from ..documents.yaml_reader import Unreadable, place_of, read_yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ..documents.problems import Problem

    ReadText = Callable[[Path, int], str]
    """Reads a file of at most so many bytes. Raises `OSError` and `ValueError`."""

Kind = Literal["skill", "command"]
SKILL_FILE = "SKILL.md"
MAX_BYTES = 256 * 1024
"""Of one file."""
LONGEST_NAME, LONGEST_DESCRIPTION = 64, 1_024
"""Characters, as the published format of skills has them."""

_SKILL_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_COMMAND_PART = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_FENCE = re.compile(r"---[ \t]*\n")
_PLAIN_VALUE = re.compile(r"^([A-Za-z][\w-]*):[ \t]+(?![\"'|>])(\S.*?)[ \t]*$", re.MULTILINE)
_RUN = re.compile(r"(?<![^\s(>*_:-])!`([^`\n]+)`")
"""What other programs run, and put in place of itself."""


@frozen
class PromptFile:
    """A skill or a command. `description` is one line; `hint` shows its argument, such as `[FILE]`."""

    kind: Kind
    name: str
    file: Path
    description: str
    hint: str = ""
    is_for_models: bool = True
    is_for_people: bool = True


class Front(NamedTuple):
    """The front matter of a file with the positions of its values, and the text below it."""

    data: dict[str, Any]
    positions: Positions
    body: str
    problems: list[Problem]


def read_text(path: Path, limit: int) -> str:
    """Return the text of a file, also behind a link. Raises `OSError`, and `ValueError` with the fault of the file."""
    from ..mentions import files

    return files.read_text(path.resolve(), limit)


def read_skill(folder: Path, read: ReadText) -> tuple[PromptFile | None, list[Problem]]:
    """Return the skill in a folder, None for an unusable one, and its problems."""
    file = folder / SKILL_FILE
    front = read_front(file, read)
    if front is None or isinstance(front, list):
        return None, front or []
    data, problems = front.data, front.problems
    if not _SKILL_NAME.fullmatch(folder.name) or len(folder.name) > LONGEST_NAME:
        message = f"a skill has the name of its folder: 1 to {LONGEST_NAME} of a-z, 0-9 and single '-'"
        return None, [*problems, error_at(front.positions.at(("name",)), "AMP121", message)]
    if data.get("name") != folder.name:
        message = f"the name of a skill is that of its folder, '{folder.name}'; that one counts"
        problems.append(warning_at(front.positions.at(("name",)), "AMP121", message))
    description = _to_line(data.get("description"))
    if not description:
        message = "a skill needs a description: what it does, and when to use it"
        return None, [*problems, error_at(front.positions.at(("description",)), "AMP121", message)]
    if len(description) > LONGEST_DESCRIPTION:
        message = f"models see the first {LONGEST_DESCRIPTION:,} characters of a description"
        problems.append(warning_at(front.positions.at(("description",)), "AMP121", message))
    found = _make("skill", folder.name, file, description, data)
    return found, problems


def read_command(file: Path, name: str, read: ReadText) -> tuple[PromptFile | None, list[Problem]]:
    """Return the command in a file, None for an unusable one, and its problems."""
    if not all(_COMMAND_PART.fullmatch(part) for part in name.split(":")):
        message = f"'{name}' cannot be typed: letters, digits, '_', '.' and '-', a letter first"
        return None, [error_at(Place(show_file(file)), "AMP121", message)]
    front = read_front(file, read)
    if front is None or isinstance(front, list):
        return None, front or []
    problems = front.problems
    if found := _RUN.search(front.body):
        line = front.body[: found.start()].count("\n") + _first_line(front)
        message = f"{found[0]} is not run: commands of files never are. The model is told, and may run it with a tool"
        problems.append(warning_at(Place(show_file(file), line, 1), "AMP121", message))
    description = _to_line(front.data.get("description")) or _to_line(front.body.strip().partition("\n")[0])
    if not front.body.strip():
        return None, [*problems, error_at(Place(show_file(file), 1, 1), "AMP121", "a command needs a text: its prompt")]
    return _make("command", name, file, description.lstrip("# "), front.data), problems


def _make(kind: Kind, name: str, file: Path, description: str, data: Mapping[str, Any]) -> PromptFile:
    hint = data.get("argument-hint")
    if isinstance(hint, list):
        hint = f"[{', '.join(map(str, hint))}]"
    return PromptFile(
        kind=kind,
        name=name,
        file=file,
        description=description[:LONGEST_DESCRIPTION],
        hint=_to_line(hint),
        is_for_models=kind == "skill" and data.get("disable-model-invocation") is not True,
        is_for_people=data.get("user-invocable") is not False,
    )


def read_front(file: Path, read: ReadText) -> Front | list[Problem] | None:
    """Return the front matter and the text of a file; its problems if it is unreadable, None if it is gone."""
    shown = show_file(file)
    try:
        text = read(file, MAX_BYTES).replace("\r\n", "\n").replace("\r", "\n")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        return [error_at(Place(shown), "AMP121", describe_fault(error))]
    positions = Positions(shown)
    opened = _FENCE.match(text)
    if opened is None:
        return Front({}, positions, text, [])
    closed = re.compile(r"^---[ \t]*$", re.MULTILINE).search(text, opened.end())
    if closed is None:
        return [error_at(Place(shown, 1, 1), "AMP121", "the front matter has no end: write a line '---' after it")]
    written = text[opened.end() : closed.start()]
    try:
        data, problems = _read_lenient(written, positions)
    except Unreadable as stopped:
        return [stopped.problem]
    if data is not None and not isinstance(data, dict):
        return [error_at(place_of(text, opened.end(), shown), "AMP121", "the front matter must be a mapping of keys")]
    return Front(data or {}, positions, text[closed.end() :].removeprefix("\n"), problems)


def describe_fault(error: Exception) -> str:
    """Return why a file cannot be read, without the advice for mentions."""
    return str(getattr(error, "strerror", None) or error).partition(";")[0]


def _read_lenient(written: str, positions: Positions) -> tuple[Any, list[Problem]]:
    try:
        data, problems = read_yaml(written, positions, first_line=2)
        if not problems:
            return data, []
    except Unreadable:
        problems = []
    plain = _PLAIN_VALUE.sub(lambda found: f"{found[1]}: {json.dumps(found[2], ensure_ascii=False)}", written)
    fresh = Positions(positions.file)
    try:
        data, others = read_yaml(plain, fresh, first_line=2)
    except Unreadable:
        return read_yaml(written, positions, first_line=2)  # its own words about its own text
    positions.keys.update(fresh.keys)
    positions.values.update(fresh.values)
    return data, others and problems


def _first_line(front: Front) -> int:
    """Return the line of a file with the first line of its text."""
    return 1 if not front.positions.values else max(line for line, _ in front.positions.values.values()) + 2


def _to_line(value: Any) -> str:
    """Return a value as one line without what steers a terminal."""
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
    return " ".join(replace_unprintable(text, lambda sign: " ").split())


# the text of a command or a skill


def fill_in(body: str, argument: str, *, positional: bool) -> str:
    """Return a text with the argument in place of `$ARGUMENTS`, and its words in place of `$1` to `$9`.

    An argument for a text without a place for it stands below it. Commands to run are left, and named below.
    """
    import shlex

    unrun = list(dict.fromkeys(_RUN.findall(body)))
    text = _RUN.sub(r"`\1`", body)
    try:
        words = shlex.split(argument)
    except ValueError:  # a quote without an end
        words = argument.split()
    pattern = r"\$(ARGUMENTS\b|[1-9](?!\d))" if positional else r"\$(ARGUMENTS\b)"
    values = {"ARGUMENTS": argument, **{str(number): word for number, word in enumerate(words[:9], 1)}}
    text, count = re.subn(pattern, lambda found: values.get(found[1], ""), text)
    if argument and not count:
        text = f"{text.rstrip()}\n\nARGUMENTS: {argument}"
    if unrun:
        named = ", ".join(f"`{each}`" for each in unrun)
        text = f"{text.rstrip()}\n\n(Not run for you: {named}. Run what you need of it with your own tools.)"
    return text.strip()
