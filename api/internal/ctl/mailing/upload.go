package mailing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/client"
	"email-gateway/api/internal/ctl/attachment"
	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/api/internal/ctl/template"
	"email-gateway/api/internal/mailing"
	mailingstore "email-gateway/shared/store/mailing"
)

// accepted is the api's response to an upload.
type accepted struct {
	ID         uuid.UUID           `json:"mailingId"`
	Status     mailingstore.Status `json:"status"`
	Accepted   int                 `json:"accepted"`
	Invalid    int                 `json:"invalid"`
	Duplicates int                 `json:"duplicates"`
	// EmptyFields counts the accepted lines with an empty field that a template uses, or an id that does not identify one person.
	EmptyFields int `json:"emptyFields"`
	// Warnings report problems of the templates, and of the ids in the file.
	Warnings []struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"warnings,omitempty"`
	// Template is the version of the stored template that the mailing keeps.
	Template *struct {
		Name    string `json:"name"`
		Locale  string `json:"locale,omitempty"`
		Version int    `json:"version"`
	} `json:"template,omitempty"`
	// Preview holds the first emails of a dry run.
	Preview []mailing.Preview `json:"preview,omitempty"`
	// Replayed reports that the same upload was accepted before; the other fields are those
	// of the first response.
	Replayed bool `json:"replayed"`
}

func (v accepted) counts() string {
	return fmt.Sprintf("%s accepted, %s invalid, %s", output.Count(v.Accepted, "line", "lines"), output.Thousands(v.Invalid), output.Count(v.Duplicates, "duplicate", "duplicates"))
}

func (v accepted) WriteText(w io.Writer) {
	if v.Replayed {
		fmt.Fprintf(w, "This upload was already accepted as mailing %s (%s): nothing is sent again.\n", v.ID, v.counts())
		fmt.Fprintf(w, "To see it: gatewayctl mailing show %s\n", v.ID)
		fmt.Fprintln(w, "To send it to everyone again, upload it under another name with --name.")
		return
	}
	fmt.Fprintf(w, "Mailing %s is %s: %s.\n", v.ID, v.Status, v.counts())
	if v.Template != nil {
		fmt.Fprintf(w, "It uses version %d of the template %s/%s.\n", v.Template.Version, v.Template.Name, template.LocaleFolder(v.Template.Locale))
	}
	if v.EmptyFields > 0 {
		fmt.Fprintf(w, "%s a field empty that a template uses (set a default with {{nome|cliente}}), or an id that does not identify one person.\n", output.Count(v.EmptyFields, "accepted line has", "accepted lines have"))
	}
	for _, warning := range v.Warnings {
		fmt.Fprintf(w, "Warning %s: %s.\n", warning.Code, output.Printable(warning.Message))
	}
	for _, p := range v.Preview {
		fmt.Fprintf(w, "Line %d would be sent to %s: %s\n", p.Line, output.Printable(p.Email), output.Printable(p.Subject))
	}
	if v.Invalid+v.Duplicates+v.EmptyFields > 0 {
		fmt.Fprintf(w, "To see these lines: gatewayctl mailing verdicts %s\n", v.ID)
	}
	switch v.Status {
	case mailingstore.Paused:
		fmt.Fprintf(w, "It has not started. To start it: gatewayctl mailing start %s\n", v.ID)
	case mailingstore.Queued:
		fmt.Fprintf(w, "To see its progress: gatewayctl mailing watch %s\n", v.ID)
	}
}

func createMailing(ctx context.Context, c *command.Invocation, api *client.Client, o *mailingOptions) (output.Result, error) {
	parts, err := o.parts(c.Stdin)
	if err != nil {
		return nil, err
	}
	files, err := attachment.Parse(o.attach)
	if err != nil {
		return nil, err
	}
	file, size, err := openCSV(c, o)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	p := c.Progress()
	defer p.End()
	attachments, err := attachment.Upload(ctx, api, files, p)
	if err != nil {
		return nil, err
	}
	if attachments != "" {
		parts = append(parts, client.Part{Name: mailing.PartAttach, Value: attachments})
	}
	form := client.Upload{Path: mailingPath, Parts: parts, FileName: filepath.Base(o.file), FileSize: size, IdempotencyKey: o.once}
	if o.file == "-" {
		form.FileName = o.name
	}
	made, err := uploadFile(ctx, api, form, file, p)
	if err != nil {
		return nil, uploadAdvice(attachment.NameArguments(err, o.attach))
	}
	if !o.watch {
		p.End()
		return made, nil
	}
	if made.Replayed {
		p.Note("This upload was already accepted as mailing %s: nothing is sent again.", made.ID)
	} else {
		p.Note("Mailing %s is accepted: %s.", made.ID, made.counts())
	}
	return watchMailing(ctx, api, made.ID, p)
}

// openCSV opens the file and returns its size in bytes, -1 if unknown.
func openCSV(c *command.Invocation, o *mailingOptions) (io.ReadCloser, int64, error) {
	if o.file == "-" {
		switch {
		case o.name == "":
			return nil, 0, command.Usagef("--file - needs --name, which is used as the file's name")
		case o.htmlFile == "-" || o.textFile == "-":
			return nil, 0, command.Usagef("only one of --file, --html-file and --text-file can be standard input")
		}
		return io.NopCloser(c.Stdin), -1, nil
	}
	file, err := os.Open(o.file)
	if err != nil {
		return nil, 0, command.Usagef("--file: %v", err)
	}
	about, err := file.Stat()
	switch {
	case err != nil:
		return nil, 0, errors.Join(fmt.Errorf("--file: %w", err), file.Close())
	case about.IsDir():
		return nil, 0, errors.Join(command.Usagef("--file: %s is a folder", o.file), file.Close())
	case !about.Mode().IsRegular(): // a pipe
		return file, -1, nil
	case about.Size() > mailing.MaxFile:
		return nil, 0, errors.Join(command.Usagef("--file: %s is larger than 512 MiB: split it", o.file), file.Close())
	}
	return file, about.Size(), nil
}

// uploadFile sends the form and shows the progress.
func uploadFile(ctx context.Context, api *client.Client, form client.Upload, file io.Reader, p *output.Progress) (accepted, error) {
	type end struct {
		made accepted
		err  error
	}
	var sent atomic.Int64
	form.File = counting{file, &sent}
	ended := make(chan end, 1)
	go func() {
		var e end
		e.made.Replayed, e.err = api.Upload(ctx, form, &e.made)
		ended <- e
	}()
	tick := time.NewTicker(output.RedrawInterval)
	defer tick.Stop()
	show := uploadSteps(form.FileSize)
	for {
		select {
		case e := <-ended:
			return e.made, e.err
		case now := <-tick.C:
			p.Update(show(now, sent.Load()))
		}
	}
}

// uploadSteps returns a function that describes an upload's progress; size is -1 if unknown.
func uploadSteps(size int64) func(now time.Time, sent int64) output.Step {
	var going output.Pace
	var whole time.Time
	return func(now time.Time, sent int64) output.Step {
		if sent == size {
			if whole.IsZero() {
				whole = now
			}
			return output.Step{What: "Uploaded " + mebibytes(size) + "; the gateway is reading the lines", Text: output.Duration(now.Sub(whole)) + " so far"}
		}
		going.Add(now, sent)
		s := output.Step{What: "Uploading", Done: sent, Total: max(size, 0), Text: mebibytes(sent)}
		if size > 0 {
			s.Text += " of " + mebibytes(size)
		}
		if going.PerSecond > 0 {
			s.Text += ", " + mebibytes(int64(going.PerSecond)) + "/s"
		}
		if left := going.Left(sent, size); left > 0 {
			s.Text += ", " + output.Duration(left) + " left"
		}
		return s
	}
}

// counting counts the bytes read.
type counting struct {
	io.Reader
	n *atomic.Int64
}

func (c counting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// uploadAdvice adds what to do after an interrupted upload or a name conflict.
func uploadAdvice(err error) error {
	var unknown *client.UnknownError
	var refused *client.Problem
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("%w\nRun the same command again: if the mailing was accepted, the same response is returned and nothing is sent twice", unknown.Unwrap())
	case errors.As(err, &refused) && refused.Code == "FILENAME_EXISTS":
		return fmt.Errorf("%w\nGive it another name with --name", err)
	}
	return err
}
