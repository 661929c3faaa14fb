package proxyapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
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

func (h *handler) dialAPIServer(r *http.Request, c *call) (io.ReadWriteCloser, error) {
	ctx, cancel := context.WithTimeout(r.Context(), connectTimeout)
	defer cancel()
	return h.pool.connectAPIServer(ctx, c.target.Cluster)
}

// dialService has the agent connect to a Service, which it decides about too.
func (h *handler) dialService(r *http.Request, c *call) (io.ReadWriteCloser, error) {
	ctx, cancel := context.WithTimeout(r.Context(), connectTimeout)
	defer cancel()
	conn, err := h.pool.agent(c.target.Cluster).connect(ctx, "http/1.1")
	if err != nil {
		return nil, err
	}
	host := net.JoinHostPort(identity.HandlerHost(c.target.Cluster), identity.HandlerPort)
	ask := &http.Request{Header: http.Header{}}
	if err := vouch(c, r, ask); err != nil {
		_ = conn.Close() // nothing was sent
		return nil, err
	}
	there, err := connect.Ask(ctx, conn, host, ask.Header)
	if err != nil {
		_ = conn.Close() // the error says more
		return nil, refusedByAgent(err)
	}
	return there, nil
}

// refusedByAgent is what the agent said, if it said anything.
func refusedByAgent(err error) error {
	var refused *connect.Refusal
	var status metav1.Status
	if errors.As(err, &refused) && json.Unmarshal(refused.Body, &status) == nil && status.Message != "" {
		return refusal(refused.Code, status.Message)
	}
	return err
}
