package frames

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/moby/spdystream/spdy"
)

// observed follows both directions in pieces of a size, and returns what was seen.
func observed(header http.Header, fromUser, toUser []byte, size int) (text map[Stream]string, lost []error) {
	f := New(header, true)
	all := map[Stream][]byte{}
	f.Observe(func(s Stream, p []byte) { all[s] = append(all[s], p...) }, func(err error) { lost = append(lost, err) })
	each(fromUser, size, f.FromUser)
	each(toUser, size, f.ToUser)
	text = map[Stream]string{}
	for s, p := range all {
		text[s] = string(p)
	}
	return text, lost
}

// frame is one of a server, of which the first byte is given.
func frame(first byte, payload string) []byte {
	all := appendFrame(nil, opBinary, []byte(payload))
	all[0] = first
	return all
}

// reply is a SYN_REPLY with headers.
func reply(t *testing.T, of []byte, headers http.Header) []byte {
	t.Helper()
	var all bytes.Buffer
	framer, err := spdy.NewFramer(&all, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := framer.WriteFrame(&spdy.SynReplyFrame{StreamId: 2, Headers: headers}); err != nil {
		t.Fatal(err)
	}
	return append(all.Bytes(), of...)
}

// TestObserve has payload of each protocol, in pieces of each size.
func TestObserve(t *testing.T) {
	binary := strings.Repeat("\x00\xff\xfe\x01 text", 9000)
	v4, v5 := answer("Upgrade", "SPDY/3.1", "X-Stream-Protocol-Version", "v4.channel.k8s.io"), answer("Upgrade", "websocket", "Sec-Websocket-Protocol", "v5.channel.k8s.io")
	text := answer("Upgrade", "websocket", "Sec-Websocket-Protocol", "v4.base64.channel.k8s.io")
	streams := opened(t, "error", "stdin", "stdout", "stderr", "resize") // 1, 3, 5, 7, 9
	encoded := base64.StdEncoding.EncodeToString([]byte(binary))
	for name, tc := range map[string]struct {
		header           http.Header
		fromUser, toUser []byte
		want             map[Stream]string
		lost             error
	}{
		"SPDY": {header: v4, fromUser: slices.Concat(streams, data(3, 0, "ls\n"), data(9, 0, `{"Width":80,"Height":24}`)), toUser: slices.Concat(data(5, 0, binary), data(7, 0, "no"), data(5, flagFin, "more"), data(1, flagFin, "failed")),
			want: map[Stream]string{Stdin: "ls\n", Resize: `{"Width":80,"Height":24}`, Stdout: binary + "more", Stderr: "no", Errors: "failed"}},
		"SPDY, a stream is reset": {header: v4, fromUser: slices.Concat(streams, []byte{0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, 5, 0, 0, 0, 5}), toUser: data(5, 0, "seen"), want: map[Stream]string{Stdout: "seen"}},
		"SPDY, a foreign stream":  {header: v4, fromUser: streams, toUser: data(11, 0, "what"), want: map[Stream]string{}, lost: errForeign},
		"SPDY, a reply of the user first": {header: v4, fromUser: reply(t, streams, http.Header{"Streamtype": {"stdin"}}), toUser: data(5, 0, "out"),
			want: map[Stream]string{}, lost: errSPDY}, // two compressions in one connection are none
		"WebSocket": {header: v5, fromUser: slices.Concat(masked([]byte("\x00ls\n")), masked([]byte("\xff\x00")), masked([]byte("\x04{}"))), toUser: slices.Concat(frame(0x82, "\x01"+binary), frame(0x82, "\x02no"), frame(0x89, "ping"), frame(0x82, "\x03failed"), frame(0x88, "\x03\xe8")),
			want: map[Stream]string{Stdin: "ls\n", Resize: "{}", Stdout: binary, Stderr: "no", Errors: "failed"}},
		"WebSocket, a message in frames": {header: v5, toUser: slices.Concat(frame(0x02, ""), frame(0x00, "\x01a"), frame(0x89, "\x02ping"), frame(0x00, "b"), frame(0x80, "c"), frame(0x82, "\x02d")),
			want: map[Stream]string{Stdout: "abc", Stderr: "d"}},
		"WebSocket, base64": {header: text, fromUser: masked([]byte("0bHM=")), toUser: slices.Concat(appendFrame(nil, opText, []byte("1"), []byte(encoded)), appendFrame(nil, opText, []byte("2bm8="))),
			want: map[Stream]string{Stdin: "ls", Stdout: binary, Stderr: "no"}},
		"WebSocket, no base64":             {header: text, toUser: appendFrame(nil, opText, []byte("1bm8!")), want: map[Stream]string{}, lost: errBase64},
		"WebSocket, compressed":            {header: v5, toUser: slices.Concat(frame(0x82, "\x01a"), frame(0xc2, "\x01b"), frame(0x82, "\x01c")), want: map[Stream]string{Stdout: "a"}, lost: errWebSocket},
		"WebSocket, unknown kind":          {header: v5, toUser: frame(0x83, "\x01b"), want: map[Stream]string{}, lost: errWebSocket},
		"WebSocket, no beginning":          {header: v5, toUser: frame(0x80, "\x01b"), want: map[Stream]string{}, lost: errWebSocket},
		"WebSocket, absurd length":         {header: v5, toUser: append([]byte{0x82, 127, 0xff, 0, 0, 0, 0, 0, 0, 0}, 1, 'x'), want: map[Stream]string{}, lost: errWebSocket},
		"WebSocket, a long frame":          {header: v5, toUser: append([]byte{0x82, 127, 0x7f, 0, 0, 0, 0, 0, 0, 0}, 1, 'x'), want: map[Stream]string{Stdout: "x"}},
		"SPDY, output that the user makes": {header: v4, fromUser: slices.Concat(streams, data(5, 0, "$ ls\n")), toUser: data(5, 0, "out"), want: map[Stream]string{Stdout: "out"}, lost: errDirection},
		"SPDY, input that the cluster makes": {header: v4, fromUser: slices.Concat(streams, data(3, 0, "ls\n")), toUser: slices.Concat(data(5, 0, "out"), data(3, 0, "rm\n")),
			want: map[Stream]string{Stdin: "ls\n", Stdout: "out"}, lost: errDirection},
		"SPDY, a size that the cluster makes":     {header: v4, fromUser: streams, toUser: data(9, 0, `{"Width":1,"Height":1}`), want: map[Stream]string{}, lost: errDirection},
		"SPDY, an error that the user makes":      {header: v4, fromUser: slices.Concat(streams, data(1, 0, "x")), want: map[Stream]string{}, lost: errDirection},
		"SPDY, an end of output by the user":      {header: v4, fromUser: slices.Concat(streams, data(5, flagFin, "")), toUser: data(5, 0, "out"), want: map[Stream]string{Stdout: "out"}},
		"WebSocket, output that the user makes":   {header: v5, fromUser: masked([]byte("\x01$ ls\n")), toUser: frame(0x82, "\x01out"), want: map[Stream]string{Stdout: "out"}, lost: errDirection},
		"WebSocket, errors that the user makes":   {header: v5, fromUser: slices.Concat(masked([]byte("\x02a")), masked([]byte("\x03b"))), want: map[Stream]string{}, lost: errDirection},
		"WebSocket, input that the cluster makes": {header: v5, toUser: slices.Concat(frame(0x82, "\x01out"), frame(0x82, "\x00rm\n")), want: map[Stream]string{Stdout: "out"}, lost: errDirection},
		"WebSocket, base64 that the user makes":   {header: text, fromUser: masked([]byte("1bHM=")), want: map[Stream]string{}, lost: errDirection},
		"WebSocket, an empty message first":       {header: v5, toUser: slices.Concat(frame(0x82, "\x00"), frame(0x82, "\x01out")), want: map[Stream]string{Stdout: "out"}}, // wsstream begins so
		"another protocol":                        {header: answer("Upgrade", "h2c"), toUser: []byte("x"), want: map[Stream]string{}, lost: errProtocol},
	} {
		for _, size := range []int{1, 3, 4096, 1 << 20} {
			got, lost := observed(tc.header, tc.fromUser, tc.toUser, size)
			for s := range Resize + 1 {
				if got[s] != tc.want[s] {
					t.Errorf("%s by %d: channel %d has %d bytes %.60q, want %d %.60q", name, size, s, len(got[s]), got[s], len(tc.want[s]), tc.want[s])
				}
			}
			if tc.lost == nil && len(lost) > 0 || tc.lost != nil && (len(lost) != 1 || lost[0] != tc.lost) {
				t.Errorf("%s by %d: lost %v, want %v", name, size, lost, tc.lost)
			}
		}
	}
}

// TestObserveLimits has a user who opens streams without end: they are not remembered.
func TestObserveLimits(t *testing.T) {
	many := opened(t, slices.Repeat([]string{"stdout"}, maxStreams+10)...)
	_, lost := observed(answer("Upgrade", "SPDY/3.1"), many, nil, 100)
	if len(lost) != 1 || lost[0] != errSPDY {
		t.Errorf("lost %v, want %v", lost, errSPDY)
	}
}
