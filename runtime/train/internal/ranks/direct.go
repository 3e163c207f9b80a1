package ranks

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/runtime/device"
)

var stateSite = comm.Site{Tensor: "devices", Collective: "agreement on how devices talk"}

// OnDevices makes the communicators that work on devices' memory, where the ranks can have them and nothing else was asked for.
func (j *Job) OnDevices(net *Network, dev device.Device) error {
	if j.World == nil {
		return nil
	}
	begin := time.Now()
	net.Patience = j.patience
	net.Alive = func() error {
		if err := comm.Failed(j.World); err != nil {
			return err
		}
		for _, c := range net.all() {
			if err := c.Failed(); err != nil {
				return err
			}
		}
		return nil
	}
	if j.transport != comm.TransportAuto && j.transport != dev.Info().Library {
		if _, err := comm.OnDevices(j.transport); err == nil {
			return Usagef("collectives by %s were asked for (--comm, GTC_COMM), but %s has no memory that they work on", strings.ToUpper(j.transport), dev.Info().Name)
		}
		return nil
	}
	backend, err := j.agreeOn(dev)
	if backend == nil || err != nil {
		return err
	}
	net.Direct, net.DirectPairs = map[string]comm.DeviceComm{}, map[Peer][2]comm.DeviceComm{}
	for _, a := range j.Plan.Grid.Axes { // in the same order everywhere
		if c := net.Axes[a.Name]; c != nil {
			if net.Direct[a.Name], err = backend.Open(c, dev.Bind); err != nil {
				return err
			}
		}
	}
	here := j.Plan.Grid.Coord(j.Plan.Rank, mesh.PipelineAxis)
	for _, p := range slices.SortedFunc(maps.Keys(net.Pairs), func(a, b Peer) int { return a.Coord - b.Coord }) {
		up, err := backend.Open(net.Pairs[p], dev.Bind)
		if err != nil {
			return err
		}
		down, err := backend.Open(net.Pairs[p], dev.Bind)
		if err != nil {
			return err
		}
		if p.Coord < here {
			up, down = down, up
		}
		net.DirectPairs[p] = [2]comm.DeviceComm{up, down}
	}
	if j.Debug {
		fmt.Fprintf(j.Err, "rank %d: collectives by %s on the device, ready in %v\n", j.Plan.Rank, backend.Name, time.Since(begin).Round(time.Millisecond))
	}
	return nil
}

// all are those of net that work on devices' memory.
func (net *Network) all() []comm.DeviceComm {
	list := slices.Collect(maps.Values(net.Direct))
	for _, pair := range net.DirectPairs {
		list = append(list, pair[:]...)
	}
	return list
}

// agreeOn finds the library that serves all ranks; nil where they go by way of the host.
func (j *Job) agreeOn(dev device.Device) (*comm.DeviceBackend, error) {
	library := dev.Info().Library
	backend, missing := comm.OnDevices(library)
	mine := comm.DeviceState{ID: dev.Info().ID}
	if missing == nil {
		mine.Version, missing = backend.Here()
	}
	const size = 24
	all := make([]byte, size*j.Plan.Ranks)
	word := binary.LittleEndian.AppendUint64(mine.ID[:], uint64(mine.Version))
	if err := j.World.AllGather(&stateSite, all, word, comm.U8); err != nil {
		return nil, err
	}
	states := make([]comm.DeviceState, j.Plan.Ranks)
	for r := range states {
		b := all[size*r:][:size]
		states[r] = comm.DeviceState{ID: [16]byte(b), Version: int(binary.LittleEndian.Uint64(b[16:]))}
	}
	for r, state := range states {
		if state.Version > 0 {
			continue
		}
		if j.transport == library {
			if missing == nil {
				missing = fmt.Errorf("rank %d has none", r)
			}
			return nil, Usagef("collectives by %s were asked for (--comm, GTC_COMM): %w", strings.ToUpper(library), missing)
		}
		return nil, nil
	}
	if err := backend.Suits(states); err != nil {
		if j.Plan.Rank == 0 {
			fmt.Fprintf(j.Err, "collectives go by way of the host's memory: %v\n", err)
		}
		return nil, nil
	}
	return backend, nil
}
