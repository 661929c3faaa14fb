package proxyagent

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"golang.org/x/net/http/httpproxy"
)

// httpsProxy is a proxy that takes CONNECT over plain HTTP.
type httpsProxy struct {
	address string
	header  http.Header // of CONNECT
}

// proxyFor is the proxy for an address, or nil for none.
func proxyFor(address string, config *httpproxy.Config) (*httpsProxy, error) {
	u, err := config.ProxyFunc()(&url.URL{Scheme: "https", Host: address})
	if err != nil || u == nil {
		return nil, err
	}
	if u.Scheme != "http" {
		return nil, fmt.Errorf("HTTPS_PROXY has scheme %q: only http is supported", u.Scheme)
	}
	p := &httpsProxy{address: u.Host, header: http.Header{}}
	if u.Port() == "" {
		p.address = net.JoinHostPort(u.Hostname(), "80")
	}
	if password, ok := u.User.Password(); ok {
		p.header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password)))
	}
	return p, nil
}
