package discovery

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/catalog"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
)

// document is one OpenAPI v3 document of a view.
type document struct {
	// hash is the view's, and changes with the content; empty if the content cannot be
	// told from another by what the member says.
	hash string
	// etag is what the member's answer has if it has this content.
	etag string
	// members say that they have this document, and others another one of that path.
	members, others []fleet.Member
}

// documents returns the OpenAPI v3 documents of the members by path, each the one that most
// of them have.
func (d *Discovery) documents(ctx context.Context, view fleet.View, known *Resources) (map[string]*document, []answer) {
	answers := d.ask(ctx, view, known.Members, askIndex, known.fresh)
	listed := map[schema.GroupVersion]bool{}
	for _, group := range known.Groups {
		listed[schema.GroupVersion{Group: group.Metadata.Name}] = true
		for _, v := range group.Versions {
			listed[schema.GroupVersion{Group: group.Metadata.Name, Version: v.Version}] = true
		}
	}
	all := map[string][]*document{}
	for i, a := range answers {
		if !a.known() {
			continue
		}
		for path, hash := range a.value.(map[string]string) {
			gv, ofGroup := catalog.GroupVersionOf(path)
			if ofGroup && !gv.Empty() && len(view.Resources) > 0 && !listed[gv] {
				continue
			}
			one := newDocument(known.Members[i], hash)
			at := slices.IndexFunc(all[path], func(other *document) bool { return other.hash == one.hash })
			if at < 0 {
				at = len(all[path])
				all[path] = append(all[path], one)
			}
			all[path][at].members = append(all[path][at].members, known.Members[i])
		}
	}
	documents := make(map[string]*document, len(all))
	for path, of := range all {
		// Of what equally many have, the first is the one of the first member.
		slices.SortStableFunc(of, func(a, b *document) int { return cmp.Compare(len(b.members), len(a.members)) })
		for _, other := range of[1:] {
			of[0].others = append(of[0].others, other.members...)
		}
		documents[path] = of[0]
	}
	return documents, answers
}

// newDocument makes a document of the hash that a member's index has. A kube-apiserver's
// is the SHA-512 of the content. Members with the same content share the document's hash.
func newDocument(member fleet.Member, hash string) *document {
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
func (d *Discovery) serveIndex(w http.ResponseWriter, r *http.Request, view fleet.View, known *Resources, absent []*fault.Fault) {
	documents, answers := d.documents(r.Context(), view, known)
	have := 0
	for i, a := range answers {
		name := known.Members[i].Name()
		if a.known() {
			have++
		} else if a.err != nil && !slices.ContainsFunc(absent, func(f *fault.Fault) bool { return f.Cluster == name }) {
			absent = append(absent, fault.Of(name, a.err))
		}
	}
	if have == 0 {
		refuse(w, view, absent)
		return
	}
	fault.Warn(w.Header(), absent, "its schemas are not shown")
	hashes := make(map[string]string, len(documents))
	for path, document := range documents {
		hashes[path] = document.hash
	}
	body, err := catalog.AppendOpenAPIIndex(nil, view.Prefix, hashes)
	if err != nil {
		fault.Write(w, err)
		return
	}
	writeContent(w, r, content{kind: fleet.JSONType, body: body, etag: etagOf(body)})
}

// matches reports whether a request names the document's hash.
func (doc *document) matches(r *http.Request) bool {
	hash := r.URL.Query().Get("hash")
	return hash != "" && hash == doc.hash
}

// noDocument is the answer for a path without a document.
func noDocument(view fleet.View, path string) error {
	notFound := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "", "", 0, false)
	notFound.ErrStatus.Message = fmt.Sprintf("no cluster of view %q has an OpenAPI document %q", view.Name, path)
	return notFound
}
