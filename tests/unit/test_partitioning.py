"""The partitioner rules against independent implementations: librdkafka, kafka-python, and Java's definitions."""

from __future__ import annotations

import random
import zlib

import confluent_kafka
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from topicshift.core.impact import partitioning as P  # noqa: N812

COUNTS = (1, 2, 3, 7, 12, 24, 25, 30, 1000)


def corpus() -> list[bytes]:
    """Every length from 0 to 40, bytes of every value, text beyond ASCII, a long key."""
    rng = random.Random(11)
    keys = [rng.randbytes(length) for length in range(41) for _ in range(12)]
    keys += [f"clé-ß-日本-𝄞-{i}".encode() for i in range(40)]
    keys += [bytes([b]) * n for b in (0, 127, 128, 255) for n in (1, 2, 3, 4, 5)]
    return [*keys, b"", b"\x00", b"customer-1", rng.randbytes(1_027)]


def vectorised(keys: list[bytes], hashes: tuple[str, ...] = P.HASHES) -> P.KeyHashes:
    data = np.frombuffer(b"".join(keys), np.uint8)
    return P.hash_keys(data, np.cumsum([0, *map(len, keys)]), hashes)


@pytest.mark.parametrize("n", COUNTS)
def test_murmur2_consistent_and_fnv1a_agree_with_librdkafka(n: int) -> None:
    for key in corpus():
        assert P.partition_of("murmur2", key, n) == confluent_kafka.murmur2(key, n)
        assert P.partition_of("consistent", key, n) == confluent_kafka.consistent(key, n)
        assert P.partition_of("fnv1a", key, n) == confluent_kafka.fnv1a(key, n)


def test_murmur2_agrees_with_kafka_python() -> None:
    for key in corpus():
        assert P.murmur2(key) == kafka_python_murmur2(key) & 0xFFFFFFFF


@pytest.mark.parametrize("n", COUNTS)
def test_vectorised_equals_scalar_for_every_rule(n: int) -> None:
    keys = corpus()
    random.Random(5).shuffle(keys)
    hashes = vectorised(keys)
    for rule in P.RULES:
        expected = [P.partition_of(rule.name, key, n) for key in keys]
        assert hashes.place(rule, n).tolist() == [-1 if e is None else e for e in expected], rule.name


def test_equal_lengths_and_more_keys_than_a_chunk() -> None:
    keys = [b"customer-%07d" % i for i in range(70_000)]
    hashes = vectorised(keys)
    for i in (0, 1, 65_535, 65_536, 69_999):
        assert hashes.values["murmur2"][i] == P.murmur2(keys[i])
        assert hashes.values["java_string"][i] == P.java_string_hash(keys[i])
        assert hashes.values["crc32"][i] == zlib.crc32(keys[i])


def test_a_very_long_key_beside_short_ones() -> None:
    keys = [b"short", random.Random(2).randbytes(50_003), b""]
    hashes = vectorised(keys, ("murmur2", "java_bytes"))
    assert hashes.place(P.RULE["murmur2"], 25).tolist() == [confluent_kafka.murmur2(k, 25) for k in keys]
    assert hashes.values["java_bytes"].tolist() == [P.java_bytes_hash(k) for k in keys]


def test_no_keys_at_all() -> None:
    hashes = vectorised([])
    assert all(hashes.place(rule, 12).shape == (0,) for rule in P.RULES)


@given(st.lists(st.binary(max_size=40), max_size=60), st.integers(1, 400))
def test_vectorised_equals_librdkafka_for_any_keys(keys: list[bytes], n: int) -> None:
    hashes = vectorised(keys, ("murmur2", "crc32", "fnv1a"))
    assert hashes.place(P.RULE["murmur2"], n).tolist() == [confluent_kafka.murmur2(k, n) for k in keys]
    assert hashes.place(P.RULE["consistent"], n).tolist() == [confluent_kafka.consistent(k, n) for k in keys]
    assert hashes.place(P.RULE["fnv1a"], n).tolist() == [confluent_kafka.fnv1a(k, n) for k in keys]


@given(st.integers(0, 2**32 - 1), st.integers(1, 10_000))
def test_sign_rules_by_their_definitions(value: int, n: int) -> None:
    signed = value - 2**32 if value >= 2**31 else value
    place = {sign: P.place(P.Rule("x", "murmur2", sign, ()), value, n) for sign in ("mask", "abs", "unsigned", "floor")}
    assert place["mask"] == (signed & 0x7FFFFFFF) % n
    assert place["unsigned"] == value % n
    assert place["floor"] == signed % n
    truncated = abs(signed) % n * (1 if signed >= 0 else -1)  # the remainder of Go, C and Java
    assert place["abs"] == abs(truncated)


def test_negative_hashes_are_in_the_corpus_and_set_the_rules_apart() -> None:
    keys = [k for k in corpus() if P.murmur2(k) >> 31]
    assert len(keys) > 50
    assert any(P.partition_of("murmur2", k, 12) != P.partition_of("murmur2_abs", k, 12) for k in keys)
    assert any(P.partition_of("murmur2", k, 12) != P.partition_of("murmur2_unsigned", k, 12) for k in keys)


def test_powers_of_two_cannot_tell_mask_from_unsigned() -> None:
    assert all(P.partition_of("murmur2", k, 16) == P.partition_of("murmur2_unsigned", k, 16) for k in corpus())


def test_java_string_hash_is_the_polynomial_over_utf16() -> None:
    assert P.java_string_hash(b"hello") == 99162322  # "hello".hashCode() in any JVM
    assert P.java_string_hash("𝄞".encode()) == 0xD834 * 31 + 0xDD1E
    assert P.java_string_hash(b"\xff\xfe") is None
    assert P.partition_of("java_hashcode_mask", b"\xff\xfe", 12) is None


def test_java_bytes_hash_takes_signed_bytes() -> None:
    assert P.java_bytes_hash(b"") == 1
    assert P.java_bytes_hash(b"\x01\x02") == (31 + 1) * 31 + 2
    assert P.java_bytes_hash(b"\xff") == 30


def test_wrong_use_is_refused() -> None:
    with pytest.raises(KeyError):
        P.partition_of("no such rule", b"k", 3)
    with pytest.raises(ValueError, match="at least 1 partition"):
        P.partition_of("murmur2", b"k", 0)


@pytest.mark.parametrize(
    ("n", "m", "parents", "same"),
    [(12, 24, 1, 0.5), (12, 30, 2, 0.2), (12, 25, 12, 0.04), (12, 3, 4, 0.25), (6, 6, 1, 1.0)],
)
def test_parents_and_the_expected_share_of_keys_that_stay(n: int, m: int, parents: int, same: float) -> None:
    assert P.parents_of(n, m) == parents
    assert P.expected_same_index(n, m) == pytest.approx(same)
    period = range(n * m)
    fed_by: dict[int, set[int]] = {}
    for h in period:
        fed_by.setdefault(h % m, set()).add(h % n)
    assert max(map(len, fed_by.values())) == parents
    assert sum(h % n == h % m for h in period) / (n * m) == pytest.approx(same)
