package kubectlplugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// passesPath is where the hub keeps Passes.
var passesPath = "/apis/" + v1alpha1.GroupVersion.String() + "/passes"

// errNoPasses says that the hub does not know Passes at all.
var errNoPasses = errors.New("the hub does not know passes: the CRD passes." + v1alpha1.GroupVersion.Group +
	" is not installed; helm upgrade installs it, and its notes say what to do if it may not")

// goneTimeout is how long a pass may take to be gone with all that belongs to it. The garbage collector
// looks every 30 s for kinds that are new.
const goneTimeout = time.Minute

// passes returns the passes of the hub.
func passes(ctx context.Context, hub kubernetes.Interface) ([]v1alpha1.Pass, error) {
	var list v1alpha1.PassList
	if err := get(ctx, hub, passesPath, &list); apierrors.IsNotFound(err) {
		return nil, errNoPasses
	} else if err != nil {
		return nil, fmt.Errorf("listing passes: %w", err)
	}
	return list.Items, nil
}

// post makes an object and reads it as the hub stored it.
func post(ctx context.Context, hub kubernetes.Interface, path string, object, into any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return answer(ctx, hub.Discovery().RESTClient().Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body(body), path, into)
}

func (p *plugin) listPasses(ctx context.Context, output string) error {
	hub, err := p.hub()
	if err != nil {
		return err
	}
	found, err := passes(ctx, hub)
	if err != nil {
		return err
	}
	for i := range found {
		found[i].ManagedFields = nil // kubectl does not show them either
	}
	for i := range found {
		found[i].TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Pass"}
	}
	list := v1alpha1.PassList{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "PassList"}, Items: append([]v1alpha1.Pass{}, found...)}
	if printed, err := p.print(output, list); printed {
		return err
	}
	if len(found) == 0 {
		fmt.Fprintln(p.err, "There is no pass.")
		return nil
	}
	t := newTable("Name", "Made By", "Clusters", "Sets", "Role", "Left", "State")
	for i := range found {
		spec := &found[i].Spec
		left, state := passState(&found[i])
		t.add(found[i].Name, spec.MadeBy, strings.Join(spec.Clusters, ","), strings.Join(spec.ClusterSets, ","), strings.ToLower(string(spec.Role)), left, state)
	}
	return p.printTable(t, false)
}

// passState is how long a pass lasts, and whether it does.
func passState(pass *v1alpha1.Pass) (left, state string) {
	remaining := time.Until(pass.Spec.Expires.Time)
	switch {
	case pass.DeletionTimestamp != nil:
		return "0s", "Ending"
	case remaining <= 0:
		return "0s", "Expired" // the addon manager is about to delete it
	}
	return duration.HumanDuration(remaining), "Active"
}

// revokePasses ends passes, and waits until nothing of them grants anything.
func (p *plugin) revokePasses(ctx context.Context, names []string) error {
	hub, err := p.hub()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		if err := revokePass(ctx, hub, name); err != nil {
			errs = append(errs, err)
			continue
		}
		fmt.Fprintf(p.out, "pass %s is revoked; what it has open ends within 10 s\n", name)
	}
	return errors.Join(errs...)
}

func revokePass(ctx context.Context, hub kubernetes.Interface, name string) error {
	if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
		return fmt.Errorf("%q cannot be the name of a pass: %s", name, wrong[0])
	}
	var pass v1alpha1.Pass
	if err := get(ctx, hub, passesPath+"/"+name, &pass); isMissing(err, name) {
		return fmt.Errorf("no pass %q; see: kubectl clusterproxy pass list", name)
	} else if apierrors.IsNotFound(err) {
		return errNoPasses
	} else if err != nil {
		return fmt.Errorf("getting pass %q: %w", name, err)
	}
	if err := endPass(ctx, hub, &pass, true); err != nil {
		return fmt.Errorf("revoking pass %q: %w", name, err)
	}
	return nil
}

// awaitPassGone waits until a pass is gone: the garbage collector deletes the binding, and the pass is
// there until it has.
func awaitPassGone(ctx context.Context, hub kubernetes.Interface, pass *v1alpha1.Pass) error {
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, goneTimeout, true, func(ctx context.Context) (bool, error) {
		var now v1alpha1.Pass
		err := get(ctx, hub, passesPath+"/"+pass.Name, &now)
		return apierrors.IsNotFound(err) || now.UID != "" && now.UID != pass.UID, nil
	})
	if err != nil {
		return fmt.Errorf("waiting until it is gone: %w: its service account is deleted; is the garbage collector of the hub at work? See: kubectl get clusterrolebinding %s",
			err, identity.PassObject(identity.PassAccount(pass.Name, string(pass.UID))))
	}
	return nil
}

// endPass deletes the service account of a pass, if there is one, and then the pass with all
// that belongs to it, and waits until they are gone. In the foreground: package passes of the addon
// manager says why.
func endPass(ctx context.Context, hub kubernetes.Interface, pass *v1alpha1.Pass, account bool) error {
	if account {
		name := identity.PassAccount(pass.Name, string(pass.UID))
		// Administrators may do that themselves, and for others the garbage collector does it.
		_ = hub.RbacV1().ClusterRoleBindings().Delete(ctx, identity.PassObject(name), metav1.DeleteOptions{})
		err := hub.CoreV1().ServiceAccounts(identity.PassNamespace).Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting its service account: %w", err)
		}
	}
	foreground := metav1.DeletePropagationForeground
	body, err := json.Marshal(metav1.DeleteOptions{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}, PropagationPolicy: &foreground, Preconditions: &metav1.Preconditions{UID: &pass.UID},
	})
	if err != nil {
		return err
	}
	path := passesPath + "/" + pass.Name
	request := hub.Discovery().RESTClient().Delete().AbsPath(path).SetHeader("Content-Type", "application/json").Body(body)
	var deleted map[string]any
	if err := answer(ctx, request, path, &deleted); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting it: %w", err)
	}
	return awaitPassGone(ctx, hub, pass)
}
