package load

import (
	"context"
	"fmt"
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

// sendQuietly sends the emails of the quiet tenant while the others load the gateway.
func (l *Load) sendQuietly(ctx, offering context.Context) {
	if l.params.QuietKey == "" || service.Pause(offering, quietFrom) != nil {
		return
	}
	repeat(offering, quietPause, maxQuiet, func(n int) {
		serial := QuietSerials + n
		recipient := Fields{ExternalID: external(serial), Email: Address(serial)}.json()
		l.submit(ctx, emailTo(serial, l.params.QuietKey, recipient, "Seu código de acesso", fmt.Sprintf("<p>%d</p>", serial)))
	})
}

// Quiet reports whether the email is one of the quiet tenant's.
func (a Accepted) Quiet() bool { return a.Serial >= QuietSerials }
