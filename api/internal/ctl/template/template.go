// Package template implements gatewayctl template: tenants copy templates between a folder and
// the gateway, and preview them.
package template

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/api/internal/ctl/tenant"
)

// templatePath is the api's route of templates.
const templatePath = "/v1/templates"

// Command returns the command `gatewayctl template` with its subcommands.
func Command(c *command.Invocation) *cobra.Command {
	cmd := command.Group("template", "Manage stored templates as files",
		`Stored templates of a company, as files of a directory that can be kept under version control:

  NAME/LOCALE/template.json   {"variables": [{"name": …, "required": …, "default": …}]}
  NAME/LOCALE/subject.txt     its line end is not part of the subject
  NAME/LOCALE/body.html       may be missing, if there is a body.txt
  NAME/LOCALE/body.txt        may be missing

LOCALE is default for the template without a locale. These commands use the HTTP API at API_URL
with API_KEY, which needs the scopes templates:read and, for push, templates:write.`,
		`  gatewayctl template pull templates/
  gatewayctl template push templates/ --publish
  gatewayctl template preview invoice --locale pt-BR --data invoice.json`)
	cmd.AddCommand(pullCommand(c), pushCommand(c), previewCommand(c))
	return cmd
}

// templateView is a version. Its JSON names are those of the HTTP API.
type templateView struct {
	Name      string          `json:"name"`
	Locale    string          `json:"locale,omitempty"`
	Version   int             `json:"version,omitempty"`
	Published bool            `json:"published,omitempty"`
	Subject   string          `json:"subject"`
	HTML      string          `json:"html,omitempty"`
	Text      string          `json:"text,omitempty"`
	Variables json.RawMessage `json:"variables,omitempty"`
}

// templateRow is a template in a list.
type templateRow struct {
	Name             string    `json:"name"`
	Locale           string    `json:"locale,omitempty"`
	LatestVersion    int       `json:"latestVersion"`
	PublishedVersion int       `json:"publishedVersion,omitempty"`
	UpdatedAt        time.Time `json:"updatedAt"`
}

// allTemplates is more than a company can have.
const allTemplates = 1_000_000

func listTemplates(ctx context.Context, api *client.Client) ([]templateRow, error) {
	found, _, err := tenant.Pages[templateRow](ctx, api, templatePath, "templates", url.Values{}, allTemplates)
	return found, err
}

func templateVersion(ctx context.Context, api *client.Client, name, locale string, version int) (v templateView, err error) {
	query := url.Values{}
	if locale != "" {
		query.Set("locale", locale)
	}
	err = api.Get(ctx, templatePath+"/"+url.PathEscape(name)+"/versions/"+strconv.Itoa(version), query, &v)
	return v, err
}

func pullCommand(c *command.Invocation) *cobra.Command {
	var latest bool
	cmd := &cobra.Command{
		Use: "pull DIR", Short: "Write the published version of every template into files",
		Long: `Writes the published version of every template and locale into the files of DIR, replacing those
of the same template. Templates without a published version are left out unless --latest is given.`,
		Example: "  gatewayctl template pull templates/",
		Args:    command.ExactArgs("DIR"),
	}
	cmd.Flags().BoolVar(&latest, "latest", false, "the newest version instead of the published one")
	cmd.RunE = tenant.Run(c, func(ctx context.Context, api *client.Client, args []string) (output.Result, error) {
		found, err := listTemplates(ctx, api)
		if err != nil {
			return nil, err
		}
		done := templateResults{Templates: []templateResult{}}
		for _, row := range found {
			version := row.PublishedVersion
			if latest {
				version = row.LatestVersion
			}
			if version == 0 {
				continue
			}
			v, err := templateVersion(ctx, api, row.Name, row.Locale, version)
			if err != nil {
				return nil, err
			}
			if err := writeTemplate(args[0], v); err != nil {
				return nil, err
			}
			done.Templates = append(done.Templates, templateResult{Name: v.Name, Locale: v.Locale, Version: v.Version, Action: "written"})
		}
		return done, nil
	})
	return cmd
}

func pushCommand(c *command.Invocation) *cobra.Command {
	var publish, dryRun bool
	cmd := &cobra.Command{
		Use: "push DIR", Short: "Create a version of each template whose files have changed",
		Long: `Compares the files of DIR with the newest versions, prints the changed lines, and creates a version
of each template that differs. Templates that are not in DIR stay as they are.`,
		Example: "  gatewayctl template push templates/ --dry-run\n  gatewayctl template push templates/ --publish",
		Args:    command.ExactArgs("DIR"),
	}
	cmd.Flags().BoolVar(&publish, "publish", false, "publish the pushed versions, also of templates that did not change")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only print what would change")
	cmd.RunE = tenant.Run(c, func(ctx context.Context, api *client.Client, args []string) (output.Result, error) {
		local, err := readTemplates(args[0])
		if err != nil {
			return nil, err
		}
		found, err := listTemplates(ctx, api)
		if err != nil {
			return nil, err
		}
		latest := map[[2]string]templateRow{}
		for _, row := range found {
			latest[[2]string{row.Name, row.Locale}] = row
		}
		done := templateResults{Templates: []templateResult{}}
		for _, v := range local {
			result, err := pushTemplate(ctx, api, v, latest[[2]string{v.Name, v.Locale}], publish, dryRun)
			if err != nil {
				return nil, fmt.Errorf("%s/%s: %w", v.Name, LocaleFolder(v.Locale), err)
			}
			done.Templates = append(done.Templates, result)
		}
		return done, nil
	})
	return cmd
}

func pushTemplate(ctx context.Context, api *client.Client, v templateView, known templateRow, publish, dryRun bool) (templateResult, error) {
	var old templateView
	if known.LatestVersion > 0 {
		var err error
		if old, err = templateVersion(ctx, api, v.Name, v.Locale, known.LatestVersion); err != nil {
			return templateResult{}, err
		}
	}
	result := templateResult{Name: v.Name, Locale: v.Locale, Version: known.LatestVersion, Action: "unchanged", Diff: diffTemplates(old, v)}
	publish = publish && (len(result.Diff) > 0 || known.PublishedVersion != known.LatestVersion)
	switch {
	case len(result.Diff) == 0 && !publish:
		return result, nil
	case len(result.Diff) > 0:
		result.Action = "created"
	}
	if publish {
		result.Action = map[string]string{"created": "created and published", "unchanged": "published"}[result.Action]
	}
	if dryRun {
		result.Action = "would be " + result.Action
		return result, nil
	}
	var made templateView
	if err := api.PostAgain(ctx, templatePath, struct {
		templateView
		Publish bool `json:"publish"`
	}{v, publish}, &made); err != nil {
		return templateResult{}, err
	}
	result.Version = made.Version
	return result, nil
}

type templateResult struct {
	Name    string   `json:"name"`
	Locale  string   `json:"locale,omitempty"`
	Version int      `json:"version,omitempty"`
	Action  string   `json:"action"`
	Diff    []string `json:"diff,omitempty"`
}

type templateResults struct {
	Templates []templateResult `json:"templates"`
}

func (v templateResults) WriteText(w io.Writer) {
	for _, t := range v.Templates {
		fmt.Fprintf(w, "%s/%s: %s", t.Name, LocaleFolder(t.Locale), t.Action)
		if t.Version > 0 {
			fmt.Fprintf(w, ", version %d", t.Version)
		}
		fmt.Fprintln(w)
		for _, line := range t.Diff {
			fmt.Fprintln(w, "  "+line)
		}
	}
	if len(v.Templates) == 0 {
		fmt.Fprintln(w, "No templates found.")
	}
}
