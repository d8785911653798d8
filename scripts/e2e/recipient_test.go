package e2e_test

import (
	"fmt"
	"net/http"
	"testing"

	"email-gateway/shared/servertest"
)

// Recipients in batches, ten of which the database refuses, with a restart of RabbitMQ in between: the others are
// written once, and the ten are reported.
func TestRecipients(t *testing.T) {
	t.Parallel()
	people, poisoned := mailingRows(t, 6_000), 10
	rabbitmq := servertest.Start(t, "rabbitmq")
	env := bulk(t, rabbitmq.URL)
	env["RECIPIENTS_RETRY_TTL_MS"] = "1000"
	s := startSystem(t, env)
	if _, err := s.db.SQL.ExecContext(t.Context(), "ALTER TABLE recipients ADD CONSTRAINT poison CHECK (nome <> 'veneno')"); err != nil {
		t.Fatal(err)
	}
	const batch = 1000
	for from := 0; from < people; from += batch {
		var list []map[string]any
		for i := from; i < min(from+batch, people); i++ {
			person := map[string]any{"externalId": fmt.Sprint("C-", i), "email": fmt.Sprintf("pessoa%d@cliente.example", i), "nome": "Ana"}
			if i%(people/poisoned) == 7 {
				person["nome"] = "veneno"
			}
			list = append(list, person)
		}
		if status, answer := s.call(http.MethodPost, "/v1/recipients", map[string]any{"recipients": list}, nil); status != http.StatusAccepted {
			t.Fatalf("%d %s", status, answer)
		}
		switch from / batch {
		case 2:
			rabbitmq.Restart()
		case 5:
			rabbitmq.Crash()
		}
	}
	count := func(query string) (n int) {
		if err := s.db.SQL.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	eventually(t, func() error {
		written, dead := count("SELECT count(*) FROM recipients"), count("SELECT count(*) FROM dead_letters WHERE target = 'recipients.upsert'")
		if written != people-poisoned || dead != poisoned {
			return fmt.Errorf("%d recipients and %d dead letters", written, dead)
		}
		return nil
	})
	if n := count("SELECT count(*) FROM dead_letters WHERE reason <> '' AND last_error LIKE '%poison%'"); n != poisoned {
		t.Errorf("%d of %d dead letters have a reason", n, poisoned)
	}
	if n := count("SELECT count(*) FROM recipient_intakes"); n != 0 {
		t.Errorf("%d intakes still wait", n)
	}
}
