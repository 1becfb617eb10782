"""Make secrets of many forms, each in a line as a program writes it: the same ones at every run."""

from __future__ import annotations

import base64
import json
import string
from collections.abc import Callable, Iterator
from random import Random

WORD = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
EACH = 6
"""Secrets of each form."""


def draw(random: Random, length: int, alphabet: str = WORD) -> str:
    """Return a text with a letter and a digit: a random one of this length lacks them too seldom to matter."""
    return "a1" + "".join(random.choices(alphabet, k=length - 2))


def jwt(random: Random) -> str:
    head, body = ({"alg": "HS256", "typ": "JWT"}, {"sub": draw(random, 10), "iat": random.randrange(10**9)})
    parts = [base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in (head, body)]
    return ".".join([*parts, draw(random, 43)])


def upper(random: Random, length: int) -> str:
    return "".join(random.choices(string.ascii_uppercase + string.digits, k=length))


def password(random: Random) -> str:
    """Return a password as people choose them."""
    return (
        random.choice(["Tr0ub4dor", "hunter2", "c0rrect-horse", "Pa55w.rd"])
        + random.choice("!#%^*-_")
        + draw(random, 6)
    )


KEYS: dict[str, Callable[[Random], str]] = {
    "anthropic": lambda r: f"sk-ant-api03-{draw(r, 93)}AA",
    "openai": lambda r: f"sk-{draw(r, 48)}",
    "openai project": lambda r: f"sk-proj-{draw(r, 100, WORD + '_-')}",
    "github": lambda r: f"gh{r.choice('pousr')}_{draw(r, 36)}",
    "github fine": lambda r: f"github_pat_{draw(r, 22)}_{draw(r, 59)}",
    "gitlab": lambda r: f"glpat-{draw(r, 20, WORD + '_-')}",
    "slack": lambda r: f"xox{r.choice('bp')}-{r.randrange(10**11)}-{r.randrange(10**12)}-{draw(r, 24)}",
    "slack app": lambda r: f"xapp-1-A{upper(r, 10)}-{r.randrange(10**12)}-{draw(r, 40, HEX)}",
    "aws": lambda r: f"AKIA{upper(r, 16)}",
    "google": lambda r: f"AIza{draw(r, 35, WORD + '_-')}",
    "google oauth": lambda r: f"ya29.{draw(r, 60, WORD + '_-')}",
    "stripe": lambda r: f"{r.choice('sr')}k_live_{draw(r, 24)}",
    "stripe hook": lambda r: f"whsec_{draw(r, 32)}",
    "npm": lambda r: f"npm_{draw(r, 36)}",
    "pypi": lambda r: f"pypi-AgEIcHlwaS5vcmc{draw(r, 120, WORD + '_-')}",
    "hugging face": lambda r: f"hf_{draw(r, 34)}",
    "sendgrid": lambda r: f"SG.{draw(r, 22, WORD + '_-')}.{draw(r, 43, WORD + '_-')}",
    "twilio": lambda r: f"SK{draw(r, 32, HEX)}",
    "telegram": lambda r: f"{r.randrange(10**8, 10**10)}:AA{draw(r, 33, WORD + '_-')}",
    "discord": lambda r: f"M{draw(r, 23)}.G{draw(r, 5)}.{draw(r, 38, WORD + '_-')}",
    "digitalocean": lambda r: f"dop_v1_{draw(r, 64, HEX)}",
    "jwt": jwt,
    "groq": lambda r: f"gsk_{draw(r, 52)}",
    "vault": lambda r: f"hvs.{draw(r, 90, WORD + '_-')}",
    "nvidia": lambda r: f"nvapi-{draw(r, 64, WORD + '_-')}",
    "cerebras": lambda r: f"csk-{draw(r, 48)}",
    "fireworks": lambda r: f"fw_{draw(r, 24)}",
    "figma": lambda r: f"figd_{draw(r, 40, WORD + '_-')}",
    "sentry": lambda r: f"sntrys_{draw(r, 60)}",
    "doppler": lambda r: f"dp.{r.choice(['pt', 'st.dev'])}.{draw(r, 43)}",
    "hash of crypt": lambda r: f"$6${draw(r, 16)}${draw(r, 86)}",
    "hash of apache": lambda r: f"$apr1${draw(r, 8)}${draw(r, 22)}",
    "hash of bcrypt": lambda r: f"$2b$12${draw(r, 53)}",
    "hash of argon": lambda r: f"$argon2id$v=19$m=65536,t=3,p=4${draw(r, 22)}${draw(r, 43)}",
}
IN_CONTEXT: dict[str, tuple[Callable[[Random], str], str]] = {
    "aws secret": (lambda r: draw(r, 40, WORD + "/+"), "aws_secret_access_key = {}"),
    "aws pair": (lambda r: draw(r, 40), "AKIAIOSFODNN7EXAMPLE:{} was refused"),
    "azure": (lambda r: draw(r, 86, WORD + "/+") + "==", "AccountName=store;AccountKey={};EndpointSuffix=core"),
    "azure signature": (lambda r: draw(r, 43) + "%3D", "GET https://s.blob.core.windows.net/c?sv=2022&sig={}"),
    "slack hook": (lambda r: draw(r, 24), "POST https://hooks.slack.com/services/T0AB12CD3/B0EF45GH6/{} failed"),
    "discord hook": (lambda r: draw(r, 68), "POST https://discord.com/api/webhooks/123456789012345678/{}"),
    "url": (password, "cannot connect to postgres://app:{}@db.example.org:5432/app"),
    "url without user": (lambda r: draw(r, 20), "redis://:{}@localhost:6379/0 refused the connection"),
    "git": (lambda r: draw(r, 30), "fatal: git+https://oauth2:{}@git.example.org/x.git not found"),
    "dsn of go": (password, "dial root:{}@tcp(127.0.0.1:3306)/app"),
    "dsn": (lambda r: draw(r, 16), "Server=db;User Id=sa;Password={};Encrypt=true"),
    "bearer": (lambda r: draw(r, 40), "> Authorization: Bearer {}"),
    "basic": (lambda r: base64.b64encode(f"u:{draw(r, 20)}".encode()).decode(), "authorization: Basic {}"),
    "query": (lambda r: draw(r, 32), "GET /v1/models?api_key={}&page=2 401"),
    "access token": (lambda r: draw(r, 32), "https://api.example.org/me?access_token={}"),
    "header": (lambda r: draw(r, 32), "X-Api-Key: {}"),
    "yaml": (password, "  password: {}"),
    "ini": (lambda r: draw(r, 24), "client_secret = {}"),
    "variable": (lambda r: draw(r, 24), "export SERVICE_TOKEN={}"),
    "json": (lambda r: draw(r, 24), 'sent {{"model": "m", "api_key": "{}", "n": 1}}'),
    "json in json": (lambda r: draw(r, 24), 'body: {{\\"token\\": \\"{}\\"}}'),
    "dict": (password, "config was {{'user': 'me', 'password': '{}'}}"),
    "keyword": (lambda r: draw(r, 24), 'Client(base_url="x", api_key="{}")'),
    "option": (lambda r: draw(r, 20), "$ deploy --token {} --dry-run"),
    "xml": (password, "<user>me</user><password>{}</password>"),
    "netrc": (password, "machine example.org login me password {}"),
    "netrc of lines": (password, "machine example.org\nlogin me\npassword {}"),
    "cookie": (lambda r: draw(r, 32), "Cookie: lang=en; session={}"),
    "cookie that is set": (lambda r: draw(r, 32), "set-cookie: sid={}; HttpOnly"),
    "curl": (password, "curl -su 'me:{}' https://example.org"),
    "curl, joined options": (password, "curl -fsSLu 'me:{}' https://example.org"),
    "mysql of a database": (password, "mysql shop -p{}"),
    "curl of lines": (password, 'curl -X POST "https://x.example?a=1&b=2" \\\n  -u me:{} -d "a b"'),
    "curl in quotes": (password, 'curl -u me:"{}" https://x.example'),
    "mysql": (password, "mysqldump -uroot -p{} app"),
    "mariadb": (password, "mariadb-dump -h db -u me -p'{}' app"),
    "sshpass": (password, "sshpass -p {} ssh me@example.org"),
    "ado": (password, "Server=db;Uid=me;Pwd={};Encrypt=true"),
    "variable of a password": (password, "SMTP_PASS={}"),
    "docker": (
        lambda r: base64.b64encode(f"u:{draw(r, 20)}".encode()).decode(),
        '{{"auths": {{"x": {{"auth": "{}"}}}}}}',
    ),
    "arguments": (lambda r: draw(r, 20), 'runs ["prog", "--api-key", "{}"]'),
}


def pem(random: Random) -> tuple[str, str]:
    """Return a private key, and one of its lines."""
    kind = random.choice(["RSA ", "EC ", "", "OPENSSH "])
    lines = [draw(random, 64, WORD + "/+") for _ in range(random.randrange(4, 20))]
    return "\n".join([f"-----BEGIN {kind}PRIVATE KEY-----", *lines, f"-----END {kind}PRIVATE KEY-----"]), lines[-1]


def make_shapes() -> Iterator[tuple[str, str, str]]:
    """Yield (form, text with the secret, secret) of hundreds of secrets."""
    random = Random(20)
    for _ in range(EACH):
        for name, make in KEYS.items():
            key = make(random)
            yield (
                name,
                random.choice(["401: the key {} is invalid", "{}", "refused ({}), see the log"]).format(key),
                key,
            )
        for name, (make, text) in IN_CONTEXT.items():
            secret = make(random)
            yield name, text.format(secret), secret
        text, line = pem(random)
        yield "pem", f"cannot use {text} here", line
