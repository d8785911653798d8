package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// email has the fields of GET /v1/email/{id} that the demo uses.
type email struct {
	Status    string    `json:"status"`
	CreatedAt time.Time `json:"createdAt"`
	Events    []struct {
		Type string    `json:"type"`
		At   time.Time `json:"createdAt"`
	} `json:"events"`
}

// await polls until the email has a final state.
func (t tenant) await(ctx context.Context, id string) (e email, err error) {
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		if err := t.call(ctx, http.MethodGet, "/v1/email/"+id, nil, &e); err != nil {
			return e, err
		}
		switch e.Status {
		case "SENT", "FAILED", "EXPIRED", "CANCELLED", "SUPPRESSED":
			return e, nil
		}
		select {
		case <-ctx.Done():
			return e, fmt.Errorf("still %s: %w", e.Status, ctx.Err())
		case <-again.C:
		}
	}
}

// tenant is the address of an api and a key.
type tenant struct{ url, key string }

// call sends in, if not nil, and reads the response into out.
func (t tenant) call(ctx context.Context, method, path string, in, out any) error {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, t.url+path, &body)
	if err != nil {
		return fmt.Errorf("build request: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+t.key)
	if in != nil {
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Idempotency-Key", rand.Text())
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return fmt.Errorf("read response: %w", err)
	}
	if answer.StatusCode >= http.StatusBadRequest {
		return errors.New(answer.Status + ": " + string(text))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}
