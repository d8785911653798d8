package environment

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

// ResponseTimeout is the timeout of one response.
const ResponseTimeout = 30 * time.Second

// Send submits one copy of the template to an api of the system.
func (s *System) Send(ctx context.Context, api *Program, l EmailTemplate, serial int64) error {
	ctx, cancel := context.WithTimeout(ctx, ResponseTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+api.Addr+"/v1/email/send", bytes.NewReader(l.Append(nil, serial)))
	if err != nil {
		return fmt.Errorf("send an email: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+s.Key)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("send an email: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("send an email: read response: %w", err)
	}
	if response.StatusCode != http.StatusAccepted {
		return fmt.Errorf("send an email: the response is %d %.300s", response.StatusCode, text)
	}
	return nil
}

// Seed inserts that number of emails into the outbox, due now, each with its own recipient. An api
// accepts the first one, the others are copies of its row made in Postgres.
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
	l, err := NewEmailTemplate()
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

// copyEmails generates ids in the format of UUIDv7, in the order of the copies.
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
