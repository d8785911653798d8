package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"email-gateway/scripts/chaos/receiver"
	"email-gateway/scripts/local/programs"
)

// endpoints are the tenants' webhook endpoints: two of one company, one of which filters, and one of
// a company that sends few emails.
func endpoints() []receiver.Spec {
	return []receiver.Spec{
		{Name: "hook-1", Company: Companies()[0]},
		{Name: "hook-2", Company: Companies()[0], Types: []string{"email.sent", "email.failed", "email.deliver*"}},
		{Name: "hook-3", Company: QuietCompany},
	}
}

// CreateWebhooks creates the webhook endpoints of the company, as it does with its key.
func (c *Cluster) CreateWebhooks(ctx context.Context, company, key string) error {
	for _, e := range c.Receivers.Endpoints {
		if e.Company != company {
			continue
		}
		args := []string{"webhook", "create", e.URL, "--json"}
		if len(e.Types) > 0 {
			args = append(args, "--types", strings.Join(e.Types, ","))
		}
		tenant := programs.Environ(map[string]string{"API_URL": c.APIs()[0], "API_KEY": key})
		out, err := programs.Output(ctx, tenant, c.bin("gatewayctl"), args...)
		if err != nil {
			return err
		}
		var made struct{ Secret string }
		if err := json.Unmarshal(out, &made); err != nil || made.Secret == "" {
			return fmt.Errorf("gatewayctl webhook create of %s printed no secret", e.Name)
		}
		if err := e.SetSecret(made.Secret); err != nil {
			return err
		}
	}
	return nil
}
