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
	people := make([]map[string]any, intake)
	for i := range people {
		n := batch*intake + i
		people[i] = map[string]any{
			"externalId": fmt.Sprintf("cadastro-%d", n), "nome": "Maria", "email": fmt.Sprintf("cadastro%d@%s", n, Domain),
		}
		if i == 0 {
			people[i]["cpfCnpj"] = TaxIDs[n%len(TaxIDs)]
		}
	}
	body, _ := json.Marshal(map[string]any{"recipients": people}) // maps of strings always can
	name := fmt.Sprintf("cadastros-%d", batch)
	got, ok := l.insist(ctx, request{
		method: http.MethodPost, path: "/v1/recipients", key: l.params.Keys[batch%len(l.params.Keys)],
		contentType: "application/json", idempotency: name, body: body,
	}, name)
	if !ok {
		return
	}
	accepted, err := read[struct{ IDs []uuid.UUID }](got)
	if err != nil || len(accepted.IDs) != intake {
		l.Book.refuse(fmt.Sprintf("%s: %.200q names %d of %d recipients", name, got.body, len(accepted.IDs), intake))
		return
	}
	for i, id := range accepted.IDs {
		l.Book.person(Person{ID: id, Email: fmt.Sprint(people[i]["email"])})
	}
}
