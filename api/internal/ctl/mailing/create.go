package mailing

import (
	"context"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/api/internal/csvfile"
	"email-gateway/api/internal/ctl/attachment"
	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/api/internal/ctl/tenant"
	"email-gateway/api/internal/mailing"
)

// mailingOptions holds the flags of mailing create.
type mailingOptions struct {
	file, name, subject, html, htmlFile, text, textFile  string
	from, replyTo, sendAt, delivery, encoding, delimiter string
	emptyFields                                          string
	template, locale                                     string
	version                                              int
	tags, tests, attach                                  []string
	once                                                 string
	dryRun, hold, watch, noAutoText                      bool
}

func createCommand(c *command.Invocation) *cobra.Command {
	var o mailingOptions
	cmd := &cobra.Command{
		Use:   "create --file FILE (--subject TEMPLATE --html-file FILE | --template NAME)",
		Short: "Upload a CSV file and send an email to every address in it",
		Long: `Uploads a CSV file with templates. Windows-1252, UTF-8 and UTF-16, semicolons and commas, and
Portuguese and English headers are detected. The file is streamed: memory use does not depend
on its size. An invalid line is skipped and gets a validation result; the other lines are
sent. Templates refer to columns: {{nome}}, or {{nome|cliente}} with a default for empty
fields; {{email}}, {{token}} and {{unsubscribe_url}} are provided by the gateway. --dry-run
shows the first emails and sends none.

--template names a stored template in place of the subject and the bodies. Its variables are
the columns of the file. The mailing keeps the version that is published now, or the one of
--version, whatever is published later.

--attach stores a file, for which the key needs the scope emails:send too, and attaches it to
every email. A file that was stored before is attached as ID=FILENAME: see gatewayctl file.

Repeating the same upload returns the first response, so an interrupted command can simply be
repeated. A different upload needs a different name, unless the mailing was CANCELLED or has
FAILED: then resume it, because a new upload sends again what it has sent.

--watch waits until the mailing is finished and shows the progress on standard error: a bar
on a terminal, else lines. Interrupting it does not stop the mailing. The exit code is 1 if
the mailing was cancelled or has failed.`,
		Example: `  gatewayctl mailing create --file clientes.csv --subject 'Olá, {{nome}}' --html-file natal.html --watch
  gatewayctl mailing create --file clientes.csv --subject 'Olá' --html '<p>{{nome}}</p>' --dry-run
  gatewayctl mailing create --file clientes.csv --template natal --locale pt-BR --attach regulamento.pdf
  gatewayctl mailing create --file clientes.csv --subject 'Olá' --html-file natal.html \
      --hold --test eu@acme.example
  psql -c 'COPY (…) TO STDOUT CSV HEADER' |
      gatewayctl mailing create --file - --name clientes-03.csv --subject 'Olá' --html-file natal.html`,
		Args: command.ExactArgs(),
	}
	cmd.RunE = tenant.Run(c, func(ctx context.Context, api *client.Client, _ []string) (output.Result, error) {
		return createMailing(ctx, c, api, &o)
	})
	o.flags(cmd)
	return command.RequireFlags(cmd, "file")
}

func (o *mailingOptions) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.file, "file", "", "the CSV `FILE`; - is standard input and needs --name")
	flags.StringVar(&o.name, "name", "", "a `NAME` instead of the file's; the name identifies the mailing")
	flags.StringVar(&o.subject, "subject", "", "the `TEMPLATE` of the subject")
	flags.StringVar(&o.html, "html", "", "the `TEMPLATE` of the HTML body")
	flags.StringVar(&o.htmlFile, "html-file", "", "read the template of the HTML body from `FILE`")
	flags.StringVar(&o.text, "text", "", "the `TEMPLATE` of the plain-text body")
	flags.StringVar(&o.textFile, "text-file", "", "read the template of the plain-text body from `FILE`")
	flags.StringVar(&o.template, "template", "", "a stored template `NAME` in place of the subject and the bodies")
	flags.StringVar(&o.locale, "locale", "", "the `LOCALE` of --template, such as pt-BR; it falls back to pt and the default")
	flags.IntVar(&o.version, "version", 0, "the version of --template; 0 is the published one")
	flags.BoolVar(&o.noAutoText, "no-auto-text", false, "make no text part from the HTML body")
	flags.StringVar(&o.from, "from", "", "a sender other than the company's default, a `MAILBOX`")
	flags.StringVar(&o.replyTo, "reply-to", "", "the Reply-To `ADDRESS`")
	flags.StringVar(&o.sendAt, "send-at", "", "do not send before this `TIME`, as in 2026-03-01T09:00:00-03:00")
	flags.StringSliceVar(&o.tags, "tag", nil, "a `TAG` to search by (repeatable, at most 5)")
	flags.StringVar(&o.delivery, "delivery", "", "`MODE` if the outcome is unknown: at_least_once (send again) or at_most_once")
	flags.StringArrayVar(&o.attach, "attach", nil, attachment.FlagUsage)
	flags.StringSliceVar(&o.tests, "test", nil, "an `ADDRESS` that gets the first row's email immediately (repeatable, at most 10)")
	flags.BoolVar(&o.dryRun, "dry-run", false, "validate every line and send nothing")
	flags.BoolVar(&o.hold, "hold", false, "start with gatewayctl mailing start, by default within 30 days")
	flags.StringVar(&o.encoding, "encoding", "", tenant.EncodingUsage)
	flags.StringVar(&o.delimiter, "delimiter", "", "`CHARACTER` between fields: ; , | or tab (default: detected)")
	flags.StringVar(&o.emptyFields, "empty-fields", "", "`MODE` for a line with an empty field: send (and report it) or reject")
	flags.StringVar(&o.once, "idempotency-key", "", "your own idempotency `KEY`, in addition to the file's name")
	flags.BoolVar(&o.watch, "watch", false, "wait until the mailing is finished, and show the progress")
	command.CompleteFlag(cmd, "delivery", []string{"at_least_once", "at_most_once"})
	command.CompleteFlag(cmd, "empty-fields", []string{"send", "reject"})
	command.CompleteFlag(cmd, "encoding", csvfile.Encodings())
	_ = cmd.MarkFlagFilename("html-file", "html", "htm")
	_ = cmd.MarkFlagFilename("file", "csv", "txt")
	_ = cmd.MarkFlagFilename("attach")
	cmd.MarkFlagsMutuallyExclusive("html", "html-file")
	cmd.MarkFlagsMutuallyExclusive("text", "text-file")
	cmd.MarkFlagsMutuallyExclusive("watch", "hold")
	for _, own := range []string{"subject", "html", "html-file", "text", "text-file"} {
		cmd.MarkFlagsMutuallyExclusive("template", own)
	}
	cmd.MarkFlagsOneRequired("html", "html-file", "text", "text-file", "template")
	cmd.MarkFlagsOneRequired("subject", "template")
}

// parts returns the form's parts without the file.
func (o *mailingOptions) parts(stdin io.Reader) ([]client.Part, error) {
	html, err := tenant.InlineOrFile(o.html, o.htmlFile, "--html-file", stdin)
	if err != nil {
		return nil, err
	}
	text, err := tenant.InlineOrFile(o.text, o.textFile, "--text-file", stdin)
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
	add(mailing.PartTemplate, o.template)
	add(mailing.PartLocale, o.locale)
	if o.version != 0 {
		add(mailing.PartVersion, strconv.Itoa(o.version))
	}
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
	if o.noAutoText {
		add(mailing.PartAutoText, strconv.FormatBool(false))
	}
	if o.dryRun {
		add(mailing.PartDryRun, strconv.FormatBool(true))
	}
	if o.hold {
		add(mailing.PartStart, strconv.FormatBool(false))
	}
	return parts, nil
}
