"""Manifests for Kubernetes: a Deployment for each program, a Service for HTTP, a Job that migrates."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from redrive.ops.deploy.programs import IN_IMAGE, Program
from redrive.ops.deploy.yaml_text import documents

USER = 10001
SECRET = "redrive"  # noqa: S105 (the name of the one that holds them)
HEAD = """\
# Written by redrive deploy kubernetes from the settings; write it again after they have changed.
# {image}
#   kubectl create secret generic {secret} {literals}
#   redrive deploy kubernetes --image registry/shop:1.2 | kubectl apply -f -
# The secret may have more, such as REDRIVE_METRICS_TOKEN, REDRIVE_ALERT_WEBHOOK or SENTRY_DSN: programs get all of it.
# Programs are started again until the Job has migrated the store. redrive-http listens on all addresses, so it starts
# only when there are tokens:
#   kubectl exec deploy/{first} -- redrive tokens create ann --role admin
"""
Document = dict[str, Any]


def kubernetes(programs: Sequence[Program], image: str, environment: Mapping[str, str], secrets: Sequence[str]) -> str:
    """Returns the manifests. ``secrets``: the variables of the environment that have URLs of stores, or keys."""
    literals = " ".join(f"--from-literal={name}={_example(name)}" for name in secrets)
    head = HEAD.format(image=IN_IMAGE, secret=SECRET, literals=literals, first=programs[0].name)
    found: list[Document] = [_migration(image, environment)]
    for program in programs:
        found.append(_deployment(program, image, environment))
        if program.port is not None:
            found.append(_service(program))
    return head + documents(*found)


def _example(variable: str) -> str:
    return "postgresql://…" if variable.endswith("URL") else "…"


def _deployment(program: Program, image: str, environment: Mapping[str, str]) -> Document:
    labels = _labels(program.name)
    scraped = {"prometheus.io/scrape": "true", "prometheus.io/port": str(program.probed)}
    pod = _pod(_container(program, image, environment)) | {"terminationGracePeriodSeconds": program.stop_wait}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": program.name, "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app.kubernetes.io/name": program.name}},
            # The new one is at work before the old one is asked to stop.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": {"metadata": {"labels": labels, "annotations": scraped}, "spec": pod},
        },
    }


def _pod(container: Document) -> Document:
    """Returns the common part of a pod: no root, nothing of the cluster's, and nothing to write to but ``/tmp``."""
    return {
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }


def _container(program: Program, image: str, environment: Mapping[str, str]) -> Document:
    extra = ["--metrics-port", str(program.metrics_port), "--metrics-host", "0.0.0.0"]  # noqa: S104
    if program.metrics_port is None:
        extra = ["--host", "0.0.0.0", "--port", str(program.port)]  # noqa: S104
    named = {"name": "TASK_WORKER_ID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    found = _plain(image, [*program.arguments, *extra], environment)
    found["env"].append(named)
    found["ports"] = [{"name": "http" if program.port else "metrics", "containerPort": program.probed}]
    # It may take its time to import an application; from then on it has to answer.
    found["startupProbe"] = _probe("/healthz", program, periodSeconds=2, failureThreshold=60)
    found["livenessProbe"] = _probe("/healthz", program, periodSeconds=10, timeoutSeconds=5, failureThreshold=6)
    found["readinessProbe"] = _probe("/readyz", program, periodSeconds=5, timeoutSeconds=5, failureThreshold=2)
    if program.port is not None:
        # Until everybody knows that no more requests are to be sent here. Workers need none: nobody sends them any.
        found["lifecycle"] = {"preStop": {"exec": {"command": ["sleep", "5"]}}}
    found["resources"] = {
        "requests": {"cpu": f"{100 * program.processes}m", "memory": f"{128 * program.processes}Mi"},
        "limits": {"memory": f"{512 * program.processes}Mi"},
    }
    return found


def _plain(image: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Document:
    return {
        "name": "redrive",
        "image": image,
        "command": ["redrive"],
        "args": list(arguments),
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "envFrom": [{"secretRef": {"name": SECRET}}],
        "securityContext": {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 (the pod's own)
    }


def _migration(image: str, environment: Mapping[str, str]) -> Document:
    # A Job cannot be changed: one for each image, so that the next can be applied while the last is still there.
    name = f"redrive-migrate-{hashlib.sha256(image.encode()).hexdigest()[:8]}"
    labels = _labels("redrive-migrate")
    pod = _pod(_plain(image, ["migrate"], environment)) | {"restartPolicy": "OnFailure"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "backoffLimit": 10,
            "ttlSecondsAfterFinished": 600,
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _service(program: Program) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": program.name, "labels": _labels(program.name)},
        "spec": {
            "selector": {"app.kubernetes.io/name": program.name},
            "ports": [{"name": "http", "port": 80, "targetPort": "http"}],
        },
    }


def _probe(path: str, program: Program, **times: int) -> Document:
    return {"httpGet": {"path": path, "port": "http" if program.port else "metrics"}, **times}


def _labels(name: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "redrive"}
