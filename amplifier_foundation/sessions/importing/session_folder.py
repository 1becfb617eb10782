"""Read the sessions of programs with session folders, `metadata.json` and `transcript.jsonl`, and exported ones."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..serialising import sanitize_for_json
from ..session_folders import METADATA_FILENAME, TRANSCRIPT_FILENAME, load_metadata, load_transcript
from ..untrusted import UNTRUSTED
from .building import Answer, Prompt, Result, build_history, read_arguments, read_image, read_text
from .json_lines import JsonLines, Notes, parse_object
from .sources import AMPLIFIER, SourceSession, find_strangers, make_id, read_time, shorten_name, text_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from amplifier_core.transcript import Message

    from .building import Block, Entry

BACKUP = ".backup"
"""The end of the name of a file as it was before the program wrote it last."""
WEB_TOOLS = ("web_fetch", "web_search")


def read_sessions(path: Path, notes: Notes) -> Iterator[SourceSession]:
    """Yield the history of a folder, or of an export, which is a file. Raises `OSError`."""
    folder, metadata, is_export = path, read_metadata(path, notes), path.is_file()
    shares = bool(metadata.get("fork_of")) and not metadata.get("whole") and not is_export
    file = JsonLines(path) if is_export else _choose_transcript(folder, notes)
    prompt, tools = "", set[str]()
    for message in _read_messages(file, notes, is_export=is_export):
        blocks = [*_read_blocks(message.get("content"), Notes()), *_read_calls(message)]
        tools.update(text_at(block, "name") for block in blocks if block["type"] == "tool_call")
        if not prompt and message.get("role") == "user" and not _is_injected(message):
            prompt = next((block["text"] for block in blocks if block["type"] == "text"), "")
    uncounted = Notes()  # a history is read several times, and what is left out of it is counted once
    reads = iter([notes])

    def read() -> Iterator[Message]:
        own = next(reads, uncounted)
        shared = (sanitize_for_json(message) for message in load_transcript(folder)) if shares else None
        return build_history(_read_entries(shared or _read_messages(file, uncounted, is_export=is_export), own), own)

    source_id = text_at(metadata, "session_id") or (path.stem if is_export else path.name)
    above = text_at(metadata, "parent_id")
    untrusted = text_at(metadata, UNTRUSTED) or text_at(metadata, "metadata", UNTRUSTED)
    yield SourceSession(
        program=AMPLIFIER,
        source_id=source_id,
        path=folder,
        session_id=make_id(source_id),
        read=read,
        parent_id=make_id(above) if above else None,
        folder=_folder_of(metadata),
        name=shorten_name(text_at(metadata, "name") or prompt),
        created=read_time(metadata.get("created")),
        agent=text_at(metadata, "agent_name"),
        strangers=untrusted or find_strangers(tools, WEB_TOOLS),
    )


def describe_folder(folder: Path) -> tuple[str, str]:
    """Return the working folder and the name of a session, as its metadata tell them; '' for what they do not."""
    metadata = read_metadata(folder, Notes())
    return _folder_of(metadata), shorten_name(text_at(metadata, "name"))


def _choose_transcript(folder: Path, notes: Notes) -> JsonLines:
    """Return the messages of a session, or their backup where it has more of them than a damaged transcript."""
    file, backup = JsonLines(folder / TRANSCRIPT_FILENAME), folder / f"{TRANSCRIPT_FILENAME}{BACKUP}"
    if not backup.is_file():
        return file
    damage, spare = Notes(), JsonLines(backup)
    left = sum(1 for _ in file.read_all(damage))
    saved = sum(1 for _ in spare.read_all(Notes())) if damage.problems or not left else 0
    if saved <= left:
        return file
    notes.add_problem(
        f"{TRANSCRIPT_FILENAME} is damaged: the messages come from {backup.name}, which has {saved} of them, not {left}"
    )
    return spare


def _folder_of(metadata: dict[str, Any]) -> str:
    return text_at(metadata, "working_dir") or text_at(metadata, "project")


def read_metadata(folder: Path, notes: Notes) -> dict[str, Any]:
    """Return what is stored of a session besides its messages; of an export, its record. Raises `OSError` for those."""
    if folder.is_file():
        head = next(JsonLines(folder).read_all(Notes()), None)
        record = head.data.get("session") if head is not None else None
        return record if isinstance(record, dict) else {}
    try:
        return load_metadata(folder)
    except FileNotFoundError:
        problem = f"{METADATA_FILENAME} is missing"
    except (OSError, ValueError, RecursionError):
        problem = f"{METADATA_FILENAME} is damaged"
    backup, data = folder / f"{METADATA_FILENAME}{BACKUP}", None
    with suppress(OSError):
        data = parse_object(backup.read_bytes())
    lost = f"{backup.name} is read instead" if data else "the session has no name, no folder and no time"
    notes.add_problem(f"{problem}: {lost}")
    return data or {}


def _read_messages(file: JsonLines, notes: Notes, *, is_export: bool) -> Iterator[dict[str, Any]]:
    """Yield the messages; of an export, its record says their number, and each has an id of its own."""
    announced, seen = 0, set[str]()
    for line in file.read_all(notes):
        message = line.data.get("message")
        if not is_export:
            yield line.data
        elif isinstance(record := line.data.get("session"), dict):
            announced = record.get("message_count", 0)
        elif not isinstance(message, dict):
            notes.add_problem(f"line {line.number} has no message and is left out")
        else:
            own = str(line.data.get("id", line.number))
            if own in seen:
                notes.add_problem(f"line {line.number} has the message {own} again")
            seen.add(own)
            yield message
    if isinstance(announced, int) and len(seen) < announced:
        notes.add_problem(f"{announced} messages are announced, {len(seen)} are there: the export is not whole")


def _read_entries(messages: Iterable[dict[str, Any]], notes: Notes) -> Iterator[Entry]:
    for number, message in enumerate(messages):
        about = message.get("metadata")
        time = text_at(message, "timestamp") or text_at(about, "timestamp")
        role, results = message.get("role"), [Result(*each, time) for each in _read_results(message)]
        blocks = _read_blocks(message.get("content"), notes) if role != "tool" or results else []
        if role == "assistant":
            usage = about.get("usage") if isinstance(about, dict) else None
            model = text_at(about, "model")
            said = [each for each in blocks if each["type"] != "image"]
            calls = [] if any(each["type"] == "tool_call" for each in said) else _read_calls(message)
            yield Answer(f"m{number}", [*said, *calls], time, model, usage if isinstance(usage, dict) else None)
            yield from results
        elif role == "tool":
            for block in blocks:
                notes.left_out[f"block of the type {block['type']!r} beside a result"] += 1
            output = _read_output(message, "content", "output")
            yield from results or [Result(text_at(message, "tool_call_id"), output, time)]
        elif role == "user":
            yield from results
            kept = [block for block in blocks if block["type"] in ("text", "image")]
            text = kept[0]["text"] if len(kept) == 1 and kept[0]["type"] == "text" else ""
            yield Prompt(text or kept, time, is_injected=_is_injected(message))
        else:
            notes.left_out[f"message of the role {str(role)[:40]!r}"] += 1


def _read_results(message: dict[str, Any]) -> Iterator[tuple[str, str | list[Block]]]:
    """Yield the id of the call and the output of each block with a result, in either of its shapes."""
    content = message.get("content")
    for block in content if isinstance(content, list) else ():
        if text_at(block, "type") == "tool_result":
            call_id = text_at(block, "tool_call_id") or text_at(block, "tool_use_id")
            yield call_id or text_at(message, "tool_call_id"), _read_output(block, "output", "content")


def _read_output(result: dict[str, Any], *keys: str) -> str | list[Block]:
    """Return what a tool has returned, at the first key with anything.

    That is its texts, its blocks with images, or the JSON of any other value.
    """
    value = next((result[key] for key in keys if result.get(key) not in (None, "", [])), "")
    if not isinstance(value, list):
        return read_text(value)
    given = [each for each in value if isinstance(each, dict) and each.get("type") in ("text", "image")]
    blocks = [block for each in given if (block := _read_block(each)) is not None]
    if len(blocks) < len(value):
        return read_text(value)
    is_text = all(block["type"] == "text" for block in blocks)
    return "\n".join(block["text"] for block in blocks) if is_text else blocks


def _read_blocks(content: Any, notes: Notes) -> list[Block]:
    if not isinstance(content, list):
        return [{"type": "text", "text": read_text(content)}]
    blocks = []
    for given in content:
        block = _read_block(given) if isinstance(given, dict) else None
        if block is not None:
            blocks.append(block)
        elif text_at(given, "type") != "tool_result":
            notes.left_out[f"block of the type {text_at(given, 'type')[:40]!r}"] += 1
    return blocks


def _read_block(block: Block) -> Block | None:
    kind = block.get("type")
    if kind == "text":
        return {"type": "text", "text": text_at(block, "text")}
    if kind in ("tool_call", "tool_use") and text_at(block, "id"):
        given = block.get("input", block.get("arguments"))
        return {"type": "tool_call", "id": block["id"], "name": block.get("name"), "input": read_arguments(given)}
    if kind == "thinking" and (text_at(block, "signature") or isinstance(block.get("content"), list)):
        return {**block, "thinking": text_at(block, "thinking")}
    if kind == "redacted_thinking" and text_at(block, "data"):
        return {"type": "redacted_thinking", "data": block["data"]}
    return read_image(block.get("source")) if kind == "image" else None


def _read_calls(message: dict[str, Any]) -> list[Block]:
    """Return the calls of an answer whose blocks do not have them."""
    given_calls = message.get("tool_calls")
    calls = []
    for call in given_calls if isinstance(given_calls, list) else ():
        if not isinstance(call, dict):
            continue
        function: Any = call.get("function")
        function = function if isinstance(function, dict) else {}
        name = call.get("tool") or call.get("name") or function.get("name")
        given = call.get("arguments", function.get("arguments"))
        if text_at(call, "id"):
            calls.append({"type": "tool_call", "id": call["id"], "name": name, "input": read_arguments(given)})
    return calls


def _is_injected(message: dict[str, Any]) -> bool:
    return text_at(message, "metadata", "source") == "hook"
