package compose

import (
	"fmt"
	"net/http"
	"time"

	"email-gateway/api/internal/httpapi/problem"
)

// Problems of uploads and of the storage for files.
var (
	StorageUnavailable = problem.Problem{
		Status: http.StatusServiceUnavailable, Code: "STORAGE_UNAVAILABLE", RetryAfter: 5 * time.Second,
		Detail: "the storage for files cannot be reached; nothing was accepted: repeat the request after Retry-After",
	}
	tooManyMailings = problem.Problem{
		Status: http.StatusServiceUnavailable, Code: "BUSY", RetryAfter: 10 * time.Second,
		Detail: "too many mailings are being uploaded at once: repeat the request after Retry-After",
	}
	tooManyUploads = problem.Problem{
		Status: http.StatusTooManyRequests, Code: "TOO_MANY_UPLOADS", RetryAfter: 10 * time.Second,
		Detail: fmt.Sprintf("the company has %d uploads in progress", UploadsOfEach),
	}
	tooManyFiles = problem.Problem{
		Status: http.StatusServiceUnavailable, Code: "BUSY", RetryAfter: 10 * time.Second,
		Detail: "too many files are being stored at once; nothing was accepted: repeat the request after Retry-After",
	}
	tooManyFilesOfCompany = problem.Problem{
		Status: http.StatusTooManyRequests, Code: tooManyUploads.Code, RetryAfter: 10 * time.Second,
		Detail: fmt.Sprintf("%d files of the company are being stored; nothing was accepted: repeat the request after Retry-After", filesOfEach),
	}
)
