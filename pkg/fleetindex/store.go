package fleetindex

import (
	"cmp"
	"context"
	"errors"
	"fmt"
)

// Options says where a store is and how large it gets.
type Options struct {
	// Location is the path of a SQLite database, or the URL of a PostgreSQL one (postgres://…).
	Location string
	// MaxRows bounds the rows of each cluster. 0 means DefaultMaxRows.
	MaxRows int64
	// Readers bounds the connections that read, and with PostgreSQL those that write as well. 0 means
	// DefaultReaders.
	Readers int
}

// Defaults of Options.
const (
	DefaultMaxRows = 200_000
	DefaultReaders = 8
)

// Store keeps rows. Its methods may be called at the same time.
type Store struct {
	database
	maxRows   int64
	directory directory
	tokens    tokens
}

// Open opens the store, makes it if there is none, and migrates one of an older release.
func Open(ctx context.Context, o Options) (*Store, error) {
	db, err := newDatabase(o.Location, cmp.Or(o.Readers, DefaultReaders))
	if err != nil {
		return nil, err
	}
	s := &Store{database: db, maxRows: cmp.Or(o.MaxRows, DefaultMaxRows)}
	key, err := s.migrate(ctx)
	if err == nil {
		s.tokens, err = newTokens(key)
	}
	if err == nil {
		err = s.directory.refresh(ctx, &s.database)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the store of the fleet index: %w", err), s.Close())
	}
	return s, nil
}

// IsShared reports whether other processes may use the store.
func (s *Store) IsShared() bool { return s.reads == s.writes }

// Size returns how many bytes the store has, those that are free within it included.
func (s *Store) Size(ctx context.Context) (bytes int64, err error) {
	if err := s.reads.QueryRowContext(ctx, s.dialect.size).Scan(&bytes); err != nil {
		return 0, fmt.Errorf("reading the size of the store: %w", err)
	}
	return bytes, nil
}

// Close closes the store. Calls that have not returned fail.
func (s *Store) Close() error { return errors.Join(s.writes.Close(), s.reads.Close()) }
