package store_test

import (
	"slices"
	"testing"

	"github.com/google/uuid"

	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/person"
	"email-gateway/shared/store/storetest"
)

// The task of an email to another person that names an erased person is removed once the
// email has ended: until then Redis may archive it, with the address.
func TestErasedTasks_Copies(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	copied := func(e *outbox.NewEmail) { e.Job.CC = []string{"maria@example.com"} }
	waiting, enqueued := d.Accept(t, company, copied), d.Accept(t, company, copied)
	run(t, d, `UPDATE email_outbox SET status = 'RETRY_SCHEDULED', enqueued_at = now() WHERE id = $1`, enqueued)
	erasure := uuid.Must(uuid.NewV7())
	who := person.Person{CompanyID: company, Addresses: []string{"maria@example.com"}}
	done, err := person.New(d.Store.DB()).EraseCopies(t.Context(), who, erasure, []uuid.UUID{waiting, enqueued})
	if err != nil || len(done.Emails) != 2 {
		t.Fatalf("%+v, %v", done, err)
	}
	listed := func(want ...uuid.UUID) {
		t.Helper()
		tasks, err := d.Store.ErasedTasks(t.Context(), 10)
		must(t, err)
		var ids []uuid.UUID
		for _, task := range tasks {
			if ids = append(ids, task.ID); task.Final {
				t.Errorf("%s may be removed while it waits", task.ID)
			}
		}
		if !slices.Equal(ids, want) {
			t.Errorf("%v are listed, want %v", ids, want)
		}
	}
	listed(waiting)
	must(t, d.Store.TasksRemoved(t.Context(), []uuid.UUID{waiting}, nil))
	listed()
	if n, err := person.New(d.Store.DB()).CountErasedTasks(t.Context(), []uuid.UUID{erasure}); n.Open != 1 || err != nil {
		t.Errorf("%+v, %v", n, err)
	}
	run(t, d, `UPDATE email_outbox SET status = 'FAILED', processed_at = now() WHERE id = $1`, enqueued)
	listed(enqueued)
}
