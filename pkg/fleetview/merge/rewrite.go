package merge

// Rewriter turns objects of one cluster into objects of a view. It sets annotations to the
// cluster's name, whatever the member says there, and translates metadata.resourceVersion.
// Its methods are safe for concurrent use. What they append to must not overlap their input.
type Rewriter struct {
	// Cluster is the name of the cluster.
	Cluster string
	// Annotations are the keys that get the cluster's name.
	Annotations []string
	// Qualified makes metadata.name NAME@CLUSTER.
	Qualified bool
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
	return e.appendObject(dst, object)
}

func (w *Rewriter) edit() edit {
	return edit{cluster: w.Cluster, annotations: w.Annotations, qualify: w.Qualified, toView: w.Version}
}

// edit is what happens to an object's metadata, on the way to the view or back.
type edit struct {
	cluster     string
	annotations []string
	qualify     bool
	// restore is the way back: annotations are removed instead of set.
	restore bool
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

func (e *edit) version(s string) (string, error) {
	switch {
	case s == "":
		return s, nil
	case e.toMember != nil:
		return e.toMember(s)
	case e.toView != nil:
		return e.toView(s), nil
	}
	return s, nil
}
