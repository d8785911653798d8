package breaker

import "context"

// ReadState runs the loop of Watch once.
func (b *Breaker) ReadState(ctx context.Context) { _, _ = b.watch(ctx) }
