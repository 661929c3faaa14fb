package proxyserver

import (
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/apiserver-network-proxy/proto/header"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
)

func TestServerCountChanges(t *testing.T) {
	file := filepath.Join(t.TempDir(), "server-count")
	write := func(count string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(count), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("2")
	h := startHub(t, func(o *Options) { o.ServerCountFile = file })
	counted := func(a *fakeAgent) string {
		t.Helper()
		received, err := a.stream.Header()
		if err != nil || len(received.Get(header.ServerCount)) != 1 {
			t.Fatalf("the header is %v, %v, want it once", received, err)
		}
		return received.Get(header.ServerCount)[0]
	}
	old := h.carrierAgent(t, agentSpec{cluster: "cluster1", id: "old", manual: true}, 1)
	if got := counted(old); got != "2" {
		t.Errorf("an agent is told of %s servers, want 2", got)
	}
	write("3\n")
	packet := <-old.seen
	if packet.Type != agentapi.ServerCount || packet.GetData().GetConnectID() != 3 {
		t.Errorf("the agent got %v, want the new number", packet)
	}
	if got := counted(h.mustConnect(t, agentSpec{cluster: "cluster1", id: "new"})); got != "3" {
		t.Errorf("the next agent is told of %s servers, want 3", got)
	}
}

func TestServerCountFileMustHoldANumber(t *testing.T) {
	file := filepath.Join(t.TempDir(), "server-count")
	for _, content := range []string{"", "0", "-1", "two"} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		count := serverCount{file: file}
		count.n.Store(5)
		if changed, err := count.load(); err == nil || changed || count.get() != 5 {
			t.Errorf("%q: %t, %v, %d; want an error and what was known", content, changed, err, count.get())
		}
	}
}
