package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"email-gateway/scripts/interviews"
)

// book takes an address, a time and optionally the word follow.
func book(ctx context.Context, a *interviews.Agenda, gateway interviews.Gateway, args []string) error {
	follow := len(args) == 3 && args[2] == "follow"
	if len(args) > 2 && !follow {
		return errUsage
	}
	at, err := moment(args[1])
	if err != nil {
		return err
	}
	i, written, err := a.Book(ctx, args[0], at)
	if err != nil {
		return err
	}
	fmt.Printf("interview %d is booked\n", i.ID)
	interviews.Tell(os.Stdout, written)
	if follow {
		return gateway.Follow(ctx, os.Stdout, i.ID, len(written))
	}
	return nil
}

func move(ctx context.Context, a *interviews.Agenda, id int64, when string) error {
	at, err := moment(when)
	if err != nil {
		return err
	}
	moved, err := a.Move(ctx, id, at)
	interviews.Tell(os.Stdout, moved)
	return err
}

// moment parses a time in RFC 3339, or a duration from now.
func moment(when string) (time.Time, error) {
	if ahead, ok := strings.CutPrefix(when, "+"); ok {
		d, err := time.ParseDuration(ahead)
		return time.Now().Add(d), err
	}
	return time.Parse(time.RFC3339, when)
}
