package sns

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// Confirm says yes to a SubscriptionConfirmation that was verified: it asks once for
// the message's SubscribeURL, under the same rule as for certificates. ErrForged: that
// URL is not SNS's. ErrUnreachable: SNS did not take the confirmation; it will ask again.
func (v *Verifier) Confirm(ctx context.Context, m Message) error {
	place, err := v.places.confirmation(m.SubscribeURL, m.TopicARN, m.Token)
	if err != nil {
		return fmt.Errorf("%w: SubscribeURL %w", ErrForged, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, place, nil)
	if err != nil {
		return fmt.Errorf("%w: SubscribeURL: %w", ErrForged, err)
	}
	response, err := v.client.Do(request)
	if err != nil {
		return fmt.Errorf("%w: confirm subscription: %w", ErrUnreachable, withoutURL(err))
	}
	defer response.Body.Close()
	// Read to the end, so that the connection can be used again; the answer says nothing
	// that its status does not.
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxCertificate))
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: confirm subscription: %s", ErrUnreachable, response.Status)
	}
	return nil
}
