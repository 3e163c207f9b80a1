package ranks

import (
	"fmt"
	"time"

	"github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/distributed/mesh"
)

// Network is what a rank reaches others by.
type Network struct {
	Axes        map[string]comm.Communicator // by mesh axis, for axes of more than one rank
	Pairs       map[Peer]comm.Communicator   // with each rank that messages go to or come from, the lesser coordinate first
	Direct      map[string]comm.DeviceComm   // by mesh axis, on devices' memory; empty where no library does that
	DirectPairs map[Peer][2]comm.DeviceComm  // to the other rank and from it, on devices' memory; empty where no library does that
	Alive       func() error                 // the error by which the job has ended, or nil; nil where no device waits for another
	Patience    time.Duration                // longest wait of a device for other ranks; 0 for any
}

// Peer is another rank by its coordinate on an axis, the other coordinates being this rank's.
type Peer struct {
	Axis  string
	Coord int
}

// Network makes a communicator for each mesh axis of more than one rank, and for each rank that messages go to.
func (j *Job) Network() (Network, error) {
	net := Network{Axes: map[string]comm.Communicator{}, Pairs: map[Peer]comm.Communicator{}}
	for _, a := range j.Plan.Grid.Axes {
		if j.World == nil || j.Plan.Grid.Size(a.Name) == 1 || a.Name == mesh.TimeAxis {
			continue
		}
		// Also when the axis holds every rank: the world stays free for what the loop has to say.
		c, err := j.sub(a.Name, j.Plan.Grid.Group(j.Plan.Rank, a.Name))
		if err != nil {
			return net, err
		}
		net.Axes[a.Name] = c
	}
	pairs, err := j.Plan.Pairs()
	if err != nil {
		return net, err
	}
	stages, here := j.Plan.Grid.Group(j.Plan.Rank, mesh.PipelineAxis), j.Plan.Grid.Coord(j.Plan.Rank, mesh.PipelineAxis)
	for _, p := range pairs { // in the same order everywhere, or ranks would wait for each other
		if here != p[0] && here != p[1] {
			continue
		}
		c, err := j.sub(fmt.Sprintf("%s %d-%d", mesh.PipelineAxis, p[0], p[1]), []int{stages[p[0]], stages[p[1]]})
		if err != nil {
			return net, err
		}
		net.Pairs[Peer{mesh.PipelineAxis, p[0] + p[1] - here}] = c
	}
	return net, nil
}

// sub makes a communicator of ranks of the job.
func (j *Job) sub(name string, ranks []int) (comm.Communicator, error) {
	c, err := j.World.Sub(name, ranks)
	if err == nil && j.Wrap != nil {
		c = j.Wrap(c)
	}
	return c, err
}
