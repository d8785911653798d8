package e2e_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A program that receives SIGTERM reports immediately that it drains, and keeps its port open for DRAIN_DELAY.
func TestDrainDelay(t *testing.T) {
	t.Parallel()
	const delay = 5 * time.Second
	s := startSystem(t, map[string]string{"DRAIN_DELAY": delay.String()})
	for _, p := range []*program{s.worker, s.dispatcher, s.api} {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			eventually(t, func() error {
				if status, body, err := askReady(t, p); err != nil || status != http.StatusOK {
					return fmt.Errorf("/readyz before the stop: %d %s %w", status, body, err)
				}
				return nil
			})
			asked, draining := time.Now(), 0
			// Until the drain has begun, a dependency whose check is late may make it 503 on a busy machine.
			p.signal(syscall.SIGTERM)
			eventually(t, func() error {
				status, body, err := askReady(t, p)
				switch {
				case err != nil: // the port is closed
					return nil
				case status == http.StatusServiceUnavailable && strings.Contains(body, "draining"):
					draining++
				case draining > 0 || status != http.StatusOK && status != http.StatusServiceUnavailable:
					t.Errorf("/readyz during the drain: %d %s", status, body)
				}
				return errors.New("the port is open after SIGTERM")
			})
			if open := time.Since(asked); open < delay {
				t.Errorf("the port was closed after %s, want DRAIN_DELAY, %s", open, delay)
			}
			if draining == 0 {
				t.Error("/readyz never said that the program drains")
			}
			p.await()
			if err := p.process.Err(); err != nil {
				t.Error(err)
			}
		})
	}
}

// askReady requests /readyz over a new connection.
func askReady(t *testing.T, p *program) (status int, body string, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.addr+"/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	answer, err := httpClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), err
}
