package bench

import (
	"context"
	"fmt"
	"net/http"

	"email-gateway/scripts/bench/environment"
	"email-gateway/scripts/bench/load"
	"email-gateway/scripts/bench/results"
)

const (
	// emailBatchSize is the number of emails of a batch, the most that it may have.
	emailBatchSize = 500
	// emailBatchConnections send them. One company commits one batch at a time: more connections would only wait.
	emailBatchConnections = 8
)

// compareBatches compares batches with single sends.
func (a *accepting) compareBatches(ctx context.Context) error {
	return a.table.Compare(ctx,
		results.Subject{Name: fmt.Sprintf("batches of %d, %d connections", emailBatchSize, emailBatchConnections), Unit: "emails/s", Measure: a.batches},
		results.Reference{Name: "single sends, 64 connections", Budget: 2, Measure: func(ctx context.Context) (float64, error) {
			p, err := a.runLoad(ctx, a.ours, a.api, 64, nil)
			return p.Rate, err
		}},
	)
}

// batches measures the rate of emails in batches, and checks that each has a row.
func (a *accepting) batches(ctx context.Context) (float64, error) {
	if err := a.empty(ctx, a.ours); err != nil {
		return 0, err
	}
	m := environment.NewMeter([]*environment.Program{a.api}, a.environment.Postgres)
	h := load.Generator{
		Addr: a.api.Addr, Connections: emailBatchConnections, Status: http.StatusAccepted,
		Request: batchRequest(a.emailTemplate, a.ours.Key), Serial: &a.serial,
	}
	seen, err := h.Run(ctx, a.warm, a.length, m)
	if err != nil {
		return 0, err
	}
	emails := int64(seen.Responses) * emailBatchSize
	rows, err := a.ours.Count(ctx, "SELECT count(*) FROM email_outbox")
	switch {
	case err != nil:
		return 0, err
	case rows < emails:
		return 0, fmt.Errorf("the api accepted %d emails in batches, but there are %d rows", emails, rows)
	}
	a.table.Record(results.Quantity{Name: "batches: answer after, p50", Unit: "ms"}, milliseconds(seen.P50))
	a.table.Record(results.Quantity{Name: "batches: answer after, p99", Unit: "ms"}, milliseconds(seen.P99))
	m.Record(a.table, "batches: ", "email", float64(emails))
	return seen.Rate * emailBatchSize, nil
}

// batchRequest returns a function that appends the whole HTTP request of a batch, with its own Idempotency-Key.
func batchRequest(l environment.EmailTemplate, key string) func(dst []byte, serial int64) []byte {
	const begin, end = `{"emails":[`, `]}`
	length := len(begin) + emailBatchSize*(l.Length()+len(",")) - len(",") + len(end)
	head := fmt.Sprintf("POST /v1/email/batch HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\nIdempotency-Key: lote-", key, length)
	return func(dst []byte, serial int64) []byte {
		dst = append(environment.AppendSerial(append(dst, head...), serial), "\r\n\r\n"+begin...)
		for i := range int64(emailBatchSize) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = l.Append(dst, serial*emailBatchSize+i)
		}
		return append(dst, end...)
	}
}
