"""Keep issues in step with the workers on them: begun, closed, opened again, or escalated."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from amplifier_core.triggers import TriggerType

from .issues import ISSUES, UPDATED, Issue, IssueError, IssueNotFound, cut, read_number
from .tracker import Edit, write

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from amplifier_core.documents import DocumentEdit, Documents
    from amplifier_core.storage import Delivery

REOPENED = 1
"""How often an issue is opened again after a worker gave it up, before it is escalated."""
FILES = 100
"""Files with conflicts, or that git has not kept, that are kept with an issue."""
RESULT = 20_000
"""Characters of a worker's answer that are kept as the result of an issue."""


class IssueTracker:
    """The tracker of one background session; see `amplifier_foundation.hookspecs.WorkTracker`.

    Its config has `reopen`: how often an issue is opened again after its work has failed for good. Events without an
    `issue_id` are about no issue: their deliveries change none.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        unknown = [key for key in config if key != "reopen"]
        if unknown:
            raise ValueError(f"{unknown[0]}: unknown key; known is reopen")
        reopen = config.get("reopen", REOPENED)
        if isinstance(reopen, bool) or not isinstance(reopen, int) or not 0 <= reopen <= 100:
            raise ValueError(f"reopen: must be 0 to 100, not {reopen!r}")
        self._reopen = reopen

    async def begin(self, documents: Documents, delivery: Delivery) -> str | None:
        """Assign the issue to the delivery's session; return why it is not to be worked on, None if it is."""
        if delivery.event.data.get("issue_id") is None:
            return None

        async def make(edit: Edit) -> str | None:
            try:
                number = read_number(delivery.event.data["issue_id"])
                issue = await edit.get(number)
            except (IssueError, IssueNotFound) as error:
                return str(error)
            is_own, is_given_up = _is_own(issue, delivery), issue.failures > self._reopen
            if is_own and issue.status != "open" and (issue.status == "in_progress" or not is_given_up):
                return None  # the process was killed, perhaps after the session has closed or escalated it
            if not issue.is_ready and not (is_own and issue.status == "escalated"):
                return _describe(issue)
            failures = min(issue.failures, self._reopen)  # a person makes the dead letter of an escalated one due again
            mine = {"assignee": delivery.session_id, "queue": delivery.queue, "failures": failures}
            edit.tell(UPDATED, edit.put(replace(issue, status="in_progress", **mine)), "status", "assignee")  # type: ignore[arg-type]
            return None

        return await write(documents, make)

    async def refresh(self, documents: Documents, delivery: Delivery) -> Mapping[str, Any]:
        """Return the data of an issue's event with the issue as it is now; that of any other event as it is."""
        data = delivery.event.data
        if delivery.event.type is not TriggerType.ISSUE_EVENT or data.get("issue_id") is None:
            return data
        return {**data, **(await Edit(documents).get(read_number(data["issue_id"]))).told()}

    async def find_withdrawal(self, documents: Documents, delivery: Delivery) -> str | None:
        """Return how a person has closed the issue, or who else works on it; None for one that is the session's own."""
        if delivery.event.data.get("issue_id") is None:
            return None
        try:
            issue = await Edit(documents).get(read_number(delivery.event.data["issue_id"]))
        except (IssueError, IssueNotFound) as error:
            return str(error)
        return None if _is_own(issue, delivery) else _describe(issue)

    async def finish(self, documents: Documents, delivery: Delivery, outcome: Mapping[str, Any]) -> DocumentEdit:
        """Close the issue with the worker's answer, unless the worker has settled it by itself."""
        edit = Edit(documents)
        issue = await self._find_own(edit, delivery)
        if issue is not None:
            known = ("branch", "commit", "merged", "conflicts", "left_out")
            facts = {**issue.metadata, **{name: outcome[name] for name in known if outcome.get(name) is not None}}
            facts |= {name: value[:FILES] for name, value in facts.items() if isinstance(value, list)}
            result = cut(str(outcome.get("output") or ""), RESULT)
            untrusted = issue.untrusted or str(outcome.get("untrusted") or "")
            await edit.close(issue, "completed", result, metadata=facts, reason="", untrusted=untrusted)
        return edit.finish()

    async def give_up(self, documents: Documents, delivery: Delivery, reason: str) -> DocumentEdit:
        """Open the issue again, or escalate it when that did not help before."""
        edit = Edit(documents)
        issue = await self._find_own(edit, delivery)
        if issue is not None:
            facts: dict[str, Any] = {"failures": issue.failures + 1, "reason": cut(reason, RESULT)}
            facts["depth"] = issue.depth  # `reopen` is the bound
            if issue.failures < self._reopen:
                issue = await edit.reopen(issue, **facts)
            else:
                issue = edit.put(replace(issue, status="escalated", **facts))
            edit.tell(UPDATED, issue, "status", "reason")
        return edit.finish()

    async def recover(self, documents: Documents, queue: str, live: Collection[str]) -> list[str]:
        """Open the issues of a queue again whose session is none of `live`."""
        freed = []
        for document in await documents.find(ISSUES, where={"status": ["in_progress"], "queue": [queue]}):
            issue = Issue.of(document)
            if issue.assignee not in live:
                await write(documents, lambda edit, lost=issue: self._free(edit, lost))  # type: ignore[misc]
                freed.append(f"issue {issue.id}")
        return freed

    async def _free(self, edit: Edit, lost: Issue) -> None:
        issue = await edit.get(lost.id)
        if (issue.status, issue.assignee) == ("in_progress", lost.assignee):
            issue = await edit.reopen(issue, reason="the work on it was lost", depth=issue.depth)
            edit.tell(UPDATED, issue, "status", "assignee")

    async def _find_own(self, edit: Edit, delivery: Delivery) -> Issue | None:
        """Return the issue that the delivery's session works on; None if that has ended otherwise."""
        try:
            issue = await edit.get(read_number(delivery.event.data.get("issue_id")))
        except (IssueError, IssueNotFound):
            return None
        return issue if (issue.status, issue.assignee) == ("in_progress", delivery.session_id) else None


def _is_own(issue: Issue, delivery: Delivery) -> bool:
    """Return whether an issue is with the delivery's session, or was settled by it."""
    return issue.assignee == delivery.session_id and issue.queue is not None


def _describe(issue: Issue) -> str:
    """Return why there is no work on an issue."""
    more = issue.resolution if issue.status == "closed" else issue.assignee
    return f"issue {issue.id} is {issue.state}" + (f" ({more})" if more else "")
