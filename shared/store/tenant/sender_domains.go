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

// DomainUser is a company that sends from a domain: all of its addresses if Registered, else only its default sender.
type DomainUser struct {
	Name       string `db:"name"`
	Registered bool   `db:"registered"`
}

// domainUsersSQL reads all companies, and sender_domains by primary key: operators change domains rarely. The address of a
// default sender ends the text, or is in angle brackets at its end.
const domainUsersSQL = `
SELECT name, registered FROM (
    SELECT c.name, right(rtrim(c.default_from, '>'), length($2) + 1) = '@' || $2 AS usual,
           EXISTS (SELECT FROM sender_domains d WHERE d.company_id = c.id AND d.domain = $2) AS registered
    FROM companies c WHERE c.id <> $1) AS others
WHERE usual OR registered ORDER BY name`

// DomainUsers lists the other companies that use a domain, given in ASCII form and lower case.
func (s *Store) DomainUsers(ctx context.Context, company uuid.UUID, domain string) ([]DomainUser, error) {
	var users []DomainUser
	if err := s.db.SelectContext(ctx, &users, domainUsersSQL, company, domain); err != nil {
		return nil, fmt.Errorf("list users of a sender domain: %w", pg.Translate(err))
	}
	return users, nil
}
