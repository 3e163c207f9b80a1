package nccl

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gtc-compiler/gtc/distributed/comm"
)

func init() {
	comm.Register(comm.Backend{Name: "nccl", Open: join})
}

// Available is nil where NCCL, a driver and a GPU are, and otherwise says what
// is missing.
func Available() error {
	_, err := open()
	return err
}

// join has the ranks meet by way of `local` and makes the group of all.
func join(opt comm.Options) (comm.Driver, error) {
	lib, err := open()
	if err != nil {
		return nil, err
	}
	opt.Transport = comm.TransportAuto
	base, err := comm.Connect(opt)
	if err != nil {
		return nil, err
	}
	d, err := newDriver(lib, base, opt)
	if err != nil {
		base.Abort(err.Error())
		base.Close()
		return nil, err
	}
	return d, nil
}

// driver is one group.
type driver struct {
	lib     *library
	base    comm.Communicator
	opt     comm.Options
	context uintptr
	all     *channel // collectives

	mu sync.Mutex
	// Messages have a communicator for each pair and direction that is used,
	// since those of one communicator would wait for each other.
	to, from map[int]*channel
}

// site names the exchanges of ids.
var site = &comm.Site{Collective: "start of NCCL", Tensor: "nccl id"}

func newDriver(lib *library, base comm.Communicator, opt comm.Options) (*driver, error) {
	d := &driver{lib: lib, base: base, opt: opt, to: map[int]*channel{}, from: map[int]*channel{}}
	n, err := lib.cuda.Devices()
	if err != nil {
		return nil, err
	}
	dev, err := lib.cuda.Device(opt.LocalRank % max(n, 1))
	if err != nil {
		return nil, err
	}
	if d.context, err = lib.cuda.Retain(dev); err != nil {
		return nil, err
	}
	var id uniqueID
	if base.Rank() == 0 {
		if err := lib.nccl("ncclGetUniqueId", lib.getUniqueID(&id)); err != nil {
			return nil, err
		}
	}
	if err := base.Broadcast(site, id.internal[:], comm.U8, 0); err != nil {
		return nil, err
	}
	d.all, err = d.channel(id, base.Size(), base.Rank())
	return d, err
}

// pair is the channel of messages to or from peer, which both sides make at
// their first call.
func (d *driver) pair(list map[int]*channel, peer int, sends bool) (*channel, error) {
	d.mu.Lock()
	ch := list[peer]
	d.mu.Unlock()
	if ch != nil {
		return ch, nil
	}
	var id uniqueID
	var err error
	rank := 0
	if sends {
		if err := d.lib.nccl("ncclGetUniqueId", d.lib.getUniqueID(&id)); err != nil {
			return nil, err
		}
		err = d.base.Send(site, id.internal[:], comm.U8, peer)
	} else {
		rank = 1
		err = d.base.Recv(site, id.internal[:], comm.U8, peer)
	}
	if err != nil {
		return nil, err
	}
	if ch, err = d.channel(id, 2, rank); err != nil {
		return nil, err
	}
	d.mu.Lock()
	list[peer] = ch
	d.mu.Unlock()
	return ch, nil
}

// Do implements comm.Driver.
func (d *driver) Do(c *comm.Call) error {
	if c.Op != comm.OpBarrier && len(c.Dst) == 0 && len(c.Src) == 0 {
		return nil // on all ranks alike
	}
	ch := d.all
	var err error
	switch c.Op {
	case comm.OpSend:
		ch, err = d.pair(d.to, c.Root, true)
	case comm.OpRecv:
		ch, err = d.pair(d.from, c.Root, false)
	}
	if err == nil {
		err = ch.do(c)
	}
	return err
}

// Sub implements comm.Driver.
func (d *driver) Sub(ranks []int) (comm.Driver, error) {
	base, err := d.base.Sub("nccl", ranks)
	if err != nil {
		return nil, err
	}
	s, err := newDriver(d.lib, base, d.opt)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Abort implements comm.Driver.
func (d *driver) Abort(reason string) { d.base.Abort(reason) }

// Close implements comm.Driver.
func (d *driver) Close() error {
	d.mu.Lock()
	channels := []*channel{d.all}
	for _, list := range []map[int]*channel{d.to, d.from} {
		for _, ch := range list {
			channels = append(channels, ch)
		}
	}
	d.mu.Unlock()
	for _, ch := range channels {
		ch.close()
	}
	return d.base.Close()
}

// watch returns when done is closed or has a value, or with the reason not to
// wait any longer: the job has ended, or nothing came within the time-out.
func (d *driver) watch(done <-chan error, peer int) error {
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	start := time.Now()
	for {
		select {
		case err := <-done:
			var other elsewhere
			if errors.As(err, &other) {
				return d.cause(err)
			}
			return err
		case <-t.C:
		}
		if err := comm.Failed(d.base); err != nil {
			return fault(err)
		}
		if waited := time.Since(start); waited > d.opt.Timeout {
			return comm.HungFault(peer, waited)
		}
	}
}

// cause is what the communicator behind knows of an error that another rank has made, which may take it a moment to hear; err itself
// where it hears nothing.
func (d *driver) cause(err error) error {
	for end := time.Now().Add(min(d.opt.Timeout, 2*time.Second)); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if known := comm.Failed(d.base); known != nil {
			return fault(known)
		}
	}
	return err
}

// fault keeps what is known of the failure of the communicator behind.
func fault(err error) error {
	if e, ok := err.(*comm.Error); ok {
		return &comm.Fault{Kind: e.Kind, Rank: e.Rank, Detail: e.Detail, World: true}
	}
	return fmt.Errorf("the job has failed: %w", err)
}
