package compose

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/companylimit"
)

const (
	// turnWait limits how long a mailing waits for a slot before it is rejected.
	turnWait = time.Minute
	// UploadsAtOnce limits the memory of uploads, 25 MiB each with S3; UploadsOfEach limits what
	// one company takes of it with slow connections.
	UploadsAtOnce, UploadsOfEach = 8, 2
	// filesAtOnce limits the memory of contents being stored, 25 MiB each with S3; filesOfEach limits one company's share.
	filesAtOnce, filesOfEach = 4, 2
	// fileWait limits how long a content waits for a slot: many clients wait 30 s for a response.
	fileWait = 15 * time.Second
)

// NewFileSlots returns a function that waits for a slot to store the content of a file.
func NewFileSlots() func(ctx context.Context, company uuid.UUID) (release func(), err error) {
	files := companylimit.NewKeepingLast(filesAtOnce, filesOfEach)
	return func(ctx context.Context, company uuid.UUID) (func(), error) {
		return enter(ctx, files, company, fileWait, tooManyFilesOfCompany, tooManyFiles)
	}
}

// EnterUpload waits for a slot of a mailing.
func EnterUpload(ctx context.Context, g *companylimit.Limiter, company uuid.UUID) (release func(), err error) {
	return enter(ctx, g, company, turnWait, tooManyUploads, tooManyMailings)
}

// enter waits for a slot. The error is own if the company's other requests use its slots, others if those of all companies do.
func enter(ctx context.Context, g *companylimit.Limiter, company uuid.UUID, wait time.Duration, own, others error) (release func(), err error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	release, err = g.Enter(waiting, company)
	switch {
	case err == nil:
		return release, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, companylimit.ErrCompanyLimit):
		return nil, own
	}
	return nil, others
}
