package train

import (
	"fmt"
	"time"

	"github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/distributed/mesh"
)

// network is what a rank reaches others by.
type network struct {
	axes  map[string]comm.Communicator // of each mesh axis that has more than one rank
	pairs map[peer]comm.Communicator   // with each rank that messages go to or come from, the lesser coordinate first
	// Those of the same groups that work on devices' memory, of pairs to the other rank and from it; empty without them.
	direct      map[string]comm.DeviceComm
	directPairs map[peer][2]comm.DeviceComm
	alive       func() error  // the error by which the job has ended, or nil; nil for a job of one rank
	patience    time.Duration // with devices that wait for each other; 0 for any
}

// peer is another rank by its coordinate on an axis, the other coordinates being this rank's.
type peer struct {
	axis  string
	coord int
}

// network makes a communicator for each mesh axis of more than one rank, and for each rank that messages go to.
func (j *job) network() (network, error) {
	net := network{axes: map[string]comm.Communicator{}, pairs: map[peer]comm.Communicator{}}
	for _, a := range j.plan.mesh.Axes {
		if j.world == nil || j.plan.mesh.Size(a.Name) == 1 || a.Name == mesh.TimeAxis {
			continue
		}
		// Also when the axis holds every rank: the world stays free for what the loop has to say.
		c, err := j.sub(a.Name, j.plan.mesh.Group(j.plan.rank, a.Name))
		if err != nil {
			return net, err
		}
		net.axes[a.Name] = c
	}
	pairs, err := j.plan.pairs()
	if err != nil {
		return net, err
	}
	stages, here := j.plan.mesh.Group(j.plan.rank, stageAxis), j.plan.mesh.Coord(j.plan.rank, stageAxis)
	for _, p := range pairs { // in the same order everywhere, or ranks would wait for each other
		if here != p[0] && here != p[1] {
			continue
		}
		c, err := j.sub(fmt.Sprintf("%s %d-%d", stageAxis, p[0], p[1]), []int{stages[p[0]], stages[p[1]]})
		if err != nil {
			return net, err
		}
		net.pairs[peer{stageAxis, p[0] + p[1] - here}] = c
	}
	return net, nil
}

// sub makes a communicator of ranks of the job.
func (j *job) sub(name string, ranks []int) (comm.Communicator, error) {
	c, err := j.world.Sub(name, ranks)
	if err == nil && j.wrap != nil {
		c = j.wrap(c)
	}
	return c, err
}
