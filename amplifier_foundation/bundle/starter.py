"""Write the first bundle of a new project: it runs as it is, and its comments introduce further sections.

`starter` is the text of a file. `first_bundle` is the same bundle in memory, for a session without a file.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from .first_provider import PLAYBOOK

if TYPE_CHECKING:
    from pathlib import Path

    from .first_provider import Choice
    from .model import Bundle

TOOL = "tool-filesystem"
"""The module of its one tool."""
_PLAIN = re.compile(r"(?!(?:true|false|yes|no|on|off|null|y|n)\Z)[A-Za-z][A-Za-z0-9_-]*", re.IGNORECASE)
"""Text without quotes in YAML; the listed words are other values there."""

_PLAYBOOK = """\
# The provider answers. This one follows rules, without key, network or cost; replace it by a model's provider later.
# Never write a key into a bundle: keep it with `amplifier auth login`, or set it in the environment.
providers:
  - module: provider-playbook
    config:
      rules:                                # the first rule that fits the last message answers
        - when: {user: '^read (?P<file>\\S+)'}
          call: {tool: read_file, input: {file_path: "{file}"}}
        - when: {tool: read_file}           # the tool's result
          say: "It has {lines} lines."
      otherwise: {say: "You said: {prompt}"}
"""
_MODEL = """\
# The provider asks a model. Its key is in the environment, or kept by `amplifier auth login`: never write it here.
providers:
  - module: %s
"""
_NO_CONFIG = "    # config: {default_model: fast}           # an alias, or the name of a model\n"
_STARTER = """\
---
bundle:
  name: {name}
  version: 0.1.0
  description: {description}

{providers}
# The agent's tools: this one works with the files of its working folder, and no others.
tools:
  - module: {tool}

# Other bundles below this one; this one wins.
# includes:
#   - ./base.md

# Background sessions run in `amplifier up`: each accepted event of a trigger becomes a session.
# background_sessions:
#   - name: reader
#     triggers:
#       - module: trigger-file-watcher      # pip install amplifier-trigger-file-watcher
#         config:
#           patterns: ["*.txt"]
#     instruction_template: "read {{file_path}}"

# The text below is the system prompt. An @ before the name of a file in it adds the text of the file.
---
You are a helpful agent. Your tools work with the files of the working folder.
"""


def starter(name: str, choice: Choice | None = None) -> str:
    """Return the text of a `bundle.md` for a bundle called `name` with a provider; by default the playbook."""
    if choice is None or choice.module == PLAYBOOK:
        providers, description = _PLAYBOOK, "Repeats your words."
    else:
        lines = [f"      {key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in choice.config.items()]
        config = "".join(["    config:\n", *lines]) if lines else _NO_CONFIG
        providers, description = _MODEL % choice.module + config, "Answers with a model."
    quoted = name if _PLAIN.fullmatch(name) else json.dumps(name, ensure_ascii=False)
    return _STARTER.format(name=quoted, description=description, providers=providers, tool=TOOL)


def first_bundle(name: str, choice: Choice, folder: Path) -> Bundle:
    """Return the bundle of `starter` in memory; files are relative to `folder`."""
    from ..documents.files import parse_frontmatter
    from .model import Bundle

    data, instruction = parse_frontmatter(starter(name, choice))
    whole: dict[str, Any] = {**data, "instruction": instruction.strip()}
    return Bundle.from_dict(whole, folder)
