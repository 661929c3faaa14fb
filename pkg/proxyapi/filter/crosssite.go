package filter

import (
	"net/http"
	"net/url"
	"strings"

	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

// errCrossSite is the answer to a request that another site may have had a browser send.
var errCrossSite = status.New(http.StatusForbidden, "a page of another site has had your browser send this with your client certificate: open the proxy API's own page, or send a token")

// CheckSite refuses what a page of another site can have a browser do with its user's client
// certificate, which goes along by itself, unlike a token: to write by a form or by fetch, to run
// commands by a WebSocket, whose answers it may even read.
//
// Pages cannot set these headers; browsers do. Chromium sends no Sec-Fetch-Site with WebSockets, but
// Origin always. Programs that are no browsers send neither, or the port's own Origin. Documents of clusters run in
// a sandbox, as another site.
func CheckSite(r *http.Request) error {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || r.Header.Get("X-Remote-User") != "" {
		// Nothing goes along by itself. The last is the hub's kube-apiserver, whose users are its own to
		// protect; a page would need our permission to set it.
		return nil
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none":
		return nil
	case "":
		if origin := r.Header.Get("Origin"); origin == "" || isOriginOf(origin, r.Host) {
			return nil
		}
	default:
		if isNavigation(r) {
			return nil
		}
	}
	return errCrossSite
}

// isNavigation reports whether a user follows a link to read something, which no other page gets
// to see.
func isNavigation(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && !httprelay.IsUpgrade(r.Header) &&
		r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// isOriginOf reports whether an Origin header is that of the host which a request is for.
func isOriginOf(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(strings.TrimSuffix(u.Host, ":443"), strings.TrimSuffix(host, ":443"))
}
