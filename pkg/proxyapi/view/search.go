package view

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/query"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/indexapi"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/filter"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

// searchTimeout bounds a search. Clusters that have not decided what the user may see until then show nothing.
const searchTimeout = 20 * time.Second

// searchAnswer and countAnswer are what clients get.
type searchAnswer struct {
	metav1.TypeMeta `json:",inline"`
	*indexapi.SearchAnswer
}

type countAnswer struct {
	metav1.TypeMeta `json:",inline"`
	*indexapi.CountAnswer
}

func typeOf(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: kind}
}

// search answers a search.
func (q *ViewRequest) search(w http.ResponseWriter, r *http.Request, view *fleet.View) {
	answer, err := q.searched(r, w.Header(), view)
	if err != nil {
		q.Refuse(w, r, err)
		return
	}
	w.Header().Set("Content-Type", fleet.JSONType)
	w.Header().Set("Cache-Control", "no-cache, private")
	// The client may be gone, and no one else reads the error.
	_ = json.NewEncoder(w).Encode(answer)
}

// searched asks the index.
func (q *ViewRequest) searched(r *http.Request, header http.Header, view *fleet.View) (any, error) {
	if q.Index == nil {
		return nil, status.New(http.StatusNotFound, "this hub has no fleet index, so nothing can be searched: an administrator installs one with the chart's value fleetIndex.enabled")
	}
	if len(view.Resources) > 0 {
		// The index knows nothing of the rules of a view.
		return nil, status.New(http.StatusBadRequest, fmt.Sprintf("view %q has some resources only, and cannot be searched: search in one without spec.resources", view.Name))
	}
	request, by, err := searchOf(r)
	if err != nil {
		return nil, status.New(http.StatusBadRequest, err.Error())
	}
	ctx, cancel := context.WithTimeout(r.Context(), searchTimeout)
	defer cancel()
	members, err := q.searchable(ctx)
	if err == nil {
		members, err = q.permitted(header, members)
	}
	if err != nil {
		return nil, err
	}
	request.Caller, request.Clusters = callerOf(q.Scope), make([]indexapi.Cluster, 0, len(members))
	asked := make(map[string]bool, len(members))
	for _, m := range members {
		request.Clusters = append(request.Clusters, indexapi.Cluster{Name: m.Name(), UID: m.UID()})
		asked[m.Name()] = true
		q.sentTo.Add(m.Name())
	}
	if by != nil {
		answer, err := q.Index.Count(ctx, &indexapi.CountRequest{SearchRequest: *request, By: by})
		if err != nil {
			return nil, q.notSearched(ctx, err)
		}
		return countAnswer{typeOf("FleetCount"), answer}, q.check(ctx, asked, &answer.Basis, nil)
	}
	answer, err := q.Index.Search(ctx, request)
	if err != nil {
		return nil, q.notSearched(ctx, err)
	}
	return searchAnswer{typeOf("FleetSearch"), answer}, q.check(ctx, asked, &answer.Basis, answer.Hits)
}

// searchOf reads what is searched, and by what it is counted; nil if it is not.
func searchOf(r *http.Request) (*indexapi.SearchRequest, []string, error) {
	values := r.URL.Query()
	request := &indexapi.SearchRequest{Query: values.Get("q"), Continue: values.Get("continue")}
	if _, err := query.Parse(request.Query); err != nil {
		return nil, nil, err
	}
	if text := values.Get("limit"); text != "" {
		var err error
		if request.Limit, err = strconv.Atoi(text); err != nil || request.Limit < 0 || request.Limit > indexapi.MaxHits {
			return nil, nil, fmt.Errorf("limit is %q: it must be a number from 0 to %d", text, indexapi.MaxHits)
		}
	}
	if !values.Has("countBy") {
		return request, nil, nil
	}
	by := strings.Split(values.Get("countBy"), ",")
	for _, key := range by {
		if !slices.Contains(query.Counted, query.Key(key)) {
			return nil, nil, fmt.Errorf("rows cannot be counted by %q: use some of %v", key, query.Counted)
		}
	}
	return request, by, nil
}

// searchable returns the clusters that the user may list in.
func (q *ViewRequest) searchable(ctx context.Context) ([]fleet.Member, error) {
	members, err := q.members(ctx)
	if err != nil {
		return nil, err
	}
	var group errgroup.Group
	group.SetLimit(fleet.MaxAsked)
	allowed := make([]bool, len(members))
	for i, m := range members {
		m := m.(*Member)
		if !m.AskAgain {
			allowed[i] = true
			continue
		}
		group.Go(func() error {
			err := m.MayAlso(ctx, q.Scope)
			var refused *status.Error
			if allowed[i] = err == nil; errors.As(err, &refused) && refused.ErrStatus.Code == http.StatusForbidden {
				return nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var left []fleet.Member
	for i, m := range members {
		if allowed[i] {
			left = append(left, m)
		}
	}
	return left, nil
}

// permitted returns the clusters that policies let the user search in, and warns of the others.
func (q *ViewRequest) permitted(header http.Header, members []fleet.Member) (left []fleet.Member, err error) {
	leftOut, warned := map[string]*Names{}, http.Header{}
	for _, m := range members {
		rs := *q.Scope
		rs.Target.Cluster = m.Name()
		decision, err := q.decide(&rs)
		refusal := decision.Refusal()
		switch {
		case refusal != nil:
			if leftOut[refusal.Message] == nil {
				leftOut[refusal.Message] = new(Names)
			}
			leftOut[refusal.Message].Add(m.Name())
			continue
		case err != nil:
			return nil, err
		}
		left = append(left, m)
		filter.WarnOfPolicies(warned, &decision)
	}
	for message, clusters := range leftOut {
		fault.AddWarning(header, message+": the search leaves out "+clusters.String())
	}
	for _, warning := range slices.Compact(slices.Sorted(slices.Values(warned["Warning"]))) {
		header.Add("Warning", warning)
	}
	return left, nil
}

// notSearched is the error of a search that the index did not answer.
func (q *ViewRequest) notSearched(ctx context.Context, err error) error {
	var refused *indexapi.Error
	switch {
	case errors.As(err, &refused) && (refused.Code == http.StatusBadRequest || refused.Code == http.StatusGone || refused.Code == http.StatusTooManyRequests):
		return status.New(refused.Code, refused.Message)
	case q.origin.Context().Err() != nil:
		return q.origin.Context().Err()
	}
	klog.FromContext(ctx).Error(err, "Failed to search the fleet index")
	if ctx.Err() != nil {
		return status.New(http.StatusGatewayTimeout, "the fleet index did not answer in time: search for less")
	}
	return status.New(http.StatusServiceUnavailable, "the fleet index did not answer: try again")
}

// check refuses an answer about clusters that it was not asked about, and notes for the audit log whose rights were
// remembered: those of clusters that are away cannot be asked.
func (q *ViewRequest) check(ctx context.Context, asked map[string]bool, basis *indexapi.Basis, hits []indexapi.Hit) error {
	names := slices.Collect(maps.Keys(basis.Away))
	var remembered Names
	for _, name := range names {
		remembered.Add(name)
	}
	for _, hit := range hits {
		names = append(names, hit.Cluster)
	}
	for _, said := range []map[string]string{basis.Incomplete, basis.Undecided, basis.Unindexed} {
		names = slices.AppendSeq(names, maps.Keys(said))
	}
	for _, name := range slices.Concat(names, basis.PartlyIn, basis.DeniedIn) {
		if !asked[name] {
			return q.notSearched(ctx, fmt.Errorf("the fleet index answers about cluster %q, which it was not asked about", name))
		}
	}
	if text := remembered.String(); text != "" {
		audit.AddAuditAnnotation(ctx, scope.AnnotationPrefix+"remembered-rights", text)
	}
	return nil
}
