package neighbours

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"time"
)

// client sends a company's requests.
type client struct {
	url, key string
	http     *http.Client
}

func newClient(url, key string) *client {
	return &client{url: url, key: key, http: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 256, IdleConnTimeout: time.Minute},
	}}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// request is an HTTP request. A body without a content type is JSON.
type request struct {
	method, path string
	key          string // in place of the client's
	idempotency  string
	contentType  string
	body         []byte
}

type response struct {
	status int
	body   []byte
}

// do sends a request and waits for the response, with a timeout.
func (c *client) do(ctx context.Context, r request) (response, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	out, err := http.NewRequestWithContext(ctx, r.method, c.url+r.path, bytes.NewReader(r.body))
	if err != nil {
		return response{}, fmt.Errorf("make request: %w", err)
	}
	key := c.key
	if r.key != "" {
		key = r.key
	}
	out.Header.Set("Authorization", "Bearer "+key)
	switch {
	case r.contentType != "":
		out.Header.Set("Content-Type", r.contentType)
	case len(r.body) > 0:
		out.Header.Set("Content-Type", "application/json")
	}
	if r.idempotency != "" {
		out.Header.Set("Idempotency-Key", r.idempotency)
	}
	in, err := c.http.Do(out)
	if err != nil {
		return response{}, fmt.Errorf("%s %s: %w", r.method, r.path, err)
	}
	defer in.Body.Close()
	body, err := io.ReadAll(in.Body)
	if err != nil {
		return response{status: in.StatusCode}, fmt.Errorf("read response: %w", err)
	}
	return response{status: in.StatusCode, body: body}, nil
}

// mailingRequest returns the upload of a mailing. fields are added to the templates.
func mailingRequest(name string, file []byte, fields map[string]string) (request, error) {
	var text bytes.Buffer
	form := multipart.NewWriter(&text)
	all := map[string]string{
		"subject": "Olá, {{nome}}", "html": `<p>{{nome}}</p><p><a href="{{unsubscribe_url}}">Sair</a></p>`,
	}
	for field, value := range fields {
		all[field] = value
	}
	for field, value := range all {
		if err := form.WriteField(field, value); err != nil {
			return request{}, fmt.Errorf("write form: %w", err)
		}
	}
	part, err := form.CreateFormFile("file", name)
	if err != nil {
		return request{}, fmt.Errorf("write form: %w", err)
	}
	if _, err := part.Write(file); err != nil {
		return request{}, fmt.Errorf("write form: %w", err)
	}
	if err := form.Close(); err != nil {
		return request{}, fmt.Errorf("write form: %w", err)
	}
	return request{method: http.MethodPost, path: "/mailings", contentType: form.FormDataContentType(), body: text.Bytes()}, nil
}

// rows returns a mailing's file: n addresses of the domain, numbered from that number on.
func rows(domain string, from, n int) []byte {
	var text strings.Builder
	text.WriteString("nome;email\r\n")
	for i := range n {
		fmt.Fprintf(&text, "Ana %d;ana%d@%s\r\n", from+i, from+i, domain)
	}
	return []byte(text.String())
}
