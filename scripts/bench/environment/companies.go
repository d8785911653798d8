package environment

import (
	"context"
	"fmt"
	"time"
)

// Companies describes companies with emails that are inserted directly into a system's database.
type Companies struct {
	Name  string // of each, followed by a number
	Count int
	// mailings is the number of mailings of each company, with a lane for each; 0 = one lane
	// without a mailing.
	Mailings int
	// each is the number of emails in each lane, which are due after the time due.
	Each int
	Due  time.Duration
}

// Emails is how many emails the companies have together.
func (c Companies) Emails() int { return c.Count * max(c.Mailings, 1) * c.Each }

// AddCompanies inserts the companies, their lanes and their emails, which are copies of the
// system's first one. The ids are in the order in which emails of many tenants arrive: one of each
// lane, then the second of each.
func (s *System) AddCompanies(ctx context.Context, c Companies) error {
	if err := s.Seed(ctx, 0); err != nil {
		return err
	}
	if err := s.Exec(ctx, addCompanies, c.Name, c.Count, c.Mailings, c.Each, time.Now().UnixMilli(), c.Due.Seconds()); err != nil {
		return fmt.Errorf("add %d companies: %w", c.Count, err)
	}
	return nil
}

// addCompanies generates ids as copyEmails does. The emails are sorted before the payload is added,
// which is long.
const addCompanies = `
WITH company AS (
    INSERT INTO companies (id, name, default_from)
    SELECT gen_random_uuid(), $1::text || ' ' || i, $1 || ' <aviso@bancada.example>' FROM generate_series(1, $2::int) i RETURNING id
), lane AS (
    INSERT INTO dispatch_lanes (company_id, queue, mailing_id)
    SELECT c.id, 'email:send', CASE WHEN $3::int > 0 THEN gen_random_uuid() END
    FROM company c, generate_series(1, greatest($3::int, 1)) RETURNING id, company_id
), numbered AS MATERIALIZED (
    SELECT id, company_id, row_number() OVER (ORDER BY id) - 1 AS number FROM lane
), ordered AS MATERIALIZED (
    SELECT n.i, l.id AS lane_id, l.company_id
    FROM (SELECT i, i % ($2::bigint * greatest($3::int, 1)) AS number FROM generate_series(0, $2::bigint * greatest($3::int, 1) * $4::int - 1) AS i) n
    JOIN numbered l USING (number)
    ORDER BY n.i
)
INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version,
                          priority, delivery, created_at, next_at, expires_at)
SELECT n.id, n.company_id, n.lane_id, n.id::text,
       o.payload || jsonb_build_object('outboxId', n.id, 'htmlRef', n.id, 'requestId', n.id, 'companyId', n.company_id, 'to', n.address,
           'recipient', (o.payload -> 'recipient') || jsonb_build_object('email', n.address, 'externalId', n.i::text)),
       o.sender, o.html, o.html_sha256, o.checker_version, o.priority, o.delivery, now(), n.due, n.due + interval '1 day'
FROM (SELECT * FROM email_outbox ORDER BY id LIMIT 1) o, (
    SELECT (lpad(to_hex($5::bigint), 12, '0') || '70008' || lpad(to_hex(i), 15, '0'))::uuid AS id, i, lane_id, company_id,
           'copia' || $5 || '-' || i || '@cliente.example' AS address, now() + $6::float8 * interval '1 s' AS due
    FROM ordered ORDER BY i
) n`
