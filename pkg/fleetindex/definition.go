package fleetindex

import (
	"context"
	"fmt"
)

// DropDefinitions deletes those that no feed has any more. The last one stays, so that no number is given twice.
func (s *Store) DropDefinitions(ctx context.Context) error {
	const unused = ` FROM definition WHERE id NOT IN (SELECT definition FROM feed) AND id < (SELECT max(id) FROM definition)`
	var n int64
	err := s.reads.QueryRowContext(ctx, `SELECT count(*)`+unused).Scan(&n)
	if err == nil && n > 0 {
		err = s.write(ctx, func(tx *transaction) error {
			// Meanwhile no feed is given one of them.
			if _, err := tx.nextChange(ctx); err != nil {
				return err
			}
			if _, err := tx.exec(ctx, `DELETE`+unused); err != nil {
				return err
			}
			_, err := tx.exec(ctx, `UPDATE meta SET value = value + 1 WHERE name = ?`, metaRemovals) // replicas forget them too
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("deleting definitions of no feed: %w", err)
	}
	return nil
}
