"""The Helm chart: what it renders is valid, restricted, and names its parts rightly; what does not fit is refused."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml

from applier.config import settings
from tests.deploy_tools import CONFIG, tool

Objects: TypeAlias = Mapping[tuple[str, str], Mapping[str, Any]]

_ROOT = Path(__file__).parents[2]
_CHART = _ROOT / "deploy/helm/applier"
_KUBERNETES = "1.31"


def _helm(folder: Path, *arguments: str, config: str = CONFIG) -> subprocess.CompletedProcess[str]:
    file = folder / "applier.toml"
    file.write_text(config, encoding="utf-8")
    # A helm that was built from source does not know which Kubernetes it is for.
    given = ["--kube-version", _KUBERNETES, "--namespace", "lake", "--set-file", f"config={file}"]
    command = [tool("helm"), "template", "shop", str(_CHART), *given, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _rendered(folder: Path, instances: int) -> str:
    given = ("secret=keys", f"executors.instances={instances}", "podMonitor.enabled=true")
    done = _helm(folder, *(part for value in given for part in ("--set", value)))
    assert done.returncode == 0, done.stderr
    return done.stdout


def _objects(text: str) -> Objects:
    return {(item["kind"], item["metadata"]["name"]): item for item in yaml.safe_load_all(text)}


def _pods(objects: Objects) -> Iterator[Mapping[str, Any]]:
    """The pod of the driver, and the one that executors are made from."""
    yield objects["Deployment", "shop"]["spec"]["template"]["spec"]
    if (template := objects["ConfigMap", "shop"]["data"].get("executor.yaml")) is not None:
        yield yaml.safe_load(template)["spec"]


@pytest.fixture(params=[0, 2])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    """What the chart makes, without executors and with two."""
    return _objects(_rendered(tmp_path, request.param))


@pytest.mark.parametrize("instances", [0, 2])
def test_kubernetes_knows_every_field(instances: int, tmp_path: Path) -> None:
    """By its own schemas, with no field that it would drop; it has none of the operator's monitor."""
    file = tmp_path / "rendered.yaml"
    file.write_text(_rendered(tmp_path, instances), encoding="utf-8")

    command = [tool("kubernetes-validate"), "--strict", "--no-warn", "-k", _KUBERNETES, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed for resource deployment/shop" in done.stdout


def test_every_pod_fits_the_restricted_profile(objects: Objects) -> None:
    """What Pod Security Admission asks for, and a root file system that nothing writes."""
    for pod in _pods(objects):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        assert all(volume.keys() - {"name"} <= {"configMap", "emptyDir"} for volume in pod["volumes"])
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}  # noqa: S108 - of the pod


def test_the_configuration_is_accepted_with_the_variables_of_the_pod(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Deployment gives them, or the Secret; ports and accounts are those of the other objects."""
    container = objects["Deployment", "shop"]["spec"]["template"]["spec"]["containers"][0]
    for name in ("APPLIER_HTTP_TOKEN", *(item["name"] for item in container["env"])):
        monkeypatch.setenv(name, "given")

    loaded = settings.parse(tomllib.loads(objects["ConfigMap", "shop"]["data"]["applier.toml"]))

    ports = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
    assert ports.pop("http") == str(loaded.http.port)
    if not loaded.spark:
        assert ports == {}
        return
    assert ports == {"driver": loaded.spark["spark.driver.port"], "blocks": loaded.spark["spark.blockManager.port"]}
    assert loaded.spark["spark.kubernetes.container.image"] == container["image"]
    account = loaded.spark["spark.kubernetes.authenticate.executor.serviceAccountName"]
    assert ("ServiceAccount", account) in objects
    template = Path(loaded.spark["spark.kubernetes.executor.podTemplateFile"])
    assert template.name in objects["ConfigMap", "shop"]["data"]
    assert str(template.parent) in {mount["mountPath"] for mount in container["volumeMounts"]}


def test_policies_budget_and_monitor_select_the_pods(objects: Objects) -> None:
    """By labels that they have; strangers reach the page alone."""
    labels = objects["Deployment", "shop"]["spec"]["template"]["metadata"]["labels"]
    executor = {"spark-role": "executor", "app.kubernetes.io/instance": "shop"}
    policy = objects["NetworkPolicy", "shop"]["spec"]
    selectors = [
        objects["Deployment", "shop"]["spec"]["selector"],
        policy["podSelector"],
        objects["PodDisruptionBudget", "shop"]["spec"]["selector"],
        objects["PodMonitor", "shop"]["spec"]["selector"],
    ]

    assert all(selector["matchLabels"].items() <= labels.items() for selector in selectors)
    outside, *inside = policy["ingress"]
    assert outside == {"ports": [{"protocol": "TCP", "port": "http"}]}
    assert [rule["from"] for rule in inside] == [[{"podSelector": {"matchLabels": executor}}]] * len(inside)
    assert (("NetworkPolicy", "shop-executors") in objects) == bool(inside)
    credentials = objects["PodMonitor", "shop"]["spec"]["podMetricsEndpoints"][0]["authorization"]["credentials"]
    assert credentials == {"name": "keys", "key": "APPLIER_HTTP_TOKEN"}


def test_there_are_never_two_drivers_and_one_without_executors_has_no_rights(objects: Objects) -> None:
    """A second applier of a changefeed is refused, and only a driver of executors needs the API server."""
    spec = objects["Deployment", "shop"]["spec"]

    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert spec["template"]["spec"]["automountServiceAccountToken"] == (("Role", "shop-driver") in objects)


@pytest.mark.parametrize(
    ("config", "given", "said"),
    [
        ("", ["secret=keys"], "Set config to the text of applier.toml"),
        (CONFIG, [], "Set secret to the name of the Secret"),
        (f"{CONFIG}[http]\nport = 1\n", ["secret=keys"], "Take [http] and [spark] out of config"),
        (f"{CONFIG} [ spark ]\n", ["secret=keys"], "Take [http] and [spark] out of config"),
        (CONFIG, ["secret=keys", "replicas=2"], "replicas"),
        (CONFIG, ["secret=keys", "executors.instances=-1"], "instances"),
    ],
)
def test_values_that_do_not_fit_are_refused(config: str, given: list[str], said: str, tmp_path: Path) -> None:
    """Before anything is installed, with the value that is meant."""
    done = _helm(tmp_path, *(part for value in given for part in ("--set", value)), config=config)

    assert done.returncode != 0
    assert said in done.stderr


def test_the_versions_are_that_of_the_project() -> None:
    """Of the chart, of the image that it names, and of the label in the image."""
    version = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    chart = yaml.safe_load((_CHART / "Chart.yaml").read_text(encoding="utf-8"))
    image = (_ROOT / "deploy/Dockerfile").read_text(encoding="utf-8")

    assert (chart["version"], chart["appVersion"]) == (version, version)
    assert re.findall(r'image\.version="(.+)"', image) == [version]
