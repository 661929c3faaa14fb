package filter

import (
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

// WithAdmission lets a request on if there is such a cluster or view, and nothing in its
// headers is meant to deceive. It comes after authorization, because who may
// not reach a cluster need not know whether there is one.
func (f *Filters) WithAdmission(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rs := scope.Of(r.Context())
		if rs.Kind == scope.Own {
			next.ServeHTTP(w, r)
			return
		}
		if err := f.admit(rs, r); err != nil {
			f.Refuse(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (f *Filters) admit(rs *scope.Scope, r *http.Request) error {
	target := rs.Target
	if err := f.Via.Check(r.Header); err != nil {
		return err
	}
	if err := f.Clusters.Synced(); err != nil {
		return status.New(http.StatusServiceUnavailable, fmt.Sprintf("the proxy API is starting: %v", err))
	}
	if target.ForService() {
		if err := f.admitToService(rs, r); err != nil {
			return err
		}
	}
	if err := CheckConnection(r.Header); err != nil {
		return err
	}
	switch rs.Kind {
	case scope.Cluster:
		// This comes last, so that nothing else tells whether there is one.
		return f.Clusters.Served(target.Cluster)
	case scope.View:
		return f.admitToView(rs)
	}
	return scope.ErrNoScope
}

// admitToView finds the view, and refuses one that asks for something that cannot be.
func (f *Filters) admitToView(rs *scope.Scope) error {
	view, err := f.Define(rs)
	if err == nil {
		_, err = view.Clusters()
	}
	if err != nil {
		return status.New(http.StatusServiceUnavailable, err.Error())
	}
	rs.View = view
	return nil
}

// hopHeaders are what a Connection header may name.
var hopHeaders = []string{"upgrade", "keep-alive", "close", "te", "proxy-connection", "http2-settings", "transfer-encoding", "trailer"}

// CheckConnection refuses to have end-to-end headers dropped on the way.
func CheckConnection(header http.Header) error {
	for option := range httprelay.ConnectionOptions(header) {
		if !httpguts.HeaderValuesContainsToken(hopHeaders, strings.ToLower(option)) {
			return status.New(http.StatusBadRequest, "the Connection header names a header that is not about the connection: leave that out")
		}
	}
	return nil
}
