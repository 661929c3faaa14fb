package discovery

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/catalog"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
)

// IsDiscovery reports whether serve answers a path.
func IsDiscovery(path string) bool {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	switch segments[0] {
	case "api":
		return len(segments) <= 2
	case "apis":
		return len(segments) <= 3
	case "version":
		return len(segments) == 1
	case "openapi":
		return len(segments) >= 2 && (segments[1] == "v3" || segments[1] == "v2" && len(segments) == 2)
	}
	return false
}

// Serve answers a request for discovery, OpenAPI or the version. Members that do not
// answer are left out with a Warning, even if the view is to fail without them: without
// discovery no client could ask for the others by name.
func (d *Discovery) Serve(w http.ResponseWriter, r *http.Request, view fleet.View, members []fleet.Member) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		fault.Write(w, apierrors.NewMethodNotSupported(schema.GroupResource{}, strings.ToLower(r.Method)))
		return
	}
	// Members are not asked with the client's timeout, as answers are known for a while; one
	// that is none is refused as a kube-apiserver does.
	if timeout := r.URL.Query().Get("timeout"); timeout != "" {
		if _, err := time.ParseDuration(timeout); err != nil {
			fault.Write(w, apierrors.NewBadRequest("invalid timeout specified in the request URL: "+err.Error()))
			return
		}
	}
	fresh := FreshFor
	if view.Single {
		fresh = 0 // see the package comment
	}
	known := d.Catalog(r.Context(), view, members, fresh)
	if fresh > MissingFor && !d.has(r.Context(), view, known, r.URL.Path) {
		known = d.Catalog(r.Context(), view, members, MissingFor)
	}
	if r.Context().Err() != nil {
		return // the client has gone
	}
	absent := faultsOf(known)
	if len(known.Members) == 0 {
		refuse(w, view, absent)
		return
	}
	path := "/" + strings.Trim(r.URL.Path, "/")
	switch {
	case path == "/version":
		fault.Warn(w.Header(), absent, "its version is not considered")
		serveVersion(w, r, known)
	case path == "/openapi/v2":
		fault.Warn(w.Header(), absent, "its schemas are not shown")
		d.serveSwagger(w, r, view, known)
	case path == "/openapi/v3":
		d.serveIndex(w, r, view, known, absent)
	case strings.HasPrefix(path, documentPath):
		d.serveDocument(w, r, view, known)
	default:
		fault.Warn(w.Header(), absent, "its resources are not shown")
		warnOfConflicts(w.Header(), known.Conflicts)
		serveGroups(w, r, view, known, absent)
	}
}

// has reports whether a member is known to have what a path names, if it names a group, a
// version or a document.
func (d *Discovery) has(ctx context.Context, view fleet.View, known *Resources, path string) bool {
	if document, ok := strings.CutPrefix(path, documentPath); ok {
		documents, _ := d.documents(ctx, view, known)
		return documents[strings.Trim(document, "/")] != nil
	}
	gv, ofGroup := catalog.GroupVersionOf(path)
	switch {
	case !ofGroup || gv.Empty():
		return true
	case gv.Version == "":
		return known.Group(gv.Group) != nil
	}
	return known.Version(gv) != nil
}

// serveVersion answers /version.
func serveVersion(w http.ResponseWriter, r *http.Request, known *Resources) {
	if body := known.GitVersion(); body != nil {
		writeContent(w, r, content{kind: fleet.JSONType, body: body})
		return
	}
	fault.Write(w, fault.Refuse(http.StatusServiceUnavailable, "no cluster of the view says which version of Kubernetes it has"))
}

// serveGroups answers requests for /api, /apis and below.
func serveGroups(w http.ResponseWriter, r *http.Request, view fleet.View, known *Resources, absent []*fault.Fault) {
	gv, _ := catalog.GroupVersionOf(r.URL.Path)
	core := r.URL.Path == "/api" || strings.HasPrefix(r.URL.Path, "/api/")
	var answer any
	switch {
	case gv.Empty():
		serveRoot(w, r, known, core)
		return
	case gv.Version == "":
		group := known.Group(gv.Group)
		if group == nil {
			break
		}
		legacy := catalog.LegacyGroup(*group)
		legacy.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
		answer = legacy
	default:
		if v := known.Version(gv); v != nil {
			answer = catalog.LegacyResources(gv, *v)
		}
	}
	if answer != nil {
		writeJSON(w, r, answer)
		return
	}
	if view.FailWhenUnreachable && len(absent) > 0 {
		err := fault.Unreachable(absent)
		err.ErrStatus.Message = fmt.Sprintf("no cluster that answered serves %q; %s", gv, fault.Outcomes(absent))
		fault.Write(w, err)
		return
	}
	notFound := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "", "", 0, false)
	notFound.ErrStatus.Message = fmt.Sprintf("no cluster of view %q serves %q", view.Name, gv)
	fault.Write(w, notFound)
}

// serveRoot answers requests for /api (core) and /apis.
func serveRoot(w http.ResponseWriter, r *http.Request, known *Resources, core bool) {
	var groups []catalog.APIGroup
	for _, group := range known.Groups {
		if (group.Metadata.Name == "") == core {
			groups = append(groups, group)
		}
	}
	w.Header().Set("Vary", "Accept")
	if version := aggregatedVersion(r.Header.Get("Accept")); version != "" {
		body, err := catalog.AppendGroups(nil, groups, version)
		if err != nil {
			fault.Write(w, err)
			return
		}
		w.Header().Set("Cache-Control", "public")
		kind := fleet.JSONType + ";g=apidiscovery.k8s.io;v=" + version + ";as=APIGroupDiscoveryList"
		writeContent(w, r, content{kind: kind, body: body, etag: etagOf(body)})
		return
	}
	if core {
		var group *catalog.APIGroup
		if len(groups) > 0 {
			group = &groups[0]
		}
		writeJSON(w, r, catalog.LegacyVersions(group))
		return
	}
	list := metav1.APIGroupList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{},
	}
	for _, group := range groups {
		list.Groups = append(list.Groups, catalog.LegacyGroup(group))
	}
	writeJSON(w, r, list)
}

func writeJSON(w http.ResponseWriter, r *http.Request, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		fault.Write(w, err)
		return
	}
	writeContent(w, r, content{kind: fleet.JSONType, body: body})
}
