package kubectlplugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
	"open-cluster-management.io/cluster-proxy/test/testkit/clitest"
)

func run(t *testing.T, kubeconfig string, args ...string) (out, errOut string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	command := newCommand(&stdout, &stderr)
	command.SetArgs(append([]string{"--kubeconfig=" + kubeconfig}, args...))
	err = command.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

// TestKubeconfigOfTheHubOfFlags lists the clusters of another hub than the context's.
func TestKubeconfigOfTheHubOfFlags(t *testing.T) {
	kubeconfig := clitest.FakeHubWith(t, func(serve func(string, int, any)) {
		serve("/other"+cli.GroupPath, 200, v1alpha1.ClusterList{Items: []v1alpha1.Cluster{{ObjectMeta: metav1.ObjectMeta{Name: "c3"}}}})
	})
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	other := config.Clusters["hub"].DeepCopy()
	other.Server += "/other"
	config.Clusters["other"], config.AuthInfos["root"] = other, config.AuthInfos["ann"].DeepCopy()
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{{"--cluster=other", "--user=root", "--namespace=web"}, {"--server=" + other.Server, "--user=root", "--namespace=web"}} {
		out, _, err := run(t, kubeconfig, append(flags, "kubeconfig", "--fleet=")...)
		if err != nil {
			t.Fatal(err)
		}
		got, err := clientcmd.Load([]byte(out))
		if err != nil {
			t.Fatal(err)
		}
		c := got.Contexts["c3"]
		if c == nil || c.AuthInfo != "root" || c.Namespace != "web" || got.AuthInfos["root"] == nil {
			t.Errorf("%q: the context is %+v, want user root and namespace web", flags, c)
		}
		if cluster := got.Clusters["c3"]; cluster == nil || !strings.HasPrefix(cluster.Server, other.Server+"/") {
			t.Errorf("%q: the context does not lead to a cluster below %s", flags, other.Server)
		}
	}
}

// TestKubeconfigOfPathsInFlags names a file from another folder than the kubeconfig's.
func TestKubeconfigOfPathsInFlags(t *testing.T) {
	kubeconfig := clitest.FakeHub(t)
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	ca := config.Clusters["hub"].CertificateAuthorityData
	if err := os.WriteFile("hub-ca.crt", ca, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{nil, {"--merge"}} {
		out, _, err := run(t, kubeconfig, append(flags, "--certificate-authority=hub-ca.crt", "kubeconfig")...)
		if err != nil {
			t.Fatal(err)
		}
		got, err := clientcmd.Load([]byte(out))
		if flags != nil {
			got, err = clientcmd.LoadFromFile(kubeconfig)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := clientcmd.ResolveLocalPaths(got); err != nil {
			t.Fatal(err)
		}
		c := got.Clusters["c1"]
		found := c.CertificateAuthorityData
		if c.CertificateAuthority != "" {
			if found, err = os.ReadFile(c.CertificateAuthority); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(found, ca) {
			t.Errorf("%q: the context verifies the hub by %q", flags, found)
		}
	}
}

func TestCommands(t *testing.T) {
	kubeconfig := clitest.FakeHub(t)
	for name, test := range map[string]struct {
		args    []string
		notGood bool
		out     []string // in this order
		errOut  string
		err     string
	}{
		"status": {args: []string{"status"}, notGood: true,
			out:    []string{"NAME", "c1", "True", "1.5ms", "v1.35.1", "c2", "Unknown", "LeaseStopped"},
			errOut: "c2 is not available: no lease since noon; see: kubectl clusterproxy check c2\n1 of 2 clusters available.\n"},
		"status in width":     {args: []string{"status", "-o", "wide"}, notGood: true, out: []string{"REASON", "CONNECTIONS", "MESSAGE", "c1", " 2", "c2", "LeaseStopped", "no lease since noon"}},
		"watch as JSON":       {args: []string{"status", "--watch", "-o", "json"}, err: "--watch writes text"},
		"status of one":       {args: []string{"status", "c1"}, out: []string{"c1"}},
		"status as JSON":      {args: []string{"status", "c1", "-o", "json"}, out: []string{`"items"`, `"kind": "Cluster"`, `"name": "c1"`, `"kind": "ClusterList"`}},
		"status by JSONPath":  {args: []string{"status", "-o", "jsonpath={.items[*].status.version}"}, notGood: true, out: []string{"v1.35.1"}},
		"a wrong template":    {args: []string{"status", "-o", "jsonpath={.items"}, err: "parsing the template of --output=jsonpath={.items: "},
		"names":               {args: []string{"status", "c1", "-o", "name"}, out: []string{"cluster.clusterproxy.open-cluster-management.io/c1\n"}},
		"status of a format":  {args: []string{"status", "-o", "xml"}, err: `"xml": it must be name, wide, json, yaml or jsonpath=TEMPLATE`},
		"unknown cluster":     {args: []string{"status", "c3"}, err: `no cluster "c3" that you may reach`},
		"unknown clusters":    {args: []string{"status", "c3", "c1", "c4"}, err: `no cluster "c3" or "c4" that you may reach`},
		"whoami":              {args: []string{"whoami", "c1"}, out: []string{"hub", "ann", "devs", "c1", "ann", "devs,system:authenticated"}},
		"a cluster as a flag": {args: []string{"status", "--cluster=c1"}, err: "give managed clusters without a flag, as in: kubectl clusterproxy status c1"},
		"whoami nowhere":      {args: []string{"whoami"}, err: "name one CLUSTER, not 0: kubectl clusterproxy whoami CLUSTER; see --help"},
		"check": {args: []string{"check"}, notGood: true, out: []string{
			"√ hub-api", "v1.36.3", "√ hub-apiservice", "√ hub-clusters", "2 clusters", "clusters: 1 of 2 good", "× c2: cannot be reached",
			"× cluster-available", "× cluster-api", "is connected since noon", "bundle c2 --cluster-kubeconfig", "The hub is good; 1 of 2 clusters not good: c2 (--all shows the good ones)."}},
		"check of all": {args: []string{"check", "--all"}, notGood: true, out: []string{
			"√ c1: good", "√ cluster-available", "√ cluster-api", "v1.35.1", "√ cluster-identity", `"ann"`, "‼ cluster-stream", "clusters/stream", "× c2"}},
		"check of a good one": {args: []string{"check", "c1"}, out: []string{"you may reach the 1 cluster that you name", "√ cluster-api", "The hub is good; so is each of 1 cluster."}},
		"check as JSON":       {args: []string{"check", "c1", "-o", "json"}, out: []string{`"items"`, `"id": "hub-api"`, `"kind": "FindingList"`}},
		"wrong token":         {args: []string{"--token=other", "status"}, err: "Unauthorized"},
		"no such context":     {args: []string{"--context=nope", "status"}, err: `"nope"`},
	} {
		t.Run(name, func(t *testing.T) {
			out, errOut, err := run(t, kubeconfig, test.args...)
			switch {
			case test.err != "":
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v, want one with %q", err, test.err)
				}
			case errors.Is(err, cli.ErrNotGood) != test.notGood || err != nil && !test.notGood:
				t.Errorf("error %v, want errNotGood: %v", err, test.notGood)
			}
			rest := out
			for _, want := range test.out {
				_, after, ok := strings.Cut(rest, want)
				if !ok {
					t.Fatalf("output lacks %q, in this place:\n%s", want, out)
				}
				rest = after
			}
			if !strings.Contains(errOut, test.errOut) {
				t.Errorf("standard error is %q, want %q in it", errOut, test.errOut)
			}
		})
	}
}

func TestKubeconfigIsWhole(t *testing.T) {
	kubeconfig := clitest.FakeHub(t)
	out, _, err := run(t, kubeconfig, "kubeconfig", "--prefix=prod-")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.Load([]byte(out))
	if err != nil {
		t.Fatal(err)
	}
	hub, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range []string{"c1", "c2"} {
		c := config.Contexts["prod-"+cluster]
		if c == nil || c.AuthInfo != "ann" || c.Namespace != "team" {
			t.Fatalf("context of %s is %+v, want user ann and namespace team", cluster, c)
		}
		entry := config.Clusters[c.Cluster]
		if want := hub.Clusters["hub"].Server + cli.GroupPath + "/" + cluster + "/proxy"; entry.Server != want || len(entry.CertificateAuthorityData) == 0 {
			t.Errorf("server of %s is %q with a CA of %d bytes, want %q", cluster, entry.Server, len(entry.CertificateAuthorityData), want)
		}
	}
	if config.AuthInfos["ann"].Token != "hub-token" || config.CurrentContext != "prod-c1" {
		t.Errorf("user %v, current context %q; want the hub's token and prod-c1", config.AuthInfos["ann"], config.CurrentContext)
	}
}

func TestMergeKeepsWhatIsThere(t *testing.T) {
	kubeconfig := clitest.FakeHub(t)
	if _, _, err := run(t, kubeconfig, "kubeconfig", "c1", "--merge"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := run(t, kubeconfig, "kubeconfig", "c1", "--merge"); err != nil {
		t.Errorf("merging twice: %v", err)
	}
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if config.CurrentContext != "hub" || config.Contexts["c1"] == nil || config.Contexts["hub"] == nil {
		t.Errorf("contexts are %v, current %q; want c1 and hub, which is current", config.Contexts, config.CurrentContext)
	}
	// A cluster of the user's own that has the same name.
	config.Clusters["c1"].Server = "https://mine.example.com"
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	if _, _, err := run(t, kubeconfig, "kubeconfig", "c1", "--merge"); err == nil || !strings.Contains(err.Error(), "choose a --prefix") {
		t.Errorf("merging over somebody else's entry: %v, want an error that names --prefix", err)
	}
	if now, err := clientcmd.LoadFromFile(kubeconfig); err != nil || now.Clusters["c1"].Server != "https://mine.example.com" {
		t.Errorf("the entry is gone, or %v", err)
	}
}

// TestKubeconfigSaysWhatMayBeUsed has a user with rights to one cluster by name, and to the other
// by its set, which the hub's kube-apiserver does not know.
func TestKubeconfigSaysWhatMayBeUsed(t *testing.T) {
	for name, test := range map[string]struct {
		all  bool
		code int
		want string
	}{
		"all":       {true, 201, ""},
		"one":       {false, 201, "the hub refuses you the contexts of these clusters: c2; ask an administrator of the hub"},
		"not known": {false, 503, "which of the contexts you may use is not known: asking the hub what you may do: "},
	} {
		mux := clitest.FakeHubHandler(t, func(func(string, int, any)) {})
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews") {
				mux.ServeHTTP(w, r)
				return
			}
			var review authorizationv1.SelfSubjectAccessReview
			body, err := io.ReadAll(r.Body)
			if err == nil {
				err = runtime.DecodeInto(scheme.Codecs.UniversalDeserializer(), body, &review)
			}
			if err != nil {
				t.Error(err)
			}
			asked := review.Spec.ResourceAttributes
			review.TypeMeta = metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"}
			review.Status.Allowed = asked.Verb == "get" && asked.Subresource == "proxy" && (test.all || asked.Name == "c1")
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(test.code)
			_ = json.NewEncoder(w).Encode(review)
		}))
		t.Cleanup(server.Close)
		_, errOut, err := run(t, clitest.WriteKubeconfig(t, server), "kubeconfig", "--fleet=")
		if err != nil || test.want == "" && errOut != "" || !strings.Contains(errOut, test.want) || strings.Contains(errOut, "c1") {
			t.Errorf("%s: %v, %q; want %q", name, err, errOut, test.want)
		}
	}
}

// TestWhoamiSaysWhatIsLost wants a word about groups and extras that a cluster is not told of.
func TestWhoamiSaysWhatIsLost(t *testing.T) {
	type info = v1alpha1.UserInfo
	for name, test := range map[string]struct {
		hub, cluster info
		want         []string
	}{
		"all there":            {hub: info{Groups: []string{"devs"}}, cluster: info{Groups: []string{"devs", "system:authenticated"}}},
		"of service accounts":  {hub: info{Groups: []string{"system:serviceaccounts:web"}}, cluster: info{Groups: []string{"cluster:hub:system:serviceaccounts:web"}}},
		"reserved":             {hub: info{Groups: []string{"devs", "system:masters"}}, cluster: info{Groups: []string{"devs"}}, want: []string{"c1 is not told of groups system:masters: ", "allowedReservedNames"}},
		"extras in lower case": {hub: info{Extra: map[string][]string{"canonicalArn": {"a"}}}, cluster: info{Extra: map[string][]string{"canonicalarn": {"a"}}}},
		"a cloud's extras": {hub: info{Extra: map[string][]string{"principalId": {"a"}, "arn": {"b"}, "authentication.kubernetes.io/credential-id": {"c"}}},
			cluster: info{Extra: map[string][]string{"authentication.kubernetes.io/credential-id": {"c"}}}, want: []string{"c1 is not told of extras arn, principalId: ", "extraKeys"}},
	} {
		var out, errOut bytes.Buffer
		p := &cli.Factory{Out: &out, Err: &errOut}
		if err := whoamiTable(p, "c1", v1alpha1.ClusterIdentity{Hub: test.hub, Cluster: test.cluster}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if said := errOut.String(); (said != "") != (test.want != nil) {
			t.Errorf("%s: standard error is %q", name, said)
		}
		for _, want := range test.want {
			if !strings.Contains(errOut.String(), want) {
				t.Errorf("%s: standard error is %q, want %q in it", name, errOut.String(), want)
			}
		}
	}
}

// TestExitStatuses wants one table for all commands.
func TestExitStatuses(t *testing.T) {
	good, none := clitest.FakeHub(t), clitest.FakeHubOf(t, v1alpha1.ClusterList{})
	nothing := filepath.Join(t.TempDir(), "none")
	for name, test := range map[string]struct {
		kubeconfig string
		args       []string
		want       int
	}{
		"good":                      {good, []string{"status", "c1"}, 0},
		"one is away":               {good, []string{"status"}, 1},
		"one is bad":                {good, []string{"check"}, 1},
		"no cluster, status":        {none, []string{"status"}, 1},
		"no cluster, status, JSON":  {none, []string{"status", "-o", "json"}, 1},
		"no cluster, check":         {none, []string{"check"}, 1},
		"no cluster, kubeconfig":    {none, []string{"kubeconfig"}, 1},
		"an unknown cluster":        {good, []string{"status", "c9"}, 2},
		"no argument":               {good, []string{"whoami"}, 2},
		"no credential":             {good, []string{"--token=other", "status"}, 2},
		"no kubeconfig":             {nothing, []string{"status"}, 2},
		"no version is known":       {good, []string{"version"}, 2},
		"the plugin's version":      {nothing, []string{"version", "--client"}, 0},
		"the plugin's, without hub": {nothing, []string{"version"}, 2},
	} {
		if _, _, err := run(t, test.kubeconfig, test.args...); cli.ExitStatus(err) != test.want {
			t.Errorf("%s: %s exits with %d (%v), want %d", name, test.args, cli.ExitStatus(err), err, test.want)
		}
	}
}

// TestContextsOfNoHub wants what is missing in a kubeconfig named: client-go calls all of them empty.
func TestContextsOfNoHub(t *testing.T) {
	for want, change := range map[string]func(*clientcmdapi.Config){
		"no current context":                       func(c *clientcmdapi.Config) { c.CurrentContext = "" },
		`is of cluster "gone", which is not in it`: func(c *clientcmdapi.Config) { c.Contexts[c.CurrentContext].Cluster = "gone" },
	} {
		file := clitest.FakeHub(t)
		config, err := clientcmd.LoadFromFile(file)
		if err != nil {
			t.Fatal(err)
		}
		change(config)
		if err := clientcmd.WriteToFile(*config, file); err != nil {
			t.Fatal(err)
		}
		if _, _, err := run(t, file, "status"); cli.ExitStatus(err) != 2 || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file) {
			t.Errorf("error %v, want %q of %s", err, want, file)
		}
	}
}
