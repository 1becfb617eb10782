"""Name the packages of modules and triggers: the project's own, and those named by a bundle.

The name of a package is never guessed: whoever registers a guessed name on the index would be installed.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from amplifier_core.errors import BundleError

from ..documents.local_paths import is_remote
from .sections import KINDS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

OURS = frozenset(
    {
        "context-simple",
        "hooks-approval",
        "hooks-logging",
        "hooks-otel",
        "hooks-redaction",
        "hooks-shell",
        "loop-basic",
        "loop-streaming",
        "provider-anthropic",
        "provider-gemini",
        "provider-ollama",
        "provider-openai",
        "provider-playbook",
        "provider-replay",
        "runner-ray",
        "runner-subprocess",
        "storage-jsonl",
        "storage-postgres",
        "storage-sqlite",
        "tool-bash",
        "tool-delegate",
        "tool-emit",
        "tool-filesystem",
        "tool-fork",
        "tool-issue",
        "tool-mcp",
        "tool-memory",
        "tool-search",
        "tool-skills",
        "tool-todo",
        "tool-web",
        "transport-nats",
        "trigger-file-watcher",
        "trigger-issue",
        "trigger-manual",
        "trigger-session-event",
        "trigger-timer",
        "trigger-webhook",
    }
)
"""The modules, runners, storages and triggers shipped with the project: NAME is in the package `amplifier-NAME`."""
ELSEWHERE = {"orchestrator-foreman": "amplifier-bundle-foreman"}
"""The packages of the project's modules with other names."""
TRACKERS = {"issue": "amplifier-tool-issue"}
"""The packages of the project's trackers."""
NO_SANDBOX = (
    "'sandbox: true' needs a sandbox, and no package offers one. Install it with: pip install amplifier-sandbox"
)
ARCHIVES = (".whl", ".zip", ".tar.gz")


def requirement_of(name: str, source: str | None = None, package: str | None = None) -> str:
    """Return pip's requirement for a module or trigger; `` when no package is known for it.

    A remote `source` comes first, then the `package` named in the bundle, then the project's own packages.
    """
    if source and is_remote(source):
        from ..sources.fetching import fetchable

        with suppress(BundleError):
            parsed = fetchable(source)
            part = f"#subdirectory={parsed.subpath}" if parsed.subpath else ""
            if parsed.is_git:
                return f"git+{parsed.url}{'@' if parsed.written_ref else ''}{parsed.written_ref}{part}"
            if parsed.is_zip or parsed.path.partition("?")[0].lower().endswith(ARCHIVES):
                return parsed.url + part
    return package or (f"amplifier-{name}" if name in OURS else ELSEWHERE.get(name, ""))


def suggest(kind: str, name: str, installed: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for a name similar to an installed one, or to one of the project's; else ``."""
    prefixes = KINDS[kind].prefixes if kind in KINDS else (f"{kind}-",)

    def strip(full: str) -> str:  # a shared prefix makes any two names similar
        return next((full.removeprefix(prefix) for prefix in prefixes if full.startswith(prefix)), full)

    known = {strip(each): each for each in {*installed, *OURS} - {name} if each.startswith(prefixes)}
    if kind == "trigger":  # a bundle may name it by its type
        from .background_config import OTHER_TYPES

        known |= {other.replace("_", "-"): other for other in OTHER_TYPES}
    from difflib import get_close_matches  # rarely needed, and not free

    close = get_close_matches(strip(name.lower().replace("_", "-")), known, n=1, cutoff=0.75)
    return f"; did you mean '{known[close[0]]}'?" if close else ""


def describe_unknown(
    kind: str, name: str, installed: Collection[str], *, source: str | None = None, package: str | None = None
) -> str:
    """Return the message about an unknown name, with the installed names of its kind and a remedy.

    The remedy is a similar name, an install line for a known package, or the key to name one in the bundle.
    """
    label, prefixes = KINDS.get(kind, (kind, ()))
    alike = sorted(known for known in installed if known.startswith(prefixes or ""))
    requirement, suggestion = requirement_of(name, source, package), suggest(kind, name, installed)
    if source and is_remote(source):
        remedy = " Install it with: amplifier bundle install"
    elif requirement:
        remedy = f" Install it with: pip install {requirement}"
    elif suggestion:
        remedy = ""
    else:
        remedy = " Name its package beside it ('package: NAME'), and run: amplifier bundle install"
    hint = suggestion if not requirement and suggestion else "."
    key = ""
    if kind == "providers":
        from .credentials import describe_key

        key = describe_key(name)
    return f"unknown {label} '{name}'{hint} Installed: {', '.join(alike) or 'none'}.{key}{remedy}"
