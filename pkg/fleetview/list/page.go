package list

import (
	"errors"
	"hash/maphash"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
)

const (
	// holdBytes of an answer are kept before its header is sent: until then a member that
	// breaks off can still be left out with a Warning.
	holdBytes = 1 << 20
	// chunkBytes are written at a time.
	chunkBytes = 64 << 10
	// maxPageBytes are kept of a page with a limit, until it is known that a member's items fit
	// on it.
	maxPageBytes = 16 << 20
)

func newPage(w http.ResponseWriter, l *listing) *page {
	return &page{w: w, l: l, versions: map[string]string{}}
}

func (p *page) isTable() bool { return p.l.form.As == "Table" }

// add puts a member's items on the page and returns the member's continue token. The page
// is full if they do not fit on it as a whole.
func (p *page) add(from *memberList) (token string, err error) {
	p.whole, p.wholeItems = len(p.buf), p.items
	meta, err := p.addItems(from)
	if err == nil {
		err = p.typed(meta)
	}
	switch {
	case err != nil && !p.undo():
		return "", err
	case errors.Is(err, errPageFull):
		p.full = true
		return "", err
	case err != nil:
		return "", &brokenError{err}
	}
	p.versions[from.Member.UID()] = meta.ResourceVersion
	p.l.items += p.items - p.wholeItems
	p.full = p.l.limit > 0 && p.items >= p.l.limit
	p.meta.RemainingItemCount = meta.RemainingItemCount
	return meta.Continue, p.flush(p.started || len(p.buf) > holdBytes)
}

// undo takes the items of the member off that is read, and reports whether it could.
func (p *page) undo() bool {
	if p.whole < 0 {
		return false
	}
	p.buf, p.items = p.buf[:p.whole], p.wholeItems
	return true
}

func (p *page) addItems(from *memberList) (merge.ListMeta, error) {
	rewriter := p.l.Rewriter(from.Member, p.l.at)
	var layout *merge.Layout
	if p.isTable() {
		var err error
		if layout, err = p.table.Add(from.reader.Columns()); err != nil {
			return merge.ListMeta{}, err
		}
	}
	for item, err := from.first, from.firstErr; ; item, err = from.reader.Next() {
		if eof(err) {
			return from.reader.Meta(), nil
		}
		if err != nil {
			return merge.ListMeta{}, err
		}
		if p.items > 0 {
			p.buf = append(p.buf, ',')
		}
		if layout != nil {
			p.buf, err = layout.AppendRow(p.buf, item, rewriter)
		} else {
			p.collide(from.Member, item)
			p.buf, err = rewriter.AppendItem(p.buf, item)
		}
		if err != nil {
			return merge.ListMeta{}, err
		}
		p.items++
		if err := p.stream(); err != nil {
			return merge.ListMeta{}, err
		}
	}
}

// stream writes what is too much to be kept. A page with a limit keeps all but its first
// member, because the others may not fit.
func (p *page) stream() error {
	if p.l.limit > 0 && p.wholeItems > 0 {
		if p.items > p.l.limit || len(p.buf) > maxPageBytes {
			return errPageFull
		}
		return nil
	}
	enough := holdBytes
	if p.started {
		enough = chunkBytes
	}
	if len(p.buf) < enough {
		return nil
	}
	p.whole = -1
	return p.flush(true)
}

// collide notes that two clusters have an object of one name, of which an informer would
// keep one.
func (p *page) collide(m fleet.Member, item merge.Item) {
	if p.started || p.colliding || p.l.View.Qualified || len(p.l.Members) < 2 {
		return
	}
	key, err := merge.KeyOfItem(item)
	if err != nil {
		return // the rewriter reports it
	}
	if p.names == nil {
		p.names = map[uint64]string{}
	}
	sum := maphash.String(seed, key.Namespace+"/"+key.Name)
	if other, ok := p.names[sum]; ok && other != m.Name() {
		p.colliding = true
		return
	}
	p.names[sum] = m.Name()
}

var seed = maphash.MakeSeed()

// flush writes what was added, if it is enough or wanted.
func (p *page) flush(now bool) error {
	if !now || len(p.buf) == 0 {
		return nil
	}
	p.start()
	_, err := p.w.Write(p.buf)
	p.buf = p.buf[:0]
	return err
}

// start sends the header, once.
func (p *page) start() {
	if p.started {
		return
	}
	p.started = true
	header := p.w.Header()
	header.Set("Content-Type", p.l.form.ContentType)
	header.Set("Cache-Control", "no-cache, private")
	fault.Warn(header, p.l.failures, "its objects are not shown")
	fault.Warn(header, p.l.lateFaults(), "its objects are at the end of the list, or not shown")
	if p.colliding {
		fault.AddWarning(header, "objects of several clusters have one name: use a view with names: Qualified for informers")
	}
	p.w.WriteHeader(http.StatusOK)
	opening := openingItems
	if p.isTable() {
		opening = openingRows
	}
	// An error shows with the next write.
	_, _ = p.w.Write([]byte(opening))
}

// end completes the answer. JSON has what it says of the whole list behind the items.
func (p *page) end(token string) error {
	p.l.lister.positions.RecordPage(p.l.View.Account, p.l.at, p.l.pageNumber, token == "", p.versions)
	list := metav1.ListMeta{ResourceVersion: p.l.at.String(), Continue: token}
	if p.l.isLastMember() {
		list.RemainingItemCount = p.meta.RemainingItemCount
	}
	var columns []byte
	if p.isTable() {
		columns = p.table.Definitions()
	}
	closing, err := ending(p.meta, listMeta{list, missingOf(p.l.failures)}, columns)
	if err != nil {
		return err
	}
	p.start()
	p.buf = append(p.buf, closing...)
	return p.flush(true)
}

// errPageFull says that a member's items do not fit on a page that has others.
var errPageFull = errors.New("the page is full")
