package tenant

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/internal/pg"
)

const addDomainSQL = `INSERT INTO sender_domains (company_id, domain) VALUES ($1, $2) ON CONFLICT DO NOTHING`

// AddSenderDomain permits a company to send from addresses of a domain, given in ASCII form and
// lower case. Adding it again changes nothing.
func (s *Store) AddSenderDomain(ctx context.Context, by audit.Operator, company uuid.UUID, domain string) error {
	_, err := audit.ApplyOne(ctx, s.db, by, audit.Change{Action: "domain.add", Company: company, Subject: domain}, addDomainSQL, company, domain)
	return pg.Wrap("add sender domain", err)
}

// removeDomainSQL locks one row by primary key.
const removeDomainSQL = `DELETE FROM sender_domains WHERE company_id = $1 AND domain = $2`

// RemoveSenderDomain removes a sender domain. Emails already accepted keep their sender. It returns
// pg.ErrNotFound if the company has no such domain.
func (s *Store) RemoveSenderDomain(ctx context.Context, by audit.Operator, company uuid.UUID, domain string) error {
	a := audit.Change{Action: "domain.remove", Company: company, Subject: domain}
	return pg.Wrap("remove sender domain", audit.MustChange(audit.ApplyOne(ctx, s.db, by, a, removeDomainSQL, company, domain)))
}

const listDomainsSQL = `SELECT domain FROM sender_domains WHERE company_id = $1 ORDER BY domain`

// SenderDomains lists a company's domains.
func (s *Store) SenderDomains(ctx context.Context, company uuid.UUID) ([]string, error) {
	domains := []string{}
	if err := s.db.SelectContext(ctx, &domains, listDomainsSQL, company); err != nil {
		return nil, fmt.Errorf("list sender domains: %w", pg.Translate(err))
	}
	return domains, nil
}
