package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	// batchSerials is the first serial of the emails in batches, batchSize the maximum number of
	// emails in one. Their CPFs are not those of other emails: see TaxID.
	batchSerials, batchSize = 4_300_000, 100
	// batchPause is the pause between two batches: with most of them small, it is likely that some are
	// in flight when a component is killed.
	batchPause = 800 * time.Millisecond
	// maxBatches limits those without a response: see maxPersons.
	maxBatches = 8
)

// Batch is a batch of emails that was submitted.
type Batch struct {
	Name    string
	Partial bool
	Outcome Outcome
	// Valid are the serials of the valid emails, Invalid those of the others.
	Valid, Invalid []int
}

// Outcome is what the responses say about a batch.
type Outcome string

// The outcomes of a batch.
const (
	AcceptedBatch Outcome = "accepted"
	RefusedBatch  Outcome = "refused"
	UnclearBatch  Outcome = "unclear" // its tenant did not repeat it after the lack of a 202
)

// batch is a batch of emails to be submitted.
type batch struct {
	Batch
	kind    batchKind
	emails  []email
	request request
}

// batchKind is a kind of batch.
type batchKind int

// The kinds of batches, which are submitted in turn. All but partialBatch are strict.
const (
	repeatedBatch   batchKind = iota // submitted again after its acceptance
	concurrentBatch                  // submitted twice at the same time
	partialBatch                     // with invalid emails, and submitted again
	invalidBatch                     // with invalid emails
	abandonedBatch                   // submitted once, whatever happens
	batchKinds
)

// sendBatches sends batches until offering ends.
func (l *Load) sendBatches(ctx, offering context.Context) {
	repeat(offering, batchPause, maxBatches, func(n int) {
		if l.awaitBacklog(offering) != nil {
			return
		}
		b := l.newBatch(n)
		for _, next := range b.emails {
			if !l.prepare(ctx, next) {
				return
			}
		}
		b.submit(ctx, l)
		l.Ledger.addBatch(b.Batch)
	})
}

func (l *Load) newBatch(n int) *batch {
	random := rand.New(rand.NewPCG(l.params.Seed, uint64(batchSerials+n)))
	kind := batchKind(n) % batchKinds
	b := &batch{Batch: Batch{Name: fmt.Sprintf("lote-%d", n), Partial: kind == partialBatch, Outcome: UnclearBatch}, kind: kind}
	size := 2 + random.IntN(12)
	if random.IntN(20) == 0 {
		size = 2 + random.IntN(batchSize-1)
	}
	key := l.params.Keys[n%len(l.params.Keys)]
	for i := range size {
		next := l.newEmail(random, batchSerials+n*batchSize+i)
		next.key = key
		if random.IntN(8) == 0 {
			next.attachStored(l.newFile(n / sharedBy))
		}
		if i%7 == 1 && (kind == partialBatch || kind == invalidBatch) {
			next.invalidate()
			b.Invalid = append(b.Invalid, next.serial)
		} else {
			b.Valid = append(b.Valid, next.serial)
		}
		b.emails = append(b.emails, next)
	}
	b.request = request{
		method: http.MethodPost, path: "/v1/email/batch", key: key, contentType: "application/json", idempotency: b.Name, timeout: uploadTimeout,
	}
	if b.Partial {
		b.request.path += "?mode=partial"
	}
	return b
}

// invalidate makes the api refuse the email.
func (e *email) invalidate() {
	delete(e.request, "template")
	delete(e.request, "subject")
	e.request["html"], e.invalid = "<p>Sem assunto</p>", true
}

// submit submits the batch as its kind says.
func (b *batch) submit(ctx context.Context, l *Load) {
	list := make([]map[string]any, len(b.emails))
	for i, next := range b.emails {
		l.addContent(next)
		list[i] = next.request
	}
	b.request.body, _ = json.Marshal(map[string]any{"emails": list}) // maps of strings and numbers always can
	switch b.kind {
	case invalidBatch:
		b.submitInvalid(ctx, l)
	case abandonedBatch:
		b.submitOnce(ctx, l)
	default:
		b.submitTwice(ctx, l)
	}
}

// submitTwice submits the batch twice. Both responses must have the same bytes.
func (b *batch) submitTwice(ctx context.Context, l *Load) {
	var answers [2]response
	var answered [2]bool
	var submitting sync.WaitGroup
	for i := range answers {
		submitting.Go(func() { answers[i], answered[i] = l.retryUntilAccepted(ctx, b.request, b.Name) })
		if b.kind != concurrentBatch {
			submitting.Wait()
		}
	}
	submitting.Wait()
	if answered[0] && answered[1] && !bytes.Equal(answers[0].body, answers[1].body) {
		l.Ledger.addRefusal(fmt.Sprintf("%s: two responses to one Idempotency-Key differ: %.300q, %.300q", b.Name, answers[0].body, answers[1].body))
	}
	for i, ok := range answered {
		if ok {
			b.accept(ctx, l, answers[i])
			return
		}
	}
}

// submitOnce submits the batch with a single request.
func (b *batch) submitOnce(ctx context.Context, l *Load) {
	got, err := l.client.do(ctx, b.request)
	l.Ledger.countResponse(got.status)
	switch {
	case err != nil || got.retryable():
	case got.status == http.StatusAccepted:
		b.accept(ctx, l, got)
	default:
		l.Ledger.addRefusal(b.Name + ": " + unexpectedResponse(got.status, got.body))
	}
}

// submitInvalid submits a strict batch with invalid emails. The response must name each of them.
func (b *batch) submitInvalid(ctx context.Context, l *Load) {
	got, ok := l.retryUntil(ctx, b.request, b.Name, http.StatusUnprocessableEntity)
	if !ok {
		return
	}
	b.Outcome = RefusedBatch
	for i, next := range b.emails {
		if named := strings.Contains(string(got.body), fmt.Sprintf(`"emails[%d].`, i)); named != next.invalid {
			l.Ledger.addRefusal(fmt.Sprintf("%s: email %d is invalid: %v; the response is %.300q", b.Name, i, next.invalid, got.body))
		}
	}
}

// batchAnswer is the 202 of a batch.
type batchAnswer struct {
	Accepted, Duplicates, Rejected int
	Emails                         []struct {
		Index    int
		Result   string
		OutboxID uuid.UUID
	}
}

// accept records the emails of an accepted batch, and withdraws those that are to be withdrawn.
func (b *batch) accept(ctx context.Context, l *Load, got response) {
	answer, err := read[batchAnswer](got)
	if err != nil || answer.Accepted != len(b.Valid) || answer.Duplicates != 0 || answer.Rejected != len(b.Invalid) || len(answer.Emails) != len(b.emails) {
		l.Ledger.addRefusal(fmt.Sprintf("%s: %.300q, want %d accepted and %d rejected", b.Name, got.body, len(b.Valid), len(b.Invalid)))
		return
	}
	b.Outcome = AcceptedBatch
	for i, result := range answer.Emails {
		next := b.emails[i]
		if result.Index != i || (result.Result == "rejected") != next.invalid || (result.OutboxID == uuid.Nil) != next.invalid {
			l.Ledger.addRefusal(fmt.Sprintf("%s: email %d is invalid: %v; its result is %+v", b.Name, i, next.invalid, result))
			continue
		}
		if !next.invalid {
			l.Ledger.addAccepted(next.accepted(result.OutboxID))
		}
	}
	for i, result := range answer.Emails {
		if next := b.emails[i]; next.cancel && !next.invalid {
			l.withdraw(ctx, next, result.OutboxID)
		}
	}
}
