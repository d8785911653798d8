package pipeline_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/htmlcheck"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/unsubscribe"
	"email-gateway/worker/internal/pipeline"
	"email-gateway/worker/internal/queue"
)

// links returns Links with a key of the test's own.
func links(t *testing.T) pipeline.Links {
	t.Helper()
	var keys unsubscribe.Keys
	if err := keys.UnmarshalText([]byte("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")); err != nil {
		t.Fatal(err)
	}
	return pipeline.Links{Keys: keys, PublicURL: "https://mail.acme.example"}
}

// mailingBench is a bench with a mailing of these templates; each email is one entry.
type mailingBench struct {
	*bench
	mailing uuid.UUID
	links   pipeline.Links
}

func newMailingBench(t *testing.T, html, text string, checker int, changes ...func(*pipeline.Params)) *mailingBench {
	t.Helper()
	m := &mailingBench{mailing: uuid.Must(uuid.NewV7()), links: links(t)}
	m.bench = newBench(t, func(p *pipeline.Params) {
		p.Links = m.links
		for _, change := range changes {
			change(p)
		}
	})
	m.exec(t, `INSERT INTO mailings (id, company_id, request_id, filename, storage_url, file_sha256, request_sha256, answer, subject, html, text_body, html_sha256,
			checker_version, fields, sender, status, total_lines, accepted, invalid, duplicates)
		VALUES ($1, $2, 'r', 'a.csv', 'file:///a', sha256('a'), sha256('b'), '', 's', $3, nullif($4, ''), sha256('c'), $5, '{cidade,link}', 'a@acme.example', 'SENDING', 1, 1, 0, 0)`,
		m.mailing, m.company, html, text, checker)
	m.exec(t, `INSERT INTO dispatch_lanes (company_id, queue, mailing_id) VALUES ($1, 'email:send:low', $2)`, m.company, m.mailing)
	return m
}

// entry adds an email of the mailing to ana@example.com.
func (m *mailingBench) entry(t *testing.T, cidade, link string) uuid.UUID {
	t.Helper()
	id := m.Accept(t, m.company, func(e *outbox.NewEmail) { e.Job.HTMLRef = "mailing:" + m.mailing.String() })
	m.exec(t, `INSERT INTO mailing_entries (id, mailing_id, line_no, email, token, status, fields) VALUES ($1, $2, 2, gen_random_uuid() || '@x.example', 'tok-1', 'QUEUED', ARRAY[$3, $4])`,
		id, m.mailing, cidade, link)
	m.exec(t, `UPDATE email_outbox SET html = NULL, html_sha256 = NULL, checker_version = NULL, lane_id = (SELECT id FROM dispatch_lanes WHERE mailing_id = $2) WHERE id = $1`,
		id, m.mailing)
	return id
}

func TestMailing_RenderedAtSend(t *testing.T) {
	t.Parallel()
	m := newMailingBench(t, `<p title="{{cidade}}">{{nome}}, {{email}}: {{token}} <a href="{{link}}">ver</a> <a href="{{unsubscribe_url}}">sair</a></p>`,
		"{{nome}} de {{cidade}}", int(htmlcheck.Version))
	id := m.entry(t, `São "Luís"`, "https://acme.example/?a=1&b=2")
	if err := m.handle(t, id); err != nil {
		t.Fatal(err)
	}
	if got := m.find(t, id).Status; got != email.Sent {
		t.Fatalf("status %s", got)
	}
	sent := m.sender.sent[0]
	link := unsubscribe.URL(m.links.PublicURL, m.links.Keys.Seal(unsubscribe.Link{Company: m.company, Mailing: m.mailing, Address: "ana@example.com"}))
	want := `<p title="São &#34;Luís&#34;">Ana, ana@example.com: tok-1 <a href="https://acme.example/?a=1&amp;b=2">ver</a> <a href="` + link + `">sair</a></p>`
	if sent.HTML != want || sent.Text != `Ana de São "Luís"` {
		t.Errorf("html %s\nwant %s\ntext %s", sent.HTML, want, sent.Text)
	}
	if sent.Headers["List-Unsubscribe"] != "<"+link+">" || sent.Headers["List-Unsubscribe-Post"] != "List-Unsubscribe=One-Click" {
		t.Errorf("headers %v", sent.Headers)
	}
	var status string
	if err := m.SQL.QueryRowContext(t.Context(), `SELECT status FROM mailing_entries WHERE id = $1`, id).Scan(&status); err != nil || status != "SENT" {
		t.Errorf("the entry is %s, %v", status, err)
	}
}

// The job of a mailing's test email names the mailing. Its unsubscribe link is made when it is sent, and it waits for
// the settings that the link needs.
func TestMailing_TestEmail(t *testing.T) {
	t.Parallel()
	mailing := uuid.Must(uuid.NewV7())
	for name, keys := range map[string]pipeline.Links{
		"with both": links(t), "without a key": {PublicURL: "https://mail.acme.example"}, "without an address": {Keys: links(t).Keys},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, func(p *pipeline.Params) { p.Links = keys })
			id := b.Accept(t, b.company, func(e *outbox.NewEmail) {
				e.Job.Headers = unsubscribe.Reference(mailing)
				e.Job.Headers["X-Order"] = "7"
			})
			b.exec(t, `UPDATE email_outbox SET status = 'ENQUEUED', enqueued_at = now() WHERE id = $1`, id)
			if err := b.handle(t, id); err != nil {
				t.Fatal(err)
			}
			if keys.Keys.Empty() || keys.PublicURL == "" {
				b.expect(t, id, email.Pending, 0, 0)
				return
			}
			b.expect(t, id, email.Sent, 1, 0)
			link := unsubscribe.URL(keys.PublicURL, keys.Keys.Seal(unsubscribe.Link{Company: b.company, Mailing: mailing, Address: "ana@example.com"}))
			want := map[string]string{"X-Order": "7", "List-Unsubscribe": "<" + link + ">", "List-Unsubscribe-Post": "List-Unsubscribe=One-Click"}
			if diff := cmp.Diff(want, b.sender.sent[0].Headers); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The mailing step has stored the recipient of its email: the claim does not write or lock it
// again. The email's log names it.
func TestMailing_RecipientIsNotWrittenAgain(t *testing.T) {
	t.Parallel()
	m := newMailingBench(t, `<p>{{cidade}}</p>`, "", int(htmlcheck.Version))
	recipientID := recipient.ID(m.company, "", "", "ana@example.com")
	m.exec(t, `INSERT INTO recipients (id, company_id, email) VALUES ($1, $2, 'ana@example.com')`, recipientID, m.company)
	id := m.entry(t, "Recife", "")
	m.exec(t, `UPDATE email_outbox SET payload = jsonb_set(payload, '{recipient}', jsonb_build_object('recipientId', $2::text, 'nome', 'Ana', 'email', 'ana@example.com')) WHERE id = $1`,
		id, recipientID)
	if err := m.handle(t, id); err != nil {
		t.Fatal(err)
	}
	if got := m.find(t, id).Status; got != email.Sent {
		t.Fatalf("status %s", got)
	}
	var untouched, logged bool
	err := m.SQL.QueryRowContext(t.Context(), `
SELECT r.xmax = 0 AND r.nome IS NULL, l.recipient_id = r.id FROM recipients r, email_logs l WHERE r.id = $1 AND l.outbox_id = $2`, recipientID, id).Scan(&untouched, &logged)
	if err != nil || !untouched || !logged {
		t.Errorf("the recipient is untouched: %v, the log names it: %v, %v", untouched, logged, err)
	}
}

func TestMailing_CannotBeRendered(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		html, link string
		checker    int
		change     string
	}{
		"a value that is not a URL":   {html: `<a href="{{link}}">x</a>`, link: "javascript:alert(1)", checker: int(htmlcheck.Version)},
		"a field without a column":    {html: `<p>{{estado}}</p>`, checker: int(htmlcheck.Version)},
		"rejected by a newer checker": {html: `<script>1</script>`, checker: int(htmlcheck.Version) + 1},
		"the mailing is deleted":      {html: `<p>x</p>`, checker: int(htmlcheck.Version), change: `DELETE FROM mailings`},
		"larger than the limit":       {html: `<p>` + strings.Repeat("{{cidade}}", 100) + `</p>`, checker: int(htmlcheck.Version), link: "big"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMailingBench(t, tt.html, "", tt.checker)
			cidade := "Recife"
			if tt.link == "big" {
				cidade = strings.Repeat("x", 6000)
			}
			id := m.entry(t, cidade, tt.link)
			if tt.change != "" {
				m.exec(t, tt.change)
			}
			var dead *queue.Dead
			if err := m.handle(t, id); !errors.As(err, &dead) {
				t.Fatal(err)
			}
			found := m.find(t, id)
			if found.Status != email.Failed || *found.ErrorCode != email.CodeInvalidTemplate || len(m.sender.sent) != 0 {
				t.Errorf("%s, %v", found.Status, found.ErrorCode)
			}
		})
	}
}

// More mailings at once than the template cache holds.
func TestMailing_MoreThanTheCacheHolds(t *testing.T) {
	t.Parallel()
	m := newMailingBench(t, `<p>{{cidade}}</p>`, "", int(htmlcheck.Version))
	first := m.mailing
	for i := range 40 {
		if i%2 == 1 {
			m.mailing = uuid.Must(uuid.NewV7())
			m.exec(t, `INSERT INTO mailings SELECT (m).* FROM (SELECT jsonb_populate_record(m, jsonb_build_object('id', $2::uuid, 'filename', $2::text)) AS m FROM mailings m WHERE id = $1) x`, first, m.mailing)
			m.exec(t, `INSERT INTO dispatch_lanes (company_id, queue, mailing_id) VALUES ($1, 'email:send:low', $2)`, m.company, m.mailing)
		} else {
			m.mailing = first
		}
		id := m.entry(t, m.mailing.String(), "")
		if err := m.handle(t, id); err != nil {
			t.Fatal(err)
		}
		if got := m.sender.sent[i].HTML; got != "<p>"+m.mailing.String()+"</p>" {
			t.Fatalf("%s for %s", got, m.mailing)
		}
	}
}

func TestSuppressed(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.exec(t, `INSERT INTO suppressions (company_id, address, reason) VALUES ($1, 'ana@example.com', 'BOUNCE')`, b.company)
	id := b.Accept(t, b.company, nil)
	if err := b.handle(t, id); err != nil {
		t.Fatal(err)
	}
	if found := b.find(t, id); found.Status != email.Suppressed || *found.ErrorReason != "BOUNCE" || len(b.sender.sent) != 0 {
		t.Errorf("%+v", found)
	}
	if got := b.events(t, id); !slices.Equal(got, []email.EventType{email.EventSuppressed}) {
		t.Errorf("events %v", got)
	}
}

func TestSuppressedCopies(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.exec(t, `INSERT INTO suppressions (company_id, address, reason) VALUES ($1, 'eva@example.com', 'MANUAL')`, b.company)
	id := b.Accept(t, b.company, func(e *outbox.NewEmail) {
		e.Job.CC, e.Job.BCC = []string{"Eva@example.com", "caio@example.com"}, []string{"eva@example.com"}
	})
	if err := b.handle(t, id); err != nil {
		t.Fatal(err)
	}
	sent := b.sender.sent[0]
	if !slices.Equal(sent.CC, []string{"caio@example.com"}) || len(sent.BCC) != 0 {
		t.Errorf("cc %v, bcc %v", sent.CC, sent.BCC)
	}
	timeline, err := b.Store.Timeline(t.Context(), id)
	if err != nil || !strings.Contains(string(timeline[2].Metadata), "Eva@example.com") {
		t.Errorf("%s, %v", timeline[2].Metadata, err)
	}
}

// An email that names a recipient whose import is still queued is sent at once and stores nothing
// about the person: the import does.
func TestRecipientNotYetImported(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	person := uuid.New()
	id := b.Accept(t, b.company, func(e *outbox.NewEmail) {
		e.Job.Recipient = email.JobRecipient{RecipientID: person.String(), Email: e.Job.To}
	})
	b.exec(t, `INSERT INTO recipient_intakes (recipient_id, outbox_id, company_id, email) VALUES ($1, gen_random_uuid(), $2, 'ana@example.com')`, person, b.company)
	if err := b.handle(t, id); err != nil {
		t.Fatal(err)
	}
	if found := b.find(t, id); found.Status != email.Sent || found.Attempts != 1 || found.RecipientID == nil || *found.RecipientID != person {
		t.Errorf("%+v", found)
	}
	var people int
	if err := b.SQL.QueryRowContext(t.Context(), `SELECT count(*) FROM recipients`).Scan(&people); err != nil || people != 0 {
		t.Errorf("%d recipients, %v", people, err)
	}
}

// An email with a recipientId updates the recipient's data, but not the address, which is only
// compared.
func TestRecipientByID(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	person := uuid.New()
	b.exec(t, `INSERT INTO recipients (id, company_id, external_id, nome, email) VALUES ($1, $2, 'C-1', 'Ana', 'ana@EXAMPLE.com')`, person, b.company)
	for _, tt := range []struct{ nome, want string }{{"", "C-1|Ana|ana@EXAMPLE.com|t"}, {"Ana Maria", "C-1|Ana Maria|ana@EXAMPLE.com|t"}} {
		id := b.Accept(t, b.company, func(e *outbox.NewEmail) {
			e.Job.Recipient = email.JobRecipient{RecipientID: person.String(), Nome: tt.nome, Email: e.Job.To}
		})
		if err := b.handle(t, id); err != nil {
			t.Fatal(err)
		}
		var got string
		err := b.SQL.QueryRowContext(t.Context(), `SELECT concat_ws('|', external_id, nome, email, intake_id IS NULL OR intake_id < $1) FROM recipients`, id).Scan(&got)
		if err != nil || got != tt.want || b.find(t, id).Status != email.Sent {
			t.Errorf("%s, want %s; %v", got, tt.want, err)
		}
	}
}
