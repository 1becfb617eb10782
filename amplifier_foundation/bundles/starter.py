"""The bundle that a new project begins with: it runs as it is, and its comments say what else may stand there."""

from __future__ import annotations

import json
import re

_PLAIN = re.compile(r"(?!(?:true|false|yes|no|on|off|null|y|n)\Z)[A-Za-z][A-Za-z0-9_-]*", re.IGNORECASE)
"""What needs no quotes in YAML, of which the words here are no text."""

_STARTER = """\
---
bundle:
  name: {name}
  version: 0.1.0
  description: Says what it was told.

# Who answers. This provider follows rules, without key, network or cost; put a model's provider in its place later.
# A key never stands in a bundle: set it in the environment.
providers:
  - module: provider-playbook
    config:
      rules:                                # the first rule that fits the last message answers
        - when: {{user: '^read (?P<file>\\S+)'}}
          call: {{tool: read_file, input: {{file_path: "{{file}}"}}}}
        - when: {{tool: read_file}}           # the tool's result
          say: "It has {{lines}} lines."
      otherwise: {{say: "You said: {{prompt}}"}}

# What the agent may do: here with the files of its working folder, and no others.
tools:
  - module: tool-filesystem

# Other bundles that this one is put on top of: what stands here wins.
# includes:
#   - ./base.md

# What runs by itself, in `amplifier up`: each event that a trigger accepts becomes a session.
# background_sessions:
#   - name: reader
#     triggers:
#       - module: trigger-file-watcher      # pip install amplifier-trigger-file-watcher
#         config:
#           patterns: ["*.txt"]
#     instruction_template: "read {{file_path}}"
---
You are a helpful agent.

This text is what the model is told first; `@notes.md` in it would stand for that file's text.
"""


def starter(name: str) -> str:
    """Return the text of a `bundle.md` for a bundle called `name`."""
    return _STARTER.format(name=name if _PLAIN.fullmatch(name) else json.dumps(name, ensure_ascii=False))
