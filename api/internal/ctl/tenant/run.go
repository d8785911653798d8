// Package tenant runs the commands of tenants, which call the HTTP API at API_URL with API_KEY.
// It provides what they share: advice on the api's errors, reading lists page by page, and
// shell completion from the api.
package tenant

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/output"
)

// Run returns the RunE of a tenant's command: it calls do with a client of the HTTP API, and
// prints the result.
func Run(c *command.Invocation, do func(ctx context.Context, api *client.Client, args []string) (output.Result, error)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c.Parsed = true
		api, err := newClient(c)
		if err != nil {
			return err
		}
		defer api.Close()
		found, err := do(cmd.Context(), api, args)
		if err != nil {
			return withAdvice(err)
		}
		return c.Print(found)
	}
}

// DefaultURL is the default value of API_URL.
const DefaultURL = "http://127.0.0.1:8080"

// newClient returns a client for API_URL and API_KEY.
func newClient(c *command.Invocation) (*client.Client, error) {
	key := c.Getenv("API_KEY")
	if key == "" {
		return nil, command.Usagef("API_KEY is not set: give an API key of the company; `gatewayctl key create` creates one")
	}
	api, err := client.New(cmp.Or(c.Getenv("API_URL"), DefaultURL), key)
	if err != nil {
		return nil, command.Usagef("API_URL %v", err)
	}
	return api, nil
}

// withAdvice appends to the api's errors what a user can do.
func withAdvice(err error) error {
	var refused *client.Problem
	var unreachable *client.UnreachableError
	var unknown *client.UnknownError
	if errors.Is(err, context.Canceled) {
		err = fmt.Errorf("interrupted: %w", err)
	}
	switch {
	case errors.As(err, &unknown) && unknown.IdempotencyKey != "":
		return fmt.Errorf("%w\nThe request may have been processed. To repeat it without sending anything twice, add --idempotency-key %s", err, unknown.IdempotencyKey)
	case errors.As(err, &unknown):
		return fmt.Errorf("%w (the request may have been processed: check before you repeat the command)", err)
	case errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &unreachable) && !unreachable.Began:
		return fmt.Errorf("%w (nothing was changed: check that the api is running and that API_URL is right)", err)
	case errors.As(err, &refused):
		if advice := adviceOn(refused.Code); advice != "" {
			return fmt.Errorf("%w\n%s", err, advice)
		}
	}
	return err
}

// adviceOn returns advice for an error code; "" if the api's message is enough.
func adviceOn(code string) string {
	switch code {
	case "UNAUTHORIZED":
		return "Check that API_KEY belongs to this installation and is not revoked (`gatewayctl key list --company COMPANY`); `gatewayctl key create` creates one."
	case "SCOPE_MISSING":
		return "`gatewayctl key create --company COMPANY --scopes …` creates a key with this scope."
	case "COMPANY_SUSPENDED":
		return "An operator suspended it: `gatewayctl company show COMPANY` shows why, `gatewayctl company resume COMPANY` resumes it."
	case "TOO_MANY_BODIES", "TOO_MANY_UPLOADS", "TOO_MANY_DOWNLOADS":
		return "Other requests of the company are in progress: retry when they have finished."
	case "RATE_LIMITED":
		return "Nothing was changed: retry in a moment. If other programs use the same key, create a separate key, or one with a higher --rate."
	case "NOT_FOUND":
		return "Only objects of the company that owns API_KEY are found."
	case "DATABASE_UNAVAILABLE": // whether something was changed is in the detail
		return "`gatewayctl doctor` shows what is wrong."
	case "STORAGE_UNAVAILABLE", "EVENTS_UNAVAILABLE", "BUSY":
		return "Nothing was changed: retry in a moment. `gatewayctl doctor` shows what is wrong."
	case "BULK_DISABLED":
		return "Single emails are still sent: gatewayctl email send."
	}
	return ""
}
