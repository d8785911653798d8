package load

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"email-gateway/shared/service"
)

// intake is how many recipients are handed over at once.
const intake = 20

// introduce hands over recipients until offering ends.
func (l *Load) introduce(ctx, offering context.Context) {
	for batch := 0; service.Pause(offering, recipientPause) == nil; batch++ {
		l.introduceBatch(ctx, batch)
	}
}

func (l *Load) introduceBatch(ctx context.Context, batch int) {
	people := make([]Facts, intake)
	for i := range people {
		n := batch*intake + i
		people[i] = Facts{ExternalID: fmt.Sprintf("cadastro-%d", n), Nome: "Maria", Email: fmt.Sprintf("cadastro%d@%s", n, Domain)}
		if i == 0 {
			people[i] = people[i].withTaxID(recipientTaxIDs + batch)
		}
	}
	l.importAll(ctx, l.params.Keys[batch%len(l.params.Keys)], fmt.Sprintf("cadastros-%d", batch), people)
}

// importAll imports several persons with one request.
func (l *Load) importAll(ctx context.Context, key, name string, people []Facts) {
	list := make([]map[string]any, len(people))
	for i, f := range people {
		list[i] = f.json()
	}
	body, _ := json.Marshal(map[string]any{"recipients": list}) // maps of strings always can
	got, ok := l.insist(ctx, request{
		method: http.MethodPost, path: "/v1/recipients", key: key, contentType: "application/json", idempotency: name, body: body,
	}, name)
	if !ok {
		return
	}
	accepted, err := read[struct{ IDs []uuid.UUID }](got)
	if err != nil || len(accepted.IDs) != len(people) {
		l.Book.refuse(fmt.Sprintf("%s: %.200q names %d of %d recipients", name, got.body, len(accepted.IDs), len(people)))
		return
	}
	for i, id := range accepted.IDs {
		l.Book.state(Statement{Person: id, How: Imported, Facts: people[i]})
	}
}
