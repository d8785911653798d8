package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// holdings are the ids and values of a tenant.
type holdings struct {
	email, failed, mailing, recipient, letter, replay, file string
	webhook, delivery, webhookReplay                        string
	aggregate                                               string            // an id of the type "interview"
	cursors                                                 map[string]string // by operation: the nextCursor of the tenant's own first page
}

// Words that only the first tenant uses.
const (
	heldAddress  = "reservada@cliente-dela.example"
	heldExternal = "CUST-DELA-77"
	heldTag      = "campanha-dela"
	heldRequest  = "req-dela-1"
	heldKey      = "idem-dela-1"
)

func heldEmail(f fields) {
	f["to"], f["tags"] = heldAddress, []string{heldTag}
	f["recipient"] = fields{"externalId": heldExternal, "email": heldAddress}
}

// createOneOfEach creates one object of every kind for the gateway's own company.
func createOneOfEach(tb testing.TB, g *gateway) holdings {
	tb.Helper()
	var h holdings
	ok := func(r reply) reply {
		tb.Helper()
		if r.Status/100 != 2 {
			tb.Fatalf("%d %s", r.Status, r.Body)
		}
		return r
	}
	text := func(r reply, name string) string {
		tb.Helper()
		value, _ := ok(r).json(tb)[name].(string)
		if value == "" {
			tb.Fatalf("no %s in %s", name, r.Body)
		}
		return value
	}
	h.email = text(g.do(tb, call{
		Method: http.MethodPost, Path: "/v1/email/send", Body: emailBody(heldEmail),
		Header: map[string]string{"X-Request-Id": heldRequest, "Idempotency-Key": heldKey},
	}), "outboxId")
	h.aggregate = "entrevista-dela-" + uuid.NewString()
	g.accept(tb, emailBody(func(f fields) {
		heldEmail(f)
		f["aggregate"] = fields{"type": "interview", "id": h.aggregate, "eventType": "REMINDER"}
	}))
	for range 2 { // of each list there is a second page
		h.failed = g.accept(tb, emailBody(heldEmail))
		g.Programs.giveUp(tb, h.failed)
		h.mailing = g.mail(tb, given(part{name: "name", value: "lista-dela-" + uuid.NewString()}))
	}
	h.recipient = text(g.do(tb, call{
		Method: http.MethodPost, Path: "/v1/recipients",
		Body: `{"externalId": "` + heldExternal + `", "nome": "Ana Dela", "email": "` + heldAddress + `"}`,
	}), "id")
	for _, address := range []string{heldAddress, "outra@cliente-dela.example"} {
		ok(g.do(tb, call{Method: http.MethodPost, Path: "/v1/suppressions", Body: `{"address": "` + address + `"}`}))
	}
	if err := g.SQL.QueryRowContext(tb.Context(), `SELECT id FROM dead_letters WHERE outbox_id = $1`, h.failed).Scan(&h.letter); err != nil {
		tb.Fatal(err)
	}
	h.replay = text(g.do(tb, call{Method: http.MethodPost, Path: "/v1/dead-letters/discard", Body: `{"reason": "NONE"}`}), "replayId")
	h.webhook, _ = g.webhook(tb, `{"url": "https://erp.cliente-dela.example/hooks"}`)
	h.delivery = text(g.do(tb, call{Method: http.MethodPost, Path: "/v1/webhooks/" + h.webhook + "/test"}), "id")
	h.webhookReplay = text(g.do(tb, call{Method: http.MethodPost, Path: "/v1/webhooks/" + h.webhook + "/replays", Body: `{"failed": true}`}), "replayId")
	h.cursors = map[string]string{}
	for id, path := range map[string]string{
		"listEmails": "/v1/emails", "listSuppressions": "/v1/suppressions", "listDeadLetters": "/v1/dead-letters",
		"listMailings": "/v1/mailings", "listMailingEntries": "/v1/mailings/" + h.mailing + "/entries",
	} {
		page := g.do(tb, call{Path: path + "?limit=1"})
		if cursor, _ := ok(page).json(tb)["nextCursor"].(string); cursor != "" {
			h.cursors[id] = cursor
		} else {
			tb.Fatalf("%s: no second page: %s", path, page.Body)
		}
	}
	for _, name := range []string{"fatura-dela", heldTemplate} {
		ok(g.do(tb, call{Method: http.MethodPost, Path: "/v1/templates", Body: `{"name": "` + name + `", "subject": "s", "html": "<p>x</p>", "publish": true}`}))
	}
	for _, content := range []string{"nota-dela\n", "outra-dela\n"} {
		h.file = text(g.uploadFile(tb, content), "id")
	}
	h.cursors["listFiles"], _ = ok(g.do(tb, call{Path: "/v1/files?limit=1"})).json(tb)["nextCursor"].(string)
	h.cursors["listTemplates"], _ = ok(g.do(tb, call{Path: "/v1/templates?limit=1"})).json(tb)["nextCursor"].(string)
	g.Programs.assign(tb)
	h.cursors["listEvents"] = g.events(tb, "limit=1").NextCursor
	return h
}

// approach is how another tenant's key tries an operation on the first tenant's objects.
type approach struct {
	// id is an id of the first tenant for the path: the response must be 404, the same as for an id that does
	// not exist.
	id func(holdings) string
	// queries are tried one after the other; "" is no query.
	queries func(holdings) []string
	// want is the status if there is no id. A 200 to a GET must list nothing.
	want int
	make func(*testing.T, holdings) call // for what is not a plain request
	body string
}

// heldTemplate is a template of the first tenant.
const heldTemplate = "lembrete-dela"

func templateName(holdings) string  { return heldTemplate }
func emailID(h holdings) string     { return h.email }
func failedID(h holdings) string    { return h.failed }
func mailingID(h holdings) string   { return h.mailing }
func recipientID(h holdings) string { return h.recipient }
func letterID(h holdings) string    { return h.letter }
func webhookID(h holdings) string   { return h.webhook }

func listed(id string, queries ...string) approach {
	return approach{want: http.StatusOK, queries: func(h holdings) []string {
		all := []string{"", "?cursor=" + escape(h.cursors[id])}
		for _, query := range queries {
			all = append(all, strings.Replace(query, "{aggregate}", h.aggregate, 1))
		}
		return all
	}}
}

// approaches defines an attempt for each operation that needs a key. A missing one fails the test: a developer who
// adds a route must add it here.
func approaches() map[string]approach {
	return map[string]approach{
		"showEmail": {id: emailID}, "cancelEmail": {id: emailID}, "retryEmail": {id: failedID},
		"rescheduleEmail": {id: emailID, body: `{"sendAt": "2020-01-01T00:00:00Z"}`},
		"cancelAggregate": {id: func(h holdings) string { return h.aggregate }},
		"listEmails": listed("listEmails", "?recipient="+escape(heldAddress), "?externalId="+heldExternal, "?tag="+heldTag, "?requestId="+heldRequest,
			"?aggregateType=interview&aggregateId={aggregate}"),
		"listEvents": {want: http.StatusOK, queries: func(h holdings) []string {
			return []string{"", "?after=latest", "?after=" + h.cursors["listEvents"], "?types=RECEIVED,CANCELLED"}
		}},
		"showUsage":     {want: http.StatusOK, queries: func(holdings) []string { return []string{"", "?month=" + time.Now().UTC().Format("2006-01")} }},
		"showRecipient": {id: recipientID}, "deleteRecipient": {id: recipientID},
		"listSuppressions":  listed("listSuppressions", "?address="+escape(heldAddress)),
		"removeSuppression": {want: http.StatusNotFound, queries: func(holdings) []string { return []string{"?address=" + escape(heldAddress)} }},
		"listDeadLetters":   listed("listDeadLetters", "?recipient="+escape(heldAddress), "?resolved=false"),
		"showDeadLetter":    {id: letterID}, "retryDeadLetter": {id: letterID}, "discardDeadLetter": {id: letterID, body: `{"note":"mine now"}`},
		"showFile": {id: func(h holdings) string { return h.file }}, "listFiles": listed("listFiles"),
		"showReplay":    {id: func(h holdings) string { return h.replay }},
		"listTemplates": listed("listTemplates"), "showTemplate": {id: templateName}, "showTemplateVersion": {id: templateName}, "deleteTemplate": {id: templateName},
		"publishTemplate": {id: templateName, body: `{"version": 1}`}, "previewTemplate": {id: templateName, body: `{}`},
		"createTemplateVersion": {want: http.StatusCreated, body: `{"name": "` + heldTemplate + `", "subject": "mine", "html": "<p>mine</p>"}`},
		"listMailings":          listed("listMailings"), "showMailing": {id: mailingID}, "downloadMailingVerdicts": {id: mailingID},
		"listMailingRows": {id: mailingID, queries: func(holdings) []string { return []string{"", "?status=PENDING", "?format=csv"} }},
		"listMailingEntries": {id: mailingID, queries: func(h holdings) []string {
			return []string{"", "?status=PENDING", "?cursor=" + cursorWithoutList(h.email)}
		}},
		"startMailing": {id: mailingID}, "pauseMailing": {id: mailingID}, "resumeMailing": {id: mailingID},
		"moveMailing":   {id: mailingID, body: `{"sendAt": "2020-01-01T00:00:00Z"}`},
		"cancelMailing": {id: mailingID}, "retryFailedEntries": {id: mailingID},
		"listWebhooks": {want: http.StatusOK}, "showWebhook": {id: webhookID}, "changeWebhook": {id: webhookID, body: `{"url": "https://mine.example/hooks"}`},
		"deleteWebhook": {id: webhookID}, "rotateWebhookSecret": {id: webhookID}, "enableWebhook": {id: webhookID}, "disableWebhook": {id: webhookID},
		"testWebhook": {id: webhookID}, "listWebhookDeliveries": {id: webhookID}, "replayWebhook": {id: webhookID, body: `{"failed": true}`},
		"showWebhookDelivery": {id: webhookID}, "retryWebhookDelivery": {id: webhookID}, "showWebhookReplay": {id: webhookID},

		// Objects that another tenant creates with the first tenant's values belong to that tenant.
		"addRecipients":  {want: http.StatusAccepted, body: `{"externalId": "` + heldExternal + `", "email": "` + heldAddress + `"}`},
		"createWebhook":  {want: http.StatusCreated, body: `{"url": "https://mine.example/hooks"}`},
		"addSuppression": {want: http.StatusOK, body: `{"address": "` + heldAddress + `"}`},
		"retryDeadLetters": {want: http.StatusAccepted, make: func(_ *testing.T, h holdings) call {
			return call{Body: fmt.Sprintf(`{"recipient": %q}`, heldAddress)}
		}},
		"discardDeadLetters": {want: http.StatusAccepted, body: `{}`},
		"sendEmail": {want: http.StatusAccepted, make: func(_ *testing.T, h holdings) call {
			body := emailBody(func(f fields) {
				heldEmail(f)
				f["aggregate"] = fields{"type": "interview", "id": h.aggregate, "eventType": "REMINDER"}
			})
			return call{Body: body, Header: map[string]string{"Idempotency-Key": heldKey}}
		}},
		"sendEmailBatch": {want: http.StatusAccepted, make: func(_ *testing.T, h holdings) call {
			held := emailBody(func(f fields) {
				heldEmail(f)
				f["aggregate"] = fields{"type": "interview", "id": h.aggregate, "eventType": "REMINDER"}
			})
			foreign := emailBody(func(f fields) {
				f["attachments"] = []fields{{"filename": "nota.txt", "contentType": "text/plain", "fileId": h.file}}
			})
			return call{Body: batchBody(held, foreign), Header: map[string]string{"Idempotency-Key": heldKey}}
		}, queries: func(holdings) []string { return []string{"?mode=partial"} }},
		"uploadFile": {want: http.StatusCreated, make: func(*testing.T, holdings) call {
			return call{Body: "nota-dela\n", Header: map[string]string{"Content-Type": "application/octet-stream"}}
		}},
		"sendMailing": {want: http.StatusAccepted, make: func(t *testing.T, _ holdings) call { return uploadCall(t, mailingForm(), nil) }},
	}
}

// Another tenant's key with the first tenant's ids, values and cursors can neither read nor change anything of the first
// tenant, on any route.
func TestIsolation_EveryOperation(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	h := createOneOfEach(t, g)
	known := approaches()
	for _, o := range operations(t) {
		if o.Public {
			continue
		}
		try, ok := known[o.ID]
		if !ok {
			t.Errorf("%s %s (%s): approaches() has no entry for this operation", o.Method, o.Path, o.ID)
			continue
		}
		t.Run(o.Method+" "+o.Path, func(t *testing.T) { tryAsStranger(t, g, o, try, h) })
	}
}

func tryAsStranger(t *testing.T, g *gateway, o operation, try approach, h holdings) {
	stranger := g.newKey(t, g.Database.Company(t), nil).String()
	before := tenantState(t, g)
	queries := []string{""}
	if try.queries != nil {
		queries = try.queries(h)
	}
	for _, query := range queries {
		c := call{Body: try.body}
		if try.make != nil {
			c = try.make(t, h)
		}
		if c.Header == nil {
			c.Header = map[string]string{}
		}
		c.Method, c.Key, c.Header["X-Request-Id"] = o.Method, stranger, "req-stranger"
		if try.id == nil {
			c.Path = o.Path + query
			strangerSees(t, g, g.do(t, c), o, try.want, h)
			continue
		}
		path := strings.NewReplacer("{type}", "interview", "{version}", "1", "{name}", "{id}", "{delivery}", h.delivery, "{replay}", h.webhookReplay).Replace(o.Path)
		c.Path = strings.Replace(path, "{id}", try.id(h), 1) + query
		foreign := g.do(t, c)
		c.Path = strings.Replace(path, "{id}", uuid.Must(uuid.NewV7()).String(), 1) + query
		if unknown := g.do(t, c); foreign.Status != http.StatusNotFound || unknown.Status != foreign.Status || unknown.Body != foreign.Body {
			t.Errorf("%s: id of another tenant: %d %s\nid that does not exist: %d %s", query, foreign.Status, foreign.Body, unknown.Status, unknown.Body)
		}
	}
	if after := tenantState(t, g); after != before {
		t.Errorf("the first tenant's rows were changed; before:\n%s\nafter:\n%s", before, after)
	}
}

func strangerSees(t *testing.T, g *gateway, r reply, o operation, want int, h holdings) {
	t.Helper()
	if r.Status != want || r.Header.Get("Idempotent-Replayed") != "" {
		t.Errorf("status %d, want %d and no replay: %s", r.Status, want, r.Body)
	}
	for _, id := range []string{h.email, h.failed, h.mailing, h.recipient, h.letter, h.replay, h.webhook, h.file, g.Company.String()} {
		if strings.Contains(r.Body, id) {
			t.Errorf("the response contains the first tenant's %s: %s", id, r.Body)
		}
	}
	if r.Status/100 != 2 {
		return
	}
	if o.ID == "showUsage" { // its lists have a day or quota in each element, and the company's own counts
		if total := r.json(t)["total"].(map[string]any); total["accepted"] != 0.0 || total["mailings"] != 0.0 || total["bytes"] != 0.0 {
			t.Errorf("the usage counts objects of another tenant: %s", r.Body)
		}
		return
	}
	for name, value := range r.json(t) {
		if list, ok := value.([]any); ok && o.Method == http.MethodGet && len(list) > 0 {
			t.Errorf("%s is not empty: %s", name, r.Body)
		}
		if name == "matched" && value != float64(0) {
			t.Errorf("the filter matches objects of another tenant: %s", r.Body)
		}
	}
}

// An email cannot refer to a recipient of another tenant.
func TestIsolation_RecipientOfAnotherTenant(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	h := createOneOfEach(t, g)
	stranger := g.newKey(t, g.Database.Company(t), nil).String()
	r := g.do(t, call{Method: http.MethodPost, Path: "/v1/email/send", Key: stranger, Body: emailBody(func(f fields) {
		f["to"], f["recipient"] = heldAddress, fields{"recipientId": h.recipient, "email": heldAddress}
	})})
	if r.Status != http.StatusUnprocessableEntity || r.problem(t).Code != "RECIPIENT_NOT_FOUND" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
}
