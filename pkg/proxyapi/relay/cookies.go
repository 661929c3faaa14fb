package relay

import (
	"net/http"
	"strings"
)

// ConfineCookies keeps the cookies of a cluster or a Service below the prefix of its paths, and at this
// host. Clusters share a host, or the domain of their hosts: without that, a browser sends one cluster's
// cookies to another one, which can also set cookies that the first one takes for its own.
func ConfineCookies(header http.Header, prefix string) {
	cookies := header["Set-Cookie"]
	for i, cookie := range cookies {
		parts := strings.Split(cookie, ";")
		confined, path := parts[:1], "/"
		for _, part := range parts[1:] {
			name, value, _ := strings.Cut(part, "=")
			switch value = strings.TrimSpace(value); strings.ToLower(strings.TrimSpace(name)) {
			case "domain":
			case "path":
				path = "/" // the last one counts, and one that is no path is as if it were not there
				if strings.HasPrefix(value, "/") {
					path = value
				}
			default:
				confined = append(confined, part)
			}
		}
		cookies[i] = strings.Join(append(confined, " Path="+prefix+path), ";")
	}
}
