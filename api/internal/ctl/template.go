package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
)

// templatePath is the api's route of templates.
const templatePath = "/v1/templates"

func (c *control) template() *cobra.Command {
	cmd := group("template", "Manage stored templates as files",
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
	cmd.AddCommand(c.templatePull(), c.templatePush(), c.templatePreview())
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
	found, _, err := pages[templateRow](ctx, api, templatePath, "templates", url.Values{}, allTemplates)
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

func (c *control) templatePull() *cobra.Command {
	var latest bool
	cmd := &cobra.Command{
		Use: "pull DIR", Short: "Write the published version of every template into files",
		Long: `Writes the published version of every template and locale into the files of DIR, replacing those
of the same template. Templates without a published version are left out unless --latest is given.`,
		Example: "  gatewayctl template pull templates/",
		Args:    exactArgs("DIR"),
	}
	cmd.Flags().BoolVar(&latest, "latest", false, "the newest version instead of the published one")
	cmd.RunE = c.call(func(ctx context.Context, api *client.Client, args []string) (answer, error) {
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

func (c *control) templatePush() *cobra.Command {
	var publish, dryRun bool
	cmd := &cobra.Command{
		Use: "push DIR", Short: "Create a version of each template whose files have changed",
		Long: `Compares the files of DIR with the newest versions, prints the changed lines, and creates a version
of each template that differs. Templates that are not in DIR stay as they are.`,
		Example: "  gatewayctl template push templates/ --dry-run\n  gatewayctl template push templates/ --publish",
		Args:    exactArgs("DIR"),
	}
	cmd.Flags().BoolVar(&publish, "publish", false, "publish the pushed versions, also of templates that did not change")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only print what would change")
	cmd.RunE = c.call(func(ctx context.Context, api *client.Client, args []string) (answer, error) {
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
				return nil, fmt.Errorf("%s/%s: %w", v.Name, localeFolder(v.Locale), err)
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

func (v templateResults) text(w io.Writer) {
	for _, t := range v.Templates {
		fmt.Fprintf(w, "%s/%s: %s", t.Name, localeFolder(t.Locale), t.Action)
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

func (c *control) templatePreview() *cobra.Command {
	var locale, data string
	var version int
	cmd := &cobra.Command{
		Use: "preview NAME", Short: "Render a template with the data of a file",
		Long: `Renders the published version of a template, or the one given by --version, with the JSON object of
a file, and prints the subject and bodies that an email with this data would have.`,
		Example: "  gatewayctl template preview invoice --locale pt-BR --data invoice.json",
		Args:    exactArgs("NAME"),
	}
	cmd.Flags().StringVar(&locale, "locale", "", "`LOCALE`, such as pt-BR; it falls back to pt and the default")
	cmd.Flags().StringVar(&data, "data", "", "`FILE` with the data, a JSON object; without it there is none")
	cmd.Flags().IntVar(&version, "version", 0, "render this version; 0 is the published one")
	cmd.RunE = c.call(func(ctx context.Context, api *client.Client, args []string) (answer, error) {
		request := map[string]any{}
		if locale != "" {
			request["locale"] = locale
		}
		if version != 0 {
			request["version"] = version
		}
		if data != "" {
			text, err := os.ReadFile(data)
			if err != nil {
				return nil, fmt.Errorf("read data: %w", err)
			}
			if !json.Valid(text) {
				return nil, usagef("--data %s is not JSON", data)
			}
			request["data"] = json.RawMessage(text)
		}
		var made templatePreview
		err := api.PostAgain(ctx, templatePath+"/"+url.PathEscape(args[0])+"/preview", request, &made)
		return made, err
	})
	return cmd
}

type templatePreview templateView

func (v templatePreview) text(w io.Writer) {
	fmt.Fprintf(w, "%s/%s, version %d\nSubject: %s\n", v.Name, localeFolder(v.Locale), v.Version, v.Subject)
	for _, body := range []string{v.HTML, v.Text} {
		if body != "" {
			fmt.Fprintf(w, "\n%s\n", body)
		}
	}
}
