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
	bytes    *semaphore.Weighted
	most     int64 // of one body
	tooLarge problem
	wait     time.Duration
}

const (
	smallBody = 64 << 10
	// largeBodies is what tenants' bodies may take together.
	largeBodies = 32 << 20
	// largeNotifications is the same for SNS's. Anybody may begin to send one, so they
	// take nothing from the tenants.
	largeNotifications = 8 << 20
	bodyWait           = 5 * time.Second
)

func newBodyBudget() *bodyBudget {
	return &bodyBudget{bytes: semaphore.NewWeighted(largeBodies), most: maxBody, tooLarge: bodyTooLarge, wait: bodyWait}
}

func newNotificationBudget() *bodyBudget {
	return &bodyBudget{bytes: semaphore.NewWeighted(largeNotifications), most: maxNotification, tooLarge: notificationTooLarge, wait: bodyWait}
}

// limit refuses a body that says it is too large and makes a large one wait for its
// share of the memory until those before it are done with.
func (b *bodyBudget) limit(c *gin.Context) error {
	size := c.Request.ContentLength
	switch {
	case size > b.most:
		return b.tooLarge
	case size < 0:
		size = b.most // chunked: nobody knows
	}
	if size <= smallBody {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), b.wait)
	defer cancel()
	if b.bytes.Acquire(ctx, size) != nil {
		return busy
	}
	defer b.bytes.Release(size)
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
