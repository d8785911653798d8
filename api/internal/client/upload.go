package client

import (
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"sync/atomic"
)

// Part is a part of a form that is not its file.
type Part struct{ Name, Value string }

// Upload is a form with a file, which is read once and never held as a whole.
type Upload struct {
	Path     string
	Parts    []Part
	FileName string
	File     io.Reader
	FileSize int64 // bytes; -1 = not known, and sent in chunks
	Once     string
}

// Upload sends the form and reads the answer into out. It takes as long as the file and
// the api's own work need. replayed says that the answer is an earlier one: the same form
// was taken in before, and nothing was begun.
//
// The parts go first: then the api knows them all when the file begins, whose end is the
// end of the body.
func (c *Client) Upload(ctx context.Context, u Upload, out any) (replayed bool, err error) {
	reader, writer := io.Pipe()
	defer func() { _ = reader.Close() }() // the writer must not wait for a request that has ended
	form := multipart.NewWriter(writer)
	length := int64(-1)
	if u.FileSize >= 0 {
		frame, err := u.frame(form.Boundary())
		if err != nil {
			return false, err
		}
		length = frame + u.FileSize
	}
	file := &source{reader: u.File}
	u.File = file
	go func() { _ = writer.CloseWithError(u.write(form)) }() // which is always nil
	header := http.Header{}
	header.Set("Content-Type", form.FormDataContentType())
	header.Set("Expect", "100-continue")
	if u.Once != "" {
		header.Set("Idempotency-Key", u.Once)
	}
	answer, err := c.send(ctx, http.MethodPost, u.Path, nil, header, reader, length)
	if err != nil {
		if cause := file.err.Load(); cause != nil { // what the connection said then is its effect
			return false, fmt.Errorf("read the file: %w", *cause)
		}
		return false, err
	}
	defer answer.Body.Close()
	return answer.Header.Get("Idempotent-Replayed") == "true", read(answer, out)
}

// source remembers the error that a file ended with.
type source struct {
	reader io.Reader
	err    atomic.Pointer[error]
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.reader.Read(p)
	if err != nil && err != io.EOF {
		s.err.Store(&err)
	}
	return n, err
}

func (u Upload) write(form *multipart.Writer) error {
	for _, p := range u.Parts {
		if err := form.WriteField(p.Name, p.Value); err != nil {
			return fmt.Errorf("write part %s: %w", p.Name, err)
		}
	}
	file, err := form.CreateFormFile("file", u.FileName)
	if err != nil {
		return fmt.Errorf("write part file: %w", err)
	}
	if _, err := io.Copy(file, u.File); err != nil {
		return fmt.Errorf("send file: %w", err)
	}
	return form.Close()
}

// frame is how many bytes the form is without the content of its file.
func (u Upload) frame(boundary string) (int64, error) {
	var n counter
	form := multipart.NewWriter(&n)
	if err := form.SetBoundary(boundary); err != nil {
		return 0, fmt.Errorf("write form: %w", err)
	}
	u.File = eof{}
	err := u.write(form)
	return int64(n), err
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }

// Download writes the answer's body to w as it comes, however long it is.
func (c *Client) Download(ctx context.Context, path string, query url.Values, w io.Writer) error {
	answer, err := c.send(ctx, http.MethodGet, path, query, http.Header{}, nil, -1)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(w, answer.Body); err != nil {
		return fmt.Errorf("the list broke off: %w", err)
	}
	return nil
}
