package httprelay

import (
	"iter"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// IsUpgrade reports whether a request with these headers could be taken for one that
// wants another protocol on its connection, by any server on its way: it has an Upgrade
// header, or speaks of upgrades in Connection. Some servers want both,
// k8s.io/apimachinery's httpstream takes the letters in Connection for enough. Code
// that grants or denies the right to streams must use it.
func IsUpgrade(header http.Header) bool {
	if len(header["Upgrade"]) > 0 {
		return true
	}
	for _, line := range header["Connection"] {
		if strings.Contains(strings.ToLower(line), "upgrade") {
			return true
		}
	}
	return false
}

// ConnectionOptions yields what the Connection headers list: names of headers that are for this
// connection only, and words such as close (RFC 9110, section 7.6.1).
func ConnectionOptions(header http.Header) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, line := range header["Connection"] {
			for option := range strings.SplitSeq(line, ",") {
				if option = strings.TrimSpace(option); option != "" && !yield(option) {
					return
				}
			}
		}
	}
}

// IgnoreH2C takes the offer to speak HTTP/2 without TLS off a request, which Java's HttpClient
// adds to the first one that it sends to a server. A server may ignore the offer, and RFC 9113 has
// dropped it. A request that offers another protocol besides stays as it is.
func IgnoreH2C(header http.Header) {
	offers := header["Upgrade"]
	if len(offers) == 0 || slices.ContainsFunc(offers, func(offer string) bool { return !strings.EqualFold(strings.TrimSpace(offer), "h2c") }) {
		return
	}
	header.Del("Upgrade")
	header.Del("Http2-Settings")
	var kept []string
	for option := range ConnectionOptions(header) {
		if !strings.EqualFold(option, "Upgrade") && !strings.EqualFold(option, "HTTP2-Settings") {
			kept = append(kept, option)
		}
	}
	header.Del("Connection")
	if len(kept) > 0 {
		header.Set("Connection", strings.Join(kept, ", "))
	}
}

// WasAskedFor reports whether the status of an answer is one that its request,
// as it was sent, may have. It is for ReverseProxy, which panics over what is no
// status, hands over the client's connection with a 101 as long as request
// and answer name the same protocol, or both none, and forgets to close the
// connection of an answer that names another one.
func WasAskedFor(resp *http.Response) bool {
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return resp.StatusCode >= http.StatusOK && resp.StatusCode <= 999
	}
	sent, got := protocolOf(resp.Request.Header), protocolOf(resp.Header)
	return sent != "" && strings.EqualFold(sent, got)
}

// protocolOf returns what a header changes the protocol to, or an empty string.
func protocolOf(header http.Header) string {
	if !httpguts.HeaderValuesContainsToken(header["Connection"], "Upgrade") {
		return ""
	}
	return header.Get("Upgrade")
}
