package compose

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"email-gateway/api/internal/attachment"
	"email-gateway/api/internal/strictjson"
	"email-gateway/shared/blob"
	"email-gateway/shared/draft"
	"email-gateway/shared/rules"
	"email-gateway/shared/store/file"
)

// Codes of faults of attachments that depend on their contents.
const (
	codeInvalidContent  = "INVALID_CONTENT"
	CodeTypeMismatch    = "TYPE_MISMATCH"
	CodeFileNotFound    = "FILE_NOT_FOUND"
	codeAttachmentsSize = "TOO_LARGE"
)

// FileDeleted is the fault of a file that existed when the request was checked.
const FileDeleted = "was deleted because nothing referred to it for a day"

// FileStore finds stored files.
type FileStore interface {
	Find(ctx context.Context, company uuid.UUID, ids []uuid.UUID) (map[uuid.UUID]file.File, error)
}

// Files checks and stores the attachments of emails and mailings.
type Files struct {
	store   FileStore
	library *attachment.Library
	// Limits limit the contents of one request.
	Limits attachment.Limits
}

// NewFiles returns Files.
func NewFiles(s FileStore, library *attachment.Library, limits attachment.Limits) *Files {
	return &Files{store: s, library: library, Limits: limits}
}

// Attach checks the attachments of a valid draft against their contents, nil where only stored files may be attached,
// and returns them. The file ids of contents that are still to be stored are missing.
func (f *Files) Attach(ctx context.Context, company uuid.UUID, d *draft.Draft, contents *attachment.Contents) (all []file.Attachment, pending []*attachment.Content, err error) {
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
		all[i] = file.Attachment{Filename: r.Filename, ContentType: r.ContentType, ContentID: strictjson.Or(r.ContentID, ""), Disposition: strictjson.Or(r.Disposition, "")}
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
				d.Faults.Add(field+"fileId", CodeFileNotFound, "is not a file of this company, or it was deleted because nothing referred to it for a day")
				continue
			}
			detected = found.MediaType
			all[i].FileID, all[i].Size, all[i].SHA256 = id, found.Size, found.SHA256
		}
		total += all[i].Size
		if d.Faults.Has(field + "contentType") {
			continue
		}
		if r.ContentType == "" {
			all[i].ContentType = typeToSend(detected)
		}
		if why := attachment.CheckType(all[i].ContentType, detected); why != "" {
			d.Faults.Add(field+"contentType", CodeTypeMismatch, why)
		}
	}
	if total > f.Limits.Contents {
		d.Faults.Add("attachments", codeAttachmentsSize, fmt.Sprintf("have %d bytes together, at most %d are allowed", total, f.Limits.Contents))
	}
	return all, pending, nil
}

// typeToSend returns the type of an attachment whose sender gave none. SES does not send every detected type, an email
// for example.
func typeToSend(detected string) string {
	if code, _ := draft.CheckContentType(detected); code != "" {
		return "application/octet-stream"
	}
	return detected
}

// find looks up the files that the attachments name.
func (f *Files) find(ctx context.Context, company uuid.UUID, request []draft.Attachment) (map[uuid.UUID]file.File, error) {
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

// StorePending stores contents of an email that are not stored yet, and sets their ids.
func (f *Files) StorePending(ctx context.Context, company uuid.UUID, all []file.Attachment, pending []*attachment.Content) error {
	for i, content := range pending {
		if content == nil {
			continue
		}
		stored, _, err := f.library.Store(ctx, company, content)
		if err != nil {
			return StorageProblem(err)
		}
		all[i].FileID = stored.ID
	}
	return nil
}

// StorageProblem maps failures of the blob store.
func StorageProblem(err error) error {
	if errors.Is(err, blob.ErrUnavailable) {
		return fmt.Errorf("%w: %w", StorageUnavailable, err)
	}
	return err
}
