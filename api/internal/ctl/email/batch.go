package email

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/api/internal/ctl/tenant"
	"email-gateway/shared/email"
)

// batchOptions say how to send a file of emails.
type batchOptions struct {
	once    string
	partial bool
}

func sendBatchCommand(c *command.Invocation) *cobra.Command {
	var o batchOptions
	cmd := &cobra.Command{
		Use:   "send-batch FILE",
		Short: "Send the emails in a file",
		Long: `Sends emails over the HTTP API as the tenant whose key API_KEY is; the key needs the scope
emails:send. FILE holds one request of POST /v1/email/send per line (JSON lines), or a JSON array
of them; - is standard input.

Up to 500 emails, and 10 MiB, are one batch: they are accepted together or not at all. A larger
file is sent as several batches, one after the other. An invalid email rejects its batch and ends
the command; batches before it stay accepted. With --partial only the invalid emails are
rejected; they are listed, and the exit code is 1.

Each run generates an Idempotency-Key and reuses it when it retries because the api does not
answer. With --idempotency-key, repeating the command with the same file sends only what
was not accepted before: batch 2 has the key KEY-2, and so on.`,
		Example: `  gatewayctl email send-batch invoices.jsonl --idempotency-key invoices-2026-03
  gatewayctl email send-batch invoices.json --partial --json
  jq -c '.[]' invoices.json | gatewayctl email send-batch -`,
		Args: command.ExactArgs("FILE"),
	}
	cmd.RunE = tenant.Run(c, func(ctx context.Context, api *client.Client, args []string) (output.Result, error) {
		file, done, err := openInput(c, args[0])
		if err != nil {
			return nil, err
		}
		defer done()
		return sendBatches(ctx, api, newBatchFile(file), o)
	})
	cmd.Flags().StringVar(&o.once, "idempotency-key", "", "your own `KEY`: batches with the same key are sent once")
	cmd.Flags().BoolVar(&o.partial, "partial", false, "accept the valid emails of a batch with invalid ones")
	return cmd
}

// batchAnswer is the 202 response of the api, and the result of the command.
type batchAnswer struct {
	Accepted   int         `json:"accepted"`
	Duplicates int         `json:"duplicates"`
	Rejected   int         `json:"rejected"`
	Emails     []batchItem `json:"emails"`
}

// batchItem is the result of one email. Index counts from 0 in the file.
type batchItem struct {
	Index     int           `json:"index"`
	Result    string        `json:"result"`
	OutboxID  *uuid.UUID    `json:"outboxId,omitempty"`
	RequestID string        `json:"requestId,omitempty"`
	Status    email.Status  `json:"status,omitempty"`
	CreatedAt string        `json:"createdAt,omitempty"`
	Error     *batchProblem `json:"error,omitempty"`
}

type batchProblem struct {
	Status int            `json:"status"`
	Code   string         `json:"code"`
	Detail string         `json:"detail"`
	Errors []client.Fault `json:"errors,omitempty"`
}

// sendBatches sends the emails of a file.
func sendBatches(ctx context.Context, api *client.Client, file *batchFile, o batchOptions) (output.Result, error) {
	once := o.once
	if once == "" {
		once = "gatewayctl-" + rand.Text()
	}
	query := url.Values{}
	if o.partial {
		query.Set("mode", "partial")
	}
	all := batchAnswer{Emails: []batchItem{}}
	for n := 1; ; n++ {
		first := len(all.Emails)
		emails, err := file.next()
		if errors.Is(err, io.EOF) && n > 1 {
			return all, nil
		}
		if err != nil {
			return nil, all.interrupted(err, once)
		}
		key := once
		if n > 1 {
			key += "-" + strconv.Itoa(n)
		}
		var made batchAnswer
		request := map[string][]json.RawMessage{"emails": emails}
		if err := api.PostQuery(ctx, emailPath+"/batch", query, request, &made, key); err != nil {
			return nil, all.interrupted(atIndex(err, first), once)
		}
		all.add(made, first)
	}
}

func (v *batchAnswer) add(made batchAnswer, first int) {
	v.Accepted += made.Accepted
	v.Duplicates += made.Duplicates
	v.Rejected += made.Rejected
	for _, item := range made.Emails {
		item.Index += first
		if e := item.Error; e != nil {
			e.Detail = shiftIndex(e.Detail, first)
			for i := range e.Errors {
				e.Errors[i].Field = shiftIndex(e.Errors[i].Field, first)
			}
		}
		v.Emails = append(v.Emails, item)
	}
}

// interrupted says what is accepted although the command failed. once is the key of the first batch, which the command
// takes: those of the other batches are made from it.
func (v *batchAnswer) interrupted(err error, once string) error {
	var unknown *client.UnknownError
	switch {
	case errors.As(err, &unknown) && len(v.Emails) > 0:
		unknown.IdempotencyKey = once
		return fmt.Errorf("%w\nBefore that, %s processed", err, output.Plural(len(v.Emails), "email was", "emails were"))
	case errors.As(err, &unknown):
		unknown.IdempotencyKey = once
		return err
	case len(v.Emails) == 0:
		return err
	}
	return fmt.Errorf("%w\nBefore that, %s processed. To send the rest, correct the error and repeat the command with --idempotency-key %s",
		err, output.Plural(len(v.Emails), "email was", "emails were"), once)
}

// atIndex makes the indexes in a problem those of the file.
func atIndex(err error, first int) error {
	var refused *client.Problem
	if errors.As(err, &refused) {
		refused.Detail = shiftIndex(refused.Detail, first)
		for i := range refused.Faults {
			refused.Faults[i].Field = shiftIndex(refused.Faults[i].Field, first)
		}
	}
	return err
}

var itemIndex = regexp.MustCompile(`^emails\[(\d+)\]`)

// shiftIndex adds first to the index at the beginning of a text.
func shiftIndex(text string, first int) string {
	return itemIndex.ReplaceAllStringFunc(text, func(found string) string {
		i, err := strconv.Atoi(strings.Trim(found, "emails[]"))
		if err != nil {
			return found
		}
		return "emails[" + strconv.Itoa(i+first) + "]"
	})
}

func (v batchAnswer) WriteText(w io.Writer) {
	fmt.Fprintf(w, "%s accepted, %d duplicates, %d rejected.\n", output.Plural(v.Accepted, "email", "emails"), v.Duplicates, v.Rejected)
	for _, item := range v.Emails {
		if item.Error == nil {
			continue
		}
		fmt.Fprintf(w, "emails[%d] %s: %s\n", item.Index, item.Error.Code, item.Error.Detail)
		for _, f := range item.Error.Errors {
			if len(item.Error.Errors) > 1 {
				fmt.Fprintf(w, "  %s %s (%s)\n", f.Field, f.Message, f.Code)
			}
		}
	}
	if v.Accepted > 0 {
		fmt.Fprintf(w, "To follow them: gatewayctl email list --request-id %s\n", v.requestOf())
	}
}

// requestOf is the request id of the last batch that created an email.
func (v batchAnswer) requestOf() (id string) {
	for _, item := range v.Emails {
		if item.Result == "accepted" {
			id = item.RequestID
		}
	}
	return id
}

// Failure makes the command fail if an email was rejected.
func (v batchAnswer) Failure() error {
	if v.Rejected == 0 {
		return nil
	}
	return fmt.Errorf("%s rejected", output.Plural(v.Rejected, "email was", "emails were"))
}
