package agentaddon

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"

	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// TestProxyAsDocumented renders what the documentation of OCM's distributions shows: a proxy that
// speaks TLS, and the CA of it.
func TestProxyAsDocumented(t *testing.T) {
	bundle := string(pkitest.NewCA(t, "proxy").CertPEM())
	deployment, objects, err := render(t, "cluster1", configuration(nil), &addonv1alpha1.AddOnDeploymentConfigSpec{
		ProxyConfig: addonv1alpha1.ProxyConfig{HTTPSProxy: "https://proxy.example.com", NoProxy: ".cluster.local", CABundle: []byte(bundle)}})
	if err != nil {
		t.Fatal(err)
	}
	pod := deployment.Spec.Template
	container := pod.Spec.Containers[0]
	for _, want := range []corev1.EnvVar{{Name: "HTTPS_PROXY", Value: "https://proxy.example.com"}, {Name: "SSL_CERT_DIR", Value: "/etc/ssl/certs:/etc/pki/tls/certs:/etc/proxy-ca"}} {
		if !slices.Contains(container.Env, want) {
			t.Errorf("environment %v lacks %v", container.Env, want)
		}
	}
	if !slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/etc/proxy-ca" }) || pod.Annotations["proxy.open-cluster-management.io/proxy-ca"] == "" {
		t.Errorf("mounts are %v and annotations %v, want the CA there, and a restart when it changes", container.VolumeMounts, pod.Annotations)
	}
	if !slices.ContainsFunc(objects, func(object runtime.Object) bool {
		configMap, ok := object.(*corev1.ConfigMap)
		return ok && configMap.Name == "cluster-proxy-proxy-ca" && configMap.Data["ca.crt"] == bundle
	}) {
		t.Error("there is no ConfigMap with the CA")
	}
}

// TestLinuxNodesOnly has clusters with Windows nodes: there is an image for Linux only.
func TestLinuxNodesOnly(t *testing.T) {
	for name, test := range map[string]struct {
		selector, want map[string]string
	}{
		"none":              {nil, map[string]string{"kubernetes.io/os": "linux"}},
		"another":           {map[string]string{"pool": "infra"}, map[string]string{"kubernetes.io/os": "linux", "pool": "infra"}},
		"of another system": {map[string]string{"kubernetes.io/os": "freebsd"}, map[string]string{"kubernetes.io/os": "freebsd"}},
	} {
		deployment, _, err := render(t, "cluster1", configuration(nil), &addonv1alpha1.AddOnDeploymentConfigSpec{NodePlacement: &addonv1alpha1.NodePlacement{NodeSelector: test.selector}})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, deployment.Spec.Template.Spec.NodeSelector); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestPullSecretOfOCM wants the Secret that the klusterlet copies in the agent's ServiceAccount.
func TestPullSecretOfOCM(t *testing.T) {
	const ocms = "open-cluster-management-image-pull-credentials"
	for name, test := range map[string]struct{ names, want []string }{
		"none": {nil, []string{ocms}}, "another": {[]string{"regcred"}, []string{"regcred", ocms}}, "OCM's": {[]string{ocms}, []string{ocms}},
	} {
		config := configuration(nil)
		config.Spec.ProxyAgent.ImagePullSecrets = test.names
		_, objects, err := render(t, "cluster1", config, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, object := range objects {
			if account, ok := object.(*corev1.ServiceAccount); ok {
				for _, secret := range account.ImagePullSecrets {
					got = append(got, secret.Name)
				}
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: the ServiceAccount names %q, want %q", name, got, test.want)
		}
	}
}
