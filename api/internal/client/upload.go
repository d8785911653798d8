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

// Part is a part of a form other than its file.
type Part struct{ Name, Value string }

// Upload is a form with a file, which is streamed.
type Upload struct {
	Path           string
	Parts          []Part
	FileName       string
	File           io.Reader
	FileSize       int64 // bytes; -1 = unknown: sent in chunks
	IdempotencyKey string
}

// Upload sends the form and decodes the response into out. It takes as long as the file and the
// api need. replayed reports that the same form was accepted before and the response is the
// earlier one.
//
// The other parts are sent first, so that the api knows them when the file begins.
func (c *Client) Upload(ctx context.Context, u Upload, out any) (replayed bool, err error) {
	reader, writer := io.Pipe()
	defer func() { _ = reader.Close() }() // unblocks the writer if the request has ended
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
	go func() { _ = writer.CloseWithError(u.write(form)) }() // always nil
	header := http.Header{}
	header.Set("Content-Type", form.FormDataContentType())
	header.Set("Expect", "100-continue")
	if u.IdempotencyKey != "" {
		header.Set("Idempotency-Key", u.IdempotencyKey)
	}
	answer, err := c.send(ctx, http.MethodPost, u.Path, nil, header, reader, length)
	if err != nil {
		if cause := file.err.Load(); cause != nil { // the connection error is only its effect
			return false, fmt.Errorf("read the file: %w", *cause)
		}
		return false, asUnknown(err, u.IdempotencyKey)
	}
	defer answer.Body.Close()
	return answer.Header.Get("Idempotent-Replayed") == "true", asUnknown(read(answer, out), u.IdempotencyKey)
}

// PostFile sends a file as the body and decodes the response into out.
func (c *Client) PostFile(ctx context.Context, path string, file io.Reader, out any) error {
	header := http.Header{}
	header.Set("Content-Type", "application/octet-stream")
	header.Set("Expect", "100-continue")
	source := &source{reader: file}
	answer, err := c.send(ctx, http.MethodPost, path, nil, header, source, -1)
	if cause := source.err.Load(); err != nil && cause != nil { // the connection error is only its effect
		return fmt.Errorf("read the file: %w", *cause)
	}
	if err != nil {
		return asUnknown(err, "")
	}
	defer answer.Body.Close()
	return asUnknown(read(answer, out), "")
}

// source keeps the error that reading a file ended with.
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

// frame returns the size of the form without the content of its file (bytes).
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

// Download streams the response body to w.
func (c *Client) Download(ctx context.Context, path string, query url.Values, w io.Writer) error {
	answer, err := c.send(ctx, http.MethodGet, path, query, http.Header{}, nil, -1)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(w, answer.Body); err != nil {
		return fmt.Errorf("the download was interrupted: %w", err)
	}
	return nil
}
