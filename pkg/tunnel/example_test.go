package tunnel_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"log"
	"net/http/httptest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
)

func Example() {
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

func pemOf(server *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}
