// Package webhook implements gatewayctl webhook: tenants manage their webhook endpoints and
// deliveries.
package webhook

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/api/internal/ctl/tenant"
)

// webhookPath is the api's route of webhook endpoints.
const webhookPath = "/v1/webhooks"

// Command returns the command `gatewayctl webhook` with its subcommands.
func Command(c *command.Invocation) *cobra.Command {
	cmd := command.Group("webhook", "Manage the webhook endpoints of a company",
		`A webhook endpoint is a URL that receives the company's events, signed by the Standard Webhooks
specification. Failed deliveries are attempted again for three days. All commands are for tenants: they need
API_KEY with the scope webhooks:read or webhooks:write.`,
		`  gatewayctl webhook create https://erp.acme.example/hooks --types email.delivered,email.bounced
  gatewayctl webhook test 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b
  gatewayctl webhook deliveries 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b --status FAILED`)
	cmd.AddCommand(
		listCommand(c), showCommand(c), createCommand(c), updateCommand(c), deleteCommand(c),
		stepCommand(c, "rotate-secret", "Replace the secret; the old one signs too for 24 hours", false),
		stepCommand(c, "enable", "Enable an endpoint, and attempt its open deliveries at once", true),
		stepCommand(c, "disable", "Disable an endpoint: nothing is delivered until it is enabled", true),
		testCommand(c), deliveriesCommand(c), retryCommand(c), replayCommand(c),
	)
	return cmd
}

// webhookView is an endpoint. Its JSON names are those of the HTTP API.
type webhookView struct {
	ID             uuid.UUID  `json:"id"`
	URL            string     `json:"url"`
	Description    string     `json:"description,omitempty"`
	Types          []string   `json:"types"`
	Status         string     `json:"status"`
	DisabledReason string     `json:"disabledReason,omitempty"`
	Health         string     `json:"health"`
	Failures       int        `json:"consecutiveFailures"`
	FailingSince   *time.Time `json:"failingSince,omitempty"`
	LastError      string     `json:"lastError,omitempty"`
	Open           int        `json:"openDeliveries"`
	OldSecretUntil *time.Time `json:"previousSecretExpiresAt,omitempty"`
	CreatedAt      time.Time  `json:"createdAt"`
	Secret         string     `json:"secret,omitempty"`
}

func (v webhookView) WriteText(w io.Writer) {
	types := "all events"
	if len(v.Types) > 0 {
		types = strings.Join(v.Types, ", ")
	}
	fmt.Fprintf(w, "%s\n  url     %s\n  types   %s\n  status  %s", v.ID, output.Printable(v.URL), types, v.Status)
	if v.DisabledReason != "" {
		fmt.Fprintf(w, " (%s)", v.DisabledReason)
	}
	fmt.Fprintf(w, ", %s\n", v.Health)
	if v.FailingSince != nil {
		fmt.Fprintf(w, "  %s since %s, the last: %s\n", output.Plural(v.Failures, "failure", "failures"), output.Timestamp(*v.FailingSince), v.LastError)
	}
	if v.Open > 0 {
		fmt.Fprintf(w, "  %s open: gatewayctl webhook deliveries %s\n", output.Plural(v.Open, "delivery", "deliveries"), v.ID)
	}
	if v.Secret != "" {
		fmt.Fprintf(w, "  secret  %s\nThe secret is not shown again.\n", v.Secret)
	}
	if v.OldSecretUntil != nil {
		fmt.Fprintf(w, "  the replaced secret signs too until %s\n", output.Timestamp(*v.OldSecretUntil))
	}
}

type webhookViews struct {
	Webhooks []webhookView `json:"webhooks"`
}

func (v webhookViews) WriteText(w io.Writer) {
	if len(v.Webhooks) == 0 {
		fmt.Fprintln(w, "No webhook endpoints found.")
		return
	}
	rows := [][]string{{"ID", "STATUS", "HEALTH", "OPEN", "URL"}}
	for _, e := range v.Webhooks {
		rows = append(rows, []string{e.ID.String(), e.Status, e.Health, strconv.Itoa(e.Open), output.Printable(e.URL)})
	}
	output.Table(w, "", rows)
}

func listCommand(c *command.Invocation) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List webhook endpoints", Long: "Lists the company's webhook endpoints.", Example: "  gatewayctl webhook list", Args: command.ExactArgs()}
	cmd.RunE = tenant.Run(c, func(ctx context.Context, api *client.Client, _ []string) (output.Result, error) {
		var v webhookViews
		err := api.Get(ctx, webhookPath, nil, &v)
		return v, err
	})
	return cmd
}

func showCommand(c *command.Invocation) *cobra.Command {
	cmd := &cobra.Command{Use: "show ID", Short: "Show a webhook endpoint", Long: "Shows an endpoint with its health.", Example: "  gatewayctl webhook show 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b", Args: command.ExactArgs("ID")}
	cmd.RunE = tenant.Run(c, func(ctx context.Context, api *client.Client, args []string) (output.Result, error) {
		var v webhookView
		err := api.Get(ctx, webhookPath+"/"+url.PathEscape(args[0]), nil, &v)
		return v, err
	})
	return cmd
}

// webhookRequest is the request body of the api.
type webhookRequest struct {
	URL         string    `json:"url,omitempty"`
	Description *string   `json:"description,omitempty"`
	Types       *[]string `json:"types,omitempty"`
}

// webhookFlags are the flags of create and update.
type webhookFlags struct {
	description string
	types       []string
}

// add adds the flags; noText and noTypes say what an empty one means.
func (f *webhookFlags) add(cmd *cobra.Command, noText, noTypes string) {
	cmd.Flags().StringVar(&f.description, "description", "", "a description, a `TEXT` of at most 200 characters"+noText)
	cmd.Flags().StringSliceVar(&f.types, "types", nil, "event `TYPES`, such as email.bounced,email.deliver*; "+noTypes)
}

// request returns a request with the flags that were given.
func (f *webhookFlags) request(cmd *cobra.Command) (r webhookRequest) {
	if cmd.Flags().Changed("description") {
		r.Description = &f.description
	}
	if cmd.Flags().Changed("types") {
		r.Types = &f.types
	}
	return r
}

func createCommand(c *command.Invocation) *cobra.Command {
	var given webhookFlags
	cmd := &cobra.Command{
		Use: "create URL", Short: "Create a webhook endpoint",
		Long:    "Creates an endpoint, which receives the events from now on, and shows its secret once.",
		Example: "  gatewayctl webhook create https://erp.acme.example/hooks --types email.delivered,email.bounced",
		Args:    command.ExactArgs("URL"),
	}
	given.add(cmd, "", "default: all")
	cmd.RunE = tenant.Run(c, func(ctx context.Context, api *client.Client, args []string) (output.Result, error) {
		o := given.request(cmd)
		o.URL = args[0]
		var v webhookView
		err := api.Post(ctx, webhookPath, o, &v, "")
		return v, err
	})
	return cmd
}

func updateCommand(c *command.Invocation) *cobra.Command {
	var given webhookFlags
	var address string
	cmd := &cobra.Command{Use: "update ID", Short: "Change a webhook endpoint", Long: "Changes what is given.", Example: "  gatewayctl webhook update 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b --types email.bounced", Args: command.ExactArgs("ID")}
	given.add(cmd, "; empty: none", "empty: all")
	command.AllowEmpty(cmd, "description")
	command.AllowEmpty(cmd, "types")
	cmd.Flags().StringVar(&address, "url", "", "the new `URL`")
	cmd.RunE = tenant.Run(c, func(ctx context.Context, api *client.Client, args []string) (output.Result, error) {
		o := given.request(cmd)
		o.URL = address
		var v webhookView
		err := api.Patch(ctx, webhookPath+"/"+url.PathEscape(args[0]), o, &v)
		return v, err
	})
	return cmd
}

type webhookDeleted struct {
	Deleted string `json:"deleted"`
}

func (v webhookDeleted) WriteText(w io.Writer) {
	fmt.Fprintf(w, "Deleted %s with its deliveries.\n", v.Deleted)
}

func deleteCommand(c *command.Invocation) *cobra.Command {
	cmd := &cobra.Command{Use: "delete ID", Short: "Delete a webhook endpoint", Long: "Deletes an endpoint with its deliveries.", Example: "  gatewayctl webhook delete 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b", Args: command.ExactArgs("ID")}
	cmd.RunE = tenant.Run(c, func(ctx context.Context, api *client.Client, args []string) (output.Result, error) {
		return webhookDeleted{args[0]}, api.Delete(ctx, webhookPath+"/"+url.PathEscape(args[0]), nil)
	})
	return cmd
}

// stepCommand is a command that posts to a path of the endpoint and shows the endpoint. A step that is not idempotent is posted
// once.
func stepCommand(c *command.Invocation, name, short string, idempotent bool) *cobra.Command {
	cmd := &cobra.Command{Use: name + " ID", Short: short, Long: short + ".", Example: "  gatewayctl webhook " + name + " 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b", Args: command.ExactArgs("ID")}
	cmd.RunE = tenant.Run(c, func(ctx context.Context, api *client.Client, args []string) (output.Result, error) {
		var v webhookView
		path := webhookPath + "/" + url.PathEscape(args[0]) + "/" + name
		var err error
		if idempotent {
			err = api.PostAgain(ctx, path, nil, &v)
		} else {
			err = api.Post(ctx, path, nil, &v, "")
		}
		return v, err
	})
	return cmd
}
