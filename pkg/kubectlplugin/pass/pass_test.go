package pass

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	workv1 "open-cluster-management.io/api/work/v1"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
	"open-cluster-management.io/cluster-proxy/test/testkit/clitest"
)

// passHub stores what the plugin makes, as far as passes need it.
type passHub struct {
	// refuse is the path of what the hub refuses to make, by why.
	refuse map[string]string
	// shorter is how much sooner the hub ends tokens than it is asked to.
	shorter time.Duration

	mu      sync.Mutex
	asked   []string          // method and path of each request, GET excepted
	objects map[string][]byte // by path
}

const (
	accountsPath = "/api/v1/namespaces/cluster-proxy-passes/serviceaccounts"
	rbacPath     = "/apis/rbac.authorization.k8s.io/v1/"
	worksPath    = "/apis/work.open-cluster-management.io/v1/namespaces/"
	passUID      = "0123456789abcdef"
	passAccount  = "ann-01234567"
	passObject   = "open-cluster-management:cluster-proxy:pass:" + passAccount
)

func (h *passHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	if r.Method != http.MethodGet {
		h.asked = append(h.asked, r.Method+" "+r.URL.Path)
	}
	code, answer := h.answer(r, body)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(answer)
}

func (h *passHub) answer(r *http.Request, body []byte) (int, []byte) {
	encode := func(object any) []byte {
		raw, _ := json.Marshal(object)
		return raw
	}
	failed := func(code int, reason metav1.StatusReason, message string) (int, []byte) {
		return code, encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason,
			Message: message, Details: &metav1.StatusDetails{Name: filepath.Base(r.URL.Path)}})
	}
	path := r.URL.Path
	if why := h.refuse[path]; why != "" {
		return failed(403, metav1.StatusReasonForbidden, why)
	}
	if r.Method == http.MethodPost {
		// Kubernetes' own kinds come as protobuf.
		if typed, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil); err == nil {
			body = encode(typed)
		}
		object := map[string]any{}
		_ = json.Unmarshal(body, &object)
		switch {
		case strings.HasSuffix(path, "/selfsubjectreviews"):
			return 201, encode(authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "jane"}}})
		case strings.HasSuffix(path, "/token"):
			if account := strings.TrimSuffix(path, "/token"); h.objects[account] == nil {
				h.objects[account] = encode(corev1.ServiceAccount{}) // as the addon manager makes it
				return failed(404, metav1.StatusReasonNotFound, "serviceaccounts \""+passAccount+"\" not found")
			}
			var request authenticationv1.TokenRequest
			_ = json.Unmarshal(body, &request)
			h.objects[path] = body
			end := time.Now().Add(time.Duration(*request.Spec.ExpirationSeconds)*time.Second - h.shorter)
			request.Status = authenticationv1.TokenRequestStatus{Token: "pass-token", ExpirationTimestamp: metav1.NewTime(end)}
			return 201, encode(request)
		}
		meta := object["metadata"].(map[string]any)
		meta["uid"] = passUID
		stored := path + "/" + meta["name"].(string)
		if h.objects[stored] != nil {
			return failed(409, metav1.StatusReasonAlreadyExists, stored+" already exists")
		}
		h.objects[stored] = encode(object)
		return 201, h.objects[stored]
	}
	if path == passesPath && r.Method == http.MethodGet {
		var list v1alpha1.PassList
		for _, key := range slices.Sorted(maps.Keys(h.objects)) {
			if strings.HasPrefix(key, passesPath+"/") {
				var pass v1alpha1.Pass
				_ = json.Unmarshal(h.objects[key], &pass)
				list.Items = append(list.Items, pass)
			}
		}
		return 200, encode(list)
	}
	object, ok := h.objects[path]
	if !ok {
		return failed(404, metav1.StatusReasonNotFound, path+" not found")
	}
	if r.Method == http.MethodDelete {
		delete(h.objects, path)
	}
	return 200, object
}

// start returns a kubeconfig of jane, who has credentials that no pass may have.
func (h *passHub) start(t *testing.T) string {
	t.Helper()
	if h.objects == nil {
		h.objects = map[string][]byte{}
	}
	server := httptest.NewTLSServer(h)
	t.Cleanup(server.Close)
	return clitest.WriteKubeconfig(t, server)
}

// made decodes what was made at a path.
func made[T any](t *testing.T, h *passHub, path string) (object T) {
	t.Helper()
	raw, ok := h.objects[path]
	if !ok {
		t.Fatalf("nothing was made at %s", path)
	}
	if err := json.Unmarshal(raw, &object); err != nil {
		t.Fatal(err)
	}
	return object
}

func TestPassCreate(t *testing.T) {
	h := &passHub{}
	kubeconfig, file := h.start(t), filepath.Join(t.TempDir(), "ann")
	out, errOut, err := run(t, kubeconfig, "pass", "create", "ann", "--clusters=c2,c1", "--clustersets=prod", "--role=user", "--for=4h", "-o", file)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"POST /apis/authentication.k8s.io/v1/selfsubjectreviews", "POST " + passesPath, "POST " + rbacPath + "clusterroles",
		"POST " + rbacPath + "clusterrolebindings", "POST " + accountsPath + "/" + passAccount + "/token", "POST " + accountsPath + "/" + passAccount + "/token"}
	if diff := cmp.Diff(want, h.asked); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	pass := made[v1alpha1.Pass](t, h, passesPath+"/ann")
	if s := pass.Spec; s.MadeBy != "jane" || s.Role != v1alpha1.PassUser || s.View != "all" || !slices.Equal(s.Clusters, []string{"c1", "c2"}) || !slices.Equal(s.ClusterSets, []string{"prod"}) ||
		time.Until(s.Expires.Time) > 4*time.Hour || time.Until(s.Expires.Time) < 3*time.Hour {
		t.Errorf("the pass is %+v", s)
	}
	if got := made[authenticationv1.TokenRequest](t, h, accountsPath+"/"+passAccount+"/token"); *got.Spec.ExpirationSeconds != 4*3600 {
		t.Errorf("the token is for %d s, want 4 h", *got.Spec.ExpirationSeconds)
	}
	role := made[rbacv1.ClusterRole](t, h, rbacPath+"clusterroles/"+passObject)
	for _, rule := range role.Rules {
		if len(rule.ResourceNames) == 0 || slices.Contains(rule.Verbs, "*") {
			t.Errorf("a rule is for everything: %+v", rule)
		}
	}
	if owner := role.OwnerReferences; len(owner) != 1 || owner[0].Kind != "Pass" || owner[0].Name != "ann" || owner[0].UID != passUID || !*owner[0].BlockOwnerDeletion {
		t.Errorf("the role belongs to %+v, want the pass, whose deletion waits for it", owner)
	}
	binding := made[rbacv1.ClusterRoleBinding](t, h, rbacPath+"clusterrolebindings/"+passObject)
	if binding.RoleRef.Name != passObject || binding.Subjects[0].Name != passAccount || binding.Subjects[0].Namespace != "cluster-proxy-passes" {
		t.Errorf("the binding is %+v", binding)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v; want mode 0600", info, err)
	}
	config, err := clientcmd.Load(raw)
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(config.Contexts)); !slices.Equal(got, []string{"c1", "c2", "fleet"}) || config.CurrentContext != "fleet" {
		t.Errorf("contexts %v, current %q", got, config.CurrentContext)
	}
	if len(config.AuthInfos) != 1 || config.AuthInfos["ann"].Token != "pass-token" || strings.Contains(string(raw), "hub-token") {
		t.Errorf("the kubeconfig has other credentials than the token of the pass")
	}
	if c := config.Clusters["c1"]; !strings.HasSuffix(c.Server, cli.GroupPath+"/c1/proxy") || len(c.CertificateAuthorityData) == 0 {
		t.Errorf("cluster c1 is %+v", c)
	}
	if strings.Contains(out+errOut, "pass-token") {
		t.Error("the token is in the output")
	}
	for _, want := range []string{"cluster:hub:system:serviceaccount:cluster-proxy-passes:" + passAccount, "have no contexts of their own"} {
		if !strings.Contains(errOut, want) {
			t.Errorf("standard error lacks %q:\n%s", want, errOut)
		}
	}
}

// TestPassRules wants no right that the pass does not need.
func TestPassRules(t *testing.T) {
	for name, test := range map[string]struct {
		spec v1alpha1.PassSpec
		want []string
	}{
		"viewer":           {v1alpha1.PassSpec{Role: v1alpha1.PassViewer, Clusters: []string{"a"}}, []string{"clusters/proxy a get,list,watch"}},
		"viewer of a view": {v1alpha1.PassSpec{Role: v1alpha1.PassViewer, ClusterSets: []string{"s"}, View: "v"}, []string{"clustersets/proxy s get,list,watch", "fleetviews v get", "fleetviews/proxy v get,create"}},
		"user": {v1alpha1.PassSpec{Role: v1alpha1.PassUser, Clusters: []string{"a", "b"}},
			[]string{"clusters/proxy a,b get,list,watch,create,update,patch,delete,deletecollection,options", "clusters/stream a,b create"}},
	} {
		var got []string
		for _, rule := range passRules(&test.spec) {
			got = append(got, strings.Join(rule.Resources, ",")+" "+strings.Join(rule.ResourceNames, ",")+" "+strings.Join(rule.Verbs, ","))
		}
		slices.Sort(got)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestPassOnClusters wants a role on the clusters that are named and on those of the set.
func TestPassOnClusters(t *testing.T) {
	const clusterAPI = "/apis/cluster.open-cluster-management.io/"
	h := &passHub{objects: map[string][]byte{
		clusterAPI + "v1beta2/managedclustersets/prod": []byte(`{"metadata":{"name":"prod"}}`),
		clusterAPI + "v1/managedclusters":              []byte(`{"items":[{"metadata":{"name":"c1"}},{"metadata":{"name":"c3"}}]}`),
	}}
	if _, _, err := run(t, h.start(t), "pass", "create", "ann", "--clusters=c1", "--clustersets=prod", "--cluster-role=edit", "-n", "shop"); err != nil {
		t.Fatal(err)
	}
	for _, cluster := range []string{"c1", "c3"} {
		work := made[workv1.ManifestWork](t, h, worksPath+cluster+"/manifestworks/cluster-proxy-pass-"+passAccount)
		var binding rbacv1.RoleBinding
		if err := json.Unmarshal(work.Spec.Workload.Manifests[0].Raw, &binding); err != nil {
			t.Fatal(err)
		}
		if binding.Kind != "RoleBinding" || binding.Namespace != "shop" || binding.RoleRef.Name != "edit" || binding.Subjects[0].Name != "cluster:hub:system:serviceaccount:cluster-proxy-passes:"+passAccount {
			t.Errorf("%s gets %+v", cluster, binding)
		}
		if *work.OwnerReferences[0].BlockOwnerDeletion {
			t.Error("a cluster that is away keeps the pass from being deleted")
		}
	}
	if got := (&passOptions{clusterRole: "view"}).bindingThere("a"); got.GetObjectKind().GroupVersionKind().Kind != "ClusterRoleBinding" {
		t.Errorf("without a namespace it is %v", got.GetObjectKind())
	}
}

// TestPassUndone refuses each step, after which there must be nothing.
func TestPassUndone(t *testing.T) {
	const grant = "user \"jane\" is attempting to grant RBAC permissions not currently held:\n{Resources:[\"clusters/proxy\"]}"
	for path, want := range map[string][2]string{
		passesPath:                                  {"cannot create passes", "making the Pass: cannot create passes: you may not make passes: ask an administrator of the hub for ClusterRole and Role cluster-proxy-pass-issuer"},
		rbacPath + "clusterroles":                   {grant, `not currently held: {Resources:["clusters/proxy"]}: you can give away only rights that you have yourself; what was made before is removed`},
		rbacPath + "clusterrolebindings":            {"cannot bind", "making its ClusterRoleBinding"},
		worksPath + "c1/manifestworks":              {"cannot create works", `making its ManifestWork for cluster "c1"`},
		accountsPath + "/" + passAccount + "/token": {"cannot create tokens", "making its token"},
	} {
		h := &passHub{refuse: map[string]string{path: want[0]}}
		file := filepath.Join(t.TempDir(), "ann")
		_, _, err := run(t, h.start(t), "pass", "create", "ann", "--clusters=c1", "--cluster-role=view", "-o", file)
		if err == nil || !strings.Contains(err.Error(), want[1]) {
			t.Errorf("%s: error %v, want one with %q", path, err, want[1])
		}
		// The garbage collector deletes what belongs to the pass.
		for _, left := range []string{passesPath + "/ann", accountsPath + "/" + passAccount} {
			if h.objects[left] != nil {
				t.Errorf("%s is refused, and %s is left", path, left)
			}
		}
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Errorf("%s is refused, and the file is left: %v", path, err)
		}
	}
}

// TestPassOfOneName wants neither a pass of somebody else nor a file to be touched.
func TestPassOfOneName(t *testing.T) {
	h := &passHub{}
	kubeconfig := h.start(t)
	h.objects[passesPath+"/ann"] = []byte(`{"metadata":{"name":"ann","uid":"other"}}`)
	if _, _, err := run(t, kubeconfig, "pass", "create", "ann", "--clusters=c1"); err == nil || !strings.Contains(err.Error(), `there is a pass "ann"`) {
		t.Errorf("error %v", err)
	}
	if h.objects[passesPath+"/ann"] == nil {
		t.Error("the pass of somebody else is gone")
	}
	before := len(h.asked)
	if _, _, err := run(t, kubeconfig, "pass", "create", "bob", "--clusters=c1", "-o", kubeconfig); err == nil || !strings.Contains(err.Error(), "file exists") || len(h.asked) != before {
		t.Errorf("over a file that is there: %v, and %v", err, h.asked)
	}
}

// TestPassNamedAsTheHub wants names in the maker's kubeconfig to mean nothing for a pass.
func TestPassNamedAsTheHub(t *testing.T) {
	h := &passHub{}
	out, _, err := run(t, h.start(t), "pass", "create", "ann", "--clusters=hub")
	if err != nil || !strings.Contains(out, cli.GroupPath+"/hub/proxy") {
		t.Errorf("%v:\n%s", err, out)
	}
}

func TestPassIsRefusedEarly(t *testing.T) {
	h := &passHub{}
	kubeconfig := h.start(t)
	for want, args := range map[string][]string{
		"name the clusters":           {"ann"},
		`pass is "Ann"`:               {"Ann", "--clusters=c1"},
		`pass is "a\nb: c"`:           {"a\nb: c", "--clusters=c1"},
		`--clusters has "*"`:          {"ann", "--clusters=*"},
		`--clusters has "../c1"`:      {"ann", "--clusters=c2,../c1"},
		`--clustersets has "a b"`:     {"ann", "--clustersets=a b"},
		`--view is "x/y"`:             {"ann", "--clusters=c1", "--view=x/y"},
		`--namespace is "a: b"`:       {"ann", "--clusters=c1", "--namespace=a: b"},
		`--cluster-role is "../view"`: {"ann", "--clusters=c1", "--cluster-role=../view"},
		`--role is "admin"`:           {"ann", "--clusters=c1", "--role=admin"},
		"no token for less than":      {"ann", "--clusters=c1", "--for=5m"},
		`a cluster is called "fleet"`: {"ann", "--clusters=fleet"},
		"leave out --view=":           {"ann", "--clustersets=prod", "--view="},
	} {
		if _, _, err := run(t, kubeconfig, append([]string{"pass", "create"}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", args, err, want)
		}
	}
	if len(h.asked) > 0 {
		t.Errorf("the hub was asked: %v", h.asked)
	}
}

func TestPassWithAShorterToken(t *testing.T) {
	h := &passHub{shorter: time.Hour}
	out, errOut, err := run(t, h.start(t), "pass", "create", "ann", "--clusters=c1")
	if err != nil || !strings.Contains(errOut, "the hub made its token for a shorter time") || !strings.Contains(out, "pass-token") {
		t.Errorf("%v, standard error is %q", err, errOut)
	}
}

func TestPassList(t *testing.T) {
	h := &passHub{}
	kubeconfig := h.start(t)
	if _, errOut, err := run(t, kubeconfig, "pass", "list"); err != nil || errOut != "There is no pass.\n" {
		t.Errorf("no passes: %q, %v", errOut, err)
	}
	add := func(name string, left time.Duration, deleted *metav1.Time) {
		raw, err := json.Marshal(v1alpha1.Pass{ObjectMeta: metav1.ObjectMeta{Name: name, DeletionTimestamp: deleted},
			Spec: v1alpha1.PassSpec{MadeBy: "jane\nevil", Role: v1alpha1.PassUser, Clusters: []string{"c1", "c2"}, Expires: metav1.NewTime(time.Now().Add(left))}})
		if err != nil {
			t.Fatal(err)
		}
		h.objects[passesPath+"/"+name] = raw
	}
	now := metav1.Now()
	add("a", 4*time.Hour+time.Minute, nil)
	add("b", -time.Hour, nil)
	add("c", time.Hour, &now)
	out, _, err := run(t, kubeconfig, "pass", "list")
	if err != nil {
		t.Fatal(err)
	}
	want := "NAME   MADE BY          CLUSTERS   SETS     ROLE   LEFT   STATE\n" +
		"a      jane\\u000aevil   c1,c2      <none>   user   4h     Active\n" +
		"b      jane\\u000aevil   c1,c2      <none>   user   0s     Expired\n" +
		"c      jane\\u000aevil   c1,c2      <none>   user   0s     Ending\n"
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if out, _, err := run(t, kubeconfig, "pass", "list", "-o", "name"); err != nil || !strings.HasPrefix(out, "pass.proxy.open-cluster-management.io/a\n") {
		t.Errorf("names: %q, %v", out, err)
	}
}

// TestPassUnknownCommand wants a mistyped command to fail: a script would believe that a pass has
// ended.
func TestPassUnknownCommand(t *testing.T) {
	if out, _, err := run(t, clitest.FakeHub(t), "pass", "delete", "ann"); err == nil {
		t.Errorf("a command that there is not succeeds, and prints %q", out)
	}
	if out, _, err := run(t, clitest.FakeHub(t), "pass"); err != nil || !strings.Contains(out, "revoke") {
		t.Errorf("without a command: %v, and %q, want help", err, out)
	}
}

// TestPassRevoke wants the rights to be taken first, which a user without a right to do so leaves to
// the garbage collector, and the record last.
func TestPassRevoke(t *testing.T) {
	h := &passHub{}
	kubeconfig := h.start(t)
	if _, _, err := run(t, kubeconfig, "pass", "create", "ann", "--clusters=c1"); err != nil {
		t.Fatal(err)
	}
	h.asked, h.refuse = nil, map[string]string{rbacPath + "clusterrolebindings/" + passObject: "not for jane"}
	out, _, err := run(t, kubeconfig, "pass", "revoke", "ann")
	if err != nil || !strings.Contains(out, "pass ann is revoked") {
		t.Errorf("%q, %v", out, err)
	}
	if diff := cmp.Diff([]string{"DELETE " + rbacPath + "clusterrolebindings/" + passObject, "DELETE " + accountsPath + "/" + passAccount, "DELETE " + passesPath + "/ann"}, h.asked); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	for name, want := range map[string]string{"ann": `no pass "ann"`, "..": `".." cannot be`} {
		if _, _, err := run(t, kubeconfig, "pass", "revoke", name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("revoking %q: %v, want an error with %q", name, err, want)
		}
	}
}

func run(t *testing.T, kubeconfig string, args ...string) (out, errOut string, err error) {
	t.Helper()
	return clitest.Run(t, kubeconfig, args, Command)
}
