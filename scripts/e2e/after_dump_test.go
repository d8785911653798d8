package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"email-gateway/scripts/sessim"
	"email-gateway/shared/store/storetest"
)

// acceptedLater are emails and a mailing that are accepted after the dump.
type acceptedLater struct {
	s        *system
	batch    []string // none is sent
	answered string   // SES accepted it, as its event alone reports
	mailing  string
}

// acceptAfterDump accepts a batch that no single line of the log could name, an email whose response from SES never comes,
// and a mailing.
func acceptAfterDump(s *system) acceptedLater {
	s.t.Helper()
	a := acceptedLater{s: s}
	var bodies []map[string]any
	for i := range 150 {
		bodies = append(bodies, newBody(fmt.Sprintf("lote%d@cliente.example", i), func(b map[string]any) { b["sendAt"] = time.Now().Add(time.Hour).Format(time.RFC3339) }))
	}
	status, answer := s.call(http.MethodPost, "/v1/email/batch", map[string]any{"emails": bodies}, nil)
	var accepted struct{ Emails []struct{ OutboxID string } }
	if err := json.Unmarshal(answer, &accepted); err != nil || status != http.StatusAccepted {
		s.t.Fatalf("batch: %d %s", status, answer)
	}
	for _, e := range accepted.Emails {
		a.batch = append(a.batch, e.OutboxID)
	}
	rule := sessim.Rule{Fault: "hang-after"}
	rule.Match.To = "calada@cliente.example"
	injectFault(s.t, s.ses, rule)
	a.answered = s.send(rule.Match.To, func(b map[string]any) { b["priority"] = 1 })
	a.mailing = s.mail("depois.csv", newSpreadsheet(s.t, 3), nil)
	s.await(a.answered, "SENT")
	return a
}

// check reads the lists of the runbook. early was sent before the dump, and looked up after it.
func (a acceptedLater) check(backup, printed, early string) {
	a.s.t.Helper()
	lost, sent := fileOf(a.s, backup, "lost"), fileOf(a.s, backup, "sent")
	for _, id := range a.batch {
		if !strings.Contains(lost, id) {
			a.s.t.Errorf("%s, of the batch, is not in the list of lost emails:\n%s", id, lost)
			break
		}
	}
	if strings.Contains(lost, early) || strings.Contains(lost, a.answered) {
		a.s.t.Errorf("%s or %s is in the list of lost emails, and both were sent:\n%s", early, a.answered, lost)
	}
	if !strings.Contains(sent, a.answered) {
		a.s.t.Errorf("%s, whose event says that SES accepted it, is not in the list of sent emails", a.answered)
	}
	if !strings.Contains(printed, a.mailing) {
		a.s.t.Errorf("the lost mailing %s is not printed:\n%s", a.mailing, printed)
	}
}

// changedLater waits when the dump is made, and is cancelled after it.
type changedLater struct {
	s         *system
	email     string
	mailing   string
	neverSent []string // the email, and those of an aggregate
}

func changedAfterDump(s *system) changedLater {
	s.t.Helper()
	later := time.Now().Add(time.Hour).Format(time.RFC3339)
	c := changedLater{s: s, email: s.send("cancelado@cliente.example", func(b map[string]any) { b["sendAt"] = later })}
	c.neverSent = []string{c.email}
	for _, eventType := range []string{"REMINDER_24H", "REMINDER_1H"} {
		c.neverSent = append(c.neverSent, s.send("entrevista@cliente.example", func(b map[string]any) {
			b["sendAt"], b["aggregate"] = later, map[string]any{"type": "interview", "id": "42", "eventType": eventType}
		}))
	}
	c.mailing = s.mail("cancelada.csv", newSpreadsheet(s.t, 400), nil)
	return c
}

// change cancels all of it.
func (c changedLater) change() {
	c.s.t.Helper()
	for _, path := range []string{"/v1/email/" + c.email, "/v1/aggregates/interview/42", "/mailings/" + c.mailing} {
		if status, answer := c.s.call(http.MethodPost, path+"/cancel", nil, nil); status != http.StatusOK {
			c.s.t.Fatalf("cancel %s: %d %s", path, status, answer)
		}
	}
}

// check is for the restored gateway that sends again: nothing of it is sent. It cancels the mailing again, as the runbook
// leaves to the tenant, and returns the emails that were cancelled before SES received them.
func (c changedLater) check(before map[string]int) (neverSent []string) {
	c.s.t.Helper()
	for _, id := range c.neverSent {
		if got := c.s.email(id); got.Status != "CANCELLED" || len(c.s.ses.Requests(id)) > 0 {
			c.s.t.Errorf("an email that was cancelled after the dump is %s", got.Status)
		}
	}
	ofMailing := "SELECT id FROM email_outbox WHERE lane_id = (SELECT id FROM dispatch_lanes WHERE mailing_id = '" + c.mailing + "')"
	waiting := storetest.Ask[int](c.s.t, c.s.db, "SELECT count(*) FROM ("+ofMailing+" AND processed_at IS NULL) w")
	if waiting == 0 {
		c.s.t.Error("no email of the mailing that was cancelled after the dump waits")
	}
	neverSent = c.neverSent
	rows, err := c.s.db.SQL.QueryContext(c.s.t.Context(), ofMailing)
	if err != nil {
		c.s.t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	now := acceptedBySES(c.s.ses)
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			c.s.t.Fatal(err)
		}
		if now[id] != before[id] {
			c.s.t.Errorf("%s, of a mailing that was cancelled after the dump, was sent after the restore", id)
		}
		if now[id] == 0 {
			neverSent = append(neverSent, id)
		}
	}
	if err := rows.Err(); err != nil {
		c.s.t.Fatal(err)
	}
	c.s.control(c.mailing, "cancel")
	return neverSent
}
