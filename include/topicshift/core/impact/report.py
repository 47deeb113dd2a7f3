"""The key-rehash impact: the model of ``impact.json``, which is a public contract (see ``docs/impact.md``).

Counts are records or keys, sizes are bytes of key and value as produced (no headers, not compressed), shares are
fractions of 1, times are ISO 8601 in UTC. Where only a sample was read, every estimated figure ``x`` carries ``x_low``
and ``x_high`` beside it, the ends of its 95 % confidence interval; they are left out where everything was read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, TypeVar

from pydantic import Field, create_model

from topicshift.core.base import Model
from topicshift.core.findings import Finding
from topicshift.core.impact.sampling import Interval

ENDS = ("low", "high")
VERSION = "topicshift/impact/v1"
"""Raised when a field changes its meaning or goes; new fields may come at any time."""


M = TypeVar("M", bound=Model)


def estimated(figures: str) -> Callable[[type[M]], type[M]]:
    """Give these fields ``x`` of a model (names between blanks) ``x_low`` and ``x_high``; null if all was read."""

    def widen(model: type[M]) -> type[M]:
        kinds: dict[str, Any] = {x: model.model_fields[x].annotation for x in figures.split()}
        ends: Any = {f"{x}_{end}": (kind | None, None) for x, kind in kinds.items() for end in ENDS}
        return create_model(model.__name__, __base__=model, __module__=model.__module__, __doc__=model.__doc__, **ends)

    return widen


def figure(
    name: str, found: Interval | Sequence[Interval] | None, *, whole: bool, integer: bool = False
) -> dict[str, Any]:
    """The field ``name`` (null, a number or a list), and its ends beside it unless everything was read.

    ``integer``: the value is rounded, its ends are rounded outwards.
    """
    if found is None:
        return {name: None}
    several = [found] if isinstance(found, Interval) else found
    if integer:
        several = [Interval(round(i.value), math.floor(i.low + 1e-9), math.ceil(i.high - 1e-9)) for i in several]
    fields = {name: [i.value for i in several]}
    if not whole:
        fields |= {f"{name}_low": [i.low for i in several], f"{name}_high": [i.high for i in several]}
    return {field: values[0] if isinstance(found, Interval) else values for field, values in fields.items()}


def ends_of(owner: Model, name: str) -> tuple[Any, Any] | None:
    """The ends of a figure of a sample; None where everything was read."""
    low, high = (getattr(owner, f"{name}_{end}", None) for end in ENDS)
    return None if low is None or high is None else (low, high)


class Kind(StrEnum):
    """What the topic holds: only keyed records, none, some of each, or no record at all."""

    KEYED = "keyed"
    UNKEYED = "unkeyed"
    MIXED = "mixed"
    EMPTY = "empty"


@estimated("records_share")
class RuleShare(Model):
    """One partitioner rule and how much of the topic it explains under the source's count.

    ``records_share``: share of the records with a non-empty key that lie where the rule puts it. ``keys_share``: the
    same over distinct (key, partition) pairs. ``by_slice``: ``records_share`` per time slice, null where a slice is
    empty. A rule that was never used still explains about 1/N by chance.
    """

    name: str
    hash: str
    sign: str
    clients: list[str]
    records_share: float
    keys_share: float
    by_slice: list[float | None]


@estimated("share")
class Writer(Model):
    """A rule at a partition count that explains records which no larger writer explains.

    ``share`` is of the records with a non-empty key. ``first_slice`` and ``last_slice`` bound the time slices it shows
    in.
    """

    name: str
    partitions: int
    share: float
    first_slice: int
    last_slice: int


@estimated("fit by_name unexplained_share")
class Partitioner(Model):
    """Which rule put these keys into these partitions.

    ``name`` is null where no single rule explains them (mixture, custom rule, no rule), or nothing could be told.
    ``fit`` is the share of the records with a non-empty key that ``name`` (or else the best rule) explains; with
    records from before an earlier in-place increase it takes the rule at the earlier counts as well, and with a count
    of the application's own the rule at that count. Null without such records.
    ``same_as`` are rules that explain exactly the same records. ``sure`` is false where few keys may agree by chance.
    """

    name: str | None
    fit: float | None
    by_name: dict[str, float]
    verdict: str
    """``single``, ``earlier_increase``, ``fixed_count``, ``mixture``, ``constant``, ``custom``, ``scattered``,
    ``one_partition`` or ``none``."""
    same_as: list[str] = Field(default=[])
    sure: bool = True
    unexplained_share: float = 0.0
    writers: list[Writer] = Field(default=[])
    earlier_counts: list[int] = Field(default=[])
    """Counts that a rule took before it took a larger one, as the topic then had so many partitions."""
    constant_partition: int | None = None
    """The partition of all that no rule explains: a client names it, whatever the key. Null if there is none."""
    rules: list[RuleShare] = Field(default=[])
    empty_keys: str = "none"
    """Where records with an empty key lie: ``none`` (there are none), ``hashed``, ``one_partition`` or ``spread``.

    They are judged apart: no figure of a rule counts them, and where they are spread no key places them, so no
    prediction counts them either."""
    empty_keys_sure: bool = True
    """False where they lie in one partition, but may be so few bursts of a client that spreads them."""
    null_keys: str = "none"
    """Where records without a key lie: ``none``, ``one_partition`` or ``spread``."""
    null_keys_sure: bool = True
    """False where they lie in one partition, but may be so few bursts of a sticky producer that this is chance."""


@estimated("records")
class Slice(Model):
    """One time slice of the topic: [start, end), keyed records in it, the rule that explains most of them."""

    start: str
    end: str
    records: int
    best: str | None
    best_share: float | None


@estimated(
    "partition_records partition_bytes keyed_partition_records "
    "max_partition_share max_keyed_partition_share imbalance gini"
)
class Source(Model):
    """The topic as it is. ``partition_records`` and the shares take every record, keyed or not; the fields of keyed
    records leave out empty keys that are spread."""

    partitions: int
    partition_records: list[int]
    partition_bytes: list[int]
    keyed_partition_records: list[int]
    max_partition_share: float | None
    max_keyed_partition_share: float | None
    hot_partitions: list[int]
    imbalance: float | None
    gini: float | None


@estimated("records bytes share bytes_share")
class TopKey(Model):
    """One of the largest keys. ``key`` is a keyed hash (HMAC-SHA-256, 16 hex digits) unless ``--show-keys`` was given.

    ``share`` and ``bytes_share`` are of the keyed records and their bytes, without empty keys that are spread.
    """

    key: str
    records: int
    bytes: int
    share: float
    bytes_share: float
    partitions: list[int]
    """Where its records lie now."""


class SchemaId(Model):
    """Keys that begin with one schema id (Confluent wire format)."""

    id: int
    keys: int
    records: int


class SchemaPrefixes(Model):
    """Keys in Confluent's wire format: their hash covers the schema id, so a new schema version moves every key."""

    keys: int
    records: int
    ids: list[SchemaId]


@estimated(
    "moved_keys moved_records relocated_records partition_records "
    "partition_bytes max_partition_share imbalance gini same_index_share"
)
class Candidate(Model):
    """What one partition count would do. Predictions take murmur2, the Java client's rule, for keyed records. Empty
    keys that are spread (``partitioner.empty_keys``) are left out, as records without a key are.

    ``moved_*``: the index under this count differs from the index under the source's count. ``relocated_records``: lie
    elsewhere today than this count puts them. ``max_partition_share`` and ``partition_records`` are of keyed records.
    ``parents_max``: how many source partitions feed one new partition at most (N / gcd(N, M)).
    ``same_index_share``: share of the distinct keys that keep their index; expected: min(N, M) / lcm(N, M).
    """

    partitions: int
    moved_keys: int
    moved_records: int
    relocated_records: int
    partition_records: list[int]
    partition_bytes: list[int]
    max_partition_share: float | None
    hot_partitions: list[int]
    imbalance: float | None
    gini: float | None
    parents_max: int
    same_index_share: float | None
    same_index_share_expected: float


@estimated("records")
class Overtaken(Model):
    """Unread records that an in-place increase to ``partitions`` would let newer records of their key overtake."""

    partitions: int
    records: int


@estimated("unread")
class GroupImpact(Model):
    """What an in-place increase right now would break for one consumer group.

    ``unread``: records at or after the group's committed offsets. ``never_committed``: partitions without a committed
    offset; they are counted from the log start, as ``auto.offset.reset=earliest`` would read them.
    """

    group: str
    unread: int
    never_committed: list[int]
    overtaken: list[Overtaken]


class InPlace(Model):
    """Whether the topic may simply be altered in place, and why."""

    allowed: bool
    reason: str


@estimated("hottest_key_share useful_partitions")
class Limits(Model):
    """The bound that the hottest key sets: its partition never has less than this share."""

    hottest_key_share: float | None
    useful_partitions: int | None
    """The first count beyond which more partitions do not lower the hottest partition: ceil(1 / hottest share)."""


class Sample(Model):
    """How a sample was drawn; see :mod:`topicshift.core.impact.sampling`."""

    fraction: float
    replicates: int
    ranges_read: int
    records_read: int
    confidence: float
    seed: int


class Measured(Model):
    """How it was measured. ``ranges[p]`` is [start, end) in offsets, of which ``offsets_read`` were read."""

    ranges: dict[int, tuple[int, int]]
    offsets_read: int
    since: str | None = None
    until: str | None = None
    isolation: str
    seconds: float
    keys_shown: bool
    keys_shown_to: str | None = None
    """The operating system's user who ran the job with ``--show-keys``; null where keys are hashed."""
    hash_key: str
    """``file`` (hashes can be compared between runs with the same key file) or ``random`` (they cannot)."""
    sample: Sample | None = None


@estimated("records keyed_records null_keys empty_keys tombstones bytes distinct_keys keys_in_several_partitions")
class Impact(Model):
    """The whole result. ``records`` counts what was there (or is estimated), empty keys are in ``keyed_records``."""

    version: str = VERSION
    topic: str
    topic_id: str
    taken_at: str
    kind: Kind
    in_place: InPlace
    records: int
    keyed_records: int
    null_keys: int
    empty_keys: int
    tombstones: int
    bytes: int
    distinct_keys: int
    keys_in_several_partitions: int
    partitioner: Partitioner
    slices: list[Slice]
    source: Source
    top_keys: list[TopKey]
    """By records, the largest first."""
    top_keys_by_bytes: list[TopKey]
    schema_prefixes: SchemaPrefixes | None = None
    limits: Limits
    candidates: list[Candidate]
    groups: list[GroupImpact] = Field(default=[])
    findings: list[Finding] = Field(default=[])
    measured: Measured

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; ends of intervals that are not there are left out, every other field is there, null or not."""
        plain: dict[str, Any] = _with_ends_beside(self.model_dump(mode="json"))
        return plain


def _with_ends_beside(value: Any) -> Any:
    if not isinstance(value, dict):
        return [_with_ends_beside(v) for v in value] if isinstance(value, list) else value
    out: dict[Any, Any] = {}
    for key, item in value.items():
        name, _, end = str(key).rpartition("_")
        if end not in ENDS or name not in value:
            out[key] = _with_ends_beside(item)
            out |= {x: value[x] for x in (f"{key}_{end}" for end in ENDS) if value.get(x) is not None}
    return out


def kind_of(records: int, keyed: int) -> Kind:
    """Keyed, unkeyed, mixed or empty."""
    if not records:
        return Kind.EMPTY
    if not keyed:
        return Kind.UNKEYED
    return Kind.KEYED if keyed == records else Kind.MIXED


def in_place(kind: Kind, *, ordered: bool = True) -> InPlace:
    """Whether the topic may be altered in place: only where no key places a record, so that no order can break.

    ``ordered`` is false where every key is empty and spread.
    """
    if kind is Kind.EMPTY:
        return InPlace(
            allowed=False,
            reason="There was no record to judge by. If its producers send keys, an increase breaks their order.",
        )
    if ordered and kind is not Kind.UNKEYED:
        return InPlace(
            allowed=False,
            reason="Records have keys: after an in-place increase a key's new records can be read before its old ones.",
        )
    what = "No record has a key" if kind is Kind.UNKEYED else "Every key is empty, and such records are spread"
    return InPlace(allowed=True, reason=f"{what}, so there is no order per key to break: increase the count in place.")
