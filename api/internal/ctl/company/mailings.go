package company

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/store"
	"email-gateway/shared/store/mailing"
	"email-gateway/shared/store/tenant"
)

func mailingsCommand(c *command.Invocation) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use: "mailings COMPANY", Short: "List a company's mailings, newest first",
		Long: `Lists the mailings of any company, also of a suspended one. WAITS FOR says why a mailing that is
not paused has no emails to send at the moment.`,
		Example: "  gatewayctl company mailings Acme\n  gatewayctl company mailings Acme --limit 500 --json",
		Args:    command.ExactArgs("COMPANY"), ValidArgsFunction: operator.CompleteCompanies(c),
		RunE: show(c, func(ctx context.Context, s *store.Store, company tenant.Company) (output.Result, error) {
			if err := command.CheckLimit(limit); err != nil {
				return nil, err
			}
			return viewMailings(ctx, s, company, limit)
		}),
	}
	return command.LimitFlag(cmd, &limit)
}

// companyMailing is a mailing as operators see it. Its JSON names are those of the HTTP API, except ended.
type companyMailing struct {
	ID           uuid.UUID      `json:"mailingId"`
	Filename     string         `json:"filename"`
	Status       mailing.Status `json:"status"`
	WaitingFor   string         `json:"waitingFor,omitempty"`
	ErrorMessage string         `json:"errorMessage,omitempty"`
	Accepted     int            `json:"accepted"`
	Ended        int            `json:"ended"` // entries with a final status
	Queued       int            `json:"queued"`
	Sent         int            `json:"sent"`
	Failed       int            `json:"failed"`
	SendAt       *time.Time     `json:"sendAt,omitempty"`
	CreatedAt    time.Time      `json:"createdAt"`
	UpdatedAt    time.Time      `json:"updatedAt"`
}

type companyMailings struct {
	CompanyID uuid.UUID        `json:"companyId"`
	Company   string           `json:"company"`
	Mailings  []companyMailing `json:"mailings"`
	More      bool             `json:"more"`
}

func viewMailings(ctx context.Context, s *store.Store, company tenant.Company, limit int) (companyMailings, error) {
	found, err := s.ListMailings(ctx, company.ID, uuid.Nil, limit+1)
	v := companyMailings{CompanyID: company.ID, Company: company.Name, Mailings: []companyMailing{}, More: len(found) > limit}
	for _, m := range found[:min(limit, len(found))] {
		v.Mailings = append(v.Mailings, companyMailing{
			ID: m.ID, Filename: m.Filename, Status: m.Status, WaitingFor: output.Optional(m.WaitingFor), ErrorMessage: output.Optional(m.ErrorMessage),
			Accepted: m.Accepted, Ended: m.Ended(), Queued: m.Queued, Sent: m.Sent, Failed: m.Failed,
			SendAt: m.SendAt, CreatedAt: m.CreatedAt, UpdatedAt: m.UpdatedAt,
		})
	}
	return v, err
}

func (v companyMailings) WriteText(w io.Writer) {
	fmt.Fprintf(w, "%s\n\n", output.Printable(v.Company))
	if len(v.Mailings) == 0 {
		fmt.Fprintln(w, "  no mailings")
		return
	}
	rows := [][]string{{"ID", "UPLOADED", "STATUS", "WAITS FOR", "ENDED", "SENT", "FAILED", "FILE"}}
	for _, m := range v.Mailings {
		rows = append(rows, []string{
			m.ID.String(), output.Timestamp(m.CreatedAt), string(m.Status), orDash(m.WaitingFor),
			output.Thousands(m.Ended) + " of " + output.Thousands(m.Accepted), output.Thousands(m.Sent), output.Thousands(m.Failed), m.Filename,
		})
	}
	output.Table(w, "  ", rows)
	output.PrintMore(w, v.More)
}
