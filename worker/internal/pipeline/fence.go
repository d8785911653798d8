package pipeline

import (
	"email-gateway/shared/email"
	"email-gateway/shared/store/outbox"
)

// The two halves of the fence: a task whose email is done or claimed by another worker ends at
// once, and only a task whose claim succeeds calls the provider. They are a separate file because a
// test replaces it by one without the fence and proves that the chaos run detects that.

// mayClaim reports whether a worker may claim an email in this status.
func mayClaim(s email.Status) bool { return s.Claimable() }

// isMine reports whether the claim succeeded.
func isMine(claim outbox.Advanced) bool { return claim.Applied }
