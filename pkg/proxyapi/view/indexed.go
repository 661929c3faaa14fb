package view

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/indexapi"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
)

// Index is the fleet index, as indexapi.Client asks it.
type Index interface {
	Tables(ctx context.Context, request *indexapi.TablesRequest, take func(n int) error, visit func(head *indexapi.Head, table []byte) error) error
	Search(ctx context.Context, request *indexapi.SearchRequest) (*indexapi.SearchAnswer, error)
	Count(ctx context.Context, request *indexapi.CountRequest) (*indexapi.CountAnswer, error)
}

// beginIndexed bounds the wait for the index's first table, and for each of the others, unless half of the view's timeout is
// less: clusters are asked themselves in the other half.
const beginIndexed = 3 * time.Second

// callerOf is the user of a request as the index gets to know it.
func callerOf(rs *scope.Scope) indexapi.Caller {
	return indexapi.Caller{Name: rs.User.GetName(), UID: rs.User.GetUID(), Groups: rs.User.GetGroups(), Extra: rs.User.GetExtra()}
}

// tableBody releases the table when it was read.
type tableBody struct {
	*bytes.Reader
	release func()
}

func (b *tableBody) Close() error {
	b.release()
	return nil
}

// refusal is an answer as a kube-apiserver's that refuses.
func refusal(r *http.Request, s metav1.Status) *http.Response {
	s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	body, _ := json.Marshal(s) // it has nothing that JSON has not
	return respond(r, int(s.Code), io.NopCloser(bytes.NewReader(body)), len(body))
}

func respond(r *http.Request, code int, body io.ReadCloser, size int) *http.Response {
	return &http.Response{
		Status: http.StatusText(code), StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {fleet.JSONType}}, Body: body, ContentLength: int64(size), Request: r,
	}
}

// list is what the index is asked for. Clusters of which the same is wanted are asked about together.
type list struct {
	resource                            feed.Resource
	version, namespace, labels, columns string
	metadata                            bool
	limit                               int
}

// listOf returns what the index is to list in the place of a cluster, and the page's token. It reports false for
// everything else: the cluster understands what is not understood here.
func listOf(r *http.Request, info *request.RequestInfo) (l list, token string, ok bool) {
	if r.Method != http.MethodGet || info == nil || !info.IsResourceRequest || info.Verb != "list" || info.Subresource != "" || !wantsTable(r.Header) {
		return list{}, "", false
	}
	l = list{resource: feed.Resource{Group: info.APIGroup, Resource: info.Resource}, version: info.APIVersion, namespace: info.Namespace, metadata: true}
	for name, values := range r.URL.Query() {
		value := values[0]
		if len(values) != 1 || !l.read(name, value) {
			return list{}, "", false
		}
		if name == "continue" {
			token = value
		}
	}
	return l, token, !isMembers(token)
}

// read reads a parameter of a list, and reports whether the index understands it.
func (l *list) read(name, value string) (ok bool) {
	var err error
	switch name {
	case "continue":
	case "limit":
		l.limit, err = strconv.Atoi(value)
		return err == nil && l.limit >= 0
	case "labelSelector":
		l.labels = value
		_, err = labels.Parse(value)
		return err == nil
	case "fieldSelector":
		l.columns = value
		return isOfMetadata(value)
	case "includeObject":
		l.metadata = value != string(metav1.IncludeNone)
		return value == string(metav1.IncludeNone) || value == string(metav1.IncludeMetadata) || value == ""
	case "resourceVersion":
		return value == "" || value == "0"
	case "resourceVersionMatch":
		return value == ""
	case "timeout", "timeoutSeconds":
	default:
		return false
	}
	return true
}

// isOfMetadata reports whether a field selector is one of the index.
func isOfMetadata(selector string) bool {
	parsed, err := fields.ParseSelector(selector)
	if err != nil {
		return false
	}
	for _, r := range parsed.Requirements() {
		if r.Field != "metadata.name" && r.Field != "metadata.namespace" {
			return false
		}
	}
	return true
}

// wantsTable reports whether a member is asked for a Table, in the version that the index writes.
func wantsTable(header http.Header) bool {
	media, params, err := mime.ParseMediaType(header.Get("Accept"))
	return err == nil && media == fleet.JSONType && params["as"] == "Table" && params["g"] == metav1.GroupName && params["v"] == "v1"
}

// isMembers reports whether a page's token is a kube-apiserver's: JSON in base64 (k8s.io/apiserver, EncodeContinue). Those of
// the index are not to be read.
func isMembers(token string) bool {
	plain, err := base64.RawURLEncoding.DecodeString(token)
	return token != "" && err == nil && json.Valid(plain)
}
