package indexapi

import (
	"encoding/json"
	"time"
)

const (
	// SearchPath takes a POST with a SearchRequest, and CountPath one with a CountRequest.
	SearchPath, CountPath = "/search", "/count"
	// MaxHits bounds the hits of an answer, and its counts.
	MaxHits = 1000
)

// SearchRequest asks for rows that match a query.
type SearchRequest struct {
	Caller   Caller    `json:"caller"`
	Clusters []Cluster `json:"clusters"`
	// Query is as package query parses it.
	Query string `json:"query"`
	// Limit is how many hits there are at most; 0 means MaxHits.
	Limit int `json:"limit,omitempty"`
	// Continue is that of the page before.
	Continue string `json:"continue,omitempty"`
}

// Hit is a row that was found.
type Hit struct {
	Cluster string `json:"cluster"`
	// APIVersion, Kind and Resource name the resource: v1, Pod, pods.
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Resource   string            `json:"resource"`
	Namespace  string            `json:"namespace,omitempty"`
	Name       string            `json:"name"`
	UID        string            `json:"uid"`
	Status     string            `json:"status,omitempty"`
	Created    time.Time         `json:"created,omitzero"`
	Labels     map[string]string `json:"labels,omitempty"`
	Owner      string            `json:"owner,omitempty"`
	Images     []string          `json:"images,omitempty"`
	Node       string            `json:"node,omitempty"`
	// Columns and Cells are what kubectl prints of the object, without its name and age.
	Columns []string        `json:"columns,omitempty"`
	Cells   json.RawMessage `json:"cells,omitempty"`
	// AsOf is when the cluster was last heard, if it is away.
	AsOf time.Time `json:"asOf,omitzero"`
}

// Basis is what an answer is based on.
type Basis struct {
	// Away are clusters whose rows are as of the time at which they were last heard, by name.
	Away map[string]time.Time `json:"away,omitempty"`
	// Incomplete says of clusters why rows of theirs are missing.
	Incomplete map[string]string `json:"incomplete,omitempty"`
	// Undecided says of clusters why they could not decide what the caller may see.
	Undecided map[string]string `json:"undecided,omitempty"`
	// Unindexed says of clusters why the index has nothing of them.
	Unindexed map[string]string `json:"unindexed,omitempty"`
	// Unknown is what the query says of clusters, in its words, and is true of none that it may be about. It does not tell whether there
	// are such clusters.
	Unknown []string `json:"unknown,omitempty"`
	// Partly counts the clusters in which the caller may not list all namespaces, and rows in others may be missing: a search asks
	// about so many only. It is 0 if the query names namespaces, and so few that all are asked about. It does not depend on rows.
	Partly int `json:"partly,omitempty"`
	// Denied counts the clusters in which the caller may not list a kind that the query names, and whose objects are in no namespace.
	Denied int `json:"denied,omitempty"`
	// PartlyIn and DeniedIn are the first of these clusters by name, at most MaxFew.
	PartlyIn []string `json:"partlyIn,omitempty"`
	DeniedIn []string `json:"deniedIn,omitempty"`
	// More counts the clusters beyond those that are named; of each map at most MaxNamed are.
	More int `json:"more,omitempty"`
}

const (
	// MaxNamed bounds the clusters in each map of a Basis, and MaxFew those in PartlyIn and DeniedIn.
	MaxNamed, MaxFew = 20, 5
	// MaxNamespaces bounds the namespaces of a cluster about which a search asks.
	MaxNamespaces = 50
)

// SearchAnswer answers a SearchRequest.
type SearchAnswer struct {
	Basis
	Hits []Hit `json:"hits"`
	// Continue leads to the next page; empty if this was the last one.
	Continue string `json:"continue,omitempty"`
}

// CountRequest asks how many rows match a query.
type CountRequest struct {
	SearchRequest
	// By are the keys by which they are counted, of query.Counted.
	By []string `json:"by"`
}

// Count is how many rows have some values.
type Count struct {
	// Values are those of the keys, in the same order.
	Values []string `json:"values"`
	N      int64    `json:"n"`
}

// CountAnswer answers a CountRequest.
type CountAnswer struct {
	Basis
	// Counts are those with the most rows, at most SearchRequest.Limit.
	Counts []Count `json:"counts"`
	// Left is how many counts there are besides those.
	Left int `json:"left,omitempty"`
	// Total is the number of all rows, also those in no count.
	Total int64 `json:"total"`
}
