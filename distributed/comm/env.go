package comm

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"strconv"
	"strings"
	"time"
)

// FromEnv reads how this process was started. The first of these that is set
// gives rank and world size:
//
//   - RANK, WORLD_SIZE, LOCAL_RANK (torchrun and gtc run);
//   - OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK (Open MPI's mpirun);
//   - PMI_RANK, PMI_SIZE, MPI_LOCALRANKID (MPICH and Intel MPI);
//   - SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID (srun).
//
// Rank 0 is at MASTER_ADDR and MASTER_PORT. Without them a job on one host uses
// loopback and a port made from the job's number, and a Slurm job on several
// the first host of its list. GTC_PORT replaces the port, and is needed when
// something else already has it; under torchrun, whose own store takes
// MASTER_PORT, the port after it is used. Further: GTC_TOKEN, GTC_TIMEOUT
// (such as 30s), GTC_COMM (auto, shm, tcp), GTC_COMM_ALGORITHM (auto, direct,
// halving, ring; over TCP), GTC_LISTEN_FD; GTC_DEBUG=1 tells how collectives
// are done. With none of the
// ranks' variables set, the job is one process.
func FromEnv() (Options, error) { return fromEnv(os.Getenv) }

// RankFromEnv is the rank that the launcher's variables give this process, by the rules of FromEnv; false without.
func RankFromEnv(get func(string) string) (rank int, ok bool) {
	for _, l := range launchers {
		if get(l.rank) == "" || get(l.size) == "" {
			continue
		}
		n, err := strconv.Atoi(get(l.rank))
		return max(n, 0), err == nil && n >= 0
	}
	return 0, false
}

// launcher is how one starter of processes names its variables.
type launcher struct {
	rank, size, local string
	localSize         string   // ranks on this host, if it says
	nodes             string   // number of hosts, if it says
	job               []string // what tells jobs on one host apart
}

var launchers = []launcher{
	{rank: "RANK", size: "WORLD_SIZE", local: "LOCAL_RANK", localSize: "LOCAL_WORLD_SIZE", job: []string{"TORCHELASTIC_RUN_ID"}},
	{rank: "OMPI_COMM_WORLD_RANK", size: "OMPI_COMM_WORLD_SIZE", local: "OMPI_COMM_WORLD_LOCAL_RANK",
		localSize: "OMPI_COMM_WORLD_LOCAL_SIZE", job: []string{"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
	{rank: "PMI_RANK", size: "PMI_SIZE", local: "MPI_LOCALRANKID", localSize: "MPI_LOCALNRANKS", job: []string{"PMI_ID", "SLURM_JOB_ID"}},
	{rank: "SLURM_PROCID", size: "SLURM_NTASKS", local: "SLURM_LOCALID", nodes: "SLURM_JOB_NUM_NODES",
		job: []string{"SLURM_JOB_ID", "SLURM_STEP_ID"}},
}

func fromEnv(get func(string) string) (Options, error) {
	o := Options{
		Token: get("GTC_TOKEN"), Transport: get("GTC_COMM"), ShmDir: get("GTC_SHM_DIR"),
		Addr: get("MASTER_ADDR"), World: 1,
	}
	o.Algorithm = get("GTC_COMM_ALGORITHM")
	o.logTo(get("GTC_DEBUG"), os.Stderr)
	p := envParser{get: get}
	if s := get("GTC_TIMEOUT"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil || d <= 0 {
			return o, fmt.Errorf("GTC_TIMEOUT=%q is not a duration such as 30s", s)
		}
		o.Timeout = d
	}
	for _, l := range launchers {
		if get(l.rank) == "" || get(l.size) == "" {
			continue
		}
		o.Rank, o.World = p.number(l.rank), p.number(l.size)
		if o.LocalRank = o.Rank; get(l.local) != "" {
			o.LocalRank = p.number(l.local)
		}
		o.ListenFD = p.optional("GTC_LISTEN_FD")
		p.address(&o, l)
		break
	}
	if p.err == nil && o.World > 1 {
		if o.Addr == "" {
			return o, errors.New("MASTER_ADDR is not set, and the launcher does not say that all ranks are on this host: " +
				"set it to rank 0's host, or start the ranks with gtc run")
		}
		o.fill()
		p.err = o.validate()
	}
	return o, p.err
}

// envParser reads numbers and keeps the first error.
type envParser struct {
	get func(string) string
	err error
}

func (p *envParser) number(name string) int {
	n, err := strconv.Atoi(p.get(name))
	if (err != nil || n < 0) && p.err == nil {
		p.err = fmt.Errorf("%s=%q is not a number", name, p.get(name))
	}
	return n
}

func (p *envParser) optional(name string) int {
	if p.get(name) == "" {
		return 0
	}
	return p.number(name)
}

// address finds rank 0.
func (p *envParser) address(o *Options, l launcher) {
	oneHost := l.localSize != "" && p.get(l.localSize) != "" && p.number(l.localSize) == o.World ||
		l.nodes != "" && p.get(l.nodes) == "1"
	switch {
	case oneHost && !isLoopback(o.Addr):
		// All ranks are here, whatever name the launcher has for this host.
		o.Addr = "127.0.0.1"
	case o.Addr == "":
		if list := p.get("SLURM_JOB_NODELIST"); l.rank == "SLURM_PROCID" && list != "" {
			o.Addr = firstHost(list)
		}
	}
	o.Port = p.optional("MASTER_PORT")
	if o.Port > 0 && strings.EqualFold(p.get("TORCHELASTIC_USE_AGENT_STORE"), "true") {
		o.Port++
	}
	if p.get("GTC_PORT") != "" {
		o.Port = p.number("GTC_PORT")
	}
	if o.Port == 0 {
		h := fnv.New32a()
		for _, v := range l.job {
			h.Write([]byte(p.get(v)))
		}
		if h.Sum32() != fnv.New32a().Sum32() {
			o.Port = 20000 + int(h.Sum32()%10000)
		}
	}
}

// firstHost is the first name of a Slurm host list: "gpu[003-006,9],x" is gpu003.
func firstHost(list string) string {
	open := strings.IndexByte(list, '[')
	comma := strings.IndexByte(list, ',')
	if open < 0 || comma >= 0 && comma < open {
		if comma >= 0 {
			return list[:comma]
		}
		return list
	}
	rest := list[open+1:]
	end := strings.IndexAny(rest, "-,]")
	if end < 0 {
		return list[:open]
	}
	suffix := ""
	if shut := strings.IndexByte(rest, ']'); shut >= 0 {
		suffix = rest[shut+1:]
		if c := strings.IndexAny(suffix, ",["); c >= 0 {
			suffix = suffix[:c]
		}
	}
	return list[:open] + rest[:end] + suffix
}
