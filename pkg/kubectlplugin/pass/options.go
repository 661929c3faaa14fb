package pass

import (
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

// minPass is the shortest life of a token that Kubernetes makes.
const minPass = 10 * time.Minute

// passRoles are the roles by what users write for them.
var passRoles = map[string]v1alpha1.PassRole{"viewer": v1alpha1.PassViewer, "user": v1alpha1.PassUser}

// passOptions are the flags of the command pass create.
type passOptions struct {
	clusters, clusterSets         []string
	role, view, clusterRole, file string
	life                          time.Duration
	// namespace is the one that clusterRole is limited to, and that contexts have.
	namespace string
}

// validate refuses what cannot be, before anything is made.
func (o *passOptions) validate(name string) error {
	var errs []error
	check := func(what string, is func(string) []string, values ...string) {
		for _, value := range values {
			if wrong := is(value); len(wrong) > 0 {
				errs = append(errs, fmt.Errorf("%s %q: %s", what, value, wrong[0]))
			}
		}
	}
	optional := func(is func(string) []string) func(string) []string {
		return func(value string) []string {
			if value == "" {
				return nil
			}
			return is(value)
		}
	}
	check("the name of the pass is", validation.IsDNS1123Label, name)
	check("--clusters has", validation.IsDNS1123Subdomain, o.clusters...)
	check("--clustersets has", validation.IsDNS1123Subdomain, o.clusterSets...)
	check("--view is", optional(validation.IsDNS1123Subdomain), o.view)
	check("--namespace is", optional(validation.IsDNS1123Label), o.namespace)
	check("--cluster-role is", optional(content.IsPathSegmentName), o.clusterRole)
	if len(o.clusters)+len(o.clusterSets) == 0 {
		errs = append(errs, errors.New("name the clusters of the pass with --clusters, or sets of them with --clustersets"))
	}
	if len(o.clusters) == 0 && o.view == "" {
		errs = append(errs, errors.New("clusters of --clustersets are reached by a view: leave out --view="))
	}
	if passRoles[o.role] == "" {
		errs = append(errs, fmt.Errorf("--role is %q: it must be viewer or user", o.role))
	}
	if o.life < minPass {
		errs = append(errs, fmt.Errorf("--for is %s: Kubernetes makes no token for less than %s", o.life, minPass))
	}
	return errors.Join(errs...)
}

// newPass is a pass that is being made.
type passInProgress struct {
	hub     kubernetes.Interface
	options passOptions
	pass    v1alpha1.Pass
}

// explain says what was being made, and what is missing if that is a right.
func explain(what string, err error) error {
	why := strings.Join(strings.Fields(err.Error()), " ") // Kubernetes lists rights in lines
	switch {
	case apierrors.IsNotFound(err) && strings.Contains(why, "namespaces"):
		return fmt.Errorf("making %s: %s: passes need the chart's value passes.enabled, and Kubernetes 1.30 on the hub", what, why)
	case !apierrors.IsForbidden(err):
		return fmt.Errorf("making %s: %s", what, why)
	case strings.Contains(why, "denied request"): // a policy's message says it all
		return fmt.Errorf("making %s: %s", what, why)
	case strings.Contains(why, "attempting to grant"):
		return fmt.Errorf("making %s: %s: you can give away only rights that you have yourself", what, why)
	}
	return fmt.Errorf("making %s: %s: you may not make passes: ask an administrator of the hub for ClusterRole and Role cluster-proxy-pass-issuer", what, why)
}

// owned is the metadata of something that belongs to the pass.
func (n *passInProgress) owned(name string, blocks bool) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "Pass", Name: n.pass.Name, UID: n.pass.UID, BlockOwnerDeletion: &blocks,
	}}}
}
