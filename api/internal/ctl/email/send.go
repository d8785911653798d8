package email

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/api/internal/ctl/attachment"
	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/api/internal/ctl/tenant"
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

	Attachments []attachment.Attachment `json:"attachments,omitempty"`
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

func sendCommand(c *command.Invocation) *cobra.Command {
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
		Args: command.ExactArgs(),
	}
	cmd.RunE = tenant.Run(c, func(ctx context.Context, api *client.Client, _ []string) (output.Result, error) {
		return sendEmail(ctx, c, api, &o)
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
	flags.StringArrayVar(&o.attach, "attach", nil, attachment.FlagUsage)
	flags.StringVar(&o.Recipient.ExternalID, "external-id", "", "the company's own `ID` of the recipient")
	flags.StringVar(&o.Recipient.RecipientID, "recipient-id", "", "the gateway's `ID` of the recipient")
	flags.StringVar(&o.Recipient.Nome, "name", "", "the recipient's `NAME`")
	flags.StringVar(&o.Recipient.RazaoSocial, "company-name", "", "the `NAME` of a recipient that is a company")
	flags.IntVar(&o.Priority, "priority", 0, "the priority, `N` from 1 (highest) to 10; default 5")
	flags.StringVar(&o.SendAt, "send-at", "", "do not send before this `TIME`, as in 2026-03-01T09:00:00-03:00")
	flags.StringVar(&o.Delivery, "delivery", "", "`MODE` if the outcome is unknown: at_least_once (send again) or at_most_once")
	flags.StringVar(&o.once, "idempotency-key", "", "your own `KEY`: requests with the same key are sent once")
	flags.BoolVar(&o.watch, "watch", false, "wait for the final status, and show the progress")
	command.CompleteFlag(cmd, "delivery", []string{"at_least_once", "at_most_once"})
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
		return tenant.JSONFile(o.body, "--body", stdin)
	}
	var err error
	if o.HTML, err = tenant.InlineOrFile(o.HTML, o.htmlFile, "--html-file", stdin); err != nil {
		return nil, err
	}
	if o.Text, err = tenant.InlineOrFile(o.Text, o.textFile, "--text-file", stdin); err != nil {
		return nil, err
	}
	if o.noAutoText {
		o.AutoText = new(bool)
	}
	switch {
	case o.Subject == "":
		return nil, command.Usagef("--subject is missing")
	case o.HTML == "" && o.Text == "":
		return nil, command.Usagef("the body is missing: give --html, --html-file, --text or --text-file")
	case o.Recipient.ExternalID == "" && o.Recipient.RecipientID == "":
		return nil, command.Usagef("--external-id is missing: give the company's own id of the recipient, such as a customer number (or --recipient-id)")
	}
	for _, header := range o.headers {
		name, value, found := strings.Cut(header, ":")
		if !found {
			return nil, command.Usagef("--header %q must be a name and a value, as in 'X-Invoice: 42'", header)
		}
		if o.Headers == nil {
			o.Headers = map[string]string{}
		}
		o.Headers[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	files, err := attachment.Parse(o.attach)
	if err != nil {
		return nil, err
	}
	if o.Attachments, err = attachment.Read(files); err != nil {
		return nil, err
	}
	o.Recipient.Email = o.To
	return o.emailRequest, nil
}

// acceptedEmail is the 202 response of the api.
type acceptedEmail struct {
	OutboxID  uuid.UUID    `json:"outboxId"`
	JobID     string       `json:"jobId"`
	RequestID string       `json:"requestId"`
	Status    email.Status `json:"status"`
	CreatedAt time.Time    `json:"createdAt"`
}

func (v acceptedEmail) WriteText(w io.Writer) {
	fmt.Fprintf(w, "Email %s is accepted with status %s.\nTo follow it: gatewayctl email show %s\n", v.OutboxID, v.Status, v.OutboxID)
}

func sendEmail(ctx context.Context, c *command.Invocation, api *client.Client, o *sendOptions) (output.Result, error) {
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
		return nil, attachment.NameArguments(err, o.attach)
	}
	if !o.watch {
		return sent, nil
	}
	p := c.Progress()
	defer p.End()
	return watchEmail(ctx, api, sent.OutboxID, p)
}
