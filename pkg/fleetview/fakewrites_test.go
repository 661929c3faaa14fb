package fleetview

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/request"
)

// serveObject answers requests that are about one object, and deletecollection.
func (c *cluster) serveObject(w http.ResponseWriter, r *http.Request, info *apirequest.RequestInfo, body []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	path := strings.TrimSuffix(r.URL.Path, "/"+info.Subresource)
	former, ok := c.objects[path]
	contentType := r.Header.Get("Content-Type")
	apply := r.Method == http.MethodPatch && contentType == string(types.ApplyYAMLPatchType)
	switch {
	case info.Name != "" && !ok && !apply:
		write(w, apierrors.NewNotFound(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Name).ErrStatus)
	case info.Verb == "get":
		c.answer(w, r, info, metav1.ListMeta{ResourceVersion: strconv.Itoa(c.version)}, []object{former}, false)
	case info.Verb == "delete" || info.Verb == "deletecollection":
		c.serveDelete(w, r, info, path, body)
	case info.Subresource != "" && info.Subresource != "status":
		c.serveSubresource(w, contentType, body)
	default:
		o, err := decodeWrite(r.Method, contentType, former, body)
		if err != nil {
			answerStatus(w, http.StatusBadRequest, err.Error())
			return
		}
		c.store(w, r, info, path, former, o)
	}
}

func decodeWrite(method, contentType string, former object, body []byte) (o object, err error) {
	if method != http.MethodPatch {
		return decodeBody(contentType, body)
	}
	old, err := json.Marshal(former)
	if err != nil {
		return nil, err
	}
	if former == nil {
		old = []byte("{}")
	}
	result, err := patched(contentType, old, body)
	if err != nil {
		return nil, err
	}
	return o, json.Unmarshal(result, &o)
}

func (c *cluster) store(w http.ResponseWriter, r *http.Request, info *apirequest.RequestInfo, path string, former, o object) {
	meta, _ := o["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	version, _ := meta["resourceVersion"].(string)
	annotations, _ := meta["annotations"].(map[string]any)
	switch {
	case name == "" || info.Name != "" && name != info.Name:
		answerStatus(w, http.StatusBadRequest, fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", name, info.Name))
		return
	case info.Name == "" && version != "":
		answerStatus(w, http.StatusBadRequest, "resourceVersion should not be set on objects to be created")
		return
	case former != nil && version != "" && version != former.version():
		answerStatus(w, http.StatusConflict, "the object has been modified")
		return
	case strings.Contains(name, "@") && info.Resource != "clusterroles":
		answerStatus(w, http.StatusUnprocessableEntity, fmt.Sprintf("invalid name %q", name))
		return
	case annotations[fleet.AnnotationCluster] != nil:
		answerStatus(w, http.StatusUnprocessableEntity, "the view's annotation came through")
		return
	}
	if info.Name == "" {
		path += "/" + name
	}
	if info.Namespace != "" {
		meta["namespace"] = info.Namespace
	}
	if former != nil && r.URL.Query().Has("dryRun") { // of what changes nothing
		meta["resourceVersion"], meta["uid"], o["kind"], o["apiVersion"] = former.version(), former.meta()["uid"], former["kind"], former["apiVersion"]
		c.answer(w, r, info, metav1.ListMeta{}, []object{o}, false)
		return
	}
	c.put(path, info, o)
	c.answer(w, r, info, metav1.ListMeta{}, []object{o}, false)
}

func (c *cluster) serveDelete(w http.ResponseWriter, r *http.Request, info *apirequest.RequestInfo, path string, body []byte) {
	var options metav1.DeleteOptions
	if len(body) > 0 {
		if r.Header.Get("Content-Type") == request.ProtobufType {
			if _, _, err := inProtobuf.Decode(body, nil, &options); err != nil {
				panic(err)
			}
		} else if err := json.Unmarshal(body, &options); err != nil {
			panic(err)
		}
	}
	if info.Name == "" {
		items, err := c.selected(r, info)
		if err != nil {
			panic(err)
		}
		for _, o := range items {
			delete(c.objects, path+"/"+o.name())
		}
		c.answer(w, r, info, metav1.ListMeta{ResourceVersion: strconv.Itoa(c.version)}, items, true)
		return
	}
	former := c.objects[path]
	if p := options.Preconditions; p != nil && (p.ResourceVersion != nil && *p.ResourceVersion != former.version() || p.UID != nil && string(*p.UID) != former.meta()["uid"]) {
		answerStatus(w, http.StatusConflict, "Precondition failed")
		return
	}
	delete(c.objects, path)
	c.version++
	former.meta()["resourceVersion"] = strconv.Itoa(c.version)
	c.note(change{c.version, "DELETED", path, former})
	answerStatus(w, http.StatusOK, "deleted "+info.Name)
}

// serveSubresource answers with what it got: scale, eviction, token.
func (c *cluster) serveSubresource(w http.ResponseWriter, contentType string, body []byte) {
	if o, err := decodeBody(contentType, body); err != nil || o["kind"] == "Eviction" {
		answerStatus(w, http.StatusCreated, "evicted")
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(body)
}
