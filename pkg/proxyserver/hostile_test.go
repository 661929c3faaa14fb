package proxyserver

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// TestUnauthenticatedPortsNameNoCluster reads what agents reach on a proxy
// server's pod in PortForward mode: the ports that ask for no certificate. In the other modes, in which the
// addon manager sets --cluster-metrics, agents do not reach them.
func TestUnauthenticatedPortsNameNoCluster(t *testing.T) {
	h := startHub(t)
	h.mustConnect(t, agentSpec{cluster: "confidential"})
	conn, err := h.dial(t, h.clientTLS(t), "confidential:443")
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, conn, "x", "confidential:x")
	for _, port := range []net.Addr{h.Addrs().Health, h.Addrs().Admin} {
		for _, path := range []string{"/metrics", "/readyz?verbose", "/debug/pprof/goroutine?debug=2"} {
			code, body := scrapePort(t, port, path)
			if code == http.StatusOK && strings.Contains(path, "pprof") {
				t.Errorf("%s serves profiles that it was not asked for", port)
			}
			if strings.Contains(body, "confidential") {
				t.Errorf("%s on %s names a cluster:\n%s", path, port, body)
			}
		}
	}
	_ = conn.Close()
}

func TestClientsNeedARole(t *testing.T) {
	h := startHub(t)
	h.mustConnect(t, agentSpec{cluster: "cluster1"})
	for _, commonName := range []string{"localhost", "open-cluster-management:cluster-proxy:client2", identity.AgentCommonName("cluster1")} {
		if conn, err := h.dial(t, h.tlsFor(t, h.hubCA, commonName), "cluster1:443"); err == nil {
			t.Errorf("%q may dial", commonName)
			_ = conn.Close()
		}
	}
	for _, role := range []identity.Role{identity.RoleClient, identity.RoleProxyAPI, identity.RolePeer} {
		conn, err := h.dial(t, h.tlsFor(t, h.hubCA, string(role)), "cluster1:443")
		if err != nil {
			t.Errorf("%q may not dial: %v", role, err)
			continue
		}
		_ = conn.Close()
	}
	if _, body := h.scrape(t, "/metrics"); !strings.Contains(body, `cluster_proxy_server_clients_rejected_total{reason="role"} 3`) {
		t.Error("rejections are not counted")
	}
}

func TestClustersNeverMix(t *testing.T) {
	h := startHub(t)
	clusters := []string{"cluster1", "cluster2", "1.cluster"}
	for _, cluster := range clusters { // all with one agent ID
		h.mustConnect(t, agentSpec{cluster: cluster})
	}
	// A reconnection whose first session lingers.
	h.mustConnect(t, agentSpec{cluster: "cluster1"})
	config := h.clientTLS(t)
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			cluster := clusters[i%len(clusters)]
			conn, err := h.dial(t, config, identity.HandlerHost(cluster)+":7443")
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			for j := range 5 {
				text := fmt.Sprint(i, "-", j)
				if _, err := conn.Write([]byte(text)); err != nil {
					t.Error(err)
				}
				buffer := make([]byte, 64)
				if n, err := conn.Read(buffer); err != nil || string(buffer[:n]) != cluster+":"+text {
					t.Errorf("%s answered %q, %v; want %q", cluster, buffer[:n], err, cluster+":"+text)
				}
			}
		})
	}
	wg.Wait()
}

// rawClient opens a client's stream without the client library.
func (h *testHub) rawClient(t *testing.T) client.ProxyService_ProxyClient {
	t.Helper()
	conn, err := grpc.NewClient(h.clientAddr, grpc.WithTransportCredentials(credentials.NewTLS(h.clientTLS(t))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	stream, err := client.NewProxyServiceClient(conn).Proxy(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func dialPacket(address string, random int64) *client.Packet {
	return &client.Packet{Type: client.PacketType_DIAL_REQ, Payload: &client.Packet_DialRequest{
		DialRequest: &client.DialRequest{Protocol: "tcp", Address: address, Random: random}}}
}
