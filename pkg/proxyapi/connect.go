package proxyapi

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/request"

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
	if target.Service != (route.Service{}) {
		return c, &problem{http.StatusNotImplemented, "CONNECT reaches a cluster's kube-apiserver only: for a Service, use /<cluster>/api/v1/namespaces/<namespace>/services/<service>/proxy-service/"}
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

// connect joins the client with the cluster's kube-apiserver. TLS is between
// those two, and so are the credentials.
func (h *handler) connect(w http.ResponseWriter, r *http.Request) {
	c := callOf(r.Context())
	ctx, cancel := context.WithTimeout(r.Context(), connectTimeout)
	defer cancel()
	there, err := h.pool.connectAPIServer(ctx, c.target.Cluster)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	defer there.Close()
	here, err := accept(w, r)
	if err != nil {
		h.refuse(w, r, &problem{http.StatusInternalServerError, fmt.Sprintf("taking the connection over: %v", err)})
		return
	}
	defer here.Close()
	stop := context.AfterFunc(r.Context(), func() { _ = here.Close(); _ = there.Close() })
	defer stop()
	join(here, there)
}

// accept answers 200 and gives the connection that follows.
func accept(w http.ResponseWriter, r *http.Request) (io.ReadWriteCloser, error) {
	controller := http.NewResponseController(w)
	if r.ProtoMajor == 2 {
		w.WriteHeader(http.StatusOK)
		return &h2Stream{r.Body, w, controller}, controller.Flush()
	}
	conn, buffered, err := controller.Hijack()
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		_ = conn.Close() // it is gone
		return nil, http.ErrAbortHandler
	}
	return &hijacked{conn, buffered}, nil
}

// join copies both ways until both sides have ended, or one has failed.
func join(a, b io.ReadWriteCloser) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		copyHalf(a, b)
	}()
	copyHalf(b, a)
	<-done
}

// copyHalf passes on a clean end as a half-close where there is one, and
// anything else as the end of both.
func copyHalf(to, from io.ReadWriteCloser) {
	_, err := io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil && half.CloseWrite() == nil {
		return
	}
	_ = to.Close()
	_ = from.Close()
}

// hijacked is a connection of which a part may have been read already.
type hijacked struct {
	net.Conn
	buffered io.Reader
}

func (c *hijacked) Read(p []byte) (int, error) { return c.buffered.Read(p) }

func (c *hijacked) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// h2Stream is a CONNECT request of HTTP/2. It ends with its handler.
type h2Stream struct {
	io.ReadCloser
	w          io.Writer
	controller *http.ResponseController
}

func (s *h2Stream) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if err == nil {
		err = s.controller.Flush()
	}
	return n, err
}
