package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/mailing"
	"email-gateway/shared/blob"
	"email-gateway/shared/telemetry"
)

const (
	// maxForm is the largest file with room for all other parts (bytes).
	maxForm = mailing.MaxFile + 4<<20
	// turnWait limits how long a mailing waits for a slot before it is rejected.
	turnWait = time.Minute
	// formsAtOnce limits the templates in memory, 4 MiB each, from the start of the upload to the
	// response: some wait for the ingestion of others.
	formsAtOnce, formsOfEach = 16, 4
	// uploadsAtOnce limits the memory of uploads, 25 MiB each with S3; uploadsOfEach limits what
	// one company takes of it with slow connections.
	uploadsAtOnce, uploadsOfEach = 8, 2
	// ingestsAtOnce limits the connections and the load of mailings on Postgres.
	ingestsAtOnce, ingestsOfEach = 4, 2
	// dropTime limits deleting a file, for which the request's context may have ended.
	dropTime = 10 * time.Second
)

// upload is a received form with its stored file.
type upload struct {
	id   uuid.UUID
	form mailing.Form
	file mailing.File
}

// readUpload receives the form. If the mailing is not accepted, the caller must drop the stored
// file, also after an error.
func (a *API) readUpload(c *gin.Context) (upload, error) {
	boundary, err := formBoundary(c.Request)
	if err != nil {
		return upload{}, err
	}
	release, err := enter(c.Request.Context(), a.mailings.uploads, visitOf(c).caller.CompanyID)
	if err != nil {
		return upload{}, err
	}
	u := upload{}
	if u.id, err = uuid.NewV7(); err != nil {
		release()
		return upload{}, fmt.Errorf("make mailing id: %w", err)
	}
	ctx, cancel := context.WithCancel(c.Request.Context())
	defer cancel()
	body := newSlowBody(c, maxForm, a.mailings.pace, uploadTime)
	defer func() {
		body.finish()
		if visitOf(c).bodyRead = errors.Is(body.err, io.EOF); !visitOf(c).bodyRead {
			closeAfterResponse(c)
		}
	}()
	defer release() // before the rest of a rejected form is discarded, which needs no slot
	defer a.mailings.open.add(visitOf(c).caller.CompanyID, body)()
	u.form, err = mailing.ReadForm(multipart.NewReader(body, boundary), func(content io.Reader) (err error) {
		u.file, err = a.mailings.files.Keep(ctx, visitOf(c).caller.CompanyID, u.id, content)
		return err
	})
	if body.wasCut() && errors.Is(body.err, os.ErrDeadlineExceeded) {
		return u, uploadGaveWay
	}
	return u, uploadProblem(err, body.err)
}

// uploadProblem maps an error of receiving a form. cause is the error of the body, which takes
// precedence.
func uploadProblem(err, cause error) error {
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
		return nil
	case errors.As(cause, &tooLarge), errors.Is(err, mailing.ErrFileTooLarge):
		return fileTooLarge
	case errors.Is(err, blob.ErrUnavailable):
		return fmt.Errorf("%w: %w", storageUnavailable, err)
	case errors.Is(cause, os.ErrDeadlineExceeded):
		return bodyTooSlow
	case cause != nil && !errors.Is(cause, io.EOF):
		return fmt.Errorf("%w: %w", unreadable, cause)
	case errors.Is(err, mailing.ErrMalformed):
		return malformedForm
	}
	return err
}

// formBoundary returns the boundary of the form's parts.
func formBoundary(r *http.Request) (string, error) {
	media, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err != nil, media != "multipart/form-data", parameters["boundary"] == "", r.Header.Get("Content-Encoding") != "":
		return "", notForm
	case r.ContentLength > maxForm:
		return "", fileTooLarge
	}
	return parameters["boundary"], nil
}

// enter waits for a slot.
func enter(ctx context.Context, g *mailing.Limiter, company uuid.UUID) (release func(), err error) {
	waiting, cancel := context.WithTimeout(ctx, turnWait)
	defer cancel()
	release, err = g.Enter(waiting, company)
	switch {
	case err == nil:
		return release, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, mailing.ErrOwnLimit):
		return nil, tooManyUploads
	}
	return nil, tooManyMailings
}

// dropFile deletes the file of a mailing that was not accepted. If that fails, the file does no
// harm: it is encrypted, and no row refers to it.
func (a *API) dropFile(c *gin.Context, f mailing.File) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request.Context()), dropTime)
	defer cancel()
	if err := a.mailings.files.Drop(ctx, f); err != nil {
		a.log.Warn("cannot delete the file of a rejected mailing", telemetry.RequestID, visitOf(c).requestID, "key", f.Key, "error", err)
	}
}
