package mailing_test

import (
	"testing"

	"email-gateway/shared/email"
)

// A mailing is marked as changed by each step of its expansion and by each email that ends, until it is counted. One of which
// nothing was expanded is not listed.
func TestOpenMailings_Changed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, ids := b.mailing(t, many(4)...)
	want := func(listed, changed bool) {
		t.Helper()
		open, err := b.Store.OpenMailings(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(open) != 1 && listed || len(open) > 0 && (!listed || open[0].ID != id || open[0].Changed != changed || open[0].Lines != 4) {
			t.Errorf("%+v, want listed %t, changed %t", open, listed, changed)
		}
	}
	want(false, false)
	if err := handle(t.Context(), b.params(), taskOf(id, 1)); err != nil {
		t.Fatal(err)
	}
	want(true, true)
	b.count(t, id)
	want(true, false)
	for i, status := range []string{"SENDING", "QUEUED", "PROCESSING", "PAUSED"} {
		b.exec(t, `UPDATE mailings SET status = $1`, status)
		token := b.claim(t, ids[i])
		want(true, false)
		b.end(t, ids[i], token, email.Sent, email.EventSent)
		want(true, true)
		b.count(t, id)
		want(true, false)
	}
}

// The emails of a FAILED mailing may wait for weeks. It is counted once, and then after each email that ends.
func TestOpenMailings_Failed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, ids := b.mailing(t, many(2)...)
	if err := handle(t.Context(), b.params(), taskOf(id, 1)); err != nil {
		t.Fatal(err)
	}
	token := b.claim(t, ids[0])
	b.exec(t, `UPDATE mailings SET status = 'FAILED', counted_at = NULL`)
	listed := func(want int) {
		t.Helper()
		if open, err := b.Store.OpenMailings(t.Context()); err != nil || len(open) != want {
			t.Errorf("%+v, %v, want %d", open, err, want)
		}
	}
	listed(1)
	b.count(t, id)
	listed(0)
	b.end(t, ids[0], token, email.Sent, email.EventSent)
	listed(1)
	b.count(t, id)
	listed(0)
	b.want(t, "1 1 0", `SELECT concat_ws(' ', sent, queued, rate) FROM mailings`)
}
