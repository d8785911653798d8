package neighbours

import (
	"context"
	"fmt"
	"net/http"
	"strings"
)

// bodies are resources that requests use before they are parsed: memory, connections, upload slots,
// and the commits that large emails share with small ones.
func bodies() []resource {
	return []resource{
		{
			name: "large-bodies", what: "16 connections send emails of 1 MB without a pause",
			misuse: func(ctx context.Context, s *scenario) error {
				s.generateLoad(ctx, 16, 0, func(n int) request { return s.mail(n, large(map[string]any{"sendAt": tomorrow()})) })
				return nil
			},
		},
		{
			name: "large-emails", what: "500 emails of 1 MB are sent",
			misuse: func(ctx context.Context, s *scenario) error {
				s.generateLoad(ctx, 8, s.scale(500, 50), func(n int) request { return s.mail(n, large(nil)) })
				<-ctx.Done()
				return nil
			},
		},
		{
			name: "slow-bodies", what: "96 connections send 1 byte of a body every 3 s, a third of them without a key", short: true,
			misuse: func(ctx context.Context, s *scenario) error {
				s.trickle(ctx, 32, s.head("/v1/email/send", "application/json", "Transfer-Encoding: chunked"), "1\r\n \r\n")
				s.trickle(ctx, 32, s.head("/v1/email/send", "application/json", "Content-Length: 1500000"), " ")
				s.trickle(ctx, 32, anonymous(s.head("/v1/ses/events", "text/plain; charset=UTF-8", "Transfer-Encoding: chunked")), "1\r\n \r\n")
				<-ctx.Done()
				return nil
			},
		},
		{
			name: "slow-uploads", what: "32 connections upload 1 byte of a mailing every 3 s", uploads: true,
			misuse: func(ctx context.Context, s *scenario) error {
				begin := "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"lista.csv\"\r\n\r\nemail\r\n"
				head := s.head("/mailings", "multipart/form-data; boundary=b", "Transfer-Encoding: chunked")
				s.trickle(ctx, 32, head+chunk(begin), chunk("a"))
				<-ctx.Done()
				return nil
			},
		},
		{
			name: "idle-connections", what: "2,000 connections send the head of a request and no more",
			misuse: func(ctx context.Context, s *scenario) error {
				s.trickle(ctx, s.scale(2000, 200), "GET /v1/emails HTTP/1.1\r\nHost: gateway\r\n", "X-A: b\r\n")
				<-ctx.Done()
				return nil
			},
		},
		{
			name: "slow-readers", what: "96 connections ask for lists and do not read them",
			prepare: func(ctx context.Context, s *scenario) error { return s.seedLogs(ctx, s.scale(20_000, 2000)) },
			misuse: func(ctx context.Context, s *scenario) error {
				ask := strings.Replace(s.head("/v1/emails?limit=100", "", ""), http.MethodPost, http.MethodGet, 1) + "\r\n"
				s.trickle(ctx, 96, strings.Repeat(ask, 8), "")
				<-ctx.Done()
				return nil
			},
		},
	}
}

// large returns the fields of an email of 1 MB.
func large(more map[string]any) map[string]any {
	text := strings.Repeat("Linha de detalhe da fatura. ", 500<<10/28)
	body := map[string]any{"html": "<p>" + text + "</p>", "text": text}
	for name, value := range more {
		body[name] = value
	}
	return body
}

// head returns the head of a request with the company's key; without a body its last line is
// missing.
func (s *scenario) head(path, contentType, length string) string {
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer %s\r\n", http.MethodPost, path, s.client.key)
	if contentType == "" {
		return head
	}
	return head + fmt.Sprintf("Content-Type: %s\r\n%s\r\n\r\n", contentType, length)
}

// anonymous removes the key from a head.
func anonymous(head string) string {
	var kept []string
	for line := range strings.SplitSeq(head, "\r\n") {
		if !strings.HasPrefix(line, "Authorization") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\r\n")
}

// chunk encodes text as a chunk of a chunked body.
func chunk(text string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(text), text) }
