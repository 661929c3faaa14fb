package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
)

// heartbeat is how often an agent says that it has sent all that it knows of (pkg/proxyagent/index).
const heartbeat = 10 * time.Second

// counters count what is asked of all agents.
type counters struct{ resent, reviews, lists atomic.Int64 }

// agent answers for one cluster.
type agent struct {
	*counters
	*member

	mu     sync.Mutex
	loaded bool
	// version is that of the last change.
	version int
	// versions are those of pods that have changed.
	versions map[int]int
	// prepared are the messages with all rows, by kind; nil if rows have changed since.
	prepared [][]byte
	// digests are those of the rows, by kind and namespace.
	digests []map[string]feed.Digest
	// out is the stream of the moment.
	out *stream
}

// stream is the answer to one request of the index.
type stream struct {
	*feed.Writer
	to    io.Writer
	flush func() error
}

// send sends messages, or fails because the index has gone.
func (s *stream) send(messages ...*feed.Message) error {
	for _, m := range messages {
		if err := s.Write(m); err != nil {
			return err
		}
	}
	return s.flush()
}

// messageBytes is how many bytes of texts a message has (pkg/proxyagent/index).
const messageBytes = 128 << 10

// load gives the cluster its rows, and prepares what it says of them: a real agent's work is not the hub's.
func (a *agent) load(writer *feed.Writer, out *bytes.Buffer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.loaded, a.version, a.versions = true, firstVersion, map[int]int{}
	for i := range kinds {
		out.Reset()
		digests := map[string]feed.Digest{}
		err := a.rows(i, func(m *feed.Message) error {
			for j := range m.Put {
				row := &m.Put[j]
				digests[row.Namespace] = digests[row.Namespace].Add(feed.ItemOf(row.UID, row.Version))
			}
			return writer.Write(m)
		})
		if err != nil {
			panic(err) // of a buffer
		}
		a.digests = append(a.digests, digests)
		a.prepared = append(a.prepared, bytes.Clone(out.Bytes()))
	}
}

// rows gives messages with all rows of a kind.
func (a *agent) rows(i int, send func(*feed.Message) error) error {
	k := &kinds[i]
	m, size := &feed.Message{Resource: k.Resource}, 0
	for n := range a.counts[i] {
		version := firstVersion
		if changed, ok := a.versions[n]; ok && i == thePods {
			version = changed
		}
		m.Put = append(m.Put, a.row(k, n, version))
		if size += m.Put[len(m.Put)-1].Size(); n < a.counts[i]-1 && size < messageBytes && len(m.Put) < feed.MaxRows {
			continue
		}
		if err := send(m); err != nil {
			return err
		}
		m, size = &feed.Message{Resource: k.Resource}, 0
	}
	return nil
}

// change changes a pod, and says so to the index.
func (a *agent) change(n int) (name string, version int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := &kinds[thePods]
	n %= a.counts[thePods]
	before, ok := a.versions[n]
	if !ok {
		before = firstVersion
	}
	a.version++
	row := a.row(k, n, a.version)
	a.versions[n] = a.version
	a.prepared[thePods] = nil
	digest := &a.digests[thePods]
	(*digest)[row.Namespace] = (*digest)[row.Namespace].Remove(feed.ItemOf(row.UID, strconv.Itoa(before))).Add(feed.ItemOf(row.UID, row.Version))
	if a.out != nil {
		// The error is that of a stream that has ended: the next one says what has changed.
		_ = a.out.send(&feed.Message{Resource: k.Resource, Put: []feed.Row{row}, Version: row.Version})
	}
	return row.Name, a.version
}

func (a *agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/index":
		a.feed(w, r)
	case "/reviews":
		a.review(w, r)
	case podsPath:
		a.lists.Add(1)
		a.list(w, r)
	default:
		http.Error(w, "{}", http.StatusNotFound)
	}
}

// feed answers the index until it goes.
func (a *agent) feed(w http.ResponseWriter, r *http.Request) {
	request, err := feed.ReadRequest(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	s := &stream{feed.NewWriter(w), w, http.NewResponseController(w).Flush}
	if s.flush() != nil {
		return
	}
	a.mu.Lock()
	err = a.begin(s, request)
	a.out = s
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.out == s {
			a.out = nil
		}
	}()
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for err == nil {
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
			a.mu.Lock()
			err = s.send(&feed.Message{})
			a.mu.Unlock()
		}
	}
}

// begin sends what the index does not have.
func (a *agent) begin(s *stream, request *feed.Request) error {
	for _, known := range request.Resources {
		i := slices.IndexFunc(kinds, func(k kind) bool { return k.Resource == known.Resource })
		if i < 0 {
			return fmt.Errorf("the index asks for %s", known.Resource)
		}
		k := &kinds[i]
		messages := []*feed.Message{{Resource: k.Resource, Definition: &k.Definition}}
		if a.loaded && !equal(known.Digests, a.digests[i]) {
			a.resent.Add(int64(a.counts[i]))
			if err := s.send(messages...); err != nil {
				return err
			}
			messages = nil
			err := error(nil)
			if a.prepared[i] != nil {
				_, err = s.to.Write(a.prepared[i])
			} else {
				err = a.rows(i, s.Write)
			}
			if err != nil {
				return err
			}
		}
		messages = append(messages, &feed.Message{Resource: k.Resource, Version: strconv.Itoa(max(firstVersion, a.version)), Synced: true})
		if err := s.send(messages...); err != nil {
			return err
		}
	}
	return nil
}

func equal(a, b map[string]feed.Digest) bool {
	if len(a) != len(b) {
		return false
	}
	for namespace, digest := range a {
		if b[namespace] != digest {
			return false
		}
	}
	return true
}

// review allows everything.
func (a *agent) review(w http.ResponseWriter, r *http.Request) {
	var review feed.Review
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a.reviews.Add(int64(len(review.Questions)))
	decisions := feed.Decisions{Decisions: make([]feed.Decision, len(review.Questions))}
	for i := range decisions.Decisions {
		decisions.Decisions[i].Allowed = true
	}
	_ = json.NewEncoder(w).Encode(decisions)
}

const podsPath = "/api/v1/pods"

// list answers a list of pods as the cluster's kube-apiserver does.
func (a *agent) list(w http.ResponseWriter, r *http.Request) {
	k := &kinds[thePods]
	first, last := 0, a.counts[thePods]
	if text, ok := strings.CutPrefix(r.URL.Query().Get("continue"), a.name+"-"); ok {
		first, _ = strconv.Atoi(text)
	}
	table := metav1.Table{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "Table"}, ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(firstVersion)}}
	if limit, _ := strconv.Atoi(r.URL.Query().Get("limit")); limit > 0 && first+limit < last {
		last = first + limit
		table.Continue = fmt.Sprint(a.name, "-", last)
	}
	for _, c := range k.Columns {
		table.ColumnDefinitions = append(table.ColumnDefinitions, metav1.TableColumnDefinition{Name: c.Name, Type: c.Type, Format: c.Format, Description: c.Description, Priority: c.Priority})
	}
	for n := first; n < last; n++ {
		row := a.row(k, n, firstVersion)
		made := metav1.TableRow{}
		_ = json.Unmarshal(row.Cells, &made.Cells) // they were made here
		made.Object.Raw, _ = json.Marshal(metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
			ObjectMeta: metav1.ObjectMeta{Name: row.Name, Namespace: row.Namespace, UID: "6c1d2f7e", ResourceVersion: row.Version, Labels: row.Labels, CreationTimestamp: metav1.Unix(row.Created, 0)}})
		table.Rows = append(table.Rows, made)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(table)
}
