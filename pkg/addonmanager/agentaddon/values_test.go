package agentaddon

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/certificates"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

const hubNamespace = "hub-ns"

// oneConfig gives the same AddOnDeploymentConfig to everybody.
type oneConfig struct {
	spec *addonv1alpha1.AddOnDeploymentConfigSpec
}

func (c oneConfig) Get(context.Context, string, string) (*addonv1alpha1.AddOnDeploymentConfig, error) {
	return &addonv1alpha1.AddOnDeploymentConfig{ObjectMeta: metav1.ObjectMeta{Name: "config", Namespace: "cluster1"}, Spec: *c.spec}, nil
}

func configuration(entrypoint *v1alpha1.ManagedProxyConfigurationProxyServerEntrypoint) *v1alpha1.ManagedProxyConfiguration {
	return &v1alpha1.ManagedProxyConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: identity.AddonName, Generation: 7},
		Spec: v1alpha1.ManagedProxyConfigurationSpec{
			ProxyServer: v1alpha1.ManagedProxyConfigurationProxyServer{Image: "registry.example.com/team/server:1", Namespace: hubNamespace, Entrypoint: entrypoint},
			ProxyAgent:  v1alpha1.ManagedProxyConfigurationProxyAgent{Image: "registry.example.com/team/agent:1", Replicas: 2, AdditionalArgs: []string{"--keepalive-time=20s"}, AdditionalServiceProxyArgs: []string{"--oidc-groups-claim=groups"}},
		},
	}
}

// hubWith is a hub with these objects and the bundle of its CA.
func hubWith(t testing.TB, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme, addonv1alpha1.Install} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	ca, err := pki.NewCA("hub", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	bundle := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: certificates.HubBundleSecret, Namespace: hubNamespace}, Data: map[string][]byte{"ca.crt": ca.CertPEM}}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(objects, bundle)...).Build()
}

// render gives the Deployment that would be installed on a cluster.
func render(t *testing.T, cluster string, config *v1alpha1.ManagedProxyConfiguration, spec *addonv1alpha1.AddOnDeploymentConfigSpec, more ...client.Object) (*appsv1.Deployment, []runtime.Object, error) {
	t.Helper()
	return renderBy(t, func(*Addon) {}, cluster, config, spec, more...)
}

// renderBy is render by an addon that has more settings.
func renderBy(t *testing.T, set func(*Addon), cluster string, config *v1alpha1.ManagedProxyConfiguration, spec *addonv1alpha1.AddOnDeploymentConfigSpec, more ...client.Object) (*appsv1.Deployment, []runtime.Object, error) {
	t.Helper()
	reader := hubWith(t, append(more, config)...)
	addon := &Addon{
		Hub:                reader,
		Reader:             reader,
		Certificates:       certificates.Store{Client: reader, Namespace: hubNamespace, BundleNamespace: hubNamespace},
		DeploymentConfigs:  oneConfig{spec: spec},
		InstallNamespace:   identity.DefaultAgentNamespace,
		EnableKubeAPIProxy: true,
		CheckArgs: func(args []string) error {
			if slices.Contains(args, "--oidc-signing-algs=HS256") {
				return errors.New("HS256 is secret")
			}
			return nil
		},
	}
	set(addon)
	built, err := addon.Build()
	if err != nil {
		t.Fatal(err)
	}
	mca := &addonv1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Name: identity.AddonName, Namespace: cluster}}
	if spec != nil {
		mca.Status.ConfigReferences = []addonv1alpha1.ConfigReference{{
			ConfigGroupResource: addonv1alpha1.ConfigGroupResource{Group: "addon.open-cluster-management.io", Resource: "addondeploymentconfigs"},
			DesiredConfig:       &addonv1alpha1.ConfigSpecHash{ConfigReferent: addonv1alpha1.ConfigReferent{Name: "config", Namespace: cluster}, SpecHash: "x"},
		}}
		for _, reference := range mca.Status.ConfigReferences {
			mca.Spec.Configs = append(mca.Spec.Configs, addonv1alpha1.AddOnConfig{ConfigGroupResource: reference.ConfigGroupResource, ConfigReferent: reference.DesiredConfig.ConfigReferent})
		}
	}
	objects, err := built.Manifests(&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster, UID: types.UID("uid-of-" + cluster)}}, mca)
	if err != nil {
		return nil, nil, err
	}
	for _, object := range objects {
		if deployment, ok := object.(*appsv1.Deployment); ok {
			return deployment, objects, nil
		}
	}
	t.Fatal("no Deployment was rendered")
	return nil, nil, nil
}

// TestEntrypoints wants agents to be told what package proxyconfig finds out, and a credential for
// PortForward alone.
func TestEntrypoints(t *testing.T) {
	for name, test := range map[string]struct {
		entrypoint *v1alpha1.ManagedProxyConfigurationProxyServerEntrypoint
		want       []string
	}{
		"none": {nil, []string{"--proxy-server-host=127.0.0.1", "--enable-port-forward-proxy=true", "--proxy-server-namespace=" + hubNamespace}},
		"hostname": {&v1alpha1.ManagedProxyConfigurationProxyServerEntrypoint{Type: v1alpha1.EntryPointTypeHostname, Port: 443, Hostname: &v1alpha1.EntryPointHostname{Value: "hub.example.com"}},
			[]string{"--proxy-server-host=hub.example.com", "--proxy-server-port=443"}},
	} {
		t.Run(name, func(t *testing.T) {
			deployment, _, err := render(t, "1st-cluster", configuration(test.entrypoint), nil)
			if err != nil {
				t.Fatal(err)
			}
			args := deployment.Spec.Template.Spec.Containers[0].Args
			for _, want := range append(test.want, "--cluster-name=1st-cluster", "--keepalive-time=20s", "--oidc-groups-claim=groups") {
				if !slices.Contains(args, want) {
					t.Errorf("arguments %q lack %q", args, want)
				}
			}
			credential := slices.ContainsFunc(deployment.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "hub-kubeconfig" })
			if portForward := test.entrypoint == nil; credential != portForward {
				t.Errorf("a credential of the hub is mounted: %v, want %v", credential, portForward)
			}
		})
	}
}

// TestGracePeriod: a pod that is killed before it has drained cuts its connections.
func TestGracePeriod(t *testing.T) {
	for name, test := range map[string]struct {
		args, serviceProxyArgs []string
		want                   int64
	}{
		"without":                     {nil, nil, 5 + 25 + 10},
		"a longer drain":              {[]string{"--graceful-shutdown-timeout=10m"}, nil, 5 + 600 + 10},
		"of upstream's service proxy": {nil, []string{"--drain-timeout=10m", "--min-drain-duration=1m"}, 60 + 600 + 10},
	} {
		t.Run(name, func(t *testing.T) {
			c := configuration(nil)
			c.Spec.ProxyAgent.AdditionalArgs, c.Spec.ProxyAgent.AdditionalServiceProxyArgs = test.args, test.serviceProxyArgs
			deployment, _, err := render(t, "cluster1", c, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := *deployment.Spec.Template.Spec.TerminationGracePeriodSeconds; got != test.want {
				t.Errorf("the pod's grace period is %d s, want %d", got, test.want)
			}
		})
	}
}

// A change that concerns the hub alone, such as one more proxy server, must not
// be a change of what thousands of clusters are sent.
func TestScaleOfTheHubIsNotInManifests(t *testing.T) {
	before, _, err := render(t, "cluster1", configuration(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	scaled := configuration(nil)
	scaled.Generation++
	scaled.Spec.ProxyServer.Replicas = 3
	after, _, err := render(t, "cluster1", scaled, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the agent's Deployment is another one: %s", diff)
	}
}

func TestDeploymentConfig(t *testing.T) {
	spec := &addonv1alpha1.AddOnDeploymentConfigSpec{
		AgentInstallNamespace: "elsewhere",
		NodePlacement:         &addonv1alpha1.NodePlacement{NodeSelector: map[string]string{"a": "b"}, Tolerations: []corev1.Toleration{{Key: "t", Operator: corev1.TolerationOpExists}}},
		ProxyConfig:           addonv1alpha1.ProxyConfig{HTTPSProxy: "http://proxy.example.com:3128", NoProxy: "10.0.0.0/8"},
		Registries:            []addonv1alpha1.ImageMirror{{Source: "registry.example.com/team", Mirror: "mirror.example.com/m"}},
		CustomizedVariables:   []addonv1alpha1.CustomizedVariable{{Name: "replicas", Value: "3"}, {Name: "verbosity", Value: "1"}},
	}
	deployment, objects, err := render(t, "cluster1", configuration(nil), spec)
	if err != nil {
		t.Fatal(err)
	}
	pod := deployment.Spec.Template.Spec
	if deployment.Namespace != "elsewhere" || pod.NodeSelector["a"] != "b" || len(pod.Tolerations) != 1 || *deployment.Spec.Replicas != 3 {
		t.Errorf("Deployment in %q with selector %v, tolerations %v, %d replicas", deployment.Namespace, pod.NodeSelector, pod.Tolerations, *deployment.Spec.Replicas)
	}
	if got, want := pod.Containers[0].Image, "mirror.example.com/m/agent:1"; got != want {
		t.Errorf("image %q, want %q", got, want)
	}
	if !slices.Contains(pod.Containers[0].Env, corev1.EnvVar{Name: "HTTPS_PROXY", Value: "http://proxy.example.com:3128"}) {
		t.Errorf("environment %v lacks the proxy; want HTTPS_PROXY=http://proxy.example.com:3128", pod.Containers[0].Env)
	}
	for _, want := range []string{"--v=1", "--addon-lease-namespace=elsewhere"} {
		if !slices.Contains(pod.Containers[0].Args, want) {
			t.Errorf("arguments %q lack %q", pod.Containers[0].Args, want)
		}
	}
	if len(objects) != 10 {
		t.Errorf("%d objects were rendered, want namespace, account, two roles, two bindings, secret, ConfigMap, Deployment and its budget", len(objects))
	}
}

// TestPeersHaveOneOrder renders the proxies of an AddOnDeploymentConfig again and
// again: another order would be another NetworkPolicy, and another ManifestWork.
func TestPeersHaveOneOrder(t *testing.T) {
	spec := addonv1alpha1.AddOnDeploymentConfigSpec{ProxyConfig: addonv1alpha1.ProxyConfig{
		HTTPProxy: "http://plain.example.com:3128", HTTPSProxy: "http://secure.example.com:3129", NoProxy: "10.0.0.0/8",
	}}
	want := []networkPeer{peer("plain.example.com", 3128), peer("secure.example.com", 3129)}
	for range 50 {
		v := &values{}
		if err := applyDeploymentConfig(v, spec); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, v.NetworkPolicy.Peers); diff != "" {
			t.Fatalf("peers (-want +got): %s", diff)
		}
	}
}

// TestMemoryLimit wants agents to have a memory limit, unless an AddOnDeploymentConfig says
// otherwise, and Go to know of it.
func TestMemoryLimit(t *testing.T) {
	own := func(limits corev1.ResourceList) *addonv1alpha1.AddOnDeploymentConfigSpec {
		return &addonv1alpha1.AddOnDeploymentConfigSpec{ResourceRequirements: []addonv1alpha1.ContainerResourceRequirements{
			{ContainerID: "*:*:*", Resources: corev1.ResourceRequirements{Limits: limits}},
		}}
	}
	for name, test := range map[string]struct {
		config *addonv1alpha1.AddOnDeploymentConfigSpec
		want   string
	}{
		"default": {&addonv1alpha1.AddOnDeploymentConfigSpec{}, "512Mi"},
		"none":    {own(nil), "0"},
		"own":     {own(corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")}), "256Mi"},
	} {
		deployment, _, err := render(t, "cluster1", configuration(nil), test.config)
		if err != nil {
			t.Fatal(err)
		}
		container := deployment.Spec.Template.Spec.Containers[0]
		told := slices.ContainsFunc(container.Env, func(v corev1.EnvVar) bool {
			return v.Name == "GOMEMLIMIT" && v.ValueFrom.ResourceFieldRef.Resource == "limits.memory"
		})
		if got := container.Resources.Limits.Memory().String(); got != test.want || told != (test.want != "0") {
			t.Errorf("%s: the limit is %s and Go is told of one: %t, want %s", name, got, told, test.want)
		}
	}
}

func TestOIDCVariables(t *testing.T) {
	deployment, _, err := render(t, "cluster1", configuration(nil), &addonv1alpha1.AddOnDeploymentConfigSpec{CustomizedVariables: []addonv1alpha1.CustomizedVariable{
		{Name: "oidcIssuerURL", Value: "https://issuer.example.org"}, {Name: "oidcClientID", Value: "kubectl"}, {Name: "oidcGroupsClaim", Value: "groups"},
		{Name: "oidcReservedNamePrefixes", Value: "system:,admin:"}, {Name: "oidcRequiredClaimsJSON", Value: `{"b":"2,3","a":"1"}`}, {Name: "oidcCAConfigMap", Value: "issuer-ca"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	pod := deployment.Spec.Template.Spec
	for _, want := range []string{"--oidc-issuer-url=https://issuer.example.org", "--oidc-client-id=kubectl", "--oidc-groups-claim=groups",
		"--oidc-reserved-name-prefixes=system:,admin:", "--oidc-required-claim=a=1", "--oidc-required-claim=b=2,3", "--oidc-ca-file=/etc/oidc-ca/ca.crt"} {
		if !slices.Contains(pod.Containers[0].Args, want) {
			t.Errorf("arguments %q lack %q", pod.Containers[0].Args, want)
		}
	}
	if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.ConfigMap != nil && v.ConfigMap.Name == "issuer-ca" }) {
		t.Error("no volume with the CA")
	}
}

func TestBadDeploymentConfigIsAnError(t *testing.T) {
	for want, spec := range map[string]addonv1alpha1.AddOnDeploymentConfigSpec{
		`"agentIdentifiers" is not known`: {CustomizedVariables: []addonv1alpha1.CustomizedVariable{{Name: "agentIdentifiers", Value: "host=cluster2"}}},
		`"image" is not known`:            {CustomizedVariables: []addonv1alpha1.CustomizedVariable{{Name: "image", Value: "evil"}}},
		`"replicas" is "many"`:            {CustomizedVariables: []addonv1alpha1.CustomizedVariable{{Name: "replicas", Value: "many"}}},
		"must be set together":            {CustomizedVariables: []addonv1alpha1.CustomizedVariable{{Name: "oidcIssuerURL", Value: "https://a"}}},
		"must be an https URL":            {CustomizedVariables: []addonv1alpha1.CustomizedVariable{{Name: "oidcIssuerURL", Value: "http://a"}, {Name: "oidcClientID", Value: "a"}}},
		"no element may be empty":         {CustomizedVariables: []addonv1alpha1.CustomizedVariable{{Name: "oidcReservedNamePrefixes", Value: "system:,"}}},
		"JSON object of strings":          {CustomizedVariables: []addonv1alpha1.CustomizedVariable{{Name: "oidcRequiredClaimsJSON", Value: `["a"]`}}},
		"name of a ConfigMap":             {CustomizedVariables: []addonv1alpha1.CustomizedVariable{{Name: "oidcCAConfigMap", Value: "../x"}}},
		"does not start with what the ManagedProxyConfiguration and the AddOnDeploymentConfig say: HS256 is secret": {CustomizedVariables: []addonv1alpha1.CustomizedVariable{
			{Name: "oidcIssuerURL", Value: "https://a"}, {Name: "oidcClientID", Value: "a"}, {Name: "oidcSigningAlgs", Value: "HS256"}}},
		"keys in lower case":          {CustomizedVariables: []addonv1alpha1.CustomizedVariable{{Name: "extraKeys", Value: "*"}}},
		"HTTPS_PROXY":                 {ProxyConfig: addonv1alpha1.ProxyConfig{HTTPSProxy: "proxy:3128"}},
		"HTTP_PROXY":                  {ProxyConfig: addonv1alpha1.ProxyConfig{HTTPProxy: "socks5://proxy:1080"}},
		"caBundle has no certificate": {ProxyConfig: addonv1alpha1.ProxyConfig{HTTPSProxy: "https://proxy:3128", CABundle: []byte("x")}},
	} {
		if _, _, err := render(t, "cluster1", configuration(nil), &spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error that says %q", err, want)
		}
	}
}

// The agent may renew a Lease and impersonate; nothing is said with a wildcard.
func TestAgentsRights(t *testing.T) {
	deployment, objects, err := render(t, "cluster1", configuration(nil), &addonv1alpha1.AddOnDeploymentConfigSpec{
		CustomizedVariables: []addonv1alpha1.CustomizedVariable{{Name: "extraKeys", Value: "example.org/team, tenant"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"--extra-keys=example.org/team", "--extra-keys=tenant"} { // without which it would leave them out
		if args := deployment.Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, want) {
			t.Errorf("arguments %q lack %q", args, want)
		}
	}
	var rules []rbacv1.PolicyRule
	for _, object := range objects {
		switch role := object.(type) {
		case *rbacv1.Role:
			rules = append(rules, role.Rules...)
		case *rbacv1.ClusterRole:
			rules = append(rules, role.Rules...)
			for _, rule := range role.Rules {
				if !slices.Equal(rule.Verbs, []string{"impersonate"}) {
					t.Errorf("in all namespaces the agent may %v %v", rule.Verbs, rule.Resources)
				}
			}
		}
	}
	var resources []string
	for _, rule := range rules {
		if slices.Contains(rule.Verbs, "*") || slices.Contains(rule.Resources, "*") || slices.Contains(rule.APIGroups, "*") {
			t.Errorf("a wildcard: %v", rule)
		}
		resources = append(resources, rule.Resources...)
	}
	for _, want := range []string{"users", "groups", "uids", "userextras/authentication.kubernetes.io/credential-id", "userextras/example.org/team", "userextras/tenant"} {
		if !slices.Contains(resources, want) {
			t.Errorf("the agent may not impersonate %q", want)
		}
	}
	if slices.Contains(resources, "serviceaccounts") {
		t.Error("the agent may impersonate this cluster's service accounts by their kind")
	}
}

// TestRightsOfTheIndex wants agents to read what is indexed and nothing else, and only if something is.
func TestRightsOfTheIndex(t *testing.T) {
	for _, c := range []struct {
		resources []string
		want      []rbacv1.PolicyRule
		wantError bool
	}{
		{},
		{resources: []string{"pods", "statefulsets.apps", "nodes", "deployments.apps", "pods"}, want: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"nodes", "pods"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{"apps"}, Resources: []string{"deployments", "statefulsets"}, Verbs: []string{"get", "list", "watch"}},
		}},
		{resources: []string{"pods", "secrets"}, wantError: true},
		{resources: []string{"*"}, wantError: true},
	} {
		deployment, objects, err := renderBy(t, func(addon *Addon) { addon.FleetIndex = c.resources }, "cluster1", configuration(nil), nil)
		if (err != nil) != c.wantError {
			t.Errorf("%v: got %v", c.resources, err)
		}
		if err != nil {
			continue
		}
		const name = "open-cluster-management:cluster-proxy:index:" + identity.DefaultAgentNamespace
		var rules []rbacv1.PolicyRule
		bound := false
		for _, object := range objects {
			switch object := object.(type) {
			case *rbacv1.ClusterRole:
				if object.Name == name {
					rules = object.Rules
				}
			case *rbacv1.ClusterRoleBinding:
				bound = bound || object.RoleRef.Name == name && object.Subjects[0].Name == "cluster-proxy"
			}
		}
		if diff := cmp.Diff(c.want, rules); diff != "" || bound != (c.want != nil) {
			t.Errorf("%v: bound is %v, rules are %s", c.resources, bound, diff)
		}
		if slices.Contains(deployment.Spec.Template.Spec.Containers[0].Args, "--enable-fleet-index=true") != (c.want != nil) {
			t.Errorf("%v: arguments are %v", c.resources, deployment.Spec.Template.Spec.Containers[0].Args)
		}
	}
}

// A cluster is the hub if what was rendered for it is on the hub. The agent impersonates
// service accounts there, and nowhere else.
func TestHubIsRecognized(t *testing.T) {
	role := func(uid string) client.Object {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{
			Name:        "open-cluster-management:cluster-proxy:impersonator:open-cluster-management-cluster-proxy",
			Annotations: map[string]string{"proxy.open-cluster-management.io/managed-cluster-uid": uid},
		}}
	}
	elsewhere := role("uid-of-cluster1")
	elsewhere.SetName("open-cluster-management:cluster-proxy:impersonator:another")
	for name, test := range map[string]struct {
		onHub []client.Object
		want  bool
	}{
		"no agent on the hub":              {nil, false},
		"the cluster's":                    {[]client.Object{role("uid-of-cluster1")}, true},
		"another cluster's":                {[]client.Object{role("uid-of-cluster2")}, false},
		"of this name, on another hub":     {[]client.Object{role("uid-of-cluster1-there")}, false},
		"nobody's, as of earlier releases": {[]client.Object{role("")}, false},
		"in another namespace":             {[]client.Object{elsewhere}, false},
	} {
		t.Run(name, func(t *testing.T) {
			deployment, objects, err := render(t, "cluster1", configuration(nil), nil, test.onHub...)
			if err != nil {
				t.Fatal(err)
			}
			if got := slices.Contains(deployment.Spec.Template.Spec.Containers[0].Args, "--on-hub=true"); got != test.want {
				t.Errorf("the agent is told that this is the hub: %v, want %v", got, test.want)
			}
			for _, object := range objects {
				rendered, ok := object.(*rbacv1.ClusterRole)
				if !ok {
					continue
				}
				if diff := cmp.Diff(role("uid-of-cluster1").GetAnnotations(), rendered.Annotations); diff != "" || rendered.Name != role("").GetName() {
					t.Errorf("ClusterRole %q cannot be recognized: %s", rendered.Name, diff)
				}
				if got := slices.ContainsFunc(rendered.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "serviceaccounts") }); got != test.want {
					t.Errorf("the agent may impersonate service accounts: %v, want %v", got, test.want)
				}
			}
		})
	}
}

// The pod meets Pod Security "restricted".
func TestAgentIsRestricted(t *testing.T) {
	deployment, _, err := render(t, "cluster1", configuration(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	pod := deployment.Spec.Template.Spec
	container := pod.Containers[0].SecurityContext
	if !*pod.SecurityContext.RunAsNonRoot || pod.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || pod.HostNetwork ||
		*container.AllowPrivilegeEscalation || !*container.ReadOnlyRootFilesystem || !slices.Equal(container.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("security context is %+v and %+v; want the restricted profile of pod security", pod.SecurityContext, container)
	}
}

// The commands in OCM's documentation find agents by a label, which is not part
// of the Deployment's selector: that cannot be changed.
func TestAgentsHaveTheLabelOfUpstreamsCommands(t *testing.T) {
	deployment, _, err := render(t, "cluster1", configuration(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	if deployment.Spec.Template.Labels["app"] != "cluster-proxy-agent" || deployment.Spec.Selector.MatchLabels["app"] != "" {
		t.Errorf("pods have labels %v, and %v are selected", deployment.Spec.Template.Labels, deployment.Spec.Selector.MatchLabels)
	}
}

func TestNodeSelectorOfTheHub(t *testing.T) {
	const annotation = `{"node-role.kubernetes.io/infra":""}`
	for name, test := range map[string]struct {
		labels     map[string]string
		annotation string
		want       map[string]string
		wantErr    string
	}{
		"the hub itself":       {map[string]string{"local-cluster": "true"}, annotation, map[string]string{"node-role.kubernetes.io/infra": ""}, ""},
		"another cluster":      {nil, annotation, nil, ""},
		"nothing is said":      {map[string]string{"local-cluster": "true"}, "", nil, ""},
		"not a JSON object":    {map[string]string{"local-cluster": "true"}, "infra", nil, nodeSelectorAnnotation},
		"values of other type": {map[string]string{"local-cluster": "true"}, `{"a":1}`, nil, nodeSelectorAnnotation},
	} {
		t.Run(name, func(t *testing.T) {
			var v values
			err := placeOnHub(&v, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{
				Name: "c", Labels: test.labels, Annotations: map[string]string{nodeSelectorAnnotation: test.annotation},
			}})
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("got %v, want an error that names %q", err, test.wantErr)
				}
				return
			}
			if err != nil || !maps.Equal(v.NodeSelector, test.want) {
				t.Errorf("got %v, %v; want %v", v.NodeSelector, err, test.want)
			}
		})
	}
}
