package middleware

import (
	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/httpapi/problem"
)

// RequireRabbitMQ rejects requests that need RabbitMQ if there is none.
func RequireRabbitMQ(there bool) func(*gin.Context) error {
	return func(*gin.Context) error {
		if !there {
			return problem.BulkDisabled
		}
		return nil
	}
}
