package proxyconfig

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/certificates"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

const ns = "hub"

func configuration(change func(*v1alpha1.ManagedProxyConfiguration)) *v1alpha1.ManagedProxyConfiguration {
	c := &v1alpha1.ManagedProxyConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "cluster-proxy", UID: "1", Generation: 7}}
	c.Spec.ProxyServer.Image, c.Spec.ProxyAgent.Image, c.Spec.ProxyServer.Namespace, c.Spec.ProxyServer.Replicas = "i", "i", ns, 2
	c.Spec.UserServer = &v1alpha1.ManagedProxyConfigurationUserServer{}
	if change != nil {
		change(c)
	}
	return c
}

func entry(e v1alpha1.ManagedProxyConfigurationProxyServerEntrypoint) func(*v1alpha1.ManagedProxyConfiguration) {
	return func(c *v1alpha1.ManagedProxyConfiguration) { c.Spec.ProxyServer.Entrypoint = &e }
}

func newClient(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.ManagedProxyConfiguration{}).WithReturnManagedFields().WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			object.SetUID(types.UID(object.GetName())) // as the API server does
			return c.Create(ctx, object, options...)
		},
	}).Build()
}

func run(t *testing.T, c client.Client) (ctrl.Result, error) {
	t.Helper()
	return reconcilerOf(c).Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "cluster-proxy"}})
}

func reconcilerOf(c client.Client) *Reconciler {
	return &Reconciler{Client: c, Options: Options{SignerNamespace: ns, SignerName: "cluster-proxy-signer", Namespace: ns, AgentInstallNamespace: "agents", ImagePullPolicy: "IfNotPresent",
		CheckArgs: func(args []string) error {
			if i := slices.IndexFunc(args, func(arg string) bool { return strings.HasSuffix(arg, "-carriers=0") }); i >= 0 {
				return fmt.Errorf("%s does not take %s", args[0], args[i])
			}
			return nil
		}}}
}

func reconcileOnce(t *testing.T, c client.Client) ctrl.Result {
	t.Helper()
	result, err := run(t, c)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func stored(t *testing.T, c client.Client) *v1alpha1.ManagedProxyConfiguration {
	t.Helper()
	var out v1alpha1.ManagedProxyConfiguration
	if err := c.Get(t.Context(), client.ObjectKey{Name: "cluster-proxy"}, &out); err != nil {
		t.Fatal(err)
	}
	return &out
}

func exists(t *testing.T, c client.Client, name string, into client.Object) bool {
	t.Helper()
	err := c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, into)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return err == nil
}

func TestReconcile(t *testing.T) {
	c := newClient(t, configuration(entry(v1alpha1.ManagedProxyConfigurationProxyServerEntrypoint{Type: "Hostname", Hostname: &v1alpha1.EntryPointHostname{Value: "hub.example.com"}})))
	if result := reconcileOnce(t, c); result.RequeueAfter <= 0 {
		t.Error("nobody comes back to renew certificates")
	}
	var d appsv1.Deployment
	if !exists(t, c, "cluster-proxy", &d) {
		t.Fatal("no Deployment")
	}
	container := d.Spec.Template.Spec.Containers[0]
	if container.Args[0] != "proxy-server" || len(container.Command) != 0 || d.Spec.Template.Labels[addonLabel] != "cluster-proxy" || d.Spec.Selector.MatchLabels[componentLabel] != "proxy-server" || d.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue() != 0 {
		t.Errorf("Deployment: %+v, want the subcommand proxy-server, our labels, and no pod unavailable during a rollout", d.Spec)
	}
	got := stored(t, c)
	if got.Status.LastObservedGeneration != 7 {
		t.Errorf("lastObservedGeneration = %d, want 7", got.Status.LastObservedGeneration)
	}
	for _, kind := range []string{"ConfigurationValid", "ProxyServerSecretSigned", "AgentServerSecretSigned", "ProxyClientSecretSigned", "UserServerSecretSigned"} {
		if condition := apimeta.FindStatusCondition(got.Status.Conditions, kind); condition == nil || condition.Status != metav1.ConditionTrue || condition.ObservedGeneration != 7 {
			t.Errorf("%s: %+v, want True of generation 7", kind, condition)
		}
	}
	if apimeta.IsStatusConditionTrue(got.Status.Conditions, "ProxyServerDeployed") {
		t.Error("deployed without an available replica")
	}
	version := got.ResourceVersion
	reconcileOnce(t, c)
	if stored(t, c).ResourceVersion != version {
		t.Error("the status is written again for nothing")
	}
}

// TestFleetIndexsCertificate goes with the addon manager's flag.
func TestFleetIndexsCertificate(t *testing.T) {
	c := newClient(t, configuration(nil))
	for _, wanted := range []bool{false, true, false} {
		r := reconcilerOf(c)
		r.Options.FleetIndex = wanted
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "cluster-proxy"}}); err != nil {
			t.Fatal(err)
		}
		if got := exists(t, c, certificates.IndexClientSecret, &corev1.Secret{}); got != wanted {
			t.Errorf("with FleetIndex %t, the certificate is there: %t", wanted, got)
		}
	}
}

// TestGracePeriod: a pod that is killed before it has drained cuts its connections.
func TestGracePeriod(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want int64
	}{
		"without":                {nil, 3*10 + 600 + 20},
		"a longer drain":         {[]string{"--graceful-shutdown-timeout=2h"}, 3*10 + 7200 + 20},
		"a longer lull":          {[]string{"--min_drain_duration", "1m"}, 3*60 + 600 + 20},
		"the last of several":    {[]string{"--graceful-shutdown-timeout=2h", "--graceful-shutdown-timeout=5m"}, 3*10 + 300 + 20},
		"none":                   {[]string{"--graceful-shutdown-timeout=0"}, 3*10 + 20},
		"something else is said": {[]string{"--keepalive-time=2h"}, 3*10 + 600 + 20},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, configuration(func(c *v1alpha1.ManagedProxyConfiguration) { c.Spec.ProxyServer.AdditionalArgs = test.args }))
			reconcileOnce(t, c)
			var d appsv1.Deployment
			if !exists(t, c, "cluster-proxy", &d) {
				t.Fatal("no Deployment")
			}
			if got := *d.Spec.Template.Spec.TerminationGracePeriodSeconds; got != test.want {
				t.Errorf("the pod's grace period is %d s, want %d", got, test.want)
			}
		})
	}
}

// Without spec.userServer, a user makes the Secret with the proxy API's certificate.
func TestUserMakesTheServingSecret(t *testing.T) {
	c := newClient(t, configuration(nil))
	reconcileOnce(t, c)
	var secret corev1.Secret
	if !exists(t, c, certificates.UserServingSecret, &secret) {
		t.Fatal("with spec.userServer there is no certificate")
	}
	changed := stored(t, c)
	changed.Spec.UserServer = nil
	if err := c.Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	reconcileOnce(t, c)
	if !exists(t, c, certificates.UserServingSecret, &secret) {
		t.Fatal("the certificate in use is gone before the user brought another one")
	}
	if err := c.Delete(t.Context(), &secret); err != nil {
		t.Fatal(err)
	}
	reconcileOnce(t, c)
	if exists(t, c, certificates.UserServingSecret, &secret) {
		t.Error("the Secret that the user is to make is made again")
	}
	condition := apimeta.FindStatusCondition(stored(t, c).Status.Conditions, v1alpha1.ConditionTypeUserServerSecretSigned)
	if condition == nil || condition.Status != metav1.ConditionFalse || !strings.Contains(condition.Message, certificates.UserServingSecret) {
		t.Errorf("UserServerSecretSigned: %+v, want False and the name of the Secret", condition)
	}
}

// One server more is no reason to replace those that are there.
func TestScalingChangesNoPod(t *testing.T) {
	c := newClient(t, configuration(nil))
	look := func() (template corev1.PodTemplateSpec, count string) {
		reconcileOnce(t, c)
		var d appsv1.Deployment
		var m corev1.ConfigMap
		if !exists(t, c, "cluster-proxy", &d) || !exists(t, c, "cluster-proxy-proxy-server-count", &m) {
			t.Fatal("no Deployment, or nothing that says how many servers there are")
		}
		return d.Spec.Template, m.Data["server-count"]
	}
	before, two := look()
	scaled := stored(t, c)
	scaled.Spec.ProxyServer.Replicas, scaled.Generation = 3, 8
	if err := c.Update(t.Context(), scaled); err != nil {
		t.Fatal(err)
	}
	after, three := look()
	if two != "2" || three != "3" {
		t.Errorf("servers are told that they are %q and then %q", two, three)
	}
	if !reflect.DeepEqual(before, after) {
		t.Errorf("pods are replaced: they were %+v and are %+v", before, after)
	}
}

func TestRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1alpha1.ManagedProxyConfiguration)
		want   string
	}{
		"signer": {func(c *v1alpha1.ManagedProxyConfiguration) { c.Spec.Authentication.Signer.Type = "Pigeon" }, "signer.type"},
		"no CAs": {func(c *v1alpha1.ManagedProxyConfiguration) { c.Spec.Authentication.Signer.Type = "Provided" }, "signer.provided"},
		"one CA": {func(c *v1alpha1.ManagedProxyConfiguration) {
			c.Spec.Authentication.Signer = v1alpha1.ManagedProxyConfigurationCertificateSigner{Type: "Provided", Provided: &v1alpha1.ManagedProxyConfigurationProvided{HubCASecretName: "a", AgentCASecretName: "a"}}
		}, "signer.provided"},
		"our CA as theirs": {func(c *v1alpha1.ManagedProxyConfiguration) {
			c.Spec.Authentication.Signer = v1alpha1.ManagedProxyConfigurationCertificateSigner{Type: "Provided", Provided: &v1alpha1.ManagedProxyConfigurationProvided{HubCASecretName: "cluster-proxy-agent-signer", AgentCASecretName: "a"}}
		}, "hubCASecretName"},
		"no hostname": {entry(v1alpha1.ManagedProxyConfigurationProxyServerEntrypoint{Type: "Hostname"}), "entrypoint.hostname.value"},
		"pigeon":      {entry(v1alpha1.ManagedProxyConfigurationProxyServerEntrypoint{Type: "Pigeon"}), "entrypoint.type"},
		"port":        {entry(v1alpha1.ManagedProxyConfigurationProxyServerEntrypoint{Type: "PortForward", Port: 70000}), "entrypoint.port"},
		"konnectivity's args": {func(c *v1alpha1.ManagedProxyConfiguration) {
			c.Spec.ProxyAgent.AdditionalArgs = []string{"--sync-forever=true"}
		}, "spec.proxyAgent.additionalArgs[0] sets --sync-forever"},
		"a former flag of servers": {func(c *v1alpha1.ManagedProxyConfiguration) {
			c.Spec.ProxyServer.AdditionalArgs = []string{"--v=2", "--agent_identity=declared"}
		}, "spec.proxyServer.additionalArgs[1] sets --agent-identity"},
		"a flag that never was": {func(c *v1alpha1.ManagedProxyConfiguration) {
			c.Spec.ProxyServer.AdditionalArgs = []string{"--dial-timeuot=20s"}
		}, "spec.proxyServer.additionalArgs[0] sets --dial-timeuot, which the proxy-server of this release does not have"},
		"help": {func(c *v1alpha1.ManagedProxyConfiguration) {
			c.Spec.ProxyServer.AdditionalArgs = []string{"--help=true"}
		}, "spec.proxyServer.additionalArgs[0] sets --help"},
		"not a duration": {func(c *v1alpha1.ManagedProxyConfiguration) {
			c.Spec.ProxyServer.AdditionalArgs = []string{"--v=4", "--dial-timeout=soon"}
		}, `spec.proxyServer.additionalArgs[1] is "--dial-timeout=soon"`},
		"not a duration of the service proxy's": {func(c *v1alpha1.ManagedProxyConfiguration) {
			c.Spec.ProxyAgent.AdditionalServiceProxyArgs = []string{"--drain-timeout=soon"}
		}, `spec.proxyAgent.additionalServiceProxyArgs[0] is "--graceful-shutdown-timeout=soon"`},
		"a value that servers refuse": {func(c *v1alpha1.ManagedProxyConfiguration) {
			c.Spec.ProxyServer.AdditionalArgs = []string{"--max-carriers=0"}
		}, "spec.proxyServer.additionalArgs: the proxy-server does not start with them: proxy-server does not take --max-carriers=0"},
		"a value that agents refuse": {func(c *v1alpha1.ManagedProxyConfiguration) {
			c.Spec.ProxyAgent.AdditionalArgs = []string{"--idle-carriers=0"}
		}, "the proxy-agent does not start with them: proxy-agent does not take --idle-carriers=0"},
		"another port than the Service's": {func(c *v1alpha1.ManagedProxyConfiguration) {
			c.Spec.ProxyServer.AdditionalArgs = []string{"--server-port=9999"}
		}, "spec.proxyServer.additionalArgs[0] sets --server-port"},
		"another port than the probes'": {func(c *v1alpha1.ManagedProxyConfiguration) {
			c.Spec.ProxyAgent.AdditionalArgs = []string{"--health-server-port=9999"}
		}, "spec.proxyAgent.additionalArgs[0] sets --health-server-port"},
		"agent's args": {func(c *v1alpha1.ManagedProxyConfiguration) { c.Spec.ProxyAgent.AdditionalArgs = []string{"x"} }, "spec.proxyAgent.additionalArgs"},
		"service proxy's args": {func(c *v1alpha1.ManagedProxyConfiguration) {
			c.Spec.ProxyAgent.AdditionalServiceProxyArgs = []string{"--oidc-client-id=c", "--enable-impersonation=false"}
		}, "spec.proxyAgent.additionalServiceProxyArgs[1] sets --enable-impersonation"},
		"agent's owner": {func(c *v1alpha1.ManagedProxyConfiguration) {
			c.Spec.ProxyAgent.AdditionalArgs = []string{"--owner-policy=/none"}
		}, "sets --owner-policy"},
		"CA's name": {func(c *v1alpha1.ManagedProxyConfiguration) {
			c.Spec.Authentication.Dump.Secrets.SigningProxyServerSecretName = "cluster-proxy-signer"
		}, "signingProxyServerSecretName"},
		"same names": {func(c *v1alpha1.ManagedProxyConfiguration) {
			c.Spec.Authentication.Dump.Secrets.SigningProxyClientSecretName = "proxy-server"
		}, "signingProxyClientSecretName"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, configuration(nil))
			reconcileOnce(t, c)
			var before, after appsv1.Deployment
			exists(t, c, "cluster-proxy", &before)
			object := stored(t, c)
			tc.change(object)
			if err := c.Update(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			reconcileOnce(t, c)
			exists(t, c, "cluster-proxy", &after)
			condition := apimeta.FindStatusCondition(stored(t, c).Status.Conditions, "ConfigurationValid")
			if condition.Status != metav1.ConditionFalse || !strings.Contains(condition.Message, tc.want) {
				t.Errorf("condition %+v does not name %q", condition, tc.want)
			}
			if !reflect.DeepEqual(before, after) {
				t.Error("the Deployment was touched")
			}
		})
	}
}

// A message that changes without a reason is written, which wakes the reconciler,
// which writes.
func TestRefusalIsStable(t *testing.T) {
	bad := configuration(func(c *v1alpha1.ManagedProxyConfiguration) {
		c.Spec.ProxyServer.InClusterServiceName = "A_"
		c.Spec.Authentication.Dump.Secrets.SigningAgentServerSecretName = "B_"
	})
	_, first := Normalize(bad)
	for range 100 {
		if _, err := Normalize(bad); err.Error() != first.Error() {
			t.Fatalf("%v, then %v; want the same each time", first, err)
		}
	}
}

func TestPortForwardRights(t *testing.T) {
	c := newClient(t, configuration(nil)) // no entrypoint: PortForward
	reconcileOnce(t, c)
	var role rbacv1.Role
	if !exists(t, c, portForwardRole, &role) {
		t.Fatal("no Role")
	}
	want := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}}, {APIGroups: []string{""}, Resources: []string{"pods/portforward"}, Verbs: []string{"create"}}}
	if !reflect.DeepEqual(role.Rules, want) {
		t.Errorf("rules %+v, want %+v", role.Rules, want)
	}
	object := stored(t, c)
	entry(v1alpha1.ManagedProxyConfigurationProxyServerEntrypoint{Type: "Hostname", Hostname: &v1alpha1.EntryPointHostname{Value: "h"}})(object)
	if err := c.Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	reconcileOnce(t, c)
	if exists(t, c, portForwardRole, &role) || exists(t, c, portForwardRole, &rbacv1.RoleBinding{}) {
		t.Error("rights outlive PortForward mode")
	}
}

// TestMetricsNameNoClusterInPortForwardMode wants proxy servers to name clusters in
// their metrics only where agents cannot read them.
func TestMetricsNameNoClusterInPortForwardMode(t *testing.T) {
	for kind, want := range map[v1alpha1.EntryPointType]bool{v1alpha1.EntryPointTypePortForward: false, v1alpha1.EntryPointTypeLoadBalancerService: true, v1alpha1.EntryPointTypeHostname: true} {
		e := v1alpha1.ManagedProxyConfigurationProxyServerEntrypoint{Type: kind}
		if kind == v1alpha1.EntryPointTypeHostname {
			e.Hostname = &v1alpha1.EntryPointHostname{Value: "hub.example.org"}
		}
		c := newClient(t, configuration(entry(e)))
		reconcileOnce(t, c)
		var deployment appsv1.Deployment
		if !exists(t, c, "cluster-proxy", &deployment) {
			t.Fatalf("%s: no proxy servers", kind)
		}
		if args := deployment.Spec.Template.Spec.Containers[0].Args; slices.Contains(args, "--cluster-metrics") != want {
			t.Errorf("%s: the arguments are %q, want --cluster-metrics: %v", kind, args, want)
		}
	}
}

// TestPortForwardRightsGoWithTheAddon wants agents of clusters with the addon to
// have rights, and nobody else whose credential is still good.
func TestPortForwardRightsGoWithTheAddon(t *testing.T) {
	for _, tc := range []struct {
		clusters []Cluster
		want     []string
	}{
		{[]Cluster{{Name: "b"}, {Name: "a"}}, []string{
			"Group /system:open-cluster-management:cluster:a:addon:cluster-proxy",
			"Group /system:open-cluster-management:cluster:b:addon:cluster-proxy",
		}},
		{[]Cluster{{Name: "b"}}, []string{"Group /system:open-cluster-management:cluster:b:addon:cluster-proxy"}},
		// With a token the agent has OCM's account for it in the cluster's namespace.
		{[]Cluster{{Name: "b", Token: true}}, []string{
			"Group /system:open-cluster-management:cluster:b:addon:cluster-proxy",
			"ServiceAccount b/cluster-proxy-agent",
		}},
		{nil, nil},
	} {
		var got []string
		for _, object := range portForwardRBAC(&v1alpha1.ManagedProxyConfiguration{}, tc.clusters) {
			if binding, ok := object.(*rbacv1.RoleBinding); ok {
				for _, subject := range binding.Subjects {
					got = append(got, subject.Kind+" "+subject.Namespace+"/"+subject.Name)
				}
			}
		}
		if !reflect.DeepEqual(got, tc.want) {
			t.Errorf("with clusters %v, %q have rights, want %q", tc.clusters, got, tc.want)
		}
	}
}

func TestLoadBalancerGoesWithItsMode(t *testing.T) {
	c := newClient(t, configuration(entry(v1alpha1.ManagedProxyConfigurationProxyServerEntrypoint{Type: "LoadBalancerService"})))
	reconcileOnce(t, c)
	var s corev1.Service
	if !exists(t, c, "proxy-agent-entrypoint", &s) || len(s.Spec.Ports) != 1 {
		t.Fatalf("load balancer: %+v, want one port", s.Spec)
	}
	object := stored(t, c)
	entry(v1alpha1.ManagedProxyConfigurationProxyServerEntrypoint{Type: "Hostname", Hostname: &v1alpha1.EntryPointHostname{Value: "h"}})(object)
	if err := c.Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	reconcileOnce(t, c)
	if exists(t, c, "proxy-agent-entrypoint", &s) {
		t.Error("the load balancer outlives its mode")
	}
}

// Upstream wrote with Update; what it set and we do not must not stay.
func TestUpgradeFromUpstream(t *testing.T) {
	c := newClient(t, configuration(entry(v1alpha1.ManagedProxyConfigurationProxyServerEntrypoint{Type: "LoadBalancerService"})))
	owner := []metav1.OwnerReference{{APIVersion: "proxy.open-cluster-management.io/v1alpha1", Kind: "ManagedProxyConfiguration", Name: "cluster-proxy", UID: "1"}}
	for _, object := range []client.Object{
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "cluster-proxy", OwnerReferences: owner}, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: selector()}, Strategy: appsv1.DeploymentStrategy{Type: "Recreate"},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: selector()}, Spec: corev1.PodSpec{ServiceAccountName: "cluster-proxy", Containers: []corev1.Container{{Name: "proxy-server", Image: "old", Command: []string{"/proxy-server"}, Args: []string{"--old"}, VolumeMounts: []corev1.VolumeMount{{Name: "proxy-server-certs", MountPath: "/etc/server-pki/"}}}}, Volumes: []corev1.Volume{{Name: "proxy-server-certs"}}}},
		}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "proxy-agent-entrypoint"}, Spec: corev1.ServiceSpec{Type: "LoadBalancer", Ports: []corev1.ServicePort{{Name: "proxy-server", Port: 8090, Protocol: "TCP"}, {Name: "agent-server", Port: 8091, Protocol: "TCP"}}}},
	} {
		if err := c.Create(t.Context(), object, client.FieldOwner("manager")); err != nil {
			t.Fatal(err)
		}
	}
	reconcileOnce(t, c)
	var d appsv1.Deployment
	exists(t, c, "cluster-proxy", &d)
	if command := d.Spec.Template.Spec.Containers[0].Command; len(command) != 0 {
		t.Errorf("upstream's command %q is still there", command)
	}
	if mounts := d.Spec.Template.Spec.Containers[0].VolumeMounts; len(mounts) != 6 || len(d.Spec.Template.Spec.Volumes) != 6 {
		t.Errorf("upstream's mounts are still there: %+v", mounts)
	}
	if d.Spec.Template.Spec.ServiceAccountName != serviceAccount {
		t.Errorf("upstream's service account %q is still there", d.Spec.Template.Spec.ServiceAccountName)
	}
	if !exists(t, c, serviceAccount, &corev1.ServiceAccount{}) {
		t.Errorf("there is no service account %q", serviceAccount)
	}
	var s corev1.Service
	exists(t, c, "proxy-agent-entrypoint", &s)
	if len(s.Spec.Ports) != 1 {
		t.Errorf("the load balancer still leads to the client port: %+v", s.Spec.Ports)
	}
}

func TestEntrypoints(t *testing.T) {
	lb := func(ingress ...corev1.LoadBalancerIngress) client.Object {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "proxy-agent-entrypoint"}, Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: ingress}}}
	}
	for name, tc := range map[string]struct {
		e    *v1alpha1.ManagedProxyConfigurationProxyServerEntrypoint
		have []client.Object
		host string
		port int32
		fail string
	}{
		"none":       {host: "127.0.0.1", port: 8091},
		"hostname":   {e: &v1alpha1.ManagedProxyConfigurationProxyServerEntrypoint{Type: "Hostname", Port: 443, Hostname: &v1alpha1.EntryPointHostname{Value: "h"}}, host: "h", port: 443},
		"nil host":   {e: &v1alpha1.ManagedProxyConfigurationProxyServerEntrypoint{Type: "Hostname"}, fail: "hostname"},
		"lb ip":      {e: &v1alpha1.ManagedProxyConfigurationProxyServerEntrypoint{Type: "LoadBalancerService"}, have: []client.Object{lb(corev1.LoadBalancerIngress{IP: "1.2.3.4"})}, host: "1.2.3.4", port: 8091},
		"lb name":    {e: &v1alpha1.ManagedProxyConfigurationProxyServerEntrypoint{Type: "LoadBalancerService"}, have: []client.Object{lb(corev1.LoadBalancerIngress{Hostname: "lb"})}, host: "lb", port: 8091},
		"lb pending": {e: &v1alpha1.ManagedProxyConfigurationProxyServerEntrypoint{Type: "LoadBalancerService"}, have: []client.Object{lb()}, fail: "no address yet"},
		"lb missing": {e: &v1alpha1.ManagedProxyConfigurationProxyServerEntrypoint{Type: "LoadBalancerService"}, fail: "not found"},
	} {
		t.Run(name, func(t *testing.T) {
			host, port, err := AgentEntrypoint(t.Context(), newClient(t, tc.have...), configuration(func(c *v1alpha1.ManagedProxyConfiguration) { c.Spec.ProxyServer.Entrypoint = tc.e }))
			if tc.fail != "" {
				if err == nil || !strings.Contains(err.Error(), tc.fail) {
					t.Errorf("error %v does not say %q", err, tc.fail)
				}
				return
			}
			if err != nil || host != tc.host || port != tc.port {
				t.Errorf("host %q, port %d, %v; want %q, %d", host, port, err, tc.host, tc.port)
			}
		})
	}
}

func TestOddObjectsDoNotPanic(t *testing.T) {
	for _, kind := range []v1alpha1.EntryPointType{"", "Hostname", "LoadBalancerService", "PortForward", "x"} {
		for _, object := range []*v1alpha1.ManagedProxyConfiguration{
			{}, configuration(nil), configuration(entry(v1alpha1.ManagedProxyConfigurationProxyServerEntrypoint{Type: kind})),
			configuration(func(c *v1alpha1.ManagedProxyConfiguration) {
				c.Spec.Deploy = &v1alpha1.ManagedProxyConfigurationDeploy{}
				c.Spec.UserServer = &v1alpha1.ManagedProxyConfigurationUserServer{AdditionalSANs: []string{"", "é", "*"}}
				c.Spec.Authentication.Signer.SelfSigned = &v1alpha1.AuthenticationSelfSigned{AdditionalSANs: []string{"", "1.2.3.4"}}
				entry(v1alpha1.ManagedProxyConfigurationProxyServerEntrypoint{Type: kind, LoadBalancerService: &v1alpha1.EntryPointLoadBalancerService{Annotations: []v1alpha1.AnnotationVar{{}}}})(c)
			}),
		} {
			object.Name = "cluster-proxy"
			_, _ = run(t, newClient(t, object))
		}
	}
}

// A configuration that is deleted meanwhile is nobody's failure.
func TestStatusOfADeletedConfiguration(t *testing.T) {
	c := newClient(t)
	r := &Reconciler{Client: c}
	err := r.writeStatus(t.Context(), configuration(nil), &v1alpha1.ManagedProxyConfigurationStatus{LastObservedGeneration: 1})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Errorf("writeStatus: %v, want nil or not found", err)
	}
}

// TestChecksOfOneCluster leaves the check of arguments that need others of a cluster's agent to what
// knows those.
func TestChecksOfOneCluster(t *testing.T) {
	var got []string
	o := Options{CheckArgs: func(args []string) error { got = args; return nil }}
	c, err := Normalize(configuration(func(c *v1alpha1.ManagedProxyConfiguration) {
		c.Spec.ProxyAgent.AdditionalArgs = []string{"--enable-port-forward-proxy=true", "--oidc-client-id=a", "--idle-carriers=2"}
	}))
	if err != nil {
		t.Fatal(err)
	}
	if err := o.checkStart(c); err != nil {
		t.Fatal(err)
	}
	if want := []string{"proxy-agent", "--idle-carriers=2"}; !slices.Equal(got, want) {
		t.Errorf("checked %q for every agent, want %q", got, want)
	}
}
