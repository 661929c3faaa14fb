package version

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
)

// Continue says how far the pages of a list are. Any replica understands its text.
type Continue struct {
	// Time is when the list began, and Replica the one that began it: those of the list's
	// version.
	Time    int64
	Replica uint32
	// Page counts the pages before.
	Page int
	// Next is the first cluster that is not complete, or empty if there is none.
	Next string
	// Member is the continue token of cluster Next, or empty if it was not begun.
	Member string
	// Deferred are clusters that were passed over, to be asked at the end. If Next is one
	// of them, or there is no Next, they are all that is left.
	Deferred []string
	// APIVersion and Kind are those of the list, for pages to which no cluster has a part.
	APIVersion, Kind string
	// Clusters and Items count what the pages before had.
	Clusters, Items int
	// Informer says that the list is an informer's.
	Informer bool
}

const (
	// continueFormat is the first byte of a token. Another layout takes another byte.
	continueFormat = 3
	// maxContinue is the longest token that ParseContinue reads, in characters.
	maxContinue = 64 << 10
)

// errContinue tells a client what a broken token means for it.
var errContinue = errors.New("the continue token is not one of a fleet view: list again without it")

// String returns the token for clients. ParseContinue refuses tokens of more than 64 KiB.
func (c Continue) String() string {
	b := []byte{continueFormat}
	b = binary.AppendUvarint(b, uint64(c.Time))
	b = binary.AppendUvarint(b, uint64(c.Replica))
	b = binary.AppendUvarint(b, uint64(c.Page))
	b = binary.AppendUvarint(b, uint64(c.Clusters))
	b = binary.AppendUvarint(b, uint64(c.Items))
	informer := uint64(0)
	if c.Informer {
		informer = 1
	}
	b = binary.AppendUvarint(b, informer)
	for _, s := range append([]string{c.Next, c.Member, c.APIVersion, c.Kind}, c.Deferred...) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// ParseContinue is the inverse of String.
func ParseContinue(s string) (Continue, error) {
	if len(s) > maxContinue {
		return Continue{}, fmt.Errorf("%w (it has %d characters)", errContinue, len(s))
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) == 0 || b[0] != continueFormat {
		return Continue{}, errContinue
	}
	r := tokenReader{rest: b[1:]}
	c := Continue{Time: int64(r.number(MaxTime)), Replica: uint32(r.number(Replicas - 1)), Page: int(r.number(MaxPages))}
	c.Clusters, c.Items = int(r.number(maxCount)), int(r.number(maxCount))
	c.Informer = r.number(1) == 1
	c.Next, c.Member, c.APIVersion, c.Kind = r.text(), r.text(), r.text(), r.text()
	for len(r.rest) > 0 && !r.broken {
		c.Deferred = append(c.Deferred, r.text())
	}
	// A number may have a longer form, which String does not make.
	if r.broken || c.Time < minTime || c.String() != s {
		return Continue{}, errContinue
	}
	return c, nil
}

// maxCount bounds the counts of a token, so that adding to them does not overflow, and
// MaxPages the number of a page.
const (
	maxCount = 1 << 40
	MaxPages = 1 << 20
)

// tokenReader reads the numbers and texts of a token. After the first one that is broken
// it returns zero values.
type tokenReader struct {
	rest   []byte
	broken bool
}

func (r *tokenReader) number(limit uint64) uint64 {
	n, size := binary.Uvarint(r.rest)
	if r.broken || size <= 0 || n > limit {
		r.broken = true
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *tokenReader) text() string {
	n := r.number(maxContinue)
	if r.broken || n > uint64(len(r.rest)) {
		r.broken = true
		return ""
	}
	s := string(r.rest[:n])
	r.rest = r.rest[n:]
	return s
}
