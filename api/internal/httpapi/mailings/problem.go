package mailings

import (
	"fmt"
	"net/http"
	"time"

	"email-gateway/api/internal/csvfile"
	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/reqbody"
	"email-gateway/api/internal/mailing"
	"email-gateway/shared/rules"
	mailingstore "email-gateway/shared/store/mailing"
)

// Problems of mailings.
var (
	noSuchMailing = problem.Problem{Status: http.StatusNotFound, Code: "NOT_FOUND", Detail: "there is no such mailing"}
	uploadAborted = problem.Problem{
		Status: http.StatusRequestTimeout, Code: "BODY_TOO_SLOW", RetryAfter: 10 * time.Second,
		Detail: fmt.Sprintf("the upload was aborted because others were waiting and it was slower than %.0f KiB/s: repeat the request over a faster connection, or when fewer uploads are in progress", reqbody.BusyRate/1024),
	}
	fileTooLarge = problem.Problem{
		Status: http.StatusRequestEntityTooLarge, Code: "FILE_TOO_LARGE",
		Detail: fmt.Sprintf("the file is larger than %d bytes: split it", mailing.MaxFile),
	}
	tooSlow = problem.Problem{
		Status: http.StatusUnprocessableEntity, Code: "MAILING_TOO_SLOW",
		Detail: fmt.Sprintf("validating and storing the rows took longer than %.0f minutes; nothing was accepted: split the file, or use fewer fields in the templates", IngestTime.Minutes()),
	}
	notForm       = problem.Problem{Status: http.StatusUnsupportedMediaType, Code: "UNSUPPORTED_MEDIA_TYPE", Detail: "send multipart/form-data with a boundary, not compressed"}
	malformedForm = problem.Problem{Status: http.StatusBadRequest, Code: "MALFORMED_FORM", Detail: "the body " + mailing.ErrMalformed.Error()}
	inProgress    = problem.Problem{
		Status: http.StatusConflict, Code: "MAILING_IN_PROGRESS", RetryAfter: 5 * time.Second,
		Detail: "a mailing with this filename is being uploaded: repeat the request after Retry-After",
	}
	busy = problem.Problem{
		Status: http.StatusConflict, Code: "MAILING_BUSY", RetryAfter: 2 * time.Second,
		Detail: "another transaction is changing the mailing: repeat the request after Retry-After",
	}
	filenameTaken = problem.Problem{
		Status: http.StatusConflict, Code: "FILENAME_EXISTS",
		Detail: "another mailing now uses the filename: cancel that mailing first",
	}
	tooManyDownloads = problem.Problem{
		Status: http.StatusTooManyRequests, Code: "TOO_MANY_DOWNLOADS", RetryAfter: 10 * time.Second,
		Detail: fmt.Sprintf("the company has %d downloads in progress: repeat the request when one has finished", downloadsOfEach),
	}
	allDownloadsBusy = problem.Problem{
		Status: http.StatusServiceUnavailable, Code: "BUSY", RetryAfter: 10 * time.Second,
		Detail: "too many downloads of other companies at once: repeat the request after Retry-After",
	}
)

func filenameExists(id, filename string) problem.Problem {
	return problem.Problem{Status: http.StatusConflict, Code: "FILENAME_EXISTS", Detail: fmt.Sprintf(
		"mailing %s already uses the filename %q and was created by a different request: set another name in the part name, which replaces the filename", id, filename)}
}

func wrongState(refused *mailingstore.StateError) problem.Problem {
	return problem.Problem{Status: http.StatusConflict, Code: "MAILING_STATE", Detail: refused.Error()}
}

// invalid is like problem.Invalid, but if all faults have the same code about the file or the
// template fields, it becomes the code of the problem.
func invalid(found []rules.Fault) problem.Problem {
	p := problem.Invalid(found)
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
		p.Code = first
	}
	return p
}
