package httpapi

import (
	"cmp"
	"fmt"
	"net/http"

	"email-gateway/api/internal/attachment"
	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/reqbody"
	"email-gateway/api/internal/httpapi/sending"
	"email-gateway/api/internal/httpapi/sesevents"
	"email-gateway/api/internal/spool"
	"email-gateway/shared/draft"
)

// defaultAttachmentsMax is the limit of an email's attachments together, if none is set (bytes).
const defaultAttachmentsMax = 10 << 20

// bodies receive the bodies of requests. Those of sends, files and others share memory and disk.
type bodies struct {
	others        *reqbody.Receiver
	sends         *reqbody.Receiver // with attachments in base64
	files         *reqbody.Receiver // of POST /v1/files
	batches       *reqbody.Receiver
	notifications *reqbody.Receiver // of SNS
	attachments   attachment.Limits
}

func newBodies(p Params) (bodies, error) {
	disk, err := spool.Open(p.SpoolDir)
	if err != nil {
		return bodies{}, err
	}
	most := cmp.Or(p.AttachmentsMax, defaultAttachmentsMax)
	encoded := (most+2)/3*4 + reqbody.MaxBody
	limits := reqbody.TenantLimits.ForAttachments(p.AttachmentsMax)
	others := reqbody.Receiver{
		Memory: reqbody.NewMemory(limits), Rendered: reqbody.NewMemory(reqbody.RenderLimits), Spool: disk, Pace: reqbody.MinPace,
		Most: reqbody.MaxBody, TooLarge: reqbody.TooLarge,
	}
	sends, files := others, others
	sends.Most, sends.Time = encoded, reqbody.ReceiveTime(encoded)
	files.Most, files.Time = most, reqbody.ReceiveTime(most)
	files.TooLarge = problem.Problem{
		Status: http.StatusRequestEntityTooLarge, Code: "FILE_TOO_LARGE",
		Detail: fmt.Sprintf("the file is larger than %d bytes, the limit of an email's attachments together", most),
	}
	sends.TooLarge = problem.Problem{
		Status: http.StatusRequestEntityTooLarge, Code: reqbody.TooLarge.Code,
		Detail: fmt.Sprintf("the body is larger than %d bytes: without attachments it may have %d, and attachments may have %d bytes together before base64", encoded, reqbody.MaxBody, most),
	}
	return bodies{
		others: &others, sends: &sends, files: &files,
		batches: &reqbody.Receiver{
			Memory: reqbody.NewMemory(reqbody.BatchLimits), Rendered: reqbody.NewMemory(reqbody.BatchRenderLimits), Spool: disk, Pace: reqbody.MinPace,
			Most: reqbody.MaxBatch, TooLarge: sending.BatchTooLarge,
		},
		notifications: &reqbody.Receiver{
			Memory: reqbody.NewMemory(reqbody.AnonymousLimits), Pace: reqbody.MinPace, Most: sesevents.MaxSize, TooLarge: sesevents.TooLarge,
		},
		attachments: attachment.Limits{Document: reqbody.MaxBody, Contents: most, Count: draft.MaxAttachments},
	}, nil
}
