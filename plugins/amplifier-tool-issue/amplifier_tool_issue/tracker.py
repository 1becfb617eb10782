"""Keep the issues of a project: each change is one transaction with the events that tell of it."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar

from amplifier_core.documents import DocumentEdit, retry_conflicts

from .issues import (
    CALLS,
    CLOSED,
    COMMENTS,
    CREATED,
    ISSUES,
    NUMBERS,
    STATUSES,
    UNBLOCKED,
    UPDATED,
    WAITS,
    Issue,
    IssueError,
    IssueNotFound,
    check_text,
    check_values,
    key_of,
    present,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from amplifier_core.documents import Documents

    T = TypeVar("T")

CHANGEABLE = ("title", "description", "type", "priority", "status", "labels", "reason")
"""What `update` changes."""
UNWANTED = ("wontfix", "duplicate")
"""The resolutions of issues that nobody is to do."""


class Edit:
    """Issues on their way to a new state: reads each once, and collects the changes and events of one transaction."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._found: dict[int, tuple[Issue, int]] = {}
        self._changes: dict[tuple[str, str], tuple[Mapping[str, Any], int]] = {}
        self._events: list[tuple[str, Mapping[str, Any]]] = []
        self.now = present()

    async def get(self, number: int) -> Issue:
        """Return an issue as this edit leaves it so far. Raises `IssueNotFound`."""
        if number not in self._found:
            document = await self._documents.get(ISSUES, key_of(number))
            if document is None:
                raise IssueNotFound(number)
            self._found[number] = Issue.of(document), document.version
        return self._found[number][0]

    async def next_number(self, of: str = "last") -> int:
        """Take the next number of the project."""
        last = await self._documents.get(NUMBERS, of)
        number = int(last.data["number"]) + 1 if last is not None else 1
        self.keep(NUMBERS, of, {"number": number}, last.version if last is not None else 0)
        return number

    async def take_turn(self) -> None:
        """Let changes follow each other that read issues without changing them: of two at once, one is made again.

        Else two sessions that close the last two blockers would each see the other one open, and unblock nothing. It
        comes before the issues are read.
        """
        await self.next_number("turn")

    def keep(self, collection: str, key: str, data: Mapping[str, Any], version: int = 0) -> None:
        """Write a document."""
        self._changes[collection, key] = data, version

    def put(self, issue: Issue) -> Issue:
        """Write an issue, a new one or one that was read here. Raises `IssueError` for too many dependencies."""
        if max(len(issue.blocked_by), len(issue.blocks)) > WAITS:
            way = "waits for" if len(issue.blocked_by) > WAITS else "blocks"
            raise IssueError(f"issue {issue.id} {way} {WAITS} others already; let one issue stand for several of them")
        issue = replace(issue, updated=self.now)
        version = self._found[issue.id][1] if issue.id in self._found else 0
        self._found[issue.id] = issue, version
        self.keep(ISSUES, key_of(issue.id), issue.data(), version)
        return issue

    def tell(self, event: str, issue: Issue, *changed: str) -> None:
        """Emit an event about an issue."""
        self._events.append((event, {**issue.told(), "changed": list(changed)}))

    async def close(
        self, issue: Issue, resolution: str, result: str, changed: Sequence[str] = ("status",), **facts: Any
    ) -> Issue:
        """Close an issue, and unblock those that waited for it alone.

        A person who closes it takes it from its worker, and so does a session that says it is not to be done.
        """
        if issue.blocks:
            await self.take_turn()
        closer = self._documents.session_id
        if closer is None or (closer != issue.assignee and resolution in UNWANTED):
            facts["queue"] = None
        closed = self.put(replace(issue, status="closed", resolution=resolution, result=result, **facts))
        self.tell(CLOSED, closed, *changed)
        for number in closed.blocks:
            waiting = await self.get(number)
            if waiting.blocked and not await self.is_blocked(waiting):
                self.unblock(waiting)
        return closed

    async def reopen(self, issue: Issue, **facts: Any) -> Issue:
        """Open an issue; a closed one blocks again."""
        if issue.blocks or issue.blocked_by:
            await self.take_turn()
        was_closed = issue.status == "closed"
        blocked, is_person = await self.is_blocked(issue), self._documents.session_id is None
        depth = 0 if is_person else issue.depth + 1  # sessions that open it again and again come to an end
        facts = {"assignee": None, "queue": None, "resolution": "", "depth": depth, **facts}
        opened = self.put(replace(issue, status="open", blocked=blocked, **facts))
        for number in opened.blocks if was_closed else ():
            waiting = await self.get(number)
            if not waiting.blocked and waiting.status != "closed":
                self.tell(UPDATED, self.put(replace(waiting, blocked=True)), "blocked")
        return opened

    def unblock(self, issue: Issue) -> None:
        """Note that an issue waits for nothing any more."""
        self.tell(UNBLOCKED, self.put(replace(issue, blocked=False)), "blocked")

    async def is_blocked(self, issue: Issue) -> bool:
        """Return whether one of the issues it waits for is not closed."""
        for number in issue.blocked_by:
            if (await self.get(number)).status != "closed":
                return True
        return False

    def finish(self) -> DocumentEdit:
        """Return the changes and events."""
        changes = [
            self._documents.change(collection, key, data, version)
            for (collection, key), (data, version) in self._changes.items()
        ]
        return DocumentEdit(changes, self._events)


async def write(documents: Documents, make: Callable[[Edit], Awaitable[T]], call: str = "") -> T:
    """Make an edit and write it; again while others change the same issues. Return what `make` returns.

    With the key of a `call`, a tool call that is open when its process is killed counts as done once this is written.
    Raises as `retry_conflicts` does, and the errors of `make`.
    """

    async def attempt() -> T:
        edit = Edit(documents)
        result = await make(edit)
        made = edit.finish()
        if made.changes:
            await documents.write(made.changes, made.events, event_id=call or None)
        return result

    return await retry_conflicts(attempt)


def _digest(*facts: Any) -> str:
    return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


class Tracker:
    """The issues of a project, for a session or a person. Errors are `IssueError`, `IssueNotFound`, and the store's."""

    def __init__(self, documents: Documents, untrusted: str = "") -> None:
        """`untrusted` says why the text that is written here is not trusted, if so."""
        self._documents = documents
        self._untrusted = untrusted
        self.has_read_untrusted = False
        """Whether a returned issue has text that is not trusted."""

    async def create(
        self,
        title: str,
        *,
        description: str = "",
        type: str = "task",
        priority: int = 2,
        labels: Sequence[str] = (),
        blocked_by: Sequence[int] = (),
    ) -> Issue:
        """Make an issue; emits `issue:created`.

        A session that makes the same one again gets the first one while it is not closed: a killed session repeats its
        last call.
        """
        given = {"title": title, "description": description, "type": type, "priority": priority, "labels": labels}
        values = check_values(given)

        session_id = self._documents.session_id
        key = _digest(session_id, values, list(blocked_by)) if session_id is not None else ""

        async def make(edit: Edit) -> Issue:
            made = await self._documents.get(CALLS, key) if key else None
            if made is not None:
                first = await edit.get(int(made.data["issue"]))
                if first.status != "closed":
                    return first
            about: dict[str, Any] = {
                "created": edit.now,
                "created_by": session_id,
                "untrusted": self._untrusted,
                "depth": self._documents.depth,
            }
            issue = Issue(await edit.next_number(), **values, **about)
            for number in dict.fromkeys(blocked_by):
                blocker = await edit.get(number)
                edit.put(replace(blocker, blocks=[*blocker.blocks, issue.id]))
                issue = replace(issue, blocked_by=[*issue.blocked_by, number])
            issue = edit.put(replace(issue, blocked=await edit.is_blocked(issue)))
            if key:
                edit.keep(CALLS, key, {"issue": issue.id}, made.version if made is not None else 0)
            edit.tell(CREATED, issue)
            return issue

        return await self._write(make)

    async def _write(self, make: Callable[[Edit], Awaitable[Issue]], call: str = "") -> Issue:
        issue = await write(self._documents, make, call)
        self._note(issue)
        return issue

    async def find(
        self,
        *,
        status: Sequence[str] = (),
        type: Sequence[str] = (),
        label: str | None = None,
        ready: bool = False,
        limit: int | None = None,
    ) -> list[Issue]:
        """Return issues with these values: the most urgent first, then the oldest, and the closed ones last.

        `ready` has those to begin with.
        """
        for each in status:
            if each not in (*STATUSES, "blocked"):
                raise IssueError(f"status: {each!r} is none of {', '.join(STATUSES)}, blocked")
        wanted = {"open" if each == "blocked" else each for each in (("open",) if ready else status)}
        where = {"status": sorted(wanted), "type": [*type]}
        documents = await self._documents.find(ISSUES, where={name: values for name, values in where.items() if values})
        issues = [
            issue
            for issue in map(Issue.of, documents)
            if (label is None or label in issue.labels)
            and (issue.is_ready or not ready)
            and (ready or not status or issue.state in status or issue.status in status)
        ]
        found = sorted(issues, key=lambda each: (each.status == "closed", each.priority, each.id))[:limit]
        self._note(*found)
        return found

    async def get(self, number: int) -> Issue:
        """Return an issue. Raises `IssueNotFound`."""
        issue = await Edit(self._documents).get(number)
        self._note(issue)
        return issue

    def _note(self, *issues: Issue) -> None:
        self.has_read_untrusted = self.has_read_untrusted or any(each.untrusted for each in issues)

    async def comments(self, number: int, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the last comments, each with `text`, `author` (a session, None: a person) and `created`."""
        found = await self._documents.find(COMMENTS, prefix=f"{key_of(number)}:", newest=True, limit=limit)
        return [dict(each.data) for each in reversed(found)]

    async def update(self, number: int, **changes: Any) -> Issue:
        """Change facts of an issue; emits `issue:updated`, or what a change of the status brings.

        The status `open` opens a closed or escalated issue; `closed` closes it. A person opens an open one anew: it
        begins a new chain of causes. Raises `IssueError` for `open` while a worker is at work on it.
        """
        unknown = [name for name in changes if name not in CHANGEABLE]
        if unknown:
            raise IssueError(f"{unknown[0]}: cannot be changed; {', '.join(CHANGEABLE)} can")
        values = check_values(changes)

        async def make(edit: Edit) -> Issue:
            issue = await edit.get(number)
            status = values.get("status", issue.status)
            changed = [name for name, value in values.items() if getattr(issue, name) != value]
            if status == "open" == values.get("status") and self._documents.session_id is None:
                changed = list(dict.fromkeys([*changed, "status"]))
            if (status, issue.status) == ("open", "in_progress") and issue.queue is not None:
                raise IssueError(
                    f"issue {number} is in progress: a second worker would do it beside session {issue.assignee}. "
                    f"Close it first, which takes it from that one: amplifier issue close {number}"
                )
            texts = {name: value for name, value in values.items() if name != "status"}
            issue = replace(issue, **texts, untrusted=issue.untrusted or (self._untrusted if texts else ""))
            if status == "closed" and "status" in changed:
                return await edit.close(issue, "completed", "", changed, reason=values.get("reason", ""))
            if "status" not in changed:
                issue = edit.put(issue) if changed else issue
            elif status == "open":
                issue = await edit.reopen(issue, failures=0, reason=values.get("reason", ""))
            else:
                assignee = self._documents.session_id if status == "in_progress" else issue.assignee
                queue = issue.queue if assignee == issue.assignee else None
                issue = edit.put(replace(issue, status=status, assignee=assignee, queue=queue))
            if changed:
                edit.tell(UPDATED, issue, *changed)
            return issue

        return await self._write(make)

    async def comment(self, number: int, text: str, *, call: str = "") -> Issue:
        """Add a comment; emits `issue:updated`. `call` is the key of a tool call: see `write`."""
        text, author = check_text("text", text), self._documents.session_id

        async def make(edit: Edit) -> Issue:
            issue = await edit.get(number)
            untrusted = issue.untrusted or self._untrusted
            issue = edit.put(replace(issue, comments=issue.comments + 1, untrusted=untrusted))
            said = {"text": text, "author": author, "created": edit.now}
            edit.keep(COMMENTS, f"{key_of(number)}:{issue.comments:06}", said)
            edit.tell(UPDATED, issue, "comments")
            return issue

        return await self._write(make, call)

    async def depend(self, number: int, on: int, *, remove: bool = False) -> Issue:
        """Let an issue wait for another one, or (`remove`) no longer; emits `issue:updated` or `issue:unblocked`.

        Raises `IssueError` for a circle.
        """

        async def make(edit: Edit) -> Issue:
            await edit.take_turn()
            issue, blocker = await edit.get(number), await edit.get(on)
            if number == on:
                raise IssueError(f"issue {number} cannot wait for itself")
            if remove == (on not in issue.blocked_by):
                return issue
            if not remove:
                await self._refuse_circle(edit, number, on)
            waits = [each for each in issue.blocked_by if each != on] + ([] if remove else [on])
            keeps = [each for each in blocker.blocks if each != number] + ([] if remove else [number])
            edit.put(replace(blocker, blocks=keeps))
            was_blocked = issue.blocked
            issue = edit.put(replace(issue, blocked_by=waits))
            issue = edit.put(replace(issue, blocked=await edit.is_blocked(issue)))
            if was_blocked and not issue.blocked:
                edit.unblock(issue)
            else:
                edit.tell(UPDATED, issue, "blocked_by")
            return issue

        return await self._write(make)

    async def _refuse_circle(self, edit: Edit, number: int, on: int) -> None:
        seen: set[int] = set()
        waiting = [on]
        while waiting:
            each = waiting.pop()
            if each == number:
                raise IssueError(f"issue {number} cannot wait for {on}: {on} waits for {number} already")
            if each not in seen:
                seen.add(each)
                waiting += (await edit.get(each)).blocked_by

    async def close(self, number: int, *, resolution: str = "completed", result: str = "") -> Issue:
        """Close an issue; emits `issue:closed`, and `issue:unblocked` for those that waited for it alone."""
        resolution, result = check_text("resolution", resolution) or "completed", check_text("result", result)

        async def make(edit: Edit) -> Issue:
            issue = await edit.get(number)
            if issue.status == "closed":
                return issue
            untrusted = issue.untrusted or self._untrusted
            return await edit.close(issue, resolution, result, reason="", untrusted=untrusted)

        return await self._write(make)
