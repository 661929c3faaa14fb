package request

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
)

// places are where the request's objects have selectors and names.
func (q *Request) places() merge.Places {
	if q.Info == nil {
		return nil
	}
	return merge.PlacesOf(q.Info.APIGroup, q.Info.Resource, q.Info.Subresource)
}

// restorer makes a Restorer for the request's objects. It is not complete.
func (q *Request) restorer() *merge.Restorer {
	r := q.Info.Resource
	return &merge.Restorer{
		Annotations: append([]string{fleet.AnnotationCluster}, q.View.Annotations...), Label: fleet.AnnotationCluster,
		Places: q.places(), Derived: r == "pods" && q.Info.APIGroup == "" || r == "events",
	}
}

// mentions are the clusters that a request's body names: its object's name, its annotation,
// its labels and its selector, or the name of another object that it refers to. The
// member says what is wrong with the body.
func (q *Request) mentions(media string, body []byte) (clusters []string, qualified bool) {
	if !bytes.ContainsAny(body, `@\`) && !bytes.Contains(body, []byte(fleet.AnnotationCluster)) {
		return nil, false // most bodies do not, and nothing in this one is written in another way
	}
	q.each(media, body, func(m merge.Mention) {
		cluster := m.Cluster
		if cluster == "" {
			var ok bool
			if _, cluster, ok = q.cut(m.Name); !ok {
				return
			}
		}
		qualified = qualified || !m.Annotation
		if !slices.Contains(clusters, cluster) {
			clusters = append(clusters, cluster)
		}
	})
	return clusters, qualified
}

// each calls note for what a body says of clusters.
func (q *Request) each(media string, body []byte, note func(merge.Mention)) {
	restorer := q.restorer()
	restorer.Version = func(text string) (string, error) { return text, nil }
	restorer.Note = note
	_, _ = q.appendBody(restorer, media, body) // the member says what is wrong with it
}

// ClusterOf is the cluster that the object in a request names, and notes whether it does
// otherwise than by its annotation; empty if it names none.
func (q *Request) ClusterOf(media string, body []byte) (string, error) {
	clusters, qualified := q.mentions(media, body)
	switch {
	case len(clusters) > 1:
		return "", manyClusters(clusters[0], clusters[1])
	case len(clusters) == 0:
		return "", nil
	}
	q.qualified = q.qualified || qualified && !q.inNamespace
	return clusters[0], nil
}

// UnknownCluster is what follows the last @ in the name of the object in a request, if no cluster that the
// user may reach is called so; empty if there is none.
func (q *Request) UnknownCluster(media string, body []byte) (unknown string) {
	q.each(media, body, func(m merge.Mention) {
		if _, cluster, ok := CutLast(m.Name); ok && !slices.Contains(q.Everyone, cluster) {
			unknown = cluster
		}
	})
	return unknown
}

// agrees refuses an object that names another cluster than the one that it is written to.
func (q *Request) agrees(to fleet.Member, media string, body []byte) error {
	clusters, _ := q.mentions(media, body)
	for _, cluster := range clusters {
		if cluster != to.Name() && slices.Contains(q.Everyone, cluster) {
			return manyClusters(to.Name(), cluster)
		}
	}
	return nil
}

func manyClusters(one, other string) error {
	return fault.Refuse(http.StatusBadRequest, fmt.Sprintf("the request names clusters %q and %q: let the object's name, its annotation and label %s, its selector, and the names of other objects in it name one, or none",
		one, other, fleet.AnnotationCluster))
}

// bodyTypes are what bodies of requests may be.
var bodyTypes = []string{
	fleet.JSONType, YAMLType, ProtobufType, string(types.JSONPatchType), string(types.MergePatchType), string(types.StrategicMergePatchType), string(types.ApplyYAMLPatchType),
}

func unsupported(media string) error {
	return fault.Refuse(http.StatusUnsupportedMediaType, fmt.Sprintf("a view does not read %q: send one of %s", media, strings.Join(bodyTypes, ", ")))
}

// CheckBody refuses what no cluster would read, with a kube-apiserver's codes: where no cluster is
// named, that is not what is wrong with it.
func CheckBody(media string, body []byte) error {
	switch {
	case len(bytes.TrimSpace(body)) == 0:
		return nil
	case !slices.Contains(bodyTypes, media):
		return unsupported(media)
	case strings.HasSuffix(media, "json") && !json.Valid(body):
		return fault.Refuse(http.StatusBadRequest, fmt.Sprintf("the body is no JSON, which %s says it is", media))
	}
	return nil
}

// Restore takes off what the view has put on, for the member's eyes.
func (q *Request) Restore(to fleet.Member, media string, body []byte) ([]byte, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return body, nil
	}
	if err := q.agrees(to, media, body); err != nil {
		return nil, err
	}
	number := version.Number(to.UID())
	restorer := q.restorer()
	restorer.Cluster = to.Name()
	q.sent = map[string]string{}
	restorer.Version = func(text string) (string, error) {
		v, err := version.Parse(text)
		switch {
		case err != nil && q.View.Single:
			return text, nil // it has the member's own
		case err != nil:
			return "", fault.Refuse(http.StatusBadRequest, err.Error())
		case v.Cluster != number || v.Member == 0:
			return "", fault.Refuse(http.StatusConflict, fmt.Sprintf("resourceVersion %s is not one of an object of cluster %q: read the object again", text, to.Name()))
		}
		member := strconv.FormatUint(v.Member, 10)
		q.sent[member] = text
		return member, nil
	}
	restored, err := q.appendBody(restorer, media, body)
	var refused *apierrors.StatusError
	switch {
	case err == nil:
		return restored, nil
	case errors.As(err, &refused):
		return nil, refused
	}
	return nil, fault.Refuse(http.StatusBadRequest, fmt.Sprintf("reading the request's body: %v", err))
}

// appendBody restores a body of any type.
func (q *Request) appendBody(restorer *merge.Restorer, media string, body []byte) ([]byte, error) {
	switch {
	case !slices.Contains(bodyTypes, media):
		return nil, unsupported(media)
	case media == ProtobufType:
		return restorer.AppendProtobuf(nil, body)
	case media == string(types.JSONPatchType):
		return restorer.AppendJSONPatch(nil, body)
	case media == string(types.ApplyYAMLPatchType), media == YAMLType:
		return restorer.AppendYAML(nil, body)
	case q.Info.Verb == "delete" || q.Info.Verb == "deletecollection":
		return restorer.AppendDeleteOptions(nil, body)
	}
	return restorer.AppendJSON(nil, body)
}
