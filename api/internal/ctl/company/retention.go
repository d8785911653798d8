package company

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/store"
	"email-gateway/shared/store/tenant"
)

func retentionCommand(c *command.Invocation) *cobra.Command {
	var reason string
	ages := []struct {
		flag, help string
		given      string
		of         func(*tenant.Retention) **int
	}{
		{"bodies", "how long email content is kept after the final status: an `AGE` such as 7d, or default", "", func(r *tenant.Retention) **int { return &r.Bodies }},
		{"files", "how long an uploaded file is kept after its mailing's end: an `AGE`, or default", "", func(r *tenant.Retention) **int { return &r.Files }},
		{"logs", "how long logs, timelines and mailing entries are kept: an `AGE`, or default", "", func(r *tenant.Retention) **int { return &r.Logs }},
		{"hashes", "how long a CPF or CNPJ (hash and encrypted value) is kept: an `AGE`, or default", "", func(r *tenant.Retention) **int { return &r.Hashes }},
	}
	cmd := &cobra.Command{
		Use:   "retention COMPANY",
		Short: "Show or change how long a company's data is kept",
		Long: `Without a flag, shows the retention periods. A flag changes one period, in days; default
removes the company's own period, so that the dispatcher's RETENTION_ setting applies again.

Data that is older than a shortened period is deleted within an hour and cannot be restored.
Bodies are deleted with their emails' rows at the latest, whatever is set here. A company that
keeps its logs longer than the others delays dropping the partitions that all companies share;
the rows of the others are then deleted one by one.

--hashes applies to the CPF or CNPJ, as a hash and encrypted: of recipients since their last
update, of mailing entries and emails since their final status. By default they are kept as
long as their rows. Once a number is deleted, gatewayctl person can no longer find a person of
whom nothing else is stored. Sending with the number again stores it again.`,
		Example: `  gatewayctl company retention Acme
  gatewayctl company retention Acme --bodies 7d --logs 90d --reason 'their contract'
  gatewayctl company retention Acme --logs default`,
		Args: command.ExactArgs("COMPANY"), ValidArgsFunction: operator.CompleteCompanies(c),
	}
	cmd.RunE = operator.Run(c, func(ctx context.Context, s *store.Store, args []string) (output.Result, error) {
		company, err := operator.FindCompany(ctx, s, args[0])
		if err != nil {
			return nil, err
		}
		change, changed := tenant.Retention{CompanyID: company.ID}, false
		for i := range ages {
			if !cmd.Flags().Changed(ages[i].flag) {
				continue
			}
			changed = true
			if *ages[i].of(&change), err = parseDays(ages[i].flag, ages[i].given); err != nil {
				return nil, err
			}
		}
		if !changed {
			r, err := s.FindRetention(ctx, company.ID)
			return companyRetention{Company: company.Name, Retention: r}, err
		}
		by, err := operator.Identity(c, reason)
		if err != nil {
			return nil, err
		}
		r, err := s.SetRetention(ctx, by, change)
		return companyRetention{Company: company.Name, Retention: r, changed: true}, err
	})
	for i := range ages {
		cmd.Flags().StringVar(&ages[i].given, ages[i].flag, "", ages[i].help)
	}
	return operator.ReasonFlag(cmd, &reason, false)
}

var errDays = errors.New("not an age")

// parseDays parses an age such as 7d, or default, which is 0.
func parseDays(flag, text string) (*int, error) {
	if text == "default" {
		return new(int), nil
	}
	days, err := strconv.Atoi(strings.TrimSuffix(text, "d"))
	if !strings.HasSuffix(text, "d") || days < 1 || days > tenant.MaxRetentionDays {
		err = errDays
	}
	if err != nil {
		return nil, command.Usagef("--%s %q must be 1d to %dd, or default", flag, text, tenant.MaxRetentionDays)
	}
	return &days, nil
}

type companyRetention struct {
	Company string `json:"company"`
	tenant.Retention
	changed bool
}

func (v companyRetention) WriteText(w io.Writer) {
	keeps := "keeps"
	if v.changed {
		keeps = "keeps from now on"
	}
	fmt.Fprintf(w, "%s %s:\n\n", output.Printable(v.Company), keeps)
	age := func(days *int) string {
		if days == nil {
			return "installation default"
		}
		return output.Plural(*days, "day", "days")
	}
	output.Table(w, "  ", [][]string{
		{"bodies of emails", age(v.Bodies), "after their final status"},
		{"uploaded files", age(v.Files), "after their mailing's end"},
		{"logs and timelines", age(v.Logs), "after acceptance; entries of mailings after the mailing's end"},
		{"CPF and CNPJ", age(v.Hashes), "after the recipient's last update; of entries and emails after their final status"},
	})
}
