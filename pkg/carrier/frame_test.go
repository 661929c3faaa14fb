package carrier

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func FuzzFrame(f *testing.F) {
	f.Add(appendFrame(nil, FrameHello, Hello{Version: 1, Session: "s", Features: []string{"a"}}.encode()))
	f.Add(appendFrame(nil, FrameOpen, request.encode()))
	f.Add(appendFrame(nil, FrameReset, (&Error{Code: CutOff, Message: "m"}).encode()))
	f.Add(AppendHeader(nil, FrameFin, 0))
	f.Add([]byte{5, 1, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, n, err := ParseHeader(b)
		if err != nil {
			return
		}
		if !bytes.Equal(AppendHeader(nil, kind, n), b[:HeaderSize]) {
			t.Errorf("header %x does not survive", b[:HeaderSize])
		}
		payload := b[HeaderSize:]
		if r, err := decodeOpen(payload); err == nil {
			again, err := decodeOpen(r.encode())
			if diff := cmp.Diff(r, again); err != nil || diff != "" {
				t.Errorf("OPEN does not survive: %v %s", err, diff)
			}
		}
		_, _ = decodeHello(payload)
		_, _ = decodeEndpoints(payload)
		_, _ = decodeError(payload, true)
	})
}

func TestControlPayloadsSurvive(t *testing.T) {
	r := OpenRequest{Network: "tcp", Address: "c:443", Timeout: 15 * time.Second, Hops: 1, TraceID: "t"}
	got, err := decodeOpen(r.encode())
	if diff := cmp.Diff(r, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

func TestHeadersAreDecodedWithoutAllocation(t *testing.T) {
	b := AppendHeader(nil, FrameData, MaxData)
	if n := testing.AllocsPerRun(100, func() { _, _, _ = ParseHeader(b) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
