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
	// maxForm is the file at its limit with room for all other parts at theirs.
	maxForm = mailing.MaxFile + 4<<20
	// turnWait is how long a mailing waits for its turn before it is told to come back.
	turnWait = time.Minute
	// formsAtOnce bounds the templates in memory, 4 MiB each, from the beginning of the upload
	// to the answer: some wait for the ingests of others.
	formsAtOnce, formsOfEach = 16, 4
	// uploadsAtOnce bounds what uploads take of the process's memory, 25 MiB each where
	// the storage is S3, and what one company takes of them with slow connections.
	uploadsAtOnce, uploadsOfEach = 8, 2
	// ingestsAtOnce bounds the connections and the work that Postgres has of mailings.
	ingestsAtOnce, ingestsOfEach = 4, 2
	// dropTime is for taking back a file, whose request may have ended long before.
	dropTime = 10 * time.Second
)

// upload is a form, read, and its file, stored.
type upload struct {
	id   uuid.UUID
	form mailing.Form
	file mailing.File
}

// readUpload reads the form. What it has stored must be dropped if nothing comes of
// it, after an error too.
func (a *API) readUpload(c *gin.Context) (upload, error) {
	boundary, err := formBoundary(c.Request)
	if err != nil {
		return upload{}, err
	}
	leave, err := enter(c.Request.Context(), a.mailings.uploads, visitOf(c).caller.CompanyID)
	if err != nil {
		return upload{}, err
	}
	u := upload{}
	if u.id, err = uuid.NewV7(); err != nil {
		leave()
		return upload{}, fmt.Errorf("make mailing id: %w", err)
	}
	ctx, cancel := context.WithCancel(c.Request.Context())
	defer cancel()
	body := newSlowBody(c, maxForm, a.mailings.pace, uploadTime)
	defer func() {
		body.finish()
		if visitOf(c).bodyRead = errors.Is(body.err, io.EOF); !visitOf(c).bodyRead {
			hangUp(c)
		}
	}()
	defer leave() // before what is left of a refused form is read, for which nobody waits
	defer a.mailings.open.add(visitOf(c).caller.CompanyID, body)()
	u.form, err = mailing.ReadForm(multipart.NewReader(body, boundary), func(content io.Reader) (err error) {
		u.file, err = a.mailings.vault.Keep(ctx, visitOf(c).caller.CompanyID, u.id, content)
		return err
	})
	if body.wasCut() && errors.Is(body.err, os.ErrDeadlineExceeded) {
		return u, uploadGaveWay
	}
	return u, uploadProblem(err, body.err)
}

// uploadProblem tells what went wrong while a form was read: cause is the body's own
// error, which is what counts where there is one.
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

// formBoundary is the word between the form's parts.
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

// enter waits for its turn.
func enter(ctx context.Context, g *mailing.Gate, company uuid.UUID) (leave func(), err error) {
	waiting, cancel := context.WithTimeout(ctx, turnWait)
	defer cancel()
	leave, err = g.Enter(waiting, company)
	switch {
	case err == nil:
		return leave, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, mailing.ErrOwnLimit):
		return nil, tooManyUploads
	}
	return nil, tooManyMailings
}

// dropFile takes back the file of a mailing that was not accepted. One that stays for
// all that harms nobody: it is encrypted, and no row names it.
func (a *API) dropFile(c *gin.Context, f mailing.File) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request.Context()), dropTime)
	defer cancel()
	if err := a.mailings.vault.Drop(ctx, f); err != nil {
		a.log.Warn("file of a refused mailing stays", telemetry.RequestID, visitOf(c).requestID, "key", f.Key, "error", err)
	}
}
