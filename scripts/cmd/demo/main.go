// Command demo is a minimal tenant: it sends one email through the api at API_URL with the key
// API_KEY, waits for its final state and prints its timeline. It exits with 0 only if the email was
// SENT. dev.sh runs it; -check only tests whether the api accepts the key.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"time"
)

// timeout is the timeout of the email: enough for some retries, but not for an outage.
const timeout = 30 * time.Second

func main() {
	check := flag.Bool("check", false, "only ask whether the api takes the key")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	t := tenant{url: os.Getenv("API_URL"), key: os.Getenv("API_KEY")}
	var err error
	if *check {
		err = t.call(ctx, http.MethodGet, "/v1/emails?limit=1", nil, nil)
	} else {
		err = t.demo(ctx, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

const (
	address = "joao.assuncao@cliente.example"
	subject = "Olá, João! Sua inscrição está confirmada ✔"
	html    = `<!doctype html><html lang="pt-BR"><body><h1>Olá, João Assunção!</h1>
<p>Este e-mail atravessou o sistema inteiro: á é í ó ú, ã õ, ç, €.</p></body></html>`
)

func (t tenant) demo(ctx context.Context, out io.Writer) error {
	request := map[string]any{
		"to": address, "subject": subject, "html": html, "text": "Olá, João Assunção!",
		"tags":      []string{"demo"},
		"recipient": map[string]string{"externalId": "demo-1", "nome": "João Assunção", "email": address},
	}
	var accepted struct {
		OutboxID string `json:"outboxId"`
	}
	if err := t.call(ctx, http.MethodPost, "/v1/email/send", request, &accepted); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	fmt.Fprintf(out, "\n%s\nto %s, accepted as %s\n", subject, address, accepted.OutboxID)

	e, err := t.await(ctx, accepted.OutboxID)
	if err != nil {
		return fmt.Errorf("wait for %s: %w", accepted.OutboxID, err)
	}
	for _, step := range e.Events {
		fmt.Fprintf(out, "%+8d ms  %s\n", step.At.Sub(e.CreatedAt).Milliseconds(), step.Type)
	}
	if e.Status != "SENT" {
		return fmt.Errorf("the email is %s", e.Status)
	}
	return nil
}
