"""Describe the forms of secrets: keys of well-known services, passwords in addresses, and values of sensitive names.

A form is a pattern with a group that stays, beside marks in small letters: a text without any of them has no such
secret.
"""

from __future__ import annotations

import re

from . import NO_SECRET_OPTION

_ESCAPES = (r"\\[bfnrt]", r"\\x[0-9A-Fa-f]{2}", r"\\u[0-9A-Fa-f]{4}", "%[0-9A-Fa-f]{2}")
"""How JSON, Python and addresses write a character: what follows it begins a word."""
_COLOURS = (r"[\x1bbBe3]\[[A-Za-z]", *(rf"[\[;?]\d{{{digits}}}[A-Za-z]" for digits in (1, 2, 3)))
"""How the colours of a terminal end, raw or with the escape character written as JSON, Python and C do."""


def _begin(first: str, joints: str = "-") -> str:
    """Return the pattern `first`, of a fixed width, where it begins a word, also after an escape or a colour.

    `joints` are characters that join words.
    """
    if first[0] in "bfnrt":
        joints = rf"\\{joints}"  # the letter belongs to an escape
    escapes, colours = ("|".join(f"(?<={each}{first})" for each in ends) for ends in (_ESCAPES, _COLOURS))
    return rf"{first}(?:(?<![\w{joints}]{first})|{escapes}|(?<=[\d;[][A-Za-z]{first})(?:{colours}))"


_BLANK = r"(?:\s|\\{1,9}[nrt])"
_OPEN = rf"\\{{0,9}}(?:'|\"(?!{_BLANK}{{0,9}}[,:}}\]]))"
"""A quote before a value, and not the one that ends a JSON text."""
_NAME = (
    r"(?:(?:api|access|private|secret|account|auth|signing|encryption|master|service)[_-]?key|passw(?:or)?d|passphrase"
    r"|secret|token|credentials?|authorization|(?<=[_-])pwd)"
)
_PASSWORD = r"(?:passw(?:or)?d|passphrase|(?<=[_-])pwd)"
_LIKE_A_KEY = r"(?=[^\s\"'\\]{0,80}\d)(?=[^\s\"'\\]{0,80}[A-Za-z])"
_PASS = (  # COLOR_PASS=green is none
    "_PASS(?:"
    + "|".join(f"(?<={each}_PASS)" for each in ("DB", "SMTP", "MAIL", "FTP", "SQL", "REDIS", "LDAP", "ADMIN"))
    + rf"|(?==[\"']?{_LIKE_A_KEY}))"
    + r"(?!=(?i:true|false|on|off|yes|no|none|null|\d{1,40})(?![^\s,;\"'\\]))"
)
_NO_REFERENCE = r"(?!\$[\w{(]|secret://|[<{]|%[({\w]|\*\*\*|\.\.\.)"
_NO_NUMBER = r"(?!-?\d{1,40}(?:\.\d{1,40})?(?:[eE][+-]?\d{1,4})?(?:[\s,}\]]|$))"
_WORD = r"(?>[A-Z]{0,3}[a-z0-9]{1,7}(?![A-Za-z0-9])|[A-Z]{0,8}[a-z]{0,40}(?![A-Za-z0-9]))"
_JOINT = r"[./_=~+-]{1,3}"
_WORDS = (  # `rate-limiting`, `test_utils.py`, `x86_64-build`: less than five digits, and each part as people write it
    r"(?!(?:[^\d\s]{0,80}\d){5})"
    rf"(?>(?:{_JOINT})?{_WORD}(?:{_JOINT}{_WORD}){{0,14}}(?:{_JOINT})?)(?![\w.~+/=-])"
)
_TOKEN = r"(?=[\w.~+/-]{0,200}[\d=_-])[\w.~+/=-]{8,}"
NAME_MARKS = ("key", "passw", "passphrase", "secret", "token", "credential", "authorization", "pwd", "_pass=")
_AWS = r"[A-Z0-9]{16}(?![A-Za-z0-9])(?:(?:[\s:,;|=]|\\{1,9}[nrt]){1,9}[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+]))?"
_TELEGRAM = rf"{_begin('[0-9]{6}')}()\d{{0,6}}:AA[\w-]{{30,}}"
_SERVICES = {
    "sk-": r"(?=[\w-]{0,200}\d)[\w-]{16,}",  # OpenAI, Anthropic, and those who speak like them
    **dict.fromkeys(("sk_", "pk_", "rk_"), r"(?=\w{0,200}\d)\w{16,}"),  # Stripe
    "whsec_": r"[\w+/=-]{16,}",
    "gh": r"[pousr]_[A-Za-z0-9]{16,}",
    "github_pat_": r"\w{16,}",
    "gl": r"(?:pat|dt|rt|ptt|cbt|soat|ft|imt|agent|oas)-[\w.-]{16,}",
    "xox": r"[abeoprs](?:\.xox[abp])?-[\w-]{10,}",  # Slack
    "xapp-": r"[\w-]{16,}",
    "AKIA": _AWS,
    "ASIA": _AWS,
    "AIza": r"[\w-]{30,}",  # Google
    "ya29.": r"[\w-]{20,}",
    "GOCSPX-": r"[\w-]{20,}",
    "npm_": r"[A-Za-z0-9]{30,}",
    "pypi-": r"AgE[\w-]{16,}",
    "hf_": r"[A-Za-z0-9]{16,}",
    "SG.": r"[\w-]{16,}\.[\w-]{16,}",  # SendGrid
    "key-": r"[0-9a-f]{32}(?![0-9a-f])",  # Mailgun
    "SK": r"[0-9a-f]{32}(?![0-9a-f])",  # Twilio
    ":AA": _TELEGRAM,
    "do": r"[opr]_v1_[0-9a-f]{40,}",  # DigitalOcean
    "eyJ": r"[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*",  # JWT
    "gsk_": r"[A-Za-z0-9]{20,}",
    "xai-": r"[A-Za-z0-9]{20,}",
    "pplx-": r"[A-Za-z0-9]{20,}",
    "r8_": r"[A-Za-z0-9]{20,}",
    "dapi": r"[0-9a-f]{32}",  # Databricks
    "shp": r"(?:at|ss|ca|pa)_[0-9a-fA-F]{32}",  # Shopify
    "hvs.": r"[\w-]{20,}",  # Vault
    "glsa_": r"\w{20,}",  # Grafana
    "lin_api_": r"[A-Za-z0-9]{20,}",
    "ntn_": r"[A-Za-z0-9]{20,}",
    "AGE-SECRET-KEY-1": r"[A-Z0-9]{40,}",
    "nvapi-": r"[\w-]{40,}",  # NVIDIA
    "csk-": r"[A-Za-z0-9]{40,}",  # Cerebras
    "fw_": r"(?=[A-Za-z]{0,30}\d{1,30}[A-Za-z])[A-Za-z0-9]{22,}(?!\w)",  # Fireworks
    "figd_": r"[\w-]{30,}",  # Figma
    "sntry": r"[su]_[\w+/=-]{40,}",  # Sentry
    "dp.": r"(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,44}(?!\w)",  # Doppler
}
"""Keys of well-known services: how they begin, and the form of the rest; one begins with digits."""
_MARKS = {"gsk_": "sk_", "csk-": "sk-"}
"""Marks that others have as well: to look for one takes longer than most patterns take."""
_DISCORD = rf"{_begin('[MNO][0-9A-Za-z_-]{22}', '.-')}()[\w-]{{0,6}}\.[\w-]{{6}}\.[\w-]{{27,45}}(?![\w-])"
_PEM = (
    r"()-----BEGIN [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
    r"[\w+/=\s\\:,.()-]*?(?:-----END [A-Z ]{0,30}-----|(?=\\{0,9}(?![\w+/=\s\\:,.()-])))"
)
_KEY_IN_ADDRESS = rf"(https?://){_LIKE_A_KEY}[\w.~%-]{{20,}}+(?=@[\w.-])"
SIGNED_IN = r"(://)(?<=\w://)[^/?#\s@:\"'<>\\`]*:[^/\s\"'<>\\`]+(?=@)"
DATABASE = (  # where a password often has a '/' that nobody escaped; a number there is a port
    r"((?:postgres(?:ql)?|mysql|mariadb|mongodb(?:\+srv)?|rediss?|amqps?|nats)(?:\+\w{1,20})?://)"
    r"[^/?#\s@:\"'<>\\`]{0,100}:(?!\d{1,5}/)[^\s\"'<>\\`]{1,200}(?=@)"
)
KEYS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("private key",), (_PEM,)),
    *(  # characters come before the look behind them: `re` searches for a plain beginning the fastest
        ((_MARKS.get(begin, begin.lower()),), (rest if rest is _TELEGRAM else rf"(){_begin(re.escape(begin))}{rest}",))
        for begin, rest in _SERVICES.items()
    ),
    (("m", "n", "o"), (_DISCORD,)),
)
_THEN = r"\\{0,9}[\"'`]?\s{0,9}[=:]"  # so no two names overlap: one that is cut short by another is none
NAME_ENDS = rf"(?:key|passw(?:or)?d|passphrase|secret|token|credentials?|authorization|pwd){_THEN}"
"""The last word of a sensitive name, in small letters, with what stands before its value."""
NAME_BEGINS = rf"(?i:{_NAME}){_THEN}"
"""A sensitive name in any letters, with what stands before its value."""
LONGEST_PREFIX = len("encryption_")
"""Characters of the longest part of a sensitive name before its last word."""
AT_NAMES: tuple[tuple[bool, tuple[str, ...]], ...] = (
    (
        True,
        (
            rf"((?i:authorization)(?:\\{{0,9}}[\"'])?\s{{0,9}}[=:]\s{{0,9}}(?:{_OPEN})?(?:\w{{1,20}}[ \t]{{1,9}})?)"
            r"(?=[^\s\"'\\]{0,200}\d)[\w.~+/=:-]{8,}+(?![\w(\[.])",
        ),
    ),
    (
        False,
        (
            # NAME=value of a shell
            rf"((?:KEY|TOKEN|SECRET|PASSWD|PASSWORD|CREDENTIALS|PASSPHRASE|_PWD|{_PASS})=(?:{_OPEN})?){_NO_REFERENCE}[^\s\"'\\]{{3,}}",
        ),
    ),
    (
        True,
        (
            # "name": "value" of JSON; then also within texts of JSON, and of Python and YAML
            rf"((?<! )(?i:{_NAME})\"\s{{0,9}}:\s{{0,9}}\"){_NO_REFERENCE}(?:\\.|[^\"\\\n])+(?=\")",
            rf"((?:(?i:{_NAME})|(?<! )(?i:{_NAME})\\{{0,9}}[\"'])\s{{0,9}}:\s{{0,9}}{_OPEN}){_NO_REFERENCE}"
            r"(?:\\+[^\"'\\]|[^\"'\\\n])+(?=\\{0,9}[\"'])",
            # NAME="a value", also with blanks and escaped quotes: of passwords alone; other names are in code
            rf"((?i:{_PASSWORD})=(?=\"){_OPEN}){_NO_REFERENCE}(?:\\.|[^\"\\\n]){{8,}}(?=\")",
            rf"((?i:{_PASSWORD})={_OPEN}){_NO_REFERENCE}(?:\\+[^\"'\\]|[^\"'\\\n]){{8,}}(?=\\{{0,9}}[\"'])",
            # name: | of YAML, with the lines below
            rf"((?i:{_NAME})[\"']?:[ \t]{{1,9}}[|>][+-]?[ \t]{{0,9}}\n([ \t]{{1,40}}))(?=\S)[^\n]+(?:\n\2[^\n]+)*",
            rf"((?i:{_NAME}):[ \t]{{1,9}}[|>][+-]?[ \t]{{0,9}}((?<!\\)\\{{1,9}}n[ \t]{{1,40}}))"
            r"[^\s\"'\\][^\n\"'\\]*(?:\2[^\n\"'\\]+)*",
        ),
    ),
    (
        False,
        (
            # name: DB_PASSWORD, value: x, of YAML and JSON
            rf"((?i:{_begin('name', '')}[\"']?:[ \t]{{0,9}}[\"']?[\w.-]{{0,60}}{_NAME}[\"']?,?"
            rf"{_BLANK}{{1,40}}(?:value:[ \t]{{0,9}}(?:{_OPEN})?|[\"']value[\"']:[ \t]{{0,9}}[\"'])))"
            rf"{_NO_REFERENCE}[^\s\"'\\]{{4,}}",
        ),
    ),
    (
        True,
        (
            # "name" => "value" of Ruby and PHP
            rf"((?i:{_NAME})[\"'][ \t]{{0,9}}=>[ \t]{{0,9}}(?!\\){_OPEN}){_NO_REFERENCE}(?:\\.|[^\"'\\\n])+(?=[\"'])",
            # name = "value"
            rf"((?i:{_NAME})[ \t]{{0,9}}=[ \t]{{0,9}}{_OPEN}){_NO_REFERENCE}[^\s\"'\\]{{8,}}(?=\\{{0,9}}[\"'])",
            # name: value, name = value and name=value, without quotes
            rf"((?i:{_NAME})[\"'`]?[ \t]{{0,3}}(?:=>|:=|[=:])[ \t]{{0,9}}){_NO_REFERENCE}{_NO_NUMBER}{_LIKE_A_KEY}"
            r"[\w.~+/=!@#%^&*$-]{8,}+(?![\w(\[.])",
            rf"((?i:{_NAME})=){_NO_REFERENCE}[\w.~+/=-]{{8,}}+(?=[\s&;:\"'\\]|$)",
        ),
    ),
    (
        False,
        (
            # --name value of a command, also as a list of arguments
            rf"(--(?!{NO_SECRET_OPTION})[\w-]{{0,40}}(?i:{_NAME})"
            rf"(?:[ \t]{{1,3}}|\\{{0,9}}[\"'],{_BLANK}{{0,40}}\\{{0,9}}[\"']))"
            rf"{_NO_REFERENCE}(?=\S{{0,80}}\d)[^\s\"'\\-][^\s\"'\\]{{3,}}",
            rf"((?i:<[\w:-]{{0,40}}{_NAME}>)){_NO_REFERENCE}[^<\n\"\\]+(?=</)",
            rf"({_begin('login', '')}{_BLANK}{{1,9}}\S{{1,80}}{_BLANK}{{1,9}}password{_BLANK}{{1,9}})"
            r"[^\s\"'\\]+",  # .netrc
        ),
    ),
)
"""Patterns of the values of sensitive names, in their order, and whether each match of them begins with a name.

Such a match begins where `NAME_BEGINS` matches.
"""
_COOKIE = r"[\w.$-]{1,80}="
_TO_OPTION = (  # on the same line, or on the next one after a backslash; also as JSON, and not to another command
    r"[^\n|;&\\]{0,200}?(?:(?:&(?=\w)|\\{1,8}(?:[\n\"']|(?=[ \t]))|(?:\\{3}){1,4}n)[^\n|;&\\]{0,200}?){0,9}?[ \t]"
)
_USER = r"(?!\d{1,10}:\d{1,10}(?![^\s\"'\\]))[^\s:\"'\\]{1,80}:"  # no pair of ids, as of `docker run`
_OPTIONS = r"(?:[ \t]{1,9}-[\w=.@%+:/-]{1,80}(?:[ \t]{1,9}[\w.@%+:/][^\s|;&\"'\\]{0,80})?){0,8}?[ \t]{1,9}"
_PORTS = r"[\d.:,/-]{1,40}(?:tcp|udp)?(?![^\s\"'\\])"
_COMMANDS = (  # curl -u user:password, sshpass -p password, mysql -ppassword
    (
        ("curl",),
        rf"{_begin('curl', '')}(?<!--name curl){_TO_OPTION}(?:-[A-Za-z]{{0,5}}u|--user)[ =]?"
        rf"(?:{_OPEN})?{_USER}(?:{_OPEN})?",
        "",
    ),
    (("sshpass",), rf"{_begin('sshpass', '')}[ \t]{{1,9}}-p[ \t]{{0,9}}(?:{_OPEN})?", ""),
    *(
        (
            (name,),
            rf"{_begin(name, '')}(?:-?dump|-?admin)?(?:[ \t]{{1,9}}[\w-]{{1,64}})?{_OPTIONS}-p(?:{_OPEN})?",
            rf"(?!{_PORTS}|/)(?=\S{{0,80}}\d)",
        )
        for name in ("mysql", "mariadb")
    ),
)
OTHERS = (
    *((marks, (rf"({begin}){_NO_REFERENCE}{value}[^\s\"'\\]{{3,}}",)) for marks, begin, value in _COMMANDS),
    (
        ("cookie",),  # the whole of a header with a value that is like a key
        (
            rf"((?i:cookie)(?:\\{{0,9}}[\"'])?:[ \t]{{0,9}}(?:{_OPEN})?)"
            rf"(?=(?:{_COOKIE}[^\s;,\"'\\]{{0,200}};[ ]?){{0,20}}{_COOKIE}{_LIKE_A_KEY}[^\s;,\"'\\]{{16}})"
            rf"(?:{_COOKIE}[^\s;,\"'\\]*+(?:;[ ]?(?={_COOKIE}))?)++",
        ),
    ),
    (  # ADO.NET
        ("pwd=",),
        (rf"((?i:(?:uid|user(?: ?id)?)=[^;\n\"'\\]{{0,80}};[ ]?pwd=)){_NO_REFERENCE}(?![/~.`]|[A-Za-z]:)[^\s;\"'\\]+",),
    ),
    (  # the configuration of Docker
        ('"auth',),
        (
            r"(\"auth\\{0,9}\"\s{0,9}:\s{0,9}\\{0,9}\")(?=[A-Za-z0-9+/]{0,80}[\d=])"
            r"(?:[A-Za-z0-9+/]{4}){2,}+(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})(?=\\{0,9}\")",
        ),
    ),
    (  # hashes of passwords
        ("$",),
        (
            r"()\$(?:(?:1|apr1)\$[\w./]{1,8}\$[\w./]{22}|[56]\$(?:rounds=\d{1,9}\$)?[\w./]{1,16}\$[\w./]{43,86}"
            r"|y\$[\w./]{1,20}\$[\w./]{1,90}\$[\w./]{43}|2[aby]\$\d\d\$[\w./]{53}"
            r"|argon2(?:id?|d)\$v=\d{1,3}\$[mtp=,\d]{1,60}\$[\w+/]{8,90}\$[\w+/]{16,180})",
        ),
    ),
    (("://",), (SIGNED_IN, DATABASE, _KEY_IN_ADDRESS)),
    (("@tcp(", "@unix("), (r"(\b[\w.-]{1,60}:)[^\s@\"'\\]+(?=@(?:tcp|unix)\()",)),  # a DSN of Go's MySQL
    (
        ("/services/t", "/api/webhooks/"),
        (r"((?:/services/T\w+/B\w+/|/api/webhooks/\d+/))[\w-]{16,}",),
    ),  # Slack, Discord
    (
        ("?", "&"),
        (rf"((?i:[?&;](?:[\w-]{{0,60}}{_NAME}|key|sig|signature|code|auth)=)){_NO_REFERENCE}[^\s&#\"'\\<>]+",),
    ),
    (
        ("bearer", "basic"),
        (
            rf"((?i:{_begin('bearer', '')}|authorization\\{{0,9}}[\"']?\s{{0,9}}[=:]\s{{0,9}}\\{{0,9}}[\"']?basic)"
            rf"\s{{1,9}}){_TOKEN}",
            rf"((?i:{_begin('basic', '')})[ \t]{{1,9}})(?!{_WORDS}){_TOKEN}",  # a word of many texts
        ),
    ),
)
"""Forms of secrets: marks in small letters, and patterns with a group that stays.

Every repetition is bounded or cannot begin inside of itself, so the time grows with the length of the text alone. No
pattern takes in a quote that ends a JSON text, or a backslash without what it escapes, so JSON stays JSON.
"""
