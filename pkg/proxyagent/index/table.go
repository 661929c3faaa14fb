package index

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
)

// table is the part of a metav1.Table that is read.
type table struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
		Continue        string `json:"continue"`
	} `json:"metadata"`
	Columns []metav1.TableColumnDefinition `json:"columnDefinitions"`
	Rows    []struct {
		Cells  []any  `json:"cells"`
		Object object `json:"object"`
	} `json:"rows"`
}

// object is the part of an object that is read.
type object struct {
	Metadata struct {
		Name              string                  `json:"name"`
		Namespace         string                  `json:"namespace"`
		UID               string                  `json:"uid"`
		ResourceVersion   string                  `json:"resourceVersion"`
		CreationTimestamp metav1.Time             `json:"creationTimestamp"`
		DeletionTimestamp *metav1.Time            `json:"deletionTimestamp"`
		Labels            map[string]string       `json:"labels"`
		OwnerReferences   []metav1.OwnerReference `json:"ownerReferences"`
	} `json:"metadata"`
	Spec struct {
		Containers     []container `json:"containers"`
		InitContainers []container `json:"initContainers"`
	} `json:"spec"`
}

type container struct {
	Image string `json:"image"`
}

// columns returns the columns of a Table. One that is called Age is the age of the object, in every
// printer of Kubernetes and, by convention, of custom resources.
func columns(definitions []metav1.TableColumnDefinition) []feed.Column {
	all := []feed.Column{}
	for _, d := range definitions {
		all = append(all, feed.Column{Name: d.Name, Type: d.Type, Format: d.Format, Description: d.Description, Priority: d.Priority, Age: d.Name == "Age"})
	}
	return all
}

// row is what the index gets of an object.
type row struct {
	feed.Row
	// due is how long the cells are good for; 0 if they do not change by themselves.
	due time.Duration
}

// rows returns the rows of a Table with the columns of a definition. Rows that the index does not take
// are counted, with the reason of the first.
func (t *table) rows(d *feed.Definition) (rows []row, refused int, reason string) {
	for _, r := range t.Rows {
		converted, err := convert(d, r.Cells, &r.Object)
		if err == nil {
			err = converted.Check(*d)
		}
		if err == nil {
			rows = append(rows, converted)
			continue
		}
		if refused++; reason == "" {
			reason = err.Error()
		}
	}
	return rows, refused, reason
}

func convert(d *feed.Definition, cells []any, o *object) (row, error) {
	m := &o.Metadata
	r := row{Row: feed.Row{Key: feed.Key{Namespace: m.Namespace, Name: m.Name}, UID: m.UID, Version: m.ResourceVersion, Labels: m.Labels}}
	if !m.CreationTimestamp.IsZero() {
		r.Created = m.CreationTimestamp.Unix()
	}
	if m.DeletionTimestamp != nil {
		r.Deleted = m.DeletionTimestamp.Unix()
	}
	for _, owner := range m.OwnerReferences {
		if owner.Controller != nil && *owner.Controller {
			r.Owner = owner.Kind + "/" + owner.Name
		}
	}
	for _, c := range append(o.Spec.InitContainers, o.Spec.Containers...) {
		r.addImage(c.Image)
	}
	for i, cell := range cells {
		if i >= len(d.Columns) {
			break
		}
		text, isText := cell.(string)
		switch name := d.Columns[i].Name; {
		case d.Columns[i].Age:
			cells[i] = nil
			continue
		case !isText:
			continue
		case name == "Images":
			for image := range strings.SplitSeq(text, ",") {
				r.addImage(image)
			}
		case name == "Node" && text != "<none>":
			r.Node = text
		}
		if good := goodFor(text); good > 0 && (r.due == 0 || good < r.due) {
			r.due = good
		}
	}
	content, err := json.Marshal(cells)
	r.Cells = content
	return r, err
}

func (r *row) addImage(image string) {
	if image != "" && !slices.Contains(r.Images, image) && len(r.Images) < feed.MaxImages {
		r.Images = append(r.Images, image)
	}
}

// relative matches a cell with a time that was before the present one when it was printed
// (k8s.io/apimachinery/pkg/util/duration): "5m", "2d3h", "3 (5m ago)".
var relative = regexp.MustCompile(`^(?:\d+ \()?((?:\d+[smhdy]){1,2})(?: ago\))?$`)

var part = regexp.MustCompile(`(\d+)([smhdy])`)

// leastGood keeps cells of a few seconds from being asked for all the time.
const leastGood = 10 * time.Second

// goodFor returns how long a cell is good for: a tenth of the time that it says.
func goodFor(cell string) time.Duration {
	if len(cell) > 32 {
		return 0
	}
	found := relative.FindStringSubmatch(cell)
	if found == nil {
		return 0
	}
	units := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour, "y": 365 * 24 * time.Hour}
	var said time.Duration
	for _, p := range part.FindAllStringSubmatch(found[1], -1) {
		n := time.Duration(0)
		for _, digit := range p[1][:min(len(p[1]), 6)] {
			n = n*10 + time.Duration(digit-'0')
		}
		said += min(n, 1000) * units[p[2]]
	}
	return max(said/10, leastGood)
}
