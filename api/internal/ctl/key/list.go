package key

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/store"
	"email-gateway/shared/store/tenant"
)

// List is a list of keys, without their secrets.
type List struct {
	Keys []tenant.APIKey `json:"keys"`
}

func listCommand(c *command.Invocation) *cobra.Command {
	var given string
	cmd := &cobra.Command{
		Use: "list --company COMPANY", Short: "List a company's keys, including revoked ones",
		Example: "  gatewayctl key list --company Acme",
		Args:    command.ExactArgs(),
		RunE: operator.Run(c, func(ctx context.Context, s *store.Store, _ []string) (output.Result, error) {
			company, err := operator.FindCompany(ctx, s, given)
			if err != nil {
				return nil, err
			}
			keys, err := s.APIKeys(ctx, company.ID)
			return List{append([]tenant.APIKey{}, keys...)}, err
		}),
	}
	return operator.CompanyFlag(c, cmd, &given)
}

// WriteText writes a row for each key.
func (v List) WriteText(w io.Writer) {
	if len(v.Keys) == 0 {
		fmt.Fprintln(w, "No API keys yet: see `gatewayctl key create --help`.")
		return
	}
	rows := [][]string{{"KEY ID", "NAME", "ENV", "SCOPES", "RATE", "NETWORKS", "CREATED", "STATE"}}
	for _, k := range v.Keys {
		rows = append(rows, []string{
			k.KeyID, k.Name, k.Environment, strings.Join(k.Scopes, ","), keyRate(k), keyNetworks(k), output.Timestamp(k.CreatedAt), keyState(k),
		})
	}
	output.Table(w, "", rows)
}

func keyRate(k tenant.APIKey) string {
	if k.RatePerSecond == 0 {
		return "no limit"
	}
	return fmt.Sprintf("%d/s, burst %d", k.RatePerSecond, k.Burst)
}

func keyExpiry(k tenant.APIKey) string {
	if k.ExpiresAt == nil {
		return "never"
	}
	return output.Timestamp(*k.ExpiresAt)
}

func keyNetworks(k tenant.APIKey) string {
	if len(k.Networks) == 0 {
		return "any"
	}
	return strings.Join(k.Networks, ",")
}

func keyState(k tenant.APIKey) string {
	switch {
	case k.Expired(time.Now()) && (k.RevokedAt == nil || k.ExpiresAt.Before(*k.RevokedAt)):
		return "expired " + output.Timestamp(*k.ExpiresAt)
	case k.RevokedAt == nil && k.ExpiresAt != nil:
		return "active until " + output.Timestamp(*k.ExpiresAt)
	case k.RevokedAt == nil:
		return "active"
	case !k.Revoked(time.Now()):
		return "active until " + output.Timestamp(*k.RevokedAt)
	}
	return "revoked " + output.Timestamp(*k.RevokedAt)
}
