package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

const passesPath = "/apis/proxy.open-cluster-management.io/v1alpha1/passes"

// passEndsWithin is 10 s, and as much again for a machine that is busy with everything else.
const passEndsWithin = 20 * time.Second

// makeIssuer makes a user of the hub who may make passes, and has a ClusterRole to give away.
func makeIssuer(t *testing.T, name, role string, more ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	token := installed.MakeUser(t, name, more...)
	subject := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: "default"}}
	bindings, inPasses := installed.Hub.RbacV1().ClusterRoleBindings(), installed.Hub.RbacV1().RoleBindings(identity.PassNamespace)
	const issuer = "cluster-proxy-pass-issuer"
	for _, role := range []string{role, issuer} { // awaitIssuer looks at the last one
		made, err := bindings.Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name + "-" + role}, Subjects: subject,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = bindings.Delete(context.Background(), made.Name, metav1.DeleteOptions{}) })
	}
	if _, err := inPasses.Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: subject,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: issuer}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = inPasses.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	cfg := hubConfigOf(t, token)
	awaitIssuer(t, cfg)
	return cfg
}

// awaitIssuer waits until the hub knows what makeIssuer has given a user: its authorizer hears of
// a binding a moment after it was made.
func awaitIssuer(t *testing.T, cfg *rest.Config) {
	t.Helper()
	reviews := suite.Clientset(t, cfg).AuthorizationV1().SelfSubjectAccessReviews()
	for _, may := range []authorizationv1.ResourceAttributes{
		{Verb: "create", Group: "proxy.open-cluster-management.io", Resource: "passes"},
		{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: identity.PassNamespace},
	} {
		suite.Eventually(t, "the rights of who makes passes", func() error {
			review, err := reviews.Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &may}}, metav1.CreateOptions{})
			if err == nil && !review.Status.Allowed {
				err = fmt.Errorf("%s of %s is not allowed: %s", may.Verb, may.Resource, review.Status.Reason)
			}
			return err
		})
	}
}

func hubConfigOf(t *testing.T, token string) *rest.Config {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", hubKubeconfigOf(t, token))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// passPlugin runs kubectl clusterproxy pass as the user of a configuration.
type passPlugin struct{ binary string }

func (p passPlugin) run(t *testing.T, as *rest.Config, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), p.binary, append([]string{"--kubeconfig=" + hubKubeconfigOf(t, as.BearerToken), "pass"}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// leftOfPass lists what there is on the hub of passes whose names begin in this way.
func leftOfPass(ctx context.Context, pass string) (left []string, err error) {
	accounts, err1 := installed.Hub.CoreV1().ServiceAccounts(identity.PassNamespace).List(ctx, metav1.ListOptions{})
	roles, err2 := installed.Hub.RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{})
	bindings, err3 := installed.Hub.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	raw, err4 := installed.Hub.RESTClient().Get().AbsPath(passesPath).DoRaw(ctx)
	for _, err := range []error{err1, err2, err3, err4} {
		if err != nil {
			return nil, err
		}
	}
	var passes v1alpha1.PassList
	if err := json.Unmarshal(raw, &passes); err != nil {
		return nil, err
	}
	add := func(kind, name, prefix string) {
		if strings.HasPrefix(name, prefix) {
			left = append(left, kind+" "+name)
		}
	}
	for _, o := range accounts.Items {
		add("ServiceAccount", o.Name, pass)
	}
	for _, o := range roles.Items {
		add("ClusterRole", o.Name, identity.PassObject(pass))
	}
	for _, o := range bindings.Items {
		add("ClusterRoleBinding", o.Name, identity.PassObject(pass))
	}
	for _, o := range passes.Items {
		add("Pass", o.Name, pass)
	}
	return left, nil
}

func wantNothingOfPass(t *testing.T, pass string) {
	t.Helper()
	suite.Eventually(t, "nothing left of pass "+pass, func() error {
		left, err := leftOfPass(t.Context(), pass)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("there are %v", left)
		}
		return err
	})
}

// passContext is one context of a pass's kubeconfig.
func passContext(t *testing.T, file, context string) *rest.Config {
	t.Helper()
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&clientcmd.ClientConfigLoadingRules{ExplicitPath: file},
		&clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// TestPasses makes a pass, uses it with kubectl, and revokes it while it has streams open. It
// disturbs nothing.
func TestPasses(t *testing.T) {
	releaseOnNodes(t)
	cluster, other := installed.Clusters[0], installed.Clusters[1]
	plugin := passPlugin{buildPlugin(t)}
	works := suite.Rule("work.open-cluster-management.io", "manifestworks", []string{"create"})
	jane := makeIssuer(t, "e2e-pass-jane", "cluster-proxy-user", works)
	file := filepath.Join(t.TempDir(), "ann.kubeconfig")
	out, err := plugin.run(t, jane, "create", "e2e-ann", "--clusters="+cluster, "--role=user", "--cluster-role=e2e-admin", "-o", file)
	if err != nil {
		t.Fatalf("making a pass: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		_ = installed.Hub.RESTClient().Delete().AbsPath(passesPath, "e2e-ann").Do(context.Background()).Error()
	})
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the kubeconfig is %v, %v; want mode 0600", info, err)
	}
	single := passContext(t, file, cluster)
	if strings.Contains(out, single.BearerToken) {
		t.Error("the token is in the command's other output")
	}
	kubectl, env := installed.KubectlProgram("hub")
	for _, context := range []string{cluster, "fleet"} {
		suite.Eventually(t, "kubectl get pods in context "+context, func() error {
			cmd := exec.CommandContext(t.Context(), kubectl, "--kubeconfig="+file, "--context="+context, "get", "pods", "-n", "default", "-l", "app=web")
			cmd.Env = append(os.Environ(), env...)
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "web-") {
				return fmt.Errorf("%w: %s", err, out)
			}
			if strings.Contains(string(out), other) {
				t.Errorf("a cluster that the pass is not for is in context %s:\n%s", context, out)
			}
			return nil
		})
	}
	elsewhere := rest.CopyConfig(single)
	elsewhere.Host = strings.Replace(single.Host, "/"+cluster+"/", "/"+other+"/", 1)
	direct := rest.CopyConfig(installed.ThroughProxyAPI(cluster))
	direct.BearerToken = single.BearerToken
	directElsewhere := rest.CopyConfig(installed.ThroughProxyAPI(other))
	directElsewhere.BearerToken = single.BearerToken
	for _, cfg := range []*rest.Config{elsewhere, directElsewhere} {
		if got, err := suite.Ask(t.Context(), cfg, suite.Request{Method: http.MethodGet, Path: "/version"}); err != nil || got.Code != http.StatusForbidden {
			t.Errorf("%s is answered %d, %v; want 403", cfg.Host, got.Code, err)
		}
	}
	if out, err := plugin.run(t, jane, "list"); err != nil || !strings.Contains(out, "e2e-ann") || !strings.Contains(out, "system:serviceaccount:default:e2e-pass-jane") || !strings.Contains(out, "Active") {
		t.Errorf("pass list: %v\n%s", err, out)
	}
	fleet := passContext(t, file, "fleet")
	ended := make(chan string)
	streams := 0
	for name, cfg := range map[string]*rest.Config{"aggregated API": single, "proxy API": direct, "fleet": fleet} {
		streams += holdPassStreams(t, name, cfg, ended)
	}
	began := time.Now()
	if out, err := plugin.run(t, jane, "revoke", "e2e-ann"); err != nil {
		t.Fatalf("revoking: %v\n%s", err, out)
	}
	t.Logf("the command took %v", time.Since(began))
	for range streams {
		select {
		case what := <-ended:
			t.Logf("%s ended after %v", what, time.Since(began).Round(100*time.Millisecond))
		case <-time.After(passEndsWithin):
			t.Fatal("a stream of a revoked pass goes on")
		}
	}
	if took := time.Since(began); took > passEndsWithin {
		t.Errorf("streams of a revoked pass went on for %v", took)
	}
	for _, cfg := range []*rest.Config{single, direct, fleet} {
		if got, err := suite.Ask(t.Context(), cfg, suite.Request{Method: http.MethodGet, Path: "/version"}); err != nil || got.Code != http.StatusForbidden && got.Code != http.StatusUnauthorized {
			t.Errorf("after that %s is answered %d, %v", cfg.Host, got.Code, err)
		}
	}
	wantNothingOfPass(t, "e2e-ann")
	suite.Eventually(t, "the ManifestWork of the pass gone, or on its way", func() error {
		var there metav1.PartialObjectMetadataList
		raw, err := installed.Hub.RESTClient().Get().AbsPath("/apis/work.open-cluster-management.io/v1/namespaces/" + cluster + "/manifestworks").DoRaw(t.Context())
		if err == nil {
			err = json.Unmarshal(raw, &there)
		}
		// OCM's work agent takes it from here. The one that uses gRPC (sdk-go 1.2.0) may lose the deletion,
		// if it comes while the agent updates the same work in its store.
		for _, work := range there.Items {
			if strings.HasPrefix(work.Name, "cluster-proxy-pass-e2e-ann") && work.DeletionTimestamp == nil {
				return fmt.Errorf("%s is there", work.Name)
			}
		}
		return err
	})
}

// holdPassStreams opens a watch and an exec, each of which sends its name when it has ended.
func holdPassStreams(t *testing.T, name string, cfg *rest.Config, ended chan<- string) (streams int) {
	t.Helper()
	cs := suite.Clientset(t, cfg)
	done := func(what string) {
		select {
		case ended <- what + " at " + name:
		case <-t.Context().Done():
		}
	}
	watch, err := cs.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatalf("watching at %s: %v", name, err)
	}
	go func() {
		for range watch.ResultChan() {
		}
		done("watch")
	}()
	began := make(chan struct{})
	executor := suite.Executors(t, cfg, "sh", "-c", suite.Talk)["websocket"]
	silence, _ := io.Pipe()
	over := make(chan error, 1)
	go func() {
		over <- executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: silence, Stdout: &firstWrite{began: began}})
		done("exec")
	}()
	select {
	case <-began:
	case err := <-over:
		t.Fatalf("exec at %s ends at once: %v", name, err)
	case <-time.After(suite.Timeout):
		t.Fatalf("exec at %s says nothing", name)
	}
	return 2
}

// firstWrite closes began when something is written.
type firstWrite struct{ began chan struct{} }

func (w *firstWrite) Write(p []byte) (int, error) {
	if w.began != nil {
		close(w.began)
		w.began = nil
	}
	return len(p), nil
}
