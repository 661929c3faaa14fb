package lab

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRewriteArgs(t *testing.T) {
	r := rewriting{
		mounts: map[string]string{"/etc/tls": "/lab/tls", "/etc": "/lab/etc", "/etc/tls/deep": "/lab/deep"},
		ports:  map[int32]int{8091: 20001, 8092: 20002},
		service: func(name, namespace string, port int) ([]string, error) {
			switch {
			case namespace != "ns" || port != 8090:
			case name == "entry":
				return []string{"127.0.0.1:20003"}, nil
			case name == "headless":
				return []string{"127.0.0.1:20004", "127.0.0.1:20005"}, nil
			}
			return nil, errors.New("no such service")
		},
	}
	for _, test := range []struct{ name, arg, want string }{
		{"command", "proxy-server", "proxy-server"},
		{"flag without value", "--v", "--v"},
		{"other value", "--v=4", "--v=4"},
		{"file", "--cert=/etc/tls/tls.crt", "--cert=/lab/tls/tls.crt"},
		{"longest mount", "--cert=/etc/tls/deep/x", "--cert=/lab/deep/x"},
		{"path that only begins alike", "--cert=/etcetera/x", "--cert=/etcetera/x"},
		{"port", "--port=8091", "--port=20001"},
		{"port, with a longer name", "--agent-port=8091", "--agent-port=20001"},
		{"number that is no port", "--max-streams-per-cluster=8091", "--max-streams-per-cluster=8091"},
		{"address", "--listen=:8092", "--listen=:20002"},
		{"port of somebody else", "--remote-port=8090", "--remote-port=8090"},
		{"service", "--proxy=entry.ns.svc:8090", "--proxy=127.0.0.1:20003"},
		{"service, long", "--proxy=entry.ns.svc.cluster.local:8090", "--proxy=127.0.0.1:20003"},
		{"service, headless", "--peers=headless.ns.svc:8090", "--peers=127.0.0.1:20004,127.0.0.1:20005"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := rewriteArgs([]string{test.arg}, r)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{test.want}, got); diff != "" {
				t.Errorf("difference (-want +got):\n%s", diff)
			}
		})
	}
	if _, err := rewriteArgs([]string{"--proxy=other.ns.svc:1"}, r); err == nil {
		t.Error("an address of an unknown Service is no error")
	}
}

func TestEnvValue(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}, Spec: corev1.PodSpec{NodeName: "n", ServiceAccountName: "sa"}}
	for path, want := range map[string]string{
		"metadata.namespace": "ns", "metadata.name": "p", "metadata.uid": "u", "spec.nodeName": "n", "spec.serviceAccountName": "sa", "status.podIP": "127.0.0.1",
	} {
		field := corev1.EnvVar{Name: "X", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
		if got, err := envValue(pod, new(corev1.Container), field); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %q", path, got, err, want)
		}
	}
	unknown := corev1.EnvVar{Name: "X", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.hostIP"}}}
	limited := &corev1.Container{Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}}}
	limit := corev1.EnvVar{Name: "GOMEMLIMIT", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.memory"}}}
	if got, err := envValue(pod, limited, limit); err != nil || got != "1073741824" {
		t.Errorf("the memory limit is %q, %v; want 1073741824", got, err)
	}
	if got, err := envValue(pod, new(corev1.Container), limit); err == nil {
		t.Errorf("the memory limit of a container without one is %q", got)
	}
	if _, err := envValue(pod, limited, unknown); err == nil {
		t.Error("an unknown field is no error")
	}
}
