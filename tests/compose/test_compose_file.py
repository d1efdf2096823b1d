"""compose.yaml follows the compose specification and describes the same cluster that up.py starts."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from callboard.runtime.nats_server import find_binary

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "compose"
FILE = COMPOSE / "compose.yaml"
DEFAULT = re.compile(r"\$\{\w+:-([^}]*)\}")


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    document = yaml.safe_load(FILE.read_text())
    found: dict[str, dict[str, Any]] = document["services"]
    return found


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What up.py would start, where a telemetry collector is installed."""
    folder = tmp_path_factory.mktemp("bin")
    collector = folder / "otelcol"
    collector.write_text("#!/bin/sh\n")
    collector.chmod(0o755)
    environment = os.environ | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, str(COMPOSE / "up.py"), "--plan", "--state", str(folder / "state")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    plan: list[dict[str, Any]] = json.loads(done.stdout)
    return plan


def replicas(service: dict[str, Any]) -> int:
    return int(service.get("deploy", {}).get("replicas", 1))


def check_schema(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_it_follows_the_compose_schema() -> None:
    done = check_schema(FILE)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("restart: unless-stopped", "restarts: unless-stopped"),
        ("condition: service_healthy", "condition: service_happy"),
        ("replicas: 3", "replicas: [3]"),
    ],
)
def test_the_schema_refuses_mistakes(tmp_path: Path, right: str, wrong: str) -> None:
    text = FILE.read_text()
    assert right in text
    path = tmp_path / "compose.yaml"
    path.write_text(text.replace(right, wrong))
    assert check_schema(path).returncode == 1


def test_the_cluster_has_the_stated_size(services: dict[str, dict[str, Any]]) -> None:
    sizes = {name: replicas(service) for name, service in services.items()}
    assert sizes == {
        "nats-1": 1,
        "nats-2": 1,
        "nats-3": 1,
        "otel-collector": 1,
        "coordinator": 2,
        "worker": 3,
        "gateway": 2,
    }


def test_the_plain_processes_are_the_same_cluster(
    services: dict[str, dict[str, Any]], processes: list[dict[str, Any]]
) -> None:
    expected = []
    for name, service in services.items():
        count = replicas(service)
        expected += [name] if count == 1 else [f"{name}-{index + 1}" for index in range(count)]
    assert sorted(process["name"] for process in processes) == sorted(expected)


@pytest.mark.parametrize("role", ["coordinator", "worker", "gateway"])
def test_the_roles_are_started_by_the_same_commands(
    role: str, services: dict[str, dict[str, Any]], processes: list[dict[str, Any]]
) -> None:
    words = [DEFAULT.sub(r"\1", word) for word in services[role]["command"]]
    plain = next(process["command"][1:] for process in processes if process["kind"] == role)
    assert plain == words


def test_the_roles_get_the_same_variables(services: dict[str, dict[str, Any]], processes: list[dict[str, Any]]) -> None:
    for process in processes:
        service = services.get(process["name"]) or services[process["kind"]]
        assert set(process["environment"]) - {"PYTHONPATH"} == set(service["environment"]) - {"PYTHONPATH"}


@pytest.mark.parametrize("name", ["nats-1", "nats-2", "nats-3"])
def test_the_server_accepts_its_configuration_in_both_forms(
    name: str, services: dict[str, dict[str, Any]], processes: list[dict[str, Any]]
) -> None:
    container = {key: DEFAULT.sub(r"\1", value) for key, value in services[name]["environment"].items()}
    plain = next(process["environment"] for process in processes if process["name"] == name)
    for variables in (container, plain):
        command = [str(find_binary()), "-t", "-c", str(COMPOSE / "nats" / "server.conf")]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr


def test_mounted_and_built_files_exist(services: dict[str, dict[str, Any]]) -> None:
    for service in services.values():
        mounted = [volume.split(":")[0] for volume in service.get("volumes", []) if volume.startswith(".")]
        assert all((COMPOSE / path).is_file() for path in mounted)
        build = service.get("build")
        assert build is None or (COMPOSE / build["context"] / build["dockerfile"]).is_file()


def test_what_is_copied_into_the_image_exists() -> None:
    lines = (COMPOSE / "Dockerfile.dockerignore").read_text().splitlines()
    named = [line.removeprefix("!") for line in lines if line.startswith("!")]
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_nothing_is_published_beyond_the_host(services: dict[str, dict[str, Any]]) -> None:
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_the_collector_is_configured_consistently() -> None:
    """Every pipeline names parts that are configured; there is no collector here to say so."""
    config = yaml.safe_load((COMPOSE / "otel" / "collector.yaml").read_text())
    for pipeline in config["service"]["pipelines"].values():
        for kind in ("receivers", "processors", "exporters"):
            assert set(pipeline[kind]) <= set(config[kind])
    assert set(config["service"]["extensions"]) <= set(config["extensions"])
