package mailings

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/companylimit"
	"email-gateway/api/internal/httpapi/compose"
	"email-gateway/api/internal/httpapi/reqbody"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/httpapi/transfer"
	"email-gateway/api/internal/mailing"
	"email-gateway/shared/blob"
	"email-gateway/shared/telemetry"
	"email-gateway/shared/uuidv7"
)

const (
	// formsAtOnce limits the templates in memory, 4 MiB each, from the start of the upload to the
	// response: some wait for the ingestion of others.
	formsAtOnce, formsOfEach = 16, 4
	// ingestsAtOnce limits the connections and the load of mailings on Postgres. Two companies with slow files hold at most
	// three places.
	ingestsAtOnce, ingestsOfEach = 4, 2
	// dropTime limits deleting a file, for which the request's context may have ended.
	dropTime = 10 * time.Second
)

// uploadLimits share the memory, connections and time of uploads between companies.
type uploadLimits struct {
	forms   *companylimit.Limiter // from the start of the upload to the response
	bodies  *companylimit.Limiter // while the body is received
	ingests *companylimit.Limiter // while the rows are written
	pace    reqbody.Pace          // the minimum speed of a body
	open    *transfer.Open        // of which the slowest is aborted if others wait
}

func newUploadLimits() uploadLimits {
	l := uploadLimits{
		forms:   companylimit.New(formsAtOnce, formsOfEach),
		bodies:  companylimit.New(compose.UploadsAtOnce, compose.UploadsOfEach),
		ingests: companylimit.NewKeepingLast(ingestsAtOnce, ingestsOfEach),
		pace:    reqbody.MinPace,
		open:    reqbody.NewOpenUploads(),
	}
	l.forms.OnFull(l.open.WaitLimit, l.open.AbortSlowest)
	l.bodies.OnFull(l.open.WaitLimit, l.open.AbortSlowest)
	return l
}

// upload is a received form with its stored file.
type upload struct {
	id   uuid.UUID
	form mailing.Form
	file mailing.File
}

// readUpload receives the form. If the mailing is not accepted, the caller must drop the stored
// file, also after an error.
func (h *Handlers) readUpload(c *gin.Context) (upload, error) {
	boundary, err := formBoundary(c.Request)
	if err != nil {
		return upload{}, err
	}
	release, err := compose.EnterUpload(c.Request.Context(), h.uploads.bodies, reqctx.CompanyOf(c))
	if err != nil {
		return upload{}, err
	}
	u := upload{id: uuidv7.New()}
	ctx, cancel := context.WithCancel(c.Request.Context())
	defer cancel()
	body := reqbody.NewSlowBody(c, reqbody.MaxForm, h.uploads.pace, reqbody.UploadTime)
	defer func() {
		body.Finish()
		if reqctx.StateOf(c).BodyRead = errors.Is(body.Err, io.EOF); !reqctx.StateOf(c).BodyRead {
			reqbody.CloseAfterResponse(c)
		}
	}()
	defer release() // before the rest of a rejected form is discarded, which needs no slot
	defer h.uploads.open.Add(reqctx.CompanyOf(c), body)()
	u.form, err = mailing.ReadForm(body, boundary, func(content io.Reader) (err error) {
		u.file, err = h.files.Keep(ctx, reqctx.CompanyOf(c), u.id, content)
		return err
	})
	if body.Aborted() && errors.Is(body.Err, os.ErrDeadlineExceeded) {
		return u, uploadAborted
	}
	return u, uploadProblem(err, body.Err)
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
		return fmt.Errorf("%w: %w", compose.StorageUnavailable, err)
	case errors.Is(cause, os.ErrDeadlineExceeded):
		return reqbody.TooSlow
	case cause != nil && !errors.Is(cause, io.EOF):
		return fmt.Errorf("%w: %w", reqbody.Unreadable, cause)
	case errors.Is(err, mailing.ErrMalformed):
		return malformedForm
	}
	return err
}

// formBoundary returns the boundary of the form's parts.
func formBoundary(r *http.Request) (string, error) {
	media, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err != nil, media != "multipart/form-data", parameters["boundary"] == "", reqbody.IsEncoded(r.Header):
		return "", notForm
	case r.ContentLength > reqbody.MaxForm:
		return "", fileTooLarge
	}
	return parameters["boundary"], nil
}

// dropFile deletes the file of a mailing that was not accepted. If that fails, the file does no
// harm: it is encrypted, and no row refers to it.
func (h *Handlers) dropFile(c *gin.Context, f mailing.File) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request.Context()), dropTime)
	defer cancel()
	if err := h.files.Drop(ctx, f); err != nil {
		h.Log.Warn("cannot delete the file of a rejected mailing", telemetry.RequestID, reqctx.StateOf(c).RequestID, "key", f.Key, "error", err)
	}
}
