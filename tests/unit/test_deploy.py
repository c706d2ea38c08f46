"""What is deployed: files that parse, a configuration that is accepted, and parts that name each other rightly."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from applier.config import settings as config
from tests.promtool import NEEDS_PROMTOOL, PROMTOOL

_ROOT = Path(__file__).parents[2]
_DEPLOY = _ROOT / "deploy"


@pytest.fixture
def manifest() -> dict[tuple[str, str], dict[str, Any]]:
    """The Kubernetes objects by kind and name."""
    text = (_DEPLOY / "kubernetes" / "applier.yaml").read_text(encoding="utf-8")
    return {(item["kind"], item["metadata"]["name"]): item for item in yaml.safe_load_all(text)}


def test_the_example_configuration_is_accepted() -> None:
    """Every key of the example exists and has a fitting value."""
    loaded = config.load(_DEPLOY / "applier.example.toml")

    assert loaded.changefeed.name == "shop"


def test_the_commented_keys_of_the_example_are_accepted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a user uncomments works; only alternatives to an active key stay out."""
    for name in ("KAFKA_JAAS", "REGISTRY_PASSWORD", "APPLIER_HTTP_TOKEN"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("APPLIER_WEBHOOK_URL", "https://hooks.example.org/secret")
    text = (_DEPLOY / "applier.example.toml").read_text(encoding="utf-8")
    without_alternatives = re.sub(r"# A catalog without any server(.|\n)*?\n\n", "\n", text)
    uncommented = re.sub(r'^# (?=\[|"?[a-z_.]+"? = )', "", without_alternatives, flags=re.MULTILINE)

    loaded = config.parse(tomllib.loads(uncommented))

    assert loaded.changefeed.partitions == 3
    assert loaded.registry is not None


def test_the_configuration_of_the_manifest_is_accepted(
    manifest: dict[tuple[str, str], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ConfigMap loads with the variables that the Deployment and its Secret give."""
    for name in (
        "POD_IP",
        "POD_NAME",
        "POD_NAMESPACE",
        "S3_ACCESS_KEY_ID",
        "S3_SECRET_ACCESS_KEY",
        "APPLIER_HTTP_TOKEN",
    ):
        monkeypatch.setenv(name, "given")

    loaded = config.parse(tomllib.loads(manifest["ConfigMap", "applier-shop"]["data"]["applier.toml"]))

    assert loaded.spark["spark.kubernetes.driver.pod.name"] == "given"


def test_the_deployment_never_runs_two_appliers(manifest: dict[tuple[str, str], dict[str, Any]]) -> None:
    """One replica, and the old pod is gone before the new one starts."""
    spec = manifest["Deployment", "applier-shop"]["spec"]

    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_the_parts_of_the_manifest_name_each_other(manifest: dict[tuple[str, str], dict[str, Any]]) -> None:
    """Service accounts, config map, labels and image are the same wherever they are named."""
    deployment = manifest["Deployment", "applier-shop"]["spec"]
    pod = deployment["template"]["spec"]
    (container,) = pod["containers"]
    config = tomllib.loads(manifest["ConfigMap", "applier-shop"]["data"]["applier.toml"])
    settings, http = config["spark"], str(config["http"]["port"])

    assert deployment["selector"]["matchLabels"] == deployment["template"]["metadata"]["labels"]
    assert ("ServiceAccount", pod["serviceAccountName"]) in manifest
    assert ("ServiceAccount", settings["spark.kubernetes.authenticate.executor.serviceAccountName"]) in manifest
    assert ("ConfigMap", pod["volumes"][0]["configMap"]["name"]) in manifest
    assert settings["spark.kubernetes.container.image"] == container["image"]
    ports = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
    spark = {"driver": settings["spark.driver.port"], "blocks": settings["spark.blockManager.port"]}
    assert ports == spark | {"http": http}
    assert deployment["template"]["metadata"]["annotations"]["prometheus.io/port"] == http


def test_only_executors_of_the_changefeed_reach_the_driver(manifest: dict[tuple[str, str], dict[str, Any]]) -> None:
    """The policies select the pods by labels that they have; of the driver, strangers reach the page alone."""
    template = manifest["Deployment", "applier-shop"]["spec"]["template"]
    spark = tomllib.loads(manifest["ConfigMap", "applier-shop"]["data"]["applier.toml"])["spark"]
    prefix = "spark.kubernetes.executor.label."
    # Spark itself gives its executors the role.
    executor = {key.removeprefix(prefix): value for key, value in spark.items() if key.startswith(prefix)}
    executor["spark-role"] = "executor"
    driver = manifest["NetworkPolicy", "applier-shop"]["spec"]
    executors = manifest["NetworkPolicy", "applier-shop-executors"]["spec"]
    inside, outside = driver["ingress"]

    assert driver["podSelector"]["matchLabels"] == template["metadata"]["labels"]
    assert executors["podSelector"]["matchLabels"] == executor
    assert [peer["podSelector"]["matchLabels"] for peer in inside["from"]] == [executor]
    assert [port["port"] for port in inside["ports"]] == ["driver", "blocks"]
    assert outside == {"ports": [{"protocol": "TCP", "port": "http"}]}
    peers = [peer["podSelector"]["matchLabels"] for rule in executors["ingress"] for peer in rule["from"]]
    assert peers == [executor, template["metadata"]["labels"]]


def test_the_image_is_tagged_with_the_version(manifest: dict[tuple[str, str], dict[str, Any]]) -> None:
    """The manifest deploys the version that pyproject.toml names."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (container,) = manifest["Deployment", "applier-shop"]["spec"]["template"]["spec"]["containers"]

    assert container["image"] == f"applier:{project['version']}"


def test_the_image_copies_files_that_exist() -> None:
    """Every COPY from the project names a file of it, and the ignore file lets it through."""
    dockerfile = (_DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    copied = [
        name for line in re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE) for name in line.split()
    ]
    admitted = (_DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()

    assert copied
    for name in copied:
        assert (_ROOT / name).exists(), name
        assert f"!{name}" in admitted or f"!{name}/**" in admitted, name


def test_the_image_has_the_versions_that_were_tested() -> None:
    """Packages of the image are those of requirements.lock without the tools, beside what the extras bring."""
    tested = _pins(_ROOT / "requirements.lock")
    image = _pins(_DEPLOY / "requirements.lock")

    assert {name: version for name, version in image.items() if name in tested}.items() <= tested.items()
    assert len(image.keys() & tested.keys()) > 30
    assert not {"pytest", "mypy", "ruff", "moto"} & image.keys()


def test_the_image_reads_every_storage_and_catalog() -> None:
    """Each extra of pyproject.toml is in its lock."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    image = _pins(_DEPLOY / "requirements.lock")

    assert {
        "s3fs",
        "gcsfs",
        "adlfs",
        "psycopg2-binary",
        "pymysql",
        "boto3",
        "thrift",
        "opentelemetry-sdk",
    } <= image.keys()
    assert set(project["optional-dependencies"]) == {"s3", "gcs", "azure", "postgres", "mysql", "glue", "hive", "otel"}


def test_locks_name_no_host() -> None:
    """Where packages come from is for each machine to say."""
    for lock in (_ROOT / "requirements.lock", _DEPLOY / "requirements.lock"):
        assert not re.search(r"https?://|--index-url|--find-links", lock.read_text(encoding="utf-8"))


def _pins(lock: Path) -> dict[str, str]:
    """Package and marker -> version."""
    rows = re.findall(r"^([\w.-]+)==(\S+)(.*?) ?\\$", lock.read_text(encoding="utf-8"), re.MULTILINE)
    return {name + marker: version for name, version, marker in rows}


@NEEDS_PROMTOOL
def test_what_the_readme_gives_to_prometheus_is_accepted(tmp_path: Path, manifest: dict[Any, Any]) -> None:
    """The scrape job is one of Prometheus, and the monitor finds the pods, their port and their token."""
    text = (_DEPLOY / "README.md").read_text(encoding="utf-8")
    scrape, monitor = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    found = yaml.safe_load(monitor)["spec"]
    deployment = manifest["Deployment", "applier-shop"]["spec"]["template"]
    container = deployment["spec"]["containers"][0]

    assert found["selector"]["matchLabels"].items() <= deployment["metadata"]["labels"].items()
    endpoint = found["podMetricsEndpoints"][0]
    assert endpoint["port"] in {port["name"] for port in container["ports"]}
    secret = endpoint["authorization"]["credentials"]
    assert secret["name"] in {source["secretRef"]["name"] for source in container["envFrom"]}
    assert f"secret generic {secret['name']} --from-literal={secret['key']}=" in text
    file = tmp_path / "prometheus.yml"
    file.write_text(scrape.replace("applier.rules.yml", str(_DEPLOY / "prometheus/applier.rules.yml")), "utf-8")
    done = subprocess.run(
        [str(PROMTOOL), "check", "config", "--syntax-only", str(file)], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()


def test_the_rules_become_an_object_of_the_operator() -> None:
    """With the command that the README shows, as far as `kubectl` is not needed."""
    text = (_DEPLOY / "README.md").read_text(encoding="utf-8")
    command = next(line.strip() for line in text.splitlines() if "kind: PrometheusRule" in line)
    made = subprocess.run(
        ["/bin/bash", "-c", command.partition(" | kubectl")[0]], cwd=_ROOT, capture_output=True, check=True
    )

    rules = yaml.safe_load(made.stdout)["spec"]["groups"][0]["rules"]
    assert rules == yaml.safe_load((_DEPLOY / "prometheus/applier.rules.yml").read_text("utf-8"))["groups"][0]["rules"]


@pytest.mark.parametrize(
    ("heading", "said"),
    [
        ("Roll back", ["Keep the configuration of the old release", "exits with 2"]),
        (
            "Exit codes",
            ["| 1 | `check` | something does not fit, or a system refuses a log-in", "a password or a right"],
        ),
    ],
)
def test_the_page_says_what_a_refusal_ends_with(heading: str, said: list[str]) -> None:
    """A configuration with newer keys is refused before any format is looked at, and a wrong password is no outage."""
    page = (_DEPLOY / "README.md").read_text(encoding="utf-8")
    section = page.partition(f"## {heading}\n")[2].partition("\n## ")[0]

    assert [text for text in said if text not in section] == []
