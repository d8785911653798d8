package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"golang.org/x/sync/semaphore"

	"email-gateway/api/internal/strictjson"
)

// maxBody is the largest body: html and text at their limits, escaped, with room.
const maxBody = 2 << 20

// bodyBudget bounds what large bodies may take of the process's memory, however many
// connections bring one. A small body never waits.
type bodyBudget struct {
	bytes *semaphore.Weighted
	wait  time.Duration
}

const (
	smallBody   = 64 << 10
	largeBodies = 32 << 20
)

func newBodyBudget() *bodyBudget {
	return &bodyBudget{bytes: semaphore.NewWeighted(largeBodies), wait: 5 * time.Second}
}

// limitBody refuses a body that says it is too large and makes a large one wait for
// its share of the memory until those before it are done with.
func (a *API) limitBody(c *gin.Context) error {
	size := c.Request.ContentLength
	switch {
	case size > maxBody:
		return bodyTooLarge
	case size < 0:
		size = maxBody // chunked: nobody knows
	}
	if size <= smallBody {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), a.bodies.wait)
	defer cancel()
	if a.bodies.bytes.Acquire(ctx, size) != nil {
		return busy
	}
	defer a.bodies.bytes.Release(size)
	c.Next()
	return nil
}

// readJSON reads the request's body, which must be one JSON object.
func readJSON(c *gin.Context) (strictjson.Document, error) {
	r := c.Request
	if !isJSON(r.Header) {
		return strictjson.Document{}, notJSON
	}
	var buffer bytes.Buffer
	if r.ContentLength > 0 {
		buffer.Grow(int(min(r.ContentLength, maxBody)) + bytes.MinRead)
	}
	_, err := buffer.ReadFrom(http.MaxBytesReader(c.Writer, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return strictjson.Document{}, bodyTooLarge
	case err != nil:
		return strictjson.Document{}, fmt.Errorf("%w: %w", unreadable, err)
	}
	return strictjson.Parse(buffer.Bytes())
}

func isJSON(h http.Header) bool {
	if h.Get("Content-Encoding") != "" {
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
	return !given || strings.EqualFold(charset, "utf-8")
}
