// Package cluster runs a whole gateway for tests. Postgres, Redis, RabbitMQ and S3 are private
// instances, the programs are real processes, SES is the simulator, and between every two of them there is a
// link that can be cut, delayed and disturbed. The chaos run uses it, and the neighbour suite,
// which needs no links.
package cluster

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	_ "github.com/lib/pq" // the driver of Cluster.Database
	"github.com/redis/go-redis/v9"

	"email-gateway/scripts/chaos/receiver"
	"email-gateway/scripts/local"
	"email-gateway/scripts/local/programs"
	"email-gateway/scripts/sessim"
)

// Config describes a gateway.
type Config struct {
	// Root is the checkout, Dir a directory for data, logs and programs.
	Root, Dir string
	// Overlay is passed to go build -overlay for the programs: it replaces source files.
	Overlay string
	// Single starts one program of each kind, without proxies in front of its dependencies, and publishes no
	// events of SES.
	Single bool
	// SendRate is SES's limit in recipients per second; 0 selects the constant SendRate.
	SendRate float64
	// Env is set for every program, in addition to the default variables. An empty value selects
	// the program's default.
	Env map[string]string
}

// Cluster is a running gateway.
type Cluster struct {
	Postgres, Redis, RabbitMQ, S3 *local.Service

	// Programs are all processes of the gateway, Links all links between components.
	Programs []*Program
	Links    []*Link
	Mail     *Mail
	Database *sql.DB // direct connection to Postgres
	// Receivers are the tenants' webhook endpoints; nil with Config.Single.
	Receivers *receiver.Server

	cfg       Config
	balancer  *local.Server
	env       map[string]string // of all programs; each also has the addresses of its links
	supervise context.Context
	end       context.CancelFunc
}

// Open builds the programs and starts everything. Close stops it; after an error Open calls Close.
func Open(ctx context.Context, cfg Config) (*Cluster, error) {
	c := &Cluster{cfg: cfg}
	c.supervise, c.end = context.WithCancel(context.WithoutCancel(ctx))
	if err := c.open(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) open(ctx context.Context) error {
	built := make(chan error, 1)
	go func() {
		built <- programs.Build(ctx, c.cfg.Root, c.bin(""), append([]string{"-overlay=" + c.cfg.Overlay}, programs.Gateway()...)...)
	}()
	err := errors.Join(c.startServices(ctx), <-built)
	if err != nil {
		return err
	}
	// Faults hold locks for as long as they last; Postgres ends idle transactions of the programs.
	if c.Database, err = sql.Open("postgres", c.Postgres.URL+"&idle_in_transaction_session_timeout=0"); err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	c.Database.SetMaxIdleConns(0) // an idle one may be dead: Postgres is killed often
	if c.Mail, err = newMail(cmp.Or(c.cfg.SendRate, SendRate)); err != nil {
		return err
	}
	if !c.cfg.Single {
		if c.Receivers, err = receiver.New(endpoints()); err != nil {
			return err
		}
	}
	if err := c.run(ctx, "migrate", "up"); err != nil {
		return err
	}
	return c.startPrograms(ctx)
}

func (c *Cluster) startServices(ctx context.Context) error {
	dir := filepath.Join(c.cfg.Dir, "services")
	c.Postgres, c.Redis = local.NewService(c.cfg.Root, dir, Postgres), local.NewService(c.cfg.Root, dir, Redis)
	c.RabbitMQ, c.S3 = local.NewService(c.cfg.Root, dir, RabbitMQ), local.NewService(c.cfg.Root, dir, S3)
	return local.Open(ctx, c.services()...)
}

func (c *Cluster) startPrograms(ctx context.Context) error {
	c.env = c.sharedSettings()
	proxies := newProxies()
	for _, role := range roles {
		if c.cfg.Single {
			role.count = 1
		}
		for n := range role.count {
			if err := c.addProgram(proxies, role.kind, n+1, role.dependencies); err != nil {
				return err
			}
		}
	}
	for _, p := range c.Programs {
		if err := p.Start(ctx); err != nil {
			return err
		}
	}
	if c.cfg.Single {
		return nil
	}
	var err error
	if c.balancer, err = newBalancer(c.APIs()); err != nil { // through links
		return err
	}
	return c.Mail.publish(c.balancer.URL)
}

// addProgram creates the program and its links.
func (c *Cluster) addProgram(proxies *proxies, kind string, number int, dependencies []string) error {
	addr, err := local.FreeAddress()
	if err != nil {
		return err
	}
	p := newProgram(c, fmt.Sprintf("%s-%d", kind, number), kind, addr)
	if kind == API {
		if p.Metrics, err = local.FreeAddress(); err != nil {
			return err
		}
		p.env["METRICS_ADDR"] = p.Metrics
	}
	for _, d := range dependencies {
		if c.cfg.Single {
			p.env[variables[d]] = c.urlThrough(d, c.upstream(d))
			continue
		}
		link, err := proxies.add(p.Name+":"+d, d, c.upstream(d))
		if err != nil {
			return err
		}
		c.Links = append(c.Links, link)
		p.env[variables[d]] = c.urlThrough(d, link.Addr)
	}
	if kind == API {
		p.env[variables[RabbitMQ]] = c.RabbitMQ.URL // says that RabbitMQ is used; the api never connects
	}
	if kind == API && !c.cfg.Single {
		link, err := proxies.add("load:"+p.Name, API, addr)
		if err != nil {
			return err
		}
		c.Links = append(c.Links, link)
	}
	c.Programs = append(c.Programs, p)
	return nil
}

// upstream returns the dependency's own address.
func (c *Cluster) upstream(dependency string) string {
	if dependency == SES {
		return c.Mail.Addr
	}
	return c.Service(dependency).Addr
}

// urlThrough returns the dependency's URL with another address.
func (c *Cluster) urlThrough(dependency, addr string) string {
	if dependency == SES {
		return "http://" + addr
	}
	return c.Service(dependency).Through(addr)
}

// services returns all services; those that were not created are nil.
func (c *Cluster) services() []*local.Service {
	return []*local.Service{c.Postgres, c.Redis, c.RabbitMQ, c.S3}
}

// Service returns a service by name; nil for other names.
func (c *Cluster) Service(name string) *local.Service {
	for _, s := range c.services() {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// Program returns a program by name; nil if there is none.
func (c *Cluster) Program(name string) *Program {
	for _, p := range c.Programs {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// Link returns a link by name; nil if there is none.
func (c *Cluster) Link(name string) *Link {
	for _, l := range c.Links {
		if l.Name == name {
			return l
		}
	}
	return nil
}

// APIs returns the URLs at which the load generator reaches the apis.
func (c *Cluster) APIs() []string {
	var urls []string
	if c.cfg.Single {
		return []string{"http://" + c.Program(ProgramNames(API)[0]).Addr}
	}
	for _, l := range c.Links {
		if l.Dependency == API {
			urls = append(urls, "http://"+l.Addr)
		}
	}
	return urls
}

// Close stops everything and removes the services' data; logs stay.
func (c *Cluster) Close() error {
	var ending sync.WaitGroup
	for _, p := range c.Programs {
		ending.Go(p.end)
	}
	ending.Wait()
	c.end()
	for _, l := range c.Links {
		l.close()
	}
	var errs []error
	if c.Mail != nil {
		errs = append(errs, c.Mail.Close())
	}
	if c.balancer != nil {
		errs = append(errs, c.balancer.Close())
	}
	if c.Receivers != nil {
		errs = append(errs, c.Receivers.Close())
	}
	if c.Database != nil {
		errs = append(errs, c.Database.Close())
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return errors.Join(append(errs, local.Destroy(ctx, c.services()...))...)
}

// OpenRedis connects directly to Redis. Commands are not retried.
func (c *Cluster) OpenRedis() (*redis.Client, error) {
	o, err := redis.ParseURL(c.Redis.URL)
	if err != nil {
		return nil, fmt.Errorf("read the URL of redis: %w", err)
	}
	o.MaxRetries, o.PoolSize = -1, 3
	return redis.NewClient(o), nil
}

// Ledger returns all requests that SES received, oldest first.
func (c *Cluster) Ledger() []sessim.Entry { return c.Mail.Simulator.Ledger() }
