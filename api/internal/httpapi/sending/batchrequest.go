package sending

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strconv"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/access"
	"email-gateway/api/internal/httpapi/accept"
	"email-gateway/api/internal/httpapi/compose"
	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/reqbody"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/httpapi/response"
	"email-gateway/api/internal/strictjson"
	"email-gateway/shared/rules"
	"email-gateway/shared/store/file"
	"email-gateway/shared/store/outbox"
)

// maxBatchFaults is how many faults a response lists. Of each further invalid item it lists the first.
const maxBatchFaults = 5000

// batchRequest is a batch whose items have been checked.
type batchRequest struct {
	partial bool
	key     *accept.Key
	emails  []outbox.NewEmail  // of the valid items
	refused []*problem.Problem // of each item; nil = it is valid
	faults  int
	content int // bytes of html and text of emails
}

// composeBatch reads the body and composes the emails. The error is about the request, or the database's.
func (h *Handlers) composeBatch(c *gin.Context, partial bool) (*batchRequest, error) {
	text, err := reqbody.ReadJSONText(c)
	if err != nil {
		return nil, err
	}
	ctx, v := c.Request.Context(), reqctx.StateOf(c)
	release, err := h.batches.compose(ctx, v.Caller.CompanyID)
	if err != nil {
		return nil, err
	}
	defer release()
	document, err := strictjson.Parse(text)
	if err != nil {
		return nil, err
	}
	all, faults := document.List(batchField, batchItems)
	switch {
	case len(faults) > 0:
		return nil, problem.Invalid(faults)
	case all.Length == 0:
		return nil, problem.Invalid(rules.Faults{{Field: batchField, Code: rules.CodeRequired, Message: "must not be empty"}})
	case all.Length > batchItems:
		message := fmt.Sprintf("must have at most %d entries, not %d: send several batches", batchItems, all.Length)
		return nil, problem.Invalid(rules.Faults{{Field: batchField, Code: "TOO_MANY", Message: message}})
	}
	if err := h.takeItems(c, all.Length); err != nil {
		return nil, err
	}
	b := &batchRequest{partial: partial, refused: make([]*problem.Problem, all.Length)}
	if b.key, err = accept.KeyOf(c.Request.Header, batchRoute, document, h.composer.HashKey); err != nil {
		return nil, err
	}
	if partial {
		setPartialSum(b.key)
	}
	items := h.composer.forBatch()
	for i, item := range all.Objects {
		if wrong, found := all.Wrong[i]; found {
			b.refuse(i, rules.Faults{wrong})
			continue
		}
		if err := b.compose(ctx, items, v, i, item); err != nil {
			return nil, err
		}
		if b.content > reqbody.MaxBatch {
			break
		}
		// Other requests need not wait until the scheduler interrupts this one.
		runtime.Gosched()
	}
	return b, nil
}

// takeItems counts the items against the rate limit of the key. middleware.Authenticate has counted the first.
func (h *Handlers) takeItems(c *gin.Context, n int) error {
	caller := reqctx.StateOf(c).Caller
	quota := h.limiter.TakeItems(caller.KeyID, caller.RatePerSecond, caller.Burst, n-1)
	response.SetRateLimitHeaders(c.Writer.Header(), quota)
	if !quota.Allowed {
		return batchRateLimited(quota, n)
	}
	return nil
}

// compose composes one item like the body of a single send. The error is not about the item.
func (b *batchRequest) compose(ctx context.Context, composer *composer, v *reqctx.State, i int, item strictjson.Document) error {
	mail, _, err := composer.compose(ctx, v.Caller, v.RequestID, item, nil)
	var refusal problem.Problem
	switch {
	case errors.As(err, &refusal) && refusal.Status == http.StatusUnprocessableEntity:
		faults := make(rules.Faults, len(refusal.Faults))
		for n, f := range refusal.Faults {
			f.Field = batchField + "[" + strconv.Itoa(i) + "]." + f.Field
			faults[n] = f
		}
		b.refuse(i, faults)
	case err != nil:
		return err
	default:
		b.emails = append(b.emails, mail)
		b.content += len(mail.HTML) + len(mail.Text)
	}
	return nil
}

// gone is the problem of files that were deleted between the checks and the commit.
func (b *batchRequest) gone(deleted *file.GoneError) problem.Problem {
	var faults rules.Faults
	next := 0
	for i, refusal := range b.refused {
		if refusal != nil {
			continue
		}
		for n, one := range b.emails[next].Attachments {
			if slices.Contains(deleted.IDs, one.FileID) {
				faults.Add(fmt.Sprintf("%s[%d].attachments[%d].fileId", batchField, i, n), compose.CodeFileNotFound, compose.FileDeleted)
			}
		}
		next++
	}
	return problem.Invalid(faults)
}

// refuse rejects an item because of its faults, of which it keeps the first one at least.
func (b *batchRequest) refuse(i int, faults rules.Faults) {
	p := problem.Invalid(faults)
	p.Faults = p.Faults[:min(len(p.Faults), max(maxBatchFaults-b.faults, 1))]
	b.faults += len(p.Faults)
	b.refused[i] = &p
}

// refusal is the problem of a batch whose emails are too large, or of a strict batch with invalid items, with the faults of
// all of them; nil = there are none.
func (b *batchRequest) refusal() error {
	if b.content > reqbody.MaxBatch {
		return batchContentTooLarge
	}
	if b.partial {
		return nil
	}
	var all rules.Faults
	invalidItems := 0
	for _, p := range b.refused {
		if p != nil {
			invalidItems++
			all = append(all, p.Faults...)
		}
	}
	if invalidItems == 0 {
		return nil
	}
	p := problem.Invalid(all)
	p.Detail = fmt.Sprintf("%d of the %d emails are not valid, so none was accepted", invalidItems, len(b.refused))
	if invalidItems == 1 {
		p.Detail = fmt.Sprintf("one of the %d emails is not valid, so none was accepted", len(b.refused))
	}
	return p
}

// batchRateLimited says how many requests the batch counts as.
func batchRateLimited(q access.Quota, items int) problem.Problem {
	p := problem.RateLimited(q)
	p.Detail = fmt.Sprintf("a batch of %d emails counts as %d requests, which the API key may not make now: repeat it after Retry-After", items, items)
	return p
}
