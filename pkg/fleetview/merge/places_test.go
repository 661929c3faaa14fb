package merge

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// leading are a Rewriter and a Restorer of a resource, for objects that are called NAME@CLUSTER.
func leading(group, resource, subresource string) (*Rewriter, *Restorer) {
	w, r := testRewriter(true), testRestorer()
	of := PlacesOf(group, resource, subresource)
	w.Annotations, w.Label, w.Places = []string{testAnnotation}, testAnnotation, of.Selectors()
	r.Label, r.Places, r.Derived = testAnnotation, of, resource == "pods" || resource == "events"
	return w, r
}

func TestSelectorsGetTheLabel(t *testing.T) {
	const ours = `"` + testAnnotation + `":"edge-7"`
	const meta = `"metadata":{"annotations":{` + ours + `}}`
	tests := map[string]struct{ group, resource, object, want string }{
		"labels":             {"apps", "deployments", `{"metadata":{},"spec":{"selector":{"matchLabels":{"a":"b"}},"x":1}}`, `{` + meta + `,"spec":{"selector":{"matchLabels":{` + ours + `,"a":"b"}},"x":1}}`},
		"expressions":        {"apps", "daemonsets", `{"metadata":{},"spec":{"selector":{"matchExpressions":[{"key":"a"}]}}}`, `{` + meta + `,"spec":{"selector":{"matchLabels":{` + ours + `},"matchExpressions":[{"key":"a"}]}}}`},
		"no labels":          {"batch", "jobs", `{"metadata":{},"spec":{"selector":{"matchLabels":{},"matchExpressions":[{"key":"a"}]}}}`, `{` + meta + `,"spec":{"selector":{"matchLabels":{` + ours + `},"matchExpressions":[{"key":"a"}]}}}`},
		"empty selector":     {"apps", "statefulsets", `{"metadata":{},"spec":{"selector":{"matchLabels":{ },"matchExpressions":[ ]}}}`, `{` + meta + `,"spec":{"selector":{"matchLabels":{ },"matchExpressions":[ ]}}}`},
		"null selector":      {"apps", "replicasets", `{"metadata":{},"spec":{"selector":null}}`, `{` + meta + `,"spec":{"selector":null}}`},
		"null labels":        {"apps", "replicasets", `{"metadata":{},"spec":{"selector":{"matchLabels":null}}}`, `{` + meta + `,"spec":{"selector":{"matchLabels":null}}}`},
		"no selector":        {"apps", "deployments", `{"metadata":{},"spec":{}}`, `{` + meta + `,"spec":{}}`},
		"no spec":            {"apps", "deployments", `{"metadata":{}}`, `{` + meta + `}`},
		"Service":            {"", "services", `{"metadata":{},"spec":{"selector":{"a":"b"}}}`, `{` + meta + `,"spec":{"selector":{` + ours + `,"a":"b"}}}`},
		"without a selector": {"", "services", `{"metadata":{},"spec":{"selector":{}}}`, `{` + meta + `,"spec":{"selector":{}}}`},
		"claimed":            {"", "replicationcontrollers", `{"metadata":{},"spec":{"selector":{` + `"` + testAnnotation + `":"other"` + `}}}`, `{` + meta + `,"spec":{"selector":{` + ours + `}}}`},
		"other case": {
			"apps", "deployments", `{"metadata":{},"Spec":{},"spec":{"SELECTOR":{"matchLabels":{"a":"c"}},"selector":{"MatchLabels":{"a":"c"},"matchLabels":{"a":"b"}}}}`,
			`{` + meta + `,"spec":{"selector":{"matchLabels":{` + ours + `,"a":"b"}}}}`,
		},
		"template":    {"apps", "deployments", `{"metadata":{},"spec":{"template":{"metadata":{"labels":{"a":"b"}}}}}`, `{` + meta + `,"spec":{"template":{"metadata":{"labels":{"a":"b"}}}}}`},
		"other kinds": {"policy", "poddisruptionbudgets", `{"metadata":{},"spec":{"selector":{"matchLabels":{"a":"b"}}}}`, `{` + meta + `,"spec":{"selector":{"matchLabels":{"a":"b"}}}}`},
		"owners": {
			"", "pods", `{"metadata":{"ownerReferences":[{"kind":"X","name":"x","uid":"u"},{"name":"\u0079"}]}}`,
			`{"metadata":{"ownerReferences":[{"kind":"X","name":"x@edge-7","uid":"u"},{"name":"\u0079@edge-7"}],"annotations":{` + ours + `}}}`,
		},
		"applied": {
			"", "configmaps", `{"metadata":{"annotations":{"` + appliedAnnotation + `":"{\"metadata\":{\"name\":\"a\"}}\n"}}}`,
			`{"metadata":{"annotations":{` + ours + `,"` + appliedAnnotation + `":"{\"metadata\":{\"name\":\"a@edge-7\"}}\n"}}}`,
		},
		"applied, something else": {
			"", "configmaps", `{"metadata":{"annotations":{"` + appliedAnnotation + `":"x"}}}`, `{"metadata":{"annotations":{` + ours + `,"` + appliedAnnotation + `":"x"}}}`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w, r := leading(test.group, test.resource, "")
			got, err := w.AppendJSON([]byte("before"), []byte(test.object))
			if err != nil {
				t.Fatalf("rewriting %s: %v", test.object, err)
			}
			if diff := cmp.Diff("before"+test.want, string(got)); diff != "" {
				t.Errorf("rewriting %s (-want +got):\n%s", test.object, diff)
			}
			if name == "claimed" || name == "no labels" || name == "owners" || name == "empty selector" || name == "other case" {
				return // what was there is not what it is restored to, byte for byte
			}
			if back, err := r.AppendJSON(nil, got[len("before"):]); err != nil || string(back) != test.object {
				t.Errorf("restoring %s: got %s and error %v, want %s", got, back, err, test.object)
			}
		})
	}
}

func TestRestorePlaces(t *testing.T) {
	const ours = `"` + testAnnotation + `":"edge-7"`
	tests := map[string]struct{ group, resource, body, want string }{
		"patch":          {"apps", "deployments", `{"spec":{"selector":{"matchLabels":{` + ours + `}}}}`, `{"spec":{"selector":{}}}`},
		"labels":         {"", "configmaps", `{"metadata":{"labels":{` + ours + `,"a":"b"}}}`, `{"metadata":{"labels":{"a":"b"}}}`},
		"only ours":      {"", "configmaps", `{"metadata":{"labels":{` + ours + `}}}`, `{"metadata":{}}`},
		"null":           {"apps", "deployments", `{"metadata":{"labels":null,"ownerReferences":null},"spec":{"selector":null,"template":null}}`, `{"metadata":{"labels":null,"ownerReferences":null},"spec":{"selector":null,"template":null}}`},
		"wrong types":    {"apps", "deployments", `{"metadata":{"labels":5,"ownerReferences":[1]},"spec":{"selector":[],"template":{"spec":{"containers":{"a":1}}}}}`, `{"metadata":{"labels":5,"ownerReferences":[1]},"spec":{"selector":[],"template":{"spec":{"containers":{"a":1}}}}}`},
		"owner":          {"batch", "jobs", `{"metadata":{"name":"x","ownerReferences":[{"name":"backup@edge-7"}]}}`, `{"metadata":{"name":"x","ownerReferences":[{"name":"backup"}]}}`},
		"namespace":      {"", "pods", `{"metadata":{"namespace":"shop@edge-7"}}`, `{"metadata":{"namespace":"shop"}}`},
		"run":            {"", "pods", `{"metadata":{"name":"x@edge-7","labels":{"run":"x@edge-7"}},"spec":{"containers":[{"name":"x@edge-7","image":"i@edge-7"}]}}`, `{"metadata":{"name":"x","labels":{"run":"x"}},"spec":{"containers":[{"name":"x","image":"i@edge-7"}]}}`},
		"deployment":     {"apps", "deployments", `{"spec":{"selector":{"matchLabels":{"app":"x@edge-7"}},"template":{"metadata":{"labels":{"app":"x@edge-7"}}}}}`, `{"spec":{"selector":{"matchLabels":{"app":"x"}},"template":{"metadata":{"labels":{"app":"x"}}}}}`},
		"CronJob":        {"batch", "cronjobs", `{"spec":{"jobTemplate":{"metadata":{"name":"x@edge-7"},"spec":{"template":{"spec":{"containers":[{"name":"x@edge-7"}]}}}}}}`, `{"spec":{"jobTemplate":{"metadata":{"name":"x"},"spec":{"template":{"spec":{"containers":[{"name":"x"}]}}}}}}`},
		"HPA":            {"autoscaling", "horizontalpodautoscalers", `{"spec":{"scaleTargetRef":{"name":"web@edge-7"}}}`, `{"spec":{"scaleTargetRef":{"name":"web"}}}`},
		"debug node":     {"", "pods", `{"metadata":{"name":"node-debugger-n@edge-7-abcde"},"spec":{"nodeName":"n@edge-7"}}`, `{"metadata":{"name":"node-debugger-n-abcde"},"spec":{"nodeName":"n"}}`},
		"event":          {"", "events", `{"metadata":{"name":"web@edge-7.17"},"involvedObject":{"name":"web@edge-7","uid":"web@edge-7"}}`, `{"metadata":{"name":"web.17"},"involvedObject":{"name":"web","uid":"web"}}`},
		"set env":        {"apps", "deployments", `{"spec":{"template":{"spec":{"containers":[{"env":[{"valueFrom":{"secretKeyRef":{"name":"s@edge-7"}}}]}]}}}}`, `{"spec":{"template":{"spec":{"containers":[{"env":[{"valueFrom":{"secretKeyRef":{"name":"s"}}}]}]}}}}`},
		"somebody's":     {"rbac.authorization.k8s.io", "rolebindings", `{"subjects":[{"kind":"User","name":"ann@edge-7"}]}`, `{"subjects":[{"kind":"User","name":"ann@edge-7"}]}`},
		"data":           {"", "configmaps", `{"data":{"a":"x@edge-7"}}`, `{"data":{"a":"x@edge-7"}}`},
		"of another":     {"", "pods", `{"metadata":{"ownerReferences":[{"name":"x@other"}]}}`, `{"metadata":{"ownerReferences":[{"name":"x@other"}]}}`},
		"applied":        {"", "services", `{"metadata":{"annotations":{"` + appliedAnnotation + `":"{\"metadata\":{\"name\":\"a@edge-7\",\"resourceVersion\":\"912\",\"annotations\":{\"` + testAnnotation + `\":\"edge-7\"}},\"spec\":{\"selector\":{\"` + testAnnotation + `\":\"edge-7\",\"a\":\"b\"}}}\n"}}}`, `{"metadata":{"annotations":{"` + appliedAnnotation + `":"{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"12\"},\"spec\":{\"selector\":{\"a\":\"b\"}}}\n"}}}`},
		"applied, stale": {"", "configmaps", `{"metadata":{"annotations":{"` + appliedAnnotation + `":"{\"metadata\":{\"name\":\"a@edge-7\",\"resourceVersion\":\"5\"}}"}}}`, `{"metadata":{"annotations":{"` + appliedAnnotation + `":"{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"5\"}}"}}}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, r := leading(test.group, test.resource, "")
			if got, err := r.AppendJSON(nil, []byte(test.body)); err != nil || string(got) != test.want {
				t.Errorf("restoring %s: got %s and error %v, want %s", test.body, got, err, test.want)
			}
		})
	}
}

func TestRestorePlacesInJSONPatches(t *testing.T) {
	const key = "clusterproxy.open-cluster-management.io~1cluster"
	tests := map[string]struct{ patch, want string }{
		"label":         {`[{"op":"add","path":"/spec/selector/matchLabels/` + key + `","value":"edge-7"}]`, `[]`},
		"own label":     {`[{"op":"remove","path":"/metadata/labels/` + key + `"}]`, `[]`},
		"selector":      {`[{"op":"test","path":"/spec/selector/matchLabels","value":{"a":"b","` + testAnnotation + `":"edge-7"}}]`, `[{"op":"test","path":"/spec/selector/matchLabels","value":{"a":"b"}}]`},
		"spec":          {`[{"op":"replace","path":"/spec","value":{"selector":{"matchLabels":{"a":"x@edge-7"}}}}]`, `[{"op":"replace","path":"/spec","value":{"selector":{"matchLabels":{"a":"x"}}}}]`},
		"owner":         {`[{"op":"add","path":"/metadata/ownerReferences/-","value":{"name":"x@edge-7"}}]`, `[{"op":"add","path":"/metadata/ownerReferences/-","value":{"name":"x"}}]`},
		"owner's name":  {`[{"op":"test","path":"/metadata/ownerReferences/0/name","value":"x@edge-7"}]`, `[{"op":"test","path":"/metadata/ownerReferences/0/name","value":"x"}]`},
		"in a template": {`[{"op":"add","path":"/spec/template/spec/containers/0/env/-","value":{"valueFrom":{"secretKeyRef":{"name":"s@edge-7"}}}}]`, `[{"op":"add","path":"/spec/template/spec/containers/0/env/-","value":{"valueFrom":{"secretKeyRef":{"name":"s"}}}}]`},
		"a number":      {`[{"op":"add","path":"/spec/replicas","value":3}]`, `[{"op":"add","path":"/spec/replicas","value":3}]`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, r := leading("apps", "deployments", "")
			if got, err := r.AppendJSONPatch(nil, []byte(test.patch)); err != nil || string(got) != test.want {
				t.Errorf("restoring %s: got %s and error %v, want %s", test.patch, got, err, test.want)
			}
		})
	}
}

func TestRestorePlacesInProtobuf(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	serializer := protobuf.NewSerializer(scheme, scheme)
	labels := func(others ...string) map[string]string {
		all := map[string]string{"a": "b"}
		for i := 0; i < len(others); i += 2 {
			all[others[i]] = others[i+1]
		}
		return all
	}
	deployment := func(selector map[string]string) runtime.Object {
		return &appsv1.Deployment{
			TypeMeta: metav1.TypeMeta{Kind: "Deployment", APIVersion: "apps/v1"}, ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: selector},
			Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: selector, MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "k", Operator: "Exists"}}}},
		}
	}
	service := func(selector map[string]string) runtime.Object {
		return &corev1.Service{TypeMeta: metav1.TypeMeta{Kind: "Service", APIVersion: "v1"}, Spec: corev1.ServiceSpec{Selector: selector, ClusterIP: "x"}}
	}
	pod := func(at string) runtime.Object {
		return &corev1.Pod{
			TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, Spec: corev1.PodSpec{NodeName: "n" + at, Hostname: "h"},
			ObjectMeta: metav1.ObjectMeta{Name: "p" + at, Namespace: "shop" + at, Labels: map[string]string{"run": "p" + at}, OwnerReferences: []metav1.OwnerReference{{Kind: "X", Name: "o" + at, UID: "u"}, {Name: "q"}}},
		}
	}
	template := func(at string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x" + at}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "x" + at, Image: "i@edge-7"}}, InitContainers: []corev1.Container{{Name: "y" + at}}},
		}
	}
	// The names that kubectl create makes.
	daemonSet := func(at string) runtime.Object {
		return &appsv1.DaemonSet{TypeMeta: metav1.TypeMeta{Kind: "DaemonSet", APIVersion: "apps/v1"}, Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x" + at}}, Template: template(at),
		}}
	}
	job := func(at string) runtime.Object {
		return &batchv1.Job{TypeMeta: metav1.TypeMeta{Kind: "Job", APIVersion: "batch/v1"}, Spec: batchv1.JobSpec{Template: template(at)}}
	}
	cronJob := func(at string) runtime.Object {
		return &batchv1.CronJob{TypeMeta: metav1.TypeMeta{Kind: "CronJob", APIVersion: "batch/v1"}, Spec: batchv1.CronJobSpec{
			JobTemplate: batchv1.JobTemplateSpec{ObjectMeta: metav1.ObjectMeta{Name: "x" + at}, Spec: batchv1.JobSpec{Template: template(at)}},
		}}
	}
	created := func(at string) runtime.Object {
		return &appsv1.Deployment{TypeMeta: metav1.TypeMeta{Kind: "Deployment", APIVersion: "apps/v1"}, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x" + at}}, Template: template(at),
		}}
	}
	for name, test := range map[string]struct {
		group, resource string
		object, want    runtime.Object
	}{
		"create deployment": {"apps", "deployments", created("@edge-7"), created("")},
		"create job":        {"batch", "jobs", job("@edge-7"), job("")},
		"create cronjob":    {"batch", "cronjobs", cronJob("@edge-7"), cronJob("")},
		"DaemonSet":         {"apps", "daemonsets", daemonSet("@edge-7"), daemonSet("")},
		"Deployment":        {"apps", "deployments", deployment(labels(testAnnotation, "edge-7", "c", "x@edge-7")), deployment(labels("c", "x"))},
		"Service":           {"", "services", service(labels(testAnnotation, "edge-7")), service(labels())},
		"Pod":               {"", "pods", pod("@edge-7"), pod("")},
		"of another":        {"", "pods", pod("@other"), pod("@other")},
	} {
		var in, wanted bytes.Buffer
		if err := serializer.Encode(test.object, &in); err != nil {
			t.Fatal(err)
		}
		if err := serializer.Encode(test.want, &wanted); err != nil {
			t.Fatal(err)
		}
		_, r := leading(test.group, test.resource, "")
		got, err := r.AppendProtobuf(nil, in.Bytes())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(decodeWith(t, serializer, wanted.Bytes()), decodeWith(t, serializer, got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestMentions wants to know all that names a cluster in what somebody writes.
func TestMentions(t *testing.T) {
	_, r := leading("apps", "deployments", "")
	var names, clusters []string
	r.Note = func(m Mention) {
		if m.Cluster != "" {
			clusters = append(clusters, m.Cluster)
		} else {
			names = append(names, m.Name)
		}
	}
	const body = `{"metadata":{"name":"n","namespace":"s","resourceVersion":"5","annotations":{"` + testAnnotation + `":"one"},"labels":{"` + testAnnotation + `":"two","l":"v"},
		"ownerReferences":[{"name":"o"}]},"spec":{"selector":{"matchLabels":{"` + testAnnotation + `":"three"}},"template":{"spec":{"containers":[{"name":"c"}]}}}}`
	if _, err := r.AppendJSON(nil, []byte(body)); err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"c", "n", "o", "s", "v"}, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"one", "two", "three"}, clusters); diff != "" {
		t.Errorf("clusters (-want +got):\n%s", diff)
	}
}
