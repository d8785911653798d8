package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// addrHandler is a log handler that passes on the address in its only line.
type addrHandler struct{ lines chan string }

func (addrHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h addrHandler) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (h addrHandler) WithGroup(string) slog.Handler          { return h }

func (h addrHandler) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		h.lines <- a.Value.String()
		return true
	})
	return nil
}

// startProgram runs the program on a free port. stop stops it and returns run's error.
func startProgram(t *testing.T, env map[string]string) (url string, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	log := addrHandler{lines: make(chan string, 8)}
	ended := make(chan error, 1)
	env["SES_SIM_ADDR"] = "127.0.0.1:0"
	go func() { ended <- run(ctx, nil, func(name string) string { return env[name] }, slog.New(log)) }()
	stop = func() error {
		cancel()
		err := <-ended
		ended <- err
		if len(log.lines) != 0 {
			t.Errorf("more than one line was logged: %q", <-log.lines)
		}
		return err
	}
	t.Cleanup(func() { _ = stop() })
	select {
	case addr := <-log.lines:
		return "http://" + addr, stop
	case err := <-ended:
		ended <- err
		t.Fatalf("run: %v", err)
	case <-time.After(3 * time.Minute):
		t.Fatal("the program does not listen")
	}
	return "", nil
}

func TestRun(t *testing.T) {
	t.Parallel()
	url, stop := startProgram(t, map[string]string{"SES_SIM_MAX_SEND_RATE": "42.5"})
	response, err := http.Get(url + "/sim/settings")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var settings struct{ MaxSendRate float64 }
	if err := json.NewDecoder(response.Body).Decode(&settings); err != nil || settings.MaxSendRate != 42.5 {
		t.Errorf("settings = %+v, %v", settings, err)
	}
	if err := stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if _, err := net.Dial("tcp", strings.TrimPrefix(url, "http://")); err == nil {
		t.Error("it still listens")
	}
}

// A request that a fault holds for ever must not prevent the program from exiting.
func TestRun_StopsWithHeldRequests(t *testing.T) {
	t.Parallel()
	url, stop := startProgram(t, map[string]string{})
	body := `{"FromEmailAddress":"a@example.com","Destination":{"ToAddresses":["sim-hang@example.com"]},"Content":{"Simple":{"Subject":{"Data":"x"},"Body":{"Text":{"Data":"x"}}}}}`
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v2/email/outbound-emails", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "AWS4-HMAC-SHA256 x")
	cut := make(chan error, 1)
	go func() {
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			response.Body.Close()
		}
		cut <- err
	}()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for requests(t, url) == 0 {
		<-tick.C
	}
	if err := stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if err := <-cut; err == nil {
		t.Error("the held request was answered")
	}
}

func requests(t *testing.T, url string) int {
	t.Helper()
	response, err := http.Get(url + "/sim/ledger/summary")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var summary struct{ Requests int }
	if err := json.NewDecoder(response.Body).Decode(&summary); err != nil {
		t.Fatal(err)
	}
	return summary.Requests
}

func TestConfigure_Refuses(t *testing.T) {
	t.Parallel()
	for _, rate := range []string{"fast", "0", "-1", "NaN", "Inf"} {
		getenv := func(name string) string { return map[string]string{"SES_SIM_MAX_SEND_RATE": rate}[name] }
		if _, _, _, err := configure(nil, getenv); err == nil || !strings.Contains(err.Error(), "SES_SIM_MAX_SEND_RATE") {
			t.Errorf("rate %s: %v", rate, err)
		}
	}
	none := func(string) string { return "" }
	for _, args := range [][]string{{"-ledger-entries", "0"}, {"-inbox-mails", "-1"}, {"-unknown"}} {
		if _, _, _, err := configure(args, none); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
	cfg, addr, _, err := configure(nil, none)
	if err != nil || addr != "127.0.0.1:8005" || cfg.LedgerEntries != 200_000 || cfg.InboxMails != 10_000 {
		t.Errorf("defaults: %s, %s, %v", fmt.Sprint(cfg), addr, err)
	}
}

func TestRun_PublishesEvents(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 10)
	endpoint := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var m struct{ TopicArn, SignatureVersion, SubscribeURL string }
		_ = json.NewDecoder(r.Body).Decode(&m)
		asked <- m.TopicArn + " " + m.SignatureVersion + " " + m.SubscribeURL
	}))
	t.Cleanup(endpoint.Close)
	url, _ := startProgram(t, map[string]string{
		"SES_SIM_EVENTS_URL": endpoint.URL, "SES_SIM_EVENTS_TOPIC": "arn:aws:sns:us-east-1:123456789012:t", "SES_SIM_EVENTS_SIGNATURE": "1",
	})
	select {
	case got := <-asked:
		if !strings.HasPrefix(got, "arn:aws:sns:us-east-1:123456789012:t 1 "+url+"/sim/sns/confirm?") {
			t.Errorf("asked for %s", got)
		}
	case <-time.After(3 * time.Minute):
		t.Error("the endpoint is not asked to confirm")
	}
	err := run(t.Context(), nil, func(name string) string {
		return map[string]string{"SES_SIM_ADDR": "127.0.0.1:0", "SES_SIM_EVENTS_URL": "mailto:x"}[name]
	}, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "SES_SIM_EVENTS") {
		t.Errorf("a wrong URL: %v", err)
	}
}
