package reqbody

import (
	"time"

	"email-gateway/api/internal/httpapi/transfer"
	"email-gateway/api/internal/mailing"
)

const (
	// MaxForm is the largest file with room for all other parts (bytes).
	MaxForm = mailing.MaxFile + 4<<20
	// UploadTime limits an upload: 512 MiB at 2.4 Mbit/s. Together with the ingestion it is well
	// below the hour after which a file without a mailing is deleted.
	UploadTime = 30 * time.Minute
	// BusyRate is the minimum rate (bytes per second) of a company's only upload while others
	// wait: the largest form then takes UploadTime.
	BusyRate = float64(MaxForm) / float64(UploadTime/time.Second)
)

// NewOpenUploads returns the uploads being received, of which there are none yet.
func NewOpenUploads() *transfer.Open { return transfer.NewOpen(BusyRate) }
