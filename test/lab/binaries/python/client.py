#!/usr/bin/python3
"""Uses Debian's Python client as its examples do, with the kubeconfig of KUBECONFIG.

Usage: client.py version|list|watch|logs|follow|exec|forward|create|patch|can-i|dynamic|delete NAMESPACE [NAME] [ARGUMENT...]

This version reads neither tls-server-name nor proxy-url of a kubeconfig. TLS_SERVER_NAME and
CLUSTER_PROXY stand for them, with what the library has for a program to set.
"""
import itertools
import os
import sys
from urllib.parse import urlsplit

import urllib3
from kubernetes import client, config, dynamic, stream, watch

what, namespace, name, *rest = sys.argv[1:] + [None] * (4 - len(sys.argv))

config.load_kube_config()
settings = client.Configuration.get_default_copy()
if os.environ.get("TLS_SERVER_NAME"):
    settings.assert_hostname = os.environ["TLS_SERVER_NAME"]
if os.environ.get("CLUSTER_PROXY"):
    proxy = urlsplit(os.environ["CLUSTER_PROXY"])
    settings.proxy = f"{proxy.scheme}://{proxy.hostname}:{proxy.port}"
    settings.proxy_headers = urllib3.make_headers(proxy_basic_auth=f"{proxy.username}:{proxy.password}")
client.Configuration.set_default(settings)
core = client.CoreV1Api()


def forward():
    """Asks the program behind a port who it is."""
    port = int(rest[0])
    forwarded = stream.portforward(core.connect_get_namespaced_pod_portforward, name, namespace, ports=str(port))
    connection = forwarded.socket(port)
    connection.setblocking(True)
    connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
    while chunk := connection.recv(4096):
        print(chunk.decode())


def main():
    if what == "version":
        print("server", client.VersionApi().get_code().git_version)
    elif what == "list":
        for pod in core.list_namespaced_pod(namespace).items:
            print(pod.metadata.name, pod.status.phase)
    elif what == "watch":
        for event in itertools.islice(watch.Watch().stream(core.list_namespaced_pod, namespace, timeout_seconds=20), 1):
            print(event["type"], event["object"].metadata.name)
    elif what == "logs":
        print(core.read_namespaced_pod_log(name, namespace, tail_lines=1))
    elif what == "follow":
        for line in itertools.islice(watch.Watch().stream(core.read_namespaced_pod_log, name, namespace, tail_lines=2), 2):
            print(line)
    elif what == "exec":
        print(stream.stream(core.connect_get_namespaced_pod_exec, name, namespace, command=rest, stdout=True, stderr=True, stdin=False, tty=False))
    elif what == "forward":
        forward()
    elif what == "create":
        made = core.create_namespaced_config_map(namespace, client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name), data={"from": "python"}))
        print("created", made.metadata.name)
    elif what == "patch":
        print("data", core.patch_namespaced_config_map(name, namespace, {"data": {"from": rest[0]}}).data["from"])
    elif what == "can-i":
        attributes = client.V1ResourceAttributes(namespace=namespace, verb="list", resource="pods")
        review = client.V1SelfSubjectAccessReview(spec=client.V1SelfSubjectAccessReviewSpec(resource_attributes=attributes))
        print("allowed", client.AuthorizationV1Api().create_self_subject_access_review(review).status.allowed)
    elif what == "dynamic":
        deployments = dynamic.DynamicClient(client.ApiClient()).resources.get(api_version="apps/v1", kind="Deployment")
        for deployment in deployments.get(namespace=namespace).items:
            print(deployment.metadata.name, deployment.spec.replicas)
    elif what == "delete":
        core.delete_namespaced_config_map(name, namespace)
        print("deleted", name)


main()
