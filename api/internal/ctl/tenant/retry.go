package tenant

import (
	"errors"
	"net/http"
	"time"

	"email-gateway/api/internal/client"
)

// Transient reports whether a request that failed with the error may succeed later.
func Transient(err error) bool {
	var unreachable *client.UnreachableError
	var refused *client.Problem
	return errors.As(err, &unreachable) || errors.As(err, &refused) &&
		(refused.Status == http.StatusTooManyRequests || refused.Status >= http.StatusInternalServerError)
}

// WatchTimeout is how long a command that watches something retries while the api is unreachable:
// longer than a restart takes.
const WatchTimeout = 5 * time.Minute
