package fleetindex

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	_ "modernc.org/sqlite"             // the driver sqlite
)

// database is an engine and the connections to it.
type database struct {
	dialect *dialect
	// reads and writes are one pool, except with SQLite, which has one writer.
	reads, writes *sql.DB
	// batches are those of SQLite, and nil for PostgreSQL.
	batches *batches
}

// IsShared reports whether a location is one that several processes may use at a time.
func IsShared(location string) bool {
	return strings.HasPrefix(location, "postgres://") || strings.HasPrefix(location, "postgresql://")
}

// newDatabase prepares the pools of connections, and connects to nothing.
func newDatabase(location string, readers int) (db database, err error) {
	if IsShared(location) {
		db.dialect = &postgres
		if db.writes, err = sql.Open("pgx", location); err != nil {
			return db, errors.New("the URL of the PostgreSQL store cannot be parsed") // the error may have the password
		}
		db.reads = db.writes
		db.writes.SetMaxOpenConns(readers)
		db.writes.SetMaxIdleConns(readers)
		return db, nil
	}
	db.dialect = &sqlite
	// Writes survive a killed process, and the last ones are sent again after a power failure.
	const pragmas = "?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=busy_timeout(10000)&_pragma=cache_size(-16000)"
	file := "file:" + (&url.URL{Path: location}).EscapedPath() + pragmas
	if db.writes, err = sql.Open("sqlite", file+"&_txlock=immediate"); err == nil {
		db.reads, err = sql.Open("sqlite", file+"&_pragma=query_only(1)")
	}
	if err != nil {
		return db, fmt.Errorf("opening the store %q: %w", location, err)
	}
	db.writes.SetMaxOpenConns(1)
	db.batches = &batches{db: db.writes}
	db.reads.SetMaxOpenConns(readers)
	db.reads.SetMaxIdleConns(readers)
	return db, nil
}

// write runs f in a transaction, which is committed if f returns no error. f may be run again if the transaction fails.
func (db *database) write(ctx context.Context, f func(*transaction) error) error {
	if db.batches != nil {
		return db.batches.write(ctx, f)
	}
	return inTransaction(ctx, db.writes, db.dialect, f)
}

// writeDurably is write, and what was committed is on the disk when it returns.
func (db *database) writeDurably(ctx context.Context, f func(*transaction) error) error {
	if db.dialect.durable == "" {
		return db.write(ctx, f)
	}
	conn, err := db.writes.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, db.dialect.durable); err != nil {
		return err
	}
	err = inTransaction(ctx, conn, db.dialect, f)
	_, again := conn.ExecContext(context.WithoutCancel(ctx), db.dialect.relaxed)
	return errors.Join(err, again)
}

func (db *database) query(ctx context.Context, statement string, args ...any) (*sql.Rows, error) {
	return db.reads.QueryContext(ctx, db.dialect.sql(statement), args...)
}

// each calls f after each row has been read into values.
func (db *database) each(ctx context.Context, statement string, args, values []any, f func() error) error {
	rows, err := db.query(ctx, statement, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(values...); err != nil {
			return err
		}
		if err := f(); err != nil {
			return err
		}
	}
	return rows.Err()
}

// migrate brings the schema to the version of this release, and returns the key of tokens.
func (db *database) migrate(ctx context.Context) (key []byte, err error) {
	err = db.write(ctx, func(tx *transaction) error {
		if db.dialect.migrating != "" {
			if _, err := tx.ExecContext(ctx, db.dialect.migrating); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, metaSchema); err != nil {
			return err
		}
		var version int
		err := tx.queryRow(ctx, `SELECT value FROM meta WHERE name = ?`, metaSchemaVersion).Scan(&version)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if version > len(db.dialect.schema) {
			return fmt.Errorf("the store has schema %d, and this release knows %d: use the release that made it, or another store", version, len(db.dialect.schema))
		}
		for _, statements := range db.dialect.schema[version:] {
			for _, statement := range statements {
				if _, err := tx.ExecContext(ctx, statement); err != nil {
					return fmt.Errorf("migrating to schema %d: %w", len(db.dialect.schema), err)
				}
			}
		}
		secret := make([]byte, 32)
		_, _ = rand.Read(secret) // it never fails
		for name, first := range map[string]string{metaSchemaVersion: "", metaSequence: "", metaRemovals: "", metaTokenKey: hex.EncodeToString(secret)} {
			if _, err := tx.exec(ctx, `INSERT INTO meta (name, value, content) VALUES (?, 0, ?) ON CONFLICT (name) DO NOTHING`, name, first); err != nil {
				return err
			}
		}
		if _, err := tx.exec(ctx, `UPDATE meta SET value = ? WHERE name = ?`, len(db.dialect.schema), metaSchemaVersion); err != nil {
			return err
		}
		var encoded string
		if err := tx.queryRow(ctx, `SELECT content FROM meta WHERE name = ?`, metaTokenKey).Scan(&encoded); err != nil {
			return err
		}
		key, err = hex.DecodeString(encoded)
		return err
	})
	return key, err
}
