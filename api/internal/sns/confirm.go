package sns

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// Confirm confirms a verified SubscriptionConfirmation by requesting its SubscribeURL, with the same
// host rules as for certificates. ErrForged: the URL is not SNS's. ErrUnreachable: SNS did not accept
// the confirmation; it will send it again.
func (v *Verifier) Confirm(ctx context.Context, m Message) error {
	subscribeURL, err := v.allowedURLs.confirmation(m.SubscribeURL, m.TopicARN, m.Token)
	if err != nil {
		return fmt.Errorf("%w: SubscribeURL %w", ErrForged, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, subscribeURL, nil)
	if err != nil {
		return fmt.Errorf("%w: SubscribeURL: %w", ErrForged, err)
	}
	response, err := v.client.Do(request)
	if err != nil {
		return fmt.Errorf("%w: confirm subscription: %w", ErrUnreachable, withoutURL(err))
	}
	defer response.Body.Close()
	// Read to the end, so that the connection can be reused; the content is irrelevant.
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxCertificate))
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: confirm subscription: %s", ErrUnreachable, response.Status)
	}
	return nil
}
