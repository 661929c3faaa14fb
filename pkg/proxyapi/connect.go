package proxyapi

import (
	"context"
	"errors"
	"net"
	"net/http"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/connect"
)

// connector answers CONNECT requests: it joins the client with the cluster's
// kube-apiserver, or with one of its Services. What they say to each other, TLS and
// credentials included, is between those two.
type connector struct {
	*requestFilters
	agents *agentclient.Client
}

func (c *connector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	scope := scopeOf(r.Context())
	if err := c.sessions.recorder.refusal(scope, r.Method); err != nil {
		c.refuse(w, r, err)
		return
	}
	dial := c.dialAPIServer
	if scope.target.ForService() {
		dial = c.dialService
	}
	there, err := dial(r, scope)
	if err != nil {
		c.refuse(w, r, err)
		return
	}
	defer there.Close()
	here, err := connect.Accept(w, r)
	if errors.Is(err, http.ErrAbortHandler) {
		panic(http.ErrAbortHandler) // the client is gone
	}
	if err != nil {
		c.refuse(w, r, refusal(http.StatusInternalServerError, err.Error()))
		return
	}
	defer here.Close()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	counted, leave := c.sessions.connect(here, scope, cancel)
	defer leave()
	stop := context.AfterFunc(ctx, func() { connect.Abort(here); connect.Abort(there) })
	defer stop()
	_ = connect.Join(counted, there) // both ends know
}

func (c *connector) dialAPIServer(r *http.Request, scope *requestScope) (net.Conn, error) {
	return c.agents.DialAPIServer(r.Context(), scope.target.Cluster)
}

func (c *connector) dialService(r *http.Request, scope *requestScope) (net.Conn, error) {
	ask := &http.Request{Header: http.Header{}, RemoteAddr: r.RemoteAddr}
	correlate(r, ask.Header)
	return c.agents.DialService(r.Context(), ask, scope.to(), scope.identity())
}
