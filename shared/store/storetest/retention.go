package storetest

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/retention"
)

// IDOf returns a UUIDv7 of the given age.
func IDOf(age time.Duration) uuid.UUID {
	id := uuid.Must(uuid.NewV7())
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(time.Now().Add(-age).UnixMilli())) //nolint:gosec // our time is after 1970
	copy(id[:6], ms[2:])
	return id
}

// EndedEmail accepts an email of the given age, moves it to the status end, and returns its id. With end PENDING the
// email is not moved.
func EndedEmail(tb testing.TB, d Database, company uuid.UUID, age time.Duration, end email.Status) uuid.UUID {
	tb.Helper()
	id := d.Accept(tb, company, func(e *outbox.NewEmail) {
		e.ID, e.CreatedAt = IDOf(age), time.Now().Add(-age)
		e.Text, e.Job.CC, e.Job.Recipient.CPFCNPJHash = "Olá", []string{"bia@example.com"}, HashOf('a')
	})
	switch end {
	case email.Sent, email.Failed:
		token := uuid.New()
		Apply(tb, d, ClaimOf(company, id, token, "C-"+id.String()))
		if end == email.Sent {
			Apply(tb, d, SentOf(id, token))
		} else {
			Apply(tb, d, FailedOf(id, token))
		}
	case email.Cancelled:
		Apply(tb, d, CancelOf(id))
	}
	if end != email.Pending {
		d.Run(tb, `UPDATE email_outbox SET processed_at = now() - $2 * interval '1 ms' WHERE id = $1`, id, age.Milliseconds())
	}
	return id
}

// Drain calls a cleaning method until nothing is left to clean, and returns the total number of rows cleaned.
func Drain(tb testing.TB, clean func(context.Context, time.Duration, int) (retention.Cleaned, error), age time.Duration, limit int) (total int) {
	tb.Helper()
	for range 1000 {
		done, err := clean(tb.Context(), age, limit)
		if err != nil {
			tb.Fatal(err)
		}
		if total += done.Count; !done.More {
			return total
		}
	}
	tb.Fatal("it never ends")
	return 0
}

// PastPartition creates the partition of the month that is back months ago.
func PastPartition(tb testing.TB, d Database, log retention.Log, back int) (name string) {
	tb.Helper()
	name = string(log) + "_" + MonthsFromNow(-back).Format("2006_01")
	d.Run(tb, `CREATE TABLE `+name+` PARTITION OF `+string(log)+` FOR VALUES FROM ('`+
		Ask[string](tb, d, `SELECT first_id_at($1)`, MonthsFromNow(-back))+`') TO ('`+Ask[string](tb, d, `SELECT first_id_at($1)`, MonthsFromNow(1-back))+`')`)
	return name
}

// MonthsFromNow returns the beginning of the month n months from now.
func MonthsFromNow(n int) time.Time {
	now := time.Now().UTC()
	return time.Date(now.Year(), now.Month()+time.Month(n), 1, 0, 0, 0, 0, time.UTC)
}
