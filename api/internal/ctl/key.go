package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/apikey"
	"email-gateway/shared/clientip"
	"email-gateway/shared/store"
)

func (c *control) key() *cobra.Command {
	cmd := group("key", "Create, list and revoke API keys",
		`An API key authenticates a company's programs to the HTTP API. It is shown only once, when it
is created: the gateway stores only the SHA-256 of its secret.`,
		`  gatewayctl key create --company Acme --scopes emails:send
  gatewayctl key revoke 7qkz3w5hj2xn6b4c --reason 'leaked in a public repository'`)
	cmd.AddCommand(c.keyCreate(), c.keyList(), c.keyRotate(), c.keyRevoke())
	return cmd
}

// keyCreated holds the complete key; no other output does.
type keyCreated struct {
	Key string `json:"key"`
	store.APIKey
	company string
}

func (c *control) keyCreate() *cobra.Command {
	var given, environment, reason, expires string
	key := store.APIKey{}
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
		Args: exactArgs(),
		RunE: c.run(func(ctx context.Context, s *store.Store, _ []string) (answer, error) {
			if err := checkKey(&key, environment, scopes); err != nil {
				return nil, err
			}
			if err := limitKey(&key, expires, networks, time.Now()); err != nil {
				return nil, err
			}
			by, err := c.operatorIdentity(reason)
			if err != nil {
				return nil, err
			}
			company, err := findCompany(ctx, s, given)
			if err != nil {
				return nil, err
			}
			made, err := apikey.New(environment)
			if err != nil {
				return nil, err
			}
			key.KeyID, key.CompanyID, key.SecretSHA256 = made.ID, company.ID, made.SecretSHA256()
			if err := s.CreateAPIKey(ctx, by, key); err != nil {
				return nil, err
			}
			stored, err := s.FindCaller(ctx, made.ID)
			return keyCreated{Key: made.String(), APIKey: stored.APIKey, company: company.Name}, err
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
	complete(cmd, "env", environments())
	_ = cmd.RegisterFlagCompletionFunc("scopes", completeScopes)
	return c.ofCompany(auditReasonFlag(cmd, &reason, false), &given)
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
func checkKey(key *store.APIKey, environment string, scopes []string) error {
	if !slices.Contains(environments(), environment) {
		return usagef("--env %q must be %s", environment, strings.Join(environments(), ", "))
	}
	if key.Name = strings.TrimSpace(printable(key.Name)); key.Name == "" {
		return usagef("--name must not be empty: say what the key is for")
	}
	if len(scopes) == 0 {
		return usagef("--scopes must name at least one of %s", strings.Join(apikey.Scopes(), ", "))
	}
	for _, scope := range scopes {
		if !slices.Contains(apikey.Scopes(), scope) {
			return usagef("--scopes: unknown scope %q; the scopes are %s", scope, strings.Join(apikey.Scopes(), ", "))
		}
	}
	if key.RatePerSecond < 0 || key.Burst < 0 || (key.RatePerSecond > 0 && key.Burst == 0) {
		return usagef("--rate must be 0 (no limit) or more, and --burst at least 1 if --rate is set")
	}
	key.Environment = environment
	key.Scopes = slices.Compact(slices.Sorted(slices.Values(scopes)))
	return nil
}

// limitKey parses the expiry and the networks of a key.
func limitKey(key *store.APIKey, expires string, networks []string, now time.Time) error {
	key.ExpiresAt, key.Networks = nil, nil
	if expires != "" {
		at, ok := momentOf(expires, now)
		if !ok {
			return usagef("--expires %q must be a duration from now, such as 90d or 12h, a day (2027-01-31) or a timestamp with its zone (2027-01-31T12:00:00Z)", expires)
		}
		if !at.After(now) {
			return usagef("--expires %q is in the past: the key would never be valid", expires)
		}
		key.ExpiresAt = &at
	}
	allowed, err := clientip.ParseNetworks(strings.Join(networks, ","))
	if err != nil {
		return usagef("--networks: %v", err)
	}
	if len(networks) > 0 && len(allowed) == 0 {
		return usagef("--networks must name at least one network, such as 203.0.113.0/24")
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
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if at, err := time.Parse(layout, text); err == nil {
			return at.UTC(), true
		}
	}
	return time.Time{}, false
}

func (v keyCreated) text(w io.Writer) {
	fmt.Fprintf(w, "API key for %s:\n\n    %s\n\n", printable(v.company), v.Key)
	fmt.Fprint(w, "Store it now: it is not shown again. The gateway stores only a hash.\n\n")
	table(w, "  ", [][]string{
		{"key id", v.KeyID},
		{"name", v.Name},
		{"scopes", strings.Join(v.Scopes, ", ")},
		{"rate", keyRate(v.APIKey)},
		{"expires", keyExpiry(v.APIKey)},
		{"networks", keyNetworks(v.APIKey)},
		{"to revoke it", "gatewayctl key revoke " + v.KeyID + " --reason …"},
	})
}

type keyList struct {
	Keys []store.APIKey `json:"keys"`
}

func (c *control) keyList() *cobra.Command {
	var given string
	cmd := &cobra.Command{
		Use: "list --company COMPANY", Short: "List a company's keys, including revoked ones",
		Example: "  gatewayctl key list --company Acme",
		Args:    exactArgs(),
		RunE: c.run(func(ctx context.Context, s *store.Store, _ []string) (answer, error) {
			company, err := findCompany(ctx, s, given)
			if err != nil {
				return nil, err
			}
			keys, err := s.APIKeys(ctx, company.ID)
			return keyList{append([]store.APIKey{}, keys...)}, err
		}),
	}
	return c.ofCompany(cmd, &given)
}

func (v keyList) text(w io.Writer) {
	if len(v.Keys) == 0 {
		fmt.Fprintln(w, "No API keys yet: see `gatewayctl key create --help`.")
		return
	}
	rows := [][]string{{"KEY ID", "NAME", "ENV", "SCOPES", "RATE", "NETWORKS", "CREATED", "STATE"}}
	for _, k := range v.Keys {
		rows = append(rows, []string{
			k.KeyID, k.Name, k.Environment, strings.Join(k.Scopes, ","), keyRate(k), keyNetworks(k), stamp(k.CreatedAt), keyState(k),
		})
	}
	table(w, "", rows)
}

type keyRevoked struct{ store.APIKey }

func (c *control) keyRevoke() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "revoke KEYID --reason WHY",
		Short: "Revoke a key permanently",
		Long: `Revokes a key permanently. Programs that still use it get 401 within 5 s. Emails that were
accepted with it are still sent.`,
		Example: "  gatewayctl key revoke 7qkz3w5hj2xn6b4c --reason 'leaked in a public repository'",
		Args:    exactArgs("KEYID"), ValidArgsFunction: c.completeKeys(),
		RunE: c.run(func(ctx context.Context, s *store.Store, args []string) (answer, error) {
			by, err := c.operatorWithReason(reason)
			if err != nil {
				return nil, err
			}
			id := keyID(args[0])
			err = s.RevokeAPIKey(ctx, by, id)
			if errors.Is(err, store.ErrNotFound) {
				// Do not repeat the argument: it may contain a secret.
				return nil, errors.New("no key has this id: run `gatewayctl key list --company COMPANY` to see a company's keys")
			}
			if err != nil {
				return nil, err
			}
			revoked, err := s.FindCaller(ctx, id)
			return keyRevoked{revoked.APIKey}, err
		}),
	}
	return auditReasonFlag(cmd, &reason, true)
}

// keyID returns the public part of the argument: people paste whole keys.
func keyID(given string) string {
	if key, err := apikey.Parse(given); err == nil {
		return key.ID
	}
	return given
}

func (v keyRevoked) text(w io.Writer) {
	if v.RevokedAt == nil {
		fmt.Fprintf(w, "Key %s (%s) expired at %s.\n", v.KeyID, printable(v.Name), stamp(v.Ends()))
		return
	}
	fmt.Fprintf(w, "Key %s (%s) was revoked at %s. Requests may still be accepted for up to 5 s.\n", v.KeyID, printable(v.Name), stamp(*v.RevokedAt))
}

func keyRate(k store.APIKey) string {
	if k.RatePerSecond == 0 {
		return "no limit"
	}
	return fmt.Sprintf("%d/s, burst %d", k.RatePerSecond, k.Burst)
}

func keyExpiry(k store.APIKey) string {
	if k.ExpiresAt == nil {
		return "never"
	}
	return stamp(*k.ExpiresAt)
}

func keyNetworks(k store.APIKey) string {
	if len(k.Networks) == 0 {
		return "any"
	}
	return strings.Join(k.Networks, ",")
}

func keyState(k store.APIKey) string {
	switch {
	case k.Expired(time.Now()) && (k.RevokedAt == nil || k.ExpiresAt.Before(*k.RevokedAt)):
		return "expired " + stamp(*k.ExpiresAt)
	case k.RevokedAt == nil && k.ExpiresAt != nil:
		return "active until " + stamp(*k.ExpiresAt)
	case k.RevokedAt == nil:
		return "active"
	case !k.Revoked(time.Now()):
		return "active until " + stamp(*k.RevokedAt)
	}
	return "revoked " + stamp(*k.RevokedAt)
}

// complete registers the values of a flag for shell completion.
func complete(cmd *cobra.Command, flag string, values []string) {
	offer := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return values, cobra.ShellCompDirectiveNoFileComp
	}
	_ = cmd.RegisterFlagCompletionFunc(flag, offer) // fails only for a flag that does not exist
}
