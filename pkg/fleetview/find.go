package fleetview

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/request"
)

// metadataOnly is what members are asked for when an object is looked for.
const metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

// findOne returns the answer of the one member that has what is asked for, and the others'.
func findOne(ctx context.Context, q *request.Request, ask fleet.Question) (found fleet.Answer, absent, failures []*fault.Fault, _ error) {
	var having []fleet.Answer
	for _, a := range ask.AskAll(ctx, q.Members) {
		switch {
		case a.Failure == nil:
			having = append(having, a)
		case a.Failure.Code == http.StatusNotFound:
			absent = append(absent, a.Failure)
		default:
			failures = append(failures, a.Failure)
		}
	}
	incomplete := q.View.FailWhenUnreachable && len(failures) > 0
	if len(having) == 1 && !incomplete {
		return having[0], absent, failures, nil
	}
	for _, a := range having {
		_ = a.Response.Body.Close() // it is not wanted
	}
	switch {
	case len(having) > 1:
		return fleet.Answer{}, nil, nil, ambiguous(q, having)
	case incomplete:
		return fleet.Answer{}, nil, nil, fault.Unreachable(failures)
	}
	return fleet.Answer{}, nil, nil, orNoCluster(q, fault.AllFailed(failures, absent))
}

// orNoCluster adds to the error of an object that no member has in which cluster it was looked for, if
// the request names one, or that its name ends in no cluster of the view, which says more to those who
// meant one. Some names have an @ of their own.
func orNoCluster(q *request.Request, err error) error {
	var missing *fault.Fault
	if !errors.As(err, &missing) || missing.Code != http.StatusNotFound {
		return err
	}
	if _, cluster, ok := request.CutLast(q.Info.Name); ok {
		missing.Answer.Message += fmt.Sprintf("; view %q has no cluster %q that you may reach; it has: %s", q.View.Name, cluster, fleet.SomeOf(q.Everyone))
	} else if q.Chosen() {
		missing.Answer.Message += fmt.Sprintf(" on cluster %q", missing.Cluster)
	}
	return err
}

// owner returns the member that a request is for which changes the object of its path, or reads
// its log.
func owner(ctx context.Context, q *request.Request) (fleet.Member, error) {
	if m, ok := q.Only(); ok {
		return m, nil
	}
	object, name := q.Path.Object(), q.Info.Name
	if q.Info.Subresource == "proxy" {
		// The name may have a scheme and a port: https:web:8443.
		if _, plain, _, ok := utilnet.SplitSchemeNamePort(name); ok {
			object, name = object.Named(plain), plain
		}
	}
	ask := fleet.Question{Method: http.MethodGet, Path: object.String(), Query: url.Values{}, Accept: metadataOnly, Timeout: q.View.Timeout}
	found, absent, failures, err := findOne(ctx, q, ask)
	if err != nil {
		return nil, err
	}
	_ = found.Response.Body.Close() // that there is one is enough
	candidate := q.Info.Name + "@" + found.Member.Name()
	has := fmt.Sprintf("cluster %q has %s %q", found.Member.Name(), q.Info.Resource, q.Info.Name)
	if len(failures) > 0 {
		has += ", but " + fault.Outcomes(failures)
	}
	switch {
	case q.Bare():
		message := has + ": to change it or to connect to it, name the cluster, as " + candidate
		if q.Info.Verb == "patch" {
			// kubectl apply leaves out of a patch what has not changed.
			message += "; the annotation " + fleet.AnnotationCluster + " alone leads to it only when it is created"
		}
		return nil, notNamed(q, []string{candidate}, message)
	case len(failures) > 0:
		err := fault.Unreachable(failures)
		err.ErrStatus.Message = has + ": name the cluster, as " + candidate
		return nil, err
	case q.Changes && lone(absent, name):
		return nil, notNamed(q, []string{candidate}, fmt.Sprintf("%s, and most clusters do not have %s at all: name the cluster, as %s", has, q.Info.Resource, candidate))
	}
	return found.Member, nil
}

// lone reports whether fewer than half of the members have the resource of which one has an
// object: that one may say so to be written to in another's place. The others' answers tell: a
// Status about an object has its name.
func lone(absent []*fault.Fault, name string) bool {
	having := 1
	for _, f := range absent {
		if details := f.Answer.Details; details != nil && details.Name == name {
			having++
		}
	}
	return 2*having < 1+len(absent)
}

// ambiguous is the error of a name that objects of several clusters have.
func ambiguous(q *request.Request, having []fleet.Answer) error {
	candidates := make([]string, len(having))
	for i, a := range having {
		candidates[i] = q.Info.Name + "@" + a.Member.Name()
	}
	return notNamed(q, candidates, fmt.Sprintf("%d clusters have %s %q: name one of them: %s", len(having), q.Info.Resource, q.Info.Name, fleet.SomeOf(candidates)))
}

// notNamed is the error of a request that must name one of these objects.
func notNamed(q *request.Request, candidates []string, message string) error {
	err := fault.Refuse(http.StatusConflict, message)
	// Clients repeat what ends in a Conflict, kubectl scale for five minutes. This would end so again.
	err.ErrStatus.Reason = metav1.StatusReasonBadRequest
	err.ErrStatus.Details = &metav1.StatusDetails{Name: q.Info.Name, Group: q.Info.APIGroup, Kind: q.Info.Resource}
	for _, candidate := range candidates {
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: "Candidate", Field: "metadata.name", Message: candidate})
	}
	return err
}
