package merge

import (
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Places are where an object, beside its metadata, has selectors and names of other objects
// of its cluster.
type Places []spot

// spot is one of them. In its path "*" is each element of an array.
type spot struct {
	path []string
	what what
	// numbers are the path in protobuf; nil if clients have no names of the view's there.
	numbers []protowire.Number
}

// what is what a place has.
type what int

const (
	// name is the name of another object, or one that a client made of the object's own. It
	// cannot have an @.
	name what = iota
	// labels are labels, or a selector that is a map. No value can have an @.
	labels
	// labelSelector is a LabelSelector.
	labelSelector
	// owners are OwnerReferences.
	owners
)

// PlacesOf returns the places of a resource's objects. Only those are listed in which a client
// of Kubernetes puts what it has read of a view by itself, and to which it goes on from
// there: an @ somewhere else is what somebody wrote.
func PlacesOf(group, resource, subresource string) Places {
	if of, ok := places[group+"/"+resource+"/"+subresource]; ok {
		return of
	}
	return places[group+"/"+resource]
}

// Selectors returns the places of selectors by which kubectl finds pods.
func (p Places) Selectors() (selectors Places) {
	for _, place := range p {
		if place.what == labelSelector || place.what == labels && place.path[len(place.path)-1] == "selector" {
			selectors = append(selectors, place)
		}
	}
	return selectors
}

var places = map[string]Places{
	// logs, exec, attach, port-forward, expose, describe and rollout go by the selectors.
	"apps/deployments":        workload(labelSelector, 2, 3),
	"apps/replicasets":        workload(labelSelector, 2, 3),
	"apps/statefulsets":       workload(labelSelector, 2, 3),
	"apps/daemonsets":         workload(labelSelector, 1, 2),
	"batch/jobs":              workload(labelSelector, 4, 6),
	"/replicationcontrollers": workload(labels, 2, 3),
	"/services":               {at("spec.selector", labels, 2, 2)},
	// create cronjob names the template like the CronJob.
	"batch/cronjobs": append(template("spec.jobTemplate.spec.template", 2, 5, 2, 6), at("spec.jobTemplate.metadata.name", name, 2, 5, 1, 1)),
	// debug node/NAME makes a pod there.
	"/pods": append(podSpec("spec", 2), at("spec.nodeName", name, 2, 10)),
	// autoscale, create token, auth can-i, and what schedulers and recorders of events write.
	"autoscaling/horizontalpodautoscalers": {at("spec.scaleTargetRef.name", name, 2, 1, 2)},
	"/serviceaccounts/token":               {at("spec.boundObjectRef.name", name, 2, 3, 3)},
	"/pods/binding":                        {at("target.name", name, 2, 3)},
	"/bindings":                            {at("target.name", name, 2, 3)},
	"authorization.k8s.io/selfsubjectaccessreviews": {
		at("spec.resourceAttributes.namespace", name, 2, 1, 1), at("spec.resourceAttributes.name", name, 2, 1, 7),
	},
	"authorization.k8s.io/selfsubjectrulesreviews": {at("spec.namespace", name, 2, 1)},
	"/events":              append(reference("involvedObject", 2), reference("related", 13)...),
	"events.k8s.io/events": append(reference("regarding", 8), reference("related", 9)...),
}

func at(path string, what what, numbers ...protowire.Number) spot {
	return spot{strings.Split(path, "."), what, numbers}
}

// workload has the selector and the template of a spec, with their numbers in it.
func workload(what what, selector, templateNumber protowire.Number) Places {
	return append(template("spec.template", 2, templateNumber), at("spec.selector", what, 2, selector))
}

// template has what run and create make of the name of the object.
func template(path string, numbers ...protowire.Number) Places {
	return append(podSpec(path+".spec", below(numbers, 2)...), at(path+".metadata.labels", labels, below(numbers, 1, 11)...))
}

// podSpec has the names that run and create give to containers, and those of set env --from,
// which patches in JSON.
func podSpec(path string, numbers ...protowire.Number) Places {
	var all Places
	for i, containers := range []string{path + ".containers.*.", path + ".initContainers.*."} {
		number := []protowire.Number{2, 20}[i]
		all = append(all, at(containers+"name", name, below(numbers, number, 1)...), at(containers+"env.*.valueFrom.configMapKeyRef.name", name), at(containers+"env.*.valueFrom.secretKeyRef.name", name))
	}
	return all
}

// below returns the path in protobuf of what is below another one.
func below(numbers []protowire.Number, more ...protowire.Number) []protowire.Number {
	return slices.Concat(numbers, more)
}

// reference has an ObjectReference. Nodes have their name for a uid in some.
func reference(path string, number protowire.Number) Places {
	return Places{at(path+".namespace", name, number, 2), at(path+".name", name, number, 3), at(path+".uid", name, number, 4)}
}

// within returns the places that are in a member of an object, or in an element.
func (p Places) within(depth int, key string) (in Places) {
	for _, place := range p {
		if depth < len(place.path) && (place.path[depth] == key || place.path[depth] == "*") {
			in = append(in, place)
		}
	}
	return in
}

// appendPlaces appends an object with its places edited.
func (e *edit) appendPlaces(dst, object []byte, places Places) ([]byte, error) {
	start := len(dst)
	dst, _, err := e.appendValue(dst, object[SkipSpace(object, 0):], places, 0)
	if err != nil {
		return dst[:start], err
	}
	return append(dst, object[trimSpace(object, len(object)):]...), nil
}

// appendValue appends a value in which places are that are edited. It reports whether the
// value is still there.
func (e *edit) appendValue(dst, value []byte, places Places, depth int) (_ []byte, kept bool, err error) {
	for _, place := range places {
		if depth == len(place.path) {
			return e.appendPlace(dst, value, place.what)
		}
	}
	switch {
	case len(value) == 0:
		return dst, true, nil
	case value[0] == '[':
		return e.appendElements(dst, value, func(dst, element []byte) ([]byte, error) {
			dst, _, err := e.appendValue(dst, element, places.within(depth, "*"), depth+1)
			return dst, err
		})
	case value[0] != '{':
		return append(dst, value...), true, nil
	}
	dst, err = e.appendMembers(dst, value, func(dst []byte, key string, value []byte) ([]byte, bool, error) {
		if in := places.within(depth, key); len(in) > 0 {
			return e.appendValue(dst, value, in, depth+1)
		}
		return append(dst, value...), !e.sets() || !places.twin(depth, key), nil
	})
	return dst, true, err
}

// twin reports whether decoders may take a key for one that is in the path of a place.
func (p Places) twin(depth int, key string) bool {
	return slices.ContainsFunc(p, func(place spot) bool { return depth < len(place.path) && twin([]byte(key), place.path[depth]) })
}

// appendMembers appends an object with the values that edited appends, unless it says that one
// is not there any more.
func (e *edit) appendMembers(dst, object []byte, edited func(dst []byte, key string, value []byte) ([]byte, bool, error)) ([]byte, error) {
	dst = append(dst, '{')
	m := Walk(object, 0)
	for m.More() {
		value := m.skip()
		if m.Err != nil {
			break
		}
		before := len(dst)
		dst = appendMember(dst, object[m.start:m.Value])
		var kept bool
		var err error
		if dst, kept, err = edited(dst, string(m.Key), value); err != nil {
			return dst, err
		}
		if !kept {
			dst = dst[:before]
		}
	}
	return append(dst, '}'), m.Err
}

// appendElements appends an array with the elements that edited appends.
func (e *edit) appendElements(dst, array []byte, edited func(dst, element []byte) ([]byte, error)) (_ []byte, kept bool, err error) {
	all, err := elements(nil, array, math.MaxInt)
	if err != nil {
		return dst, true, err
	}
	dst = append(dst, '[')
	for i, element := range all {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = edited(dst, element); err != nil {
			return dst, true, err
		}
	}
	return append(dst, ']'), true, nil
}

// appendPlace appends the edited value of a place.
func (e *edit) appendPlace(dst, value []byte, what what) (_ []byte, kept bool, err error) {
	object := value[0] == '{'
	switch {
	case what == name && value[0] == '"':
		return e.appendPlainText(dst, value)
	case what == owners && value[0] == '[':
		return e.appendElements(dst, value, e.appendOwner)
	case what == owners && object: // of a JSON patch: the path had indexes
		dst, err = e.appendMembers(dst, value, func(dst []byte, _ string, owner []byte) ([]byte, bool, error) {
			dst, err := e.appendOwner(dst, owner)
			return dst, true, err
		})
		return dst, true, err
	case what == labels && object && e.sets():
		return e.appendLabelled(dst, value)
	case what == labels && object:
		return e.appendUnlabelled(dst, value)
	case what == labelSelector && object && e.sets():
		return e.appendSelecting(dst, value)
	case what == labelSelector && object:
		dst, err = e.appendMembers(dst, value, func(dst []byte, key string, value []byte) ([]byte, bool, error) {
			if key == "matchLabels" && value[0] == '{' {
				return e.appendUnlabelled(dst, value)
			}
			return append(dst, value...), true, nil
		})
		return dst, true, err
	}
	return append(dst, value...), true, nil
}

// appendPlainText appends a JSON string without @CLUSTER.
func (e *edit) appendPlainText(dst, text []byte) (_ []byte, kept bool, err error) {
	s, err := Unquote(text)
	if err != nil {
		return dst, true, err
	}
	if plain := e.plain(s); plain != s {
		return appendQuoted(dst, plain), true, nil
	}
	return append(dst, text...), true, nil
}

// appendOwner appends an OwnerReference with its name edited: an owner is of the same cluster.
func (e *edit) appendOwner(dst, owner []byte) ([]byte, error) {
	if owner[0] != '{' {
		return append(dst, owner...), nil
	}
	return e.appendMembers(dst, owner, func(dst []byte, key string, value []byte) ([]byte, bool, error) {
		switch {
		case key != "name" || value[0] != '"':
			return append(dst, value...), !e.sets() || !twin([]byte(key), "name"), nil
		case e.sets():
			return appendSuffixed(dst, value, "@"+e.cluster), true, nil
		}
		return e.appendPlainText(dst, value)
	})
}

// appendLabelled appends a map of labels, if it has any, with the view's.
func (e *edit) appendLabelled(dst, labels []byte) (_ []byte, kept bool, err error) {
	empty := len(labels) == 0
	if !empty {
		m := Walk(labels, 0)
		empty = !m.More()
	}
	if empty {
		return append(dst, labels...), true, nil
	}
	start := len(dst)
	dst = append(dst, '{')
	dst = appendQuoted(append(appendQuoted(dst, e.label), ':'), e.cluster)
	from := len(dst)
	dst, err = e.appendMembers(dst, labels, func(dst []byte, key string, value []byte) ([]byte, bool, error) {
		return append(dst, value...), key != e.label, nil
	})
	if err != nil {
		return dst[:start], true, err
	}
	if dst[from+1] == '}' { // there was no other
		return append(dst[:from], '}'), true, nil
	}
	dst[from] = ','
	return dst, true, nil
}

// appendSelecting appends a LabelSelector, if it selects anything, with the view's label.
func (e *edit) appendSelecting(dst, selector []byte) (_ []byte, kept bool, err error) {
	matches, byLabels := false, false
	m := Walk(selector, 0)
	for m.More() {
		value := m.skip()
		if m.Err != nil {
			return dst, true, m.Err
		}
		switch key := string(m.Key); {
		case key == "matchLabels" && value[0] == '{':
			byLabels = value[SkipSpace(value, 1)] != '}'
			matches = matches || byLabels
		case key == "matchExpressions" && value[0] == '[':
			matches = matches || value[SkipSpace(value, 1)] != ']'
		}
	}
	switch {
	case m.Err != nil || !matches:
		return append(dst, selector...), true, m.Err
	case byLabels:
		dst, err = e.appendMembers(dst, selector, func(dst []byte, key string, value []byte) ([]byte, bool, error) {
			if key == "matchLabels" {
				return e.appendLabelled(dst, value)
			}
			return append(dst, value...), !twin([]byte(key), "matchLabels"), nil
		})
		return dst, true, err
	}
	from := len(dst)
	dst = append(dst, `{"matchLabels":{`...)
	dst = append(appendQuoted(append(appendQuoted(dst, e.label), ':'), e.cluster), '}')
	rest := len(dst)
	dst, err = e.appendMembers(dst, selector, func(dst []byte, key string, value []byte) ([]byte, bool, error) {
		return append(dst, value...), !strings.EqualFold(key, "matchLabels"), nil
	})
	if err != nil {
		return dst[:from], true, err
	}
	dst[rest] = ','
	return dst, true, nil
}

// appendUnlabelled appends a map of labels without the view's, and without clusters in the
// values. It is not kept if it had no other.
func (e *edit) appendUnlabelled(dst, labels []byte) (_ []byte, kept bool, err error) {
	removed, left := false, false
	dst, err = e.appendMembers(dst, labels, func(dst []byte, key string, value []byte) ([]byte, bool, error) {
		if key == e.label && e.label != "" {
			removed = true
			e.mention([]byte(key), value, false)
			return dst, false, nil
		}
		left = true
		if value[0] == '"' {
			return e.appendPlainText(dst, value)
		}
		return append(dst, value...), true, nil
	})
	return dst, left || !removed, err
}

// plain returns a name without @CLUSTER.
func (e *edit) plain(name string) string {
	if e.note != nil {
		e.note(Mention{Name: name})
		return name
	}
	if plain, ok := strings.CutSuffix(name, "@"+e.cluster); ok && plain != "" {
		return plain
	}
	return name
}

// plainName is plain for an object's own name. Clients make names of other names: of a node
// that of a pod on it, of a pod that of an event.
func (e *edit) plainName(name string) string {
	plain := e.plain(name)
	if e.derived && e.note == nil {
		plain = strings.Replace(plain, "@"+e.cluster, "", 1)
	}
	return plain
}

// has reports whether a pointer leads to a member of a map of labels in which the view's may
// be.
func (p Places) has(tokens []string) bool {
	return slices.ContainsFunc(p, func(place spot) bool {
		path := place.path
		if place.what == labelSelector {
			path = append(slices.Clone(path), "matchLabels")
		}
		return (place.what == labels || place.what == labelSelector) && slices.Equal(path, tokens)
	})
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

// Mention is what may name a cluster in an object that somebody writes.
type Mention struct {
	// Name is one that may be NAME@CLUSTER.
	Name string
	// Cluster is what the view's label or annotation says.
	Cluster string
	// Annotation says that it is the annotation.
	Annotation bool
}

// mention notes what the view's label or annotation says.
func (e *edit) mention(key, value []byte, annotation bool) {
	if e.note == nil || string(key) != e.label || value[0] != '"' {
		return
	}
	if cluster, err := Unquote(value); err == nil {
		e.note(Mention{Cluster: cluster, Annotation: annotation})
	}
}
