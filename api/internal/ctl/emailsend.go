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

// letter is what email send is told. Its fields are those of the request.
type letter struct {
	To        string            `json:"to"`
	CC        []string          `json:"cc,omitempty"`
	BCC       []string          `json:"bcc,omitempty"`
	Subject   string            `json:"subject"`
	HTML      string            `json:"html"`
	Text      string            `json:"text,omitempty"`
	ReplyTo   string            `json:"replyTo,omitempty"`
	From      string            `json:"from,omitempty"`
	Headers   map[string]string `json:"headers,omitempty"`
	Tags      []string          `json:"tags,omitempty"`
	Recipient person            `json:"recipient"`
	Priority  int               `json:"priority,omitempty"`
	SendAt    string            `json:"sendAt,omitempty"`
	Delivery  string            `json:"delivery,omitempty"`
}

type person struct {
	RecipientID string `json:"recipientId,omitempty"`
	ExternalID  string `json:"externalId,omitempty"`
	Nome        string `json:"nome,omitempty"`
	RazaoSocial string `json:"razaoSocial,omitempty"`
	Email       string `json:"email"`
}

// sendOrder is the letter and how it is handed over.
type sendOrder struct {
	letter
	htmlFile, textFile, body, once string
	headers                        []string
	watch                          bool
}

func (c *control) emailSend() *cobra.Command {
	var o sendOrder
	cmd := &cobra.Command{
		Use:   "send (--to ADDRESS --subject TEXT --html-file FILE --external-id ID | --body FILE)",
		Short: "Send one email",
		Long: `Hands one email over to the HTTP API, for the company whose key API_KEY is; the key needs
the scope emails:send. --external-id is the company's own name for the person: the same
person has the same one in every email. --body sends a request as it stands in a file, for
all that the flags cannot say.

Each run has an Idempotency-Key of its own, with which it is repeated when the api does not
answer; --idempotency-key makes two runs one. --watch stays until the email has ended, and
ends with 1 unless it was SENT; it needs emails:read too.`,
		Example: `  gatewayctl email send --to maria@cliente.example --external-id CUST-42 --subject 'Olá' --html '<p>Olá</p>'
  gatewayctl email send --to ana@example.com --external-id 42 --subject 'Olá' --html-file ola.html --watch
  gatewayctl email send --body request.json --idempotency-key invoice-2026-0042
  jq -n '{…}' | gatewayctl email send --body -`,
		Args: needs(),
	}
	cmd.RunE = c.call(func(ctx context.Context, api *client.Client, _ []string) (answer, error) {
		return c.sendEmail(ctx, api, &o)
	})
	o.flags(cmd)
	return cmd
}

func (o *sendOrder) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.body, "body", "", "a `FILE` with the whole request as JSON; - is standard input")
	flags.StringVar(&o.To, "to", "", "the recipient's `ADDRESS`")
	flags.StringSliceVar(&o.CC, "cc", nil, "an `ADDRESS` that gets a copy (repeatable, at most 5)")
	flags.StringSliceVar(&o.BCC, "bcc", nil, "an `ADDRESS` that gets a copy unseen (repeatable, at most 5)")
	flags.StringVar(&o.Subject, "subject", "", "the subject, 1 to 150 characters of `TEXT`")
	flags.StringVar(&o.HTML, "html", "", "the body, `HTML`")
	flags.StringVar(&o.htmlFile, "html-file", "", "the `FILE` with the body; - is standard input")
	flags.StringVar(&o.Text, "text", "", "the body without markup, `TEXT`")
	flags.StringVar(&o.textFile, "text-file", "", "read the plain text from `FILE`")
	flags.StringVar(&o.From, "from", "", "another sender than the company's, a `MAILBOX`")
	flags.StringVar(&o.ReplyTo, "reply-to", "", "where answers go, an `ADDRESS`")
	flags.StringArrayVar(&o.headers, "header", nil, "another header, as in 'X-Invoice: 42' (repeatable, at most 10 `HEADERS`)")
	flags.StringSliceVar(&o.Tags, "tag", nil, "a `TAG` to find it by (repeatable, at most 5)")
	flags.StringVar(&o.Recipient.ExternalID, "external-id", "", "the company's own `ID` of the person")
	flags.StringVar(&o.Recipient.RecipientID, "recipient-id", "", "the gateway's `ID` of the person")
	flags.StringVar(&o.Recipient.Nome, "name", "", "the person's `NAME`")
	flags.StringVar(&o.Recipient.RazaoSocial, "company-name", "", "the `NAME` of a person that is a company")
	flags.IntVar(&o.Priority, "priority", 0, "`N` from 1, first, to 10 (5 if it is not said)")
	flags.StringVar(&o.SendAt, "send-at", "", "not before this `TIME`, as in 2026-03-01T09:00:00-03:00")
	flags.StringVar(&o.Delivery, "delivery", "", "`HOW`: at_least_once, or at_most_once, when nobody knows whether it was taken")
	flags.StringVar(&o.once, "idempotency-key", "", "a `KEY` of your own: the same email under the same key is sent once")
	flags.BoolVar(&o.watch, "watch", false, "stay until it has ended, and show its steps")
	complete(cmd, "delivery", []string{"at_least_once", "at_most_once"})
	_ = cmd.MarkFlagFilename("html-file", "html", "htm")
	_ = cmd.MarkFlagFilename("body", "json")
	cmd.MarkFlagsMutuallyExclusive("html", "html-file")
	cmd.MarkFlagsMutuallyExclusive("text", "text-file")
	cmd.MarkFlagsOneRequired("to", "body")
	for _, flag := range []string{
		"to", "cc", "bcc", "subject", "html", "html-file", "text", "text-file", "from", "reply-to", "header", "tag",
		"external-id", "recipient-id", "name", "company-name", "priority", "send-at", "delivery",
	} {
		cmd.MarkFlagsMutuallyExclusive("body", flag)
	}
}

// request is the body: what a file holds, or what the flags say.
func (o *sendOrder) request(stdin io.Reader) (any, error) {
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
	switch {
	case o.Subject == "":
		return nil, usagef("--subject is missing")
	case o.HTML == "":
		return nil, usagef("--html or --html-file is missing")
	case o.Recipient.ExternalID == "" && o.Recipient.RecipientID == "":
		return nil, usagef("--external-id is missing: the company's own name for the person, such as a customer's number (or --recipient-id)")
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
	o.Recipient.Email = o.To
	return o.letter, nil
}

// maxRequest is what the api takes of a request (bytes).
const maxRequest = 2 << 20

// readBody reads a request as it stands in a file.
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
		return nil, usagef("--body: %s is larger than 2 MiB", path)
	case !json.Valid(text):
		return nil, usagef("--body: %s does not hold JSON", path)
	}
	return text, nil
}

// handedOver is what the api answers to an email. The names are the HTTP API's.
type handedOver struct {
	OutboxID  uuid.UUID    `json:"outboxId"`
	JobID     string       `json:"jobId"`
	RequestID string       `json:"requestId"`
	Status    email.Status `json:"status"`
	CreatedAt time.Time    `json:"createdAt"`
}

func (v handedOver) text(w io.Writer) {
	fmt.Fprintf(w, "Email %s is accepted, and %s.\nTo see what becomes of it: gatewayctl email show %s\n", v.OutboxID, v.Status, v.OutboxID)
}

func (c *control) sendEmail(ctx context.Context, api *client.Client, o *sendOrder) (answer, error) {
	request, err := o.request(c.Stdin)
	if err != nil {
		return nil, err
	}
	once := o.once
	if once == "" {
		once = "gatewayctl-" + rand.Text()
	}
	var sent handedOver
	if err := api.Post(ctx, emailPath+"/send", request, &sent, once); err != nil {
		return nil, err
	}
	if !o.watch {
		return sent, nil
	}
	p := c.progress()
	defer p.end()
	return watchEmail(ctx, api, sent.OutboxID, p)
}

// sentOrNot is an email that has ended, as email send --watch tells of it.
type sentOrNot struct{ emailView }

// failure makes an email that was not sent the command's own failure.
func (v sentOrNot) failure() error {
	if v.Status == email.Sent {
		return nil
	}
	return fmt.Errorf("the email is %s", v.Status)
}

// watchEmail looks at the email until it has ended. What it tells is not the answer.
func watchEmail(ctx context.Context, api *client.Client, id uuid.UUID, p *progress) (answer, error) {
	tick := time.NewTicker(redrawEvery)
	defer tick.Stop()
	heard := time.Now()
	for {
		v, err := fetchEmail(ctx, api, id)
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("interrupted, and the email goes on: `gatewayctl email show %s` looks again", id)
		case err == nil && v.Status.Final():
			p.end()
			return sentOrNot{v}, nil
		case err == nil:
			heard = time.Now()
			p.tell(step{what: string(v.Status), text: "since it was accepted " + span(time.Since(v.CreatedAt))})
		case !passing(err) || time.Since(heard) > watchPatience:
			return nil, err
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}
