package encoding

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Form is how a client wants objects, as it says in its Accept header.
type Form struct {
	// As is what the objects are changed into: empty, Table or PartialObjectMetadata.
	As string
	// Version is the version of API group meta.k8s.io in which As is wanted.
	Version string
	// IncludeObject is the parameter of that name, of requests for Tables.
	IncludeObject string
}

// NewCodec makes what reads and writes the objects of one stream.
func (f Form) NewCodec() Codec {
	if f.As == AsTable {
		return &tableCodec{media: f.media(), version: f.Version, withoutObjects: f.withoutObjects(), unsent: true}
	}
	return jsonCodec{f.media()}
}

func (f Form) media() Media {
	m := Media{Watch: runtime.ContentTypeJSON}
	m.List = m.Watch
	if f.As == "" {
		return m
	}
	m.Table = f.As == AsTable
	m.Of = metav1.TypeMeta{APIVersion: metav1.GroupName + "/" + f.Version, Kind: AsMetadata}
	suffix := fmt.Sprintf(";g=%s;v=%s", metav1.GroupName, f.Version)
	m.Watch += ";as=" + f.As + suffix
	m.List += ";as=" + f.As
	if f.As == AsMetadata {
		m.List += "List"
	}
	m.List += suffix
	if m.IncludeObject = f.IncludeObject; f.withoutObjects() {
		m.IncludeObject = string(metav1.IncludeMetadata) // it says which object a row is about
	}
	return m
}

func (f Form) withoutObjects() bool { return f.IncludeObject == string(metav1.IncludeNone) }
