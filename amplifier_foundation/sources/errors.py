"""What fetching raises, besides `StoreUnavailable` for a cache folder that cannot be written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.errors import BundleLoadError, BundleNotFoundError

from .uris import shown

if TYPE_CHECKING:
    from .limits import Deadline
    from .uris import ParsedURI


class SourceNotFound(BundleNotFoundError):
    """Nothing could be fetched: it does not exist, asks for a sign-in, or cannot be reached."""

    def __init__(self, source: ParsedURI | str, cause: str, remedy: str) -> None:
        self.source, self.cause, self.remedy = shown(str(source)), shown(cause.strip()), remedy
        super().__init__(f"{self.source}: {self.cause}. {remedy}")


class SourceRefused(BundleLoadError):
    """What is named, or what came, is not taken: it makes no sense, exceeds a limit, or leads out of its folder."""

    def __init__(self, source: ParsedURI | str, cause: str, remedy: str) -> None:
        self.source, self.cause, self.remedy = shown(str(source)), shown(cause.strip()), remedy
        super().__init__(f"{self.source}: {self.cause}. {remedy}")


def out_of_time(source: ParsedURI | str, deadline: Deadline) -> SourceNotFound:
    """Return the error of a fetch that was stopped, or that took longer than it may."""
    if deadline.stopped:
        return SourceNotFound(source, "the fetch was stopped", "Start it again")
    return SourceNotFound(
        source,
        f"was not fetched within {deadline.seconds:g} s",
        "Try again, or give it more seconds: amplifier config set fetch.timeout 600",
    )
