package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// buildPreviousRelease builds the programs of the commit in testdata/previous-release and returns their directory.
// Without that commit there is nothing to compare with, so the test fails.
func buildPreviousRelease(t *testing.T) string {
	t.Helper()
	named, err := os.ReadFile("testdata/previous-release")
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(named)), "\n"), func(line string) bool { return strings.HasPrefix(line, "#") })
	if len(lines) != 1 {
		t.Fatalf("testdata/previous-release names %q, want one commit", lines)
	}
	commit, dir := lines[0], t.TempDir()
	run := func(dir string, command ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
		cmd.Dir = dir
		// Without paths in the output, the build cache also works for a copy in another folder.
		cmd.Env = append(os.Environ(), "GOWORK=", "GOFLAGS="+os.Getenv("GOFLAGS")+" -trimpath")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s\ntestdata/previous-release must name an ancestor of HEAD, and the clone must have its history (git fetch --unshallow)",
				strings.Join(command, " "), err, out)
		}
	}
	run(rootDir, "git", "merge-base", "--is-ancestor", commit, "HEAD")
	run(rootDir, "git", "archive", "--format=tar", "--output="+filepath.Join(dir, "source.tar"), commit)
	run(dir, "tar", "-xf", "source.tar")
	run(dir, "go", "build", "-buildvcs=false", "-o", "bin/", "./api/cmd/...", "./worker/cmd/dispatcher", "./worker/cmd/worker", "./schema/cmd/migrate")
	return filepath.Join(dir, "bin")
}

// release is the three programs of one release, and the emails accepted through its api.
type release struct {
	*system
	name, bin string
	programs  map[string]*program
	accepted  map[string][]string // outbox ids by the status that they must end with
	people    []string            // externalIds
}

func (r *release) start(name string) {
	r.t.Helper()
	env := maps.Clone(r.env)
	if before := r.programs[name]; before != nil {
		env[strings.ToUpper(name)+"_ADDR"] = before.addr // its callers keep the address
	}
	r.programs[name] = startProgramAt(r.t, filepath.Join(r.bin, name), env)
}

// kinds of emails, by what happens between the acceptance and the end.
var kinds = []struct{ fault, status string }{
	{"", "SENT"},
	{"", "SENT"},
	{"", "SENT"},
	{"", "SENT"},
	{"+sim-internal-failure-x1", "SENT"},
	{"", "SENT"},
	{"", "SENT"},
	{"", "SENT"},
	{"", "SENT"},
	{"+sim-cut-after-x1", "SENT"},
	{"", "SENT"},
	{"+sim-message-rejected", "FAILED"},
}

// throttledEvery: one of so many emails is throttled. Each such response halves the rate of all workers, and with
// more of them the test would not end.
const throttledEvery = 150

// load sends through the api until stop is closed. A request while the api is down promises nothing.
func (r *release) load(stop <-chan struct{}) {
	tick := time.NewTicker(40 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		kind := kinds[i%len(kinds)]
		if i%throttledEvery == 0 {
			kind.fault, kind.status = "+sim-throttle-x2", "SENT"
		}
		to := fmt.Sprintf("%s%d%s@example.com", r.name, i, kind.fault)
		external := fmt.Sprintf("%s-%d", r.name, i)
		body := newBody(to, func(b map[string]any) { b["recipient"] = map[string]any{"externalId": external, "email": to} })
		if i%4 == 1 {
			body["sendAt"] = time.Now().Add(3 * time.Second).Format(time.RFC3339Nano)
		}
		var answer struct{ OutboxID string }
		status, text, err := r.try(http.MethodPost, "/v1/email/send", body, nil)
		if err == nil && status == http.StatusAccepted && json.Unmarshal(text, &answer) == nil {
			r.accepted[kind.status] = append(r.accepted[kind.status], answer.OutboxID)
		}
		person := map[string]any{"externalId": "P-" + external, "email": "p" + to, "nome": "Ana " + external}
		if i%5 != 2 {
			continue
		}
		if status, _, err := r.try(http.MethodPost, "/v1/recipients", person, nil); err == nil && status == http.StatusAccepted {
			r.people = append(r.people, "P-"+external)
		}
	}
}

// Programs of the previous release run beside those of this one, on the schema and the queues of this one: each is
// stopped and killed in turn while both apis accept, and nothing is lost or sent twice without a flag.
func TestPreviousRelease(t *testing.T) {
	t.Parallel()
	bin := buildPreviousRelease(t)
	env := bulk(t, brokerURL(t))
	maps.Copy(env, map[string]string{
		"EMAIL_BACKOFF": "200ms,500ms,1s", "RESCUE_AFTER": "3s", "RECIPIENTS_RETRY_TTL_MS": "500", "RECIPIENTS_BATCH_TIMEOUT_MS": "100",
	})
	s := startSystem(t, env)
	old := *s
	releases := []*release{
		{system: &old, name: "old", bin: bin, programs: map[string]*program{}, accepted: map[string][]string{}},
		{
			system: s, name: "new", bin: binDir, accepted: map[string][]string{},
			programs: map[string]*program{"api": s.api, "dispatcher": s.dispatcher, "worker": s.worker},
		},
	}
	programs := []string{"api", "dispatcher", "worker"}
	for _, name := range programs {
		releases[0].start(name)
	}
	old.api = releases[0].programs["api"]

	sheet := newSpreadsheet(t, 300)
	mailings := []string{old.mail("old.csv", sheet, nil), s.mail("new.csv", sheet, nil)}
	stop := make(chan struct{})
	var loads sync.WaitGroup
	for _, r := range releases {
		loads.Go(func() { r.load(stop) })
	}
	finish := sync.OnceFunc(func() { close(stop); loads.Wait() })
	defer finish()

	ends := []func(*program){(*program).stop, (*program).kill}
	for i, name := range programs {
		for j, r := range releases {
			ends[(i+j)%2](r.programs[name])
			awaitProgress(s, 15) // with the other release's program alone
			r.start(name)
		}
	}
	finish()
	awaitEnds(s)
	for _, id := range mailings {
		m := s.awaitMailing(id, "COMPLETED")
		if ended := m.Sent + m.Failed + m.Suppressed + m.Expired + m.Cancelled + m.Unknown; m.Accepted != len(sheet.people) || ended != m.Accepted ||
			m.Total != m.Accepted+m.Invalid+m.Duplicates {
			t.Errorf("the sums of a mailing do not hold: %+v", m)
		}
	}
	for _, r := range releases {
		r.check()
	}
	checkLedger(s)
}
