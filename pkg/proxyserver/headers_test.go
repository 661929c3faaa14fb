package proxyserver

import (
	"strings"
	"testing"
)

// TestLongHeaders sends with a stream, of which one cluster may have hundreds, more than an
// agent has to say. The server would keep it for as long as the stream.
func TestLongHeaders(t *testing.T) {
	h := startHub(t)
	if _, err := h.connectAgent(t, agentSpec{cluster: "evil", process: strings.Repeat("x", 1<<20)}); err == nil {
		t.Error("a stream with a header of 1 MiB was admitted")
	}
	h.mustConnect(t, agentSpec{cluster: "cluster1", process: strings.Repeat("x", 1<<10)})
}
