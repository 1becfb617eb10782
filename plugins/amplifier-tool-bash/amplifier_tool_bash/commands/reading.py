"""Know the commands that only read: their options by a positive list, and the paths among their arguments.

An option outside of the list, abbreviated ones too, makes a command one like any other.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .words import Word

_COMMANDS = """
basename    texts  az -s --multiple --zero --suffix=
cat         paths  AbeEnstTuv --number --number-nonblank --show-all --show-ends --show-tabs --squeeze-blank
cksum       paths
cmp         paths  bls -n --silent --quiet --verbose --bytes=
column      paths  t -s --table --separator=
comm        paths  123z --total
cut         paths  sz -b -c -d -f --delimiter= --fields= --characters= --bytes= --complement --output-delimiter=
date        texts  uR -d --utc --date= --iso-8601 --rfc-3339=
df          paths  ahiklPT -t --human-readable --total
diff        paths  abBcdeEiNpqrstTuwy0 -U -C -W -x --unified= --brief --recursive --side-by-side --new-file --color
diff        paths  --ignore-all-space --ignore-case --suppress-common-lines --width= --exclude= --stat
dirname     texts  z --zero
du          paths  0abcDhHklLmPsSx -d -t --max-depth= --summarize --human-readable --all --total --apparent-size
echo        texts  *
egrep       needle abcEFGhHiIlLnoPqrRsTUvVwxyZz -A -B -C -m -e
expand      paths  i -t --tabs=
false       texts
fgrep       needle abcEFGhHiIlLnoPqrRsTUvVwxyZz -A -B -C -m -e
file        paths  bhikLNnpsz0 --brief --mime --mime-type --mime-encoding --dereference
fold        paths  bs -w --width=
grep        needle abcEFGhHiIlLnoPqrRsTUvVwxyZz# -A -B -C -m -e -d -D --include= --exclude= --exclude-dir= --color
grep        needle --extended-regexp --fixed-strings --perl-regexp --basic-regexp --ignore-case --invert-match --colour
grep        needle --word-regexp --line-regexp --count --files-with-matches --files-without-match --max-count=
grep        needle --only-matching --quiet --no-messages --byte-offset --with-filename --no-filename --line-number
grep        needle --null --recursive --dereference-recursive --after-context= --before-context= --context= --regexp=
head        paths  qvz# -n -c --lines= --bytes= --quiet --verbose
hexdump     paths  bcCdovx -n -s --length= --skip=
id          texts  gGnruz --user --group --name
jq          needle acCejMnrsS --raw-output --compact-output --null-input --slurp --sort-keys --exit-status --tab
ls          paths  1aAbBcCdfFgGhHiklLmnNopqQrRsStuUvxXZ -I -w -T --all --almost-all --human-readable --recursive
ls          paths  --reverse
ls          paths  --color --classify --directory --inode --size --sort= --time= --time-style= --full-time --si
ls          paths  --group-directories-first --hide= --ignore= --width= --format=
md5sum      paths  btz
nl          paths  b -w -s -v -n -i
od          paths  abcdfhilosxv -A -j -N -t -w --address-radix= --format=
paste       paths  sz -d --delimiters= --serial
printenv    texts  0
printf      texts
pwd         texts  LP
readlink    paths  efmnqsvz --canonicalize --canonicalize-existing --canonicalize-missing --no-newline
realpath    paths  eLmPqsz --relative-to= --relative-base= --canonicalize-missing
rev         paths
rg          needle cFHhiIlLNnoPpqSsUuvwx. -A -B -C -e -g -m -t -T -j -d -M --count --files --hidden --no-ignore --json
rg          needle --fixed-strings --ignore-case --line-number --no-line-number --files-with-matches --glob= --iglob=
rg          needle --type= --type-not= --max-count= --max-depth= --context= --after-context= --before-context=
rg          needle --smart-case --word-regexp --only-matching --multiline --color= --no-heading --heading --stats
rg          needle --sort= --sortr= --with-filename --no-filename --regexp= --pcre2 --type-list --version
seq         texts  w -f -s --format= --separator= --equal-width
sha1sum     paths  btz
sha256sum   paths  btz
sha512sum   paths  btz
sleep       texts
sort        paths  bcCdfghiMmnrRsuVz -k -t --reverse --unique --numeric-sort --key= --field-separator= --check
sort        paths  --human-numeric-sort --version-sort --general-numeric-sort --ignore-case --stable --zero-terminated
stat        paths  fLt -c --format= --dereference --file-system --terse --printf=
strings     paths  a -n -t --bytes= --radix= --all
tac         paths  br -s --separator=
tail        paths  qvz# -n -c --lines= --bytes= --quiet --verbose
tr          texts  cCdst --delete --squeeze-repeats --complement --truncate-set1
tree        paths  adfghinprstuDFJNQSX -L -P -I --dirsfirst --noreport --du --si --gitignore --prune --charset=
true        texts
type        texts  afptP
uname       texts  amnoprsv --all --kernel-name --machine
uniq        paths  cdDiuz -f -s -w --count --repeated --unique --ignore-case --skip-fields= --skip-chars=
wc          paths  clLmw --bytes --chars --lines --words --max-line-length --total=
which       texts  a --all
whoami      texts
:           texts
git blame       revisions  bcefklnstwC -L --date= --line-porcelain --porcelain --show-email --show-name
git branch      nothing    arv --all --list --remotes --verbose --show-current --contains= --merged --no-merged
git branch      nothing    --sort= --format= --color --no-color
git cat-file    revisions  pste
git describe    revisions  --tags --all --always --long --abbrev= --dirty --match= --exact-match --contains
git diff        revisions  abcDMpqRsuwz# -U -S -G --cached --staged --stat --shortstat --numstat --dirstat --summary
git diff        revisions  --name-only --name-status --color --no-color --word-diff --patch --no-patch --raw --check
git diff        revisions  --unified= --diff-filter= --ignore-all-space --ignore-space-change --ignore-blank-lines
git diff        revisions  --minimal --patience --histogram --find-renames --find-copies --merge-base --exit-code
git diff        revisions  --no-ext-diff --no-textconv --no-renames --patch-with-stat --relative --binary --full-index
git grep        needle     acEFGhHiIlLnopPqrvwWz# -A -B -C -m -e --cached --untracked --line-number --count
git grep        needle     --files-with-matches --name-only --fixed-strings --extended-regexp --ignore-case --heading
git log         revisions  acgpqrsuwzMmt# -n -S -G -U --oneline --graph --all --decorate --stat --shortstat --numstat
git log         revisions  --name-only --name-status --patch --no-patch --no-merges --merges --first-parent --raw
git log         revisions  --abbrev-commit --reverse --follow --pretty= --format= --since= --until= --after= --before=
git log         revisions  --author= --committer= --grep= --max-count= --skip= --date= --branches --tags --remotes
git log         revisions  --color --no-color --summary --topo-order --date-order --full-history --diff-filter=
git log         revisions  --no-ext-diff --no-textconv --word-diff --left-right --cherry-pick --simplify-by-decoration
git ls-files    revisions  cdikmostuvz --others --cached --modified --deleted --exclude-standard --stage --unmerged
git ls-files    revisions  --full-name --directory --error-unmatch --ignored
git ls-tree     revisions  drtlz --name-only --name-status --long --full-tree --full-name --abbrev=
git merge-base  revisions  a --all --is-ancestor --fork-point
git remote      nothing    v --verbose
git rev-list    revisions  n# --count --all --max-count= --since= --until= --no-merges --first-parent --reverse
git rev-parse   revisions  q --show-toplevel --abbrev-ref --short --verify --is-inside-work-tree --git-dir --show-prefix
git shortlog    revisions  cens# --summary --numbered --email --since= --until= --all --no-merges
git show        revisions  acpqrsuwz# -U -S -G --stat --shortstat --numstat --name-only --name-status --oneline --patch
git show        revisions  --no-patch --pretty= --format= --color --no-color --abbrev-commit --date= --raw --summary
git show        revisions  --no-ext-diff --no-textconv --word-diff --unified= --ignore-all-space
git stash-list  nothing    # -n --oneline --stat --max-count=
git status      revisions  bsuvz --short --branch --porcelain --long --verbose --untracked-files --ignored --show-stash
git status      revisions  --ahead-behind --no-ahead-behind --renames --no-renames --column --no-column --null
git tag         nothing    --sort= --format= --color
git version     nothing    --build-options
"""
_SAFE_NAMES = "basename cat cut dirname du head ls md5sum nl sha1sum sha256sum stat tail wc"
_TAKES_ANY = frozenset(_SAFE_NAMES.split())
"""Commands that only read with any option: a file's name may be one."""
_MOST_COLONS = 8
_WALKING = frozenset(("find", "tree", "du", "rg", "diff"))
_WALKING_WITH = {
    **dict.fromkeys(("grep", "egrep", "fgrep"), r"-[^-]*[rRd]|--(?:dereference-)?recursive"),
    "ls": r"-[^-]*R|--recursive",
}
_SHOW_NO_FILES = frozenset(
    f"git {each}"
    for each in ("branch", "describe", "merge-base", "remote", "rev-list", "rev-parse", "shortlog", "tag", "version")
)
_LOG_OPTION = (
    r"[^-].*|-n?[0-9]*|--|--(?:oneline|graph|all|decorate|(?:no-)?merges|first-parent|abbrev-commit|reverse|branches|tags"
    r"|remotes|(?:no-)?color|(?:topo|date)-order|no-patch)|--(?:pretty|format|since|until|after|before|author|committer|grep"
    r"|max-count|skip|date)=.*"
)
"""The arguments with which `git log` shows no more than messages, names and times."""
_FIND = """
-L -H -P ! ( ) -a -o -not -and -or , -empty -print -print0 -prune -ls -depth -xdev -mount -follow -true -false -readable
-writable -executable -daystart -noleaf -nouser -nogroup -quit
"""
_FIND_WITH_VALUE = """
-name -iname -path -ipath -wholename -iwholename -regex -iregex -regextype -type -xtype -size -mtime -mmin -atime -amin
-ctime -cmin -newer -maxdepth -mindepth -perm -user -group -uid -gid -links -inum -printf -used -lname -ilname -fstype
"""
# No step of these goes back: each takes time in proportion to its text. A slash within brackets ends nothing in sed.
_PATTERN = r"(?:[^/\\\n\[]|\[\^?[^]^/\\\n\[][^]/\\\n\[]*+\])"
_LINES = rf"(?:[0-9]++|\$|/(?:(?!;){_PATTERN})++/)"
_SED = re.compile(
    rf"[ \t]*+(?:(?:{_LINES}[ \t]*+(?:,[ \t]*+(?:\+[0-9]++|{_LINES})[ \t]*+)?!?[ \t]*+)?[pdPDq=]"
    rf"|(?:[0-9]++(?:,(?:[0-9]++|\$))?)?s/(?:{_PATTERN}|\\[^cdox\n])*+/(?:[^/\\\n]|\\[^cdox\n])*+/[gpiI0-9]*+)[ \t]*+"
)
_FORMAT = re.compile(r"(?:[^%]|%%|%[-+ #0-9.*']*+[bqcsdiouxXeEfFgGaA])*+")
_TESTS = frozenset(("-e", "-f", "-d", "-s", "-r", "-w", "-x", "-L", "-h", "-z", "-n"))


class Spec(NamedTuple):
    """The options of a command that only read."""

    operands: str
    """`paths`, `texts`, `revisions` (of git), `needle` (a text, then paths), or `nothing`."""
    flags: frozenset[str]
    """Letters and long names without a value; `#` stands for `-5`, `*` for anything."""
    options: frozenset[str]
    """Letters and long names with a value."""


@cache
def _specs() -> dict[str, Spec]:
    specs: dict[str, Spec] = {}
    for line in _COMMANDS.strip().splitlines():
        name, *parts = line.split()
        if name == "git":
            name = f"git {parts.pop(0)}"
        operands, *shapes = parts
        known = specs.get(name, Spec(operands, frozenset(), frozenset()))
        flags = {letter for shape in shapes if not shape.startswith("-") for letter in shape}
        flags |= {shape for shape in shapes if shape.startswith("--") and not shape.endswith("=")}
        options = {shape[1:] for shape in shapes if len(shape) == 2 and shape[0] == "-"}
        options |= {shape[:-1] for shape in shapes if shape.endswith("=")}
        specs[name] = Spec(operands, known.flags | flags, known.options | options)
    return specs


def find_read_paths(words: Sequence[Word]) -> list[str] | None:
    """Return the paths that a command reads if it does nothing else; None for any other command."""
    name, arguments = words[0].text, words[1:]
    if name in _OWN_GRAMMARS:
        return _OWN_GRAMMARS[name](arguments)
    if name == "git":
        name, arguments = _find_git_command(arguments)
    spec = _specs().get(name)
    return None if spec is None else _read_arguments(name, spec, arguments)


def walks(words: Sequence[Word]) -> bool:
    """Return whether a command that only reads may read all below the folders that it names."""
    name, options = words[0].text, [word.text for word in words[1:]]
    if name in _WALKING_WITH:
        return any(re.match(_WALKING_WITH[name], option) for option in options)
    return name in _WALKING


def shows_files(words: Sequence[Word]) -> bool:
    """Return whether a command of git that only reads may show any file of the repository, or of its history."""
    name, arguments = _find_git_command(words[1:])
    if name == "git log":
        return not all(re.fullmatch(_LOG_OPTION, word.text) for word in arguments)
    return name not in _SHOW_NO_FILES


def _find_git_command(arguments: Sequence[Word]) -> tuple[str, Sequence[Word]]:
    """Return `git log` and the rest of the arguments."""
    while arguments and arguments[0].text in ("--no-pager", "--no-optional-locks"):
        arguments = arguments[1:]
    first, rest = (arguments[0].text if arguments else ""), arguments[1:]
    if first == "stash" and rest and rest[0].text == "list":
        return "git stash-list", rest[1:]
    return f"git {first.removeprefix('--')}", rest


def _read_arguments(name: str, spec: Spec, arguments: Sequence[Word]) -> list[str] | None:
    if "*" in spec.flags:
        return []
    operands: list[Word] = []
    has_needle, waiting = spec.operands != "needle", list(reversed(arguments))
    while waiting:
        word = waiting.pop()
        if word.text == "--":
            operands += reversed(waiting)
            break
        if (word.glob == 0 and name not in _TAKES_ANY) or (word.glob is not None and word.text.startswith("-")):
            return None  # a file's name could be an option
        if not word.text.startswith("-") or word.text == "-":
            operands.append(word)
            continue
        value_follows = _read_option(spec, word.text)
        if value_follows is None or (value_follows and (not waiting or waiting.pop().glob is not None)):
            return None
        named = word.text.startswith(("--regexp", "--files")) or (word.text[1] != "-" and "e" in word.text)
        has_needle = has_needle or named
    if not has_needle:
        if operands and operands[0].glob is not None:
            return None  # all but the first of its names would be files
        operands = operands[1:]
    if spec.operands == "nothing" and operands:
        return None  # they would be written
    if name == "uniq" and (len(operands) > 1 or any(word.glob is not None for word in operands)):
        return None  # the second one would be written
    if name == "strings" and any(word.text.startswith("@") for word in operands):
        return None  # a file of options
    if name == "date" and not all(word.text.startswith("+") for word in operands):
        return None  # the time to set
    if name == "jq" and any(re.search(r"\b(?:import|include|modulemeta)\b", word.text, re.ASCII) for word in arguments):
        return None  # the program reads other files
    if spec.operands in ("texts", "nothing"):
        return []
    if name.startswith("git "):
        return _find_paths_of_git(operands)
    return [path for word in operands if (path := _path_of(word))]


def _read_option(spec: Spec, text: str) -> bool | None:
    """Return whether the next word is the option's value; None for an unknown option."""
    if text.startswith("--"):
        name, given, _ = text.partition("=")
        if name in spec.options:
            return not given
        return False if name in spec.flags else None
    if "#" in spec.flags and re.fullmatch(r"-[0-9]+", text) is not None:
        return False
    for place, letter in enumerate(text[1:], 2):
        if letter in spec.options:
            return place == len(text)
        if letter not in spec.flags or letter in "#*":
            return None
    return False


def _path_of(word: Word) -> str:
    """Return the path of an argument; of a pattern, the folder before it."""
    if word.glob is not None:
        return word.text[: word.glob].rpartition("/")[0] or ("/" if word.text.startswith("/") else ".")
    return "" if word.text == "-" else word.text


def _find_paths_of_git(operands: Sequence[Word]) -> list[str] | None:
    """Return the paths in arguments such as `HEAD:a/b`; a file's name may have a colon, too."""
    paths = []
    for word in operands:
        pieces = _path_of(word).split(":")
        if len(pieces) > _MOST_COLONS or re.match(r":[^\w.]", word.text):
            return None  # `:(glob)a` and its like name other files
        paths += [path for at in range(len(pieces)) if (path := ":".join(pieces[at:]))]
    return paths


def _read_find(arguments: Sequence[Word]) -> list[str] | None:
    paths, waiting = [], list(reversed(arguments))
    known, with_value = frozenset(_FIND.split()), frozenset(_FIND_WITH_VALUE.split())
    while waiting:
        word = waiting.pop()
        if word.text in with_value:
            if not waiting or waiting.pop().glob is not None:
                return None
        elif word.text not in known:
            if word.text.startswith("-") or word.glob == 0:
                return None
            paths.append(_path_of(word))
    return paths


def _read_sed(arguments: Sequence[Word]) -> list[str] | None:
    """Return the files of `sed` with a script of line numbers, patterns, `p`, `d`, `q`, `=` and plain `s/a/b/`."""
    rest = list(arguments)
    while rest and rest[0].text in ("-n", "-E", "-r", "-s", "-z", "--quiet", "--silent", "--regexp-extended"):
        del rest[0]
    if not rest or any(word.text.startswith("-") or word.glob == 0 for word in rest):
        return None
    script, *files = rest
    if script.glob is not None or not re.fullmatch(f"{_SED.pattern}(?:;{_SED.pattern})*", script.text):
        return None
    return [_path_of(word) for word in files]


def _read_test(arguments: Sequence[Word]) -> list[str] | None:
    texts = [word.text for word in arguments if word.glob is None]
    if len(texts) != len(arguments) or len(texts) != 2 or texts[0] not in _TESTS:
        return None
    return [] if texts[0] in ("-z", "-n") else [texts[1]]


def _read_bracket(arguments: Sequence[Word]) -> list[str] | None:
    return _read_test(arguments[:-1]) if arguments and arguments[-1].text == "]" else None


def _read_printf(arguments: Sequence[Word]) -> list[str] | None:
    """Return no file for a format that only prints: `%n` and `-v` would set a variable, and evaluate its name."""
    if not arguments or arguments[0].text.startswith("-") or any(word.glob is not None for word in arguments):
        return None
    return [] if _FORMAT.fullmatch(arguments[0].text) is not None else None


def _read_env(arguments: Sequence[Word]) -> list[str] | None:
    return None if arguments else []


_OWN_GRAMMARS: dict[str, Callable[[Sequence[Word]], list[str] | None]] = {
    "find": _read_find,
    "sed": _read_sed,
    "test": _read_test,
    "[": _read_bracket,
    "printf": _read_printf,
    "env": _read_env,
}
