package fleetindexer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/query"
	"open-cluster-management.io/cluster-proxy/pkg/indexapi"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

// answerSearch answers a SearchRequest.
func (a *answers) answerSearch(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	s := search{answers: a, now: time.Now()}
	if err := read(w, r, &s.request); err != nil {
		return err
	}
	options, err := s.prepare(ctx)
	if err != nil {
		return err
	}
	answer := indexapi.SearchAnswer{Hits: []indexapi.Hit{}}
	found, token, err := a.store.Search(ctx, options)
	if err != nil {
		return err
	}
	answer.Basis, answer.Continue = s.limited(), token
	for i := range found {
		hit, err := s.hit(&found[i])
		if err != nil {
			return err
		}
		answer.Hits = append(answer.Hits, hit)
	}
	return write(w, answer)
}

// answerCount answers a CountRequest.
func (a *answers) answerCount(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	var request indexapi.CountRequest
	if err := read(w, r, &request); err != nil {
		return err
	}
	var by []query.Key
	for _, name := range request.By {
		key := query.Key(name)
		if !slices.Contains(query.Counted, key) || slices.Contains(by, key) {
			return status.New(http.StatusBadRequest, fmt.Sprintf("rows cannot be counted by %q: use some of %v, each once", request.By, query.Counted))
		}
		by = append(by, key)
	}
	s := search{answers: a, now: time.Now(), request: request.SearchRequest}
	options, err := s.prepare(ctx)
	if err != nil {
		return err
	}
	counts, err := a.store.Count(ctx, options, by...)
	if err != nil {
		return err
	}
	answer := indexapi.CountAnswer{Basis: s.limited(), Counts: []indexapi.Count{}, Left: counts.Left, Total: counts.Total}
	for _, c := range counts.Groups {
		answer.Counts = append(answer.Counts, indexapi.Count{Values: c.Values, N: c.N})
	}
	return write(w, answer)
}

func write(w http.ResponseWriter, answer any) error {
	body, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // the proxy API may be gone
	return nil
}

// prepare reads the request, and asks the clusters what the caller may list.
func (s *search) prepare(ctx context.Context) (o fleetindex.SearchOptions, err error) {
	if s.caller, err = newCaller(s.request.Caller); err != nil {
		return o, err
	}
	if s.query, err = query.Parse(s.request.Query); err != nil {
		return o, status.New(http.StatusBadRequest, err.Error())
	}
	s.named = namedNamespaces(s.query)
	if s.request.Limit < 0 {
		return o, status.New(http.StatusBadRequest, "a search needs no negative limit")
	}
	clusters, served, err := s.asked(s.request.Clusters)
	if err != nil {
		return o, err
	}
	s.basis = indexapi.Basis{Away: map[string]time.Time{}, Incomplete: map[string]string{}, Undecided: map[string]string{}, Unindexed: map[string]string{}}
	s.clusters, s.scopes = make(map[string]fleetindex.Cluster, len(clusters)), map[fleetindex.FeedName]fleetindex.Scope{}
	for i, c := range clusters {
		switch {
		case !s.query.Match(query.Cluster, c.Name):
		case !served[i]:
			s.basis.Unindexed[c.Name] = "the hub serves no cluster with this name and UID"
		default:
			s.clusters[c.Name] = c
		}
	}
	s.basis.Unknown = unknownClusters(s.query, clusters)
	o = fleetindex.SearchOptions{Query: s.query, Caller: s.request.Caller.Name, Limit: s.request.Limit, Continue: s.request.Continue, Rights: s.rightsOf,
		Clusters: func(c fleetindex.Cluster) bool { return s.clusters[c.Name] == c && c.Name != "" }}
	feeds, err := s.store.Feeds(ctx, o)
	if err != nil {
		return o, err
	}
	denied := s.decide(ctx, feeds)
	if len(denied) > 0 {
		if err := s.decideNamespaces(ctx, o, denied); err != nil {
			return o, err
		}
	}
	if err := s.checkKinds(feeds); err != nil {
		return o, err
	}
	return o, s.findBasis(ctx)
}

// unknownClusters returns what a query says of clusters and names none of these.
func unknownClusters(q query.Query, clusters []fleetindex.Cluster) (unknown []string) {
	for _, t := range q.Of(query.Cluster) {
		for _, value := range t.Values {
			isNamed := func(c fleetindex.Cluster) bool { return value.Match(c.Name) }
			if !t.Not && !slices.ContainsFunc(clusters, isNamed) && !slices.Contains(unknown, string(value)) {
				unknown = append(unknown, string(value))
			}
		}
	}
	return unknown
}

// findBasis says what the answer is based on. Why rows are missing may name objects, so only those hear it who may list all.
func (s *search) findBasis(ctx context.Context) error {
	heard, partial, err := s.store.Basis(ctx)
	if err != nil {
		return err
	}
	for name, c := range s.clusters {
		at, ok := heard[name]
		at, isCurrent := s.lastHeard(c, at, s.now)
		switch {
		case !ok && at.IsZero():
			s.basis.Unindexed[name] = "the index has not heard of it yet"
		case !isCurrent:
			s.basis.Away[name] = at.UTC()
		}
	}
	for _, p := range partial {
		if s.scopes[p.FeedName].All {
			s.basis.Incomplete[p.Cluster] = feed.CutText(fmt.Sprintf("%s: %s", p.Resource, p.Reason))
		}
	}
	return nil
}

// limited returns the basis with the first clusters by name.
func (s *search) limited() indexapi.Basis {
	b := s.basis
	limit(&b, &b.Away)
	limit(&b, &b.Incomplete)
	limit(&b, &b.Undecided)
	limit(&b, &b.Unindexed)
	return b
}

func limit[V any](b *indexapi.Basis, named *map[string]V) {
	if len(*named) <= indexapi.MaxNamed {
		return
	}
	few := map[string]V{}
	for _, name := range slices.Sorted(maps.Keys(*named))[:indexapi.MaxNamed] {
		few[name] = (*named)[name]
	}
	b.More += len(*named) - len(few)
	*named = few
}

// hit returns a row as it is answered.
func (s *search) hit(f *fleetindex.Found) (indexapi.Hit, error) {
	d := f.Definition
	version := d.Version
	if d.Group != "" {
		version = d.Group + "/" + d.Version
	}
	hit := indexapi.Hit{Cluster: f.Cluster, APIVersion: version, Kind: d.Kind, Resource: d.Resource.Resource, Namespace: f.Namespace, Name: f.Name, UID: f.UID,
		Labels: f.Labels, Owner: f.Owner, Images: f.Images, Node: f.Node, AsOf: s.basis.Away[f.Cluster]}
	if f.Created != 0 {
		hit.Created = time.Unix(f.Created, 0).UTC()
	}
	cells, err := splitCells(nil, f.Cells)
	if err != nil || len(cells) != len(d.Columns) {
		return hit, errCells
	}
	if i := d.StatusColumn(); i >= 0 {
		_ = json.NewDecoder(bytes.NewReader(cells[i])).Decode(&hit.Status) // one that is no text is none
	}
	var left [][]byte
	for i, c := range d.Columns {
		if !c.Age && c.Format != "name" {
			hit.Columns, left = append(hit.Columns, c.Name), append(left, cells[i])
		}
	}
	if len(left) > 0 {
		hit.Cells = append(append([]byte{'['}, bytes.Join(left, []byte{','})...), ']')
	}
	return hit, nil
}
