package load

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"email-gateway/shared/service"
)

// intake is the number of recipients in one request.
const intake = 20

// importRecipients imports recipients until offering ends.
func (l *Load) importRecipients(ctx, offering context.Context) {
	for batch := 0; service.Pause(offering, recipientPause) == nil; batch++ {
		l.importBatch(ctx, batch)
	}
}

func (l *Load) importBatch(ctx context.Context, batch int) {
	people := make([]Fields, intake)
	for i := range people {
		n := batch*intake + i
		people[i] = Fields{ExternalID: fmt.Sprintf("cadastro-%d", n), Nome: "Maria", Email: fmt.Sprintf("cadastro%d@%s", n, Domain)}
		if i == 0 {
			people[i] = people[i].withTaxID(recipientTaxIDs + batch)
		}
	}
	l.importAll(ctx, l.params.Keys[batch%len(l.params.Keys)], fmt.Sprintf("cadastros-%d", batch), people)
}

// importAll imports several persons with one request.
func (l *Load) importAll(ctx context.Context, key, name string, people []Fields) {
	list := make([]map[string]any, len(people))
	for i, f := range people {
		list[i] = f.json()
	}
	body, _ := json.Marshal(map[string]any{"recipients": list}) // maps of strings always can
	got, ok := l.retryUntilAccepted(ctx, request{
		method: http.MethodPost, path: "/v1/recipients", key: key, contentType: "application/json", idempotency: name, body: body,
	}, name)
	if !ok {
		return
	}
	accepted, err := read[struct{ IDs []uuid.UUID }](got)
	if err != nil || len(accepted.IDs) != len(people) {
		l.Ledger.addRefusal(fmt.Sprintf("%s: %.200q contains %d of %d recipient ids", name, got.body, len(accepted.IDs), len(people)))
		return
	}
	for i, id := range accepted.IDs {
		l.Ledger.addStatement(Statement{Person: id, How: Imported, Fields: people[i]})
	}
}
