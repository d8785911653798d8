package webhook_test

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	webhookstore "email-gateway/shared/store/webhook"
)

// BenchmarkService_Idle reports the processor time of an idle program with 1,000 endpoints of 50 companies, with
// that of its connections to Postgres, which must run on this machine.
func BenchmarkService_Idle(b *testing.B) {
	w := newWorld(b)
	for range 50 {
		company := w.Company(b)
		for range webhookstore.MaxEndpoints {
			if _, err := w.Hooks.Create(b.Context(), webhookstore.Endpoint{ID: uuid.Must(uuid.NewV7()), CompanyID: company, URL: "https://hooks.acme.example", Secret: []byte("x")}); err != nil {
				b.Fatal(err)
			}
		}
	}
	w.start(b, nil)
	own, postgres, started := ownTime(b), w.postgresTime(b), time.Now()
	for b.Loop() {
		<-time.After(20 * time.Second)
	}
	share := func(used time.Duration) float64 { return 100 * used.Seconds() / time.Since(started).Seconds() }
	own, postgres = ownTime(b)-own, w.postgresTime(b)-postgres
	b.ReportMetric(share(own+postgres), "%core")
	b.ReportMetric(share(postgres), "%core-postgres")
}

// ownTime returns the processor time of this process.
func ownTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// postgresTime returns the processor time of the processes that serve connections to the database.
func (w *world) postgresTime(b *testing.B) (sum time.Duration) {
	b.Helper()
	rows, err := w.SQL.QueryContext(b.Context(), `SELECT pid FROM pg_stat_activity WHERE datname = current_database()`)
	if err != nil {
		b.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var pid int
		if err := rows.Scan(&pid); err != nil {
			b.Fatal(err)
		}
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			b.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest) // utime and stime are the 14th and 15th of all fields, in hundredths of a second
		for _, field := range fields[11:13] {
			ticks, err := strconv.Atoi(field)
			if err != nil {
				b.Fatal(err)
			}
			sum += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	if err := rows.Err(); err != nil {
		b.Fatal(err)
	}
	return sum
}
