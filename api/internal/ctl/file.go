package ctl

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
)

// filesPath is the api's route of stored files.
const filesPath = "/v1/files"

func (c *control) file() *cobra.Command {
	cmd := group("file", "Store files that emails and mailings attach",
		`A file is stored once, and any number of emails and mailings can attach it by its id. A file
that nothing attaches is deleted 24 hours after it was last uploaded. These commands use the
HTTP API at API_URL with API_KEY, which needs the scope emails:send for upload and emails:read
for list.`,
		`  gatewayctl file upload terms.pdf
  gatewayctl file list
  gatewayctl email send --to ana@example.com --external-id 42 --subject Olá --text Olá --attach ID=terms.pdf
  gatewayctl mailing create --file clientes.csv --template natal --attach ID=terms.pdf`)
	cmd.AddCommand(c.fileUpload(), c.fileList())
	return cmd
}

// fileView is a stored file. Its JSON names are those of the HTTP API.
type fileView struct {
	ID          uuid.UUID `json:"id"`
	Size        int64     `json:"size"`
	SHA256      string    `json:"sha256"`
	ContentType string    `json:"contentType"`
	CreatedAt   time.Time `json:"createdAt"`
}

func (v fileView) text(w io.Writer) {
	fmt.Fprintf(w, "The file is stored: %d bytes, %s.\nid      %s\nsha256  %s\n", v.Size, v.ContentType, v.ID, v.SHA256)
}

func (c *control) fileUpload() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "upload FILE",
		Short:   "Store a file",
		Long:    "Stores a file and prints its id. A content that the company has stored before keeps its id.",
		Example: "  gatewayctl file upload terms.pdf",
		Args:    exactArgs("FILE"),
	}
	cmd.RunE = c.call(func(ctx context.Context, api *client.Client, args []string) (answer, error) {
		stored, err := storeFile(ctx, api, args[0])
		if err != nil {
			return nil, err
		}
		return stored, nil
	})
	return cmd
}

// storeFile uploads a file.
func storeFile(ctx context.Context, api *client.Client, path string) (stored fileView, err error) {
	file, err := os.Open(path)
	if err != nil {
		return fileView{}, usagef("%v", err)
	}
	defer file.Close()
	err = api.PostFile(ctx, filesPath, file, &stored)
	return stored, err
}

// fileRows is the answer of file list.
type fileRows struct {
	Files []fileView `json:"files"`
	More  bool       `json:"more"`
}

func (v fileRows) text(w io.Writer) {
	rows := [][]string{{"ID", "SIZE", "TYPE", "STORED", "SHA256"}}
	for _, f := range v.Files {
		rows = append(rows, []string{f.ID.String(), strconv.FormatInt(f.Size, 10), f.ContentType, f.CreatedAt.UTC().Format(time.RFC3339), f.SHA256})
	}
	table(w, "", rows)
	if v.More {
		fmt.Fprintln(w, "There are more: increase --limit.")
	}
}

func (c *control) fileList() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List stored files, the newest first",
		Long: `Lists stored files. Names belong to the emails and mailings that attach a file: see
gatewayctl email show and gatewayctl mailing show.`,
		Example: "  gatewayctl file list --limit 10",
		Args:    exactArgs(),
	}
	limitFlag(cmd, &limit)
	cmd.RunE = c.call(func(ctx context.Context, api *client.Client, _ []string) (answer, error) {
		if err := checkLimit(limit); err != nil {
			return nil, err
		}
		found, more, err := pages[fileView](ctx, api, filesPath, "files", url.Values{}, limit)
		return fileRows{found, more}, err
	})
	return cmd
}
