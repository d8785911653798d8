package dispatcher

import (
	"math"

	"email-gateway/shared/email"
	"email-gateway/shared/store/dispatch"
)

// sizer decides how many tasks a queue holds, and how many of them a round or a batch adds.
type sizer interface {
	// window is how many tasks the queue should hold.
	window() int
	// record records how many tasks the queue holds.
	record(depth int)
	// step is the maximum number of tasks that a round adds at this depth.
	step(depth int) int
	// fit returns how many of the rows of a batch are published, from the first one on, if asked rows were requested.
	fit(rows []dispatch.DueRow, asked int) int
	// several reports whether tasks have more than one recipient, so that lanes take turns by recipients.
	several() bool
}

// emailSizer is the sizer of a queue of emails. It has a share of the window, which counts recipients.
type emailSizer struct {
	*load
	queue  string
	shares *shares
	all    *window
}

func (s emailSizer) window() int { return s.room(s.shares.share(s.queue, s.all.Size())) }

func (s emailSizer) record(depth int) { s.shares.recordDepth(s.queue, depth, s.room(s.all.Size())) }

func (s emailSizer) step(depth int) int {
	return s.shares.step(s.queue, depth, s.room(s.all.Size()))
}

const (
	// recipientsWindow is the window of the recipients queue: ten batches of the consumer, so that the consumer never waits,
	// and little data for a broker.
	recipientsWindow = 10_000
	// mailingsWindow is how many mailing jobs each dispatcher keeps ready on their queue. A job takes up to 3 s, and only the
	// dispatcher serves lanes round-robin, not the queue: the mailing of a company waits only for these jobs and the active
	// ones, however many another company has.
	mailingsWindow = 4
)

// bulkSizer is the sizer of a queue of bulk jobs: its window.
type bulkSizer int

func newBulkSizer(queue string) bulkSizer {
	if queue == email.QueueMailings {
		return mailingsWindow
	}
	return recipientsWindow
}

func (s bulkSizer) window() int                         { return int(s) }
func (bulkSizer) record(int)                            {}
func (bulkSizer) step(int) int                          { return math.MaxInt }
func (bulkSizer) fit(rows []dispatch.DueRow, _ int) int { return len(rows) }
func (bulkSizer) several() bool                         { return false }
