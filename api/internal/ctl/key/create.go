package key

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/apikey"
	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/clientip"
	"email-gateway/shared/rules"
	"email-gateway/shared/store"
	"email-gateway/shared/store/tenant"
)

// keyCreated holds the complete key; no other output does.
type keyCreated struct {
	Key string `json:"key"`
	tenant.APIKey
	company string
}

func createCommand(c *command.Invocation) *cobra.Command {
	var given, environment, reason, expires string
	key := tenant.APIKey{}
	var scopes, networks []string
	cmd := &cobra.Command{
		Use:   "create --company COMPANY",
		Short: "Create an API key and show it once",
		Long: fmt.Sprintf(`Creates an API key and shows it once. Programs send it with each request as
"Authorization: Bearer KEY" or "X-API-Key: KEY".

Scopes:
  %s`, strings.Join(apikey.Scopes(), "\n  ")),
		Example: `  gatewayctl key create --company Acme
  gatewayctl key create --company Acme --name invoicing --env test --scopes emails:send --rate 50 --burst 100
  gatewayctl key create --company Acme --expires 90d --networks 203.0.113.0/24,2001:db8::/32
  API_KEY=$(gatewayctl key create --company Acme --json | jq -r .key)`,
		Args: command.ExactArgs(),
		RunE: operator.Run(c, func(ctx context.Context, s *store.Store, _ []string) (output.Result, error) {
			if err := checkKey(&key, environment, scopes); err != nil {
				return nil, err
			}
			if err := limitKey(&key, expires, networks, time.Now()); err != nil {
				return nil, err
			}
			by, err := operator.Identity(c, reason)
			if err != nil {
				return nil, err
			}
			company, err := operator.FindCompany(ctx, s, given)
			if err != nil {
				return nil, err
			}
			made, err := apikey.New(environment)
			if err != nil {
				return nil, err
			}
			key.KeyID, key.CompanyID, key.SecretSHA256 = made.ID, company.ID, made.SecretSHA256()
			created, err := s.CreateAPIKey(ctx, by, key)
			if err != nil {
				return nil, err
			}
			return keyCreated{Key: made.String(), APIKey: created, company: company.Name}, nil
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&key.Name, "name", "default", "a `NAME` for the key, such as the program that uses it")
	flags.StringVar(&environment, "env", "live", "the `ENVIRONMENT` that is part of the key: live, test or dev")
	flags.StringSliceVar(&scopes, "scopes", []string{apikey.EmailsSend, apikey.EmailsRead}, "the `SCOPES` of the key, comma-separated")
	flags.IntVar(&key.RatePerSecond, "rate", 200, "at most `N` requests per second; 0 = no limit")
	flags.IntVar(&key.Burst, "burst", 400, "allow bursts of up to `N` requests")
	flags.StringVar(&expires, "expires", "", "when the key expires: a `TIME` such as 90d, 12h or 2027-01-31")
	flags.StringSliceVar(&networks, "networks", nil, "the only `NETWORKS` it may be used from, comma-separated")
	command.CompleteFlag(cmd, "env", environments())
	_ = cmd.RegisterFlagCompletionFunc("scopes", completeScopes)
	return operator.CompanyFlag(c, operator.ReasonFlag(cmd, &reason, false), &given)
}

func environments() []string { return []string{"live", "test", "dev"} }

// completeScopes offers the scopes that are not in the list yet, each with the list typed
// so far as prefix: a shell replaces the whole word.
func completeScopes(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	given := strings.Split(typed, ",")
	before := strings.Join(append(given[:len(given)-1:len(given)-1], ""), ",")
	var words []string
	for _, scope := range apikey.Scopes() {
		if !slices.Contains(given[:len(given)-1], scope) && strings.HasPrefix(before+scope, typed) {
			words = append(words, before+scope)
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

// checkKey validates the flags and copies them into the key.
func checkKey(key *tenant.APIKey, environment string, scopes []string) error {
	if !slices.Contains(environments(), environment) {
		return command.Usagef("--env %q must be %s", environment, strings.Join(environments(), ", "))
	}
	if key.Name = strings.TrimSpace(output.Printable(key.Name)); key.Name == "" {
		return command.Usagef("--name must not be empty: say what the key is for")
	}
	for _, scope := range scopes {
		if !slices.Contains(apikey.Scopes(), scope) {
			return command.Usagef("--scopes: unknown scope %q; the scopes are %s", scope, strings.Join(apikey.Scopes(), ", "))
		}
	}
	if key.RatePerSecond < 0 || key.Burst < 0 || (key.RatePerSecond > 0 && key.Burst == 0) {
		return command.Usagef("--rate must be 0 (no limit) or more, and --burst at least 1 if --rate is set")
	}
	key.Environment = environment
	key.Scopes = slices.Compact(slices.Sorted(slices.Values(scopes)))
	return nil
}

// limitKey parses the expiry and the networks of a key.
func limitKey(key *tenant.APIKey, expires string, networks []string, now time.Time) error {
	key.ExpiresAt, key.Networks = nil, nil
	if expires != "" {
		at, ok := momentOf(expires, now)
		if !ok {
			return command.Usagef("--expires %q must be a duration from now, such as 90d or 12h, a day (2027-01-31) or a timestamp with its zone (2027-01-31T12:00:00Z)", expires)
		}
		if !at.After(now) {
			return command.Usagef("--expires %q is in the past: the key would never be valid", expires)
		}
		key.ExpiresAt = &at
	}
	allowed, err := clientip.ParseNetworks(strings.Join(networks, ","))
	if err != nil {
		return command.Usagef("--networks: %v", err)
	}
	for _, network := range allowed {
		key.Networks = append(key.Networks, network.String())
	}
	return nil
}

// momentOf parses days or a duration from now, a day (midnight UTC) or a timestamp.
func momentOf(text string, now time.Time) (time.Time, bool) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n > 0 && n <= 36500 {
			return now.AddDate(0, 0, n).UTC().Truncate(time.Second), true
		}
	}
	if after, err := time.ParseDuration(text); err == nil {
		return now.Add(after).UTC().Truncate(time.Second), true
	}
	at, err := time.Parse(time.DateOnly, text)
	if err != nil {
		at, err = rules.ParseTime(text)
	}
	return at.UTC(), err == nil
}

func (v keyCreated) WriteText(w io.Writer) {
	fmt.Fprintf(w, "API key for %s:\n\n    %s\n\n", output.Printable(v.company), v.Key)
	fmt.Fprint(w, "Store it now: it is not shown again. The gateway stores only a hash.\n\n")
	output.Table(w, "  ", [][]string{
		{"key id", v.KeyID},
		{"name", v.Name},
		{"scopes", strings.Join(v.Scopes, ", ")},
		{"rate", keyRate(v.APIKey)},
		{"expires", keyExpiry(v.APIKey)},
		{"networks", keyNetworks(v.APIKey)},
		{"to revoke it", "gatewayctl key revoke " + v.KeyID + " --reason …"},
	})
}
