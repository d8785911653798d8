package operator

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/store"
	"email-gateway/shared/store/tenant"
)

// FindCompany finds a company by id or exact name.
func FindCompany(ctx context.Context, s *store.Store, idOrName string) (tenant.Company, error) {
	found, err := s.FindCompany(ctx, idOrName)
	if errors.Is(err, store.ErrNotFound) {
		return tenant.Company{}, fmt.Errorf("company %q not found: run `gatewayctl company list` to see all names and ids", idOrName)
	}
	return found, err
}

// CompanyFlag adds the required flag --company.
func CompanyFlag(c *command.Invocation, cmd *cobra.Command, given *string) *cobra.Command {
	cmd.Flags().StringVar(given, "company", "", "the `COMPANY`, by id or exact name")
	CompleteCompanyFlag(c, cmd)
	return command.RequireFlags(cmd, "company")
}

// CompanyState describes in words whether a company is active or suspended.
func CompanyState(c tenant.Company) string {
	if c.SuspendedAt == nil {
		if c.MailingsPausedAt != nil {
			return "active, mailings paused by the reputation guard since " + output.Timestamp(*c.MailingsPausedAt)
		}
		return "active"
	}
	state := "suspended since " + output.Timestamp(*c.SuspendedAt)
	if c.SuspendedReason != nil {
		state += ": " + *c.SuspendedReason
	}
	return state
}

func companyNames(ctx context.Context, s *store.Store) (names []string) {
	all, err := s.Companies(ctx)
	if err != nil {
		return nil
	}
	for _, company := range all {
		names = append(names, company.Name+"\t"+CompanyState(company))
	}
	return names
}

// CompleteCompanies completes the first argument with the names of companies.
func CompleteCompanies(c *command.Invocation) command.Completion {
	return Complete(c, companyNames)
}

// CompleteCompanyFlag completes the flag --company with the names of companies.
func CompleteCompanyFlag(c *command.Invocation, cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("company", command.Complete(true, func(ctx context.Context) []string {
		return wordsFromStore(ctx, c, companyNames)
	}))
}
