"""What lies under deploy/ is valid by the tools that will read it, and names only what exists."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from deploy.grafana import dashboard
from proxy.metrics import Metrics, metric_names
from proxy.settings import load

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
BIN = Path(sys.executable).parent
ALERTS = DEPLOY / "prometheus" / "alerts.yml"

# What Prometheus itself and the backend count.
FOREIGN = {"up"}


def series_of_the_proxy() -> set[str]:
    """Every name a series of ours can have, those of histograms included."""
    names = set(metric_names()) | FOREIGN
    histograms = {family.name for family in Metrics().registry.collect() if family.type == "histogram"}
    return names | {f"{name}_{part}" for name in histograms for part in ("bucket", "count", "sum")}


def selectors(expression: str) -> Iterator[promql_parser.VectorSelector]:
    """The vector selectors in a PromQL expression; raises ``ValueError`` where it is not PromQL."""
    found: list[Any] = []
    promql_parser.walk(promql_parser.parse(expression), found.append)
    return (node for node in found if isinstance(node, promql_parser.VectorSelector))


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def panels() -> list[tuple[str, str]]:
    """Title and expression of every query of the dashboard, Grafana's variables filled in."""
    board = json.loads(dashboard.TARGET.read_text())
    return [
        (panel["title"], target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*"))
        for panel in board["panels"]
        for target in panel.get("targets", [])
    ]


# ------------------------------------------------------------------------------------------------ alerts, dashboard


@pytest.mark.parametrize(("name", "expression"), [*((r["alert"], r["expr"]) for r in rules()), *panels()])
def test_alerts_and_panels_ask_for_metrics_and_labels_that_exist(name: str, expression: str) -> None:
    known = series_of_the_proxy()
    labels = {sample.name: set(sample.labels) for family in Metrics().registry.collect() for sample in family.samples}
    asked = list(selectors(expression))
    assert asked
    for selector in asked:
        assert selector.name in known, f"{name}: there is no metric {selector.name}"
        for matcher in selector.matchers.matchers:
            assert matcher.name in {"instance", "job", *labels.get(selector.name, {matcher.name})}


def test_a_metric_that_does_not_exist_would_be_found() -> None:
    (selector,) = selectors("sum(rate(antiphon_no_such_thing_total[5m])) > 1")
    assert selector.name not in series_of_the_proxy()


def test_every_alert_says_how_bad_it_is_and_what_it_means() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert len(rule["annotations"]["summary"]) > 20
        assert len(rule["annotations"]["description"]) > 40
        assert rule["for"]


def test_every_alert_is_in_the_documentation() -> None:
    page = (ROOT / "docs" / "deployment.md").read_text()
    assert [rule["alert"] for rule in rules() if f"`{rule['alert']}`" not in page] == []


def test_the_dashboard_is_what_its_program_writes() -> None:
    assert dashboard.TARGET.read_text() == dashboard.text(), "run python deploy/grafana/dashboard.py"


def test_no_panel_lies_over_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard.dashboard()["panels"]:
        where = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(where["x"], where["x"] + where["w"])
            for y in range(where["y"], where["y"] + where["h"])
        }
        assert not cells & taken, panel["title"]
        assert where["x"] + where["w"] <= 24
        taken |= cells


def test_the_rules_fire_when_they_should_and_are_silent_otherwise() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not there (Debian: apt install prometheus); the expressions were parsed all the same")
    for arguments in (["check", "rules", str(ALERTS)], ["test", "rules", str(ALERTS.with_name("alerts_test.yml"))]):
        done = subprocess.run([promtool, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


# -------------------------------------------------------------------------------------------------------- containers


@pytest.fixture
def compose() -> dict[str, Any]:
    """The compose file as Compose itself understands it."""
    folder = DEPLOY / "compose"
    secrets = {"POSTGRES_PASSWORD": "p", "ANTIPHON_ADMIN_TOKEN": "t" * 40, "GRAFANA_PASSWORD": "g"}
    command = [str(BIN / "docker-compose"), "-f", folder / "compose.yaml", "--env-file", folder / ".env.example"]
    done = subprocess.run(
        [*map(str, command), "config", "--format", "json"], capture_output=True, text=True, check=False, env=secrets
    )
    assert done.returncode == 0, done.stderr
    config: dict[str, Any] = json.loads(done.stdout)
    return config


def test_compose_takes_the_file_and_asks_for_every_secret() -> None:
    folder = DEPLOY / "compose"
    done = subprocess.run(
        [BIN / "docker-compose", "-f", folder / "compose.yaml", "--env-file", "/dev/null", "config", "--quiet"],
        capture_output=True, text=True, check=False, env={},
    )  # fmt: skip
    assert done.returncode != 0
    assert "set it in .env" in done.stderr


def test_compose_has_all_parts_two_proxies_and_mounts_only_files_that_exist(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert set(services) >= {"sglang", "router", "postgres", "proxy-1", "proxy-2", "prometheus", "grafana", "front"}
    for service in services.values():
        for volume in service.get("volumes", []):
            if volume["type"] == "bind" and not volume["source"].endswith("/models"):
                assert Path(volume["source"]).exists(), volume["source"]
        for context in [service["build"]] if "build" in service else []:
            assert (Path(context["context"]) / context["dockerfile"]).is_file()


def test_only_the_front_is_published_beyond_this_machine_and_no_part_runs_with_more_rights_than_it_needs(
    compose: dict[str, Any],
) -> None:
    for name, service in compose["services"].items():
        for port in service.get("ports", []):
            assert port["host_ip"] == "127.0.0.1", name
        assert "no-new-privileges:true" in service["security_opt"], name
        assert not service.get("privileged")
        if name.startswith(("proxy", "router", "front", "prometheus", "grafana")):
            assert service["cap_drop"] == ["ALL"], name
        if name.startswith(("proxy", "router", "front")):
            assert service["read_only"], name
        # Compose copies a secret out of the environment into the container before it starts.
        assert not (service.get("read_only") and service.get("secrets")), name
        assert service["image"].rpartition(":")[2] not in {"", "latest"}, name


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """No settings of this machine's user."""
    for name in list(os.environ):
        if name.startswith("ANTIPHON_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("ANTIPHON_HOME", str(tmp_path))
    return monkeypatch


def test_the_proxies_of_the_compose_file_start_with_its_environment(
    compose: dict[str, Any], clean: pytest.MonkeyPatch
) -> None:
    for name, value in compose["services"]["proxy-1"]["environment"].items():
        clean.setenv(name, value)
    loaded = load()
    assert loaded.settings.upstream.url == "http://router:30100"
    assert loaded.settings.admin.token is not None


def test_the_front_lets_apps_reach_the_api_and_nothing_else() -> None:
    config = (DEPLOY / "compose" / "nginx.conf").read_text()
    places = dict(re.findall(r"location (.+?) \{(.*?)\}", config, re.DOTALL))
    passed = {place for place, inside in places.items() if "proxy_pass" in inside}
    assert passed == {"/v1/", "= /antiphon/health", "= /antiphon/ready", "= /antiphon/feedback"}
    assert "return 404" in places["/"]
    (ingress,) = kind(render(EVERYTHING), "Ingress")
    assert [path["path"] for rule in ingress["spec"]["rules"] for path in rule["http"]["paths"]] == ["/v1"]


@pytest.mark.parametrize("name", ["Containerfile", "Containerfile.router"])
def test_the_containerfiles_are_clean(name: str) -> None:
    path = DEPLOY / "container" / name
    # DL3059: steps are apart on purpose, so that each is kept in a layer of its own.
    done = subprocess.run([BIN / "hadolint", "--ignore", "DL3059", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    lines = path.read_text().splitlines()
    users = [line for line in lines if line.startswith("USER ")]
    assert users
    assert "root" not in users[-1]
    assert any(line.startswith("HEALTHCHECK") for line in lines)
    for line in lines:
        if line.startswith("COPY ") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (ROOT / source).exists(), source


def test_what_the_image_is_built_from_is_in_its_context() -> None:
    """.dockerignore lets through what the Containerfiles copy, and nothing that is private."""
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for name in ("Containerfile", "Containerfile.router"):
        for line in (DEPLOY / "container" / name).read_text().splitlines():
            if line.startswith("COPY ") and "--from" not in line:
                for source in line.split()[1:-1]:
                    assert source.split("/")[0] in kept or source in kept, source
    assert not kept & {".git", ".venv", ".env", "deploy"}


def test_the_image_installs_the_locked_versions() -> None:
    pins = {}
    for name in ("proxy", "container"):
        text = (ROOT / "requirements" / f"{name}.lock").read_text()
        pins[name] = dict(re.findall(r"^([a-z0-9._-]+)==([^\s;]+)", text, re.MULTILINE))
    assert pins["proxy"].items() <= pins["container"].items()
    assert "opentelemetry-sdk" in pins["container"]


# -------------------------------------------------------------------------------------------------------------- Helm


CHART = DEPLOY / "helm" / "antiphon"
POSTGRES = {"store": {"url": "postgresql+psycopg://u:p@db/antiphon"}}
EVERYTHING = {
    **POSTGRES,
    "replicas": 3,
    "autoscaling": {"enabled": True},
    "ingress": {"enabled": True, "className": "nginx", "tlsSecret": "tls"},
    "metrics": {
        "serviceMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "dashboard": {"enabled": True},
    },
    "networkPolicy": {"from": [{"podSelector": {"matchLabels": {"app": "chat"}}}], "to": [{"podSelector": {}}]},
    "imagePullSecrets": [{"name": "pull"}],
    "nodeSelector": {"kind": "cpu"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
    "podAnnotations": {"a": "b"},
    "podLabels": {"c": "d"},
    "env": [{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://otel:4318"}],
    "settings": {"sharing": {"share": "user"}, "store": {"max_entries": 1000}},
}
OBJECTS_OF_AN_OPERATOR = {"ServiceMonitor", "PrometheusRule"}


def render(values: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """The chart's objects, rendered by Helm's own library with its values checked against their schema."""
    helm = pytest.importorskip("helm_python")
    with helm.Chart.load(str(CHART)) as chart:
        chart.validate_schema(values or {})
        made = chart.render(values or {}, name="demo", namespace="prod")
    return [
        document
        for name, text in made.items()
        if name.endswith(".yaml")
        for document in yaml.safe_load_all(text)
        if document
    ]


def kind(objects: list[dict[str, Any]], wanted: str) -> list[dict[str, Any]]:
    return [document for document in objects if document["kind"] == wanted]


def test_helm_finds_nothing_wrong_with_the_chart() -> None:
    helm = pytest.importorskip("helm_python")
    found = helm.lint(str(CHART))
    assert found["errors"] == []
    assert [m for m in found["messages"] if m["severity"] > 1] == []


@pytest.mark.parametrize("values", [{}, POSTGRES, EVERYTHING], ids=["default", "postgres", "everything"])
def test_kubernetes_would_take_every_object(values: dict[str, Any]) -> None:
    import kubernetes_validate

    objects = render(values)
    assert len(objects) >= 6
    for document in objects:
        if document["kind"] not in OBJECTS_OF_AN_OPERATOR:
            kubernetes_validate.validate(document, "1.31", strict=True)


def test_pods_have_no_rights_and_their_root_cannot_be_written_to() -> None:
    for values in ({}, EVERYTHING):
        for workload in (*kind(render(values), "Deployment"), *kind(render(values), "Pod")):
            spec = workload["spec"].get("template", workload)["spec"]
            assert spec["securityContext"]["runAsNonRoot"] is True
            assert spec["automountServiceAccountToken"] is False
            for container in spec["containers"]:
                assert container["securityContext"] == {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                }


def test_one_pod_with_sqlite_keeps_its_volume_and_is_never_two_at_once() -> None:
    objects = render()
    (deployment,) = kind(objects, "Deployment")
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    assert kind(objects, "PersistentVolumeClaim")[0]["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert not kind(objects, "HorizontalPodAutoscaler")
    assert not kind(objects, "PodDisruptionBudget")


def test_several_pods_on_postgresql_are_replaced_one_by_one_and_need_no_volume() -> None:
    objects = render(EVERYTHING)
    (deployment,) = kind(objects, "Deployment")
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert "replicas" not in deployment["spec"]  # the autoscaler's
    assert not kind(objects, "PersistentVolumeClaim")
    assert kind(objects, "HorizontalPodAutoscaler")
    assert kind(objects, "PodDisruptionBudget")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"replicas": 2}, "PostgreSQL"),
        ({"autoscaling": {"enabled": True}}, "PostgreSQL"),
        ({"store": {"url": "mysql://db"}}, "store.url must begin"),
        ({"settings": {"admin": {"token": "12345678"}}}, "admin.existingSecret"),
        ({"replica": 2}, "replica"),
        ({"upstream": {"url": "sglang:30000"}}, "upstream"),
        ({"admin": {"token": "short"}}, "token"),
    ],
)
def test_what_cannot_work_is_refused_in_words(values: dict[str, Any], says: str) -> None:
    helm = pytest.importorskip("helm_python")
    with pytest.raises(helm.HelmError, match=says):
        render(values)


@pytest.mark.parametrize("values", [{}, POSTGRES, EVERYTHING], ids=["default", "postgres", "everything"])
def test_the_proxy_takes_the_settings_the_chart_writes(
    values: dict[str, Any], tmp_path: Path, clean: pytest.MonkeyPatch
) -> None:
    objects = render(values)
    settings = next(c for c in kind(objects, "ConfigMap") if "antiphon.toml" in c["data"])["data"]["antiphon.toml"]
    file = tmp_path / "antiphon.toml"
    file.write_text(settings)
    (deployment,) = kind(objects, "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["serve", "--config", "/etc/antiphon/antiphon.toml"]
    clean.setenv("ANTIPHON_ADMIN__TOKEN", "t" * 20)
    loaded = load(config=file)
    assert loaded.settings.server.host == "0.0.0.0"
    assert loaded.settings.server.port == container["ports"][0]["containerPort"]
    grace = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace > loaded.settings.server.graceful_shutdown_s + 5
    assert tomllib.loads(settings)["logging"]["format"] == "json"


def test_secrets_stand_in_secrets_only() -> None:
    objects = render({**POSTGRES, "admin": {"token": "a-secret-token-of-mine"}})
    for document in objects:
        if document["kind"] != "Secret":
            text = json.dumps(document)
            assert "a-secret-token-of-mine" not in text
            assert "u:p@db" not in text


def test_the_network_policy_keeps_the_proxy_from_the_metadata_service_of_clouds() -> None:
    (policy,) = kind(render(), "NetworkPolicy")
    blocks = [to["ipBlock"] for rule in policy["spec"]["egress"] for to in rule.get("to", [])]
    assert {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]} in blocks


# ------------------------------------------------------------------------------------------ one machine, launch scripts


def test_systemd_takes_the_unit() -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not there")
    done = subprocess.run(
        [analyze, "verify", DEPLOY / "systemd" / "antiphon.service"], capture_output=True, text=True, check=False
    )
    complaints = [line for line in done.stderr.splitlines() if "is not executable" not in line]
    assert complaints == []


@pytest.mark.usefixtures("clean")
def test_the_unit_gives_running_replies_time_and_its_settings_are_known() -> None:
    unit = (DEPLOY / "systemd" / "antiphon.service").read_text()
    loaded = load(config=DEPLOY / "systemd" / "antiphon.toml")
    stop = re.search(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    assert stop
    assert int(stop[1]) > loaded.settings.server.graceful_shutdown_s


@pytest.mark.parametrize("script", sorted((DEPLOY / "sglang").glob("*.sh")), ids=lambda path: path.name)
def test_the_launch_scripts_are_shell(script: Path) -> None:
    assert subprocess.run(["sh", "-n", script], check=False).returncode == 0
    assert script.stat().st_mode & 0o111
    shellcheck = shutil.which("shellcheck")
    if shellcheck is not None:
        done = subprocess.run([shellcheck, script], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


@pytest.mark.backend
def test_sglang_knows_every_flag_of_the_launch_scripts_and_of_compose() -> None:
    python = ROOT / ".backend" / "bin" / "python"
    if not python.exists():
        pytest.skip("the backend's environment is not there; run `make backend`")
    shown = subprocess.run(
        [python, "-m", "sglang.launch_server", "--help"], capture_output=True, text=True, check=True
    ).stdout
    known = set(re.findall(r"--[a-z0-9-]+", shown))
    compose_file = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
    flags = {word.partition("=")[0] for word in compose_file["services"]["sglang"]["command"] if word.startswith("--")}
    for name in ("launch.sh", "launch_gpu.sh"):
        text = (DEPLOY / "sglang" / name).read_text().partition("\nexec ")[2]
        flags |= set(re.findall(r"(?<=\s)--[a-z0-9-]+", text))
    assert len(flags) > 12
    assert flags - known == set()
