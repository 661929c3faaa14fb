package pass

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	proxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
)

const (
	// undoTimeout bounds the removal of a pass that could not be finished.
	undoTimeout = 10*time.Second + goneTimeout
	// accountTimeout is how long the addon manager may take for a pass's account. A new one takes the
	// leadership within 15 s of the old one's end.
	accountTimeout = 30 * time.Second
)

func createPass(ctx context.Context, p *cli.Factory, name string, options passOptions) (err error) {
	if err := options.validate(name); err != nil {
		return err
	}
	hub, err := p.Hub()
	if err != nil {
		return err
	}
	contexts, err := passContexts(p, name, options)
	if err != nil {
		return err
	}
	write := func(raw []byte) error { _, err := p.Out.Write(raw); return err }
	if options.file != "" {
		file, openErr := os.OpenFile(options.file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if openErr != nil {
			return fmt.Errorf("making the file for the kubeconfig: %w", openErr)
		}
		write = func(raw []byte) error { _, err := file.Write(raw); return errors.Join(err, file.Close()) }
		defer func() {
			if err != nil {
				_ = file.Close() // it may be open still
				err = errors.Join(err, os.Remove(options.file))
			}
		}()
	}
	n := &passInProgress{hub: hub, options: options}
	token, err := n.make(ctx, name)
	if err == nil {
		contexts.Added.AuthInfos[contexts.AuthInfo].Token = token.Token
		var raw []byte
		if raw, err = clientcmd.Write(*contexts.Added); err == nil {
			err = write(raw)
		}
	}
	if err != nil {
		return n.undo(ctx, err)
	}
	tellOfPass(p, n, token)
	return nil
}

// make makes the pass and what belongs to it. The policies of the chart need the pass to
// be there first; the token is last, so that there is none of a pass that is not whole.
func (n *passInProgress) make(ctx context.Context, name string) (*authenticationv1.TokenRequestStatus, error) {
	me, err := n.hub.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("asking the hub who you are: %w", err)
	}
	n.pass = n.options.newPass(name, me.Status.UserInfo.Username)
	if err := post(ctx, n.hub, passesPath, n.pass, &n.pass); err != nil {
		if apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("there is a pass %q: choose another name, or run kubectl clusterproxy pass revoke %s", name, name)
		}
		if apierrors.IsNotFound(err) {
			return nil, errNoPasses
		}
		return nil, explain("the Pass", err)
	}
	owner := n.owned("", true)
	account := identity.PassAccount(name, string(n.pass.UID))
	owner.Name = identity.PassObject(account)
	role := &rbacv1.ClusterRole{ObjectMeta: owner, Rules: passRules(&n.pass.Spec)}
	if _, err := n.hub.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return nil, explain("its ClusterRole", err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: owner, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: owner.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: identity.PassNamespace, Name: account}},
	}
	if _, err := n.hub.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return nil, explain("its ClusterRoleBinding", err)
	}
	if err := n.bindOnClusters(ctx); err != nil {
		return nil, err
	}
	return n.token(ctx, account)
}

// token makes the token, as soon as the addon manager has made the account.
func (n *passInProgress) token(ctx context.Context, account string) (status *authenticationv1.TokenRequestStatus, err error) {
	seconds := int64(n.options.life / time.Second)
	late := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, accountTimeout, true, func(ctx context.Context) (bool, error) {
		var request *authenticationv1.TokenRequest
		request, err = n.hub.CoreV1().ServiceAccounts(identity.PassNamespace).CreateToken(ctx, account,
			&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
		if err == nil {
			status = &request.Status
		}
		return !noAccount(err), nil
	})
	switch {
	case noAccount(err) && late != nil && ctx.Err() == nil:
		return nil, fmt.Errorf("making its token: the addon manager has not made service account %q within %v: is it running? See: kubectl get deployment -A --field-selector metadata.name=cluster-proxy-addon-manager", account, accountTimeout)
	case late != nil && err == nil:
		return nil, late
	case err != nil:
		return nil, explain("its token", err)
	}
	return status, nil
}

// noAccount reports whether an account is not there, in a namespace that is.
func noAccount(err error) bool {
	return apierrors.IsNotFound(err) && !strings.Contains(err.Error(), "namespaces")
}

// newPass is what the hub is asked to store.
func (o *passOptions) newPass(name, maker string) proxyv1alpha1.Pass {
	sorted := func(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }
	return proxyv1alpha1.Pass{
		TypeMeta:   metav1.TypeMeta{APIVersion: proxyv1alpha1.GroupVersion.String(), Kind: "Pass"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: proxyv1alpha1.PassSpec{
			MadeBy: maker, Role: passRoles[o.role], View: o.view, Expires: metav1.NewTime(time.Now().Add(o.life)),
			Clusters: sorted(o.clusters), ClusterSets: sorted(o.clusterSets),
		},
	}
}

// passRules are those rules of the chart's ClusterRoles that the contexts of a pass need, with
// the names of what the pass is for.
func passRules(spec *proxyv1alpha1.PassSpec) []rbacv1.PolicyRule {
	verbs, viewVerbs := []string{"get", "list", "watch"}, []string{"get", "create"} // create for reviews
	if spec.Role == proxyv1alpha1.PassUser {
		verbs = append(verbs, "create", "update", "patch", "delete", "deletecollection", "options")
		viewVerbs = append(viewVerbs, "update", "patch", "delete", "options")
	}
	var rules []rbacv1.PolicyRule
	add := func(group, resource string, names, verbs []string) {
		if len(names) > 0 {
			rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names, Verbs: verbs})
		}
	}
	group := v1alpha1.GroupVersion.Group
	for resource, names := range map[string][]string{v1alpha1.Resource: spec.Clusters, "clustersets": spec.ClusterSets} {
		add(group, resource+"/"+v1alpha1.ProxySubresource, names, verbs)
		if spec.Role == proxyv1alpha1.PassUser {
			add(group, resource+"/"+v1alpha1.StreamSubresource, names, []string{"create"})
		}
	}
	if spec.View != "" {
		add(proxyv1alpha1.GroupVersion.Group, "fleetviews", []string{spec.View}, []string{"get"})
		add(group, "fleetviews/"+v1alpha1.ProxySubresource, []string{spec.View}, viewVerbs)
	}
	return rules
}

// undo removes a pass that is not whole, even if the user does not wait any more.
func (n *passInProgress) undo(ctx context.Context, why error) error {
	if n.pass.UID == "" {
		return why // nothing was made
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if err := endPass(ctx, n.hub, &n.pass, false); err != nil {
		return fmt.Errorf("%w; and removing what was made: %w; run kubectl clusterproxy pass revoke %s", why, err, n.pass.Name)
	}
	return fmt.Errorf("%w; what was made before is removed", why)
}

// tellOfPass writes about a pass to standard error: the kubeconfig may be on the other.
func tellOfPass(p *cli.Factory, n *passInProgress, token *authenticationv1.TokenRequestStatus) {
	fmt.Fprintf(p.Err, "pass %s lasts until %s; on clusters it is user %s\n", n.pass.Name, n.pass.Spec.Expires.UTC().Format(time.RFC3339),
		identity.PassUser(identity.PassAccount(n.pass.Name, string(n.pass.UID))))
	if end := token.ExpirationTimestamp.Time; n.pass.Spec.Expires.Sub(end) > time.Minute {
		fmt.Fprintf(p.Err, "the hub made its token for a shorter time, until %s (--service-account-max-token-expiration of its kube-apiserver)\n", end.UTC().Format(time.RFC3339))
	}
	if len(n.pass.Spec.ClusterSets) > 0 {
		fmt.Fprintln(p.Err, `clusters of --clustersets have no contexts of their own: use context "fleet", and NAME@CLUSTER for one cluster`)
	}
}
