package local

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Durability reads the settings of both servers that determine the loss in a power failure, and
// returns them in one line.
func Durability(ctx context.Context, postgres *sql.DB, redisURL string) (text string, err error) {
	var fsync, commit string
	if err := postgres.QueryRowContext(ctx, "SELECT current_setting('fsync'), current_setting('synchronous_commit')").Scan(&fsync, &commit); err != nil {
		return "", fmt.Errorf("read the settings of postgres: %w", err)
	}
	o, err := redis.ParseURL(redisURL)
	if err != nil {
		return "", fmt.Errorf("read the URL of redis: %w", err)
	}
	client := redis.NewClient(o)
	defer func() { err = errors.Join(err, client.Close()) }()
	settings, err := client.ConfigGet(ctx, "append*").Result()
	if err != nil {
		return "", fmt.Errorf("read the settings of redis: %w", err)
	}
	return fmt.Sprintf("durability  postgres fsync %s, synchronous_commit %s; redis appendonly %s, appendfsync %s",
		fsync, commit, settings["appendonly"], settings["appendfsync"]), nil
}
