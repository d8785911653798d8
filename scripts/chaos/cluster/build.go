package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"email-gateway/scripts/local/programs"
)

func (c *Cluster) bin(name string) string { return filepath.Join(c.cfg.Dir, "bin", name) }

// run runs a command-line program, with a direct connection to the database.
func (c *Cluster) run(ctx context.Context, name string, args ...string) error {
	_, err := programs.Output(ctx, c.environ(), c.bin(name), args...)
	return err
}

// environ is the environment of command-line programs.
func (c *Cluster) environ() []string {
	return programs.Environ(c.settings(map[string]string{"DATABASE_URL": c.Postgres.URL}))
}

// scopes are all scopes of a tenant's key.
const scopes = "emails:send,emails:read,mailings:write,mailings:read,recipients:write,suppressions:write,deadletters:write,templates:write,templates:read,webhooks:write,webhooks:read"

// Companies returns the tenants that submit the emails.
func Companies() []string { return []string{"Caos 1", "Caos 2", "Caos 3"} }

// Sender is the sender of a company's emails, as SES receives it.
func Sender(company string) string {
	return fmt.Sprintf("%q <aviso@%s.example>", company, strings.ToLower(strings.ReplaceAll(company, " ", "")))
}

// QuietCompany is a tenant that sends few emails. Its lanes are never paused separately.
const QuietCompany = "Quieta"

// PauseSending pauses a company's lanes, or with "" all sending, as an operator does; ResumeSending resumes them.
func (c *Cluster) PauseSending(ctx context.Context, company string) error {
	return c.run(ctx, "gatewayctl", append([]string{"lane", "pause", "--reason", "chaos"}, lanes(company)...)...)
}

// ResumeSending reverts PauseSending.
func (c *Cluster) ResumeSending(ctx context.Context, company string) error {
	return c.run(ctx, "gatewayctl", append([]string{"lane", "resume"}, lanes(company)...)...)
}

// Suspend suspends a company, as an operator does.
func (c *Cluster) Suspend(ctx context.Context, company string) error {
	return c.run(ctx, "gatewayctl", "company", "suspend", company, "--reason", "chaos")
}

// Erase erases a person from all data of the company.
func (c *Cluster) Erase(ctx context.Context, company, address string) error {
	return c.run(ctx, "gatewayctl", "person", "erase", "--company", company, "--email", address, "--reason", "chaos", "--yes")
}

func lanes(company string) []string {
	if company == "" {
		return []string{"--all"}
	}
	return []string{"--company", company}
}

// Key creates a company and a key for it, as an operator does.
func (c *Cluster) Key(ctx context.Context, company, from string) (string, error) {
	return programs.NewKey(ctx, c.environ(), c.bin(""), company, from, scopes)
}
