package reqbody

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/attachment"
	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/strictjson"
)

// ReadWithAttachments reads the body of a send request. The contents of its attachments are taken out of the document
// and decoded to disk; the caller closes them. A body of more than MaxBody bytes is never in memory as a whole.
func ReadWithAttachments(c *gin.Context, limits attachment.Limits) (strictjson.Document, *attachment.Contents, error) {
	if !isJSON(c.Request.Header) {
		return strictjson.Document{}, nil, notJSON
	}
	text, size, err := receiveBody(c)
	b := inboundOf(c)
	defer b.closeFile()
	if err != nil {
		return strictjson.Document{}, nil, err
	}
	if b.file != nil && size > MaxBody {
		if err := b.receiver.Memory.load(c.Request.Context(), b, MaxBody); err != nil {
			return strictjson.Document{}, nil, err
		}
		document, contents, err := attachment.Extract(b.file.Reader(), bodyDisk{b}, limits)
		b.closeFile()
		b.receiver.Memory.free(b, size)
		return parseReduced(document, contents, err)
	}
	if text, err = b.loadFile(c, text, size); err != nil {
		return strictjson.Document{}, nil, err
	}
	document, err := strictjson.Parse(text)
	if err != nil || !document.Has("attachments") {
		return document, nil, err
	}
	reduced, contents, err := attachment.Extract(bytes.NewReader(text), bodyDisk{b}, limits)
	return parseReduced(reduced, contents, err)
}

func parseReduced(text []byte, contents *attachment.Contents, err error) (strictjson.Document, *attachment.Contents, error) {
	var known problem.Problem
	switch {
	case errors.Is(err, attachment.ErrDocumentTooLarge):
		err = TooLarge
	case err != nil && !errors.As(err, &known):
		err = fmt.Errorf("%w: %w", problem.Busy, err)
	}
	if err != nil {
		contents.Close()
		return strictjson.Document{}, nil, err
	}
	document, err := strictjson.Parse(text)
	if invalid, ok := errors.AsType[*strictjson.SyntaxError](err); ok {
		err = invalid.WithoutPosition()
	}
	if err != nil {
		contents.Close()
		return strictjson.Document{}, nil, err
	}
	return document, contents, nil
}
