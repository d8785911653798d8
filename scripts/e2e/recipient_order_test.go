package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"email-gateway/shared/email"
	"email-gateway/shared/servertest"
	"email-gateway/shared/store/storetest"
)

// cpf is the n-th valid CPF.
func cpf(n int) string {
	digits := fmt.Sprintf("%09d", 100_000_000+n)
	for range 2 {
		sum := 0
		for i, d := range digits {
			sum += int(d-'0') * (len(digits) + 1 - i)
		}
		digits += fmt.Sprint(sum * 10 % 11 % 10)
	}
	return digits
}

// importPeople imports people from (inclusive) to to (exclusive), with every field, and returns their ids.
func importPeople(s *system, from, to int) []string {
	s.t.Helper()
	var list []map[string]any
	for i := from; i < to; i++ {
		list = append(list, map[string]any{
			"externalId": fmt.Sprint("C-", i), "cpfCnpj": cpf(i), "razaoSocial": fmt.Sprint("Ltda ", i), "nome": fmt.Sprint("Nome ", i), "email": personAt(i),
		})
	}
	status, answer := s.call(http.MethodPost, "/v1/recipients", map[string]any{"recipients": list}, nil)
	var accepted struct{ IDs []string }
	if err := json.Unmarshal(answer, &accepted); err != nil || status != http.StatusAccepted || len(accepted.IDs) != to-from {
		s.t.Fatalf("%d %s", status, answer)
	}
	return accepted.IDs
}

func personAt(n int) string { return fmt.Sprintf("pessoa%d@cliente.example", n) }

// sendToPerson sends an email that names the person by externalId, or by the id if it is set.
func sendToPerson(s *system, n int, id string) {
	s.t.Helper()
	s.send(personAt(n), func(b map[string]any) {
		b["recipient"] = map[string]any{"externalId": fmt.Sprint("C-", n), "email": b["to"]}
		if id != "" {
			b["recipient"] = map[string]any{"recipientId": id, "email": b["to"]}
		}
	})
}

// awaitImports waits until every import is written.
func awaitImports(s *system) {
	s.t.Helper()
	eventually(s.t, func() error {
		if n := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM recipient_intakes"); n > 0 {
			return fmt.Errorf("%d imports wait", n)
		}
		return nil
	})
}

// peopleAreComplete checks that each of these people has every field of the import.
func peopleAreComplete(s *system, from, to int) {
	s.t.Helper()
	hashes := map[string]int{}
	for i := from; i < to; i++ {
		hashes[email.HashTaxID(cpf(i), nil)] = i
	}
	rows, err := s.db.SQL.QueryContext(s.t.Context(), `SELECT cpf_cnpj_hash, concat_ws('|', external_id, razao_social, nome, email) FROM recipients
		WHERE deleted_at IS NULL AND cpf_cnpj_enc IS NOT NULL AND cpf_cnpj_hash IS NOT NULL`)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	whole := 0
	for rows.Next() {
		var hash, fields string
		if err := rows.Scan(&hash, &fields); err != nil {
			s.t.Fatal(err)
		}
		i, ours := hashes[hash]
		if ours && fields == fmt.Sprintf("C-%d|Ltda %d|Nome %d|%s", i, i, i, personAt(i)) {
			whole++
		}
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
	if whole != to-from {
		s.t.Errorf("of %d people from %d on, %d have every field", to-from, from, whole)
	}
}

// RabbitMQ is stopped, so imports wait. Emails that name these people are sent immediately, by externalId and by
// recipientId, and leave every field to the imports; so are the emails of another company; people who are deleted or
// erased meanwhile stay deleted. Then RabbitMQ runs, and emails follow directly after the imports.
func TestRecipients_InAnyOrder(t *testing.T) {
	t.Parallel()
	rabbitmq := servertest.Start(t, "rabbitmq")
	s := startSystem(t, bulk(t, rabbitmq.URL))
	migrate(t, s.db.URL, "roles")
	const pairs, named, deleted, erased = 200, 60, 10, 2 // per order; named: by recipientId
	const gone = deleted + erased
	leave := func(from int) { // the last ones are deleted or erased
		t.Helper()
		for i := from + pairs - gone; i < from+pairs-erased; i++ {
			var id string
			if err := s.db.SQL.QueryRowContext(t.Context(), `SELECT id FROM recipients WHERE external_id = $1`, fmt.Sprint("C-", i)).Scan(&id); err != nil {
				t.Fatal(err)
			}
			if status, answer := s.call(http.MethodDelete, "/v1/recipients/"+id, nil, nil); status != http.StatusNoContent {
				t.Fatalf("%d %s", status, answer)
			}
		}
		for i := from + pairs - erased; i < from+pairs; i++ {
			out, err := privacyOfficer(s, s.env["CPF_CNPJ_KEYS"], "person", "erase", "--company", "Acme", "--email", personAt(i), "--reason", "asked for it", "--yes", "--json").CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}
	}
	stayGone := func(from int) {
		t.Helper()
		for i := from + pairs - gone; i < from+pairs; i++ {
			if n := storetest.Ask[int](s.t, s.db, fmt.Sprintf("SELECT count(*) FROM recipients WHERE deleted_at IS NULL AND (email = '%s' OR external_id = 'C-%d' OR cpf_cnpj_hash = '%s')", personAt(i), i, email.HashTaxID(cpf(i), nil))); n > 0 {
				t.Errorf("person %d is back", i)
			}
		}
		if n := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM recipients WHERE deleted_at IS NOT NULL AND cpf_cnpj_enc IS NOT NULL"); n > 0 {
			t.Errorf("%d deleted people have a number", n)
		}
	}

	quiet := *s
	quiet.key = s.newKey("Quieta", "contato@quieta.example")
	rabbitmq.Stop()
	ids := importPeople(s, 0, pairs)
	for i := range pairs {
		id := ""
		if i < named {
			id = ids[i]
		}
		sendToPerson(s, i, id)
	}
	quiet.sendTen()
	s.awaitAll(pairs+10, "SENT")
	if n := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM recipient_intakes"); n != pairs {
		t.Fatalf("%d imports wait, want all of them", n)
	}
	leave(0)
	rabbitmq.Start()
	awaitImports(s)
	peopleAreComplete(s, 0, pairs-gone)
	stayGone(0)

	importPeople(s, pairs, 2*pairs)
	for i := pairs; i < 2*pairs-gone; i++ {
		sendToPerson(s, i, "")
	}
	pauseAll(s) // emails that are accepted before the deletion and sent after it
	for i := 2*pairs - gone; i < 2*pairs; i++ {
		sendToPerson(s, i, "")
	}
	awaitImports(s)
	leave(pairs)
	resumeAll(s)
	eventually(t, func() error {
		if n := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE target = 'email:send' AND processed_at IS NULL"); n > 0 {
			return fmt.Errorf("%d emails are left: %s", n, s.statusCounts())
		}
		return nil
	})
	peopleAreComplete(s, pairs, 2*pairs-gone)
	stayGone(pairs)
	if n := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE status = 'FAILED'"); n > 0 {
		t.Errorf("%d emails failed", n)
	}
}
