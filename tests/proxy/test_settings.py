"""Where settings come from, which one wins, and what is said about a wrong one."""

from __future__ import annotations

import json
import tomllib
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.settings import (
    Setting,
    Settings,
    SettingsError,
    SharingSettings,
    data_folder,
    every_setting,
    example_toml,
    load,
    nearest,
    shown,
)

SETTINGS = every_setting()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder of its own, and no setting from the outside."""
    import os

    for name in list(os.environ):
        if name.startswith("ANTIPHON"):
            monkeypatch.delenv(name)
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("ANTIPHON_HOME", str(folder))
    return folder


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


# ------------------------------------------------------------------------------------------------- which one wins


def test_nothing_given_means_defaults_and_a_database_in_the_data_folder(home: Path) -> None:
    loaded = load()
    assert loaded.settings.server.port == 8080
    assert loaded.settings.server.host == "127.0.0.1"
    assert loaded.settings.store.url == f"sqlite:///{home}/antiphon.db"
    assert loaded.origin("server.port").kind == "default"
    assert loaded.origin("store.url").kind == "default"


def test_environment_wins_over_file_and_flags_over_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "a.toml", '[server]\nhost = "127.0.0.2"\nport = 1\nbacklog = 7\n')
    monkeypatch.setenv("ANTIPHON_SERVER__PORT", "2")
    monkeypatch.setenv("ANTIPHON_SERVER__BACKLOG", "8")
    loaded = load(file, {"server.backlog": 9, "server.host": None})
    server = loaded.settings.server
    assert (server.host, server.port, server.backlog) == ("127.0.0.2", 2, 9)
    assert str(loaded.origin("server.host")) == f"file {file}"
    assert str(loaded.origin("server.port")) == "environment ANTIPHON_SERVER__PORT"
    assert str(loaded.origin("server.backlog")) == "flag --backlog"


def test_the_file_in_the_data_folder_is_read_without_being_named(home: Path) -> None:
    write(home / "antiphon.toml", "[server]\nport = 99\n")
    assert load().settings.server.port == 99


def test_a_named_file_is_read_instead_of_the_one_in_the_data_folder(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home / "antiphon.toml", "[server]\nport = 99\n")
    monkeypatch.setenv("ANTIPHON_CONFIG", str(write(tmp_path / "b.toml", "[server]\nport = 98\n")))
    assert load().settings.server.port == 98
    assert load(write(tmp_path / "c.toml", "[server]\nport = 97\n")).settings.server.port == 97


def test_an_empty_variable_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIPHON_ADMIN__TOKEN", "")
    assert load().settings.admin.token is None


def test_lists_may_be_written_with_commas_or_as_json_in_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIPHON_SHARING__TRUSTED_TENANT_CALLERS", "10.0.0.0/8, ::1")
    monkeypatch.setenv("ANTIPHON_SHARING__VOLATILE_SYSTEM_PARTS", '["a,b", "c"]')
    sharing = load().settings.sharing
    assert sharing.trusted_tenant_callers == ("10.0.0.0/8", "::1/128")
    assert [pattern.pattern for pattern in sharing.volatile_system_parts] == ["a,b", "c"]


def test_zero_is_a_threshold_and_not_an_absent_one() -> None:
    assert load(flags={"decision.answer": 0, "decision.verify": 0}).settings.decision.answer == 0.0
    assert load().settings.decision.answer is None


def test_a_plain_path_is_an_sqlite_file(tmp_path: Path) -> None:
    assert load(flags={"store.url": str(tmp_path / "x.db")}).settings.store.url == f"sqlite:///{tmp_path}/x.db"


def test_building_settings_directly_reads_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIPHON_SERVER__PORT", "2")
    assert Settings().server.port == 8080


def test_the_data_folder_is_the_platforms_own_unless_named() -> None:
    assert data_folder({}).name == "antiphon"
    assert data_folder({"ANTIPHON_HOME": "/x/y"}) == Path("/x/y")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("http://h:1/", "http://h:1"),
        ("http://h:1/v1", "http://h:1"),
        ("https://h/base/v1/", "https://h/base"),
        ("http://[::1]:3", "http://[::1]:3"),
    ],
)
def test_the_backend_url_may_end_in_v1_as_apps_write_it(given: str, kept: str) -> None:
    assert load(flags={"upstream.url": given}).settings.upstream.url == kept


# ----------------------------------------------------------------------------------------------- what is said


def fault(**arguments: object) -> str:
    with pytest.raises(SettingsError) as caught:
        load(**arguments)  # type: ignore[arg-type]
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[server]\nprot = 1\n", "unknown setting server.prot in FILE; did you mean server.port?"),
        ("[sever]\nport = 1\n", "unknown section [sever] in FILE; did you mean [server]?"),
        ("port = 1\n", "unknown setting port in FILE; did you mean server.port?"),
        ("server = 1\n", "server in FILE is a section, not a value: write [server]"),
        ("[server]\nport = 70000\n", "server.port (file FILE): input should be less than or equal to 65535, not 70000"),
        ('[upstream]\nurl = "localhost:3"\n', "upstream.url (file FILE): must be a URL such as"),
        ('[upstream]\nurl = "http://h:x"\n', "upstream.url (file FILE): has a port that is not a number"),
        ("[decision]\nanswer = 0.5\nverify = 0.6\n", "[decision]: verify must not be greater than answer"),
        ("[decision]\nanswer = 1.5\n", "decision.answer (file FILE): input should be less than or equal to 1"),
        ('[sharing]\nshare = "all"\n', "sharing.share (file FILE): input should be 'session', 'user'"),
        ('[sharing]\nvolatile_system_parts = ["("]\n', "sharing.volatile_system_parts (file FILE): "),
        ('[sharing]\ntrusted_tenant_callers = ["x y"]\n', "'x y' is neither an address, nor a network"),
        ("[server\n", "FILE is not valid TOML: "),
    ],
)
def test_a_fault_in_the_file_is_one_clear_line(tmp_path: Path, text: str, said: str) -> None:
    file = write(tmp_path / "a.toml", text)
    message = fault(config=file)
    assert said.replace("FILE", str(file)) in message
    assert "\n" not in message


def test_every_fault_gets_a_line_of_its_own(tmp_path: Path) -> None:
    message = fault(config=write(tmp_path / "a.toml", '[server]\nport = -1\nbacklog = "many"\n'))
    assert len(message.splitlines()) == 2


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert fault(config=tmp_path / "no.toml") == f"there is no configuration file {tmp_path}/no.toml"


def test_a_mistyped_variable_is_refused_with_the_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIPHON_UPSTREAM__ULR", "http://h")
    assert fault() == "unknown environment variable ANTIPHON_UPSTREAM__ULR; did you mean ANTIPHON_UPSTREAM__URL?"


def test_a_variable_with_one_underscore_too_few_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIPHON_SERVER_PORT", "8080")
    assert "did you mean ANTIPHON_SERVER__PORT?" in fault()


def test_what_kubernetes_puts_into_the_environment_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "ANTIPHON_PORT": "tcp://10.1.2.3:8080",
        "ANTIPHON_SERVICE_HOST": "10.1.2.3",
        "ANTIPHON_SERVICE_PORT": "8080",
        "ANTIPHON_SERVICE_PORT_HTTP": "8080",
        "ANTIPHON_PORT_8080_TCP": "tcp://10.1.2.3:8080",
        "ANTIPHON_PORT_8080_TCP_PROTO": "tcp",
        "ANTIPHON_PORT_8080_TCP_PORT": "8080",
        "ANTIPHON_PORT_8080_TCP_ADDR": "10.1.2.3",
    }.items():
        monkeypatch.setenv(name, value)
    assert load().settings.server.port == 8080


def test_a_secret_is_in_no_message_and_in_no_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIPHON_ADMIN__TOKEN", "s3cret")
    message = fault()
    assert message == "[admin]: token must have at least 8 characters, printable ASCII without spaces"
    monkeypatch.setenv("ANTIPHON_ADMIN__TOKEN", "s3cret-and-long")
    loaded = load(flags={"store.url": "postgresql://me:pa55@h/db"})
    assert "s3cret" not in repr(loaded)
    printed = json.dumps([shown(setting, setting.value_in(loaded.settings)) for setting in SETTINGS])
    assert "s3cret" not in printed
    assert "pa55" not in printed


@given(st.text(max_size=40))
def test_any_name_gets_a_known_one_or_none_as_its_nearest(name: str) -> None:
    known = [setting.name for setting in SETTINGS]
    assert nearest(name, known) in {None, *known}


# ------------------------------------------------------------------------------------------------- the model


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.name)
def test_every_setting_says_what_it_does(setting: Setting) -> None:
    description = setting.description
    assert description.endswith(".")
    assert len(description) > 15


@pytest.mark.parametrize("setting", [s for s in SETTINGS if s.kind in ("number", "integer")], ids=lambda s: s.name)
def test_every_number_has_its_unit_in_its_name_or_says_what_it_counts(setting: Setting) -> None:
    key, description = setting.key, setting.description
    units = ("_s", "_ms", "_mib", "_kib", "_days", "_hours", "_tokens", "_variance", "_cosine", "_percent", "port")
    counted = (
        "confidence (0 to 1)",
        "Connections",
        "Stored turns",
        "Turns",
        "Entries",
        "Answers",
        "answers to one question",
        "Hits",
        "How often",
        "Sessions",
        "Writes",
        "Threads",
        "Rounds",
        "Nearest",
        "Share (0 to 1)",
        "Messages",
        "Headers",
        "Requests",
        "nswers to one question",
        "nswers whose",
        "Cosine",
        "percentage",
        "Turns",
        "Variance",
        "Cosine",
        "0 to 1)",
        "Last ",
        "Answers ",
        "Checks ",
        "Requests a minute",
        "`priority` of",
        "Turns that",
        "Files of",
        "calibration of",
    )
    assert key.endswith(units) or any(word in description for word in counted)


def test_the_example_file_is_valid_and_changes_nothing(tmp_path: Path) -> None:
    text = example_toml()
    assert load(write(tmp_path / "e.toml", text)).settings == load().settings


def test_the_example_file_with_every_line_uncommented_is_the_default(tmp_path: Path) -> None:
    lines = []
    for line in example_toml().splitlines():
        bare = line.removeprefix("# ")
        key, equals, value = bare.partition(" = ")
        lines.append(bare if equals and value and key.isidentifier() else line)
    values = tomllib.loads("\n".join(lines))
    assert (
        sum(len(section) for section in values.values()) > len(SETTINGS) - 10
    )  # those without a default stay commented
    assert load(write(tmp_path / "e.toml", "\n".join(lines))).settings == load().settings


# ------------------------------------------------------------------------------------------------- who is trusted


def test_a_caller_is_trusted_by_its_network_or_its_token_only() -> None:
    digest = sha256(b"gateway-token").hexdigest()
    sharing = SharingSettings.model_validate({"trusted_tenant_callers": ["10.0.0.0/8", f"sha256:{digest}"]})
    assert sharing.trusts("10.1.2.3", None)
    assert sharing.trusts("::ffff:10.1.2.3", None)
    assert sharing.trusts("192.0.2.1", "gateway-token")
    assert not sharing.trusts("192.0.2.1", "other-token")
    assert not sharing.trusts(None, None)
    assert not sharing.trusts("testclient", None)
    assert not SharingSettings.model_validate({}).trusts("127.0.0.1", "gateway-token")
