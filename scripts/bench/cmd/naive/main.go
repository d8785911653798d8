// Command naive is the reference of the api: a straightforward handler. It decodes the request,
// validates it with gin, and inserts one row with one statement. It has no keys, no HTML check and
// no idempotency.
package main

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"
	_ "github.com/lib/pq" // the driver
)

// request has the fields that are read from the body.
type request struct {
	To        string   `json:"to" binding:"required,email,max=255"`
	Subject   string   `json:"subject" binding:"required,max=150"`
	HTML      string   `json:"html" binding:"required,max=524288"`
	Tags      []string `json:"tags" binding:"max=5,dive,max=64"`
	Recipient struct {
		ExternalID string `json:"externalId" binding:"required,max=200"`
		Nome       string `json:"nome" binding:"max=200"`
		Email      string `json:"email" binding:"required,email"`
	} `json:"recipient"`
}

// connections to the database: as many as the smaller load has.
const connections = 64

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "naive:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context) error {
	db, err := sql.Open("postgres", os.Getenv("DATABASE_URL"))
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	defer db.Close()
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	var company uuid.UUID
	var lane int64
	err = db.QueryRowContext(ctx, "SELECT company_id, id FROM dispatch_lanes WHERE queue = 'email:send' AND mailing_id IS NULL").Scan(&company, &lane)
	if err != nil {
		return fmt.Errorf("find the tenant: %w", err)
	}
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.GET("/health", func(c *gin.Context) { c.String(http.StatusOK, "ok\n") })
	router.POST("/v1/email/send", func(c *gin.Context) { send(c, db, company, lane) })
	server := &http.Server{Addr: os.Getenv("NAIVE_ADDR"), Handler: router, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() }) // Serve returns the error
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func send(c *gin.Context, db *sql.DB, company uuid.UUID, lane int64) {
	var r request
	if err := c.ShouldBindJSON(&r); err != nil {
		c.JSON(http.StatusUnprocessableEntity, gin.H{"error": err.Error()})
		return
	}
	id := uuid.Must(uuid.NewV7())
	requestID := uuid.NewString()
	payload, err := json.Marshal(gin.H{
		"outboxId": id, "companyId": company, "requestId": requestID, "to": r.To, "subject": r.Subject,
		"htmlRef": id, "recipient": r.Recipient, "tags": r.Tags,
	})
	if err != nil {
		c.JSON(http.StatusInternalServerError, gin.H{"error": err.Error()})
		return
	}
	hash := sha256.Sum256([]byte(r.HTML))
	_, err = db.ExecContext(c.Request.Context(), `
		INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 1, now() + interval '1 day')`,
		id, company, lane, requestID, payload, "Bancada <aviso@bancada.example>", r.HTML, hash[:])
	if err != nil {
		c.JSON(http.StatusServiceUnavailable, gin.H{"error": err.Error()})
		return
	}
	c.JSON(http.StatusAccepted, gin.H{"outboxId": id, "requestId": requestID, "status": "PENDING", "createdAt": time.Now()})
}
