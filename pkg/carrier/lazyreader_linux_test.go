package carrier

import (
	"io"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/test/testkit/transport"
)

// TestSilentConnectionsHoldNoBuffers lets connections carry big frames both ways,
// and weighs them when they are silent.
func TestSilentConnectionsHoldNoBuffers(t *testing.T) {
	const n, size = 16, 3 * MaxFrame
	address := listen(t, echo) // in the kernel, without a buffer
	data := make([]byte, size)
	before := weigh()
	for range n {
		client, _ := chain(t, transport.TCP, relayTo(address))
		cn := mustOpen(t, client)
		defer cn.Close()
		wrote := make(chan error, 1)
		go func() {
			_, err := cn.Write(data)
			wrote <- err
		}()
		if _, err := io.ReadFull(cn, make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
	}
	// Four buffers of 64 KiB would be in use; four carriers have 2 KiB each. Those
	// who wrote the last bytes may not wait for more yet.
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(10 * time.Second); ; <-tick.C {
		each := (weigh() - before) / n
		if each <= 32<<10 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("a silent connection holds %d KiB in client and relays", each>>10)
		}
	}
}
