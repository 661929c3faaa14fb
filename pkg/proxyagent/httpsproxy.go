package proxyagent

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"golang.org/x/net/http/httpproxy"
)

// httpsProxy is a proxy that takes CONNECT over plain HTTP.
type httpsProxy struct {
	address       string
	authorization string // of the header, or ""
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
	p := &httpsProxy{address: u.Host}
	if u.Port() == "" {
		p.address = net.JoinHostPort(u.Hostname(), "80")
	}
	if password, ok := u.User.Password(); ok {
		p.authorization = "Basic " + base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password))
	}
	return p, nil
}

// connect asks the proxy for a tunnel to address.
func (p *httpsProxy) connect(conn net.Conn, address string) (net.Conn, error) {
	request := &http.Request{Method: http.MethodConnect, URL: &url.URL{Host: address}, Host: address, Header: http.Header{}}
	if p.authorization != "" {
		request.Header.Set("Proxy-Authorization", p.authorization)
	}
	if err := request.Write(conn); err != nil {
		return nil, fmt.Errorf("asking proxy %q for a tunnel: %w", p.address, err)
	}
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, request)
	if err != nil {
		return nil, fmt.Errorf("reading the answer of proxy %q: %w", p.address, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("proxy %q answers %q to CONNECT %q", p.address, response.Status, address)
	}
	if reader.Buffered() > 0 {
		return nil, fmt.Errorf("proxy %q speaks before the server can", p.address)
	}
	return conn, nil
}
