package pass

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
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
	if err := cli.Get(ctx, hub, passesPath, &list); apierrors.IsNotFound(err) {
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
	return cli.Answer(ctx, hub.Discovery().RESTClient().Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body(body), path, into)
}

// awaitPassGone waits until a pass is gone: the garbage collector deletes the binding, and the pass is
// there until it has.
func awaitPassGone(ctx context.Context, hub kubernetes.Interface, pass *v1alpha1.Pass) error {
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, goneTimeout, true, func(ctx context.Context) (bool, error) {
		var now v1alpha1.Pass
		err := cli.Get(ctx, hub, passesPath+"/"+pass.Name, &now)
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
	if err := cli.Answer(ctx, request, path, &deleted); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting it: %w", err)
	}
	return awaitPassGone(ctx, hub, pass)
}
