"""Ids of Flink jobs and savepoints that can be computed again, so that a request that is repeated is the same. Pure."""

from __future__ import annotations

import hashlib

_M = 0xFFFFFFFFFFFFFFFF
_HALF = 16


def _hex(*words: object) -> str:
    return hashlib.sha256("/".join(map(str, words)).encode()).hexdigest()


def family(migration: str, participant: str, topic: str) -> str:
    """What the id of every job begins with that a migration starts for a participant on a topic."""
    return _hex("job", migration, participant, topic)[:_HALF]


def job_id(begins: str, savepoint: str, number: int) -> str:
    """The id of the job of a family that goes on from a savepoint, at the try of this number."""
    return begins + _hex("from", savepoint, number)[:_HALF]


def trigger_id(job: str, number: int) -> str:
    """The id of the savepoint of this number, counted from 0, with which a job is stopped."""
    return _hex("stop", job, number)[: 2 * _HALF]


def vertex_id(uid: str) -> str:
    """The id of the vertex whose first operator has this uid: MurmurHash3 (128 bits, x64, seed 0), as Flink has it."""
    data = uid.encode()
    h1 = h2 = 0
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        k1, k2 = (int.from_bytes(data[at + i : at + i + 8], "little") for i in (0, 8))
        h1 = (_left(h1 ^ _k1(k1), 27) + h2) * 5 + 0x52DCE729 & _M
        h2 = (_left(h2 ^ _k2(k2), 31) + h1) * 5 + 0x38495AB5 & _M
    rest = data[whole:]
    h2 ^= _k2(int.from_bytes(rest[8:], "little"))
    h1 ^= _k1(int.from_bytes(rest[:8], "little"))
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = h1 + h2 & _M
    h2 = h1 + h2 & _M
    h1, h2 = _mixed(h1), _mixed(h2)
    h1 = h1 + h2 & _M
    h2 = h1 + h2 & _M
    return (h1.to_bytes(8, "little") + h2.to_bytes(8, "little")).hex()


_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


def _left(x: int, by: int) -> int:
    return (x << by | x >> 64 - by) & _M


def _k1(k: int) -> int:
    return _left(k * _C1 & _M, 31) * _C2 & _M


def _k2(k: int) -> int:
    return _left(k * _C2 & _M, 33) * _C1 & _M


def _mixed(k: int) -> int:
    k = (k ^ k >> 33) * 0xFF51AFD7ED558CCD & _M
    k = (k ^ k >> 33) * 0xC4CEB9FE1A85EC53 & _M
    return k ^ k >> 33
