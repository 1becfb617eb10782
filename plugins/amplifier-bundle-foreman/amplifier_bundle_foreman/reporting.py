"""Tell a person and the foreman what became of the issues since the last answer."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
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


class Report:
    """The report of one turn: `read` it before, `keep` it when the turn has ended well."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._version = 0
        self._until = ""

    async def read(self) -> tuple[str, str]:
        """Return the news for the person, what was closed and escalated since; and those for the model, with numbers.

        '' stands for none. A new session is told the numbers alone.
        """
        session = str(self._documents.session_id)
        last = await self._documents.get(REPORTS, session)
        self._version = last.version if last is not None else 0
        since = str(last.data["until"]) if last is not None else None
        self._until = present()
        issues = [Issue.of(each) for each in await self._documents.find(ISSUES)]
        if not issues:
            return "", ""
        news = [each for each in issues if since is not None and each.updated > since]
        ended = sorted((each for each in news if each.state in ("closed", "escalated")), key=lambda each: each.updated)
        counts = Counter(each.state.replace("_", " ") for each in issues)
        now = ", ".join(f"{counts[state]} {state}" for state in sorted(counts))
        told = "\n".join(["since your last answer:", *_describe(ended)]) if ended else ""
        lines = ["The person has seen these lines.", told] if told else []
        return told, "\n".join(["<system-reminder>", *lines, f"Issues now: {now}.", "</system-reminder>"])

    async def keep(self) -> None:
        """Note that the news are told."""
        session = str(self._documents.session_id)
        with suppress(DocumentConflict):  # another process goes on with the session, and has told them
            await self._documents.write(
                [self._documents.change(REPORTS, session, {"until": self._until}, self._version)]
            )


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
    how = f" ({issue.resolution})" if issue.resolution else ""
    return f"- issue {issue.id} is {issue.state}{how}: {issue.title}.{where} {cut(said, SHORT)}".rstrip()
