package template

import (
	"context"
	"fmt"
	"io"
	"net/url"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/api/internal/ctl/tenant"
)

func previewCommand(c *command.Invocation) *cobra.Command {
	var locale, data string
	var version int
	cmd := &cobra.Command{
		Use: "preview NAME", Short: "Render a template with the data of a file",
		Long: `Renders the published version of a template, or the one given by --version, with the JSON object of
a file, and prints the subject and bodies that an email with this data would have.`,
		Example: "  gatewayctl template preview invoice --locale pt-BR --data invoice.json",
		Args:    command.ExactArgs("NAME"),
	}
	cmd.Flags().StringVar(&locale, "locale", "", "`LOCALE`, such as pt-BR; it falls back to pt and the default")
	cmd.Flags().StringVar(&data, "data", "", "`FILE` with the data, a JSON object; - is standard input; without it there is none")
	cmd.Flags().IntVar(&version, "version", 0, "render this version; 0 is the published one")
	cmd.RunE = tenant.Run(c, func(ctx context.Context, api *client.Client, args []string) (output.Result, error) {
		request := map[string]any{}
		if locale != "" {
			request["locale"] = locale
		}
		if version != 0 {
			request["version"] = version
		}
		if data != "" {
			object, err := tenant.JSONFile(data, "--data", c.Stdin)
			if err != nil {
				return nil, err
			}
			request["data"] = object
		}
		var made templatePreview
		err := api.PostRead(ctx, templatePath+"/"+url.PathEscape(args[0])+"/preview", request, &made)
		return made, err
	})
	return cmd
}

type templatePreview templateView

func (v templatePreview) WriteText(w io.Writer) {
	fmt.Fprintf(w, "%s/%s, version %d\nSubject: %s\n", v.Name, LocaleFolder(v.Locale), v.Version, v.Subject)
	for _, body := range []string{v.HTML, v.Text} {
		if body != "" {
			fmt.Fprintf(w, "\n%s\n", body)
		}
	}
}
