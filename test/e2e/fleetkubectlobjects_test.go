package e2e

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// sameName is what every object of TestFleetKubectlNamesTheCluster is called, on every cluster.
const sameName = "same"

// sameKind is a kind of object that a kubectl command resolves.
type sameKind struct {
	gvr schema.GroupVersionResource
	// manifest is in JSON, without metadata of its own. CLUSTER stands for the cluster's name, NAMESPACE for the namespace's.
	manifest string
	cluster  bool // without a namespace
}

func core(resource string) schema.GroupVersionResource {
	return corev1.SchemeGroupVersion.WithResource(resource)
}

func apps(resource string) schema.GroupVersionResource {
	return appsv1.SchemeGroupVersion.WithResource(resource)
}

func grouped(group, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}
}

const (
	sameContainers = `"terminationGracePeriodSeconds":0,"containers":[{"name":"c","image":"lab.invalid/web:1","ports":[{"name":"http","containerPort":8080}]}]`
	// sameSpec is that of a workload. Its selector is the same on all clusters.
	sameSpec = `"selector":{"matchLabels":{"app":"KIND"}},"template":{"metadata":{"labels":{"app":"KIND"}},"spec":{` + sameContainers + `}}`
)

// sameKinds are those of the objects, in the order in which they are made.
var sameKinds = map[string]sameKind{
	"pod":    {core("pods"), `"apiVersion":"v1","kind":"Pod","spec":{` + sameContainers + `}`, false},
	"deploy": {apps("deployments"), `"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":1,` + sameSpec + `}`, false},
	"rs":     {apps("replicasets"), `"apiVersion":"apps/v1","kind":"ReplicaSet","spec":{"replicas":1,` + sameSpec + `}`, false},
	"sts":    {apps("statefulsets"), `"apiVersion":"apps/v1","kind":"StatefulSet","spec":{"replicas":1,"serviceName":"same",` + sameSpec + `}`, false},
	"ds":     {apps("daemonsets"), `"apiVersion":"apps/v1","kind":"DaemonSet","spec":{` + sameSpec + `}`, false},
	"rc": {core("replicationcontrollers"), `"apiVersion":"v1","kind":"ReplicationController","spec":{"replicas":1,"selector":{"app":"rc"},` +
		`"template":{"metadata":{"labels":{"app":"rc"}},"spec":{` + sameContainers + `}}}`, false},
	"job": {grouped("batch", "jobs"), `"apiVersion":"batch/v1","kind":"Job","spec":{"template":{"spec":{"restartPolicy":"Never",` + sameContainers + `}}}`, false},
	"cronjob": {grouped("batch", "cronjobs"), `"apiVersion":"batch/v1","kind":"CronJob","spec":{"schedule":"0 0 1 1 *","suspend":true,"jobTemplate":{"spec":{` +
		`"template":{"spec":{"restartPolicy":"Never",` + sameContainers + `}}}}}`, false},
	"svc": {core("services"), `"apiVersion":"v1","kind":"Service","spec":{"selector":{"app":"pod"},"ports":[{"name":"http","port":80,"targetPort":8080}]}`, false},
	"pvc": {core("persistentvolumeclaims"), `"apiVersion":"v1","kind":"PersistentVolumeClaim","spec":{"accessModes":["ReadWriteOnce"],"storageClassName":"none",` +
		`"resources":{"requests":{"storage":"1Gi"}}}`, false},
	// Kwok makes every node ready. Nothing that others make gets to this one.
	"node": {core("nodes"), `"apiVersion":"v1","kind":"Node","spec":{"taints":[{"key":"e2e","value":"same","effect":"NoSchedule"}]}`, true},

	"sa": {core("serviceaccounts"), `"apiVersion":"v1","kind":"ServiceAccount"`, false},
	"rolebinding": {grouped("rbac.authorization.k8s.io", "rolebindings"), `"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding",` +
		`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"somebody"}]`, false},
}

// same are objects of the same names on all clusters of a fleet. Each says by label "at" where it is.
type same struct {
	*fleet
	clients map[string]dynamic.Interface
}

// direct is kubectl straight at a cluster.
func (s *same) direct(t *testing.T, cluster string) kubectl {
	return newKubectl(t, installed.Direct(cluster)).as("fleet-names-" + cluster)
}

func newSame(t *testing.T) *same {
	t.Helper()
	s := &same{fleet: newFleet(t), clients: map[string]dynamic.Interface{}}
	for _, cluster := range s.clusters {
		client, err := dynamic.NewForConfig(installed.Direct(cluster))
		if err != nil {
			t.Fatal(err)
		}
		s.clients[cluster] = client
		sameKinds["csr"] = sameKind{grouped("certificates.k8s.io", "certificatesigningrequests"), `"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest",` +
			`"spec":{"signerName":"example.com/none","usages":["client auth"],"request":"` + certificateRequest(t) + `"}`, true}
		for kind := range sameKinds {
			s.make(t, cluster, kind)
			s.note(t, cluster, kind)
		}
		// The lab has no controllers of these.
		for _, kind := range []string{"sts", "ds", "rc", "job"} {
			s.makePodOf(t, cluster, kind)
		}
		// They have a node and a claim, by which kubectl finds them.
		s.makePod(t, cluster, "on-node", `"nodeName":"`+s.name("node")+`",`)
		s.makePod(t, cluster, "with-claim", `"nodeName":"`+s.name("node")+`","volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"same"}}],`)
	}
	t.Cleanup(func() {
		for _, cluster := range s.clusters {
			for kind, of := range sameKinds {
				if of.cluster {
					_ = s.objects(cluster, kind).Delete(context.Background(), s.name(kind), metav1.DeleteOptions{})
				}
			}
		}
	})
	for _, cluster := range s.clusters {
		suite.Eventually(t, "pods on "+cluster, func() error { return s.running(t.Context(), cluster) })
	}
	return s
}

// name is that of the object of a kind. An object without a namespace must not meet that of another run.
func (s *same) name(kind string) string {
	if sameKinds[kind].cluster {
		return s.ns
	}
	return sameName
}

// certificateRequest is one that nobody signs.
func certificateRequest(t *testing.T) string {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	request, err := x509.CreateCertificateRequest(nil, &x509.CertificateRequest{Subject: pkix.Name{CommonName: sameName}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}))
}

func (s *same) objects(cluster, kind string) dynamic.ResourceInterface {
	if sameKinds[kind].cluster {
		return s.clients[cluster].Resource(sameKinds[kind].gvr)
	}
	return s.clients[cluster].Resource(sameKinds[kind].gvr).Namespace(s.ns)
}

// make makes the object of a kind.
func (s *same) make(t testing.TB, cluster, kind string) {
	t.Helper()
	meta := fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"app":%[2]q,"at":%[3]q,"e2e":"fleet"},"annotations":{"edit":"none-0"}},`, s.name(kind), kind, cluster)
	s.create(t, cluster, kind, meta+strings.ReplaceAll(sameKinds[kind].manifest, "KIND", kind)+"}")
}

func (s *same) makePod(t testing.TB, cluster, name, spec string) {
	t.Helper()
	s.create(t, cluster, "pod", fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"%s-of-%s","labels":{"app":%[1]q,"at":%[2]q}},"spec":{%[3]s`+sameContainers+`}}`, name, cluster, spec))
}

// makePodOf makes the pod that a controller would make.
func (s *same) makePodOf(t *testing.T, cluster, kind string) {
	t.Helper()
	labels := map[string]string{"app": kind}
	if kind == "job" { // the kube-apiserver has made its selector
		var err error
		if labels, _, err = unstructured.NestedStringMap(s.get(t, cluster, kind).Object, "spec", "selector", "matchLabels"); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(labels)
	if err != nil {
		t.Fatal(err)
	}
	s.create(t, cluster, "pod", fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"%s-of-%s","labels":%s},"spec":{%s}}`, kind, cluster, text, sameContainers))
}

func (s *same) create(t testing.TB, cluster, kind, manifest string) {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(manifest), &object.Object); err != nil {
		t.Fatalf("reading %s: %v", manifest, err)
	}
	suite.Eventually(t, "a "+kind+" on "+cluster, func() error {
		_, err := s.objects(cluster, kind).Create(t.Context(), object, metav1.CreateOptions{})
		return err // the former one may not be gone yet
	})
}

// note makes an event of the object of a kind, which says where it is.
func (s *same) note(t *testing.T, cluster, kind string) {
	t.Helper()
	of := s.get(t, cluster, kind)
	namespace := s.ns
	if of.GetNamespace() == "" {
		namespace = "default"
	}
	now := metav1.Now()
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: s.ns + "-" + kind, Namespace: namespace}, Reason: "Made", Message: "made on " + cluster, Type: corev1.EventTypeNormal,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		InvolvedObject: corev1.ObjectReference{APIVersion: of.GetAPIVersion(), Kind: of.GetKind(), Name: of.GetName(), Namespace: of.GetNamespace(), UID: of.GetUID()}}
	if _, err := s.on[cluster].CoreV1().Events(namespace).Create(t.Context(), event, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// get is the object of a kind as the cluster has it; nil if there is none.
func (s *same) get(t testing.TB, cluster, kind string) *unstructured.Unstructured {
	t.Helper()
	object, err := s.objects(cluster, kind).Get(t.Context(), s.name(kind), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// running returns an error until the pods of a cluster's workloads run.
func (s *same) running(ctx context.Context, cluster string) error {
	pods, err := s.on[cluster].CoreV1().Pods(s.ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	run := map[string]bool{}
	for _, pod := range pods.Items {
		app := cmp.Or(pod.Labels["app"], "job")
		run[app] = run[app] || pod.Status.Phase == corev1.PodRunning
	}
	for _, app := range strings.Fields("pod deploy rs sts ds rc job on-node with-claim") {
		if !run[app] {
			return fmt.Errorf("no pod of %s runs", app)
		}
	}
	return nil
}
