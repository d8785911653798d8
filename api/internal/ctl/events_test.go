package ctl_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"email-gateway/api/internal/ctl"
	eventstore "email-gateway/shared/store/event"
	"email-gateway/shared/store/storetest"
)

// cancelNew submits an email and cancels it, which is its first event, and returns its id.
func (o operator) cancelNew(t *testing.T, d storetest.Database) string {
	t.Helper()
	id := o.accepted(t)
	o.must(t, "email", "cancel", id)
	if _, err := eventstore.New(d.Store.DB()).AssignPositions(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	return id
}

func TestEvents(t *testing.T) {
	t.Parallel()
	tenant, _, d := newTenant(t)
	if got := tenant.must(t, "events"); !strings.Contains(got, "No events found.") {
		t.Error(got)
	}
	first, second := tenant.cancelNew(t, d), tenant.cancelNew(t, d)
	var page struct {
		Events []struct {
			ID, Type, OutboxID string
		}
		NextCursor string
		HasMore    bool
	}
	tenant.unmarshal(t, &page, "events", "--limit", "1")
	if len(page.Events) != 1 || page.Events[0].OutboxID != first || page.Events[0].Type != "CANCELLED" || page.Events[0].ID != first+".1" || !page.HasMore {
		t.Errorf("%+v", page)
	}
	tenant.unmarshal(t, &page, "events", "--after", page.NextCursor, "--types", "cancelled")
	if len(page.Events) != 1 || page.Events[0].OutboxID != second || page.HasMore {
		t.Errorf("%+v", page)
	}
	if got := tenant.must(t, "events"); !strings.Contains(got, first) || !strings.Contains(got, "CANCELLED") {
		t.Error(got)
	}
	for name, args := range map[string][]string{"limit": {"--limit", "0"}, "argument": {"x"}} {
		if got := tenant.run(t, append([]string{"events"}, args...)...); got.code != ctl.ExitUsage {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for name, args := range map[string][]string{"cursor": {"--after", "x"}, "type": {"--types", "SOLD", "--follow"}} {
		if got := tenant.run(t, append([]string{"events"}, args...)...); got.code != ctl.ExitFailed || !strings.Contains(got.stderr, "VALIDATION_FAILED") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// --follow prints events as they come, one per line, and when it is interrupted the cursor that continues.
func TestEvents_Follow(t *testing.T) {
	t.Parallel()
	tenant, _, d := newTenant(t)
	old := tenant.cancelNew(t, d)
	var page struct{ NextCursor string }
	tenant.unmarshal(t, &page, "events")
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out, in := io.Pipe()
	var stderr bytes.Buffer
	environ := []string{"API_URL=" + tenant.env["API_URL"], "API_KEY=" + tenant.env["API_KEY"]}
	ended := make(chan int, 1)
	go func() {
		defer func() { _ = in.Close() }()
		ended <- ctl.Program{Environ: environ, Login: "ana", Stdin: strings.NewReader(""), Stdout: in, Stderr: &stderr}.
			Run(ctx, []string{"events", "--follow", "--json", "--after", page.NextCursor})
	}()
	lines := bufio.NewScanner(out)
	for range 2 {
		id := tenant.cancelNew(t, d)
		if !lines.Scan() {
			t.Fatal("the output has ended: ", stderr.String())
		}
		var e struct{ OutboxID, Type string }
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil || e.OutboxID != id || e.OutboxID == old {
			t.Errorf("%s, %v, want %s", lines.Text(), err, id)
		}
	}
	interrupt()
	if lines.Scan() {
		t.Error(lines.Text())
	}
	if code := <-ended; code != ctl.ExitOK || !strings.Contains(stderr.String(), "gatewayctl events --follow --after ") {
		t.Errorf("exit code %d, %s", code, stderr.String())
	}
}
