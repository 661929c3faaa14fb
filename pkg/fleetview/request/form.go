package request

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

// Form is how objects are written: a media type, and what they are changed into.
type Form struct {
	// Accept is the media type with its parameters, as members are asked for it.
	Accept string
	// As is what the API server makes of the objects: "", Table, PartialObjectMetadata or
	// PartialObjectMetadataList.
	As string
	// version is the one of group meta.k8s.io in which as is wanted.
	version string
	// ContentType is the one that the view's answer has.
	ContentType string
}

const (
	YAMLType = "application/yaml"
	// ProtobufType is what requests may have, and answers have not.
	ProtobufType = "application/vnd.kubernetes.protobuf"
)

// Forms returns what a client accepts and a view can write, best first.
func Forms(r *http.Request) ([]Form, error) {
	header := strings.Join(r.Header["Accept"], ",")
	if header == "" {
		return []Form{{Accept: fleet.JSONType, ContentType: fleet.JSONType}}, nil
	}
	var all []Form
	for _, clause := range goautoneg.ParseAccept(header) {
		f := Form{As: clause.Params["as"], Accept: fleet.JSONType, ContentType: fleet.JSONType}
		switch media := clause.Type + "/" + clause.SubType; media {
		case YAMLType:
			f.ContentType = YAMLType // JSON is YAML
		case fleet.JSONType, "*/*", "application/*":
		default:
			continue
		}
		if f.As != "" {
			if !f.convertible(clause.Params["g"], clause.Params["v"]) {
				continue
			}
			f.version = clause.Params["v"]
			f.Accept = mime.FormatMediaType(f.Accept, map[string]string{"as": f.As, "g": metav1.GroupName, "v": f.version})
		}
		all = append(all, f)
	}
	if len(all) == 0 {
		return nil, fault.Refuse(http.StatusNotAcceptable, "a view answers with application/json and application/yaml: accept one of them")
	}
	return all, nil
}

// convertible reports whether API servers make such a kind of their objects, and write it.
func (f Form) convertible(group, version string) bool {
	if group != metav1.GroupName || version != "v1" && version != "v1beta1" {
		return false
	}
	switch f.As {
	case "Table", "PartialObjectMetadata", "PartialObjectMetadataList":
		return true
	}
	return false
}

// Watched is the form of a watch.
func (f Form) Watched(includeObject string) encoding.Form {
	// Clients of metadata have one Accept header for everything.
	as := strings.TrimSuffix(f.As, "List")
	return encoding.Form{As: as, Version: f.version, IncludeObject: includeObject}
}
