package httpapi

import (
	"fmt"
	"net/http"
	"time"

	"email-gateway/api/internal/csvfile"
	"email-gateway/api/internal/mailing"
	"email-gateway/shared/rules"
	"email-gateway/shared/store"
)

// What only mailings are answered.
var (
	noSuchMailing      = problem{status: http.StatusNotFound, code: "NOT_FOUND", detail: "there is no such mailing"}
	storageUnavailable = problem{
		status: http.StatusServiceUnavailable, code: "STORAGE_UNAVAILABLE", retryAfter: 5 * time.Second,
		detail: "the storage for files cannot be reached; nothing was accepted: repeat the request after Retry-After",
	}
	tooManyMailings = problem{
		status: http.StatusServiceUnavailable, code: "BUSY", retryAfter: 10 * time.Second,
		detail: "too many mailings are being taken in at once: repeat the request after Retry-After",
	}
	tooManyUploads = problem{
		status: http.StatusTooManyRequests, code: "TOO_MANY_UPLOADS", retryAfter: 10 * time.Second,
		detail: fmt.Sprintf("the company has %d uploads in progress", uploadsOfEach),
	}
	uploadGaveWay = problem{
		status: http.StatusRequestTimeout, code: "BODY_TOO_SLOW", retryAfter: 10 * time.Second,
		detail: fmt.Sprintf("other uploads waited, and less than %.0f KiB of this one came per second: repeat the request over a faster connection, or when fewer uploads are in progress", busyRate/1024),
	}
	fileTooLarge = problem{
		status: http.StatusRequestEntityTooLarge, code: "FILE_TOO_LARGE",
		detail: fmt.Sprintf("the file is larger than %d bytes: divide it", mailing.MaxFile),
	}
	notForm       = problem{status: http.StatusUnsupportedMediaType, code: "UNSUPPORTED_MEDIA_TYPE", detail: "send multipart/form-data with a boundary, not compressed"}
	malformedForm = problem{status: http.StatusBadRequest, code: "MALFORMED_FORM", detail: "the body " + mailing.ErrMalformed.Error()}

	mailingUnderWay = problem{
		status: http.StatusConflict, code: "MAILING_IN_PROGRESS", retryAfter: 5 * time.Second,
		detail: "a mailing with this filename is being taken in at this moment: repeat the request after Retry-After",
	}
	mailingBusy = problem{
		status: http.StatusConflict, code: "MAILING_BUSY", retryAfter: 2 * time.Second,
		detail: "another transaction is changing the mailing",
	}
	filenameTaken = problem{
		status: http.StatusConflict, code: "FILENAME_EXISTS",
		detail: "another mailing has the filename by now; cancel that one first",
	}
)

func filenameExists(id, filename string) problem {
	return problem{status: http.StatusConflict, code: "FILENAME_EXISTS", detail: fmt.Sprintf(
		"mailing %s has the filename %q and was made by another request; give this one another name in the field name, which stands in for the filename", id, filename)}
}

func mailingState(refused *store.MailingStateError) problem {
	return problem{status: http.StatusConflict, code: "MAILING_STATE", detail: refused.Error()}
}

// invalidMailing is invalid, and where the file is all that is wrong, or the fields of
// the templates are, the problem has their code.
func invalidMailing(found []rules.Fault) problem {
	p := invalid(found)
	first := found[0].Code
	for _, f := range found {
		if f.Code != first {
			return p
		}
	}
	switch first {
	case mailing.CodeNoRows, csvfile.CodeEmptyFile, csvfile.CodeBinaryFile, csvfile.CodeNoHeader, csvfile.CodeDuplicateColumn,
		csvfile.CodeTooManyColumns, csvfile.CodeTooManyRows, csvfile.CodeLineTooLong, csvfile.CodeInvalidEncoding,
		csvfile.CodeNoEmailColumn, mailing.CodeUnknownField, mailing.CodeForbiddenField, mailing.CodeReservedColumn:
		p.code = first
	}
	return p
}
