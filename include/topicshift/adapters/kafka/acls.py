"""ACL bindings: all of them, exactly these created, exactly these deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import confluent_kafka.admin

from topicshift.adapters.kafka.connection import Connection, OfConnection
from topicshift.adapters.kafka.propagation import shows_acls, until_everywhere
from topicshift.core.errors import Refused
from topicshift.core.kafka.cluster import Acl

api: Any = confluent_kafka.admin
_NO_AUTHORIZER = "without an authorizer"
# librdkafka calls the resource type CLUSTER by its old name.
_TYPES = {"TOPIC": "TOPIC", "GROUP": "GROUP", "CLUSTER": "BROKER", "TRANSACTIONAL_ID": "TRANSACTIONAL_ID"}
_NAMES = {native: ours for ours, native in _TYPES.items()}


def _to_native(acl: Acl, cls: Any) -> Any:
    return cls(
        api.ResourceType[_TYPES[acl.resource_type]],
        acl.name,
        api.ResourcePatternType[acl.pattern],
        acl.principal,
        acl.host,
        api.AclOperation[acl.operation],
        api.AclPermissionType[acl.permission],
    )


def _from_native(binding: Any) -> Acl:
    return Acl(
        resource_type=_NAMES[binding.restype.name],
        name=binding.name,
        pattern=binding.resource_pattern_type.name,
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation.name,
        permission=binding.permission_type.name,
    )


def has_authorizer(connection: Connection) -> bool:
    """Whether the brokers enforce ACLs. Raises ``AccessDenied`` without DESCRIBE on the cluster.

    kafka-python is asked, for one kind of ACL: librdkafka 2.16 passes over the error of a DescribeAcls answer
    (SECURITY_DISABLED, CLUSTER_AUTHORIZATION_FAILED) and answers with an empty list.
    """
    from kafka.admin import (
        ACLFilter,
        ACLOperation,
        ACLPermissionType,
        ACLResourcePatternType,
        ResourcePatternFilter,
        ResourceType,
    )

    of_cluster = ResourcePatternFilter(ResourceType.CLUSTER, None, ACLResourcePatternType.ANY)
    wanted = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, of_cluster)
    try:
        connection.bounded(
            lambda: connection.kafka_python.describe_acls(wanted),
            operation="DESCRIBE",
            resource="the cluster (its ACLs)",
        )
    except Refused as exc:
        if _NO_AUTHORIZER in str(exc):
            return False
        raise
    return True


class AclsAdmin(OfConnection):
    """ACLs of one cluster over a :class:`Connection`. Raises the errors of :mod:`topicshift.core.errors`."""

    def acls(self) -> frozenset[Acl]:
        """Every ACL of topics, groups, the cluster and transactional ids; none on a cluster without authorizer.

        An operation that librdkafka does not know (TWO_PHASE_COMMIT) shows as ``UNKNOWN``.
        Raises ``AccessDenied`` without DESCRIBE on the cluster.
        """
        c = self.connection
        if not has_authorizer(c):
            return frozenset()
        futures = [
            c.native.describe_acls(
                api.AclBindingFilter(
                    api.ResourceType[native],
                    None,
                    api.ResourcePatternType.ANY,
                    None,
                    None,
                    api.AclOperation.ANY,
                    api.AclPermissionType.ANY,
                ),
                request_timeout=c.timeout_s,
            )
            for native in _NAMES
        ]
        found: set[Acl] = set()
        for future in futures:
            answer = c.result(future, operation="DESCRIBE", resource="the cluster (its ACLs)")
            found.update(_from_native(binding) for binding in answer)
        return frozenset(found)

    def create_acls(self, acls: Iterable[Acl]) -> None:
        """Create these bindings and wait until every live broker knows them; one that is there already stays.

        Raises ``Refused`` without an authorizer.
        """
        self._change(acls, self.connection.native.create_acls, api.AclBinding, there=True)

    def delete_acls(self, acls: Iterable[Acl]) -> None:
        """Delete exactly these bindings and wait until no live broker knows them; absent ones are passed over."""
        self._change(acls, self.connection.native.delete_acls, api.AclBindingFilter, there=False)

    def _change(self, acls: Iterable[Acl], change: Callable[..., Any], kind: Any, *, there: bool) -> None:
        c, acls = self.connection, set(acls)
        wanted = [_to_native(acl, kind) for acl in sorted(acls)]
        if not wanted:
            return
        done = change(wanted, request_timeout=c.timeout_s)
        for binding in wanted:
            c.result(
                done[binding],
                operation="ALTER",
                resource=f"the cluster (to {'create' if there else 'delete'} ACLs)",
            )
        self._until_everywhere(acls, there=there)

    def _until_everywhere(self, acls: set[Acl], *, there: bool) -> None:
        done, names = "creation" if there else "deletion", ", ".join(sorted({a.name for a in acls}))
        until_everywhere(
            self.connection,
            shows_acls(acls, there=there),
            what=f"The {done} of {len(acls)} ACLs of {names}",
            operation="DESCRIBE",
            resource="the cluster (its ACLs)",
        )
