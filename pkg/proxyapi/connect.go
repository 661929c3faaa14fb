package proxyapi

import (
	"context"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
)

// newConnect understands a CONNECT request. What goes over the connection
// cannot be seen, so the caller needs the right to create and to streams.
func newConnect(r *http.Request) (*call, error) {
	target, err := route.ParseAuthority(r.Host)
	c := &call{target: target, host: r.Host, leaves: true, long: true}
	if err != nil {
		return c, err
	}
	c.inner = &request.RequestInfo{Path: "/", Verb: "connect"}
	c.info = outerInfo(r, target.Cluster, "create")
	// What authenticates at a proxy has a header of its own. The other one is
	// between the ends, and nobody sends it here.
	r.Header.Del("Authorization")
	if token := proxyToken(r.Header.Get("Proxy-Authorization")); token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	r.Header.Del("Proxy-Authorization")
	return c, nil
}

// proxyToken is the hub's token in a Proxy-Authorization header: the password of
// Basic, with any user name, or a bearer token.
func proxyToken(header string) string {
	scheme, value, _ := strings.Cut(header, " ")
	switch strings.ToLower(scheme) {
	case "bearer":
		return strings.TrimSpace(value)
	case "basic":
		decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(value))
		if err != nil {
			return ""
		}
		_, password, _ := strings.Cut(string(decoded), ":")
		return password
	}
	return ""
}

// connect joins the client with the cluster's kube-apiserver, or with one of its
// Services. What they say to each other, TLS and credentials included, is between
// those two.
func (h *handler) connect(w http.ResponseWriter, r *http.Request) {
	c := callOf(r.Context())
	dial := h.dialAPIServer
	if c.target.ForService() {
		dial = h.dialService
	}
	there, err := dial(r, c)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	defer there.Close()
	here, err := connect.Accept(w, r)
	if errors.Is(err, http.ErrAbortHandler) {
		panic(http.ErrAbortHandler) // the client is gone
	}
	if err != nil {
		h.refuse(w, r, refusal(http.StatusInternalServerError, err.Error()))
		return
	}
	defer here.Close()
	stop := context.AfterFunc(r.Context(), func() { connect.Abort(here); connect.Abort(there) })
	defer stop()
	_ = connect.Join(here, there) // both ends know
}

func (h *handler) dialAPIServer(r *http.Request, c *call) (net.Conn, error) {
	return h.agents.DialAPIServer(r.Context(), c.target.Cluster)
}

func (h *handler) dialService(r *http.Request, c *call) (net.Conn, error) {
	ask := &http.Request{Header: http.Header{}, RemoteAddr: r.RemoteAddr}
	correlate(r, ask.Header)
	return h.agents.DialService(r.Context(), ask, c.to(), c.identity())
}
