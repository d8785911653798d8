package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"email-gateway/scripts/local"
)

// Link is the connection from a program to one of its dependencies, through a proxy that can inject
// faults.
type Link struct {
	Name       string // worker-1:redis
	Dependency string // redis
	Addr       string // where the program dials

	proxy *toxiproxy.Proxy
}

// proxies creates links.
type proxies struct{ server *toxiproxy.ApiServer }

func newProxies() *proxies {
	zerolog.SetGlobalLevel(zerolog.Disabled) // toxics log to the library's global logger
	return &proxies{server: toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())}
}

func (p *proxies) add(name, dependency, upstream string) (*Link, error) {
	addr, err := local.FreeAddress()
	if err != nil {
		return nil, err
	}
	proxy := toxiproxy.NewProxy(p.server, name, addr, upstream)
	if err := p.server.Collection.Add(proxy, true); err != nil {
		return nil, fmt.Errorf("open link %s: %w", name, err)
	}
	return &Link{Name: name, Dependency: dependency, Addr: addr, proxy: proxy}, nil
}

// Toxic is a fault of a link, with toxiproxy's name and attributes.
type Toxic struct {
	Type       string         `json:"type"`
	Stream     string         `json:"stream"` // upstream or downstream
	Attributes map[string]any `json:"attributes"`
}

// linkTimeout is the timeout for a change of the proxy.
const linkTimeout = 20 * time.Second

// AddToxics adds faults to all connections of the link, existing and new ones.
func (l *Link) AddToxics(ctx context.Context, toxics ...Toxic) error {
	return l.change(ctx, "poison", func() error {
		for _, t := range toxics {
			text, err := json.Marshal(t)
			if err != nil {
				return err
			}
			if _, err := l.proxy.Toxics.AddToxicJson(bytes.NewReader(text)); err != nil {
				return err
			}
		}
		return nil
	})
}

// RemoveToxics reverts AddToxics. It closes connections that lost data.
func (l *Link) RemoveToxics(ctx context.Context) error {
	return l.change(ctx, "cure", func() error {
		l.proxy.Toxics.ResetToxics(context.WithoutCancel(ctx))
		return nil
	})
}

// Cut closes all connections and refuses new ones until Join.
func (l *Link) Cut(ctx context.Context) error {
	return l.change(ctx, "cut", func() error {
		l.proxy.Stop()
		return nil
	})
}

// Restore accepts connections again.
func (l *Link) Restore(ctx context.Context) error {
	return l.change(ctx, "join", func() error {
		if err := l.proxy.Start(); !errors.Is(err, toxiproxy.ErrProxyAlreadyStarted) {
			return err
		}
		return nil
	})
}

// change waits for the proxy, with a timeout.
func (l *Link) change(ctx context.Context, what string, work func() error) error {
	ctx, cancel := context.WithTimeout(ctx, linkTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- work() }()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("%s link %s: %w", what, l.Name, err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s link %s: %w", what, l.Name, ctx.Err())
	}
}

func (l *Link) close() {
	ctx, cancel := context.WithTimeout(context.Background(), linkTimeout)
	defer cancel()
	_ = l.Cut(ctx) // the process ends next
}
