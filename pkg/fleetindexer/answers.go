package fleetindexer

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex"
	"open-cluster-management.io/cluster-proxy/pkg/indexapi"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

const (
	// requestsAtOnce bounds the requests that are answered.
	requestsAtOnce = 64
	// maxBuilding bounds the bytes of all tables that are being made. A table that finds no room is not answered.
	maxBuilding = 512 << 20
)

// servedClusters says which clusters the hub has.
type servedClusters interface {
	// Served returns an error for a cluster that is not served.
	Served(cluster string) error
	// UID returns that of the ManagedCluster that has the name now.
	UID(cluster string) string
}

// answers answers the proxy API.
type answers struct {
	*shared
	hub      servedClusters
	rights   *rights
	requests slots
	// building bounds the bytes of tables that are in memory.
	building budget
}

func newAnswers(s *shared, hub servedClusters, r *rights) *answers {
	return &answers{shared: s, hub: hub, rights: r, requests: make(slots, requestsAtOnce), building: budget{most: maxBuilding}}
}

// budget is bytes that are in use.
type budget struct {
	most int64
	used atomic.Int64
}

// take reports whether there was room for n bytes, which are then in use.
func (b *budget) take(n int64) bool {
	if b.used.Add(n) <= b.most {
		return true
	}
	b.used.Add(-n)
	return false
}

// read reads a request.
func read(w http.ResponseWriter, r *http.Request, into any) error {
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, indexapi.MaxRequest)).Decode(into)
	if err == nil || errors.As(err, new(*http.MaxBytesError)) {
		return err
	}
	return status.New(http.StatusBadRequest, "the request cannot be parsed: "+err.Error())
}

// asked returns the clusters of a request, each once, and whether the hub serves each.
func (a *answers) asked(clusters []indexapi.Cluster) ([]fleetindex.Cluster, []bool, error) {
	if len(clusters) > indexapi.MaxClusters {
		return nil, nil, status.New(http.StatusBadRequest, fmt.Sprintf("the request is about %d clusters, more than %d: send several", len(clusters), indexapi.MaxClusters))
	}
	seen := make(map[string]bool, len(clusters))
	all, served := make([]fleetindex.Cluster, len(clusters)), make([]bool, len(clusters))
	for i, c := range clusters {
		if seen[c.Name] {
			return nil, nil, status.New(http.StatusBadRequest, fmt.Sprintf("the request has cluster %q twice: ask once", c.Name))
		}
		seen[c.Name] = true
		all[i] = fleetindex.Cluster{Name: c.Name, UID: c.UID}
		served[i] = c.UID != "" && a.hub.UID(c.Name) == c.UID && a.hub.Served(c.Name) == nil
	}
	return all, served, nil
}

func refuse(w http.ResponseWriter, code int, message string) {
	status.Write(w, status.New(code, message).ErrStatus)
}
