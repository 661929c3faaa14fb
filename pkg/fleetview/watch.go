package fleetview

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/request"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch"
)

// watchParameters are those of the query that are the view's business.
var watchParameters = []string{
	"watch", "limit", "continue", "resourceVersion", "resourceVersionMatch", "timeoutSeconds", "allowWatchBookmarks", "sendInitialEvents", "includeObject",
}

// watch answers a watch.
func (h *Handler) watch(w http.ResponseWriter, r *http.Request, q *request.Request) error {
	accepted, err := request.Forms(r)
	if err != nil {
		return err
	}
	wants, err := readListOptions(q.Query)
	if err != nil {
		return err
	}
	options := watch.Options{
		Path: q.Path.String(), Query: maps.Clone(q.Query), MemberTimeout: q.View.Timeout, InformerTimeout: q.View.InformerTimeout, FailWhenUnreachable: q.View.FailWhenUnreachable, Draining: h.draining,
		ResourceVersion: wants.ResourceVersion, SendInitialEvents: wants.SendInitialEvents, Bookmarks: wants.AllowWatchBookmarks,
		Clock: h.clock, Positions: h.positions, Owner: q.View.Account, Likely: h.lists.Expected(q),
		Rewriter: func(m watch.Member, translate func(string) string) *merge.Rewriter {
			rewriter := q.Rewriter(m, version.Version{})
			rewriter.Version = translate
			return rewriter
		},
	}
	for _, f := range accepted {
		if f.ContentType == request.YAMLType {
			continue
		}
		options.Forms = append(options.Forms, f.Watched(q.Query.Get("includeObject")))
	}
	if len(options.Forms) == 0 {
		return fault.Refuse(http.StatusNotAcceptable, "a view writes watches with application/json: accept it")
	}
	if wants.TimeoutSeconds != nil {
		options.Timeout = time.Duration(*wants.TimeoutSeconds) * time.Second
	}
	for _, parameter := range watchParameters {
		options.Query.Del(parameter)
	}
	options.Now = watched(q.Members)
	options.Members = func(ctx context.Context) ([]watch.Member, error) {
		members, err := q.View.Members(ctx)
		return watched(q.Narrow(members)), err
	}
	watch.Serve(w, r, options)
	return nil
}

// readListOptions reads the query of a watch as kube-apiserver does, and refuses what it
// refuses.
func readListOptions(query url.Values) (*metainternalversion.ListOptions, error) {
	options := new(metainternalversion.ListOptions)
	if err := metainternalversionscheme.ParameterCodec.DecodeParameters(query, metav1.SchemeGroupVersion, options); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if errs := validation.ValidateListOptions(options, true); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	return options, nil
}

// watched returns clusters as package watch calls them.
func watched(members []fleet.Member) []watch.Member {
	now := make([]watch.Member, len(members))
	for i, m := range members {
		now[i] = m
	}
	return now
}
