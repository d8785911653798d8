package e2e_test

import (
	"fmt"
	"net/http"
	"testing"

	"email-gateway/shared/crashpoint"
	"email-gateway/shared/store/storetest"
)

// The api crashes at each step of accepting a mailing. It is stored completely or not at all; uploading the file
// again makes one mailing, and each valid row is sent once.
func TestCrashPoints_Upload(t *testing.T) {
	t.Parallel()
	s := startSystem(t, bulk(t, brokerURL(t)))
	sheet := newSpreadsheet(t, 300)
	s.worker.stop()
	for _, point := range []crashpoint.Point{
		crashpoint.UploadStored, crashpoint.UploadClaimed, crashpoint.UploadWritten, crashpoint.UploadCommitted,
	} {
		t.Run(string(point), func(t *testing.T) {
			s.api.stop()
			s.api = s.startCrashing("api", point, 1, nil)
			if status, answer, err := s.tryUpload("clientes.csv", sheet.file, nil); err == nil {
				t.Errorf("answered %d %s", status, answer)
			}
			s.api.awaitCrash(point)
			want := 0
			if point == crashpoint.UploadCommitted {
				want = 1
			}
			entries := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM mailing_entries")
			if mailings := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM mailings"); mailings != want || (entries > 0) != (want == 1) {
				t.Errorf("%d mailings with %d entries, want %d mailings", mailings, entries, want)
			}
		})
	}
	s.api = startProgram(t, "api", s.env)
	s.worker = startProgram(t, "worker", s.env)
	id := s.mail("clientes.csv", sheet, nil)
	if done := s.awaitMailing(id, "COMPLETED"); done.Sent != len(sheet.people) {
		t.Errorf("%+v", done)
	}
	if mailings := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM mailings"); mailings != 1 {
		t.Errorf("%d mailings", mailings)
	}
	s.deliveredOnce(sheet)
}

// The worker is killed while it holds a mailing, and started again at once, so that RabbitMQ redelivers the job while
// the dead job's heartbeat is new. The new worker goes on as soon as the silence shows that the job is dead, without
// a recovery.
func TestCrashPoints_ReplacedWorker(t *testing.T) {
	t.Parallel()
	env := bulk(t, brokerURL(t))
	env["MAILING_STALE_AFTER"], env["MAILING_RECOVERY_INTERVAL"] = "30s", "1h"
	s := startSystem(t, env)
	sheet := newSpreadsheet(t, 50)
	s.worker.stop()
	id := s.mail("clientes.csv", sheet, nil)
	s.startCrashing("worker", crashpoint.ExpandLocked, 1, nil).awaitCrash(crashpoint.ExpandLocked)
	s.worker = startProgram(t, "worker", s.env)
	if done := s.awaitMailing(id, "COMPLETED"); done.Sent != len(sheet.people) {
		t.Errorf("%+v", done)
	}
	if n := storetest.Ask[int](s.t, s.db, "SELECT generation FROM mailings"); n != 1 {
		t.Errorf("generation %d, want 1: another job was made", n)
	}
	s.deliveredOnce(sheet)
}

// Programs crash while they accept recipients, write them, and forward those that the database refuses. Each
// recipient is written once, and the refused one is reported.
func TestCrashPoints_Recipients(t *testing.T) {
	t.Parallel()
	env := bulk(t, brokerURL(t))
	env["RECIPIENTS_RETRY_TTL_MS"] = "1000"
	s := startSystem(t, env)
	s.db.Run(s.t, "ALTER TABLE recipients ADD CONSTRAINT poison CHECK (nome <> 'veneno')")
	const n = 20
	var people []map[string]any
	for i := range n {
		nome := "Ana"
		if i == n/2 {
			nome = "veneno"
		}
		people = append(people, map[string]any{"externalId": fmt.Sprint("C-", i), "email": fmt.Sprintf("pessoa%d@cliente.example", i), "nome": nome})
	}
	key := map[string]string{"Idempotency-Key": "pessoas"}
	request := func() (int, []byte, error) {
		return s.try(http.MethodPost, "/v1/recipients", map[string]any{"recipients": people}, key)
	}
	s.worker.stop()
	for _, point := range []crashpoint.Point{crashpoint.AcceptBegun, crashpoint.AcceptCommitted} {
		s.api.stop()
		s.api = s.startCrashing("api", point, 1, nil)
		if status, answer, err := request(); err == nil {
			t.Errorf("%s: answered %d %s", point, status, answer)
		}
		s.api.awaitCrash(point)
	}
	s.api = startProgram(t, "api", s.env)
	if status, answer, err := request(); err != nil || status != http.StatusAccepted {
		t.Fatalf("repeated: %d %s, %v", status, answer, err)
	}
	if rows := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox"); rows != n {
		t.Errorf("%d rows for %d recipients", rows, n)
	}
	for _, point := range []crashpoint.Point{crashpoint.IntakeWritten, crashpoint.PassConfirmed} {
		s.startCrashing("worker", point, 1, nil).awaitCrash(point)
	}
	s.worker = startProgram(t, "worker", s.env)
	eventually(t, func() error {
		written, dead := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM recipients"), storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM dead_letters WHERE target = 'recipients.upsert'")
		if written != n-1 || dead != 1 {
			return fmt.Errorf("%d recipients and %d dead letters", written, dead)
		}
		return nil
	})
}

// One mailing, with a crash at each step of its expansion; its job is also queued twice. Every valid row becomes one
// email.
func TestCrashPoints_Expand(t *testing.T) {
	t.Parallel()
	env := bulk(t, brokerURL(t))
	// A window of 150 emails and a lead of 1,500: while nothing is sent, the second job has no room for its whole
	// batch and leaves the rest to a third.
	env["SES_MAX_SEND_RATE"], env["MAILING_LEAD"], env["MAILING_RECOVERY_INTERVAL"] = "200", "1500", "1s"
	s := startSystem(t, env)
	sheet := newSpreadsheet(t, 3_000)
	s.worker.stop()
	s.dispatcher.stop()
	st := s.ses.Settings()
	st.GetAccount = "404" // then the rate is the environment's
	if err := s.ses.SetSettings(st); err != nil {
		t.Fatal(err)
	}
	forgetRate(s)
	s.setSending(false)
	id := s.mail("clientes.csv", sheet, nil)

	queued := s.startCrashing("dispatcher", crashpoint.DispatchPublished, 1, nil)
	queued.awaitCrash(crashpoint.DispatchPublished) // the broker has the job, and its row is leased
	s.dispatcher = startProgram(t, "dispatcher", s.env)

	all := len(sheet.people)
	for _, c := range []struct {
		point   crashpoint.Point
		lead    string // "" is the system's
		atMost  int    // rows that are emails behind the crash
		atLeast int
	}{
		{point: crashpoint.ExpandLocked},
		{point: crashpoint.ExpandRead},
		{point: crashpoint.ExpandChecked},
		{point: crashpoint.ExpandCommitted, atLeast: 1000, atMost: 1000},
		{point: crashpoint.ExpandContinued, atLeast: 1001, atMost: all - 1},
		{point: crashpoint.ExpandFinished, atLeast: all, atMost: all, lead: "50000"},
	} {
		t.Run(string(c.point), func(t *testing.T) {
			change := map[string]string{}
			if c.lead != "" {
				change["MAILING_LEAD"] = c.lead
			}
			s.startCrashing("worker", c.point, 1, change).awaitCrash(c.point)
			rows := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE target = 'email:send'")
			if expanded := expandedRows(s, id); expanded != rows || rows < c.atLeast || rows > c.atMost {
				t.Errorf("%d emails of %d expanded rows, want %d to %d", rows, expanded, c.atLeast, c.atMost)
			}
		})
	}
	s.setSending(true)
	s.worker = startProgram(t, "worker", s.env)
	done := s.awaitMailing(id, "COMPLETED")
	if done.Total != sheet.rows || done.Sent != all || done.Invalid != sheet.invalid || done.Duplicates != sheet.duplicates ||
		done.Failed+done.Suppressed+done.Expired+done.Cancelled+done.Unknown+done.Queued != 0 {
		t.Errorf("%+v", done)
	}
	s.deliveredOnce(sheet)
}
