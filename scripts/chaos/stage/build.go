package stage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

func (s *Stage) bin(name string) string { return filepath.Join(s.cfg.Dir, "bin", name) }

// run runs one of the programs that end by themselves, straight on the database.
func (s *Stage) run(ctx context.Context, name string, args ...string) error {
	_, err := s.output(ctx, name, args...)
	return err
}

func (s *Stage) output(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, s.bin(name), args...)
	cmd.Env = s.environ(map[string]string{"DATABASE_URL": s.Postgres.URL})
	out, err := cmd.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		err = fmt.Errorf("%w: %s", err, failed.Stderr)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return out, nil
}

// scopes are all that a tenant's key may have.
const scopes = "emails:send,emails:read,mailings:write,mailings:read,recipients:write,suppressions:write,deadletters:write"

// Companies are the tenants, among which the emails are shared.
func Companies() []string { return []string{"Caos 1", "Caos 2", "Caos 3"} }

// QuietCompany is a tenant that sends an email now and then. No operator holds back its lanes
// alone.
const QuietCompany = "Quieta"

// Hold holds back what waits in a company's lanes, or with "" all emails, as an operator
// does; Release takes that back.
func (s *Stage) Hold(ctx context.Context, company string) error {
	return s.run(ctx, "gatewayctl", append([]string{"lane", "pause", "--reason", "chaos"}, lanes(company)...)...)
}

// Release takes Hold back.
func (s *Stage) Release(ctx context.Context, company string) error {
	return s.run(ctx, "gatewayctl", append([]string{"lane", "resume"}, lanes(company)...)...)
}

// Suspend keeps a company from sending, as an operator does.
func (s *Stage) Suspend(ctx context.Context, company string) error {
	return s.run(ctx, "gatewayctl", "company", "suspend", company, "--reason", "chaos")
}

// Erase takes a person out of everything that the company holds.
func (s *Stage) Erase(ctx context.Context, company, address string) error {
	return s.run(ctx, "gatewayctl", "person", "erase", "--company", company, "--email", address, "--reason", "chaos", "--yes")
}

func lanes(company string) []string {
	if company == "" {
		return []string{"--all"}
	}
	return []string{"--company", company}
}

// Key makes a company and a key for it, as an operator does.
func (s *Stage) Key(ctx context.Context, company, from string) (string, error) {
	if err := s.run(ctx, "gatewayctl", "company", "create", "--name", company, "--default-from", from, "--json"); err != nil {
		return "", err
	}
	out, err := s.output(ctx, "gatewayctl", "key", "create", "--company", company, "--scopes", scopes, "--rate", "0", "--json")
	if err != nil {
		return "", err
	}
	var made struct{ Key string }
	if err := json.Unmarshal(out, &made); err != nil || made.Key == "" {
		return "", fmt.Errorf("gatewayctl key create printed %q", out)
	}
	return made.Key, nil
}
