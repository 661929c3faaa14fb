package carrier

import (
	"bytes"
	"encoding/hex"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func FuzzFrame(f *testing.F) {
	f.Add(controlFrame(FrameHello, Hello{Version: 1, Session: "s", Features: []string{"a"}}.append))
	f.Add(controlFrame(FrameOpen, request.append))
	f.Add(controlFrame(FrameReset, (&Error{Code: CutOff, Message: "m"}).append))
	f.Add(controlFrame(FrameControl, Control{Kind: 64, Number: 2}.append))
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
			again, err := decodeOpen(r.append(nil))
			if diff := cmp.Diff(r, again); err != nil || diff != "" {
				t.Errorf("OPEN does not survive: %v %s", err, diff)
			}
		}
		if m, err := decodeControl(payload); err == nil {
			if again, err := decodeControl(m.append(nil)); err != nil || again != m {
				t.Errorf("CONTROL does not survive: %+v, %v; want %+v", again, err, m)
			}
		}
		_, _ = decodeHello(payload)
		_, _ = decodeEndpoints(payload)
		_, _ = decodeError(payload, true)
	})
}

func TestControlPayloadsSurvive(t *testing.T) {
	r := OpenRequest{Network: "tcp", Address: "c:443", Timeout: 15 * time.Second, Hops: 1, Via: "s"}
	got, err := decodeOpen(r.append(nil))
	if diff := cmp.Diff(r, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

func TestHeadersAreDecodedWithoutAllocation(t *testing.T) {
	b := AppendHeader(nil, FrameData, MaxData)
	if n := testing.AllocsPerRun(100, func() { _, _, _ = ParseHeader(b) }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// TestExamplesOfTheSpecification keeps the bytes in spec.md true.
func TestExamplesOfTheSpecification(t *testing.T) {
	spec, err := os.ReadFile("spec.md")
	if err != nil {
		t.Fatal(err)
	}
	_, examples, _ := strings.Cut(string(spec), "## Example\n\n")
	open := controlFrame(FrameOpen, OpenRequest{Network: "tcp", Address: "c1:443", Timeout: 15 * time.Second}.append)
	want := [][]byte{
		controlFrame(FrameHello, Hello{Version: 1, Session: "s"}.append),
		open,
		controlFrame(FrameRefuse, (&Error{Code: Denied, Message: "no"}).append),
		open,
		AppendHeader(nil, FrameAccept, 0),
		append(AppendHeader(nil, FrameData, 2), "hi"...),
		AppendHeader(nil, FrameFin, 0),
		AppendHeader(nil, FrameFin, 0),
		controlFrame(FrameReset, (&Error{Code: CutOff}).append),
		controlFrame(FrameControl, Control{Kind: 64, Number: 2}.append),
	}
	lines := strings.Split(strings.TrimSpace(examples), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d examples, want %d", len(lines), len(want))
	}
	for i, line := range lines {
		text, _, _ := strings.Cut(line, strings.Fields(line)[firstWord(line)])
		got, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
		if err != nil || !bytes.Equal(got, want[i]) {
			t.Errorf("line %q: %v, want %x", line, err, want[i])
		}
	}
}

// firstWord is the index of the first field that is not hex.
func firstWord(line string) int {
	for i, f := range strings.Fields(line) {
		if f == strings.ToUpper(f) && f != strings.ToLower(f) {
			return i
		}
	}
	return len(strings.Fields(line))
}
