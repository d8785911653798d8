package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
)

// call makes the body of a tenant's command: do is given a client of the HTTP API, and
// its answer is printed.
func (c *control) call(do func(ctx context.Context, api *client.Client, args []string) (answer, error)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c.began = true
		api, err := c.api()
		if err != nil {
			return err
		}
		defer api.Close()
		found, err := do(cmd.Context(), api, args)
		if err != nil {
			return adviseTenant(err)
		}
		return c.print(found)
	}
}

// defaultAPI is where an api listens that was told nothing else.
const defaultAPI = "http://127.0.0.1:8080"

// api is a client of the api that the environment names.
func (c *control) api() (*client.Client, error) {
	key := c.Getenv("API_KEY")
	if key == "" {
		return nil, usagef("API_KEY is not set: it is a key of the company that this is for, and `gatewayctl key create` makes one")
	}
	api, err := client.New(cmp.Or(c.Getenv("API_URL"), defaultAPI), key)
	if err != nil {
		return nil, usagef("API_URL %v", err)
	}
	return api, nil
}

// adviseTenant adds to the api's errors what a person can do about them.
func adviseTenant(err error) error {
	var refused *client.Problem
	var silent *client.UnreachableError
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("interrupted: %w", err)
	case errors.As(err, &silent) && !silent.Began:
		return fmt.Errorf("%w (is the api running, and API_URL right? nothing was changed)", err)
	case errors.As(err, &silent):
		return fmt.Errorf("%w (look before you try again: it may have been done)", err)
	case errors.As(err, &refused):
		if advice := adviceOn(refused.Code); advice != "" {
			return fmt.Errorf("%w\n%s", err, advice)
		}
	}
	return err
}

// adviceOn is a sentence; "" where the api has said it all.
func adviceOn(code string) string {
	switch code {
	case "UNAUTHORIZED":
		return "Is API_KEY of this installation, and not revoked? `gatewayctl key list --company COMPANY` shows, `gatewayctl key create` makes one."
	case "SCOPE_MISSING":
		return "`gatewayctl key create --company COMPANY --scopes …` makes a key with it."
	case "COMPANY_SUSPENDED":
		return "An operator did that: `gatewayctl company show COMPANY` tells why, `gatewayctl company resume COMPANY` takes it back."
	case "TOO_MANY_BODIES", "TOO_MANY_UPLOADS":
		return "Other requests of the company are on their way: try again when they have ended."
	case "RATE_LIMITED":
		return "It was tried for a minute. Other programs use the same key: make one for yourself, or with another --rate."
	case "NOT_FOUND":
		return "Only what belongs to the company of API_KEY is found."
	case "DATABASE_UNAVAILABLE", "STORAGE_UNAVAILABLE", "BUSY":
		return "Nothing was changed: try again in a moment. `gatewayctl doctor` tells what is wrong."
	case "BULK_DISABLED":
		return "Single emails are sent all the same: gatewayctl email send."
	}
	return ""
}
