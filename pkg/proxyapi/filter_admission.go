package proxyapi

import (
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// withAdmission lets a request on if there is such a cluster or view, and nothing in its
// headers is meant to deceive. It comes after authorization, because who may
// not reach a cluster need not know whether there is one.
func (f *requestFilters) withAdmission(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scope := scopeOf(r.Context())
		if scope.kind == ownScope {
			next.ServeHTTP(w, r)
			return
		}
		if err := f.admit(scope, r); err != nil {
			f.refuse(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (f *requestFilters) admit(scope *requestScope, r *http.Request) error {
	target := scope.target
	if err := f.via.check(r.Header); err != nil {
		return err
	}
	if err := f.clusters.Synced(); err != nil {
		return refusal(http.StatusServiceUnavailable, fmt.Sprintf("the proxy API is starting: %v", err))
	}
	if target.ForService() {
		if err := f.admitToService(scope, r); err != nil {
			return err
		}
	}
	if err := checkConnection(r.Header); err != nil {
		return err
	}
	switch scope.kind {
	case clusterScope:
		// This comes last, so that nothing else tells whether there is one.
		return f.clusters.Served(target.Cluster)
	case viewScope:
		return f.admitToView(scope)
	}
	return errNoScope
}

// admitToView finds the view, and refuses one that asks for something that cannot be.
func (f *requestFilters) admitToView(scope *requestScope) error {
	view, err := f.define(scope)
	if err == nil {
		_, _, err = view.clusters()
	}
	if err != nil {
		return refusal(http.StatusServiceUnavailable, err.Error())
	}
	scope.view = view
	return nil
}

// hopHeaders are what a Connection header may name.
var hopHeaders = []string{"upgrade", "keep-alive", "close", "te", "proxy-connection", "http2-settings", "transfer-encoding", "trailer"}

// checkConnection refuses to have end-to-end headers dropped on the way.
func checkConnection(header http.Header) error {
	for _, line := range header["Connection"] {
		for token := range strings.SplitSeq(line, ",") {
			token = strings.ToLower(strings.TrimSpace(token))
			if token != "" && !httpguts.HeaderValuesContainsToken(hopHeaders, token) {
				return refusal(http.StatusBadRequest, "the Connection header names a header that is not about the connection: leave that out")
			}
		}
	}
	return nil
}
