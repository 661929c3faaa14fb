package kubectlplugin

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	clusterproxy "open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/test/testkit/clitest"
)

// TestMergeKeepsNamespaces runs the command again, as one does when a cluster has joined.
func TestMergeKeepsNamespaces(t *testing.T) {
	kubeconfig := clitest.FakeHub(t)
	for _, namespace := range []string{"team", "web"} {
		if _, _, err := run(t, kubeconfig, "kubeconfig", "--merge"); err != nil {
			t.Fatal(err)
		}
		config, err := clientcmd.LoadFromFile(kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		if got := config.Contexts["c1"].Namespace; got != namespace {
			t.Errorf("the namespace of context c1 is %q, want %q", got, namespace)
		}
		config.Contexts["c1"].Namespace = "web" // kubectl config set-context c1 --namespace=web
		if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := run(t, kubeconfig, "kubeconfig", "--merge", "--namespace=other"); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if got := config.Contexts["c1"].Namespace; got != "other" {
		t.Errorf("with --namespace=other, the namespace of context c1 is %q", got)
	}
}

// TestKubeconfigOfViews says which contexts there are for views, and why there are not more.
func TestKubeconfigOfViews(t *testing.T) {
	both := []v1alpha1.FleetView{clitest.NewView("all", 2), clitest.NewView("prod", 1)}
	for name, test := range map[string]struct {
		hub    viewsHub
		args   []string
		want   map[string]string // contexts and what they lead to
		errOut string            // the one line on standard error
	}{
		"all and another": {hub: viewsHub{clusters: []string{"c1"}, views: both},
			want: map[string]string{"c1": "clusters/c1", "fleet": "fleetviews/all", "fleet-prod": "fleetviews/prod"}},
		"a prefix": {hub: viewsHub{clusters: []string{"c1"}, views: both}, args: []string{"--prefix=eu-"},
			want: map[string]string{"eu-c1": "clusters/c1", "eu-fleet": "fleetviews/all", "eu-fleet-prod": "fleetviews/prod"}},
		"another name": {hub: viewsHub{clusters: []string{"fleet"}, views: both}, args: []string{"--fleet=every"},
			want: map[string]string{"fleet": "clusters/fleet", "every": "fleetviews/all", "every-prod": "fleetviews/prod"}},
		"not wanted":      {hub: viewsHub{clusters: []string{"c1"}, noList: true}, args: []string{"--fleet="}, want: map[string]string{"c1": "clusters/c1"}},
		"a named cluster": {hub: viewsHub{clusters: []string{"c1", "c2"}, noList: true}, args: []string{"c2"}, want: map[string]string{"c2": "clusters/c2"}},
		"no view":         {hub: viewsHub{clusters: []string{"c1"}}, want: map[string]string{"c1": "clusters/c1"}},
		"no CRD": {hub: viewsHub{clusters: []string{"c1"}, noCRD: true}, want: map[string]string{"c1": "clusters/c1"},
			errOut: "no contexts for views: the hub does not know FleetViews"},
		"may list and get none": {hub: viewsHub{clusters: []string{"c1"}, noList: true}, want: map[string]string{"c1": "clusters/c1"},
			errOut: `no contexts for views: listing views: fleetviews "" is forbidden`},
		"may get one": {hub: viewsHub{clusters: []string{"c1"}, views: both[:1], noList: true},
			want: map[string]string{"c1": "clusters/c1", "fleet": "fleetviews/all"}, errOut: `no contexts for views but "all": listing views`},
		"cluster fleet": {hub: viewsHub{clusters: []string{"c1", "fleet"}, views: both},
			want:   map[string]string{"c1": "clusters/c1", "fleet": "clusters/fleet", "fleet-prod": "fleetviews/prod"},
			errOut: `no context for view "all": a cluster has the context "fleet"; or choose another name with --fleet`},
		"cluster fleet-prod": {hub: viewsHub{clusters: []string{"fleet-prod"}, views: both},
			want:   map[string]string{"fleet-prod": "clusters/fleet-prod", "fleet": "fleetviews/all"},
			errOut: `no context for view "prod": a cluster has the context "fleet-prod"`},
		"the hub's name": {hub: viewsHub{clusters: []string{"c1"}, views: both}, args: []string{"--fleet=hub"},
			want: map[string]string{"c1": "clusters/c1", "hub-prod": "fleetviews/prod"}, errOut: `no context for view "all": "hub" is the hub's own entry`},
	} {
		t.Run(name, func(t *testing.T) {
			kubeconfig := test.hub.start(t)
			out, errOut, err := run(t, kubeconfig, append([]string{"kubeconfig"}, test.args...)...)
			if err != nil {
				t.Fatal(err)
			}
			config, err := clientcmd.Load([]byte(out))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, leadTo(t, kubeconfig, config)); diff != "" {
				t.Errorf("contexts (-want +got):\n%s", diff)
			}
			if lines := strings.Count(errOut, "\n"); !strings.Contains(errOut, test.errOut) || lines > 1 || lines == 1 && test.errOut == "" {
				t.Errorf("standard error is %q, want one line with %q, or none", errOut, test.errOut)
			}
		})
	}
}

// leadTo returns the contexts, without the hub's, with what they lead to on the hub.
func leadTo(t *testing.T, hub string, config *clientcmdapi.Config) map[string]string {
	t.Helper()
	file, err := clientcmd.LoadFromFile(hub)
	if err != nil {
		t.Fatal(err)
	}
	before := file.Clusters["hub"].Server + "/apis/" + clusterproxy.GroupVersion.String() + "/"
	got := map[string]string{}
	for name, c := range config.Contexts {
		if name == "hub" {
			continue
		}
		if c.AuthInfo != "ann" {
			t.Errorf("context %q is for user %q, want %q", name, c.AuthInfo, "ann")
		}
		got[name] = strings.TrimSuffix(strings.TrimPrefix(config.Clusters[c.Cluster].Server, before), "/proxy")
	}
	return got
}

// TestMergeOfViewsKeepsWhatIsThere has the name of a view's context lead elsewhere, for
// a user's own reasons, and then to a cluster of that name that joined later.
func TestMergeOfViewsKeepsWhatIsThere(t *testing.T) {
	hub := viewsHub{clusters: []string{"c1"}, views: []v1alpha1.FleetView{clitest.NewView("all", 2), clitest.NewView("prod", 1)}}
	kubeconfig := hub.start(t)
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.Clusters["mine"] = &clientcmdapi.Cluster{Server: "https://mine.example.com"}
	config.Contexts["fleet"] = &clientcmdapi.Context{Cluster: "mine", AuthInfo: "ann"}
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time finds what the first made
		_, errOut, err := run(t, kubeconfig, "kubeconfig", "--merge")
		if want := `no context for view "all": the kubeconfig has a context "fleet" for cluster "mine"`; err != nil || !strings.Contains(errOut, want) {
			t.Errorf("got %v and %q, want a line with %q", err, errOut, want)
		}
		if config, err = clientcmd.LoadFromFile(kubeconfig); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"fleet": "https://mine.example.com", "c1": "clusters/c1", "fleet-prod": "fleetviews/prod"}
		if diff := cmp.Diff(want, leadTo(t, kubeconfig, config)); diff != "" {
			t.Errorf("contexts (-want +got):\n%s", diff)
		}
	}
	// The same kubeconfig, and a hub where a cluster has the name of a view's context.
	later := viewsHub{clusters: []string{"fleet-prod"}}.start(t)
	server, err := clientcmd.LoadFromFile(later)
	if err != nil {
		t.Fatal(err)
	}
	config.Clusters["hub"] = server.Clusters["hub"]
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	if _, _, err := run(t, kubeconfig, "kubeconfig", "--merge"); err == nil || !strings.Contains(err.Error(), `has a cluster "fleet-prod" that leads to`) {
		t.Errorf("a cluster with the name of a view's context: %v", err)
	}
}
