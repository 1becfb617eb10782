"""Hold a background session while a daily budget is spent: its events wait for the next day, and lose no attempt."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from amplifier_core.frozen import slotted

from ..sessions.accounts import Account, bundle_account, queue_account
from ..spawning.budget import Budget, Limits

if TYPE_CHECKING:
    from datetime import datetime

    from amplifier_core.clock import Clock
    from amplifier_core.errors import BudgetExceeded
    from amplifier_core.storage import SessionStore

    from ..bundle.background_config import BackgroundSessionConfig
    from ..bundle.model import Bundle

BUDGET = "budget"
"""The component with the problem when a daily budget is spent."""
_SHARED = ("bundle", "background session")
"""Scopes of budgets that hold all events, and not the one whose session has spent its own."""


@slotted
class Allowance:
    """The budgets of one background session, and the time until which its events wait."""

    own: Budget | None = None
    of_bundle: Budget | None = None
    until: datetime | None = field(default=None, init=False)
    """No session begins before."""

    @classmethod
    def of(cls, config: BackgroundSessionConfig, bundle: Bundle, project: str, queue: str) -> Allowance:
        """Return the budgets that a background session and the bundle of its sessions declare."""
        own = Limits.of(config.budget.model_dump()) if config.budget is not None else None
        key, account = "background_sessions: [{budget: {…}}]", Account(queue_account(project, queue))
        whole, shared = Limits.of(bundle.budget), Account(bundle_account(bundle.name, bundle.source_path))
        return cls(
            Budget(own, _SHARED[1], key, account, is_shared=True) if own is not None else None,
            Budget(whole, _SHARED[0], "budget: {…}", shared, is_shared=True) if whole is not None else None,
        )

    async def find_denial(self, session_id: str, store: SessionStore, clock: Clock) -> BudgetExceeded | None:
        """Return the reason to begin no session, None within the budgets."""
        for budget in (self.own, self.of_bundle):
            if budget is not None:
                denial = await budget.find_denial(session_id, store, clock.now())
                if denial is not None:
                    return denial
        return None

    def hold(self, denial: BudgetExceeded) -> bool:
        """Note a spent daily budget; return whether all events wait for it."""
        if denial.scope in _SHARED:
            self.until = denial.until
        return denial.scope in _SHARED
