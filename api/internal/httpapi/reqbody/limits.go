package reqbody

import (
	"time"
)

// MaxBatch is the largest body of a batch (bytes), and the largest html and text of its emails together: a template
// makes a large email from a small item.
const MaxBatch = 10 << 20

// Limits limit the memory and disk space of request bodies.
type Limits struct {
	// ownMemory and allMemory are bytes of the bodies of one company and of all companies.
	// Bodies being received use at most ownArriving and allArriving of them, so that slow bodies
	// leave room for a complete body that is being processed.
	ownMemory, allMemory, ownArriving, allArriving int64
	// ownDisk and allDisk are bytes of bodies being received.
	ownDisk, allDisk int64
	// ownBodies limits how many bodies of a company are received at once: each has freeMemory
	// in addition.
	ownBodies int
	// evict: when there is no room for a body, the oldest bodies being received are cut off.
	evict bool
	wait  time.Duration // for memory of a complete body
}

// freeMemory is what each body may use without accounting, comparable to its connection's buffers (bytes).
const freeMemory = 4 << 10

// TenantLimits leave room for the largest body within the 8 MiB of its company, and for four
// of them in total. 512 bodies with 4 KiB each are the 2 MiB that bodies being received may not
// use.
var TenantLimits = Limits{
	ownMemory: 8 << 20, allMemory: 32 << 20, ownArriving: 6 << 20, allArriving: 24 << 20,
	ownDisk: 64 << 20, allDisk: 1 << 30, ownBodies: 512, wait: 5 * time.Second,
}

// BatchLimits are those of batches. A company has memory for one batch of the largest size, all companies for four: three
// may wait for locks of other transactions (see sending.batchService) and leave room for another company's.
// A batch that is being processed needs about three times its body.
var BatchLimits = Limits{
	ownMemory: MaxBatch + 2<<20, allMemory: 4 * (MaxBatch + 2<<20), ownArriving: 2 << 20, allArriving: 8 << 20,
	ownDisk: 64 << 20, allDisk: 1 << 30, ownBodies: 64, wait: 5 * time.Second,
}

// ForAttachments makes room on disk for bodies with attachments of the given size: for a company, two that arrive, with twice
// the size for base64, and are decoded.
func (l Limits) ForAttachments(attachments int64) Limits {
	l.ownDisk = max(l.ownDisk, 2*(3*attachments))
	l.allDisk = max(l.allDisk, 4*l.ownDisk)
	return l
}

// AnonymousLimits are bodies sent to the SNS route, by SNS or by anybody else. They use a
// separate budget. SNS sends a body within milliseconds, so slow bodies are cut off to make
// room for newer ones.
var AnonymousLimits = Limits{
	ownMemory: 8 << 20, allMemory: 8 << 20, ownArriving: 4 << 20, allArriving: 4 << 20,
	ownBodies: 512, evict: true, wait: 5 * time.Second,
}

// RenderLimits limit the memory of contents that are made from templates, and of responses with a whole template, until
// their requests end: a small request makes a large content, so the limits of bodies do not hold it. The largest
// content with its data fits into the memory of its company.
var RenderLimits = Limits{ownMemory: 8 << 20, allMemory: 24 << 20, wait: 5 * time.Second}

// BatchRenderLimits are those of batches. A batch holds its contents until it is committed, at most MaxBatch, while a
// further item reserves up to 6 MiB (see templates.Use.Memory).
var BatchRenderLimits = Limits{ownMemory: MaxBatch + 6<<20, allMemory: 3 * (MaxBatch + 6<<20), wait: 5 * time.Second}

// MaxBody is the largest body (bytes): html and text at their limits with some margin. If both are at their limits in a script
// other than Latin, they must not be escaped as \uXXXX.
const MaxBody = 2 << 20
