"""Describe the input of the tool as JSON Schema."""

from __future__ import annotations

from typing import Any

TYPES = {
    "c": "*.{c,h}",
    "config": "*.{toml,ini,cfg,conf,properties}",
    "cpp": "*.{cc,cpp,cxx,hh,hpp,hxx,h}",
    "cs": "*.cs",
    "css": "*.{css,scss,sass,less}",
    "docker": "{Dockerfile,Dockerfile.*,*.dockerfile,Containerfile}",
    "elixir": "*.{ex,exs,eex,heex}",
    "go": "*.go",
    "haskell": "*.{hs,lhs}",
    "html": "*.{html,htm,xhtml}",
    "java": "*.java",
    "js": "*.{js,jsx,mjs,cjs,vue,svelte}",
    "json": "*.{json,jsonl,json5,jsonc}",
    "kotlin": "*.{kt,kts}",
    "lua": "*.lua",
    "make": "{Makefile,makefile,GNUmakefile,*.mk}",
    "md": "*.{md,mdx,markdown}",
    "php": "*.php",
    "py": "*.{py,pyi}",
    "ruby": "{*.rb,*.rake,Gemfile,Rakefile}",
    "rust": "*.rs",
    "scala": "*.{scala,sbt}",
    "sh": "*.{sh,bash,zsh,fish}",
    "sql": "*.sql",
    "swift": "*.swift",
    "tex": "*.{tex,bib,sty,cls}",
    "toml": "*.toml",
    "ts": "*.{ts,tsx,mts,cts}",
    "txt": "*.{txt,rst,adoc}",
    "xml": "*.{xml,xsd,xsl,svg}",
    "yaml": "*.{yaml,yml}",
}
"""The patterns of file types."""
OUTPUTS = ("content", "files", "count")
MOST_RESULTS, MOST_LINES = 1_000, 20
"""Results of one call, and lines of context on each side."""

DESCRIPTION = (
    "Search the files of the project for a regular expression, or for a fixed text. Files that .gitignore names are "
    "left out. Many results come in pieces: 'next_offset' says where the next one begins."
)
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "pattern": {"type": "string", "description": "The regular expression, searched in each line.", "minLength": 1},
        "path": {
            "type": "string",
            "description": "The folder or file to search, relative to the working folder.",
            "minLength": 1,
            "default": ".",
        },
        "fixed": {"type": "boolean", "description": "Take the pattern as text.", "default": False},
        "ignore_case": {"type": "boolean", "description": "Ignore upper and lower case.", "default": False},
        "files": {
            "type": "string",
            "description": "Only files that fit, as 'src/**/*.{c,h}'. Without '/', a pattern fits names at any depth.",
            "minLength": 1,
            "default": "**",
        },
        "type": {"type": "string", "description": "Only files of this type.", "enum": sorted(TYPES)},
        "output": {
            "type": "string",
            "description": "What to return: lines, the names of files, or the number of lines in each file.",
            "enum": list(OUTPUTS),
            "default": "content",
        },
        "context": {
            "type": "integer",
            "description": "content: lines before and after each one to return, too.",
            "minimum": 0,
            "maximum": MOST_LINES,
            "default": 0,
        },
        "ignored": {"type": "boolean", "description": "Search files that .gitignore names, too.", "default": False},
        "max_results": {
            "type": "integer",
            "description": "The most results to return.",
            "minimum": 1,
            "maximum": MOST_RESULTS,
            "default": 100,
        },
        "offset": {"type": "integer", "description": "The results to pass over.", "minimum": 0, "default": 0},
    },
    "required": ["pattern"],
    "additionalProperties": False,
}
