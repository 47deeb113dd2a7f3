"""A real Kubernetes control plane on this machine: etcd, kube-apiserver and kube-controller-manager; pods by a kubelet.

The programs are found through ``KUBEBUILDER_ASSETS``: a folder with ``etcd``, ``kube-apiserver`` and
``kube-controller-manager``, plain or as ``.xz``.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import secrets
import shutil
import ssl
import tempfile
import time
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from lab.certificates import Authority
from lab.ports_free import claim, is_free, release
from lab.process import GuardedProcess
from lab.runfolder import write_private
from topicshift.adapters.rest import Ask, Endpoint, asker

VARIABLE = "KUBEBUILDER_ASSETS"
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager")
CONTROLLERS = (
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "namespace-controller",
    "garbage-collector-controller",
    "horizontal-pod-autoscaler-controller",
)
_STARTS_S = 180.0


def programs(cache: Path) -> dict[str, Path]:
    """Where the three programs are; packed ones are unpacked into ``cache`` once.

    Raises:
        RuntimeError: the variable is not set, or a program is missing.
    """
    folder = os.environ.get(VARIABLE, "")
    if not folder:
        raise RuntimeError(
            f"{VARIABLE} is not set. It names a folder with {', '.join(PROGRAMS)} for this machine, as the tests of "
            "Kubernetes controllers use it (setup-envtest brings one; kube-controller-manager is in Kubernetes' own "
            "release)."
        )
    return {name: _program(Path(folder), name, cache) for name in PROGRAMS}


def _program(folder: Path, name: str, cache: Path) -> Path:
    plain, packed = folder / name, folder / f"{name}.xz"
    if plain.exists():
        return plain
    if not packed.exists():
        raise RuntimeError(f"{VARIABLE} names {folder}, and there is no {name} there, plain or as .xz")
    stat = packed.stat()
    mark = hashlib.sha256(f"{packed.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()[:12]
    made = cache / f"{name}-{mark}"
    if not made.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=cache, delete=False) as out, lzma.open(packed) as source:
            shutil.copyfileobj(source, out, 1 << 20)
        Path(out.name).chmod(0o755)
        Path(out.name).rename(made)
    return made


class ControlPlane:
    """A control plane of its own, with RBAC, over TLS. ``start`` returns once its API answers.

    Args:
        folder: keeps its data, logs, certificates and tokens.
        cache: takes the unpacked programs, for the next one.
        users: users without any right, beside ``admin``, who has all.
    """

    def __init__(self, folder: Path, cache: Path, users: Sequence[str] = ()) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._programs = programs(cache)
        self._ports = claim(4)
        self.url = f"https://127.0.0.1:{self._ports[2]}"
        self._authority = Authority(folder / "certificates")
        self._tokens = {name: secrets.token_urlsafe(24) for name in ("admin", *users)}
        lines = [f"{t},{n},{n}{',system:masters' if n == 'admin' else ''}" for n, t in self._tokens.items()]
        write_private(folder / "tokens.csv", "\n".join(lines) + "\n")
        self._children: list[GuardedProcess] = []

    def kubeconfig(self, name: str = "admin") -> Path:
        """A kubeconfig file, of mode 0600, for a user."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "lab",
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": name}}],
            "clusters": [
                {
                    "name": "lab",
                    "cluster": {"server": self.url, "certificate-authority": str(self._authority.ca)},
                }
            ],
            "users": [{"name": name, "user": {"token": self._tokens[name]}}],
        }
        return write_private(self.folder / f"{name}.kubeconfig", yaml.safe_dump(config))

    def endpoint(self, name: str = "admin") -> Endpoint:
        """Where it answers a user."""
        ca = str(self._authority.ca)
        return Endpoint(self.url, password=self._tokens[name], trust=lambda: ssl.create_default_context(cafile=ca))

    def ask(self, name: str = "admin") -> Ask:
        """What asks it as a user."""
        return asker(self.endpoint(name))

    # ------------------------------------------------------------------------------------------------ life

    def start(self) -> ControlPlane:
        """Start what does not run.

        Raises:
            RuntimeError: one of them ended, or did not answer in time.
        """
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def _start(self) -> None:
        store, peer, api, manager = self._ports
        certificate, key = self._authority.issue("kube-apiserver", server=True)
        public, private = self._signing_keys()
        etcd = f"http://127.0.0.1:{store}"
        self._run(
            "etcd",
            data_dir=self.folder / "etcd",
            listen_client_urls=etcd,
            advertise_client_urls=etcd,
            listen_peer_urls=f"http://127.0.0.1:{peer}",
            unsafe_no_fsync=True,
        )
        self._run(
            "kube-apiserver",
            etcd_servers=etcd,
            secure_port=api,
            bind_address="127.0.0.1",
            tls_cert_file=certificate,
            tls_private_key_file=key,
            token_auth_file=self.folder / "tokens.csv",
            authorization_mode="RBAC",
            service_account_key_file=public,
            service_account_signing_key_file=private,
            service_account_issuer="https://kubernetes.default.svc",
            service_cluster_ip_range="10.0.0.0/24",
            disable_admission_plugins="ServiceAccount",
        )
        self._wait(self._ready, "the API server answers")
        config = self.kubeconfig()
        self._run(
            "kube-controller-manager",
            kubeconfig=config,
            authentication_kubeconfig=config,
            authorization_kubeconfig=config,
            service_account_private_key_file=private,
            use_service_account_credentials=False,
            secure_port=manager,
            bind_address="127.0.0.1",
            cert_dir=self.folder / "manager",
            leader_elect=False,
            controllers=",".join(CONTROLLERS),
            horizontal_pod_autoscaler_sync_period="1s",
        )
        self._wait(lambda: not is_free(manager), "the controllers run")

    def _signing_keys(self) -> tuple[Path, Path]:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = serialization.Encoding.PEM
        private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()
        public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo).decode()
        return write_private(self.folder / "sa.pub", public), write_private(self.folder / "sa.key", private)

    def _run(self, name: str, **options: Any) -> None:
        words = [f"--{k.replace('_', '-')}={str(v).lower() if isinstance(v, bool) else v}" for k, v in options.items()]
        child = GuardedProcess(name, [str(self._programs[name]), *words], log=self.folder / f"{name}.log")
        self._children.append(child.start())

    def _ready(self) -> bool:
        """Whether the API server says that all of it is ready: its controllers end where they have to wait too long."""
        found = self.endpoint()
        request = Request(f"{self.url}/readyz", headers=found.headers())  # noqa: S310
        try:
            with urlopen(request, timeout=5, context=found.trust() if found.trust else None) as answer:  # noqa: S310
                return bool(answer.status == 200)
        except (OSError, HTTPException):
            return False

    def _wait(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _STARTS_S
        while not holds():
            ended = [c for c in self._children if not c.alive]
            if ended or time.monotonic() > deadline:
                late = ended[0] if ended else self._children[-1]
                raise RuntimeError(f"not in {_STARTS_S:g} s: {what}. {late.name} said:\n{late.tail()}")
            time.sleep(0.1)

    def kill(self, name: str) -> None:
        """One of the programs dies."""
        next(c for c in self._children if c.name == name).kill()

    def revive(self, name: str) -> None:
        """One that died starts again with what it has on disk."""
        next(c for c in self._children if c.name == name).start()
        self._wait(self._ready, "the API server answers again")

    def stop(self) -> None:
        """End everything; the API server would take a minute to end in order."""
        for child in reversed(self._children):
            child.kill()
        self._children.clear()
        release(self._ports)

    def __enter__(self) -> ControlPlane:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
