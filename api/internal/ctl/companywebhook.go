package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/shared/store"
	"email-gateway/shared/store/webhook"
)

func (c *control) companyWebhook() *cobra.Command {
	cmd := group("webhook", "List, disable and enable a company's webhook endpoints",
		`An endpoint that an operator disables receives nothing, and the company cannot enable it. Its events are
delivered when an operator enables it, as far as they are still kept (30 days). The company sees the
reason OPERATOR.`,
		`  gatewayctl company webhook list Acme
  gatewayctl company webhook disable Acme 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b --reason 'domain sold'`)
	cmd.AddCommand(c.companyWebhookList(), c.companyWebhookDisable(), c.companyWebhookEnable())
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

func viewWebhooks(ctx context.Context, s *webhook.Store, company store.Company) (companyWebhooks, error) {
	found, err := s.List(ctx, company.ID)
	v := companyWebhooks{CompanyID: company.ID, Company: company.Name, Webhooks: []companyWebhookView{}}
	for _, e := range found {
		one := companyWebhookView{
			ID: e.ID, URL: e.URL, Types: append([]string{}, e.Types...), Status: string(e.Status), Health: e.Health(), Failures: e.Failures,
			LastError: text(e.LastError), Open: e.Open,
		}
		if e.DisabledReason != nil {
			one.DisabledReason = string(*e.DisabledReason)
		}
		if e.FailingSince != nil {
			one.FailingSince = stamp(*e.FailingSince)
		}
		v.Webhooks = append(v.Webhooks, one)
	}
	return v, err
}

func (v companyWebhooks) text(w io.Writer) {
	fmt.Fprintf(w, "%s\n\n", printable(v.Company))
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
		rows = append(rows, []string{e.ID.String(), status, e.Health, dash(e.FailingSince), dash(e.LastError), strconv.Itoa(e.Open), e.URL})
	}
	table(w, "  ", rows)
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func (c *control) companyWebhookList() *cobra.Command {
	return &cobra.Command{
		Use: "list COMPANY", Short: "List a company's webhook endpoints",
		Example: "  gatewayctl company webhook list Acme",
		Args:    exactArgs("COMPANY"), ValidArgsFunction: c.completeCompanies(),
		RunE: c.run(func(ctx context.Context, s *store.Store, args []string) (answer, error) {
			company, err := findCompany(ctx, s, args[0])
			if err != nil {
				return nil, err
			}
			return viewWebhooks(ctx, webhook.New(s.DB()), company)
		}),
	}
}

func (c *control) companyWebhookDisable() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "disable COMPANY ID --reason REASON", Short: "Disable a webhook endpoint",
		Long: `Disables an endpoint, also one that is disabled for another reason. Requests in flight are finished, and
their events are delivered again later.`,
		Example: "  gatewayctl company webhook disable Acme 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b --reason 'domain sold'",
		Args:    exactArgs("COMPANY", "ID"), ValidArgsFunction: c.completeCompanies(),
		RunE: c.run(func(ctx context.Context, s *store.Store, args []string) (answer, error) {
			by, err := c.operatorWithReason(reason)
			if err != nil {
				return nil, err
			}
			return changeWebhook(ctx, s, args, func(hooks *webhook.Store, company, id uuid.UUID) error {
				return hooks.DisableAs(ctx, by, company, id)
			})
		}),
	}
	return auditReasonFlag(cmd, &reason, true)
}

func (c *control) companyWebhookEnable() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "enable COMPANY ID", Short: "Enable a webhook endpoint",
		Long: `Enables an endpoint, also one that its company or the gateway has disabled. Its deliveries continue
where they stopped, and open ones are attempted at once.`,
		Example: "  gatewayctl company webhook enable Acme 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b",
		Args:    exactArgs("COMPANY", "ID"), ValidArgsFunction: c.completeCompanies(),
		RunE: c.run(func(ctx context.Context, s *store.Store, args []string) (answer, error) {
			by, err := c.operatorIdentity(reason)
			if err != nil {
				return nil, err
			}
			return changeWebhook(ctx, s, args, func(hooks *webhook.Store, company, id uuid.UUID) error {
				return hooks.EnableAs(ctx, by, company, id)
			})
		}),
	}
	return auditReasonFlag(cmd, &reason, false)
}

// changeWebhook changes an endpoint of the company and shows all of them.
func changeWebhook(ctx context.Context, s *store.Store, args []string, change func(hooks *webhook.Store, company, id uuid.UUID) error) (answer, error) {
	id, err := uuid.Parse(args[1])
	if err != nil {
		return nil, usagef("%q is not the id of a webhook endpoint: `gatewayctl company webhook list COMPANY` shows them", args[1])
	}
	company, err := findCompany(ctx, s, args[0])
	if err != nil {
		return nil, err
	}
	hooks := webhook.New(s.DB())
	err = change(hooks, company.ID, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("%s has no webhook endpoint %s: `gatewayctl company webhook list %s` shows them", company.Name, id, shellWord(company.Name))
	}
	if err != nil {
		return nil, err
	}
	return viewWebhooks(ctx, hooks, company)
}
