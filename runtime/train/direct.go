package train

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/runtime/device"
)

// overNCCL names the library whose collectives work on devices' memory.
const overNCCL = "nccl"

var stateSite = comm.Site{Tensor: "devices", Collective: "agreement on how devices talk"}

// onDevices makes the communicators that work on devices' memory, where the ranks can have them and nothing else was asked for.
func (j *job) onDevices(net *network, dev device.Device) error {
	if j.world == nil {
		return nil
	}
	begin := time.Now()
	net.patience = j.patience
	net.alive = func() error {
		if err := comm.Failed(j.world); err != nil {
			return err
		}
		for _, c := range net.all() {
			if err := c.Failed(); err != nil {
				return err
			}
		}
		return nil
	}
	if j.transport != comm.TransportAuto && j.transport != overNCCL {
		return nil
	}
	backend, err := j.agreeOn(dev)
	if backend == nil || err != nil {
		return err
	}
	net.direct, net.directPairs = map[string]comm.DeviceComm{}, map[peer][2]comm.DeviceComm{}
	for _, a := range j.plan.mesh.Axes { // in the same order everywhere
		if c := net.axes[a.Name]; c != nil {
			if net.direct[a.Name], err = backend.Open(c, dev.Bind); err != nil {
				return err
			}
		}
	}
	here := j.plan.mesh.Coord(j.plan.rank, stageAxis)
	for _, p := range slices.SortedFunc(maps.Keys(net.pairs), func(a, b peer) int { return a.coord - b.coord }) {
		up, err := backend.Open(net.pairs[p], dev.Bind)
		if err != nil {
			return err
		}
		down, err := backend.Open(net.pairs[p], dev.Bind)
		if err != nil {
			return err
		}
		if p.coord < here {
			up, down = down, up
		}
		net.directPairs[p] = [2]comm.DeviceComm{up, down}
	}
	if j.debug {
		fmt.Fprintf(j.err, "rank %d: collectives by %s on the device, ready in %v\n", j.plan.rank, backend.Name, time.Since(begin).Round(time.Millisecond))
	}
	return nil
}

// all are those of net that work on devices' memory.
func (net *network) all() []comm.DeviceComm {
	list := slices.Collect(maps.Values(net.direct))
	for _, pair := range net.directPairs {
		list = append(list, pair[:]...)
	}
	return list
}

// agreeOn finds the library that serves all ranks; nil where they go by way of the host.
func (j *job) agreeOn(dev device.Device) (*comm.DeviceBackend, error) {
	backend, missing := comm.OnDevices(overNCCL)
	mine := comm.DeviceState{ID: dev.Info().ID}
	if missing == nil {
		mine.Version, missing = backend.Here()
	}
	const size = 24
	all := make([]byte, size*j.plan.Ranks)
	word := binary.LittleEndian.AppendUint64(mine.ID[:], uint64(mine.Version))
	if err := j.world.AllGather(&stateSite, all, word, comm.U8); err != nil {
		return nil, err
	}
	states := make([]comm.DeviceState, j.plan.Ranks)
	for r := range states {
		b := all[size*r:][:size]
		states[r] = comm.DeviceState{ID: [16]byte(b), Version: int(binary.LittleEndian.Uint64(b[16:]))}
	}
	for r, state := range states {
		if state.Version > 0 {
			continue
		}
		if j.transport == overNCCL {
			if missing == nil {
				missing = fmt.Errorf("rank %d has none", r)
			}
			return nil, usagef("collectives by NCCL were asked for (--comm, GTC_COMM): %w", missing)
		}
		return nil, nil
	}
	if err := backend.Suits(states); err != nil {
		if j.plan.rank == 0 {
			fmt.Fprintf(j.err, "collectives go by way of the host's memory: %v\n", err)
		}
		return nil, nil
	}
	return backend, nil
}
