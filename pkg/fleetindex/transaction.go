package fleetindex

import (
	"context"
	"database/sql"
	"errors"
)

// transaction is one that writes.
type transaction struct {
	*sql.Tx
	dialect  *dialect
	prepared map[string]*sql.Stmt
}

// beginner is a pool of connections, or one of them.
type beginner interface {
	BeginTx(ctx context.Context, o *sql.TxOptions) (*sql.Tx, error)
}

// inTransaction runs f in a transaction, which is committed if f returns no error.
func inTransaction(ctx context.Context, on beginner, d *dialect, f func(*transaction) error) error {
	tx, err := on.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(&transaction{tx, d, map[string]*sql.Stmt{}}); err != nil {
		return errors.Join(err, ignoreDone(tx.Rollback()))
	}
	return tx.Commit()
}

// ignoreDone drops the error of ending a transaction that the engine has ended.
func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}

// exec runs a statement that a transaction may run often. pgx remembers statements by itself.
func (tx *transaction) exec(ctx context.Context, statement string, args ...any) (sql.Result, error) {
	if tx.dialect.numbered {
		return tx.ExecContext(ctx, tx.dialect.sql(statement), args...)
	}
	prepared, ok := tx.prepared[statement]
	if !ok {
		var err error
		if prepared, err = tx.PrepareContext(ctx, statement); err != nil {
			return nil, err
		}
		tx.prepared[statement] = prepared
	}
	return prepared.ExecContext(ctx, args...)
}

func (tx *transaction) query(ctx context.Context, statement string, args ...any) (*sql.Rows, error) {
	return tx.QueryContext(ctx, tx.dialect.sql(statement), args...)
}

func (tx *transaction) queryRow(ctx context.Context, statement string, args ...any) *sql.Row {
	return tx.QueryRowContext(ctx, tx.dialect.sql(statement), args...)
}
