package fleetindexer

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/indexapi"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

const (
	// clustersAtOnce is how many clusters one list of the store is of. Their answers go out before those of the next are made.
	clustersAtOnce = 200
	// maxRows is how many bytes the rows of a table have; its columns, which are escaped, and its metadata have the rest.
	maxRows = indexapi.MaxTable - 8*feed.MaxDefinition
)

// answerTables answers a TablesRequest.
func (a *answers) answerTables(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	t := tables{answers: a, now: time.Now(), columns: map[*feed.Definition][]byte{}}
	if err := read(w, r, &t.request); err != nil {
		return err
	}
	options, err := t.prepare(ctx)
	if err != nil {
		return err
	}
	if err := a.store.CheckList(options); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	t.w = bufio.NewWriterSize(w, 64<<10)
	defer func() { a.building.used.Add(-t.taken) }()
	wanted := options.Clusters
	for from := 0; from < len(wanted); from += clustersAtOnce {
		to := min(from+clustersAtOnce, len(wanted))
		t.wait(ctx, from, to)
		options.Clusters = wanted[from:to]
		if err := a.store.List(ctx, options, t.visit); err != nil {
			return err
		}
		if err := t.w.Flush(); err != nil {
			return nil // the proxy API is gone
		}
		_ = http.NewResponseController(w).Flush() // tests have writers without
	}
	return nil
}

// tables is the answer to one TablesRequest.
type tables struct {
	*answers
	request indexapi.TablesRequest
	now     time.Time
	w       *bufio.Writer
	// selectsNamespace says that the field selector is about namespaces.
	selectsNamespace bool
	// clusters are those that were asked for, and parts what is known of each, in the same order.
	clusters []fleetindex.Cluster
	parts    map[string]*part
	table    table
	// taken is how many bytes of the budget are in use, and unfit says why the table of the moment is no answer.
	taken int64
	unfit string
	// columns are those that were written before.
	columns map[*feed.Definition][]byte
}

// part is a cluster of a request.
type part struct {
	cluster fleetindex.Cluster
	pending *pending // nil if the cluster is not served
	verdict verdict
	head    indexapi.Head
}

// prepare checks the request, and asks the clusters what the caller may list.
func (t *tables) prepare(ctx context.Context) (o fleetindex.ListOptions, err error) {
	q := &t.request
	as, err := newCaller(q.Caller)
	if err != nil {
		return o, err
	}
	o = fleetindex.ListOptions{Resource: q.Resource, Caller: q.Caller.Name, Rights: t.rightsOf, Reads: t.reads, Namespace: q.Namespace, Limit: q.Limit}
	if o.Labels, err = labels.Parse(q.LabelSelector); err == nil {
		o.Fields, err = fields.ParseSelector(q.FieldSelector)
	}
	switch {
	case err != nil:
		return o, status.New(http.StatusBadRequest, "the selectors cannot be parsed: "+err.Error())
	case q.Limit < 0 || q.Version == "":
		return o, status.New(http.StatusBadRequest, "a request for tables needs a version, and no negative limit")
	}
	clusters, served, err := t.asked(q.Clusters)
	if err != nil {
		return o, err
	}
	t.selectsNamespace = slices.ContainsFunc(o.Fields.Requirements(), func(r fields.Requirement) bool { return r.Field == "metadata.namespace" })
	t.clusters, t.parts = clusters, make(map[string]*part, len(clusters))
	isIndexed := slices.Contains(t.resources, q.Resource)
	questions := []feed.Question{{Resource: q.Resource, Verb: verbList, Namespace: q.Namespace}}
	for i, c := range clusters {
		p := &part{cluster: c, head: indexapi.Head{Cluster: c.Name}}
		switch {
		case !served[i]:
			p.head.Unindexed = "the hub serves no cluster with this name and UID"
		case !isIndexed:
			p.head.Unindexed = fmt.Sprintf("%s is not indexed", q.Resource)
		default:
			p.pending = t.rights.ask(ctx, as, c, questions, math.MaxInt)
		}
		t.parts[c.Name] = p
		o.Clusters = append(o.Clusters, fleetindex.Wanted{Cluster: c, Continue: q.Clusters[i].Continue})
	}
	t.table = table{isMetadata: q.Metadata, now: t.now}
	return o, nil
}

// wait waits for the decisions of some clusters.
func (t *tables) wait(ctx context.Context, from, to int) {
	for _, c := range t.clusters[from:to] {
		p := t.parts[c.Name]
		if p.pending == nil {
			continue
		}
		p.verdict = p.pending.wait(ctx)[0]
		if p.head.Unindexed = p.verdict.undecided(); p.verdict.isDecided && !p.verdict.isAllowed {
			p.head.Forbidden = t.forbidden()
		}
	}
}

// forbidden is what a kube-apiserver says (k8s.io/apiserver/pkg/endpoints/handlers/responsewriters).
func (t *tables) forbidden() string {
	q := &t.request
	where := "at the cluster scope"
	if q.Namespace != "" {
		where = fmt.Sprintf("in the namespace %q", q.Namespace)
	}
	return fmt.Sprintf("User %q cannot list resource %q in API group %q %s", identity.OnManagedCluster(q.Caller.Name), q.Resource.Resource, q.Resource.Group, where)
}

// rightsOf are the decisions of the clusters.
func (t *tables) rightsOf(cluster string, _ feed.Resource) fleetindex.Scope {
	v := t.parts[cluster].verdict
	if !v.isDecided || !v.isAllowed {
		return fleetindex.Scope{}
	}
	if t.request.Namespace != "" {
		return fleetindex.Scope{Namespaces: []string{t.request.Namespace}}
	}
	return fleetindex.Scope{All: true}
}

// reads decides, by the state of a feed, whether its rows are an answer.
func (t *tables) reads(l *fleetindex.Listed) bool {
	p := t.parts[l.Cluster]
	heard, isCurrent := t.lastHeard(p.cluster, l.Heard, t.now)
	isAway := p.verdict.isAway
	switch {
	case l.Definition.Version != t.request.Version:
		p.head.Unindexed = fmt.Sprintf("it has rows of version %q", l.Definition.Version)
	case (t.request.Namespace != "" || t.selectsNamespace) && !l.Definition.Namespaced: // most kube-apiservers refuse such a list
		p.head.Unindexed = "the resource is in no namespace"
	case !l.Synced:
		p.head.Unindexed = "its rows are not all there yet"
	case l.Incomplete != "" && !isAway:
		p.head.Unindexed = feed.CutText("rows were left out: " + l.Incomplete)
	case !isCurrent && !isAway:
		p.head.Unindexed = "its rows are as of " + heard.UTC().Format(time.RFC3339) + ", and it can be asked"
	}
	if isAway {
		p.head.AsOf, p.head.Remembered, p.head.Incomplete = heard.UTC(), p.verdict.isStale, l.Incomplete
	}
	return p.head.Unindexed == ""
}

// visit takes a row, and writes what was asked of a cluster when f is nil.
func (t *tables) visit(l *fleetindex.Listed, f *fleetindex.Found) error {
	if f != nil {
		return t.add(f)
	}
	p := t.parts[l.Cluster]
	delete(t.parts, l.Cluster)
	defer t.empty()
	switch head := &p.head; {
	case head.Unindexed != "" || head.Forbidden != "":
		return indexapi.WriteTable(t.w, indexapi.Head{Cluster: l.Cluster, Unindexed: head.Unindexed, Forbidden: head.Forbidden}, nil)
	case l.Definition == nil && t.isAbsent(p.cluster, t.request.Resource, t.now):
		return indexapi.WriteTable(t.w, indexapi.Head{Cluster: l.Cluster, Absent: true}, nil)
	case l.Definition == nil:
		return indexapi.WriteTable(t.w, indexapi.Head{Cluster: l.Cluster, Unindexed: "the index has not heard of the resource there"}, nil)
	case t.unfit != "":
		return indexapi.WriteTable(t.w, indexapi.Head{Cluster: l.Cluster, Unindexed: t.unfit}, nil)
	}
	columns, ok := t.columns[l.Definition]
	if !ok {
		var err error
		if columns, err = columnsOf(l.Definition); err != nil {
			return err
		}
		t.columns[l.Definition] = columns
	}
	return indexapi.WriteTable(t.w, p.head, t.table.document(l, columns))
}

// add adds a row. One that is wrong is the cluster's alone.
func (t *tables) add(f *fleetindex.Found) error {
	if t.unfit != "" {
		return nil
	}
	if err := t.table.add(f); err != nil {
		t.unfit = err.Error()
		return nil
	}
	more := 2*int64(cap(t.table.rows)) - t.taken // the document is a copy
	switch {
	case more <= 0:
	case len(t.table.rows) > maxRows || !t.building.take(more):
		t.unfit = "its table is too large for the index: ask for pages"
	default:
		t.taken += more
	}
	return nil
}

// empty gives back the memory of a table.
func (t *tables) empty() {
	t.unfit = ""
	t.table.begin()
	if cap(t.table.rows) > 1<<20 {
		t.table.rows = nil
	}
	t.building.used.Add(-t.taken)
	t.taken = 0
}
