package fleetview

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	reading "open-cluster-management.io/cluster-proxy/pkg/apirequest"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/request"
)

// object is a Kubernetes object.
type object map[string]any

func (o object) meta() map[string]any { return o["metadata"].(map[string]any) }
func (o object) name() string         { return o.meta()["name"].(string) }
func (o object) version() string      { return o.meta()["resourceVersion"].(string) }

// kinds are what the clusters serve. Widgets are custom resources.
var kinds = map[string]string{
	"pods": "Pod", "configmaps": "ConfigMap", "deployments": "Deployment", "clusterroles": "ClusterRole", "events": "Event", "widgets": "Widget",
	"network-attachment-definitions": "NetworkAttachmentDefinition", // is not called like its kind
	"services":                       "Service", "serviceaccounts": "ServiceAccount", "namespaces": "Namespace",
	"replicasets": "ReplicaSet", "statefulsets": "StatefulSet", "daemonsets": "DaemonSet", "jobs": "Job", "cronjobs": "CronJob", "replicationcontrollers": "ReplicationController",
	"nodes": "Node", "horizontalpodautoscalers": "HorizontalPodAutoscaler", "persistentvolumeclaims": "PersistentVolumeClaim",
}

type change struct {
	version int
	kind    string
	path    string
	object  object
}

// set makes or changes the object at a path.
func (c *cluster) set(path string, fields object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, _ := http.NewRequest(http.MethodGet, path, nil)
	info, err := reading.Resolver.NewRequestInfo(r)
	if err != nil || info.Name == "" {
		panic("no path of an object: " + path)
	}
	o := object{}
	maps.Copy(o, fields)
	meta, _ := o["metadata"].(map[string]any)
	if meta = maps.Clone(meta); meta == nil {
		meta = map[string]any{}
	}
	meta["name"] = info.Name
	if info.Namespace != "" {
		meta["namespace"] = info.Namespace
	}
	o["metadata"] = meta
	c.put(path, info, o)
}

// put stores an object. The caller holds the lock.
func (c *cluster) put(path string, info *apirequest.RequestInfo, o object) {
	c.version++
	o["kind"], o["apiVersion"] = kinds[info.Resource], strings.TrimPrefix(info.APIGroup+"/"+info.APIVersion, "/")
	meta := o.meta()
	kind := "ADDED"
	if former, ok := c.objects[path]; ok {
		kind, meta["uid"] = "MODIFIED", former.meta()["uid"]
	} else {
		meta["uid"] = fmt.Sprintf("uid-%s-%d", c.name, c.version)
	}
	meta["resourceVersion"] = strconv.Itoa(c.version)
	c.objects[path] = o
	c.note(change{c.version, kind, path, o})
}

func (c *cluster) note(change change) {
	c.history = append(c.history, change)
	close(c.changed)
	c.changed = make(chan struct{})
}

func answerStatus(w http.ResponseWriter, code int, message string) {
	status := metav1.Status{Code: int32(code), Reason: fault.Refuse(code, "").ErrStatus.Reason, Message: message, Status: metav1.StatusFailure}
	if code < 300 {
		status.Status = metav1.StatusSuccess
	}
	write(w, status)
}

func write(w http.ResponseWriter, status metav1.Status) {
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	w.Header().Set("Content-Type", fleet.JSONType)
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}

// serve answers as a kube-apiserver does.
func (c *cluster) serve(w http.ResponseWriter, r *http.Request, body []byte) {
	info, err := reading.Resolver.NewRequestInfo(r)
	switch {
	case err != nil || !info.IsResourceRequest || kinds[info.Resource] == "":
		answerStatus(w, http.StatusNotFound, "the server could not find the requested resource")
	case info.Verb == "list":
		c.serveList(w, r, info)
	case info.Verb == "watch":
		c.serveWatch(w, r, info)
	default:
		c.serveObject(w, r, info, body)
	}
}

// selected returns the objects that a request for a collection is about, in order.
func (c *cluster) selected(r *http.Request, info *apirequest.RequestInfo) ([]object, error) {
	query := r.URL.Query()
	byLabel, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return nil, err
	}
	byField, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return nil, err
	}
	var items []object
	for _, path := range slices.Sorted(maps.Keys(c.objects)) {
		r, _ := http.NewRequest(http.MethodGet, path, nil)
		of, _ := reading.Resolver.NewRequestInfo(r)
		o := c.objects[path]
		if of.APIGroup != info.APIGroup || of.Resource != info.Resource || info.Namespace != "" && of.Namespace != info.Namespace {
			continue
		}
		set, values := labels.Set{}, fields.Set{"metadata.name": o.name()}
		named, _ := o.meta()["labels"].(map[string]any)
		for key, value := range named {
			set[key] = value.(string)
		}
		if involved, ok := o["involvedObject"].(map[string]any); ok {
			for field, value := range involved {
				values["involvedObject."+field] = fmt.Sprint(value)
			}
		}
		if info.Resource == "pods" {
			spec, _ := o["spec"].(map[string]any)
			node, _ := spec["nodeName"].(string)
			values["spec.nodeName"], values["status.phase"] = node, "Running"
		}
		for _, requirement := range byField.Requirements() {
			if _, ok := values[requirement.Field]; !ok {
				return nil, fmt.Errorf("field label not supported: %s", requirement.Field)
			}
		}
		if byLabel.Matches(set) && byField.Matches(values) {
			items = append(items, o)
		}
	}
	return items, nil
}

func (c *cluster) serveList(w http.ResponseWriter, r *http.Request, info *apirequest.RequestInfo) {
	c.mu.Lock()
	items, err := c.selected(r, info)
	version, expired := c.version, c.expired
	c.mu.Unlock()
	if err != nil {
		answerStatus(w, http.StatusBadRequest, err.Error())
		return
	}
	query := r.URL.Query()
	meta := metav1.ListMeta{}
	if text := query.Get("continue"); text != "" {
		var from, of int
		if _, err := fmt.Sscanf(text, "from-%d-of-%d", &from, &of); err != nil || query.Has("resourceVersion") {
			answerStatus(w, http.StatusBadRequest, "continue key is not valid")
			return
		}
		if expired && of < version {
			w.Header().Set("Content-Type", fleet.JSONType)
			w.WriteHeader(http.StatusGone)
			_ = json.NewEncoder(w).Encode(metav1.Status{
				TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired,
				Message: "The provided continue parameter is too old", ListMeta: metav1.ListMeta{Continue: fmt.Sprintf("from-%d-of-%d", from, version)},
			})
			return
		}
		items, version = items[from:], of
	}
	if limit, _ := strconv.Atoi(query.Get("limit")); limit > 0 && limit < len(items) && query.Get("resourceVersion") != "0" {
		all, _ := c.selected(r, info)
		meta.Continue = fmt.Sprintf("from-%d-of-%d", len(all)-len(items)+limit, version)
		rest := int64(len(items) - limit)
		items, meta.RemainingItemCount = items[:limit], &rest
	}
	meta.ResourceVersion = strconv.Itoa(version)
	c.answer(w, r, info, meta, items, true)
}

// answer writes a list or an object as the client accepts it.
func (c *cluster) answer(w http.ResponseWriter, r *http.Request, info *apirequest.RequestInfo, meta metav1.ListMeta, items []object, isList bool) {
	accept := r.Header.Get("Accept")
	apiVersion, kind := strings.TrimPrefix(info.APIGroup+"/"+info.APIVersion, "/"), kinds[info.Resource]
	var document any
	switch {
	case strings.Contains(accept, "as=Table"):
		document = c.table(meta, items)
	case strings.Contains(accept, "as=PartialObjectMetadata"):
		apiVersion, kind = "meta.k8s.io/v1", "PartialObjectMetadata"
		items = slices.Clone(items)
		for i, o := range items {
			items[i] = object{"kind": kind, "apiVersion": apiVersion, "metadata": o["metadata"]}
		}
		fallthrough
	default:
		document = map[string]any{"kind": kind + "List", "apiVersion": apiVersion, "metadata": meta, "items": append([]object{}, items...)}
		if !isList {
			document = items[0]
		}
	}
	encoded, err := json.Marshal(document)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", fleet.JSONType)
	if r.Method == http.MethodPost {
		w.WriteHeader(http.StatusCreated)
	}
	_, _ = w.Write(encoded)
}

func (c *cluster) table(meta metav1.ListMeta, items []object) any {
	definitions := []metav1.TableColumnDefinition{{Name: "Name", Type: "string", Format: "name"}}
	for _, name := range c.columns {
		definitions = append(definitions, metav1.TableColumnDefinition{Name: name, Type: "string"})
	}
	rows := []map[string]any{}
	for _, o := range items {
		cells := []any{o.name()}
		for _, name := range c.columns {
			cells = append(cells, strings.ToLower(name))
		}
		partial := object{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": o["metadata"]}
		rows = append(rows, map[string]any{"cells": cells, "object": partial})
	}
	return map[string]any{"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "columnDefinitions": definitions, "rows": rows}
}

var inProtobuf = protobuf.NewSerializer(partialScheme(), partialScheme())

func partialScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(s); err != nil {
		panic(err)
	}
	if err := scheme.AddToScheme(s); err != nil {
		panic(err)
	}
	return s
}

// decodeBody returns the object in a request.
func decodeBody(contentType string, body []byte) (object, error) {
	var err error
	if contentType == request.ProtobufType {
		typed, _, err := inProtobuf.Decode(body, nil, nil)
		if err != nil {
			return nil, err
		}
		if body, err = json.Marshal(typed); err != nil {
			return nil, err
		}
	} else if body, err = yaml.YAMLToJSON(body); err != nil {
		return nil, err
	}
	var o object
	return o, json.Unmarshal(body, &o)
}

func patched(contentType string, former, patch []byte) (_ []byte, err error) {
	switch types.PatchType(contentType) {
	case types.JSONPatchType:
		operations, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			return nil, err
		}
		return operations.Apply(former)
	case types.StrategicMergePatchType:
		return strategicpatch.StrategicMergePatch(former, patch, corev1.Pod{})
	case types.ApplyYAMLPatchType:
		if patch, err = yaml.YAMLToJSON(patch); err != nil {
			return nil, err
		}
	}
	return jsonpatch.MergePatch(former, patch)
}
