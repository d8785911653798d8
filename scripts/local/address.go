package local

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// FreeAddress returns a free port below the kernel's ephemeral range: an ephemeral port could be
// used by a client while its owner is down.
func FreeAddress() (string, error) {
	for range 200 {
		addr := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000))
		listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", addr)
		if err != nil {
			continue
		}
		if err := listener.Close(); err == nil {
			return addr, nil
		}
	}
	return "", errors.New("no free port was found between 20000 and 32000")
}
