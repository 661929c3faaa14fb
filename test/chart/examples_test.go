package chart

import (
	"bytes"
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/cluster-inventory-api/pkg/access"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/clusterprofile"
	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/proxyconfig"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/test/testkit/admission"
)

// example returns a file of folder examples.
func example(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("../../examples", file))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// nested returns a value of an object, which must be there.
func nested[T any](t *testing.T, object any, path ...any) T {
	t.Helper()
	at := object
	for _, step := range path {
		switch step := step.(type) {
		case string:
			at = at.(map[string]any)[step]
		case int:
			at = at.([]any)[step]
		}
		if at == nil {
			t.Fatalf("there is no %v", path)
		}
	}
	return at.(T)
}

// wantEntrypoint wants agents to dial host:443 with an example's values.
func wantEntrypoint(t *testing.T, values, host string) *v1alpha1.ManagedProxyConfiguration {
	t.Helper()
	rendered := as[v1alpha1.ManagedProxyConfiguration](t, mustRender(t, string(example(t, values))).byName["ManagedProxyConfiguration/cluster-proxy"])
	configuration, err := proxyconfig.Normalize(&rendered)
	if err != nil {
		t.Fatal(err)
	}
	e := configuration.Spec.ProxyServer.Entrypoint
	if e == nil || e.Type != v1alpha1.EntryPointTypeHostname || e.Hostname == nil || e.Hostname.Value != host || e.Port != 443 {
		t.Errorf("agents dial %+v, want %s:443", e, host)
	}
	return configuration
}

// TestRouteExample has OpenShift's definition check the Route, which must lead agents to the
// proxy servers as the values say, without ending their TLS.
func TestRouteExample(t *testing.T) {
	schema := admission.New(t, admission.OfModule(t, "github.com/openshift/api", "route/v1/zz_generated.crd-manifests/routes.crd.yaml"), "v1")
	route := admission.Decode(t, example(t, "openshift-route/route.yaml"))
	if errs := schema.Admit(t, route); len(errs) > 0 {
		t.Errorf("the Route is refused: %v", errs.ToAggregate())
	}
	configuration := wantEntrypoint(t, "openshift-route/values.yaml", nested[string](t, route, "spec", "host"))
	for _, test := range []struct {
		want string
		path []any
	}{
		{namespace, []any{"metadata", "namespace"}},
		{configuration.Spec.ProxyServer.InClusterServiceName, []any{"spec", "to", "name"}},
		{"agent-server", []any{"spec", "port", "targetPort"}},
		{"passthrough", []any{"spec", "tls", "termination"}},
	} {
		if got := nested[string](t, route, test.path...); got != test.want {
			t.Errorf("%v is %q, want %q", test.path, got, test.want)
		}
	}
	route["spec"].(map[string]any)["tls"].(map[string]any)["termination"] = "edges"
	if errs := schema.Admit(t, route); len(errs) == 0 {
		t.Error("a termination that does not exist is accepted: the test shows nothing")
	}
}

// TestGatewayExample has Gateway API's definitions check both objects, which must lead agents
// to the proxy servers as the values say, without ending their TLS.
func TestGatewayExample(t *testing.T) {
	documents := bytes.Split(example(t, "gateway-api/gateway.yaml"), []byte("---\n"))
	if len(documents) != 2 {
		t.Fatalf("gateway.yaml has %d documents, want 2", len(documents))
	}
	gateway, route := admission.Decode(t, documents[0]), admission.Decode(t, documents[1])
	for kind, object := range map[string]map[string]any{"gateways": gateway, "tlsroutes": route} {
		schema := admission.New(t, admission.OfModule(t, "sigs.k8s.io/gateway-api", "config/crd/standard/gateway.networking.k8s.io_"+kind+".yaml"), "v1")
		if errs := schema.Admit(t, object); len(errs) > 0 {
			t.Errorf("%s: the object is refused: %v", kind, errs.ToAggregate())
		}
		object["spec"].(map[string]any)["hostname"] = "a"
		if errs := schema.Admit(t, object); len(errs) == 0 {
			t.Errorf("%s: a field that does not exist is accepted: the test shows nothing", kind)
		}
	}
	host := nested[string](t, route, "spec", "hostnames", 0)
	configuration := wantEntrypoint(t, "gateway-api/values.yaml", host)
	for _, test := range []struct {
		object map[string]any
		want   string
		path   []any
	}{
		{gateway, namespace, []any{"metadata", "namespace"}},
		{gateway, host, []any{"spec", "listeners", 0, "hostname"}},
		{gateway, "Passthrough", []any{"spec", "listeners", 0, "tls", "mode"}},
		{route, namespace, []any{"metadata", "namespace"}},
		{route, nested[string](t, gateway, "metadata", "name"), []any{"spec", "parentRefs", 0, "name"}},
		{route, nested[string](t, gateway, "spec", "listeners", 0, "name"), []any{"spec", "parentRefs", 0, "sectionName"}},
		{route, configuration.Spec.ProxyServer.InClusterServiceName, []any{"spec", "rules", 0, "backendRefs", 0, "name"}},
	} {
		if got := nested[string](t, test.object, test.path...); got != test.want {
			t.Errorf("%v is %q, want %q", test.path, got, test.want)
		}
	}
	if port := nested[int64](t, route, "spec", "rules", 0, "backendRefs", 0, "port"); port != int64(identity.AgentServerPort) || nested[int64](t, gateway, "spec", "listeners", 0, "port") != 443 {
		t.Errorf("the route leads to port %d, want %d of the Service from 443", port, identity.AgentServerPort)
	}
}

// TestManagedServiceAccountExample decodes the object strictly into the fields of
// managed-serviceaccount's apis/authentication/v1beta1, whose module is not in the registry.
func TestManagedServiceAccountExample(t *testing.T) {
	var account struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ObjectMeta `json:"metadata"`
		Spec            struct {
			Rotation struct {
				Enabled  bool            `json:"enabled"`
				Validity metav1.Duration `json:"validity"`
			} `json:"rotation"`
			TTLSecondsAfterCreation *int32 `json:"ttlSecondsAfterCreation"`
		} `json:"spec"`
	}
	if err := yaml.UnmarshalStrict(example(t, "managed-service-account/managedserviceaccount.yaml"), &account); err != nil {
		t.Fatal(err)
	}
	if account.Kind != "ManagedServiceAccount" || account.APIVersion != "authentication.open-cluster-management.io/v1beta1" || account.Metadata.Namespace == "" || account.Spec.Rotation.Validity.Hours() < 1 {
		t.Errorf("the account is %+v", account)
	}
}

// TestCredentialExamples wants the examples that start the credential plugin to have the name
// that ClusterProfiles have, and the pod to have what they name.
func TestCredentialExamples(t *testing.T) {
	var programs struct{ Providers []map[string]any }
	var kueue struct {
		MultiKueue struct {
			ClusterProfile struct {
				CredentialsProviders []map[string]any
			}
		}
	}
	for file, into := range map[string]any{"cluster-profile/providers.json": &programs, "kueue/config.yaml": &kueue} {
		if err := yaml.Unmarshal(example(t, file), into); err != nil {
			t.Fatal(err)
		}
	}
	want := access.Provider{Name: clusterprofile.Provider, ExecConfig: &api.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: "/plugins/clusterprofile-credentials", ProvideClusterInfo: true,
		Args: []string{"--server=https://" + identity.ProxyAPIService + "." + namespace + ":9092"},
	}}
	providers := append(programs.Providers, kueue.MultiKueue.ClusterProfile.CredentialsProviders...)
	if len(providers) != 2 {
		t.Fatalf("there are %d providers, want 2", len(providers))
	}
	for _, provider := range providers {
		encoded, err := json.Marshal(provider)
		if err != nil {
			t.Fatal(err)
		}
		decoder := json.NewDecoder(bytes.NewReader(encoded))
		decoder.DisallowUnknownFields()
		var got access.Provider
		if err := decoder.Decode(&got); err != nil {
			t.Fatal(err)
		}
		if got.Name != want.Name || got.ExecConfig == nil || got.ExecConfig.String() != want.ExecConfig.String() || !slices.Equal(got.ExecConfig.Args, want.ExecConfig.Args) {
			t.Errorf("the provider is %q with %v, want %q with %v", got.Name, got.ExecConfig, want.Name, want.ExecConfig)
		}
	}
	var patch struct {
		Spec struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if err := yaml.UnmarshalStrict(example(t, "cluster-profile/plugin.yaml"), &patch); err != nil {
		t.Fatal(err)
	}
	pod := patch.Spec.Template.Spec
	init, container, token := pod.InitContainers[0], pod.Containers[0], pod.Volumes[1].Projected.Sources[0].ServiceAccountToken
	if token.Audience != identity.ProxyAPIAudience || container.VolumeMounts[1].MountPath+"/"+token.Path != "/var/run/secrets/"+identity.ProxyAPIAudience+"/token" {
		t.Errorf("the token for %q is at %s/%s, where the plugin does not look", token.Audience, container.VolumeMounts[1].MountPath, token.Path)
	}
	if command := want.ExecConfig.Command; container.VolumeMounts[0].MountPath != path.Dir(command) || init.VolumeMounts[0].Name != container.VolumeMounts[0].Name ||
		!slices.Equal(init.Command, []string{"/" + path.Base(command), "--install=" + path.Dir(command)}) {
		t.Errorf("%v copies the plugin to a volume %+v, and the program has %+v", init.Command, init.VolumeMounts, container.VolumeMounts)
	}
}

// TestExposingExamples wants what the other examples expose in the list that agents enforce,
// under the names that the examples use.
func TestExposingExamples(t *testing.T) {
	for _, test := range []struct{ folder, entry, file, uses string }{
		{"prometheus", "{namespace: monitoring, service: prometheus, port: \"9090\", protocol: http}", "prometheus.yaml", "regex: monitoring;prometheus\n"},
		{"database", "{namespace: shop, service: postgres, port: \"5432\", protocol: tcp}", "README.md", "--target=postgres.shop.svc.<cluster>:5432"},
	} {
		list := mustRender(t, string(example(t, test.folder+"/values.yaml"))).byName["ConfigMap/cluster-proxy-exposed-services"]
		var want any
		if err := yaml.Unmarshal([]byte(test.entry), &want); err != nil {
			t.Fatal(err)
		}
		content, _, _ := unstructured.NestedStringMap(list.Object, "data")
		for file, text := range content {
			var entries []any
			if err := yaml.Unmarshal([]byte(text), &entries); err != nil || len(entries) != 1 || !sameJSON(t, entries[0], want) {
				t.Errorf("%s: %s of the ConfigMap is %q, want one entry %s", test.folder, file, text, test.entry)
			}
		}
		if text := string(example(t, test.folder+"/"+test.file)); len(content) != 1 || !strings.Contains(text, test.uses) {
			t.Errorf("%s does not use %q of what it exposes", test.folder, test.uses)
		}
	}
	documents := bytes.Split(example(t, "prometheus/rbac.yaml"), []byte("---\n"))
	var role rbacv1.ClusterRole
	var binding rbacv1.ClusterRoleBinding
	for i, into := range []any{&role, &binding} {
		if err := yaml.UnmarshalStrict(documents[i], into); err != nil {
			t.Error(err)
		}
	}
	if len(documents) != 2 || binding.RoleRef.Name != role.Name || len(binding.Subjects) != 1 {
		t.Errorf("%v does not bind %s", binding, role.Name)
	}
}

// TestFederationBelievesNoLabels wants a cluster's series to be under the hub's labels, and bounded.
func TestFederationBelievesNoLabels(t *testing.T) {
	var config struct {
		Jobs []map[string]any `json:"scrape_configs"`
	}
	if err := yaml.Unmarshal(example(t, "prometheus/prometheus.yaml"), &config); err != nil {
		t.Fatal(err)
	}
	for _, job := range config.Jobs {
		if job["honor_labels"] != false || job["sample_limit"] == nil || job["body_size_limit"] == nil || job["label_limit"] == nil || job["label_value_length_limit"] == nil {
			t.Errorf("job %v believes the labels of clusters, or takes any number of series: %v", job["job_name"], job)
		}
	}
	if len(config.Jobs) == 0 {
		t.Error("there is no job")
	}
}

func sameJSON(t *testing.T, a, b any) bool {
	t.Helper()
	first, err1 := json.Marshal(a)
	second, err2 := json.Marshal(b)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	return bytes.Equal(first, second)
}
