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

// Problems of mailings.
var (
	noSuchMailing      = problem{status: http.StatusNotFound, code: "NOT_FOUND", detail: "there is no such mailing"}
	storageUnavailable = problem{
		status: http.StatusServiceUnavailable, code: "STORAGE_UNAVAILABLE", retryAfter: 5 * time.Second,
		detail: "the storage for files cannot be reached; nothing was accepted: repeat the request after Retry-After",
	}
	tooManyMailings = problem{
		status: http.StatusServiceUnavailable, code: "BUSY", retryAfter: 10 * time.Second,
		detail: "too many mailings are being uploaded at once: repeat the request after Retry-After",
	}
	tooManyUploads = problem{
		status: http.StatusTooManyRequests, code: "TOO_MANY_UPLOADS", retryAfter: 10 * time.Second,
		detail: fmt.Sprintf("the company has %d uploads in progress", uploadsOfEach),
	}
	uploadGaveWay = problem{
		status: http.StatusRequestTimeout, code: "BODY_TOO_SLOW", retryAfter: 10 * time.Second,
		detail: fmt.Sprintf("the upload was aborted because others were waiting and it was slower than %.0f KiB/s: repeat the request over a faster connection, or when fewer uploads are in progress", busyRate/1024),
	}
	fileTooLarge = problem{
		status: http.StatusRequestEntityTooLarge, code: "FILE_TOO_LARGE",
		detail: fmt.Sprintf("the file is larger than %d bytes: split it", mailing.MaxFile),
	}
	notForm       = problem{status: http.StatusUnsupportedMediaType, code: "UNSUPPORTED_MEDIA_TYPE", detail: "send multipart/form-data with a boundary, not compressed"}
	malformedForm = problem{status: http.StatusBadRequest, code: "MALFORMED_FORM", detail: "the body " + mailing.ErrMalformed.Error()}

	mailingInProgress = problem{
		status: http.StatusConflict, code: "MAILING_IN_PROGRESS", retryAfter: 5 * time.Second,
		detail: "a mailing with this filename is being uploaded: repeat the request after Retry-After",
	}
	mailingBusy = problem{
		status: http.StatusConflict, code: "MAILING_BUSY", retryAfter: 2 * time.Second,
		detail: "another transaction is changing the mailing",
	}
	filenameTaken = problem{
		status: http.StatusConflict, code: "FILENAME_EXISTS",
		detail: "another mailing uses the filename meanwhile; cancel that one first",
	}
)

func filenameExists(id, filename string) problem {
	return problem{status: http.StatusConflict, code: "FILENAME_EXISTS", detail: fmt.Sprintf(
		"mailing %s has the filename %q and was created by a different request; set another name in the field name, which replaces the filename", id, filename)}
}

// mailingsPaused answers a request that would set a mailing going. A tenant cannot end the pause.
func mailingsPaused(refused *store.MailingsPausedError) problem {
	return problem{status: http.StatusConflict, code: "MAILINGS_PAUSED", detail: fmt.Sprintf(
		"all mailings of the company are paused since %s, because too many of its emails bounced or drew complaints (see the event MAILINGS_PAUSED in /v1/events); the operator of this service can resume them",
		refused.Since.UTC().Format(time.RFC3339))}
}

func mailingState(refused *store.MailingStateError) problem {
	return problem{status: http.StatusConflict, code: "MAILING_STATE", detail: refused.Error()}
}

// invalidMailing is like invalid, but if all faults have the same code about the file or the
// template fields, it becomes the code of the problem.
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
