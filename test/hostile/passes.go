package hostile

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	clusterproxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

const passesPath = "/apis/proxy.open-cluster-management.io/v1alpha1/passes"

// issuer is a user of the hub who may make passes.
type issuer struct {
	name string
	hub  *kubernetes.Clientset
}

// passIssuer makes a user with the chart's roles for makers of passes, and rights to give away.
func (s *Suite) passIssuer(t *testing.T, account string, rules ...rbacv1.PolicyRule) issuer {
	t.Helper()
	const role = "cluster-proxy-pass-issuer"
	token := s.hubUser(t, account, rules...)
	meta, subjects := metav1.ObjectMeta{Name: account + "-issuer"}, []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: "default"}}
	everywhere, there := s.Hub.RbacV1().ClusterRoleBindings(), s.Hub.RbacV1().RoleBindings(identity.PassNamespace)
	t.Cleanup(func() {
		_ = everywhere.Delete(context.Background(), meta.Name, metav1.DeleteOptions{})
		_ = there.Delete(context.Background(), meta.Name, metav1.DeleteOptions{})
	})
	_, err1 := everywhere.Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}}, metav1.CreateOptions{})
	_, err2 := there.Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role}}, metav1.CreateOptions{})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	hub := s.as(t, token)
	s.waitForRight(t, account, suite.Rule(v1alpha1.GroupVersion.Group, "passes", []string{"create"}))
	suite.Eventually(t, "the hub to know that "+account+" may make tokens", func() error {
		_, err := hub.CoreV1().ServiceAccounts(identity.PassNamespace).CreateToken(t.Context(), "nobody", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	return issuer{"system:serviceaccount:default:" + account, hub}
}

// post makes a pass for a cluster, as somebody's.
func (i issuer) post(t *testing.T, name, madeBy string, role v1alpha1.PassRole, cluster string) (made v1alpha1.Pass, err error) {
	t.Helper()
	body, err := json.Marshal(v1alpha1.Pass{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Pass"}, ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.PassSpec{MadeBy: madeBy, Role: role, Expires: metav1.NewTime(time.Now().Add(time.Hour)), Clusters: []string{cluster}},
	})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := i.hub.RESTClient().Post().AbsPath(passesPath).SetHeader("Content-Type", "application/json").Body(body).DoRaw(t.Context())
	if err == nil {
		err = json.Unmarshal(raw, &made)
	}
	return made, err
}

// grant gives a pass's account a right, as kubectl clusterproxy pass create does. How far it gets
// is the hub's to say.
func (i issuer) grant(t *testing.T, pass v1alpha1.Pass, account string, rules ...rbacv1.PolicyRule) error {
	t.Helper()
	meta := metav1.ObjectMeta{Name: identity.PassObject(account), OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Pass", Name: pass.Name, UID: pass.UID}}}
	if _, err := i.hub.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{}); err != nil {
		return err
	}
	return i.bind(t, meta, account, meta.Name)
}

func (i issuer) bind(t *testing.T, meta metav1.ObjectMeta, account, role string) error {
	t.Helper()
	_, err := i.hub.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: identity.PassNamespace, Name: account}}}, metav1.CreateOptions{})
	return err
}

// pass makes a whole one, to read a cluster, and returns the name of its account and its token.
func (i issuer) pass(t *testing.T, name, cluster string) (pass v1alpha1.Pass, account, token string) {
	t.Helper()
	pass, err := i.post(t, name, i.name, v1alpha1.PassViewer, cluster)
	if err != nil {
		t.Fatal(err)
	}
	account = identity.PassAccount(name, string(pass.UID))
	if err := i.grant(t, pass, account, mayReach(cluster, "get", "list", "watch")); err != nil {
		t.Fatal(err)
	}
	suite.Eventually(t, "the account of pass "+name, func() error {
		made, err := i.hub.CoreV1().ServiceAccounts(identity.PassNamespace).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err == nil {
			token = made.Status.Token
		}
		return err
	})
	return pass, account, token
}

// makesAccounts tries to make an account of passes, and a token of Kubernetes' own account there. It
// returns what the hub says.
func (i issuer) makesAccounts(t *testing.T, account string) (made, token error) {
	t.Helper()
	accounts := i.hub.CoreV1().ServiceAccounts(identity.PassNamespace)
	_, made = accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	_, token = accounts.CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	return made, token
}

// testPasses has a user get at another one's pass, make passes with another name or more rights than
// they have, and use a pass that was stolen beyond what it is for.
func (s *Suite) testPasses(t *testing.T) {
	a, v := s.attacker(), s.victim()
	maker := s.passIssuer(t, "hostile-pass-maker", mayReach(a, "get", "list", "watch"))
	thief := s.passIssuer(t, "hostile-pass-thief", mayReach(a, "get"))
	t.Cleanup(func() {
		for _, name := range []string{"hostile-pass", "hostile-pass-more", "hostile-pass-forged"} {
			_ = s.Hub.RESTClient().Delete().AbsPath(passesPath, name).Do(context.Background()).Error()
		}
	})
	pass, account, token := maker.pass(t, "hostile-pass", a)
	s.usePass(t, account, token)

	accounts := thief.hub.CoreV1().ServiceAccounts(identity.PassNamespace)
	_, accountErr := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	_, tokenErr := accounts.CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	_, forgedErr := thief.post(t, "hostile-pass-forged", maker.name, v1alpha1.PassViewer, a)
	noneErr, defaultErr := thief.makesAccounts(t, "hostile-of-no-pass")
	_, adminErr := thief.post(t, "hostile-pass-forged", "admin", v1alpha1.PassUser, a)
	more, err := thief.post(t, "hostile-pass-more", thief.name, v1alpha1.PassUser, v)
	if err != nil {
		t.Fatal(err) // a Pass by itself grants nothing
	}
	of := identity.PassAccount(more.Name, string(more.UID))
	longer := []byte(`{"spec":{"expires":"2099-01-01T00:00:00Z"}}`)
	passes := thief.hub.RESTClient()
	for what, err := range map[string]error{
		"its token": tokenErr, "its account": accountErr, "the end of its account": accounts.Delete(t.Context(), account, metav1.DeleteOptions{}),
		"its end": passes.Delete().AbsPath(passesPath, pass.Name).Do(t.Context()).Error(), "a longer one": passes.Patch("application/merge-patch+json").AbsPath(passesPath, pass.Name).Body(longer).Do(t.Context()).Error(),
		"one made by its maker": forgedErr, "one made by the administrator": adminErr,
		"an account of no pass": noneErr, "a token of account default": defaultErr,
		"more verbs for it":              thief.grant(t, pass, "hostile-verbs", mayReach(a, "*")),
		"the victim's cluster":           thief.grant(t, more, of, mayReach(v, "get")),
		"streams":                        thief.grant(t, more, of, mayStream(a)),
		"others' sessions":               thief.grant(t, more, of, suite.Rule(clusterproxyv1alpha1.GroupVersion.Group, "sessions", []string{"list", "delete"})),
		"the hub":                        thief.bind(t, metav1.ObjectMeta{Name: "hostile-pass-admin"}, of, "cluster-admin"),
		"what all users of clusters may": thief.bind(t, metav1.ObjectMeta{Name: "hostile-pass-user"}, of, "cluster-proxy-user"),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("who may make passes asks for %s: %v, want 403", what, err)
		}
	}
	// It was there all the time, and its maker ends it.
	if code := s.passSees(t, a, token); code != http.StatusOK {
		t.Errorf("the pass is answered %d, want 200", code)
	}
	if err := maker.hub.RESTClient().Delete().AbsPath(passesPath, pass.Name).Do(t.Context()).Error(); err != nil {
		t.Errorf("its maker ends it: %v", err)
	}
	suite.Eventually(t, "the end of the pass", func() error {
		if code := s.passSees(t, a, token); code != http.StatusUnauthorized && code != http.StatusForbidden {
			return errors.New(http.StatusText(code))
		}
		return nil
	})
	// Bindings of its account on a cluster may be there still.
	for _, i := range []issuer{maker, thief} {
		if err, _ := i.makesAccounts(t, account); !apierrors.IsForbidden(err) {
			t.Errorf("%s makes the account of a pass that has ended: %v, want 403", i.name, err)
		}
	}
}

func (s *Suite) passSees(t *testing.T, cluster, token string) int {
	t.Helper()
	d := s.endpoints(t, cluster)[0]
	code, _, _ := d.send(t, d.request(http.MethodGet, "/version", token, ""))
	return code
}

// usePass uses a pass that was stolen for more than it is for. It also tries what the pass is for, which works.
func (s *Suite) usePass(t *testing.T, account, token string) {
	t.Helper()
	a, v := s.attacker(), s.victim()
	const mark = "hostile-stolen-" // not in the name of the pass, which the cluster sees
	suite.Eventually(t, "the pass", func() error {
		if code := s.passSees(t, a, token); code != http.StatusOK {
			return errors.New(http.StatusText(code))
		}
		return nil
	})
	victims := s.endpoints(t, v)
	for i, d := range s.endpoints(t, a) {
		if code, _, body := d.send(t, d.request(http.MethodGet, "/version", token, "")); code != http.StatusOK {
			t.Errorf("%s: what the pass is for: %d %.300s, want 200", d.name, code, body)
		}
		for _, try := range []struct {
			at           endpoint
			method, path string
			lines        []string
		}{
			{victims[i], http.MethodGet, "/version", nil}, {victims[i], http.MethodGet, "/api/v1/secrets", nil},
			{d, http.MethodPost, "/api/v1/namespaces/default/configmaps", nil}, {d, http.MethodDelete, "/api/v1/namespaces/default/configmaps", nil},
			{d, http.MethodGet, "/api/v1/namespaces/default/pods/" + s.webPod(t) + "/exec?command=id&stdout=1", socket}, {d, http.MethodGet, "/api/v1/namespaces/default/pods/" + s.webPod(t) + "/exec?command=id&stdout=1", spdy},
			{d, http.MethodGet, "/version", []string{"Impersonate-User: admin", "Impersonate-Group: system:masters"}},
		} {
			code, _, body := try.at.send(t, try.at.request(try.method, try.path, token, "", append([]string{"Audit-ID: " + mark + try.method}, try.lines...)...))
			if code != http.StatusForbidden && code != http.StatusBadRequest {
				t.Errorf("%s: the pass is used for %s %s: %d %.300s, want it refused", try.at.name, try.method, try.path, code, body)
			}
		}
		if d.name == "host" {
			continue // its paths are the cluster's
		}
		for _, path := range []string{
			sessionsPath, "/apis/" + clusterproxyv1alpha1.GroupVersion.String() + "/clusters", clustersPath + a + "/metrics", viewsPath + allView + "/proxy/api/v1/configmaps", passesPath, "/api/v1/namespaces/" + identity.PassNamespace + "/serviceaccounts/" + account, "/api/v1/secrets",
		} {
			if code, _, body := d.send(t, requestText(http.MethodGet, path, d.host, token, "")); code != http.StatusForbidden && code != http.StatusNotFound {
				t.Errorf("%s: the pass is used for %s: %d %.300s, want it refused", d.name, path, code, body)
			}
		}
	}
	s.neverSaw(t, v, mark)
	s.neverSaw(t, a, mark)
}
