"""Tell a person and the foreman what became of the issues since the last answer."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from amplifier_core.errors import DocumentConflict
from amplifier_tool_issue.issues import ISSUES, Issue, cut, present

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_core.documents import Documents

REPORTS = "foreman.reports"
"""The collection with the time of the last report of each session."""
TOLD, SHORT = 20, 600
"""Issues in one report, and characters of a result, at most."""
ENDED = ("closed", "escalated")
"""The states of an issue that nobody works on any more."""
LATE = timedelta(minutes=1)
"""The time between the beginning of a change, which is its time, and the moment when others can read it, at most."""


class Report:
    """The report of one turn: `read` it before, `keep` it when the turn has ended well."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._version = 0
        self._until = ""
        self._told: dict[str, str] = {}
        """The issues that ended shortly before `_until`, with their times: a late change may be older than they are."""

    async def read(self) -> tuple[str, str]:
        """Return the news for the person, what was closed and escalated since; and those for the model, with numbers.

        '' stands for none. A new session is told the numbers alone.
        """
        last = await self._documents.get(REPORTS, str(self._documents.session_id))
        self._version = last.version if last is not None else 0
        self._until = present()
        issues = [Issue.of(each) for each in await self._documents.find(ISSUES)]
        if not issues:
            return "", ""
        ended = sorted((each for each in issues if each.state in ENDED), key=lambda each: each.updated)
        self._told = {str(each.id): each.updated for each in ended if each.updated > _shortly_before(self._until)}
        if last is not None:
            since, told = _shortly_before(str(last.data["until"])), last.data.get("told") or {}
            ended = [each for each in ended if each.updated > since and told.get(str(each.id)) != each.updated]
        else:
            ended = []
        counts = Counter(each.state.replace("_", " ") for each in issues)
        now = ", ".join(f"{counts[state]} {state}" for state in sorted(counts))
        news = "\n".join(["since your last answer:", *_describe(ended)]) if ended else ""
        lines = ["The person has seen these lines.", news] if news else []
        return news, "\n".join(["<system-reminder>", *lines, f"Issues now: {now}.", "</system-reminder>"])

    async def keep(self) -> None:
        """Note that the news are told."""
        told = {"until": self._until, "told": self._told}
        with suppress(DocumentConflict):  # another process goes on with the session, and has told them
            await self._documents.write(
                [self._documents.change(REPORTS, str(self._documents.session_id), told, self._version)]
            )


def _shortly_before(time: str) -> str:
    """Return the time `LATE` before; both are RFC 3339 in UTC, as those of issues."""
    earlier = datetime.fromisoformat(time) - LATE
    return earlier.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _describe(issues: Sequence[Issue]) -> list[str]:
    """Return a line for each issue, the oldest news first."""
    left = f"- and {len(issues) - TOLD} more; list them with the tool issue"
    return [*(_line(each) for each in issues[-TOLD:]), *([left] if len(issues) > TOLD else [])]


def _line(issue: Issue) -> str:
    if issue.untrusted:
        return f"- issue {issue.id} is {issue.state}; its text is not trusted, show it with the tool issue"
    said = issue.result if issue.status == "closed" else issue.reason
    branch = issue.metadata.get("branch")
    where = f" Merged {branch}." if branch and issue.metadata.get("merged") else f" Branch {branch}." if branch else ""
    lost = [str(each) for each in issue.metadata.get("left_out") or ()]
    where += f" Not kept by git: {cut(', '.join(lost), SHORT)}." if lost else ""
    how = f" ({issue.resolution})" if issue.resolution else ""
    return f"- issue {issue.id} is {issue.state}{how}: {issue.title}.{where} {cut(said, SHORT)}".rstrip()
