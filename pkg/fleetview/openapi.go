package fleetview

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/kube-openapi/pkg/handler"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
)

const (
	// maxSwaggers is how many members' OpenAPI v2 documents are merged. One has
	// megabytes, and only members with groups that newer ones lack are needed.
	maxSwaggers = 16

	// The names of protobuf: clients ask by the first, and servers answer by the second,
	// which is a valid media type (kubernetes/kube-openapi#207).
	swaggerProtobufAsked = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
	swaggerProtobuf      = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
)

var swaggerTypes = offer(jsonType, swaggerProtobufAsked, swaggerProtobuf)

// document is one OpenAPI v3 document of a view.
type document struct {
	// hash is the view's, and changes with the content; empty if the content cannot be
	// told from another by what the member says.
	hash string
	// etag is what the member's answer has if it has this content.
	etag string
	// members have a document of that path, the newest first.
	members []Member
}

// documents returns the OpenAPI v3 documents of the members by path, each of the newest
// one that has it.
func (d *discovery) documents(ctx context.Context, view View, known *resources) (map[string]*document, []answer) {
	answers := d.ask(ctx, view, known.members, askIndex, known.fresh)
	listed := map[schema.GroupVersion]bool{}
	for _, group := range known.Groups {
		listed[schema.GroupVersion{Group: group.Metadata.Name}] = true
		for _, v := range group.Versions {
			listed[schema.GroupVersion{Group: group.Metadata.Name, Version: v.Version}] = true
		}
	}
	documents := map[string]*document{}
	for i, a := range answers {
		if !a.known() {
			continue
		}
		member := known.members[i]
		for path, hash := range a.value.(map[string]string) {
			gv, ofGroup := merge.GroupVersionOf(path)
			if ofGroup && !gv.Empty() && len(view.Resources) > 0 && !listed[gv] {
				continue
			}
			if documents[path] == nil {
				documents[path] = newDocument(member, hash)
			}
			documents[path].members = append(documents[path].members, member)
		}
	}
	return documents, answers
}

// newDocument makes a document of the hash that a member's index has. A kube-apiserver's
// is the SHA-512 of the content. Members with the same content share the document's hash,
// so that clients keep it when another member becomes the newest.
func newDocument(member Member, hash string) *document {
	if hash == "" {
		return &document{}
	}
	from := hash
	if raw, err := hex.DecodeString(hash); err != nil || len(raw) != 64 {
		from = fmt.Sprintf("%q %q", member.UID(), hash) // it is not of the content alone
	}
	return &document{hash: fmt.Sprintf("%X", sha256.Sum256([]byte(from))), etag: fmt.Sprintf("%q", hash)}
}

// serveIndex answers /openapi/v3.
func (d *discovery) serveIndex(w http.ResponseWriter, r *http.Request, view View, known *resources, absent []*fault.Fault) {
	documents, answers := d.documents(r.Context(), view, known)
	have := 0
	for i, a := range answers {
		name := known.members[i].Name()
		if a.known() {
			have++
		} else if a.err != nil && !slices.ContainsFunc(absent, func(f *fault.Fault) bool { return f.Cluster == name }) {
			absent = append(absent, fault.Of(name, a.err))
		}
	}
	if have == 0 {
		fault.Write(w, noAnswer(view, absent))
		return
	}
	fault.Warn(w.Header(), absent, "its schemas are not shown")
	hashes := make(map[string]string, len(documents))
	for path, document := range documents {
		hashes[path] = document.hash
	}
	body, err := merge.AppendOpenAPIIndex(nil, view.Prefix, hashes)
	if err != nil {
		fault.Write(w, err)
		return
	}
	writeContent(w, r, content{kind: jsonType, body: body, etag: etagOf(body)})
}

// serveSwagger answers /openapi/v2.
func (d *discovery) serveSwagger(w http.ResponseWriter, r *http.Request, view View, known *resources) {
	chosen, ok := negotiation.NegotiateMediaTypeOptions(r.Header.Get("Accept"), swaggerTypes, negotiation.DefaultEndpointRestrictions)
	w.Header().Set("Vary", "Accept")
	body, err := d.swagger(r.Context(), view, known)
	if err != nil {
		fault.Write(w, err)
		return
	}
	c := content{kind: jsonType, body: body, etag: etagOf(body)}
	if ok && chosen.Accepted.MediaType != jsonType {
		c.kind = swaggerProtobuf
		key := digestOf("protobuf", []part{{body: body}})
		if value, ok := d.contents.get(key); ok {
			c.body = value.([]byte)
		} else {
			if c.body, err = handler.ToProtoBinary(body); err != nil {
				fault.Write(w, fmt.Errorf("encoding an OpenAPI v2 document: %w", err))
				return
			}
			d.contents.put(key, c.body, int64(len(c.body)))
		}
	}
	writeContent(w, r, c)
}

// swagger returns the OpenAPI v2 document of the newest member that has one, with the
// paths of the groups and versions that it lacks from others. It is no merge of
// k8s.io/kube-openapi/pkg/aggregator: that renames definitions that differ, and versions
// of Kubernetes differ in most.
func (d *discovery) swagger(ctx context.Context, view View, known *resources) ([]byte, error) {
	needed := sets.New[schema.GroupVersion]()
	for _, group := range known.Groups {
		for _, v := range group.Versions {
			needed.Insert(schema.GroupVersion{Group: group.Metadata.Name, Version: v.Version})
		}
	}
	all := needed.Clone()
	var parts []part
	var adds []sets.Set[schema.GroupVersion]
	var absent []*fault.Fault
	for _, member := range known.members {
		has := groupVersionsOf(known.served[member.Name()].groups).Intersection(needed)
		if len(parts) == maxSwaggers || len(has) == 0 && len(parts) > 0 {
			continue
		}
		a := d.ask(ctx, view, []Member{member}, askSwagger, known.fresh)[0]
		if !a.known() {
			if a.err != nil {
				absent = append(absent, fault.Of(member.Name(), a.err))
			}
			if len(absent) == maxDocumentTries {
				break // each may have taken its timeout
			}
			continue
		}
		parts = append(parts, part{path: member.Name(), body: a.value.([]byte)})
		adds = append(adds, has)
		needed = needed.Difference(has)
	}
	if len(parts) == 0 {
		return nil, noAnswer(view, absent)
	}
	if len(parts) == 1 && len(view.Resources) == 0 {
		return parts[0].body, nil
	}
	return d.mergeSwaggers(parts, adds, all, len(view.Resources) > 0)
}

func (d *discovery) mergeSwaggers(parts []part, adds []sets.Set[schema.GroupVersion], all sets.Set[schema.GroupVersion], filter bool) ([]byte, error) {
	key := digestOf(fmt.Sprint("merged", adds, all, filter), parts) // maps are printed sorted
	if value, ok := d.contents.get(key); ok {
		return value.([]byte), nil
	}
	base, err := merge.ParseSwagger(parts[0].body)
	if err != nil {
		return nil, err
	}
	if filter {
		base.Filter(func(gv schema.GroupVersion) bool { return gv.Version == "" || all.Has(gv) })
	}
	for i := 1; i < len(parts); i++ {
		other, err := merge.ParseSwagger(parts[i].body)
		if err != nil {
			return nil, err
		}
		base.Add(other, adds[i].Has)
	}
	body, err := base.JSON()
	if err != nil {
		return nil, err
	}
	d.contents.put(key, body, int64(len(body)))
	return body, nil
}

func groupVersionsOf(groups []merge.APIGroup) sets.Set[schema.GroupVersion] {
	all := sets.New[schema.GroupVersion]()
	for _, group := range groups {
		for _, v := range group.Versions {
			all.Insert(schema.GroupVersion{Group: group.Metadata.Name, Version: v.Version})
		}
	}
	return all
}

// matches reports whether a request names the document's hash.
func (doc *document) matches(r *http.Request) bool {
	hash := r.URL.Query().Get("hash")
	return hash != "" && hash == doc.hash
}

// noDocument is the answer for a path without a document.
func noDocument(view View, path string) error {
	notFound := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "", "", 0, false)
	notFound.ErrStatus.Message = fmt.Sprintf("no cluster of view %q has an OpenAPI document %q", view.Name, path)
	return notFound
}
