/*
Package tunnel dials into managed clusters that only the hub's proxy server can
reach. A [Dialer] replaces the dialer of a Kubernetes client, or of anything
else that speaks TCP:

	package main

	import (
		"context"
		"fmt"
		"log"

		metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
		"k8s.io/client-go/kubernetes"
		"open-cluster-management.io/cluster-proxy/pkg/tunnel"
	)

	func main() {
		dialer, err := tunnel.FromFiles("proxy-entrypoint.open-cluster-management-addon.svc:8090",
			"/etc/tunnel/ca.crt", "/etc/tunnel/tls.crt", "/etc/tunnel/tls.key")
		if err != nil {
			log.Fatal(err)
		}
		defer dialer.Close()

		cfg := dialer.RESTConfig("cluster1")
		cfg.TLSClientConfig.CAFile = "cluster1-ca.crt" // the managed cluster's own CA
		cfg.BearerTokenFile = "cluster1-token"         // and a credential it accepts
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			log.Fatal(err)
		}
		nodes, err := client.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
		if err != nil {
			log.Fatal(err)
		}
		for _, node := range nodes.Items {
			fmt.Println(node.Name)
		}
	}

# Who authenticates whom

The Dialer and the proxy server authenticate each other by TLS certificates of
the hub CA. The inside of a connection is the caller's: RESTConfig sets TLS
up end to end between the caller and the managed kube-apiserver, and the proxy
server and the agent only see ciphertext. An address is "<cluster>:<port>", and
the agent of that cluster decides what it stands for.

# Errors

A dial fails with an [*Error], whose [Code] tells an agent that is not connected
from a destination that is refused by policy, a target that does not answer and
a proxy server that cannot be reached. errors.Is finds context.Canceled and
context.DeadlineExceeded in it, and it is a net.Error. A connection that breaks
gives an Error with code Lost, and never io.EOF.

# Connections

Connections have read and write deadlines, and addresses. Write returns when
the bytes are on their way, as with a socket. Close returns at once; what was
written before is still sent, for at most a minute.

# Transport

A connection has a carrier, which is a TLS connection of
its own to the proxy server (see package carrier): ends of each direction are
told apart, readers that stop make nobody else wait, and a pool of carriers
makes a dial one round trip.

ProxyServer may lead to several proxy servers. A dial that one of them leaves
unanswered for a second has it pinged on another carrier, whose answer does not
wait for the dial's target. One that does not answer that either is passed over
until it answers a ping, or on a new carrier, and the dial is made through another
one. A connection that is open learns within 30 s that its proxy server
is gone without a word; readers that pause are waited for without limit.

The proxy server must speak carriers. One of OCM's own cluster-proxy or of
konnectivity does not, and dials fail with code NoProxyServer: programs that must
reach such a server use konnectivity-client, which works with both.

# Files

dialer.go has the Dialer, carriers.go its carriers, error.go its errors.
*/
package tunnel
