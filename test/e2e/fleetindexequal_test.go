package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// indexedKinds are those that the chart indexes.
func indexedKinds(t *testing.T) []metav1.APIResource {
	t.Helper()
	kinds, err := installed.IndexedKinds(installed.Clusters[0])
	if err != nil {
		t.Fatal(err)
	}
	return kinds
}

// pathOf is where a kind is listed; an empty namespace means all.
func pathOf(kind metav1.APIResource, namespace string) string {
	path := "/apis/" + kind.Group + "/" + kind.Version
	if kind.Group == "" {
		path = "/api/" + kind.Version
	}
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + kind.Name
}

// makeIndexed makes an object of each namespaced kind that is indexed.
func (f *fleet) makeIndexed(t *testing.T, cluster string) {
	t.Helper()
	labels, create := map[string]string{"app": "indexed", "e2e": "fleet"}, metav1.CreateOptions{}
	meta := metav1.ObjectMeta{Name: "indexed", Labels: labels}
	// The Pod has no label of these: a DaemonSet would adopt it, and delete it as one too many.
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"set": "indexed"}}
	template := f.template(t, cluster)
	template.ObjectMeta = metav1.ObjectMeta{Labels: map[string]string{"set": "indexed", "e2e": "fleet"}}
	job := batchv1.JobSpec{Template: *template.DeepCopy()}
	job.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	apps, batch, cs, ctx := f.on[cluster].AppsV1(), f.on[cluster].BatchV1(), f.on[cluster], t.Context()
	var errs [8]error
	_, errs[0] = cs.CoreV1().Pods(f.ns).Create(ctx, &corev1.Pod{ObjectMeta: meta, Spec: template.Spec}, create)
	_, errs[1] = cs.CoreV1().Services(f.ns).Create(ctx, &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Selector: selector.MatchLabels, Ports: []corev1.ServicePort{{Port: 80}}}}, create)
	_, errs[2] = apps.Deployments(f.ns).Create(ctx, &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: selector, Template: template}}, create)
	_, errs[3] = apps.StatefulSets(f.ns).Create(ctx, &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{ServiceName: "indexed", Selector: selector, Template: template}}, create)
	_, errs[4] = apps.DaemonSets(f.ns).Create(ctx, &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}}, create)
	_, errs[5] = batch.Jobs(f.ns).Create(ctx, &batchv1.Job{ObjectMeta: meta, Spec: job}, create)
	_, errs[6] = batch.CronJobs(f.ns).Create(ctx, &batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{
		Schedule: "0 0 1 1 *", Suspend: ptr.To(true), JobTemplate: batchv1.JobTemplateSpec{Spec: job}}}, create)
	_, errs[7] = cs.NetworkingV1().Ingresses(f.ns).Create(ctx, &networkingv1.Ingress{ObjectMeta: meta, Spec: networkingv1.IngressSpec{
		DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "indexed", Port: networkingv1.ServiceBackendPort{Number: 80}}}}}, create)
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
}

// makeTableUser makes a user of the hub who may use views and reach all clusters. On the clusters the user may do nothing.
func makeTableUser(t *testing.T, name string) (token string) {
	t.Helper()
	return installed.MakeUser(t, name, append(suite.MayUseViews(), suite.MayReach(suite.ReadVerbs))...)
}

// mayReadHere gives a user the right to read all in the scenario's namespace of each cluster.
func (f *fleet) mayReadHere(t *testing.T, name string) {
	t.Helper()
	for _, cluster := range f.clusters {
		rbac, meta := f.on[cluster].RbacV1(), metav1.ObjectMeta{Name: name}
		if _, err := rbac.Roles(f.ns).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{suite.Rule("*", "*", suite.ReadVerbs)}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		there := rbacv1.Subject{Kind: rbacv1.UserKind, Name: "cluster:hub:system:serviceaccount:default:" + name, APIGroup: rbacv1.GroupName}
		if _, err := rbac.RoleBindings(f.ns).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: []rbacv1.Subject{there},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// tableUser is a user of the hub, and the clusters of which the user may list all namespaces, or that of the scenario. Where
// there are none the user is refused.
type tableUser struct {
	name, token string
	all, here   []string
}

// tableUsers are users with different rights.
func (f *fleet) tableUsers(t *testing.T) []tableUser {
	t.Helper()
	one := f.clusters[1:2]
	users := []tableUser{
		{"of all", installed.HubToken, f.clusters, f.clusters},
		{"of one cluster", makeTableUser(t, "index-one"), one, one},
		{"of one namespace", makeTableUser(t, "index-here"), nil, f.clusters},
		{"of nothing", makeTableUser(t, "index-none"), nil, nil},
	}
	installed.MayOn(t, one[0], "index-one", suite.Rule("*", "*", suite.ReadVerbs))
	f.mayReadHere(t, "index-here")
	return users
}

// indexedListsAreEqual compares lists of each indexed kind by the index with the same lists of the live view: rows, columns,
// Warnings and refusals, for users with different rights.
func indexedListsAreEqual(t *testing.T, f *fleet, users []tableUser) {
	for _, cluster := range f.clusters {
		f.makeIndexed(t, cluster)
	}
	kinds := indexedKinds(t)
	for _, user := range users {
		t.Run(user.name, func(t *testing.T) {
			by := [2]rest.Interface{tables(t, viewOf("all", user.token)), tables(t, viewOf("live", user.token))}
			for _, kind := range kinds {
				all, here := pathOf(kind, ""), pathOf(kind, f.ns)
				wantEqualLists(t, by, all, nil, user.all)
				wantEqualLists(t, by, all, map[string]string{"includeObject": "None"}, user.all)
				wantEqualLists(t, by, all, map[string]string{"limit": "2"}, user.all)
				wantEqualLists(t, by, all, map[string]string{"labelSelector": "app!=web", "fieldSelector": "metadata.name!=default"}, user.all)
				if !kind.Namespaced {
					continue
				}
				wantEqualLists(t, by, all, map[string]string{"labelSelector": "app in (indexed),e2e", "limit": "1"}, user.all)
				wantEqualLists(t, by, all, map[string]string{"fieldSelector": "metadata.namespace=" + f.ns + ",metadata.name=indexed"}, user.all)
				wantEqualLists(t, by, here, nil, user.here)
				wantEqualLists(t, by, here, map[string]string{"labelSelector": "app=indexed", "limit": "1"}, user.here)
			}
		})
	}
}

// wantEqualLists waits until the index, which is asked first, and the live view list the same: rows of some clusters and of
// no others, or a refusal if there are none.
func wantEqualLists(t *testing.T, by [2]rest.Interface, path string, query map[string]string, of []string) {
	t.Helper()
	suite.Eventually(t, fmt.Sprintf("the same rows by the index as live: %s %v", path, query), func() error {
		var lists [2]*tableList
		for i, client := range by {
			var err error
			if lists[i], err = listTables(t.Context(), client, path, query); err != nil {
				return err
			}
			// Where the name of a namespace begins with that of another, a kube-apiserver has them in another order.
			slices.SortFunc(lists[i].Rows, func(a, b tableRow) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
		if diff := cmp.Diff(lists[1], lists[0], cmpopts.IgnoreUnexported(tableList{}), cmpopts.EquateEmpty()); diff != "" {
			return fmt.Errorf("(-live +indexed):\n%s", diff)
		}
		seen := map[string]bool{}
		for _, row := range lists[0].Rows {
			seen[fmt.Sprint(row.Cells[0])] = true
		}
		if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, of) || (lists[0].Refusal != "") != (len(of) == 0) {
			return fmt.Errorf("rows of %q, want those of %q: %s", got, of, lists[0].Refusal)
		}
		if len(of) == 0 {
			return nil
		}
		return lists[0].indexed()
	})
}

// servicesOf are a scenario's Services as their clusters have them, as tableList.objects says it.
func (f *fleet) servicesOf(ctx context.Context) (all []string, _ error) {
	for _, cluster := range f.clusters {
		list, err := f.on[cluster].CoreV1().Services(f.ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, s := range list.Items {
			row := tableRow{Cluster: cluster, Namespace: s.Namespace, Name: s.Name, UID: s.UID, Version: version.OfMember(s.ResourceVersion), Labels: s.Labels}
			all = append(all, row.String())
		}
	}
	slices.Sort(all)
	return all, nil
}

// service is a Service that costs its cluster nothing.
func service(name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"e2e": "fleet"}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.org"}}
}

// awaitIndexedServices waits until the index has the Services that the clusters have, and no others.
func (f *fleet) awaitIndexedServices(t *testing.T, what string) {
	t.Helper()
	client := tables(t, viewOf("all", installed.HubToken))
	suite.Eventually(t, what, func() error {
		want, err := f.servicesOf(t.Context())
		if err != nil {
			return err
		}
		list, err := listTables(t.Context(), client, pathOf(metav1.APIResource{Version: "v1", Name: "services"}, f.ns), nil)
		if err == nil {
			err = list.indexed()
		}
		if err != nil {
			return err
		}
		if diff := cmp.Diff(want, list.objects()); diff != "" {
			return fmt.Errorf("(-clusters +indexed):\n%s", diff)
		}
		return nil
	})
}

// indexFollowsWrites makes, changes and deletes a Service on each cluster.
func indexFollowsWrites(t *testing.T, f *fleet) {
	for _, step := range []struct {
		what string
		do   func(cs *kubernetes.Clientset) error
	}{
		{"made", func(cs *kubernetes.Clientset) error {
			_, err := cs.CoreV1().Services(f.ns).Create(t.Context(), service("written"), metav1.CreateOptions{})
			return err
		}},
		{"changed", func(cs *kubernetes.Clientset) error {
			_, err := cs.CoreV1().Services(f.ns).Patch(t.Context(), "written", types.MergePatchType, []byte(`{"metadata":{"labels":{"step":"changed"}}}`), metav1.PatchOptions{})
			return err
		}},
		{"deleted", func(cs *kubernetes.Clientset) error {
			return cs.CoreV1().Services(f.ns).Delete(t.Context(), "written", metav1.DeleteOptions{})
		}},
	} {
		for _, cluster := range f.clusters {
			if err := step.do(f.on[cluster]); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		f.awaitIndexedServices(t, "the index to have what was "+step.what)
		t.Logf("what was %s is so in the index after %s", step.what, time.Since(began).Round(time.Millisecond))
	}
}
