"""The rules by which Kafka clients turn a key into a partition: exact, one key at a time and vectorised.

A rule is a hash of the key's bytes, and what becomes of the sign of its 32 bits before the remainder is taken:

* ``mask``: ``(h & 0x7fffffff) mod N``, Kafka's Java client;
* ``abs``: ``|h as int32| mod N``, the remainder's sign dropped, as Sarama does;
* ``unsigned``: ``h as uint32 mod N``, librdkafka's CRC32;
* ``floor``: ``Math.floorMod(h, N)``, the non-negative remainder of the signed number.

Where N is a power of two, ``mask``, ``unsigned`` and ``floor`` agree for every key and cannot be told apart.

Sources: Kafka's ``Utils.murmur2`` and ``BuiltInPartitioner.partitionForKey``; librdkafka's ``rdmurmur2.c``,
``rdfnv1a.c``, ``rdkafka_msg.c``; Sarama's ``partitioner.go``; kafka-go's ``balancer.go``; franz-go's
``partitioner.go``; the definitions of FNV-1a (32 bit) and CRC-32 (IEEE 802.3); the Java API of ``String.hashCode``
and ``Arrays.hashCode``.

numpy is imported inside the vectorised functions only, so that reading this module costs nothing.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    U32 = NDArray[np.uint32]

_U32 = 0xFFFFFFFF
_MURMUR_M, _MURMUR_SEED = 0x5BD1E995, 0x9747B28C
_FNV_PRIME, _FNV_OFFSET = 0x01000193, 0x811C9DC5
_CHUNK = 1 << 16  # keys hashed together: their state stays in the cache
_LONG, _FEW = 1024, 32  # a few keys longer than this are quicker one by one than byte by byte


# ------------------------------------------------------------------------------------------------- hashes, scalar


def murmur2(key: bytes) -> int:
    """Kafka's murmur2 as an unsigned 32-bit number (Java prints the same bits signed)."""
    length = len(key)
    h = _MURMUR_SEED ^ length & _U32
    for i in range(0, length - 3, 4):
        k = int.from_bytes(key[i : i + 4], "little") * _MURMUR_M & _U32
        k = (k ^ k >> 24) * _MURMUR_M & _U32
        h = h * _MURMUR_M & _U32 ^ k
    if length % 4:
        h = (h ^ int.from_bytes(key[length - length % 4 :], "little")) * _MURMUR_M & _U32
    h = (h ^ h >> 13) * _MURMUR_M & _U32
    return h ^ h >> 15


def crc32(key: bytes) -> int:
    """CRC-32 (IEEE), unsigned."""
    return zlib.crc32(key)


def fnv1a(key: bytes) -> int:
    """FNV-1a, 32 bit, unsigned, before any client's treatment of the sign."""
    h = _FNV_OFFSET
    for b in key:
        h = (h ^ b) * _FNV_PRIME & _U32
    return h


def java_string_hash(key: bytes) -> int | None:
    """Java's ``String.hashCode`` of the key read as UTF-8, unsigned; None where the bytes are not UTF-8."""
    try:
        units = key.decode("utf-8").encode("utf-16-le")
    except UnicodeDecodeError:
        return None
    h = 0
    for i in range(0, len(units), 2):
        h = 31 * h + int.from_bytes(units[i : i + 2], "little") & _U32
    return h


def java_bytes_hash(key: bytes) -> int:
    """Java's ``Arrays.hashCode(byte[])``, unsigned; its bytes are signed."""
    h = 1
    for b in key:
        h = 31 * h + (b - 256 if b > 127 else b) & _U32
    return h


_SCALAR = {
    "murmur2": murmur2, "crc32": crc32, "fnv1a": fnv1a, "java_string": java_string_hash, "java_bytes": java_bytes_hash,
}  # fmt: skip


# ------------------------------------------------------------------------------------------------- rules


@dataclass(frozen=True)
class Rule:
    """One rule: its name in results, hash, sign rule, and the clients that are known to use it."""

    name: str
    hash: str
    sign: str
    clients: tuple[str, ...]

    @property
    def home_made(self) -> bool:
        """Whether no Kafka client brings this rule: an application works the partition out, and often its count too."""
        return self.hash.startswith("java_")


RULES: tuple[Rule, ...] = (
    Rule("murmur2", "murmur2", "mask", (
        "Java producer (default)", "librdkafka murmur2, murmur2_random", "kafka-python", "franz-go (default)",
        "kafka-go Murmur2Balancer",
    )),
    # consistent puts empty and null keys into partition 0 (the CRC of nothing), consistent_random spreads them.
    Rule("consistent", "crc32", "unsigned", (
        "librdkafka consistent, consistent_random (default)", "kafka-go CRC32Balancer", "ruby-kafka",
        "Sarama NewConsistentCRCHashPartitioner", "franz-go SaramaHasher with CRC32",
    )),
    Rule("fnv1a", "fnv1a", "abs", (
        "Sarama NewHashPartitioner (default)", "librdkafka fnv1a, fnv1a_random", "kafka-go Hash",
        "franz-go SaramaCompatHasher",
    )),
    Rule("fnv1a_mask", "fnv1a", "mask", ("Sarama NewReferenceHashPartitioner", "kafka-go ReferenceHash")),
    Rule("fnv1a_unsigned", "fnv1a", "unsigned", ("Sarama WithHashUnsigned", "franz-go SaramaHasher with FNV-1a")),
    Rule("murmur2_abs", "murmur2", "abs", ("Sarama with a murmur2 hasher and its own sign rule",)),
    Rule("murmur2_unsigned", "murmur2", "unsigned", ("murmur2 without the mask",)),
    Rule("crc32_mask", "crc32", "mask", ("CRC32 with Java's mask",)),
    Rule("crc32_abs", "crc32", "abs", ("Sarama with a CRC32 hasher",)),
    Rule("java_hashcode_mask", "java_string", "mask", ("String.hashCode() & 0x7fffffff (Kafka 0.8)",)),
    Rule("java_hashcode_abs", "java_string", "abs", ("Math.abs(String.hashCode())",)),
    Rule("java_hashcode_floor", "java_string", "floor", ("Math.floorMod(String.hashCode(), N)",)),
    Rule("java_bytes_hashcode_mask", "java_bytes", "mask", ("Arrays.hashCode(byte[]) & 0x7fffffff",)),
    Rule("java_bytes_hashcode_abs", "java_bytes", "abs", ("Math.abs(Arrays.hashCode(byte[]))",)),
)  # fmt: skip
"""In order of how common they are: where two explain the same records, the first one is named."""

RULE: Mapping[str, Rule] = {rule.name: rule for rule in RULES}
HASHES: tuple[str, ...] = tuple(_SCALAR)
SPREADS_EMPTY_KEYS = "crc32"
"""The hash of the only client that spreads empty keys: librdkafka's ``consistent_random``. ``murmur2_random`` and
``fnv1a_random`` hash them, and so does everybody else."""


def place(rule: Rule, hash_value: int, partitions: int) -> int:
    """The partition that ``rule`` gives an unsigned 32-bit hash."""
    if rule.sign == "mask":
        return (hash_value & 0x7FFFFFFF) % partitions
    if rule.sign == "unsigned":
        return hash_value % partitions
    signed = hash_value - (1 << 32) if hash_value >> 31 else hash_value
    return abs(signed) % partitions if rule.sign == "abs" else signed % partitions


def partition_of(name: str, key: bytes, partitions: int) -> int | None:
    """The partition that the rule of this name gives the key; None where the rule has no answer (bytes that are
    no text, for a rule over text). Raises ``KeyError`` for an unknown name, ``ValueError`` for less than 1 partition.
    """
    if partitions < 1:
        raise ValueError(f"a topic has at least 1 partition, not {partitions}")
    rule = RULE[name]
    value = _SCALAR[rule.hash](key)
    return None if value is None else place(rule, value, partitions)


def parents_of(source: int, target: int) -> int:
    """How many source partitions feed one target partition at most: ``N / gcd(N, M)``."""
    return source // math.gcd(source, target)


def expected_same_index(source: int, target: int) -> float:
    """Share of evenly hashed keys whose index is the same under both counts: ``min(N, M) / lcm(N, M)``."""
    return min(source, target) / math.lcm(source, target)


# ------------------------------------------------------------------------------------------------- vectorised


@dataclass(frozen=True)
class KeyHashes:
    """Hashes of n keys: ``values[hash]`` is uint32[n]; ``no_text`` marks keys that are not UTF-8."""

    values: Mapping[str, U32]
    no_text: NDArray[np.bool_] | None = None

    def place(self, rule: Rule, partitions: int) -> NDArray[np.int32]:
        """int32[n]: the partition of every key under the rule; -1 where the rule has no answer."""
        import numpy as np

        h = self.values[rule.hash]
        if rule.sign == "mask":
            out = (h & np.uint32(0x7FFFFFFF)) % np.uint32(partitions)
        elif rule.sign == "unsigned":
            out = h % np.uint32(partitions)
        elif rule.sign == "abs":
            out = np.where(h >> np.uint32(31), ~h + np.uint32(1), h) % np.uint32(partitions)
        else:
            # numpy's remainder has the divisor's sign
            out = (h.view(np.int32) % np.int32(partitions)).view(np.uint32)
        placed = out.astype(np.int32)
        if rule.hash == "java_string" and self.no_text is not None:
            placed[self.no_text] = -1
        return placed


def hash_keys(data: Bytes, offsets: NDArray[Any], hashes: Collection[str] = HASHES) -> KeyHashes:
    """Hash n keys that lie one after another, as Arrow keeps a binary column.

    Args:
        data: uint8, the bytes of all keys.
        offsets: n + 1 integers; key i is ``data[offsets[i]:offsets[i + 1]]``.
        hashes: which of :data:`HASHES` are wanted.

    Memory is bounded by chunks of keys; time is linear in the bytes of the keys, vectorised over the keys.
    """
    import numpy as np

    offs = np.asarray(offsets, dtype=np.int64)
    n = len(offs) - 1
    wanted = set(hashes)
    values = {name: np.empty(n, np.uint32) for name in HASHES if name in wanted}
    no_text = np.zeros(n, bool) if "java_string" in wanted else None
    for low in range(0, n, _CHUNK):
        part = slice(low, min(n, low + _CHUNK))
        starts, ends = offs[part.start : part.stop], offs[part.start + 1 : part.stop + 1]
        text_free = no_text[part] if no_text is not None else None
        lengths, out = ends - starts, {k: v[part] for k, v in values.items()}
        long = np.flatnonzero(lengths > _LONG)
        if 0 < len(long) <= _FEW:
            lengths[long] = 0
        _hash_chunk(data, starts, lengths, out, text_free)
        if 0 < len(long) <= _FEW:
            for i in long.tolist():
                _hash_one(bytes(data[starts[i] : ends[i]]), i, out, text_free)
    return KeyHashes(values, no_text)


def _hash_one(key: bytes, i: int, out: Mapping[str, U32], no_text: NDArray[np.bool_] | None) -> None:
    for name, values in out.items():
        value = _SCALAR[name](key)
        values[i] = value or 0
        if value is None and no_text is not None:
            no_text[i] = True


def _hash_chunk(  # noqa: C901 - one pass over the bytes for all hashes at once
    data: Bytes,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    out: Mapping[str, U32],
    no_text: NDArray[np.bool_] | None,
) -> None:
    """Longest keys first, so that the keys that still have a byte j are a prefix of the state."""
    import numpy as np

    u32 = np.uint32
    n = len(starts)
    if n == 0:
        return
    uniform = bool((lengths == lengths[0]).all())
    order = None if uniform else np.argsort(-lengths, kind="stable")
    length = lengths if order is None else lengths[order]
    pos = starts.copy() if order is None else starts[order]
    longest = int(length[0])
    # active[j]: how many keys are longer than j bytes
    active = n - np.searchsorted(length[::-1], np.arange(longest), side="right") if longest < 1 << 22 else None
    m = u32(_MURMUR_M)
    h = u32(_MURMUR_SEED) ^ length.astype(u32)
    word = np.zeros(n, u32)
    fnv = np.full(n, _FNV_OFFSET, u32)
    crc = np.full(n, _U32, u32)
    poly = np.ones(n, u32)
    seen = np.zeros(n, np.uint8)
    table = _crc_table() if "crc32" in out else None
    polys = "java_string" in out or "java_bytes" in out
    for j in range(longest):
        a = int(active[j]) if active is not None else int(np.count_nonzero(length > j))
        byte = data[pos[:a] + j]
        b = byte.astype(u32)
        if "murmur2" in out:
            shift = j & 3
            w = word[:a]
            w |= b << u32(8 * shift)
            if shift == 3:
                w *= m
                w ^= w >> u32(24)
                w *= m
                g = h[:a]
                g *= m
                g ^= w
                w.fill(0)
        if "fnv1a" in out:
            f = fnv[:a]
            f ^= b
            f *= u32(_FNV_PRIME)
        if table is not None:
            c = crc[:a]
            c[:] = table[(c ^ b) & u32(0xFF)] ^ (c >> u32(8))
        if polys:
            p = poly[:a]
            p *= u32(31)
            p += byte.view(np.int8).astype(np.int32).view(u32)
            seen[:a] |= byte
    if "murmur2" in out:
        tail = (length & 3) != 0
        h[tail] = (h[tail] ^ word[tail]) * m
        h ^= h >> u32(13)
        h *= m
        h ^= h >> u32(15)
        _scatter(out["murmur2"], order, h)
    if "fnv1a" in out:
        _scatter(out["fnv1a"], order, fnv)
    if table is not None:
        _scatter(out["crc32"], order, ~crc)
    if "java_bytes" in out:
        _scatter(out["java_bytes"], order, poly)
    if "java_string" in out and no_text is not None:
        # For ASCII both are the same polynomial, but for Arrays.hashCode starting at 1.
        _scatter(out["java_string"], order, poly - _powers_of_31(length))
        high = np.empty(n, bool)
        _scatter(high, order, seen > 127)
        for i in np.flatnonzero(high).tolist():
            value = java_string_hash(bytes(data[starts[i] : starts[i] + lengths[i]]))
            no_text[i] = value is None
            out["java_string"][i] = value or 0


def _scatter(target: NDArray[Any], order: NDArray[Any] | None, values: NDArray[Any]) -> None:
    if order is None:
        target[:] = values
    else:
        target[order] = values


def _powers_of_31(exponents: NDArray[np.int64]) -> U32:
    """``31 ** e mod 2**32`` by squaring: keys may be a megabyte long."""
    import numpy as np

    out, base, left = np.ones(len(exponents), np.uint32), 31, exponents.copy()
    while left.any():
        out[(left & 1) == 1] *= np.uint32(base)
        base = base * base & _U32
        left >>= 1
    return out


def _crc_table() -> U32:
    import numpy as np

    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & np.uint32(1), np.uint32(0xEDB88320) ^ (table >> np.uint32(1)), table >> np.uint32(1))
    return table
