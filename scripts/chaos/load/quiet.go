package load

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"email-gateway/shared/service"
)

const (
	// QuietSerials is the first serial of the quiet tenant's emails.
	QuietSerials = 20_000_000
	// quietFrom excludes the time in which programs open their connections.
	quietFrom = 3 * time.Second
	// quietPause is the pause between two of the quiet tenant's emails.
	quietPause = 500 * time.Millisecond
	// maxQuiet limits the quiet tenant's emails without a response: see maxPersons.
	maxQuiet = 16
)

// sendQuietly sends the emails of the quiet tenant while the others load the gateway. Each is sent
// in a goroutine of its own, so that none waits for the response to another.
func (l *Load) sendQuietly(ctx, offering context.Context) {
	var sending sync.WaitGroup
	defer sending.Wait()
	if l.params.QuietKey == "" || service.Pause(offering, quietFrom) != nil {
		return
	}
	slots := make(chan struct{}, maxQuiet)
	for serial := QuietSerials; service.Pause(offering, quietPause) == nil; serial++ {
		select {
		case slots <- struct{}{}:
		case <-offering.Done():
			return
		}
		request := map[string]any{
			"to": Address(serial), "subject": "Seu código de acesso", "html": fmt.Sprintf("<p>%d</p>", serial),
			"recipient": Fields{ExternalID: external(serial), Email: Address(serial)}.json(),
		}
		body, _ := json.Marshal(request) // maps of strings always can
		sending.Go(func() {
			defer func() { <-slots }()
			l.submit(ctx, email{serial: serial, key: l.params.QuietKey, body: body})
		})
	}
}

// Quiet reports whether the email is one of the quiet tenant's.
func (a Accepted) Quiet() bool { return a.Serial >= QuietSerials }
