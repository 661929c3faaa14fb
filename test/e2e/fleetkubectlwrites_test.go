package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// namingWrites are uses that change the object, or make another one. The last of each kind deletes it.
func namingWrites() []namingUse {
	const (
		all       = "pod deploy rs sts ds rc job cronjob svc pvc node"
		templates = "deploy sts ds rs rc cronjob"
		scaled    = "deploy rs sts rc"
		rolled    = "deploy sts ds"
	)
	uses := []namingUse{
		{command: "label", kinds: all, once: true, run: func(u *using) {
			u.changes(u.at("metadata", "labels", "named"), "", "label", u.kind, u.object(), "named="+u.id, "--overwrite")
		}},
		{command: "annotate", kinds: all, once: true, run: func(u *using) {
			u.changes(u.at("metadata", "annotations", "named"), "", "annotate", u.kind, u.object(), "named="+u.id, "--overwrite")
		}},
		{command: "patch", kinds: all, once: true, run: func(u *using) {
			u.changes(u.at("metadata", "annotations", "patched"), "", "patch", u.ref(), "-p", `{"metadata":{"annotations":{"patched":"`+u.id+`"}}}`)
		}},
		{command: "edit", kinds: all, once: true, run: func(u *using) {
			u.editor("none")
			u.changes(u.at("metadata", "annotations", "edit"), "", "edit", u.ref())
		}},
		{command: "apply", kinds: all, run: func(u *using) { u.sends("apply", "-f", "-") }},
		{command: "apply", variant: "--server-side", kinds: all, run: func(u *using) { u.sends("apply", "--server-side", "--force-conflicts", "-f", "-") }},
		{command: "replace", kinds: all, run: func(u *using) { u.sends("replace", "-f", "-") }},
		{command: "apply view-last-applied", kinds: "deploy svc", once: true, run: func(u *using) { u.like("apply", "view-last-applied", u.ref(), "-o", "json") }},
		{command: "apply set-last-applied", kinds: "deploy svc", once: true, run: func(u *using) {
			u.sendsFor(u.at("metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"), "apply", "set-last-applied", "-f", "-")
		}},
		{command: "apply edit-last-applied", kinds: "deploy svc", once: true, run: func(u *using) {
			u.editor("sent")
			u.changes(u.at("metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"), "", "apply", "edit-last-applied", u.ref())
		}},
		{command: "set env", kinds: templates, once: true, run: func(u *using) { u.changes(u.template(), "", "set", "env", u.ref(), "NAMED="+u.id) }},
		{command: "set image", kinds: templates + " pod", once: true, run: func(u *using) { u.changes(u.template(), "", "set", "image", u.ref(), "c=lab.invalid/web:"+u.id) }},
		{command: "set resources", kinds: templates, once: true, run: func(u *using) {
			u.changes(u.template(), "", "set", "resources", u.ref(), "--limits=memory="+strings.TrimPrefix(u.id, "u")+"Mi")
		}},
		{command: "set serviceaccount", kinds: templates, once: true, run: func(u *using) { u.changes(u.template(), "", "set", "serviceaccount", u.ref(), u.id) }},
		{command: "set selector", kinds: "svc", once: true, run: func(u *using) {
			u.changes(u.at("spec", "selector"), "", "set", "selector", u.kind, u.object(), "named="+u.id)
		}},
		{command: "set subject", kinds: "rolebinding", once: true, run: func(u *using) {
			u.changes(u.at("subjects"), "", "set", "subject", u.kind, u.object(), "--user="+u.id)
		}},
		{command: "auth reconcile", kinds: "rolebinding", once: true, run: func(u *using) {
			u.sendsFor(u.at("subjects"), "auth", "reconcile", "-f", "-")
		}},
		{command: "scale", kinds: scaled, run: func(u *using) {
			u.changes(u.at("spec", "replicas"), "", "scale", u.ref(), "--replicas="+u.otherScale())
		}},
		{command: "scale", variant: "--current-replicas", kinds: scaled, run: func(u *using) {
			now := u.at("spec", "replicas")(u.cluster)
			u.changes(u.at("spec", "replicas"), "", "scale", u.ref(), "--current-replicas="+now, "--replicas="+u.otherScale())
		}},
		{command: "autoscale", kinds: scaled, once: true, run: func(u *using) {
			u.changes(u.made(grouped2("autoscaling", "horizontalpodautoscalers"), u.ns, sameName), "", "autoscale", u.ref(), "--max=3", "--cpu=80%")
			u.remove(grouped2("autoscaling", "horizontalpodautoscalers"), sameName)
		}},
		{command: "expose", kinds: "deploy rs rc svc pod", once: true, run: func(u *using) {
			u.changes(u.made(core("services"), u.ns, u.id), "", "expose", u.ref(), "--port=80", "--name="+u.called(u.id))
		}},
		{command: "expose", variant: "--name without a cluster", kinds: "deploy rs rc svc", once: true, run: func(u *using) {
			u.changes(u.made(core("services"), u.ns, u.id), "", "expose", u.ref(), "--port=80", "--name="+u.id)
		}},
		{command: "rollout pause", kinds: "deploy", once: true, run: func(u *using) {
			u.patch(`{"spec":{"paused":false}}`)
			u.changes(u.at("spec", "paused"), "", "rollout", "pause", u.ref())
		}},
		{command: "rollout resume", kinds: "deploy", once: true, run: func(u *using) {
			u.pause()
			u.changes(u.at("spec", "paused"), "", "rollout", "resume", u.ref())
		}},
		{command: "rollout restart", kinds: rolled, once: true, run: func(u *using) {
			u.changes(u.template(), "", "rollout", "restart", u.ref())
			for strings.Contains(u.wrong, "within the past second") { // another way has restarted it
				u.wrong = ""
				u.changes(u.template(), "", "rollout", "restart", u.ref())
			}
		}},
		{command: "rollout undo", kinds: "deploy", once: true, run: func(u *using) { u.changes(u.template(), "", "rollout", "undo", u.ref()) }},
		{command: "cordon", kinds: "node", run: func(u *using) {
			u.patch(`{"spec":{"unschedulable":false}}`)
			u.changes(u.at("spec", "unschedulable"), "", "cordon", u.object())
		}},
		{command: "uncordon", kinds: "node", run: func(u *using) {
			u.patch(`{"spec":{"unschedulable":true}}`)
			u.changes(u.at("spec", "unschedulable"), "", "uncordon", u.object())
		}},
		{command: "taint", kinds: "node", once: true, run: func(u *using) {
			u.changes(u.at("spec", "taints"), "", "taint", "node", u.object(), "named="+u.id+":NoSchedule", "--overwrite")
		}},
		{command: "drain", kinds: "node", run: func(u *using) {
			u.refill()
			u.changes(u.onNode(), "", "drain", u.object(), "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--grace-period=0", "--timeout=60s")
			u.patch(`{"spec":{"unschedulable":null}}`)
		}},
		{command: "create job", variant: "--from", kinds: "cronjob", run: func(u *using) {
			u.changes(u.made(grouped("batch", "jobs"), u.ns, u.id), "", "create", "job", u.called(u.id), "--from="+u.ref())
		}},
		{command: "create job", variant: "--from, without a cluster", kinds: "cronjob", run: func(u *using) {
			u.changes(u.made(grouped("batch", "jobs"), u.ns, u.id), "", "create", "job", u.id, "--from="+u.ref())
		}},
		{command: "create token", kinds: "sa", run: func(u *using) { u.token() }},
		{command: "debug", kinds: "pod", run: func(u *using) {
			u.changes(u.at("spec", "ephemeralContainers"), "", "debug", u.object(), "--image=lab.invalid/web:1", "--attach=false", "-c", u.id, "--profile=general")
		}},
		{command: "debug", variant: "--copy-to", kinds: "pod", once: true, run: func(u *using) {
			u.changes(u.made(core("pods"), u.ns, u.id), "", "debug", u.object(), "--image=lab.invalid/web:1", "--attach=false", "--copy-to="+u.called(u.id), "--profile=general")
		}},
		{command: "debug", variant: "node", kinds: "node", run: func(u *using) {
			u.changes(u.debuggers(), "", "debug", u.ref(), "--image=lab.invalid/web:1", "--attach=false", "--profile=general")
		}},
		{command: "certificate approve", kinds: "csr", run: func(u *using) {
			u.changes(u.at("status", "conditions"), "", "certificate", "approve", u.object())
			u.again()
		}},
		{command: "certificate deny", kinds: "csr", run: func(u *using) {
			u.changes(u.at("status", "conditions"), "", "certificate", "deny", u.object())
			u.again()
		}},
	}
	return append(append(uses, namingCreates()...), namingUse{command: "delete", kinds: all + " sa rolebinding csr", run: func(u *using) {
		u.changes(u.alive(), "", "delete", u.ref(), "--wait=false")
		u.again()
	}})
}

func grouped2(group, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: "v2", Resource: resource}
}

// namingCreates are uses of create and run, which make an object of the name.
func namingCreates() []namingUse {
	const rbac = "rbac.authorization.k8s.io"
	var uses []namingUse
	for _, create := range []struct {
		command string
		gvr     schema.GroupVersionResource
		args    string
		cluster bool // without a namespace
	}{
		{"create configmap", core("configmaps"), "--from-literal=a=b", false},
		{"create secret generic", core("secrets"), "--from-literal=a=b", false},
		{"create secret docker-registry", core("secrets"), "--docker-username=a --docker-password=b --docker-server=c.example", false},
		{"create serviceaccount", core("serviceaccounts"), "", false},
		{"create service clusterip", core("services"), "--tcp=80", false},
		{"create service nodeport", core("services"), "--tcp=80", false},
		{"create service loadbalancer", core("services"), "--tcp=80", false},
		{"create service externalname", core("services"), "--external-name=a.example", false},
		{"create deployment", apps("deployments"), "--image=lab.invalid/web:1 --replicas=0", false},
		{"create job", grouped("batch", "jobs"), "--image=lab.invalid/web:1", false},
		{"create cronjob", grouped("batch", "cronjobs"), "--image=lab.invalid/web:1 --schedule=@yearly", false},
		{"create ingress", grouped("networking.k8s.io", "ingresses"), "--rule=a.example/=same:80", false},
		{"create poddisruptionbudget", grouped("policy", "poddisruptionbudgets"), "--selector=a=b --min-available=1", false},
		{"create quota", core("resourcequotas"), "--hard=pods=1000", false},
		{"create role", grouped(rbac, "roles"), "--verb=get --resource=pods", false},
		{"create rolebinding", grouped(rbac, "rolebindings"), "--clusterrole=view --user=somebody", false},
		{"create clusterrole", grouped(rbac, "clusterroles"), "--verb=get --resource=pods", true},
		{"create clusterrolebinding", grouped(rbac, "clusterrolebindings"), "--clusterrole=view --user=somebody", true},
		{"create namespace", core("namespaces"), "", true},
		{"create priorityclass", grouped("scheduling.k8s.io", "priorityclasses"), "--value=1", true},
		{"run", core("pods"), "--image=lab.invalid/web:1", false},
	} {
		uses = append(uses, namingUse{command: create.command, kinds: "new", once: true, run: func(u *using) {
			namespace, id, name := u.ns, u.id, u.called(u.id)
			if create.cluster {
				namespace, id = "", u.ns+u.id
				name = id + "@" + u.cluster
				defer u.remove(create.gvr, id)
			}
			args := append(strings.Fields(create.command), name)
			u.changes(u.made(create.gvr, namespace, id), "", append(args, strings.Fields(create.args)...)...)
		}})
	}
	return uses
}

// at is what the object has at a path, on each cluster.
func (u *using) at(path ...string) func(cluster string) string {
	return func(cluster string) string {
		object := u.get(u.t, cluster, u.kind)
		if object == nil {
			return "gone"
		}
		value, _, err := unstructured.NestedFieldNoCopy(object.Object, path...)
		if err != nil {
			u.t.Fatal(err)
		}
		return inJSON(value)
	}
}

func inJSON(value any) string {
	if text, ok := value.(string); ok {
		return text
	}
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // it was JSON
	}
	return string(text)
}

// template is that of the object's pods.
func (u *using) template() func(cluster string) string {
	switch u.kind {
	case "pod":
		return u.at("spec")
	case "cronjob":
		return u.at("spec", "jobTemplate")
	}
	return u.at("spec", "template")
}

// made is what there is of an object that a command makes.
func (u *using) made(gvr schema.GroupVersionResource, namespace, name string) func(cluster string) string {
	return func(cluster string) string {
		object, err := u.clients[cluster].Resource(gvr).Namespace(namespace).Get(u.t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		if err != nil {
			u.t.Fatal(err)
		}
		object.SetManagedFields(nil)
		unstructured.RemoveNestedField(object.Object, "status")
		object.SetResourceVersion("")
		if object.GetKind() == "CronJob" {
			unstructured.RemoveNestedField(object.Object, "spec", "schedule") // it has an @ of its own
		}
		return inJSON(object.Object)
	}
}

// remove deletes what a command has made.
func (u *using) remove(gvr schema.GroupVersionResource, name string) {
	namespace := u.ns
	if strings.HasPrefix(name, u.ns) {
		namespace = ""
	}
	for _, cluster := range u.clusters {
		_ = u.clients[cluster].Resource(gvr).Namespace(namespace).Delete(context.Background(), name, metav1.DeleteOptions{})
	}
}

// sends sends the object as a get printed it, with one annotation changed.
func (u *using) sends(args ...string) {
	u.t.Helper()
	u.sendsFor(u.at("metadata", "annotations", "sent"), args...)
}

func (u *using) sendsFor(value func(string) string, args ...string) {
	u.t.Helper()
	text, ok := u.do("", "get", u.ref(), "-o", "yaml")
	if !ok {
		return
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		u.fail("%v", err)
		return
	}
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations["sent"] = "sent-" + u.id
	object.SetAnnotations(annotations)
	object.SetResourceVersion("") // controllers write it too
	if args[0] == "auth" {
		object.Object["subjects"] = []any{map[string]any{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": u.id}}
	}
	u.changes(value, inJSON(object.Object), args...)
}

// editor makes kubectl's editor one that puts the use's id behind a word.
func (u *using) editor(word string) {
	u.kubectl.env = []string{"KUBE_EDITOR=sed -i s/" + word + "-[a-z0-9]*/" + word + "-" + u.id + "/"}
}

// otherScale is a number of replicas that the object does not have.
func (u *using) otherScale() string {
	return map[string]string{"1": "2", "2": "3"}[u.at("spec", "replicas")(u.cluster)] + map[bool]string{true: "1"}[u.at("spec", "replicas")(u.cluster) == "3"]
}

// patch changes the object on the cluster, not through a view.
func (u *using) patch(patch string) {
	u.t.Helper()
	if _, err := u.objects(u.cluster, u.kind).Patch(u.t.Context(), u.name(u.kind), types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		u.t.Fatal(err)
	}
}

// pause pauses the object before it is resumed, as pause does.
func (u *using) pause() { u.t.Helper(); u.patch(`{"spec":{"paused":true}}`) }

// alive is the UID of the object as long as it is not deleted.
func (u *using) alive() func(cluster string) string {
	return func(cluster string) string {
		if object := u.get(u.t, cluster, u.kind); object != nil && object.GetDeletionTimestamp() == nil {
			return string(object.GetUID())
		}
		return "gone"
	}
}

// again makes the object anew on the cluster.
func (u *using) again() {
	u.t.Helper()
	objects, name := u.objects(u.cluster, u.kind), u.name(u.kind)
	_ = objects.Delete(u.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	// A claim that a pod has is held until the pod is gone.
	_, _ = objects.Patch(u.t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	u.make(u.t, u.cluster, u.kind)
}

// onNode are the pods of the node.
func (u *using) onNode() func(cluster string) string {
	return func(cluster string) string {
		pods, err := u.on[cluster].CoreV1().Pods(u.ns).List(u.t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + u.name("node")})
		if err != nil {
			u.t.Fatal(err)
		}
		var names []string
		for _, pod := range pods.Items {
			if pod.DeletionTimestamp == nil {
				names = append(names, pod.Name)
			}
		}
		return strings.Join(names, " ")
	}
}

// refill gives the node a pod if it has none.
func (u *using) refill() {
	u.t.Helper()
	if u.onNode()(u.cluster) == "" {
		u.makePod(u.t, u.cluster, "on-node", `"nodeName":"`+u.name("node")+`",`)
	}
}

// debuggers are the pods that debug a node.
func (u *using) debuggers() func(cluster string) string {
	return func(cluster string) string {
		pods, err := u.on[cluster].CoreV1().Pods(u.ns).List(u.t.Context(), metav1.ListOptions{})
		if err != nil {
			u.t.Fatal(err)
		}
		var all []string
		for _, pod := range pods.Items {
			if strings.HasPrefix(pod.Name, "node-debugger-") {
				all = append(all, pod.Name+" on "+pod.Spec.NodeName)
			}
		}
		return strings.Join(all, ", ")
	}
}

// token wants a token of the service account of the cluster.
func (u *using) token() {
	u.t.Helper()
	out, ok := u.do("", "create", "token", u.object())
	if !ok {
		return
	}
	var claims struct {
		Kubernetes struct {
			ServiceAccount struct{ UID types.UID } `json:"serviceaccount"`
		} `json:"kubernetes.io"`
	}
	parts := strings.Split(strings.TrimSpace(out), ".")
	payload, err := base64.RawURLEncoding.DecodeString(parts[min(1, len(parts)-1)])
	if err == nil {
		err = json.Unmarshal(payload, &claims)
	}
	if want := u.get(u.t, u.cluster, u.kind).GetUID(); err != nil || claims.Kubernetes.ServiceAccount.UID != want {
		u.fail("%v, of account %s, want %s", err, claims.Kubernetes.ServiceAccount.UID, want)
	}
}
