"""The lines of a tree say what sessions are, and no secret."""

from __future__ import annotations

from amplifier_core.storage import Delivery, SessionRecord
from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_foundation.operations.session_lines import tree_lines
from amplifier_foundation.sessions.lineage import forest

KEY = "sk-proj-0123456789abcdefghij"


def lines_of(*paths: str, error: str | None = None) -> list[str]:
    """Return the lines of a tree whose sessions were woken by changes of these files; the last one has the error."""
    records, deliveries = [], []
    for number, path in enumerate(paths):
        name, failed = f"s{number}", error if number == len(paths) - 1 else None
        event = TriggerEvent(TriggerType.FILE_CHANGE, "watcher", file_path=path, change_type="modified")
        records.append(SessionRecord(name, status="failed" if failed else "completed", error=failed))
        deliveries.append(Delivery(f"d{number}", "/p", "queue", "watcher", event, session_id=name))
    return list(tree_lines(forest(records, deliveries), "/p"))


def test_a_tree_without_secrets_shows_its_texts_as_they_are() -> None:
    shown = ["├── s0  completed  0 turns, 0 messages  woken by file a.py modified"]
    shown += ["└── s1  failed  0 turns, 0 messages  woken by file b.py modified  no such model"]
    assert lines_of("a.py", "b.py", error="no such model\nsecond line") == ["/p", *shown]


def test_one_secret_among_many_texts_is_hidden_and_the_others_are_shown() -> None:
    first, *_, last = lines_of("a.py", *["b.py"] * 50, f"/keys/{KEY}", error=f"refused {KEY} for good")[1:]
    assert first.endswith("woken by file a.py modified")
    assert last.endswith("woken by file /keys/[REDACTED] modified  refused [REDACTED] for good")


def test_a_secret_is_hidden_before_its_line_is_cut() -> None:
    [line] = lines_of("x" * 180 + f"/{KEY}")[1:]
    assert "sk-proj" not in line


def test_what_a_person_hid_is_hidden() -> None:
    from amplifier_core.utils.secrets import hide_secret

    hide_secret("horse staple")
    [line] = lines_of("the horse staple")[1:]
    assert line.endswith("woken by file the [REDACTED] modified")


def test_a_session_that_a_person_woke_says_so() -> None:
    delivery = Delivery("d", "/p", "queue", "manual", TriggerEvent(TriggerType.MANUAL, "manual"), session_id="s")
    [line] = list(tree_lines(forest([SessionRecord("s", status="completed")], [delivery]), "/p"))[1:]
    assert line.endswith("woken by hand")


def test_a_stored_event_without_a_source_is_shown_by_its_type() -> None:
    event = TriggerEvent(TriggerType.CUSTOM, None)  # type: ignore[arg-type]  # an earlier version stored it
    delivery = Delivery("d", "/p", "queue", "odd", event, session_id="s")
    [_, line] = tree_lines(forest([SessionRecord("s")], [delivery]), "/p")
    assert line.endswith("woken by custom")
