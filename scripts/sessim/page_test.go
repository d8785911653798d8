package sessim_test

import (
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"email-gateway/scripts/sessim"
)

const hostile = `<p class="a" title='b'>Olá &amp; até já</p><script>parent.document.title="x"</script>"></iframe><img src=x onerror=alert(1)>`

func hostileMail() request {
	r := body("Ana <ana@example.com>").tagged("o1").
		with("FromEmailAddress", "=?utf-8?q?Jos=C3=A9?= <jose@example.com>").
		with("Content.Simple.Subject.Data", `Olá <script>alert(1)</script>`).
		with("Content.Simple.Body.Html.Data", hostile).
		with("Content.Simple.Headers", headers("X-Campaign", "<b>spring</b>"))
	return r.with("Content.Simple.Body.Text", map[string]any{"Data": "Olá </pre><b>x</b>", "Charset": "UTF-8"})
}

func TestPages(t *testing.T) {
	t.Parallel()
	sim := sessim.New(sessim.Config{})
	send(t, sim, hostileMail())
	inject(t, sim, sessim.Rule{Fault: "throttle", Times: 3})
	id := sim.Inbox()[0].MessageID

	list := do(t, sim, http.MethodGet, "/", "")
	for _, want := range []string{
		`href="/messages/` + id + `"`, "José &lt;jose@example.com&gt;", "Ana &lt;ana@example.com&gt;",
		"Olá &lt;script&gt;", "o1", "<code>throttle</code> (0 of 3)",
	} {
		if !strings.Contains(list.Body.String(), want) {
			t.Errorf("inbox lacks %q:\n%s", want, list.Body)
		}
	}
	if got := list.Header().Get("Content-Type"); got != "text/html; charset=utf-8" {
		t.Errorf("Content-Type = %q", got)
	}

	page := do(t, sim, http.MethodGet, "/messages/"+id, "")
	frame := regexp.MustCompile(`<iframe sandbox title="[^"]*" srcdoc="([^"]*)"></iframe>`).FindStringSubmatch(page.Body.String())
	if frame == nil {
		t.Fatalf("no sandboxed frame:\n%s", page.Body)
	}
	if got := html.UnescapeString(frame[1]); got != hostile {
		t.Errorf("the frame shows %q, want %q", got, hostile)
	}
	outside := strings.Replace(page.Body.String(), frame[0], "", 1)
	for _, bad := range []string{"<script", "<b>", "onerror"} {
		if strings.Contains(outside, bad) {
			t.Errorf("the mail's %q escaped into the page:\n%s", bad, outside)
		}
	}
	for _, want := range []string{"Olá &lt;/pre&gt;", "&lt;b&gt;spring&lt;/b&gt;", "outbox_id", id} {
		if !strings.Contains(outside, want) {
			t.Errorf("message page lacks %q:\n%s", want, outside)
		}
	}
	if policy := page.Header().Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") {
		t.Errorf("policy = %q", policy)
	}
}

func TestPages_Empty(t *testing.T) {
	t.Parallel()
	sim := sessim.New(sessim.Config{})
	if w := do(t, sim, http.MethodGet, "/", ""); w.Code != 200 || !strings.Contains(w.Body.String(), "No mail.") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	for path, want := range map[string]int{"/messages/none": 404, "/messages/none.json": 404, "/nowhere": 404, "/livez": 200} {
		if w := do(t, sim, http.MethodGet, path, ""); w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
	for _, path := range []string{"/inbox.json", "/sim/ledger"} {
		if w := do(t, sim, http.MethodGet, path, ""); strings.TrimSpace(w.Body.String()) != "[]" {
			t.Errorf("%s: %q, want an empty list", path, w.Body)
		}
	}
}

func get[T any](t *testing.T, sim *sessim.Server, path string) (answer T) {
	t.Helper()
	w := do(t, sim, http.MethodGet, path, "")
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%s: %v in %s", path, err, w.Body)
	}
	return answer
}

func TestJSON_MatchesGo(t *testing.T) {
	t.Parallel()
	sim := sessim.New(sessim.Config{Clock: newClock().Now})
	send(t, sim, hostileMail())
	send(t, sim, body("bia+sim-throttle@example.com").tagged("o2"))
	if diff := cmp.Diff(sim.Inbox(), get[[]sessim.Mail](t, sim, "/inbox.json")); diff != "" {
		t.Error("inbox:\n" + diff)
	}
	if diff := cmp.Diff(sim.Inbox()[0], get[sessim.Mail](t, sim, "/messages/"+sim.Inbox()[0].MessageID+".json")); diff != "" {
		t.Error("message:\n" + diff)
	}
	if diff := cmp.Diff(sim.Ledger(), get[[]sessim.Entry](t, sim, "/sim/ledger")); diff != "" {
		t.Error("ledger:\n" + diff)
	}
	if diff := cmp.Diff(sim.Summary(), get[sessim.Summary](t, sim, "/sim/ledger/summary")); diff != "" {
		t.Error("summary:\n" + diff)
	}
}

func TestQueries(t *testing.T) {
	t.Parallel()
	c := newClock()
	sim := sessim.New(sessim.Config{Clock: c.Now})
	for _, to := range []string{"ana@example.com", "bia@example.com", "ana@other.example"} {
		send(t, sim, body(to).tagged("o-"+to[:3]))
		c.advance(time.Second)
	}
	second := c.Now().Add(-2 * time.Second)
	for query, want := range map[string]int{
		"":                                 3,
		"to=ana@example.com":               1,
		"to=@example.com":                  2,
		"outboxId=o-ana":                   2,
		"outboxId=o-ana&to=@other.example": 1,
		"outboxId=none":                    0,
		"since=" + url.QueryEscape(second.Format(time.RFC3339Nano)): 2,
		"since=" + strconv.FormatInt(second.Unix(), 10):             2,
	} {
		if got := len(get[[]sessim.Entry](t, sim, "/sim/ledger?"+query)); got != want {
			t.Errorf("ledger, %s: %d entries, want %d", query, got, want)
		}
		if got := len(get[[]sessim.Mail](t, sim, "/inbox.json?"+query)); got != want {
			t.Errorf("inbox, %s: %d mails, want %d", query, got, want)
		}
	}
	if got := get[[]sessim.Mail](t, sim, "/inbox.json?limit=1"); len(got) != 1 || got[0].To[0] != "ana@other.example" {
		t.Errorf("limit=1: %+v, want the newest", got)
	}
	for _, path := range []string{"/inbox.json?limit=0", "/inbox.json?limit=x", "/inbox.json?since=yesterday", "/sim/ledger?since=x", "/?limit=-1"} {
		if w := do(t, sim, http.MethodGet, path, ""); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

func TestControl(t *testing.T) {
	t.Parallel()
	sim := sessim.New(sessim.Config{})
	steps := []struct {
		method, path, text string
		status             int
	}{
		{"POST", "/sim/faults", `{"fault":"throttle","match":{"to":"ana@example.com"},"times":1,"delayMs":1}`, 201},
		{"POST", "/sim/faults", `{"fault":"throttle","match":{"recipient":"ana@example.com"}}`, 400},
		{"POST", "/sim/faults", `{"fault":"no-such"}`, 400},
		{"POST", "/sim/faults", `nonsense`, 400},
		{"PUT", "/sim/settings", `{"latencyMs":2}`, 200},
		{"PUT", "/sim/settings", `{"paused":true}`, 200},
		{"PUT", "/sim/settings", `{"getAccount":"500"}`, 400},
		{"PUT", "/sim/settings", `{"latency":1}`, 400},
		{"PUT", "/sim/settings", `{"latencyMs":-1}`, 400},
	}
	for _, s := range steps {
		if w := do(t, sim, s.method, s.path, s.text); w.Code != s.status {
			t.Errorf("%s %s %s: %d %s", s.method, s.path, s.text, w.Code, w.Body)
		}
	}
	want := sessim.Settings{MaxSendRate: 10_000, LatencyMS: 2, Paused: true, GetAccount: "ok"}
	if diff := cmp.Diff(want, get[sessim.Settings](t, sim, "/sim/settings")); diff != "" {
		t.Error("settings:\n" + diff)
	}
	list := get[struct {
		Rules []sessim.Rule
		Table []struct{ Name string }
	}](t, sim, "/sim/faults")
	if len(list.Rules) != 1 || list.Rules[0].Match.To != "ana@example.com" || len(list.Table) != len(sessim.Faults()) {
		t.Errorf("faults = %+v", list)
	}
	if w := do(t, sim, "DELETE", "/sim/faults", ""); w.Code != 204 || len(sim.Rules()) != 0 {
		t.Errorf("delete: %d", w.Code)
	}
	if w := do(t, sim, "POST", "/sim/reset", ""); w.Code != 204 || sim.Settings().Paused {
		t.Errorf("reset: %d", w.Code)
	}
}

var kebab = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// The README's table lists all faults.
func TestFaultTable(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range sessim.Faults() {
		if !kebab.MatchString(f.Name) || seen[f.Name] {
			t.Errorf("%q is not a unique name in kebab-case", f.Name)
		}
		seen[f.Name] = true
		if !strings.Contains(string(readme), "`"+f.Name+"`") {
			t.Errorf("README.md does not name %s", f.Name)
		}
	}
}
