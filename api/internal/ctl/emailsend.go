package ctl

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/shared/email"
)

// emailRequest is the request body that the flags of email send build.
type emailRequest struct {
	To        string            `json:"to"`
	CC        []string          `json:"cc,omitempty"`
	BCC       []string          `json:"bcc,omitempty"`
	Subject   string            `json:"subject"`
	HTML      string            `json:"html,omitempty"`
	Text      string            `json:"text,omitempty"`
	AutoText  *bool             `json:"autoText,omitempty"`
	ReplyTo   string            `json:"replyTo,omitempty"`
	From      string            `json:"from,omitempty"`
	Headers   map[string]string `json:"headers,omitempty"`
	Tags      []string          `json:"tags,omitempty"`
	Recipient person            `json:"recipient"`
	Priority  int               `json:"priority,omitempty"`
	SendAt    string            `json:"sendAt,omitempty"`
	Delivery  string            `json:"delivery,omitempty"`

	Attachments []emailAttachment `json:"attachments,omitempty"`
}

type person struct {
	RecipientID string `json:"recipientId,omitempty"`
	ExternalID  string `json:"externalId,omitempty"`
	Nome        string `json:"nome,omitempty"`
	RazaoSocial string `json:"razaoSocial,omitempty"`
	Email       string `json:"email"`
}

// sendOptions is the request and how to send it.
type sendOptions struct {
	emailRequest
	htmlFile, textFile, body, once string
	headers, attach                []string
	noAutoText, watch              bool
}

func (c *control) emailSend() *cobra.Command {
	var o sendOptions
	cmd := &cobra.Command{
		Use:   "send (--to ADDRESS --subject TEXT --html-file FILE --external-id ID | --body FILE)",
		Short: "Send one email",
		Long: `Sends one email over the HTTP API as the tenant whose key API_KEY is; the key needs the scope
emails:send. --external-id is the company's own id of the recipient: the same person has the
same id in every email. --body sends a complete request from a file, for fields that have no
flag.

Each run generates an Idempotency-Key and reuses it when it retries because the api does not
answer; with --idempotency-key, several runs count as one. --watch waits until the email has
reached a final status; the exit code is 1 unless that is SENT. It needs emails:read too.`,
		Example: `  gatewayctl email send --to maria@cliente.example --external-id CUST-42 --subject 'Olá' --html '<p>Olá</p>'
  gatewayctl email send --to ana@example.com --external-id 42 --subject 'Olá' --html-file ola.html --watch
  gatewayctl email send --to ana@example.com --external-id 42 --subject Nota --text Olá --attach nota.pdf
  gatewayctl email send --body request.json --idempotency-key invoice-2026-0042
  jq -n '{…}' | gatewayctl email send --body -`,
		Args: exactArgs(),
	}
	cmd.RunE = c.call(func(ctx context.Context, api *client.Client, _ []string) (answer, error) {
		return c.sendEmail(ctx, api, &o)
	})
	o.flags(cmd)
	return cmd
}

func (o *sendOptions) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.body, "body", "", "read the complete request (JSON) from `FILE`; - is standard input")
	flags.StringVar(&o.To, "to", "", "the recipient's `ADDRESS`")
	flags.StringSliceVar(&o.CC, "cc", nil, "a Cc `ADDRESS` (repeatable, at most 5)")
	flags.StringSliceVar(&o.BCC, "bcc", nil, "a Bcc `ADDRESS` (repeatable, at most 5)")
	flags.StringVar(&o.Subject, "subject", "", "the subject, a `TEXT` of 1 to 150 characters")
	flags.StringVar(&o.HTML, "html", "", "the body as `HTML`")
	flags.StringVar(&o.htmlFile, "html-file", "", "read the HTML body from `FILE`; - is standard input")
	flags.StringVar(&o.Text, "text", "", "the plain-text body, a `TEXT`")
	flags.StringVar(&o.textFile, "text-file", "", "read the plain-text body from `FILE`; - is standard input")
	flags.BoolVar(&o.noAutoText, "no-auto-text", false, "make no text part from the HTML body")
	flags.StringVar(&o.From, "from", "", "a sender other than the company's default, a `MAILBOX`")
	flags.StringVar(&o.ReplyTo, "reply-to", "", "the Reply-To `ADDRESS`")
	flags.StringArrayVar(&o.headers, "header", nil, "an additional header, as in 'X-Invoice: 42' (repeatable, at most 10 `HEADERS`)")
	flags.StringSliceVar(&o.Tags, "tag", nil, "a `TAG` to search by (repeatable, at most 5)")
	flags.StringArrayVar(&o.attach, "attach", nil, attachUsage)
	flags.StringVar(&o.Recipient.ExternalID, "external-id", "", "the company's own `ID` of the recipient")
	flags.StringVar(&o.Recipient.RecipientID, "recipient-id", "", "the gateway's `ID` of the recipient")
	flags.StringVar(&o.Recipient.Nome, "name", "", "the recipient's `NAME`")
	flags.StringVar(&o.Recipient.RazaoSocial, "company-name", "", "the `NAME` of a recipient that is a company")
	flags.IntVar(&o.Priority, "priority", 0, "the priority, `N` from 1 (highest) to 10; default 5")
	flags.StringVar(&o.SendAt, "send-at", "", "do not send before this `TIME`, as in 2026-03-01T09:00:00-03:00")
	flags.StringVar(&o.Delivery, "delivery", "", "`MODE` if the outcome is unknown: at_least_once (send again) or at_most_once")
	flags.StringVar(&o.once, "idempotency-key", "", "your own `KEY`: requests with the same key are sent once")
	flags.BoolVar(&o.watch, "watch", false, "wait for the final status, and show the progress")
	complete(cmd, "delivery", []string{"at_least_once", "at_most_once"})
	_ = cmd.MarkFlagFilename("html-file", "html", "htm")
	_ = cmd.MarkFlagFilename("body", "json")
	_ = cmd.MarkFlagFilename("attach")
	cmd.MarkFlagsMutuallyExclusive("html", "html-file")
	cmd.MarkFlagsMutuallyExclusive("text", "text-file")
	cmd.MarkFlagsOneRequired("to", "body")
	for _, flag := range []string{
		"to", "cc", "bcc", "subject", "html", "html-file", "text", "text-file", "no-auto-text", "from", "reply-to", "header", "tag", "attach",
		"external-id", "recipient-id", "name", "company-name", "priority", "send-at", "delivery",
	} {
		cmd.MarkFlagsMutuallyExclusive("body", flag)
	}
}

// request returns the body: the content of --body, or what the other flags say.
func (o *sendOptions) request(stdin io.Reader) (any, error) {
	if o.body != "" {
		return readBody(o.body, stdin)
	}
	var err error
	if o.HTML, err = inlineOrFile(o.HTML, o.htmlFile, "--html-file", stdin); err != nil {
		return nil, err
	}
	if o.Text, err = inlineOrFile(o.Text, o.textFile, "--text-file", stdin); err != nil {
		return nil, err
	}
	if o.noAutoText {
		o.AutoText = new(bool)
	}
	switch {
	case o.Subject == "":
		return nil, usagef("--subject is missing")
	case o.HTML == "" && o.Text == "":
		return nil, usagef("the body is missing: give --html, --html-file, --text or --text-file")
	case o.Recipient.ExternalID == "" && o.Recipient.RecipientID == "":
		return nil, usagef("--external-id is missing: give the company's own id of the recipient, such as a customer number (or --recipient-id)")
	}
	for _, header := range o.headers {
		name, value, found := strings.Cut(header, ":")
		if !found {
			return nil, usagef("--header %q must be a name and a value, as in 'X-Invoice: 42'", header)
		}
		if o.Headers == nil {
			o.Headers = map[string]string{}
		}
		o.Headers[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	files, err := parseAttach(o.attach)
	if err != nil {
		return nil, err
	}
	if o.Attachments, err = readAttachments(files); err != nil {
		return nil, err
	}
	o.Recipient.Email = o.To
	return o.emailRequest, nil
}

// maxRequest is the largest request body that any api accepts: attachments of 26 MiB in base64, and 2 MiB (bytes).
const maxRequest = 38 << 20

// readBody reads a complete request from a file.
func readBody(path string, stdin io.Reader) (json.RawMessage, error) {
	file := stdin
	if path != "-" {
		opened, err := os.Open(path)
		if err != nil {
			return nil, usagef("--body: %v", err)
		}
		defer opened.Close()
		file = opened
	}
	text, err := io.ReadAll(io.LimitReader(file, maxRequest+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("--body: %w", err)
	case len(text) > maxRequest:
		return nil, usagef("--body: %s is larger than 38 MiB", path)
	case !json.Valid(text):
		return nil, usagef("--body: %s does not hold JSON", path)
	}
	return text, nil
}

// acceptedEmail is the 202 response of the api.
type acceptedEmail struct {
	OutboxID  uuid.UUID    `json:"outboxId"`
	JobID     string       `json:"jobId"`
	RequestID string       `json:"requestId"`
	Status    email.Status `json:"status"`
	CreatedAt time.Time    `json:"createdAt"`
}

func (v acceptedEmail) text(w io.Writer) {
	fmt.Fprintf(w, "Email %s is accepted with status %s.\nTo follow it: gatewayctl email show %s\n", v.OutboxID, v.Status, v.OutboxID)
}

func (c *control) sendEmail(ctx context.Context, api *client.Client, o *sendOptions) (answer, error) {
	request, err := o.request(c.Stdin)
	if err != nil {
		return nil, err
	}
	once := o.once
	if once == "" {
		once = "gatewayctl-" + rand.Text()
	}
	var sent acceptedEmail
	if err := api.Post(ctx, emailPath+"/send", request, &sent, once); err != nil {
		return nil, atAttach(err, o.attach)
	}
	if !o.watch {
		return sent, nil
	}
	p := c.progress()
	defer p.end()
	return watchEmail(ctx, api, sent.OutboxID, p)
}

// sendResult is the result of email send --watch.
type sendResult struct{ emailView }

// failure makes the command fail unless the email was sent.
func (v sendResult) failure() error {
	if v.Status == email.Sent {
		return nil
	}
	return fmt.Errorf("the email is %s", v.Status)
}

// watchEmail polls the email until its status is final. It reports progress to p.
func watchEmail(ctx context.Context, api *client.Client, id uuid.UUID, p *progress) (answer, error) {
	tick := time.NewTicker(redrawEvery)
	defer tick.Stop()
	lastAnswer := time.Now()
	for {
		v, err := fetchEmail(ctx, api, id)
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("interrupted; the email is still being processed: run `gatewayctl email show %s` to check it", id)
		case err == nil && v.Status.Final():
			p.end()
			return sendResult{v}, nil
		case err == nil:
			lastAnswer = time.Now()
			p.update(step{what: string(v.Status), text: "since it was accepted " + span(time.Since(v.CreatedAt))})
		case !transient(err) || time.Since(lastAnswer) > watchTimeout:
			return nil, err
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}
