package frames

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/moby/spdystream/spdy"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var ended = &metav1.Status{Status: metav1.StatusFailure, Message: "ended"}

// opened are the frames by which a user opens streams, with odd numbers.
func opened(t testing.TB, types ...string) []byte {
	t.Helper()
	var all bytes.Buffer
	framer, err := spdy.NewFramer(&all, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, kind := range types {
		syn := &spdy.SynStreamFrame{StreamId: spdy.StreamId(2*i + 1), Headers: http.Header{"streamtype": {kind}}}
		if err := framer.WriteFrame(syn); err != nil {
			t.Fatal(err)
		}
	}
	return all.Bytes()
}

func data(id uint32, flags byte, payload string) []byte {
	all := binary.BigEndian.AppendUint32(nil, id)
	all = binary.BigEndian.AppendUint32(all, uint32(flags)<<24|uint32(len(payload)))
	return append(all, payload...)
}

// masked is a message of a user.
func masked(payload []byte) []byte {
	plain := appendFrame(nil, opBinary, payload)
	header := len(plain) - len(payload)
	mask := []byte{1, 2, 3, 4}
	all := append(bytes.Clone(plain[:header]), mask...)
	all[1] |= bitMask
	for i, b := range payload {
		all = append(all, b^mask[i%4])
	}
	return all
}

func answer(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

// TestFarewell has connections of each protocol, in pieces of each size.
func TestFarewell(t *testing.T) {
	status := `{"metadata":{},"status":"Failure","message":"ended"}`
	streams := opened(t, "error", "stdin", "stdout")
	for name, tc := range map[string]struct {
		header           http.Header
		command          bool
		fromUser, toUser []byte
		want             string
	}{
		"SPDY": {answer("Upgrade", "SPDY/3.1", "X-Stream-Protocol-Version", "v4.channel.k8s.io"), true, streams, data(5, 0, "hello"),
			string(data(1, 1, status)) + string(data(3, 1, "")) + string(data(5, 1, ""))},
		"SPDY, an old version": {answer("Upgrade", "SPDY/3.1", "X-Stream-Protocol-Version", "v3.channel.k8s.io"), true, streams, data(5, flagFin, "hello"),
			string(data(1, 1, "ended")) + string(data(3, 1, ""))},
		"SPDY, errors have ended": {answer("Upgrade", "SPDY/3.1", "X-Stream-Protocol-Version", "v4.channel.k8s.io"), true, streams, data(1, flagFin, status),
			string(data(3, 1, "")) + string(data(5, 1, ""))},
		"SPDY, all have ended": {answer("Upgrade", "SPDY/3.1", "X-Stream-Protocol-Version", "v4.channel.k8s.io"), true, streams,
			slices.Concat(data(1, flagFin, status), data(3, flagFin, ""), data(5, flagFin, "")), ""},
		"WebSocket": {answer("Upgrade", "websocket", "Sec-Websocket-Protocol", "v5.channel.k8s.io"), true, masked([]byte("\x00ls")), appendFrame(nil, opBinary, []byte("\x01"), make([]byte, 70000)),
			string(appendFrame(nil, opBinary, []byte("\x03"+status))) + "\x88\x02\x03\xe8"},
		"WebSocket, text": {answer("Upgrade", "websocket", "Sec-Websocket-Protocol", "base64.channel.k8s.io"), true, nil, appendFrame(nil, opText, []byte("1aGk=")),
			string(appendFrame(nil, opText, []byte("3ZW5kZWQ="))) + "\x88\x02\x03\xe8"},
		"WebSocket of something else": {answer("Upgrade", "websocket"), false, nil, appendFrame(nil, opText, []byte("hi")), "\x88\x07\x03\xf0ended"},
		"tunnel": {answer("Upgrade", "websocket", "Sec-Websocket-Protocol", "SPDY/3.1+portforward.k8s.io"), false, masked(streams), appendFrame(nil, opBinary, data(5, 0, "hello")),
			string(appendFrame(nil, opBinary, data(1, 1, "ended"), data(3, 1, ""), data(5, 1, ""))) + "\x88\x02\x03\xe8"},
		"another protocol": {answer("Upgrade", "h2c"), false, []byte("x"), []byte("y"), ""},
	} {
		for _, size := range []int{1, 2, 3, 7, 1 << 20} {
			f := New(tc.header, tc.command)
			each(tc.fromUser, size, f.FromUser)
			between := 0
			each(tc.toUser, size, func(p []byte) {
				for len(p) > 0 {
					if _, ok := f.Until(nil); ok {
						between++
					}
					n, _ := f.Until(p)
					if n == 0 {
						n = min(1, len(p))
						f.ToUser(p[:n])
					}
					p = p[n:]
				}
			})
			if _, ok := f.Until(nil); !ok || f.web != nil && between != 1 {
				t.Errorf("%s by %d: whole at the end %t, and %d times before", name, size, ok, between)
			}
			if got, ok := f.Farewell(ended); string(got) != tc.want || ok != (name != "another protocol") {
				t.Errorf("%s by %d: got\n%q %t, want\n%q", name, size, got, ok, tc.want)
			}
		}
	}
}

func each(all []byte, size int, do func([]byte)) {
	for len(all) > 0 {
		n := min(size, len(all))
		do(all[:n])
		all = all[n:]
	}
}

// TestEvilFrames has frames that cannot be understood. Nothing is kept of them.
func TestEvilFrames(t *testing.T) {
	spdy31 := answer("Upgrade", "SPDY/3.1")
	huge := opened(t, "error")
	huge[5] = 0xff
	many := opened(t, strings.Split(strings.Repeat("error,", maxStreams+1), ",")...)
	bomb := opened(t, strings.Repeat("x", 1<<20))
	twice := append(opened(t, "error"), opened(t, "error")...)
	for name, frames := range map[string][]byte{
		"absurd length": append(huge, make([]byte, 1<<20)...), "many streams": many, "long headers": bomb, "one stream twice": twice,
		"another version": {0x80, 2, 0, 1, 0, 0, 0, 0}, "no headers": {0x80, 3, 0, 1, 0, 0, 0, 0}, "garbage": append([]byte{0x80, 3, 0, 1, 0, 0, 0, 20}, make([]byte, 20)...),
	} {
		f := New(spdy31, true)
		f.FromUser(frames)
		if got, ok := f.Farewell(ended); ok {
			t.Errorf("%s: got the farewell %q, want none", name, got)
		}
		if kept := cap(f.spdy.fromUser.kept) + f.spdy.unread.Cap(); kept > 8*maxControl {
			t.Errorf("%s: %d bytes are kept", name, kept)
		}
	}
	f := New(answer("Upgrade", "websocket", "Sec-Websocket-Protocol", "v5.channel.k8s.io"), true)
	f.ToUser([]byte{0x82, 127, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	if _, ok := f.Until(make([]byte, 1<<20)); ok {
		t.Error("a frame without end has ended")
	}
}

// FuzzFollower has any bytes, in any pieces: it ends, and what it writes are whole frames.
func FuzzFollower(f *testing.F) {
	f.Add(byte(0), opened(f, "error", "stdout"), data(3, 0, "hello"), 3)
	f.Add(byte(1), masked([]byte("x")), appendFrame(nil, opBinary, []byte("x")), 1)
	f.Add(byte(2), masked(opened(f, "error")), appendFrame(nil, opBinary, data(1, 0, "x")), 100)
	f.Fuzz(func(t *testing.T, kind byte, fromUser, toUser []byte, size int) {
		header := []http.Header{answer("Upgrade", "SPDY/3.1"), answer("Upgrade", "websocket", "Sec-Websocket-Protocol", "v5.channel.k8s.io"),
			answer("Upgrade", "websocket", "Sec-Websocket-Protocol", "SPDY/3.1+portforward.k8s.io")}[kind%3]
		follower := New(header, true)
		size = max(1, min(size, 1<<20))
		each(fromUser, size, follower.FromUser)
		each(toUser, size, follower.ToUser)
		if n, _ := follower.Until(toUser); n > len(toUser) {
			t.Errorf("followed %d of %d bytes", n, len(toUser))
		}
		if kind%3 != 0 {
			return
		}
		last, _ := follower.Farewell(ended)
		framer, err := spdy.NewFramer(io.Discard, bytes.NewReader(last))
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = framer.ReadFrame()
		}
		if err != io.EOF {
			t.Errorf("the farewell is no frames: %v", err)
		}
	})
}
