package ctl_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/ctl"
	"email-gateway/api/internal/ctl/goldentest"
	"email-gateway/shared/email"
	"email-gateway/shared/store/deadletter"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

// giveUp creates an email of the company that SES rejected, and returns the id of its dead
// letter.
func giveUp(t *testing.T, d storetest.Database, company uuid.UUID) string {
	t.Helper()
	id, token := d.Accept(t, company, nil), uuid.New()
	for _, step := range []outbox.Transition{
		{Guard: outbox.GuardClaim, Status: email.Processing, AddAttempts: 1, Events: []email.Event{
			event(email.EventReceived, nil), event(email.EventValidated, nil), event(email.EventSentAttempt, nil),
		}},
		{
			Guard: outbox.GuardAttempt, Status: email.Failed, DeadLetter: true, ErrorCode: "SES_REJECTED", ErrorReason: "not verified: ana@example.com",
			Events: []email.Event{event(email.EventFailed, map[string]any{"errorCode": "SES_REJECTED", "errorMessage": "not verified: ana@example.com"})},
		},
	} {
		step.ID, step.Token = id, token
		if moved, err := d.Store.Advance(t.Context(), step); err != nil || !moved.Applied {
			t.Fatal(moved, err)
		}
	}
	var deadLetter string
	if err := d.SQL.QueryRowContext(t.Context(), `SELECT id FROM dead_letters WHERE outbox_id = $1`, id).Scan(&deadLetter); err != nil {
		t.Fatal(err)
	}
	return deadLetter
}

func event(name email.EventType, metadata map[string]any) email.Event {
	return email.Event{Type: name, At: time.Now().UTC(), Metadata: metadata}
}

// dispatch processes replays until the test ends.
func dispatch(t *testing.T, d storetest.Database) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	t.Cleanup(func() { stop(); <-stopped })
	go func() {
		defer close(stopped)
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
			due, _ := d.Store.DueReplays(ctx)
			for _, replay := range due {
				_, _ = d.Store.WorkReplay(ctx, replay.ID, 1, func(ctx context.Context, r deadletter.Replay, letters []deadletter.Letter) (n deadletter.ReplayCounts, err error) {
					how := r.Retry()
					how.TTL = time.Hour
					err = d.Store.RetryDeadLetter(ctx, letters[0], how)
					var nothing *deadletter.NotReplayableError
					if errors.As(err, &nothing) {
						return deadletter.ReplayCounts{Skipped: 1}, nil
					}
					return deadletter.ReplayCounts{Done: 1}, err
				})
			}
		}
	}()
}

func count(t *testing.T, d storetest.Database, query string) (n int) {
	t.Helper()
	if err := d.SQL.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

type shownLetters struct {
	DeadLetters []shownLetter
	More        bool
}

type shownLetter struct {
	ID, CompanyID, Company, Target, Reason, Detail, OutboxID, MailingID, Recipient, CreatedAt string
	ResolvedAt, Resolution, ResolvedBy, Note, ReplayID, EmailStatus                           string
	Attempts                                                                                  int
	Payload                                                                                   any
	Events                                                                                    []any
}

type shownReplay struct {
	ReplayID, CompanyID, Action, Status, Note, RequestedBy, CreatedAt, FinishedAt string
	Filter                                                                        any
	Limit, Rate, Matched, Done, Skipped, Failed                                   int
}

// timeless replaces durations, including the width of their column.
func timeless(text string) string {
	text = regexp.MustCompile(`([(+])[0-9.]+ m?s`).ReplaceAllString(text, "${1}0 ms")
	return regexp.MustCompile(`(Z|AFTER|\+0 ms) {2,}`).ReplaceAllString(text, "$1  ")
}

func TestDeadLetters_ListAndShow(t *testing.T) {
	t.Parallel()
	o, d := newOperator(t)
	o.must(t, "company", "create", "--name", "Acme", "--default-from", "billing@acme.example")
	acme, err := d.Store.FindCompany(t.Context(), "Acme")
	if err != nil {
		t.Fatal(err)
	}
	first, second := giveUp(t, d, acme.ID), giveUp(t, d, acme.ID)
	giveUp(t, d, d.Company(t))
	if err := d.Store.DeadLetterTask(t.Context(), deadletter.Task{Target: "email:send", Reason: "INVALID_PAYLOAD", Payload: []byte("ana@example.com {")}); err != nil {
		t.Fatal(err)
	}
	o.must(t, "dlq", "discard", first, "--reason", "known")

	for args, want := range map[string]int{
		"": 3, "--all": 4, "--company Acme": 1, "--company Acme --all": 2, "--code INVALID_PAYLOAD": 1, "--recipient ANA@example.com": 2,
		"--since 1h": 3, "--since 2099-01-01T00:00:00Z": 0, "--until 1h": 0, "--until 2099-01-01T00:00:00Z": 3, "--target mailing.process": 0, "--limit 2": 2,
		"--mailing " + uuid.NewString(): 0,
	} {
		var list shownLetters
		o.decode(t, &list, append([]string{"dlq", "list"}, strings.Fields(args)...)...)
		if len(list.DeadLetters) != want || list.More != (args == "--limit 2") {
			t.Errorf("list %s: %+v, want %d", args, list, want)
		}
	}
	text := o.must(t, "dlq", "list", "--all")
	for _, want := range []string{"ID ", "Acme ", "SES_REJECTED", "INVALID_PAYLOAD", "a***@e***.com", "discarded", "open"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if text := o.must(t, "dlq", "list", "--target", "mailing.process"); text != "No dead letters found.\n" {
		t.Error(text)
	}

	var shown shownLetter
	o.decode(t, &shown, "dlq", "show", first)
	payload, _ := shown.Payload.(map[string]any)
	if shown.Company != "Acme" || shown.Resolution != "discarded" || shown.ResolvedBy != "gatewayctl:ana" || shown.Note != "known" || shown.EmailStatus != "FAILED" ||
		shown.Recipient != "a***@e***.com" || payload["to"] != "a***@e***.com" || shown.Detail != "not verified: a***@e***.com" || len(shown.Events) != 4 {
		t.Errorf("%+v", shown)
	}
	goldentest.Compare(t, "dlq_show", timeless(stable(o.must(t, "dlq", "show", second))))
	if text := o.must(t, "dlq", "show", second, "--reveal"); !strings.Contains(text, "ana@example.com") {
		t.Error(text)
	}
	var nobodys shownLetters
	o.decode(t, &nobodys, "dlq", "list", "--code", "INVALID_PAYLOAD")
	if text := o.must(t, "dlq", "show", nobodys.DeadLetters[0].ID); !strings.Contains(text, "INVALID_PAYLOAD") || strings.Contains(text, "ana@example.com") {
		t.Error(text)
	}
	got := o.run(t, "dlq", "retry", nobodys.DeadLetters[0].ID)
	if got.code != ctl.ExitFailed || !strings.Contains(got.stderr, "cannot be retried: the task refers to no email, recipient import or mailing: it can only be discarded") {
		t.Errorf("%+v", got)
	}
}

func TestDeadLetters_One(t *testing.T) {
	t.Parallel()
	o, d := newOperator(t)
	deadLetter := giveUp(t, d, d.Company(t))
	var done shownLetter
	o.decode(t, &done, "dlq", "retry", deadLetter)
	if done.Resolution != "retried" || done.ResolvedBy != "gatewayctl:ana" {
		t.Errorf("%+v", done)
	}
	if n := count(t, d, `SELECT count(*) FROM email_outbox WHERE status = 'PENDING' AND expires_at BETWEEN now() + interval '23 h' AND now() + interval '25 h'`); n != 1 {
		t.Errorf("%d emails wait", n)
	}
	for verb, want := range map[string]string{"retry": "cannot be retried: the dead letter is already resolved", "discard": "is already resolved: run `gatewayctl dlq show"} {
		if got := o.run(t, "dlq", verb, deadLetter, "--reason", "x"); got.code != ctl.ExitFailed || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: %+v", verb, got)
		}
	}
	if text := o.must(t, "dlq", "discard", giveUp(t, d, d.Company(t)), "--reason", "typo"); !strings.Contains(text, "is discarded.") {
		t.Error(text)
	}
}

// A selection is only counted without --yes.
func TestDeadLetters_Many(t *testing.T) {
	t.Parallel()
	o, d := newOperator(t)
	company := d.Company(t)
	for range 5 {
		giveUp(t, d, company)
	}
	giveUp(t, d, d.Company(t))
	got := o.run(t, "dlq", "retry", "--company", company.String(), "--limit", "4")
	if got.code != ctl.ExitFailed || !strings.Contains(got.stderr, "4 dead letters would be retried; nothing was changed: repeat the command with --yes") {
		t.Errorf("%+v", got)
	}
	if n := count(t, d, `SELECT count(*) FROM dead_letter_replays`); n != 0 {
		t.Errorf("%d replays", n)
	}

	dispatch(t, d)
	got = o.run(t, "dlq", "retry", "--company", company.String(), "--limit", "4", "--rate", "4", "--yes", "--reason", "mended")
	if got.code != ctl.ExitOK || !strings.HasPrefix(got.stdout, "4 dead letters were retried in ") || !strings.Contains(got.stderr, "4 of 4, 0 skipped, 0 failed") {
		t.Errorf("%+v", got)
	}
	if n := count(t, d, `SELECT count(*) FROM email_outbox WHERE status = 'PENDING'`); n != 4 {
		t.Errorf("%d emails wait", n)
	}
	var all shownReplay
	o.decode(t, &all, "dlq", "discard", "--all", "--yes", "--rate", "1000", "--reason", "x")
	if all.Action != "discard" || all.Status != "COMPLETED" || all.Done != 2 || all.Matched != 2 || all.RequestedBy != "gatewayctl:ana" || all.CompanyID != "" {
		t.Errorf("%+v", all)
	}
	if text := o.must(t, "dlq", "discard", "--all", "--yes", "--reason", "x"); text != "No open dead letter matches.\n" {
		t.Error(text)
	}
}

// A selection that could not be retried as a whole is a failure, which a script sees.
func TestDeadLetters_SomeStayOpen(t *testing.T) {
	t.Parallel()
	o, d := newOperator(t)
	company := d.Company(t)
	giveUp(t, d, company)
	if _, err := d.SQL.ExecContext(t.Context(), `DELETE FROM email_outbox`); err != nil { // there is nothing left to retry
		t.Fatal(err)
	}
	giveUp(t, d, company)
	dispatch(t, d)
	got := o.run(t, "dlq", "retry", "--all", "--yes", "--reason", "mended")
	if got.code != ctl.ExitFailed || !strings.HasPrefix(got.stdout, "1 dead letter was retried in ") || !strings.Contains(got.stderr, "gatewayctl: 1 dead letter stays open") {
		t.Errorf("%+v", got)
	}
	id := storetest.Ask[string](t, d, `SELECT id FROM dead_letter_replays`)
	if got := o.run(t, "dlq", "show", id); got.code != ctl.ExitOK {
		t.Errorf("%+v", got)
	}
}

// With --detach, dlq show shows the result later.
func TestDeadLetters_Detached(t *testing.T) {
	t.Parallel()
	o, d := newOperator(t)
	giveUp(t, d, d.Company(t))
	var made, shown shownReplay
	o.decode(t, &made, "dlq", "retry", "--code", "SES_REJECTED", "--yes", "--detach")
	if made.Status != "RUNNING" || made.Matched != 1 {
		t.Errorf("%+v", made)
	}
	o.decode(t, &shown, "dlq", "show", made.ReplayID)
	if shown.ReplayID != made.ReplayID || shown.Status != "RUNNING" {
		t.Errorf("%+v", shown)
	}
	if text := o.must(t, "dlq", "show", made.ReplayID); !strings.HasPrefix(text, "0 of 1 dead letters are retried so far") {
		t.Error(text)
	}
}
