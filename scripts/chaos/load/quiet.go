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
	// QuietSerials is the first serial of the quiet tenant's letters.
	QuietSerials = 20_000_000
	// quietFrom leaves out the time in which programs open their connections.
	quietFrom = 3 * time.Second
	// quietPause lies between two of the quiet tenant's letters.
	quietPause = 500 * time.Millisecond
)

// sendQuietly sends the letters of a tenant that sends one now and then, while the others load
// the gateway. Each is sent on its own, so that none waits for the answer to another.
func (l *Load) sendQuietly(ctx, offering context.Context) {
	var sending sync.WaitGroup
	defer sending.Wait()
	if l.params.QuietKey == "" || service.Pause(offering, quietFrom) != nil {
		return
	}
	for serial := QuietSerials; service.Pause(offering, quietPause) == nil; serial++ {
		request := map[string]any{
			"to": Address(serial), "subject": "Seu código de acesso", "html": fmt.Sprintf("<p>%d</p>", serial),
			"recipient": Facts{ExternalID: external(serial), Email: Address(serial)}.json(),
		}
		body, _ := json.Marshal(request) // maps of strings always can
		sending.Go(func() { l.handOver(ctx, letter{serial: serial, key: l.params.QuietKey, body: body}) })
	}
}

// Quiet says that the email is one of the quiet tenant's.
func (a Accepted) Quiet() bool { return a.Serial >= QuietSerials }
