package discovery

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
)

const (
	// documentPath precedes a document's own.
	documentPath = "/openapi/v3/"
	// documentTime is how long an OpenAPI document may take beyond the view's timeout.
	documentTime = time.Minute
	// maxDocumentTries is how many members are asked for an OpenAPI document.
	maxDocumentTries = 3
)

// serveDocument answers /openapi/v3/<path> with the document that most members have. Any
// member can say that it has the same document as others and answer with another one, so
// two are asked.
func (d *Discovery) serveDocument(w http.ResponseWriter, r *http.Request, view fleet.View, known *Resources) {
	documents, _ := d.documents(r.Context(), view, known)
	path := strings.Trim(strings.TrimPrefix(r.URL.Path, documentPath), "/")
	doc := documents[path]
	if doc == nil {
		fault.Write(w, noDocument(view, path))
		return
	}
	w.Header().Set("Vary", "Accept, Accept-Encoding")
	w.Header().Set("Cache-Control", "no-cache, private")
	holding := d.Held.Begin(view.User)
	defer holding.Forget()
	found, answer, absent := agreed(slices.Concat(doc.members, doc.others), len(doc.members), func(m fleet.Member) (part, error) {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		timer := time.AfterFunc(view.Timeout, func() { cancel(fault.ErrTimeout) })
		defer timer.Stop()
		p, err := d.fetch(ctx, &timedMember{m, timer}, documentPath+path, r.Header.Get("Accept"), &fleet.Allowance{Limit: MaxDocument, Holding: holding})
		if err != nil {
			err = fleet.CauseOf(ctx, err)
		}
		return p, err
	})
	if found < 0 {
		if r.Context().Err() == nil {
			fault.Write(w, noDocumentOf(view, absent))
		}
		return
	}
	if doc.matches(r) && strings.TrimPrefix(answer.etag, "W/") == doc.etag {
		// The client may keep what it asked for by hash, and no other: a member may have
		// changed since.
		w.Header().Set("Cache-Control", "private, immutable")
		w.Header().Set("Expires", time.Now().AddDate(1, 0, 0).UTC().Format(http.TimeFormat))
	}
	writeContent(w, r, content{kind: answer.kind, etag: answer.etag, body: answer.body})
}

// timedMember gives an answer that has begun another documentTime.
type timedMember struct {
	fleet.Member
	timer *time.Timer
}

func (m *timedMember) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := m.Member.RoundTrip(r)
	m.timer.Reset(documentTime)
	return response, err
}

// noDocumentOf is the error if no member has given a document: that they have it in another
// form only, if that is so.
func noDocumentOf(view fleet.View, absent []*fault.Fault) error {
	if len(absent) > 0 && !slices.ContainsFunc(absent, func(f *fault.Fault) bool { return f.Code != http.StatusNotAcceptable }) {
		return absent[0]
	}
	return noAnswer(view, absent)
}

// agreed asks members, of which so many are likely to answer alike, until two do. It returns
// the first of those two, and which member it is from. If no two do it is the first that
// answered, and if none did it is -1.
func agreed(members []fleet.Member, alike int, ask func(fleet.Member) (part, error)) (found int, answer part, absent []*fault.Fault) {
	members = members[:min(len(members), maxDocumentTries)]
	type said struct {
		part
		err error
	}
	answers := make([]said, len(members))
	var asking sync.WaitGroup
	together := min(len(members), max(alike, 1), 2)
	for i, m := range members[:together] {
		asking.Go(func() { answers[i].part, answers[i].err = ask(m) })
	}
	asking.Wait()
	found = -1
	for i, m := range members {
		if i >= together {
			answers[i].part, answers[i].err = ask(m)
		}
		if err := answers[i].err; err != nil {
			absent = append(absent, fault.Of(m.Name(), err))
			continue
		}
		for j, other := range answers[:i] {
			if other.err == nil && bytes.Equal(other.body, answers[i].body) {
				return j, other.part, absent
			}
		}
		if found < 0 {
			found = i
		}
		if alike < 2 {
			break
		}
	}
	if found >= 0 {
		answer = answers[found].part
	}
	return found, answer, absent
}
