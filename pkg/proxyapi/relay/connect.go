package relay

import (
	"context"
	"errors"
	"net"
	"net/http"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/filter"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

// Connector answers CONNECT requests: it joins the client with the cluster's
// kube-apiserver, or with one of its Services. Their bytes, TLS and
// credentials included, are between those two.
type Connector struct {
	*filter.Filters
	Agents *agentclient.Client
}

func (c *Connector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rs := scope.Of(r.Context())
	if err := c.Sessions.Recorder.Refusal(rs, r.Method); err != nil {
		c.Refuse(w, r, err)
		return
	}
	dial := c.dialAPIServer
	if rs.Target.ForService() {
		dial = c.dialService
	}
	there, err := dial(r, rs)
	if err != nil {
		c.Refuse(w, r, err)
		return
	}
	defer there.Close()
	here, err := connect.Accept(w, r)
	if errors.Is(err, http.ErrAbortHandler) {
		panic(http.ErrAbortHandler) // the client is gone
	}
	if err != nil {
		c.Refuse(w, r, status.New(http.StatusInternalServerError, err.Error()))
		return
	}
	defer here.Close()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	counted, leave := c.Sessions.Connect(here, rs, cancel)
	defer leave()
	stop := context.AfterFunc(ctx, func() { connect.Abort(here); connect.Abort(there) })
	defer stop()
	_ = connect.Join(counted, there) // both ends know
}

func (c *Connector) dialAPIServer(r *http.Request, rs *scope.Scope) (net.Conn, error) {
	return c.Agents.DialAPIServer(r.Context(), rs.Target.Cluster)
}

func (c *Connector) dialService(r *http.Request, rs *scope.Scope) (net.Conn, error) {
	ask := &http.Request{Header: http.Header{}, RemoteAddr: r.RemoteAddr}
	Correlate(r, ask.Header)
	return c.Agents.DialService(r.Context(), ask, rs.To(), rs.Identity())
}
