package httpapi

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/attachment"
	"email-gateway/api/internal/strictjson"
	"email-gateway/shared/blob"
	"email-gateway/shared/draft"
	"email-gateway/shared/rules"
	"email-gateway/shared/store"
	"email-gateway/shared/store/file"
)

// Codes of faults of attachments that depend on their contents.
const (
	codeInvalidContent  = "INVALID_CONTENT"
	codeTypeMismatch    = "TYPE_MISMATCH"
	codeFileNotFound    = "FILE_NOT_FOUND"
	codeAttachmentsSize = "TOO_LARGE"
)

// fileDeleted is the fault of a file that existed when the request was checked.
const fileDeleted = "was deleted because nothing referred to it for a day"

// attachmentDetails is an attachment in a response.
type attachmentDetails struct {
	FileID      uuid.UUID `json:"fileId"`
	Filename    string    `json:"filename"`
	ContentType string    `json:"contentType"`
	Size        int64     `json:"size"`
	SHA256      string    `json:"sha256"`
	ContentID   string    `json:"contentId,omitempty"`
	Disposition string    `json:"disposition"`
}

func detailsOfAttachments(all []file.Attachment) []attachmentDetails {
	details := make([]attachmentDetails, len(all))
	for i, a := range all {
		details[i] = attachmentDetails{a.FileID, a.Filename, a.ContentType, a.Size, hex.EncodeToString(a.SHA256), a.ContentID, a.Disposition}
	}
	return details
}

// bodyDisk is where a body's attachments are stored while the request is processed.
type bodyDisk struct{ *inbound }

// Reserve accounts for n bytes of the body's disk space.
func (d bodyDisk) Reserve(n int64) error { return d.bodies.memory.spill(d.inbound, n) }

// readSend reads the body of a send request. The contents of its attachments are taken out of the document and decoded to
// disk; the caller closes them. A body of more than maxBody bytes is never in memory as a whole.
func (a *API) readSend(c *gin.Context) (strictjson.Document, *attachment.Contents, error) {
	if !isJSON(c.Request.Header) {
		return strictjson.Document{}, nil, notJSON
	}
	text, size, err := receiveBody(c)
	b := visitOf(c).body
	defer b.closeFile()
	if err != nil {
		return strictjson.Document{}, nil, err
	}
	if b.file != nil && size > maxBody {
		if err := b.bodies.memory.load(c.Request.Context(), b, maxBody); err != nil {
			return strictjson.Document{}, nil, err
		}
		document, contents, err := attachment.Extract(b.file.Reader(), bodyDisk{b}, a.files.limits)
		b.closeFile()
		b.bodies.memory.free(b, size)
		return parseSend(document, contents, err)
	}
	if text, err = b.loadFile(c, text, size); err != nil {
		return strictjson.Document{}, nil, err
	}
	document, err := strictjson.Parse(text)
	if err != nil || !document.Has("attachments") {
		return document, nil, err
	}
	reduced, contents, err := attachment.Extract(bytes.NewReader(text), bodyDisk{b}, a.files.limits)
	return parseSend(reduced, contents, err)
}

func parseSend(text []byte, contents *attachment.Contents, err error) (strictjson.Document, *attachment.Contents, error) {
	var known problem
	switch {
	case errors.Is(err, attachment.ErrDocumentTooLarge):
		err = bodyTooLarge
	case err != nil && !errors.As(err, &known):
		err = fmt.Errorf("%w: %w", busy, err)
	}
	if err != nil {
		contents.Close()
		return strictjson.Document{}, nil, err
	}
	document, err := strictjson.Parse(text)
	if err != nil {
		contents.Close()
		return strictjson.Document{}, nil, err
	}
	return document, contents, nil
}

// attach checks the attachments of a valid draft against their contents, nil where only stored files may be attached, and returns them. The file ids of contents that are
// still to be stored are missing.
func (f *fileService) attach(ctx context.Context, company uuid.UUID, d *draft.Draft, contents *attachment.Contents) (all []file.Attachment, pending []*attachment.Content, err error) {
	request := d.Email.Attachments
	if len(request) == 0 || len(request) > draft.MaxAttachments {
		return nil, nil, nil
	}
	stored, err := f.find(ctx, company, request)
	if err != nil {
		return nil, nil, err
	}
	all, pending = make([]file.Attachment, len(request)), make([]*attachment.Content, len(request))
	var total int64
	for i, r := range request {
		field := fmt.Sprintf("attachments[%d].", i)
		all[i] = file.Attachment{Filename: r.Filename, ContentType: r.ContentType, ContentID: value(r.ContentID, ""), Disposition: value(r.Disposition, "")}
		var detected string
		switch {
		case d.Faults.Has(field+"content", field+"fileId"):
			continue
		case r.Content != nil && contents == nil: // a batch or a mailing, whose contents would be in memory together
			d.Faults.Add(field+"content", rules.CodeNotAllowed, "must not be given: store the file with POST /v1/files and give its fileId")
			continue
		case r.Content != nil:
			content, tooLarge, reason := contents.Find(*r.Content)
			if content == nil {
				code := codeInvalidContent
				if tooLarge {
					code = codeAttachmentsSize
				}
				d.Faults.Add(field+"content", code, reason)
				continue
			}
			pending[i], detected = content, content.MediaType()
			all[i].Size, all[i].SHA256 = content.Size(), content.SHA256()
		default:
			id, err := rules.ParseID(*r.FileID)
			if err != nil {
				return nil, nil, fmt.Errorf("read fileId: %w", err)
			}
			found, known := stored[id]
			if !known {
				d.Faults.Add(field+"fileId", codeFileNotFound, "is not a file of this company, or it was deleted because nothing referred to it for a day")
				continue
			}
			detected = found.MediaType
			all[i].FileID, all[i].Size, all[i].SHA256 = id, found.Size, found.SHA256
		}
		total += all[i].Size
		if d.Faults.Has(field + "contentType") {
			continue
		}
		if why := attachment.CheckType(r.ContentType, detected); why != "" {
			d.Faults.Add(field+"contentType", codeTypeMismatch, why)
		}
	}
	if total > f.limits.Contents {
		d.Faults.Add("attachments", codeAttachmentsSize, fmt.Sprintf("have %d bytes together, at most %d are possible", total, f.limits.Contents))
	}
	return all, pending, nil
}

// find looks up the files that the attachments name.
func (f *fileService) find(ctx context.Context, company uuid.UUID, request []draft.Attachment) (map[uuid.UUID]file.File, error) {
	var ids []uuid.UUID
	for _, r := range request {
		if r.FileID == nil {
			continue
		}
		if id, err := rules.ParseID(*r.FileID); err == nil {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	return f.store.Find(ctx, company, ids)
}

// storePending stores contents of an email that are not stored yet, and sets their ids.
func (f *fileService) storePending(ctx context.Context, company uuid.UUID, all []file.Attachment, pending []*attachment.Content) error {
	for i, content := range pending {
		if content == nil {
			continue
		}
		stored, _, err := f.library.Store(ctx, company, content)
		if err != nil {
			return storageProblem(err)
		}
		all[i].FileID = stored.ID
	}
	return nil
}

// storageProblem maps failures of the blob store.
func storageProblem(err error) error {
	if errors.Is(err, blob.ErrUnavailable) {
		return fmt.Errorf("%w: %w", storageUnavailable, err)
	}
	return err
}

// storeTries is how often contents are stored for one request. An erasure may delete a file between its storing and the
// commit that attaches it.
const storeTries = 3

// acceptFiles stores the contents that are not stored yet, and then accepts the email.
func (a *API) acceptFiles(ctx context.Context, mail *store.NewEmail, pending []*attachment.Content, accept func() error) error {
	for try := 1; ; try++ {
		if err := a.files.storePending(ctx, mail.CompanyID, mail.Attachments, pending); err != nil {
			return err
		}
		err := accept()
		gone, lost := errors.AsType[*file.GoneError](err)
		if !lost {
			return err
		}
		var faults rules.Faults
		for i, one := range mail.Attachments {
			if pending[i] == nil && slices.Contains(gone.IDs, one.FileID) {
				faults.Add(fmt.Sprintf("attachments[%d].fileId", i), codeFileNotFound, fileDeleted)
			}
		}
		switch {
		case len(faults) > 0:
			return invalid(faults)
		case try == storeTries:
			return fmt.Errorf("%w: %w", busy, err)
		}
	}
}
