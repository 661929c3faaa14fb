package filter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/audit"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/accesspolicy"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/metrics"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

// Annotations of audit events about AccessPolicies: which were asked, and what they objected.
const (
	PoliciesKey   = scope.AnnotationPrefix + "policies"
	ObjectionsKey = scope.AnnotationPrefix + "policy-objections"
)

// WithPolicies lets a request for a cluster on if no AccessPolicy refuses it. It comes after admission: what
// policies select by is known of the cluster then. A view's clusters are asked about one by one, each with the request that
// it gets; here only that policies are known.
func (f *Filters) WithPolicies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rs := scope.Of(r.Context())
		var err error
		switch rs.Kind {
		case scope.Cluster:
			var decision accesspolicy.Decision
			decision, err = f.Decide(rs)
			annotate(r.Context(), &decision)
			WarnOfPolicies(w.Header(), &decision)
		case scope.View:
			_, err = f.policies()
		}
		if err != nil {
			f.Metrics.Rejected.WithLabelValues("policy").Inc()
			f.Refuse(w, r, f.policyRefusal(rs, err))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Permit asks the policies about a request to a cluster that the proxy API makes for its caller.
func (f *Filters) Permit(ctx context.Context, rs *scope.Scope) error {
	decision, err := f.Decide(rs)
	annotate(ctx, &decision)
	return err
}

// Decide asks the policies about a request to a cluster. The error refuses it: one of them does, or
// they are not known yet.
func (f *Filters) Decide(rs *scope.Scope) (accesspolicy.Decision, error) {
	set, err := f.policies()
	if err != nil || set.IsEmpty() {
		return accesspolicy.Decision{}, err
	}
	asked := rs.PolicyRequest()
	decision := f.decide(set, &asked, rs.Target.Cluster)
	for _, o := range decision.Objections {
		f.Metrics.PolicyObjections.WithLabelValues(o.Policy, resultOf(o), string(o.Reason)).Inc()
	}
	if refusal := decision.Refusal(); refusal != nil {
		return decision, status.New(http.StatusForbidden, refusal.Message)
	}
	return decision, nil
}

func (f *Filters) decide(set *accesspolicy.Set, asked *accesspolicy.Request, cluster string) accesspolicy.Decision {
	asked.Cluster, asked.Now = f.Policies.Cluster(cluster), time.Now()
	return set.Decide(asked)
}

func (f *Filters) policies() (*accesspolicy.Set, error) {
	set, err := f.Policies.Set()
	if err != nil {
		return nil, status.New(http.StatusServiceUnavailable, fmt.Sprintf("the proxy API is starting: %v", err))
	}
	return set, nil
}

// errByPolicy stands for a refusal that is not for everybody to read.
var errByPolicy = errors.New("an AccessPolicy refuses the request")

// policyRefusal returns what a caller gets to read: nothing, if neither the hub nor the cluster knows
// them, because it would tell that there is such a cluster.
func (f *Filters) policyRefusal(rs *scope.Scope, err error) error {
	if hidden := f.hidden(rs, errByPolicy); hidden != errByPolicy {
		return hidden
	}
	return err
}

func resultOf(o *accesspolicy.Objection) string {
	switch {
	case o.Refuses():
		return metrics.PolicyRefused
	case o.Mode == v1alpha1.ModeWarn:
		return metrics.PolicyWarned
	}
	return metrics.PolicyAudited
}

// annotate adds to the audit event what policies said.
func annotate(ctx context.Context, decision *accesspolicy.Decision) {
	if len(decision.Asked) == 0 {
		return
	}
	audit.AddAuditAnnotation(ctx, PoliciesKey, strings.Join(decision.Asked, ","))
	if len(decision.Objections) > 0 {
		texts := make([]string, len(decision.Objections))
		for i, o := range decision.Objections {
			texts[i] = ObjectionText(o)
		}
		audit.AddAuditAnnotation(ctx, ObjectionsKey, strings.Join(texts, "; "))
	}
}

// ObjectionText is an objection in an audit event.
func ObjectionText(o *accesspolicy.Objection) string {
	text := fmt.Sprintf("%s by %s/%s (%s)", resultOf(o), o.Policy, o.Rule, o.Reason)
	if o.Err != nil {
		text += ": " + o.Err.Error()
	}
	return text
}

// WarnOfPolicies adds the warnings of policies in mode Warn to an answer.
func WarnOfPolicies(header http.Header, decision *accesspolicy.Decision) {
	for _, o := range decision.Objections {
		if o.Mode == v1alpha1.ModeWarn {
			fault.AddWarning(header, o.Message)
		}
	}
}

// policedStream is an open stream to one cluster, for which policies are asked again.
type policedStream struct {
	// asked is a snapshot: the scope is its goroutine's.
	asked   accesspolicy.Request
	cluster string
	end     context.CancelCauseFunc
}

// JoinPolicies adds a stream to one cluster. end is called once a policy refuses it; leave must be
// called when it has ended.
func (v *Revalidation) JoinPolicies(rs *scope.Scope, end context.CancelCauseFunc) (leave func()) {
	s := &policedStream{asked: rs.PolicyRequest(), cluster: rs.Target.Cluster, end: end}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.policed[s] = struct{}{}
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.policed, s)
	}
}

// AskPolicies ends the streams that a policy refuses now: it has changed, or its time has come. Policies that are not
// known take nothing away.
func (v *Revalidation) AskPolicies(ctx context.Context) {
	set, err := v.policies.policies()
	if err != nil || set.IsEmpty() {
		return
	}
	v.mu.Lock()
	streams := slices.Collect(maps.Keys(v.policed))
	v.mu.Unlock()
	for _, s := range streams {
		decision := v.policies.decide(set, &s.asked, s.cluster)
		refusal := decision.Refusal()
		if refusal == nil {
			continue
		}
		v.mu.Lock()
		_, open := v.policed[s]
		delete(v.policed, s) // it may take longer to end than a period, and counts once
		v.mu.Unlock()
		if open {
			v.metrics.Withdrawn.WithLabelValues("policy").Inc()
			s.end(fmt.Errorf("your access was revoked: %s", refusal.Message))
			klog.FromContext(ctx).Info("Stream ended, a policy refuses it now", "policy", refusal.Policy, "rule", refusal.Rule, "cluster", s.cluster)
		}
	}
}
