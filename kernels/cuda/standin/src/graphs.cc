// Graphs, made by capturing streams.
#include <string.h>

#include <algorithm>
#include <set>

#include "driver.h"

namespace driver {

// Executable is a graph made ready to run.
struct Executable {
	std::shared_ptr<Graph> graph;
};

static std::map<void*, std::shared_ptr<Graph>> graphs;
static std::set<Executable*> executables;

Result submit(Stream* s, Op op) {
	if (s->capture == nullptr) {
		enqueue(s, std::move(op));
		return kSuccess;
	}
	if (s->capture->invalid) {
		return kCaptureInvalidated;
	}
	Graph& g = *s->capture->graph;
	g.nodes.push_back(Node{std::move(op), s->after});
	s->after = {int(g.nodes.size()) - 1};
	return kSuccess;
}

Result invalidate(Stream* s) {
	s->capture->invalid = true;
	return kCaptureUnsupported;
}

// joined reports whether all nodes come before those that the origin ends with.
static bool joined(const Capture& c) {
	const auto& nodes = c.graph->nodes;
	std::vector<bool> reached(nodes.size());
	for (int n : c.origin->after) {
		reached[size_t(n)] = true;
	}
	for (size_t n = nodes.size(); n-- > 0;) {
		for (int b : nodes[n].before) {
			reached[size_t(b)] = reached[size_t(b)] || reached[n];
		}
	}
	return std::all_of(reached.begin(), reached.end(), [](bool r) { return r; });
}

// run does a graph's nodes: in the order of their making, or, lazily, of those that are ready the one made last.
static void run(std::unique_lock<std::mutex>& lock, Context* c, std::vector<Node>& nodes) {
	if (!lazy) {
		for (Node& n : nodes) {
			perform(lock, c, n.op);
		}
		return;
	}
	std::vector<size_t> missing(nodes.size());
	std::vector<std::vector<size_t>> next(nodes.size());
	std::set<size_t> ready;
	for (size_t n = 0; n < nodes.size(); n++) {
		missing[n] = nodes[n].before.size();
		for (int b : nodes[n].before) {
			next[size_t(b)].push_back(n);
		}
		if (missing[n] == 0) {
			ready.insert(n);
		}
	}
	while (!ready.empty()) {
		size_t n = *ready.rbegin();
		ready.erase(n);
		perform(lock, c, nodes[n].op);
		for (size_t m : next[n]) {
			if (--missing[m] == 0) {
				ready.insert(m);
			}
		}
	}
}

}  // namespace driver

using namespace driver;

GTC_API int cuStreamBeginCapture_v2(void* stream, int mode) {
	Enter e;
	if (e.result != kSuccess) {
		return e.result;
	}
	Stream* s = uintptr_t(stream) <= 2 ? nullptr : stream_of(stream);
	if (s == nullptr) {
		return uintptr_t(stream) <= 2 ? kCaptureUnsupported : kInvalidHandle;
	}
	if (s->capture != nullptr) {
		return kInvalidValue;
	}
	s->capture = std::make_shared<Capture>();
	s->capture->origin = s;
	s->capture->global = mode == 0;
	s->capture->streams.push_back(s);
	s->after.clear();
	return kSuccess;
}

GTC_API int cuStreamEndCapture(void* stream, void** graph) {
	EnterStream e(stream);
	if (e.result != kSuccess) {
		return e.result;
	}
	Stream* s = e.stream;
	*graph = nullptr;
	std::shared_ptr<Capture> c = s->capture;
	if (c == nullptr) {
		return kInvalidValue;
	}
	if (c->origin != s) {
		c->invalid = true;
		return kCaptureUnmatched;
	}
	Result result = c->invalid ? kCaptureInvalidated : joined(*c) ? kSuccess : kCaptureUnjoined;
	for (Stream* each : c->streams) {
		each->capture = nullptr;
		each->after.clear();
	}
	if (result == kSuccess) {
		*graph = c->graph.get();
		graphs[c->graph.get()] = c->graph;
	}
	return result;
}

GTC_API int cuStreamIsCapturing(void* stream, int* status) {
	Enter e;
	Stream* s = stream_of(stream);
	if (s == nullptr) {
		return kInvalidHandle;
	}
	*status = s->capture == nullptr ? 0 : s->capture->invalid ? 2 : 1;
	return e.result;
}

GTC_API int cuThreadExchangeStreamCaptureMode(int*) { return kSuccess; }

GTC_API int cuGraphGetNodes(void* graph, void**, size_t* count) {
	Enter e;
	if (graphs.count(graph) == 0) {
		return kInvalidValue;
	}
	*count = graphs[graph]->nodes.size();
	return e.result;
}

GTC_API int cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) {
	Enter e;
	if (e.result != kSuccess) {
		return e.result;
	}
	if (graphs.count(graph) == 0) {
		return kInvalidValue;
	}
	Executable* x = new Executable{graphs[graph]};
	executables.insert(x);
	*executable = x;
	return kSuccess;
}

GTC_API int cuGraphUpload(void*, void*) { return kSuccess; }

GTC_API int cuGraphLaunch(void* executable, void* stream) {
	Enter e;
	if (e.result != kSuccess) {
		return e.result;
	}
	Stream* s = stream_of(stream);
	if (executables.count((Executable*)executable) == 0 || s == nullptr) {
		return kInvalidHandle;
	}
	if (s->capture != nullptr) {
		return invalidate(s), kNotSupported;  // graphs within graphs: a GPU has them, gtc does not use them
	}
	// Nodes that record events or wait for them are about those of this launch.
	auto nodes = std::make_shared<std::vector<Node>>(((Executable*)executable)->graph->nodes);
	for (Node& n : *nodes) {
		if (n.op.wait != nullptr) {
			n.op.version = n.op.wait->recorded;
			n.op.from = n.op.wait->stream;
			n.op.sequence = n.op.wait->sequence;
		}
		if (n.op.record != nullptr) {
			n.op.version = ++n.op.record->recorded;
			n.op.record->stream = s;
			n.op.record->sequence = s->queued + 1;
		}
	}
	Op op;
	op.work = [nodes](Context* c) {
		std::unique_lock<std::mutex> lock(mutex);
		run(lock, c, *nodes);
	};
	enqueue(s, std::move(op));
	return kSuccess;
}

GTC_API int cuGraphDestroy(void* graph) {
	Enter e(false);
	return graphs.erase(graph) == 1 ? kSuccess : kInvalidValue;
}

GTC_API int cuGraphExecDestroy(void* executable) {
	Enter e(false);
	return executables.erase((Executable*)executable) == 1 ? kSuccess : kInvalidValue;
}
