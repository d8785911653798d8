package sesmail

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// NewMessageID returns an id in the format of SES in us-east-1: region and milliseconds, a UUID, a
// constant. 122 random bits make it unique.
func NewMessageID(now time.Time) string {
	return fmt.Sprintf("0100%012x-%s-000000", now.UnixMilli(), NewRequestID())
}

// NewRequestID returns a random UUID, as in SES's header x-amzn-RequestId.
func NewRequestID() string {
	hi, lo := rand.Uint64(), rand.Uint64()
	hi = hi&^0xf000 | 0x4000 // version 4
	lo = lo&^(3<<62) | 1<<63 // variant of RFC 9562
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", hi>>32, hi>>16&0xffff, hi&0xffff, lo>>48, lo&(1<<48-1))
}
