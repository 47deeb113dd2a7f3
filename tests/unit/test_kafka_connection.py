"""Client properties in, connection facts out; every bad one is told by file, line and key, and no secret is shown."""

from __future__ import annotations

import gc
import http.server
import json
import logging
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from hypothesis import given
from hypothesis import strategies as st

from topicshift.adapters.kafka import python_client
from topicshift.adapters.kafka.client_config import load_client_properties
from topicshift.adapters.kafka.connection import Connection, client_config, from_airflow_extra, typed_error
from topicshift.adapters.kafka.python_client import kafka_python_config
from topicshift.core.errors import (
    AccessDenied,
    NotFound,
    Refused,
    SpecError,
    TopicshiftError,
    Transient,
    Unreadable,
)
from topicshift.core.kafka.java_client import java_properties
from topicshift.core.kafka.properties import parse_properties

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def make(text: str) -> Path:
        path = tmp_path / "client.properties"
        path.write_text(text, encoding="utf-8")
        return path

    return make


def test_a_java_file_becomes_librdkafkas_names(write: Callable[[str], Path]) -> None:
    path = write(
        "# how we get in\n! and nothing else\n\n"
        "bootstrap.servers = b1.example.org:9092,b2.example.org:9092\n"
        "security.protocol=SASL_SSL\nsasl.mechanism: SCRAM-SHA-512\n"
        f'sasl.jaas.config={SCRAM} required \\\n    username="checkout" \\\n    password="s3=cr;et";\n'
        "ssl.endpoint.identification.algorithm=\n"
        "group.id=ledger\nssl.protocol=TLSv1.3\nrequest.timeout.ms=5000\n"
    )
    assert load_client_properties(path) == {
        "bootstrap.servers": "b1.example.org:9092,b2.example.org:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "checkout",
        "sasl.password": "s3=cr;et",
        "ssl.endpoint.identification.algorithm": "none",
    }


def test_librdkafkas_own_names_are_taken_as_they_are(write: Callable[[str], Path]) -> None:
    path = write(
        "bootstrap.servers=b:9092\nsasl.mechanisms=PLAIN\nsecurity.protocol=sasl_plaintext\n"
        "sasl.username=u\nsasl.password=p\n"
    )
    assert load_client_properties(path)["sasl.mechanism"] == "PLAIN"


def test_oauth_client_credentials_are_taken(write: Callable[[str], Path]) -> None:
    handler = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
    path = write(
        "bootstrap.servers=b:9092\nsasl.mechanism=OAUTHBEARER\n"
        "sasl.oauthbearer.token.endpoint.url=https://idp.example.org/token\n"
        f"sasl.login.callback.handler.class={handler}\n"
        f'sasl.jaas.config={OAUTH} required clientId="topicshift" clientSecret="hush" scope="kafka";\n'
    )
    config = load_client_properties(path)
    assert config["sasl.oauthbearer.method"] == "oidc"
    assert config["sasl.oauthbearer.client.id"] == "topicshift"
    assert config["sasl.oauthbearer.client.secret"] == "hush"
    assert config["sasl.oauthbearer.scope"] == "kafka"


def test_pem_stores_become_pem_locations() -> None:
    from topicshift.adapters.kafka.client_config import translate

    properties = parse_properties(
        "ssl.truststore.type=PEM\nssl.truststore.location=ca.pem\nssl.truststore.password=x\n"
        "ssl.keystore.location=me.pem\nssl.keystore.password=x\nssl.key.password=hush\n",
        name="f",
    )
    assert translate(properties, name="f").config == {
        "ssl.ca.location": "ca.pem",
        "ssl.certificate.location": "me.pem",
        "ssl.key.location": "me.pem",
        "ssl.key.password": "hush",
    }
    pkcs12 = parse_properties("ssl.keystore.location=me.p12\nssl.keystore.password=hush\n", name="f")
    assert translate(pkcs12, name="f").config == {
        "ssl.keystore.location": "me.p12",
        "ssl.keystore.password": "hush",
    }


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("bootstrap.servers\n", 1, "has no value"),
        ("a.b=1\n\nsasl.mechanism\n", 3, "has no value"),
        ("bootstrap.servers=\n", 1, "bootstrap.servers is empty"),
        ("client.id=a\nclient.id=b\n", 2, "client.id is set again, after line 1"),
        ("client.id=a\nsecurty.protocol=SSL\n", 2, "Did you mean security.protocol?"),
        ("security.protocol=SASL\n", 1, "security.protocol is not accepted"),
        ("socket.timeout.ms=soon\n", 1, "socket.timeout.ms is not accepted"),
        ("ssl.truststore.location=trust.jks\n", 1, "PEM trust stores only"),
        ("ssl.truststore.type=JKS\nssl.truststore.location=trust.pem\n", 2, "this one is JKS"),
        ("ssl.keystore.location=keys.jks\n", 1, "PEM and PKCS12 key stores"),
        (f'sasl.jaas.config={PLAIN} required username="u";\n', 1, "has no password"),
        ("sasl.jaas.config=org.example.MyLoginModule required;\n", 1, "MyLoginModule runs inside Java only"),
        ("sasl.login.callback.handler.class=org.example.Mine\n", 1, "runs inside Java only"),
        ("config.providers=file\nsasl.password=${file:/x:y}\n", 1, "Config providers run inside Java only"),
        ("security.protocol=SSL\nssl.ca.location=/nowhere/ca.pem\n", 2, "ssl.ca.location is not accepted"),
    ],
)
def test_what_is_wrong_is_told_by_line_and_key(write: Callable[[str], Path], text: str, line: int, said: str) -> None:
    path = write(text)
    with pytest.raises(SpecError) as caught:
        load_client_properties(path)
    assert f"{path}, line {line}: " in str(caught.value)
    assert said in str(caught.value)


def test_a_file_that_is_not_there_or_not_text_is_told(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="does not exist"):
        load_client_properties(tmp_path / "none.properties")
    with pytest.raises(SpecError, match="cannot be read"):
        load_client_properties(tmp_path)
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="not UTF-8"):
        load_client_properties(binary)


def test_no_message_shows_a_secret(write: Callable[[str], Path]) -> None:
    path = write(f'sasl.jaas.config={PLAIN} required username="u" password="hush-hush";\nsecurity.protocol=SASL\n')
    with pytest.raises(SpecError) as caught:
        load_client_properties(path)
    assert "hush-hush" not in str(caught.value)
    assert caught.value.__cause__ is None


@given(st.dictionaries(st.from_regex(r"[a-z][a-z.]{0,12}", fullmatch=True), st.text(min_size=1), max_size=5))
def test_escaped_values_read_back(values: dict[str, str]) -> None:
    def escape(text: str) -> str:
        return "".join(c if c.isascii() and c.isalnum() else f"\\u{ord(c):04x}" for c in text)

    short = {k: "".join(c for c in v if ord(c) < 0x10000) for k, v in values.items()}
    text = "".join(f"{k}={escape(v)}\n" for k, v in short.items())
    found = {p.key: p.value for p in parse_properties(text, name="f")}
    assert found == {k: v.strip(" \t") for k, v in short.items()}


# ------------------------------------------------------------------------------------------------ one config


def test_the_later_source_wins(write: Callable[[str], Path]) -> None:
    path = write("bootstrap.servers=file:9092\nclient.id=file\n")
    assert client_config(properties_file=path)["bootstrap.servers"] == "file:9092"
    assert client_config("given:9092", path)["bootstrap.servers"] == "given:9092"
    assert client_config("given:9092", path, {"client.id": "mine"})["client.id"] == "mine"


@pytest.mark.parametrize(
    "servers",
    ["", " , ", "host name:9092", "host:0", "host:99999", "host:port", "a:1:2", "http://b:9092", "kafka://b:9092"],
)
def test_a_bad_address_is_a_spec_error(servers: str) -> None:
    with pytest.raises(SpecError, match=r"bootstrap\.servers"):
        client_config(servers)


@pytest.mark.parametrize("servers", ["b:9092", "b", "[::1]:9092", "SASL_SSL://b:9092", "a:1, b:2"])
def test_a_good_address_is_taken(servers: str) -> None:
    assert client_config(servers)["bootstrap.servers"]


def test_no_address_at_all_is_told() -> None:
    with pytest.raises(SpecError, match="no bootstrap address"):
        client_config()


def test_an_airflow_connections_extra(write: Callable[[str], Path]) -> None:
    path = write("bootstrap.servers=file:9092\nsasl.password=hush\nsasl.username=u\nsasl.mechanism=PLAIN\n")
    config = from_airflow_extra(
        {
            "bootstrap.servers": "extra:9092",
            "group.id": "ledger",
            "auto.offset.reset": "earliest",
            "log.connection.close": False,
            "topicshift.properties.file": str(path),
        }
    )
    assert config == {
        "bootstrap.servers": "extra:9092",
        "sasl.username": "u",
        "sasl.password": "hush",
        "sasl.mechanism": "PLAIN",
        "log.connection.close": "false",
    }
    with pytest.raises(SpecError, match="Did you mean"):
        from_airflow_extra({"bootstrap.servers": "b:9092", "sasl.mechanims": "PLAIN"})
    with pytest.raises(SpecError, match="oauth_cb"):
        from_airflow_extra({"bootstrap.servers": "b:9092", "oauth_cb": "mine.token"})


# ------------------------------------------------------------------------------------------------ other clients' words


SASL = {
    "bootstrap.servers": "a:1,b:2",
    "security.protocol": "sasl_plaintext",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": 'u"1',
    "sasl.password": "p\\1",
}


def test_kafka_python_gets_the_same_facts() -> None:
    config = kafka_python_config(SASL, timeout_s=3)
    assert config["bootstrap_servers"] == ["a:1", "b:2"]
    assert config["security_protocol"] == "SASL_PLAINTEXT"
    assert config["sasl_mechanism"] == "SCRAM-SHA-256"
    assert config["sasl_plain_username"] == 'u"1'
    assert config["sasl_plain_password"] == "p\\1"
    assert config["request_timeout_ms"] == config["bootstrap_timeout_ms"] == 3000


def test_spark_gets_a_jaas_line_that_reads_back(write: Callable[[str], Path]) -> None:
    options = java_properties(SASL)
    assert options["security.protocol"] == "SASL_PLAINTEXT"
    jaas = options["sasl.jaas.config"]
    assert jaas == f'{SCRAM} required username="u\\"1" password="p\\\\1";'
    escaped = jaas.replace("\\", "\\\\")
    back = load_client_properties(
        write(f"bootstrap.servers=b:1\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config={escaped}\n")
    )
    assert (back["sasl.username"], back["sasl.password"]) == ('u"1', "p\\1")


def test_spark_gets_pem_files(tmp_path: Path) -> None:
    (tmp_path / "me.pem").write_text("CERT")
    key = "-----BEGIN PRIVATE KEY-----\nKEY\n-----END PRIVATE KEY-----\n"
    (tmp_path / "me.key").write_text(key)
    (tmp_path / "ca.pem").write_text("CA")
    base = {"bootstrap.servers": "b:1", "security.protocol": "SSL", "ssl.ca.location": str(tmp_path / "ca.pem")}
    options = java_properties(
        {
            **base,
            "ssl.certificate.location": str(tmp_path / "me.pem"),
            "ssl.key.location": str(tmp_path / "me.key"),
        }
    )
    assert options["ssl.truststore.type"] == "PEM"
    assert options["ssl.truststore.certificates"] == "CA"
    assert options["ssl.keystore.certificate.chain"] == "CERT"
    assert options["ssl.keystore.key"] == key
    with pytest.raises(SpecError, match=r"ssl\.key\.location"):
        java_properties({**base, "ssl.certificate.pem": "CERT", "ssl.key.location": str(tmp_path / "none")})
    with pytest.raises(SpecError, match="has no counterpart"):
        java_properties({**base, "enable.ssl.certificate.verification": "false"})


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
@pytest.mark.parametrize("password", [None, "hush"])
def test_spark_gets_an_unlocked_key_in_the_one_form_that_java_reads(form: PrivateFormat, password: str | None) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    lock = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    config = {
        "bootstrap.servers": "b:1",
        "security.protocol": "SSL",
        "ssl.certificate.pem": "CERT",
        "ssl.key.pem": key.private_bytes(Encoding.PEM, form, lock).decode(),
        "ssl.key.password": password or "not needed",
    }
    options = java_properties(config)
    wanted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    assert options["ssl.keystore.key"] == wanted and "ssl.key.password" not in options
    for change in {"ssl.key.password": "wrong"} if password else {}, {"ssl.key.pem": "KEY"}:
        if change:
            with pytest.raises(SpecError, match=r"ssl\.key: no private key") as caught:
                java_properties({**config, **change})
            assert "wrong" not in str(caught.value)


def test_java_gets_the_port_that_the_other_clients_take_by_themselves() -> None:
    servers = client_config("one, two:9093,[::1],SASL_SSL://three,ssl://[::1]:7")["bootstrap.servers"]
    wanted = "one:9092,two:9093,[::1]:9092,SASL_SSL://three:9092,ssl://[::1]:7"
    assert java_properties({"bootstrap.servers": servers})["bootstrap.servers"] == wanted


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ("", r"no sasl\.mechanism"),
        ("sasl.mechanism=PLAIN", r"no sasl\.username and no sasl\.password"),
        ("sasl.mechanism=SCRAM-SHA-512\nsasl.username=u", r"no sasl\.password"),
        ("sasl.mechanism=SCRAM-SHA-256\nsasl.password=hush", r"no sasl\.username"),
    ],
)
def test_what_a_log_in_lacks_is_named(write: Callable[[str], Path], given: str, missing: str) -> None:
    with pytest.raises(SpecError, match=missing) as raised:
        load_client_properties(write(f"bootstrap.servers=b:1\nsecurity.protocol=SASL_PLAINTEXT\n{given}\n"))
    assert "Add it" in str(raised.value) and "hush" not in str(raised.value)


def test_oauth_needs_client_credentials_for_every_client() -> None:
    with pytest.raises(SpecError, match=r"sasl\.oauthbearer\.method=oidc"):
        kafka_python_config({**SASL, "sasl.mechanism": "OAUTHBEARER"})


class Tokens(http.server.BaseHTTPRequestHandler):
    """A token endpoint that knows one client."""

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        good = "client_id=topicshift" in form and "client_secret=hush" in form
        body = json.dumps({"access_token": "t-1", "expires_in": 300} if good else {"error": "invalid_client"}).encode()
        self.send_response(200 if good else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Tokens)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/token"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_token_is_fetched_with_client_credentials(endpoint: str) -> None:
    config = {
        **SASL,
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": endpoint,
        "sasl.oauthbearer.client.id": "topicshift",
        "sasl.oauthbearer.client.secret": "hush",
    }
    assert kafka_python_config(config)["sasl_oauth_token_provider"].token() == "t-1"
    with pytest.raises(AccessDenied) as caught:
        python_client.fetch_token({**config, "sasl.oauthbearer.client.secret": "wrong-one"}, 5)
    assert "401" in str(caught.value)
    assert "wrong-one" not in str(caught.value)
    with pytest.raises(Unreadable):
        python_client.fetch_token({**config, "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:9/"}, 5)


# ------------------------------------------------------------------------------------------------ errors and bounds


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("TOPIC_AUTHORIZATION_FAILED", AccessDenied),
        ("GROUP_AUTHORIZATION_FAILED", AccessDenied),
        ("CLUSTER_AUTHORIZATION_FAILED", AccessDenied),
        ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", AccessDenied),
        ("SASL_AUTHENTICATION_FAILED", AccessDenied),
        ("UNKNOWN_TOPIC_OR_PART", NotFound),
        ("GROUP_ID_NOT_FOUND", NotFound),
        ("TOPIC_ALREADY_EXISTS", Refused),
        ("NON_EMPTY_GROUP", Refused),
        ("NOT_LEADER_FOR_PARTITION", Transient),
        ("_TIMED_OUT", Transient),
        ("_NOENT", Unreadable),
        ("COORDINATOR_LOAD_IN_PROGRESS", Transient),
        ("SOMETHING_NEW", Unreadable),
    ],
)
def test_each_kafka_error_says_what_the_world_looks_like(code: str, kind: type[TopicshiftError]) -> None:
    error = typed_error(
        code, "text", operation="DESCRIBE", resource="topic payments", bootstrap="b:9092", principal="User:orch"
    )
    assert type(error) is kind
    assert "payments" in str(error) or "b:9092" in str(error)
    if kind is Transient:
        assert "security.protocol" in str(error), "what to look at is said"
    if code.endswith("AUTHORIZATION_FAILED"):
        assert "Grant DESCRIBE on topic payments" in str(error)
        assert "User:orch" in str(error)


def test_a_dead_address_fails_in_time_and_names_it() -> None:
    connection = Connection({"bootstrap.servers": "127.0.0.1:9"}, timeout_s=0.5)
    began = time.monotonic()
    future = connection.native.describe_cluster(request_timeout=connection.timeout_s)
    with pytest.raises(Unreadable) as caught:
        connection.result(future, operation="DESCRIBE", resource="the cluster")
    assert "127.0.0.1:9" in str(caught.value)
    with warnings.catch_warnings(record=True) as left:
        warnings.simplefilter("always", ResourceWarning)
        with pytest.raises(Unreadable, match=r"127\.0\.0\.1:9"):
            _ = connection.kafka_python
        gc.collect()
    assert not [str(w.message) for w in left if "127.0.0.1" in str(w.message) or "0.0.0.0" in str(w.message)]
    assert time.monotonic() - began < 30  # far below the minute, however slow the machine
    connection.close()
    connection.close()


def test_a_call_that_hangs_is_given_up() -> None:
    connection = Connection({"bootstrap.servers": "127.0.0.1:9"}, timeout_s=0.2)
    connection._said = None
    gate = threading.Event()
    with pytest.raises(Unreadable, match=r"no answer from 127\.0\.0\.1:9"):
        connection.bounded(lambda: gate.wait(60), operation="READ", resource="topic payments")
    gate.set()
    connection.close()


def test_the_password_is_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, logger="kafka")
    connection = Connection(
        {**SASL, "bootstrap.servers": "127.0.0.1:9", "sasl.mechanism": "PLAIN", "sasl.password": "hush-hush"}, 0.2
    )
    with pytest.raises(Unreadable):
        _ = connection.kafka_python
    assert "hush-hush" not in caplog.text
    assert "hush-hush" not in repr(connection)
    connection.close()
