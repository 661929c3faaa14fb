package merge

import "strings"

// Rewriter turns objects of one cluster into objects of a view. It sets annotations to the
// cluster's name, whatever the member says there, and translates metadata.resourceVersion.
// Its methods are safe for concurrent use. What they append to must not overlap their input.
type Rewriter struct {
	// Cluster is the name of the cluster.
	Cluster string
	// Annotations are the keys that get the cluster's name.
	Annotations []string
	// Qualified makes metadata.name, and the names of owners, NAME@CLUSTER.
	Qualified bool
	// Misleading reports whether a name leads to a cluster as it is. It is qualified then in any
	// case, because no member names objects of another one; nil if none does.
	Misleading func(name string) bool
	// QualifiedNamespace makes metadata.namespace NAMESPACE@CLUSTER.
	QualifiedNamespace bool
	// Places are where selectors get Label with the cluster's name, if they are not empty, in
	// JSON. It costs a second look at the object. With Label, what kubectl has applied is called
	// as the object is, too.
	Places Places
	Label  string
	// Version translates metadata.resourceVersion, which is not empty. Objects without one
	// stay without.
	Version func(member string) string
}

// AppendJSON appends an object in JSON as it is in the view. Apart from its metadata the
// object stays byte for byte. Keys that decoders could mistake for those that Rewriter sets
// are left out. An error says that the object is malformed; dst is as before then.
func (w *Rewriter) AppendJSON(dst, object []byte) ([]byte, error) {
	return w.AppendItem(dst, NewItem(object))
}

// AppendItem is AppendJSON for an Item.
func (w *Rewriter) AppendItem(dst []byte, object Item) ([]byte, error) {
	e := w.edit()
	if len(w.Places) == 0 {
		return e.appendObject(dst, object)
	}
	rewritten, err := e.appendObject(nil, object)
	if err != nil {
		return dst, err
	}
	return e.appendPlaces(dst, rewritten, w.Places)
}

func (w *Rewriter) edit() edit {
	return edit{cluster: w.Cluster, annotations: w.Annotations, label: w.Label, places: w.Places, qualify: w.Qualified, misleading: w.Misleading, qualifyNamespace: w.QualifiedNamespace, toView: w.Version}
}

// edit is what happens to an object's metadata, on the way to the view or back.
type edit struct {
	cluster     string
	annotations []string
	// label is the label of the view, in selectors of objects and on the way back in all labels.
	label  string
	places Places
	// qualify and qualifyNamespace say what is qualified.
	qualify, qualifyNamespace bool
	misleading                func(string) bool
	// restore is the way back: annotations are removed instead of set.
	restore bool
	// derived says that names which have @CLUSTER within are made of one that ends in it.
	derived bool
	// note, on the way back, gets what names clusters instead of having it restored.
	note func(Mention)
	// toView is set on the way to the view, toMember on the way back.
	toView   func(string) string
	toMember func(string) (string, error)
}

// sets reports whether annotations are set instead of removed.
func (e *edit) sets() bool { return !e.restore }

func (e *edit) ours(annotation []byte) bool {
	for _, name := range e.annotations {
		if string(annotation) == name {
			return true
		}
	}
	return false
}

// qualifies reports whether a name is qualified on the way to the view.
func (e *edit) qualifies(name string) bool {
	return e.qualify || e.misleading != nil && strings.IndexByte(name, '@') >= 0 && e.misleading(name)
}

// names are the members of metadata that are edited.
func (e *edit) names() []string {
	if e.qualify || e.qualifyNamespace {
		return []string{"annotations", "name", "resourceVersion", "namespace", "ownerReferences"}
	}
	return []string{"annotations", "name", "resourceVersion"}
}

func (e *edit) version(s string) (string, error) {
	switch {
	case s == "", e.note != nil:
		return s, nil
	case e.toMember != nil:
		return e.toMember(s)
	case e.toView != nil:
		return e.toView(s), nil
	}
	return s, nil
}
