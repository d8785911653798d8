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
)

// NewFileSlots returns a function that waits for a slot to store the content of a file.
func NewFileSlots() func(ctx context.Context, company uuid.UUID) (release func(), err error) {
	files := companylimit.NewKeepingLast(filesAtOnce, filesOfEach)
	return func(ctx context.Context, company uuid.UUID) (func(), error) { return EnterUpload(ctx, files, company) }
}

// EnterUpload waits for a slot.
func EnterUpload(ctx context.Context, g *companylimit.Limiter, company uuid.UUID) (release func(), err error) {
	waiting, cancel := context.WithTimeout(ctx, turnWait)
	defer cancel()
	release, err = g.Enter(waiting, company)
	switch {
	case err == nil:
		return release, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, companylimit.ErrCompanyLimit):
		return nil, tooManyUploads
	}
	return nil, tooManyMailings
}
