// `./dev bench rebuild`: the duration of NCCL's connections between two processes, the first time
// and when a communicator is rebuilt. Each round is a new pair of processes; over RDMA each process
// has its own device.
#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/lib/command_line.h"
#include "bench/lib/report.h"
#include "bench/net/control.h"
#include "net_plugin/abi/net_types.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/counters.h"

namespace rewire::bench {
namespace {

struct Options {
  std::string transport = "socket";
  int64_t rounds = 21;
  int64_t connections = 64;
  bool json = false;
};

// Results of one pair of processes: microseconds for one connection, and links made.
struct Round {
  double first_us = 0;
  double again_us = 0;
  uint64_t made_first = 0;
  uint64_t made_again = 0;
};

void Die(const char* what) {
  fprintf(stderr, "rebuild_perf: %s\n", what);
  _exit(1);
}

void Need(ncclResult_t result, const char* call) {
  if (result != ncclSuccess) Die(call);
}

using Handle = std::array<char, net::kHandleBytes>;

// The connections of one communicator: made, timed from the time at which each side knows the
// other's handles, and closed. Both processes have both directions.
class Communicator {
 public:
  Communicator(const Control& control, const net::NetV11* api, int device, size_t connections)
      : control_(control), api_(api), device_(device), ends_(connections) {
    Need(api_->init(&context_, 1, nullptr, nullptr, nullptr), "init");
  }
  ~Communicator() {
    for (const End& e : ends_) {
      api_->close_send(e.sender);
      api_->close_recv(e.receiver);
    }
    api_->finalize(context_);
  }

  // Returns the microseconds for one connection.
  double Connect() {
    std::vector<Handle> mine(ends_.size());
    std::vector<Handle> theirs(ends_.size());
    for (size_t i = 0; i < ends_.size(); ++i) {
      Need(api_->listen(context_, device_, mine[i].data(), &ends_[i].listener), "listen");
    }
    // Sends pieces that the socket accepts although nobody reads.
    for (size_t i = 0; i < ends_.size(); ++i) {
      control_.Send(mine[i].data(), mine[i].size());
      control_.Receive(theirs[i].data(), theirs[i].size());
    }
    control_.Meet();
    const Time begin = Now();
    size_t open = 2 * ends_.size();
    while (open > 0) {
      for (size_t i = 0; i < ends_.size(); ++i) {
        End& e = ends_[i];
        void* device = nullptr;
        if (e.sender == nullptr) {
          Need(api_->connect(context_, device_, theirs[i].data(), &e.sender, &device), "connect");
          open -= e.sender != nullptr ? 1 : 0;
        }
        if (e.receiver == nullptr) {
          Need(api_->accept(e.listener, &e.receiver, &device), "accept");
          open -= e.receiver != nullptr ? 1 : 0;
        }
      }
    }
    control_.Meet();
    const double us = static_cast<double>(ToNanoseconds(Now() - begin)) / 1e3;
    for (const End& e : ends_) Need(api_->close_listen(e.listener), "close_listen");
    return us / static_cast<double>(2 * ends_.size());
  }

 private:
  struct End {
    void* listener = nullptr;
    void* sender = nullptr;
    void* receiver = nullptr;
  };
  const Control control_;
  const net::NetV11* const api_;
  const int device_;
  void* context_ = nullptr;
  std::vector<End> ends_;
};

uint64_t LinksMade() {
  void* core = dlopen(REWIRE_NET_CORE, RTLD_NOW | RTLD_LOCAL);
  const auto start = reinterpret_cast<net::CoreStart>(dlsym(core, net::kCoreStartSymbol));
  const char* why = nullptr;
  std::vector<CounterValue> values(CounterTable().size());
  values.resize(start(net::kCoreAbiVersion, &why)->counters(values.data(), values.size()));
  return ValueIn(values, Counter::kNetLinksMade);
}

Round Measure(const Control& control, int device, size_t connections) {
  void* library = dlopen(REWIRE_NET_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) Die(dlerror());
  const auto* api = static_cast<const net::NetV11*>(dlsym(library, "ncclNetPlugin_v11"));
  if (api == nullptr) Die(dlerror());
  Round r;
  {
    Communicator first(control, api, device, connections);
    r.first_us = first.Connect();
    control.Meet();
  }
  control.Meet();
  r.made_first = LinksMade();
  {
    Communicator again(control, api, device, connections);
    r.again_us = again.Connect();
    control.Meet();
  }
  r.made_again = LinksMade() - r.made_first;
  return r;
}

// Runs a round in two new processes.
Round OneRound(const Options& o) {
  int between[2];
  int result[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, between) != 0 || pipe(result) != 0) {
    Die("socketpair");
  }
  pid_t children[2] = {-1, -1};
  for (const int side : {0, 1}) {
    children[side] = fork();
    if (children[side] != 0) continue;
    close(between[1 - side]);
    const Round r = Measure(Control(between[side], side == 0), o.transport == "verbs" ? side : 0,
                            static_cast<size_t>(o.connections));
    if (side == 0 && write(result[1], &r, sizeof r) != ssize_t{sizeof r}) _exit(1);
    _exit(0);
  }
  close(between[0]);
  close(between[1]);
  close(result[1]);
  Round r;
  const bool whole = read(result[0], &r, sizeof r) == ssize_t{sizeof r};
  close(result[0]);
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0 || !whole) Die("a process of the round failed");
  }
  return r;
}

int Main(int argc, char** argv) {
  Options o;
  CLI::App app("measures the connections of a communicator: the first build and a rebuild",
               "rebuild_perf");
  app.add_option("--transport", o.transport, "the plugin's transport")
      ->check(CLI::IsMember({"socket", "verbs"}));
  app.add_option("--rounds", o.rounds, "pairs of processes")->check(CLI::Range(1, 10000));
  app.add_option("--connections", o.connections,
                 "connections of one communicator in each direction")
      ->check(CLI::Range(1, 500));
  app.add_flag("--json", o.json, "one JSON object on stdout, the text on stderr");
  ParseOrExit(&app, argc, argv);
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  setenv("NCCL_SOCKET_FAMILY", "AF_INET", 1);
  if (o.transport == "verbs") {
    setenv("REWIRE_NET_REQUIRE", "verbs", 1);
  } else {
    setenv("NCCL_IB_DISABLE", "1", 1);
  }
  Report report("rebuild", o.json);
  std::vector<double> first;
  std::vector<double> again;
  uint64_t made_first = 0;
  uint64_t made_again = 0;
  for (int64_t i = 0; i < o.rounds; ++i) {
    const Round r = OneRound(o);
    first.push_back(r.first_us);
    again.push_back(r.again_us);
    made_first = r.made_first;
    made_again = std::max(made_again, r.made_again);
  }
  const absl::StatusOr<Summary> a = Summarize(first);
  const absl::StatusOr<Summary> b = Summarize(again);
  const absl::Status added = report.AddSamples("first", "us", first);
  const absl::Status added_again = report.AddSamples("again", "us", again);
  if (!a.ok() || !b.ok() || !added.ok() || !added_again.ok()) Die("no samples");
  const double ratio = a->median / b->median;
  fprintf(report.text(),
          "# %lld connections each way, %lld rounds; microseconds for one, median (spread)\n"
          "  first   %8.1f (%.1f), %llu links made\n"
          "  again   %8.1f (%.1f), %llu links made\n"
          "  ratio   %8.1f\n",
          static_cast<long long>(o.connections), static_cast<long long>(o.rounds), a->median,
          a->spread, static_cast<unsigned long long>(made_first), b->median, b->spread,
          static_cast<unsigned long long>(made_again), ratio);
  report.SetConfig("transport", o.transport);
  report.SetConfig("rounds", o.rounds);
  report.SetConfig("connections", o.connections);
  report.Set("connect_time_ratio_reused", ratio);
  report.Set("links_made_first_time", made_first);
  report.Set("links_made_second_time", made_again);
  const absl::Status written = report.Finish();
  return written.ok() ? 0 : 1;
}

}  // namespace
}  // namespace rewire::bench

int main(int argc, char** argv) { return rewire::bench::Main(argc, argv); }
