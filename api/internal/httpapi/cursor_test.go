package httpapi_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

// A cursor is only for the list and the filters for which it was made: elsewhere a page would begin anywhere. The size
// of the pages may change, and so may the prefix of the path.
func TestCursor_OfOneList(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	h := createOneOfEach(t, g)
	other := g.mail(t, given(part{name: "name", value: "another list"}))
	lists := map[string]string{
		"listEmails": "/v1/emails?", "listSuppressions": "/v1/suppressions?", "listDeadLetters": "/v1/dead-letters?", "listMailings": "/v1/mailings?",
		"listMailingEntries": "/v1/mailings/" + h.mailing + "/entries?", "listFiles": "/v1/files?", "listTemplates": "/v1/templates?",
	}
	further := map[string]string{
		"listEmails": "/v1/emails?status=PENDING&", "listSuppressions": "/v1/suppressions?reason=MANUAL&", "listDeadLetters": "/v1/dead-letters?resolved=false&",
		"listMailingEntries": "/v1/mailings/" + h.mailing + "/entries?status=PENDING&", "entries of another": "/v1/mailings/" + other + "/entries?",
		"rows": "/v1/mailings/" + h.mailing + "/rows?", "deliveries": "/v1/webhooks/" + h.webhook + "/deliveries?",
	}
	for id, path := range lists {
		cursor := "cursor=" + escape(h.cursors[id])
		allowed := []string{path + cursor, path + cursor + "&limit=2", path + "limit=&" + cursor}
		if id == "listMailings" {
			allowed = append(allowed, strings.TrimPrefix(path, "/v1")+cursor)
		}
		for _, path := range allowed {
			if r := g.do(t, call{Path: path}); r.Status != http.StatusOK {
				t.Errorf("%s: %s: %d %s", id, path, r.Status, r.Body)
			}
		}
		var refused []string
		for elsewhere, path := range lists {
			if elsewhere != id {
				refused = append(refused, path+cursor)
			}
		}
		for _, path := range further {
			refused = append(refused, path+cursor)
		}
		for _, path := range refused {
			r := g.do(t, call{Path: path})
			if r.Status != http.StatusUnprocessableEntity || r.problem(t).Errors[0].Code != "INVALID_CURSOR" {
				t.Errorf("the cursor of %s: %s: %d %s", id, path, r.Status, r.Body)
			}
		}
	}
}

// cursorWithoutList returns the cursor that the previous release makes of an id.
func cursorWithoutList(id string) string {
	raw := uuid.MustParse(id)
	return base64.RawURLEncoding.EncodeToString(raw[:])
}

// A listing that an api of the previous release has begun goes on: its cursors have no hash.
func TestCursor_OfThePreviousRelease(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	ids := make([]string, 3)
	for i := range ids {
		ids[len(ids)-1-i] = g.accept(t, emailBody(nil))
		g.suppress(t, fmt.Sprintf(`{"address":"a%d@example.com"}`, i))
	}
	rest, _ := g.page(t, "tag=&cursor="+cursorWithoutList(ids[1]))
	if diff := cmp.Diff(ids[2:], rest); diff != "" {
		t.Errorf("emails: %s", diff)
	}
	suppressed, _ := g.suppressed(t, "?cursor="+base64.RawURLEncoding.EncodeToString([]byte(`{"a":"a1@example.com","r":"MANUAL"}`)))
	if diff := cmp.Diff([]string{"a2@example.com MANUAL"}, suppressed); diff != "" {
		t.Errorf("suppressions: %s", diff)
	}
}
