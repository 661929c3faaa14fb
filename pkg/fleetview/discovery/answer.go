package discovery

import (
	"cmp"
	"compress/gzip"
	"crypto/sha512"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/catalog"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
)

// gzipFrom is the size from which answers are compressed, as in kube-apiserver.
const gzipFrom = 128 << 10

// faultsOf returns the clusters that did not answer, sorted by name.
func faultsOf(known *Resources) []*fault.Fault {
	var absent []*fault.Fault
	for name, err := range known.Unknown {
		absent = append(absent, fault.Of(name, err))
	}
	for name, a := range known.stale {
		f := *fault.Of(name, a.err)
		f.Since = a.at
		absent = append(absent, &f)
	}
	slices.SortFunc(absent, func(a, b *fault.Fault) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return absent
}

func warnOfConflicts(header http.Header, conflicts []catalog.Conflict) {
	for i, c := range conflicts {
		if i == fault.MaxNamed {
			fault.AddWarning(header, fmt.Sprintf("%d more resources are not in some clusters what they are in most, and are not shown of those", len(conflicts)-i))
			return
		}
		r := c.Resource
		fault.AddWarning(header, fmt.Sprintf("%s of %s has %s in %s, and is not shown of those", r.Resource, r.GroupVersion(), c.Has, fleet.SomeOf(c.Clusters)))
	}
}

// noAnswer is the error of a view of which no cluster answered. If each of them refused
// the user, it is their refusal.
func noAnswer(view fleet.View, absent []*fault.Fault) error {
	if len(absent) == 0 {
		return fault.Refuse(http.StatusServiceUnavailable, fmt.Sprintf("view %q has no cluster that you may reach", view.Name))
	}
	code := 0
	for _, f := range absent {
		if !isForbidden(f) {
			err := fault.NoneAnswered(absent)
			err.ErrStatus.Message = fmt.Sprintf("no cluster of view %q answered: %s", view.Name, fault.Outcomes(absent))
			return err
		}
		code = max(code, f.Code)
	}
	return fault.Refuse(code, fmt.Sprintf("each cluster of view %q refused the request: %s", view.Name, fault.Outcomes(absent)))
}

// refuse answers for a view of which no cluster answered.
func refuse(w http.ResponseWriter, view fleet.View, absent []*fault.Fault) {
	err := noAnswer(view, absent)
	fault.WarnOfRefusal(w.Header(), err.Error())
	fault.Write(w, err)
}

// content is an answer in one piece.
type content struct {
	kind string // of Content-Type
	etag string // quoted; may be empty
	body []byte
}

// writeContent answers 200, or 304 if the client has the content.
func writeContent(w http.ResponseWriter, r *http.Request, c content) {
	header := w.Header()
	if c.etag != "" {
		header.Set("ETag", c.etag)
		if matches(r.Header.Get("If-None-Match"), c.etag) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	header.Set("Content-Type", c.kind)
	if r.Method == http.MethodHead {
		return
	}
	if len(c.body) < gzipFrom || !takesGzip(r) {
		header.Set("Content-Length", strconv.Itoa(len(c.body)))
		_, _ = w.Write(c.body) // an error is the client's: it has gone
		return
	}
	header.Set("Content-Encoding", "gzip")
	header.Add("Vary", "Accept-Encoding")
	zipped, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is valid
	_, _ = zipped.Write(c.body)                         // an error is the client's: it has gone
	_ = zipped.Close()
}

// matches reports whether an If-None-Match has an ETag.
func matches(ifNoneMatch, etag string) bool {
	for one := range strings.SplitSeq(ifNoneMatch, ",") {
		if one = strings.TrimSpace(one); one == "*" || strings.TrimPrefix(one, "W/") == etag {
			return true
		}
	}
	return false
}

func takesGzip(r *http.Request) bool {
	for one := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, quality, _ := strings.Cut(strings.ReplaceAll(one, " ", ""), ";")
		if name == "gzip" {
			return strings.Trim(strings.TrimPrefix(quality, "q="), "0.") != "" || quality == ""
		}
	}
	return false
}

// etagOf returns a content's ETag as kube-apiserver makes it.
func etagOf(body []byte) string { return fmt.Sprintf("%q", fmt.Sprintf("%X", sha512.Sum512(body))) }

// offer returns media types for negotiation, the default first.
func offer(types ...string) []runtime.SerializerInfo {
	var infos []runtime.SerializerInfo
	for _, t := range types {
		kind, sub, _ := strings.Cut(t, "/")
		infos = append(infos, runtime.SerializerInfo{MediaType: t, MediaTypeType: kind, MediaTypeSubType: sub})
	}
	return infos
}

var jsonOnly = offer(fleet.JSONType)

// aggregatedVersion returns the version of aggregated discovery that a client prefers, or
// "" if it prefers the older kinds or takes none that we have: those it gets as JSON.
func aggregatedVersion(accept string) string {
	chosen, _ := negotiation.NegotiateMediaTypeOptions(accept, jsonOnly, discoveryTypes{})
	if chosen.Convert == nil {
		return ""
	}
	return chosen.Convert.Version
}

// discoveryTypes is what clients may ask /api and /apis to be converted to.
type discoveryTypes struct{}

func (discoveryTypes) AllowsMediaTypeTransform(_, _ string, to *schema.GroupVersionKind) bool {
	return to == nil || to.Group == "apidiscovery.k8s.io" && to.Kind == "APIGroupDiscoveryList" && (to.Version == "v2" || to.Version == "v2beta1")
}
func (discoveryTypes) AllowsServerVersion(string) bool { return false }
func (discoveryTypes) AllowsStreamSchema(string) bool  { return false }
