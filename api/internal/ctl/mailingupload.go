package ctl

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
	"email-gateway/api/internal/mailing"
	"email-gateway/shared/store"
)

// accepted is the api's response to an upload.
type accepted struct {
	ID         uuid.UUID           `json:"mailingId"`
	Status     store.MailingStatus `json:"status"`
	Accepted   int                 `json:"accepted"`
	Invalid    int                 `json:"invalid"`
	Duplicates int                 `json:"duplicates"`
	// EmptyFields counts the accepted lines with an empty field that a template uses.
	EmptyFields int `json:"emptyFields"`
	// Warnings report problems of the templates.
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
	return fmt.Sprintf("%s accepted, %s invalid, %s", plurals(v.Accepted, "line", "lines"), thousands(v.Invalid), plurals(v.Duplicates, "duplicate", "duplicates"))
}

func (v accepted) text(w io.Writer) {
	if v.Replayed {
		fmt.Fprintf(w, "This upload was already accepted as mailing %s (%s): nothing is sent again.\n", v.ID, v.counts())
		fmt.Fprintf(w, "To see it: gatewayctl mailing show %s\n", v.ID)
		fmt.Fprintln(w, "To send it again to everybody, give it another name with --name.")
		return
	}
	fmt.Fprintf(w, "Mailing %s is %s: %s.\n", v.ID, v.Status, v.counts())
	if v.Template != nil {
		fmt.Fprintf(w, "It uses version %d of the template %s/%s.\n", v.Template.Version, v.Template.Name, localeFolder(v.Template.Locale))
	}
	if v.EmptyFields > 0 {
		fmt.Fprintf(w, "%s a field empty that a template uses; set a default with {{nome|cliente}}.\n", plurals(v.EmptyFields, "accepted line leaves", "accepted lines leave"))
	}
	for _, warning := range v.Warnings {
		fmt.Fprintf(w, "Warning %s: %s.\n", warning.Code, printable(warning.Message))
	}
	for _, p := range v.Preview {
		fmt.Fprintf(w, "Line %d would be sent to %s: %s\n", p.Line, printable(p.Email), printable(p.Subject))
	}
	if v.Invalid+v.Duplicates+v.EmptyFields > 0 {
		fmt.Fprintf(w, "To see these lines: gatewayctl mailing verdicts %s\n", v.ID)
	}
	switch v.Status {
	case store.MailingPaused:
		fmt.Fprintf(w, "It has not started. To start it: gatewayctl mailing start %s\n", v.ID)
	case store.MailingQueued:
		fmt.Fprintf(w, "To see its progress: gatewayctl mailing watch %s\n", v.ID)
	}
}

func (c *control) createMailing(ctx context.Context, api *client.Client, o *mailingOptions) (answer, error) {
	parts, err := o.parts(c.Stdin)
	if err != nil {
		return nil, err
	}
	files, err := parseAttach(o.attach)
	if err != nil {
		return nil, err
	}
	file, size, err := c.openCSV(o)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	p := c.progress()
	defer p.end()
	attachments, err := storeAttachments(ctx, api, files, p)
	if err != nil {
		return nil, err
	}
	if attachments != "" {
		parts = append(parts, client.Part{Name: mailing.PartAttach, Value: attachments})
	}
	form := client.Upload{Path: mailingPath, Parts: parts, FileName: filepath.Base(o.file), FileSize: size, Once: o.once}
	if o.file == "-" {
		form.FileName = o.name
	}
	made, err := uploadFile(ctx, api, form, file, p)
	if err != nil {
		return nil, uploadAdvice(atAttach(err, o.attach))
	}
	if !o.watch {
		p.end()
		return made, nil
	}
	if made.Replayed {
		p.note("This upload was already accepted as mailing %s: nothing is sent again.", made.ID)
	} else {
		p.note("Mailing %s is accepted: %s.", made.ID, made.counts())
	}
	return watchMailing(ctx, api, made.ID, p)
}

// openCSV opens the file and returns its size in bytes, -1 if unknown.
func (c *control) openCSV(o *mailingOptions) (io.ReadCloser, int64, error) {
	if o.file == "-" {
		switch {
		case o.name == "":
			return nil, 0, usagef("--file - needs --name, which is used as the file's name")
		case o.htmlFile == "-" || o.textFile == "-":
			return nil, 0, usagef("only one of --file, --html-file and --text-file can be standard input")
		}
		return io.NopCloser(c.Stdin), -1, nil
	}
	file, err := os.Open(o.file)
	if err != nil {
		return nil, 0, usagef("--file: %v", err)
	}
	about, err := file.Stat()
	switch {
	case err != nil:
		return nil, 0, errors.Join(fmt.Errorf("--file: %w", err), file.Close())
	case about.IsDir():
		return nil, 0, errors.Join(usagef("--file: %s is a folder", o.file), file.Close())
	case !about.Mode().IsRegular(): // a pipe
		return file, -1, nil
	case about.Size() > mailing.MaxFile:
		return nil, 0, errors.Join(usagef("--file: %s is larger than 512 MiB: split it", o.file), file.Close())
	}
	return file, about.Size(), nil
}

// uploadFile sends the form and shows the progress.
func uploadFile(ctx context.Context, api *client.Client, form client.Upload, file io.Reader, p *progress) (accepted, error) {
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
	tick := time.NewTicker(redrawEvery)
	defer tick.Stop()
	show := uploadSteps(form.FileSize)
	for {
		select {
		case e := <-ended:
			return e.made, e.err
		case now := <-tick.C:
			p.update(show(now, sent.Load()))
		}
	}
}

// uploadSteps returns a function that describes an upload's progress; size is -1 if unknown.
func uploadSteps(size int64) func(now time.Time, sent int64) step {
	var going pace
	var whole time.Time
	return func(now time.Time, sent int64) step {
		if sent == size {
			if whole.IsZero() {
				whole = now
			}
			return step{what: "Uploaded " + mebibytes(size) + "; the gateway is reading the lines", text: span(now.Sub(whole)) + " so far"}
		}
		going.add(now, sent)
		s := step{what: "Uploading", done: sent, total: max(size, 0), text: mebibytes(sent)}
		if size > 0 {
			s.text += " of " + mebibytes(size)
		}
		if going.perSec > 0 {
			s.text += ", " + mebibytes(int64(going.perSec)) + "/s"
		}
		if left := going.left(sent, size); left > 0 {
			s.text += ", " + span(left) + " left"
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
	var unreachable *client.UnreachableError
	var refused *client.Problem
	switch {
	case errors.As(err, &unreachable) && unreachable.Began && !errors.Is(err, context.Canceled),
		errors.As(err, &refused) && refused.Code == "ACCEPT_UNKNOWN":
		return fmt.Errorf("%w\nRun the same command again: if the mailing was accepted, the same response is returned and nothing is sent twice", err)
	case errors.As(err, &refused) && refused.Code == "FILENAME_EXISTS":
		return fmt.Errorf("%w\nGive it another name with --name", err)
	}
	return err
}
