package merge

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	quantities "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pod returns a pod as a Deployment's in a cluster: about 9.5 KB in JSON, of which a third is managedFields.
func pod(i int) corev1.Pod {
	created := metav1.Time{Time: time.Unix(1_700_000_000+int64(i), 0).UTC()}
	name := fmt.Sprintf("web-%d-7d4b9c6f5-x2x%04d", i%100, i)
	p := corev1.Pod{
		TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, GenerateName: "web-7d4b9c6f5-", Namespace: "shop", UID: "0f3a8a5e-5c2b-4f0d-9d1f-000000000000",
			ResourceVersion: fmt.Sprint(100_000 + i), CreationTimestamp: created,
			Labels:      map[string]string{"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": "shop", "pod-template-hash": "7d4b9c6f5"},
			Annotations: map[string]string{"checksum/config": strings.Repeat("0f", 32), "prometheus.io/scrape": "true"},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, HostIP: "10.0.0.7", PodIP: "10.1.2.3", StartTime: &created, QOSClass: corev1.PodQOSBurstable},
	}
	fields := `{"f:metadata":{"f:annotations":{".":{},"f:checksum/config":{}},"f:labels":{".":{},"f:app.kubernetes.io/name":{}}},"f:spec":{"f:containers":{` +
		strings.Repeat(`"k:{\"name\":\"web\"}":{".":{},"f:env":{".":{},"k:{\"name\":\"A\"}":{".":{},"f:name":{},"f:value":{}}},"f:image":{}},`, 6) +
		`"k:{\"name\":\"last\"}":{}},"f:dnsPolicy":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}`
	for _, manager := range []string{"kube-controller-manager", "kubelet"} {
		p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &created,
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
		})
	}
	quantity := corev1.ResourceList{corev1.ResourceCPU: quantities.MustParse("250m"), corev1.ResourceMemory: quantities.MustParse("512Mi")}
	for _, container := range []string{"web", "sidecar", "metrics"} {
		c := corev1.Container{
			Name: container, Image: "registry.example.org/shop/" + container + ":v1.2.3", ImagePullPolicy: corev1.PullIfNotPresent,
			Args:      []string{"--listen=:8080", "--log-format=json", "--greeting=\"hello\"\n"},
			Resources: corev1.ResourceRequirements{Requests: quantity, Limits: quantity},
			Ports:     []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
		}
		for e := range 12 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_NUMBER_%d", e), Value: strings.Repeat("value", 10)})
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: container, Ready: true, Image: c.Image, ImageID: c.Image + "@sha256:" + strings.Repeat("ab", 32), ContainerID: "containerd://" + strings.Repeat("cd", 32),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: created}},
		})
	}
	for _, condition := range []corev1.PodConditionType{corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: created})
	}
	return p
}
