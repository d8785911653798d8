package pipeline_test

import (
	"context"
	"crypto/sha256"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/htmlcheck"
	"email-gateway/shared/store/outbox"
	"email-gateway/worker/internal/attachment"
	"email-gateway/worker/internal/pipeline"
	"email-gateway/worker/internal/provider"
)

// countedRoom gives memory to every email, or refuses with err, and counts.
type countedRoom struct {
	err    error
	needed []attachment.Need
	inUse  int
}

func (c *countedRoom) Reserve(_ context.Context, n attachment.Need) (*attachment.Room, error) {
	c.needed = append(c.needed, n)
	if c.err != nil {
		return nil, c.err
	}
	c.inUse++
	return &attachment.Room{
		Read:    func(context.Context) ([]provider.Attachment, error) { return nil, nil },
		Release: sync.OnceFunc(func() { c.inUse-- }),
	}, nil
}

// bodyReads counts the bodies that are read alone.
type bodyReads struct {
	pipeline.Loader
	reads  int
	before func() // each read of fields
}

func (b *bodyReads) ReadFields(ctx context.Context, id uuid.UUID) ([]string, error) {
	b.reads++
	b.before()
	return b.Loader.ReadFields(ctx, id)
}

func (b *bodyReads) ReadBody(ctx context.Context, id uuid.UUID) (html, text string, err error) {
	b.reads++
	return b.Loader.ReadBody(ctx, id)
}

// paragraphs is html of n bytes.
func paragraphs(n int) string { return "<p>" + strings.Repeat("x", n-len("<p></p>")) + "</p>" }

// A body of more than 64 KiB is read when the email has memory for it, which is free after the call.
func TestHandle_LargeBody(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		html, text int
		large      bool
	}{
		"small":     {60 << 10, 4 << 10, false},
		"large":     {60 << 10, 4<<10 + 1, true},
		"html":      {512 << 10, 0, true},
		"the limit": {512 << 10, 512 << 10, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			room, loader := &countedRoom{}, &bodyReads{}
			b := newBench(t, func(p *pipeline.Params) {
				loader.Loader, p.Loader, p.Attachments = p.Loader, loader, room
			})
			html, text := paragraphs(c.html), strings.Repeat("y", c.text)
			id := b.Accept(t, b.company, func(e *outbox.NewEmail) { storeHTML(e, html); e.Text = text })
			b.sender.during = func() {
				if (room.inUse == 1) != c.large {
					t.Errorf("%d emails have memory during the call", room.inUse)
				}
			}
			if err := b.handle(t, id); err != nil {
				t.Fatal(err)
			}
			if m := b.sender.sent; len(m) != 1 || m[0].HTML != html || text != "" && m[0].Text != text {
				t.Errorf("%d messages were sent, or one with another body", len(m))
			}
			var want []attachment.Need
			if c.large {
				want = []attachment.Need{{Company: b.company, Lane: email.QueueNormal, Owner: id, Body: int64(c.html + c.text)}}
			}
			if diff := cmp.Diff(want, room.needed); diff != "" || room.inUse != 0 || (loader.reads == 1) != c.large {
				t.Errorf("%d reads, %d rooms in use; %s", loader.reads, room.inUse, diff)
			}
		})
	}
}

// storeHTML sets the email's html as the api does.
func storeHTML(e *outbox.NewEmail, html string) {
	sum := sha256.Sum256([]byte(html))
	e.HTML, e.HTMLSHA256 = html, sum[:]
}

// Without memory the email waits in the outbox. Its body is not read, and it spends no try.
func TestHandle_NoMemoryForBody(t *testing.T) {
	t.Parallel()
	room, loader := &countedRoom{err: &attachment.BusyError{Delay: time.Minute}}, &bodyReads{}
	b := newBench(t, func(p *pipeline.Params) { loader.Loader, p.Loader, p.Attachments = p.Loader, loader, room })
	id := b.Accept(t, b.company, func(e *outbox.NewEmail) { storeHTML(e, paragraphs(100<<10)) })
	b.exec(t, `UPDATE email_outbox SET status = 'ENQUEUED', enqueued_at = now()`)
	if err := b.handle(t, id); err != nil {
		t.Fatal(err)
	}
	if e := b.find(t, id); e.Status != email.Pending || e.Attempts != 0 || loader.reads != 0 || len(b.sender.sent) != 0 {
		t.Errorf("%s after %d tries, %d reads and %d calls", e.Status, e.Attempts, loader.reads, len(b.sender.sent))
	}
	var waits bool
	if err := b.SQL.QueryRowContext(t.Context(), `SELECT next_at > now() + interval '50 s' FROM email_outbox`).Scan(&waits); err != nil || !waits {
		t.Errorf("it does not wait: %v", err)
	}
}

// An email whose file is missing waits in the outbox, without using up a try, and fails when the file has been missing for long.
func TestHandle_MissingFile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  attachment.MissingError
		want email.Status
	}{
		"at first": {attachment.MissingError{Delay: time.Minute}, email.Pending},
		"for long": {attachment.MissingError{}, email.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, func(p *pipeline.Params) { p.Attachments = &countedRoom{err: &c.err} })
			id := b.Accept(t, b.company, func(e *outbox.NewEmail) { storeHTML(e, paragraphs(100<<10)) })
			b.exec(t, `UPDATE email_outbox SET status = 'ENQUEUED', enqueued_at = now()`)
			if err := b.handle(t, id); (err != nil) != (c.want == email.Failed) {
				t.Fatal(err)
			}
			if e := b.find(t, id); e.Status != c.want || e.Status == email.Pending && e.Attempts != 0 || len(b.sender.sent) != 0 {
				t.Errorf("%s after %d tries and %d calls", e.Status, e.Attempts, len(b.sender.sent))
			}
			if n := b.number(t, `SELECT count(*) FROM email_outbox WHERE status = 'PENDING' AND next_at > now() + interval '50 s'`); (n == 1) != (c.want == email.Pending) {
				t.Errorf("%d emails wait", n)
			}
		})
	}
}

// An email of a mailing needs memory for a body like the templates, before it is rendered.
func TestMailing_LargeBody(t *testing.T) {
	t.Parallel()
	for _, size := range []int{64 << 10, 64<<10 + 1} {
		room := &countedRoom{}
		html := paragraphs(size)
		m := newMailingBench(t, html, "", int(htmlcheck.Version), func(p *pipeline.Params) { p.Attachments = room })
		id := m.entry(t, "Recife", "https://acme.example")
		if err := m.handle(t, id); err != nil {
			t.Fatal(err)
		}
		var want []attachment.Need
		if size > 64<<10 {
			want = []attachment.Need{{Company: m.company, Lane: email.QueueNormal + m.mailing.String(), Owner: m.mailing, Body: int64(size)}}
		}
		if diff := cmp.Diff(want, room.needed); diff != "" || len(m.sender.sent) != 1 || m.sender.sent[0].HTML != html {
			t.Errorf("%d bytes: %d emails were sent; %s", size, len(m.sender.sent), diff)
		}
	}
}

// Values that make a body much larger than its templates: the first email reserves memory anew for what was rendered,
// and later ones reserve as much at once.
func TestMailing_LargeValues(t *testing.T) {
	t.Parallel()
	room := &countedRoom{}
	m := newMailingBench(t, "<p>{{cidade}}{{cidade}}{{cidade}}{{cidade}}</p>", "", int(htmlcheck.Version), func(p *pipeline.Params) { p.Attachments = room })
	cidade := strings.Repeat("x", 50<<10)
	body := int64(len("<p></p>") + 4*len(cidade))
	var want []attachment.Need
	for i := range 3 {
		id := m.entry(t, cidade, "https://acme.example")
		m.sender.during = func() {
			if room.inUse != 1 {
				t.Errorf("%d emails have memory during the call", room.inUse)
			}
		}
		if err := m.handle(t, id); err != nil {
			t.Fatal(err)
		}
		want = append(want, attachment.Need{Company: m.company, Lane: email.QueueNormal + m.mailing.String(), Owner: m.mailing, Body: body})
		if diff := cmp.Diff(want, room.needed); diff != "" || room.inUse != 0 || len(m.sender.sent) != i+1 {
			t.Fatalf("email %d: %d rooms in use, %d sent; %s", i, room.inUse, len(m.sender.sent), diff)
		}
	}
}

// Fields of more than 64 KiB are read when the email has memory for them.
func TestMailing_LargeFields(t *testing.T) {
	t.Parallel()
	room, loader := &countedRoom{}, &bodyReads{}
	m := newMailingBench(t, "<p>{{cidade}}</p>", "", int(htmlcheck.Version), func(p *pipeline.Params) {
		loader.Loader, p.Loader, p.Attachments = p.Loader, loader, room
	})
	loader.before = func() {
		if room.inUse != 1 {
			t.Errorf("%d emails have memory while the fields are read", room.inUse)
		}
	}
	link, cidade := "https://acme.example", strings.Repeat("x", 200<<10)
	for i := range 2 {
		if err := m.handle(t, m.entry(t, cidade, link)); err != nil {
			t.Fatal(err)
		}
		need := attachment.Need{Company: m.company, Lane: email.QueueNormal + m.mailing.String(), Owner: m.mailing, Body: int64(len(cidade) + len(link))}
		if loader.reads != i+1 || len(m.sender.sent) != i+1 || m.sender.sent[i].HTML != "<p>"+cidade+"</p>" || room.needed[i] != need || room.inUse != 0 {
			t.Fatalf("%d reads, %d emails, %d rooms in use, %+v", loader.reads, len(m.sender.sent), room.inUse, room.needed)
		}
	}
}

// One long row does not make the rest of its mailing wait for as much memory: the estimate decreases with each shorter email.
func TestMailing_OneLongRow(t *testing.T) {
	t.Parallel()
	room := &countedRoom{}
	m := newMailingBench(t, "<p>{{cidade}}{{cidade}}</p>", "", int(htmlcheck.Version), func(p *pipeline.Params) { p.Attachments = room })
	send := func(cidade string) {
		t.Helper()
		if err := m.handle(t, m.entry(t, cidade, "https://acme.example")); err != nil {
			t.Fatal(err)
		}
	}
	send(strings.Repeat("x", 50<<10))
	for range 5 {
		send("Recife")
	}
	if n := len(room.needed); n < 2 || n > 5 || room.needed[n-1].Body >= room.needed[0].Body {
		t.Errorf("%+v: the estimate does not decrease, or never below the size of a large body", room.needed)
	}
}
