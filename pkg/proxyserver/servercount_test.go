package proxyserver

import (
	"os"
	"path/filepath"
	"testing"

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
	old := h.mustConnectControl(t, agentSpec{cluster: "cluster1", id: "old"})
	if got := old.Peer().Servers; got != 2 {
		t.Errorf("an agent is told of %d servers, want 2", got)
	}
	write("3\n")
	if got, want := <-old.got, agentapi.ControlMessage(agentapi.ServerCount, 3); got != want {
		t.Errorf("the agent was told %+v, want %+v", got, want)
	}
	if got := h.mustConnectControl(t, agentSpec{cluster: "cluster1", id: "new"}).Peer().Servers; got != 3 {
		t.Errorf("the next agent is told of %d servers, want 3", got)
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
