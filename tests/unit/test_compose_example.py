"""The compose file of the examples: what can be known of it without starting a container."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from pyiceberg.utils.config import Config as PyicebergConfig
from typer.main import get_command

from applier import cli
from applier.config import settings as config

_ROOT = Path(__file__).parents[2]
_FOLDER = _ROOT / "examples" / "compose"
_COMPOSE: dict[str, Any] = yaml.safe_load((_FOLDER / "compose.yaml").read_text(encoding="utf-8"))
_SERVICES: dict[str, dict[str, Any]] = _COMPOSE["services"]
_SCRIPTS = sorted(_FOLDER.glob("*.sh"))
_KEYS = {
    *("image", "build", "command", "entrypoint", "environment", "healthcheck", "volumes", "ports"),
    *("depends_on", "restart", "profiles", "ulimits", "stop_grace_period"),
}


def _text(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> config.Config:
    """The configuration of the service applier, in its environment."""
    for name, value in _SERVICES["applier"]["environment"].items():
        monkeypatch.setenv(name, value)
    return config.load(_FOLDER / "applier.toml")


@pytest.mark.parametrize("name", _SERVICES)
def test_a_service_is_whole(name: str) -> None:
    """Its keys are those of the compose specification, its image is pinned, and its values are text or numbers."""
    service = _SERVICES[name]

    assert service.keys() <= _KEYS
    assert re.search(r":(?!latest$)[\w.-]*\d[\w.-]*$", service["image"])
    assert all(isinstance(value, str | int) for value in service.get("environment", {}).values())
    for key in ("command", "entrypoint", "ports", "volumes"):
        assert all(isinstance(item, str) for item in service.get(key, [])), key


@pytest.mark.parametrize("name", _SERVICES)
def test_a_service_waits_for_what_will_be(name: str) -> None:
    """It waits for services that exist, for health where that is asked for, and for the end of what ends."""
    waits = _SERVICES[name].get("depends_on", {})

    for other, how in waits.items() if isinstance(waits, dict) else ((each, {}) for each in waits):
        awaited = _SERVICES[other]
        condition = how.get("condition", "service_started")
        assert ("healthcheck" in awaited) >= (condition == "service_healthy"), other
        # What is started again whenever it ends never completes.
        assert ("restart" not in awaited) == (condition == "service_completed_successfully"), other


def test_mounts_and_ports_exist_once() -> None:
    """Each mounted file is in the folder, each file is mounted, and each port is this machine's alone."""
    volumes = [mount.split(":") for service in _SERVICES.values() for mount in service.get("volumes", [])]
    ports = [port for service in _SERVICES.values() for port in service.get("ports", [])]

    assert {source.removeprefix("./") for source, _, _ in volumes} == {
        file.name for file in _FOLDER.iterdir() if file.name not in {"compose.yaml", "README.md"}
    }
    assert {mode for _, _, mode in volumes} == {"ro"}
    assert len(ports) == len(set(ports))
    assert all(port.startswith("127.0.0.1:") for port in ports)


@pytest.mark.parametrize("script", _SCRIPTS, ids=lambda script: script.name)
def test_a_script_is_one_of_its_service(script: Path) -> None:
    """Its shell reads it, a service starts it, and that service has each variable that it does not set itself."""
    subprocess.run(["/bin/sh", "-n", str(script)], check=True)
    (service,) = [each for each in _SERVICES.values() if script.name in str(each.get("entrypoint"))]
    text = script.read_text(encoding="utf-8")
    given = {*service.get("environment", {}), *re.findall(r"^(\w+)=", text, re.MULTILINE)}

    assert service["entrypoint"] == ["/bin/sh", f"/setup/{script.name}"]
    assert set(re.findall(r"\$(\w+)", text)) <= given
    mounted = {mount.split(":")[1] for mount in service["volumes"]}
    assert set(re.findall(r"/setup/\S+", text)) | {f"/setup/{script.name}"} == mounted


def test_every_address_leads_to_a_service() -> None:
    """Hosts in commands, environments, scripts and the configuration are services."""
    texts = [str(_SERVICES), *(script.read_text(encoding="utf-8") for script in _SCRIPTS), _text("applier.toml")]
    hosts = {host for text in texts for host in re.findall(r"(?:[a-z]+://|=|1@|')([a-z]+):\d{4,5}\b", text)}

    assert {"kafka", "minio", "catalog", "pd", "ticdc"} <= hosts
    assert hosts <= {*_SERVICES, "localhost"}


def test_tidb_is_of_one_version() -> None:
    """Its four parts, and the one that creates the changefeed."""
    images = [service["image"] for service in _SERVICES.values() if service["image"].startswith("pingcap/")]

    assert len(images) == 5
    assert len({image.partition(":")[2] for image in images}) == 1


def test_the_sink_is_what_applier_reads(loaded: config.Config) -> None:
    """Broker, topic, protocol and partitions are the same for TiCDC, for the topic and for applier."""
    (address,) = re.findall(r"^sink='(.*)'$", _text("changefeed.sh"), re.MULTILINE)
    sink, topic = urlsplit(address), _text("topic.sh")
    options = {key: value for key, (value,) in parse_qs(sink.query, strict_parsing=True).items()}
    source = loaded.source.kafka
    assert source is not None

    assert (sink.scheme, sink.netloc) == ("kafka", source.options["kafka.bootstrap.servers"])
    assert _SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"] == f"PLAINTEXT://{sink.netloc}"
    assert [sink.path.removeprefix("/")] == list(source.topics)
    assert options["protocol"] == loaded.changefeed.protocol
    assert f"--topic {sink.path[1:]} --partitions {options['partition-num']} " in topic
    assert tomllib.loads(_text("changefeed.toml"))["filter"]["rules"] == ["shop.*"]


@pytest.mark.usefixtures("loaded")
def test_applier_and_pyiceberg_open_the_same_catalog() -> None:
    """Catalog and storage are those of the catalog's service, with the keys of MinIO."""
    mine = tomllib.loads(_text("applier.toml"))["catalog"]
    own, minio = _SERVICES["catalog"]["environment"], _SERVICES["minio"]["environment"]
    read = PyicebergConfig().get_catalog_config("lake") or {}
    given = _SERVICES["applier"]["environment"]
    keys = minio["MINIO_ROOT_USER"], minio["MINIO_ROOT_PASSWORD"]

    assert (mine["warehouse"], mine["io-impl"]) == (own["CATALOG_WAREHOUSE"], own["CATALOG_IO__IMPL"])
    assert f"mc mb --ignore-existing lake/{urlsplit(mine['warehouse']).netloc}\n" in _text("bucket.sh")
    assert [read["uri"], read["s3.endpoint"]] == [mine["uri"], mine["s3.endpoint"]]
    assert own["CATALOG_S3_ENDPOINT"] == mine["s3.endpoint"]
    assert (own["AWS_ACCESS_KEY_ID"], own["AWS_SECRET_ACCESS_KEY"]) == keys
    assert (given["S3_KEY"], given["S3_SECRET"]) == keys
    assert (read["s3.access-key-id"], read["s3.secret-access-key"]) == keys
    assert (read["s3.region"], own["AWS_REGION"]) == (mine["client.region"],) * 2


def test_the_image_runs_this_applier(loaded: config.Config) -> None:
    """It is built by deploy/Dockerfile as this version, runs a command that exists, and shows the page outside."""
    service = _SERVICES["applier"]
    build = {key: _FOLDER / value if key == "context" else value for key, value in service["build"].items()}
    version = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

    assert (build["context"] / build["dockerfile"]).resolve() == _ROOT / "deploy" / "Dockerfile"
    assert service["image"] == f"applier:{version}"
    _parse(service["command"])
    assert service["environment"]["APPLIER_CONFIG"] in {mount.split(":")[1] for mount in service["volumes"]}
    assert loaded.http is not None
    assert service["ports"] == [f"127.0.0.1:{loaded.http.port}:{loaded.http.port}"]
    assert int(service["stop_grace_period"].removesuffix("s")) > loaded.run.stop_seconds


@pytest.mark.usefixtures("loaded")
def test_the_commands_of_the_readme_can_be_pasted() -> None:
    """Each names a service, and what runs in applier is a command of it, or Python that compiles."""
    commands = [shlex.split(line) for line in re.findall(r"^    (docker .*)$", _text("README.md"), re.MULTILINE)]

    assert len(commands) > 5
    for _, compose, verb, *rest in commands:
        assert (compose, verb in {"up", "run", "exec", "logs", "down"}) == ("compose", True)
        if verb in {"up", "down"}:
            continue
        service, *inside = [word for word in rest if word != "--rm"]
        assert service in _SERVICES
        if inside[:1] == ["applier"]:
            _parse(inside[1:])
        if inside[:2] == ["python", "-c"]:
            compile(inside[2], "README.md", "exec")


def _parse(arguments: list[str]) -> None:
    """Raises what the command line would refuse."""
    group: Any = get_command(cli.app)
    name, *rest = arguments
    group.commands[name].make_context(name, rest)
