package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/lib/pq"

	"email-gateway/shared/store/storetest"
)

// deployment is two apis behind a balancer, a dispatcher and a worker.
type deployment struct {
	*system
	balancer *balancer
	apis     [2]*program

	mu       sync.Mutex
	accepted []string // outbox ids
	refused  []string // what was answered instead
}

// startDeployment starts the programs in bin. Each is restarted at its own address.
func startDeployment(t *testing.T, db storetest.Database, bin string, env map[string]string) *deployment {
	t.Helper()
	d := &deployment{system: startSystemFrom(t, bin, db, env)}
	d.apis[0] = d.api
	d.apis[1] = startProgramAt(t, filepath.Join(bin, "api"), d.env)
	d.balancer = startBalancer(t, d.apis[0].addr, d.apis[1].addr)
	return d
}

// load sends through the balancer from several clients, each over one persistent connection, until stop is closed.
func (d *deployment) load(clients int, pause time.Duration, stop <-chan struct{}, change func(body map[string]any)) (wait func()) {
	through := *d.system
	through.api = &program{addr: d.balancer.addr}
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(pause):
				}
				body := newBody(fmt.Sprintf("c%d-%d@example.com", c, i), change)
				status, text, err := through.try(http.MethodPost, "/v1/email/send", body, nil)
				var answer struct{ OutboxID string }
				if err == nil && status == http.StatusAccepted {
					err = json.Unmarshal(text, &answer)
				}
				d.mu.Lock()
				if err == nil && answer.OutboxID != "" {
					d.accepted = append(d.accepted, answer.OutboxID)
				} else {
					d.refused = append(d.refused, fmt.Sprintf("%d %s %v", status, text, err))
				}
				d.mu.Unlock()
			}
		})
	}
	return all.Wait
}

func (d *deployment) requests() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.accepted) + len(d.refused)
}

// check checks that no request was refused and that every accepted email is stored.
func (d *deployment) check() {
	d.t.Helper()
	d.t.Logf("%d requests, %d refused", d.requests(), len(d.refused))
	for i, answer := range d.refused {
		if i == 5 {
			d.t.Errorf("and %d more", len(d.refused)-i)
			break
		}
		d.t.Errorf("refused: %s", answer)
	}
	if n := storetest.Ask[int](d.t, d.db, `SELECT count(*) FROM email_outbox WHERE id = ANY ($1)`, pq.Array(d.accepted)); n != len(d.accepted) {
		d.t.Errorf("%d of %d accepted emails are stored", n, len(d.accepted))
	}
}

// Two apis behind a balancer are restarted in turn, under load, three times each: no request is refused, because an
// api serves until the balancer no longer uses it.
func TestRollingDeploy(t *testing.T) {
	t.Parallel()
	d := startDeployment(t, storetest.New(t), binDir, map[string]string{"DRAIN_DELAY": drainDelay()})
	stop := make(chan struct{})
	// Nearly all are scheduled for tomorrow: this test is about accepting them.
	tomorrow := time.Now().Add(24 * time.Hour).Format(time.RFC3339)
	wait := d.load(16, 0, stop, func(body map[string]any) { body["sendAt"] = tomorrow })
	finish := sync.OnceFunc(func() { close(stop); wait() })
	defer finish()
	for range 3 {
		for i := range d.apis {
			d.restart(&d.apis[i])
			d.balancer.await(i, "UP")
		}
	}
	eventually(t, func() error {
		if n := d.requests(); n < 10_000 {
			return fmt.Errorf("%d of 10,000 requests", n)
		}
		return nil
	})
	finish()
	d.check()
}

// drainDelay is many times as long as the balancer needs to detect that an api is not ready. DRAIN_DELAY=0s shows how
// many requests are refused without it.
func drainDelay() string {
	if delay := os.Getenv("DRAIN_DELAY"); delay != "" {
		return delay
	}
	return "2s"
}

// An installation of the previous release is upgraded to this one under load: the schema first, then each program in
// turn. No request is refused, and every email is sent once.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	old := buildPreviousRelease(t)
	db := storetest.New(t)
	if _, err := db.SQL.ExecContext(t.Context(), `DROP SCHEMA public CASCADE; CREATE SCHEMA public`); err != nil {
		t.Fatal(err)
	}
	migrateFrom(t, old, db.URL, "up")
	env := bulk(t, brokerURL(t))
	maps.Copy(env, map[string]string{"DRAIN_DELAY": drainDelay(), "SES_MAX_SEND_RATE": "1000"})
	d := startDeployment(t, db, old, env)
	sheet := newSpreadsheet(t, 300)
	mailings := []string{d.mail("before.csv", sheet, nil)}
	stop := make(chan struct{})
	wait := d.load(8, 50*time.Millisecond, stop, nil)
	finish := sync.OnceFunc(func() { close(stop); wait() })
	defer finish()
	awaitProgress(d.system, 50)

	migrate(t, db.URL, "up")
	awaitProgress(d.system, 50) // by the previous release's programs, on the new schema
	// A receiver is replaced before the program that sends to it.
	d.worker.stop()
	d.worker = startProgram(t, "worker", d.env)
	awaitProgress(d.system, 50)
	d.dispatcher.stop()
	d.dispatcher = startProgram(t, "dispatcher", d.env)
	awaitProgress(d.system, 50)
	for i := range d.apis {
		d.balancer.drain(i) // the previous release may not know DRAIN_DELAY
		d.restart(&d.apis[i])
		d.balancer.undrain(i)
	}
	d.api = d.apis[0]
	mailings = append(mailings, d.mail("after.csv", sheet, nil))
	awaitProgress(d.system, 50)
	finish()
	d.check()
	awaitEnds(d.system)
	for _, id := range mailings {
		if m := d.awaitMailing(id, "COMPLETED"); m.Sent != len(sheet.people) {
			t.Errorf("%d of %d emails of a mailing are sent", m.Sent, len(sheet.people))
		}
	}
	if n := storetest.Ask[int](d.t, d.db, `SELECT count(*) FROM email_outbox WHERE id = ANY ($1) AND status = 'SENT'`, pq.Array(d.accepted)); n != len(d.accepted) {
		t.Errorf("%d of %d accepted emails are sent", n, len(d.accepted))
	}
	d.sentOnce(len(d.accepted) + 2*len(sheet.people))
}
