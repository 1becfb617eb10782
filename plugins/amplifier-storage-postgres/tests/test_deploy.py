"""The files of `deploy/` fit the program, their schemas and each other."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from importlib import import_module
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import click
import pytest
import yaml

from amplifier_core import load_plugins
from amplifier_foundation.cli import cli
from amplifier_foundation.paths import data_home
from amplifier_foundation.settings import read_settings
from amplifier_storage_postgres.settings import read_settings as read_dsn
from tests.programs import miss

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

DEPLOY = Path(__file__).parents[1] / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
SCRIPTS = {"entrypoint", "ready", "drain"}
COMPOSE_TEXT = (DEPLOY / "compose.yaml").read_text(encoding="utf-8").replace("${PROJECT:-./project}", "./project")
"""The file as compose reads it, where the variable is not set."""
COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_TEXT)
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
README = (DEPLOY / "README.md").read_text(encoding="utf-8")
OBJECTS: list[dict[str, Any]] = [
    each
    for path in sorted(KUBERNETES.glob("*.yaml"))
    if path.name != "kustomization.yaml"
    for each in yaml.safe_load_all(path.read_text(encoding="utf-8"))
]
WORKLOADS = [each for each in OBJECTS if each["kind"] in ("Deployment", "StatefulSet")]
SERVICES = {name: each for name, each in COMPOSE["services"].items() if each["image"] == "amplifier"}
BUNDLE = """---
bundle: {name: quiet}
providers: [{module: provider-playbook}]
background_sessions: [{name: listener, triggers: []}]
---
"""


def require_package(name: str) -> Any:
    """Return a package with a schema. Skips the test where it is missing, and fails it there where `CI` is set."""
    try:
        return import_module(name)
    except ImportError:
        miss(f"{name} is missing: pip install 'amplifier[schemas]'")


def parse(command: list[str]) -> None:
    """Parse a command as the command line does, without running it. Raises `click.UsageError`."""
    group: click.Command = cli
    context = group.make_context("amplifier", list(command))
    while isinstance(group, click.Group):
        name, found, rest = group.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        group, context = found, found.make_context(name, rest, parent=context)


def pod_of(workload: dict[str, Any]) -> dict[str, Any]:
    pod: dict[str, Any] = workload["spec"]["template"]["spec"]
    return pod


def container_of(workload: dict[str, Any]) -> dict[str, Any]:
    [container] = pod_of(workload)["containers"]
    found: dict[str, Any] = container
    return found


def commands() -> Iterator[list[str]]:
    """Yield every command of amplifier in these files."""
    yield from (each["command"] for each in SERVICES.values())
    yield from (container_of(each)["args"] for each in WORKLOADS)
    yield from (yaml.safe_load(each) for each in re.findall(r"^CMD (.*)$", DOCKERFILE, re.MULTILINE))
    texts = [README, *((DEPLOY / name).read_text(encoding="utf-8") for name in SCRIPTS)]
    for line in chain.from_iterable(text.splitlines() for text in texts):
        if found := re.search(r"(?:^|exec up |-- )entrypoint ([^|]+)", line):
            yield [word.replace("$1", "600") for word in shlex.split(found[1])]


def environments() -> Iterator[dict[str, str]]:
    """Yield the variables of every container."""
    yield from (each["environment"] for each in SERVICES.values())
    for each in WORKLOADS:
        yield {entry["name"]: entry["value"] for entry in container_of(each)["env"]}


def select(labels: dict[str, str], selector: dict[str, Any]) -> bool:
    wanted: dict[str, str] = selector["matchLabels"]
    return wanted.items() <= labels.items()


def test_every_command_is_one_of_the_program() -> None:
    found = list(commands())
    assert {each[0] for each in found} == {"up", "worker", "host"}
    assert {each[1] for each in found if each[0] == "host"} == {"list", "drain"}
    for each in found:
        parse(each)
    with pytest.raises(click.UsageError):
        parse(["worker", "--trigger"])


def test_the_scripts_are_in_the_image_and_name_no_other() -> None:
    copied = re.search(r"^COPY --chmod=755 (.*) /usr/local/bin/$", DOCKERFILE, re.MULTILINE)
    assert copied is not None
    assert (
        set(copied[1].split())
        == SCRIPTS
        == {path.name for path in DEPLOY.iterdir() if os.access(path, os.X_OK)}
        - {path.name for path in DEPLOY.iterdir() if path.is_dir()}
    )
    assert 'ENTRYPOINT ["entrypoint"]' in DOCKERFILE
    probes = [each["healthcheck"]["test"][1] for each in SERVICES.values()]
    for workload in WORKLOADS:
        container = container_of(workload)
        probes.append(container["readinessProbe"]["exec"]["command"][0])
        probes.append(container["lifecycle"]["preStop"]["exec"]["command"][0])
    assert set(probes) == {"ready", "drain"}


def test_the_image_installs_packages_that_there_are() -> None:
    [installed] = re.findall(r"pip install --no-cache-dir --no-index --find-links /wheels (.*)", DOCKERFILE)
    root = Path(__file__).parents[3]
    for each in shlex.split(installed):
        name = each.partition("[")[0]
        assert name == "amplifier" or (root / "plugins" / name / "pyproject.toml").is_file()
    assert "constraints.txt" in DOCKERFILE and (root / "constraints.txt").is_file()


@pytest.mark.parametrize("environment", list(environments()), ids=lambda each: str(len(each)))
def test_the_variables_are_read_by_the_settings(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir("/")
    assert read_settings().get("storage") == "storage-postgres"
    assert "storage-postgres" in load_plugins().storages
    assert str(data_home()) == environment["AMPLIFIER_HOME"]
    known = {"AMPLIFIER_STORAGE", "AMPLIFIER_HOME", "AMPLIFIER_DSN_FILE", "ANTHROPIC_API_KEY_FILE"}
    assert set(environment) == known


def test_the_connection_string_of_compose_is_that_of_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    [dsn] = re.findall(r"postgresql://\S+?(?=\")", COMPOSE_TEXT.replace("$(cat secrets/postgres_password)", "word"))
    monkeypatch.setenv("AMPLIFIER_DSN", dsn)
    server = COMPOSE["services"]["postgres"]
    own = {word.partition("=")[0]: word.partition("=")[2].strip("'") for word in shlex.split(read_dsn({}).dsn)}
    assert (own["host"], own["port"], own["password"]) == ("postgres", "5432", "word")
    assert own["user"] == server["environment"]["POSTGRES_USER"]
    assert own["dbname"] == server["environment"]["POSTGRES_DB"]
    asked = dict(word.removeprefix("--").split("=") for word in server["healthcheck"]["test"][2:])
    assert {"username": own["user"], "dbname": own["dbname"], "port": own["port"]}.items() <= asked.items()


def test_compose_gives_each_secret_as_a_file_and_no_other_way() -> None:
    declared = COMPOSE["secrets"]
    for service in COMPOSE["services"].values():
        files = {value for name, value in service["environment"].items() if name.endswith("_FILE")}
        assert files == {f"/run/secrets/{name}" for name in service["secrets"]}
        assert set(service["secrets"]) <= set(declared)
    for name, secret in declared.items():
        assert secret == {"file": f"./secrets/{name}"}
        assert f"> secrets/{name}" in COMPOSE_TEXT


def test_what_is_written_has_a_place_and_the_rest_is_read_only() -> None:
    for service in SERVICES.values():
        places = [each.split(":")[1] for each in service["volumes"]]
        places += [each.partition(":")[0] for each in service["tmpfs"]]
        assert service["read_only"] and service["user"] == "10001:10001" and service["cap_drop"] == ["ALL"]
        check_places(places, service["environment"]["AMPLIFIER_HOME"])
    for workload in WORKLOADS:
        container, pod = container_of(workload), pod_of(workload)
        volumes = {each["name"] for each in pod["volumes"]}
        volumes |= {each["metadata"]["name"] for each in workload["spec"].get("volumeClaimTemplates", ())}
        assert {each["name"] for each in container["volumeMounts"]} == volumes
        check_places([each["mountPath"] for each in container["volumeMounts"]], "/var/lib/amplifier/home")
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        security = pod["securityContext"]
        assert (security["runAsNonRoot"], security["runAsUser"], security["fsGroup"]) == (True, 10001, 10001)
        assert security["fsGroupChangePolicy"] == "OnRootMismatch"
        assert container["resources"]["limits"].keys() == {"cpu", "memory"}
    assert "--uid 10001" in DOCKERFILE and "USER 10001:10001" in DOCKERFILE and "WORKDIR /srv/project" in DOCKERFILE


def check_places(places: list[str], home: str) -> None:
    above = {str(each) for each in PurePosixPath(home).parents}
    assert {"/srv/project", "/tmp"} <= set(places)
    assert above & set(places), "the data folder has no place"
    assert home not in places, "the data folder is made by the program, for its user alone"


def test_kubernetes_takes_its_secrets_by_reference() -> None:
    assert [each for each in OBJECTS if each["kind"] == "Secret"] == []
    [command] = [line for line in README.splitlines() if "create secret generic" in line]
    words = shlex.split(command)
    keys = {word.removeprefix("--from-file=") for word in words if word.startswith("--from-file=")}
    for workload in WORKLOADS:
        [secret] = [each["secret"] for each in pod_of(workload)["volumes"] if "secret" in each]
        assert secret["secretName"] in words
        [mount] = [each for each in container_of(workload)["volumeMounts"] if each["name"] == "secrets"]
        variables = {entry["name"]: entry["value"] for entry in container_of(workload)["env"]}
        files = {value for name, value in variables.items() if name.endswith("_FILE")}
        assert files == {f"{mount['mountPath']}/{key}" for key in keys}


def test_a_pod_is_drained_before_it_is_killed_and_longer_than_a_lease() -> None:
    for workload in WORKLOADS:
        seconds = int(container_of(workload)["lifecycle"]["preStop"]["exec"]["command"][1])
        most = pod_of(workload)["terminationGracePeriodSeconds"]
        assert read_settings().get("hosts.lease") < seconds < most - 10
    assert all(each["stop_grace_period"] == "30s" for each in SERVICES.values())


def test_budgets_networks_and_claims_are_those_of_the_pods() -> None:
    kinds = {each["kind"] for each in OBJECTS}
    assert {"Namespace", "Deployment", "StatefulSet", "PodDisruptionBudget", "NetworkPolicy"} <= kinds
    [policy] = [each for each in OBJECTS if each["kind"] == "NetworkPolicy"]
    budgets = [each for each in OBJECTS if each["kind"] == "PodDisruptionBudget"]
    claims = {each["metadata"]["name"] for each in OBJECTS if each["kind"] == "PersistentVolumeClaim"}
    for workload in WORKLOADS:
        labels = workload["spec"]["template"]["metadata"]["labels"]
        assert select(labels, workload["spec"]["selector"])
        assert select(labels, policy["spec"]["podSelector"])
        assert len([each for each in budgets if select(labels, each["spec"]["selector"])]) == 1
        used = {each["persistentVolumeClaim"]["claimName"] for each in pod_of(workload)["volumes"] if len(each) == 2
                and "persistentVolumeClaim" in each}  # fmt: skip
        assert used == claims
        assert pod_of(workload)["automountServiceAccountToken"] is False
    ports = {(port["protocol"], port["port"]) for rule in policy["spec"]["egress"] for port in rule["ports"]}
    assert ports == {("UDP", 53), ("TCP", 53), ("TCP", 5432), ("TCP", 443)}


def test_kustomize_names_every_file() -> None:
    names = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text(encoding="utf-8"))
    assert sorted([*names["resources"], "kustomization.yaml"]) == sorted(path.name for path in KUBERNETES.iterdir())
    assert {container_of(each)["image"] for each in WORKLOADS} == {each["name"] for each in names["images"]}
    [space] = [each["metadata"]["name"] for each in OBJECTS if each["kind"] == "Namespace"]
    assert names["namespace"] == space
    assert f"--namespace {space}" in README


@pytest.mark.parametrize("manifest", OBJECTS, ids=lambda each: f"{each['kind']}-{each['metadata']['name']}")
def test_a_manifest_follows_the_schema_of_kubernetes(manifest: dict[str, Any]) -> None:
    package = require_package("kubernetes_validate")
    package.validate(manifest, package.latest_version(), strict=True)


def test_compose_follows_its_schema() -> None:
    package = require_package("compose_spec")
    found = package.PyCompose.from_json(json.dumps(COMPOSE)).to_spec()
    assert found.services.keys() == {"postgres", "up", "worker"}
    with pytest.raises(ValueError, match="heathcheck"):
        package.PyCompose.from_json(json.dumps({"services": {"up": {"image": "amplifier", "heathcheck": {}}}}))


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of the image: its scripts, and this program."""
    for name in SCRIPTS:
        shutil.copy2(DEPLOY / name, tmp_path / name)
    (tmp_path / "amplifier").symlink_to(Path(sys.executable).with_name("amplifier"))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AMPLIFIER_STORAGE", "storage-postgres")
    return tmp_path


def test_secrets_come_from_files(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (image / "amplifier").unlink()
    (image / "amplifier").write_text("#!/bin/sh\nenv\n")
    (image / "amplifier").chmod(0o755)
    (image / "key").write_text("of a file\n")
    for name in ("ANTHROPIC_API_KEY", "AMPLIFIER_DSN", "SSL_CERT"):
        monkeypatch.setenv(f"{name}_FILE", str(image / "key"))
    told = subprocess.run(["entrypoint", "up"], capture_output=True, text=True, check=True).stdout.splitlines()
    assert {"ANTHROPIC_API_KEY=of a file", "AMPLIFIER_DSN=of a file", f"SSL_CERT_FILE={image / 'key'}"} <= set(told)
    assert [line for line in told if line.startswith(("ANTHROPIC_API_KEY_FILE", "AMPLIFIER_DSN_FILE"))] == []


def test_a_missing_secret_ends_the_container_with_its_name(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPLIFIER_DSN_FILE", "/run/secrets/none")
    done = subprocess.run(["entrypoint", "up"], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "/run/secrets/none" in done.stderr


def test_a_worker_is_ready_and_can_be_drained(image: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (image / "dsn").write_text(f"{database}\n")
    (image / "bundle.md").write_text(BUNDLE)
    monkeypatch.setenv("AMPLIFIER_DSN_FILE", str(image / "dsn"))
    monkeypatch.chdir(image)
    worker = subprocess.Popen(["entrypoint", "worker", "--trust", "bundle.md"], stdout=subprocess.DEVNULL)
    try:
        while subprocess.run(["ready"], capture_output=True, check=False).returncode != 0:
            assert worker.poll() is None
        subprocess.run(["drain", "60"], capture_output=True, check=True)
        assert worker.wait(60) == 0
        assert subprocess.run(["ready"], capture_output=True, check=False).returncode != 0
    finally:
        if worker.poll() is None:
            worker.send_signal(signal.SIGKILL)
            worker.wait()


def test_the_commands_of_the_projects_readme_work(image: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8").partition("\n## Many hosts\n")[2]
    commands = text.partition("\n```\n")[2].partition("\n```\n")[0]
    assert commands.count("\n") == 4
    commands = re.sub(r"(?<=AMPLIFIER_DSN=).*", shlex.quote(database), commands)
    commands = commands.replace("amplifier worker", "amplifier worker --once")
    monkeypatch.delenv("AMPLIFIER_STORAGE")
    (image / "project").mkdir()
    (image / "project" / "bundle.md").write_text(BUNDLE)
    script = f"amplifier trust --yes\n{commands}\namplifier stop --all"
    done = subprocess.run(
        ["bash", "-ec", script], cwd=image / "project", capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    host = (image / "home" / "host").read_text(encoding="ascii")
    assert re.search(rf"^{host} .*\bup\b.*\bpresent\b", done.stdout, re.MULTILINE), done.stdout
