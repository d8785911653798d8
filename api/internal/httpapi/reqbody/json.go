package reqbody

import (
	"bytes"
	"mime"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/strictjson"
)

// ReadJSON reads the request's body, which must be one JSON object.
func ReadJSON(c *gin.Context) (strictjson.Document, error) {
	text, err := ReadJSONText(c)
	if err != nil {
		return strictjson.Document{}, err
	}
	return strictjson.Parse(text)
}

// ReadOptionalJSON is ReadJSON for a route whose body may be left out. given is false if it is, also if an empty one is chunked.
func ReadOptionalJSON(c *gin.Context) (document strictjson.Document, given bool, err error) {
	text, err := Read(c)
	switch {
	case err != nil || len(text) == 0:
		return strictjson.Document{}, false, err
	case !isJSON(c.Request.Header):
		return strictjson.Document{}, false, notJSON
	}
	document, err = strictjson.Parse(text)
	return document, true, err
}

// RefuseFields refuses a body with fields, for routes that read none. Clients send {}, null or, from PHP, [] for none, with any
// media type.
func RefuseFields(c *gin.Context) error {
	if c.Request.Body == http.NoBody {
		return nil
	}
	text, err := Read(c)
	if text = bytes.TrimSpace(text); err != nil || len(text) == 0 || string(text) == "null" || string(text) == "[]" {
		return err
	}
	document, err := strictjson.Parse(text)
	if err != nil {
		return err
	}
	reader, err := strictjson.NewReader[struct{}]()
	if err != nil {
		return err
	}
	if _, faults := reader.Read(document); len(faults) > 0 {
		return problem.Invalid(faults)
	}
	return nil
}

// ReadJSONText reads the request's body, which is yet to be parsed.
func ReadJSONText(c *gin.Context) ([]byte, error) {
	if !isJSON(c.Request.Header) {
		return nil, notJSON
	}
	return Read(c)
}

func isJSON(h http.Header) bool {
	if IsEncoded(h) {
		return false
	}
	contentType := h.Get("Content-Type")
	if contentType == "application/json" {
		return true
	}
	media, parameters, err := mime.ParseMediaType(contentType)
	if err != nil || media != "application/json" {
		return false
	}
	charset, given := parameters["charset"]
	return !given || strings.EqualFold(charset, "utf-8") || strings.EqualFold(charset, "utf8") // as some clients write it
}

// IsEncoded reports whether a body is compressed. identity means that it is not.
func IsEncoded(h http.Header) bool {
	encoding := h.Get("Content-Encoding")
	return encoding != "" && !strings.EqualFold(encoding, "identity")
}
