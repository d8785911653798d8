// Package file implements gatewayctl file: tenants store files, which emails can have as
// attachments.
package file

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/api/internal/ctl/tenant"
)

// filesPath is the api's route of stored files.
const filesPath = "/v1/files"

// Command returns the command `gatewayctl file` with its subcommands.
func Command(c *command.Invocation) *cobra.Command {
	cmd := command.Group("file", "Store files that emails and mailings attach",
		`A file is stored once, and any number of emails and mailings can attach it by its id. A file
that nothing attaches is deleted 24 hours after it was last uploaded. These commands use the
HTTP API at API_URL with API_KEY, which needs the scope emails:send for upload and emails:read
for list.`,
		`  gatewayctl file upload terms.pdf
  gatewayctl file list
  gatewayctl email send --to ana@example.com --external-id 42 --subject Olá --text Olá --attach ID=terms.pdf
  gatewayctl mailing create --file clientes.csv --template natal --attach ID=terms.pdf`)
	cmd.AddCommand(uploadCommand(c), listCommand(c))
	return cmd
}

// View is a stored file. Its JSON names are those of the HTTP API.
type View struct {
	ID          uuid.UUID `json:"id"`
	Size        int64     `json:"size"`
	SHA256      string    `json:"sha256"`
	ContentType string    `json:"contentType"`
	CreatedAt   time.Time `json:"createdAt"`
}

// WriteText writes the id of the file.
func (v View) WriteText(w io.Writer) {
	fmt.Fprintf(w, "The file is stored: %d bytes, %s.\nid      %s\nsha256  %s\n", v.Size, v.ContentType, v.ID, v.SHA256)
}

func uploadCommand(c *command.Invocation) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "upload FILE",
		Short:   "Store a file",
		Long:    "Stores a file and prints its id. Storing the same content again returns the same id.",
		Example: "  gatewayctl file upload terms.pdf",
		Args:    command.ExactArgs("FILE"),
	}
	cmd.RunE = tenant.Run(c, func(ctx context.Context, api *client.Client, args []string) (output.Result, error) {
		stored, err := Upload(ctx, api, args[0])
		if err != nil {
			return nil, err
		}
		return stored, nil
	})
	return cmd
}

// Upload uploads a file.
func Upload(ctx context.Context, api *client.Client, path string) (stored View, err error) {
	file, err := os.Open(path)
	if err != nil {
		return View{}, command.Usagef("%v", err)
	}
	defer file.Close()
	err = api.PostFile(ctx, filesPath, file, &stored)
	return stored, err
}

// fileRows is the result of file list.
type fileRows struct {
	Files []View `json:"files"`
	More  bool   `json:"more"`
}

func (v fileRows) WriteText(w io.Writer) {
	rows := [][]string{{"ID", "SIZE", "TYPE", "STORED", "SHA256"}}
	for _, f := range v.Files {
		rows = append(rows, []string{f.ID.String(), strconv.FormatInt(f.Size, 10), f.ContentType, f.CreatedAt.UTC().Format(time.RFC3339), f.SHA256})
	}
	output.Table(w, "", rows)
	if v.More {
		fmt.Fprintln(w, "There are more: increase --limit.")
	}
}

func listCommand(c *command.Invocation) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List stored files, the newest first",
		Long: `Lists stored files. Names belong to the emails and mailings that attach a file: see
gatewayctl email show and gatewayctl mailing show.`,
		Example: "  gatewayctl file list --limit 10",
		Args:    command.ExactArgs(),
	}
	command.LimitFlag(cmd, &limit)
	cmd.RunE = tenant.Run(c, func(ctx context.Context, api *client.Client, _ []string) (output.Result, error) {
		if err := command.CheckLimit(limit); err != nil {
			return nil, err
		}
		found, more, err := tenant.Pages[View](ctx, api, filesPath, "files", url.Values{}, limit)
		return fileRows{found, more}, err
	})
	return cmd
}
