package proxyserver

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

func TestAgentMayOnlyDeclareItsOwnCluster(t *testing.T) {
	h := startHub(t)
	attack := func(when string) {
		for _, identifiers := range []string{
			"host=cluster2",
			"host=cluster1&host=cluster2",
			"host=cluster2." + identity.DefaultAgentNamespace,
			"host=" + identity.HandlerHost("cluster2"),
			"host=cluster1&default-route=true",
			"ipv4=10.0.0.1",
		} {
			_, err := h.connectAgent(t, agentSpec{cluster: "cluster1", identifiers: identifiers})
			wantDenied(t, when+" "+identifiers, err)
		}
	}
	attack("before cluster2 connects:")
	h.mustConnect(t, agentSpec{cluster: "cluster2"})
	attack("after cluster2 connected:")
	conn, err := h.dial(t, h.clientTLS(t), "cluster2:443")
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, conn, "x", "cluster2:x")
	_ = conn.Close()
	if _, err := h.dial(t, h.clientTLS(t), "cluster1:443"); err == nil || !strings.Contains(err.Error(), "No agent available") {
		t.Errorf("dial to the refused agent's cluster = %v", err)
	}
	if _, body := h.scrape(t, "/metrics"); !strings.Contains(body, `cluster_proxy_server_agents_rejected_total{reason="identifiers"} 12`) {
		t.Error("rejections are not counted")
	}
}

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

func TestCertificatesOnTheWrongPort(t *testing.T) {
	h := startHub(t)
	if _, err := h.connectAgentTLS(t, agentSpec{cluster: "cluster1"}, h.clientTLS(t)); err == nil {
		t.Error("a hub client connected as an agent")
	}
	// Even the hub CA's signature under an agent's name does not help.
	if _, err := h.connectAgent(t, agentSpec{cluster: "cluster1", ca: h.hubCA}); err == nil {
		t.Error("an agent certificate of the hub CA connected")
	}
	if _, err := h.dial(t, h.tlsFor(t, h.agentCA, identity.AgentCommonName("cluster1")), "cluster1:443"); err == nil {
		t.Error("an agent dialed as a client")
	}
	if _, err := h.dial(t, h.tlsFor(t, h.agentCA, string(identity.RoleProxyAPI)), "cluster1:443"); err == nil {
		t.Error("a role signed by the agent CA dialed")
	}
	_, err := h.connectAgentTLS(t, agentSpec{cluster: "cluster1"}, h.tlsFor(t, h.agentCA, string(identity.RoleProxyAPI)))
	wantDenied(t, "the agent CA's certificate without a cluster", err)
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
	// A reconnection whose first stream lingers.
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

func TestPacketsWithoutPayloadEndTheirStreamOnly(t *testing.T) {
	h := startHub(t)
	h.mustConnect(t, agentSpec{cluster: "cluster1"})
	for number, name := range client.PacketType_name {
		packet := &client.Packet{Type: client.PacketType(number)}
		if packet.Type == client.PacketType_DRAIN {
			continue
		}
		a := h.mustConnect(t, agentSpec{cluster: "cluster2"})
		if err := a.stream.Send(packet); err != nil {
			t.Fatal(err)
		}
		<-a.gone
		eventually(t, "the agent is forgotten", func() bool { return h.backends() == 1 })
		stream := h.rawClient(t)
		if err := stream.Send(packet); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("client's %s: %v, want InvalidArgument", name, err)
		}
	}
	conn, err := h.dial(t, h.clientTLS(t), "cluster1:443")
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}

func TestClientReachesItsOwnConnectionOnly(t *testing.T) {
	h := startHub(t)
	h.mustConnect(t, agentSpec{cluster: "cluster1"})
	victim, err := h.dial(t, h.clientTLS(t), "cluster1:443") // connection 1
	if err != nil {
		t.Fatal(err)
	}
	defer victim.Close()
	for name, packet := range map[string]*client.Packet{
		"DATA":      {Type: client.PacketType_DATA, Payload: &client.Packet_Data{Data: &client.Data{ConnectID: 1, Data: []byte("evil")}}},
		"CLOSE_REQ": {Type: client.PacketType_CLOSE_REQ, Payload: &client.Packet_CloseRequest{CloseRequest: &client.CloseRequest{ConnectID: 1}}},
	} {
		stream := h.rawClient(t)
		if err := stream.Send(dialPacket("cluster1:443", 42)); err != nil {
			t.Fatal(err)
		}
		if response, err := stream.Recv(); err != nil || response.GetDialResponse().GetError() != "" {
			t.Fatal(response, err)
		}
		if err := stream.Send(packet); err != nil {
			t.Fatal(err)
		}
		_, err := stream.Recv()
		wantDenied(t, name+" for another's connection", err)
	}
	stream := h.rawClient(t)
	for range 2 {
		if err := stream.Send(dialPacket("cluster1:443", 43)); err != nil {
			t.Fatal(err)
		}
	}
	var last error
	for last == nil {
		_, last = stream.Recv()
	}
	if status.Code(last) != codes.InvalidArgument {
		t.Errorf("second dial on a stream: %v, want InvalidArgument", last)
	}
	exchange(t, victim, "x", "cluster1:x")
}

func TestAgentAnswersItsOwnDialsOnly(t *testing.T) {
	h := startHub(t)
	asked := h.mustConnect(t, agentSpec{cluster: "cluster1", manual: true})
	thief := h.mustConnect(t, agentSpec{cluster: "cluster2"})
	stream := h.rawClient(t)
	if err := stream.Send(dialPacket("cluster1:443", 42)); err != nil {
		t.Fatal(err)
	}
	<-asked.seen
	thief.accept(42, 7)
	// The thief's stream is in order: once it carried a dial, 42 was seen.
	conn, err := h.dial(t, h.clientTLS(t), "cluster2:443")
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	asked.accept(42, 9)
	response, err := stream.Recv()
	if err != nil || response.GetDialResponse().GetConnectID() != 9 {
		t.Errorf("answer %v, %v; want connection 9", response, err)
	}
}

func TestDialsGoToTheLeastLoadedAgent(t *testing.T) {
	h := startHub(t)
	agents := map[string]*fakeAgent{}
	for _, id := range []string{"a", "b", "c"} {
		agents[id] = h.mustConnect(t, agentSpec{cluster: "cluster1", id: id, name: id})
	}
	h.mustConnect(t, agentSpec{cluster: "cluster1", id: "a", name: "probe"}) // not stable
	config := h.clientTLS(t)
	for range 9 {
		conn, err := h.dial(t, config, "cluster1:443")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	for id, a := range agents {
		if got := len(a.seen); got != 3 {
			t.Errorf("agent %s got %d of 9 dials, want 3", id, got)
		}
	}
	manager := h.konnectivity.BackendManagers[0].(*balancedManager)
	manager.mu.RLock()
	defer manager.mu.RUnlock()
	for _, group := range manager.groups {
		later := onePerAgent(group, time.Now().Add(stableAfter))
		if len(group) != 4 || len(later) != 3 || later[0] != group[3] {
			t.Error("a stable reconnection does not replace the lost stream")
		}
	}
}
