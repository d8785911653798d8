package neighbours

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"email-gateway/shared/service"
)

// openTransactions is the number of transactions that a program keeps open.
const openTransactions = 4

// uncommitted are rows that dispatchers read and cannot take: index entries before those of emails
// that are committed later.
func uncommitted() resource {
	return resource{
		name: "uncommitted-rows", what: "a program keeps 4 transactions open that have enqueued 10,000 emails each, and commits one email per second",
		prepare: func(ctx context.Context, s *scenario) error { return s.enqueueOpen(ctx, s.scale(10_000, 500)) },
		misuse: func(ctx context.Context, s *scenario) error {
			for n := 0; service.Pause(ctx, time.Second) == nil; n++ {
				if err := s.enqueueOne(ctx, n); err != nil && ctx.Err() == nil {
					return err
				}
			}
			return nil
		},
		restore: func(_ context.Context, s *scenario) error { return s.rollBack() },
	}
}

// enqueueMany enqueues emails about $2-1 to $2-$3 that are due immediately.
const enqueueMany = `
SELECT count(*) FROM generate_series(1, $3::int) n CROSS JOIN LATERAL email_gateway_enqueue($1, 'pedido', $2 || '-' || n, 'AVISO', jsonb_build_object(
    'to', 'programa@' || $4, 'subject', 'Aviso', 'html', '<p>Aviso</p>', 'recipient', jsonb_build_object('externalId', 'programa')))`

// enqueueOpen opens the transactions, each with n emails.
func (s *scenario) enqueueOpen(ctx context.Context, n int) error {
	var opening sync.WaitGroup
	errs := make(chan error, openTransactions)
	for i := range openTransactions {
		opening.Go(func() {
			tx, err := s.cluster.Database.BeginTx(ctx, nil)
			if err != nil {
				errs <- fmt.Errorf("begin: %w", err)
				return
			}
			s.keep(tx)
			if _, err := tx.ExecContext(ctx, enqueueMany, s.company, fmt.Sprintf("aberto-%d", i), n, s.domain); err != nil {
				errs <- fmt.Errorf("enqueue: %w", err)
				return
			}
			s.count("uncommitted emails", n)
		})
	}
	opening.Wait()
	close(errs)
	return <-errs // nil if there is none
}

// enqueueOne commits one email, which the dispatcher finds after the uncommitted ones.
func (s *scenario) enqueueOne(ctx context.Context, n int) error {
	if _, err := s.cluster.Database.ExecContext(ctx, enqueueMany, s.company, fmt.Sprintf("pronto-%d", n), 1, s.domain); err != nil {
		return fmt.Errorf("enqueue: %w", err)
	}
	s.count("committed emails", 1)
	return nil
}

// keep keeps the transaction open until rollBack.
func (s *scenario) keep(tx *sql.Tx) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = append(s.open, tx)
}

// rollBack rolls back the open transactions.
func (s *scenario) rollBack() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tx := range s.open {
		if err := tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
			return fmt.Errorf("roll back: %w", err)
		}
	}
	s.open = nil
	return nil
}
