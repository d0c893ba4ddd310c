"""The configuration file: what it comes to, where each value is from, what is refused and how, and that secrets are not shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from maintainer.errors import UsageError
from maintainer.service.configuration import Configuration, load
from tests.support.command import run

ROOT = Path(__file__).parents[2]


@pytest.fixture
def loaded(tmp_path: Path):  # type: ignore[no-untyped-def]
    def load_text(text: str | bytes, **environment: str) -> Configuration:
        path = tmp_path / "maintainer.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load(str(path), environment)

    return load_text


def test_defaults(loaded):
    found = loaded("tables: [{uri: /wh/db.db/t}]")
    assert [table.uri for table in found.tables] == ["/wh/db.db/t"]
    assert (found.poll_interval, found.memory, found.spill.directory, found.spill.limit) == (5.0, None, None, None)
    assert (found.log.format, found.log.level, found.warehouses) == ("console", "info", ())


def test_every_key(loaded):
    found = loaded(
        """
        warehouses:
          - {uri: s3://bucket/wh/, include: ["db.*"], exclude: [db.tmp], storage-options: {anon: true, n: 5}, options: {maintain.expire: no}}
        tables: [{uri: /wh/db.db/t, storage-options: {a: {b: c}}, options: {maintain.rewrite-append-budget: 5 gb}}]
        poll-interval: 250 ms
        memory: 512 mb
        spill: {directory: /spill, limit: 1073741824}
        log: {format: JSON, level: Debug}
        """
    )
    warehouse = found.warehouses[0]
    assert (warehouse.uri, warehouse.include, warehouse.exclude) == ("s3://bucket/wh", ("db.*",), ("db.tmp",))
    assert (warehouse.storage_options, warehouse.options) == ({"anon": True, "n": 5}, {"maintain.expire": "false"})
    assert (found.tables[0].storage_options, found.tables[0].options) == ({"a": {"b": "c"}}, {"maintain.rewrite-append-budget": "5 gb"})
    assert (found.poll_interval, found.memory) == (0.25, 512 << 20)
    assert (found.spill.directory, found.spill.limit) == ("/spill", 1 << 30)
    assert (found.log.format, found.log.level) == ("json", "debug")


def test_paths_begin_at_the_directory_of_the_file(loaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/home/me")
    found = loaded("warehouses: [{uri: wh}, {uri: ~/wh}]\ntables: [{uri: ../t}, {uri: 'file:///x'}]\nspill: {directory: spill}")
    assert [warehouse.uri for warehouse in found.warehouses] == [str(tmp_path / "wh"), "/home/me/wh"]
    assert [table.uri for table in found.tables] == [str(tmp_path.parent / "t"), "file:///x"]
    assert found.spill.directory == str(tmp_path / "spill")


def test_the_environment_goes_before_the_file(loaded):
    found = loaded(
        "tables: [{uri: /t}]\npoll-interval: 1 s\nlog: {level: debug}",
        MAINTAINER_POLL_INTERVAL="2 s",
        MAINTAINER_LOG_FORMAT="json",
        MAINTAINER_SPILL_LIMIT="1 gb",
        MAINTAINER_MEMORY="",
    )
    assert (found.poll_interval, found.log.format, found.log.level, found.spill.limit, found.memory) == (2.0, "json", "debug", 1 << 30, None)


def test_values_of_variables_are_never_syntax(loaded):
    found = loaded(
        'tables: [{uri: "/wh/${DB}.db/t", storage-options: {secret: "a${S}b", literal: "$${S}", number: "${N}"}}]', DB="x", S="}: [", N="12"
    )
    assert found.tables[0].uri == "/wh/x.db/t"
    assert found.tables[0].storage_options == {"secret": "a}: [b", "literal": "${S}", "number": "12"}


KEYS = "warehouses, tables, poll-interval, memory, spill, cache, log"
WRONG = {
    "": "is empty; it needs at least one table or warehouse",
    "# nothing": "is empty",
    "- a": f"a configuration is a mapping with the keys {KEYS}",
    "memory: 1 gb": "there is nothing to maintain",
    "tables: []\nwarehouses: []": "there is nothing to maintain",
    "tables:": ":1: tables: must be a list",
    "tables: {uri: /t}": ":1: tables: must be a list",
    "tables: [/t]": ":1: tables[0]: must be a mapping with the keys uri, storage-options, options",
    "tables:\n- options: {}": ":2: tables[0].uri: this key is missing",
    "tables:\n- uri: 5": ":2: tables[0].uri: must be a text",
    "tables: [{uri: ' '}]": "tables[0].uri: must be a path or URI, like",
    "tables: [{uri: /t}]\npoll_interval: 5 s": ":2: poll_interval: there is no such key; did you mean poll-interval? "
    f"(the keys here are {KEYS})",
    "tables:\n- uri: /t\n  storage_options: {}": ":3: tables[0].storage_options: there is no such key; did you mean storage-options?",
    "tables: [{uri: /t, include: [a.b]}]": "tables[0].include: there is no such key (the keys here are uri, storage-options, options)",
    "tables: [{uri: /t}]\npoll-interval: 5": ":2: poll-interval: must be a time with its unit, like 5 s",
    "tables: [{uri: /t}]\npoll-interval: 5 parsecs": "'5 parsecs' is not a duration like '10 s' or '1 h' (units: ms, s, min, h, d",
    "tables: [{uri: /t}]\npoll-interval: 0.5 s": "'0.5 s' is not a duration",
    "tables: [{uri: /t}]\npoll-interval: 1 ms": "must be between 50 ms and 1 d, not 1 ms",
    "tables: [{uri: /t}]\nmemory: lots": ":2: memory: 'lots' is not a size like '128 mb' (units: b, kb, mb, gb, tb",
    "tables: [{uri: /t}]\nmemory: 1": "memory: must be at least 64 mb, not 1 (bytes)",
    "tables: [{uri: /t}]\nmemory: -1 gb": "'-1 gb' is not a size",
    "tables: [{uri: /t}]\nmemory: true": "must be a size like 512 mb",
    "tables: [{uri: /t}]\nspill: /tmp": ":2: spill: must be a mapping with the keys directory, limit",
    "tables: [{uri: /t}]\nspill: {directory: ''}": "spill.directory: must not be empty",
    "tables: [{uri: /t}]\nspill:\n  limit: 5 x": ":3: spill.limit: '5 x' is not a size",
    "tables: [{uri: /t}]\nlog: {format: xml}": ":2: log.format: must be 'console' or 'json'",
    "tables: [{uri: /t}]\nlog: {level: 3}": "log.level: must be 'debug', 'info', 'warning' or 'error'",
    "tables: [{uri: /t}, {uri: /t/}]": "tables[1].uri: the table /t stands in tables[0] already",
    "tables: [{uri: s3://b/t}, {uri: s3a://b/t}]": "stands in tables[0] already",
    "tables: [{uri: s3n://b/t}, {uri: s3://b/t}]": "stands in tables[0] already",
    "tables: [{uri: /t, options: {bucket: 3}}]": "bucket: this option belongs to the table",
    "tables: [{uri: /t, options: {maintain.expires: true}}]": "maintain.expires: there is no such option; did you mean maintain.expire?",
    "tables: [{uri: /t, options: {maintain.expire: perhaps}}]": "option maintain.expire = 'perhaps': 'perhaps' is neither true nor false",
    "tables: [{uri: /t, options: [a]}]": "tables[0].options: must be a mapping",
    "tables: [{uri: /t, options: {maintain.expire: [1]}}]": "the value of an option must be a text, a number, true or false",
    "warehouses: [{uri: /wh, include: db.*}]": "warehouses[0].include: must be a list",
    "warehouses: [{uri: /wh, exclude: [orders]}]": "warehouses[0].exclude[0]: must be a pattern for db.table, like 'db.*'",
    "tables: [{uri: /t}]\nmemory: 1 gb\nmemory: 2 gb": ":3: memory: this key stands in line 2 already",
    "tables: [{uri: '/t/${NO}'}]": ":1: tables[0].uri: the environment variable NO is not set",
    "tables: [{uri: '/t/${}'}]": "must hold the name of an environment variable",
    "tables: [{uri: '/t/${NO'}]": "must hold the name of an environment variable",
    "tables: [": "this is no YAML",
    "a: b: c": ":1: this is no YAML",
    "tables: &a [*a]": "too many values",
    "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
    "d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*d,*d,*d,*d,*d,*d,*d,*d,*d]": "too many values",
    "tables: [{uri: !!python/name:os.system /t}]": "this is no YAML",
    "tables: [{uri: /t}]\nmemory: 2026-13-45": "quote it if it is a text",
}


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_is_named_with_its_line(loaded, text: str):
    with pytest.raises(UsageError) as error:
        loaded(text)
    assert WRONG[text] in str(error.value)
    assert "maintainer.yaml" in str(error.value)


def test_all_mistakes_at_once(loaded):
    with pytest.raises(UsageError) as error:
        loaded("tables: [{uri: /t, x: 1}]\nmemory: 5\nlog: {format: x}")
    assert all(part in str(error.value) for part in ("tables[0].x", "memory:", "log.format"))


def test_a_wrong_variable_is_named(loaded):
    with pytest.raises(UsageError, match="environment variable MAINTAINER_MEMORY: memory: 'x' is not a size"):
        loaded("tables: [{uri: /t}]", MAINTAINER_MEMORY="x")


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"a" * (2 << 20)])
def test_what_is_no_text(loaded, content: bytes):
    with pytest.raises(UsageError, match="this is no"):
        loaded(content)


def test_files_that_cannot_be_read(tmp_path: Path):
    for path in (tmp_path / "missing.yaml", tmp_path):
        with pytest.raises(UsageError, match="cannot be read: "):
            load(str(path), {})


SECRET = """
warehouses:
  - uri: s3://me:pass-in-uri@bucket/wh
    storage-options:
      endpoint_url: https://user:pass-in-url@host
      region: eu
      key: plain-access-key
      secret: plain-secret-key
      anon: false
      token: 12345678
      max_concurrency: 5
      client_kwargs: {aws_secret_access_key: nested-secret, region_name: eu2}
      something: unknown-text
      from_environment: ${PLACE}
"""


def test_secrets_are_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PLACE", "value-of-variable")
    path = tmp_path / "c.yaml"
    path.write_text(SECRET)
    for options in (["--json"], []):
        output = run("config", "--config", path, *options).output
        for secret in ("pass-in", "plain-", "12345678", "nested-secret", "unknown-text", "value-of-variable"):
            assert secret not in output
    document = json.loads(run("config", "--config", path, "--json").output)
    values = {each["key"]: (each["value"], each["origin"]) for each in document["values"]}
    prefix = "warehouses[0].storage-options"
    assert document["version"] == 1
    assert values["warehouses[0].uri"] == ("s3://***@bucket/wh", f"{path}:3")
    assert values[f"{prefix}.region"] == ("eu", f"{path}:6")
    assert values[f"{prefix}.anon"] == (False, f"{path}:9")
    assert values[f"{prefix}.max_concurrency"] == (5, f"{path}:11")
    assert values[f"{prefix}.client_kwargs.region_name"] == ("eu2", f"{path}:12")
    assert values[f"{prefix}.from_environment"] == ("${PLACE}", f"{path}:14")
    assert values["warehouses[0].exclude"] == ([], "default")
    assert values["poll-interval"] == ("5 s", "default")


def test_secrets_of_digits_and_passwords_with_an_at_sign(loaded):
    configuration = loaded(
        "tables: [{uri: 'sftp://me:p@ss-word@host/t', storage-options: {key: 1234567890, secret: 98765432109, client_kwargs: {pin: 11223344}}}]"
    )
    assert {"1234567890", "98765432109", "11223344", "me:p@ss-word", "p@ss-word"} <= configuration.secrets()
    values = {each["key"]: each["value"] for each in configuration.values()}
    assert values["tables[0].uri"] == "sftp://***@host/t"
    assert {value for key, value in values.items() if "storage-options" in key} == {"***"}


def test_values_one_inside_of_the_other_without_end(loaded):
    for text in ("[" * 20_000, "{a: " * 3000 + "1" + "}" * 3000):
        with pytest.raises(UsageError, match="one inside of the other"):
            loaded(f"tables: {text}")


def test_errors_hold_no_secrets(loaded):
    with pytest.raises(UsageError) as error:
        loaded("tables: [{uri: 's3://me:hidden@b/t', storage-options: [hidden]}, {uri: 's3://me:hidden@b/t', x: hidden}]")
    assert "hidden" not in str(error.value)


def test_origins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MAINTAINER_MEMORY", "2 gb")
    path = tmp_path / "c.yaml"
    path.write_text("tables:\n  - uri: t\npoll-interval: 1 s\n")
    values = {each["key"]: (each["value"], each["origin"]) for each in load(str(path)).values()}
    assert values["memory"] == ("2 gb", "environment MAINTAINER_MEMORY")
    assert values["poll-interval"] == ("1 s", f"{path}:3")
    assert values["tables[0].uri"] == (str(tmp_path / "t"), f"{path}:2")
    assert values["spill.limit"] == (None, "default")
    assert values["cache.directory"] == (None, "default")
    assert values["cache.limit"][1] == "default"


def test_a_cache_is_placed_like_other_directories(loaded, tmp_path: Path):
    found = loaded("tables: [{uri: t}]\ncache: {directory: keys, limit: 0}")
    assert (found.cache.directory, found.cache.limit) == (str(tmp_path / "keys"), 0)


def test_a_wrong_file_ends_commands_with_2(tmp_path: Path):
    for command in ("config", "run"):
        result = run(command, "--config", tmp_path / "none.yaml")
        assert result.exit_code == 2
        assert run(command).exit_code == 2


def test_the_example_is_valid_and_names_every_key():
    path = ROOT / "config" / "maintainer.yaml"
    found = load(str(path), {"S3_KEY": "key", "S3_SECRET": "secret"})
    assert found.warehouses[0].storage_options["secret"] == "secret"
    assert [each["key"] for each in found.values() if each["origin"] == "default"] == []


def test_the_examples_agree_about_the_time_to_stop():
    from maintainer.service.daemon import STOP_SECONDS

    unit = (ROOT / "config" / "maintainer.service").read_text()
    deployment = (ROOT / "config" / "kubernetes.yaml").read_text()
    assert f"within {STOP_SECONDS:.0f} seconds" in unit
    assert f"within {STOP_SECONDS:.0f} seconds" in deployment
