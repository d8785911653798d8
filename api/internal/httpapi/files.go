package httpapi

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"os"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/apikey"
	"email-gateway/api/internal/attachment"
	"email-gateway/api/internal/mailing"
	"email-gateway/shared/draft"
	"email-gateway/shared/rules"
	"email-gateway/shared/store/file"
)

// FileStore is the part of *file.Store that requests use.
type FileStore interface {
	UseFile(ctx context.Context, company uuid.UUID, sha256 []byte) (file.File, error)
	Find(ctx context.Context, company uuid.UUID, ids []uuid.UUID) (map[uuid.UUID]file.File, error)
	List(ctx context.Context, company, before uuid.UUID, limit int) ([]file.File, error)
	Attachments(ctx context.Context, company, owner uuid.UUID) ([]file.Attachment, error)
	AttachmentsOf(ctx context.Context, company uuid.UUID, owners []uuid.UUID) (map[uuid.UUID][]file.Attachment, error)
}

const (
	filesPath = "/v1/files"
	// DefaultAttachmentsMax is the limit of an email's attachments together, if none is set (bytes).
	DefaultAttachmentsMax = 10 << 20
	// filesAtOnce limits the memory of contents being stored, 25 MiB each with S3; filesOfEach limits one company's share.
	filesAtOnce, filesOfEach = 4, 2
)

// fileService handles stored files and the contents of attachments.
type fileService struct {
	store   fairFiles
	library *attachment.Library
	limits  attachment.Limits
	sends   *bodies // bodies of emails, with attachments in base64
	uploads *bodies // bodies of POST /v1/files
}

// newFileService shares the memory and the disk of the other bodies.
func newFileService(p Params, fair fairStore, others *bodies) *fileService {
	most := p.AttachmentsMax
	if most == 0 {
		most = DefaultAttachmentsMax
	}
	encoded := (most+2)/3*4 + maxBody
	sends, uploads := *others, *others
	sends.most, sends.time = encoded, bodyTime*time.Duration(encoded/maxBody+1)
	uploads.most, uploads.time = most, bodyTime*time.Duration(most/maxBody+1)
	uploads.tooLarge = problem{
		status: http.StatusRequestEntityTooLarge, code: "FILE_TOO_LARGE",
		detail: fmt.Sprintf("the file is larger than %d bytes, the limit of an email's attachments together", most),
	}
	sends.tooLarge = problem{
		status: http.StatusRequestEntityTooLarge, code: bodyTooLarge.code,
		detail: fmt.Sprintf("the body is larger than %d bytes: without attachments it may have %d, and attachments may have %d bytes together before base64", encoded, maxBody, most),
	}
	files := fairFiles{FileStore: p.Files, fair: fair}
	slots := mailing.NewLimiter(filesAtOnce, filesOfEach)
	return &fileService{
		store: files, sends: &sends, uploads: &uploads,
		limits: attachment.Limits{Document: maxBody, Contents: most, Count: draft.MaxAttachments},
		library: &attachment.Library{
			Log: p.Log, Bucket: p.Bucket, Files: fileRows{files, p.Store}, Ring: p.Ring,
			Slots: func(ctx context.Context, company uuid.UUID) (func(), error) { return enter(ctx, slots, company) },
		},
	}
}

// fileRows are the rows about files that storing a content uses.
type fileRows struct {
	fairFiles
	rows interface {
		AddFile(ctx context.Context, f file.File) (file.File, error)
	}
}

func (r fileRows) AddFile(ctx context.Context, f file.File) (file.File, error) {
	return inPlace(ctx, r.fair, f.CompanyID, func() (file.File, error) { return r.rows.AddFile(ctx, f) })
}

func (a *API) routeFiles(r *gin.Engine) {
	write := r.Group(filesPath, a.answer(a.authenticate), a.answer(scope(apikey.EmailsSend)))
	write.POST("", a.answer(a.files.uploads.limit), a.answer(a.uploadFile))

	read := r.Group(filesPath, a.answer(a.authenticate), a.answer(scope(apikey.EmailsRead)))
	read.GET("", a.answer(a.listFiles))
	read.GET("/:id", a.answer(a.showFile))
}

// storedFile is a file in a response.
type storedFile struct {
	ID          uuid.UUID `json:"id"`
	Size        int64     `json:"size"`
	SHA256      string    `json:"sha256"`
	ContentType string    `json:"contentType"`
	CreatedAt   time.Time `json:"createdAt"`
}

func fileOf(f file.File) storedFile {
	return storedFile{f.ID, f.Size, hex.EncodeToString(f.SHA256), f.MediaType, f.CreatedAt.UTC()}
}

// isFileBody reports whether the body is a file, and not a form that contains one.
func isFileBody(h http.Header) bool {
	if h.Get("Content-Encoding") != "" {
		return false
	}
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return h.Get("Content-Type") == "" || err == nil && media != "multipart/form-data" && media != "application/x-www-form-urlencoded"
}

// uploadFile handles POST /v1/files: 201 for a new content, 200 for one that the company has stored before.
func (a *API) uploadFile(c *gin.Context) error {
	if !isFileBody(c.Request.Header) {
		return notFileBody
	}
	content, err := a.receiveFile(c)
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }() // unlinked: closing it frees the space
	if content.Size() == 0 {
		return emptyFile
	}
	if why := attachment.CheckProgram(content.MediaType()); why != "" {
		return problem{status: http.StatusUnprocessableEntity, code: codeTypeMismatch, detail: "the file " + why}
	}
	stored, found, err := a.files.library.Store(c.Request.Context(), visitOf(c).caller.CompanyID, content)
	if err != nil {
		return storageProblem(err)
	}
	status := http.StatusCreated
	if found {
		status = http.StatusOK
	}
	c.Header("Location", filesPath+"/"+stored.ID.String())
	c.JSON(status, fileOf(stored))
	return nil
}

// receiveFile receives the body to disk.
func (a *API) receiveFile(c *gin.Context) (*attachment.Content, error) {
	v := visitOf(c)
	b := v.body
	v.bodyRead = true
	if err := liftWriteDeadline(c); err != nil {
		return nil, err
	}
	defer extendWriteDeadline(c)
	b.body = newSlowBody(c, b.bodies.most, b.bodies.pace, b.bodies.time)
	if err := b.bodies.memory.enter(b); err != nil {
		v.bodyRead = false
		return nil, err
	}
	content, err := attachment.Receive(b.body, bodyDisk{b}, b.bodies.most)
	b.bodies.memory.arrived(b)
	b.body.end()
	if err == nil {
		return content, nil
	}
	v.bodyRead = false
	closeAfterResponse(c)
	var known problem
	switch {
	case b.body.err != nil && !errors.Is(b.body.err, os.ErrDeadlineExceeded):
		return nil, b.problem(b.body.err)
	case errors.Is(err, attachment.ErrTooLarge):
		return nil, b.bodies.tooLarge
	case errors.As(err, &known), errors.Is(err, os.ErrDeadlineExceeded):
		return nil, b.problem(err)
	}
	return nil, fmt.Errorf("%w: %w", busy, err)
}

// listFiles handles GET /v1/files: the newest files first.
func (a *API) listFiles(c *gin.Context) error {
	q, err := openQuery(c.Request.URL.RawQuery, a.rules)
	if err != nil {
		return err
	}
	limit, before := q.limit("limit"), uuid.Max
	if text, given := q.get("cursor"); given {
		if before, err = rules.ParseID(text); err != nil {
			q.faults.Add("cursor", "INVALID_CURSOR", "must be the nextCursor of a page")
		}
	}
	if err := q.close(); err != nil {
		return err
	}
	found, err := a.files.store.List(c.Request.Context(), visitOf(c).caller.CompanyID, before, limit+1)
	if err != nil {
		return err
	}
	page := struct {
		Files      []storedFile `json:"files"`
		NextCursor *string      `json:"nextCursor,omitempty"`
	}{Files: []storedFile{}}
	if len(found) > limit {
		found = found[:limit]
		page.NextCursor = new(found[limit-1].ID.String())
	}
	for _, f := range found {
		page.Files = append(page.Files, fileOf(f))
	}
	c.JSON(http.StatusOK, page)
	return nil
}

func (a *API) showFile(c *gin.Context) error {
	id, err := rules.ParseID(c.Param("id"))
	if err != nil {
		return noSuchFile
	}
	found, err := a.files.store.Find(c.Request.Context(), visitOf(c).caller.CompanyID, []uuid.UUID{id})
	if err != nil {
		return err
	}
	f, known := found[id]
	if !known {
		return noSuchFile
	}
	c.JSON(http.StatusOK, fileOf(f))
	return nil
}
