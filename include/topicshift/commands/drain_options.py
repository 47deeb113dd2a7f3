"""The options of ``topicshift drain`` as the question that they ask."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from topicshift.core.errors import SpecError

if TYPE_CHECKING:
    from topicshift.acts.drain_inputs import DrainInputs
    from topicshift.core.drain.evidence import ReaderEvidence
    from topicshift.core.fence.point import FencePoint


def inputs_of_options(
    topic: str | None,
    groups: Sequence[str],
    spec_file: Path | None,
    accept_lost: Sequence[str],
    ignore_group: Sequence[str],
    evidence_files: Sequence[Path],
    checkpoints: Sequence[str],
    connectors: Sequence[str],
) -> DrainInputs:
    """What the words of the command ask about. Raises ``SpecError`` where they do not go together."""
    from topicshift.acts.drain_inputs import DrainInputs

    if topic is not None and not topic.strip():
        raise SpecError("--topic is empty. Name the topic.")
    if any(not g.strip() for g in groups):
        raise SpecError("--group is empty. Name the group.")
    declared_readers: list[dict[str, str]] = []
    ignored = dict(_pair(text, "--ignore-group", "GROUP=REASON") for text in ignore_group)
    folders = dict(_pair(text, "--spark-checkpoint", "NAME=FOLDER") for text in checkpoints)
    workers = dict(_pair(text, "--connector", "NAME=URL") for text in connectors)
    if spec_file is None:
        if topic is None:
            raise SpecError("No topic was named. Give --topic T, or --spec SPEC.")
        inputs = DrainInputs(topic, declared=tuple(dict.fromkeys(groups)) or None, compare=not groups)
    else:
        from topicshift.core.spec.io import load_spec

        if groups:
            raise SpecError("--group and --spec exclude each other: the spec names the groups. Leave one of them out.")
        spec = load_spec(spec_file)
        if topic is not None and topic != spec.source:
            raise SpecError(
                f"--topic {topic} is not the spec's source ({spec.source}). Leave --topic out, or name the right spec."
            )
        inputs = DrainInputs.from_spec(spec)
        declared_readers = [r.model_dump(mode="json") for r in spec.readers_of()]
    both = sorted(set(ignored) & set(inputs.declared or ()))
    if both:
        raise SpecError(f"{', '.join(both)} is to be certified and to be ignored. Leave one of the two out.")
    readers = declared_readers + [{"name": n, "kind": "spark_checkpoint", "location": f} for n, f in folders.items()]
    readers += [{"name": n, "kind": "connect", "location": url} for n, url in workers.items()]
    evidence = _evidence_source(inputs.topic, evidence_files, readers)
    return DrainInputs(
        topic=inputs.topic,
        declared=inputs.declared,
        compare=inputs.compare,
        ignored={**inputs.ignored, **ignored},
        accepted_lost=inputs.accepted_lost | frozenset(accept_lost),
        evidence=evidence,
    )


def _pair(text: str, option: str, form: str) -> tuple[str, str]:
    left, equals, right = text.partition("=")
    if not equals or not left.strip() or not right.strip():
        raise SpecError(f"{option} {text!r} is not of the form {form}. Write both sides.")
    return left.strip(), right.strip()


def _evidence_source(
    topic: str, files: Sequence[Path], readers: Sequence[Mapping[str, str]]
) -> Callable[[], list[ReaderEvidence]] | None:
    """Reads files and checkpoint folders anew each time: while waiting, they change."""
    if not files and not readers:
        return None
    from topicshift.adapters.readers import evidence_source
    from topicshift.core.drain.evidence import parse_evidence

    declared = evidence_source(readers, topic)

    def read_files() -> list[ReaderEvidence]:
        return [e for f in files for e in parse_evidence(_text(f, "--evidence"), name=str(f))]

    read_files()  # a malformed file is wrong use, and shows before anything is asked of the cluster
    return lambda: read_files() + (declared() if declared is not None else [])


def _text(file: Path, option: str) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8 text"
        raise SpecError(f"{option} {file} cannot be read: {why}. Give the path of a readable file.") from None


def fence_of_file(file: Path, topic: str) -> FencePoint:
    """The fence that certificates are to be taken up to, from ``fence.json``."""
    from topicshift.core.fence.point import FencePoint

    return FencePoint.read(_text(file, "--fence"), where=f"--fence {file}", topic=topic)
