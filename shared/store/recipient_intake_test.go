package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/store"
	"email-gateway/shared/store/idempotency"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/storetest"
)

func TestAcceptRecipients(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	ana := storetest.KnownRecipient("1", "ana@example.com", "Ana")
	ana.CPFCNPJHash, ana.CPFCNPJ, ana.RazaoSocial = storetest.HashOf('a'), []byte("enc"), "Ana Ltda"
	ids := storetest.Intake(t, d, company, ana, storetest.KnownRecipient("2", "b@example.com", ""))
	got := ask[string](t, d, `SELECT string_agg(concat_ws('|', o.status, o.payload - 'id', convert_from(o.cpf_cnpj_enc, 'UTF8'), l.queue, o.expires_at, o.next_at <= now(), o.request_id,
			i.email, i.recipient_id::text = o.payload ->> 'id'), E'\n' ORDER BY o.id)
		FROM email_outbox o JOIN dispatch_lanes l ON l.id = o.lane_id JOIN recipient_intakes i ON i.outbox_id = o.id
		WHERE o.target = 'recipients.upsert' AND o.company_id = $1`, company)
	want := `PENDING|{"nome": "Ana", "email": "ana@example.com", "externalId": "1", "cpfCnpjHash": "` + storetest.HashOf('a') + `", "razaoSocial": "Ana Ltda"}|enc|recipients_queue|infinity|t|req-1|ana@example.com|t` + "\n" +
		`PENDING|{"email": "b@example.com", "externalId": "2"}|recipients_queue|infinity|t|req-1|b@example.com|t`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%v\n%s", ids, diff)
	}
	// A company made without lanes.
	run(t, d, `DELETE FROM dispatch_lanes WHERE company_id = $1`, company)
	if err := d.Store.AcceptRecipients(t.Context(), storetest.NewRecipients(company, storetest.KnownRecipient("3", "c@example.com", ""))); !errors.Is(err, lane.ErrNone) {
		t.Errorf("got %v, want ErrNoLane", err)
	}
}

// A request with a key is accepted once, however often it is repeated.
func TestAcceptRecipients_OncePerKey(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	request := func() recipient.NewRecipients {
		n := storetest.NewRecipients(company, storetest.KnownRecipient("1", "a@example.com", ""), storetest.KnownRecipient("2", "b@example.com", ""))
		n.Idempotency = &idempotency.Key{
			Route: "r", Key: "k", BodySHA256: make([]byte, 32), Status: 202, Answer: []byte(n.Recipients[0].OutboxID.String()), Keep: time.Hour,
		}
		return n
	}
	first := request()
	for range 2 { // as when the answer of the first was lost on the way
		if err := d.Store.AcceptRecipients(t.Context(), first); err != nil {
			t.Fatal(err)
		}
	}
	var used *idempotency.UsedError
	if err := d.Store.AcceptRecipients(t.Context(), request()); !errors.As(err, &used) || string(used.Answer.Answer) != first.Recipients[0].OutboxID.String() {
		t.Errorf("got %v", err)
	}
	run(t, d, `UPDATE idempotency_keys SET expires_at = now()`)
	if err := d.Store.AcceptRecipients(t.Context(), request()); err != nil {
		t.Errorf("after the key's time: %v", err)
	}
	if n := ask[string](t, d, `SELECT concat((SELECT count(*) FROM email_outbox), ' ', (SELECT count(*) FROM recipient_intakes))`); n != "4 4" {
		t.Errorf("%s rows", n)
	}
}

// Rows that another session has locked, or is inserting, hold up no other row of the batch; they are written when the
// lock is gone.
func TestUpsertRecipients_LeavesLockedRowsAlone(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	people := make([]recipient.NewRecipient, 300)
	for i := range people {
		people[i] = storetest.KnownRecipient(fmt.Sprint(i), fmt.Sprintf("p%d@example.com", i), "Ana")
	}
	ids := storetest.Intake(t, d, company, people...)
	storetest.Upsert(t, d, storetest.Intake(t, d, company, storetest.KnownRecipient("3", "before@example.com", ""))...)
	release := lock(t, d, `WITH person AS (SELECT FROM recipients FOR UPDATE), outbox AS (SELECT FROM email_outbox WHERE id = $1 FOR UPDATE), inserted AS (
			INSERT INTO recipients (id, company_id, intake_id, external_id, email) SELECT $2, $3, $4, '200', 'p200@example.com'
		) SELECT (SELECT count(*) FROM person), (SELECT count(*) FROM outbox)`,
		ids[100], recipient.ID(company, "200", "", ""), company, uuid.Must(uuid.NewV7()))
	for i, err := range d.Store.UpsertRecipients(t.Context(), ids) {
		if locked := i == 3 || i == 100 || i == 200; locked != errors.Is(err, recipient.ErrLocked) || !locked && err != nil { // statement_timeout's, if it waited
			t.Errorf("import %d: %v", i, err)
		}
	}
	if n := ask[int](t, d, `SELECT count(*) FROM recipients WHERE nome = 'Ana'`); n != 297 {
		t.Errorf("%d written beside the locked rows, want 297", n)
	}
	release()
	storetest.Upsert(t, d, ids[3], ids[100], ids[200])
	if n := ask[int](t, d, `SELECT count(*) FROM recipients WHERE nome = 'Ana'`); n != 300 {
		t.Errorf("%d written in the end, want 300", n)
	}
	if n := ask[int](t, d, `SELECT count(*) FROM recipient_intakes`); n != 0 {
		t.Errorf("%d imports still wait", n)
	}
}

func TestUpsertRecipients_OnceOrTwice(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	ana := storetest.KnownRecipient("1", "ana@example.com", "Ana")
	ana.CPFCNPJHash, ana.CPFCNPJ = storetest.HashOf('a'), []byte("enc")
	ids := storetest.Intake(t, d, company, ana, storetest.KnownRecipient("2", "b@example.com", ""))
	run(t, d, `UPDATE email_outbox SET status = 'PUBLISHED', processed_at = now()`)
	state := func() string {
		return ask[string](t, d, `SELECT concat_ws(E'\n',
			(SELECT string_agg(r::text, E'\n' ORDER BY external_id) FROM recipients r),
			(SELECT string_agg(concat(status, cpf_cnpj_enc), ' ') FROM email_outbox), (SELECT count(*) FROM recipient_intakes))`)
	}
	storetest.Upsert(t, d, append(ids, ids[0])...) // the same twice in a batch, too
	once := state()
	storetest.Upsert(t, d, ids[1], ids[0])
	if diff := cmp.Diff(once, state()); diff != "" {
		t.Errorf("the second time: %s", diff)
	}
	if !strings.HasSuffix(once, "\nPUBLISHED PUBLISHED\n0") {
		t.Errorf("intakes and numbers left behind: %s", once)
	}
	if got := storetest.RecipientRow(t, d, company, "1"); got != "1|aa|enc|Ana|ana@example.com|t" {
		t.Error(got)
	}
	unknown, email := uuid.New(), d.Accept(t, company, nil)
	for i, err := range d.Store.UpsertRecipients(t.Context(), []uuid.UUID{unknown, ids[0], email}) {
		if want := i != 1; errors.Is(err, store.ErrNotFound) != want {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// However imports of one person are divided into batches and whatever their order: the newest value of each field is kept.
func TestUpsertRecipients_TheNewestWins(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	for name, tt := range map[string]struct {
		batches [][]int
		want    string
	}{
		"together":               {[][]int{{0, 1, 2}}, "X|bb|two|Ltda|B|c@example.com|t"},
		"one by one":             {[][]int{{0}, {1}, {2}}, "X|bb|two|Ltda|B|c@example.com|t"},
		"in two":                 {[][]int{{0}, {2, 1}}, "X|bb|two|Ltda|B|c@example.com|t"},
		"an older one late":      {[][]int{{2}, {1}, {0}}, "X|bb|two|Ltda|B|c@example.com|t"},
		"with an older one late": {[][]int{{1}, {0, 2}}, "X|bb|two|Ltda|B|c@example.com|t"},
	} {
		company := d.Company(t)
		a, b, c := storetest.KnownRecipient("X", "a@example.com", "A"), storetest.KnownRecipient("X", "b@example.com", "B"), storetest.KnownRecipient("X", "c@example.com", "")
		a.CPFCNPJHash, a.CPFCNPJ = storetest.HashOf('a'), []byte("one")
		b.CPFCNPJHash, b.CPFCNPJ = storetest.HashOf('b'), []byte("two")
		c.RazaoSocial = "Ltda"
		ids := storetest.Intake(t, d, company, a, b, c)
		for _, batch := range tt.batches {
			var chosen []uuid.UUID
			for _, i := range batch {
				chosen = append(chosen, ids[i])
			}
			storetest.Upsert(t, d, chosen...)
		}
		if got := storetest.RecipientRow(t, d, company, "X"); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
	if n := ask[int](t, d, `SELECT count(*) FROM recipient_intakes`); n != 0 {
		t.Errorf("%d wait still", n)
	}
}

// A number goes with the hash it belongs to.
func TestUpsertRecipients_NumberAndHash(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	numbered := func(hash byte, number string) recipient.NewRecipient {
		r := storetest.KnownRecipient("X", "a@example.com", "")
		r.CPFCNPJHash = storetest.HashOf(hash)
		if number != "" {
			r.CPFCNPJ = []byte(number)
		}
		return r
	}
	for i, step := range []struct {
		r    recipient.NewRecipient
		want string
	}{
		{numbered('a', "one"), "X|aa|one|a@example.com|t"},
		{storetest.KnownRecipient("X", "a@example.com", ""), "X|aa|one|a@example.com|t"},
		{numbered('a', ""), "X|aa|one|a@example.com|t"},
		{numbered('b', ""), "X|bb|a@example.com|t"},
		{numbered('b', "two"), "X|bb|two|a@example.com|t"},
	} {
		storetest.Upsert(t, d, storetest.Intake(t, d, company, step.r)...)
		if got := storetest.RecipientRow(t, d, company, "X"); got != step.want {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
	storetest.Upsert(t, d, storetest.Intake(t, d, company, numbered('c', "three"), numbered('a', ""))...)
	if got, want := storetest.RecipientRow(t, d, company, "X"), "X|aa|a@example.com|t"; got != want {
		t.Errorf("in one batch: %s, want %s", got, want)
	}
}

// Rows that the database rejects fail alone, and all others are written.
func TestUpsertRecipients_RejectedRowsFailAlone(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	run(t, d, `ALTER TABLE recipients ADD CONSTRAINT poison CHECK (nome <> 'poison')`)
	people := make([]recipient.NewRecipient, 1000)
	guilty := map[int]bool{0: true, 499: true, 500: true, 999: true}
	for i := range people {
		people[i] = storetest.KnownRecipient(fmt.Sprint(i), fmt.Sprintf("user%d@example.com", i), map[bool]string{true: "poison", false: "Ana"}[guilty[i]])
	}
	ids := storetest.Intake(t, d, company, people...)
	run(t, d, `UPDATE email_outbox SET payload = payload - 'id' WHERE id = $1`, ids[7]) // not even ours
	guilty[7] = true
	for i, err := range d.Store.UpsertRecipients(t.Context(), ids) {
		if errors.Is(err, recipient.ErrRefused) != guilty[i] || (err != nil) != guilty[i] {
			t.Errorf("%d: %v", i, err)
		}
	}
	if n := ask[string](t, d, `SELECT concat((SELECT count(*) FROM recipients), ' ', (SELECT count(*) FROM recipient_intakes))`); n != "995 5" {
		t.Errorf("%s rows", n)
	}

	for range 2 {
		for i := range guilty {
			if err := d.Store.DeadLetterImport(t.Context(), ids[i], "POISON", "because\x00", 4); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := d.Store.DeadLetterImport(t.Context(), ids[1], "POISON", "", 4); err != nil {
		t.Fatal(err)
	}
	got := ask[string](t, d, `SELECT string_agg(concat_ws('|', x.email, x.reason, x.last_error, x.attempts, x.target, o.status, o.last_error, o.processed_at IS NOT NULL, x.payload = o.payload, x.company_id = $1), E'\n' ORDER BY o.id)
		FROM dead_letters x JOIN email_outbox o ON o.id = x.outbox_id`, company)
	want := ""
	for _, i := range []int{0, 7, 499, 500, 999} {
		want += fmt.Sprintf("\nuser%d@example.com|POISON|because|4|recipients.upsert|FAILED|POISON: because|t|t|t", i)
	}
	if diff := cmp.Diff(want[1:], got); diff != "" {
		t.Error(diff)
	}
	// Dead-lettered imports are not written if their messages are delivered again.
	run(t, d, `ALTER TABLE recipients DROP CONSTRAINT poison`)
	storetest.Upsert(t, d, ids[0], ids[499])
	if n := ask[string](t, d, `SELECT concat((SELECT count(*) FROM recipients), ' ', (SELECT count(*) FROM recipient_intakes), ' ', (SELECT count(*) FROM email_outbox WHERE status = 'FAILED'))`); n != "995 1 5" {
		t.Errorf("%s rows", n) // the intake of the payload without an id cannot be found
	}
}

// An error that no row has caused: the batch is not split, and no row becomes a dead letter.
func TestUpsertRecipients_NotMigrated(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	ids := storetest.Intake(t, d, d.Company(t), storetest.KnownRecipient("1", "a@example.com", ""), storetest.KnownRecipient("2", "b@example.com", ""))
	run(t, d, `ALTER TABLE recipients DROP COLUMN intake_id`)
	for _, err := range d.Store.UpsertRecipients(t.Context(), ids) {
		if errors.Is(err, recipient.ErrRefused) || !errors.Is(err, store.ErrNotMigrated) {
			t.Errorf("got %v, want ErrNotMigrated", err)
		}
	}
}

// The same people in many batches, from two processes, while emails and deletions
// touch them: there is no deadlock, and no person is lost.
func TestUpsertRecipients_FromTwoProcesses(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	stores := []*store.Store{d.Store, open(t, d.URL, store.Options{})}
	const people, batches = 20, 24
	done := make(chan error, 2*batches)
	for n := range batches {
		var batch []recipient.NewRecipient
		for i := range people {
			batch = append(batch, storetest.KnownRecipient(fmt.Sprint((i*(n+1))%people), "a@example.com", fmt.Sprint(n)))
		}
		ids := storetest.Intake(t, d, company, batch...)
		for _, s := range stores { // the broker delivers it twice
			go func() {
				err := recipient.ErrLocked
				for errors.Is(err, recipient.ErrLocked) { // the broker delivers these again
					err = errors.Join(s.UpsertRecipients(t.Context(), ids)...)
				}
				done <- err
			}()
		}
	}
	for range 2 * batches {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := ask[string](t, d, `SELECT concat((SELECT count(*) FROM recipients), ' ', (SELECT count(*) FROM recipient_intakes))`); n != fmt.Sprint(people, " ", 0) {
		t.Errorf("%s rows", n)
	}
}
