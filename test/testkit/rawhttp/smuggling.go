package rawhttp

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Smuggled is part of the target of the request that the corpus hides behind, or
// in, another one.
const Smuggled = "smuggled"

// Request is what a server made of a part of a connection's bytes.
type Request struct{ URI, Body string }

// Smuggling returns connections' bytes by what is odd about them. Each begins with
// a request for target with the header lines of head, and has a request for hidden,
// which has Smuggled in it and no credential, in a place where some parsers look
// for a request.
func Smuggling(target, hidden, head string) map[string]string {
	second := "GET " + hidden + " HTTP/1.1\r\nHost: x\r\nX-Smuggled: 1\r\n\r\n"
	// The last line is for what a folded one continues.
	begin := "POST " + target + " HTTP/1.1\r\nHost: x\r\n" + head + "X-B: c\r\n"
	const chunked = "Transfer-Encoding: chunked\r\n"
	inChunk := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(second), second)
	corpus := map[string]string{
		"plain length":      begin + "Content-Length: 4\r\n\r\nbody",
		"plain chunks":      begin + chunked + "\r\n4\r\nbody\r\n0\r\n\r\n",
		"hidden in a chunk": begin + chunked + "\r\n" + inChunk,
		"length and chunks": begin + "Content-Length: 4\r\n" + chunked + "\r\n0\r\n\r\n" + second,
		"chunks and length": begin + chunked + "Content-Length: 4\r\n\r\n" + inChunk,
		"length of all":     begin + fmt.Sprintf("Content-Length: %d\r\n", 5+len(second)) + chunked + "\r\n0\r\n\r\n" + second,
		"no body":           begin + "\r\n" + second,
		"GET with a body":   "GET " + target + " HTTP/1.1\r\nHost: x\r\n" + head + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(second)) + second,
		"HEAD with chunks":  "HEAD " + target + " HTTP/1.1\r\nHost: x\r\n" + head + chunked + "\r\n" + inChunk,
		"HTTP/1.0, chunks":  "POST " + target + " HTTP/1.0\r\nHost: x\r\n" + head + chunked + "Content-Length: 5\r\n\r\n0\r\n\r\n" + second,
		"expects":           begin + "Expect: 100-continue\r\nContent-Length: 4\r\n\r\n" + second,
		"expects, chunks":   begin + "Expect: 100-continue\r\n" + chunked + "\r\n0\r\n\r\n" + second,
		"upgrade":           begin + "Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n" + second,
		"upgrade to h2c":    begin + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n" + second,
		"bare LF":           strings.ReplaceAll(begin, "\r\n", "\n") + "Content-Length: 4\n\nbody" + second,
		"bare CR":           begin + "X-A: b\rTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + second,
		"in a trailer":      begin + chunked + "Trailer: X-A\r\n\r\n0\r\nX-A: b\r\nContent-Length: 100\r\nTransfer-Encoding: chunked\r\n\r\n" + second,
		"after a trailer":   begin + chunked + "\r\n0\r\nX-A: b\r\n\r\n" + second,
		"two hosts":         begin + "Host: y\r\nContent-Length: 0\r\n\r\n" + second,
		"listed length":     begin + "Connection: Content-Length\r\nContent-Length: 4\r\n\r\nbody" + second,
		"listed chunks":     begin + "Connection: Transfer-Encoding\r\n" + chunked + "\r\n" + inChunk,
		"long request line": "POST " + target + " HTTP/1.1 HTTP/1.1\r\nHost: x\r\n" + head + "Content-Length: 0\r\n\r\n" + second,
		"second in target":  "POST " + target + "?a=%20HTTP/1.1%0d%0aX-Smuggled:%201 HTTP/1.1\r\nHost: x\r\n" + head + "Content-Length: 0\r\n\r\n",
	}
	for _, line := range []string{
		"Transfer-Encoding: xchunked", "Transfer-Encoding : chunked", "Transfer-Encoding:\tchunked", "Transfer-Encoding: chunked, identity", "Transfer-Encoding: identity, chunked",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: x", "Transfer-Encoding: x\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
		" Transfer-Encoding: chunked", "X-A: b\r\n Transfer-Encoding: chunked", "X-A: b\nTransfer-Encoding: chunked", "Transfer-Encoding: \"chunked\"", "Transfer-Encoding: CHUNKED",
		"Transfer-Encoding:\vchunked", "Transfer-Encoding: \x00chunked", "Transfer-Encoding\x00: chunked", "Transfer_Encoding: chunked", "Transfer-Encoding:", "Transfer-Encoding: chunked;a=b", "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: identity",
	} {
		corpus["encoding "+line] = begin + line + "\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + second
		corpus["encoding alone "+line] = begin + line + "\r\n\r\n" + inChunk
	}
	for _, line := range []string{
		"Content-Length: 0\r\nContent-Length: 4", "Content-Length: 4\r\nContent-Length: 0", "Content-Length: 4\r\nContent-Length: 4", "Content-Length: 4, 4", "Content-Length: 0, 4", "Content-Length: +4", "Content-Length: -4", "Content-Length: 0x4",
		"Content-Length: 4 4", "Content-Length: 4;", "Content-Length: 004", "Content-Length : 4", "Content-Length: 4\v", "Content_Length: 4", "Content-Length:", "Content-Length: 18446744073709551620", "Content-Length: 4.0", "Content-Length: ４",
	} {
		corpus["length "+line] = begin + line + "\r\n\r\nbody" + second
	}
	for _, chunk := range []string{
		"+4\r\nbody", "-4\r\nbody", "0x4\r\nbody", "4 \r\nbody", " 4\r\nbody", "10000000000000004\r\nbody", "4;a=b\r\nbody", "4;a=\"b\r\n\"\r\nbody", "4;\nx\r\nbody", "4\nbody", "4\r\nbodybody", "4\r\nbo", "4\rbody", "\r\nbody", "G\r\nbody", "4;" + strings.Repeat("a", 20_000) + "\r\nbody", "00000000000000000000004\r\nbody",
	} {
		corpus["chunk "+chunk[:min(len(chunk), 30)]] = begin + chunked + "\r\n" + chunk + "\r\n0\r\n\r\n" + second
	}
	return corpus
}

// Parse is what net/http makes of a connection's bytes: requests, until one that
// it cannot read. A proxy may pass on these and no others.
func Parse(raw string) (requests []Request) {
	for reader := bufio.NewReader(strings.NewReader(raw)); ; {
		r, err := http.ReadRequest(reader)
		if err != nil {
			return requests
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return requests
		}
		requests = append(requests, Request{r.RequestURI, string(body)})
	}
}
