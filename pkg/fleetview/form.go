package fleetview

import (
	"mime"
	"net/http"
	"strings"

	"github.com/munnerz/goautoneg"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/encoding"
)

// form is how objects are written: a media type, and what they are changed into.
type form struct {
	// accept is the media type with its parameters, as members are asked for it.
	accept string
	// as is what the API server makes of the objects: "", Table, PartialObjectMetadata or
	// PartialObjectMetadataList.
	as string
	// version is the one of group meta.k8s.io in which as is wanted.
	version string
	// contentType is the one that the view's answer has.
	contentType string
}

const (
	yamlType = "application/yaml"
	// protobufType is what requests may have, and answers have not.
	protobufType = "application/vnd.kubernetes.protobuf"
)

// forms returns what a client accepts and a view can write, best first.
func forms(r *http.Request) ([]form, error) {
	header := strings.Join(r.Header["Accept"], ",")
	if header == "" {
		return []form{{accept: fleet.JSONType, contentType: fleet.JSONType}}, nil
	}
	var all []form
	for _, clause := range goautoneg.ParseAccept(header) {
		f := form{as: clause.Params["as"], accept: fleet.JSONType, contentType: fleet.JSONType}
		switch media := clause.Type + "/" + clause.SubType; media {
		case yamlType:
			f.contentType = yamlType // JSON is YAML
		case fleet.JSONType, "*/*", "application/*":
		default:
			continue
		}
		if f.as != "" {
			if !f.convertible(clause.Params["g"], clause.Params["v"]) {
				continue
			}
			f.version = clause.Params["v"]
			f.accept = mime.FormatMediaType(f.accept, map[string]string{"as": f.as, "g": metav1.GroupName, "v": f.version})
		}
		all = append(all, f)
	}
	if len(all) == 0 {
		return nil, fault.Refuse(http.StatusNotAcceptable, "a view answers with application/json and application/yaml: accept one of them")
	}
	return all, nil
}

// convertible reports whether API servers make such a kind of their objects, and write it.
func (f form) convertible(group, version string) bool {
	if group != metav1.GroupName || version != "v1" && version != "v1beta1" {
		return false
	}
	switch f.as {
	case "Table", "PartialObjectMetadata", "PartialObjectMetadataList":
		return true
	}
	return false
}

// watched is the form of a watch.
func (f form) watched(includeObject string) encoding.Form {
	// Clients of metadata have one Accept header for everything.
	as := strings.TrimSuffix(f.as, "List")
	return encoding.Form{As: as, Version: f.version, IncludeObject: includeObject}
}
