package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"email-gateway/shared/crashpoint"
	"email-gateway/shared/store/storetest"
)

// recruiting is a tenant's program beside the gateway: it has its own role on the same database, which may write one
// company's emails and cannot read the gateway's tables.
type recruiting struct {
	*system
	env []string
}

func startRecruiting(t *testing.T) *recruiting {
	t.Helper()
	s := startSystem(t, nil)
	migrate(t, s.db.URL, "roles")
	var database, company string
	if err := s.db.SQL.QueryRowContext(t.Context(), `SELECT current_database(), id FROM companies`).Scan(&database, &company); err != nil {
		t.Fatal(err)
	}
	role := "recruiting_" + strings.TrimPrefix(database, "test_")
	for _, statement := range []string{
		`CREATE ROLE ` + role + ` LOGIN IN ROLE gateway_program`,
		`GRANT CREATE ON DATABASE ` + database + ` TO ` + role,
	} {
		if _, err := s.db.SQL.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	t.Cleanup(func() {
		for _, statement := range []string{`DROP OWNED BY ` + role + ` CASCADE`, `DROP ROLE ` + role} {
			if _, err := s.db.SQL.Exec(statement); err != nil {
				t.Errorf("%s: %v", statement, err)
			}
		}
	})
	s.gatewayctl("program", "allow", role, "--company", company)
	return &recruiting{system: s, env: append(os.Environ(),
		"DATABASE_URL="+as(t, s.db.URL, role), "COMPANY_ID="+company, "API_URL=http://"+s.api.addr, "API_KEY="+s.key)}
}

// interviews runs the example until it exits.
func (r *recruiting) interviews(args ...string) (string, error) {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), filepath.Join(binDir, "interviews"), args...)
	cmd.Env = r.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// must is interviews that must succeed.
func (r *recruiting) must(args ...string) string {
	r.t.Helper()
	out, err := r.interviews(args...)
	if err != nil {
		r.t.Fatalf("interviews %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

var bookedLine = regexp.MustCompile(`(?m)^interview (\d+) is booked$`)

// book books an interview and returns its number.
func (r *recruiting) book(to string, at time.Time) string {
	r.t.Helper()
	out := r.must("book", to, at.Format(time.RFC3339Nano))
	found := bookedLine.FindStringSubmatch(out)
	if found == nil {
		r.t.Fatalf("book printed %q", out)
	}
	return found[1]
}

// bookAndCrash books an interview in a process that is killed as soon as it prints the number.
func (r *recruiting) bookAndCrash(to string, at time.Time) string {
	r.t.Helper()
	p := startOther(r.t, r.env, filepath.Join(binDir, "interviews"), "book", to, at.Format(time.RFC3339Nano), "follow")
	booked := p.awaitOutput(stallLimit, bookedLine)
	p.kill()
	if !p.wasKilled() {
		r.t.Fatalf("%v\n%s", p.process.Err(), p.tail())
	}
	return booked[1]
}

// reminder returns an interview's newest email of this kind, from its row.
func (r *recruiting) reminder(interview, event string) (id, status string) {
	r.t.Helper()
	err := r.db.SQL.QueryRowContext(r.t.Context(), `SELECT id, status FROM email_outbox
		WHERE aggregate_type = 'interview' AND aggregate_id = $1 AND event_type = $2 ORDER BY id DESC LIMIT 1`, interview, event).Scan(&id, &status)
	if err != nil {
		r.t.Fatalf("%s of interview %s: %v", event, interview, err)
	}
	return id, status
}

func (r *recruiting) awaitReminder(interview, event, want string) (id string) {
	r.t.Helper()
	eventually(r.t, func() error {
		var status string
		if id, status = r.reminder(interview, event); status != want {
			return fmt.Errorf("%s of interview %s is %s, want %s", event, interview, status, want)
		}
		return nil
	})
	return id
}

const (
	day, hour         = 24 * time.Hour, time.Hour
	dayAgo, hourAgo   = "REMINDER_24H", "REMINDER_1H"
	countReminders    = "SELECT count(*) FROM email_outbox"
	countAllInterview = "SELECT count(*) FROM interviewops.interviews"
)

// An interview is committed together with its two reminders or not at all. Its program is killed directly after the
// commit, and then the dispatcher, twice, while it handles the reminder: it is sent once. A moved reminder is sent at
// its new time, a withdrawn one never.
func TestReminders(t *testing.T) {
	t.Parallel()
	r := startRecruiting(t)
	sent := 0

	// Only the commit has happened: the dispatcher is down and the program is killed.
	r.dispatcher.stop()
	at := time.Now().Add(2 * day)
	first := r.bookAndCrash("ana@example.com", at)
	if n := storetest.Ask[int](r.t, r.db, countReminders); n != 2 {
		t.Fatalf("%d reminders, want two", n)
	}
	if out, err := r.interviews("book", "eva@example.com", at.Format(time.RFC3339Nano)); err == nil || !strings.Contains(out, "commit") {
		t.Errorf("two interviews at one time: %v\n%s", err, out)
	}
	if reminders, interviews := storetest.Ask[int](r.t, r.db, countReminders), storetest.Ask[int](r.t, r.db, countAllInterview); reminders != 2 || interviews != 1 {
		t.Errorf("%d reminders of %d interviews are left of a booking that did not commit", reminders-2, interviews-1)
	}
	r.must("move", first, "+24h") // one is due now
	for _, point := range []crashpoint.Point{crashpoint.DispatchTaken, crashpoint.DispatchQueued} {
		r.dispatcher = r.startCrashing("dispatcher", point, 1, nil)
		r.dispatcher.awaitCrash(point)
	}
	r.dispatcher = startProgram(t, "dispatcher", r.system.env)
	r.awaitReminder(first, dayAgo, "SENT")
	sent++

	// The other one is moved and is due at once; the one that was sent cannot be moved.
	out := r.must("move", first, "+1h")
	if !regexp.MustCompile(dayAgo + ` +SENT, too late`).MatchString(out) {
		t.Errorf("move printed %q", out)
	}
	r.awaitReminder(first, hourAgo, "SENT")
	sent++

	// Cancelled by the program and over HTTP.
	second, third := r.book("bea@example.com", at.Add(2*hour)), r.book("lia@example.com", at.Add(3*hour))
	r.must("cancel", second)
	if status, answer := r.call(http.MethodPost, "/v1/aggregates/interview/"+third+"/cancel", nil, nil); status != http.StatusOK {
		t.Errorf("cancel: %d %s", status, answer)
	}
	for _, interview := range []string{second, third} {
		r.awaitReminder(interview, dayAgo, "CANCELLED")
		r.awaitReminder(interview, hourAgo, "CANCELLED")
	}

	// Moved so close that one reminder would be too late, and away again. Booked that close, it has no such reminder.
	near, far := time.Now().Add(3*hour), time.Now().Add(5*day)
	fourth, fifth := r.book("rui@example.com", far), r.book("zoe@example.com", near.Add(time.Minute))
	if out := r.must("move", fourth, near.Format(time.RFC3339Nano)); !regexp.MustCompile(dayAgo + ` +CANCELLED\n`).MatchString(out) {
		t.Errorf("moved near, it printed %q", out)
	}
	for interview, at := range map[string]time.Time{fourth: far.Add(hour), fifth: far.Add(2 * hour)} {
		r.must("move", interview, at.Format(time.RFC3339Nano))
		if _, status := r.reminder(interview, dayAgo); status != "PENDING" {
			t.Errorf("%s of interview %s is %s, though it was moved away", dayAgo, interview, status)
		}
	}

	r.movedBehindTheQueue()
	sent++
	r.awaitQuietQueues()
	r.sentOnce(sent)
}

// Their tasks are queued, and no worker runs, when one reminder is moved by its program, one by PATCH and one is
// withdrawn. Then a worker handles the tasks.
func (r *recruiting) movedBehindTheQueue() {
	t := r.t
	t.Helper()
	r.worker.stop()
	at := time.Now().Add(3 * day)
	moved, patched, withdrawn := r.book("m@example.com", at), r.book("p@example.com", at.Add(hour)), r.book("w@example.com", at.Add(2*hour))
	for _, interview := range []string{moved, patched, withdrawn} {
		r.must("move", interview, "+24h")
		r.awaitReminder(interview, dayAgo, "ENQUEUED")
	}
	due := time.Now().Add(4 * time.Second)
	r.must("move", moved, due.Add(day).Format(time.RFC3339Nano))
	id, _ := r.reminder(patched, dayAgo)
	far := time.Now().Add(2 * hour).Format(time.RFC3339)
	if status, answer := r.call(http.MethodPatch, "/v1/email/"+id, map[string]any{"sendAt": far}, nil); status != http.StatusOK {
		t.Errorf("patch: %d %s", status, answer)
	}
	r.must("cancel", withdrawn)
	r.worker = startProgram(t, "worker", r.system.env)

	id = r.awaitReminder(moved, dayAgo, "SENT")
	for _, request := range r.ses.Requests(id) {
		if early := due.Sub(request.Time); early > 1500*time.Millisecond { // the fence accepts emails due within a second
			t.Errorf("sent %s before it was moved to", early)
		}
	}
	if _, status := r.reminder(patched, dayAgo); status != "PENDING" {
		t.Errorf("the one of in two hours is %s", status)
	}
	if _, status := r.reminder(withdrawn, dayAgo); status != "CANCELLED" {
		t.Errorf("the one withdrawn is %s", status)
	}
}

// The example's output is what its README shows, from the first line to the email.
func TestReminders_Story(t *testing.T) {
	t.Parallel()
	r := startRecruiting(t)
	out := r.must()
	for _, want := range []string{
		`interview 1 is booked`, `interview 2 was written with 2 reminders, then refused`, `nothing is left of it`,
		`interview 3 was booked and is called off`, dayAgo + ` +CANCELLED`, hourAgo + ` +CANCELLED`, `interview 1 is moved`, dayAgo + ` +SENT`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("the output does not contain %q:\n%s", want, out)
		}
	}
	r.sentOnce(1)
}
