package company

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/store"
	"email-gateway/shared/store/tenant"
	"email-gateway/shared/store/webhook"
)

func webhookCommand(c *command.Invocation) *cobra.Command {
	cmd := command.Group("webhook", "List, disable and enable a company's webhook endpoints",
		`An endpoint that an operator disables receives nothing, and the company cannot enable it. When an operator
enables it, the events that are still kept (30 days) are delivered. The company sees the reason
OPERATOR.`,
		`  gatewayctl company webhook list Acme
  gatewayctl company webhook disable Acme 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b --reason 'domain sold'`)
	cmd.AddCommand(webhookListCommand(c), webhookDisableCommand(c), webhookEnableCommand(c))
	return cmd
}

// companyWebhookView is an endpoint as operators see it: without secrets.
type companyWebhookView struct {
	ID             uuid.UUID `json:"id"`
	URL            string    `json:"url"`
	Types          []string  `json:"types"`
	Status         string    `json:"status"`
	DisabledReason string    `json:"disabledReason,omitempty"`
	Health         string    `json:"health"`
	Failures       int       `json:"consecutiveFailures"`
	FailingSince   string    `json:"failingSince,omitempty"`
	LastError      string    `json:"lastError,omitempty"`
	Open           int       `json:"openDeliveries"`
}

type companyWebhooks struct {
	CompanyID uuid.UUID            `json:"companyId"`
	Company   string               `json:"company"`
	Webhooks  []companyWebhookView `json:"webhooks"`
}

func viewWebhooks(ctx context.Context, s *webhook.Store, company tenant.Company) (companyWebhooks, error) {
	found, err := s.List(ctx, company.ID)
	v := companyWebhooks{CompanyID: company.ID, Company: company.Name, Webhooks: []companyWebhookView{}}
	for _, e := range found {
		one := companyWebhookView{
			ID: e.ID, URL: e.URL, Types: append([]string{}, e.Types...), Status: string(e.Status), Health: e.Health(), Failures: e.Failures,
			LastError: output.Optional(e.LastError), Open: e.Open,
		}
		if e.DisabledReason != nil {
			one.DisabledReason = string(*e.DisabledReason)
		}
		if e.FailingSince != nil {
			one.FailingSince = output.Timestamp(*e.FailingSince)
		}
		v.Webhooks = append(v.Webhooks, one)
	}
	return v, err
}

func (v companyWebhooks) WriteText(w io.Writer) {
	fmt.Fprintf(w, "%s\n\n", output.Printable(v.Company))
	if len(v.Webhooks) == 0 {
		fmt.Fprintln(w, "  no webhook endpoints")
		return
	}
	rows := [][]string{{"ID", "STATUS", "HEALTH", "FAILING SINCE", "LAST ERROR", "OPEN", "URL"}}
	for _, e := range v.Webhooks {
		status := e.Status
		if e.DisabledReason != "" {
			status += " (" + e.DisabledReason + ")"
		}
		rows = append(rows, []string{e.ID.String(), status, e.Health, orDash(e.FailingSince), orDash(e.LastError), strconv.Itoa(e.Open), e.URL})
	}
	output.Table(w, "  ", rows)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func webhookListCommand(c *command.Invocation) *cobra.Command {
	return &cobra.Command{
		Use: "list COMPANY", Short: "List a company's webhook endpoints",
		Example: "  gatewayctl company webhook list Acme",
		Args:    command.ExactArgs("COMPANY"), ValidArgsFunction: operator.CompleteCompanies(c),
		RunE: show(c, func(ctx context.Context, s *store.Store, company tenant.Company) (output.Result, error) {
			return viewWebhooks(ctx, webhook.New(s.DB()), company)
		}),
	}
}

func webhookDisableCommand(c *command.Invocation) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "disable COMPANY ID --reason REASON", Short: "Disable a webhook endpoint",
		Long: `Disables an endpoint, also one that is disabled for another reason. Requests in flight are finished, and
their events are delivered again later.`,
		Example: "  gatewayctl company webhook disable Acme 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b --reason 'domain sold'",
		Args:    command.ExactArgs("COMPANY", "ID"), ValidArgsFunction: operator.CompleteCompanies(c),
		RunE: operator.Run(c, func(ctx context.Context, s *store.Store, args []string) (output.Result, error) {
			by, err := operator.IdentityWithReason(c, reason)
			if err != nil {
				return nil, err
			}
			return changeWebhook(ctx, s, args, func(hooks *webhook.Store, company, id uuid.UUID) error {
				return hooks.DisableAs(ctx, by, company, id)
			})
		}),
	}
	return operator.ReasonFlag(cmd, &reason, true)
}

func webhookEnableCommand(c *command.Invocation) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "enable COMPANY ID", Short: "Enable a webhook endpoint",
		Long: `Enables an endpoint, also one that its company or the gateway has disabled. Its deliveries continue
where they stopped, and open ones are attempted at once.`,
		Example: "  gatewayctl company webhook enable Acme 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b",
		Args:    command.ExactArgs("COMPANY", "ID"), ValidArgsFunction: operator.CompleteCompanies(c),
		RunE: operator.Run(c, func(ctx context.Context, s *store.Store, args []string) (output.Result, error) {
			by, err := operator.Identity(c, reason)
			if err != nil {
				return nil, err
			}
			return changeWebhook(ctx, s, args, func(hooks *webhook.Store, company, id uuid.UUID) error {
				return hooks.EnableAs(ctx, by, company, id)
			})
		}),
	}
	return operator.ReasonFlag(cmd, &reason, false)
}

// changeWebhook changes an endpoint of the company and shows all of them.
func changeWebhook(ctx context.Context, s *store.Store, args []string, change func(hooks *webhook.Store, company, id uuid.UUID) error) (output.Result, error) {
	id, err := uuid.Parse(args[1])
	if err != nil {
		return nil, command.Usagef("%q is not the id of a webhook endpoint: `gatewayctl company webhook list COMPANY` shows them", args[1])
	}
	company, err := operator.FindCompany(ctx, s, args[0])
	if err != nil {
		return nil, err
	}
	hooks := webhook.New(s.DB())
	err = change(hooks, company.ID, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("%s has no webhook endpoint %s: `gatewayctl company webhook list %s` shows them", company.Name, id, output.ShellWord(company.Name))
	}
	if err != nil {
		return nil, err
	}
	return viewWebhooks(ctx, hooks, company)
}
