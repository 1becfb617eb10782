"""Define the errors of fetching. An unwritable cache folder is a `StoreUnavailable` besides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.errors import BundleLoadError, BundleNotFoundError

from .uris import redact_uris

if TYPE_CHECKING:
    from amplifier_core.network import NetworkMisconfigured

    from .limits import Deadline
    from .uris import ParsedURI


class SourceNotFound(BundleNotFoundError):
    """The source does not exist, needs a sign-in, or cannot be reached."""

    def __init__(self, source: ParsedURI | str, cause: str, remedy: str) -> None:
        self.source, self.cause, self.remedy = redact_uris(str(source)), redact_uris(cause.strip()), remedy
        super().__init__(f"{self.source}: {self.cause}. {remedy}")


class SourceRefused(BundleLoadError):
    """The source, or its content, is refused: invalid, beyond a limit, or outside its folder."""

    def __init__(self, source: ParsedURI | str, cause: str, remedy: str) -> None:
        self.source, self.cause, self.remedy = redact_uris(str(source)), redact_uris(cause.strip()), remedy
        super().__init__(f"{self.source}: {self.cause}. {remedy}")


def misconfigured(source: ParsedURI | str, error: NetworkMisconfigured) -> SourceRefused:
    """Return the error of a fetch that a variable of the network stops."""
    return SourceRefused(source, f"cannot be asked for: {error.problem}", error.remedy)


def out_of_time(source: ParsedURI | str, deadline: Deadline) -> SourceNotFound:
    """Return the error of a stopped fetch, or of one beyond its time limit."""
    if deadline.is_stopped:
        return SourceNotFound(source, "the fetch was stopped", "Start it again")
    return SourceNotFound(
        source,
        f"was not fetched within {deadline.seconds:g} s",
        "Try again, or give it more seconds: amplifier config set fetch.timeout 600",
    )
