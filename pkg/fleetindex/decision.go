package fleetindex

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	// ClockSkew is how far the clocks of replicas are apart at most. Between what two of them were told about one
	// question within that time, the refusal counts.
	ClockSkew = 5 * time.Second
	// keepTakenBack is how long the store knows that a right was taken back: until no replica writes what it was told before.
	keepTakenBack = time.Minute
	// MaxDecisionAge is how old a decision is at most when Keep is called with it.
	MaxDecisionAge = 30 * time.Second
	// decisionsOf is how many decisions a statement is about at most.
	decisionsOf = 50
)

// Digest names somebody's question, or a cluster, without saying it.
type Digest [16]byte

// NewDigest returns the Digest of a text.
func NewDigest(text []byte) Digest {
	sum := sha256.Sum256(text)
	return Digest(sum[:])
}

// digest names a cluster with its UID: another cluster with the name has none of its decisions.
func (c Cluster) digest() Digest { return NewDigest([]byte(c.Name + "\x00" + c.UID)) }

// Decision is a cluster's answer to a question.
type Decision struct {
	Question Digest
	Cluster  Cluster
	// At is when the cluster was asked.
	At time.Time
}

// LastDecision is the last one of which the store knows.
type LastDecision struct {
	At        time.Time
	IsAllowed bool
}

// LastDecisions are those of clusters on one question.
type LastDecisions map[Digest]LastDecision

// Of returns that of a cluster; the zero value if there is none.
func (l LastDecisions) Of(c Cluster) LastDecision { return l[c.digest()] }

// Keep writes that clusters allowed what they were asked. It changes nothing about a question that a cluster was asked later.
func (s *Store) Keep(ctx context.Context, allowed []Decision) error {
	err := s.write(ctx, func(tx *transaction) error {
		return tx.putDecisions(ctx, allowed, 1, fmt.Sprintf(`at = excluded.at, allowed = 1 WHERE excluded.at > decision.at + (1 - decision.allowed) * %d`, ClockSkew))
	})
	if err != nil {
		return fmt.Errorf("writing %d decisions: %w", len(allowed), err)
	}
	return nil
}

// TakeBack writes that clusters do not allow what they were asked. When it returns, no failure of the process or of its machine
// brings back what they allowed before, and Keep does not for what they were asked before.
func (s *Store) TakeBack(ctx context.Context, denied []Decision) error {
	err := s.writeDurably(ctx, func(tx *transaction) error {
		return tx.putDecisions(ctx, denied, 0, fmt.Sprintf(`allowed = 0, at = CASE WHEN excluded.at > decision.at THEN excluded.at ELSE decision.at END WHERE excluded.at + %d > decision.at`, ClockSkew))
	})
	if err != nil {
		return fmt.Errorf("taking %d decisions back: %w", len(denied), err)
	}
	return nil
}

// putDecisions inserts decisions, or changes those of the same cluster and question.
func (tx *transaction) putDecisions(ctx context.Context, decisions []Decision, allowed int, change string) error {
	type key struct{ question, cluster Digest }
	latest := map[key]int64{}
	for _, d := range decisions {
		k := key{d.Question, d.Cluster.digest()}
		latest[k] = max(latest[k], d.At.UnixNano())
	}
	// In one order, as all that lock several.
	keys := slices.SortedFunc(maps.Keys(latest), func(a, b key) int {
		return cmp.Or(bytes.Compare(a.question[:], b.question[:]), bytes.Compare(a.cluster[:], b.cluster[:]))
	})
	for part := range slices.Chunk(keys, decisionsOf) {
		var args []any
		for _, k := range part {
			args = append(args, k.question[:], k.cluster[:], latest[k], allowed)
		}
		if _, err := tx.exec(ctx, `INSERT INTO decision (question, cluster, at, allowed) VALUES `+marks(len(part), "(?,?,?,?)")+` ON CONFLICT (question, cluster) DO UPDATE SET `+change, args...); err != nil {
			return err
		}
	}
	return nil
}

// Decisions returns the last decisions on questions.
func (s *Store) Decisions(ctx context.Context, questions []Digest) (map[Digest]LastDecisions, error) {
	all := map[Digest]LastDecisions{}
	for part := range slices.Chunk(questions, decisionsOf) {
		var question, cluster []byte
		var at, allowed int64
		var args []any
		for _, q := range part {
			args = append(args, q[:])
		}
		err := s.each(ctx, `SELECT question, cluster, at, allowed FROM decision WHERE question IN (`+marks(len(part), "?")+`)`, args, []any{&question, &cluster, &at, &allowed}, func() error {
			if len(question) != len(Digest{}) || len(cluster) != len(Digest{}) {
				return fmt.Errorf("a digest has %d and another one %d bytes", len(question), len(cluster))
			}
			of := all[Digest(question)]
			if of == nil {
				of = LastDecisions{}
				all[Digest(question)] = of
			}
			of[Digest(cluster)] = LastDecision{time.Unix(0, at), allowed == 1}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("reading decisions: %w", err)
		}
	}
	return all, nil
}

// forgetDecisions deletes those of a cluster.
func (tx *transaction) forgetDecisions(ctx context.Context, c Cluster) error {
	digest := c.digest()
	_, err := tx.exec(ctx, `DELETE FROM decision WHERE cluster = ?`, digest[:])
	return err
}

// ForgetDecisions deletes those that are from before a time, and the oldest beyond a number.
func (s *Store) ForgetDecisions(ctx context.Context, before time.Time, most int) error {
	err := s.write(ctx, func(tx *transaction) error {
		for _, statement := range []struct {
			condition string
			arg       any
		}{
			{`allowed = 0 AND at < ?`, time.Now().Add(-keepTakenBack).UnixNano()},
			{`allowed = 1 AND at < ?`, before.UnixNano()},
			{`allowed = 1 AND at <= (SELECT at FROM decision WHERE allowed = 1 ORDER BY at DESC LIMIT 1 OFFSET ?)`, most},
		} {
			if _, err := tx.exec(ctx, `DELETE FROM decision WHERE `+statement.condition, statement.arg); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("forgetting decisions: %w", err)
	}
	return nil
}
