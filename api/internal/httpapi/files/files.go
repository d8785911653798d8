package files

import (
	"cmp"
	"encoding/hex"
	"mime"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/attachment"
	"email-gateway/api/internal/httpapi/compose"
	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/query"
	"email-gateway/api/internal/httpapi/reqbody"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/shared/rules"
	"email-gateway/shared/store/file"
)

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
	if reqbody.IsEncoded(h) {
		return false
	}
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return h.Get("Content-Type") == "" || err == nil && media != "multipart/form-data" && media != "application/x-www-form-urlencoded"
}

// Upload handles POST /v1/files: 201 for a new content, 200 for one that the company has stored before.
func (h *Handlers) Upload(c *gin.Context) error {
	if !isFileBody(c.Request.Header) {
		return notFileBody
	}
	content, err := reqbody.ReadFile(c)
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }() // unlinked: closing it frees the space
	if content.Size() == 0 {
		return emptyFile
	}
	if why := attachment.CheckProgram(content.MediaType()); why != "" {
		return problem.Problem{Status: http.StatusUnprocessableEntity, Code: compose.CodeTypeMismatch, Detail: "the file " + why}
	}
	stored, found, err := h.library.Store(c.Request.Context(), reqctx.CompanyOf(c), content)
	if err != nil {
		return compose.StorageProblem(err)
	}
	status := http.StatusCreated
	if found {
		status = http.StatusOK
	}
	c.Header("Location", Path+"/"+stored.ID.String())
	c.JSON(status, fileOf(stored))
	return nil
}

// List handles GET /v1/files: the newest files first.
func (h *Handlers) List(c *gin.Context) error {
	q, err := query.Open(c.Request, h.rules)
	if err != nil {
		return err
	}
	limit, before := q.Limit("limit"), cmp.Or(q.Cursor("cursor"), uuid.Max)
	if err := q.Close(); err != nil {
		return err
	}
	found, err := h.store.List(c.Request.Context(), reqctx.CompanyOf(c), before, limit+1)
	if err != nil {
		return err
	}
	page := struct {
		Files      []storedFile `json:"files"`
		NextCursor string       `json:"nextCursor,omitempty"`
	}{Files: []storedFile{}}
	if len(found) > limit {
		found = found[:limit]
		if page.NextCursor, err = q.CursorTo(found[limit-1].ID); err != nil {
			return err
		}
	}
	for _, f := range found {
		page.Files = append(page.Files, fileOf(f))
	}
	c.JSON(http.StatusOK, page)
	return nil
}

// Show handles GET /v1/files/{id}.
func (h *Handlers) Show(c *gin.Context) error {
	id, err := rules.ParseID(c.Param("id"))
	if err != nil {
		return noSuchFile
	}
	found, err := h.store.Find(c.Request.Context(), reqctx.CompanyOf(c), []uuid.UUID{id})
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
