package interviews

import (
	"context"
	"fmt"
	"io"
	"time"
)

// Story demonstrates all operations and prints them: one interview is booked, moved and held, one
// cannot be booked and one is cancelled. It needs a running gateway for some seconds, because the
// last reminder is really sent.
func (a *Agenda) Story(ctx context.Context, out io.Writer, gateway Gateway) error {
	at := time.Now().AddDate(0, 0, 3).Truncate(time.Second)
	first, reminders, err := a.Book(ctx, "ana@candidata.example", at)
	if err != nil {
		return fmt.Errorf("book: %w", err)
	}
	fmt.Fprintf(out, "interview %d is booked for %s, with its reminders:\n", first.ID, clock(at))
	Tell(out, reminders)

	second, written, err := a.Book(ctx, "eva@candidata.example", at)
	if err == nil {
		return fmt.Errorf("interview %d is at the same time as another", second.ID)
	}
	fmt.Fprintf(out, "\ninterview %d was written with %d reminders, then refused (%v)\n", second.ID, len(written), err)
	if left, err := gateway.About(ctx, second.ID); err != nil || len(left) > 0 {
		return fmt.Errorf("%d of its reminders are left: %w", len(left), err)
	}
	fmt.Fprintln(out, "  nothing is left of it, and no reminder")

	third, _, err := a.Book(ctx, "bea@candidata.example", at.Add(time.Hour))
	if err != nil {
		return fmt.Errorf("book: %w", err)
	}
	withdrawn, err := a.CallOff(ctx, third.ID)
	if err != nil {
		return fmt.Errorf("call off: %w", err)
	}
	fmt.Fprintf(out, "\ninterview %d was booked and is called off:\n", third.ID)
	Tell(out, withdrawn)

	at = time.Now().Add(24*time.Hour + 2*time.Second).Truncate(time.Second)
	moved, err := a.Move(ctx, first.ID, at)
	if err != nil {
		return fmt.Errorf("move: %w", err)
	}
	fmt.Fprintf(out, "\ninterview %d is moved to %s, so that one reminder is due in two seconds:\n", first.ID, clock(at))
	Tell(out, moved)
	return gateway.Follow(ctx, out, first.ID, 1)
}

// Follow prints the status of an interview's emails until that number of them have a final state.
func (g Gateway) Follow(ctx context.Context, out io.Writer, id int64, ends int) error {
	told := map[string]Sent{}
	again := time.NewTicker(200 * time.Millisecond)
	defer again.Stop()
	for {
		emails, err := g.About(ctx, id)
		if err != nil {
			return fmt.Errorf("read the reminders of interview %d: %w", id, err)
		}
		ended := 0
		for _, e := range emails {
			if told[e.ID].Status != e.Status {
				fmt.Fprintf(out, "  %s  %-12s %s\n", time.Now().Format("15:04:05.0"), e.Aggregate.EventType, e.Status)
			}
			told[e.ID] = e
			if e.Status.Final() {
				ended++
			}
		}
		if ended >= ends {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-again.C:
		}
	}
}

// Tell prints a line for each reminder.
func Tell(out io.Writer, reminders []Reminder) {
	for _, r := range reminders {
		line := fmt.Sprintf("  %-12s %s", r.EventType, r.Status)
		if !r.At.IsZero() && !r.TooLate {
			line += ", due " + clock(r.At)
		}
		if r.TooLate {
			line += ", too late to change"
		}
		fmt.Fprintln(out, line)
	}
}

func clock(at time.Time) string { return at.Format("Mon 2 Jan 15:04:05") }
