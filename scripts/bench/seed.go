package bench

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Send hands one copy of the letter over to an api of the system.
func (s *System) Send(ctx context.Context, api *Program, l letter, serial int64) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+api.Addr+"/v1/email/send", bytes.NewReader(l.append(nil, serial)))
	if err != nil {
		return fmt.Errorf("send a letter: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+s.Key)
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("send a letter: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return fmt.Errorf("send a letter: read answer: %w", err)
	}
	if answer.StatusCode != http.StatusAccepted {
		return fmt.Errorf("send a letter: the answer is %d %.300s", answer.StatusCode, text)
	}
	return nil
}

// Seed puts so many emails into the outbox, due now, each to somebody else. The first one
// is accepted by an api, the others are copies of its row that Postgres makes itself.
func (s *System) Seed(ctx context.Context, emails int) error {
	var model string
	err := s.Database.QueryRowContext(ctx, "SELECT id FROM email_outbox ORDER BY id LIMIT 1").Scan(&model)
	if errors.Is(err, sql.ErrNoRows) {
		emails--
		model, err = s.firstEmail(ctx)
	}
	if err != nil {
		return fmt.Errorf("seed: %w", err)
	}
	if _, err := s.Database.ExecContext(ctx, copyEmails, model, emails, time.Now().UnixMilli()); err != nil {
		return fmt.Errorf("seed %d emails: %w", emails, err)
	}
	return nil
}

func (s *System) firstEmail(ctx context.Context) (id string, err error) {
	l, err := newLetter()
	if err != nil {
		return "", err
	}
	api, err := s.Start(ctx, "api", nil)
	if err != nil {
		return "", err
	}
	err = s.Send(ctx, api, l, 0)
	if err := errors.Join(err, api.Stop(ctx)); err != nil {
		return "", err
	}
	err = s.Database.QueryRowContext(ctx, "SELECT id FROM email_outbox").Scan(&id)
	return id, err
}

// copyEmails makes ids in the shape of UUIDv7, whose order is that of the copies.
const copyEmails = `
INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version,
                          priority, delivery, created_at, next_at, expires_at)
SELECT n.id, o.company_id, o.lane_id, n.id::text,
       o.payload || jsonb_build_object('outboxId', n.id, 'htmlRef', n.id, 'requestId', n.id, 'to', n.address,
           'recipient', (o.payload -> 'recipient') || jsonb_build_object('email', n.address, 'externalId', n.i)),
       o.sender, o.html, o.html_sha256, o.checker_version, o.priority, o.delivery, now(), now(), now() + interval '1 day'
FROM email_outbox o, LATERAL (
    SELECT (lpad(to_hex($3::bigint), 12, '0') || '70008' || lpad(to_hex(i), 15, '0'))::uuid AS id, i::text AS i,
           'copia' || $3 || '-' || i || '@cliente.example' AS address
    FROM generate_series(1, $2::int) AS i
) n
WHERE o.id = $1`
