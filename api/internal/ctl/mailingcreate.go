package ctl

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/api/internal/csvfile"
	"email-gateway/api/internal/mailing"
)

// maxTemplate is what the api takes of a template (bytes).
const maxTemplate = 512 << 10

// encodingUsage is the help text of every --encoding.
var encodingUsage = "the file's, a `NAME`: " + strings.Join(csvfile.Encodings(), ", ")

// mailingOrder is what mailing create is told.
type mailingOrder struct {
	file, name, subject, html, htmlFile, text, textFile  string
	from, replyTo, sendAt, delivery, encoding, delimiter string
	emptyFields                                          string
	tags, tests                                          []string
	once                                                 string
	dryRun, hold, watch                                  bool
}

func (c *control) mailingCreate() *cobra.Command {
	var o mailingOrder
	cmd := &cobra.Command{
		Use:   "create --file FILE --subject TEMPLATE (--html TEMPLATE | --html-file FILE)",
		Short: "Upload a CSV file and send an email to everybody in it",
		Long: `Uploads a CSV file with templates. The file is read as it is: Windows-1252, UTF-8 or UTF-16,
semicolons or commas, headers in Portuguese or English; it is streamed, so that a million
rows take no more memory than one. A bad line costs itself and gets a verdict. Templates
name columns: {{nome}}, or {{nome|cliente}} for lines without one; {{email}}, {{token}} and
{{unsubscribe_url}} are the gateway's own. --dry-run shows the first emails and sends none.

The same upload again is answered with the first answer, so a command that was interrupted
can simply be repeated. Another one needs another name, unless the mailing was CANCELLED or
has FAILED.

--watch stays until the mailing has ended, and shows how far it is on standard error: with
a bar on a terminal, else in lines. Interrupting it does not stop the mailing. It ends
with 1 if the mailing was cancelled or has failed.`,
		Example: `  gatewayctl mailing create --file clientes.csv --subject 'Olá, {{nome}}' --html-file natal.html --watch
  gatewayctl mailing create --file clientes.csv --subject 'Olá' --html '<p>{{nome}}</p>' --dry-run
  gatewayctl mailing create --file clientes.csv --subject 'Olá' --html-file natal.html \
      --hold --test eu@acme.example
  psql -c 'COPY (…) TO STDOUT CSV HEADER' |
      gatewayctl mailing create --file - --name clientes-03.csv --subject 'Olá' --html-file natal.html`,
		Args: needs(),
	}
	cmd.RunE = c.call(func(ctx context.Context, api *client.Client, _ []string) (answer, error) {
		return c.createMailing(ctx, api, &o)
	})
	o.flags(cmd)
	return required(cmd, "file", "subject")
}

func (o *mailingOrder) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.file, "file", "", "the CSV `FILE`; - is standard input, and needs --name")
	flags.StringVar(&o.name, "name", "", "a `NAME` in place of the file's: one name is one mailing")
	flags.StringVar(&o.subject, "subject", "", "the subject's `TEMPLATE`")
	flags.StringVar(&o.html, "html", "", "the body's `TEMPLATE`")
	flags.StringVar(&o.htmlFile, "html-file", "", "the `FILE` with the body's template")
	flags.StringVar(&o.text, "text", "", "the `TEMPLATE` of the body without markup")
	flags.StringVar(&o.textFile, "text-file", "", "read the plain text from `FILE`")
	flags.StringVar(&o.from, "from", "", "another sender than the company's, a `MAILBOX`")
	flags.StringVar(&o.replyTo, "reply-to", "", "where answers go, an `ADDRESS`")
	flags.StringVar(&o.sendAt, "send-at", "", "not before this `TIME`, as in 2026-03-01T09:00:00-03:00")
	flags.StringSliceVar(&o.tags, "tag", nil, "a `TAG` to find it by (repeatable, at most 5)")
	flags.StringVar(&o.delivery, "delivery", "", "`HOW`: at_least_once, or at_most_once, when nobody knows whether it was taken")
	flags.StringSliceVar(&o.tests, "test", nil, "an `ADDRESS` that gets the first row's email at once (repeatable, at most 10)")
	flags.BoolVar(&o.dryRun, "dry-run", false, "judge every line and send nothing")
	flags.BoolVar(&o.hold, "hold", false, "wait for gatewayctl mailing start")
	flags.StringVar(&o.encoding, "encoding", "", encodingUsage)
	flags.StringVar(&o.delimiter, "delimiter", "", "`CHARACTER` between fields: ; , | or tab (default: detected)")
	flags.StringVar(&o.emptyFields, "empty-fields", "", "`WHAT` becomes of a line with an empty field: send (and report it), or reject")
	flags.StringVar(&o.once, "idempotency-key", "", "a `KEY` of your own, beside the file's name")
	flags.BoolVar(&o.watch, "watch", false, "stay until it has ended, and show how far it is")
	complete(cmd, "delivery", []string{"at_least_once", "at_most_once"})
	complete(cmd, "empty-fields", []string{"send", "reject"})
	complete(cmd, "encoding", csvfile.Encodings())
	_ = cmd.MarkFlagFilename("html-file", "html", "htm")
	_ = cmd.MarkFlagFilename("file", "csv", "txt")
	cmd.MarkFlagsMutuallyExclusive("html", "html-file")
	cmd.MarkFlagsMutuallyExclusive("text", "text-file")
	cmd.MarkFlagsMutuallyExclusive("watch", "hold")
	cmd.MarkFlagsOneRequired("html", "html-file")
}

// parts are the form's, without the file.
func (o *mailingOrder) parts(stdin io.Reader) ([]client.Part, error) {
	html, err := inlineOrFile(o.html, o.htmlFile, "--html-file", stdin)
	if err != nil {
		return nil, err
	}
	text, err := inlineOrFile(o.text, o.textFile, "--text-file", stdin)
	if err != nil {
		return nil, err
	}
	var parts []client.Part
	add := func(name string, values ...string) {
		for _, value := range values {
			if value != "" {
				parts = append(parts, client.Part{Name: name, Value: value})
			}
		}
	}
	add(mailing.PartSubject, o.subject)
	add(mailing.PartHTML, html)
	add(mailing.PartText, text)
	add(mailing.PartName, o.name)
	add(mailing.PartFrom, o.from)
	add(mailing.PartReplyTo, o.replyTo)
	add(mailing.PartSendAt, o.sendAt)
	add(mailing.PartTags, o.tags...)
	add(mailing.PartDelivery, o.delivery)
	add(mailing.PartTest, o.tests...)
	add(mailing.PartEncoding, o.encoding)
	add(mailing.PartDelimiter, o.delimiter)
	add(mailing.PartEmpty, o.emptyFields)
	if o.dryRun {
		add(mailing.PartDryRun, strconv.FormatBool(true))
	}
	if o.hold {
		add(mailing.PartStart, strconv.FormatBool(false))
	}
	return parts, nil
}

// inlineOrFile is a template as it was typed, or as its file holds it.
func inlineOrFile(inline, path, flag string, stdin io.Reader) (string, error) {
	if path == "" {
		return inline, nil
	}
	file := stdin
	if path != "-" {
		opened, err := os.Open(path)
		if err != nil {
			return "", usagef("%s: %v", flag, err)
		}
		defer opened.Close()
		file = opened
	}
	content, err := io.ReadAll(io.LimitReader(file, maxTemplate+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: %w", flag, err)
	case len(content) > maxTemplate:
		return "", usagef("%s: %s is larger than 512 KiB", flag, path)
	case len(content) == 0:
		return "", usagef("%s: %s is empty", flag, path)
	}
	return string(content), nil
}
