package neighbours

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/outbox"
	"email-gateway/shared/service"
)

// holdTime is how long a program holds its transaction open.
const holdTime = 12 * time.Second

// aggregates are locks of one company's rows, for which requests, dispatcher and worker may have to
// wait.
func aggregates() []resource {
	return []resource{
		{
			name: "program-transactions", what: "a program holds 10 aggregates open for 12 s while 40 threads send, move and cancel them and 8 send other emails",
			misuse: func(ctx context.Context, s *scenario) error {
				var misusing sync.WaitGroup
				defer misusing.Wait()
				errs := make(chan error, 10)
				for i := range 10 {
					misusing.Go(func() { errs <- s.holdAggregate(ctx, fmt.Sprint(i)) })
				}
				misusing.Go(func() {
					s.generateLoad(ctx, 40, 0, func(n int) request { return s.aggregateRequest(n, fmt.Sprint(n%10)) })
				})
				misusing.Go(func() {
					s.generateLoad(ctx, 8, 0, func(n int) request { return s.mail(n, map[string]any{"sendAt": tomorrow()}) })
				})
				for range 10 {
					if err := <-errs; err != nil {
						return err
					}
				}
				return nil
			},
		},
		uncommitted(),
		{
			name: "own-aggregate", what: "64 threads send, move and cancel one aggregate at the same time",
			misuse: func(ctx context.Context, s *scenario) error {
				s.generateLoad(ctx, 64, 0, func(n int) request { return s.aggregateRequest(n, "1") })
				return nil
			},
		},
		{
			name: "own-idempotency-key", what: "64 threads send under 4 Idempotency-Keys that change every 500 requests",
			misuse: func(ctx context.Context, s *scenario) error {
				due := tomorrow() // requests with one key must have the same body
				s.generateLoad(ctx, 64, 0, func(n int) request {
					r := s.mail(n%4, map[string]any{"sendAt": due})
					r.idempotency = fmt.Sprintf("chave-%d-%d", n/500, n%4)
					return r
				})
				return nil
			},
		},
		{
			name: "locked-rows", what: "a session locks 2,000 emails and their recipients for 12 s while 40 threads read, move and cancel them", short: true,
			prepare: func(ctx context.Context, s *scenario) error { return s.sendSome(ctx, s.scale(2000, 400)) },
			misuse: func(ctx context.Context, s *scenario) error {
				var misusing sync.WaitGroup
				defer misusing.Wait()
				misusing.Go(func() {
					s.generateLoad(ctx, 40, 0, func(n int) request { return emailRequest(n, s.ids[n%len(s.ids)]) })
				})
				// New emails to the same recipients, whose rows are locked when the worker claims
				// them.
				misusing.Go(func() { s.generateLoad(ctx, 4, 0, func(n int) request { return s.mail(n%len(s.ids), nil) }) })
				for ctx.Err() == nil {
					if err := s.lockRows(ctx); err != nil {
						return err
					}
				}
				return nil
			},
		},
	}
}

// aggregateRequest sends, reschedules or cancels emails about one aggregate.
func (s *scenario) aggregateRequest(n int, aggregateID string) request {
	if n%4 == 0 {
		return request{method: http.MethodPost, path: "/v1/aggregates/pedido/" + aggregateID + "/cancel"}
	}
	return s.mail(n, map[string]any{
		"aggregate": map[string]any{"type": "pedido", "id": aggregateID, "eventType": "AVISO"}, "sendAt": tomorrow(),
	})
}

// emailRequest reads, reschedules or cancels an email.
func emailRequest(n int, id uuid.UUID) request {
	path := "/v1/email/" + id.String()
	switch n % 4 {
	case 0:
		return request{method: http.MethodGet, path: path}
	case 1:
		return request{method: http.MethodPost, path: path + "/cancel"}
	}
	return request{method: http.MethodPatch, path: path, body: encode(map[string]any{"sendAt": tomorrow()})}
}

// holdAggregate repeatedly enqueues an email about one aggregate, as a program that shares the
// database does, and rolls back after 12 s.
func (s *scenario) holdAggregate(ctx context.Context, aggregateID string) error {
	program, err := outbox.New(outbox.Params{CompanyID: s.company})
	if err != nil {
		return err
	}
	about := outbox.Aggregate{Type: "pedido", ID: aggregateID, EventType: "AVISO"}
	to := "programa@" + s.domain
	mail := outbox.Email{
		To: to, Subject: "Aviso", HTML: "<p>Aviso</p>", Recipient: outbox.Recipient{ExternalID: "programa", Email: to},
		SendAt: time.Now().Add(24 * time.Hour),
	}
	for ctx.Err() == nil {
		err := s.inTransaction(ctx, func(tx *sql.Tx) error {
			if _, err := program.Enqueue(ctx, tx, about, mail); err != nil {
				return err
			}
			s.count("transactions", 1)
			_ = service.Pause(ctx, holdTime)
			return nil
		})
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// lockRows locks the company's emails and recipients for 12 s.
func (s *scenario) lockRows(ctx context.Context) error {
	err := s.inTransaction(ctx, func(tx *sql.Tx) error {
		for _, statement := range []string{
			`SELECT FROM email_outbox WHERE company_id = $1 FOR UPDATE`, `SELECT FROM recipients WHERE company_id = $1 FOR UPDATE`,
		} {
			done, err := tx.ExecContext(ctx, statement, s.company)
			if err != nil {
				return fmt.Errorf("lock rows: %w", err)
			}
			n, _ := done.RowsAffected() // the driver supports it
			s.count("rows locked", int(n))
		}
		_ = service.Pause(ctx, holdTime)
		return nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// inTransaction calls do in a transaction and rolls it back.
func (s *scenario) inTransaction(ctx context.Context, do func(tx *sql.Tx) error) error {
	tx, err := s.cluster.Database.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	return do(tx)
}

// sendSome submits n emails, every other one due tomorrow, and records their ids.
func (s *scenario) sendSome(ctx context.Context, n int) error {
	var more map[string]any
	for i := range n {
		if more = nil; i%2 == 0 {
			more = map[string]any{"sendAt": tomorrow()}
		}
		got, err := s.client.do(ctx, s.mail(i, more))
		if err != nil || got.status != http.StatusAccepted {
			return fmt.Errorf("send: %d %s: %w", got.status, got.body, err)
		}
		id, err := outboxID(got)
		if err != nil {
			return err
		}
		s.ids = append(s.ids, id)
	}
	return nil
}
