package rawhttp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// ClientConn sends requests over conn, which has agreed on HTTP/2, or does with its first byte.
func ClientConn(ctx context.Context, conn net.Conn) (*http.ClientConn, error) {
	transport := &http.Transport{
		Protocols:   new(http.Protocols),
		DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil },
	}
	transport.Protocols.SetUnencryptedHTTP2(true) // it need not know of the encryption
	return transport.NewClientConn(ctx, "http", "peer:80")
}

// Fields are header fields of HTTP/2 in their order, as name and value in turn.
type Fields []string

// HTTP2 sends a request with just these header fields, body and trailer over conn,
// which has agreed on HTTP/2, and returns the answer's status, or 0 if the other
// side reset the stream or ended the connection.
func HTTP2(conn net.Conn, fields Fields, body string, trailer Fields) (int, error) {
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return 0, err
	}
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	headers := func(fields Fields, end bool) error {
		block.Reset()
		for i := 0; i+1 < len(fields); i += 2 {
			if err := encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
				return err
			}
		}
		// In two frames, so that the block is one of several.
		raw, half := block.Bytes(), block.Len()/2
		if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: raw[:half], EndStream: end}); err != nil {
			return err
		}
		return framer.WriteContinuation(1, true, raw[half:])
	}
	err := framer.WriteSettings()
	if err == nil {
		err = headers(fields, false)
	}
	if err == nil {
		err = framer.WriteData(1, len(trailer) == 0, []byte(body))
	}
	if err == nil && len(trailer) > 0 {
		err = headers(trailer, true)
	}
	if err != nil {
		return 0, nil // it was refused meanwhile
	}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return 0, nil
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			code, err := strconv.Atoi(frame.PseudoValue("status"))
			if err != nil {
				return 0, fmt.Errorf("status %q", frame.PseudoValue("status"))
			}
			if code >= 200 {
				return code, nil
			}
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return 0, nil
		}
	}
}

// Forgeries returns requests of HTTP/2 with a forged header, by the way in which
// they forge it: in every place, and in every spelling that some server may take
// for it. Each begins with head, the fields of the request without the header.
func Forgeries(head Fields, name, value string) map[string][2]Fields {
	with := func(fields ...string) [2]Fields { return [2]Fields{append(append(Fields{}, head...), fields...), nil} }
	lower := strings.ToLower(name)
	return map[string][2]Fields{
		"as it is":                with(lower, value),
		"in upper case":           with(strings.ToUpper(name), value),
		"as HTTP/1.1 spells it":   with(name, value),
		"with underscores":        with(strings.ReplaceAll(lower, "-", "_"), value),
		"with one underscore":     with(strings.Replace(lower, "-", "_", 1), value),
		"twice":                   with(lower, "nobody", lower, value),
		"twice, two ways":         with(strings.ReplaceAll(lower, "-", "_"), "nobody", lower, value),
		"as a pseudo-header":      with(":"+lower, value),
		"before pseudo-headers":   {append(Fields{lower, value}, head...), nil},
		"blank behind the name":   with(lower+" ", value),
		"blank before the name":   with(" "+lower, value),
		"colon behind the name":   with(lower+":", value),
		"NUL in the name":         with(lower+"\x00", value),
		"CR LF in the name":       with("x-a: b\r\n"+lower, value),
		"CR LF in a value":        with("x-a", "b\r\n"+name+": "+value),
		"LF in a value":           with("x-a", "b\n"+name+": "+value),
		"NUL in a value":          with("x-a", "b\x00"+name+": "+value),
		"CR LF in the path":       with(":path", "/ HTTP/1.1\r\n"+name+": "+value),
		"CR LF in the method":     with(":method", "GET / HTTP/1.1\r\n"+name+": "+value+"\r\nX-A:"),
		"second path":             with(":path", "/other"),
		"second authority":        with(":authority", "other"),
		"host besides":            with("host", "other", lower, value),
		"listed in connection":    with("connection", lower, lower, value),
		"with transfer-encoding":  with("transfer-encoding", "chunked", lower, value),
		"with a wrong length":     with("content-length", "1", lower, value),
		"in crumbs of cookies":    with("cookie", "a=b", "cookie", name+"="+value),
		"in a trailer":            {head, Fields{lower, value}},
		"in a declared trailer":   {append(append(Fields{}, head...), "trailer", name), Fields{lower, value}},
		"pseudo in a trailer":     {head, Fields{":path", "/other", lower, value}},
		"upper case in a trailer": {head, Fields{strings.ToUpper(name), value}},
	}
}
